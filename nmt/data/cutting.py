"""Sequences of unequal length cut into batches under a token budget; NumPy alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.signedinteger[Any]]  # of pairs, in 32 bits where these are enough
AT_ONCE = 2**18  # pairs whose lengths are looked at together: next to nothing beside a corpus


class Widths(Protocol):
    """The widths of pairs: an array, or what is indexed like one."""

    def __getitem__(self, pairs: Numbers, /) -> Numbers: ...


def sorted_by_length(pairs: Numbers, src_lengths: Numbers, tgt_lengths: Numbers) -> Numbers:
    """Pairs sorted by target and then source length, those of equal lengths in the order in which they came."""
    return _sorted(_sorted(pairs, src_lengths), tgt_lengths)


def _sorted(pairs: Numbers, lengths: Numbers) -> Numbers:
    """Pairs by a length, stably. A counting sort: beside its result it needs nothing that grows with their number."""
    blocks = [pairs[start : start + AT_ONCE] for start in range(0, len(pairs), AT_ONCE)]
    longest = int(lengths.max(initial=0))
    fast = np.uint16 if longest < 2**16 else lengths.dtype  # NumPy sorts 16 bits by radix, four times as fast
    places = np.zeros(longest + 2, dtype=np.int64)  # where the next pair of each length goes
    for block in blocks:
        places[1:] += np.bincount(lengths[block], minlength=longest + 1)
    np.cumsum(places, out=places)
    ordered = np.empty_like(pairs)
    for block in blocks:
        of_block = lengths[block].astype(fast)
        order = np.argsort(of_block, kind="stable")
        found, first, counts = np.unique(of_block[order], return_index=True, return_counts=True)
        within = np.arange(len(block)) - np.repeat(first, counts)
        ordered[np.repeat(places[found], counts) + within] = block[order]
        places[found] += counts
    return ordered


def cut_batches(order: Numbers, widths: Widths, batch_tokens: int) -> list[Any]:
    """Cuts a sequence of pairs into batches with sentences x longest width at most `batch_tokens`.

    A pair wider than the budget makes a batch of its own.
    """
    batches: list[Any] = []
    start, first, known = 0, 0, widths[order[:AT_ONCE]]  # the widths of the pairs from the place `first` on
    while start < len(order):
        if start == first + len(known):
            first, known = start, widths[order[start : start + AT_ONCE]]
        width = int(known[start - first])
        most = min(max(batch_tokens // width, 1) if width else len(order), len(order) - start)
        if start + most > first + len(known):
            first, known = start, widths[order[start : start + max(most, AT_ONCE)]]
        longest = np.maximum.accumulate(known[start - first : start - first + most])
        # Both factors only grow, so that those within the budget come first.
        within = int(np.count_nonzero(longest * np.arange(1, most + 1) <= batch_tokens))
        batches.append(order[start : start + max(within, 1)])
        start += len(batches[-1])
    return batches


def by_length(lengths: Sequence[int], batch_tokens: int, most: int) -> list[Indices]:
    """Numbers of sentences, longest first, cut into batches under the budget and of at most `most`: for translation."""
    widths = np.asarray(lengths, dtype=np.int64)
    batches = cut_batches(np.argsort(-widths, kind="stable"), widths, batch_tokens)
    return [batch[start : start + most] for batch in batches for start in range(0, len(batch), most)]
