"""Where a system's errors are: words by their frequency in training, what it repeats, its worst sentences."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nmt.plotting import FrequencyRow
from nmt.scoring import check_aligned

FREQUENCIES = (1, 2, 5, 10, 100, 1000)  # borders of the table, between words never seen and those of every sentence
LONGEST_REPEAT = 4  # words; those of BLEU

Splitter = Callable[[str], Sequence[str]]  # a text -> its words


@dataclass(frozen=True)
class RepetitionRow:
    """The share of n-grams, 0 to 1, that their own sentence had before; None where there is none of that length."""

    n: int
    hypotheses: float | None
    references: float | None


@dataclass(frozen=True)
class ScoredSentence:
    """A sentence of a test set, `line` counted from 1, and its score by itself."""

    line: int
    score: float
    source: str
    reference: str
    hypothesis: str


def by_frequency(
    hypotheses: Sequence[str],
    references: Sequence[str],
    counts: Mapping[str, int],
    words: Splitter,
    borders: Sequence[int] = FREQUENCIES,
) -> list[FrequencyRow]:
    """Precision, recall and F-measure of words, by how often the training targets have them.

    In each sentence a word matches as often as both sides have it. With M matches, H words of the hypotheses and R of
    the references in a bucket, precision is M / H, recall M / R, and F = 2 P R / (P + R) (word accuracy by frequency of
    compare-mt; Neubig et al. 2019). Where the references have no word, there is nothing to recall and no F. Buckets
    without a word on either side are left out.

    Args:
        hypotheses, references: raw text, one sentence each.
        counts: how often each word is in the training targets; others count as 0.
        words: cuts a text as it did for `counts`.
        borders: b1 < … < bk for the buckets [0, b1), [b1, b2), …, [bk, no limit).
    """
    check_aligned(hypotheses, references)
    ours, theirs, both = Counter[str](), Counter[str](), Counter[str]()
    for text, reference in zip(hypotheses, references, strict=True):
        hyp, ref = Counter(words(text)), Counter(words(reference))
        ours.update(hyp)
        theirs.update(ref)
        both.update(hyp & ref)
    lows = [0, *borders]
    highs: list[int | None] = [*borders, None]
    rows = []
    for low, high in zip(lows, highs, strict=True):
        inside = {word for word in ours | theirs if low <= counts.get(word, 0) < (math.inf if high is None else high)}
        h, r, m = (sum(found[word] for word in inside) for found in (ours, theirs, both))
        if h or r:
            f = 2 * m / (h + r) if r else None  # 2PR / (P + R) with M / H and M / R put in
            rows.append(FrequencyRow(low, high, r, h, m, m / h if h else None, m / r if r else None, f))
    return rows


def repetition(hypotheses: Sequence[str], references: Sequence[str], words: Splitter) -> list[RepetitionRow]:
    """How much is repeated within sentences, for n-grams of 1 to 4 words, beside what the references repeat.

    1 − distinct n-grams / n-grams of a sentence (seq-rep-n of Welleck et al. 2020), of the sums over all sentences.
    """
    check_aligned(hypotheses, references)
    sides = [[list(words(text)) for text in texts] for texts in (hypotheses, references)]
    rates = [[_repeated(side, n) for side in sides] for n in range(1, LONGEST_REPEAT + 1)]
    return [RepetitionRow(n, ours, theirs) for n, (ours, theirs) in enumerate(rates, 1)]


def _repeated(sentences: Sequence[Sequence[str]], n: int) -> float | None:
    total = distinct = 0
    for sentence in sentences:
        found = list(_ngrams(sentence, n))
        total += len(found)
        distinct += len(set(found))
    return 1 - distinct / total if total else None


def _ngrams(sentence: Sequence[str], n: int) -> Iterator[tuple[str, ...]]:
    return (tuple(sentence[first : first + n]) for first in range(len(sentence) - n + 1))


def worst_sentences(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    scores: Sequence[float],
    count: int = 10,
) -> list[ScoredSentence]:
    """The sentences with the lowest scores, worst first; of equal ones the earlier.

    Blank references are left out, and what equals its reference: nothing is wrong there.
    """
    rows = [
        ScoredSentence(line, score, *texts)
        for line, (score, texts) in enumerate(
            zip(scores, zip(sources, references, hypotheses, strict=True), strict=True), start=1
        )
        if texts[1].strip() and texts[1] != texts[2]
    ]
    return sorted(rows, key=lambda row: (row.score, row.line))[:count]
