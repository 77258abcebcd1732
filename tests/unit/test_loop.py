"""The training loop on a small model with made-up validation scores: stopping, saving, skipping, resuming."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from models import small_model

from nmt.config import TrainingConfig
from nmt.data.batching import Batch, Deal, TrainingBatches
from nmt.data.store import CorpusWriter, EncodedCorpus
from nmt.errors import NmtError
from nmt.reporting import SilentReporter
from nmt.run_dir import RunDir
from nmt.training.checkpoint import best_is_missing, checkpoint_to_resume, load_checkpoint, save_checkpoint
from nmt.training.likelihood import likelihood
from nmt.training.loop import Training
from nmt.training.metrics import MetricsWriter, read_metrics
from nmt.training.processes import Processes
from nmt.training.readings import Readings
from nmt.training.signals import Stopped


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> TrainingBatches:
    path = tmp_path_factory.mktemp("corpus") / "pairs.arrow"
    rng = np.random.default_rng(1)
    rows = [rng.integers(4, 11, rng.integers(1, 6)).tolist() for _ in range(60)]
    with CorpusWriter(path) as writer:
        writer.write(rows, rows, ["s"] * 60, ["t"] * 60)
    return TrainingBatches(EncodedCorpus(path), 40, seed=1)


class Trainer:
    """A training in a folder of its own; `scores` are what the validations find, one after the other."""

    def __init__(self, folder: Path, batches: TrainingBatches, resume: bool = False, **settings: object) -> None:
        values: dict[str, object] = {"max_steps": 12, "validate_every": 2, "log_every": 3, "patience": 100}
        self.config = TrainingConfig.model_validate(values | settings)
        self.run = RunDir(folder) if resume else RunDir.create(folder)
        content = load_checkpoint(self.run.last) if resume else None
        step = content["state"]["step"] if content else None
        self.model = small_model("bahdanau", dtype=torch.float32)
        torch.manual_seed(3)
        device = torch.device("cpu")
        self.training = Training(self.model, batches, self.config, device, self.run, SilentReporter())
        if content:
            self.training.restore(content)
            self.training.note_due()
        due = self.training.state.validation_due
        self.metrics = MetricsWriter(self.run.metrics, self.run.tensorboard, step, validation_due=due)
        self.training.metrics = self.metrics
        self.validated: list[int] = []
        self.average_seen: list[torch.Tensor] = []

    def fit(self, scores: Sequence[float] = (), losses: Sequence[float] = (), at: Any = None) -> Any:
        score, loss = iter([*scores, *[0.0] * 100]), iter([*losses, *[9.0] * 100])

        def validate(step: int) -> dict[str, float]:
            self.validated.append(step)
            self.average_seen.append(next(self.model.parameters()).detach().clone())
            if at is not None:
                at(step)
            return {"dev/bleu": next(score), "dev/loss": next(loss)}

        try:
            return self.training.fit(validate)
        finally:
            self.metrics.close()

    def steps_saved(self) -> list[int]:
        return sorted(int(path.stem[5:]) for path in self.run.checkpoints.glob("step_*.pt"))


def test_training_ends_at_max_steps_with_a_validation_there(tmp_path: Path, batches: TrainingBatches) -> None:
    trainer = Trainer(tmp_path / "run", batches, max_steps=7, validate_every=3)
    state = trainer.fit()
    assert trainer.validated == [3, 6, 7]
    assert state.finished == "max_steps 7 reached"
    assert load_checkpoint(trainer.run.last)["state"]["step"] == 7


def test_training_ends_at_max_minutes(tmp_path: Path, batches: TrainingBatches) -> None:
    state = Trainer(tmp_path / "run", batches, max_steps=100_000, max_minutes=1e-4).fit()
    assert state.finished.startswith("max_minutes")
    assert state.step < 100_000


def test_the_best_checkpoint_is_that_of_the_best_validation_and_not_the_last(
    tmp_path: Path, batches: TrainingBatches
) -> None:
    trainer = Trainer(tmp_path / "run", batches)
    state = trainer.fit(scores=[1, 5, 3, 5, 2, 4])
    assert (state.best_step, state.best_score) == (4, 5)
    best = load_checkpoint(trainer.run.best)
    assert best["state"]["step"] == 4
    first = next(iter(best["model"].values()))
    torch.testing.assert_close(first, trainer.average_seen[1], rtol=0, atol=0)


def test_patience_ends_training_when_neither_score_nor_loss_gets_better(
    tmp_path: Path, batches: TrainingBatches
) -> None:
    trainer = Trainer(tmp_path / "run", batches, patience=2)
    state = trainer.fit(scores=[5, 4, 4, 4], losses=[3, 2, 2, 2])
    assert trainer.validated == [2, 4, 6, 8]
    assert state.finished == "no better score in 2 validations"
    assert state.best_step == 2


def test_a_plateau_lowers_the_rate(tmp_path: Path, batches: TrainingBatches) -> None:
    schedule = {"kind": "plateau", "factor": 0.1, "patience": 0}
    trainer = Trainer(tmp_path / "run", batches, schedule=schedule, log_every=1, max_steps=8)
    trainer.fit(scores=[5, 4, 6], losses=[3, 3, 3])
    rates = {line["step"]: line["train/learning_rate"] for line in read_metrics(trainer.run.metrics) if len(line) > 3}
    assert [rates[step] for step in (1, 4, 5, 8)] == pytest.approx([1e-3, 1e-3, 1e-4, 1e-4])


def test_only_the_newest_checkpoints_are_kept_beside_best_and_last(tmp_path: Path, batches: TrainingBatches) -> None:
    trainer = Trainer(tmp_path / "run", batches, keep_checkpoints=2)
    trainer.fit(scores=[9])
    assert trainer.steps_saved() == [10, 12]
    assert load_checkpoint(trainer.run.best)["state"]["step"] == 2


def test_the_oldest_checkpoint_goes_by_its_number(tmp_path: Path, batches: TrainingBatches) -> None:
    trainer = Trainer(tmp_path / "run", batches)
    for step in (999_999, 1_000_000):
        save_checkpoint(trainer.run, step, trainer.training.checkpoint(), best=False, keep=1)
    assert trainer.steps_saved() == [1_000_000]


def poisoned(trainer: Trainer, steps: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the gradient of some updates not a number."""
    forward = trainer.model.forward

    def wrong(*args: Any) -> Any:
        readouts, weights = forward(*args)
        return (readouts * float("nan") if trainer.training.state.step in steps else readouts), weights

    monkeypatch.setattr(trainer.model, "forward", wrong)


