"""The folder of an exported model: names its files, opens it, and translates with it. Nothing here knows torch.

    model.json          settings, and the checksum of every other file that is read
    encoder.onnx        reads the sources
    decoder_step.onnx   one step of the search
    tokenizer/          SentencePiece models
    README.md           the model card, for people

A folder may come from a stranger: only files inside it are read, and nothing in it is code.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import ValidationError

from nmt.config import SearchConfig
from nmt.config_data import Section
from nmt.data.tokenizer import Tokenizer, Tokenizers
from nmt.errors import NmtError
from nmt.onnx_stepper import OnnxStepper
from nmt.translations import LineTranslator

SETTINGS, ENCODER, STEP, CARD = "model.json", "encoder.onnx", "decoder_step.onnx", "README.md"
JOINT, SIDES = "tokenizer/joint.model", ("tokenizer/src.model", "tokenizer/tgt.model")
FORMAT: Final = 1
LARGEST_SETTINGS = 2**20  # bytes


class ExportSettings(Section):
    """What model.json holds."""

    nmt_export: Literal[1]
    """Version of this format."""
    precision: Literal["float32", "int8"]
    """Of the products in each step."""
    kind: Literal["bahdanau", "luong", "none"]
    """Of the decoder."""
    src_lang: str
    """Language of what is translated."""
    tgt_lang: str
    """Language of translations."""
    step: int
    """Updates after which the weights were taken."""
    max_source: int
    """Pieces of a source that are translated; what is longer is cut."""
    alignment_shift: int
    """Which step's weights belong to a piece: see `nmt.data.links.link_pieces`."""
    search: SearchConfig
    """The search unless a command says otherwise."""
    files: dict[str, str]
    """SHA-256 of each file that is read, by its name in the folder."""


@dataclass(frozen=True)
class ExportedModel:
    """An exported model's folder and its settings."""

    path: Path
    settings: ExportSettings

    @classmethod
    def open(cls, path: str | Path) -> ExportedModel:
        """The model in a folder; its files are read by `translator`.

        Raises:
            NmtError: if there is none, or one that this version cannot read.
        """
        folder = Path(path)
        if not folder.is_dir():
            what = "this is a file; an exported model is a folder" if folder.exists() else "there is no such folder"
            raise NmtError(f"{folder}: {what}. `nmt export` makes one of a run.")
        if not (folder / SETTINGS).is_file():
            run = " This is a run: name it with --run, or export it first." if (folder / "config.yaml").exists() else ""
            raise NmtError(f"{folder}: this is no exported model: it has no {SETTINGS}. `nmt export` makes one.{run}")
        content = _read(folder, SETTINGS)
        try:
            settings = ExportSettings.model_validate_json(content[:LARGEST_SETTINGS])
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise _damaged(folder / SETTINGS, f"{where}: {first['msg']}" if where else first["msg"]) from error
        names = {ENCODER, STEP, JOINT}, {ENCODER, STEP, *SIDES}
        if {*settings.files} not in names:
            raise _damaged(folder / SETTINGS, f"it names the files {', '.join(sorted(settings.files))}")
        return cls(folder, settings)

    def needs(self, path: Path) -> bool:
        """Tell whether a file is a part of the model."""
        return os.path.realpath(path) in {
            os.path.realpath(self.path / name) for name in (SETTINGS, CARD, *self.settings.files)
        }

    def translator(self, search: SearchConfig | None = None) -> LineTranslator:
        """Load the model, with other search settings than its own if they are given.

        Raises:
            NmtError: if a file is missing, leads out of the folder or is not the one that was exported, or ONNX
                Runtime is not installed or cannot load it.
        """
        contents = {name: self._checked(name) for name in self.settings.files}
        if JOINT in contents:
            joint = Tokenizer(self.path / JOINT)
            tokenizers = Tokenizers(joint, joint, True)
        else:
            src, tgt = (Tokenizer(self.path / name) for name in SIDES)
            tokenizers = Tokenizers(src, tgt, False)
        try:
            stepper = OnnxStepper(contents[ENCODER], contents[STEP], tokenizers.tgt.vocab_size)
        except ValueError as error:
            raise _damaged(self.path, str(error)) from error
        settings = self.settings
        return LineTranslator(
            stepper, tokenizers, search or settings.search, settings.max_source, settings.alignment_shift
        )

    def _checked(self, name: str) -> bytes:
        content = _read(self.path, name)
        if hashlib.sha256(content).hexdigest() != self.settings.files[name]:
            raise _damaged(self.path / name, f"its checksum is not the one in {SETTINGS}")
        # A graph can name other files as the place of its weights; ours never do, and their text never has this word.
        if name.endswith(".onnx") and b"location" in content:
            raise _damaged(self.path / name, "it refers to other files")
        return content


def _read(folder: Path, name: str) -> bytes:
    """The bytes of a file inside the folder."""
    path = folder / name
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise _damaged(path, f"it leads out of the folder, to {os.path.realpath(path)}")
    if not path.is_file():
        raise _damaged(path, "there is no such file")
    try:
        return path.read_bytes()
    except OSError as error:
        raise NmtError(f"{path}: cannot be read: {error.strerror or error}.") from error


def _damaged(path: Path, why: str) -> NmtError:
    return NmtError(f"{path}: this exported model is damaged, or not of this version of nmt ({why}). Export it again.")
