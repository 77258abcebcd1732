"""Encoded sentence pairs on disk: an Arrow IPC file, mapped into memory and read without copies."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nmt.errors import NmtError

Ids = npt.NDArray[np.int32]

_IDS = pa.list_(pa.int32())
SCHEMA = pa.schema([("src_ids", _IDS), ("tgt_ids", _IDS), ("src_text", pa.large_utf8()), ("tgt_text", pa.large_utf8())])
LINKED_SCHEMA = SCHEMA.append(pa.field("links", _IDS))  # with the alignments between pieces, [t0, s0, t1, s1, …]


@dataclass(frozen=True)
class Rows:
    """Lists of piece ids, or of other whole numbers, one after the other in one array.

    Attributes:
        values: [sum of the lengths] int32.
        lengths: [rows] int32.
    """

    values: Ids
    lengths: Ids

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]]) -> Rows:
        """Take lists over."""
        lengths = np.fromiter(map(len, lists), dtype=np.int32, count=len(lists))
        values = np.fromiter(itertools.chain.from_iterable(lists), dtype=np.int32, count=int(lengths.sum()))
        return cls(values, lengths)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.lengths)

    def select(self, chosen: npt.NDArray[np.bool_]) -> Rows:
        """Return the rows where `chosen`, [rows], is true."""
        return Rows(self.values[np.repeat(chosen, self.lengths)], self.lengths[chosen])

    def to_arrow(self) -> Any:
        """Return an Arrow array of lists."""
        offsets = np.zeros(len(self) + 1, dtype=np.int32)
        np.cumsum(self.lengths, out=offsets[1:])
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(self.values))


class CorpusWriter:
    """Writes batches of encoded pairs to one file; nothing but the batch at hand is in memory.

    A context manager: the file is complete only after the block ended without an exception.
    """

    def __init__(self, path: Path, links: bool = False) -> None:
        """Begin the file, with a column for `links` or without."""
        self._schema = LINKED_SCHEMA if links else SCHEMA
        self._file = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._file, self._schema)

    def write(
        self,
        src_ids: Rows | Sequence[Sequence[int]],
        tgt_ids: Rows | Sequence[Sequence[int]],
        src_text: Sequence[str],
        tgt_text: Sequence[str],
        links: Rows | Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Append pairs; the columns run in parallel. Ids come without BOS and EOS, links as [t0, s0, t1, s1, …]."""
        columns: list[Rows | Sequence[str]] = [
            _rows(src_ids),
            _rows(tgt_ids),
            src_text,
            tgt_text,
            *([] if links is None else [_rows(links)]),
        ]
        if len(columns) != len(self._schema):
            raise ValueError("a file has links for every batch or for none")
        if len({len(column) for column in columns}) > 1:
            raise ValueError("the columns of a batch must have the same length")
        if not len(src_ids):
            return
        arrays = [
            column.to_arrow() if isinstance(column, Rows) else pa.array(column, field.type)
            for column, field in zip(columns, self._schema)
        ]
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))

    def __enter__(self) -> CorpusWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._writer.close()
        finally:
            self._file.close()


def _rows(column: Rows | Sequence[Sequence[int]]) -> Rows:
    return column if isinstance(column, Rows) else Rows.of(column)


