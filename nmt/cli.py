"""The command line: options, and what goes to stdout and stderr.

Heavy packages are imported inside the commands, so that help and usage errors come at once.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from nmt import __version__
from nmt.errors import NmtError
from nmt.failures import Commands, say

if TYPE_CHECKING:
    from nmt.config import Config, SearchConfig
    from nmt.evaluate import EvaluationResult
    from nmt.reporting import Reporter
    from nmt.run_dir import RunDir
    from nmt.translate import Translator

app = typer.Typer(
    name="nmt",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def main(args: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code; `args` are the process' own by default."""
    if sys.stderr is None:  # closed by `2>&-`: `print` would write messages to stdout
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    app(args=args, prog_name="nmt")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"nmt {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train recurrent translation models with attention, translate with them, and see how they do.

    \b
    nmt train --config bahdanau.yaml    train on the demo corpus, about five minutes
    nmt translate "The old dog sleeps." translate with the newest run
    nmt eval                            BLEU, chrF and TER of its test set, and BLEU by length

    Each command explains itself: nmt train --help.
    """


def _device(device: str) -> str:
    from nmt.config import DEVICES, is_device

    if not is_device(device):
        raise typer.BadParameter(f"{device!r} is not one of {DEVICES}.")
    return device


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
    typer.Option("--run-dir", metavar="DIR", help="Folder of the run. [default: runs/ and the config's name]"),
]
RunOption = Annotated[
    Path | None, typer.Option("--run", metavar="DIR", help="Folder of the run. [default: the newest under runs/]")
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option("--checkpoint", metavar="FILE", help="Checkpoint to use. [default: the run's checkpoints/best.pt]"),
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
BatchOption = Annotated[
    int, typer.Option("--batch-tokens", min=1, metavar="N", help="Source pieces translated at once, padding included.")
]
DeviceOption = Annotated[
    str, typer.Option("--device", callback=_device, metavar="NAME", help="auto, cpu, cuda, or one GPU such as cuda:1.")
]


@app.command(short_help="Train a model, from parallel text to test scores.")
def train(
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Settings, in YAML; one that comes with nmt is found by its name. Without it --resume goes on with "
            "a run under its own settings.",
        ),
    ] = None,
    overrides: SetOption = None,
    run_dir: RunDirOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run where it stopped.")] = False,
) -> None:
    """Train a model: read the data, learn the vocabulary, train, validate, keep the best, score the test set.

    \b
    nmt train --config bahdanau.yaml
    nmt train --config my.yaml --set training.max_minutes=30 --run-dir runs/half-hour
    nmt train --config my.yaml --set 'data.train={src: a.en.gz, tgt: a.de.gz}'
    nmt train --resume --run-dir runs/half-hour

    Relative paths in the file are relative to the file, those in --set to the current folder. Ctrl-C stops after
    writing a checkpoint that --resume goes on from.
    """
    from nmt.config import load_config
    from nmt.console import ConsoleReporter, show_evaluation
    from nmt.run_dir import RunDir

    if config is None and not resume:
        raise typer.BadParameter("needed, unless --resume goes on with a run.", param_hint="'--config'")
    if config is None:
        run = RunDir.open(run_dir) if run_dir is not None else RunDir.newest()
        settings, path = load_config(str(run.config), overrides or ()), run.path
    else:
        settings = load_config(config, overrides or ())
        path = run_dir or _default_run(config)
    if not resume:
        RunDir(path).refuse_existing()  # before the heavy imports: told at once
    with ConsoleReporter() as reporter:
        result = _train(settings, path, resume, reporter)
    if result is not None:
        show_evaluation(result, RunDir(path))


def _default_run(config: str) -> Path:
    return Path("runs") / Path(config).stem


def _train(settings: Config, path: Path, resume: bool, reporter: Reporter) -> EvaluationResult | None:
    from nmt.train import train as run_training
    from nmt.training.signals import Stopped

    try:
        return run_training(settings, path, resume=resume, reporter=reporter, command=["nmt", *sys.argv[1:]])
    except Stopped as stop:
        reporter.info(f"{stop}; all is saved. Go on with: nmt train --resume --run-dir {shlex.quote(str(path))}")
        raise typer.Exit(stop.exit_code) from None


@app.command(short_help="Read, check and encode the data, and report on it.")
def prepare(config: ConfigOption, overrides: SetOption = None, run_dir: RunDirOption = None) -> None:
    """Do the data part of training alone: read, check, filter, learn the vocabulary, encode; and report.

    What it makes is kept in .nmt-cache beside the run's folder, so in runs/.nmt-cache unless --run-dir says otherwise,
    and used by all training runs that lie there. The run itself is not begun.

    \b
    nmt prepare --config my.yaml
    """
    from nmt.config import load_config
    from nmt.console import ConsoleReporter
    from nmt.prepare import prepare as prepare_data
    from nmt.run_dir import RunDir

    settings = load_config(config, overrides or ())
    with ConsoleReporter() as reporter:
        prepare_data(settings, RunDir(run_dir or _default_run(config)).cache_root, reporter)


class Format(str, Enum):
    """How translations are written."""

    text = "text"
    tsv = "tsv"
    jsonl = "jsonl"


@app.command(short_help="Translate text, a file or stdin, line by line.")
def translate(
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Text to translate; without any, --input or stdin.")
    ] = None,
    run: RunOption = None,
    input_file: Annotated[
        Path | None,
        typer.Option("--input", metavar="FILE", help="Text file, one sentence a line; may be gzip, bzip2, xz."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Write here, all or nothing. [default: stdout]")
    ] = None,
    beam: BeamOption = None,
    n_best: Annotated[int, typer.Option("--n-best", min=1, max=1000, metavar="N", help="Translations a line.")] = 1,
    batch_tokens: BatchOption = 4096,
    length_penalty: LengthPenaltyOption = None,
    checkpoint: CheckpointOption = None,
    device: DeviceOption = "auto",
    form: Annotated[
        Format | None,
        typer.Option("--format", help="How to write translations, see above. [default: text; tsv with --n-best]"),
    ] = None,
) -> None:
    """Translate text, line by line: N lines in, N lines out, in order.

    \b
    nmt translate "The old dog sleeps."
    nmt translate --input news.en --output news.de --beam 10
    tail -f chat.en | nmt translate --format tsv

    \b
    --format text    one translation a line
    --format tsv     score, tab, translation; with --n-best N up to N lines a sentence:
                     line number, rank, score, translation, tabs between; both count from 1
    --format jsonl   one object a line: line, text, score, n_best (a list of text and score)

    A score is the log probability divided by the length penalty: nearer to 0 is better. A blank line stays blank.
    """
    if texts and input_file is not None:
        raise typer.BadParameter("give either TEXT or --input, not both.", param_hint="'--input'")
    form = _format(form, n_best, beam)

    from nmt.console import ConsoleReporter, write_translations
    from nmt.data.text import read_blocks
    from nmt.run_dir import replacing

    opened = _open_run(run)
    with ConsoleReporter() as reporter, _input(texts, input_file, reporter) as (stream, name):
        translator = _translator(opened, checkpoint, device, _search(opened, beam, length_penalty, n_best))
        with replacing(output) if output is not None else _stdout() as out:
            blocks = read_blocks(stream, name)
            results = translator.stream(blocks, n_best=n_best, batch_tokens=batch_tokens)
            truncated = write_translations(
                results, out, form.value, n_best, None if _watched(input_file, out) else reporter
            )
        if truncated:
            reporter.warning(_too_long(truncated))


def _format(form: Format | None, n_best: int, beam: int | None) -> Format:
    """Return the format to write, or refuse options that do not go together."""
    if n_best > 1 and form is Format.text:
        raise typer.BadParameter("text has one translation a line; use tsv or jsonl.", param_hint="'--format'")
    if beam is not None and beam < n_best:
        raise typer.BadParameter(f"{n_best} translations need --beam {n_best} or more.", param_hint="'--n-best'")
    return form or (Format.tsv if n_best > 1 else Format.text)


def _watched(input_file: Path | None, out: BinaryIO) -> bool:
    """Tell whether somebody sees the translations as they come, or may be typing, and needs no report of progress."""
    return input_file is None or str(input_file) == "-" or out.isatty()


def _too_long(lines: int) -> str:
    return f"{lines} line{'s were' if lines > 1 else ' was'} too long: only the beginning was translated."


def _open_run(path: Path | None) -> RunDir:
    from nmt.run_dir import RunDir

    if path is not None:
        return RunDir.open(path)
    run = RunDir.newest()
    say(f"run: {run.path}, the newest (--run chooses another)")
    return run


def _search(run: RunDir, beam: int | None, length_penalty: float | None, n_best: int = 1) -> SearchConfig:
    """Return the run's search settings with what the command line changes; a beam holds n_best hypotheses at least."""
    from nmt.config import load_config, search_with

    search = load_config(str(run.config)).search
    changes: dict[str, object] = {"beam_size": beam if beam is not None else max(search.beam_size, n_best)}
    if length_penalty is not None:
        changes["length_penalty"] = length_penalty
    return search_with(search, changes)


