"""Packed and int8 products: those of the weights, near the float ones, the same in any batch, refused where slow."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nmt.errors import NmtError
from nmt.model import products as module
from nmt.model.products import PackedLinear, QuantizedLinear, int8_engine, refuse_int8, weight_levels

ENGINES = [name for name, here in (("onednn", module.onednn_is_here()), ("fbgemm", module.fbgemm_is_here())) if here]


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [True, False])
def test_a_packed_product_is_that_of_the_weights(dtype: torch.dtype, bias: bool) -> None:
    linear, x_NI = nn.Linear(96, 40, bias=bias, dtype=dtype), torch.randn(7, 96, dtype=dtype)
    packed = PackedLinear(linear.weight, linear.bias)
    torch.testing.assert_close(packed(x_NI), linear(x_NI))
    torch.testing.assert_close(packed(x_NI.view(7, 1, 96)), linear(x_NI).view(7, 1, 40))
    torch.testing.assert_close(packed(x_NI[:, :30], x_NI[:, 30:]), linear(x_NI))


@torch.no_grad()
@pytest.mark.parametrize("outputs", [1, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [PackedLinear, QuantizedLinear])
def test_a_product_is_that_of_a_part_of_the_weights_and_does_not_see_them_change(
    kind: type[PackedLinear | QuantizedLinear], dtype: torch.dtype, outputs: int
) -> None:
    linear, x_NI = nn.Linear(96, outputs, dtype=dtype), torch.randn(7, 60, dtype=dtype)
    layer = kind(linear.weight[:, 36:], linear.bias)
    before = layer(x_NI)
    atol = 1e-5 if kind is PackedLinear else 0.05
    expected = x_NI @ linear.weight[:, 36:].t() + linear.bias
    torch.testing.assert_close(before, expected, atol=atol, rtol=0)
    linear.weight.mul_(2)
    linear.bias.add_(5)
    assert torch.equal(layer(x_NI), before)


@torch.no_grad()
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rows", [1, 5, 64])
def test_a_product_is_within_the_rounding_of_its_factors(rows: int, engine: str) -> None:
    torch.manual_seed(rows)
    linear, x_NI = nn.Linear(96, 40), torch.randn(rows, 96) * torch.logspace(-3, 3, rows).unsqueeze(1)
    error_NO = (QuantizedLinear(linear.weight, linear.bias, engine)(x_NI) - linear(x_NI)).abs()
    # Half a unit of each factor times the sum of the other factor, and the product of both halves.
    half_x_N1 = x_NI.abs().amax(1, keepdim=True) / 127 / 2
    half_w_1O = linear.weight.abs().amax(1).unsqueeze(0) / weight_levels(engine) / 2
    most_NO = half_x_N1 * linear.weight.abs().sum(1) + half_w_1O * x_NI.abs().sum(1, keepdim=True)
    assert (error_NO <= 1.01 * (most_NO + 96 * half_x_N1 * half_w_1O) + 1e-5).all()


@torch.no_grad()
@pytest.mark.parametrize("engine", ENGINES)
def test_the_product_is_that_of_the_rounded_factors(engine: str) -> None:
    linear = nn.Linear(64, 10)
    layer, x_NI = QuantizedLinear(linear.weight, linear.bias, engine), torch.randn(7, 64)
    assert layer.weight_OI.abs().amax() == weight_levels(engine)
    scale_N1 = x_NI.abs().amax(1, keepdim=True) / 127
    expected = (x_NI / scale_N1).round() * scale_N1 @ (layer.weight_OI * layer.scale_O.unsqueeze(1)).t() + linear.bias
    torch.testing.assert_close(layer(x_NI), expected)
    torch.testing.assert_close(layer(x_NI.view(7, 1, 64)), expected.view(7, 1, 10))


@torch.no_grad()
@pytest.mark.parametrize("engine", ENGINES)
def test_sums_of_the_largest_factors_are_exact(engine: str) -> None:
    levels = weight_levels(engine)
    signs = torch.randint(0, 2, (32, 96)) * 2 - 1
    multiply = module._ENGINES[engine]((signs * levels).to(torch.int8), torch.ones(32))
    x_NI = 127.0 * torch.cat([signs[:5], -signs[:5], torch.ones(1, 96)])
    assert torch.equal(multiply(x_NI), x_NI @ (signs * levels).float().t())


@torch.no_grad()
@pytest.mark.parametrize("engine", ENGINES)
def test_a_row_has_the_same_result_in_any_batch(engine: str) -> None:
    linear, x_NI = nn.Linear(64, 10), torch.randn(9, 64)
    layer = QuantizedLinear(linear.weight, None, engine)
    together = layer(x_NI)
    assert all(torch.equal(layer(x_NI[row : row + 1])[0], together[row]) for row in range(9))


@torch.no_grad()
@pytest.mark.parametrize("engine", ENGINES)
def test_zeros_stay_zeros(engine: str) -> None:
    assert not QuantizedLinear(torch.zeros(3, 4), None, engine)(torch.randn(2, 4)).any()
    assert not QuantizedLinear(torch.randn(3, 4), None, engine)(torch.zeros(2, 4)).any()


@pytest.mark.skipif("fbgemm" not in ENGINES, reason="this torch has no FBGEMM")
def test_packing_for_fbgemm_leaves_torchs_choice_of_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.quantized, "engine", "onednn")
    QuantizedLinear(torch.randn(3, 4), None, "fbgemm")
    assert torch.backends.quantized.engine == "onednn"


def pretend(monkeypatch: pytest.MonkeyPatch, *, vnni: bool, fbgemm: bool) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_vnni": vnni}, raising=False)
    monkeypatch.setattr(module, "onednn_is_here", lambda: True)
    monkeypatch.setattr(module, "fbgemm_is_here", lambda: fbgemm)


@pytest.mark.parametrize(
    ("vnni", "fbgemm", "expected"), [(True, True, "onednn"), (False, True, "fbgemm"), (True, False, "onednn")]
)
def test_int8_products_come_from_the_library_that_is_fast_here(
    vnni: bool, fbgemm: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, vnni=vnni, fbgemm=fbgemm)
    assert int8_engine() == expected


def test_a_gpu_and_a_processor_without_fast_int8_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NmtError, match=r"--int8 is for CPUs.*cuda:0.*--device cpu"):
        refuse_int8(torch.device("cuda:0"))
    pretend(monkeypatch, vnni=False, fbgemm=False)
    with pytest.raises(NmtError, match=r"no fast int8 products.*leave --int8 out"):
        refuse_int8(torch.device("cpu"))
