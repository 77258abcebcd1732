"""Checkpoints: plain tensors and types in a file that appears whole or not at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch

from nmt.errors import NmtError
from nmt.run_dir import RunDir, replacing
from nmt.training.foreign import what_is_odd


def save_checkpoint(run: RunDir, step: int, content: dict[str, Any], *, best: bool, keep: int) -> Path:
    """Writes `step_NNNNNN.pt`, lets `best.pt` on request and `last.pt` name the same file, drops the oldest.

    Raises:
        NmtError: if it cannot be written; the older checkpoints stay.
    """
    path = run.checkpoints / f"step_{step:06d}.pt"
    try:
        with replacing(path) as stream:
            torch.save(content, stream)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        raise NmtError(
            f"{path}: the checkpoint cannot be written ({str(error).splitlines()[0][:100]}). Free disk space or make "
            "the folder writable, and go on with --resume; the older checkpoints are whole."
        ) from error
    # best.pt first: last.pt says which step is the best one.
    for name in (*((run.best,) if best else ()), run.last):
        _second_name(path, name)
    steps = sorted(run.checkpoints.glob("step_*.pt"), key=lambda file: int(file.stem.removeprefix("step_")))
    for old in steps[: max(0, len(steps) - keep)]:
        old.unlink()
    return path


def _second_name(path: Path, name: Path) -> None:
    """Gives a file a second name, by a hard link where the file system has them, and replaces what had it."""
    temporary = name.with_name(f".{name.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        os.link(path, temporary)
    except OSError:
        shutil.copyfile(path, temporary)
    os.replace(temporary, name)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Reads a checkpoint onto the CPU; nothing in the file is executed.

    Raises:
        NmtError: if there is none, or it is not one of ours, or damaged.
    """
    if not path.is_file():
        raise NmtError(f"{path}: there is no such checkpoint.")
    others = [other.name for other in sorted(path.parent.glob("*.pt")) if other.name != path.name]
    offer = f" Other checkpoints beside it: {', '.join(others)} (--checkpoint)." if others else ""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for what is not a checkpoint, with advice that is not ours
        raise NmtError(f"{path}: this is not a checkpoint of nmt, or it is damaged.{offer}") from error
    if (odd := what_is_odd(content)) is not None:
        raise NmtError(f"{path}: {odd}.{offer}")
    return dict(content)
