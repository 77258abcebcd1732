"""R-Drop in updates: two readings of a batch with other dropout (the loss itself is in test_loss.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from updates import first_batch, training_of, update

from nmt.model.seq2seq import Seq2Seq
from nmt.training.likelihood import real_readouts
from nmt.training.loop import Training


def gradient_of(training: Training) -> tuple[torch.Tensor, torch.Tensor]:
    """The measurements of the first batch, and its gradient."""
    batch = first_batch(training)
    sums = training._gradient(batch, batch.tgt_tokens)
    return sums, torch.cat(
        [parameter.grad.flatten() for parameter in training.parameters if parameter.grad is not None]
    )


@pytest.mark.parametrize("name", ["bahdanau", "luong-feed", "none"])
def test_without_dropout_two_readings_are_one(tmp_path: Path, name: str) -> None:
    once, twice = (training_of(tmp_path / str(weight), name, r_drop=weight) for weight in (0.0, 5.0))
    once.model.eval(), twice.model.eval()
    for ours, theirs in zip(gradient_of(twice), gradient_of(once), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_the_readings_have_dropout_of_their_own_and_its_divergence_is_measured(tmp_path: Path) -> None:
    training = training_of(tmp_path, "bahdanau", r_drop=5.0, alignment_weight=0.0)
    sums, _ = gradient_of(training)
    assert sums[4] > 0
    batch = first_batch(training)
    readouts = real_readouts(training.model, batch.twice())[0].chunk(2)
    assert not torch.equal(*readouts)
    update(training, batch)
    assert training.state.window.divergence > 0


def test_the_loss_that_is_shown_is_the_smoothed_one_alone(tmp_path: Path) -> None:
    """It compares with that of other runs: neither the divergence is in it, nor is it that of two readings."""
    training = training_of(tmp_path, "bahdanau", r_drop=500.0, alignment_weight=0.0)
    batch, smoothing = first_batch(training), training.config.label_smoothing
    state = torch.get_rng_state()
    with torch.no_grad():
        twice = batch.twice()
        logits_NV = training.model.output(real_readouts(training.model, twice)[0])
    loss = torch.nn.CrossEntropyLoss(label_smoothing=smoothing, reduction="sum")
    expected = float(loss(logits_NV, twice.tgt_out_N)) / 2
    torch.set_rng_state(state)
    update(training, batch)
    window = training.state.window
    assert window.divergence > 0.01 * window.likelihood
    assert window.smoothed == pytest.approx(expected, rel=1e-4)


def test_a_batch_twice_is_its_pairs_twice(tmp_path: Path) -> None:
    batch = first_batch(training_of(tmp_path, "bahdanau"))
    twice, count = batch.twice(), len(batch.pairs)
    assert torch.equal(twice.tgt_out_N, twice.tgt_out_BT.flatten()[twice.tgt_places_N])
    assert torch.equal(twice.src_BS[count:], batch.src_BS)
    assert torch.equal(twice.src_lengths_B.view(2, -1)[1], batch.src_lengths_B)
    assert twice.alignment is not None
    assert batch.alignment is not None
    assert twice.alignment.shares_L.sum() == batch.alignment.shares_L.sum()
    assert torch.equal(twice.alignment.rows_L.view(2, -1)[1], batch.alignment.rows_L + count)
    model: Seq2Seq = training_of(tmp_path / "again", "bahdanau").model.eval()
    one, other = real_readouts(model, twice)[0].chunk(2)
    torch.testing.assert_close(one, other)
    torch.testing.assert_close(one, real_readouts(model, batch)[0])
