"""A run as a folder that translates without torch: ONNX graphs, SentencePiece models, settings, and a model card."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import torch

from nmt.errors import NmtError, unwritable
from nmt.exported import CARD, ENCODER, FORMAT, JOINT, SETTINGS, SIDES, STEP, ExportSettings
from nmt.model.seq2seq import trainable_parameters
from nmt.model_card import PICTURE, Facts, model_card
from nmt.onnx_graphs import quantised, trace
from nmt.reporting import Reporter
from nmt.run_dir import RunDir, flush_folder, replacing, temporary_beside
from nmt.translate import Translator
from nmt.translations import BANNED


def export_run(
    run: RunDir, folder: Path, reporter: Reporter, *, checkpoint: Path | None = None, int8: bool = False,
    licence: str | None = None,
) -> Path:  # fmt: skip
    """Write the model of a run into a new folder, which is there when it is whole; `nmt.exported` reads it.

    Args:
        run: the run; its best checkpoint unless `checkpoint` names another.
        folder: new or empty.
        reporter: is told the sizes.
        checkpoint: a file.
        int8: multiply in 8 bits in each step (ONNX Runtime's dynamic quantisation).
        licence: what the model card names.

    Raises:
        NmtError: if the folder is taken, a package is missing, or the model cannot be exported.
    """
    refuse_taken(folder)
    _refuse_without_packages()
    translator = Translator.load(run, checkpoint=checkpoint, device="cpu")
    encoder, step = trace(translator.model, BANNED)
    if int8:
        step = quantised(step)
    contents = {ENCODER: encoder, STEP: step}
    for name in (JOINT,) if translator.tokenizers.joint else SIDES:
        contents[name] = (run.tokenizer / Path(name).name).read_bytes()
    config = run.settings()
    settings = ExportSettings(
        nmt_export=FORMAT,
        precision="int8" if int8 else "float32",
        kind=config.model.decoder.kind,
        src_lang=config.data.src_lang,
        tgt_lang=config.data.tgt_lang,
        step=translator.step,
        max_source=translator.max_source,
        alignment_shift=translator.alignment_shift,
        search=config.search,
        files={name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
    )
    parameters = sum(tensor.numel() for tensor in trainable_parameters(translator.model))
    facts = Facts.of(run, config, translator, settings, folder, parameters, licence)
    contents[SETTINGS] = (settings.model_dump_json(indent=2) + "\n").encode()
    contents[CARD] = _card(run, facts)
    if facts.picture is not None:
        contents[PICTURE] = facts.picture
    _write(folder, contents)
    total = sum(map(len, contents.values()))
    reporter.info(f"{settings.precision}, step {settings.step:,}, {total / 1e6:,.1f} MB in {len(contents)} files")
    return folder


def _card(run: RunDir, facts: Facts) -> bytes:
    """Return the model card."""
    try:
        return model_card(facts).encode()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        files = ", ".join(str(file) for file in (run.data_report, run.meta, run.eval / "test.json"))
        raise NmtError(
            f"the model card cannot be written: one of {files} is not as nmt writes it. Remove it, or run `nmt eval`."
        ) from error


def refuse_taken(folder: Path) -> None:
    """Refuse a folder that holds anything.

    Raises:
        NmtError: saying what to do.
    """
    if folder.exists() and not folder.is_dir():
        raise NmtError(f"{folder}: this is a file. Name a new folder with --output.")
    if folder.is_dir() and any(folder.iterdir()):
        raise NmtError(f"{folder}: the folder is not empty. Name a new one with --output, or remove it first.")


def _refuse_without_packages() -> None:
    missing = [name for name in ("onnx", "onnxruntime", "onnxscript") if find_spec(name) is None]
    if missing:
        raise NmtError(f"nmt export needs packages that are not installed: pip install {' '.join(missing)}")
    if not hasattr(torch.onnx, "ops"):
        raise NmtError(f"nmt export needs torch 2.8 or later, and this is {torch.__version__}: pip install -U torch")


def _write(folder: Path, contents: dict[str, bytes]) -> None:
    """The files in a folder that takes its name when all are there."""
    with _folder_beside(folder) as temporary:
        for name, content in contents.items():
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            with replacing(temporary / name) as stream:
                stream.write(content)
        if folder.is_dir():
            folder.rmdir()
        temporary.replace(folder)
        flush_folder(folder.parent)


@contextmanager
def _folder_beside(folder: Path) -> Iterator[Path]:
    temporary = temporary_beside(folder.absolute())
    try:
        temporary.mkdir(parents=True)
        yield temporary
    except OSError as error:
        raise unwritable(folder, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
