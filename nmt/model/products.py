"""The products of a search, their weights put in the order that a CPU reads fastest, or rounded to int8.

A search multiplies few rows by the same weights again and again. A library's product of float matrices reorders the
weights anew each time, which for one sentence takes longer than the product; here that is done once.

Dynamic int8: a weight is rounded once, with a scale for each output; an input is rounded when it comes, with a scale
for each row. Sums are exact whole numbers (Jacob et al. 2018), so that the result of a row does not depend on the rest
of its batch.

Axes: N rows, I inputs, O outputs.
"""

from __future__ import annotations

import warnings
from functools import cache

import torch
from torch import Tensor, nn

from nmt.errors import NmtError
from nmt.model import devices


class PackedLinear(nn.Module):
    """W x + b with the weights as they are now, [O, I]; later changes of them are not seen."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        super().__init__()
        self.out_features = len(weight_OI)
        self.bias_O = None if bias_O is None else bias_O.detach().clone()
        weight_OI, on_cpu = weight_OI.detach(), devices.on_cpu(weight_OI)
        self.in_own_order = on_cpu and weight_OI.dtype == torch.float32 and onednn_is_here()
        if self.in_own_order:
            self.weight = torch.ops.mkldnn._reorder_linear_weight(weight_OI)
        else:
            kept_OI = weight_OI.clone()
            self.weight = kept_OI.t().contiguous() if on_cpu else kept_OI.t()

    def forward(self, *parts: Tensor) -> Tensor:
        """The input is [..., I], its parts side by side, the result [..., O]."""
        x = _joined(parts)
        x_NI = x.reshape(-1, x.shape[-1])
        if self.in_own_order:
            out_NO: Tensor = torch.ops.mkldnn._linear_pointwise(x_NI, self.weight, self.bias_O, "none", [], "")
        else:
            out_NO = x_NI @ self.weight if self.bias_O is None else torch.addmm(self.bias_O, x_NI, self.weight)
        return out_NO.view(*x.shape[:-1], self.out_features)


class QuantizedLinear(nn.Module):
    """W x + b for `weight_OI` and `bias_O`, both factors of the product rounded to 8 bits."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None, engine: str | None = None) -> None:
        super().__init__()
        self.engine = engine or int8_engine()
        self.out_features = len(weight_OI)
        largest_O1 = weight_OI.detach().abs().amax(1, keepdim=True)
        scale_O1 = largest_O1.clamp_(min=torch.finfo(weight_OI.dtype).tiny) / weight_levels(self.engine)
        self.weight_OI = (weight_OI.detach() / scale_O1).round_().to(torch.int8)
        self.scale_O = scale_O1.squeeze(1)
        self.bias_O = torch.zeros_like(self.scale_O) if bias_O is None else bias_O.detach().clone()
        self.multiply = _ENGINES[self.engine](self.weight_OI, self.scale_O)

    def forward(self, *parts: Tensor) -> Tensor:
        """The input is [..., I], its parts side by side, the result [..., O]."""
        x = _joined(parts)
        x_NI = x.reshape(-1, x.shape[-1])
        largest_N1 = x_NI.abs().amax(1, keepdim=True)
        scale_N1 = largest_N1.clamp_(min=torch.finfo(x_NI.dtype).tiny).div_(127)
        out_NO = self.multiply(x_NI / scale_N1)
        return torch.addcmul(self.bias_O, out_NO, scale_N1, out=out_NO).view(*x.shape[:-1], self.out_features)


def _joined(parts: tuple[Tensor, ...]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


class OneDNNProduct:
    """The product of rows, rounded to whole numbers, and an int8 matrix with a scale for each of its outputs.

    By the instructions of AVX-512 VNNI. oneDNN computes it without them too, but then far slower than in float.
    """

    def __init__(self, weight_OI: Tensor, scale_O: Tensor) -> None:
        self.weight_IO, self.scale_O = weight_OI.t(), scale_O

    def __call__(self, x_NI: Tensor) -> Tensor:
        """The product of `x_NI`, from -127 to 127, [N, O]."""
        sums_NO = torch._int_mm(x_NI.round().to(torch.int8), self.weight_IO)
        return sums_NO.to(x_NI.dtype).mul_(self.scale_O)  # in two passes: one of mixed types would copy the sums first


class FBGEMMProduct:
    """The same by FBGEMM, on any x86 processor with AVX2; it adds 128 to the rows and takes that from the sums."""

    def __init__(self, weight_OI: Tensor, scale_O: Tensor) -> None:
        zeros_O = torch.zeros(len(weight_OI), dtype=torch.int64)
        before = torch.backends.quantized.engine
        torch.backends.quantized.engine = "fbgemm"
        try:
            with warnings.catch_warnings():  # torch 2.13 announces that tensors of whole numbers will go one day
                warnings.simplefilter("ignore", UserWarning)
                whole_OI = torch._make_per_channel_quantized_tensor(weight_OI, scale_O.double(), zeros_O, 0)
            self.packed = torch.ops.quantized.linear_prepack(whole_OI, None)
        finally:
            torch.backends.quantized.engine = before

    def __call__(self, x_NI: Tensor) -> Tensor:
        """The product of `x_NI`, from -127 to 127, [N, O]."""
        product = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
        out_NO: Tensor = product(x_NI.float(), 1.0, 128, self.packed)
        return out_NO.to(x_NI.dtype)


_ENGINES: dict[str, type[OneDNNProduct] | type[FBGEMMProduct]] = {"onednn": OneDNNProduct, "fbgemm": FBGEMMProduct}


@cache
def weight_levels(engine: str) -> int:
    """The largest whole number that a weight may become.

    A processor without VNNI adds pairs of products in 16 bits, which the largest ones overflow; there a weight has one
    bit less. This is seen from a product that is known.
    """
    largest = torch.full((32, 64), 127, dtype=torch.int8)
    multiply = _ENGINES[engine](largest, torch.ones(len(largest)))
    sums = [multiply(sign * largest.float()) for sign in (1, -1)]
    exact = all(bool((total == sign * 127 * 127 * 64).all()) for sign, total in zip((1, -1), sums))
    return 127 if exact else 63


def onednn_is_here() -> bool:
    """Whether this torch has oneDNN."""
    return bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


def fbgemm_is_here() -> bool:
    """Whether this torch has FBGEMM, and tensors of whole numbers to feed it with."""
    return "fbgemm" in torch.backends.quantized.supported_engines and hasattr(
        torch, "_make_per_channel_quantized_tensor"
    )


def int8_engine() -> str:
    """The library of int8 products that is fast here.

    Raises:
        NmtError: if there is none.
    """
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    if onednn_is_here() and capabilities.get("avx512_vnni"):
        return "onednn"
    if fbgemm_is_here():
        return "fbgemm"
    raise NmtError(
        f"torch {torch.__version__} has no fast int8 products on this processor (neither oneDNN's with AVX-512 VNNI "
        "nor FBGEMM's): leave --int8 out."
    )


def refuse_int8(device: torch.device) -> None:
    """Refuses a machine that has no fast int8 product.

    Raises:
        NmtError: for a device that is no CPU, or one without such products.
    """
    if device.type != "cpu":
        raise NmtError(f"--int8 is for CPUs, and the device is {device}: add --device cpu, or leave --int8 out.")
    int8_engine()
