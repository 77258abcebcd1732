"""Products by oneDNN and by torch's own library are the same, whatever the strides of their factors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from nmt.model import gemm

ROWS, INPUTS, OUTPUTS = 37, 24, 40
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "dense": torch.Tensor.contiguous,
    "transposed": lambda matrix: matrix.t().contiguous().t(),
    "columns of a wider one": lambda matrix: torch.cat([matrix, matrix], 1)[:, : matrix.shape[1]],
    "rows of a taller one, transposed": lambda matrix: torch.cat([matrix, matrix]).t().contiguous().t()[: len(matrix)],
    "every second column": lambda matrix: matrix.repeat_interleave(2, 1)[:, ::2],
}
FLOAT32 = {"rtol": 1e-5, "atol": 1e-5}

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")


@pytest.fixture(params=[pytest.param(True, marks=needs_onednn), False], ids=["oneDNN", "torch"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Each library in turn, whatever the processor."""
    monkeypatch.setattr(gemm, "onednn_is_faster", lambda: request.param)
    torch.manual_seed(1)
    return bool(request.param)


@pytest.mark.parametrize("right", LAYOUTS)
@pytest.mark.parametrize("left", LAYOUTS)
def test_products_are_those_of_float64_for_factors_of_any_strides(engine: bool, left: str, right: str) -> None:
    a, b = LAYOUTS[left](torch.randn(ROWS, INPUTS)), LAYOUTS[right](torch.randn(INPUTS, OUTPUTS))
    bias, term, whole = torch.randn(OUTPUTS), torch.randn(ROWS, OUTPUTS), (a.double() @ b.double())
    out = torch.empty(ROWS, 2 * OUTPUTS)[:, :OUTPUTS]

    torch.testing.assert_close(gemm.product(a, b).double(), whole, **FLOAT32)
    torch.testing.assert_close(gemm.biased_product(a, b, bias).double(), whole + bias, **FLOAT32)
    gemm.write_product(a, b, out)
    torch.testing.assert_close(out.double(), whole, **FLOAT32)
    gemm.write_sum(bias, a, b, out)
    torch.testing.assert_close(out.double(), whole + bias, **FLOAT32)
    gemm.write_sum(term, a, b, out)
    torch.testing.assert_close(out.double(), whole + term, **FLOAT32)
    before = out.double()
    gemm.write_sum(out, a, b, out)
    torch.testing.assert_close(out.double(), before + whole, **FLOAT32)


@pytest.mark.parametrize("right", LAYOUTS)
@pytest.mark.parametrize("left", LAYOUTS)
def test_gradients_of_weights_are_dense_and_those_of_float64(engine: bool, left: str, right: str) -> None:
    grad, x = LAYOUTS[left](torch.randn(ROWS, OUTPUTS)), LAYOUTS[right](torch.randn(ROWS, INPUTS))
    whole = grad.double().t() @ x.double()
    gradient = gemm.weight_gradient(grad, x)
    assert gradient.is_contiguous()
    torch.testing.assert_close(gradient.double(), whole, **FLOAT32)
    gemm.add_weight_gradient(grad, x, gradient)
    torch.testing.assert_close(gradient.double(), 2 * whole, **FLOAT32)


@pytest.mark.parametrize("biased", [True, False])
def test_a_linear_layer_and_its_gradients_are_torchs(engine: bool, biased: bool) -> None:
    layer, x = nn.Linear(INPUTS, OUTPUTS, bias=biased), torch.randn(3, ROWS, INPUTS, requires_grad=True)
    parameters = [x, *layer.parameters()]
    upstream = torch.randn(3, ROWS, OUTPUTS)
    expected, found = layer(x), gemm.linear(x, layer.weight, layer.bias)
    torch.testing.assert_close(found, expected, **FLOAT32)
    for mine, torchs in zip(
        torch.autograd.grad(found, parameters, upstream),
        torch.autograd.grad(expected, parameters, upstream),
        strict=True,
    ):
        torch.testing.assert_close(mine, torchs, **FLOAT32)


def test_only_what_wants_a_gradient_gets_one(engine: bool) -> None:
    layer, x = nn.Linear(INPUTS, OUTPUTS), torch.randn(ROWS, INPUTS)
    layer.weight.requires_grad_(False)
    gemm.linear(x, layer.weight, layer.bias).sum().backward()
    assert layer.weight.grad is None
    assert x.grad is None
    assert layer.bias.grad is not None


@needs_onednn
def test_other_types_stay_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm, "onednn_is_faster", lambda: True)
    for dtype in (torch.float64, torch.bfloat16):
        assert not gemm.by_onednn(torch.zeros(1, dtype=dtype))
    a, b = torch.randn(ROWS, INPUTS, dtype=torch.float64), torch.randn(INPUTS, OUTPUTS, dtype=torch.float64)
    assert torch.equal(gemm.product(a, b), a @ b)
    rounded = torch.zeros(OUTPUTS, INPUTS)
    gemm.add_weight_gradient(torch.ones(2, OUTPUTS, dtype=torch.bfloat16), torch.ones(2, INPUTS).bfloat16(), rounded)
    assert torch.equal(rounded, torch.full_like(rounded, 2))


@pytest.mark.parametrize(
    ("said", "capability", "faster"),
    [
        ("vendor_id\t: AuthenticAMD", "AVX512", True),
        ("vendor_id\t: AuthenticAMD", "AVX2", False),
        ("vendor_id\t: GenuineIntel", "AVX512", False),
        ("", "AVX512", False),
    ],
)
@needs_onednn
def test_the_library_follows_from_the_processor_alone(
    monkeypatch: pytest.MonkeyPatch, said: str, capability: str, faster: bool
) -> None:
    monkeypatch.setattr(gemm, "processor", lambda: said)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    gemm.onednn_is_faster.cache_clear()
    try:
        assert gemm.onednn_is_faster() == faster
    finally:
        gemm.onednn_is_faster.cache_clear()


def test_the_processor_is_what_the_system_says(monkeypatch: pytest.MonkeyPatch) -> None:
    if Path("/proc/cpuinfo").is_file():
        assert gemm.processor() in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    monkeypatch.setattr(Path, "read_text", _absent)
    monkeypatch.setattr("platform.processor", lambda: "AMD64 Family 25 Model 33 Stepping 2, AuthenticAMD")
    assert "AuthenticAMD" in gemm.processor()


def _absent(*_: object, **__: object) -> str:
    raise FileNotFoundError
