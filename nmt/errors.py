"""The one exception for what a user can mend, what the machine's own failures look like, and text fit for messages."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_FULL = frozenset({errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
# C0 but for tab and line feed, DEL, C1, the marks that turn the direction of a line, and what is no character.
_DRIVES_TERMINALS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class NmtError(Exception):
    """Something the user can fix.

    `str(error)` is the whole message: what is wrong, where, and what to do. The command line prints it without a
    traceback and exits with 1; every other exception is a defect of this package.
    """


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether memory was asked for and not given, by Python, NumPy, or torch on a CPU or a GPU."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    # torch has a class of its own for GPUs alone.
    text = str(error)
    return isinstance(error, RuntimeError) and ("allocate memory" in text or "not enough memory" in text)


@contextmanager
def out_of_memory_told(what: Callable[[], str]) -> Iterator[None]:
    """Turn a lack of memory within the block into a message that says for `what`.

    Raises:
        NmtError: "out of memory " and `what()`, which should end with what to do.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise NmtError(f"out of memory {what()}") from error


def is_full(error: OSError) -> bool:
    """Tell whether there was no room: on a disk, in a quota, or in the largest file that is allowed."""
    return error.errno in _FULL


class UnwritableError(NmtError):
    """A file that could not be written: `what` is the file and the reason, `remedy` what to free or to make writable.

    Its message says to write elsewhere as well. A training that has begun cannot do that, and says with `then` how it
    goes on.
    """

    def __init__(self, what: str, remedy: str) -> None:
        """Make the message of the two, the remedy being empty where none is known."""
        super().__init__(f"{what}. {remedy}, or write elsewhere." if remedy else f"{what}.")
        self.what, self.remedy = what, remedy

    def then(self, how: str) -> NmtError:
        """Return the message that ends with what to do once the remedy has been applied."""
        return NmtError(f"{self.what}. {self.remedy or 'Mend that'}, and {how}")


def unwritable(
    path: str | os.PathLike[str], error: OSError, needed: int | None = None, what: str = "cannot be written"
) -> UnwritableError:
    """Return the message for a file that could not be written; `needed` bytes where that is known."""
    place, reason, remedy = os.fspath(path), error.strerror or str(error), ""
    if is_full(error):
        remedy = "Free space on that disk"
        special = os.path.exists(place) and not os.path.isfile(place) and not os.path.isdir(place)
        if error.errno == errno.ENOSPC and not special:
            reason += f" ({room(place, needed)})"
    elif error.errno in _FORBIDDEN:
        where = "that folder" if os.path.isdir(place) else f"{'that file and ' * os.path.isfile(place)}its folder"
        remedy = f"Make {where} writable"
    return UnwritableError(f"{place}: {what}: {reason}", remedy)


def room(path: str | os.PathLike[str], needed: int | None = None) -> str:
    """Return how many bytes are needed, where that is known, and how many are free on the disk of a path."""
    folder = os.path.abspath(path)
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    try:
        free = f"{_bytes(shutil.disk_usage(folder).free)} are free"
    except OSError:
        free = "nobody knows how much is free"
    return free if needed is None else f"about {_bytes(needed)} are needed, {free}"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count} bytes"


def printable(text: str) -> str:
    """Return a text with its control characters spelt out, such as `\\x1b`; tabs and line feeds stay.

    Messages quote names and values from files, and those must not clear the screen, retitle the window or hide a part
    of the line. What a command writes as its result is not changed.
    """
    return _DRIVES_TERMINALS.sub(lambda found: ascii(found[0])[1:-1], text)
