"""A polite stop: the first SIGINT or SIGTERM lets an update finish, the second ends the process at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nmt.training.processes import Processes


class Stopped(Exception):
    """Training stopped on a signal, with everything saved; the process should exit with `exit_code`."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signal_number).name}")
        self.exit_code = 128 + signal_number


class BrokenOff(Exception):
    """A validation ended in its middle because of a signal; it has left nothing behind and is to be done again."""


class StopSignals:
    """Within the `with` block the first signal is noted in `received`, and the next acts as usual.

    "As usual" is the system's own doing, without Python: it ends the process also in the middle of a long operation. A
    signal that the process was started to ignore, as a shell does for what runs in the background, stays ignored.
    """

    def __init__(self, processes: Processes | None = None) -> None:
        self.received: int | None = None
        self._processes = processes
        self._earlier: dict[int, signal.Handlers | object] = {}

    def __enter__(self) -> StopSignals:
        self.received = None
        if threading.current_thread() is threading.main_thread():  # Python takes handlers nowhere else
            self._earlier = {number: signal.signal(number, self._note) for number in _heeded()}
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        _show_cursor()
        for each in self._earlier:
            signal.signal(each, signal.SIG_DFL)

    def agreed(self) -> int | None:
        """The signal that has come to this process or, where all of them ask at the same time, to any of them."""
        if self._processes is None:
            return self.received
        return int(self._processes.largest(self.received or 0)) or None

    def check(self) -> None:
        """For work that can be done again; all processes of a training call it equally often.

        Raises:
            BrokenOff: if a signal has come.
        """
        if self.agreed() is not None:
            raise BrokenOff

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._earlier.items():
            if signal.getsignal(number) is not signal.SIG_IGN:  # as `not_disturbed` leaves it
                signal.signal(number, handler)  # type: ignore[arg-type]
        self._earlier = {}


def not_disturbed() -> None:
    """From here on SIGTERM is ignored: the process is about to end, and tells why before it does.

    Whoever has started several processes sends it to the others as soon as one of them has ended.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


@contextmanager
def ended_at_once() -> Iterator[None]:
    """Let signals end the process as they do without Python, for the time of one long call of another language.

    Python would hear of them only when the call returns. What it leaves unfinished must not look finished.
    """
    numbers = _heeded() if threading.current_thread() is threading.main_thread() else ()
    if numbers:
        _show_cursor()
    earlier = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _heeded() -> list[signal.Signals]:
    """The signals that stop, but for what the process was started to ignore."""
    return [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) is not signal.SIG_IGN]


def _show_cursor() -> None:
    """Nobody else does, once the process ends without Python, and a progress bar hides it."""
    try:
        if sys.stderr is not None and sys.stderr.isatty():
            os.write(sys.stderr.fileno(), b"\x1b[?25h")
    except (OSError, ValueError):  # closed
        pass
