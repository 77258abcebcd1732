"""int8: near the float model, exact whole sums, the same in any batch, and refused where it is not to be had."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from models import DECODERS, small_batch, small_model
from torch import nn

from nmt.errors import NmtError
from nmt.model import quantized as module
from nmt.model.quantized import QuantizedCell, QuantizedLinear, quantized, refuse_int8, weight_levels
from nmt.model.torch_stepper import TorchStepper
from nmt.search import beam_search

BANNED, BOS, EOS = (0, 1, 2), 2, 3


@torch.no_grad()
@pytest.mark.parametrize("rows", [1, 5, 64])
def test_a_product_is_within_the_rounding_of_its_factors(rows: int) -> None:
    torch.manual_seed(rows)
    linear, x_NI = nn.Linear(96, 40), torch.randn(rows, 96) * torch.logspace(-3, 3, rows).unsqueeze(1)
    error_NO = (QuantizedLinear(linear.weight, linear.bias)(x_NI) - linear(x_NI)).abs()
    # Half a unit of each factor times the sum of the other factor, and the product of both halves.
    half_x_N1 = x_NI.abs().amax(1, keepdim=True) / 127 / 2
    half_w_1O = linear.weight.abs().amax(1).unsqueeze(0) / weight_levels() / 2
    most_NO = half_x_N1 * linear.weight.abs().sum(1) + half_w_1O * x_NI.abs().sum(1, keepdim=True)
    assert (error_NO <= 1.01 * (most_NO + 96 * half_x_N1 * half_w_1O) + 1e-5).all()


@torch.no_grad()
@pytest.mark.parametrize("levels", [127, 63])
def test_the_product_is_that_of_the_rounded_factors(levels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "weight_levels", lambda: levels)
    linear = nn.Linear(64, 10)
    layer, x_NI = QuantizedLinear(linear.weight, linear.bias), torch.randn(7, 64)
    assert layer.weight_OI.abs().amax() == levels
    scale_N1 = x_NI.abs().amax(1, keepdim=True) / 127
    expected = (x_NI / scale_N1).round() * scale_N1 @ (layer.weight_OI * layer.scale_O.unsqueeze(1)).t() + linear.bias
    torch.testing.assert_close(layer(x_NI), expected)
    torch.testing.assert_close(layer(x_NI.view(7, 1, 64)), expected.view(7, 1, 10))


@torch.no_grad()
def test_a_row_has_the_same_result_in_any_batch() -> None:
    linear, x_NI = nn.Linear(64, 10), torch.randn(9, 64)
    layer = QuantizedLinear(linear.weight, None)
    together = layer(x_NI)
    assert all(torch.equal(layer(x_NI[row : row + 1])[0], together[row]) for row in range(9))


@torch.no_grad()
def test_zeros_stay_zeros() -> None:
    assert not QuantizedLinear(torch.zeros(3, 4), None)(torch.randn(2, 4)).any()
    assert not QuantizedLinear(torch.randn(3, 4), None)(torch.zeros(2, 4)).any()


@torch.no_grad()
@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_a_cell_steps_as_torchs_own(kind: type[nn.RNNBase]) -> None:
    torch.manual_seed(1)
    layer, x_NX = kind(20, 30), torch.randn(6, 20)
    state = tuple(torch.rand(6, 30) for _ in range(1 if kind is nn.GRU else 2))
    given = tuple(tensor.unsqueeze(0) for tensor in state)
    expected = layer(x_NX.unsqueeze(0), given[0] if kind is nn.GRU else given)[1]
    for ours, theirs in zip(QuantizedCell(layer)(x_NX, state), expected if kind is nn.LSTM else (expected,)):
        torch.testing.assert_close(ours, theirs[0], atol=0.02, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("name", DECODERS)
def test_steps_of_every_decoder_are_near_those_in_float(name: str) -> None:
    model = small_model(name, dtype=torch.float32).eval()
    src_BS, lengths_B, tgt_in_BT = small_batch()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    rounded = quantized(model)
    memory = model.read(src_BS, lengths_B)
    state, other = (one.decoder.init_state(memory) for one in (model, rounded))
    for tgt_B in tgt_in_BT.unbind(1):
        embedded_BD = model.tgt_embedding(tgt_B)
        readout_BR, state, _ = model.decoder.step(embedded_BD, state, memory)
        other_BR, other, _ = rounded.decoder.step(embedded_BD, other, memory)
        torch.testing.assert_close(rounded.output(other_BR), model.output(readout_BR), atol=0.25, rtol=0)
    assert rounded.src_embedding.weight is model.src_embedding.weight  # shared, not copied
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert not any(isinstance(part, QuantizedLinear) for part in model.modules())


@pytest.mark.parametrize("name", ["bahdanau", "luong-concat-feed-lstm-2", "luong-predictive", "none"])
def test_int8_search_finds_the_same_alone_and_in_a_batch(name: str) -> None:
    stepper = TorchStepper(quantized(small_model(name, dtype=torch.float32).eval()), BANNED, torch.device("cpu"))
    sources = [[4, 5, 6, 3], [7, 3], [4, 4, 9, 8, 8, 3]]
    settings = {"bos": BOS, "eos": EOS, "beam_size": 3, "alpha": 1.0}
    together = beam_search(stepper, sources, max_lengths=[8, 8, 8], **settings)
    for source, expected in zip(sources, together, strict=True):
        (found,) = beam_search(stepper, [source], max_lengths=[8], **settings)
        assert found[0].tokens == expected[0].tokens
        np.testing.assert_allclose(found[0].score, expected[0].score, atol=1e-4)


def test_a_gpu_and_a_torch_without_onednn_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NmtError, match=r"--int8 is for CPUs.*cuda:0.*--device cpu"):
        refuse_int8(torch.device("cuda:0"))
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with pytest.raises(NmtError, match=r"no oneDNN.*leave --int8 out"):
        quantized(small_model("bahdanau"))
