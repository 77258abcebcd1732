"""The output projection of a search step, reduced at once to the best continuations of each sentence.

On a CPU logits are made for some rows at a time, and no array
of all rows is ever made. The best of a row lie in the blocks of columns with the largest maxima, so only those blocks
are sorted.

Axes: B sentences, K hypotheses of a sentence, N = B x K rows, R readout size, V vocabulary, Q blocks of a row,
P = Q x BLOCK columns (V of them real), C continuations.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from nmt.model import devices

BLOCK = 64  # columns
SAFE = 60.0  # exp(±60) is far from the ends of float32
ROWS = 320  # of logits at a time on a CPU: enough for a fast product; with 8000 words 10 MB

Best = tuple[Tensor, Tensor, Tensor]  # log-probabilities of whole hypotheses, parents and words, each [B, C]


class Selection:
    """Projects readouts to the vocabulary and keeps the best continuations.

    `output` is the projection, `padded` to whole blocks. `banned` are ids that are never chosen; they count in the
    normalisation, so that a hypothesis has the score that forced decoding gives it.
    """

    def __init__(self, output: nn.Module, vocabulary: int, banned: Sequence[int], device: torch.device) -> None:
        self.output = output
        self.vocabulary = vocabulary
        self.blocks = -(-vocabulary // BLOCK)
        self.banned = torch.tensor(list(banned), dtype=torch.int64, device=device)
        self.arrays = threading.local()  # searches may share a model, but not what they write into

    def best(self, readout_NR: Tensor, before_N: Tensor, beam: int, width: int) -> Best:
        """Log-probabilities of whole hypotheses, parents and words of the best continuations, each [B, C], best first.

        `before_N` are the log-probabilities of the hypotheses so far, of each sentence's `beam` one after the other.
        C is `width`, or all continuations where there are fewer.
        """
        return _in_parts(lambda part: self._best_of(readout_NR[part], before_N[part], beam, width), before_N, beam)

    def _best_of(self, readout_NR: Tensor, before_N: Tensor, beam: int, width: int) -> Best:
        """`best` of rows that are few enough to be projected at once."""
        logits_NP = self._logits(readout_NR)
        banned_NX = logits_NP[:, self.banned]
        logits_NP.index_fill_(1, self.banned, -math.inf)
        peaks_NQ = logits_NP.view(-1, self.blocks, BLOCK).amax(-1)
        total_N1 = self._log_total(logits_NP, peaks_NQ.amax(-1, keepdim=True))
        # A banned word may be so much more probable than all others that its power has no value beside theirs.
        total_N1 = total_N1.logaddexp(banned_NX.logsumexp(-1, keepdim=True))
        shift_N1 = before_N.to(logits_NP).unsqueeze(1) - total_N1
        return best_of_blocks(logits_NP, peaks_NQ, shift_N1, beam, min(width, beam * self.vocabulary), self.vocabulary)

    def log_probs(self, readout_NR: Tensor) -> Tensor:
        """log p of every word, banned ones too, [N, P]; -inf beyond the vocabulary."""
        logits_NP = self._logits(readout_NR)
        return logits_NP.sub_(self._log_total(logits_NP, logits_NP.amax(-1, keepdim=True)))

    def _logits(self, readout_NR: Tensor) -> Tensor:
        logits_NP: Tensor = self.output(readout_NR)
        return logits_NP.to(torch.promote_types(logits_NP.dtype, torch.float32))

    def _log_total(self, logits_NP: Tensor, peak_N1: Tensor) -> Tensor:
        """log Σ exp of each row, [N, 1]; `peak_N1` are the rows' maxima."""
        if not devices.on_cpu(logits_NP):
            return logits_NP.logsumexp(-1, keepdim=True)
        powers_NP = getattr(self.arrays, "powers_NP", None)
        if powers_NP is None or len(powers_NP) < len(logits_NP):
            powers_NP = self.arrays.powers_NP = torch.empty_like(logits_NP)
        powers_NP = powers_NP[: len(logits_NP)]
        if float(peak_N1.abs().max()) <= SAFE:  # neither too large for a power nor too small: nothing to take off first
            return torch.exp(logits_NP, out=powers_NP).sum(-1, keepdim=True).log_()
        return torch.sub(logits_NP, peak_N1, out=powers_NP).exp_().sum(-1, keepdim=True).log_().add_(peak_N1)


