"""Any source of the configuration as aligned pairs of lines, and which of them training leaves out."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nmt.config import Source
from nmt.data import sources
from nmt.data.digests import DigestSet, Mask, text_digests
from nmt.data.hub import HubData
from nmt.data.overlap import Overlap
from nmt.data.sources import Pair
from nmt.data.substitution import MOST_PAIRS, substitute
from nmt.data.text import file_stamp
from nmt.errors import NmtError

Reason = Literal["empty", "too long", "too uneven", "in dev or test", "duplicate"]
FIRST_LINES = 5
Refused = Callable[[Sequence[Pair]], Mask]
Lengths = npt.NDArray[np.int32]
Lines = npt.NDArray[np.int64]

_LINE_FEED = re.compile("\r?\n")


class PairSource:
    """The pairs of one SOURCE, each side one line. Iterate as often as needed; every pass reads from the start.

    JSON, CSV and hub data may have line feeds inside a text. A line is what everything after works with, so each one
    (with the carriage return before it) becomes a blank, and one at the very end is dropped; the pair stays.

    Attributes:
        label: the source as messages and the report name it.
        unit: what its pairs are numbered by, "line" or "row".
        is_remote: whether a connection may be needed.
        folded: pairs of the latest pass that had a line feed inside.
    """

    def __init__(self, source: Source, src_lang: str = "src", tgt_lang: str = "tgt") -> None:
        """Choose the reader; columns that the source does not name are called as the languages."""
        self.kind = source.kind
        self.folded = 0
        self.unit = "line" if self.kind in ("text", "tsv", "jsonl") else "row"
        wanted = (source.src_column or src_lang, source.tgt_column or tgt_lang)
        self._hub = HubData(source) if self.kind == "hub" else None
        self.is_remote = self._hub is not None and not self._hub.is_local
        self._files: list[str] = []
        self._read, self.label = self._reader(source, wanted)
        if source.src_column or source.tgt_column:
            self.label += f", {wanted[0]} to {wanted[1]}"

    def _reader(self, source: Source, wanted: Pair) -> tuple[sources.Reader, str]:
        """Return what opens a new pass over the raw pairs, and the source's label."""
        if self._hub is not None:
            hub = self._hub
            return lambda: hub.pairs(wanted), hub.label
        if self.kind == "text":
            src, tgt = str(source.src), str(source.tgt)
            self._files = [src, tgt]
            return lambda: sources.text_pairs(src, tgt), f"{src} and {tgt}"
        path = str(getattr(source, self.kind))
        self._files = [path]
        if self.kind == "tsv":
            return lambda: sources.tsv_pairs(path), path
        if self.kind == "jsonl":
            return lambda: sources.jsonl_pairs(path, wanted), path
        if self.kind == "csv":
            return lambda: sources.csv_pairs(path, wanted), path
        return lambda: sources.parquet_pairs(path, wanted), path

    def __iter__(self) -> Iterator[Pair]:
        """Yield the pairs in order.

        Raises:
            NmtError: at the first thing that is wrong, with file and line; see `nmt.data.sources`.
        """
        if self.kind in ("text", "tsv"):
            yield from self._read()
            return
        self.folded = 0
        for src, tgt in self._read():
            if "\n" in src or "\n" in tgt:
                self.folded += 1
                yield _fold(src), _fold(tgt)
            else:
                yield src, tgt

    def stamp(self) -> list[Any]:
        """Return what changes whenever the data may have changed: the files' sizes and times, or the hub's commit.

        Raises:
            NmtError: if the source does not exist.
        """
        return self._hub.stamp() if self._hub is not None else [file_stamp(path) for path in self._files]


class MadePairs:
    """The pairs that `substitutions` of a source adds to its own; see `nmt.data.substitution`. Call `make` first.

    Attributes:
        label, unit, is_remote, folded: as of a `PairSource`.
        wanted: how many are asked for.
    """

    unit = "pair"
    is_remote = False
    folded = 0  # line feeds are counted where the source itself is read

    def __init__(self, source: PairSource, wanted: int, seed: int) -> None:
        """Take the source, the number, and where the random choices start."""
        self.label = f"substitutions in {source.label}"
        self.wanted = wanted
        self._source = source
        self._seed = seed
        self._made: list[Pair] = []

    def make(self, refused: Refused, progress: Callable[[int], None]) -> None:
        """Make the pairs.

        Args:
            refused: says which of some pairs no others may be made of, [pairs].
            progress: told how many there are.

        Raises:
            NmtError: as the source itself does, and if it has too many pairs, or no new one can be made.
        """
        read = list(itertools.islice(self._source, MOST_PAIRS + 1))
        if len(read) > MOST_PAIRS:
            raise NmtError(
                f"{self._source.label}: substitutions are made from at most {MOST_PAIRS:,} pairs, and it has more. They"
                " are for corpora of a few thousand: leave them out, or make a part of the corpus a source of its own"
            )
        pairs = list(itertools.compress(read, (~refused(read)).tolist()))
        self._made = substitute(pairs, self.wanted, self._seed, progress)
        if not self._made:
            raise NmtError(
                f"{self._source.label}: no new pair can be made from it: no two phrases stand between the same words, "
                "or all exchanges are in it already. Leave substitutions out"
            )

    def report(self) -> dict[str, Any]:
        """Return how many pairs there are, fewer than wanted where the source gives no more, and the first."""
        first = self._made[:FIRST_LINES]
        return {"source": self.label, "wanted": self.wanted, "pairs": len(self._made), "first": first}

    def __iter__(self) -> Iterator[Pair]:
        """Yield the pairs in order."""
        return iter(self._made)


