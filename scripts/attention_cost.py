"""Measures what attention costs in a decoder step and in a whole sentence, beside the operations that it takes.

python scripts/attention_cost.py --out attention_cost.png --json attention_cost.json

Tables go to stdout: a step of the search with its keys there already, and with keys projected in every step; a sentence
of as many steps as it has positions; the same in training, gradients included; operations of one hypothesis in
millions. Then the share that a predictive window costs of global attention, and the textbook example by which Luong's
attention is 20 times faster, as only its keys could be computed once a sentence.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from attention_timing import (
    BAR,
    KINDS,
    MOST,
    TEXTBOOK,
    Effort,
    Example,
    Row,
    Share,
    Sizes,
    measure,
    measure_bar,
    measure_example,
)

from nmt.plotting import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# --- what is written ----------------------------------------------------------------------------------------------

AXES = {"S": ("positions", "source positions"), "d": ("size", "size d"), "B": ("batch", "sentences")}


def table(rows: Sequence[Row]) -> str:
    """Markdown, a line a measurement, the operations in millions beside the milliseconds."""
    heads = ["S", "d", "B", "kind", "step ms", "M ops", "no keys ms", "M ops", "sentence ms", "M ops", "training ms"]
    lines = ["| " + " | ".join(heads) + " |", "| ---: | ---: | ---: | --- |" + " ---: |" * 7]
    for row in rows:
        cells = [str(row.positions), str(row.size), str(row.batch), row.kind]
        cells += [number(row.step_ms), millions(row.step_operations)]
        cells += [number(row.step_without_keys_ms), millions(row.step_without_keys_operations)]
        cells += [number(row.sentence_ms), millions(row.sentence_operations), number(row.training_ms)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def number(value: float | None) -> str:
    """Three digits, or a dash."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def millions(operations: int) -> str:
    """Operations in millions."""
    return number(operations / 1e6)


def bar_table(shares: Sequence[Share], bar: Sizes) -> str:
    """The share of each predictive step, and whether it is small enough."""
    lines = [
        f"One step of the search at S = {bar.positions}, B = {bar.batch}, d = {bar.size}, D = {bar.half_width}; "
        f"a predictive window may cost at most {MOST} of the whole sentence:",
        "",
        "| kind | beam | ms | global ms | ratio | |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for share in shares:
        verdict = "met" if share.ratio <= MOST else "not met"
        cells = [
            share.kind,
            str(share.beam),
            number(share.step_ms),
            number(share.global_ms),
            f"{share.ratio:.3f}",
            verdict,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def example_table(examples: Sequence[Example], sizes: Sizes) -> str:
    """What a step of the textbook example takes."""
    lines = [
        f"The textbook example: S = {sizes.positions}, d_s = d_h = {sizes.size}, d_a = {sizes.d_a}, B = {sizes.batch}:",
        "",
        "| a step | M ops | ms |",
        "| --- | ---: | ---: |",
    ]
    lines += [f"| {one.what} | {millions(one.operations)} | {number(one.step_ms)} |" for one in examples]
    return "\n".join(lines)


def draw(rows: Sequence[Row], path: Path) -> None:
    """Step times above, operations below, against S, d and B, a line a kind."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    sweeps = [sweep for sweep in AXES if any(row.sweep == sweep for row in rows)]
    figure = Figure(figsize=(4.6 * len(sweeps), 7.5), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, len(sweeps), squeeze=False, sharey="row")
    for column, sweep in enumerate(sweeps):
        members = [row for row in rows if row.sweep == sweep]
        draw_panel(panels[0][column], members, sweep, lambda row: row.step_ms)
        draw_panel(panels[1][column], members, sweep, lambda row: row.step_operations / 1e6)
        others = {"S": members[0].positions, "d": members[0].size, "B": members[0].batch}
        fixed = ", ".join(f"{name} = {value}" for name, value in others.items() if name != sweep)
        panels[0][column].set_title(f"against {sweep}; {fixed}", fontsize=10)
    panels[0][0].set_ylabel("one step of the batch, ms")
    panels[1][0].set_ylabel("operations of one hypothesis, millions")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    save_figure(figure, path)


def draw_panel(axes: Axes, rows: Sequence[Row], sweep: str, value: Callable[[Row], float]) -> None:
    """One panel; local kinds dashed, in the colour of their score."""
    field, label = AXES[sweep]
    colours = {"additive": "C0", "dot": "C2", "general": "C1"}
    styles = {None: "-", "monotonic": ":", "predictive": "--"}
    for name, kind in KINDS.items():
        members = [row for row in rows if row.kind == name]
        colour = "C3" if kind.coverage else colours[kind.score]
        places = [getattr(row, field) for row in members]
        axes.plot(places, [value(row) for row in members], styles[kind.window], color=colour, marker=".", label=name)
    ticks = sorted({getattr(row, field) for row in rows})
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel(label)
    axes.grid(alpha=0.3)


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """A line a measurement, full digits."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(asdict(rows[0])))
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


# --- the command --------------------------------------------------------------------------------------------------


def parse(args: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--positions", type=int, nargs="+", default=[25, 50, 100, 200, 400, 800], help="values of S")
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 256, 512, 1024], help="values of d")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16, 64], help="values of B")
    parser.add_argument("--half-width", type=int, default=10, help="D of the windows")
    parser.add_argument("--repeats", type=int, default=9, help="how often each is timed; the median counts")
    parser.add_argument(
        "--sentence-batch", type=int, default=4, help="sentences of a whole one's batch, 0: no whole ones"
    )
    parser.add_argument("--threads", type=int, help="of torch; its own choice by default")
    parser.add_argument("--no-sweeps", action="store_true", help="the last two tables alone")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    parser.add_argument("--out", type=Path, help="picture, PNG, SVG or PDF")
    parser.add_argument("--json", type=Path, help="everything, as JSON")
    parser.add_argument("--csv", type=Path, help="the sweeps, as CSV")
    options = parser.parse_args(args)
    for name in ("positions", "sizes", "batches"):
        setattr(options, name, sorted(set(getattr(options, name))))
    least = min(*options.positions, *options.sizes, *options.batches, options.half_width, options.repeats)
    if least < 1 or options.sentence_batch < 0:
        parser.error("all sizes and counts must be at least 1 (--sentence-batch may be 0)")
    if options.no_sweeps and (options.out or options.csv):
        parser.error("--out and --csv hold the sweeps, which --no-sweeps leaves out")
    return options


