"""The one exception for what a user can mend, and text of others made fit for messages."""

from __future__ import annotations

import re

# C0 but for tab and line feed, DEL, C1, the marks that turn the direction of a line, and what is no character.
_DRIVES_TERMINALS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class NmtError(Exception):
    """Something the user can fix.

    `str(error)` is the whole message: what is wrong, where, and what to do. The command line prints it without a
    traceback and exits with 1; every other exception is a defect of this package.
    """


def printable(text: str) -> str:
    """Return a text with its control characters spelt out, such as `\\x1b`; tabs and line feeds stay.

    Messages quote names and values from files, and those must not clear the screen, retitle the window or hide a part
    of the line. What a command writes as its result is not changed.
    """
    return _DRIVES_TERMINALS.sub(lambda found: ascii(found[0])[1:-1], text)
