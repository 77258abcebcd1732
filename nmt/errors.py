"""The one exception for what a user can mend."""

from __future__ import annotations


class NmtError(Exception):
    """Something the user can fix.

    `str(error)` is the whole message: what is wrong, where, and what to do. The command line prints it without a
    traceback and exits with 1; every other exception is a defect of this package.
    """
