"""Small trainings in processes of their own that may be killed or starved, and whether two runs are the same one.

Used by kill_loop.py and disk_faults.py; forked.py starts the processes. Linux and macOS.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forked
import torch
import yaml

from nmt.training.checkpoint import load_checkpoint
from nmt.training.metrics import read_metrics

WORDS = {"red": "rot", "old": "alt", "dog": "Hund", "cat": "Katze", "sees": "sieht", "the": "der", "big": "groß"}


def write_work(folder: Path, size: int, **training: object) -> None:
    """Write a corpus of made-up text and `tiny.yaml`: a model of some width, a checkpoint every five updates."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(7)
    for split, count in (("train", 200), ("dev", 1), ("test", 2)):
        src = [[rng.choice(list(WORDS)) for _ in range(rng.randint(2, 9))] for _ in range(count)]
        tgt = [[WORDS[word] for word in (line[-1], *line[:-1])] for line in src]
        for name, lines in (("en", src), ("de", tgt)):
            (folder / f"{split}.{name}").write_text("".join(" ".join(line) + ".\n" for line in lines), encoding="utf-8")
    values = {"batch_tokens": 100, "max_steps": 20, "validate_every": 5, "log_every": 2, "patience": 10**6}
    config = {
        "data": {"src_lang": "en", "tgt_lang": "de"}
        | {split: {"src": f"{split}.en", "tgt": f"{split}.de"} for split in ("train", "dev", "test")},
        "tokenizer": {"vocab_size": 36},
        "model": {
            "embedding_size": size,
            "dropout": 0.2,
            "encoder": {"hidden_size": max(size // 2, 4)},
            "decoder": {"kind": "bahdanau", "hidden_size": size, "attention_size": size},
        },
        "training": values | {"schedule": {"kind": "constant"}, "ema_decay": 0.9} | training,
        "search": {"beam_size": 2},
        "evaluation": {"metrics": ["bleu"]},
    }
    (folder / "tiny.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")


class Command:
    """`nmt` with arguments, started in a folder; what it says goes to a file."""

    def __init__(self, *args: object, cwd: Path, log: Path, before: Callable[[], None] | None = None) -> None:
        """Start; `before`, a function of a module, is called first in the new process."""
        self.log = log
        with log.open("wb") as said, open(os.devnull, "rb") as nothing:
            streams = (nothing.fileno(), said.fileno(), said.fileno())
            self.process = forked.start([str(arg) for arg in args], cwd, streams, before)

    def wait(self) -> int:
        """Wait for the end; return the exit code, negative for a signal."""
        self.process.join()
        return int(self.process.exitcode or 0)

    def said(self) -> str:
        """Return what it has written."""
        return self.log.read_text(encoding="utf-8") if self.log.exists() else ""


def broken_checkpoints(run: Path) -> list[str]:
    """Return the checkpoints of a run that cannot be loaded."""
    broken = []
    for file in sorted((run / "checkpoints").glob("*.pt")):
        try:
            load_checkpoint(file)
        except Exception as error:
            broken.append(f"{file.name}: {error}")
    return broken


def differences(one: Path, other: Path) -> list[str]:
    """Return in what two runs of one configuration differ, speeds, times and paths aside."""
    found = []
    ours, theirs = (_timeless(read_metrics(run / "metrics.jsonl")) for run in (one, other))
    if ours != theirs:
        found.append(f"metrics.jsonl: {len(ours)} and {len(theirs)} lines, or other values")
    found += [f"TensorBoard: {name}" for name in _unlike(_tensorboard(one), _tensorboard(other))]
    for name in ("last", "best"):
        contents = [load_checkpoint(run / "checkpoints" / f"{name}.pt") for run in (one, other)]
        found += [f"{name}.pt: {part}" for part in _unlike(*(dict(_flat(content)) for content in contents))]
    files = [{file.name: file.read_text() for file in (run / "dev").iterdir()} for run in (one, other)]
    found += [f"dev/{name}" for name in _unlike(*files)]
    scores = [json.loads((run / "eval" / "test.json").read_text())["metrics"] for run in (one, other)]
    if scores[0] != scores[1]:
        found.append("eval/test.json: other scores")
    return found + [f"left over: {file.relative_to(one)}" for file in one.rglob("*.tmp")]


def _timeless(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in line.items() if "second" not in name} for line in lines]


def _unlike(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Return the names whose values differ, or that only one has."""

    def same(one: Any, other: Any) -> bool:
        return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)

    names = sorted({**ours, **theirs})
    return [name for name in names if name not in ours or name not in theirs or not same(ours[name], theirs[name])]


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value within, but for seconds."""
    if isinstance(value, dict | list | tuple):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _flat(inner, f"{name}.{key}")
    elif not name.endswith("seconds"):
        yield name, value


def _tensorboard(run: Path) -> dict[str, Any]:
    """Return every curve, picture and text as TensorBoard shows it: its points, of texts the steps alone."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    kinds = ("scalars", "images", "tensors")
    events = EventAccumulator(str(run / "tensorboard"), size_guidance=dict.fromkeys(kinds, 0))
    events.Reload()
    tags = events.Tags()
    shown: dict[str, Any] = {
        tag: [(point.step, point.value) for point in events.Scalars(tag)]
        for tag in tags["scalars"]
        if "second" not in tag
    }
    for tag in tags["images"]:
        shown[tag] = [(point.step, point.encoded_image_string) for point in events.Images(tag)]
    for tag in tags["tensors"]:
        shown[tag] = [point.step for point in events.Tensors(tag)]
    return shown
