"""Updates with large products in bfloat16: close to float32, weights and optimizer in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from models import DECODERS
from torch import nn
from updates import first_batch, training_of, update

from nmt.errors import NmtError
from nmt.model.precision import large_product, product_dtype, products_in
from nmt.reporting import SilentReporter
from nmt.training.loop import Training
from nmt.training.loss import token_losses
from nmt.training.precision import Precision, choose_precision

CPU, GPU = torch.device("cpu"), torch.device("cuda")


class Warned(SilentReporter):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, text: str) -> None:
        self.warnings.append(text)


def losses_and_gradient(training: Training) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the first batch: the three losses for a target token, and all gradients one after the other."""
    torch.manual_seed(5)
    batch = first_batch(training)
    with training.precision.update():
        losses, guidance = training._losses(batch, batch.tgt_tokens)
        loss = losses.loss if guidance is None else losses.loss + guidance
        loss.backward()  # type: ignore[no-untyped-call]
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in training.parameters]
    assert {gradient.dtype for gradient in gradients} == {torch.float32}
    parts = [losses.loss, losses.likelihood, torch.zeros(()) if guidance is None else guidance]
    assert {part.dtype for part in parts} == {torch.float32}
    values = torch.stack([part.detach() for part in parts]) / batch.tgt_tokens
    return values, torch.cat([gradient.flatten() for gradient in gradients])


@pytest.mark.parametrize("name", DECODERS)
def test_losses_and_gradients_in_bfloat16_are_those_of_float32_to_its_digits(tmp_path: Path, name: str) -> None:
    exact, rounded = (
        losses_and_gradient(training_of(tmp_path / precision, name, precision=precision))
        for precision in ("float32", "bfloat16")
    )
    assert not torch.equal(exact[1], rounded[1])  # something was rounded
    torch.testing.assert_close(rounded[0], exact[0], rtol=0.01, atol=0.002)
    assert (rounded[1] - exact[1]).norm() < 0.05 * exact[1].norm()  # maxout: another of a pair may be larger


@pytest.mark.parametrize("name", DECODERS)
def test_training_in_bfloat16_keeps_float32_state_and_learns(tmp_path: Path, name: str) -> None:
    training = training_of(tmp_path / "run", name, precision="bfloat16")
    assert training.average is not None
    batch = first_batch(training)
    losses = []
    for _ in range(20):
        before = training.state.window.smoothed
        update(training, batch)
        losses.append(training.state.window.smoothed - before)
    assert losses[-1] < 0.9 * losses[0]
    moments = [value for state in training.optimizer.state.values() for value in state.values()]
    assert {t.dtype for t in [*training.parameters, *training.average.average, *moments]} == {torch.float32}


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_in_bfloat16_is_that_of_rounded_products(smoothing: float) -> None:
    """Softmax and sums in float32: rounding the three products by hand gives the same to float32's digits."""
    torch.manual_seed(1)
    x, weight, bias = torch.randn(30, 16), torch.randn(50, 16), torch.randn(50)
    targets = torch.randint(50, (30,))
    factors = [nn.Parameter(tensor.clone()) for tensor in (x, weight, bias)]
    with products_in(torch.bfloat16):
        losses = token_losses(*factors, targets, smoothing)
    losses.loss.backward()  # type: ignore[no-untyped-call]
    leaves = [nn.Parameter(tensor.clone()) for tensor in (x, weight, bias)]
    low = [leaf.to(torch.bfloat16) for leaf in leaves[:2]]
    logits = (low[0] @ low[1].t()).float() + leaves[2]
    expected = nn.functional.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    expected.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(losses.loss, expected, rtol=1e-5, atol=0)
    for ours, theirs in zip(factors, leaves, strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0.02, atol=0.02)


def test_a_large_product_rounds_within_the_block_and_nowhere_else() -> None:
    layer, x = nn.Linear(5, 3), torch.randn(4, 5)
    exact = layer(x)
    with products_in(torch.bfloat16):
        rounded = large_product(layer, x)
        with products_in(None):
            torch.testing.assert_close(large_product(layer, x), exact)
    assert rounded.dtype == torch.float32
    assert torch.equal(rounded, rounded.bfloat16().float())
    assert float((rounded - exact).detach().abs().max()) > 1e-4
    torch.testing.assert_close(large_product(layer, x), exact)
    assert product_dtype(torch.float64) == torch.float64


def as_gpu(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla V100")


def test_auto_is_bfloat16_on_a_gpu_that_computes_in_it_and_float32_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    reporter = Warned()
    assert choose_precision("auto", CPU, reporter).rounded is None
    as_gpu(monkeypatch, (7, 0))
    assert choose_precision("auto", GPU, reporter).rounded is None
    as_gpu(monkeypatch, (8, 0))
    assert choose_precision("auto", GPU, reporter).rounded == torch.bfloat16
    assert choose_precision("float32", GPU, reporter).rounded is None
    assert reporter.warnings == []


def test_bfloat16_is_refused_on_a_gpu_without_it_and_warned_of_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    as_gpu(monkeypatch, (7, 0))
    with pytest.raises(NmtError, match=r"Tesla V100 does not compute in .*Set training\.precision to auto or float32"):
        choose_precision("bfloat16", GPU, SilentReporter())
    reporter = Warned()
    assert choose_precision("bfloat16", CPU, reporter).rounded == torch.bfloat16
    assert len(reporter.warnings) == 1


def test_tf32_is_allowed_within_an_update_in_bfloat16_on_a_gpu_alone() -> None:
    def seen(precision: Precision) -> Any:
        with precision.update():
            return torch.get_float32_matmul_precision()

    before = torch.get_float32_matmul_precision()
    assert seen(Precision(torch.bfloat16, GPU)) == "high"
    assert seen(Precision(None, GPU)) == seen(Precision(torch.bfloat16, CPU)) == before
    with pytest.raises(ValueError, match="stop"), Precision(torch.bfloat16, GPU).update():
        raise ValueError("stop")
    assert torch.get_float32_matmul_precision() == before
