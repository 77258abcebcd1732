"""Dynamic int8: the products of a search step with whole numbers, which a CPU multiplies several times faster.

A weight is rounded once, with a scale for each output; an input is rounded when it comes, with a scale for each row.
Sums are exact whole numbers (Jacob et al. 2018), so that the result of a row does not depend on the rest of its batch.
The encoder and what is computed once a sentence stay as they are: they take little of the time.

Axes: N rows, I inputs, O outputs, X input size of a cell, H its hidden size.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from nmt.errors import NmtError
from nmt.model.recurrent import cell_weights

if TYPE_CHECKING:
    from nmt.model.seq2seq import Seq2Seq


class QuantizedLinear(nn.Module):
    """W x + b for `weight_OI` and `bias_O`, both factors of the product rounded to 8 bits."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        super().__init__()
        self.out_features = len(weight_OI)
        largest_O1 = weight_OI.detach().abs().amax(1, keepdim=True)
        scale_O1 = largest_O1.clamp_(min=torch.finfo(weight_OI.dtype).tiny) / weight_levels()
        self.weight_OI = (weight_OI.detach() / scale_O1).round_().to(torch.int8)
        self.scale_O = scale_O1.squeeze(1)
        self.bias_O = torch.zeros_like(self.scale_O) if bias_O is None else bias_O.detach()

    def forward(self, x: Tensor) -> Tensor:
        """`x` is [..., I], the result [..., O]."""
        x_NI = x.reshape(-1, x.shape[-1])
        out_NO = x_NI.new_empty(len(x_NI), self.out_features)
        self.write(x_NI, out_NO)
        return out_NO.view(*x.shape[:-1], self.out_features)

    def write(self, x_NI: Tensor, out_NO: Tensor) -> None:
        """Writes the result for `x_NI` into `out_NO`."""
        largest_N1 = x_NI.abs().amax(1, keepdim=True)
        scale_N1 = largest_N1.clamp_(min=torch.finfo(x_NI.dtype).tiny).div_(127)
        rounded_NI = (x_NI / scale_N1).round_().to(torch.int8)
        sums_NO = torch._int_mm(rounded_NI, self.weight_OI.t())
        out_NO.copy_(sums_NO).mul_(self.scale_O)  # in two passes: a product of mixed types would copy the sums first
        torch.addcmul(self.bias_O, out_NO, scale_N1, out=out_NO)


class QuantizedCell(nn.Module):
    """One step of a GRU or LSTM layer in one direction; its two products are `QuantizedLinear`."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        w_input, w_state, b_input, b_state = cell_weights(layer)
        self.input, self.state = QuantizedLinear(w_input, b_input), QuantizedLinear(w_state, b_state)

    def forward(self, x_NX: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The next h of a GRU, or h and c of an LSTM, each [N, H], from those before."""
        input_NG, state_NG = self.input(x_NX), self.state(state[0])
        if len(state) == 1:
            return (_gru_state(input_NG, state_NG, state[0]),)
        i_NH, f_NH, g_NH, o_NH = input_NG.add_(state_NG).chunk(4, -1)
        c_NH = f_NH.sigmoid() * state[1] + i_NH.sigmoid() * g_NH.tanh()
        return o_NH.sigmoid() * c_NH.tanh(), c_NH


def _gru_state(input_N3H: Tensor, state_N3H: Tensor, before_NH: Tensor) -> Tensor:
    """The next state of torch's GRU from its two products, gates in the order r, z, n."""
    size = before_NH.shape[1]
    r_NH, z_NH = (input_N3H[:, : 2 * size] + state_N3H[:, : 2 * size]).sigmoid_().chunk(2, -1)
    n_NH = torch.addcmul(input_N3H[:, 2 * size :], r_NH, state_N3H[:, 2 * size :]).tanh_()
    return n_NH.lerp_(before_NH, z_NH)


def quantized(model: Seq2Seq) -> Seq2Seq:
    """A model for the search alone, whose steps multiply in int8; its other weights are those of `model` itself.

    Raises:
        NmtError: if the model is not on a CPU, or this torch has no fast int8 product.
    """
    refuse_int8(model.output.weight.device)
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    result = copy.deepcopy(model, shared)
    decoder = result.decoder
    attention = getattr(decoder, "attention", None)
    for owner, name in ((result, "output"), (decoder, "readout"), (attention, "query")):
        linear = getattr(owner, name, None)
        if isinstance(linear, nn.Linear):
            setattr(owner, name, QuantizedLinear(linear.weight, linear.bias))
    for index, layer in enumerate(decoder.rnn.layers):
        decoder.rnn.layers[index] = QuantizedCell(layer)
    return result


def refuse_int8(device: torch.device) -> None:
    """Refuses a machine that has no fast int8 product.

    Raises:
        NmtError: for a device that is no CPU, or a torch without oneDNN.
    """
    if device.type != "cpu":
        raise NmtError(f"--int8 is for CPUs, and the device is {device}: add --device cpu, or leave --int8 out.")
    if not (hasattr(torch, "_int_mm") and torch.backends.mkldnn.is_available()):  # type: ignore[no-untyped-call]
        raise NmtError(
            f"torch {torch.__version__} has no fast int8 products here, as it has no oneDNN: leave --int8 out."
        )


@cache
def weight_levels() -> int:
    """The largest whole number that a weight may become.

    A processor without VNNI adds pairs of products in 16 bits, which the largest ones overflow; there a weight has one
    bit less. This is seen from a product that is known.
    """
    largest = torch.full((32, 64), 127, dtype=torch.int8)
    sums = [torch._int_mm(sign * largest, largest.t()) for sign in (1, -1)]
    exact = all(bool((total == sign * 127 * 127 * 64).all()) for sign, total in zip((1, -1), sums))
    return 127 if exact else 63
