"""What commands share: options, the run they work on, its search settings, their input and output."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, NamedTuple

import typer

from nmt.errors import NmtError
from nmt.failures import say

if TYPE_CHECKING:
    from nmt.config import SearchConfig
    from nmt.exported import ExportedModel
    from nmt.reporting import Reporter
    from nmt.run_dir import RunDir
    from nmt.translate import Translator


def checked_device(device: str) -> str:
    """Return the device's name, or refuse what is none."""
    from nmt.config import DEVICES, is_device

    if not is_device(device):
        raise typer.BadParameter(f"{device!r} is not one of {DEVICES}.")
    return device


def named_path(text: object) -> Path:
    """Return the path, or refuse an empty one: `--run-dir "$DIR"` with no DIR would mean the current folder."""
    from nmt.data.text import is_unicode

    if not str(text):
        raise typer.BadParameter("the name is empty.")
    if "\0" in str(text) or not is_unicode(str(text)):
        raise typer.BadParameter(f"the name {str(text)!a} is not UTF-8; rename it.")
    return Path(str(text))


def written_path(text: object) -> Path:
    """Return the path to write, or refuse `-`, which a file would be called."""
    path = named_path(text)
    if str(path) == "-":
        raise typer.BadParameter("- is no file name here; leave --output out to write to stdout.")
    return path


ConfigOption = Annotated[
    str,
    typer.Option("--config", metavar="FILE", help="Settings, in YAML; one that comes with nmt is found by its name."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Replace a setting, for example training.seed=2. The value is YAML. Repeatable.",
    ),
]
RunDirOption = Annotated[
    Path | None,
    typer.Option(
        "--run-dir", parser=named_path, metavar="DIR", help="Folder of the run. [default: runs/ and the config's name]"
    ),
]
RunOption = Annotated[
    Path | None,
    typer.Option(
        "--run", parser=named_path, metavar="DIR", help="Folder of the run. [default: the newest under runs/]"
    ),
]
RunsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--run",
        parser=named_path,
        metavar="DIR",
        help="Folder of the run. Repeatable: an ensemble. [default: the newest under runs/]",
    ),
]
ModelOption = Annotated[
    Path | None,
    typer.Option(
        "--model", parser=named_path, metavar="DIR", help="Folder of an exported model (nmt export), instead of a run."
    ),
]
TextsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="TEXT", help="Text to translate; without any, --input or stdin.")
]
InputOption = Annotated[
    Path | None,
    typer.Option(
        "--input",
        parser=named_path,
        metavar="FILE",
        help="Text file, one sentence a line; may be gzip, bzip2, xz.",
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", parser=written_path, metavar="FILE", help="Write here, all or nothing. [default: stdout]"),
]
SplitOption = Annotated[
    str | None, typer.Option("--split", metavar="NAME", help="dev, test or train of the run's data. [default: test]")
]
SrcOption = Annotated[
    Path | None,
    typer.Option("--src", parser=named_path, metavar="FILE", help="A file instead of a split; with --tgt."),
]
TgtOption = Annotated[
    Path | None,
    typer.Option("--tgt", parser=named_path, metavar="FILE", help="The references, aligned with --src line by line."),
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        parser=named_path,
        metavar="FILE",
        help="Checkpoint to use. [default: the run's checkpoints/best.pt]",
    ),
]
BeamOption = Annotated[
    int | None,
    typer.Option(
        "--beam", min=1, max=1000, metavar="N", help="Hypotheses kept; 1 is greedy. [default: the run's setting]"
    ),
]
LengthPenaltyOption = Annotated[
    float | None,
    typer.Option(
        "--length-penalty",
        min=0,
        max=10,
        metavar="A",
        help="Larger favours long translations. [default: the run's setting]",
    ),
]
CoveragePenaltyOption = Annotated[
    float | None,
    typer.Option(
        "--coverage-penalty",
        min=0,
        max=10,
        metavar="B",
        help="Larger disfavours leaving source words out. [default: the run's setting]",
    ),
]


class Rerank(str, Enum):
    """How a translation is chosen from the beam."""

    none = "none"
    mbr = "mbr"


RerankOption = Annotated[
    Rerank | None,
    typer.Option(
        "--rerank",
        help="Choose among the beam by score (none), or by expected chrF, minimum Bayes risk (mbr). "
        "[default: the run's setting]",
    ),
]
BatchOption = Annotated[
    int, typer.Option("--batch-tokens", min=1, metavar="N", help="Source pieces translated at once, padding included.")
]
DeviceOption = Annotated[
    str,
    typer.Option(
        "--device", callback=checked_device, metavar="NAME", help="auto, cpu, cuda, or one GPU such as cuda:1."
    ),
]
Int8Option = Annotated[
    bool,
    typer.Option("--int8", help="Multiply in 8 bits: on a CPU faster, the translations almost the same."),
]


