"""What differs between a CPU and a GPU in the model's code."""

from __future__ import annotations

from torch import Tensor


def on_cpu(tensor: Tensor) -> bool:
    """Whether a tensor's values and sizes can be looked at without a wait, and loops of small operations are cheap."""
    return tensor.device.type == "cpu"
