"""Any source of the configuration as aligned pairs of lines, and which of them training leaves out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from nmt.config import Source
from nmt.data import sources
from nmt.data.hub import HubData
from nmt.data.sources import Pair
from nmt.data.text import file_stamp

Reason = Literal["empty", "too long", "too uneven", "duplicate"]
FIRST_LINES = 5

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


def read_pairs(source: Source, src_lang: str = "src", tgt_lang: str = "tgt") -> Iterator[Pair]:
    """Yield the pairs of a source once; see `PairSource`."""
    return iter(PairSource(source, src_lang, tgt_lang))


def text_digest(*texts: str) -> int:
    """Return 64 bits that stand for the texts. Among 100 million, one false match is expected in 3,700 corpora."""
    joined = "\n".join(texts)  # a line holds no line feed, so this cannot run two different pairs together
    return int.from_bytes(hashlib.blake2b(joined.encode(), digest_size=8).digest(), "little")


@dataclass
class Drops:
    """How many pairs were left out for one reason, and where the first of them stand."""

    count: int = 0
    first: list[tuple[str, int]] = field(default_factory=list)  # source's label, line

    def add(self, label: str, line: int) -> None:
        """Count a pair."""
        self.count += 1
        if len(self.first) < FIRST_LINES:
            self.first.append((label, line))


class PairFilter:
    """Decides for each training pair whether it is kept, and keeps the books. A pair goes as a whole, never a side.

    Duplicates are known by a hash of 8 bytes, so memory grows by some 70 bytes for each distinct pair, and only
    if they are to be dropped.
    """

    def __init__(self, max_length: int, max_ratio: float | None = None, drop_duplicates: bool = False) -> None:
        """Set the limits: pieces on either side, and how many times the shorter side the longer one may be."""
        self.max_length = max_length
        self.max_ratio = max_ratio
        self.read = 0
        self.kept = 0
        self.dropped: dict[Reason, Drops] = {}
        self._seen: set[int] | None = set() if drop_duplicates else None

    def keep(self, pair: Pair, src_ids: Sequence[int], tgt_ids: Sequence[int], label: str, line: int) -> bool:
        """Return whether to train on the pair, and count it. `label` and `line` say where it stands."""
        self.read += 1
        reason = self._reason(pair, len(src_ids), len(tgt_ids))
        if reason is None:
            self.kept += 1
            return True
        self.dropped.setdefault(reason, Drops()).add(label, line)
        return False

    def _reason(self, pair: Pair, src_length: int, tgt_length: int) -> Reason | None:
        """Return why the pair is left out, the first that applies."""
        if not (src_length and tgt_length and pair[0].strip() and pair[1].strip()):
            return "empty"
        if max(src_length, tgt_length) > self.max_length:
            return "too long"
        if self.max_ratio is not None and max(src_length, tgt_length) > self.max_ratio * min(src_length, tgt_length):
            return "too uneven"
        if self._seen is not None:
            digest = text_digest(*pair)
            if digest in self._seen:
                return "duplicate"
            self._seen.add(digest)
        return None


def _fold(text: str) -> str:
    if text.endswith("\n"):
        text = text[:-1].removesuffix("\r")
    return _LINE_FEED.sub(" ", text)
