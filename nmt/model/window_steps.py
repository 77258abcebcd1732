"""Local attention in the teacher-forced loop with input feeding: weights of windows, with gradients by hand.

All positions are scored, as the loop's arrays are of all of them, and those outside the windows masked.

Axes: T target positions, B sentences, S source positions, P size of what a predictive window is told by.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nmt.model.attention_steps import SoftmaxSteps
from nmt.model.window import MonotonicWindow, PredictiveWindow


class MonotonicSteps(SoftmaxSteps):
    """local-m: where windows lie is known before the loop."""

    def __init__(self, window: MonotonicWindow, mask_BS: Tensor, steps_T: Tensor, dtype: torch.dtype) -> None:
        """`steps_T` are the steps' t, from 1; `dtype` is that of the states."""
        super().__init__(mask_BS)
        lengths_B = mask_BS.sum(1)
        inside_BTS, _ = window.inside(window.centres_at(steps_T, lengths_B, dtype), lengths_B, mask_BS.shape[1])
        self.outside = (~inside_BTS).unbind(1)

    def weigh(self, t: int, scores_BS: Tensor, weights_BS: Tensor) -> None:
        torch.softmax(scores_BS.masked_fill_(self.outside[t], -math.inf), -1, out=weights_BS)


class PredictiveSteps(SoftmaxSteps):
    """local-p: p_t = S·sigmoid(v_p·tanh(place)), place = W_p s_t, which the loop multiplies.

    `weigh` replaces the place of its step by its tanh; `soft_TBS` are the weights before the fall-off, `centres_TB`
    p_t: the loop saves all of them, and hands them to `start_backward` of another object.
    """

    def __init__(self, window: PredictiveWindow, mask_BS: Tensor, places_TBP: Tensor, v_P: Tensor) -> None:
        super().__init__(mask_BS)
        self.window, self.places_TBP, self.v_P = window, places_TBP, v_P
        self.lengths_B = mask_BS.sum(1)
        self.soft_TBS = places_TBP.new_empty(len(places_TBP), *mask_BS.shape)
        self.centres_TB = places_TBP.new_empty(places_TBP.shape[:2])

    @property
    def saved(self) -> tuple[Tensor, Tensor]:
        """What the backward pass needs beside the weights and the places."""
        return self.soft_TBS, self.centres_TB

    def weigh(self, t: int, scores_BS: Tensor, weights_BS: Tensor) -> None:
        logit_B1 = (self.places_TBP[t].tanh_() @ self.v_P).unsqueeze(1)
        centre_B1 = self.window.centres_of(logit_B1, self.lengths_B)
        self.centres_TB[t] = centre_B1.squeeze(1)
        inside_B1S, distance_B1S = self.window.inside(centre_B1, self.lengths_B, scores_BS.shape[1])
        scores_BS.masked_fill_(~inside_B1S.squeeze(1), -math.inf)
        torch.softmax(scores_BS, -1, out=self.soft_TBS[t])
        torch.mul(self.soft_TBS[t], self.window.falloff(distance_B1S.squeeze(1)), out=weights_BS)

    def start_backward(
        self, weights_TBS: Tensor, soft_TBS: Tensor, centres_TB: Tensor, grad_places_TBP: Tensor
    ) -> None:  # fmt: skip
        """What the forward pass left, and where the gradients of the places go."""
        self.soft_TBS, self.grad_places_TBP = soft_TBS, grad_places_TBP
        positions_S = torch.arange(1, weights_TBS.shape[2] + 1, device=centres_TB.device, dtype=centres_TB.dtype)
        distances_TBS = positions_S - centres_TB.unsqueeze(2)
        self.pull_TBS = distances_TBS.mul_(weights_TBS).mul_(4 / self.window.half_width**2)  # of weights, by the centre
        share_TB = centres_TB / self.lengths_B
        self.slope_TB = centres_TB * (1 - share_TB)  # of the centre, by its logit
        self.place_slope_TBP = (1 - self.places_TBP.square()).mul_(self.v_P)
        self.grad_logits_TB = torch.empty_like(centres_TB)

    def gradient(self, t: int, weights_BS: Tensor, grad_BS: Tensor) -> Tensor:
        torch.mul(torch.linalg.vecdot(grad_BS, self.pull_TBS[t]), self.slope_TB[t], out=self.grad_logits_TB[t])
        torch.mul(self.grad_logits_TB[t].unsqueeze(1), self.place_slope_TBP[t], out=self.grad_places_TBP[t])
        share_BS = weights_BS * grad_BS
        return share_BS.addcmul_(self.soft_TBS[t], share_BS.sum(1, keepdim=True), value=-1)

    def grad_v(self) -> Tensor:
        """The gradient of v_p, after the last step."""
        return self.grad_logits_TB.flatten() @ self.places_TBP.flatten(0, 1)
