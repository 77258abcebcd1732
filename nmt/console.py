"""What people see: messages and progress on stderr, results on stdout. Only the command line uses it.

Progress is a bar on a terminal and plain lines elsewhere.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from nmt.data.text import one_line, write_line
from nmt.errors import printable
from nmt.reporting import Reporter

if TYPE_CHECKING:
    from nmt.compare import Comparison
    from nmt.evaluate import EvaluationResult
    from nmt.info import RunInfo
    from nmt.plotting import FrequencyRow, LengthRow
    from nmt.run_dir import RunDir
    from nmt.translations import Translation

SECONDS_BETWEEN_LINES = 10.0
NAME_WIDTH = 12  # of a run in a table that is too wide for its terminal
NO_WIDTH = 10_000  # of what no line is broken for


def silence(stream: TextIO | None) -> None:
    """Send what a stream still holds, and all it gets, nowhere: Python would complain about a closed pipe at exit."""
    with suppress(AttributeError, OSError, ValueError):  # no stream, or one without a file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # type: ignore[union-attr]
        os.close(nowhere)


class _Console(Console):
    """Rich's console, which by itself ends the process when its reader has gone."""

    def on_broken_pipe(self) -> NoReturn:
        """Let the caller decide."""
        raise BrokenPipeError


class ConsoleReporter:
    """A `Reporter` on stderr. Use it as a context, so that bars are taken down when the work ends or fails.

    Once stderr cannot be written any more, as in `nmt train 2>&1 | head -1`, it says nothing, and the work goes on.
    """

    def __init__(self) -> None:
        self._console = _Console(stderr=True, soft_wrap=True, highlight=False)
        self._live = self._console.is_terminal and not self._console.is_dumb_terminal
        self._progress: Progress | None = None
        self._bars: dict[str, TaskID] = {}
        self._line_times: dict[str, float] = {}
        self._gone = False

    def __enter__(self) -> ConsoleReporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._say(self._close)

    def live(self) -> bool:
        """Return True on a terminal."""
        return self._live

    def info(self, text: str) -> None:
        """Write the text as it is."""
        self._say(self._write, text, "")

    def warning(self, text: str) -> None:
        """Write `warning: ` and the text."""
        self._say(self._write, f"warning: {text}", "yellow")

    def progress(self, task: str, done: float, total: float | None, note: str = "") -> None:
        """Move a bar, or write a line at the start, about every ten seconds, and at the end."""
        ended = total is not None and done >= total
        task, note = printable(task), printable(note)
        self._say(self._move_bar if self._live else self._write_line, task, done, total, note, ended)

    def _say(self, write: Callable[..., None], *what: object) -> None:
        """Write, unless nobody can read it: the reader has gone, or the log's disk is full."""
        if self._gone:
            return
        try:
            write(*what)
        except OSError:
            self._gone = True
            silence(sys.stderr)
            with suppress(OSError):
                self._close()

    def _write(self, text: str, style: str) -> None:
        text = printable(text)
        if not self._live:
            # Not through rich: a pipe or a file gets the text byte for byte.
            print(text, file=sys.stderr, flush=True)
        elif self._progress is None:
            self._console.print(Text(text, style=style))
        else:
            self._progress.console.print(Text(text, style=style))

    def _move_bar(self, task: str, done: float, total: float | None, note: str, ended: bool) -> None:
        if self._progress is None:
            self._progress = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[share]}", markup=False),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}", markup=False),
                console=self._console,
                refresh_per_second=4,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._progress.start()
        share = _share(done, total)
        if task not in self._bars:
            self._bars[task] = self._progress.add_task(task, total=total, note=note, share=share)
        self._progress.update(self._bars[task], completed=done, total=total, note=note, share=share)
        if ended:
            bar = self._bars.pop(task)
            if not self._bars:
                self._close()
            else:
                self._progress.remove_task(bar)

    def _write_line(self, task: str, done: float, total: float | None, note: str, ended: bool) -> None:
        now = time.monotonic()
        before = self._line_times.get(task)
        if before is not None and not ended and now - before < SECONDS_BETWEEN_LINES:
            return
        self._line_times[task] = now
        if ended:
            del self._line_times[task]
        self._write(f"{task}: {_share(done, total)}{f', {note}' if note else ''}", "")

    def _close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
        self._progress, self._bars = None, {}


