"""The chunked loss against torch's own."""

from __future__ import annotations

import pytest
import torch

from nmt.training import loss
from nmt.training.loss import token_losses


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [4, 1000])
def test_loss_and_gradients_equal_torchs_cross_entropy(
    smoothing: float, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss, "CHUNK", chunk)
    torch.manual_seed(1)
    x, weight, bias = (
        torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((9, 4), (13, 4), (13,))
    )
    targets = torch.randint(0, 13, (9,))
    found = token_losses(x, weight, bias, targets, smoothing)
    logits = x @ weight.t() + bias
    expected = torch.nn.functional.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    plain = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
    torch.testing.assert_close(found.smoothed, expected)
    torch.testing.assert_close(found.likelihood, plain)
    ours = torch.autograd.grad(found.smoothed / 7, (x, weight, bias))
    for mine, torchs in zip(ours, torch.autograd.grad(expected / 7, (x, weight, bias)), strict=True):
        torch.testing.assert_close(mine, torchs)


def test_without_gradients_only_the_values_are_computed() -> None:
    x, weight, bias = torch.randn(9, 4), torch.randn(13, 4), torch.randn(13)
    losses = token_losses(x, weight, bias, torch.randint(0, 13, (9,)), 0.1)
    assert not losses.smoothed.requires_grad
