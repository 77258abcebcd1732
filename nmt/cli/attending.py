"""`nmt attention`."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli.app import app
from nmt.cli.options import (
    BeamOption,
    CheckpointOption,
    DeviceOption,
    InputOption,
    RunOption,
    SearchOptions,
    TextsArgument,
    named_path,
    open_run,
    refuse_overwriting,
    refuse_run_files,
    search_settings,
    text_input,
)
from nmt.errors import NmtError

if TYPE_CHECKING:
    from nmt.reporting import Reporter

_MOST = 1000  # lines drawn unless --limit says otherwise
_SUFFIXES = (".html", ".png", ".svg", ".pdf")


def _drawable(output: Path) -> Path:
    """Return the path, or refuse one whose suffix does not say what to draw."""
    if not output.name:
        raise typer.BadParameter("the name is empty; give one such as attention.html.")
    if output.name.lower() in _SUFFIXES:
        raise typer.BadParameter(f"{str(output)!r} has no name before the suffix; give one such as attention.html.")
    if output.suffix.lower() not in _SUFFIXES:
        raise typer.BadParameter(f"{str(output)!r} does not end in one of {', '.join(_SUFFIXES)}.")
    return output


TgtOption = Annotated[
    Path | None,
    typer.Option(
        "--tgt", parser=named_path, metavar="FILE", help="Translations to look at instead, aligned line by line."
    ),
]
OutputOption = Annotated[
    Path, typer.Option("--output", metavar="FILE", callback=_drawable, help="What to write; see above.")
]
PiecesOption = Annotated[bool, typer.Option("--pieces", help="Show the model's pieces instead of words.")]
NBestOption = Annotated[
    int, typer.Option("--n-best", min=1, max=1000, metavar="N", help="Translations a sentence, on a page.")
]
LimitOption = Annotated[
    int | None,
    typer.Option("--limit", min=1, metavar="N", help="Draw the first N lines. [default: 1000]"),
]


@app.command(short_help="Draw what the model looks at: heat maps, or one page of many sentences.")
def attention(
    texts: TextsArgument = None,
    run: RunOption = None,
    input_file: InputOption = None,
    target_file: TgtOption = None,
    output: OutputOption = Path("attention.html"),
    pieces: PiecesOption = False,
    beam: BeamOption = None,
    n_best: NBestOption = 1,
    limit: LimitOption = None,
    checkpoint: CheckpointOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Translate text and draw where the model looked for each word. The files written are listed on stdout.

    \b
    nmt attention "The old dog sleeps."
    nmt attention "The old dog sleeps." --output dog.png
    nmt attention --input dev.en --output dev.html --n-best 5
    nmt attention --input dev.en --tgt dev.de --output dev.pdf --limit 20

    \b
    --output FILE.html   one page with all sentences, to be opened in a browser: point at a word to see its weights
    --output FILE.pdf    one file, a page a sentence
    --output FILE.png    a picture a sentence; of several lines FILE-001.png, FILE-002.png …, numbered by line
    --output FILE.svg    likewise

    Words are what stands between blanks; for a text without blanks, --pieces shows more. A row has the weights of the
    step that predicts its word, whatever training.alignment_shift says of alignments.
    """
    _check_options(texts, input_file, target_file, output, beam, n_best)
    from nmt.run_dir import refuse_unwritable

    refuse_unwritable(output)
    opened = open_run(run)  # before the heavy imports: a wrong name is told at once
    refuse_run_files({"--output": output}, opened)
    from nmt.console import ConsoleReporter

    with ConsoleReporter() as reporter:
        lines, targets = _read(texts, input_file, target_file, limit, reporter)
        from nmt.attention_maps import draw_attention

        paths = draw_attention(
            opened,
            output,
            lines,
            targets=targets,
            pieces=pieces,
            n_best=n_best,
            search=search_settings(opened, SearchOptions(beam, n_best=n_best)),
            checkpoint=checkpoint,
            device=device,
            reporter=reporter,
        )
    for path in paths:
        print(path)


def _check_options(
    texts: list[str] | None,
    input_file: Path | None,
    target_file: Path | None,
    output: Path,
    beam: int | None,
    n_best: int,
) -> None:
    """Refuse options that do not go together."""
    if texts and input_file is not None:
        raise typer.BadParameter("give either TEXT or --input, not both.", param_hint="'--input'")
    if n_best > 1 and (output.suffix.lower() != ".html" or target_file is not None):
        why = "there is one translation a sentence with --tgt" if target_file else "a picture shows one translation"
        raise typer.BadParameter(f"{why}.", param_hint="'--n-best'")
    if beam is not None and target_file is not None:
        raise typer.BadParameter("with --tgt nothing is searched for.", param_hint="'--beam'")
    if beam is not None and beam < n_best:
        raise typer.BadParameter(f"{n_best} translations need --beam {n_best} or more.", param_hint="'--n-best'")
    read = {"--input": None if str(input_file) == "-" else input_file, "--tgt": target_file}
    refuse_overwriting({"--output": output}, read)


def _read(
    texts: list[str] | None, input_file: Path | None, target_file: Path | None, wanted: int | None, reporter: Reporter
) -> tuple[list[str], list[str] | None]:
    """Return the first lines of the source, and those of the translations where they are given.

    No more are kept, and no more are read but to see whether two files are of the same length.
    """
    from nmt.data.text import read_blocks, read_lines

    targets: list[str] | None = None
    limit = wanted if wanted is not None else _MOST
    with text_input(texts, input_file, reporter) as (stream, name):
        source_lines = (line for block in read_blocks(stream, name) for line in block)
        lines = list(islice(source_lines, limit + 1))
        if target_file is not None:
            target_lines = read_lines(target_file)
            targets = list(islice(target_lines, limit + 1))
            counts = [len(lines), len(targets)]
            source_ends = bool(texts) or (input_file is not None and str(input_file) != "-" and input_file.is_file())
            whole = source_ends and target_file.is_file()  # a pipe may have no end
            if whole:
                counts = [counts[0] + sum(1 for _ in source_lines), counts[1] + sum(1 for _ in target_lines)]
            _refuse_unequal(name, target_file, counts, None if whole else limit)
    if len(lines) > limit:
        tell = reporter.warning if wanted is None else reporter.info  # what was asked for is nothing to warn of
        tell(f"{name} has more than {limit:,} lines: the first {limit:,} are drawn. --limit draws more or fewer.")
    return lines[:limit], targets[:limit] if targets is not None else None


def _refuse_unequal(source: str, target: Path, counts: list[int], limit: int | None) -> None:
    """Refuse files of unequal length; with a limit, counting ended one line beyond it."""
    if counts[0] == counts[1]:
        return
    first, second = (f"{count:,}" if limit is None or count <= limit else f"more than {limit:,}" for count in counts)
    raise NmtError(
        f"{source} has {first} line{'s' * (first != '1')}, but {target} has {second}: they must be aligned, a "
        "translation a line."
    )
