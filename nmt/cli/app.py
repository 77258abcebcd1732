"""The Typer application that the commands register with."""

from __future__ import annotations

from typing import Annotated

import typer

from nmt import __version__
from nmt.failures import Commands

app = typer.Typer(
    name="nmt",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"nmt {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train recurrent translation models with attention, translate with them, and see how they do.

    \b
    nmt train --config bahdanau.yaml    train on the demo corpus, about five minutes
    nmt translate "The old dog sleeps." translate with the newest run
    nmt eval                            BLEU, chrF and TER of its test set, and BLEU by length

    Each command explains itself: nmt train --help.
    """
