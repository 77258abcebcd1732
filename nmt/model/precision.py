"""Which products round their factors to fewer digits: the large ones, where training asks for it, and no others.

Rounding is opted into product by product, where `torch.autocast` would round all that it knows: recurrences, scores,
softmax, masks and losses stay in float32, and a CPU rounds where a GPU does. Under autocast torch's GRU and LSTM would
also run in float16 on a GPU, whatever type it is given (its wrapper of cuDNN's knows no other).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from nmt.model.gemm import linear

_rounded: ContextVar[torch.dtype | None] = ContextVar("rounded", default=None)


@contextmanager
def products_in(dtype: torch.dtype | None) -> Iterator[None]:
    """Within it the factors of large products are rounded to `dtype`; None: they are not."""
    token = _rounded.set(dtype)
    try:
        yield
    finally:
        _rounded.reset(token)


def product_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type of the factors of a large product whose factors come in `dtype`."""
    return _rounded.get() or dtype


def large_product(layer: nn.Linear, x: Tensor) -> Tensor:
    """`layer(x)` as a large product: factors and their gradients rounded within `products_in`, the result in x's type.

    For products over many rows at once; each call rounds the weights anew.
    """
    return large_linear(x, layer.weight, layer.bias)


def product_of_parts(layer: nn.Module, *parts: Tensor) -> Tensor:
    """`large_product` of an input that comes in parts; a layer of `nmt.model.folded` takes them as they are."""
    if not isinstance(layer, nn.Linear):
        product: Tensor = layer(*parts)
        return product
    return large_product(layer, torch.cat(parts, -1))


def large_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """As `large_product`, from a matrix and a bias: x Wᵀ + b."""
    dtype = product_dtype(x.dtype)
    if dtype == x.dtype:
        return linear(x, weight, bias)
    rounded_bias = None if bias is None else bias.to(dtype)
    return nn.functional.linear(x.to(dtype), weight.to(dtype), rounded_bias).to(x.dtype)
