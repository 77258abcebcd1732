"""Several processes train as one would, and end together. They are started as torchrun starts them, but as forks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from test_resume import content, metrics, signalled_in
from tiny import forked, nmt, write_config, write_corpus

Before = Callable[[], None]


def train(
    folder: Path, count: int, *args: str, before: Before | None = None, of: int = 1
) -> tuple[list[int | None], str]:
    """`nmt train` in `count` processes, `before` being called in number `of`; exit codes, and what all of them said."""
    place = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    # As torchrun does, which outlives its processes, this one keeps what they leave for each other.
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    started = []
    log = folder / "log"
    with log.open("wb") as said, open(os.devnull, "rb") as nothing:
        for rank in range(count):
            with mock.patch.dict(os.environ, place | {"RANK": str(rank), "LOCAL_RANK": str(rank)}):
                streams = (nothing.fileno(), said.fileno(), said.fileno())
                command = ["train", *args]
                started.append(forked.start(command, folder, streams, before if rank == of else None))
    for process in started:
        process.join(120)
    return [process.exitcode for process in started], log.read_text()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("processes")
    write_corpus(folder)
    write_config(folder, max_steps=8, validate_every=4, log_every=1)
    return folder


COMMON = ("--config", "bahdanau.yaml", "--set", "training.optimizer.learning_rate=0.01")


@pytest.fixture(scope="module")
def single(place: Path) -> Path:
    nmt("train", *COMMON, *shared(600), "--run-dir", "runs/single", cwd=place)
    return place / "runs/single"


def shared(budget: int, parts: int = 1) -> list[str]:
    changes = ["model.dropout=0", f"training.batch_tokens={budget}", f"training.accumulate={parts}"]
    return [word for change in changes for word in ("--set", change)]


@pytest.mark.parametrize(("count", "parts"), [(2, 1), (3, 1), (2, 3)])
def test_processes_and_parts_train_as_one_process_with_the_budget_of_all(
    place: Path, single: Path, count: int, parts: int
) -> None:
    name = f"runs/{count}-{parts}"
    codes, said = train(place, count, *COMMON, *shared(600 // count // parts, parts), "--run-dir", name)
    assert codes == [0] * count, said
    ours, theirs = (metrics(folder) for folder in (place / name, single))
    for line, expected in zip(ours, theirs, strict=True):
        assert line == pytest.approx(expected, rel=1e-4)
    weights, expected_weights = (
        torch.load(folder / "checkpoints/last.pt", weights_only=True)["model"] for folder in (place / name, single)
    )
    for key, weight in weights.items():
        torch.testing.assert_close(weight, expected_weights[key], rtol=1e-3, atol=1e-4)
    for file in ("dev/step_000008.txt", "eval/test.hyp.txt"):
        assert (place / name / file).read_bytes() == (single / file).read_bytes()
    scores = [json.loads((folder / "eval/test.json").read_text())["metrics"] for folder in (place / name, single)]
    assert scores[0] == scores[1]


def test_each_message_comes_once(place: Path, single: Path) -> None:
    codes, said = train(place, 2, *COMMON, "--run-dir", "runs/single")
    assert codes == [1, 1]
    assert said.count("error:") == 1
    codes, said = train(place, 2, *COMMON, "--run-dir", "runs/gpu", "--set", "training.device=cuda:7")
    assert codes == [1, 1]
    assert said.count("error:") == 1
    assert not (place / "runs/gpu").exists()


def whole_and_resumed(place: Path, name: str) -> tuple[Path, Path]:
    return place / "runs" / f"{name}-whole", place / "runs" / name


def test_a_signal_to_any_process_stops_all_and_a_resumed_run_is_the_one_that_never_stopped(place: Path) -> None:
    whole, ours = whole_and_resumed(place, "stopped")
    assert train(place, 2, *COMMON, "--run-dir", str(whole))[0] == [0, 0]
    codes, said = train(place, 2, *COMMON, "--run-dir", str(ours), before=partial(signalled_in, 3, 15))
    assert codes == [143, 143]
    assert said.count("stopped by SIGTERM; all is saved") == 1
    assert train(place, 2, "--resume", "--run-dir", str(ours))[0] == [0, 0]
    assert content(ours / "checkpoints/last.pt") == content(whole / "checkpoints/last.pt")
    assert metrics(ours) == metrics(whole)
    random = torch.load(ours / "checkpoints/last.pt", weights_only=True)["random"]
    assert not torch.equal(random["cpu"], random["others"][0]["cpu"])


@pytest.mark.parametrize("victim", [0, 1])
def test_a_process_that_dies_ends_all_with_one_message_and_another_number_goes_on(
    place: Path, single: Path, victim: int
) -> None:
    name = f"runs/killed-{victim}"
    settings = (*COMMON, *shared(300), "--run-dir", name)
    codes, said = train(place, 2, *settings, before=partial(signalled_in, 6, 9), of=victim)
    assert codes[victim] == -9
    assert codes[1 - victim] == 1
    assert said.count("error:") == 1
    assert "one of the 2 processes has ended unexpectedly" in said
    resumed = nmt("train", "--resume", "--run-dir", name, *shared(300, 2), cwd=place).stderr.decode()
    assert "changed: processes: 2 -> 1 (same batches)" in resumed
    assert "resumed at step 4" in resumed
    for line, expected in zip(metrics(place / name), metrics(single), strict=True):
        assert line == pytest.approx(expected, rel=1e-4)


def failing() -> None:
    """In this process memory does not suffice for the second update."""
    from nmt.training.loop import Training

    gradient = Training._gradient

    def short(training: Training, *args: Any) -> Any:
        if training.state.step == 2:
            raise MemoryError
        return gradient(training, *args)

    Training._gradient = short  # type: ignore[method-assign]


def test_what_fails_in_one_process_is_told_by_the_first(place: Path) -> None:
    codes, said = train(place, 2, *COMMON, "--run-dir", "runs/failing", before=failing)
    assert codes == [1, 1]
    assert said.count("error:") == 1
    assert "error: process 1 on " in said
    assert "out of memory at step 2" in said