class MeanSelection:
    """Keeps the best continuations by the arithmetic mean of the log-probabilities that several models give.

    The models have one vocabulary, and the banned words of the first are those of all. The mean is not normalised
    again: the score of a hypothesis is the mean of those that forced decoding by each model gives it.
    """

    def __init__(self, members: Sequence[Selection]) -> None:
        self.members = members

    def best(self, readouts: Sequence[Tensor], before_N: Tensor, beam: int, width: int) -> Best:
        """As `Selection.best`, of a readout [N, R] of each model; R may differ."""
        return _in_parts(
            lambda part: self._best_of([readout_NR[part] for readout_NR in readouts], before_N[part], beam, width),
            before_N,
            beam,
        )

    def _best_of(self, readouts: Sequence[Tensor], before_N: Tensor, beam: int, width: int) -> Best:
        first, *others = self.members
        mean_NP = first.log_probs(readouts[0])
        for member, readout_NR in zip(others, readouts[1:], strict=True):
            mean_NP.add_(member.log_probs(readout_NR))
        mean_NP.div_(len(self.members)).index_fill_(1, first.banned, -math.inf)
        peaks_NQ = mean_NP.view(-1, first.blocks, BLOCK).amax(-1)
        before_N1 = before_N.to(mean_NP).unsqueeze(1)
        return best_of_blocks(mean_NP, peaks_NQ, before_N1, beam, min(width, beam * first.vocabulary), first.vocabulary)


def _in_parts(best_of: Callable[[slice], Best], before_N: Tensor, beam: int) -> Best:
    """The results of `best_of` for rows that are few enough to be projected at once, put together."""
    count = len(before_N)
    rows = max(1, ROWS // beam) * beam if devices.on_cpu(before_N) else count
    parts = [best_of(slice(start, start + rows)) for start in range(0, count, rows)]
    best_BC, parents_BC, tokens_BC = (torch.cat(part) if len(parts) > 1 else part[0] for part in zip(*parts))
    return best_BC, parents_BC, tokens_BC


def padded(output: nn.Linear) -> tuple[Tensor, Tensor]:
    """Weight and bias of a projection to P columns, whole blocks; those beyond the vocabulary give -inf."""
    more = -output.out_features % BLOCK
    weight, bias = output.weight.detach(), output.bias.detach()
    return nn.functional.pad(weight, (0, 0, 0, more)), nn.functional.pad(bias, (0, more), value=-math.inf)


def best_of_blocks(
    logits_NP: Tensor, peaks_NQ: Tensor, shift_N1: Tensor, beam: int, width: int, vocabulary: int
) -> Best:
    """The `width` largest of logits + shift over the `beam` rows of each sentence: values, rows 0 … K-1 and columns.

    `peaks_NQ` are the maxima of the blocks. A value outside the blocks with the `width` largest maxima has `width`
    others that are as large: the order among equals is left open, as torch.topk leaves it.
    """
    batch, blocks = len(logits_NP) // beam, peaks_NQ.shape[1]
    scores_BM = (peaks_NQ + shift_N1).view(batch, beam * blocks)
    chosen_BX = scores_BM.topk(min(width, beam * blocks), -1, sorted=False).indices
    starts_B1 = torch.arange(0, batch * beam * blocks, beam * blocks, device=chosen_BX.device).unsqueeze(1)
    parents_BX = chosen_BX // blocks
    values = logits_NP.view(-1, BLOCK).index_select(0, (chosen_BX + starts_B1).view(-1)).view(*chosen_BX.shape, BLOCK)
    values += shift_N1.view(batch, beam).gather(1, parents_BX).unsqueeze(2)
    best_BC, place_BC = values.view(batch, -1).topk(width, -1)
    slot_BC = place_BC // BLOCK
    columns_BC = chosen_BX.gather(1, slot_BC) % blocks * BLOCK + place_BC % BLOCK
    # Beyond the vocabulary everything is -inf; a column that is never used is still one that exists.
    return best_BC, parents_BX.gather(1, slot_BC), columns_BC.clamp_(max=vocabulary - 1)
