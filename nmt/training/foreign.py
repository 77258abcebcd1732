"""What a file may hold under the keys of a checkpoint: it can come from anybody.

`torch.load(weights_only=True)` runs no code of a file, but lets any plain values through.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from nmt.errors import NmtError

KEYS = ("model", "optimizer", "schedule", "state", "random")


def what_is_odd(content: Any) -> str | None:
    """Says why what was read is no checkpoint of nmt; None if it looks like one."""
    missing = [key for key in KEYS if not isinstance(content, dict) or key not in content]
    if missing:
        return f"this is not a checkpoint of nmt: it has no {', no '.join(missing)}"
    odd = [key for key in KEYS if not _has_names(content[key], any_kind=key in ("optimizer", "random"))]
    if not odd and not all(map(_is_weight, content["model"].values())):
        odd = ["model"]
    step = content["state"].get("step") if not odd else 0
    if not isinstance(step, int) or step < 0:
        odd = ["state"]
    return f"this is not a checkpoint of nmt: its {' and its '.join(odd)} is of another kind" if odd else None


def _has_names(part: Any, *, any_kind: bool) -> bool:
    return isinstance(part, dict) and (any_kind or all(isinstance(name, str) for name in part))


def _is_weight(value: Any) -> bool:
    plain = isinstance(value, torch.Tensor) and value.layout == torch.strided and value.device.type == "cpu"
    return plain and not value.is_complex()


@contextmanager
def refused_where_it_does_not_fit(path: Path) -> Iterator[None]:
    """Tells of a checkpoint whose parts training cannot take up.

    Raises:
        NmtError: in place of what a block that takes them up raises.
    """
    try:
        yield
    except (RuntimeError, TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        if type(error).__name__ == "OutOfMemoryError":
            raise
        cause = (str(error).splitlines() or [""])[0][:100] or type(error).__name__
        raise NmtError(
            f"{path}: training cannot go on from this checkpoint: its parts do not fit the run ({cause}). Name "
            "another of the run's with --checkpoint, or train a new run with another --run-dir."
        ) from error