def read_pairs(source: Source, src_lang: str = "src", tgt_lang: str = "tgt") -> Iterator[Pair]:
    """Yield the pairs of a source once; see `PairSource`."""
    return iter(PairSource(source, src_lang, tgt_lang))


@dataclass
class Drops:
    """How many pairs were left out for one reason, and where the first of them stand."""

    count: int = 0
    first: list[tuple[str, int]] = field(default_factory=list)  # source's label, line

    def add(self, label: str, lines: Lines) -> None:
        """Count pairs of one source, on ascending lines."""
        self.count += len(lines)
        self.first += [(label, line) for line in lines[: FIRST_LINES - len(self.first)].tolist()]


class PairFilter:
    """Decides for each training pair whether it is kept, and keeps the books. A pair goes as a whole, never a side.

    Duplicates are known by a hash of 8 bytes in a `DigestSet`, so memory is 12 bytes for each pair that is expected.

    Attributes:
        read, kept: numbers of pairs.
        dropped: what was left out, by reason.
        repeated: pairs that had occurred before and that nothing else was wrong with, dropped or not.
    """

    def __init__(
        self,
        max_length: int,
        max_ratio: float | None = None,
        drop_duplicates: bool = False,
        expected: int = 0,
        overlap: Overlap | None = None,
        remove_overlap: bool = False,
    ) -> None:
        """Set the limits: pieces on either side, and how many times the shorter side the longer one may be.

        Of the `expected` number of pairs nothing depends but memory and time. What dev and test have in common with
        the pairs that are not dropped for another reason is noted in `overlap`, and these are dropped only on request.
        """
        self.max_length = max_length
        self.max_ratio = max_ratio
        self.read = 0
        self.kept = 0
        self.dropped: dict[Reason, Drops] = {}
        self.repeated = Drops()
        self._drop_duplicates = drop_duplicates
        self._seen = DigestSet(expected)
        self._overlap = overlap
        self._remove_overlap = remove_overlap

    def choose(
        self,
        src: Sequence[str],
        tgt: Sequence[str],
        src_lengths: Lengths,
        tgt_lengths: Lengths,
        label: str,
        first_line: int,
    ) -> Mask:
        """Return which of the next pairs to train on, [pairs], and count them; the first reason that applies counts.

        Args:
            src, tgt: the sentences.
            src_lengths, tgt_lengths: their pieces, [pairs].
            label: of the pairs' source.
            first_line: where in it the first of the pairs stands; the others follow.
        """
        shorter, longer = np.minimum(src_lengths, tgt_lengths), np.maximum(src_lengths, tgt_lengths)
        # Whitespace that SentencePiece does not take for a blank has pieces.
        dropped: dict[Reason, Mask] = {"empty": (shorter == 0) | _blank(src) | _blank(tgt)}
        dropped["too long"] = longer > self.max_length
        if self.max_ratio is not None:
            dropped["too uneven"] = longer > self.max_ratio * shorter
        kept = np.ones(len(src), dtype=np.bool_)
        for reason, mask in dropped.items():
            dropped[reason] = mask & kept
            kept &= ~mask
        overlapping = self._overlapping(src, tgt, kept)
        if self._remove_overlap:
            # On the other side too: pairs may be listed both ways round, and a model of both directions knows them so.
            turned = self._overlap.has(tgt) if self._overlap is not None else np.zeros_like(kept)
            dropped["in dev or test"] = overlapping | (turned & kept)
            overlapping = dropped["in dev or test"]
            kept &= ~overlapping
        repeated = self._repeated(src, tgt, kept)
        self.repeated.add(label, first_line + np.flatnonzero(repeated))
        if self._drop_duplicates:
            dropped["duplicate"] = repeated
            kept &= ~repeated
        self.read += len(src)
        self.kept += int(np.count_nonzero(kept))
        self._note(dropped, label, first_line)
        return kept

    def repeated_share(self) -> float:
        """Return the share of repeated pairs in those that nothing else is wrong with."""
        dropped = self.repeated.count if self._drop_duplicates else 0
        return self.repeated.count / max(self.kept + dropped, 1)

    def _overlapping(self, src: Sequence[str], tgt: Sequence[str], kept: Mask) -> Mask:
        """Return which of the kept pairs have a source of dev or test, [pairs]."""
        found = np.zeros(len(src), dtype=np.bool_)
        if self._overlap is not None:
            wanted = kept.tolist()
            found[kept] = self._overlap.find(*(list(itertools.compress(texts, wanted)) for texts in (src, tgt)))
        return found

    def _repeated(self, src: Sequence[str], tgt: Sequence[str], kept: Mask) -> Mask:
        """Return which of the kept pairs have occurred before, [pairs]."""
        repeated = np.zeros(len(src), dtype=np.bool_)
        # A line holds no line feed, so this cannot run two different pairs together.
        pairs = (f"{src[place]}\n{tgt[place]}" for place in np.flatnonzero(kept).tolist())
        repeated[kept] = ~self._seen.add(text_digests(pairs))
        return repeated

    def _note(self, dropped: dict[Reason, Mask], label: str, first_line: int) -> None:
        """Count what was dropped; reasons are listed in the order in which they occurred."""
        found = {reason: np.flatnonzero(mask) for reason, mask in dropped.items()}
        for reason, places in sorted(found.items(), key=lambda item: item[1][:1].tolist()):
            if len(places):
                self.dropped.setdefault(reason, Drops()).add(label, first_line + places)


def _blank(texts: Sequence[str]) -> Mask:
    """Return which texts are nothing but whitespace, [texts]."""
    return np.array([not text.strip() for text in texts], dtype=np.bool_)


def _fold(text: str) -> str:
    if text.endswith("\n"):
        text = text[:-1].removesuffix("\r")
    return _LINE_FEED.sub(" ", text)
