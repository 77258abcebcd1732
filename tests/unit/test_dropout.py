"""What training silences: units, words, weights; and the encoder's residual connections, which dropout leaves whole."""

from __future__ import annotations

import pytest
import torch
from models import small_batch, small_model
from torch import nn

from nmt.config import EncoderConfig
from nmt.model import devices
from nmt.model.dropout import SharedDropout, WordDropout, set_weight_dropout
from nmt.model.encoder import Encoder
from nmt.model.packed import Packing, packed_states


def test_dropout_is_one_mask_for_all_positions_of_a_sentence() -> None:
    dropout = SharedDropout(0.5)
    x_BTX = dropout(torch.ones(3, 4, 50))
    assert torch.equal(x_BTX[:, 0], x_BTX[:, 3])
    assert set(x_BTX.unique().tolist()) == {0.0, 2.0}
    assert not torch.equal(x_BTX[0], x_BTX[1])
    assert torch.equal(dropout.eval()(torch.ones(3, 4, 50)), torch.ones(3, 4, 50))


def test_word_dropout_silences_whole_positions() -> None:
    dropout = WordDropout(0.2)
    x_BTX = dropout(torch.ones(40, 50, 3))
    assert torch.equal(x_BTX.amin(2), x_BTX.amax(2))
    assert set(x_BTX.unique().tolist()) == {0.0, 1.25}
    assert 0.15 < (x_BTX == 0).double().mean() < 0.25
    assert torch.equal(dropout.eval()(torch.ones(2, 3, 4)), torch.ones(2, 3, 4))


@pytest.mark.parametrize("setting", ["word_dropout", "annotation_dropout", "weight_dropout"])
@pytest.mark.parametrize("name", ["bahdanau-gru-2", "luong-feed", "luong-general", "none-feed-lstm"])
def test_each_dropout_changes_training_and_no_evaluation(name: str, setting: str) -> None:
    if name.startswith("none") and setting == "annotation_dropout":
        pytest.skip("a decoder without attention reads no annotations")
    model, plain = small_model(name, **{setting: 0.5}), small_model(name)
    (first, _), (second, _), (expected, _) = model(*small_batch()), model(*small_batch()), plain(*small_batch())
    assert not torch.equal(first, expected)
    assert not torch.equal(first, second)
    assert torch.equal(model.eval()(*small_batch())[0], expected)


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_dropped_weights_are_those_between_states_and_the_same_at_every_step(kind: type[nn.RNNBase]) -> None:
    layer = kind(5, 40, batch_first=True, bidirectional=True)
    set_weight_dropout(nn.ModuleList([layer]), 0.25)
    x, lengths = torch.randn(3, 6, 5), torch.tensor([6, 4, 1])
    torch.manual_seed(7)
    states = packed_states(layer, x, None, Packing.of(lengths, 6, bidirectional=True))
    torch.manual_seed(7)
    masks = {}
    for name in ("weight_hh_l0", "weight_hh_l0_reverse"):
        weight = layer.get_parameter(name)
        masks[name] = torch.empty_like(weight).bernoulli_(0.75) / 0.75
        assert 0.2 < (masks[name] == 0).double().mean() < 0.3
    by_hand = kind(5, 40, batch_first=True, bidirectional=True)
    by_hand.load_state_dict({name: w * masks.get(name, 1.0) for name, w in layer.state_dict().items()})
    torch.testing.assert_close(states[0], by_hand(x[:1])[0][0], rtol=1e-5, atol=1e-6)
    states.sum().backward()
    gradient = layer.weight_hh_l0.grad
    assert torch.equal((gradient == 0) & (layer.weight_hh_l0 != 0), masks["weight_hh_l0"] == 0)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_torchs_own_layers_drop_the_same_weights(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's path: run here, with the same random numbers, it gives what the loops of a CPU give."""
    encoder = Encoder(EncoderConfig(cell=cell, hidden_size=8, num_layers=2, residual=True), 5, 0.0)  # type: ignore[arg-type]
    set_weight_dropout(encoder, 0.4)
    weights = [parameter.clone() for parameter in encoder.parameters()]
    x, lengths = torch.randn(3, 6, 5), torch.tensor([6, 4, 1])
    found = []
    for on_cpu in (True, False):
        monkeypatch.setattr(devices, "on_cpu", lambda _, on_cpu=on_cpu: on_cpu)
        monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
        torch.manual_seed(5)
        found.append(encoder(x, lengths))
    assert (found[0].annotations_BSE != encoder.eval()(x, lengths).annotations_BSE).any()
    for ours, theirs in zip(vars(found[0]).values(), vars(found[1]).values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert all(torch.equal(before, after) for before, after in zip(weights, encoder.parameters()))


def test_residual_layers_add_what_they_read() -> None:
    config = EncoderConfig(hidden_size=4, num_layers=3, residual=True)
    encoder = Encoder(config, 7, 0.0)
    x, lengths = torch.randn(2, 5, 7), torch.tensor([5, 3])
    expected = encoder.layers[0](x[1:, :3])[0]
    for layer in encoder.layers[1:]:
        states = layer(expected)[0]
        expected = expected + states
    found = encoder(x, lengths)
    torch.testing.assert_close(found.annotations_BSE[1:, :3], expected)
    torch.testing.assert_close(found.start_BH[1:], states[:, 0, 4:])
    assert (found.annotations_BSE[1, 3:] == 0).all()
