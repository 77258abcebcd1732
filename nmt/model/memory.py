"""Memory of training on a CPU: what is freed is kept for the next round, what is kept of each shape has a limit."""

from __future__ import annotations

import ctypes
import os
import platform

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # names of settings, from malloc.h
_KEPT = 2**31 - 1  # bytes: as many as mallopt can be told
_RESERVE = 64 * 2**20
_SHAPES = 256


def limit_shape_caches() -> None:
    """Lets oneDNN, and torch's layer over it, keep what they work out for a shape of a product for 256 shapes each.

    That takes from a few hundred KB to some MB a shape, and 1,024 shapes by default: GBs where batches have all sizes.
    For the small products of steps making it anew takes longer than the product, so that not too few may be kept. Both
    look at their variable once, at their first product.
    """
    for variable in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(variable, str(_SHAPES))


def keep_freed_memory() -> bool:
    """Tells the C library to keep what is freed instead of giving it back to the system; returns whether it could.

    An update of training frees some hundred MiB and asks for them again at once. By default glibc returns each large
    array, and the system hands it out again page by page, filled with zeros: several percent of the time on a CPU.
    Without glibc, and on a GPU, whose memory torch keeps itself, there is nothing to set.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all([mallopt(_MMAP_MAX, 0), mallopt(_TRIM_THRESHOLD, _KEPT), mallopt(_TOP_PAD, _RESERVE)])
