"""Layer normalisation in the cells (Ba, Kiros and Hinton 2016, supplementary material), by autograd on any device.

The products of a cell's input and of its h are each normalised over all their gates at once, with a gain g of their own
and the layer's own two biases, before they are added:

    LN(a; g, b) = g (a - mean a) / sqrt(var a + 1e-5) + b,  u = LN(W x; g_i, b_i),  v = LN(U h; g_h, b_h)
    GRU:   r = σ(u_r + v_r),  z = σ(u_z + v_z),  n = tanh(u_n + r v_n),  h' = n + z (h - n)
    LSTM:  (i, f, g, o) = u + v,  c' = σ(f) c + σ(i) tanh(g),  h' = σ(o) tanh(LN(c'; g_c, b_c))

The LSTM is the paper's. For its GRU the paper normalises each product's part of r and z apart from that of n; here it
is one vector, as in the LSTM. As in torch's GRU, and in the paper, the reset gate comes after the product with h.

Neither torch's layers nor cuDNN's can do this, nor the loops by hand beside this module: steps are plain tensor code.

Axes: N rows, X input size, H hidden size, G rows of the weights of a cell (3H or 4H).
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from nmt.model.gemm import linear

EPSILON = 1e-5
State = tuple[Tensor, ...]  # h of a GRU, or h and c of an LSTM, each [N, H]


class CellNorm(nn.Module):
    """The gains of a layer in one direction, and the bias of an LSTM's memory cell."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        size = layer.hidden_size
        gates = size * (4 if isinstance(layer, nn.LSTM) else 3)
        self.input_gain, self.state_gain = (nn.Parameter(torch.ones(gates)) for _ in range(2))
        if isinstance(layer, nn.LSTM):
            self.memory_gain, self.memory_bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def of_input(self, product_NG: Tensor, bias_G: Tensor) -> Tensor:
        """u of W x."""
        return _normalised(product_NG, self.input_gain, bias_G)

    def of_state(self, product_NG: Tensor, bias_G: Tensor) -> Tensor:
        """v of U h."""
        return _normalised(product_NG, self.state_gain, bias_G)

    def of_memory(self, c_NH: Tensor) -> Tensor:
        """What tanh is taken of."""
        return _normalised(c_NH, self.memory_gain, self.memory_bias)


def _normalised(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    return nn.functional.layer_norm(x, gain.shape, gain, bias, EPSILON)


def add_layer_norm(model: nn.Module) -> None:
    """Has all recurrent layers of `model` normalise; gains start as 1, so that no random numbers are drawn."""
    for layer in [layer for layer in model.modules() if isinstance(layer, nn.RNNBase)]:
        layer.norm = CellNorm(layer)
        if layer.bidirectional:
            layer.norm_reverse = CellNorm(layer)


def layer_norm_of(layer: nn.Module, suffix: str = "") -> CellNorm | None:
    """That of a layer, with the suffix `_reverse` of its other direction; None if it does not normalise."""
    return cast(CellNorm | None, getattr(layer, f"norm{suffix}", None))


def next_state(input_NG: Tensor, state_NG: Tensor, before: State, norm: CellNorm | None = None) -> State:
    """The next state from both products of a cell, biases added, in torch's order of gates (r, z, n; i, f, g, o).

    `norm` is what they were normalised by, for an LSTM to normalise its memory cell too.
    """
    if len(before) == 2:
        i_NH, f_NH, g_NH, o_NH = (input_NG + state_NG).chunk(4, -1)
        c_NH = f_NH.sigmoid() * before[1] + i_NH.sigmoid() * g_NH.tanh()
        return o_NH.sigmoid() * (c_NH if norm is None else norm.of_memory(c_NH)).tanh(), c_NH
    size = before[0].shape[1]
    (input_N2H, input_NH), (state_N2H, state_NH) = (x.tensor_split([2 * size], -1) for x in (input_NG, state_NG))
    r_NH, z_NH = (input_N2H + state_N2H).sigmoid().chunk(2, -1)
    n_NH = (input_NH + r_NH * state_NH).tanh()
    return (n_NH + z_NH * (before[0] - n_NH),)


def normed_step(norm: CellNorm, weights: tuple[Tensor, ...], x_NX: Tensor, before: State) -> State:
    """The next state of a cell with the weights W_ih, W_hh, b_ih, b_hh."""
    w_input, w_state, b_input, b_state = weights
    input_NG = norm.of_input(linear(x_NX, w_input), b_input)
    return next_state(input_NG, norm.of_state(linear(before[0], w_state), b_state), before, norm)