def refuse_overwriting(outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None]) -> None:
    """Refuse an output, by its option, that is also an input or another output; a device such as /dev/null may be."""
    taken = {os.path.realpath(path): option for option, path in inputs.items() if path is not None}
    for option, path in outputs.items():
        if path is None or (path.exists() and not path.is_file()):
            continue
        other = taken.setdefault(os.path.realpath(path), option)
        if other != option:
            raise typer.BadParameter(
                f"{str(path)!r} is the file of {other} too; name another.", param_hint=f"'{option}'"
            )


def refuse_run_files(outputs: Mapping[str, Path | None], *runs: RunDir | ExportedModel | None) -> None:
    """Refuse an output, by its option, that would replace what a run is made of; a run's other folders may hold it."""
    for run in runs:
        for option, path in outputs.items():
            if run is not None and path is not None and run.needs(path):
                what = "run" if hasattr(run, "checkpoints") else "model"
                raise typer.BadParameter(
                    f"{str(path)!r} is a part of the {what} {run.path}; name another file.", param_hint=f"'{option}'"
                )


def open_run(path: Path | None) -> RunDir:
    """Return the run of that folder, or the newest under runs/, and say which."""
    from nmt.run_dir import RunDir

    if path is not None:
        return RunDir.open(path)
    run = RunDir.newest()
    say(f"run: {run.path}, the newest (--run chooses another)")
    return run


def open_model(path: Path, int8: bool) -> ExportedModel:
    """Return the exported model in that folder, one in 8 bits if that is asked for."""
    from nmt.exported import ExportedModel

    model = ExportedModel.open(path)
    if int8 and model.settings.precision != "int8":
        raise NmtError(f"{path}: this model was exported in float32. Leave --int8 out, or export it with --int8.")
    return model


class SearchOptions(NamedTuple):
    """What a command line says of the search; None leaves the model's own setting."""

    beam: int | None = None
    length_penalty: float | None = None
    coverage_penalty: float | None = None
    rerank: Rerank | None = None
    n_best: int = 1


def search_settings(run: RunDir, options: SearchOptions, *others: RunDir) -> SearchConfig:
    """Return the run's search settings with what the command line changes; a beam holds n_best hypotheses at least.

    The `others` are those that make up an ensemble with it; one that has attention is enough for a coverage penalty.

    Raises:
        NmtError: if a coverage penalty is asked of models without attention, or a choice of a beam of 1.
    """
    configs = [each.settings() for each in (run, *others)]
    attentive = any(config.model.decoder.kind != "none" for config in configs)
    return changed_search(run.path, configs[0].search, attentive, options)


def changed_search(path: Path, search: SearchConfig, attentive: bool, options: SearchOptions) -> SearchConfig:
    """As `search_settings`, of the model in a folder by its own settings, and whether it has attention."""
    from nmt.config import search_with

    if options.coverage_penalty and not attentive:
        raise NmtError(f"{path}: a model of kind none has no attention that a coverage penalty could be taken of.")
    asked = {
        "beam_size": max(search.beam_size, options.n_best) if options.beam is None else options.beam,
        "length_penalty": options.length_penalty,
        "coverage_penalty": options.coverage_penalty,
        "rerank": None if options.rerank is None else options.rerank.value,
    }
    return search_with(search, {name: value for name, value in asked.items() if value is not None})


def load_translator(run: RunDir, checkpoint: Path | None, device: str, search: SearchConfig, int8: bool) -> Translator:
    """Return the run's translator; `torch` is imported here."""
    from nmt.translate import Translator

    return Translator.load(run, checkpoint=checkpoint, device=device, search=search, int8=int8)


@contextmanager
def text_input(texts: Sequence[str] | None, file: Path | None, reporter: Reporter) -> Iterator[tuple[BinaryIO, str]]:
    """Open what is to be translated, and say what messages call it."""
    from nmt.data.text import open_bytes

    if texts:
        # The bytes as the shell gave them: the reader tells a bad one, and splits at line feeds, as for a file.
        yield io.BytesIO(b"".join(os.fsencode(text) + b"\n" for text in texts)), "TEXT"
    elif file is not None and str(file) != "-":
        with open_bytes(file) as stream:
            yield stream, str(file)
    elif sys.stdin is None:
        raise NmtError("Standard input is closed. Give TEXT or --input FILE.")
    else:
        if sys.stdin.isatty():
            reporter.info("Reading from the terminal, one sentence a line; end with Ctrl-D.")
        yield sys.stdin.buffer, "standard input"


@contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Open standard output for bytes."""
    if sys.stdout is None:
        raise NmtError("Standard output is closed. Give --output FILE.")
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()
