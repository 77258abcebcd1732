"""Sequences of unequal length cut into batches under a token budget; NumPy alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


def cut_batches(order: Indices, widths: Indices, batch_tokens: int) -> list[Indices]:
    """Cuts a sequence of pairs into batches with sentences x longest width at most `batch_tokens`.

    A pair wider than the budget makes a batch of its own.
    """
    batches: list[Indices] = []
    start, longest = 0, 0
    for place, width in enumerate(widths[order].tolist()):
        longest = max(longest, width)
        if place > start and (place - start + 1) * longest > batch_tokens:
            batches.append(order[start:place])
            start, longest = place, width
    if start < len(order):
        batches.append(order[start:])
    return batches


def by_length(lengths: Sequence[int], batch_tokens: int, most: int) -> list[Indices]:
    """Numbers of sentences, longest first, cut into batches under the budget and of at most `most`: for translation."""
    widths = np.asarray(lengths, dtype=np.int64)
    batches = cut_batches(np.argsort(-widths, kind="stable"), widths, batch_tokens)
    return [batch[start : start + most] for batch in batches for start in range(0, len(batch), most)]
