"""`nmt export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli.app import app
from nmt.cli.options import CheckpointOption, RunOption, named_path, open_run, refuse_run_files


@app.command(short_help="Write a model that translates without torch (ONNX), with a model card.")
def export(
    run: RunOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            parser=named_path,
            metavar="DIR",
            help="A new folder. [default: exports/ and the run's name, -int8 after it with --int8]",
        ),
    ] = None,
    checkpoint: CheckpointOption = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="In 8 bits: smaller and faster, the translations almost the same.")
    ] = False,
    licence: Annotated[
        str | None, typer.Option("--license", metavar="NAME", help="Licence for the model card, such as cc-by-4.0.")
    ] = None,
) -> None:
    """Write the model of a run as one folder: ONNX graphs, SentencePiece models, settings, README.md (the model card).

    \b
    nmt export --run runs/bahdanau
    nmt export --run runs/bahdanau --int8 --license cc-by-4.0 --output small
    nmt translate --model small "The old dog sleeps."

    It runs with ONNX Runtime on a CPU, without torch. To export takes three packages more than to train:
    pip install onnx onnxruntime onnxscript.
    """
    if licence is not None and not (licence.strip() and licence.isprintable()):
        raise typer.BadParameter("the name is empty or has control characters.", param_hint="'--license'")
    opened = open_run(run)  # before the heavy imports: a wrong name is told at once
    from nmt.console import ConsoleReporter
    from nmt.export import export_run

    folder = output or Path("exports") / (opened.name + ("-int8" if int8 else ""))
    refuse_run_files({"--output": folder}, opened)
    with ConsoleReporter() as reporter:
        export_run(opened, folder, reporter, checkpoint=checkpoint, int8=int8, licence=licence)
    print(folder)