def _share(done: float, total: float | None) -> str:
    """Write how far the work is: `1,200/20,000 (6%)`, the count where no total is known, the share of a total of 1."""
    if total is None:
        return _amount(done)
    if total == 1:
        return f"{done:.0%}"
    share = f" ({done / total:.0%})" if total > 0 else ""
    return f"{_amount(done)}/{_amount(total)}{share}"


def _amount(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:,.1f}"


# --- results --------------------------------------------------------------------------------------------------------


def write_translations(
    blocks: Iterable[list[Translation]], out: BinaryIO, form: str, n_best: int, shift: int, reporter: Reporter | None
) -> int:
    """Write the translations of each block as soon as it is done; return how many sources were cut.

    `form` is text, tsv or jsonl; `shift` is of alignments, see `nmt.data.links.link_pieces`. A reader that waits for
    its answer has it before the next block is asked for.
    """
    line = truncated = 0
    for block in blocks:
        for translation in block:
            line += 1
            truncated += translation.truncated
            for row in _rows(translation, line, form, n_best, shift):
                write_line(out, row)
        out.flush()
        if reporter is not None:
            reporter.progress("lines translated", line, None)
    if reporter is not None and line:
        reporter.progress("lines translated", line, line)
    return truncated


def _rows(translation: Translation, line: int, form: str, n_best: int, shift: int) -> list[str]:
    """Return the output lines for one input line. A tab would be a border of fields in tsv."""
    if form == "text":
        return [translation.text]
    from nmt.data.links import format_links
    from nmt.translations import word_alignment  # imported already, as the translations were made

    links = [word_alignment(translation, one, shift=shift) for one in translation.candidates]
    if form == "jsonl":
        candidates = [
            {"text": one.text, "score": one.score, "alignment": [list(link) for link in sorted(found)]}
            for one, found in zip(translation.candidates, links)
        ]
        best = {key: candidates[0][key] for key in ("text", "score", "alignment")}
        return [json.dumps({"line": line, **best, "n_best": candidates}, ensure_ascii=False)]
    rows = [
        f"{one.score:.4f}\t{_field(one.text)}\t{format_links(found)}"
        for one, found in zip(translation.candidates, links)
    ]
    return rows[:1] if n_best == 1 else [f"{line}\t{rank}\t{row}" for rank, row in enumerate(rows, 1)]


def _field(text: str) -> str:
    return text.replace("\t", " ")


def show_evaluation(result: EvaluationResult, run: RunDir) -> None:
    """Print the scores with their signatures, the tables by length and frequency, and where the files are."""
    from nmt.evaluation import rate
    from nmt.scoring import METRIC_NAMES, interval

    console = _output()
    table = Table(
        "metric",
        box=SIMPLE_HEAD,
        title=_line(f"{run.path}: {result.split}, {result.sentences:,} sentences"),
        title_justify="left",
    )
    for heading in ("score", "95 % interval"):
        table.add_column(heading, justify="right")
    for name, score in result.metrics.items():
        table.add_row(METRIC_NAMES[name], f"{score.score:.2f}", interval(score.low, score.high))
    console.print(table)
    for name, score in result.metrics.items():
        console.print(_line(f"{METRIC_NAMES[name]}: {score.signature}"))
    search = ", ".join(f"{name} {value}" for name, value in result.search.items())
    speed = f"{result.seconds:.1f} s, {result.sentences_per_second:.1f} sentences a second"
    console.print(_line(f"{result.model}; {search}; {speed}"))
    if result.length_limited:
        console.print(
            _line(f"Stopped at the length limit: {result.length_limited:,} of {result.sentences:,} translations.")
        )
    if result.empty:
        console.print(_line(f"Without a word: {result.empty:,} of {result.sentences:,} translations."))
    if result.length_ratio is not None:
        console.print(_line(f"Length of the translations: {result.length_ratio:.3f} of that of the references."))
    repeated = "; ".join(f"{row.n} {rate(row.hypotheses)} and {rate(row.references)}" for row in result.repetition)
    console.print(_line(f"Repeated within a sentence, of n words, in translations and references: {repeated}"))
    console.print(_length_table(result.by_length))
    if result.by_frequency:
        console.print(_frequency_table(result.by_frequency))
    files = ".html, .json, _by_length.csv, _by_length.png and .hyp.txt"
    console.print(_line(f"Written to {run.eval / result.split}{files}"))


