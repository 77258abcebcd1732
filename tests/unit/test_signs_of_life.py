"""What a training shows while it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_loop import Trainer, batches

from nmt.data.batching import TrainingBatches

__all__ = ["batches"]


def test_a_first_sign_of_life_comes_before_the_first_loss(
    tmp_path: Path, batches: TrainingBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(tmp_path / "run", batches, max_steps=4, log_every=3)
    shown: list[tuple[float, str]] = []
    monkeypatch.setattr(
        trainer.training.reporter, "progress", lambda _, done, total, note="": shown.append((done, note))
    )
    trainer.fit()
    assert shown[0] == (0.25, "step 1  epoch 1")
    assert ["loss" in note for _, note in shown] == [False, False, True, True, False]
