"""What training silences at random: units of a sentence, whole words, and weights between a state and the next.

Axes: B sentences, T positions, X units, N rows of a packed batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn


def _kept(like: Tensor, rate: float) -> Tensor:
    """Of the shape and type of `like`: 0 for a share `rate`, and for the others what makes up for it."""
    keep = 1 - rate
    return torch.empty_like(like, memory_format=torch.contiguous_format).bernoulli_(keep).div_(keep)


class SharedDropout(nn.Module):
    """Dropout with one mask for all positions of a sentence (Gal and Ghahramani 2016).

    Cheaper on a CPU than a mask for each position, and the better regulariser for recurrent networks.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x_BTX: Tensor) -> Tensor:
        """`x_BTX` in evaluation; in training with a share `rate` of its last axis set to 0, alike at every position."""
        mask_BX = self.mask(x_BTX[:, 0])
        return x_BTX if mask_BX is None else x_BTX * mask_BX.unsqueeze(1)

    def mask(self, like_BX: Tensor) -> Tensor | None:
        """What each sentence's values are multiplied by, of the shape and type of `like_BX`; None for no dropout."""
        return _kept(like_BX, self.rate) if self.training and self.rate else None


class WordDropout(nn.Module):
    """Dropout of whole words: a position's vector is 0 with probability `rate` (Sennrich et al. 2016, WMT)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x_BTX: Tensor) -> Tensor:
        """`x_BTX` in evaluation; in training with a share `rate` of its positions set to 0."""
        return x_BTX * _kept(x_BTX[:, :, :1], self.rate) if self.training and self.rate else x_BTX


def set_weight_dropout(model: nn.Module, rate: float) -> None:
    """Has training drop a share `rate` of the weights between a state and the next, in all recurrent layers of `model`.

    DropConnect (Merity et al. 2018), drawn anew for each batch and the same for all of its steps.
    """
    for layer in model.modules():
        if isinstance(layer, nn.RNNBase):
            layer.weight_dropout = rate


def layer_weights(layer: nn.Module, names: Sequence[str]) -> list[Tensor]:
    """Parameters of a recurrent layer; in training a share of those between states is 0, drawn at each call."""
    rate = cast(float, getattr(layer, "weight_dropout", 0.0)) if layer.training else 0.0
    weights = [cast(Tensor, getattr(layer, name)) for name in names]
    if not rate:
        return weights
    return [
        weight * _kept(weight, rate) if name.startswith("weight_hh") else weight
        for name, weight in zip(names, weights, strict=True)
    ]


def run_layer(layer: nn.Module, x: Any, start: Any = None) -> Any:
    """torch's own layer, which is cuDNN's on a GPU, by the weights of `layer_weights`."""
    assert isinstance(layer, nn.RNNBase)
    own = layer._flat_weights
    layer._flat_weights = layer_weights(layer, layer._flat_weights_names)  # type: ignore[assignment]
    try:
        return layer(x, start)
    finally:
        layer._flat_weights = own
