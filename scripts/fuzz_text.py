"""Fuzzes everything that reads text: any bytes give a clear error, or exactly as many lines as went in, in order.

    python scripts/fuzz_text.py --cases 20000 --seed 1 --json fuzz.json
    python scripts/fuzz_text.py --seed 1 --case 1234

Each case draws bytes (scripts/fuzz_inputs.py) and gives them to one reader or one command, in this process: the five
kinds of local sources; `nmt translate` from a file, from stdin and from arguments, in its three formats; `nmt eval`
with files; `nmt align` with and without gold links; `nmt attention`; preparing. The model is a real one of a few
units that has learnt nothing and whose pieces fall back to bytes, so that its translations hold anything at all.

A silent failure is a result where an error must come, or other lines than those that the input has; a false error is
an error for good input; a crash is any exception but NmtError. Prints JSON; ends with 1 if there is any of them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import fuzz_checks as checks
import torch
from fuzz_checks import Check, FalseError, Silent, Workplace

import nmt.evaluate
import nmt.evaluation

SHARES: dict[Check, int] = {
    checks.text_source: 12,
    checks.tsv_source: 8,
    checks.jsonl_source: 12,
    checks.csv_source: 14,
    checks.parquet_source: 8,
    checks.translate: 20,
    checks.evaluate: 6,
    checks.align: 8,
    checks.attention: 3,
    checks.preparing: 1,
}
_DEAL = list(chain.from_iterable([check] * share for check, share in SHARES.items()))


@dataclass
class Report:
    """What happened, by check; `failures` has every case that went wrong."""

    cases: int = 0
    checks: dict[str, Counter[str]] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    silent_failures: int = 0
    false_errors: int = 0
    crashes: int = 0
    failures: list[dict[str, Any]] = field(default_factory=list)

    def run(self, check: Check, rng: Random, place: Workplace, case: int) -> None:
        """Runs one case."""
        self.cases += 1
        counts = self.checks.setdefault(check.__name__, Counter())
        counts["cases"] += 1
        try:
            outcome = check(rng, place)
        except Silent as problem:
            self.silent_failures += 1
            self._note(check, case, f"silent: {problem}")
        except FalseError as problem:
            self.false_errors += 1
            self._note(check, case, f"false error: {problem}")
        except Exception as problem:
            self.crashes += 1
            self._note(check, case, f"crash: {type(problem).__name__}: {problem}")
        else:
            is_result = outcome in ("pairs", "text", "tsv", "jsonl", "scores", "links", "page", "prepared")
            counts["results" if is_result else "errors"] += 1
            if not is_result:
                self.errors[outcome] += 1

    def _note(self, check: Check, case: int, what: str) -> None:
        self.failures.append({"case": case, "check": check.__name__, "what": what[:1000]})


def without_pictures(replace: Callable[[object, str, object], None] = setattr) -> None:
    """Leaves out what takes most of an evaluation's time and reads no text: the pictures and the resamples."""
    replace(nmt.evaluate, "plot_by_length", lambda curves, path: path.write_bytes(b""))
    replace(nmt.evaluation, "frequency_picture", lambda rows: b"")
    replace(nmt.evaluate, "RESAMPLES", 2)


def main(args: Sequence[str] | None = None) -> None:
    """Runs the cases and prints the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first case [0]")
    parser.add_argument("--seconds", type=float, metavar="S", help="begin no case after so many seconds [no limit]")
    parser.add_argument("--case", type=int, metavar="N", help="run this case alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report here as well")
    options = parser.parse_args(args)
    without_pictures()
    torch.set_num_threads(1)
    numbers = [options.case] if options.case is not None else range(options.first, options.first + options.cases)
    report, start = Report(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        place = Workplace.make(Path(folder))
        for number in numbers:
            if options.seconds is not None and time.perf_counter() - start > options.seconds:
                break
            rng = Random(f"{options.seed}/{number}")
            report.run(rng.choice(_DEAL), rng, place, number)
    content = {"seed": options.seed, "first": options.first, "seconds": round(time.perf_counter() - start, 1)}
    text = json.dumps(content | vars(report), indent=2, ensure_ascii=True)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    sys.exit(1 if report.failures else 0)


if __name__ == "__main__":
    main()
