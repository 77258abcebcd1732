"""What a loop frees is there for its next round."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest
import torch

LOOP = """
import resource
import torch
from nmt.model.memory import keep_freed_memory
assert keep_freed_memory()
faults = []
for _ in range(24):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [torch.ones(500_000 + 3_000_000 * size) for size in range(4)]
    del arrays
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(faults[0], sum(faults[16:]))  # the first rounds find how the arrays fit
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="sets glibc's allocator")
def test_freed_arrays_are_not_asked_of_the_system_again() -> None:
    done = subprocess.run([sys.executable, "-c", LOOP], capture_output=True, text=True, check=True)
    first, later = map(int, done.stdout.split())
    assert first > 1000  # pages of 4 KiB or larger ones
    assert later < first / 100


SHAPES = """
import sys
import torch
from nmt.model import memory
memory._SHAPES = 16
if sys.argv[1] == "limited":
    memory.limit_shape_caches()
multiply, weight = torch.ops.mkldnn._linear_pointwise, torch.randn(512, 256)
def size():
    return int(open("/proc/self/statm").read().split()[1]) * 4 // 1024
multiply(torch.randn(600, 256), weight, None, "none", [], "")
before = size()
for rows in range(200, 360):
    multiply(torch.randn(rows, 256), weight, None, "none", [], "")
print(size() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
def test_products_of_many_shapes_keep_little() -> None:
    kept = {}
    unset = {name: value for name, value in os.environ.items() if not name.endswith("_CACHE_CAPACITY")}
    for how in ("limited", "as it is"):
        command = [sys.executable, "-c", SHAPES, how]
        done = subprocess.run(command, env=unset, capture_output=True, text=True, check=True)
        kept[how] = int(done.stdout)
    assert kept["limited"] < 0.5 * kept["as it is"], f"MiB: {kept}"
