"""The command `nmt compare`: several runs on one test set, with paired tests, length curves and changed sentences."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nmt.config import Config
from nmt.data.text import read_lines
from nmt.doubts import doubts_of_pairs
from nmt.errors import NmtError
from nmt.evaluate import evaluate_split, given_pairs
from nmt.evaluation import digest_of_pairs
from nmt.plotting import FEW, LengthRow, plot_by_length
from nmt.report_page import Line, Picture, Section, Sentences, Table, report_page
from nmt.reporting import Reporter
from nmt.run_dir import RunDir, read_json_object, refuse_repeated, refuse_unwritable, write_atomic
from nmt.scoring import (
    LESS_IS_BETTER,
    METRIC_NAMES,
    RESAMPLES,
    bleu_tokenizer_name,
    by_length,
    check_tokenizer,
    interval,
    reported,
    sentence_scores,
)
from nmt.significance import TRIALS, MetricComparison, SystemScore, paired_tests, refuse_more_than_tests_hold
from nmt.training.checkpoint import load_checkpoint

Pairs = Sequence[tuple[str, str]]
HEADINGS = ("score", "difference", "bootstrap, 95 % interval", "p (bootstrap)", "p (randomisation)")


@dataclass(frozen=True)
class System:
    """A run that is compared: its name, the update of its checkpoint, how it searched, and its translations."""

    name: str
    path: str
    step: int
    search: dict[str, Any]
    hypotheses: tuple[str, ...]


@dataclass(frozen=True)
class ChangedSentence:
    """A sentence as the baseline and another run translate it, `line` counted from 1; scores are its chrF++."""

    line: int
    source: str
    reference: str
    baseline: str
    hypothesis: str
    baseline_score: float
    score: float

    @property
    def difference(self) -> float:
        """How much better the run is than the baseline."""
        return self.score - self.baseline_score


@dataclass(frozen=True)
class Changes:
    """The sentences that changed most from the baseline to a run, in either direction, most changed first."""

    better: tuple[ChangedSentence, ...]
    worse: tuple[ChangedSentence, ...]


@dataclass(frozen=True)
class Comparison:
    """What `nmt compare` prints and stores; the first system is the baseline, and `changes` has all others.

    The languages are those of the baseline's data, for the report alone.
    """

    split: str
    sentences: int
    pairs_digest: str
    systems: tuple[System, ...]
    metrics: dict[str, MetricComparison]
    by_length: dict[str, tuple[LengthRow, ...]]
    changes: dict[str, Changes]
    src_lang: str
    tgt_lang: str

    def to_dict(self) -> dict[str, Any]:
        """The content of the file that `--json` names."""
        return {
            "split": self.split,
            "sentences": self.sentences,
            "pairs_digest": self.pairs_digest,
            "baseline": self.systems[0].name,
            "systems": [
                {"name": each.name, "path": each.path, "step": each.step, "search": each.search}
                for each in self.systems
            ],
            "metrics": {
                name: {
                    "signatures": {
                        "bootstrap": each.bootstrap_signature,
                        "randomisation": each.randomisation_signature,
                    },
                    "systems": {
                        system.name: asdict(score) for system, score in zip(self.systems, each.systems, strict=True)
                    },
                }
                for name, each in self.metrics.items()
            },
            "by_length": {name: [asdict(row) for row in rows] for name, rows in self.by_length.items()},
            "changed": {
                name: {
                    side: [asdict(row) | {"difference": row.difference} for row in rows]
                    for side, rows in (("better", each.better), ("worse", each.worse))
                }
                for name, each in self.changes.items()
            },
        }


def compare_runs(
    runs: Sequence[RunDir],
    reporter: Reporter,
    *,
    split: str = "test",
    src: Path | None = None,
    tgt: Path | None = None,
    device: str = "auto",
    batch_tokens: int = 4096,
    resamples: int = RESAMPLES,
    trials: int = TRIALS,
    changed: int = 5,
) -> Comparison:
    """Compares runs with the first of them, the baseline, whose metrics, tokenizer and length buckets count.

    A run's translations are those of its last `nmt eval` where it would do the same now: the best checkpoint, the run's
    search settings, the same pairs. Where it would not, they are made and stored as `nmt eval` does.

    Args:
        runs: two or more.
        reporter: told of progress and of what looks wrong.
        split: of each run's data; all must hold the same pairs.
        src, tgt: two aligned files instead of a split.
        device, batch_tokens: for translations that have to be made.
        resamples: of the paired bootstrap.
        trials: of approximate randomisation.
        changed: how many of the sentences that changed most, in either direction.

    Raises:
        NmtError: when a run is named twice, test sets differ, the test set is too large for the tests, and for all
            that `evaluate_split` refuses.
    """
    names = _names(runs)
    configs = [run.settings() for run in runs]
    evaluation, tgt_lang = configs[0].evaluation, configs[0].data.tgt_lang
    check_tokenizer(tgt_lang, evaluation.bleu_tokenize)
    given, pairs = _same_pairs(runs, configs, split, src, tgt)
    refuse_more_than_tests_hold(len(pairs), resamples, trials)
    for doubt in _doubts(names, configs, pairs):
        reporter.warning(doubt)

    def translate(run: RunDir) -> None:
        reporter.info(f"{run.path}: what its best checkpoint and its own search give is not stored; it is made now.")
        evaluate_split(
            run, reporter, split=split, src=src, tgt=tgt, device=device, batch_tokens=batch_tokens, pairs=pairs
        )

    systems = [_system(*each, given, pairs, translate) for each in zip(names, runs, configs, strict=True)]
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    settings: dict[str, Any] = {"tgt_lang": tgt_lang, "bleu_tokenize": evaluation.bleu_tokenize}
    if len(pairs) >= FEW:
        reporter.info(f"{len(systems)} runs: {resamples:,} resamples and {trials:,} trials for each metric …")
    texts = [system.hypotheses for system in systems]
    metrics = reported(evaluation.metrics)
    tests = paired_tests(texts, references, metrics=metrics, resamples=resamples, trials=trials, **settings)
    settings |= {"buckets": evaluation.length_buckets, "bootstrap": resamples}
    curves = {each.name: tuple(by_length(sources, each.hypotheses, references, **settings)) for each in systems}
    changes = _changes(systems, pairs, changed)
    digest, src_lang = digest_of_pairs(pairs), configs[0].data.src_lang
    return Comparison(given, len(pairs), digest, tuple(systems), tests, curves, changes, src_lang, tgt_lang)


def _system(
    name: str, run: RunDir, config: Config, given: str, pairs: Pairs, translate: Callable[[RunDir], None]
) -> System:
    """The run with its translations, which `translate` makes where they are not stored."""
    if (kept := _stored(run, config, given, pairs)) is None:
        translate(run)
        kept = _stored(run, config, given, pairs)
    if kept is None:
        raise NmtError(f"{run.path}: the run has changed while it was evaluated. Wait for its training, or stop it.")
    step, hypotheses = kept
    return System(name, str(run.path), step, config.search.model_dump(mode="json"), hypotheses)


def _doubts(names: Sequence[str], configs: Sequence[Config], pairs: Pairs) -> list[str]:
    """What is doubtful about the test set, and what else than the models may make a difference."""
    evaluation, tgt_lang = configs[0].evaluation, configs[0].data.tgt_lang
    doubts = doubts_of_pairs(pairs, evaluation.bleu_tokenize or bleu_tokenizer_name(tgt_lang))
    if len(pairs) < FEW:
        doubts.append(f"{len(pairs)} sentences are too few for intervals and tests: scores alone are given.")
    ways = [f"{config.data.src_lang} to {config.data.tgt_lang}" for config in configs]
    if len(set(ways)) > 1:
        told = ", ".join(f"{name} {way}" for name, way in zip(names, ways, strict=True))
        doubts.append(f"the runs were made to translate different ways: {told}.")
    searches = [config.search.model_dump(mode="json") for config in configs]
    differing = [key for key, value in searches[0].items() if any(search[key] != value for search in searches)]
    if differing:
        told = "; ".join(
            f"{name} {', '.join(f'{key} {search[key]}' for key in differing)}"
            for name, search in zip(names, searches, strict=True)
        )
        doubts.append(
            f"the runs search differently, each as its configuration says, and that may be the difference: {told}."
        )
    return doubts


def refuse_unwritable_results(*paths: Path | None) -> None:
    """Refuses what could not be written, before the work. Raises NmtError."""
    for path in paths:
        if path is not None:
            refuse_unwritable(path)


def write_comparison(comparison: Comparison, plot: Path, as_json: Path | None, page: Path | None) -> None:
    """Writes the length curves, and the JSON and the report where they are asked for.

    Raises:
        NmtError: when a file cannot be written.
    """
    plot_by_length(comparison.by_length, plot)
    if as_json is not None:
        write_atomic(as_json, json.dumps(comparison.to_dict(), indent=2, ensure_ascii=False) + "\n")
    if page is not None:
        write_atomic(page, comparison_page(comparison, plot.read_bytes()))


def comparison_page(comparison: Comparison, plot: bytes) -> str:
    """The report as HTML, with the plot of the length curves, PNG, in it."""
    names = [system.name for system in comparison.systems]
    languages = comparison.src_lang, comparison.tgt_lang
    facts = [f"{comparison.sentences:,} sentences", f"baseline {names[0]}"]
    facts += [
        f"{system.name}: best checkpoint, step {system.step:,}; "
        + ", ".join(f"{key} {value}" for key, value in system.search.items())
        for system in comparison.systems
    ]
    sections = [_metric_section(metric_title(name), each, names) for name, each in comparison.metrics.items()]
    sections.append(_length_section(comparison.by_length, plot))
    for name, changes in comparison.changes.items():
        for rows, what in ((changes.better, "gained"), (changes.worse, "lost")):
            sections.append(
                Section(
                    f"{name}: the sentences that {what} most",
                    f"By chrF++ of the sentence by itself, from {names[0]} to {name}.",
                    (Sentences(tuple(_entry(row, names[0], name, *languages) for row in rows)),),
                )
            )
    return report_page(f"{', '.join(names)}: {comparison.split}", facts, sections)


def _metric_section(metric: str, comparison: MetricComparison, names: Sequence[str]) -> Section:
    head = ("run", *HEADINGS)
    rows = tuple((name, *cells(score)) for name, score in zip(names, comparison.systems, strict=True))
    note = (
        f"{difference_intervals(comparison, names)}. Paired bootstrap: {comparison.bootstrap_signature}. Approximate "
        f"randomisation: {comparison.randomisation_signature}."
        if comparison.bootstrap_signature
        else f"Fewer than {FEW} sentences are not tested."
    )
    return Section(metric, note, (Table(head, rows),))


def metric_title(metric: str) -> str:
    """The metric's name, with a word of warning where less is better."""
    return METRIC_NAMES[metric] + (" (less is better)" if metric in LESS_IS_BETTER else "")


