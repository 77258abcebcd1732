"""Recurrent layers as the decoders use them: whole sequences and single steps over the same parameters.

Axes: B sentences, N rows (B sentences, or B x K hypotheses), T target positions, X input size, H hidden size.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from nmt.model import devices
from nmt.model.cell_steps import GRU, LSTM, LoopCell
from nmt.model.dropout import SharedDropout, layer_weights, run_layer
from nmt.model.gemm import linear
from nmt.model.layer_norm import layer_norm_of, next_state, normed_step
from nmt.model.packed import Packing, packed_states
from nmt.model.precision import large_linear
from nmt.model.stack_steps import LoopLayer

Cell = Literal["gru", "lstm"]
Hidden = tuple[Tensor, ...]  # each [N, H]: h of every layer; for an LSTM followed by c of every layer
CellWeights = tuple[Tensor, Tensor, Tensor, Tensor]


class Drawn(NamedTuple):
    """What training silences in a stack, drawn once for all steps of a batch.

    `weights` are those of every layer, some dropped; `masks` what each layer's input is multiplied by, or None.
    """

    weights: list[CellWeights]
    masks: list[Tensor | None]


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


def cell_weights(layer: nn.Module, suffix: str = "") -> CellWeights:
    """W_ih, W_hh, b_ih and b_hh of a layer of `make_recurrent` in one direction, in torch's order of gates.

    The names of the other direction's have the suffix `_reverse`. In training some weights are dropped.
    """
    names = [f"{name}_l0{suffix}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    return cast(CellWeights, tuple(layer_weights(layer, names)))


def step_cell(layer: nn.Module, parts: tuple[Tensor, ...], state: Hidden, weights: CellWeights | None = None) -> Hidden:
    """The next h of a GRU layer, or h and c of an LSTM layer, from those before and an input that comes in parts.

    By `weights` if they are given, else by those of `cell_weights`.
    """
    if not isinstance(layer, nn.GRU | nn.LSTM):  # a cell that can do no more than step, as those of `nmt.model.folded`
        return cast(Hidden, layer(parts, state))
    x_NX = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
    weights = weights or cell_weights(layer)
    norm = layer_norm_of(layer)
    if norm is not None:
        return normed_step(norm, weights, x_NX, state)
    if isinstance(layer, nn.GRU):
        return (torch.gru_cell(x_NX, state[0], *weights),)
    return torch.lstm_cell(x_NX, state, *weights)


def normed_states(layer: nn.RNNBase, x_BSX: Tensor, start: Hidden | None, mask_BS: Tensor | None = None) -> Tensor:
    """h [B, S, D·H] of a layer that normalises, in its D directions, from `start` or from zeros.

    With `mask_BS` positions where it is False change no state, and give 0.
    """
    start = start or (x_BSX.new_zeros(len(x_BSX), layer.hidden_size),) * (2 if isinstance(layer, nn.LSTM) else 1)
    real = None if mask_BS is None else mask_BS.unsqueeze(2).unbind(1)
    outputs = []
    for suffix in ("", "_reverse") if layer.bidirectional else ("",):
        norm = layer_norm_of(layer, suffix)
        assert norm is not None
        w_input, w_state, b_input, b_state = cell_weights(layer, suffix)
        inputs = norm.of_input(large_linear(x_BSX, w_input), b_input).unbind(1)
        states, hidden = [], start
        for t in reversed(range(len(inputs))) if suffix else range(len(inputs)):
            state_BG = norm.of_state(linear(hidden[0], w_state), b_state)
            after = next_state(inputs[t], state_BG, hidden, norm)
            if real is not None:
                after = tuple(torch.where(real[t], new, old) for new, old in zip(after, hidden, strict=True))
            hidden = after
            states.append(hidden[0])
        outputs.append(torch.stack(states[::-1] if suffix else states, 1))
    states_BSE = torch.cat(outputs, -1)
    return states_BSE if mask_BS is None else states_BSE * mask_BS.unsqueeze(2)


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

    @property
    def normed(self) -> bool:
        """Whether the layers normalise, which the loops of `nmt.model.recurrence` cannot do."""
        return layer_norm_of(self.layers[0]) is not None

    def draw(self, hidden: Hidden) -> Drawn:
        """What training silences in all steps of a batch."""
        masks = [self.dropout.mask(hidden[0]) if index > 0 else None for index in range(len(self.layers))]
        return Drawn([cell_weights(layer) for layer in self.layers], masks)

    def step(self, parts: tuple[Tensor, ...], hidden: Hidden, drawn: Drawn | None = None) -> Hidden:
        """One step from an input [N, X], which comes in parts. Without `drawn` training draws anew in each step."""
        count = len(self.layers)
        states: list[Tensor] = []
        cells: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            if index > 0:
                mask_NH = self.dropout.mask(parts[0]) if drawn is None else drawn.masks[index]
                parts = parts if mask_NH is None else (parts[0] * mask_NH,)
            before = (hidden[index],) if self.cell == "gru" else (hidden[index], hidden[count + index])
            h_NH, *cell = step_cell(layer, parts, before, None if drawn is None else drawn.weights[index])
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
            if layer_norm_of(layer) is not None:
                x_BTX = normed_states(cast(nn.RNNBase, layer), x_BTX, hidden[index::count])
            elif packing is not None:
                x_BTX = packed_states(layer, x_BTX, self.state_of(hidden, index).unsqueeze(0), packing)
            else:
                start = first if self.cell == "gru" else (first, hidden[count + index].unsqueeze(0))
                x_BTX, _ = run_layer(layer, x_BTX, start)
        return x_BTX
