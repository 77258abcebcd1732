"""What a search asks of a model, in NumPy alone: no torch here, so that an exported model can answer it too.

Axes: B live sentences, K hypotheses of a sentence, N = B x K rows, S source positions, C continuations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Continuations:
    """The best continuations of each live sentence, best first, and the model's state after the step."""

    log_probs_BC: Array  # of the whole hypothesis, float64; -inf where there is none
    parents_BC: Array  # which of the K hypotheses it continues
    tokens_BC: Array
    weights_BKS: Array  # attention weights of the step, by parent
    state: Any


class Stepper(Protocol):
    """The model's side of a search."""

    def begin(self, sources: Sequence[Sequence[int]]) -> Any:
        """The state of one hypothesis a sentence before its first word."""

    def step(self, state: Any, tokens_BK: Array, log_probs_BK: Array, width: int) -> Continuations:
        """Feeds each hypothesis its last word and returns the `width` best continuations of each sentence."""

    def select(self, state: Any, sentences_B: Array, rows_N: Array) -> Any:
        """The state of some live sentences, their hypotheses taken from rows of the old numbering."""
