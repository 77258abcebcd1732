"""An exported model beside its run: sentences a second, BLEU, and how many translations differ.

    python scripts/bench_export.py --run runs/multi30k
    python scripts/bench_export.py --run runs/multi30k --beam 1 --lines 300 --threads 2 --json > export.json

The run is exported twice, in float32 and in int8, into a folder that is removed at the end. Then the run in float32,
the run with --int8 and both exported models translate the sources of the run's test split in turn, --repeats times,
after one round that is not counted. Loading is not counted; splitting into pieces, the search and putting the text
together are. Speeds are medians, with the slowest and the fastest round; "ratio" is the median over rounds of the
speed beside that of the run in float32 in the same round. BLEU is nmt's (sacreBLEU, the run's settings).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import torch

from nmt.config import search_with
from nmt.data.pairs import read_split
from nmt.errors import NmtError
from nmt.export import export_run
from nmt.exported import ExportedModel
from nmt.reporting import SilentReporter
from nmt.run_dir import RunDir
from nmt.scoring import validation_scores
from nmt.translate import Translator
from nmt.translations import LineTranslator


@dataclass(frozen=True)
class Row:
    """One way to translate. `differ` counts translations that are not those of the run in float32; `megabytes` of the
    exported folder, None for the run.
    """

    engine: str
    precision: str
    sentences_per_s: float
    slowest: float
    fastest: float
    ratio: float
    bleu: float
    differ: int
    megabytes: float | None


class Case:
    """A translator and its measurements."""

    def __init__(self, engine: str, precision: str, translator: LineTranslator, folder: Path | None = None) -> None:
        self.engine, self.precision, self.translator, self.folder = engine, precision, translator, folder
        self.seconds: list[float] = []
        self.texts: list[str] = []

    def measure(self, lines: list[str], batch_tokens: int) -> None:
        """Translates once."""
        start = time.perf_counter()
        found = self.translator.translate(lines, batch_tokens=batch_tokens)
        self.seconds.append(time.perf_counter() - start)
        self.texts = [one.text for one in found]

    def megabytes(self) -> float | None:
        """The size of the folder."""
        if self.folder is None:
            return None
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file()) / 1e6


def cases(run: RunDir, folder: Path, beam: int | None) -> list[Case]:
    """The four, loaded.

    Raises:
        NmtError: for a run that cannot be loaded or exported.
    """
    config = run.settings()
    search = config.search if beam is None else search_with(config.search, {"beam_size": beam})
    found = [
        Case("torch", "int8" if int8 else "float32", Translator.load(run, device="cpu", search=search, int8=int8))
        for int8 in (False, True)
    ]
    for precision in ("float32", "int8"):
        path = export_run(run, folder / precision, SilentReporter(), int8=precision == "int8")
        found.append(Case("onnx", precision, ExportedModel.open(path).translator(search), path))
    return found


def rows(found: Sequence[Case], lines: int, bleu: Sequence[float]) -> list[Row]:
    """The table; the first case is what the others are compared with."""
    first = found[0]
    table = []
    for case, score in zip(found, bleu, strict=True):
        speeds = [lines / seconds for seconds in case.seconds]
        ratio = statistics.median(ours / own for ours, own in zip(first.seconds, case.seconds, strict=True))
        differ = sum(text != other for text, other in zip(case.texts, first.texts, strict=True))
        table.append(
            Row(
                case.engine, case.precision, statistics.median(speeds), min(speeds), max(speeds), ratio, score, differ,
                case.megabytes(),
            )
        )  # fmt: skip
    return table


def parse(args: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="folder of a trained run")
    parser.add_argument("--lines", type=int, help="how many lines of the test split; all by default")
    parser.add_argument("--beam", type=int, help="beam size; the run's by default")
    parser.add_argument("--batch-tokens", type=int, default=4096, help="source pieces of a batch, with padding")
    parser.add_argument("--repeats", type=int, default=5, help="rounds that are timed")
    parser.add_argument("--threads", type=int, help="of both engines; by default OMP_NUM_THREADS or all cores")
    parser.add_argument("--json", action="store_true", help="a JSON list on standard output instead of a table")
    options = parser.parse_args(args)
    counts = [options.repeats, options.batch_tokens, options.lines, options.beam, options.threads]
    if min(count for count in counts if count is not None) < 1:
        parser.error("all sizes and counts must be at least 1")
    return options


def main(args: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    options = parse(args)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
        os.environ["OMP_NUM_THREADS"] = str(options.threads)  # what an exported model goes by
    try:
        run = RunDir.open(options.run)
        config = run.settings()
        pairs = list(islice(read_split(config, "test"), options.lines))
        lines, references = [src for src, _ in pairs], [tgt for _, tgt in pairs]
        with tempfile.TemporaryDirectory() as folder:
            found = cases(run, Path(folder), options.beam)
            for number in range(options.repeats + 1):
                print(f"{number}/{options.repeats}", file=sys.stderr, flush=True)
                for case in found:
                    case.measure(lines, options.batch_tokens)
                if number == 0:
                    for case in found:
                        case.seconds.clear()
            settings = {"tgt_lang": config.data.tgt_lang, "bleu_tokenize": config.evaluation.bleu_tokenize}
            bleu = [validation_scores(case.texts, references, **settings)["bleu"] for case in found]
            table = rows(found, len(lines), bleu)
    except NmtError as error:
        sys.exit(f"error: {error}")
    if options.json:
        print(json.dumps([asdict(row) for row in table], indent=2))
        return
    print("engine  precision  sentences/s  slowest to fastest  ratio   BLEU  differ      MB")
    for row in table:
        spread = f"{row.slowest:.1f} to {row.fastest:.1f}"
        size = "" if row.megabytes is None else f"{row.megabytes:.1f}"
        print(
            f"{row.engine:>6}  {row.precision:>9}  {row.sentences_per_s:>11.1f}  {spread:>18}  {row.ratio:>5.2f}  "
            f"{row.bleu:>5.2f}  {row.differ:>6}  {size:>6}"
        )


if __name__ == "__main__":
    main()
