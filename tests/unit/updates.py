"""A training of any kind of decoder on a few linked pairs, for tests of single updates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from models import small_model

from nmt.config import EncoderConfig, TrainingConfig
from nmt.data.batching import Batch, Portion, TrainingBatches
from nmt.data.store import CorpusWriter, EncodedCorpus
from nmt.model.seq2seq import Seq2Seq
from nmt.reporting import SilentReporter
from nmt.run_dir import RunDir
from nmt.training.loop import Training


def training_of(
    folder: Path, name: str, device: str = "cpu", encoder: EncoderConfig | None = None, model: Seq2Seq | None = None,
    **settings: object,
) -> Training:  # fmt: skip
    """A training with dropout, a moving average, and guided attention if it has any; in float32 but for `model`."""
    rng = np.random.default_rng(1)
    src, tgt = ([rng.integers(4, 11, rng.integers(1, 9)).tolist() for _ in range(40)] for _ in range(2))
    links = [[place for each in range(min(len(s), len(t))) for place in (each, each)] for s, t in zip(src, tgt)]
    folder.mkdir(exist_ok=True)
    with CorpusWriter(folder / "pairs.arrow", links=True) as writer:
        writer.write(src, tgt, ["s"] * 40, ["t"] * 40, links)
    values: dict[str, object] = {"ema_decay": 0.9, "optimizer": {"learning_rate": 0.01}}
    values["alignment_weight"] = 0.0 if name.startswith("none") else 0.5
    config = TrainingConfig.model_validate(values | settings)
    run = RunDir.create(folder / "run")
    shape = {} if encoder is None else {"encoder": encoder}
    model = (model or small_model(name, dtype=torch.float32, dropout=0.1, **shape)).to(device)
    batches = TrainingBatches(EncodedCorpus(folder / "pairs.arrow"), 80, seed=1)
    torch.manual_seed(3)
    return Training(model, batches, config, torch.device(device), run, SilentReporter())


def first_batch(training: Training) -> Batch:
    _, _, portion = next(training.batches.from_position(0, 0))
    return portion.parts[0]


def update(training: Training, batch: Batch) -> None:
    training.state.step += 1
    training.update(Portion.whole(batch))
