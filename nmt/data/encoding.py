"""A split of the data from its sources to its file: encoded, filtered, counted, a batch of pairs at a time.

Memory does not grow with the training data, the filter's digests excepted; of dev and test it holds the source side.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nmt.data.alignments import PieceLinks
from nmt.data.corpus import FIRST_LINES, PairFilter, PairSource
from nmt.data.sources import Pair
from nmt.data.store import CorpusWriter, Rows
from nmt.data.tokenizer import UNK, Tokenizers
from nmt.reporting import Reporter

BATCH_PAIRS = 10_000


class Stopwatch:
    """Seconds that went into each part of the work: `with watch("writing"): ...`."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._spent: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Add the time of the block to that part."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._spent[part] = self._spent.get(part, 0.0) + time.perf_counter() - started

    def report(self) -> dict[str, float]:
        """Return the seconds of each part, and those since the beginning as `total`."""
        seconds = self._spent | {"total": time.perf_counter() - self._started}
        return {part: round(spent, 2) for part, spent in seconds.items()}


@dataclass
class HeldOut:
    """The source sentences of a dev or test set, and which of them training has as well."""

    sentences: list[str] = field(default_factory=list)  # in order; blank ones too, though they cannot leak
    distinct: set[str] = field(default_factory=set)
    in_training: set[str] = field(default_factory=set)

    def add(self, lines: Sequence[str]) -> None:
        """Append sentences."""
        self.sentences += lines
        self.distinct.update(line for line in lines if line.strip())

    def compare(self, lines: Iterable[str]) -> None:
        """Note which of the sentences are among these of the training data."""
        self.in_training |= self.distinct.intersection(lines)

    def overlap(self) -> dict[str, Any]:
        """Return how many of the sentences training has, and where the first ones stand."""
        lines = [number for number, line in enumerate(self.sentences, 1) if line in self.in_training]
        return {"sentences": len(lines), "of": len(self.sentences), "first": lines[:FIRST_LINES]}


@dataclass
class PieceCounts:
    """Pieces a sentence, of one side."""

    sentences: int = 0
    pieces: int = 0
    unknown: int = 0
    longest: int = 0

    def add(self, rows: Rows) -> None:
        """Count encoded sentences."""
        self.sentences += len(rows)
        self.pieces += len(rows.values)
        self.unknown += int(np.count_nonzero(rows.values == UNK))
        self.longest = max(self.longest, int(rows.lengths.max(initial=0)))

    def report(self) -> dict[str, Any]:
        """Return the figures."""
        return {
            "pieces": self.pieces,
            "mean": round(self.pieces / max(self.sentences, 1), 2),
            "max": self.longest,
            "unknown": self.unknown,
            "unknown_rate": round(self.unknown / max(self.pieces, 1), 6),
        }


@dataclass(frozen=True)
class _Encoded:
    """A batch of pairs: texts and their ids, side by side."""

    src: Sequence[str]
    tgt: Sequence[str]
    src_ids: Rows
    tgt_ids: Rows

    def select(self, chosen: Any) -> _Encoded:
        """Return the pairs where `chosen`, [pairs], is true."""
        if chosen.all():
            return self
        wanted = chosen.tolist()
        src, tgt = (list(itertools.compress(texts, wanted)) for texts in (self.src, self.tgt))
        return _Encoded(src, tgt, self.src_ids.select(chosen), self.tgt_ids.select(chosen))


class SplitEncoder:
    """Encodes one split into its file, batch by batch."""

    def __init__(
        self,
        split: str,
        sources: Sequence[PairSource],
        tokenizers: Tokenizers,
        total: int,
        reporter: Reporter,
        watch: Stopwatch,
    ) -> None:
        """Take what `write` works with; `total` is the number of pairs, for the progress display."""
        self.split = split
        self.sources = sources
        self.tokenizers = tokenizers
        self.total = total
        self.reporter = reporter
        self.watch = watch

    def write(
        self,
        path: Path,
        *,
        pair_filter: PairFilter | None = None,
        links: PieceLinks | None = None,
        held_out: HeldOut | None = None,
        compare: dict[str, HeldOut] | None = None,
    ) -> dict[str, Any]:
        """Write the file; return the split's part of the report.

        Args:
            path: the file.
            pair_filter: decides what is kept; without one everything is.
            links: the alignments of the pairs, only together with a filter; those of kept pairs go into the file.
            held_out: gets the source sentences.
            compare: dev and test; the kept source sentences that are in them are noted there.
        """
        counts = {"src": PieceCounts(), "tgt": PieceCounts()}
        read = kept = blank = 0
        with CorpusWriter(path, links=links is not None) as writer:
            for source, first_line, pairs in self._numbered():
                with self.watch("encoding"):
                    batch = self._encoded(pairs)
                read += len(pairs)
                pieces: Rows | None = None
                if pair_filter is not None:
                    with self.watch("filtering"):
                        lengths = batch.src_ids.lengths, batch.tgt_ids.lengths
                        chosen = pair_filter.choose(batch.src, batch.tgt, *lengths, source.label, first_line)
                        batch = batch.select(chosen)
                    if links is not None:
                        with self.watch("aligning"):
                            pieces = Rows.of(links.read(pairs, chosen.tolist()))
                with self.watch("writing"):
                    writer.write(batch.src_ids, batch.tgt_ids, batch.src, batch.tgt, pieces)
                with self.watch("comparing"):
                    counts["src"].add(batch.src_ids)
                    counts["tgt"].add(batch.tgt_ids)
                    blank += int(np.count_nonzero(np.minimum(batch.src_ids.lengths, batch.tgt_ids.lengths) == 0))
                    if held_out is not None:
                        held_out.add(batch.src)
                    for sentences in (compare or {}).values():
                        sentences.compare(batch.src)
                kept += len(batch.src)
                self.reporter.progress(f"Encoding {self.split}", read, self.total)
        if links is not None:
            links.finish(read)
        report = {
            "sources": [source.label for source in self.sources],
            "unit": "line" if all(source.unit == "line" for source in self.sources) else "row",
            "read": read,
            "kept": kept,
            "dropped": _drops_report(pair_filter),
            "blank": blank,
            "line_breaks_folded": sum(source.folded for source in self.sources),
            **{side: count.report() for side, count in counts.items()},
        }
        return report if links is None else report | {"alignments": links.report()}

    def _encoded(self, pairs: Sequence[Pair]) -> _Encoded:
        src, tgt = zip(*pairs)
        src_ids, tgt_ids = Rows.of(self.tokenizers.src.encode(src)), Rows.of(self.tokenizers.tgt.encode(tgt))
        return _Encoded(src, tgt, src_ids, tgt_ids)

    def _numbered(self) -> Iterator[tuple[PairSource, int, list[Pair]]]:
        """Yield batches with their source and the number of their first line in it."""
        for source in self.sources:
            line = 1
            rest = batches(source)
            while True:
                with self.watch("reading"):
                    batch = next(rest, None)
                if batch is None:
                    break
                yield source, line, batch
                line += len(batch)


def batches(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Yield the pairs in lists of BATCH_PAIRS, the last one shorter."""
    iterator = iter(pairs)
    while batch := list(itertools.islice(iterator, BATCH_PAIRS)):
        yield batch


def _drops_report(pair_filter: PairFilter | None) -> dict[str, Any]:
    drops = pair_filter.dropped if pair_filter is not None else {}
    return {
        reason: {"count": d.count, "first": [{"source": label, "line": line} for label, line in d.first]}
        for reason, d in drops.items()
    }