def main(args: Sequence[str] | None = None) -> None:
    """Measures, prints the tables, and writes what was asked for."""
    options = parse(args)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    effort = Effort(options.repeats, 0.02, options.sentence_batch)
    base, bar, example = Sizes(100, 512, 64, half_width=options.half_width), BAR, TEXTBOOK
    if options.quick:
        effort = Effort(2, 0.0, min(2, options.sentence_batch))
        base, bar, example = Sizes(12, 8, 4, half_width=2), Sizes(60, 16, 2), Sizes(10, 16, 2, attention_size=8)
        options.positions, options.sizes, options.batches = [6, 12, 24], [8, 16], [2, 4]
    points = [("S", replace(base, positions=value)) for value in options.positions]
    points += [("d", replace(base, size=value)) for value in options.sizes]
    points += [("B", replace(base, batch=value)) for value in options.batches]
    rows: list[Row] = []
    for place, (sweep, sizes) in enumerate([] if options.no_sweeps else points, 1):
        print(
            f"{place}/{len(points)}: S {sizes.positions}, d {sizes.size}, B {sizes.batch}", file=sys.stderr, flush=True
        )
        rows += measure(sweep, sizes, list(KINDS), effort)
    shares, examples = measure_bar(bar, effort), measure_example(example, effort)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, D = {base.half_width}\n")
    for sweep, (_, label) in AXES.items():
        if members := [row for row in rows if row.sweep == sweep]:
            print(f"Against {label}:\n\n{table(members)}\n")
    print(f"{bar_table(shares, bar)}\n\n{example_table(examples, example)}")
    if options.json:
        content = {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "half_width": base.half_width,
            "rows": [asdict(row) for row in rows],
            "bar": [{**asdict(share), "ratio": share.ratio, "met": share.ratio <= MOST} for share in shares],
            "example": [asdict(one) for one in examples],
        }
        options.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    if options.csv:
        write_csv(rows, options.csv)
    if options.out:
        draw(rows, options.out)


if __name__ == "__main__":
    main()
