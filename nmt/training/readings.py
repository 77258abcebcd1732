"""What updates measured, read from a GPU some updates later, so that the program never waits for the update in hand."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import astuple, dataclass

import torch
from torch import Tensor

from nmt.data.batching import Indices

LATE = 2  # updates that a GPU may be behind the program: enough that it never runs dry, few enough to count time well


@dataclass(frozen=True)
class Update:
    """One update: its step, and of its batch the pairs and the real target tokens, over all processes."""

    step: int
    pairs: Indices
    tokens: int


@dataclass(frozen=True)
class Measured:
    """What an update found: the norm of its gradient before clipping, and its losses in nats.

    `loss`, which is descended, is the mean over tokens but for that of attention, the others are sums; `aligned` is the
    number of pieces guided by links.
    """

    norm: float
    loss: float
    likelihood: float
    alignment: float
    aligned: float
    divergence: float

    def is_finite(self) -> bool:
        """Whether all of them are numbers; the update was left out otherwise."""
        return all(map(math.isfinite, astuple(self)))


class Readings:
    """The measurements of updates in their order, each `late` updates after it was put, or when all are asked for.

    On a GPU they travel to pinned memory behind the update's own work, and an event tells when they are there: with
    `late` above 0 it is one that the GPU has passed or soon will. On a CPU `late` is 0 and nothing is ever pending.
    """

    def __init__(self, device: torch.device, late: int | None = None) -> None:
        self.device = device
        self.late = (LATE if device.type == "cuda" else 0) if late is None else late
        self._pending: deque[tuple[Update, Tensor, torch.cuda.Event | None]] = deque()

    def put(self, update: Update, values: Tensor) -> None:
        """Sends the values of an update, in the order of `Measured`, [6] on their device, on their way."""
        event = None
        if self.device.type == "cuda":
            on_gpu, values = values, torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            values.copy_(on_gpu, non_blocking=True)
            event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            torch.cuda.current_stream(self.device).record_event(event)
        self._pending.append((update, values, event))

    def take(self, *, all_of_them: bool = False) -> Iterator[tuple[Update, Measured]]:
        """The updates whose turn has come, oldest first; each is given once."""
        while len(self._pending) > (0 if all_of_them else self.late):
            update, values, event = self._pending.popleft()
            if event is not None:
                event.synchronize()
            yield update, Measured(*values.tolist())
