"""The recurrent layers of a decoder within a loop, over all of whose steps each weight gets its gradient at once.

Axes: T target positions, B sentences, H hidden size, M size of a state and G rows of the weights (see
`nmt.model.cell_steps`), X = G and the rows of what else is multiplied by h.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nmt.model.cell_steps import LoopCell, Views
from nmt.model.gemm import product, weight_gradient, write_sum

Parts = Sequence[Tensor | None]  # an autograd function takes and returns them one by one


class LoopLayer(NamedTuple):
    """A layer of a stack: its first states [B, M], and the weights that each step needs.

    The first layer's input is the loop's own business. Each other one reads h of the layer below, times `mask_BH` (of
    dropout, the same for all steps) if there is one; `w_input_GH` and `b_input_G` are in the cell's `input_order`.
    """

    start_BM: Tensor
    w_state_XH: Tensor
    b_state_X: Tensor
    w_input_GH: Tensor | None = None
    b_input_G: Tensor | None = None
    mask_BH: Tensor | None = None

    @classmethod
    def all_of(cls, parts: Parts) -> list[LoopLayer]:
        """The layers from the first, from the parts of all of them one after the other."""
        count = len(cls._fields)
        return [cls(*parts[start : start + count]) for start in range(0, len(parts), count)]  # type: ignore[arg-type]


class StackSteps:
    """The forward pass: `multiply`, then the loop writes the first layer's products into `input_BG`, then `advance`.

    `top_products_TBX` are those of h of the last layer, which may have more columns than the cell needs.
    """

    def __init__(self, cell: LoopCell, layers: list[LoopLayer], top_states_TBM: Tensor) -> None:
        """`top_states_TBM` is where the states of the last layer go, T + 1 of them with the first."""
        steps, batch = len(top_states_TBM) - 1, top_states_TBM.shape[1]
        self.layers = layers
        size = layers[0].w_state_XH.shape[1]
        self.input_BG = top_states_TBM.new_empty(batch, cell.gates * size)
        self.input_parts = cell.steps.input_parts(self.input_BG, _as_it_is)[0]
        self.h: list[Views] = []
        self.products: list[Views] = []
        self.steps = []
        self.saved: list[Tensor | None] = []
        for layer in layers:
            top = layer is layers[-1]
            states_TBM = top_states_TBM if top else top_states_TBM.new_empty(top_states_TBM.shape)
            states_TBM[0] = layer.start_BM
            products_TBX = states_TBM.new_empty(steps, batch, len(layer.w_state_XH))
            states = states_TBM.unbind(0)
            self.h.append(states_TBM[:, :, -size:].unbind(0))
            self.products.append(products_TBX.unbind(0))
            self.steps.append(cell.steps(products_TBX, states[:-1], states[1:], by_step))
            own_TBM = None if top else states_TBM
            self.saved += [layer.w_state_XH, layer.w_input_GH, layer.mask_BH]
            self.saved += [products_TBX, self.steps[-1].kept_H, own_TBM]
        self.top_products_TBX = products_TBX

    def multiply(self, t: int) -> None:
        """The products of every h before step t."""
        for layer, h, products in zip(self.layers, self.h, self.products, strict=True):
            write_sum(layer.b_state_X, h[t], layer.w_state_XH.t(), products[t])

    def advance(self, t: int) -> None:
        """All layers, from the first."""
        for index, (layer, steps) in enumerate(zip(self.layers, self.steps, strict=True)):
            if layer.w_input_GH is not None and layer.b_input_G is not None:
                below_BH = _masked(self.h[index - 1][t + 1], layer.mask_BH)
                write_sum(layer.b_input_G, below_BH, layer.w_input_GH.t(), self.input_BG)
            steps.advance(t, self.input_parts)


class _LayerSlopes(NamedTuple):
    """A layer in the backward pass: what `StackSteps` saved of it, and its blocks of gradients."""

    w_state_XH: Tensor
    w_input_GH: Tensor | None
    mask_BH: Tensor | None
    h_TBH: Tensor  # T + 1 of them
    blocks_TBY: Tensor
    of_input: Views
    of_state: Views


class StackSlopes:
    """The backward pass: `step`, then `back`, from the last step; between them the loop may write into `of_more`.

    `grad_h` is the gradient of the last layer's h after the step in hand, for the loop to add to.
    """

    def __init__(self, cell: LoopCell, saved: Parts, top_states_TBM: Tensor) -> None:
        """`saved` is what `StackSteps` saved."""
        self.cell = cell
        self.layers: list[_LayerSlopes] = []
        self.slopes = []
        for start in range(0, len(saved), 6):
            w_state_XH, w_input_GH, mask_BH, products_TBX, kept_TBH, states_TBM = saved[start : start + 6]
            assert w_state_XH is not None
            assert products_TBX is not None
            assert kept_TBH is not None
            states_TBM = top_states_TBM if states_TBM is None else states_TBM
            steps, batch, size = kept_TBH.shape
            more = len(w_state_XH) - cell.gates * size
            blocks_TBY = kept_TBH.new_empty(steps, batch, 4 * size + more)
            blocks_TB4H = blocks_TBY[:, :, : 4 * size].view(steps, batch, 4, size)
            self.slopes.append(cell.slopes(products_TBX, kept_TBH, states_TBM[:-1], blocks_TB4H, by_step))
            self.layers.append(
                _LayerSlopes(
                    w_state_XH, w_input_GH, mask_BH, states_TBM[:, :, -size:], blocks_TBY,
                    blocks_TBY[:, :, cell.of_input(size)].unbind(0),
                    blocks_TBY[:, :, cell.of_state(size, more)].unbind(0),
                )
            )  # fmt: skip
        self.size = size
        self.of_more = blocks_TBY[:, :, 4 * size :].unbind(0)
        self.grads_BM = [top_states_TBM.new_zeros(top_states_TBM.shape[1:]) for _ in self.layers]
        self.next_BM = [torch.empty_like(grad_BM) for grad_BM in self.grads_BM]

    @property
    def grad_h(self) -> Tensor:
        return self.grads_BM[-1][:, -self.size :]

    @property
    def grad_inputs(self) -> Tensor:
        """The gradient of the first layer's products, step by step as `step` goes."""
        return self.layers[0].blocks_TBY[:, :, self.cell.of_input(self.size)]

    @property
    def of_input(self) -> Views:
        """`grad_inputs` of each step."""
        return self.layers[0].of_input

    def step(self, t: int) -> None:
        """The gradients of the products of step t, from the last layer to the first."""
        for index in reversed(range(len(self.layers))):
            layer = self.layers[index]
            self.slopes[index].step(t, self.grads_BM[index])
            if layer.w_input_GH is not None:
                below_BH = self.grads_BM[index - 1][:, -self.size :]
                below_BH += _masked(product(layer.of_input[t], layer.w_input_GH), layer.mask_BH)

    def back(self, t: int, also_BH: Tensor | None = None) -> None:
        """On to the states before step t; `also_BH` is what the last layer's h gets beside."""
        for layer, slopes, grad_BM, into_BM in zip(self.layers, self.slopes, self.grads_BM, self.next_BM, strict=True):
            slopes.carry(t, grad_BM, into_BM.zero_())
            into_BH = into_BM[:, -self.size :]
            if also_BH is not None and layer is self.layers[-1]:
                into_BH += also_BH
            write_sum(into_BH, layer.of_state[t], layer.w_state_XH, into_BH)
        self.grads_BM, self.next_BM = self.next_BM, self.grads_BM

    def gradients(self) -> list[Tensor | None]:
        """Those of the parts of every `LoopLayer`, after the last step."""
        found: list[Tensor | None] = []
        for index, layer in enumerate(self.layers):
            of_state_TBX = layer.blocks_TBY[:, :, self.cell.first * self.size :]
            found += [self.grads_BM[index], product_gradient(of_state_TBX, layer.h_TBH[:-1]), _sum(of_state_TBX)]
            if layer.w_input_GH is None:
                found += [None, None, None]
                continue
            of_input_TBG = layer.blocks_TBY[:, :, self.cell.of_input(self.size)]
            below_TBH = _masked(self.layers[index - 1].h_TBH[1:], layer.mask_BH)
            found += [product_gradient(of_input_TBG, below_TBH), _sum(of_input_TBG), None]
        return found


def product_gradient(grad_TBY: Tensor, factor_TBX: Tensor) -> Tensor:
    """The gradient [Y, X] of the weights of x Wᵀ over all steps, as one product."""
    return weight_gradient(grad_TBY.flatten(0, 1), factor_TBX.flatten(0, 1))


def _sum(grad_TBY: Tensor) -> Tensor:
    """The gradient [Y] of a bias over all steps."""
    return grad_TBY.flatten(0, 1).sum(0)


def _masked(h: Tensor, mask_BH: Tensor | None) -> Tensor:
    """Dropout's product of one step or of all."""
    return h if mask_BH is None else h * mask_BH


def by_step(array_TBX: Tensor) -> Views:
    """The part of each step."""
    return array_TBX.unbind(0)


def _as_it_is(array_BX: Tensor) -> Views:
    """An array of one step."""
    return (array_BX,)
