"""Encoded sentence pairs on disk: an Arrow IPC file, mapped into memory and read without copies."""

from __future__ import annotations

from collections.abc import Sequence
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
        src_ids: Sequence[Sequence[int]],
        tgt_ids: Sequence[Sequence[int]],
        src_text: Sequence[str],
        tgt_text: Sequence[str],
        links: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Append pairs; the sequences run in parallel. Ids come without BOS and EOS, links as [t0, s0, t1, s1, …]."""
        columns: list[Sequence[Any]] = [src_ids, tgt_ids, src_text, tgt_text]
        if links is not None:
            columns.append(links)
        if len(columns) != len(self._schema):
            raise ValueError("a file has links for every batch or for none")
        if len({len(column) for column in columns}) > 1:
            raise ValueError("the columns of a batch must have the same length")
        if not src_ids:
            return
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema)]
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


class EncodedCorpus:
    """Sentence pairs as piece ids, with their text. Both stay in the file; memory holds 12 bytes a sentence and side,
    and 12 for its links where there are any.

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
                self._data = mapped.read_buffer()
            reader = pa.ipc.open_file(pa.BufferReader(self._data))
            self.linked = reader.schema.equals(LINKED_SCHEMA)
            if not self.linked and not reader.schema.equals(SCHEMA):
                raise pa.ArrowInvalid("other columns than expected")
            self._batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
        except (OSError, pa.ArrowInvalid) as error:
            raise NmtError(
                f"{path} is no encoded corpus or damaged ({error}); delete its folder to make it again"
            ) from error
        self._batch_starts = np.cumsum([0] + [batch.num_rows for batch in self._batches])
        # Every column lies somewhere in the one mapped file, so one view and a start for each sentence reach them all.
        self._ids: Ids = np.frombuffer(self._data, dtype=np.int32, count=self._data.size // 4)
        self._src_starts, self.src_lengths = self._places("src_ids")
        self._tgt_starts, self.tgt_lengths = self._places("tgt_ids")
        if self.linked:
            self._link_starts, self._link_lengths = self._places("links")

    def __len__(self) -> int:
        """Return the number of pairs."""
        return int(self._batch_starts[-1])

    def src_ids(self, index: int) -> Ids:
        """Return the source's piece ids, [S] int32, a read-only view of the file."""
        start = self._src_starts[index]
        return self._ids[start : start + self.src_lengths[index]]

    def tgt_ids(self, index: int) -> Ids:
        """Return the target's piece ids, [T] int32, a read-only view of the file."""
        start = self._tgt_starts[index]
        return self._ids[start : start + self.tgt_lengths[index]]

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
        start = self._link_starts[index]
        return self._ids[start : start + self._link_lengths[index]].reshape(-1, 2)

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

    def _places(self, column: str) -> tuple[npt.NDArray[np.int64], Ids]:
        """Return where in the view each sentence starts, and its length, both [pairs]."""
        starts = np.empty(len(self), dtype=np.int64)
        lengths = np.empty(len(self), dtype=np.int32)
        for batch, first in zip(self._batches, self._batch_starts.tolist()):
            array: Any = batch.column(column)
            _, offsets_buffer = array.buffers()[:2]
            offsets = np.frombuffer(offsets_buffer, dtype=np.int32, count=len(array) + 1)
            values = array.values.buffers()[1]
            base = 0 if values is None else (values.address - self._data.address) // 4
            starts[first : first + len(array)] = offsets[:-1] + np.int64(base)
            lengths[first : first + len(array)] = np.diff(offsets)
        return starts, lengths

    def _flat(self, starts: npt.NDArray[np.int64], lengths: Ids, pairs: npt.NDArray[np.int64]) -> Ids:
        """Return the ids of these sentences one after the other: one gather, with no work in Python for each."""
        sizes = lengths[pairs].astype(np.int64)
        shifts = starts[pairs] - (sizes.cumsum() - sizes)  # from a place in the result to one in the file
        ids: Ids = self._ids[np.arange(sizes.sum()) + np.repeat(shifts, sizes)]
        return ids

    def _text(self, column: str, index: int) -> str:
        index = range(len(self))[index]
        number = int(np.searchsorted(self._batch_starts, index, side="right")) - 1
        text: str = self._batches[number].column(column)[index - int(self._batch_starts[number])].as_py()
        return text

    def _texts(self, column: str) -> list[str]:
        return [text for batch in self._batches for text in batch.column(column).to_pylist()]
