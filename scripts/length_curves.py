"""Draws BLEU against source length for several runs in one plot, from what `nmt eval` wrote.

python scripts/length_curves.py runs/bahdanau runs/luong runs/seq2seq --out curves.png
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from nmt.plotting import LengthRow, plot_by_length


def read_rows(run: Path, split: str) -> list[LengthRow]:
    """The rows of a run's eval/SPLIT_by_length.csv."""
    with (run / "eval" / f"{split}_by_length.csv").open(encoding="utf-8", newline="") as stream:
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


def main() -> None:
    """Parses the command line, draws, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--out", type=Path, default=Path("length_curves.png"))
    args = parser.parse_args()
    curves = {run.resolve().name: read_rows(run, args.split) for run in args.runs}
    plot_by_length(curves, args.out)
    print("| words | " + " | ".join(curves) + " |")
    print("| --- |" + " ---: |" * len(curves))
    for rows in zip(*curves.values(), strict=True):
        print(f"| {rows[0].label} | " + " | ".join(f"{row.bleu:.1f}" for row in rows) + " |")


if __name__ == "__main__":
    main()
