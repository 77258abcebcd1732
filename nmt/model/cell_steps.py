"""GRU and LSTM cells as loops use them: step by step, on arrays of all steps, with gradients by hand.

A cell adds two products, one of its input and one of h. Loops write both, `CellSteps` makes the next state of them;
backward `CellSlopes` gives the gradients of both products, and loops multiply. What the backward steps multiply by is
worked out before them for all steps at once.

A state is one row of S values, the LSTM's memory cell before h: S is H for a GRU and 2H for an LSTM. G are the rows of
the weights: 3H (gates r, z, n) or 4H (gates i, f, g, o). Gradients of a step are four blocks side by side, [4, H].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Views = Sequence[Tensor]  # an array's part of each step, in order
Cut = Callable[[Tensor], Views]  # cuts an array into them


class CellSteps(ABC):
    """The forward pass of a cell. Arrays are cut into steps once and for all, which costs more than some products.

    `products_G` is where the products of h are written, in torch's order of gates; more columns may follow. The input's
    are in the order of `LoopCell.input_order`. `kept_H` is what the backward pass needs beside products and states.
    """

    def __init__(self, products_G: Tensor, states_S: Views, next_S: Views, cut: Cut) -> None:
        """`states_S` are the states that steps start from, `next_S` where those after them go."""
        self.kept_H = products_G.new_empty(*products_G.shape[:-1], self.size_of(states_S[0].shape[-1]))
        self.prepare(products_G, states_S, next_S, cut)

    @staticmethod
    @abstractmethod
    def size_of(state_size: int) -> int:
        """H."""

    @abstractmethod
    def prepare(self, products_G: Tensor, states_S: Views, next_S: Views, cut: Cut) -> None:
        """Cuts the arrays of all steps."""

    @staticmethod
    @abstractmethod
    def input_parts(inputs_G: Tensor, cut: Cut) -> list[Views]:
        """The input's products of each step, as `advance` takes them."""

    @abstractmethod
    def advance(self, t: int, inputs: Views) -> None:
        """Step t, once its products are there. Gates replace their part of the products."""


class CellSlopes(ABC):
    """The backward pass of `CellSteps`: all that does not depend on a gradient is worked out for all steps at once."""

    @abstractmethod
    def __init__(self, products_G: Tensor, kept_H: Tensor, states_S: Tensor, blocks_4H: Tensor, cut: Cut) -> None:
        """What the forward pass left, the states that its steps started from, and where the blocks go."""

    @abstractmethod
    def step(self, t: int, grad_S: Tensor) -> None:
        """Writes the blocks of step t from the gradient of its new states; that of a memory cell becomes whole."""

    @abstractmethod
    def carry(self, t: int, grad_S: Tensor, into_S: Tensor) -> None:
        """Adds to the gradient of the states before step t, after `step`, what does not come by a product."""


class GRUSteps(CellSteps):
    """torch's GRU: n = tanh(x_n + r·h_n), h' = n + z·(h - n). The input's products come in the order n, r, z."""

    @staticmethod
    def size_of(state_size: int) -> int:
        return state_size

    def prepare(self, products_G: Tensor, states_S: Views, next_S: Views, cut: Cut) -> None:
        size = self.kept_H.shape[-1]
        reset_H, keep_H, product_H = (cut(part) for part in _gates(products_G, size))
        gates_2H = cut(products_G[..., : 2 * size])
        self.parts = list(zip(gates_2H, reset_H, keep_H, product_H, states_S, cut(self.kept_H), next_S, strict=True))

    @staticmethod
    def input_parts(inputs_G: Tensor, cut: Cut) -> list[Views]:
        size = inputs_G.shape[-1] // 3
        return list(zip(cut(inputs_G[..., :size]), cut(inputs_G[..., size:]), strict=True))

    def advance(self, t: int, inputs: Views) -> None:
        gates_2H, reset_H, keep_H, product_H, state_H, candidate_H, next_H = self.parts[t]
        input_H, inputs_2H = inputs
        gates_2H.add_(inputs_2H).sigmoid_()
        torch.addcmul(input_H, reset_H, product_H, out=candidate_H).tanh_()
        torch.lerp(candidate_H, state_H, keep_H, out=next_H)


