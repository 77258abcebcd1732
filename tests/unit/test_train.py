"""What a training says: how it goes on when something cannot be written, and that a long validation goes on."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

import nmt.train
from nmt.errors import NmtError, unwritable
from nmt.reporting import SilentReporter
from nmt.run_dir import RunDir
from nmt.training.signals import BrokenOff, StopSignals


class Bars(SilentReporter):
    def __init__(self) -> None:
        self.seen: list[tuple[str, float, float | None]] = []

    def progress(self, task: str, done: float, total: float | None, note: str = "") -> None:
        self.seen.append((task, done, total))


@pytest.mark.parametrize("bare", [False, True])
def test_on_a_full_disk_the_message_says_how_much_room_there_is_and_how_to_go_on(tmp_path: Path, bare: bool) -> None:
    run = RunDir.create(tmp_path / "a run")
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(run.metrics))

    def message() -> str:
        with pytest.raises(NmtError) as caught, nmt.train._way_on_told(run):
            raise full if bare else unwritable(run.metrics, full, 2_345_678)
        return str(caught.value)

    needed = "" if bare else "about 2\\.3 MB are needed, "
    said = (
        rf"metrics\.jsonl: cannot be written: No space left on device \({needed}[0-9,.]+ \w+ are free\)\. Free space "
    )
    again = rf"{said}on that disk, and give the same command again; nothing has been trained yet\. Or choose another"
    assert re.search(again, message())
    run.config.touch()
    assert re.search(rf"{said}on that disk, and go on with: nmt train --resume --run-dir '{run.path}'$", message())


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_in_a_read_only_folder_the_message_says_what_to_make_writable_and_how_to_go_on(
    tmp_path: Path, number: int
) -> None:
    run = RunDir.create(tmp_path / "run")
    run.config.touch()
    run.metrics.touch()
    with (
        pytest.raises(NmtError, match=r"\. Make that file and its folder writable, and go on with: nmt train --resume"),
        nmt.train._way_on_told(run),
    ):
        raise unwritable(run.metrics, OSError(number, os.strerror(number)))


def test_what_else_goes_wrong_is_not_taken_for_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), nmt.train._way_on_told(RunDir(tmp_path)):
        (tmp_path / "gone").read_bytes()


def test_a_validation_shows_that_it_goes_on_once_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    bars, signals = Bars(), StopSignals()
    watch = nmt.train._Watch(1500, signals, bars)
    watch()
    watch.end()
    assert bars.seen == []
    monkeypatch.setattr(nmt.train, "QUIET", -1.0)
    watch()
    watch()
    watch.end()
    task = "validation at step 1,500, batches"
    assert bars.seen == [(task, 1, None), (task, 2, None), (task, 3, 3)]
    signals.received = 15
    for call in (watch, watch.end):
        with pytest.raises(BrokenOff):
            call()
