"""The optimizer, the learning rate's schedule, and the moving average of weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nmt.config import OptimizerConfig, ScheduleConfig


def make_optimizer(config: OptimizerConfig, parameters: Sequence[nn.Parameter]) -> torch.optim.Adam:
    """Adam (Kingma and Ba 2015) in torch's fused form."""
    return torch.optim.Adam(parameters, lr=config.learning_rate, fused=True)


def step_unless(optimizer: torch.optim.Adam, skipped: Tensor) -> None:
    """One step of the optimizer, or none where `skipped`, a scalar in float32 on the device, is 1 and not 0.

    The fused kernel decides, as it does for torch's gradient scaler: nobody has to read the scalar. Moments and their
    count of steps stay, too.
    """
    optimizer.found_inf = skipped  # type: ignore[attr-defined]
    optimizer.step()


class Schedule:
    """The learning rate of each update.

    All kinds rise linearly over `warmup_steps`. `plateau` multiplies by `factor` after `patience` + 1 validations
    in which the model learnt nothing; `cosine` falls to 0 along half a cosine (Loshchilov and Hutter 2017) over
    `max_steps`; `inverse_sqrt` is times the root of `warmup_steps` / step from the end of the warm-up on (Vaswani
    et al. 2017); `constant` stays.
    """

    def __init__(self, config: ScheduleConfig, learning_rate: float) -> None:
        self.config = config
        self.learning_rate = learning_rate
        self.decay = 1.0
        self.bad_validations = 0

    def rate(self, step: int, share: float) -> float:
        """The rate of update `step` (from 1) when `share` of the updates are done."""
        rate = self.learning_rate * self.decay
        if step < self.config.warmup_steps:
            rate *= step / self.config.warmup_steps
        if self.config.kind == "cosine":
            rate *= 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))
        elif self.config.kind == "inverse_sqrt":
            rate *= (self.config.warmup_steps / max(step, self.config.warmup_steps)) ** 0.5
        return rate

    def validated(self, learning: bool) -> None:
        """Notes a validation; a plateau lowers the rate from here on."""
        self.bad_validations = 0 if learning else self.bad_validations + 1
        if self.config.kind == "plateau" and self.bad_validations > self.config.patience:
            self.decay *= self.config.factor
            self.bad_validations = 0

    def state_dict(self) -> dict[str, Any]:
        return {"decay": self.decay, "bad_validations": self.bad_validations}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.decay, self.bad_validations = state["decay"], state["bad_validations"]


class MovingAverage:
    """The exponential moving average of the weights (Polyak and Juditsky 1992), which is then the model in use.

    Early on the average is over all updates so far: the decay of update n is min(decay, n / (n + 9)).
    """

    def __init__(self, parameters: Sequence[nn.Parameter], decay: float) -> None:
        self.parameters = list(parameters)
        self.decay = decay
        self.average = [parameter.detach().clone() for parameter in parameters]

    @torch.no_grad()
    def update(self, step: int, skipped: Tensor) -> None:
        """Takes the weights after update `step` (from 1) into the average, unless the scalar `skipped` is 1."""
        share = (1 - skipped) * (1 - min(self.decay, step / (step + 9)))
        weights = [parameter.detach() for parameter in self.parameters]
        torch._foreach_lerp_(self.average, weights, [share] * len(weights))

    @torch.no_grad()
    def swap(self) -> None:
        """Exchanges weights and average: called before and after a use of the averaged model."""
        for parameter, average in zip(self.parameters, self.average, strict=True):
            kept = parameter.detach().clone()
            parameter.copy_(average)
            average.copy_(kept)


def clip_gradients(parameters: Sequence[nn.Parameter], max_norm: float) -> Tensor:
    """Scales all gradients so that their common norm is at most `max_norm`; returns the norm before (Pascanu 2013)."""
    return nn.utils.clip_grad_norm_(parameters, max_norm)
