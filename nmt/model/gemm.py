"""Matrix products of training, by the library that is the fastest one on this processor.

torch multiplies float32 matrices by MKL, which leaves AVX-512 unused on AMD's processors: oneDNN, which torch also has,
is twice as fast there. The choice depends on the processor alone, so that a seed gives the same weights each time. What
oneDNN is not for (other types, a GPU) is multiplied by torch's own products.

Axes: N rows, I inputs, O outputs.
"""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


@cache
def onednn_is_faster() -> bool:
    """Whether this processor is one that MKL holds back, and oneDNN is here.

    With AVX2 alone MKL is as fast.
    """
    mkl, onednn = torch.backends.mkl, torch.backends.mkldnn
    both = mkl.is_available() and onednn.is_available()  # type: ignore[no-untyped-call]
    if not both or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    return torch.backends.cpu.get_cpu_capability() == "AVX512" and "AuthenticAMD" in processor()


def processor() -> str:
    """What the system says of the processor, its vendor among it, where it says it; as Linux and Windows do."""
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
    except OSError:
        return platform.processor()


def by_onednn(tensor: Tensor) -> bool:
    """Whether products of such a tensor are oneDNN's."""
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu" and onednn_is_faster()


def _onednn(a_NI: Tensor, b_IO: Tensor, bias_O: Tensor | None = None) -> Tensor:
    a_NI = a_NI if a_NI.stride(1) == 1 else _dense(a_NI)
    product: Tensor = torch.ops.mkldnn._linear_pointwise(a_NI, _dense(b_IO).t(), bias_O, "none", [], "")
    return product


def _dense(matrix: Tensor) -> Tensor:
    """The matrix without gaps between rows or columns: for others oneDNN has nothing but plain loops."""
    if matrix.is_contiguous() or matrix.t().is_contiguous():
        return matrix
    return matrix.contiguous() if matrix.stride(1) == 1 else matrix.t().contiguous().t()


def product(a_NI: Tensor, b_IO: Tensor) -> Tensor:
    """a b, for matrices of any strides."""
    return _onednn(a_NI, b_IO) if by_onednn(a_NI) else a_NI @ b_IO


def biased_product(a_NI: Tensor, b_IO: Tensor, bias_O: Tensor) -> Tensor:
    """a b + bias."""
    return _onednn(a_NI, b_IO, bias_O) if by_onednn(a_NI) else torch.addmm(bias_O, a_NI, b_IO)


def write_product(a_NI: Tensor, b_IO: Tensor, out_NO: Tensor) -> None:
    """Writes a b."""
    if by_onednn(a_NI):
        out_NO.copy_(_onednn(a_NI, b_IO))
    else:
        torch.mm(a_NI, b_IO, out=out_NO)


def write_sum(term: Tensor, a_NI: Tensor, b_IO: Tensor, out_NO: Tensor) -> None:
    """Writes term + a b; the term is a bias [O] or an array [N, O], which may be the one that is written."""
    if not by_onednn(a_NI):
        torch.addmm(term, a_NI, b_IO, out=out_NO)
    elif term.dim() == 1:
        out_NO.copy_(_onednn(a_NI, b_IO, term))
    else:
        torch.add(_onednn(a_NI, b_IO), term, out=out_NO)


def weight_gradient(grad_NO: Tensor, x_NI: Tensor) -> Tensor:
    """The gradient [O, I] of the weights of x Wᵀ."""
    if by_onednn(grad_NO):  # the other way round: oneDNN would put both factors in another order first
        return _onednn(x_NI.t(), grad_NO).t().contiguous()
    return grad_NO.t() @ x_NI


def add_weight_gradient(grad_NO: Tensor, x_NI: Tensor, into_OI: Tensor) -> None:
    """Adds `weight_gradient`, whose factors may be rounded to another type than what it is added to."""
    if by_onednn(grad_NO):
        into_OI += _onednn(x_NI.t(), grad_NO).t()
    elif grad_NO.dtype == into_OI.dtype:
        into_OI.addmm_(grad_NO.t(), x_NI)
    else:
        into_OI += grad_NO.t() @ x_NI


class _Linear(torch.autograd.Function):
    """x Wᵀ + b and its gradients by the products above."""

    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_NI, weight_OI)
        return _onednn(x_NI, weight_OI.t(), bias_O)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NO: Tensor) -> tuple[Tensor | None, ...]:
        x_NI, weight_OI = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            product(grad_NO, weight_OI) if of_x else None,
            weight_gradient(grad_NO, x_NI) if of_weight else None,
            grad_NO.sum(0) if of_bias else None,
        )


def linear(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """x Wᵀ + b for x [..., I], with gradients."""
    if not by_onednn(x):
        return nn.functional.linear(x, weight_OI, bias_O)
    out_NO: Tensor = _Linear.apply(x.reshape(-1, x.shape[-1]), weight_OI, bias_O)  # type: ignore[no-untyped-call]
    return out_NO.view(*x.shape[:-1], len(weight_OI))
