"""Recurrent layers as the decoders use them: whole sequences and single steps over the same parameters.

Axes: B sentences, N rows (B sentences, or B x K hypotheses), T target positions, X input size, H hidden size.
"""

from __future__ import annotations

from typing import Literal, cast

import torch
from torch import Tensor, nn

from nmt.model import devices
from nmt.model.cell_steps import GRU, LSTM, LoopCell
from nmt.model.dropout import SharedDropout, layer_weights, run_layer
from nmt.model.packed import Packing, packed_states
from nmt.model.precision import large_linear
from nmt.model.stack_steps import LoopLayer

Cell = Literal["gru", "lstm"]
Hidden = tuple[Tensor, ...]  # each [N, H]: h of every layer; for an LSTM followed by c of every layer


def make_recurrent(cell: Cell, input_size: int, hidden_size: int, *, bidirectional: bool = False) -> nn.RNNBase:
    """One layer of torch's GRU or LSTM, batch first, recurrent weights orthogonal, an LSTM's forget gate open."""
    kind = nn.GRU if cell == "gru" else nn.LSTM
    layer = kind(input_size, hidden_size, batch_first=True, bidirectional=bidirectional)
    for name, parameter in layer.named_parameters():
        if name.startswith("weight_hh"):
            for gate in parameter.detach().chunk(parameter.shape[0] // hidden_size):
                nn.init.orthogonal_(gate)
        elif name.startswith("weight_ih"):
            for gate in parameter.detach().chunk(parameter.shape[0] // hidden_size):
                nn.init.xavier_uniform_(gate)
        else:
            nn.init.zeros_(parameter)
            if cell == "lstm" and name.startswith("bias_ih"):
                nn.init.ones_(parameter.detach()[hidden_size : 2 * hidden_size])
    return layer


def cell_weights(layer: nn.Module) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """W_ih, W_hh, b_ih and b_hh of a layer of `make_recurrent` in one direction, in torch's order of gates.

    In training some weights are dropped.
    """
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    return cast(tuple[Tensor, Tensor, Tensor, Tensor], tuple(layer_weights(layer, names)))


def step_cell(layer: nn.Module, parts: tuple[Tensor, ...], state: Hidden) -> Hidden:
    """The next h of a GRU layer, or h and c of an LSTM layer, from those before and an input that comes in parts."""
    if not isinstance(layer, nn.GRU | nn.LSTM):  # a cell that can do no more than step, as those of `nmt.model.folded`
        return cast(Hidden, layer(parts, state))
    x_NX = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
    if isinstance(layer, nn.GRU):
        return (torch.gru_cell(x_NX, state[0], *cell_weights(layer)),)
    return torch.lstm_cell(x_NX, state, *cell_weights(layer))


class RecurrentStack(nn.Module):
    """One or more GRU or LSTM layers in one direction; `step` and `sequence` compute the same function."""

    def __init__(self, cell: Cell, input_size: int, hidden_size: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.cell = cell
        self.hidden_size = hidden_size
        sizes = [input_size] + [hidden_size] * (num_layers - 1)
        self.layers = nn.ModuleList(make_recurrent(cell, size, hidden_size) for size in sizes)
        self.dropout = SharedDropout(dropout)

    def start(self, states: list[Tensor]) -> Hidden:
        """The first hidden state from h_0 of every layer, each [N, H]; the c_0 of an LSTM are zeros."""
        cells = [torch.zeros_like(state) for state in states] if self.cell == "lstm" else []
        return (*states, *cells)

    def top(self, hidden: Hidden) -> Tensor:
        """h of the last layer, [N, H]: the decoder's query."""
        return hidden[len(self.layers) - 1]

    def step(self, parts: tuple[Tensor, ...], hidden: Hidden) -> Hidden:
        """One step from an input [N, X], which comes in parts. Between layers `dropout` draws anew in training."""
        count = len(self.layers)
        states: list[Tensor] = []
        cells: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            if index > 0:
                parts = (self.dropout(parts[0].unsqueeze(1)).squeeze(1),)
            before = (hidden[index],) if self.cell == "gru" else (hidden[index], hidden[count + index])
            h_NH, *cell = step_cell(layer, parts, before)
            parts = (h_NH,)
            cells += cell
            states.append(h_NH)
        return (*states, *cells)

    def state_of(self, hidden: Hidden, index: int) -> Tensor:
        """The state [N, M] of a layer as `nmt.model.cell_steps` has it."""
        h_NH = hidden[index]
        return h_NH if self.cell == "gru" else torch.cat([hidden[len(self.layers) + index], h_NH], -1)

    def loop_parts(
        self, x_TBX: Tensor, hidden: Hidden, query_AH: Tensor | None = None
    ) -> tuple[LoopCell, Tensor, Tensor, list[Tensor | None]]:
        """What the loops of `nmt.model.recurrence` need of the layers.

        The cell; the product [T, B, G] of the first layer's first X inputs and its bias; the weights [G, ...] of its
        other inputs; and the parts of each layer's `LoopLayer`, below the last one's weights `query_AH` if it is given.
        In training with dropout the masks between layers are drawn here.
        """
        cell = GRU if self.cell == "gru" else LSTM
        parts: list[Tensor | None] = []
        for index, layer in enumerate(self.layers):
            w_input, w_state, b_input, b_state = cell_weights(layer)
            w_input, b_input = cell.input_order(w_input), cell.input_order(b_input)
            if query_AH is not None and index == len(self.layers) - 1:
                w_state, b_state = (
                    torch.cat([w_state, query_AH]),
                    torch.cat([b_state, b_state.new_zeros(len(query_AH))]),
                )
            own = LoopLayer(self.state_of(hidden, index), w_state, b_state)
            if index == 0:
                first = x_TBX.shape[-1]
                inputs_TBG = large_linear(x_TBX, w_input[:, :first], b_input)
                w_other_G = w_input[:, first:].contiguous()  # once, and not for each step's product
            else:
                own = own._replace(w_input_GH=w_input, b_input_G=b_input, mask_BH=self.dropout.mask(hidden[index - 1]))
            parts += own
        return cell, inputs_TBG, w_other_G, parts

    def sequence(self, x_BTX: Tensor, hidden: Hidden) -> Tensor:
        """States [B, T, H] of the last layer over a whole sequence, from `hidden`."""
        count = len(self.layers)
        batch, steps = x_BTX.shape[:2]
        packing = None
        if devices.on_cpu(x_BTX):
            packing = Packing.of(torch.full((batch,), steps), steps, bidirectional=False)
        for index, layer in enumerate(self.layers):
            if index > 0:
                x_BTX = self.dropout(x_BTX)
            first = hidden[index].unsqueeze(0)
            if packing is not None:
                x_BTX = packed_states(layer, x_BTX, self.state_of(hidden, index).unsqueeze(0), packing)
            else:
                start = first if self.cell == "gru" else (first, hidden[count + index].unsqueeze(0))
                x_BTX, _ = run_layer(layer, x_BTX, start)
        return x_BTX