class EncodedCorpus:
    """Sentence pairs as piece ids, with their text. Both stay in the file, and so do the places of the sentences in it:
    memory holds 4 bytes a sentence and side.

    Attributes:
        src_lengths, tgt_lengths: [pairs] int32, pieces of each sentence, BOS and EOS not counted.
        linked: whether the pairs have links between their pieces.
    """

    def __init__(self, path: Path) -> None:
        """Map the file.

        Raises:
            NmtError: if it is missing, damaged, or no such file.
        """
        try:
            with pa.memory_map(str(path), "r") as mapped:
                data = mapped.read_buffer()
            reader = pa.ipc.open_file(pa.BufferReader(data))
            self.linked = reader.schema.equals(LINKED_SCHEMA)
            if not self.linked and not reader.schema.equals(SCHEMA):
                raise pa.ArrowInvalid("other columns than expected")
            self._batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
        except (OSError, pa.ArrowInvalid) as error:
            raise NmtError(
                f"{path} is no encoded corpus or damaged ({error}); delete its folder to make it again"
            ) from error
        self._starts: list[int] = list(itertools.accumulate((batch.num_rows for batch in self._batches), initial=0))
        self._src, self._tgt = self._lists("src_ids"), self._lists("tgt_ids")
        self.src_lengths, self.tgt_lengths = _lengths(self._src, len(self)), _lengths(self._tgt, len(self))
        self._links = self._lists("links") if self.linked else []

    def __len__(self) -> int:
        """Return the number of pairs."""
        return self._starts[-1]

    def src_ids(self, index: int) -> Ids:
        """Return the source's piece ids, [S] int32, a read-only view of the file."""
        return self._list(self._src, index)

    def tgt_ids(self, index: int) -> Ids:
        """Return the target's piece ids, [T] int32, a read-only view of the file."""
        return self._list(self._tgt, index)

    def src_flat(self, pairs: npt.NDArray[np.int64]) -> Ids:
        """Return the piece ids of these sources one after the other, [Σ S] int32, in memory of their own."""
        return self._flat(self._src_starts, self.src_lengths, pairs)

    def tgt_flat(self, pairs: npt.NDArray[np.int64]) -> Ids:
        """Return the piece ids of these targets one after the other, [Σ T] int32, in memory of their own."""
        return self._flat(self._tgt_starts, self.tgt_lengths, pairs)

    def links_flat(self, pairs: npt.NDArray[np.int64]) -> tuple[Ids, Ids]:
        """Return the links of these pairs of a `linked` corpus one after the other, [Σ links, 2], and their counts."""
        flat = self._flat(self._link_starts, self._link_lengths, pairs)
        return flat.reshape(-1, 2), self._link_lengths[pairs] // 2

    def links(self, index: int) -> Ids:
        """Return the links of a pair of a `linked` corpus, [links, 2] int32 of target and source piece, ascending."""
        return self._list(self._links, index).reshape(-1, 2)

    def src_text(self, index: int) -> str:
        """Return the raw source sentence."""
        return self._text("src_text", index)

    def tgt_text(self, index: int) -> str:
        """Return the raw target sentence."""
        return self._text("tgt_text", index)

    def src_texts(self) -> list[str]:
        """Return every source sentence, in order. For dev and test; a training set may not fit in memory."""
        return self._texts("src_text")

    def tgt_texts(self) -> list[str]:
        """Return every target sentence, in order. For dev and test; a training set may not fit in memory."""
        return self._texts("tgt_text")

    def _lists(self, column: str) -> list[tuple[Ids, Ids]]:
        """Return for each batch the offsets, [rows + 1], and the values, all of them views of the file."""
        views = []
        for batch in self._batches:
            array: Any = batch.column(column)
            offsets = np.frombuffer(array.buffers()[1], dtype=np.int32, count=len(array) + 1)
            buffer = array.values.buffers()[1] if offsets[-1] else None
            values = np.empty(0, dtype=np.int32) if buffer is None else np.frombuffer(buffer, dtype=np.int32)
            views.append((offsets, values))
        return views

    def _place(self, index: int) -> tuple[int, int]:
        """Return the batch that a pair is in, and which of the batch's rows it is."""
        index = range(len(self))[index]
        batch = bisect_right(self._starts, index) - 1
        return batch, index - self._starts[batch]

    def _list(self, views: list[tuple[Ids, Ids]], index: int) -> Ids:
        batch, row = self._place(index)
        offsets, values = views[batch]
        return values[offsets[row] : offsets[row + 1]]

    def _flat(self, starts: npt.NDArray[np.int64], lengths: Ids, pairs: npt.NDArray[np.int64]) -> Ids:
        """Return the ids of these sentences one after the other: one gather, with no work in Python for each."""
        sizes = lengths[pairs].astype(np.int64)
        shifts = starts[pairs] - (sizes.cumsum() - sizes)  # from a place in the result to one in the file
        ids: Ids = self._ids[np.arange(sizes.sum()) + np.repeat(shifts, sizes)]
        return ids

    def _text(self, column: str, index: int) -> str:
        batch, row = self._place(index)
        text: str = self._batches[batch].column(column)[row].as_py()
        return text

    def _texts(self, column: str) -> list[str]:
        return [text for batch in self._batches for text in batch.column(column).to_pylist()]


def _lengths(views: list[tuple[Ids, Ids]], pairs: int) -> Ids:
    """Return the length of every list of a column, [pairs]."""
    lengths: Ids = np.empty(pairs, dtype=np.int32)
    first = 0
    for offsets, _ in views:
        end = first + len(offsets) - 1
        np.subtract(offsets[1:], offsets[:-1], out=lengths[first:end])
        first = end
    return lengths
