"""Scheduled sampling: which previous words are the model's own, and what it predicts them from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from updates import first_batch, training_of, update

from nmt.training.own_words import share_of_own_words, with_own_words


@pytest.mark.parametrize("name", ["bahdanau", "luong-feed", "luong-predictive", "none-feed-lstm"])
def test_own_words_follow_the_models_predictions_after_own_words(tmp_path: Path, name: str) -> None:
    """All words its own, of a model that is sure of each: they are what greedy search finds."""
    training = training_of(tmp_path, name)
    batch, model = first_batch(training), training.model
    with torch.no_grad():
        for parameter in model.output.parameters():
            parameter.mul_(1e4)  # nothing but the best is drawn
    found = with_own_words(model, batch, 1.0)
    assert model.training
    model.eval()
    expected = batch.tgt_in_BT[:, :1]  # BOS
    for _ in range(batch.tgt_in_BT.shape[1] - 1):
        readouts_BTR, _ = model(batch.src_BS, batch.src_lengths_B, expected)
        expected = torch.cat([expected, model.output(readouts_BTR[:, -1]).argmax(-1, keepdim=True)], 1)
    assert torch.equal(found.tgt_in_BT, expected)
    assert torch.equal(found.tgt_out_BT, batch.tgt_out_BT)


def test_a_share_of_the_words_is_drawn_by_their_probabilities(tmp_path: Path) -> None:
    training = training_of(tmp_path, "bahdanau")
    batch, model = first_batch(training), training.model
    with torch.no_grad():
        model.output.weight.zero_()
        model.output.bias.fill_(-100.0)[4:6] = torch.tensor([0.0, 1.0])
    found = torch.cat([with_own_words(model, batch, 0.5).tgt_in_BT[:, 1:].flatten() for _ in range(300)])
    given = batch.tgt_in_BT[:, 1:].flatten().repeat(300)
    own = found[(given != 4) & (given != 5) & (found != given)]
    assert set(own.tolist()) == {4, 5}
    assert (own == 5).double().mean() == pytest.approx(1 / (1 + torch.e**-1), abs=0.02)
    assert len(own) / len(given[(given != 4) & (given != 5)]) == pytest.approx(0.5, abs=0.02)


def test_the_share_rises_from_none_to_the_setting() -> None:
    assert [share_of_own_words(0.5, done) for done in (0.0, 0.5, 1.0, 2.0)] == [0, 0.25, 0.5, 0.5]


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_an_update_reads_own_words(tmp_path: Path, share: float) -> None:
    """What reaches the model: all words its own at the last update, those of the batch where none are asked for."""
    training = training_of(tmp_path, "luong-general", scheduled_sampling=share, max_steps=1)
    batch, read = first_batch(training), []
    training.model.register_forward_pre_hook(lambda _, given: read.append(given[2].clone()))
    state = torch.get_rng_state()
    expected = with_own_words(training.model, batch, 1.0).tgt_in_BT if share else batch.tgt_in_BT
    torch.set_rng_state(state)
    update(training, batch)
    assert len(read) == 1
    assert torch.equal(read[0], expected)
    assert torch.equal(read[0], batch.tgt_in_BT) == (share == 0)
    assert not training.state.skipped
