"""How long work tells what it is doing, without knowing whether anyone is looking."""

from __future__ import annotations

from typing import Protocol


class Reporter(Protocol):
    """Where commands send what is not their result. The command line's goes to stderr."""

    def info(self, text: str) -> None:
        """Say something of interest, one line or several."""

    def warning(self, text: str) -> None:
        """Say that something was not done as asked, or looks wrong."""

    def progress(self, task: str, done: float, total: float | None, note: str = "") -> None:
        """Update the bar called `task`.

        `done` and `total` share a unit of the caller's choice; `total` is None when it is not known. The first call
        opens the bar, and one with `done >= total` ends it. `note` is shown beside it.
        """

    def live(self) -> bool:
        """Return True where `progress` moves a bar (a terminal), False where only plain lines are written."""
        ...


class SilentReporter:
    """A reporter that says nothing, for tests and for callers that use the package as a library."""

    def info(self, text: str) -> None:
        """Say nothing."""

    def warning(self, text: str) -> None:
        """Say nothing."""

    def progress(self, task: str, done: float, total: float | None, note: str = "") -> None:
        """Show nothing."""

    def live(self) -> bool:
        """Return False: nobody is looking."""
        return False


def too_long(lines: int) -> str:
    """Return the warning for lines that were cut."""
    return f"{lines} line{'s were' if lines > 1 else ' was'} too long: only the beginning was translated."
