"""`nmt align`."""

from __future__ import annotations

from contextlib import nullcontext
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli.app import app
from nmt.cli.options import (
    BatchOption,
    BeamOption,
    CheckpointOption,
    DeviceOption,
    OutputOption,
    RunOption,
    SearchOptions,
    SplitOption,
    named_path,
    open_run,
    refuse_overwriting,
    refuse_run_files,
    search_settings,
    standard_output,
    written_path,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nmt.align import AlignedPair, AlignmentInput
    from nmt.data.links import AlignmentScores, Links
    from nmt.reporting import Reporter
    from nmt.run_dir import RunDir


class Symmetrization(str, Enum):
    """How the links of two directions become one alignment."""

    intersection = "intersection"
    union = "union"
    gdfa = "grow-diag-final-and"


SrcOption = Annotated[
    Path | None,
    typer.Option("--src", parser=named_path, metavar="FILE", help="Align a file; without --tgt, translate it first."),
]
TgtOption = Annotated[
    Path | None,
    typer.Option("--tgt", parser=named_path, metavar="FILE", help="The translations, aligned with --src line by line."),
]
SrcWordsOption = Annotated[
    Path | None,
    typer.Option(
        "--src-words",
        parser=named_path,
        metavar="FILE",
        help="The source's words, blanks between. [default: those of the text]",
    ),
]
TgtWordsOption = Annotated[
    Path | None, typer.Option("--tgt-words", parser=named_path, metavar="FILE", help="The same of the target.")
]
TranslationsOption = Annotated[
    Path | None,
    typer.Option(
        "--translations", parser=written_path, metavar="FILE", help="With --src alone: write the translations here."
    ),
]
GoldOption = Annotated[
    Path | None,
    typer.Option("--gold", parser=named_path, metavar="FILE", help="Compare with these links: precision, recall, AER."),
]
GoldBaseOption = Annotated[
    int | None,
    typer.Option("--gold-base", min=0, max=1, metavar="0|1", help="The number of the first word in it. [default: 0]"),
]
GoldReversedOption = Annotated[
    bool, typer.Option("--gold-reversed", help="The links in --gold have the target word first.")
]
ReverseOption = Annotated[
    Path | None,
    typer.Option(
        "--reverse-run", parser=named_path, metavar="DIR", help="Run of the other direction, to combine links with."
    ),
]
SymmetrizeOption = Annotated[
    Symmetrization | None,
    typer.Option("--symmetrize", help="How to combine two directions. [default: grow-diag-final-and]"),
]
ThresholdOption = Annotated[
    float | None,
    typer.Option(
        "--threshold", min=0, max=1, metavar="X", help="Link all words with that much weight. [default: the largest]"
    ),
]
ShiftOption = Annotated[
    int | None,
    typer.Option(
        "--shift", min=0, max=1, metavar="0|1", help="1: words have the weights of the next step. [default: the run's]"
    ),
]


@app.command(short_help="Link the words of sentences and translations; AER.")
def align(
    run: RunOption = None,
    split: SplitOption = None,
    src: SrcOption = None,
    tgt: TgtOption = None,
    src_words: SrcWordsOption = None,
    tgt_words: TgtWordsOption = None,
    output: OutputOption = None,
    translations: TranslationsOption = None,
    gold: GoldOption = None,
    gold_base: GoldBaseOption = None,
    gold_reversed: GoldReversedOption = False,
    reverse_run: ReverseOption = None,
    symmetrize: SymmetrizeOption = None,
    threshold: ThresholdOption = None,
    shift: ShiftOption = None,
    checkpoint: CheckpointOption = None,
    beam: BeamOption = None,
    batch_tokens: BatchOption = 4096,
    device: DeviceOption = "auto",
) -> None:
    """Link the words of sentences and their translations by the attention weights, one line a pair.

    \b
    nmt align > test.links
    nmt align --src news.en --tgt news.de --gold news.links
    nmt align --src news.en --translations news.de > news.links
    nmt align --run runs/en-de --reverse-run runs/de-en --symmetrize intersection

    A line such as 0-0 1-2 2-1 has the source word first; words are what stands between blanks, counted from 0, or what
    --src-words and --tgt-words have: the same text, cut otherwise (The dog. as The dog .). Each
    target word is linked to the source word with the most weight, and to none if the end of the sentence has it; with
    --threshold, to every source word that has as much. A blank sentence gives a blank line.

    --gold has sure links, i-j, and possible ones, ipj or i?j. The scores go to stderr, the error rate (AER) last.
    """
    _check_input(split, src, tgt, src_words, tgt_words, translations, beam)
    _check_options(src is not None and tgt is None, gold, gold_base, gold_reversed, reverse_run, symmetrize)
    outputs = {"--output": output, "--translations": translations}
    read = {"--checkpoint": checkpoint, "--src": src, "--tgt": tgt, "--gold": gold}
    refuse_overwriting(outputs, read | {"--src-words": src_words, "--tgt-words": tgt_words})
    opened = open_run(run)  # before the heavy imports: a wrong name is told at once
    from nmt.align import Aligner, align_blocks, read_gold, read_input
    from nmt.console import ConsoleReporter
    from nmt.data.links import alignment_error

    other = None if reverse_run is None else _reverse(opened, reverse_run)
    refuse_run_files(outputs, opened, other)
    given = read_input(opened, split, src, tgt, src_words, tgt_words)
    gold_links = None if gold is None else read_gold(gold, gold_base or 0, gold_reversed, given)
    with ConsoleReporter() as reporter:
        settings = search_settings(opened, SearchOptions(beam))
        forward = Aligner.load(opened, checkpoint, device, settings, shift, threshold)
        backward = None if other is None else Aligner.load(other, None, device, None, shift, threshold)
        blocks = align_blocks(given, forward, backward, (symmetrize or Symmetrization.gdfa).value, batch_tokens)
        links = _write(blocks, output, translations, reporter, given, keep=gold_links is not None)
        if gold_links is not None:
            _tell(alignment_error(links, gold_links), reporter)


def _reverse(run: RunDir, path: Path) -> RunDir:
    """Open the run of the other direction."""
    from nmt.align import check_reverse
    from nmt.run_dir import RunDir

    reverse = RunDir.open(path)
    check_reverse(run, reverse)
    return reverse


def _write(
    blocks: Iterable[list[AlignedPair]],
    output: Path | None,
    translations: Path | None,
    reporter: Reporter,
    given: AlignmentInput,
    keep: bool,
) -> list[Links]:
    """Write the links, and the targets where that was asked for; return the links if they are to be kept."""
    from nmt.align import write_alignments
    from nmt.run_dir import replacing

    with (
        standard_output() if output is None else replacing(output) as out,
        nullcontext() if translations is None else replacing(translations) as texts,
    ):
        links, cut = write_alignments(blocks, out, texts, None if out.isatty() else reporter, given, keep)
    if cut:
        plural = "s were" if cut > 1 else " was"
        reporter.warning(f"{cut} pair{plural} too long: only the beginning was aligned.")
    return links


def _tell(scores: AlignmentScores, reporter: Reporter) -> None:
    """Report how the links compare with gold ones; what scripts look for stands alone on the last line."""
    more = f" and {scores.possible - scores.sure:,} more possible" if scores.possible > scores.sure else ""
    reporter.info(
        f"precision {scores.precision:.4f}, recall {scores.recall:.4f} of {scores.predicted:,} links against "
        f"{scores.sure:,} sure{more} ones"
    )
    reporter.info(f"AER {scores.aer:.4f}")


def _check_input(
    split: str | None,
    src: Path | None,
    tgt: Path | None,
    src_words: Path | None,
    tgt_words: Path | None,
    translations: Path | None,
    beam: int | None,
) -> None:
    """Refuse options about the sentences that do not go together."""
    if src is None and tgt is not None:
        raise typer.BadParameter("it needs --src, the file that it translates.", param_hint="'--tgt'")
    if src is not None and split is not None:
        raise typer.BadParameter("give either --split or files.", param_hint="'--split'")
    searching = src is not None and tgt is None
    for value, option in ((translations, "'--translations'"), (beam, "'--beam'")):
        if value is not None and not searching:
            raise typer.BadParameter("nothing is translated; this goes with --src alone.", param_hint=option)
    for words, option in ((src_words, "'--src-words'"), (tgt_words, "'--tgt-words'")):
        if words is not None and searching:
            raise typer.BadParameter("words are of given pairs; give --tgt too.", param_hint=option)


def _check_options(
    searching: bool,
    gold: Path | None,
    base: int | None,
    reverse: bool,
    reverse_run: Path | None,
    symmetrize: Symmetrization | None,
) -> None:
    """Refuse options about gold links and directions that do not go together."""
    if gold is not None and searching:
        raise typer.BadParameter("gold links are for given pairs; give --tgt too.", param_hint="'--gold'")
    for given, option in ((base is not None, "'--gold-base'"), (reverse, "'--gold-reversed'")):
        if given and gold is None:
            raise typer.BadParameter("this goes with --gold.", param_hint=option)
    if symmetrize is not None and reverse_run is None:
        raise typer.BadParameter("there is one direction only; give --reverse-run too.", param_hint="'--symmetrize'")