class GRUSlopes(CellSlopes):
    """Blocks: the gradients of n, r and z before their nonlinearities, and of the state's part of n.

    The first three belong to the input's product, the last three to the state's.
    """

    def __init__(self, products_G: Tensor, kept_H: Tensor, states_S: Tensor, blocks_4H: Tensor, cut: Cut) -> None:
        size = states_S.shape[-1]
        reset_H, keep_H, product_H = _gates(products_G, size)
        update_H = 1 - keep_H
        first_2H = states_S.new_empty(*states_S.shape[:-1], 2, size)  # of n and z, by the gradient of the new state
        torch.mul(update_H, 1 - kept_H.square(), out=first_2H[..., 0, :])
        torch.mul((states_S - kept_H).mul_(keep_H), update_H, out=first_2H[..., 1, :])
        second_2H = torch.empty_like(first_2H)  # of r and the state's part of n, by the gradient of n
        torch.mul(torch.addcmul(reset_H, reset_H, reset_H, value=-1), product_H, out=second_2H[..., 0, :])
        second_2H[..., 1, :] = reset_H
        self.keep_H = cut(keep_H)
        blocks = (blocks_4H[..., 0::2, :], blocks_4H[..., 0:1, :], blocks_4H[..., 1::2, :])
        self.parts = list(zip(cut(first_2H), cut(second_2H), *(cut(part) for part in blocks), strict=True))

    def step(self, t: int, grad_S: Tensor) -> None:
        first_2H, second_2H, new_2H, candidate_1H, state_2H = self.parts[t]
        torch.mul(grad_S.unsqueeze(-2), first_2H, out=new_2H)
        torch.mul(candidate_1H, second_2H, out=state_2H)

    def carry(self, t: int, grad_S: Tensor, into_S: Tensor) -> None:
        into_S.addcmul_(grad_S, self.keep_H[t])


