"""The lock on a run's folder: held by one, told to others, gone with its process."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from config_files import SMALL, written

from nmt import run_lock
from nmt.config import load_config
from nmt.errors import NmtError
from nmt.reporting import SilentReporter
from nmt.run_dir import RunDir
from nmt.train import train

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
        run_lock._lock(looking.fileno(), exclusive=False)
        run_lock.refuse_held(file)


def test_where_there_are_no_locks_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(run_lock, "_lock", none)
    with RunDir(tmp_path / "a").locked() as locked:
        assert not locked


def test_a_link_in_the_place_of_the_lock_is_refused_and_what_it_names_stays(tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    run = RunDir(tmp_path / "a")
    run.path.mkdir()
    run.lock.symlink_to(precious)
    with pytest.raises(NmtError, match=r"\.lock: this is a link.*Remove it"), run.locked():
        pass
    with pytest.raises(NmtError, match=r"\.lock: this link leads out of the run"):
        train(load_config(written(tmp_path, SMALL)), run.path, resume=False, reporter=SilentReporter())
    assert precious.read_text() == "mine"


def test_a_lock_on_a_full_disk_is_one_message(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    before, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with (
            pytest.raises(NmtError, match=r"\.lock: cannot be written: .* Free space"),
            RunDir(tmp_path / "a").locked(),
        ):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
