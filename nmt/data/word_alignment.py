"""Word alignment of a small parallel corpus by itself: the hidden Markov model, in both directions.

The model is that of Vogel, Ney and Tillmann (1996, "HMM-based word alignment in statistical translation") with the
empty word of Och and Ney (2003, section 2.1.4), begun from IBM's model 1 (Brown et al. 1993). It is learnt from the
pairs that it aligns, both ways round, and two words are linked where both directions agree, by the product of their
posterior probabilities (Liang, Taskar and Klein 2006, "Alignment by agreement", section 4).

Axes: P pairs of one group, whose sources are of one length; J target words, padded; I source words.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nmt.data.links import Links

Words = Sequence[str]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_EPOCHS = 8  # of either model
_EMPTY_SHARE = 0.2  # probability that a target word comes from the empty word
_LONGEST_JUMP = 20  # words; longer ones count as this one
_AGREEMENT = 0.4  # geometric mean of both directions' posteriors from which words are linked
_GROUP_PAIRS = 512
_SMALLEST = 1e-9


def align_words(pairs: Sequence[tuple[Words, Words]]) -> list[Links]:
    """Return the links of each pair, (source word, target word).

    Words are compared without regard to case. A pair with an empty side has no links. Time grows with the number of
    pairs, the length of one side and the square of that of the other: leave out what is no sentence.
    """
    filled = [number for number, pair in enumerate(pairs) if pair[0] and pair[1]]
    sources, targets = (_numbered([pairs[number][side] for number in filled]) for side in (0, 1))
    links: list[Links] = [frozenset()] * len(pairs)
    if not filled:
        return links
    there = _posteriors(sources, targets)
    other = _posteriors(targets, sources)
    for number, forth, back in zip(filled, there, other, strict=True):
        # Rounded, as the last digits differ between processors and the links must not.
        agreed = np.round(np.sqrt(forth * back.T), 6)
        links[number] = frozenset((int(i), int(j)) for j, i in np.argwhere(agreed >= _AGREEMENT))
    return links


def _numbered(texts: Sequence[Words]) -> list[Ints]:
    """Return the words of each text as numbers from 1; 0 is left for the empty word."""
    numbers: dict[str, int] = {}
    return [np.array([numbers.setdefault(word.lower(), len(numbers) + 1) for word in text]) for text in texts]


@dataclass(frozen=True)
class _Group:
    """Pairs whose sources have the same length.

    Attributes:
        pairs: their numbers, [P].
        lengths: target words, [P].
        cells: where in the table p(target word | source word) is, [P, J, I + 1], the empty word last; the table's
            last place in the padding.
    """

    pairs: Ints
    lengths: Ints
    cells: Ints

    def real(self) -> npt.NDArray[np.bool_]:
        """Say which target positions are words, [P, J]."""
        return np.arange(self.cells.shape[1]) < self.lengths[:, None]


def _posteriors(sources: Sequence[Ints], targets: Sequence[Ints]) -> list[Floats]:
    """Learn p(target | source); return for each pair how likely each target word is of each source word, [J, I]."""
    groups, owners = _groups(sources, targets)
    table = np.ones(len(owners) + 1)  # p(target word | source word) of the words that meet; 1 in the padding
    for _ in range(_EPOCHS):
        table = _normalised((_model_1_counts(group, table) for group in groups), owners)
    jumps = _Jumps.even()
    for _ in range(_EPOCHS):
        passes = [_Pass(group, table, jumps) for group in groups]
        table = _normalised((each.counts(len(table)) for each in passes), owners)
        jumps = _Jumps.of(passes)
    result: list[Floats] = [np.empty(0)] * len(sources)
    for group in groups:
        posteriors = _Pass(group, table, jumps).from_words
        for place, (number, length) in enumerate(zip(group.pairs, group.lengths, strict=True)):
            result[number] = posteriors[place, :length]
    return result


def _groups(sources: Sequence[Ints], targets: Sequence[Ints]) -> tuple[list[_Group], Ints]:
    """Return the pairs in groups, and the source word of each place in the table."""
    width = 1 + max(int(target.max()) for target in targets)
    codes = [np.append(src, 0)[None, :] * width + tgt[:, None] for src, tgt in zip(sources, targets, strict=True)]
    known, places = np.unique(np.concatenate([code.ravel() for code in codes]), return_inverse=True)
    ends = np.cumsum([code.size for code in codes])
    starts = np.concatenate([[0], ends[:-1]])
    groups = []
    for numbers in _of_one_length(sources, targets):
        lengths = np.array([len(targets[number]) for number in numbers])
        inner = len(sources[numbers[0]]) + 1
        cells = np.full((len(numbers), int(lengths.max()), inner), len(known))
        for place, number in enumerate(numbers):
            cells[place, : lengths[place]] = places[starts[number] : ends[number]].reshape(-1, inner)
        groups.append(_Group(np.array(numbers), lengths, cells))
    return groups, known // width


def _of_one_length(sources: Sequence[Ints], targets: Sequence[Ints]) -> Iterator[list[int]]:
    """Yield numbers of pairs whose sources have the same length, and whose targets have similar ones."""
    order = sorted(range(len(sources)), key=lambda number: (len(sources[number]), len(targets[number])))
    for _, same in itertools.groupby(order, key=lambda number: len(sources[number])):
        numbers = list(same)
        for first in range(0, len(numbers), _GROUP_PAIRS):
            yield numbers[first : first + _GROUP_PAIRS]


def _counted(cells: Ints, weights: Floats, size: int) -> Floats:
    return np.bincount(cells.ravel(), weights=weights.ravel(), minlength=size).astype(np.float64)


def _normalised(counts: Iterable[Floats], owners: Ints) -> Floats:
    """Return the table of the counts of all groups: they are divided by the sum of their source word."""
    total = np.zeros(len(owners) + 1)
    for each in counts:
        total += each
    inner = total[:-1]
    sums = np.bincount(owners, weights=inner)
    return np.append(np.maximum(inner / np.maximum(sums[owners], _SMALLEST), _SMALLEST), 1.0)


def _model_1_counts(group: _Group, table: Floats) -> Floats:
    """Return how often each two words are expected to be translations, by IBM's model 1."""
    shares = table[group.cells]
    shares /= shares.sum(2, keepdims=True)
    return _counted(group.cells, shares, len(table))


