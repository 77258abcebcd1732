"""A polite stop: the first SIGINT or SIGTERM lets an update finish, the second ends the process at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class Stopped(Exception):
    """Training stopped on a signal, with everything saved; the process should exit with `exit_code`."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signal_number).name}")
        self.exit_code = 128 + signal_number


class StopSignals:
    """Within the `with` block the first signal is noted in `received`, and the next acts as usual."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._earlier: dict[int, signal.Handlers | object] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():  # Python takes handlers nowhere else
            for number in (signal.SIGINT, signal.SIGTERM):
                self._earlier[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        for each in self._earlier:
            signal.signal(each, signal.SIG_DFL)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._earlier.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
