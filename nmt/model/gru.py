"""GRU layers on a CPU: whole sequences as one autograd function, and the steps that other loops are made of.

torch's GRU on a CPU is a loop of autograd operations with one product for the weights' gradient a step. Here that
gradient is one product after the backward loop, both directions share each step's small operations, and what the
backward loop multiplies by is worked out before it for all steps at once. On a GPU cuDNN's loop is used.

Axes: B sentences, S positions, D directions, X input size, H hidden size; N real positions of a batch in time order:
the sentences longer than 0, those longer than 1, and so on, each time the longest first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Views = Sequence[Tensor]  # an array's part of each step, in order
Cut = Callable[[Tensor], Views]  # cuts an array into them


class GRUSteps:
    """The forward pass of a GRU step by step, on arrays of all steps.

    `inputs_3H` are the affine products of the inputs in the order n, r, z, `products_3H` is where those of the states
    are written, in the order r, z, n (torch's); more columns may follow. Arrays are cut into steps once and for all
    here, as a loop that does it costs more than some of its products.
    """

    def __init__(self, inputs_3H: Tensor | None, products_3H: Tensor, states_H: Views, next_H: Views, cut: Cut) -> None:
        """`states_H` are the states that steps start from, `next_H` where those after them go."""
        size = states_H[0].shape[-1]
        self.candidates_H = products_3H.new_empty(*products_3H.shape[:-1], size)
        reset_H, keep_H, product_H = (cut(part) for part in _gates(products_3H, size))
        gates_2H = cut(products_3H[..., : 2 * size])
        self.parts = list(
            zip(gates_2H, reset_H, keep_H, product_H, states_H, cut(self.candidates_H), next_H, strict=True)
        )
        self.inputs = [] if inputs_3H is None else self.input_parts(inputs_3H, cut)

    @staticmethod
    def input_parts(inputs_3H: Tensor, cut: Cut) -> list[tuple[Tensor, Tensor]]:
        """The inputs' products of each step: that of n, and those of r and z."""
        size = inputs_3H.shape[-1] // 3
        return list(zip(cut(inputs_3H[..., :size]), cut(inputs_3H[..., size:]), strict=True))

    def advance(self, t: int, inputs: tuple[Tensor, Tensor] | None = None) -> None:
        """Step t, once its product is there. Gates r and z replace their part of the product."""
        gates_2H, reset_H, keep_H, product_H, state_H, candidate_H, next_H = self.parts[t]
        input_H, inputs_2H = inputs or self.inputs[t]
        gates_2H.add_(inputs_2H).sigmoid_()
        torch.addcmul(input_H, reset_H, product_H, out=candidate_H).tanh_()
        torch.lerp(candidate_H, state_H, keep_H, out=next_H)


class GRUSlopes:
    """The backward pass of `GRUSteps`: all that does not depend on a gradient is worked out for all steps at once.

    Gradients of a step are four blocks side by side, [4, H]: those of n, r and z before their nonlinearities, and of
    the state's part of n. The first three belong to the input's product, the last three to the state's.
    """

    def __init__(
        self, products_3H: Tensor, candidates_H: Tensor, states_H: Tensor, blocks_4H: Tensor, cut: Cut
    ) -> None:  # fmt: skip
        """What the forward pass left of products and candidates, the states it read, and where the blocks go."""
        size = states_H.shape[-1]
        reset_H, keep_H, product_H = _gates(products_3H, size)
        update_H = 1 - keep_H
        first_2H = states_H.new_empty(*states_H.shape[:-1], 2, size)  # of n and z, by the gradient of the new state
        torch.mul(update_H, 1 - candidates_H.square(), out=first_2H[..., 0, :])
        torch.mul((states_H - candidates_H).mul_(keep_H), update_H, out=first_2H[..., 1, :])
        second_2H = torch.empty_like(first_2H)  # of r and the state's part of n, by the gradient of n
        torch.mul(torch.addcmul(reset_H, reset_H, reset_H, value=-1), product_H, out=second_2H[..., 0, :])
        second_2H[..., 1, :] = reset_H
        self.keep_H = cut(keep_H)
        blocks = (blocks_4H[..., 0::2, :], blocks_4H[..., 0:1, :], blocks_4H[..., 1::2, :])
        self.parts = list(zip(cut(first_2H), cut(second_2H), *(cut(part) for part in blocks), strict=True))

    def step(self, t: int, grad_H: Tensor) -> None:
        """Writes the blocks of step t from the gradient of its new states."""
        first_2H, second_2H, new_2H, candidate_1H, state_2H = self.parts[t]
        torch.mul(grad_H.unsqueeze(-2), first_2H, out=new_2H)
        torch.mul(candidate_1H, second_2H, out=state_2H)


def _gates(products_3H: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """r, z, and the state's part of n."""
    return products_3H[..., :size], products_3H[..., size : 2 * size], products_3H[..., 2 * size : 3 * size]


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


class GRULoop(torch.autograd.Function):
    """States of a GRU layer in one direction or both, over the real positions of a padded batch.

    apply(x_BSX, start_DBH, w_input_D3HX, w_state_D3HH, b_input_D3H, b_state_D3H, packing) -> states [B, S, D·H], 0 on
    padding. `start_DBH` may be None, for zeros. Weights as in torch's GRU, gates r, z, n.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x_BSX: Tensor,
        start_DBH: Tensor | None,
        w_input_D3HX: Tensor,
        w_state_D3HH: Tensor,
        b_input_D3H: Tensor,
        b_state_D3H: Tensor,
        packing: Packing,
    ) -> Tensor:
        batch, width = x_BSX.shape[:2]
        directions, _, size = w_state_D3HH.shape
        x_DNX = torch.stack([x_BSX.flatten(0, 1).index_select(0, places_N) for places_N in packing.places])
        w_input_D3HX = w_input_D3HX.roll(size, 1)  # to n, r, z
        b_input_D13H = b_input_D3H.roll(size, 1).unsqueeze(1)
        inputs_DN3H = torch.baddbmm(b_input_D13H, x_DNX, w_input_D3HX.transpose(1, 2))
        states_DNH = x_BSX.new_empty(directions, x_DNX.shape[1], size)
        before_DNH = torch.empty_like(states_DNH)  # the state that each row starts from
        if start_DBH is None:
            before_DNH[:, :batch] = 0
        else:
            torch.index_select(start_DBH, 1, packing.order_B, out=before_DNH[:, :batch])
        products_DN3H = torch.empty_like(inputs_DN3H)
        cut = packing.cut
        before, after, products = cut(before_DNH), cut(states_DNH), cut(products_DN3H)
        steps = GRUSteps(inputs_DN3H, products_DN3H, before, after, cut)
        for t, rows in enumerate(packing.sizes):
            if t > 0:
                before[t].copy_(after[t - 1][:, :rows])
            for d in range(directions):
                torch.addmm(b_state_D3H[d], before[t][d], w_state_D3HH[d].t(), out=products[t][d])
            steps.advance(t)
        ctx.save_for_backward(x_DNX, w_input_D3HX, w_state_D3HH, products_DN3H, steps.candidates_H, before_DNH)
        ctx.packing, ctx.shape, ctx.started = packing, x_BSX.shape, start_DBH is not None
        out_ME = x_BSX.new_zeros(batch * width, directions * size)
        for d, places_N in enumerate(packing.places):
            out_ME[:, d * size : (d + 1) * size].index_copy_(0, places_N, states_DNH[d])
        return out_ME.view(batch, width, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BSE: Tensor) -> tuple[Tensor | None, ...]:
        x_DNX, w_input_D3HX, w_state_D3HH, products_DN3H, candidates_DNH, before_DNH = ctx.saved_tensors
        packing: Packing = ctx.packing
        directions, count, size = before_DNH.shape
        grad_ME = grad_BSE.reshape(-1, directions * size)
        grads_DNH = torch.empty_like(before_DNH)
        for d, places_N in enumerate(packing.places):
            torch.index_select(grad_ME[:, d * size : (d + 1) * size], 0, places_N, out=grads_DNH[d])
        blocks_DN4H = grad_BSE.new_empty(directions, count, 4, size)
        cut = packing.cut
        slopes = GRUSlopes(products_DN3H, candidates_DNH, before_DNH, blocks_DN4H, cut)
        flat_DNX = blocks_DN4H.flatten(2)
        grads, of_products = cut(grads_DNH), cut(flat_DNX[:, :, size:])
        grad_start_DBH = torch.empty_like(before_DNH[:, : packing.sizes[0]]) if ctx.started else None
        for t in reversed(range(len(packing.sizes))):
            slopes.step(t, grads[t])
            if t > 0:
                into_DBH = grads[t - 1][:, : packing.sizes[t]]
                into_DBH.addcmul_(grads[t], slopes.keep_H[t])
            elif grad_start_DBH is not None:
                into_DBH = torch.mul(grads[t], slopes.keep_H[t], out=grad_start_DBH)
            else:
                break
            for d in range(directions):
                into_DBH[d].addmm_(of_products[t][d], w_state_D3HH[d])
        grad_inputs_DN3H, grad_products_DN3H = flat_DNX[:, :, : 3 * size], flat_DNX[:, :, size:]
        grad_w_input_D3HX = torch.bmm(grad_inputs_DN3H.transpose(1, 2), x_DNX)
        grad_x_BSX = None
        if ctx.needs_input_grad[0]:
            grad_x_BSX = _unpacked(torch.bmm(grad_inputs_DN3H, w_input_D3HX), packing, ctx.shape)
        return (
            grad_x_BSX,
            None if grad_start_DBH is None else _in_order(grad_start_DBH, packing.order_B),
            grad_w_input_D3HX.roll(-size, 1),
            torch.bmm(grad_products_DN3H.transpose(1, 2), before_DNH),
            grad_inputs_DN3H.sum(1).roll(-size, 1),
            grad_products_DN3H.sum(1),
            None,
        )


def _unpacked(grad_DNX: Tensor, packing: Packing, shape: torch.Size) -> Tensor:
    """The gradient of the padded input from those of the rows that each direction read."""
    grad_NX = grad_DNX[0] if packing.swap_N is None else grad_DNX[0] + grad_DNX[1].index_select(0, packing.swap_N)
    grad_MX = grad_NX.new_zeros(shape[0] * shape[1], shape[2])
    return grad_MX.index_copy_(0, packing.places[0], grad_NX).view(shape)


def _in_order(sorted_DBH: Tensor, order_B: Tensor) -> Tensor:
    """Rows sorted by length, back in the batch's order."""
    return torch.empty_like(sorted_DBH).index_copy_(1, order_B, sorted_DBH)


def gru_states(layer: nn.Module, x_BSX: Tensor, start_DBH: Tensor | None, packing: Packing) -> Tensor:
    """States [B, S, D·H] of one layer of torch's GRU, batch first, 0 on padding: equal to torch's own."""
    suffixes = ["", "_reverse"][: len(packing.places)]
    weights = (
        torch.stack([getattr(layer, f"{name}_l0{suffix}") for suffix in suffixes])
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    states: Tensor = GRULoop.apply(x_BSX, start_DBH, *weights, packing)  # type: ignore[no-untyped-call]
    return states
