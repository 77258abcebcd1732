"""The training loop: updates, validations, checkpoints, and when to stop.

Axes: B sentences, S source positions, T target positions, N real target positions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from nmt.config import TrainingConfig
from nmt.data.ahead import made_ahead
from nmt.data.batching import Batch, TrainingBatches
from nmt.errors import NmtError
from nmt.model.seq2seq import Seq2Seq, trainable_parameters
from nmt.reporting import Reporter
from nmt.run_dir import RunDir
from nmt.training.checkpoint import save_checkpoint
from nmt.training.loss import TokenLosses, alignment_loss, token_losses
from nmt.training.metrics import MetricsWriter
from nmt.training.optim import MovingAverage, Schedule, clip_gradients, make_optimizer, step_unless
from nmt.training.precision import choose_precision
from nmt.training.readings import Readings, Update
from nmt.training.signals import Stopped, StopSignals

SCORE, LOSS = "dev/bleu", "dev/loss"  # SCORE decides what is best; the rate falls and training stops when both stall
BATCHES_AHEAD = 8  # of a GPU: they cover the pause in which an epoch is cut into batches
MAX_SKIPPED = 3  # updates in a row without a finite gradient

Validate = Callable[[int], dict[str, float]]


@dataclass
class Window:
    """Sums over the updates since the last line of metrics, saved too, so that a stop leaves no trace in the curves."""

    smoothed: float = 0.0
    likelihood: float = 0.0
    tokens: int = 0
    updates: int = 0
    norm: float = 0.0
    seconds: float = 0.0
    alignment: float = 0.0
    aligned: int = 0  # target pieces with a given alignment


@dataclass
class TrainingState:
    """Where training stands. `epoch` counts from 0; `position` is the next batch of the epoch."""

    step: int = 0
    epoch: int = 0
    position: int = 0
    best_score: float = -math.inf
    best_step: int = 0
    best_loss: float = math.inf
    bad_validations: int = 0
    skipped: int = 0
    seconds: float = 0.0
    finished: str = ""  # why training ended; empty while it has not
    window: Window = field(default_factory=Window)


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
        self.precision = choose_precision(config.precision, device, reporter)
        self.readings = Readings(device)
        self.average = MovingAverage(self.parameters, config.ema_decay) if config.ema_decay else None
        self.state = TrainingState()
        self._skipped_in_a_row = 0

    def checkpoint(self) -> dict[str, Any]:
        """All that training needs to go on. `model` is what translates; with an average, `weights` are the others."""
        self._count(all_of_them=True)
        content: dict[str, Any] = {"model": self.model.state_dict()}
        if self.average is not None:
            content["weights"] = [parameter.detach() for parameter in self.parameters]
            self.average.swap()
            content["model"] = _cloned(self.model.state_dict())
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
        self.state = TrainingState(**content["state"] | {"window": Window(**content["state"]["window"])})
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
        """The share of the budget that is spent, the larger of updates and minutes; for the progress display alone."""
        by_steps = self.state.step / self.config.max_steps
        if self.config.max_minutes is None:
            return by_steps
        return max(by_steps, self.state.seconds / (60 * self.config.max_minutes))

    def update(self, batch: Batch) -> None:
        """One step down the gradient of the mean smoothed loss of the batch's real target tokens.

        Where alignments are given, the loss of attention against them is added, over the same number of tokens.
        A gradient that is not finite changes nothing. On a GPU all that is decided there: nothing here waits for it.
        """
        with self.precision.update():
            losses, guidance = self._losses(batch)
            loss = losses.smoothed
            if guidance is not None:
                loss = loss + guidance * (self.config.alignment_weight / batch.tgt_tokens)
            loss.backward()  # type: ignore[no-untyped-call]
        norm = clip_gradients(self.parameters, self.config.clip_norm)
        skipped = norm.isfinite().logical_not().float()
        # By updates alone, never by the clock: the same seed gives the same weights on a busy machine.
        rate = self.schedule.rate(self.state.step, (self.state.step - 1) / self.config.max_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        step_unless(self.optimizer, skipped)
        if self.average is not None:
            self.average.update(self.state.step, skipped)
        self.optimizer.zero_grad(set_to_none=True)
        aligned = 0 if batch.alignment is None or guidance is None else batch.alignment.pieces
        update = Update(self.state.step, batch.pairs, batch.tgt_tokens, aligned)
        self.readings.put(update, norm, losses.smoothed, losses.likelihood, guidance)
        self._count(all_of_them=False)

    def _losses(self, batch: Batch) -> tuple[TokenLosses, Tensor | None]:
        """The losses of a batch, the smoothed one as its mean, and that of attention, summed, where it is guided."""
        readouts_NR, weights_BTS = _real_readouts(self.model, batch)
        output = self.model.output
        losses = token_losses(
            readouts_NR,
            output.weight,
            output.bias,
            batch.tgt_out_N,
            self.config.label_smoothing,
            1 / batch.tgt_tokens,
        )
        if batch.alignment is None or self.config.alignment_weight == 0:
            return losses, None
        return losses, alignment_loss(weights_BTS, batch.alignment, self.config.alignment_shift)

    def _count(self, *, all_of_them: bool) -> None:
        """Adds to the window what updates have measured, as far as it is here, or all of it, which may wait."""
        window = self.state.window
        for update, measured in self.readings.take(all_of_them=all_of_them):
            if not math.isfinite(measured.norm):
                self._skip(update, measured.norm)
                continue
            self._skipped_in_a_row = 0
            window.smoothed += measured.smoothed * update.tokens
            window.likelihood += measured.likelihood
            window.tokens += update.tokens
            window.norm += measured.norm
            window.updates += 1
            window.alignment += measured.alignment
            window.aligned += update.aligned

    def _skip(self, update: Update, norm: float) -> None:
        """Tells of an update that was left out for its gradient, and gives up after three in a row."""
        self.state.skipped += 1
        self._skipped_in_a_row += 1
        pairs = ", ".join(str(pair) for pair in update.pairs[:5])
        what = f"step {update.step}: the gradient is {norm} (batch of {len(update.pairs)} pairs: {pairs}, …)"
        if self._skipped_in_a_row < MAX_SKIPPED:
            self.reporter.warning(f"{what}; this update is left out.")
            return
        raise NmtError(
            f"{what}, {MAX_SKIPPED} times in a row. Training has diverged: lower training.optimizer.learning_rate or "
            "training.clip_norm, and start again, or go on from the last checkpoint with --resume."
        )

    def log(self) -> None:
        """Writes the means of the window, and starts a new one."""
        self._count(all_of_them=True)
        window, self.state.window = self.state.window, Window()
        if not window.updates:
            return
        loss = window.smoothed / window.tokens
        values = {
            "train/loss": loss,
            "train/perplexity": math.exp(min(window.likelihood / window.tokens, 700)),
            "train/tokens_per_second": window.tokens / window.seconds,
            "train/gradient_norm": window.norm / window.updates,
            "train/learning_rate": self.optimizer.param_groups[0]["lr"],
        }
        if window.aligned:
            values["train/alignment_loss"] = window.alignment / window.aligned
        guided = f"  alignment {values['train/alignment_loss']:.3f}" if window.aligned else ""
        self.metrics.write(self.state.step, values)
        note = (
            f"step {self.state.step:,}  epoch {self.state.epoch + 1}  loss {loss:.3f}{guided}  "
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
            self.state.best_score, self.state.best_step = score, self.state.step
        # Early BLEU is noise around 0: as long as the likelihood still rises, the model is learning.
        learning = improved or values[LOSS] < self.state.best_loss
        self.state.best_loss = min(self.state.best_loss, values[LOSS])
        self.state.bad_validations = 0 if learning else self.state.bad_validations + 1
        self.schedule.validated(learning)
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

    def _spend(self, mark: float, *, updating: bool) -> float:
        """Adds the time since `mark` to the run's, and to the window's where it went into updates; returns now."""
        now = time.perf_counter()
        self.state.seconds += now - mark
        if updating:
            self.state.window.seconds += now - mark
        return now

    @contextmanager
    def _batches(self) -> Iterator[Iterator[tuple[int, int, Batch]]]:
        """(epoch, position of the next batch, batch) from where training stands.

        For a GPU a thread makes them ahead, in pinned memory. On a CPU it would take time from the update itself.
        """
        batches = self.batches.from_position(self.state.epoch, self.state.position)
        if self.device.type != "cuda":
            yield batches
            return
        pinned = ((epoch, position, batch.pinned()) for epoch, position, batch in batches)
        with made_ahead(pinned, BATCHES_AHEAD) as ahead:
            yield ahead

    def fit(self, validate: Validate) -> TrainingState:
        """Trains until the budget or the patience ends; the state says why.

        `validate` scores the development set at a step and returns its metrics, `dev/bleu` and `dev/loss` among them.

        Raises:
            Stopped: on SIGINT or SIGTERM, when the update in hand is done and everything saved.
            NmtError: when training diverges or cannot be saved.
        """
        self.model.train()
        mark = time.perf_counter()
        with StopSignals() as signals, self._batches() as batches:
            for epoch, position, batch in batches:
                self.state.step += 1
                self.state.epoch, self.state.position = epoch, position
                self.update(batch.to(self.device))
                if not self.state.step % self.config.log_every or not self.state.step % self.config.validate_every:
                    self._count(all_of_them=True)  # the time that a GPU still takes belongs to the updates
                mark = self._spend(mark, updating=True)
                ending = self._ending()
                if self.state.step % self.config.log_every == 0 or ending:
                    self.log()
                if self.state.step % self.config.validate_every == 0 or ending:
                    self.validate(validate)
                    mark = self._spend(mark, updating=False)
                    self.state.finished = ending = ending or self._ending()
                    self._save(best=self.state.best_step == self.state.step)
                    mark = self._spend(mark, updating=False)
                elif signals.received is not None:
                    self.reporter.info(f"stopping at step {self.state.step:,}: saving …")
                    self._save(best=False)
                if signals.received is not None:
                    raise Stopped(signals.received)
                if ending:
                    break
        self.reporter.progress("training", 1.0, 1.0)
        return self.state


def _cloned(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of tensors; what was one tensor under two names stays one."""
    copies: dict[int, Tensor] = {}
    for tensor in tensors.values():
        if tensor.data_ptr() not in copies:
            copies[tensor.data_ptr()] = tensor.clone()
    return {name: copies[tensor.data_ptr()] for name, tensor in tensors.items()}


