"""What an evaluation found, as plain values for JSON and as a page to read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nmt.error_analysis import RepetitionRow, ScoredSentence
from nmt.members import Member
from nmt.plotting import FEW, FrequencyRow, LengthRow, frequency_picture
from nmt.report_page import Line, Picture, Section, Sentences, Table, report_page
from nmt.scoring import METRIC_NAMES, Score, interval


@dataclass(frozen=True)
class EvaluationResult:
    """What `nmt eval` prints and stores; the languages are those of the run's data, for the report alone.

    `split` names the files under `eval/`; `checkpoint` is relative to the run where it lies inside. `length_limited`
    counts translations that stopped at the length limit, `truncated` sources longer than the limit, `empty` sentences
    with words whose translation has none. `step` is the update after which the checkpoint was saved: the name alone
    does not say which model it was, as training goes on. `length_ratio` is the length of the hypotheses over that of
    the references, in BLEU's tokens (None for empty references). `by_frequency` is None where nothing tells how often
    training saw a word. `worst` are the sentences with the lowest chrF++; `pairs_digest` tells test sets apart.
    `ensemble` has the runs, the one that keeps the result first, where several translated together; the checkpoint and
    its step are then those of the first.
    """

    split: str
    sentences: int
    checkpoint: str
    step: int
    metrics: dict[str, Score]
    search: dict[str, Any]
    length_limited: int
    truncated: int
    empty: int
    length_ratio: float | None
    seconds: float
    by_length: tuple[LengthRow, ...]
    by_frequency: tuple[FrequencyRow, ...] | None
    repetition: tuple[RepetitionRow, ...]
    worst: tuple[ScoredSentence, ...]
    pairs_digest: str
    files: dict[str, str]
    src_lang: str
    tgt_lang: str
    ensemble: tuple[Member, ...] = ()

    @property
    def model(self) -> str:
        """What translated, in words."""
        if not self.ensemble:
            return f"checkpoint {self.checkpoint}, step {self.step:,}"
        members = ", ".join(f"{member.name} (step {member.step:,})" for member in self.ensemble)
        return f"ensemble of the best checkpoints of {members}"

    @property
    def sentences_per_second(self) -> float:
        """Speed of the translation, scoring not included."""
        return self.sentences / self.seconds if self.seconds > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The content of `eval/SPLIT.json`."""
        frequency = None if self.by_frequency is None else [asdict(row) for row in self.by_frequency]
        return {
            "split": self.split,
            "sentences": self.sentences,
            "checkpoint": self.checkpoint,
            "metrics": {name: asdict(score) for name, score in self.metrics.items()},
            "search": self.search,
            "length_limited": self.length_limited,
            "truncated": self.truncated,
            "empty": self.empty,
            "step": self.step,
            "length_ratio": self.length_ratio,
            "seconds": self.seconds,
            "sentences_per_second": self.sentences_per_second,
            "by_length": [asdict(row) for row in self.by_length],
            "by_frequency": frequency,
            "repetition": [asdict(row) for row in self.repetition],
            "worst": [asdict(row) for row in self.worst],
            "pairs_digest": self.pairs_digest,
            "files": self.files,
            "ensemble": [asdict(member) for member in self.ensemble],
        }


def digest_of_pairs(pairs: Sequence[tuple[str, str]]) -> str:
    """A hash of sources and references in their order: the same for the same test set, wherever it was read from."""
    digest = hashlib.blake2b(digest_size=16)
    for pair in pairs:
        digest.update(json.dumps(pair).encode() + b"\n")
    return digest.hexdigest()


def evaluation_page(run: str, result: EvaluationResult, by_length: bytes) -> str:
    """The report as HTML: `eval/SPLIT.html`.

    Args:
        run: what to call the run.
        result: what was found.
        by_length: the plot by source length, PNG.
    """
    search = ", ".join(f"{name} {value}" for name, value in result.search.items())
    facts = [
        f"{result.sentences:,} sentences",
        result.model,
        search,
        f"{result.sentences_per_second:.1f} sentences a second",
    ]
    sections = [_scores(result), _lengths(result.by_length, by_length)]
    if result.by_frequency:
        sections.append(_frequencies(result.by_frequency))
    sections += [_repetition(result.repetition), _worst(result)]
    return report_page(f"{run}: {result.split}", facts, sections)


