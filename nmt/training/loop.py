"""The training loop: updates, validations, checkpoints, and when to stop.

Axes: B sentences, S source positions, T target positions, N real target positions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from nmt.config import TrainingConfig
from nmt.data.batching import Batch, TrainingBatches
from nmt.errors import NmtError
from nmt.model.seq2seq import Seq2Seq, trainable_parameters
from nmt.reporting import Reporter
from nmt.run_dir import RunDir
from nmt.training.checkpoint import save_checkpoint
from nmt.training.loss import token_losses
from nmt.training.metrics import MetricsWriter
from nmt.training.optim import MovingAverage, Schedule, clip_gradients, make_optimizer
from nmt.training.signals import Stopped, StopSignals

SCORE = "dev/bleu"  # the validation metric that decides what is best, when the rate falls, and when to stop
MAX_SKIPPED = 3  # updates in a row without a finite gradient

Validate = Callable[[int], dict[str, float]]


@dataclass
class TrainingState:
    """Where training stands. `epoch` counts from 0; `position` is the next batch of the epoch."""

    step: int = 0
    epoch: int = 0
    position: int = 0
    best_score: float = -math.inf
    best_step: int = 0
    bad_validations: int = 0
    skipped: int = 0
    seconds: float = 0.0
    finished: str = ""  # why training ended; empty while it has not


@dataclass
class _Window:
    """Sums since the last line of metrics; tensors, so that a GPU is not waited for at each update."""

    smoothed: Any = 0.0
    likelihood: Any = 0.0
    tokens: int = 0
    updates: int = 0
    norm: float = 0.0
    start: float = 0.0


class Training:
    """One run of training: the model and everything that changes with it."""

    def __init__(
        self, model: Seq2Seq, batches: TrainingBatches, config: TrainingConfig, device: torch.device,
        run: RunDir, metrics: MetricsWriter, reporter: Reporter,
    ) -> None:  # fmt: skip
        self.model, self.batches, self.config, self.device = model, batches, config, device
        self.run, self.metrics, self.reporter = run, metrics, reporter
        self.parameters = trainable_parameters(model)
        self.optimizer = make_optimizer(config.optimizer, self.parameters)
        self.schedule = Schedule(config.schedule, config.optimizer.learning_rate)
        self.average = MovingAverage(self.parameters, config.ema_decay) if config.ema_decay else None
        self.state = TrainingState()
        self._skipped_in_a_row = 0

    def checkpoint(self) -> dict[str, Any]:
        """All that training needs to go on. `model` is what translates; with an average, `weights` are the others."""
        content: dict[str, Any] = {"model": self.model.state_dict()}
        if self.average is not None:
            content["weights"] = [parameter.detach() for parameter in self.parameters]
            self.average.swap()
            content["model"] = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
            self.average.swap()
        random = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(self.device)
        return content | {
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "state": asdict(self.state),
            "random": random,
        }

    def restore(self, content: dict[str, Any]) -> None:
        """Takes up a checkpoint of the same model."""
        self.model.load_state_dict(content["model"])
        if self.average is not None:
            for average, parameter in zip(self.average.average, self.parameters, strict=True):
                average.copy_(parameter.detach())
        if "weights" in content:
            with torch.no_grad():
                for parameter, weights in zip(self.parameters, content["weights"], strict=True):
                    parameter.copy_(weights)
        self.optimizer.load_state_dict(content["optimizer"])
        self.schedule.load_state_dict(content["schedule"])
        self.state = TrainingState(**content["state"])
        torch.set_rng_state(content["random"]["cpu"])
        if self.device.type == "cuda" and "cuda" in content["random"]:
            torch.cuda.set_rng_state(content["random"]["cuda"], self.device)

    def reopened(self) -> bool:
        """Whether a finished training goes on because its budget or patience was raised."""
        if self._ending():
            return False
        self.state.finished = ""
        return True

    def share(self) -> float:
        """The share of the budget that is spent, the larger of updates and minutes."""
        by_steps = self.state.step / self.config.max_steps
        if self.config.max_minutes is None:
            return by_steps
        return max(by_steps, self.state.seconds / (60 * self.config.max_minutes))

    def update(self, batch: Batch, window: _Window) -> None:
        """One step down the gradient of the mean smoothed loss of the batch's real target tokens."""
        readouts_BTR, _ = self.model(batch.src_BS, batch.src_lengths_B, batch.tgt_in_BT)
        losses = token_losses(
            readouts_BTR[batch.tgt_mask_BT],
            self.model.output.weight,
            self.model.output.bias,
            batch.tgt_out_BT[batch.tgt_mask_BT],
            self.config.label_smoothing,
        )
        (losses.smoothed / batch.tgt_tokens).backward()  # type: ignore[no-untyped-call]
        norm = float(clip_gradients(self.parameters, self.config.clip_norm))
        if math.isfinite(norm):
            self._skipped_in_a_row = 0
            for group in self.optimizer.param_groups:
                group["lr"] = self.schedule.rate(self.state.step, self.share())
            self.optimizer.step()
            if self.average is not None:
                self.average.update(self.state.step)
            window.smoothed = window.smoothed + losses.smoothed.detach()
            window.likelihood = window.likelihood + losses.likelihood
            window.tokens += batch.tgt_tokens
            window.norm += norm
            window.updates += 1
        else:
            self._skip(batch, norm)
        self.optimizer.zero_grad(set_to_none=True)

    def _skip(self, batch: Batch, norm: float) -> None:
        """Leaves out an update without a finite gradient, and gives up after three in a row."""
        self.state.skipped += 1
        self._skipped_in_a_row += 1
        pairs = ", ".join(str(pair) for pair in batch.pairs[:5])
        what = f"step {self.state.step}: the gradient is {norm} (batch of {len(batch.pairs)} pairs: {pairs}, …)"
        if self._skipped_in_a_row < MAX_SKIPPED:
            self.reporter.warning(f"{what}; this update is left out.")
            return
        raise NmtError(
            f"{what}, {MAX_SKIPPED} times in a row. Training has diverged: lower training.optimizer.learning_rate or "
            "training.clip_norm, and start again, or go on from the last checkpoint with --resume."
        )

    def log(self, window: _Window) -> None:
        """Writes the means of a window."""
        if not window.updates:
            return
        seconds = max(time.perf_counter() - window.start, 1e-9)
        loss = float(window.smoothed) / window.tokens
        values = {
            "train/loss": loss,
            "train/perplexity": math.exp(min(float(window.likelihood) / window.tokens, 700)),
            "train/tokens_per_second": window.tokens / seconds,
            "train/gradient_norm": window.norm / window.updates,
            "train/learning_rate": self.optimizer.param_groups[0]["lr"],
        }
        self.metrics.write(self.state.step, values)
        note = (
            f"step {self.state.step:,}  epoch {self.state.epoch + 1}  loss {loss:.3f}  "
            f"{values['train/tokens_per_second']:,.0f} tokens/s"
        )
        self.reporter.progress("training", min(self.share(), 0.9999), 1.0, note)

    def validate(self, validate: Validate) -> None:
        """Scores the development set with the model in use, and saves; the best one also as best.pt."""
        if self.average is not None:
            self.average.swap()
        self.model.eval()
        values = validate(self.state.step)
        self.model.train()
        if self.average is not None:
            self.average.swap()
        self.metrics.write(self.state.step, values)
        score = values[SCORE]
        improved = score > self.state.best_score
        if improved:
            self.state.best_score, self.state.best_step, self.state.bad_validations = score, self.state.step, 0
        else:
            self.state.bad_validations += 1
        self.schedule.validated(improved)
        shown = "  ".join(f"{name.removeprefix('dev/')} {value:.2f}" for name, value in values.items())
        best = "new best" if improved else f"best {self.state.best_score:.2f} at step {self.state.best_step:,}"
        self.reporter.info(f"step {self.state.step:,}: dev {shown} ({best})")

    def _save(self, *, best: bool) -> None:
        save_checkpoint(self.run, self.state.step, self.checkpoint(), best=best, keep=self.config.keep_checkpoints)

    def _ending(self) -> str:
        """Why training should end now, or an empty string."""
        if self.state.step >= self.config.max_steps:
            return f"max_steps {self.config.max_steps:,} reached"
        if self.config.max_minutes is not None and self.state.seconds >= 60 * self.config.max_minutes:
            return f"max_minutes {self.config.max_minutes:g} reached"
        if self.state.bad_validations >= self.config.patience:
            return f"no better score in {self.config.patience} validations"
        return ""

    def fit(self, validate: Validate) -> TrainingState:
        """Trains until the budget or the patience ends; the state says why.

        `validate` scores the development set at a step and returns its metrics, `dev/bleu` among them.

        Raises:
            Stopped: on SIGINT or SIGTERM, when the update in hand is done and everything saved.
            NmtError: when training diverges or cannot be saved.
        """
        self.model.train()
        before = self.state.seconds
        begin = time.perf_counter()
        window = _Window(start=begin)
        with StopSignals() as signals:
            for epoch, position, batch in self.batches.from_position(self.state.epoch, self.state.position):
                self.state.step += 1
                self.state.epoch, self.state.position = epoch, position
                self.update(batch.to(self.device), window)
                self.state.seconds = before + time.perf_counter() - begin
                ending = self._ending()
                if self.state.step % self.config.log_every == 0 or ending:
                    self.log(window)
                    window = _Window(start=time.perf_counter())
                if self.state.step % self.config.validate_every == 0 or ending:
                    paused = time.perf_counter()
                    self.validate(validate)
                    self.state.seconds = before + time.perf_counter() - begin
                    self.state.finished = ending = ending or self._ending()
                    self._save(best=self.state.best_step == self.state.step)
                    window.start += time.perf_counter() - paused
                if ending:
                    break
                if signals.received is not None:
                    self._save(best=False)
                    raise Stopped(signals.received)
        self.reporter.progress("training", 1.0, 1.0)
        return self.state


@torch.inference_mode()
def likelihood(model: Seq2Seq, batches: Iterable[Batch], device: torch.device) -> dict[str, float]:
    """Mean negative log-likelihood of a reference token in nats (no smoothing), its exponential, and how spread
    attention is: the mean entropy of the weights of a target position, in nats (no value without attention).
    """
    total, entropy, tokens = 0.0, 0.0, 0
    attends = False
    for batch in (batch.to(device) for batch in batches):
        readouts_BTR, weights_BTS = model(batch.src_BS, batch.src_lengths_B, batch.tgt_in_BT)
        readouts_NR, targets_N = readouts_BTR[batch.tgt_mask_BT], batch.tgt_out_BT[batch.tgt_mask_BT]
        losses = token_losses(readouts_NR, model.output.weight, model.output.bias, targets_N, 0.0)
        total += float(losses.likelihood)
        tokens += batch.tgt_tokens
        if weights_BTS.shape[-1]:
            attends = True
            entropy += float(torch.special.entr(weights_BTS).sum(-1)[batch.tgt_mask_BT].sum())
    loss = total / tokens
    values = {"dev/loss": loss, "dev/perplexity": math.exp(min(loss, 700))}
    return values | ({"dev/attention_entropy": entropy / tokens} if attends else {})