def _length_table(rows: Iterable[LengthRow]) -> Table:
    from nmt.scoring import interval

    table = Table("words of the source", box=SIMPLE_HEAD, title="By length", title_justify="left")
    for heading in ("sentences", "BLEU", "95 % interval", "chrF", "95 % interval"):
        table.add_column(heading, justify="right")
    for row in rows:
        bleu, chrf = interval(row.bleu_low, row.bleu_high), interval(row.chrf_low, row.chrf_high)
        table.add_row(row.label, f"{row.sentences:,}", f"{row.bleu:.2f}", bleu, f"{row.chrf:.2f}", chrf)
    return table


def _frequency_table(rows: Iterable[FrequencyRow]) -> Table:
    from nmt.evaluation import rate

    table = Table("times in training", box=SIMPLE_HEAD, title="Words by frequency", title_justify="left")
    for heading in ("in references", "in translations", "precision", "recall", "F-measure"):
        table.add_column(heading, justify="right")
    for row in rows:
        counts = f"{row.reference:,}", f"{row.hypothesis:,}"
        table.add_row(row.label, *counts, *map(rate, (row.precision, row.recall, row.f_measure)))
    return table


def show_worst(result: EvaluationResult) -> None:
    """Print the sentences with the lowest scores."""
    if not result.worst:
        return
    console = _output()
    console.print(_line(f"\nThe {len(result.worst)} sentences with the lowest chrF++", style="bold"))
    for row in result.worst:
        console.print(_line(f"line {row.line:,}, chrF++ {row.score:.1f}"))
        for label, text in (("source", row.source), ("reference", row.reference), ("translation", row.hypothesis)):
            console.print(_line(f"  {label:<11}  {one_line(text)}"))


def show_comparison(comparison: Comparison) -> None:
    """Print the tests of each metric, BLEU by source length, and the sentences that changed most."""
    from nmt.compare import HEADINGS, cells, difference_intervals, metric_title

    console = _output()
    names = [system.name for system in comparison.systems]
    console.print(_line(f"{comparison.split}, {comparison.sentences:,} sentences; the baseline is {names[0]}", "bold"))
    for system in comparison.systems:
        console.print(_line(f"{system.name}: best checkpoint, step {system.step:,}"))
    for metric, found in comparison.metrics.items():
        rows = [(name, *cells(score)) for name, score in zip(names, found.systems, strict=True)]
        console.print(_plain_table(metric_title(metric), ("run", *HEADINGS), rows))
        if found.bootstrap_signature:
            console.print(_line(difference_intervals(found, names)))
            console.print(_line(f"bootstrap: {found.bootstrap_signature}"))
            console.print(_line(f"randomisation: {found.randomisation_signature}"))
    buckets = comparison.by_length[names[0]]
    lengths = [
        ("sentences", *(f"{row.sentences:,}" for row in buckets)),
        *((name, *(f"{row.bleu:.2f}" for row in rows)) for name, rows in comparison.by_length.items()),
    ]
    head = ("words of the source", *(row.label for row in buckets))
    console.print(_plain_table("BLEU by length", head, lengths))
    for name, changes in comparison.changes.items():
        for changed, what in ((changes.better, "gained"), (changes.worse, "lost")):
            if changed:
                console.print(_line(f"\n{name}: the sentences that {what} most", style="bold"))
            for row in changed:
                console.print(_line(f"line {row.line:,}, chrF++ {row.baseline_score:.1f} to {row.score:.1f}"))
                texts = ("source", row.source), ("reference", row.reference), (names[0], row.baseline)
                for label, text in (*texts, (name, row.hypothesis)):
                    console.print(_line(f"  {label}: {one_line(text)}"))


