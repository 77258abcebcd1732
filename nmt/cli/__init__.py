"""The command line: options, and what goes to stdout and stderr.

One module for each group of commands; what they share is in `options`. Heavy packages are imported inside the commands,
so that help and usage errors come at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from nmt.cli import (  # noqa: F401, they register their commands
    aligning,
    attending,
    averaging,
    comparing,
    exporting,
    inspecting,
    serving,
    training,
    translating,
)
from nmt.cli.app import app

__all__ = ["app", "main"]


def main(args: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code; `args` are the process' own by default."""
    if sys.stderr is None:  # closed by `2>&-`: `print` would write messages to stdout
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    app(args=args, prog_name="nmt")
