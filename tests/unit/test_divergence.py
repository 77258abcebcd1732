"""Numbers that overflow: what is left out, what is never saved, and what is told at the end."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from test_loop import Trainer, batches, first_epoch
from updates import first_batch, training_of, update

from nmt.data.batching import TrainingBatches
from nmt.errors import NmtError
from nmt.training.checkpoint import load_checkpoint
from nmt.training.likelihood import likelihood

__all__ = ["batches"]


def test_a_real_overflow_ends_training_and_the_last_good_checkpoint_goes_on(
    tmp_path: Path, batches: TrainingBatches
) -> None:
    trainer = Trainer(tmp_path / "run", batches)

    def validate(step: int) -> dict[str, float]:
        trainer.training.schedule.learning_rate = 1e38 if step == 4 else 1e-3
        return {"dev/bleu": 0.0} | likelihood(trainer.model, first_epoch(batches), torch.device("cpu"))

    with pytest.raises(NmtError, match=r"step 6: the development set's loss is (nan|inf); nothing is saved") as caught:
        trainer.training.fit(validate)
    command = f"nmt train --resume --run-dir {trainer.run.path} --set training.optimizer.learning_rate=0.0005"
    assert command in str(caught.value)
    assert load_checkpoint(trainer.run.last)["state"]["step"] == 4
    assert Trainer(tmp_path / "run", batches, resume=True).fit().finished == "max_steps 12 reached"


def test_the_third_in_a_row_names_its_pairs_and_writes_their_text(tmp_path: Path, batches: TrainingBatches) -> None:
    trainer = Trainer(tmp_path / "run", batches, validate_every=100)
    with torch.no_grad():
        trainer.model.output.bias.fill_(math.inf)
    with pytest.raises(
        NmtError, match=r"step 3: the gradient is nan and the loss is \S+ \(batch of \d+ pairs"
    ) as caught:
        trainer.fit()
    rows = [line.split("\t") for line in trainer.run.failed_batch.read_text().splitlines()]
    assert all(row[1:] == ["s", "t"] for row in rows)
    assert f"batch of {len(rows)} pairs: {rows[0][0]}" in str(caught.value)
    assert trainer.training.state.skipped == 3


def test_a_loss_that_is_no_number_leaves_the_update_out_though_its_gradient_is_finite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = training_of(tmp_path, "bahdanau")
    losses = training._losses

    def infinite(*args: Any) -> Any:
        found, guidance = losses(*args)
        return found._replace(loss=found.loss + math.inf), guidance

    before = [parameter.clone() for parameter in training.parameters]
    monkeypatch.setattr(training, "_losses", infinite)
    update(training, first_batch(training))
    assert training.state.skipped == 1
    assert all(torch.equal(one, other) for one, other in zip(before, training.parameters))
    monkeypatch.undo()
    update(training, first_batch(training))
    assert training.state.skipped_in_a_row == 0


@pytest.mark.parametrize("average", [False, True])
def test_weights_that_are_no_numbers_are_neither_validated_nor_saved(
    tmp_path: Path, batches: TrainingBatches, average: bool
) -> None:
    trainer = Trainer(tmp_path / "run", batches, ema_decay=0.9)
    broken = trainer.training.average.average if average and trainer.training.average else trainer.training.parameters
    with torch.no_grad():
        broken[0][0] = math.nan
    for act in (lambda: trainer.training._save(best=False), lambda: trainer.training.validate(lambda step: {})):
        with pytest.raises(NmtError, match="weights are not finite any more, so nothing is saved"):
            act()
    assert trainer.steps_saved() == []
