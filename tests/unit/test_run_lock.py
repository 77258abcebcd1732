"""The lock on a run's folder: held by one, told to others, gone with its process."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nmt import run_lock
from nmt.errors import NmtError
from nmt.run_dir import RunDir

HOLD = """
import sys, time
from pathlib import Path
from nmt.run_dir import RunDir
with RunDir(Path(sys.argv[1])).locked():
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_one_is_told_process_machine_and_time(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "a")
    with run.locked() as locked:
        assert locked
        for refused in (run.refuse_existing, lambda: run.locked().__enter__()):
            with pytest.raises(
                NmtError, match=rf"process {os.getpid()} on {socket.gethostname()}, since 20\d\d-.*--run"
            ):
                refused()
    with run.locked():
        pass
    run.refuse_existing()


def test_a_dead_process_holds_nothing(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "a")
    with subprocess.Popen([sys.executable, "-c", HOLD, run.path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(NmtError, match=f"process {process.pid} on"):
            run.refuse_existing()
        process.kill()
    RunDir.create(run.path)
    with run.locked():
        pass


def test_who_only_looks_does_not_keep_anybody_out(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    file.touch()
    with file.open("r+") as looking:
        run_lock._lock(looking, exclusive=False)
        run_lock.refuse_held(file)


def test_where_there_are_no_locks_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(run_lock, "_lock", none)
    with RunDir(tmp_path / "a").locked() as locked:
        assert not locked
