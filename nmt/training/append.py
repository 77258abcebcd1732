"""Files that grow by whole records: each is handed to the system in one call, and what did not fit is taken back."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.errors import unwritable
from nmt.run_dir import replacing

if TYPE_CHECKING:
    from tensorboard.compat.proto.summary_pb2 import Summary

_AROUND = 8 + 4 + 4  # bytes of an event's record beside the event: its length, and two checksums


class Appender:
    """A file that records are appended to. A process that is killed loses nothing that it had written."""

    def __init__(self, path: Path, *, fresh: bool) -> None:
        """Open the file, emptied if `fresh`.

        Raises:
            NmtError: if it cannot be written.
        """
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
            if fresh:
                os.ftruncate(self._descriptor, 0)
            self._size = os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError as error:
            raise unwritable(path, error) from error

    def write(self, record: bytes) -> None:
        """Append a record, whole or not at all.

        Raises:
            NmtError: if it cannot be written.
        """
        rest = memoryview(record)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
                os.lseek(self._descriptor, self._size, os.SEEK_SET)
            raise unwritable(self.path, error, len(record)) from error
        self._size += len(record)

    def flush(self) -> None:
        """See to it that not even a loss of power loses what was written.

        Raises:
            NmtError: if it cannot be written.
        """
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise unwritable(self.path, error) from error

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class EventFile:
    """One of TensorBoard's event files, the newest of its folder.

    torch's `SummaryWriter` writes from a thread: what goes wrong there is told late, and with a traceback of its own.
    """

    def __init__(self, folder: Path, last_step: int | None, last_without: tuple[str, ...] = ()) -> None:
        """Begin a file; with `last_step` what earlier files have of later steps is cut.

        Of the last step itself what has a name that begins with one of `last_without` is cut, too.

        Raises:
            NmtError: if something cannot be written.
        """
        from tensorboard.compat.proto.event_pb2 import SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        try:
            folder.mkdir(parents=True, exist_ok=True)
            earlier = sorted(folder.glob("events.out.tfevents.*"))
            if last_step is not None:
                for file in earlier:
                    _cut_events(file, last_step, last_without)
        except OSError as error:
            raise unwritable(folder, error) from error
        # TensorBoard reads in the order of names: a run that is taken up within a second, or on a machine whose clock
        # is behind, must still come last.
        stamps = [file.name.split(".")[3] for file in earlier]
        stamp = max([int(time.time()), *(int(each) + 1 for each in stamps if each.isdecimal())])
        name = f"events.out.tfevents.{stamp:010d}.{socket.gethostname()}.{os.getpid()}.0"
        self._file = Appender(folder / name, fresh=True)
        self._records = RecordWriter(self._file)
        self._event(file_version="brain.Event:2")
        if last_step is not None:  # for a TensorBoard that has read what was cut
            self._event(step=last_step + 1, session_log=SessionLog(status=SessionLog.START))

    def add(self, step: int, summary: Summary) -> None:
        """Append what one of the functions of `torch.utils.tensorboard.summary` made.

        Raises:
            NmtError: if it cannot be written.
        """
        self._event(step=step, summary=summary)

    def _event(self, **fields: object) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        event = Event(wall_time=time.time(), **fields)
        self._records.write(event.SerializeToString())

    def flush(self) -> None:
        """See to it that not even a loss of power loses what was written. Raises NmtError if that fails."""
        self._file.flush()

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        self._file.close()


def _cut_events(file: Path, step: int, without: tuple[str, ...]) -> None:
    """Rewrite an event file without the events after a step, those of some names at that step, and a torn end.

    TensorBoard's own way to hide them, a mark in the next file, does not hide texts from every reader of such files.
    """
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    whole = file.read_bytes()
    kept, start = bytearray(), 0
    while len(whole) - start >= _AROUND:
        end = start + _AROUND + int.from_bytes(whole[start : start + 8], "little")
        if end > len(whole):
            break
        try:
            event = Event.FromString(whole[start + 12 : end - 4])
        except DecodeError:
            break
        named = any(value.tag.startswith(without) for value in event.summary.value)
        if event.step < step or (event.step == step and not named):
            kept += whole[start:end]
        start = end
    if len(kept) < len(whole):
        with replacing(file) as stream:
            stream.write(kept)
