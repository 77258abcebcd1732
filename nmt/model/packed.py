"""Recurrent layers on a CPU: whole sequences of any lengths, in one direction or both, as one autograd function.

torch's layers on a CPU are loops of autograd operations with one product for the weights' gradient a step. Here that
gradient is one product after the backward loop, and both directions share each step's small operations. On a GPU
cuDNN's loop is used.

Axes: B sentences, S positions, D directions, X input size, H hidden size, M size of a state (see
`nmt.model.cell_steps`), G rows of the weights; N real positions of a batch in time order: the sentences longer than 0,
those longer than 1, and so on, each time the longest first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nmt.model.cell_steps import GRU, LSTM, LoopCell, Views
from nmt.model.dropout import layer_weights
from nmt.model.gemm import product, weight_gradient, write_sum


@dataclass(frozen=True)
class Packing:
    """Where the real positions of a padded batch are.

    `sizes` are the rows of each step, `order_B` the sentences from the longest, `places` the flat place b·S + j of each
    row for a reader of each direction. `swap_N` maps rows of the first reader to those of the second.
    """

    sizes: list[int]
    order_B: Tensor
    places: tuple[Tensor, ...]
    swap_N: Tensor | None

    def cut(self, array_DNX: Tensor) -> Views:
        """The rows of each step."""
        parts: Views = torch.split(array_DNX, self.sizes, 1)
        return parts

    @classmethod
    def of(cls, lengths_B: Tensor, width: int, *, bidirectional: bool) -> Packing:
        """The packing of sentences of these lengths, on the CPU, in a batch padded to `width`."""
        order_B = lengths_B.argsort(descending=True, stable=True)
        sorted_B = lengths_B[order_B]
        real_SB = torch.arange(int(sorted_B[0])).unsqueeze(1) < sorted_B
        step_N, row_N = real_SB.nonzero(as_tuple=True)
        start_N = order_B[row_N] * width
        forward_N = start_N + step_N
        sizes = real_SB.sum(1).tolist()
        if not bidirectional:
            return cls(sizes, order_B, (forward_N,), None)
        turned_N = sorted_B[row_N] - 1 - step_N
        first_N = torch.zeros(len(sizes), dtype=torch.int64)
        first_N[1:] = real_SB.sum(1).cumsum(0)[:-1]
        return cls(sizes, order_B, (forward_N, start_N + turned_N), first_N[turned_N] + row_N)


class PackedLoop(torch.autograd.Function):
    """h of a layer in one direction or both, over the real positions of a padded batch.

    apply(cell, x_BSX, start_DBM, w_input_DGX, w_state_DGH, b_input_DG, b_state_DG, packing) -> [B, S, D·H], 0 on
    padding. `start_DBM` may be None, for zeros. Weights as in torch's layers.
    """

    @staticmethod
    def forward(
        ctx: Any,
        cell: LoopCell,
        x_BSX: Tensor,
        start_DBM: Tensor | None,
        w_input_DGX: Tensor,
        w_state_DGH: Tensor,
        b_input_DG: Tensor,
        b_state_DG: Tensor,
        packing: Packing,
    ) -> Tensor:
        batch, width = x_BSX.shape[:2]
        directions, _, size = w_state_DGH.shape
        x_DNX = torch.stack([x_BSX.flatten(0, 1).index_select(0, places_N) for places_N in packing.places])
        w_input_DGX = cell.input_order(w_input_DGX, 1)
        b_input_DG = cell.input_order(b_input_DG, 1)
        inputs_DNG = x_DNX.new_empty(*x_DNX.shape[:2], b_input_DG.shape[1])
        for d in range(directions):
            write_sum(b_input_DG[d], x_DNX[d], w_input_DGX[d].t(), inputs_DNG[d])
        states_DNM = x_BSX.new_empty(directions, x_DNX.shape[1], cell.sizes * size)
        before_DNM = torch.empty_like(states_DNM)  # the state that each row starts from
        if start_DBM is None:
            before_DNM[:, :batch] = 0
        else:
            torch.index_select(start_DBM, 1, packing.order_B, out=before_DNM[:, :batch])
        products_DNG = torch.empty_like(inputs_DNG)
        cut = packing.cut
        before, after, products = cut(before_DNM), cut(states_DNM), cut(products_DNG)
        h_before = cut(before_DNM[..., -size:])
        steps = cell.steps(products_DNG, before, after, cut)
        inputs = steps.input_parts(inputs_DNG, cut)
        for t, rows in enumerate(packing.sizes):
            if t > 0:
                before[t].copy_(after[t - 1][:, :rows])
            for d in range(directions):
                write_sum(b_state_DG[d], h_before[t][d], w_state_DGH[d].t(), products[t][d])
            steps.advance(t, inputs[t])
        ctx.save_for_backward(x_DNX, w_input_DGX, w_state_DGH, products_DNG, steps.kept_H, before_DNM)
        ctx.cell, ctx.packing, ctx.shape, ctx.started = cell, packing, x_BSX.shape, start_DBM is not None
        out_ME = x_BSX.new_zeros(batch * width, directions * size)
        for d, places_N in enumerate(packing.places):
            out_ME[:, d * size : (d + 1) * size].index_copy_(0, places_N, states_DNM[d, :, -size:])
        return out_ME.view(batch, width, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BSE: Tensor) -> tuple[Tensor | None, ...]:
        x_DNX, w_input_DGX, w_state_DGH, products_DNG, kept_DNH, before_DNM = ctx.saved_tensors
        cell: LoopCell = ctx.cell
        packing: Packing = ctx.packing
        directions, count, size = kept_DNH.shape
        cut = packing.cut
        blocks_DN4H = grad_BSE.new_empty(directions, count, 4, size)
        slopes = cell.slopes(products_DNG, kept_DNH, before_DNM, blocks_DN4H, cut)
        grads_DNM = _packed(grad_BSE, packing, before_DNM)
        flat_DNX = blocks_DN4H.flatten(2)
        grad_inputs_DNG, grad_products_DNG = flat_DNX[:, :, cell.of_input(size)], flat_DNX[:, :, cell.of_state(size)]
        grads, of_products = cut(grads_DNM), cut(grad_products_DNG)
        grad_start_DBM = torch.zeros_like(before_DNM[:, : packing.sizes[0]]) if ctx.started else None
        for t in reversed(range(len(packing.sizes))):
            slopes.step(t, grads[t])
            into_DBM = grads[t - 1][:, : packing.sizes[t]] if t > 0 else grad_start_DBM
            if into_DBM is None:
                break
            slopes.carry(t, grads[t], into_DBM)
            for d in range(directions):
                into_BH = into_DBM[d, :, -size:]
                write_sum(into_BH, of_products[t][d], w_state_DGH[d], into_BH)
        grad_w_input_DGX = _each(weight_gradient, grad_inputs_DNG, x_DNX)
        grad_x_BSX = None
        if ctx.needs_input_grad[1]:
            grad_x_BSX = _unpacked(_each(product, grad_inputs_DNG, w_input_DGX), packing, ctx.shape)
        return (
            None,
            grad_x_BSX,
            None if grad_start_DBM is None else _in_order(grad_start_DBM, packing.order_B),
            cell.torch_order(grad_w_input_DGX, 1),
            _each(weight_gradient, grad_products_DNG, before_DNM[..., -size:]),
            cell.torch_order(grad_inputs_DNG.sum(1), 1),
            grad_products_DNG.sum(1),
            None,
        )


def _each(multiply: Callable[[Tensor, Tensor], Tensor], left_D: Tensor, right_D: Tensor) -> Tensor:
    """The products of each direction."""
    return torch.stack([multiply(left, right) for left, right in zip(left_D, right_D, strict=True)])


def _packed(grad_BSE: Tensor, packing: Packing, states_DNM: Tensor) -> Tensor:
    """The gradient of the states of each row from that of the padded output: 0 for memory cells."""
    directions, _, states = states_DNM.shape
    size = grad_BSE.shape[2] // directions
    grad_ME = grad_BSE.reshape(-1, directions * size)
    grads_DNM = torch.empty_like(states_DNM)
    grads_DNM[..., : states - size] = 0
    for d, places_N in enumerate(packing.places):
        part_MH = grad_ME[:, d * size : (d + 1) * size]
        torch.index_select(part_MH, 0, places_N, out=grads_DNM[d, :, states - size :])
    return grads_DNM


def _unpacked(grad_DNX: Tensor, packing: Packing, shape: torch.Size) -> Tensor:
    """The gradient of the padded input from those of the rows that each direction read."""
    grad_NX = grad_DNX[0] if packing.swap_N is None else grad_DNX[0] + grad_DNX[1].index_select(0, packing.swap_N)
    grad_MX = grad_NX.new_zeros(shape[0] * shape[1], shape[2])
    return grad_MX.index_copy_(0, packing.places[0], grad_NX).view(shape)


def _in_order(sorted_DBM: Tensor, order_B: Tensor) -> Tensor:
    """Rows sorted by length, back in the batch's order."""
    return torch.empty_like(sorted_DBM).index_copy_(1, order_B, sorted_DBM)


def packed_states(layer: nn.Module, x_BSX: Tensor, start_DBM: Tensor | None, packing: Packing) -> Tensor:
    """h [B, S, D·H] of one layer of torch's GRU or LSTM, batch first, 0 on padding: equal to torch's own."""
    suffixes = ["", "_reverse"][: len(packing.places)]
    weights = (
        torch.stack(layer_weights(layer, [f"{name}_l0{suffix}" for suffix in suffixes]))
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    cell = LSTM if isinstance(layer, nn.LSTM) else GRU
    states: Tensor = PackedLoop.apply(cell, x_BSX, start_DBM, *weights, packing)  # type: ignore[no-untyped-call]
    return states
