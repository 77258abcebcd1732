"""A split of the data from its sources to its file: encoded, filtered, counted, a batch of pairs at a time.

Memory does not grow with the training data, the filter's digests excepted; of dev and test it holds digests too.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmt.data.alignments import PieceLinks
from nmt.data.corpus import Drops, MadePairs, PairFilter, PairSource
from nmt.data.counts import Checksum, PieceCounts, UnknownCharacters, histogram
from nmt.data.overlap import Overlap
from nmt.data.sources import Pair
from nmt.data.store import CorpusWriter, Rows
from nmt.data.tokenizer import Tokenizers
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
class _Encoded:
    """A batch of pairs: texts and their ids, side by side, and the links between their pieces."""

    src: Sequence[str]
    tgt: Sequence[str]
    src_ids: Rows
    tgt_ids: Rows
    links: Rows | None = None

    def select(self, chosen: Any) -> _Encoded:
        """Return the pairs where `chosen`, [pairs], is true."""
        if chosen.all():
            return self
        wanted = chosen.tolist()
        src, tgt = (list(itertools.compress(texts, wanted)) for texts in (self.src, self.tgt))
        return _Encoded(src, tgt, self.src_ids.select(chosen), self.tgt_ids.select(chosen))


class _Books:
    """What is counted of the pairs that are written."""

    def __init__(self, tokenizers: Tokenizers, unknown_characters: bool) -> None:
        self.kept = self.blank = 0
        self.pieces = {"src": PieceCounts(), "tgt": PieceCounts()}
        self.characters: dict[str, UnknownCharacters] = {}
        if unknown_characters:
            self.characters = {"src": UnknownCharacters(tokenizers.src), "tgt": UnknownCharacters(tokenizers.tgt)}
        self.checksum = Checksum()

    def add(self, batch: _Encoded, *, made: bool) -> None:
        """Count the pairs of a batch, made by substitutions or real ones."""
        self.kept += len(batch.src)
        self.blank += int(np.count_nonzero(np.minimum(batch.src_ids.lengths, batch.tgt_ids.lengths) == 0))
        for side, rows, texts in (("src", batch.src_ids, batch.src), ("tgt", batch.tgt_ids, batch.tgt)):
            self.pieces[side].add(rows, made=made)
            if self.characters:
                self.characters[side].add(texts, rows)
        self.checksum.add(batch.src, batch.tgt, batch.links)

    def report(self) -> dict[str, Any]:
        """Return the figures."""
        sides = {side: counts.report() for side, counts in self.pieces.items()}
        for side, characters in self.characters.items():
            sides[side] |= characters.report()
        for side in sides:
            sides[side]["checksum"] = self.checksum.of_side(side)
        return {
            "kept": self.kept,
            "blank": self.blank,
            **sides,
            "lengths": histogram(self.pieces),
            "checksum": self.checksum.report(),
        }


class SplitEncoder:
    """Encodes one split into its file, batch by batch."""

    def __init__(
        self,
        split: str,
        sources: Sequence[PairSource | MadePairs],
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
        overlap: Overlap | None = None,
    ) -> dict[str, Any]:
        """Write the file; return the split's part of the report.

        Args:
            path: the file.
            pair_filter: decides what is kept; without one everything is.
            links: the alignments of the pairs, only together with a filter; those of kept pairs go into the file.
            overlap: gets the pairs of dev or test, to be looked for in training.
        """
        books = _Books(self.tokenizers, unknown_characters=pair_filter is None)
        read = 0
        kept = dict.fromkeys(map(id, self.sources), 0)  # the same corpus may be several sources
        with CorpusWriter(path, links=links is not None) as writer:
            for source, first_line, pairs in self._numbered():
                with self.watch("encoding"):
                    batch = self._encoded(pairs)
                read += len(pairs)
                if pair_filter is not None:
                    with self.watch("filtering"):
                        lengths = batch.src_ids.lengths, batch.tgt_ids.lengths
                        chosen = pair_filter.choose(batch.src, batch.tgt, *lengths, source.label, first_line)
                        batch = batch.select(chosen)
                    if links is not None:
                        with self.watch("aligning"):
                            batch.links = Rows.of(links.read(pairs, chosen.tolist()))
                with self.watch("writing"):
                    writer.write(batch.src_ids, batch.tgt_ids, batch.src, batch.tgt, batch.links)
                kept[id(source)] += len(batch.src)
                with self.watch("comparing"):
                    books.add(batch, made=isinstance(source, MadePairs))
                    if overlap is not None:
                        overlap.add(self.split, batch.src, batch.tgt)
                self.reporter.progress(f"Encoding {self.split}", read, self.total)
        if links is not None:
            links.finish(read)
        report = {
            "sources": [source.label for source in self.sources],
            "kept_of_each": list(kept.values()),
            "unit": "row" if any(source.unit == "row" for source in self.sources) else "line",
            "read": read,
            **_filter_report(pair_filter),
            "line_breaks_folded": sum(source.folded for source in self.sources),
            **books.report(),
        }
        return report if links is None else report | {"alignments": links.report()}

    def _encoded(self, pairs: Sequence[Pair]) -> _Encoded:
        src, tgt = zip(*pairs)
        src_ids, tgt_ids = Rows.of(self.tokenizers.src.encode(src)), Rows.of(self.tokenizers.tgt.encode(tgt))
        return _Encoded(src, tgt, src_ids, tgt_ids)

    def _numbered(self) -> Iterator[tuple[PairSource | MadePairs, int, list[Pair]]]:
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


def _filter_report(pair_filter: PairFilter | None) -> dict[str, Any]:
    if pair_filter is None:
        return {"dropped": {}}
    return {
        "limits": {"max_length": pair_filter.max_length, "max_ratio": pair_filter.max_ratio},
        "dropped": {reason: _drops_report(drops) for reason, drops in pair_filter.dropped.items()},
        "repeated": _drops_report(pair_filter.repeated) | {"share": round(pair_filter.repeated_share(), 6)},
    }


def _drops_report(drops: Drops) -> dict[str, Any]:
    return {"count": drops.count, "first": [{"source": label, "line": line} for label, line in drops.first]}