def _plain_table(title: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    """Return a table of texts, none of them markup; all columns but the first hold numbers.

    Where it is too wide for a terminal, lines are broken rather than cut: names may differ at their end alone.
    """
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left")
    columns = list(zip(head, *rows, strict=True))
    for number, (heading, *cells) in enumerate(columns):
        widest = max(map(len, cells), default=0)
        table.add_column(
            _line(heading),
            justify="right" if number else "left",
            overflow="fold",
            min_width=widest if number else min(widest, NAME_WIDTH),
        )
    for row in zip(*(cells for _, *cells in columns), strict=True):
        table.add_row(*map(_line, row))
    return table


def show_run(info: RunInfo) -> None:
    """Print what a run holds."""
    from nmt.scoring import METRIC_NAMES

    console = _output()
    console.print(_line(info.path, style="bold"))
    _print_pairs(console, "About", dict(_about(info.meta)))
    _print_pairs(console, "Training", {"best_step": info.best_step, **info.state})
    _print_pairs(console, "Best checkpoint", info.best_scores)
    for name, scores in info.evaluations.items():
        of = _scored_checkpoint(info, name)
        _print_pairs(
            console, f"Scores of {name}{of}", {METRIC_NAMES.get(key, key): value for key, value in scores.items()}
        )
    counted = {**_shares(info), "total": f"{info.parameters.total:,}"} if info.parameters.by_part else {}
    _print_pairs(console, "Parameters", counted or {"total": "known with the first checkpoint"})
    if tied := info.parameters.tied:
        console.print(_line(f"  shared: {', '.join(dict.fromkeys([*tied.values(), *tied]))}"))
    _print_pairs(console, "Settings", dict(_flat(info.settings)))
    _print_pairs(console, "Files", {name: f"{size:,} bytes" for name, size in info.files.items()})


def _scored_checkpoint(info: RunInfo, name: str) -> str:
    """Say which checkpoint the scores of an evaluation are of."""
    if (scored := info.scored.get(name)) is None:
        return ""
    outdated = name in info.outdated
    if members := scored["ensemble"]:
        since = ": one has been replaced since (nmt eval with these runs)" if outdated else ""
        return (
            ", of the ensemble of " + ", ".join(f"{each['name']} at step {each['step']:,}" for each in members) + since
        )
    step = "" if scored["step"] is None else f" at step {scored['step']:,}"
    since = ": it has been replaced since (nmt eval)" if outdated else ""
    return f", of {scored['checkpoint']}{step}{since}"


def _shares(info: RunInfo) -> dict[str, str]:
    """List the parameters by part, those of attention with their formula."""
    counts = info.parameters.by_part
    shares = {part: f"{count:,}" for part, count in counts.items()}
    if not counts:
        return shares
    for part, formula in info.formulas.items():
        count = counts.get(part, 0)
        if count == formula.count:
            shares[part] = f"{count:,} = {formula}" if count else f"0 ({formula})"
        else:
            shares[part] = f"{count:,} in the checkpoint, but {formula.count:,} by config.yaml: {formula}"
    return shares


def _about(meta: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """List what meta.json says, versions on one line, and the last of the starts."""
    for name, value in meta.items():
        if isinstance(value, Mapping):
            yield name, ", ".join(f"{package} {version}" for package, version in value.items())
        elif isinstance(value, str | int | float):
            yield name, value
    starts = meta.get("starts")
    if isinstance(starts, list) and starts and isinstance(starts[0], Mapping) and isinstance(starts[-1], Mapping):
        yield "started", starts[0].get("time")
        command = starts[-1].get("command")
        yield "command", shlex.join(map(str, command)) if isinstance(command, list) else None


def _print_pairs(console: Console, title: str, pairs: Mapping[str, Any]) -> None:
    """Print names and values in two columns; nothing where there are none."""
    shown = {name: value for name, value in pairs.items() if value is not None}
    if not shown:
        return
    console.print(_line(f"\n{title}", style="bold"))
    width = max(map(len, shown))
    for name, value in shown.items():
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
        console.print(_line(f"  {name:<{width}}  {text}"))


def _flat(settings: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, str]]:
    """List settings by dotted path, as `--set` takes them; those not given are left out."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
            yield from _flat({str(place): item for place, item in enumerate(value)}, f"{above}{name}.")
        elif value is not None:
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            yield f"{above}{name}", text.lower() if isinstance(value, bool) else text


def _line(text: str, style: str = "") -> Text:
    """Return text for a result that people read: what runs of others say of themselves drives no terminal."""
    return Text(printable(text), style=style)


def _output() -> Console:
    """Return the console of results. A pipe or a file has no width that lines should be broken at."""
    console = _Console(highlight=False, soft_wrap=True)
    return console if console.is_terminal else _Console(highlight=False, soft_wrap=True, width=NO_WIDTH)
