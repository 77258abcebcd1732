"""The runs of an ensemble, as its scores tell them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nmt.run_dir import RunDir


@dataclass(frozen=True)
class Member:
    """A run of an ensemble: where it lies as seen from the first one's folder, its name, and its checkpoint's step."""

    run: str
    name: str
    step: int


def seen_from_first(runs: Sequence[RunDir]) -> list[str]:
    """Where the runs lie, from the first: true also when all of them are moved, and nothing of this machine is told."""
    return [os.path.relpath(run.path.resolve(), runs[0].path.resolve()) for run in runs]


def members_of(stored: Mapping[str, Any]) -> tuple[Member, ...]:
    """The runs that the content of `eval/NAME.json` is of, if it is of an ensemble; what is not whole is left out."""
    listed = stored.get("ensemble")
    kinds = {"run": str, "name": str, "step": int}
    return tuple(
        Member(**{key: entry[key] for key in kinds})
        for entry in (listed if isinstance(listed, list) else ())
        if isinstance(entry, dict) and all(isinstance(entry.get(key), kind) for key, kind in kinds.items())
    )
