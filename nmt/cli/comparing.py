"""`nmt compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli.app import app
from nmt.cli.options import (
    BatchOption,
    DeviceOption,
    SplitOption,
    SrcOption,
    TgtOption,
    named_path,
    refuse_overwriting,
    refuse_run_files,
    written_path,
)


def _picture(text: object) -> Path:
    """Return the path of a PNG, or refuse one of another kind."""
    path = written_path(text)
    if path.suffix.lower() != ".png":
        raise typer.BadParameter(f"{str(path)!r} does not end in .png.")
    return path


RunsArgument = Annotated[
    list[Path],
    typer.Argument(parser=named_path, metavar="RUN RUN…", help="Folders of runs; the first is the baseline."),
]
PlotOption = Annotated[
    Path,
    typer.Option(
        "--plot",
        parser=_picture,
        metavar="FILE.png",
        help="Write the length curves of all runs here, over what is there.",
    ),
]
JsonOption = Annotated[
    Path | None,
    typer.Option("--json", parser=written_path, metavar="FILE", help="Write everything here, for programs."),
]
HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", parser=written_path, metavar="FILE", help="Write a report here, the plot inside."),
]
ResamplesOption = Annotated[
    int, typer.Option("--resamples", min=2, max=10_000, metavar="N", help="Resamples of the paired bootstrap.")
]
TrialsOption = Annotated[
    int, typer.Option("--trials", min=1, max=100_000, metavar="N", help="Trials of approximate randomisation.")
]
SentencesOption = Annotated[
    int, typer.Option("--sentences", min=0, metavar="N", help="Sentences listed that gained most, and that lost most.")
]


@app.command(short_help="Compare runs on one test set: paired tests, length curves, changed sentences.")
def compare(
    runs: RunsArgument,
    split: SplitOption = None,
    src: SrcOption = None,
    tgt: TgtOption = None,
    plot: PlotOption = Path("compare.png"),
    as_json: JsonOption = None,
    html: HtmlOption = None,
    sentences: SentencesOption = 5,
    resamples: ResamplesOption = 1000,
    trials: TrialsOption = 10_000,
    batch_tokens: BatchOption = 4096,
    device: DeviceOption = "auto",
) -> None:
    """Compare runs with the first of them on one test set: is a difference more than chance?

    \b
    nmt compare runs/bahdanau runs/luong
    nmt compare runs/old runs/new --split dev --json new.json --html new.html
    nmt compare runs/a runs/b runs/c --src news.en --tgt news.de

    Each run is scored by its best checkpoint and its own search settings, with the metrics of the first run. The tests
    are sacreBLEU's: a p-value is the probability of a difference as large if the two systems were equally good. Its
    bootstrap counts one direction alone, and has about half of the p-value of randomisation, which counts both: judge
    by the latter, or by whether the interval of the difference has 0 in it. Neither knows of seeds: train several.
    """
    if len(runs) < 2:
        raise typer.BadParameter("a comparison needs two runs or more.", param_hint="'RUN RUN…'")
    if (src is None) != (tgt is None):
        raise typer.BadParameter("--src and --tgt go together.", param_hint="'--src'")
    if src is not None and split is not None:
        raise typer.BadParameter("give either --split or --src and --tgt.", param_hint="'--split'")
    from nmt.run_dir import RunDir

    opened = [RunDir.open(run) for run in runs]  # before the heavy imports: a wrong name is told at once
    outputs = {"--plot": plot, "--json": as_json, "--html": html}
    refuse_overwriting(outputs, {"--src": src, "--tgt": tgt})
    refuse_run_files(outputs, *opened)
    from nmt.compare import compare_runs, refuse_unwritable_results, write_comparison
    from nmt.console import ConsoleReporter, show_comparison

    refuse_unwritable_results(*outputs.values())
    with ConsoleReporter() as reporter:
        comparison = compare_runs(
            opened,
            reporter,
            split="test" if split is None else split,
            src=src,
            tgt=tgt,
            device=device,
            batch_tokens=batch_tokens,
            resamples=resamples,
            trials=trials,
            changed=sentences,
        )
        write_comparison(comparison, plot, as_json, html)
        written = ", ".join(str(path) for path in outputs.values() if path is not None)
        reporter.info(f"written: {written}")
    show_comparison(comparison)
