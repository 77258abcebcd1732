"""Cells that normalise, against the formulas written down word by word, and what training silences in them."""

from __future__ import annotations

import pytest
import torch
from models import NORMED, small_batch, small_model
from torch import Tensor, nn

from nmt.config import EncoderConfig
from nmt.model import dropout
from nmt.model.dropout import set_weight_dropout
from nmt.model.layer_norm import add_layer_norm
from nmt.model.recurrent import make_recurrent, normed_states, step_cell

MASK_BS = torch.arange(6) < torch.tensor([4, 2, 6]).unsqueeze(1)


def normed_layer(cell: str, *, bidirectional: bool = False) -> nn.RNNBase:
    layer = make_recurrent(cell, 5, 4, bidirectional=bidirectional)  # type: ignore[arg-type]
    add_layer_norm(nn.ModuleList([layer]))
    layer.double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-0.9, 0.9)
    return layer


def normalised(values: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """One vector, by the definition of mean and variance."""
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    return torch.stack([g * (v - mean) / (variance + 1e-5) ** 0.5 + b for v, g, b in zip(values, gain, bias)])


def textbook_step(weights: dict[str, Tensor], end: str, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The next h and c of one sentence (a GRU leaves c alone), by the parameters of one direction."""
    u = normalised(weights[f"weight_ih_l0{end}"] @ x, weights[f"norm{end}.input_gain"], weights[f"bias_ih_l0{end}"])
    v = normalised(weights[f"weight_hh_l0{end}"] @ h, weights[f"norm{end}.state_gain"], weights[f"bias_hh_l0{end}"])
    size = len(h)
    if len(u) == 3 * size:
        r, z = (torch.sigmoid(u[k * size : (k + 1) * size] + v[k * size : (k + 1) * size]) for k in range(2))
        n = torch.tanh(u[2 * size :] + r * v[2 * size :])
        return (1 - z) * n + z * h, c
    i, f, g, o = ((u + v)[k * size : (k + 1) * size] for k in range(4))
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    gain, bias = weights[f"norm{end}.memory_gain"], weights[f"norm{end}.memory_bias"]
    return torch.sigmoid(o) * torch.tanh(normalised(c, gain, bias)), c


def textbook_states(layer: nn.RNNBase, x_BSX: Tensor) -> Tensor:
    """Sentence by sentence, direction by direction, position by position."""
    weights, rows = dict(layer.named_parameters()), []
    for x_SX, length in zip(x_BSX, MASK_BS.sum(1).tolist()):
        sides = []
        for end in ("", "_reverse"):
            h, c, states = x_SX.new_zeros(4), x_SX.new_zeros(4), {}
            for j in reversed(range(length)) if end else range(length):
                h, c = textbook_step(weights, end, x_SX[j], h, c)
                states[j] = h
            sides.append(torch.stack([states.get(j, torch.zeros_like(h)) for j in range(x_BSX.shape[1])]))
        rows.append(torch.cat(sides, 1))
    return torch.stack(rows)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_states_and_gradients_are_those_of_the_formulas(cell: str) -> None:
    torch.manual_seed(1)
    layer = normed_layer(cell, bidirectional=True)
    x = torch.randn(3, 6, 5, dtype=torch.float64, requires_grad=True)
    own, expected = normed_states(layer, x, None, MASK_BS), textbook_states(layer, x)
    torch.testing.assert_close(own, expected, rtol=1e-12, atol=1e-12)
    wanted, weights = [x, *layer.parameters()], torch.randn_like(own)
    assert len(wanted) == (13 if cell == "gru" else 17)
    for ours, theirs in zip(
        torch.autograd.grad(own, wanted, weights), torch.autograd.grad(expected, wanted, weights), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_step_of_the_decoder_is_that_of_the_formulas(cell: str) -> None:
    torch.manual_seed(1)
    layer = normed_layer(cell)
    x, h, c = (torch.randn(3, size, dtype=torch.float64) for size in (5, 4, 4))
    found = step_cell(layer, x.split([2, 3], 1), (h,) if cell == "gru" else (h, c))
    weights = dict(layer.named_parameters())
    rows = [textbook_step(weights, "", *row) for row in zip(x, h, c, strict=True)]
    expected = [torch.stack(part) for part in zip(*rows, strict=True)]
    for ours, theirs in zip(found, expected):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


class Sequence(nn.Module):
    """`normed_states` as a module, whose parameters can be exchanged."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x_BSX: Tensor, *start: Tensor) -> Tensor:
        return normed_states(self.layer, x_BSX, start, MASK_BS)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_gradients_of_cells_that_normalise_equal_numerical_ones(cell: str) -> None:
    torch.manual_seed(2)
    layer = normed_layer(cell)
    sequence = Sequence(layer)
    names, values = zip(*sequence.named_parameters(), strict=True)
    start = tuple(torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(1 if cell == "gru" else 2))
    x = torch.randn(3, 6, 5, dtype=torch.float64, requires_grad=True)

    def states(*inputs: Tensor) -> Tensor:
        given = dict(zip(names, inputs[1 + len(start) :], strict=True))
        return torch.func.functional_call(sequence, given, inputs[: 1 + len(start)])

    assert torch.autograd.gradcheck(states, (x, *start, *values), fast_mode=True)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_weights_are_dropped_before_the_product_is_normalised_and_alike_at_every_step(cell: str) -> None:
    layer, x = normed_layer(cell), torch.randn(3, 6, 5, dtype=torch.float64)
    set_weight_dropout(nn.ModuleList([layer]), 0.5)
    torch.manual_seed(7)
    found = normed_states(layer, x, None, MASK_BS)
    torch.manual_seed(7)
    with torch.no_grad():
        layer.weight_hh_l0.mul_(torch.empty_like(layer.weight_hh_l0).bernoulli_(0.5) * 2)
    assert torch.equal(found, normed_states(layer.eval(), x, None, MASK_BS))


@pytest.mark.parametrize("name", [*NORMED, "bahdanau-gru-2", "luong-concat-predictive-feed"])
def test_training_draws_weights_and_masks_between_layers_once_for_all_steps(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model(name, weight_dropout=0.5, dropout=0.5, encoder=EncoderConfig(hidden_size=4, num_layers=2))
    drawn: list[tuple[int, ...]] = []
    kept = dropout._kept
    monkeypatch.setattr(dropout, "_kept", lambda like, rate: drawn.append(tuple(like.shape)) or kept(like, rate))
    model(*small_batch())
    layers = len(model.decoder.rnn.layers)
    weights = [len(layer.weight_hh_l0) for layer in model.decoder.rnn.layers]
    assert [shape for shape in drawn if shape[1] == 6 and shape[0] > 3] == [(rows, 6) for rows in weights]
    masks = len([shape for shape in drawn if shape[0] == 3])
    assert masks == 3 + 1 + (layers - 1)  # embeddings and readouts, the encoder's layers, the decoder's


def test_a_new_model_that_normalises_has_the_weights_of_one_that_does_not() -> None:
    """What comes on top draws no random numbers."""

    def fresh(layer_norm: bool) -> dict[str, Tensor]:
        torch.manual_seed(1)
        layer = make_recurrent("lstm", 5, 4, bidirectional=True)
        if layer_norm:
            add_layer_norm(nn.ModuleList([layer]))
        return {**layer.state_dict(), "next": torch.rand(3)}

    plain, normed = fresh(False), fresh(True)
    assert all(torch.equal(value, normed.pop(name)) for name, value in plain.items())
    assert len(normed) == 8
    assert all(value.eq(0 if name.endswith("bias") else 1).all() for name, value in normed.items())