def cells(score: SystemScore) -> tuple[str, ...]:
    """The score of a system as text, under `HEADINGS`."""
    difference = "" if score.difference is None else f"{round(score.difference, 2) + 0.0:+.2f}"  # + 0.0: no -0.00
    values = (score.p_bootstrap, score.p_randomisation)
    none = "" if score.difference is None else "–"  # the baseline is not tested; of few sentences nothing is
    p_values = (none if value is None else "<0.0001" if value < 0.00005 else f"{value:.4f}" for value in values)
    around = "–" if score.mean is None or score.half_width is None else f"{score.mean:.2f} ± {score.half_width:.2f}"
    return f"{score.score:.2f}", difference, around, *p_values


def difference_intervals(comparison: MetricComparison, names: Sequence[str]) -> str:
    """The 95 % intervals of the differences to the baseline, as a text; empty where there are none.

    Beside the table, which would not fit a terminal of 80 columns with them.
    """
    told = [
        f"{name} {score.difference_low + 0.0:+.2f} to {score.difference_high + 0.0:+.2f}"  # + 0.0: no -0.00
        for name, score in zip(names, comparison.systems, strict=True)
        if score.difference_low is not None and score.difference_high is not None
    ]
    return f"95 % interval of the difference to {names[0]}: {', '.join(told)}" if told else ""


