"""`nmt average`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli.app import app
from nmt.cli.options import RunOption, named_path, open_run, written_path

LastOption = Annotated[int | None, typer.Option("--last", min=2, metavar="N", help="The N newest that the run keeps.")]
BestOption = Annotated[
    int | None, typer.Option("--best", min=2, metavar="N", help="The N with the best BLEU on dev, of those kept.")
]
NamedOption = Annotated[
    list[Path] | None,
    typer.Option("--checkpoint", parser=named_path, metavar="FILE", help="One of those to average. Repeatable."),
]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--output", parser=written_path, metavar="FILE", help="Write here. [default: the run's checkpoints/average.pt]"
    ),
]


@app.command(short_help="Average the weights of several checkpoints.")
def average(
    run: RunOption = None,
    last: LastOption = None,
    best: BestOption = None,
    checkpoint: NamedOption = None,
    output: FileOption = None,
) -> None:
    """Average the weights of checkpoints of a run: all that it keeps, its newest, its best, or those that are named.

    \b
    nmt average
    nmt average --run runs/en-de --best 3
    nmt average --checkpoint runs/en-de/checkpoints/step_009000.pt --checkpoint runs/en-de/checkpoints/best.pt
    nmt translate --checkpoint runs/en-de/checkpoints/average.pt

    The average translates and is scored like any checkpoint (nmt eval --checkpoint FILE); training does not go on from
    it. A run keeps training.keep_checkpoints of its checkpoints, by default three. The file's name goes to stdout.
    """
    if sum(given is not None and given != [] for given in (last, best, checkpoint)) > 1:
        raise typer.BadParameter("give one of --last, --best and --checkpoint.", param_hint="'--last'")
    opened = open_run(run)  # before the heavy imports: a wrong name is told at once
    from nmt.average import average_checkpoints
    from nmt.console import ConsoleReporter

    with ConsoleReporter() as reporter:
        averaged = average_checkpoints(
            opened, reporter, checkpoints=checkpoint or (), last=last, best=best, output=output
        )
        pairs = zip(averaged.checkpoints, averaged.steps, strict=True)
        names = ", ".join(f"{path.name} (step {step:,})" for path, step in pairs)
        reporter.info(f"averaged {len(averaged.steps)} checkpoints: {names}")
    print(averaged.path)