def _real_readouts(model: Seq2Seq, batch: Batch) -> tuple[Tensor, Tensor]:
    """Teacher forcing: readouts of the real target positions, [N, R], and the weights of all, [B, T, S]."""
    readouts_BTR, weights_BTS = model(batch.src_BS, batch.src_lengths_B, batch.tgt_in_BT)
    # As an embedding: its gradient is faster than that of a selection on a CPU.
    return nn.functional.embedding(batch.tgt_places_N, readouts_BTR.flatten(0, 1)), weights_BTS


@torch.inference_mode()
def likelihood(model: Seq2Seq, batches: Iterable[Batch], device: torch.device) -> dict[str, float]:
    """Mean negative log-likelihood of a reference token in nats (no smoothing), its exponential, and how spread
    attention is: the mean entropy of the weights of a target position, in nats (no value without attention).
    """
    total, entropy, tokens = 0.0, 0.0, 0
    attends = False
    for batch in (batch.to(device) for batch in batches):
        readouts_NR, weights_BTS = _real_readouts(model, batch)
        losses = token_losses(readouts_NR, model.output.weight, model.output.bias, batch.tgt_out_N, 0.0)
        total += losses.likelihood.item()
        tokens += batch.tgt_tokens
        if weights_BTS.shape[-1]:
            attends = True
            entropy += float(torch.special.entr(weights_BTS).sum(-1)[batch.tgt_mask_BT].sum())
    loss = total / tokens
    values = {"dev/loss": loss, "dev/perplexity": math.exp(min(loss, 700))}
    return values | ({"dev/attention_entropy": entropy / tokens} if attends else {})