def _gates(products_G: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """r, z, and the state's part of n."""
    return products_G[..., :size], products_G[..., size : 2 * size], products_G[..., 2 * size : 3 * size]


class LSTMSteps(CellSteps):
    """torch's LSTM: c' = f·c + i·g, h' = o·tanh(c'). What is kept is tanh(c')."""

    @staticmethod
    def size_of(state_size: int) -> int:
        return state_size // 2

    def prepare(self, products_G: Tensor, states_S: Views, next_S: Views, cut: Cut) -> None:
        size = self.kept_H.shape[-1]
        gates_4H, open_2H = cut(products_G[..., : 4 * size]), cut(products_G[..., : 2 * size])
        in_H, forget_H, new_H, out_H = (cut(products_G[..., k * size : (k + 1) * size]) for k in range(4))
        memory_H = [state_S[..., :size] for state_S in states_S]
        next_memory_H = [state_S[..., :size] for state_S in next_S]
        next_H = [state_S[..., size:] for state_S in next_S]
        self.gates = list(zip(gates_4H, open_2H, new_H, out_H, strict=True))
        self.states = list(
            zip(in_H, forget_H, new_H, out_H, memory_H, next_memory_H, cut(self.kept_H), next_H, strict=True)
        )

    @staticmethod
    def input_parts(inputs_G: Tensor, cut: Cut) -> list[Views]:
        return [(part,) for part in cut(inputs_G)]

    def advance(self, t: int, inputs: Views) -> None:
        gates_4H, open_2H, new_H, out_H = self.gates[t]
        gates_4H.add_(inputs[0])
        open_2H.sigmoid_()
        new_H.tanh_()
        out_H.sigmoid_()
        in_H, forget_H, new_H, out_H, memory_H, next_memory_H, tanh_H, next_H = self.states[t]
        torch.mul(forget_H, memory_H, out=next_memory_H).addcmul_(in_H, new_H)
        torch.tanh(next_memory_H, out=tanh_H)
        torch.mul(out_H, tanh_H, out=next_H)


class LSTMSlopes(CellSlopes):
    """Blocks: the gradients of i, f, g and o before their nonlinearities; both products have all four."""

    def __init__(self, products_G: Tensor, kept_H: Tensor, states_S: Tensor, blocks_4H: Tensor, cut: Cut) -> None:
        size = states_S.shape[-1] // 2
        in_H, forget_H, new_H, out_H = (products_G[..., k * size : (k + 1) * size] for k in range(4))
        by_memory_3H = states_S.new_empty(*states_S.shape[:-1], 3, size)  # of i, f and g
        torch.mul(torch.addcmul(in_H, in_H, in_H, value=-1), new_H, out=by_memory_3H[..., 0, :])
        slope_H = torch.addcmul(forget_H, forget_H, forget_H, value=-1)
        torch.mul(slope_H, states_S[..., :size], out=by_memory_3H[..., 1, :])
        torch.addcmul(in_H, in_H, new_H.square(), value=-1, out=by_memory_3H[..., 2, :])
        by_h_H = torch.addcmul(out_H, out_H, out_H, value=-1).mul_(kept_H)  # of o
        memory_by_h_H = torch.addcmul(out_H, out_H, kept_H.square(), value=-1)
        self.size, self.forget_H = size, cut(forget_H)
        self.parts = list(
            zip(
                cut(memory_by_h_H), cut(by_memory_3H), cut(by_h_H), cut(blocks_4H[..., :3, :]),
                cut(blocks_4H[..., 3, :]), strict=True,
            )
        )  # fmt: skip

    def step(self, t: int, grad_S: Tensor) -> None:
        memory_by_h_H, by_memory_3H, by_h_H, first_3H, out_H = self.parts[t]
        grad_memory_H, grad_H = grad_S[..., : self.size], grad_S[..., self.size :]
        grad_memory_H.addcmul_(grad_H, memory_by_h_H)
        torch.mul(grad_memory_H.unsqueeze(-2), by_memory_3H, out=first_3H)
        torch.mul(grad_H, by_h_H, out=out_H)

    def carry(self, t: int, grad_S: Tensor, into_S: Tensor) -> None:
        into_S[..., : self.size].addcmul_(grad_S[..., : self.size], self.forget_H[t])


@dataclass(frozen=True)
class LoopCell:
    """A kind of cell: its two passes, and where things are.

    `gates` are the rows of its weights in units of H, `sizes` the size of its state; the input's product has the first
    `gates` blocks of gradients, the state's as many from block `first` on.
    """

    steps: type[CellSteps]
    slopes: type[CellSlopes]
    gates: int
    sizes: int
    first: int
    turned: int

    def of_input(self, size: int) -> slice:
        """The columns of the blocks that belong to the input's product, for an h of that size."""
        return slice(self.gates * size)

    def of_state(self, size: int, more: int = 0) -> slice:
        """The columns that belong to the state's, and `more` columns after the blocks."""
        return slice(self.first * size, 4 * size + more)

    def input_order(self, rows: Tensor, axis: int = 0) -> Tensor:
        """Rows of the input's weights in torch's order of gates, as loops take them."""
        return rows.roll(self.turned * rows.shape[axis] // self.gates, axis) if self.turned else rows

    def torch_order(self, rows: Tensor, axis: int = 0) -> Tensor:
        """Back from `input_order`."""
        return rows.roll(-self.turned * rows.shape[axis] // self.gates, axis) if self.turned else rows


GRU = LoopCell(GRUSteps, GRUSlopes, gates=3, sizes=1, first=1, turned=1)
LSTM = LoopCell(LSTMSteps, LSTMSlopes, gates=4, sizes=2, first=0, turned=0)
