"""Wall time and memory, as the benchmarks take them. Used by bench_train.py, bench_translate.py and bench_data.py."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Wall seconds of some work, waited for on a GPU."""
    import torch  # not where preparing data is measured

    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def status(name: str) -> float:
    """A figure of this process in MiB: VmHWM, its peak; VmRSS, now; RssAnon, what no file stands for. Elsewhere than on
    Linux always the peak.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024
    except (OSError, StopIteration):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (2**20 if sys.platform == "darwin" else 2**10)
