"""`nmt info`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from nmt.cli.app import app
from nmt.cli.options import RunOption, open_run


@app.command(short_help="Say what a run holds and how large its model is.")
def info(
    run: RunOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
) -> None:
    """Say what a run holds: its settings, how far it came, its scores, and the model's parameters by part.

    \b
    nmt info
    nmt info --run runs/luong --json
    """
    opened = open_run(run)  # before the heavy imports: a wrong name is told at once
    from nmt.console import show_run
    from nmt.info import describe

    described = describe(opened)
    if as_json:
        print(json.dumps(described.to_dict(), indent=2, ensure_ascii=False))
    else:
        show_run(described)
