"""Mixed precision: the large products of an update in bfloat16, weights and everything else in float32.

bfloat16 has the range of float32, so that gradients do not vanish as they do in float16: there is no loss scaler, and
the gradients that are clipped are the true ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch

from nmt.errors import NmtError
from nmt.model.precision import products_in
from nmt.reporting import Reporter

Setting = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True)
class Precision:
    """The type that an update's large products round their factors to; None: float32, nothing is rounded."""

    rounded: torch.dtype | None
    device: torch.device

    @contextmanager
    def update(self) -> Iterator[None]:
        """Around forward and backward pass. What stays in float32 may use a GPU's TF32 units beside bfloat16.

        TF32 keeps 10 bits of a factor where bfloat16 keeps 7, and sums in float32.
        """
        before = torch.get_float32_matmul_precision()
        faster = self.rounded is not None and self.device.type == "cuda"
        if faster:
            torch.set_float32_matmul_precision("high")
        try:
            with products_in(self.rounded):
                yield
        finally:
            if faster:
                torch.set_float32_matmul_precision(before)


def choose_precision(setting: Setting, device: torch.device, reporter: Reporter) -> Precision:
    """`auto` is bfloat16 on a GPU that computes in it, else float32.

    Raises:
        NmtError: if bfloat16 is asked for on a GPU that does not compute in it.
    """
    able = device.type == "cuda" and computes_bfloat16(device)
    if setting == "float32" or (setting == "auto" and not able):
        return Precision(None, device)
    if device.type == "cuda" and not able:
        raise NmtError(
            f"training.precision is bfloat16, which {torch.cuda.get_device_name(device)} does not compute in (NVIDIA's "
            "GPUs do from compute capability 8.0, Ampere, on). Set training.precision to auto or float32."
        )
    if device.type != "cuda":
        reporter.warning(
            "training.precision: bfloat16 on a CPU trains, but most CPUs are several times slower in it than in "
            "float32. Set it to auto or float32, unless that is what you want to see."
        )
    return Precision(torch.bfloat16, device)


def computes_bfloat16(device: torch.device) -> bool:
    """Whether this GPU has units for bfloat16; elsewhere torch emulates it, slower than float32."""
    return torch.version.hip is not None or torch.cuda.get_device_capability(device) >= (8, 0)