def _length_section(curves: Mapping[str, Sequence[LengthRow]], plot: bytes) -> Section:
    head = ("words of the source", "sentences", *(f"BLEU of {name}" for name in curves))
    rows = tuple(
        (each[0].label, f"{each[0].sentences:,}", *(_with_interval(row) for row in each))
        for each in zip(*curves.values(), strict=True)
    )
    note = (
        "Thin bars, and the ranges in brackets, are 95 % intervals of each run by itself, not of their differences; of "
        f"fewer than {FEW} sentences a point is hollow and has none."
    )
    return Section("By length", note, (Picture(plot, "BLEU by source length"), Table(head, rows)))


def _with_interval(row: LengthRow) -> str:
    return f"{row.bleu:.2f} ({interval(row.bleu_low, row.bleu_high)})"


def _entry(row: ChangedSentence, baseline: str, name: str, src: str, tgt: str) -> tuple[str, tuple[Line, ...]]:
    heading = f"line {row.line:,}, {row.baseline_score:.1f} to {row.score:.1f}"
    sides = (("reference", row.reference), (baseline, row.baseline), (name, row.hypothesis))
    return heading, (Line("source", row.source, src), *(Line(label, text, tgt) for label, text in sides))


def _names(runs: Sequence[RunDir]) -> list[str]:
    """What to call the runs: the names of their folders; where two have one name, their paths in the folder of all."""
    refuse_repeated(runs)
    short, real = [run.name for run in runs], [run.path.resolve() for run in runs]
    if len(set(short)) == len(short):
        return short
    shared = os.path.commonpath([path.parent for path in real])
    return [str(path.relative_to(shared)) for path in real]