@dataclass(frozen=True)
class _Jumps:
    """How far the alignment moves from one target word to the next: weights of distances, and of first positions."""

    distances: Floats  # [2 _LONGEST_JUMP + 1], from the longest jump back
    first: Floats  # [_LONGEST_JUMP + 1]

    @classmethod
    def even(cls) -> _Jumps:
        """Return jumps that are all as likely."""
        return cls(np.ones(2 * _LONGEST_JUMP + 1), np.ones(_LONGEST_JUMP + 1))

    @classmethod
    def of(cls, passes: Sequence[_Pass]) -> _Jumps:
        """Return the jumps that are expected."""
        distances, first = np.full(2 * _LONGEST_JUMP + 1, 1e-3), np.full(_LONGEST_JUMP + 1, 1e-3)
        for each in passes:
            distances += each.distances
            first += each.first
        return cls(distances / distances.sum(), first / first.sum())

    def matrix(self, words: int) -> tuple[Floats, Floats]:
        """Return the probabilities of moving from one word to another, [I, I], and of beginning at each, [I]."""
        moves = self.distances[_distances(words)]
        start = self.first[np.minimum(np.arange(words), _LONGEST_JUMP)]
        return moves / moves.sum(1, keepdims=True), start / start.sum()


def _distances(words: int) -> Ints:
    """Return where in `_Jumps.distances` the move from each word to each other one is, [I, I]."""
    apart: Ints = np.arange(words)[None, :] - np.arange(words)[:, None]
    return np.clip(apart, -_LONGEST_JUMP, _LONGEST_JUMP) + _LONGEST_JUMP


class _Pass:
    """The forward-backward pass over one group.

    After the empty word the position of the last real one goes on, so a position has two states whose futures are the
    same: one backward array serves both.

    Attributes:
        from_words: posterior of each source word, [P, J, I]; 0 in the padding.
        distances, first: expected numbers of jumps and beginnings, as in `_Jumps`.
    """

    def __init__(self, group: _Group, table: Floats, jumps: _Jumps) -> None:
        self._group = group
        emitted = table[group.cells]
        words, empty = emitted[..., :-1], emitted[..., -1:]
        moves, start = jumps.matrix(words.shape[2])
        real = group.real()[..., None]
        forward, forward_empty = self._forward(words, empty, moves, start)
        backward, scale = self._backward(words, empty, moves, real)
        total = ((forward + forward_empty) * backward).sum(2, keepdims=True)
        self.from_words = np.where(real, forward * backward / total, 0.0)
        self._from_empty = np.where(real[..., 0], (forward_empty * backward).sum(2) / total[..., 0], 0.0)
        self.first = np.zeros(_LONGEST_JUMP + 1)
        beginnings = ((forward + forward_empty) * backward / total)[:, 0].sum(0)
        np.add.at(self.first, np.minimum(np.arange(len(start)), _LONGEST_JUMP), beginnings)
        before = (forward + forward_empty)[:, :-1]
        left = before / ((before * backward[:, :-1]).sum(2, keepdims=True) * scale[:, 1:])
        left = np.where(real[:, 1:], left, 0.0).reshape(-1, len(start))
        moved = (1 - _EMPTY_SHARE) * left.T @ (words * backward)[:, 1:].reshape(-1, len(start)) * moves
        self.distances = _counted(_distances(len(start)), moved, 2 * _LONGEST_JUMP + 1)

    @staticmethod
    def _forward(words: Floats, empty: Floats, moves: Floats, start: Floats) -> tuple[Floats, Floats]:
        """Return the normalised forward probabilities of both kinds of states, each [P, J, I]."""
        forward, forward_empty = np.empty_like(words), np.empty_like(words)
        reached, stayed = np.broadcast_to(start, words[:, 0].shape), np.broadcast_to(start, words[:, 0].shape)
        for step in range(words.shape[1]):
            forward[:, step] = (1 - _EMPTY_SHARE) * reached * words[:, step]
            forward_empty[:, step] = _EMPTY_SHARE * stayed * empty[:, step]
            stayed = forward[:, step] + forward_empty[:, step]
            total = stayed.sum(1, keepdims=True)
            forward[:, step] /= total
            forward_empty[:, step] /= total
            stayed = stayed / total
            reached = stayed @ moves
        return forward, forward_empty

    @staticmethod
    def _backward(words: Floats, empty: Floats, moves: Floats, real: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Return the backward probabilities, [P, J, I], and what each step divided them by, [P, J, 1]."""
        backward, scale = np.ones_like(words), np.ones((*words.shape[:2], 1))
        for step in range(words.shape[1] - 1, 0, -1):
            coming = words[:, step] * backward[:, step]
            before = (1 - _EMPTY_SHARE) * (coming @ moves.T) + _EMPTY_SHARE * empty[:, step] * backward[:, step]
            total = before.sum(1, keepdims=True)
            backward[:, step - 1] = np.where(real[:, step], before / total, 1.0)
            scale[:, step] = total
        return backward, scale

    def counts(self, size: int) -> Floats:
        """Return how often each two words are expected to be translations."""
        return _counted(self._group.cells, np.append(self.from_words, self._from_empty[..., None], axis=2), size)
