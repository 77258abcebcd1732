"""The chunked loss against torch's own."""

from __future__ import annotations

import functools

import pytest
import torch

from nmt.model import devices
from nmt.training import loss
from nmt.training.loss import CHUNK, token_losses


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
    torch.testing.assert_close(found.loss, expected)
    torch.testing.assert_close(found.likelihood, plain)
    ours = torch.autograd.grad(found.loss / 7, (x, weight, bias))
    for mine, torchs in zip(ours, torch.autograd.grad(expected / 7, (x, weight, bias)), strict=True):
        torch.testing.assert_close(mine, torchs)


def test_without_gradients_only_the_values_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, bias = (torch.nn.Parameter(torch.randn(shape)) for shape in ((9, 4), (13, 4), (13,)))
    targets = torch.randint(0, 13, (9,))
    expected = token_losses(x, weight, bias, targets, 0.1).loss.detach()
    monkeypatch.delattr(loss, "add_weight_gradient")  # what gradients are made with
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            losses = token_losses(x, weight, bias, targets, 0.1)
        assert not losses.loss.requires_grad
        torch.testing.assert_close(losses.loss, expected)
    with pytest.raises(NameError):
        token_losses(x, weight, bias, targets, 0.1)


def test_no_tokens_have_a_loss_of_0_and_gradients_of_0() -> None:
    leaves = [torch.nn.Parameter(torch.randn(shape)) for shape in ((0, 4), (13, 4), (13,))]
    losses = token_losses(*leaves, torch.zeros(0, dtype=torch.int64), 0.1)
    assert losses.loss == losses.likelihood == 0
    losses.loss.backward()  # type: ignore[no-untyped-call]
    assert all((leaf.grad == 0).all() for leaf in leaves if leaf.grad is not None)


@pytest.mark.parametrize("cpu", [True, False])
def test_the_loss_is_exact_where_the_reference_has_next_to_no_probability(
    cpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probability of float32 ends at 1e-45; the loss of one below does not."""
    monkeypatch.setattr(devices, "on_cpu", lambda tensor: cpu)
    x = torch.tensor([[1.0], [30.0], [70.0], [90.0], [500.0]])
    weight, bias, targets = torch.tensor([[1.0], [0.0], [-1.0]]), torch.zeros(3), torch.tensor([2, 2, 1, 1, 2])
    found = token_losses(x, weight, bias, targets, 0.1)
    logits = (x @ weight.t()).double()
    expected = torch.nn.functional.cross_entropy(logits, targets, reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(found.loss.double(), expected, rtol=1e-6, atol=0)
    plain = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
    torch.testing.assert_close(found.likelihood.double(), plain, rtol=1e-6, atol=0)


@pytest.mark.parametrize("cpu", [True, False])
def test_the_scale_multiplies_the_smoothed_loss_and_all_gradients(cpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "on_cpu", lambda tensor: cpu)
    torch.manual_seed(1)
    leaves = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((9, 4), (13, 4), (13,))]
    targets = torch.randint(0, 13, (9,))
    whole, part = token_losses(*leaves, targets, 0.1), token_losses(*leaves, targets, 0.1, 0.25)
    torch.testing.assert_close(part.loss, whole.loss / 4)
    torch.testing.assert_close(part.likelihood, whole.likelihood)
    for one, quarter in zip(
        torch.autograd.grad(whole.loss, leaves), torch.autograd.grad(2 * part.loss, leaves), strict=True
    ):
        torch.testing.assert_close(quarter, one / 2)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("tokens", [0, 3, CHUNK + 1])
def test_r_drop_is_its_formula_in_value_and_gradient(tokens: int, smoothing: float) -> None:
    """The cross-entropy of both passes, and α times half of the divergences, by torch's own operations."""
    torch.manual_seed(2)
    x, weight, bias = (torch.randn(*shape, dtype=torch.float64, requires_grad=True)
                       for shape in ((2 * tokens, 6), (12, 6), (12,)))  # fmt: skip
    targets = torch.randint(12, (tokens,)).repeat(2)
    found = token_losses(x, weight, bias, targets, smoothing, 0.25, 3.0)
    logits = torch.nn.functional.linear(x, weight, bias)
    loss = torch.nn.functional.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    one, other = logits.log_softmax(-1).chunk(2)
    kl = functools.partial(torch.nn.functional.kl_div, reduction="sum", log_target=True)
    divergence = (kl(one, other) + kl(other, one)) / 2
    torch.testing.assert_close(found.divergence, divergence)
    expected = 0.25 * (loss + 3 * divergence)
    torch.testing.assert_close(found.loss, expected)
    leaves = (x, weight, bias)
    for ours, theirs in zip(
        torch.autograd.grad(found.loss, leaves), torch.autograd.grad(expected, leaves), strict=True
    ):
        torch.testing.assert_close(ours, theirs)
