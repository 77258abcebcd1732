"""Encoded sentence pairs on disk: an Arrow IPC file, of which memory holds what is asked for."""

from __future__ import annotations

import itertools
import mmap
import os
import sys
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nmt.errors import NmtError

Ids = npt.NDArray[np.int32]
Places = npt.NDArray[np.int64]  # of bytes in the file

_BATCHES_MAPPED = 256  # that are looked at before the pages around them are given back
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


def seek_and_read(file: int, size: int, place: int) -> bytes:
    """Return what an open file has at a place, as os.pread does, which Windows has not; for one thread at a time."""
    os.lseek(file, place, os.SEEK_SET)
    return os.read(file, size)


read_at = getattr(os, "pread", seek_and_read)


def _rows(column: Rows | Sequence[Sequence[int]]) -> Rows:
    return column if isinstance(column, Rows) else Rows.of(column)


@dataclass(frozen=True)
class _Column:
    """Where each batch of a column of lists has its offsets and its values, [batches]."""

    offsets_at: Places
    values_at: Places


class EncodedCorpus:
    """Sentence pairs as piece ids, with their text. Both stay in the file, and so do the places of the sentences in it:
    memory holds 4 bytes a sentence and side.

    Ids are read from the file, text from a mapping of it. In random order a mapping would be slow and make the whole
    file count as the process' memory: for each place it was asked for the system maps some 100 KB, and reads as much
    from the disk where memory is smaller than the file.

    Attributes:
        src_lengths, tgt_lengths: [pairs] int32, pieces of each sentence, BOS and EOS not counted.
        linked: whether the pairs have links between their pieces.
    """

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises:
            NmtError: if it is missing, damaged, or no such file.
        """
        self._path = path
        try:
            self._file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
            weakref.finalize(self, os.close, self._file)
            self._map = mmap.mmap(self._file, 0, access=mmap.ACCESS_READ)
            data = pa.py_buffer(self._map)
            reader = pa.ipc.open_file(pa.BufferReader(data))
            self.linked = reader.schema.equals(LINKED_SCHEMA)
            if not self.linked and not reader.schema.equals(SCHEMA):
                raise pa.ArrowInvalid("other columns than expected")
            self._batches = [self._batch(reader, index) for index in range(reader.num_record_batches)]
        except (OSError, ValueError) as error:  # Arrow's are ValueErrors, and so is that an empty file cannot be mapped
            raise NmtError(
                f"{path} is no encoded corpus or damaged ({error}); delete its folder to make it again"
            ) from error
        self._give_back()
        self._starts = np.cumsum([0] + [batch.num_rows for batch in self._batches])
        self._src, self._tgt = self._column("src_ids", data), self._column("tgt_ids", data)
        self.src_lengths, self.tgt_lengths = self._lengths(self._src), self._lengths(self._tgt)
        self._links = self._column("links", data) if self.linked else None

    def __len__(self) -> int:
        """Return the number of pairs."""
        return int(self._starts[-1])

    def numbers(self, pairs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the numbers of pairs in the whole corpus, which this is."""
        return pairs

    def src_ids(self, index: int) -> Ids:
        """Return the source's piece ids, [S] int32."""
        return self.src_flat(self._one(index))

    def tgt_ids(self, index: int) -> Ids:
        """Return the target's piece ids, [T] int32."""
        return self.tgt_flat(self._one(index))

    def links(self, index: int) -> Ids:
        """Return the links of a pair of a `linked` corpus, [links, 2] int32 of target and source piece, ascending."""
        return self.links_flat(self._one(index))[0]

    def src_flat(self, pairs: npt.NDArray[np.int64]) -> Ids:
        """Return the piece ids of these sources one after the other, [Σ S] int32."""
        return self._flat(self._src, pairs)[0]

    def tgt_flat(self, pairs: npt.NDArray[np.int64]) -> Ids:
        """Return the piece ids of these targets one after the other, [Σ T] int32."""
        return self._flat(self._tgt, pairs)[0]

    def links_flat(self, pairs: npt.NDArray[np.int64]) -> tuple[Ids, npt.NDArray[np.int64]]:
        """Return the links of these pairs of a `linked` corpus one after the other, [Σ links, 2], and their counts."""
        flat, sizes = self._flat(self._linked(), pairs)
        return flat.reshape(-1, 2), sizes // 2

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

    def text_batches(self) -> Iterator[tuple[list[str], list[str]]]:
        """Yield every source and target sentence, in order, as many at once as were written at once."""
        for batch in self._batches:
            yield batch.column("src_text").to_pylist(), batch.column("tgt_text").to_pylist()
            self._give_back()

    def _linked(self) -> _Column:
        if self._links is None:
            raise ValueError("this corpus has no links")
        return self._links

    def _batch(self, reader: Any, index: int) -> Any:
        """Return a batch, whose columns stay in the mapped file."""
        if index % _BATCHES_MAPPED == 0:
            self._give_back()
        return reader.get_batch(index)

    def _give_back(self) -> None:
        """Unmap the pages that were looked at: until somebody looks again they are not this process' memory."""
        if sys.platform != "win32":
            self._map.madvise(mmap.MADV_DONTNEED)

    def _column(self, name: str, data: pa.Buffer) -> _Column:
        """Return where a column of lists is in the file, which is mapped as `data`."""
        offsets_at, values_at = [], []
        for batch in self._batches:
            array: Any = batch.column(name)
            offsets, values = array.buffers()[1], array.values.buffers()[1]
            offsets_at.append(offsets.address - data.address)
            # A batch in which every list is empty has no values, or some that are nowhere.
            values_at.append(values.address - data.address if values else 0)
        return _Column(np.array(offsets_at, dtype=np.int64), np.array(values_at, dtype=np.int64))

    def _lengths(self, column: _Column) -> Ids:
        """Return the length of every list of a column, [pairs]."""
        lengths: Ids = np.empty(len(self), dtype=np.int32)
        for batch, (start, end) in enumerate(itertools.pairwise(self._starts)):
            offsets = self._read(column.offsets_at[batch : batch + 1], np.array([4 * (end - start + 1)]))
            np.subtract(offsets[1:], offsets[:-1], out=lengths[start:end])
        return lengths

    def _flat(self, column: _Column, pairs: npt.NDArray[np.int64]) -> tuple[Ids, npt.NDArray[np.int64]]:
        """Return the ids of these lists one after the other, and their lengths."""
        batches = np.searchsorted(self._starts, pairs, side="right") - 1
        at = column.offsets_at[batches] + 4 * (pairs - self._starts[batches])
        starts, ends = self._read(at, np.full(len(pairs), 8)).reshape(-1, 2).T.astype(np.int64)
        return self._read(column.values_at[batches] + 4 * starts, 4 * (ends - starts)), ends - starts

    def _read(self, places: Places, sizes: Places) -> Ids:
        """Return what the file has at these places, so many bytes at each, one after the other.

        Raises:
            NmtError: if it cannot be read any more.
        """
        try:
            content = b"".join(map(read_at, itertools.repeat(self._file), sizes.tolist(), places.tolist()))
        except OSError as error:
            raise self._lost(str(error)) from error
        if len(content) != sizes.sum():
            raise self._lost("it has become shorter")
        return np.frombuffer(content, dtype=np.int32)

    def _lost(self, reason: str) -> NmtError:
        return NmtError(
            f"{self._path} could be read until now and cannot any more ({reason}). Nothing that was saved is lost: "
            "delete its folder, and it is made again by the same command, with --resume if training had begun"
        )

    def _one(self, index: int) -> npt.NDArray[np.int64]:
        return np.array([range(len(self))[index]])

    def _place(self, index: int) -> tuple[int, int]:
        """Return the batch that a pair is in, and which of the batch's rows it is."""
        index = range(len(self))[index]
        batch = int(np.searchsorted(self._starts, index, side="right")) - 1
        return batch, index - int(self._starts[batch])

    def _text(self, column: str, index: int) -> str:
        batch, row = self._place(index)
        text: str = self._batches[batch].column(column)[row].as_py()
        return text

    def _texts(self, column: str) -> list[str]:
        return [text for batch in self._batches for text in batch.column(column).to_pylist()]
