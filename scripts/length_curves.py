"""Draws BLEU against source length for several runs in one plot, from what `nmt eval` wrote.

python scripts/length_curves.py runs/bahdanau runs/luong runs/seq2seq --out curves.png
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from nmt.plotting import LengthRow, plot_by_length


def read_rows(run: Path, split: str) -> list[LengthRow]:
    """The rows of a run's eval/SPLIT_by_length.csv.

    Raises:
        SystemExit: when there is no such file.
    """
    file = run / "eval" / f"{split}_by_length.csv"
    if not file.is_file():
        raise SystemExit(f"{file}: there is no such file. Write it with: nmt eval --run {run} --split {split}")
    with file.open(encoding="utf-8", newline="") as stream:
        return [
            LengthRow(
                int(row["low"]),
                int(row["high"]) if row["high"] else None,
                int(row["sentences"]),
                float(row["bleu"]),
                float(row["chrf"]),
            )
            for row in csv.DictReader(stream)
        ]


def check_buckets(curves: Mapping[str, Sequence[LengthRow]]) -> None:
    """Refuses rows that do not belong side by side in one table.

    Raises:
        SystemExit: when two runs were scored with other length_buckets, or on other sentences.
    """
    (first, rows), *others = curves.items()
    buckets = [row.label for row in rows]
    for name, other in others:
        if (theirs := [row.label for row in other]) != buckets:
            raise SystemExit(
                f"{first} has the lengths {', '.join(buckets)}, and {name} has {', '.join(theirs)}: they were scored "
                "on other sentences or with other evaluation.length_buckets. Score them alike with nmt eval."
            )


def main(args: Sequence[str] | None = None) -> None:
    """Parses the command line (the process' own by default), draws, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--out", type=Path, default=Path("length_curves.png"))
    options = parser.parse_args(args)
    curves = {run.resolve().name: read_rows(run, options.split) for run in options.runs}
    if len(curves) < len(options.runs):
        parser.error("two of the runs have the same name, which is what the plot would call both")
    check_buckets(curves)
    plot_by_length(curves, options.out)
    print("| words | " + " | ".join(curves) + " |")
    print("| --- |" + " ---: |" * len(curves))
    for rows in zip(*curves.values(), strict=True):
        print(f"| {rows[0].label} | " + " | ".join(f"{row.bleu:.1f}" for row in rows) + " |")


if __name__ == "__main__":
    main()
