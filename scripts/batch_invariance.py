"""Whether a sentence's translation depends on its batch: each line alone, and among 64.

    python scripts/batch_invariance.py --run runs/bahdanau
    python scripts/batch_invariance.py --run runs/bahdanau --src news.en --lines 1000 --beams 1 5 --precisions int8

Translated are the sources of the run's test split, or --src. The lines of a batch of 64 follow each other in the file,
so that short ones are padded to the longest. A difference is another hypothesis whose score is not within 1e-4 of the
first one's: sums of other sizes are rounded otherwise, and may decide between hypotheses that are equal to the last
digits. Those are counted as ties.

Prints JSON, and ends with 1 if there is a difference.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path

import torch

from nmt.config import search_with
from nmt.data.pairs import read_split
from nmt.data.text import read_lines
from nmt.errors import NmtError
from nmt.run_dir import RunDir
from nmt.translate import Translation, Translator

TOLERANCE = 1e-4
ALL_AT_ONCE = 1 << 40  # pieces a batch: no batch is cut


@dataclass(frozen=True)
class Difference:
    """A line, counted from 1, whose best hypothesis is another within a batch."""

    line: int
    alone: str
    batched: str
    alone_score: float
    batched_score: float


@dataclass
class Comparison:
    """What was found with one setting; `largest_score_difference` is over the lines with the same hypothesis."""

    beam: int
    precision: str
    batch: int
    lines: int = 0
    same: int = 0
    largest_score_difference: float = 0.0
    ties: list[Difference] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    def add(self, alone: Translation, batched: Translation) -> None:
        """Counts the next line."""
        self.lines += 1
        gap = abs(alone.score - batched.score)
        if _best(alone) == _best(batched):
            self.same += 1
            self.largest_score_difference = max(self.largest_score_difference, gap)
            return
        found = Difference(self.lines, alone.text, batched.text, alone.score, batched.score)
        (self.ties if gap < TOLERANCE else self.differences).append(found)


def _best(translation: Translation) -> tuple[tuple[str, ...], bool]:
    """The pieces, which say more than the text, and whether the length limit cut them."""
    return translation.candidates[0].pieces, translation.length_limited


def compare(translator: Translator, lines: Sequence[str], batch: int = 64) -> Comparison:
    """Translates each line by itself and in batches of `batch` lines."""
    found = Comparison(translator.search.beam_size, "int8" if translator.int8 else "float32", batch)
    for first in range(0, len(lines), batch):
        part = lines[first : first + batch]
        together = translator.translate(part, batch_tokens=ALL_AT_ONCE)
        for line, batched in zip(part, together, strict=True):
            found.add(translator.translate([line])[0], batched)
    return found


def parse(args: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, metavar="DIR")
    parser.add_argument("--src", type=Path, metavar="FILE", help="translate this file [the run's test split]")
    parser.add_argument("--lines", type=int, default=1000, metavar="N", help="of the rest, the first N lines [1000]")
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="leave out the first N lines [0]")
    parser.add_argument("--batch", type=int, default=64, metavar="N", help="lines a batch [64]")
    parser.add_argument("--beams", type=int, nargs="+", metavar="N", help="beam sizes; 1 is greedy [1 and the run's]")
    parser.add_argument("--precisions", nargs="+", choices=("float32", "int8"), default=["float32"])
    parser.add_argument("--device", default="cpu")
    return parser.parse_args(args)


def main(args: Sequence[str] | None = None) -> None:
    """Compares and prints."""
    options = parse(args)
    try:
        run = RunDir.open(options.run)
        config = run.settings()
        texts = read_lines(options.src) if options.src else iter([src for src, _ in read_split(config, "test")])
        lines = list(islice(texts, options.skip, options.skip + options.lines))
        found = []
        for precision in options.precisions:
            for beam in options.beams or sorted({1, config.search.beam_size}):
                search = search_with(config.search, {"beam_size": beam, "rerank": "none"})
                translator = Translator.load(run, device=options.device, search=search, int8=precision == "int8")
                found.append(compare(translator, lines, options.batch))
    except NmtError as error:
        sys.exit(f"error: {error}")
    content = {
        "run": str(run.path),
        "src": str(options.src or "test split"),
        "skip": options.skip,
        "torch": torch.__version__,
    }
    print(json.dumps(content | {"settings": [asdict(one) for one in found]}, indent=2, ensure_ascii=False))
    sys.exit(1 if any(one.differences for one in found) else 0)


if __name__ == "__main__":
    main()