def _scores(result: EvaluationResult) -> Section:
    rows = [
        (METRIC_NAMES[name], f"{score.score:.2f}", interval(score.low, score.high), score.signature)
        for name, score in result.metrics.items()
    ]
    counts = [
        ("hypothesis / reference length", "–" if result.length_ratio is None else f"{result.length_ratio:.3f}"),
        ("stopped at the length limit", f"{result.length_limited:,}"),
        ("sources cut for their length", f"{result.truncated:,}"),
        ("translations without a word", f"{result.empty:,}"),
    ]
    note = (
        "sacreBLEU on raw text; quote the signature beside a score. Intervals are of 95 %, from bootstrap resamples of "
        "the sentences (Koehn 2004). More is better, but of TER less is."
    )
    head = ("metric", "score", "95 % interval", "signature")
    scores = Table(head, tuple(rows), texts=("signature",))
    return Section("Scores", note, (scores, Table(("translations", "number"), tuple(counts))))


def _lengths(rows: Sequence[LengthRow], plot: bytes) -> Section:
    cells = [
        (
            row.label,
            f"{row.sentences:,}",
            f"{row.bleu:.2f}",
            interval(row.bleu_low, row.bleu_high),
            f"{row.chrf:.2f}",
            interval(row.chrf_low, row.chrf_high),
        )
        for row in rows
    ]
    head = ("words of the source", "sentences", "BLEU", "95 % interval", "chrF", "95 % interval")
    note = (
        "Thin bars are 95 % intervals. The light ones behind say how many sentences a point stands for; of fewer than "
        f"{FEW} a point is hollow and has no interval."
    )
    return Section("By length", note, (Picture(plot, "BLEU by source length"), Table(head, tuple(cells))))


def _frequencies(rows: Sequence[FrequencyRow]) -> Section:
    cells = [
        (row.label, f"{row.reference:,}", f"{row.hypothesis:,}", *map(rate, (row.precision, row.recall, row.f_measure)))
        for row in rows
    ]
    note = (
        "Words of the translations by how often the training targets have them, cut as for BLEU. In a sentence a word "
        "matches as often as both sides have it: with M matches, H words of the translations and R of the references, "
        "P = M / H, R = M / R, F = 2PR / (P + R) (word accuracy by frequency of compare-mt; Neubig et al. 2019)."
    )
    head = ("times in training", "in references", "in translations", "precision", "recall", "F-measure")
    picture = Picture(frequency_picture(rows), "F-measure of words by their frequency in training")
    return Section("By word frequency", note, (picture, Table(head, tuple(cells))))


def _repetition(rows: Sequence[RepetitionRow]) -> Section:
    cells = [(f"{row.n}", rate(row.hypotheses), rate(row.references)) for row in rows]
    note = (
        "The share of n-grams that their sentence had before: 1 − distinct / all (seq-rep-n of Welleck et al. 2020, "
        "summed over sentences). More than the references have is a decoder that loops."
    )
    head = ("words of the n-gram", "translations", "references")
    return Section("Repetition", note, (Table(head, tuple(cells)),))


def _worst(result: EvaluationResult) -> Section:
    src, tgt = result.src_lang, result.tgt_lang
    entries = tuple(
        (
            f"line {row.line:,}, chrF++ {row.score:.1f}",
            (
                Line("source", row.source, src),
                Line("reference", row.reference, tgt),
                Line("translation", row.hypothesis, tgt),
            ),
        )
        for row in result.worst
    )
    note = (
        "The lowest chrF++ of a sentence by itself (Popović 2017); references that are blank or were met are left out."
    )
    return Section("Worst sentences", note, (Sentences(entries),))


def rate(value: float | None) -> str:
    """A rate from 0 to 1 as text; a dash where there is none."""
    return "–" if value is None else f"{value:.3f}"
