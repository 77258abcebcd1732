"""The training loop: updates, validations, checkpoints, and when to stop.

Axes: B sentences, S source positions, T target positions, N real target positions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.config import TrainingConfig
from nmt.data.ahead import made_ahead
from nmt.data.batching import Batch, Portion, TrainingBatches
from nmt.errors import out_of_memory_told
from nmt.model.seq2seq import Seq2Seq, trainable_parameters
from nmt.reporting import Reporter
from nmt.run_dir import RunDir
from nmt.training.checkpoint import save_checkpoint
from nmt.training.divergence import Divergence
from nmt.training.likelihood import real_readouts
from nmt.training.loss import TokenLosses, alignment_loss, token_losses
from nmt.training.metrics import MetricsWriter
from nmt.training.optim import MovingAverage, Schedule, clip_gradients, make_optimizer, step_unless
from nmt.training.own_words import share_of_own_words, with_own_words
from nmt.training.precision import choose_precision
from nmt.training.processes import SINGLE, Processes
from nmt.training.readings import Readings, Update
from nmt.training.signals import BrokenOff, Stopped, StopSignals
from nmt.training.state import TrainingState, Window

SCORE, LOSS = "dev/bleu", "dev/loss"  # SCORE decides what is best; the rate falls and training stops when both stall
BATCHES_AHEAD = 8  # of a GPU: they cover the pause in which an epoch is cut into batches

Validate = Callable[[int], dict[str, float]]


class Training:
    """One run of training: the model and everything that changes with it."""

    metrics: (
        MetricsWriter  # given before `fit`; opened when a checkpoint is known to fit, as opening it cuts the record
    )

    def __init__(
        self, model: Seq2Seq, batches: TrainingBatches, config: TrainingConfig, device: torch.device,
        run: RunDir, reporter: Reporter, processes: Processes = SINGLE,
    ) -> None:  # fmt: skip
        self.model, self.batches, self.config, self.device = model, batches, config, device
        self.run, self.reporter, self.processes = run, reporter, processes
        self.parameters = trainable_parameters(model)
        self.optimizer = make_optimizer(config.optimizer, self.parameters)
        self.schedule = Schedule(config.schedule, config.optimizer.learning_rate)
        self.precision = choose_precision(config.precision, device, reporter)
        self.readings = Readings(device)
        self.average = MovingAverage(self.parameters, config.ema_decay) if config.ema_decay else None
        self.state = TrainingState()
        self.signals = StopSignals(processes)
        self.divergence = Divergence(run, batches, config, reporter, writes=processes.first)
        self._seed()
        self._mark = 0.0  # the moment up to which time is accounted for
        self._logged = False  # since this process began

    def _seed(self) -> None:
        """Gives each process but the first, which has that of `torch.manual_seed`, random numbers of its own."""
        if not self.processes.first:
            torch.manual_seed(_seed_of(self.config.seed, self.processes.rank, self.state.step))

    def checkpoint(self) -> dict[str, Any]:
        """All that training needs to go on. `model` is what translates; with an average, `weights` are the others.

        All processes of a training call it together.
        """
        self._count(all_of_them=True)
        content: dict[str, Any] = {"model": self.model.state_dict()}
        if self.average is not None:
            content["weights"] = [parameter.detach() for parameter in self.parameters]
            self.average.swap()
            content["model"] = _cloned(self.model.state_dict())
            self.average.swap()
        random, *others = self.processes.gathered(self._random())
        if others:
            random = random | {"others": others}
        return content | {
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "state": self.state.to_dict(),
            "random": random,
        }

    def _random(self) -> dict[str, Any]:
        """The state of this process' random numbers."""
        random = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(self.device)
        return random

    def restore(self, content: dict[str, Any]) -> None:
        """Takes up a checkpoint of the same model.

        It may be of another number of processes: those that it does not know begin with new random numbers.
        """
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
        self.state = TrainingState.of(content["state"])
        by_rank = [content["random"], *content["random"].get("others", ())]
        if self.processes.rank >= len(by_rank):
            self._seed()
            return
        random = by_rank[self.processes.rank]
        torch.set_rng_state(random["cpu"])
        if self.device.type == "cuda" and "cuda" in random:
            torch.cuda.set_rng_state(random["cuda"], self.device)

    def reopened(self) -> bool:
        """Whether a finished training goes on because its budget or patience was raised."""
        if self._ending():
            return False
        self.state.finished = ""
        return True

    def note_due(self) -> None:
        """After a checkpoint was taken up whose budget is spent by now: the last validation, where it is missing."""
        state = self.state
        if self._ending() and not state.finished and (state.step % self.config.validate_every or not state.best_step):
            state.validation_due = True

    def share(self) -> float:
        """The share of the budget that is spent, the larger of updates and minutes; for the progress display alone."""
        by_steps = self.state.step / self.config.max_steps
        if self.config.max_minutes is None:
            return by_steps
        return max(by_steps, self.state.seconds / (60 * self.config.max_minutes))

    def update(self, portion: Portion) -> None:
        """One step down the gradient of the mean smoothed loss of the batch's real target tokens.

        The batch is that of all processes and parts: each adds the gradient of the sum over its own tokens, divided by
        the number of all. Where alignments are given, the loss of attention against them is added, over the same number
        of tokens. A gradient or a loss that is not finite changes nothing. On a GPU all that is decided there: nothing
        here waits for it.

        Raises:
            NmtError: when memory is too small for the batch, or training has diverged.
        """
        sums = torch.zeros(5, device=self.device)
        for batch in portion.parts:
            with out_of_memory_told(lambda: self._too_large(batch)):  # noqa: B023
                sums = sums + self._gradient(batch.to(self.device), portion.tgt_tokens)
        with out_of_memory_told(lambda: self._too_large(portion.parts[0])):
            self._step(portion, self.processes.summed(self.parameters, sums))
        self._count(all_of_them=False)

    def _gradient(self, batch: Batch, tgt_tokens: int) -> Tensor:
        """Adds the gradient of a part of a batch of so many tokens; its measurements as `_step` takes them."""
        with self.precision.update():
            losses, guidance = self._losses(batch, tgt_tokens)
            loss = losses.loss
            if guidance is not None:
                loss = loss + guidance * (self.config.alignment_weight / tgt_tokens)
            loss.backward()  # type: ignore[no-untyped-call]
        aligned = 0 if batch.alignment is None or guidance is None else batch.alignment.pieces
        none = torch.zeros_like(losses.likelihood) if guidance is None else guidance.detach()
        found = [losses.loss.detach(), losses.likelihood, none, torch.full_like(none, aligned), losses.divergence]
        return torch.stack(found)

    def _step(self, portion: Portion, sums: Tensor) -> None:
        """A step of the optimizer down the gradient that has been added up.

        `sums` are the loss, the likelihood, the loss of attention and the pieces it is of, and the divergence, [5].
        """
        norm = clip_gradients(self.parameters, self.config.clip_norm)
        found = torch.cat([norm.unsqueeze(0), sums])
        skipped = found.isfinite().all().logical_not().float()
        # By updates alone, never by the clock: the same seed gives the same weights on a busy machine.
        rate = self.schedule.rate(self.state.step, (self.state.step - 1) / self.config.max_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        step_unless(self.optimizer, skipped)
        if self.average is not None:
            self.average.update(self.state.step, skipped)
        self.optimizer.zero_grad(set_to_none=True)
        self.readings.put(Update(self.state.step, portion.pairs, portion.tgt_tokens), found)

    def _too_large(self, batch: Batch) -> str:
        """What to say of a batch for which memory did not suffice."""
        (sentences, source), target = batch.src_BS.shape, batch.tgt_in_BT.shape[1]
        budget, parts = self.config.batch_tokens, self.config.accumulate
        return (
            f"at step {self.state.step:,}: its batch has {sentences:,} sentences of up to {source:,} source and "
            f"{target:,} target pieces, and training.batch_tokens is {budget:,}. Nothing saved is lost. Go on with "
            f"the same batches in smaller parts: nmt train --resume --run-dir {self.run.quoted} --set "
            f"training.batch_tokens={max(budget // 2, 1)} --set training.accumulate={2 * parts}"
        )

    def _losses(self, batch: Batch, tgt_tokens: int) -> tuple[TokenLosses, Tensor | None]:
        """The losses of a part of a batch of so many tokens, and that of attention, summed, where it is guided.

        The one that is descended is the part's share of the mean. R-Drop reads the part twice at once, with other
        dropout, and counts each reading half.
        """
        if self.config.scheduled_sampling:
            share = share_of_own_words(self.config.scheduled_sampling, self.state.step / self.config.max_steps)
            batch = with_own_words(self.model, batch, share)
        agreement, output = self.config.r_drop, self.model.output
        batch, passes = (batch.twice(), 2) if agreement else (batch, 1)
        readouts_NR, weights_BTS = real_readouts(self.model, batch)
        loss, likelihood, divergence = token_losses(
            readouts_NR, output.weight, output.bias, batch.tgt_out_N, self.config.label_smoothing,
            1 / (passes * tgt_tokens), agreement,
        )  # fmt: skip
        losses = TokenLosses(loss, likelihood / passes, divergence)
        if batch.alignment is None or self.config.alignment_weight == 0:
            return losses, None
        return losses, alignment_loss(weights_BTS, batch.alignment, self.config.alignment_shift)

    def _count(self, *, all_of_them: bool) -> None:
        """Adds to the window what updates have measured, as far as it is here, or all of it, which may wait."""
        window = self.state.window
        for update, measured in self.readings.take(all_of_them=all_of_them):
            if not measured.is_finite():
                self.divergence.skip(self.state, update, measured)
                continue
            self.state.skipped_in_a_row = 0
            window.smoothed += measured.loss * update.tokens - self.config.r_drop * measured.divergence / 2
            window.likelihood += measured.likelihood
            window.tokens += update.tokens
            window.norm += measured.norm
            window.updates += 1
            window.alignment += measured.alignment
            window.aligned += int(measured.aligned)
            window.divergence += measured.divergence

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
        if self.config.r_drop:
            values["train/divergence"] = window.divergence / window.tokens
        self.metrics.write(self.state.step, values)
        note = (
            f"step {self.state.step:,}  epoch {self.state.epoch + 1}  loss {loss:.3f}{guided}  "
            f"{values['train/tokens_per_second']:,.0f} tokens/s"
        )
        self._logged = True
        self._show(note)

    def _show(self, note: str) -> None:
        self.reporter.progress("training", min(self.share(), 0.9999), 1.0, note)

    def validate(self, validate: Validate) -> None:
        """Scores the development set with the model in use, and notes what follows from it.

        Raises:
            BrokenOff: as `validate` does; nothing has changed then.
            NmtError: if weights or the loss are no numbers.
        """
        self._refuse_broken()
        if self.average is not None:
            self.average.swap()
        self.model.eval()
        try:
            values = validate(self.state.step)
        finally:
            self.model.train()
            if self.average is not None:
                self.average.swap()
        self.divergence.refuse_loss(self.state, values[LOSS])
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
        content = self.checkpoint()
        self._refuse_broken()
        if self.processes.first:
            self.metrics.flush()
            save_checkpoint(self.run, self.state.step, content, best=best, keep=self.config.keep_checkpoints)
        self.processes.wait()

    def _refuse_broken(self) -> None:
        self.divergence.refuse_broken(
            self.state, [*self.parameters, *(self.average.average if self.average is not None else ())]
        )

    def _ending(self) -> str:
        """Why training should end now, or an empty string."""
        if self.state.step >= self.config.max_steps:
            return f"max_steps {self.config.max_steps:,} reached"
        if self.config.max_minutes is not None and self.state.seconds >= 60 * self.config.max_minutes:
            return f"max_minutes {self.config.max_minutes:g} reached"
        if self.state.bad_validations >= self.config.patience:
            return f"no better score in {self.config.patience} validations"
        return ""

    def _spend(self, *, updating: bool) -> None:
        """Adds the time since the last call to the run's, and to the window's where it went into updates."""
        spent, self._mark = time.perf_counter() - self._mark, time.perf_counter()
        self.state.seconds += spent
        if self.config.max_minutes is not None:
            self.state.seconds = self.processes.largest(self.state.seconds)  # what ends training ends it for all
        if updating:
            self.state.window.seconds += spent

    @contextmanager
    def _batches(self) -> Iterator[Iterator[tuple[int, int, Portion]]]:
        """(epoch, position of the next batch, portion of the batch) from where training stands.

        For a GPU a thread makes them ahead, in pinned memory. On a CPU it would take time from the update itself.
        """
        batches = self.batches.from_position(self.state.epoch, self.state.position)
        if self.device.type != "cuda":
            yield batches
            return
        pinned = ((epoch, position, portion.pinned()) for epoch, position, portion in batches)
        with made_ahead(pinned, BATCHES_AHEAD) as ahead:
            yield ahead

    def fit(self, validate: Validate) -> TrainingState:
        """Trains until the budget or the patience ends; the state says why.

        `validate` scores the development set at a step and returns its metrics, `dev/bleu` and `dev/loss` among them.

        Where it checks `signals`, a signal breaks the validation off; it is done again when training goes on.

        Raises:
            Stopped: on SIGINT or SIGTERM, when the update in hand is done and everything saved.
            NmtError: when training diverges, memory does not suffice, or something cannot be saved.
        """
        self.model.train()
        self._mark = time.perf_counter()
        with self.signals, self._batches() as batches:
            ended = self._ended_before(validate)
            while not ended:
                self.state.epoch, self.state.position, portion = next(batches)
                self.state.step += 1
                self.update(portion)
                logging = self.state.step % self.config.log_every == 0
                validating = self.state.step % self.config.validate_every == 0
                if logging or validating:
                    self._count(all_of_them=True)  # the time that a GPU still takes belongs to the updates
                self._spend(updating=True)
                ending = bool(self._ending())
                if logging or ending:
                    self.log()
                elif not self._logged:  # a sign of life until there is a loss to show
                    self._show(f"step {self.state.step:,}  epoch {self.state.epoch + 1}")
                self.state.validation_due = validating or ending
                ended = self._conclude(validate)
        self.reporter.progress("training", 1.0, 1.0)
        return self.state

    def _ended_before(self, validate: Validate) -> bool:
        """Does the validation that a checkpoint left to be done; whether training ends without another update."""
        if self.state.validation_due:
            return self._conclude(validate)
        self.state.finished = self._ending()
        if self.state.finished:
            self._save(best=False)
            if (stop := self.signals.agreed()) is not None:
                raise Stopped(stop)
        return bool(self.state.finished)

    def _conclude(self, validate: Validate) -> bool:
        """What comes after an update: validation and checkpoint where they are due, a stop; whether training ends.

        Raises:
            Stopped: if a signal has come.
        """
        stop, saved = self.signals.agreed(), False
        if self.state.validation_due and stop is None:
            if self._validated(validate):
                self._spend(updating=False)
                self._save(best=self.state.best_step == self.state.step)
                self._spend(updating=False)
                saved = True
            stop = self.signals.agreed()
        if stop is not None:
            if not saved:
                later = "; its validation comes when training goes on" if self.state.validation_due else ""
                self.reporter.info(f"stopping at step {self.state.step:,}: saving …{later}")
                self._save(best=False)
            raise Stopped(stop)
        return bool(self.state.finished)

    def _validated(self, validate: Validate) -> bool:
        """Validates, unless a signal comes; whether it is done."""
        ending = self._ending()
        try:
            self.validate(validate)
        except BrokenOff:
            return False
        self.state.validation_due = False
        self.state.finished = ending or self._ending()
        return True


def _seed_of(seed: int, rank: int, step: int) -> int:
    """A seed for the random numbers of one process from a step on."""
    return int(np.random.SeedSequence([seed, rank, step]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _cloned(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of tensors; what was one tensor under two names stays one."""
    copies: dict[int, Tensor] = {}
    for tensor in tensors.values():
        if tensor.data_ptr() not in copies:
            copies[tensor.data_ptr()] = tensor.clone()
    return {name: copies[tensor.data_ptr()] for name, tensor in tensors.items()}
