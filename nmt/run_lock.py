"""One training a folder: a lock that the operating system lets go of when its process ends, however it ends."""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from nmt.errors import NmtError, unwritable

_ATTEMPTS, _PAUSE = 10, 0.05  # of a lock: somebody may just be looking whether it is held
_HELD = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
_NEVER = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # the file system has no locks

if sys.platform == "win32":
    import msvcrt

    _FAR = 2**30  # what is locked cannot be read there: a byte behind all that is written

    def _lock(descriptor: int, exclusive: bool) -> None:
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(descriptor: int, exclusive: bool) -> None:
        # Of the open file, not of the process: a second training in one process is refused as well. On NFS the kernel
        # makes it a lock of the server's, which needs the file open for writing.
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)


@contextmanager
def held(file: Path) -> Iterator[bool]:
    """Hold the lock on a file, made if it is not there, for the time of the block; the file stays.

    It names process, machine and time for whoever comes second. Removing it at the end would let two others lock two
    different files of the same name. Gives False where the file system has no locks.

    Raises:
        NmtError: if another process holds it, named in the message, or the file cannot be written.
    """
    # A link of this name may lead to any file of this user, and what is locked is emptied.
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(file, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NmtError(f"{file}: this is a link, and nothing is written through it. Remove it.") from error
        raise unwritable(file, error) from error
    try:
        locked = _acquire(file, descriptor)
        try:
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": _now()}
            os.write(descriptor, json.dumps(holder).encode() + b"\n")
        except OSError as error:
            raise unwritable(file, error) from error
        yield locked
    finally:
        os.close(descriptor)


def _acquire(file: Path, descriptor: int) -> bool:
    """Take the lock; tell whether there is such a thing."""
    for attempt in range(_ATTEMPTS):
        try:
            _lock(descriptor, exclusive=True)
            return True
        except OSError as error:
            if error.errno in _NEVER:
                return False
            if error.errno not in _HELD:
                raise unwritable(file, error) from error
        if attempt < _ATTEMPTS - 1:
            time.sleep(_PAUSE)
    raise _refusal(file)


def refuse_held(file: Path) -> None:
    """Refuse a folder whose lock another process holds; what cannot be looked at counts as free.

    Raises:
        NmtError: naming the process.
    """
    try:
        with file.open("r+", encoding="utf-8") as stream:
            _lock(stream.fileno(), exclusive=False)
    except OSError as error:
        if error.errno in _HELD and error.filename is None:
            raise _refusal(file) from None


def _refusal(file: Path) -> NmtError:
    try:
        holder = json.loads(file.read_text(encoding="utf-8"))
        pid, who = holder["pid"], f"process {holder['pid']} on {holder['host']}, since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):  # it has just begun
        pid, who = "PID", "another process"
    return NmtError(
        f"{file.parent}: a training is writing here already ({who}). Wait for it, stop it (`kill {pid}` there lets it "
        "save), or choose another folder with --run-dir."
    )


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
