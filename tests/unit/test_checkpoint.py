"""Checkpoints as files: what one may be called, and what is said when one cannot be written."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from test_loop import Trainer, batches

from nmt.data.batching import TrainingBatches
from nmt.errors import UnwritableError
from nmt.run_dir import read_json_object
from nmt.training import checkpoint
from nmt.training.checkpoint import checkpoint_to_resume, load_checkpoint, make_last, save_checkpoint

__all__ = ["batches"]


def test_a_checkpoint_of_any_name_is_taken_up(tmp_path: Path, batches: TrainingBatches) -> None:
    trainer = Trainer(tmp_path / "run", batches, max_steps=4)
    trainer.fit()
    run, older = trainer.run, trainer.run.checkpoints / "step_old.pt"
    (run.checkpoints / "step_000002.pt").rename(older)
    run.meta.unlink()  # a run that noted nothing
    found = checkpoint_to_resume(run, older)
    assert found is not None
    make_last(run, found[0], found[1]["state"]["step"])
    assert load_checkpoint(run.last)["state"]["step"] == 2
    assert read_json_object(run.meta) == {"first_checkpoint": 2}


@pytest.mark.parametrize("named", [0, 1])
def test_a_first_save_that_a_kill_cut_before_its_names_is_finished(
    tmp_path: Path, batches: TrainingBatches, monkeypatch: pytest.MonkeyPatch, named: int
) -> None:
    trainer = Trainer(tmp_path / "run", batches, max_steps=2)
    run, calls = trainer.run, [checkpoint._second_name] * named
    monkeypatch.setattr(checkpoint, "_second_name", lambda *names: calls.pop()(*names))  # then IndexError, as a kill
    with pytest.raises(IndexError):
        trainer.fit()
    monkeypatch.undo()
    assert (run.best.exists(), run.last.exists()) == (bool(named), False)
    found = checkpoint_to_resume(run)
    assert found is not None
    assert found[0] == run.last
    assert load_checkpoint(run.best)["state"]["step"] == found[1]["state"]["step"] == 2


def test_in_a_read_only_folder_a_checkpoint_has_no_advice_about_room(
    tmp_path: Path, batches: TrainingBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(tmp_path / "run", batches)

    def refuse(*_: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "replace", refuse)
    message = r"\(there is none before it\): Read-only file system\. Make its folder writable, or write elsewhere\.$"
    with pytest.raises(UnwritableError, match=message):
        save_checkpoint(trainer.run, 1, trainer.training.checkpoint(), best=False, keep=1)
