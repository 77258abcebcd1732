"""Runs that real signals stop at exact updates, resumed from the command line, against runs that nothing stopped.

Values that depend on time are left out of the comparison: `train/tokens_per_second` in metrics.jsonl and TensorBoard,
and `seconds` in the checkpoint's state and window.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny import DECODERS, forked, write_corpus

TIMED = "train/tokens_per_second"
VALIDATE_EVERY = 6
# In the middle of the first epoch, right after a validation, in a later epoch.
STOPS = {2: signal.SIGTERM, VALIDATE_EVERY: signal.SIGINT, 23: signal.SIGTERM}


def signalled_in(stop_at: int, number: int) -> None:
    """In this process a signal comes during update `stop_at`."""
    from nmt.training.loop import Training

    update = Training.update

    def signalled(training: Training, batch: Any) -> None:
        update(training, batch)
        if training.state.step == stop_at:
            os.kill(os.getpid(), number)

    Training.update = signalled  # type: ignore[method-assign]


def run(folder: Path, *args: str, stop_at: int | None = None, number: int = 0) -> int | None:
    """Runs a command in a process of its own; returns its exit code."""
    before = None if stop_at is None else partial(signalled_in, stop_at, number)
    with (folder / "log").open("ab") as log, open(os.devnull, "rb") as nothing:
        process = forked.start(list(args), folder, (nothing.fileno(), log.fileno(), log.fileno()), before)
    process.join(280)
    return process.exitcode


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resume")
    write_corpus(folder)
    for name in ("train.en", "train.de"):
        lines = (folder / name).read_text().splitlines(keepends=True)
        (folder / name).write_text("".join(lines[:80]))
    lines = (folder / "dev.en").read_text().splitlines(keepends=True)
    (folder / "dev.en").write_text("".join(lines[:6]))
    # No piece of these is ever trained: the loss on them rises from the first validation on, which is the best one.
    (folder / "dev.de").write_text("q x q\n" * 6)
    return folder


def write(folder: Path, kind: str) -> str:
    """A configuration with all that has state."""
    config = {
        "data": {"src_lang": "en", "tgt_lang": "de"}
        | {split: {"src": f"{split}.en", "tgt": f"{split}.de"} for split in ("train", "dev")},
        "tokenizer": {"vocab_size": 36, "sampling_alpha": 0.3},
        "model": {"embedding_size": 16, "dropout": 0.2, "encoder": {"hidden_size": 12}, "decoder": DECODERS[kind]},
        "training": {
            "batch_tokens": 250, "max_steps": 24, "validate_every": VALIDATE_EVERY, "log_every": 2, "ema_decay": 0.9,
            "patience": 50, "keep_checkpoints": 1, "optimizer": {"learning_rate": 0.01},
            "schedule": {"kind": "plateau", "factor": 0.7, "patience": 0, "warmup_steps": 4},
        },
        "search": {"beam_size": 1, "max_length_ratio": 1.0},
    }  # fmt: skip
    name = f"{kind}.yaml"
    (folder / name).write_text(yaml.safe_dump(config), encoding="utf-8")
    return name


def content(path: Path) -> dict[str, Any]:
    """All tensors and values of a checkpoint by name, but for times."""

    def flattened(value: Any, name: str) -> Iterator[tuple[str, Any]]:
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
        if inner is None:
            yield name, value.numpy().tobytes() if isinstance(value, torch.Tensor) else value
        else:
            for key, each in inner:
                yield from flattened(each, f"{name}.{key}")

    found = dict(flattened(torch.load(path, weights_only=True), ""))
    return {name: value for name, value in found.items() if not name.endswith("seconds")}


def metrics(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != TIMED} for line in lines]


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    names = [name for name in events.Tags()["scalars"] if name != TIMED]
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in names}


@pytest.mark.parametrize("kind", DECODERS)
def test_a_run_stopped_three_times_and_resumed_is_the_run_that_never_stopped(place: Path, kind: str) -> None:
    name = write(place, kind)
    assert run(place, "train", "--config", name, "--run-dir", f"runs/{kind}-whole") == 0
    more: list[str] = ["--config", name]
    for stop, number in STOPS.items():
        code = run(place, "train", *more, "--run-dir", f"runs/{kind}", stop_at=stop, number=number)
        assert code == 128 + number
        assert torch.load(place / f"runs/{kind}/checkpoints/last.pt", weights_only=True)["state"]["step"] == stop
        more = ["--resume"]
    assert run(place, "train", "--resume", "--run-dir", f"runs/{kind}") == 0

    ours, whole = place / "runs" / kind, place / "runs" / f"{kind}-whole"
    state = torch.load(whole / "checkpoints/last.pt", weights_only=True)
    assert state["state"]["epoch"] >= 2
    assert state["schedule"]["decay"] < 1
    for checkpoint in ("last.pt", "best.pt"):
        assert content(ours / "checkpoints" / checkpoint) == content(whole / "checkpoints" / checkpoint)
    assert metrics(ours) == metrics(whole)
    assert scalars(ours) == scalars(whole)
    assert len(scalars(ours)["train/loss"]) == 12
    assert {file.name: file.read_bytes() for file in (ours / "dev").iterdir()} == {
        file.name: file.read_bytes() for file in (whole / "dev").iterdir()
    }


def test_the_hashes_of_strings_do_not_matter(place: Path) -> None:
    """Two processes with other hash seeds, each from the text on: same vocabulary, order and weights."""
    name = write(place, "bahdanau")
    found = []
    for seed in ("1", "4242"):
        folder = place / f"hash{seed}"
        folder.mkdir()
        for file in [*place.glob("*.en"), *place.glob("*.de"), place / name]:
            shutil.copy(file, folder)
        settings = ["--set", "training.max_steps=8"]
        subprocess.run(
            [sys.executable, "-m", "nmt", "train", "--config", name, *settings],
            cwd=folder,
            env=os.environ | {"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"},
            check=True,
            capture_output=True,
        )
        model = (folder / "runs/bahdanau/tokenizer/joint.model").read_bytes()
        found.append((model, content(folder / "runs/bahdanau/checkpoints/last.pt"), metrics(folder / "runs/bahdanau")))
    assert found[0] == found[1]
