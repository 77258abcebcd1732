"""A model made ready for search steps as the model itself: in float the same, in int8 near it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from models import MODELS, small_batch, small_model
from torch import nn

from nmt.config import Tying
from nmt.model import folded as module
from nmt.model.folded import FoldedCell, WordTable, folded
from nmt.model.products import PackedLinear, QuantizedLinear
from nmt.model.seq2seq import Seq2Seq
from nmt.model.torch_stepper import TorchStepper
from nmt.search import beam_search

BANNED, BOS, EOS = (0, 1, 2), 2, 3


@torch.no_grad()
@pytest.mark.parametrize("product", [PackedLinear, QuantizedLinear])
@pytest.mark.parametrize("words", [0, 8])
@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_a_cell_steps_as_torchs_own(kind: type[nn.RNNBase], words: int, product: module.Product) -> None:
    torch.manual_seed(1)
    layer, x_NX = kind(20, 30), torch.randn(6, 20)
    state = tuple(torch.rand(6, 30) for _ in range(1 if kind is nn.GRU else 2))
    given = tuple(tensor.unsqueeze(0) for tensor in state)
    expected = layer(x_NX.unsqueeze(0), given[0] if kind is nn.GRU else given)[1]
    row_NG = x_NX[:, :words] @ layer.weight_ih_l0[:, :words].t() + layer.bias_ih_l0
    parts = (torch.cat([row_NG, torch.randn(6, 3)], 1), x_NX[:, words:]) if words else (x_NX,)
    kept = [part.clone() for part in (*parts, *state)]
    found = FoldedCell(layer, product, words)(parts, state)
    for ours, theirs in zip(found, expected if kind is nn.LSTM else (expected,), strict=True):
        torch.testing.assert_close(ours, theirs[0], atol=0.02 if product is QuantizedLinear else 1e-6, rtol=0)
    assert all(torch.equal(one, other) for one, other in zip((*parts, *state), kept, strict=True))


# Each decoder, and two with embeddings that are the output's matrix.
TYINGS = [*((name, False) for name in MODELS), ("bahdanau", True), ("luong-feed", "target")]


@torch.no_grad()
@pytest.mark.parametrize("table", [0, module.TABLE])
@pytest.mark.parametrize(("name", "tying"), TYINGS)
def test_steps_of_every_decoder_are_those_of_the_model(
    name: str, tying: Tying, table: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TABLE", table)
    check_steps(small_model(name, tie_embeddings=tying), int8=False, atol=1e-12)
    check_steps(small_model(name, tie_embeddings=tying, dtype=torch.float32), int8=False, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize(("name", "tying"), TYINGS)
def test_steps_of_every_decoder_in_int8_are_near_those_in_float(name: str, tying: Tying) -> None:
    check_steps(small_model(name, tie_embeddings=tying, dtype=torch.float32), int8=True, atol=0.06)


def check_steps(model: Seq2Seq, int8: bool, atol: float) -> None:
    model.eval()
    src_BS, lengths_B, tgt_in_BT = small_batch()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    ready = folded(model, int8)
    assert (ready.tgt_embedding.table_VW is None) == (module.TABLE == 0)  # type: ignore[union-attr]
    memory = model.read(src_BS, lengths_B)
    state, other = (one.decoder.init_state(memory) for one in (model, ready))
    vocabulary = model.output.out_features
    for tgt_B in tgt_in_BT.unbind(1):
        readout_BR, state, weights_BS = model.decoder.step(model.tgt_embedding(tgt_B), state, memory)
        other_BR, other, other_BS = ready.decoder.step(ready.tgt_embedding(tgt_B), other, memory)
        logits_BP = ready.output(other_BR)
        torch.testing.assert_close(logits_BP[:, :vocabulary], model.output(readout_BR), atol=atol, rtol=0)
        torch.testing.assert_close(other_BS, weights_BS, atol=atol, rtol=0)
        assert bool((logits_BP[:, vocabulary:] == -torch.inf).all())
    assert ready.src_embedding.weight is model.src_embedding.weight  # shared, not copied
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert not any(isinstance(part, (PackedLinear, QuantizedLinear, WordTable)) for part in model.modules())


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("name", ["bahdanau", "luong-concat-feed-lstm-2", "luong-predictive", "none"])
def test_a_search_finds_the_same_alone_and_in_a_batch(name: str, int8: bool) -> None:
    stepper = TorchStepper(small_model(name, dtype=torch.float32).eval(), BANNED, torch.device("cpu"), int8)
    sources = [[4, 5, 6, 3], [7, 3], [4, 4, 9, 8, 8, 3]]
    settings = {"bos": BOS, "eos": EOS, "beam_size": 3, "alpha": 1.0}
    together = beam_search(stepper, sources, max_lengths=[8, 8, 8], **settings)
    for source, expected in zip(sources, together, strict=True):
        (found,) = beam_search(stepper, [source], max_lengths=[8], **settings)
        assert found[0].tokens == expected[0].tokens
        np.testing.assert_allclose(found[0].score, expected[0].score, atol=1e-4)
