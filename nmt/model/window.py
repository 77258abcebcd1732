"""Local attention: weights for the source positions near one centre alone (Luong et al. 2015, section 3.2).

The window of a step is [p_t - D, p_t + D]; the softmax runs over the real positions inside. Positions count from 1 in
formulas, and S is the sentence's own length, EOS included.

Axes: B sentences, K queries of a sentence (target positions in training, hypotheses in search), N = B x K,
S source positions, W = 2D + 1 positions of a window, E annotation size, H query size, A attention size.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from nmt.config import WindowConfig
from nmt.model.attention import AdditiveScore, DotScore, attend


class Window(nn.Module, ABC):
    """Where the window of each query lies, and how weights inside fall off."""

    def __init__(self, half_width: int) -> None:
        super().__init__()
        self.half_width = half_width
        # Whole numbers: a float buffer would follow the model into half precision, which cannot count that far.
        self.register_buffer("offsets_W", torch.arange(2 * half_width + 1), persistent=False)
        self.offsets_W: Tensor

    @abstractmethod
    def centres(self, states_BKH: Tensor, steps_K: Tensor, lengths_B: Tensor) -> Tensor:
        """p_t of each query, [B, K], above 0 and at most the length, so that no window is empty."""

    def falloff(self, distances: Tensor) -> Tensor | None:
        """What weights are multiplied by at each distance j - p_t, or None for no change."""
        return None

    def forward(
        self,
        score: AdditiveScore | DotScore,
        states_BKH: Tensor,
        steps_K: Tensor,
        keys_BSA: Tensor,
        annotations_BSE: Tensor,
        lengths_B: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Weights [B, K, S], exactly 0 outside the windows, and contexts [B, K, E]; `steps_K` are the queries' t.

        Where windows are small against the sentence only their positions are read and scored; elsewhere scoring all of
        them is the cheaper way to the same values.
        """
        centres_BK = self.centres(states_BKH, steps_K, lengths_B)
        size, queries = keys_BSA.shape[1], states_BKH.shape[1]
        near = 2 * score.positions_read(queries, 2 * self.half_width + 1) < size
        attend_inside = self.attend_near if near else self.attend_all
        return attend_inside(score, states_BKH, centres_BK, lengths_B, keys_BSA, annotations_BSE)

    def attend_all(
        self, score: AdditiveScore | DotScore, states_BKH: Tensor, centres_BK: Tensor, lengths_B: Tensor,
        keys_BSA: Tensor, annotations_BSE: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Weights and contexts by the scores of all positions."""
        positions_S = torch.arange(1, keys_BSA.shape[1] + 1, device=centres_BK.device, dtype=centres_BK.dtype)
        first_BK1, last_BK1 = self.bounds(centres_BK, lengths_B)
        inside_BKS = (positions_S >= first_BK1) & (positions_S <= last_BK1)
        distances_BKS = positions_S - centres_BK.unsqueeze(-1)
        weights_BKS = self.weigh(score(states_BKH, keys_BSA), inside_BKS, distances_BKS)
        return weights_BKS, attend(weights_BKS, annotations_BSE)

    def attend_near(
        self, score: AdditiveScore | DotScore, states_BKH: Tensor, centres_BK: Tensor, lengths_B: Tensor,
        keys_BSA: Tensor, annotations_BSE: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Weights and contexts by the scores of the 2D + 1 positions of each window."""
        batch, size = keys_BSA.shape[:2]
        first_BK1, last_BK1 = self.bounds(centres_BK, lengths_B)
        unlimited_BKW = first_BK1 + self.offsets_W.to(centres_BK)
        inside_BKW = unlimited_BKW <= last_BK1
        positions_BKW = unlimited_BKW.minimum(last_BK1)  # beyond the window its last position, again
        starts_B11 = torch.arange(-1, batch * size - 1, size, device=centres_BK.device).view(-1, 1, 1)
        rows_BKW = positions_BKW.long() + starts_B11
        scores_BKW = score.near(states_BKH, keys_BSA, rows_BKW)
        weights_BKW = self.weigh(scores_BKW, inside_BKW, positions_BKW - centres_BK.unsqueeze(-1))
        context_NE = nn.functional.embedding_bag(
            rows_BKW.flatten(0, 1),
            annotations_BSE.flatten(0, 1),
            per_sample_weights=weights_BKW.flatten(0, 1),
            mode="sum",
        )
        # Added, not written: a position that comes again has weight 0.
        nowhere_BKS = weights_BKW.new_zeros(batch, states_BKH.shape[1], size)
        index_BKW = rows_BKW - (starts_B11 + 1)
        return nowhere_BKS.scatter_add(-1, index_BKW, weights_BKW), context_NE.view(*centres_BK.shape, -1)

    def bounds(self, centres_BK: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """The first and the last real position of each window, [B, K, 1]."""
        centres_BK1 = centres_BK.unsqueeze(-1)
        first_BK1 = (centres_BK1 - self.half_width).ceil().clamp(min=1)
        last_BK1 = (centres_BK1 + self.half_width).floor().minimum(lengths_B.to(centres_BK).view(-1, 1, 1))
        return first_BK1, last_BK1

    def weigh(self, scores: Tensor, inside: Tensor, distances: Tensor) -> Tensor:
        """The weights of scores [B, K, X] at these distances j - p_t, 0 outside the windows."""
        weights = torch.where(inside, scores, -math.inf).softmax(-1)
        falloff = self.falloff(distances)
        return weights if falloff is None else weights * falloff.to(weights)


class MonotonicWindow(Window):
    """local-m: p_t = min(t, S); a target longer than the source keeps the last window."""

    def centres(self, states_BKH: Tensor, steps_K: Tensor, lengths_B: Tensor) -> Tensor:
        centres_BK = torch.minimum(steps_K, lengths_B.unsqueeze(1))
        return centres_BK.to(torch.promote_types(states_BKH.dtype, torch.float32))


class PredictiveWindow(Window):
    """local-p: p_t = S·sigmoid(v_p·tanh(W_p s_t)), weights times exp(-(j - p_t)² / (2σ²)), σ = D / 2 (eq. 9 and 10).

    The weights are not normalised again: they sum to at most 1. d_s² + d_s parameters.
    """

    def __init__(self, half_width: int, query_size: int) -> None:
        super().__init__(half_width)
        self.query = nn.Linear(query_size, query_size, bias=False)
        self.v = nn.Parameter(torch.empty(query_size))
        nn.init.uniform_(self.v, -(query_size**-0.5), query_size**-0.5)

    def centres(self, states_BKH: Tensor, steps_K: Tensor, lengths_B: Tensor) -> Tensor:
        logit_BK: Tensor = self.query(states_BKH).tanh() @ self.v
        # Positions of a long sentence need more digits than half precision has.
        return lengths_B.unsqueeze(1) * logit_BK.to(torch.promote_types(logit_BK.dtype, torch.float32)).sigmoid()

    def falloff(self, distances: Tensor) -> Tensor:
        return (distances.square() * (-2 / self.half_width**2)).exp()


def make_window(config: WindowConfig, query_size: int) -> Window:
    """The window that `config` describes."""
    if config.kind == "monotonic":
        return MonotonicWindow(config.half_width)
    return PredictiveWindow(config.half_width, query_size)