def test_an_update_without_a_finite_gradient_is_left_out_and_counted(
    tmp_path: Path, batches: TrainingBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(tmp_path / "run", batches)
    poisoned(trainer, {3, 4, 7}, monkeypatch)
    state = trainer.fit()
    assert state.skipped == 3
    assert all(parameter.isfinite().all() for parameter in trainer.model.parameters())


def test_three_such_updates_in_a_row_stop_the_run(
    tmp_path: Path, batches: TrainingBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(tmp_path / "run", batches)
    poisoned(trainer, {5, 6, 7}, monkeypatch)
    with pytest.raises(NmtError, match=r"step 7: the gradient is nan.*learning_rate"):
        trainer.fit()


def test_measurements_read_late_change_nothing(
    tmp_path: Path, batches: TrainingBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU: two updates later, but all of them before metrics and checkpoints are written."""
    trainers = []
    for late in (0, 2):
        trainer = Trainer(tmp_path / str(late), batches, ema_decay=0.9, log_every=5, validate_every=4)
        trainer.training.readings = Readings(torch.device("cpu"), late=late)
        poisoned(trainer, {3, 4, 7, 12}, monkeypatch)
        trainer.fit()
        trainers.append(trainer)
    assert same_but_for_time(load_checkpoint(trainers[0].run.last), load_checkpoint(trainers[1].run.last))
    assert timeless_metrics(trainers[0]) == timeless_metrics(trainers[1])


def test_divergence_read_late_names_the_batch_that_did_it(
    tmp_path: Path, batches: TrainingBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(tmp_path / "run", batches, log_every=100, validate_every=100)
    trainer.training.readings = Readings(torch.device("cpu"), late=2)
    poisoned(trainer, {5, 6, 7}, monkeypatch)
    pairs = [batch.pairs for _, batch in zip(range(7), first_epoch(batches))][-1]
    with pytest.raises(NmtError, match=rf"step 7: .*batch of {len(pairs)} pairs: {pairs[0] + 1},"):
        trainer.fit()
    assert trainer.training.state.step == 9


def test_skipped_updates_leave_weights_moments_and_average_as_they_were(
    tmp_path: Path, batches: TrainingBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []
    for steps in (set(), {3, 4}):
        trainer = Trainer(tmp_path / str(len(steps)), batches, ema_decay=0.9, max_steps=2 + len(steps))
        poisoned(trainer, steps, monkeypatch)
        trainer.fit()
        content = load_checkpoint(trainer.run.last)
        kept.append([content[name] for name in ("model", "weights")] + [content["optimizer"]["state"]])
    assert same_but_for_time(*({"kept": each} for each in kept))


@pytest.mark.parametrize("ema", [0.0, 0.9])
@pytest.mark.parametrize("stop", [2, 5, 8])
def test_stopped_by_a_signal_and_resumed_equals_never_stopped(
    tmp_path: Path, batches: TrainingBatches, ema: float, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = [1, 2, 3, 2, 1, 5]
    whole = Trainer(tmp_path / "whole", batches, ema_decay=ema)
    whole.fit(scores)

    cut = Trainer(tmp_path / "cut", batches, ema_decay=ema)
    update = cut.training.update

    def signalled(batch: Any) -> None:
        update(batch)
        if cut.training.state.step == stop:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(cut.training, "update", signalled)
    with pytest.raises(Stopped) as stopped:
        cut.fit(scores)
    assert stopped.value.exit_code == 143
    resumed = Trainer(tmp_path / "cut", batches, resume=True, ema_decay=ema)
    assert resumed.training.state.step == stop
    resumed.fit(scores[(stop - 1) // 2 :])  # the validation of the step that a signal ended comes now

    assert same_but_for_time(load_checkpoint(resumed.run.last), load_checkpoint(whole.run.last))
    assert timeless_metrics(resumed) == timeless_metrics(whole)


@pytest.mark.parametrize(("limit", "validated"), [({"max_steps": 5}, [5]), ({"max_minutes": 1e-9}, [5])])
def test_a_budget_lowered_to_where_a_run_stopped_ends_it_without_an_update(
    tmp_path: Path, batches: TrainingBatches, monkeypatch: pytest.MonkeyPatch, limit: dict[str, Any], validated: Any
) -> None:
    stopped = Trainer(tmp_path / "run", batches)
    update = stopped.training.update

    def signalled(batch: Any) -> None:
        update(batch)
        if stopped.training.state.step == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(stopped.training, "update", signalled)
    with pytest.raises(Stopped):
        stopped.fit()
    before = load_checkpoint(stopped.run.last)
    resumed = Trainer(tmp_path / "run", batches, resume=True, **limit)
    state = resumed.fit()
    assert (state.step, resumed.validated) == (5, validated)
    saved = load_checkpoint(resumed.run.last)
    assert saved["state"]["finished"].endswith("reached")
    assert same_but_for_time({"model": saved["model"]}, {"model": before["model"]})


def test_a_budget_that_ends_at_a_step_already_validated_ends_the_run_there(
    tmp_path: Path, batches: TrainingBatches
) -> None:
    trainer = Trainer(tmp_path / "run", batches, max_steps=4)
    trainer.fit()
    os.replace(trainer.run.checkpoints / "step_000002.pt", trainer.run.last)
    resumed = Trainer(tmp_path / "run", batches, resume=True, max_steps=2)
    assert (resumed.fit().step, resumed.validated) == (2, [])
    assert load_checkpoint(resumed.run.last)["state"]["finished"] == "max_steps 2 reached"


def same_but_for_time(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    flat_ours, flat_theirs = (list(flattened(content)) for content in (ours, theirs))
    assert [name for name, _ in flat_ours] == [name for name, _ in flat_theirs]
    for (name, mine), (_, other) in zip(flat_ours, flat_theirs, strict=True):
        if not name.endswith("seconds"):
            assert torch.equal(mine, other) if isinstance(mine, torch.Tensor) else mine == other, name
    return True


def timeless_metrics(trainer: Trainer) -> list[dict[str, Any]]:
    lines = read_metrics(trainer.run.metrics)
    return [{name: value for name, value in line.items() if "second" not in name} for line in lines]


def flattened(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flattened(inner, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from flattened(inner, f"{name}.{place}")
    else:
        yield name, value


def test_a_signal_in_the_last_validation_is_not_lost(tmp_path: Path, batches: TrainingBatches) -> None:
    trainer = Trainer(tmp_path / "run", batches, max_steps=4)
    with pytest.raises(Stopped) as stopped:
        trainer.fit(at=lambda step: os.kill(os.getpid(), signal.SIGINT) if step == 4 else None)
    assert stopped.value.exit_code == 130
    assert load_checkpoint(trainer.run.last)["state"]["finished"] == "max_steps 4 reached"


def test_with_a_moving_average_validation_and_best_use_the_average(tmp_path: Path, batches: TrainingBatches) -> None:
    trainer = Trainer(tmp_path / "run", batches, ema_decay=0.9, max_steps=6)
    trainer.fit(scores=[1, 2, 3])
    best = load_checkpoint(trainer.run.best)
    first = next(iter(best["model"].values()))
    torch.testing.assert_close(first, trainer.average_seen[-1], rtol=0, atol=0)
    assert not torch.equal(first, best["weights"][0])
    assert torch.equal(best["weights"][0], next(trainer.model.parameters()))


def test_the_clock_does_not_change_the_rates(tmp_path: Path, batches: TrainingBatches) -> None:
    rates = []
    for minutes in (None, 1.0):
        trainer = Trainer(
            tmp_path / str(minutes), batches, max_minutes=minutes, schedule={"kind": "cosine"}, log_every=1
        )
        trainer.fit()
        lines = read_metrics(trainer.run.metrics)
        rates.append([line["train/learning_rate"] for line in lines if "train/learning_rate" in line])
    assert rates[0] == rates[1]
    assert rates[0][0] == pytest.approx(1e-3)
    assert rates[0] == sorted(rates[0], reverse=True)
    assert rates[0][-1] > 0


def test_a_damaged_or_foreign_checkpoint_is_refused_and_others_are_offered(
    tmp_path: Path, batches: TrainingBatches
) -> None:
    trainer = Trainer(tmp_path / "run", batches)
    trainer.fit()
    whole = trainer.run.last.read_bytes()
    trainer.run.last.unlink()  # it shares its bytes with the newest step
    trainer.run.last.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(NmtError, match=r"last\.pt: this is not a checkpoint.*best\.pt.*step_"):
        load_checkpoint(trainer.run.last)
    torch.save({"model": {}}, trainer.run.last)
    with pytest.raises(NmtError, match=r"it has no optimizer, no schedule"):
        load_checkpoint(trainer.run.last)


def test_a_full_disk_leaves_the_older_checkpoint_and_says_what_to_do(
    tmp_path: Path, batches: TrainingBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(tmp_path / "run", batches)
    save_checkpoint(trainer.run, 1, trainer.training.checkpoint(), best=True, keep=3)

    def full(*_: Any) -> None:
        with open("/dev/full", "wb") as stream:
            torch.serialization.save(trainer.training.checkpoint(), stream)

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(NmtError, match=r"step_000002\.pt: the checkpoint cannot be written \(last.*Free space on that"):
        save_checkpoint(trainer.run, 2, {}, best=True, keep=3)
    assert trainer.steps_saved() == [1]
    assert load_checkpoint(trainer.run.last)["state"]["step"] == 0


def test_the_likelihood_is_the_mean_over_real_tokens(batches: TrainingBatches) -> None:
    model = small_model("bahdanau").eval()
    every = list(first_epoch(batches))
    found = likelihood(model, every, torch.device("cpu"))
    total, tokens = 0.0, 0
    for batch in every:
        readouts, _ = model(batch.src_BS, batch.src_lengths_B, batch.tgt_in_BT)
        logp = model.output(readouts).log_softmax(-1).detach()
        for row, column in batch.tgt_mask_BT.nonzero().tolist():
            total -= float(logp[row, column, batch.tgt_out_BT[row, column]])
            tokens += 1
    assert found["dev/loss"] == pytest.approx(total / tokens)
    assert found["dev/perplexity"] == pytest.approx(np.exp(total / tokens))
    assert 0 < found["dev/attention_entropy"] < np.log(7)


def first_epoch(batches: TrainingBatches) -> Iterator[Batch]:
    for epoch, _, portion in batches.from_position(0, 0):
        if epoch > 0:
            return
        yield portion.parts[0]


@pytest.mark.parametrize("stop", [4, 12])
def test_a_signal_in_a_validation_breaks_it_off_and_it_is_done_on_resume(
    tmp_path: Path, batches: TrainingBatches, stop: int
) -> None:
    scores = [1, 2, 3, 2, 1, 5]
    whole = Trainer(tmp_path / "whole", batches, ema_decay=0.9)
    whole.fit(scores)
    cut = Trainer(tmp_path / "cut", batches, ema_decay=0.9)

    def signalled(step: int) -> None:
        if step == stop:
            os.kill(os.getpid(), signal.SIGTERM)
            cut.training.signals.check()

    with pytest.raises(Stopped):
        cut.fit(scores, at=signalled)
    assert load_checkpoint(cut.run.last)["state"]["validation_due"]
    resumed = Trainer(tmp_path / "cut", batches, resume=True, ema_decay=0.9)
    resumed.fit(scores[stop // 2 - 1 :])
    assert resumed.validated[0] == stop
    assert same_but_for_time(load_checkpoint(resumed.run.last), load_checkpoint(whole.run.last))
    assert same_but_for_time(load_checkpoint(resumed.run.best), load_checkpoint(whole.run.best))
    assert timeless_metrics(resumed) == timeless_metrics(whole)


def test_a_changed_bit_of_a_checkpoint_is_found(tmp_path: Path, batches: TrainingBatches) -> None:
    trainer = Trainer(tmp_path / "run", batches, max_steps=2)
    trainer.fit()
    content = bytearray(trainer.run.last.read_bytes())
    content[len(content) // 2] ^= 1
    trainer.run.last.write_bytes(content)
    with pytest.raises(NmtError, match=r"last\.pt: this checkpoint is damaged: the checksum of its part"):
        load_checkpoint(trainer.run.last)


def test_a_run_whose_only_checkpoint_is_gone_does_not_start_over(tmp_path: Path, batches: TrainingBatches) -> None:
    trainer = Trainer(tmp_path / "run", batches, max_steps=2)
    trainer.fit()
    assert trainer.validated == [2]
    for file in trainer.run.checkpoints.iterdir():
        file.unlink()
    with pytest.raises(NmtError, match=r"last\.pt: it is gone, .* trained to step 2 at least"):
        checkpoint_to_resume(trainer.run)


def test_a_run_killed_between_its_first_validation_and_the_checkpoint_of_it_starts_over(
    tmp_path: Path, batches: TrainingBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(tmp_path / "run", batches)

    def killed(*_: Any) -> None:
        raise SystemExit

    monkeypatch.setattr(torch, "save", killed)
    with pytest.raises(SystemExit):
        trainer.fit()
    assert trainer.validated == [2]
    assert checkpoint_to_resume(trainer.run) is None


def test_checkpoints_of_later_steps_go_when_an_older_one_was_taken_up(tmp_path: Path, batches: TrainingBatches) -> None:
    trainer = Trainer(tmp_path / "run", batches, keep_checkpoints=10)
    trainer.fit()
    save_checkpoint(trainer.run, 5, trainer.training.checkpoint(), best=False, keep=10)
    assert trainer.steps_saved() == [2, 4, 5]


def test_a_best_checkpoint_of_another_step_is_put_right_or_given_up(tmp_path: Path, batches: TrainingBatches) -> None:
    trainer = Trainer(tmp_path / "run", batches)
    state = trainer.fit(scores=[1, 2, 3, 4, 5, 4]).to_dict()
    assert not best_is_missing(trainer.run, state)
    trainer.run.best.unlink()
    assert not best_is_missing(trainer.run, state)
    assert load_checkpoint(trainer.run.best)["state"]["step"] == 10
    assert best_is_missing(trainer.run, state | {"best_step": 4})


def test_an_update_from_parts_is_the_update_from_the_whole(tmp_path: Path, batches: TrainingBatches) -> None:
    found = {}
    for parts in (1, 3):
        dealt = TrainingBatches(batches.corpus, 120 // parts, seed=1, deal=Deal(parts=parts))
        trainer = Trainer(tmp_path / str(parts), dealt, accumulate=parts, log_every=1)
        trainer.fit()
        lines = [line for line in read_metrics(trainer.run.metrics) if "train/loss" in line]
        losses = [(line["train/loss"], line["train/gradient_norm"]) for line in lines]
        found[parts] = losses, [parameter.detach() for parameter in trainer.model.parameters()]
    np.testing.assert_allclose(found[3][0], found[1][0], rtol=1e-5)
    for ours, whole in zip(found[3][1], found[1][1], strict=True):
        torch.testing.assert_close(ours, whole, rtol=1e-4, atol=1e-5)


class Other(Processes):
    """As if there were another process, whose part of the gradient is no number at some updates."""

    def __init__(self, bad: int) -> None:
        self.bad, self.updates = bad, 0

    def summed(self, parameters: Sequence[Any], values: torch.Tensor) -> torch.Tensor:
        self.updates += 1
        if self.updates == self.bad:
            parameters[0].grad[0] = float("nan")
        return values


def test_a_gradient_of_another_process_that_is_no_number_is_left_out_here_too(
    tmp_path: Path, batches: TrainingBatches
) -> None:
    trainer = Trainer(tmp_path / "run", batches, max_steps=1)
    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    trainer.training.processes = Other(bad=1)
    assert trainer.fit().skipped == 1
    assert all(map(torch.equal, before, trainer.model.parameters()))
