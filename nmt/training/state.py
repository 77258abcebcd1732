"""Where training stands: what a checkpoint holds beside tensors."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Window:
    """Sums over the updates since the last line of metrics, saved too, so that a stop leaves no trace in the curves."""

    smoothed: float = 0.0
    likelihood: float = 0.0
    tokens: int = 0
    updates: int = 0
    norm: float = 0.0
    seconds: float = 0.0
    alignment: float = 0.0
    aligned: int = 0  # target pieces with a given alignment
    divergence: float = 0.0


@dataclass
class TrainingState:
    """Where training stands. `epoch` counts from 0; `position` is the next batch of the epoch."""

    step: int = 0
    epoch: int = 0
    position: int = 0
    best_score: float = -math.inf
    best_step: int = 0
    best_loss: float = math.inf
    bad_validations: int = 0
    skipped: int = 0
    skipped_in_a_row: int = 0
    validation_due: bool = False  # a signal came in the middle of this step's validation
    seconds: float = 0.0
    finished: str = ""  # why training ended; empty while it has not
    window: Window = field(default_factory=Window)

    def to_dict(self) -> dict[str, Any]:
        """Plain types alone."""
        return asdict(self)

    @classmethod
    def of(cls, content: dict[str, Any]) -> TrainingState:
        """The state that `to_dict` gave. Raises TypeError or KeyError for anything else."""
        return cls(**content | {"window": Window(**content["window"])})