def _same_pairs(
    runs: Sequence[RunDir], configs: Sequence[Config], split: str, src: Path | None, tgt: Path | None
) -> tuple[str, Pairs]:
    """What the test set is called, and its pairs, which all runs share.

    Raises:
        NmtError: where those of a run are others.
    """
    name, _, pairs = given_pairs(configs[0], split, src, tgt, None)
    if src is not None:
        return name, pairs
    for run, config in zip(runs[1:], configs[1:], strict=True):
        _, _, others = given_pairs(config, split, None, None, None)
        if others == pairs:
            continue
        remedy = "Only scores on one test set can be compared; give one to all runs with --src and --tgt."
        where = f"{run.path}: its {split} set is not that of {runs[0].path}"
        if len(others) != len(pairs):
            raise NmtError(f"{where}: {len(others):,} pairs here, {len(pairs):,} there. {remedy}")
        line = next(number for number, (one, other) in enumerate(zip(pairs, others), 1) if one != other)
        raise NmtError(f"{where}: line {line:,} differs. {remedy}")
    return name, pairs


def _stored(run: RunDir, config: Config, given: str, pairs: Pairs) -> tuple[int, tuple[str, ...]] | None:
    """The step and the translations of an evaluation, if it is what `nmt eval` would do now."""
    name = run.evaluation_name(given)
    scores, texts = run.eval / f"{name}.json", run.eval / f"{name}.hyp.txt"
    stored = read_json_object(scores)
    if not stored or not texts.is_file() or not run.best.is_file():
        return None
    step = load_checkpoint(run.best)["state"]["step"]
    expected = {
        "checkpoint": run.inside(run.best),
        "step": step,
        "search": config.search.model_dump(mode="json"),
        "pairs_digest": digest_of_pairs(pairs),
    }
    if stored.get("ensemble") or any(stored.get(key) != value for key, value in expected.items()):
        return None
    hypotheses = tuple(read_lines(texts))
    return (int(step), hypotheses) if len(hypotheses) == len(pairs) else None


def _changes(systems: Sequence[System], pairs: Pairs, count: int) -> dict[str, Changes]:
    references = [reference for _, reference in pairs]
    scores = [sentence_scores(system.hypotheses, references) for system in systems]
    found = {}
    for system, theirs in zip(systems[1:], scores[1:], strict=True):
        rows = [
            ChangedSentence(line, *pairs[line - 1], systems[0].hypotheses[line - 1], system.hypotheses[line - 1], *both)
            for line, both in enumerate(zip(scores[0], theirs, strict=True), 1)
        ]
        better = sorted((row for row in rows if row.difference > 0), key=lambda row: (-row.difference, row.line))
        worse = sorted((row for row in rows if row.difference < 0), key=lambda row: (row.difference, row.line))
        found[system.name] = Changes(tuple(better[:count]), tuple(worse[:count]))
    return found
