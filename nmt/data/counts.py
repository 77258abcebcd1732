"""What the data report says of the text of a split: lengths, unknown pieces, and a checksum."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt.data.store import Rows
from nmt.data.tokenizer import UNK, Tokenizer

COLUMNS = 20  # of a histogram, at most
EXAMPLES = 10  # unknown characters that are named


class PieceCounts:
    """Pieces a sentence, of one side."""

    def __init__(self) -> None:
        self.sentences = 0
        self.pieces = 0
        self.unknown = 0
        self.lengths: npt.NDArray[np.int64] = np.zeros(1, dtype=np.int64)  # sentences by their number of pieces
        self.occurrences: npt.NDArray[np.int64] = np.zeros(1, dtype=np.int64)  # of each piece, by its id

    @property
    def longest(self) -> int:
        """The pieces of the longest sentence."""
        return len(self.lengths) - 1

    def add(self, rows: Rows, *, made: bool = False) -> None:
        """Count encoded sentences; of pairs that were made of others no piece counts as having occurred again."""
        self.sentences += len(rows)
        self.pieces += len(rows.values)
        self.unknown += int(np.count_nonzero(rows.values == UNK))
        self.lengths = _added(self.lengths, rows.lengths)
        if not made:
            self.occurrences = _added(self.occurrences, rows.values)

    def report(self) -> dict[str, Any]:
        """Return the figures."""
        return {
            "pieces": self.pieces,
            "mean": round(self.pieces / max(self.sentences, 1), 2),
            "max": self.longest,
            "unknown": self.unknown,
            "unknown_rate": round(self.unknown / max(self.pieces, 1), 6),
            "most_occur": self.most_occur(),
        }

    def most_occur(self) -> int:
        """Return how often 95 % of the pieces that occur do so at the least.

        Gowda and May (2020, section 4) take the largest vocabulary with 100.
        """
        occurring = np.sort(self.occurrences[self.occurrences > 0])
        return int(occurring[len(occurring) // 20]) if len(occurring) else 0


def _added(counts: npt.NDArray[np.int64], values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return counts of 0, 1, 2, … to which those among `values` are added."""
    found = np.bincount(values, minlength=len(counts))
    found[: len(counts)] += counts
    return found


def histogram(sides: dict[str, PieceCounts]) -> dict[str, Any]:
    """Return how many sentences have how many pieces, both sides in columns of one width: 1, 2, 5, 10, 20, 50, …

    The first column is of the lengths 1 to `width`, the next ones follow; sentences without pieces are in none.
    """
    longest = max(counts.longest for counts in sides.values())
    widths = (digit * 10**power for power in itertools.count() for digit in (1, 2, 5))
    width = next(width for width in widths if width * COLUMNS >= longest)
    columns = -(-longest // width)
    found: dict[str, Any] = {"width": width}
    for side, counts in sides.items():
        padded = np.zeros(columns * width, dtype=np.int64)
        padded[: counts.longest] = counts.lengths[1:]
        found[side] = padded.reshape(columns, width).sum(axis=1).tolist()
    return found


class UnknownCharacters:
    """The characters of one side that no piece covers, counted."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._counts: Counter[str] = Counter()

    def add(self, texts: Sequence[str], rows: Rows) -> None:
        """Count those of sentences with their pieces; only sentences with an unknown one are looked at."""
        sentences = np.repeat(np.arange(len(rows)), rows.lengths)[rows.values == UNK]
        for spans in self._tokenizer.encode_spans([texts[number] for number in np.unique(sentences)]):
            for piece, (begin, end) in zip(spans.ids, spans.ranges):
                if piece == UNK:  # it stands for a run of them, at times with the blank before it
                    self._counts.update(spans.text[begin:end].replace(" ", ""))

    def report(self) -> dict[str, Any]:
        """Return how many different ones there are, and how often the most frequent ones occur."""
        return {"unknown_characters": len(self._counts), "most_unknown": dict(self._counts.most_common(EXAMPLES))}


class Checksum:
    """A hash of texts and links in their order: the same for the same data, however it is cut into batches."""

    def __init__(self) -> None:
        self._columns = [hashlib.blake2b(digest_size=16) for _ in range(4)]

    def add(self, src: Sequence[str], tgt: Sequence[str], links: Rows | None) -> None:
        """Take in pairs, and the links between their pieces."""
        columns = ["\n".join([*texts, ""]).encode() for texts in (src, tgt)]
        if links is not None:
            columns += [numbers.astype("<i4").tobytes() for numbers in (links.lengths, links.values)]
        for column, more in zip(self._columns, columns):
            column.update(more)

    def of_side(self, side: str) -> str:
        """Return the hash of the texts of `src` or `tgt` alone."""
        return self._columns[("src", "tgt").index(side)].hexdigest()

    def report(self) -> str:
        """Return the hash."""
        return hashlib.blake2b(b"".join(column.digest() for column in self._columns), digest_size=16).hexdigest()
