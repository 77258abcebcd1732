"""`nmt average`: the mean is the mean, and what does not belong together is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from nmt.average import average_checkpoints
from nmt.errors import NmtError
from nmt.reporting import SilentReporter
from nmt.run_dir import RunDir
from nmt.training.checkpoint import checkpoint_to_resume, load_checkpoint, save_checkpoint
from nmt.training.foreign import KEYS
from nmt.training.state import TrainingState

STEPS = (100, 200, 300)


class Listener(SilentReporter):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, text: str) -> None:
        self.warnings.append(text)


def content(step: int, **weights: torch.Tensor) -> dict[str, object]:
    generator = torch.Generator().manual_seed(step)
    model = {"w": torch.randn(3, 2, generator=generator), "b": torch.randn(2, generator=generator).bfloat16()}
    return {key: {} for key in KEYS} | {"model": model | weights, "state": TrainingState(step=step).to_dict()}


def make_run(folder: Path, pieces: bytes = b"pieces") -> RunDir:
    run = RunDir.create(folder)
    run.config.write_text("")
    (run.tokenizer / "joint.model").write_bytes(pieces)
    for step in STEPS:
        save_checkpoint(run, step, content(step), best=step == 200, keep=5)
    scores = zip(STEPS, (10.0, 30.0, 20.0), strict=True)
    run.metrics.write_text("".join(f'{{"step": {step}, "dev/bleu": {score}}}\n' for step, score in scores))
    return run


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return make_run(tmp_path / "run")


def numbered(run: RunDir, step: int) -> Path:
    return run.checkpoints / f"step_{step:06d}.pt"


def refused(run: RunDir, message: str, **settings: object) -> None:
    before = sorted(file.name for file in run.checkpoints.iterdir())
    with pytest.raises(NmtError, match=message):
        average_checkpoints(run, SilentReporter(), **settings)  # type: ignore[arg-type]
    assert sorted(file.name for file in run.checkpoints.iterdir()) == before


def test_the_weights_are_the_mean_in_their_own_precision(run: RunDir) -> None:
    averaged = average_checkpoints(run, SilentReporter())
    assert (averaged.path, averaged.steps) == (run.checkpoints / "average.pt", STEPS)
    models = [load_checkpoint(numbered(run, step))["model"] for step in STEPS]
    made = load_checkpoint(averaged.path)
    for name, dtype in (("w", torch.float32), ("b", torch.bfloat16)):
        mean = np.mean([model[name].double().numpy() for model in models], axis=0)
        assert made["model"][name].dtype == dtype
        assert torch.equal(made["model"][name], torch.from_numpy(mean).to(dtype))
    assert made["state"] == {"step": 300, "averaged": [100, 200, 300]}
    assert made["optimizer"] == {}


def test_the_last_the_best_or_the_named_ones_are_taken(run: RunDir) -> None:
    def steps(**settings: object) -> tuple[int, ...]:
        return average_checkpoints(run, SilentReporter(), **settings).steps  # type: ignore[arg-type]

    assert steps(last=2) == (200, 300)
    assert steps(best=2) == (200, 300)
    run.metrics.write_text(
        '{"step": 100, "dev/bleu": 9}\n{"step": 200, "dev/bleu": 30}\n{"step": 300, "dev/bleu": 8}\n'
    )
    assert steps(best=2) == (100, 200)
    assert steps(checkpoints=[run.last, numbered(run, 100)]) == (300, 100)


def test_a_best_checkpoint_whose_number_was_dropped_is_one_of_the_best(run: RunDir) -> None:
    numbered(run, 200).unlink()
    averaged = average_checkpoints(run, SilentReporter(), best=2)
    assert (averaged.steps, averaged.checkpoints[0]) == ((200, 300), run.best)


def test_more_than_the_run_keeps_are_refused(run: RunDir) -> None:
    refused(run, r"4 checkpoints are wanted, and the run keeps 3\. .*keep_checkpoints", last=4)
    refused(run, "4 checkpoints are wanted, and the run keeps 3 with a score", best=4)
    refused(run, "one checkpoint is no average", checkpoints=[run.best])


def test_one_that_would_count_twice_is_refused(run: RunDir) -> None:
    refused(run, "the same checkpoint as .*step_000300.*twice", checkpoints=[numbered(run, 300), run.last])


@pytest.mark.parametrize("name", ["best.pt", "last.pt", "step_000300.pt", "step_x.pt", "mean", "../config.yaml"])
def test_a_name_that_training_uses_is_refused(run: RunDir, name: str) -> None:
    refused(run, r"uses|ends in \.pt", output=run.checkpoints / name)


def test_a_link_with_a_harmless_name_does_not_lead_to_one_that_training_uses(run: RunDir) -> None:
    (run.checkpoints / "mine.pt").symlink_to("best.pt")
    refused(run, "name is one that training uses", output=run.checkpoints / "mine.pt")


def test_neither_another_runs_checkpoint_nor_one_that_is_averaged_is_replaced(run: RunDir, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other")
    for name in ("best.pt", "last.pt", "step_000100.pt"):
        refused(run, "name is one that training uses", output=other.checkpoints / name)
    kept = [tmp_path / "one.pt", tmp_path / "two.pt"]
    for file, step in zip(kept, STEPS):
        file.write_bytes(numbered(run, step).read_bytes())
    before = kept[1].read_bytes()
    refused(run, "two.pt: this is one of the checkpoints to average", checkpoints=kept, output=kept[1])
    assert kept[1].read_bytes() == before


def test_scores_of_an_average_that_is_replaced_are_warned_of(run: RunDir) -> None:
    reporter = Listener()
    average_checkpoints(run, reporter)
    average_checkpoints(run, reporter, last=2)
    assert reporter.warnings == []
    for name, checkpoint in (("test.average", "average"), ("test.average.beam1", "average"), ("test", "best")):
        (run.eval / f"{name}.json").write_text(json.dumps({"checkpoint": f"checkpoints/{checkpoint}.pt"}))
    average_checkpoints(run, reporter)
    [warning] = reporter.warnings
    assert ": test.average, test.average.beam1: these are scores of the average that" in warning


def test_an_average_of_averages_is_refused(run: RunDir) -> None:
    average = average_checkpoints(run, SilentReporter()).path
    refused(run, "average itself", checkpoints=[average, run.best], output=run.checkpoints / "more.pt")


def test_another_shape_is_refused_by_name(run: RunDir) -> None:
    save_checkpoint(run, 400, content(400, w=torch.zeros(3, 3)), best=False, keep=5)
    refused(run, r"step_000400\.pt: .*step_000300\.pt: w is \[3, 3\] here and \[3, 2\] there", last=2)
    save_checkpoint(run, 400, content(400, more=torch.zeros(1)), best=False, keep=5)
    refused(run, r"more is \[1\] here and absent there", last=2)


def test_another_runs_vocabulary_is_refused(run: RunDir, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", pieces=b"others")
    refused(run, r"other/checkpoints/best\.pt: the vocabulary of its run", checkpoints=[run.best, other.best])


def test_another_runs_checkpoint_of_the_same_vocabulary_is_warned_of(run: RunDir, tmp_path: Path) -> None:
    other, reporter = make_run(tmp_path / "other"), Listener()
    average_checkpoints(run, reporter, checkpoints=[run.best, other.last], output=tmp_path / "mine.pt")
    [warning] = reporter.warnings
    assert "of another run" in warning
    assert (tmp_path / "mine.pt").is_file()


def test_training_does_not_go_on_from_an_average(run: RunDir) -> None:
    average = average_checkpoints(run, SilentReporter()).path
    with pytest.raises(NmtError, match=r"average\.pt: this is an average .*step_000300\.pt, of step 300, is whole"):
        checkpoint_to_resume(run, average)
    resumed = checkpoint_to_resume(run)
    assert resumed is not None
    assert resumed[0] == run.last


def test_training_does_not_drop_an_average(run: RunDir) -> None:
    average = average_checkpoints(run, SilentReporter()).path
    before = average.read_bytes()
    save_checkpoint(run, 150, content(150), best=False, keep=1)
    assert sorted(file.name for file in run.checkpoints.iterdir()) == [
        "average.pt", "best.pt", "last.pt", "step_000150.pt",
    ]  # fmt: skip
    assert average.read_bytes() == before
