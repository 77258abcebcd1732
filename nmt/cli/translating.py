"""`nmt translate` and `nmt eval`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from nmt.cli.app import app
from nmt.cli.loading import ONE_RUN, Chosen, choose_model
from nmt.cli.options import (
    BatchOption,
    BeamOption,
    CheckpointOption,
    CoveragePenaltyOption,
    DeviceOption,
    InputOption,
    Int8Option,
    LengthPenaltyOption,
    ModelOption,
    OutputOption,
    RerankOption,
    RunsOption,
    SearchOptions,
    SplitOption,
    SrcOption,
    TextsArgument,
    TgtOption,
    open_run,
    refuse_overwriting,
    refuse_run_files,
    search_settings,
    standard_output,
    text_input,
)


class Format(str, Enum):
    """How translations are written."""

    text = "text"
    tsv = "tsv"
    jsonl = "jsonl"


NBestOption = Annotated[int, typer.Option("--n-best", min=1, max=1000, metavar="N", help="Translations a line.")]
FormatOption = Annotated[
    Format | None,
    typer.Option("--format", help="How to write translations, see above. [default: text; tsv with --n-best]"),
]


@app.command(short_help="Translate text, a file or stdin, line by line.")
def translate(
    texts: TextsArgument = None,
    run: RunsOption = None,
    model: ModelOption = None,
    input_file: InputOption = None,
    output: OutputOption = None,
    beam: BeamOption = None,
    n_best: NBestOption = 1,
    batch_tokens: BatchOption = 4096,
    length_penalty: LengthPenaltyOption = None,
    coverage_penalty: CoveragePenaltyOption = None,
    rerank: RerankOption = None,
    checkpoint: CheckpointOption = None,
    device: DeviceOption = "auto",
    int8: Int8Option = False,
    form: FormatOption = None,
) -> None:
    """Translate text, line by line: N lines in, N lines out, in order.

    \b
    nmt translate "The old dog sleeps."
    nmt translate --input news.en --output news.de --beam 10
    tail -f chat.en | nmt translate --format tsv
    nmt translate --model exports/bahdanau "The old dog sleeps."
    nmt translate --run runs/bahdanau --run runs/luong "The old dog sleeps."

    \b
    --format text    one translation a line
    --format tsv     score, translation, alignment, tabs between; with --n-best N up to N lines a
                     sentence: line number, rank, score, translation, alignment; both count from 1
    --format jsonl   one object a line: line, text, score, alignment, n_best (a list of the last three)

    A score is the log probability divided by the length penalty, less the coverage penalty if there is one: nearer to
    0 is better. --rerank mbr orders by expected chrF instead, and leaves the scores as they are. An alignment such as
    0-0 1-2 links words of the source and of the translation by the attention weights (nmt align).

    Several runs of one vocabulary translate together by the mean of their log probabilities (and weights), as the first
    of them searches. A blank line stays blank.
    """
    if texts and input_file is not None:
        raise typer.BadParameter("give either TEXT or --input, not both.", param_hint="'--input'")
    refuse_overwriting(
        {"--output": output}, {"--input": None if str(input_file) == "-" else input_file, "--checkpoint": checkpoint}
    )
    form = _format(form, n_best, beam)

    search = SearchOptions(beam, length_penalty, coverage_penalty, rerank, n_best)
    chosen = choose_model(
        model, run or [], checkpoint=checkpoint, device=device, int8=int8, search=search,
        alignments=form is not Format.text,
    )  # fmt: skip
    refuse_run_files({"--output": output}, *chosen.opened)
    _write_all(chosen, texts, input_file, output, form, n_best, batch_tokens)


def _write_all(
    chosen: Chosen,
    texts: list[str] | None,
    input_file: Path | None,
    output: Path | None,
    form: Format,
    n_best: int,
    batch_tokens: int,
) -> None:
    """Translate what is read as it comes, and write it."""
    from nmt.console import ConsoleReporter, write_translations
    from nmt.data.text import read_blocks
    from nmt.reporting import too_long
    from nmt.run_dir import replacing

    with ConsoleReporter() as reporter, text_input(texts, input_file, reporter) as (stream, name):
        translator = chosen.load()
        with replacing(output) if output is not None else standard_output() as out:
            blocks = read_blocks(stream, name)
            weighed = form is not Format.text
            results = translator.stream(blocks, n_best=n_best, batch_tokens=batch_tokens, keep_weights=weighed)
            told = None if _watched(input_file, out) else reporter
            truncated = write_translations(results, out, form.value, n_best, translator.alignment_shift, told)
        if truncated:
            reporter.warning(too_long(truncated))


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


@app.command("eval", short_help="Score a test set: BLEU, chrF, TER, by length, by word frequency.")
def evaluate(
    run: RunsOption = None,
    split: SplitOption = None,
    src: SrcOption = None,
    tgt: TgtOption = None,
    checkpoint: CheckpointOption = None,
    beam: BeamOption = None,
    length_penalty: LengthPenaltyOption = None,
    coverage_penalty: CoveragePenaltyOption = None,
    rerank: RerankOption = None,
    batch_tokens: BatchOption = 4096,
    device: DeviceOption = "auto",
    int8: Int8Option = False,
) -> None:
    """Translate a test set and score it: BLEU, chrF, chrF++, TER with 95 % intervals, by length, by word frequency.

    \b
    nmt eval
    nmt eval --run runs/luong --split dev --beam 1
    nmt eval --src news.en --tgt news.de
    nmt eval --run runs/bahdanau --run runs/luong

    The scores, a report to open in a browser, a CSV file and a plot by length, and the translations are written to
    eval/ in the run's folder; those of another checkpoint, of another search and with --int8 under names of their own.
    Several runs of one vocabulary are scored as an ensemble (nmt translate), in the folder of the first.
    """
    if (src is None) != (tgt is None):
        raise typer.BadParameter("--src and --tgt go together.", param_hint="'--src'")
    if src is not None and split is not None:
        raise typer.BadParameter("give either --split or --src and --tgt.", param_hint="'--split'")

    if checkpoint is not None and len(run or []) > 1:
        raise typer.BadParameter(ONE_RUN, param_hint="'--checkpoint'")

    # Before the heavy imports: a wrong name is told at once.
    opened, *others = [open_run(path) for path in run] if run else [open_run(None)]
    from nmt.console import ConsoleReporter, show_evaluation, show_worst
    from nmt.evaluate import evaluate_split

    with ConsoleReporter() as reporter:
        result = evaluate_split(
            opened,
            reporter,
            others=others,
            split="test" if split is None else split,
            src=src,
            tgt=tgt,
            checkpoint=checkpoint,
            search=search_settings(opened, SearchOptions(beam, length_penalty, coverage_penalty, rerank), *others),
            device=device,
            batch_tokens=batch_tokens,
            int8=int8,
        )
    show_evaluation(result, opened)
    show_worst(result)
