"""The side of several models in a search: each makes its own step, the best continuations are those of their mean.

Axes: B live sentences, K hypotheses of a sentence, N = B x K rows, S source positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from nmt.model.selection import MeanSelection
from nmt.model.stepper import Array, Continuations
from nmt.model.torch_stepper import StepState, TorchStepper, continuations


class EnsembleStepper:
    """`Stepper` by models with one vocabulary, on one device; their kinds and sizes may differ.

    A word counts the arithmetic mean of the models' log-probabilities (`MeanSelection`). The attention weights are the
    mean of those of the models that attend. Words are banned as in the first model.
    """

    def __init__(self, members: Sequence[TorchStepper]) -> None:
        self.members = members
        self.device = members[0].device
        self.selection = MeanSelection([member.selection for member in members])

    def begin(self, sources: Sequence[Sequence[int]]) -> tuple[StepState, ...]:
        """Reads the sources (ids ended by EOS) by each model: one hypothesis a sentence, no word yet."""
        return tuple(member.begin(sources) for member in self.members)

    @torch.inference_mode()
    def step(self, state: tuple[StepState, ...], tokens_BK: Array, log_probs_BK: Array, width: int) -> Continuations:
        """Feeds each hypothesis its last word; the `width` best continuations of each sentence, best first."""
        decoded = [member.decode(own, tokens_BK) for member, own in zip(self.members, state, strict=True)]
        before_N = torch.from_numpy(log_probs_BK.reshape(-1)).to(self.device)
        best = self.selection.best([readout_NR for readout_NR, _, _ in decoded], before_N, tokens_BK.shape[1], width)
        weights = [weights_NS for _, _, weights_NS in decoded if weights_NS.shape[1]]  # a model of kind none has none
        mean_NS = torch.stack(weights).mean(0) if weights else decoded[0][2]
        after = tuple(StepState(own.memory, decoder) for own, (_, decoder, _) in zip(state, decoded, strict=True))
        return continuations(best, mean_NS, tokens_BK.shape, after)

    def select(self, state: tuple[StepState, ...], sentences_B: Array, rows_N: Array) -> tuple[StepState, ...]:
        """Keeps the sentences `sentences_B`, and of the hypotheses the rows `rows_N` (in the old numbering)."""
        return tuple(member.select(own, sentences_B, rows_N) for member, own in zip(self.members, state, strict=True))
