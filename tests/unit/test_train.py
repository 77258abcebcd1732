"""What a training says: how it goes on when something cannot be written, and that a long validation goes on."""

from __future__ import annotations

import errno
import math
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

import nmt.train
from nmt.errors import NmtError, unwritable
from nmt.reporting import SilentReporter
from nmt.run_dir import RunDir, write_atomic
from nmt.training.processes import Processes
from nmt.training.signals import BrokenOff, StopSignals


class Bars(SilentReporter):
    def __init__(self) -> None:
        self.seen: list[tuple[str, float, float | None]] = []

    def progress(self, task: str, done: float, total: float | None, note: str = "") -> None:
        self.seen.append((task, done, total))


def failing(run: RunDir, error: Exception, begun: bool) -> str:
    """What is said of an error before or after a training has written the settings of its run."""

    def train() -> None:
        with nmt.train._way_on_told(run):
            if begun:
                write_atomic(run.config, "")
            raise error

    with pytest.raises(NmtError) as caught:
        train()
    return str(caught.value)


@pytest.mark.parametrize("bare", [False, True])
def test_on_a_full_disk_the_message_says_how_much_room_there_is_and_how_to_go_on(tmp_path: Path, bare: bool) -> None:
    run = RunDir.create(tmp_path / "a run")
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(run.metrics))

    def message(begun: bool) -> str:
        return failing(run, full if bare else unwritable(run.metrics, full, 2_345_678), begun)

    needed = "" if bare else "about 2\\.3 MB are needed, "
    said = (
        rf"metrics\.jsonl: cannot be written: No space left on device \({needed}[0-9,.]+ \w+ are free\)\. Free space "
    )
    again = rf"{said}on that disk, and give the same command again; nothing has been trained yet\. Or choose another"
    assert re.search(again, message(begun=False))
    for _ in ("a new run", "one that is taken up"):
        way_on = rf"{said}on that disk, and go on with: nmt train --resume --run-dir '{run.path}'$"
        assert re.search(way_on, message(begun=True))
    # Its settings are not those of this command yet: the options that were given would be lost.
    assert re.search(rf"{said}on that disk, and give the same command again\.$", message(begun=False))


def test_a_full_disk_that_is_not_named_is_the_one_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def usage(path: Path) -> Any:
        asked.append(Path(path))
        return SimpleNamespace(free=1)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    run = RunDir.create(tmp_path / "run")
    message = r"run: a file of this training cannot be written: No space left on device \(1 bytes are free\)\. Free"
    assert re.search(message, failing(run, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), begun=True))
    assert asked == [run.path]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_in_a_read_only_folder_the_message_says_what_to_make_writable_and_how_to_go_on(
    tmp_path: Path, number: int
) -> None:
    run = RunDir.create(tmp_path / "run")
    run.metrics.touch()
    said = failing(run, unwritable(run.metrics, OSError(number, os.strerror(number))), begun=True)
    assert ". Make that file and its folder writable, and go on with: nmt train --resume" in said


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


def test_a_validation_whose_loss_is_not_finite_ends_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    bars = Bars()

    def likelihood(model: Any, batches: Iterable[Any], *_: Any) -> dict[str, float]:
        return {"dev/loss": math.nan * len(list(batches))}

    monkeypatch.setattr(nmt.train, "QUIET", -1.0)
    monkeypatch.setattr(nmt.train, "in_order", lambda *_: ["a batch", "another"])
    monkeypatch.setattr(nmt.train, "make_batch", lambda _, pairs: pairs)
    monkeypatch.setattr(nmt.train, "likelihood", likelihood)
    parts = dict.fromkeys(("data", "config", "model", "device", "_too_large"), MagicMock())
    validation: Any = SimpleNamespace(signals=StopSignals(), reporter=bars, processes=Processes(), **parts)
    assert list(nmt.train.Validation.__call__(validation, 5)) == ["dev/loss"]
    assert bars.seen[-1] == ("validation at step 5, batches", 2, 2)