def _translator(run: RunDir, checkpoint: Path | None, device: str, search: SearchConfig) -> Translator:
    from nmt.translate import Translator

    return Translator.load(run, checkpoint=checkpoint, device=device, search=search)


@contextmanager
def _input(texts: Sequence[str] | None, file: Path | None, reporter: Reporter) -> Iterator[tuple[BinaryIO, str]]:
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
def _stdout() -> Iterator[BinaryIO]:
    if sys.stdout is None:
        raise NmtError("Standard output is closed. Give --output FILE.")
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


@app.command("eval", short_help="Score a test set: BLEU, chrF, TER, and BLEU by length.")
def evaluate(
    run: RunOption = None,
    split: Annotated[
        str | None, typer.Option("--split", metavar="NAME", help="dev or test of the run's data. [default: test]")
    ] = None,
    src: Annotated[
        Path | None, typer.Option("--src", metavar="FILE", help="Score a file instead of a split; with --tgt.")
    ] = None,
    tgt: Annotated[
        Path | None, typer.Option("--tgt", metavar="FILE", help="The references, aligned with --src line by line.")
    ] = None,
    checkpoint: CheckpointOption = None,
    beam: BeamOption = None,
    length_penalty: LengthPenaltyOption = None,
    batch_tokens: BatchOption = 4096,
    device: DeviceOption = "auto",
) -> None:
    """Translate a test set and score it: BLEU, chrF, TER with 95 % intervals, and BLEU by source length.

    \b
    nmt eval
    nmt eval --run runs/luong --split dev --beam 1
    nmt eval --src news.en --tgt news.de

    The scores, a CSV file and a plot by length, and the translations are written to eval/ in the run's folder.
    """
    if (src is None) != (tgt is None):
        raise typer.BadParameter("--src and --tgt go together.", param_hint="'--src'")
    if src is not None and split is not None:
        raise typer.BadParameter("give either --split or --src and --tgt.", param_hint="'--split'")

    opened = _open_run(run)  # before the heavy imports: a wrong name is told at once
    from nmt.console import ConsoleReporter, show_evaluation
    from nmt.evaluate import evaluate_split

    with ConsoleReporter() as reporter:
        result = evaluate_split(
            opened,
            reporter,
            split=split or "test",
            src=src,
            tgt=tgt,
            checkpoint=checkpoint,
            search=_search(opened, beam, length_penalty),
            device=device,
            batch_tokens=batch_tokens,
        )
        if result.truncated:
            reporter.warning(_too_long(result.truncated))
    show_evaluation(result, opened)


@app.command(short_help="Say what a run holds and how large its model is.")
def info(
    run: RunOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
) -> None:
    """Say what a run holds: its settings, how far it came, its scores, and the model's parameters by part.

    \b
    nmt info
    nmt info --run runs/luong --json
    """
    opened = _open_run(run)  # before the heavy imports: a wrong name is told at once
    from nmt.console import show_run
    from nmt.info import describe

    described = describe(opened)
    if as_json:
        print(json.dumps(described.to_dict(), indent=2, ensure_ascii=False))
    else:
        show_run(described)
