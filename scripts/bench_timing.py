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
    found = statuses("self")
    if name in found:
        return found[name]
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def statuses(process: int | str) -> dict[str, float]:
    """All such figures of a process in MiB; none when it has ended, and none elsewhere than on Linux."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    words = [line.split() for line in lines if line.endswith(" kB")]
    return {name.rstrip(":"): int(size) / 1024 for name, size, _ in words}
