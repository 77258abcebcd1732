"""`nmt train`: from data and a configuration to a run with a scored model."""

from __future__ import annotations

import itertools
import json
import math
import platform
import shlex
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from nmt import __version__
from nmt.attention_maps import is_windowed, lines_to_watch, validation_figure
from nmt.changes import Change, check_changes, check_data
from nmt.config import Config, PlainConfig, config_yaml
from nmt.data.batching import Batch, Deal, TrainingBatches, in_order, make_batch
from nmt.data.sampling import SubwordSampling
from nmt.data.text import one_line, write_lines
from nmt.doubts import doubt_of_schedule, doubt_of_training
from nmt.errors import NmtError, UnwritableError, is_full, out_of_memory_told, unwritable
from nmt.evaluate import EvaluationResult, evaluate_split, share_translation
from nmt.model.memory import keep_freed_memory, limit_shape_caches
from nmt.model.seq2seq import build_model
from nmt.prepare import PreparedData, open_prepared, prepare
from nmt.reporting import Reporter, SilentReporter
from nmt.run_dir import RunDir, read_json_object, replacing, write_atomic
from nmt.scoring import check_tokenizer, validation_scores
from nmt.training.checkpoint import best_is_missing, checkpoint_to_resume, load_checkpoint, make_last
from nmt.training.foreign import refused_where_it_does_not_fit
from nmt.training.likelihood import likelihood
from nmt.training.loop import Training
from nmt.training.metrics import MetricsWriter, NoMetrics
from nmt.training.processes import SINGLE, Processes
from nmt.training.signals import StopSignals
from nmt.training.state import TrainingState
from nmt.translate import Translation, Translator, choose_device, longest_source, restore_weights

QUIET = 10.0  # seconds of a validation before it shows progress
SAMPLES = 4  # translations of the development set shown in TensorBoard at each validation


def train(
    config: Config, run_path: Path, *, resume: bool, reporter: Reporter, command: Sequence[str] = (),
    checkpoint: Path | None = None, processes: Processes = SINGLE,
) -> EvaluationResult | None:  # fmt: skip
    """Trains a model and scores the test set with its best checkpoint; None where there is no test set.

    With `resume` it goes on from the run's last checkpoint, or from another of its own, `checkpoint`: what the run
    measured and saved after that one goes. Of several processes, all of which call this, the first alone writes,
    reports and returns a result.

    Raises:
        NmtError: for everything a user can mend: data, settings, a run that exists, another training in its folder.
        Stopped: after a signal, with everything saved.
        Lost: if another process is gone.
    """
    run = RunDir(run_path)
    moved: list[Change] = []
    with _way_on_told(run), ExitStack() as lock:
        if not processes.first:
            reporter = SilentReporter()
        elif resume:
            run = RunDir.open(run_path)
            run.refuse_links_out(run.path)
            _lock(run, lock, reporter)
            moved = check_changes(run.settings(), config, run, reporter, processes.count)
        else:
            run.refuse_existing()
            run.refuse_links_out(run.path)
        device = processes.placed(choose_device(config.training.device))
        data = _prepared(config, run, processes, reporter)
        if device.type == "cpu":
            limit_shape_caches()
            keep_freed_memory()  # from here on: what preparing needed is given back
        if processes.first and resume:
            check_data(run, data.report, data.tokenizer_dir, moved, reporter)
        elif processes.first:
            _lock(run, lock, reporter)  # not before: data that is refused leaves no folder behind
            RunDir.create(run_path)
        _fit(config, run, data, device, reporter, command, resume, checkpoint, processes)
        return _test(config, run, data, device, reporter, processes)


def _prepared(config: Config, run: RunDir, processes: Processes, reporter: Reporter) -> PreparedData:
    """The data, which the first process prepares while the others wait.

    Raises:
        NmtError: for what is wrong with data and settings that belong to it.
    """
    if not processes.first:
        return open_prepared(processes.from_first(None))
    check_tokenizer(config.data.tgt_lang, config.evaluation.bleu_tokenize)
    if config.data.train_alignments is not None and config.training.alignment_weight == 0:
        reporter.warning("training.alignment_weight is 0: data.train_alignments guides nothing.")
    data = prepare(config, run.cache_root, reporter)
    processes.from_first(data.tokenizer_dir.parent)
    return data


@contextmanager
def _way_on_told(run: RunDir) -> Iterator[None]:
    """Ends the message for whatever a training could not write with the command that goes on.

    Raises:
        NmtError: in place of the one that advises to write elsewhere, which a run that has begun cannot do.
    """
    before = run.settings_stamp()
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        what = "cannot be written" if error.filename else "a file of this training cannot be written"
        raise _then(run, before, unwritable(error.filename or run.path, error, what=what)) from error
    except UnwritableError as error:
        raise _then(run, before, error) from error


def _then(run: RunDir, before: tuple[int, int] | None, error: UnwritableError) -> NmtError:
    """The message with the way on, which until config.yaml is this command's is the command with all its options."""
    now = run.settings_stamp()
    if now is None:
        return error.then("give the same command again; nothing has been trained yet. Or choose another --run-dir.")
    if now == before:
        return error.then("give the same command again.")
    return error.then(f"go on with: nmt train --resume --run-dir {run.quoted}")


def _lock(run: RunDir, lock: ExitStack, reporter: Reporter) -> None:
    """Keeps other trainings out of the run's folder until `lock` is left."""
    if not lock.enter_context(run.locked()):
        reporter.warning(
            f"{run.path}: this file system has no locks, so nothing keeps a second training out of the folder. Do not "
            "start one."
        )


def _fit(
    config: Config, run: RunDir, data: PreparedData, device: torch.device, reporter: Reporter,
    command: Sequence[str], resume: bool, checkpoint: Path | None, processes: Processes,
) -> None:  # fmt: skip
    """Trains, from the beginning or from a checkpoint, until the budget ends."""
    found = _found(run, checkpoint, processes) if resume else None
    training = _new_training(config, run, data, device, reporter, processes)
    if found is not None:
        _take_up(run, training, *found, reporter)
    processes.alike(training.parameters)
    state = training.state
    metrics: MetricsWriter = NoMetrics()
    if processes.first:
        _describe(run, config, data, command, training)  # not before: a checkpoint refused leaves the run as it was
        if resume:
            run.clear_after(state.step)
        step = state.step if found is not None else None
        metrics = MetricsWriter(run.metrics, run.tensorboard, step, validation_due=state.validation_due)
    training.metrics = metrics
    if found is None:
        if resume:
            reporter.info(f"{run.path}: no checkpoint was saved yet; training starts at the beginning.")
        metrics.text(0, "settings", "```yaml\n" + config_yaml(config) + "```")
    try:
        if state.finished:
            reporter.info(f"this run is finished: {state.finished}. Nothing is left to train.")
        else:
            training.fit(Validation(config, data, training))
            reporter.info(f"training ended: {state.finished}; best {state.best_score:.2f} at step {state.best_step:,}")
            for doubt in (doubt_of_training(state), doubt_of_schedule(config.training, state)):
                if doubt is not None:
                    reporter.warning(doubt)
    except BaseException:
        with suppress(NmtError, OSError):  # what ended training is to be told, not that its disk is full here too
            _record_time(run, state, processes)
        raise
    finally:
        metrics.close()
    _record_time(run, state, processes)


def _found(run: RunDir, named: Path | None, processes: Processes) -> tuple[Path, dict[str, Any]] | None:
    """The checkpoint to go on from, with its content: the one that the first process finds."""
    found = checkpoint_to_resume(run, named) if processes.first else None
    path = processes.from_first(found and found[0])
    return (path, load_checkpoint(path)) if found is None and path is not None else found


def _new_training(
    config: Config, run: RunDir, data: PreparedData, device: torch.device, reporter: Reporter, processes: Processes
) -> Training:
    """A training at its beginning."""
    settings = config.training
    torch.manual_seed(settings.seed)
    model = build_model(config.model, data.tokenizers.src.vocab_size, data.tokenizers.tgt.vocab_size).to(device)
    deal = Deal(processes.rank, processes.count, settings.accumulate)
    sampling = _subword_sampling(config, data)
    batches = TrainingBatches(data.train, settings.batch_tokens, settings.seed, sampling, deal)
    training = Training(model, batches, settings, device, run, reporter, processes)
    parameters = sum(parameter.numel() for parameter in training.parameters)
    reporter.info(
        f"{parameters:,} parameters, {batches.batches_an_epoch()} batches an epoch, on {device}"
        + (_with_threads(torch.get_num_threads()) if device.type == "cpu" else "")
        + ("" if training.precision.rounded is None else ", large products in bfloat16")
        + _dealt(processes.count, settings.accumulate)
    )
    return training


def _dealt(processes: int, parts: int) -> str:
    """Says by how many processes and in how many parts a batch is worked through."""
    shown = f", {processes} processes" * (processes > 1) + f", {parts} parts" * (parts > 1)
    return f"{shown} a batch" if shown else ""


def _with_threads(count: int) -> str:
    return f" with {count} thread{'s' * (count != 1)}"


def _take_up(run: RunDir, training: Training, path: Path, content: dict[str, Any], reporter: Reporter) -> None:
    """Puts a training where a checkpoint left it, and then last.pt and best.pt: the files by the first process alone.

    Raises:
        NmtError: if the checkpoint does not fit the training, or the run is finished and its best one is gone; nothing
            of the run has changed then.
    """
    restore_weights(training.model, content["model"], path)
    with refused_where_it_does_not_fit(path):
        training.restore(content)
    if not training.processes.first:
        training.state = training.processes.from_first(None)
        return
    state = training.state
    if state.finished and not training.reopened() and best_is_missing(run, content["state"], mend=False):
        limit = state.finished.split()[0] if state.finished.startswith("max_") else "patience"
        raise NmtError(
            f"{run.best}: the best checkpoint, of step {state.best_step:,}, is not there any more, and this run is "
            f"finished: {state.finished}. Score what it ended with: nmt eval --run {run.quoted} --checkpoint "
            f"{shlex.quote(str(path))}. Or go on with a larger training.{limit} (--resume, --set)."
        )
    make_last(run, path, state.step)
    if best_is_missing(run, content["state"]):
        reporter.warning(
            f"{run.best}: the best checkpoint, of step {state.best_step:,}, is not there any more. The next "
            "validation sets a new one."
        )
        state.best_score, state.best_step = -math.inf, 0
    training.note_due()
    training.processes.from_first(state)
    reporter.info(f"resumed at step {training.state.step:,}, epoch {training.state.epoch + 1}")


def _subword_sampling(config: Config, data: PreparedData) -> SubwordSampling | None:
    """What segments the training pairs anew in each epoch; None where they keep one segmentation."""
    alpha = config.tokenizer.sampling_alpha
    if not alpha:
        return None
    model_type = config.tokenizer.model_type
    max_length = config.data.max_length
    return SubwordSampling(data.train, data.tokenizers, model_type, alpha, config.training.seed, max_length)


class _Watch:
    """Called before each batch of a validation: breaks it off on a signal, and shows one that takes long going on."""

    def __init__(self, step: int, signals: StopSignals, reporter: Reporter) -> None:
        self._task, self._signals, self._reporter = f"validation at step {step:,}, batches", signals, reporter
        self._start, self._done, self._shown = time.monotonic(), 0, False

    def __call__(self) -> None:
        """Raises BrokenOff if a signal has come."""
        self._signals.check()
        if self._shown or time.monotonic() - self._start > QUIET:
            self._reporter.progress(self._task, self._done, None)
            self._shown = True
        self._done += 1

    def over(self, batches: Iterable[Batch | None]) -> Iterator[Batch | None]:
        """The batches, each watched."""
        for batch in batches:
            self()
            yield batch

    def end(self) -> None:
        """Raises BrokenOff if a signal has come."""
        self._signals.check()
        self.close()

    def close(self) -> None:
        """Ends what is shown."""
        if self._shown:
            self._reporter.progress(self._task, self._done, self._done)


class Validation:
    """Scores the model on the development set as it stands; called by the training loop."""

    def __init__(self, config: Config, data: PreparedData, training: Training) -> None:
        self.config, self.data = config, data
        self.model, self.device, self.run = training.model, training.device, training.run
        self.metrics, self.signals, self.reporter = training.metrics, training.signals, training.reporter
        self.processes = training.processes
        self.sources = data.dev.src_texts()
        self.references = data.dev.tgt_texts()
        attends = not isinstance(config.model.decoder, PlainConfig)
        lengths = [len(ids) for ids in data.tokenizers.src.encode(self.sources)] if attends else []
        self.watched = lines_to_watch(lengths)

    def __call__(self, step: int) -> dict[str, float]:
        """Likelihood, attention entropy, BLEU and chrF; writes the translations to `dev/`, heat maps to TensorBoard.

        Several processes share the batches, and the first scores and writes.

        Raises:
            BrokenOff: on a signal; nothing is written then.
        """
        dealt = self.processes.dealt(in_order(self.data.dev, self.config.training.batch_tokens))
        batches = (None if pairs is None else make_batch(self.data.dev, pairs) for pairs in dealt)
        watch = _Watch(step, self.signals, self.reporter)
        with out_of_memory_told(self._too_large):
            values = likelihood(self.model, watch.over(batches), self.device, self.processes)
        if not math.isfinite(values["dev/loss"]):
            watch.close()
            return values  # the training loop gives up; there is nothing to translate with
        translations = self._translate(watch)
        watch.end()
        scores = self._scored(step, translations) if self.processes.first else None
        return values | self.processes.from_first(scores)

    def _scored(self, step: int, translations: Sequence[Translation]) -> dict[str, float]:
        """The scores of translations, which are written and drawn."""
        hypotheses = [translation.text for translation in translations]
        self._draw(step, [translations[line] for line in self.watched])
        write_lines(self.run.dev / f"step_{step:06d}.txt", hypotheses)
        scores = validation_scores(
            hypotheses,
            self.references,
            tgt_lang=self.config.data.tgt_lang,
            bleu_tokenize=self.config.evaluation.bleu_tokenize,
        )
        samples = (
            f"    source       {one_line(source)}\n    reference    {one_line(reference)}\n    translation  {text}\n"
            for source, reference, text in zip(self.sources, self.references, hypotheses, strict=True)
        )
        self.metrics.text(step, "dev/samples", "\n".join(itertools.islice(samples, SAMPLES)))
        return {f"dev/{name}": score for name, score in scores.items()}

    def _translate(self, before_each: Callable[[], None]) -> list[Translation]:
        """All of the development set; the weights are kept of the sentences that are drawn, no others."""
        config = self.config
        translator = Translator(self.model, self.data.tokenizers, config.search, longest_source(config), self.device)
        translator.processes = self.processes
        watched = set(self.watched)
        others = [source for line, source in enumerate(self.sources) if line not in watched]
        watch = [self.sources[line] for line in self.watched]
        kept = iter(translator.translate(watch, keep_weights=True, before_each=before_each))
        rest = iter(translator.translate(others, before_each=before_each))
        return [next(kept if line in watched else rest) for line in range(len(self.sources))]

    def _too_large(self) -> str:
        budget = self.config.training.batch_tokens
        return (
            f"in the validation: training.batch_tokens is {budget:,}. Go on with smaller batches: nmt train --resume "
            f"--run-dir {self.run.quoted} --set training.batch_tokens={max(budget // 2, 1)}"
        )

    def _draw(self, step: int, translations: Sequence[Translation]) -> None:
        """The same sentences at each validation, so that attention can be seen to form."""
        for number, (line, translation) in enumerate(zip(self.watched, translations, strict=True), 1):
            if translation.src_pieces:  # not a line of blanks, which has no weights
                figure = validation_figure(line + 1, self.sources[line], translation, step, is_windowed(self.config))
                self.metrics.figure(step, f"attention/{number}", figure)


def _describe(run: RunDir, config: Config, data: PreparedData, command: Sequence[str], training: Training) -> None:
    """Writes what the run is made of: settings, versions, data report, tokenizer."""
    write_atomic(run.data_report, json.dumps(data.report, indent=2, ensure_ascii=False) + "\n")
    for file in sorted(data.tokenizer_dir.glob("*.model")):
        with replacing(run.tokenizer / file.name) as copy:
            copy.write(file.read_bytes())
    meta = _read_meta(run)
    packages = ("torch", "sentencepiece", "datasets", "sacrebleu", "numpy", "pyarrow")
    meta |= {
        "nmt": __version__,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "processes": training.processes.count,
        "git_commit": _git_commit(),
        "seed": config.training.seed,
        "finished": training.state.finished,  # not what an earlier training of this run left, which goes on
    }
    starts = meta.get("starts")
    meta["starts"] = [*(starts if isinstance(starts, list) else []), {"time": _now(), "command": list(command)}]
    write_atomic(run.meta, json.dumps(meta, indent=2, ensure_ascii=False) + "\n")
    write_atomic(run.config, config_yaml(config))  # last: a folder that has it has all that resuming needs


def _record_time(run: RunDir, state: TrainingState, processes: Processes) -> None:
    if not processes.first:
        return
    meta = _read_meta(run) | {
        "training_seconds": round(state.seconds, 3),
        "steps": state.step,
        "best_step": state.best_step,
        "finished": state.finished,
        "last_end": _now(),
    }
    write_atomic(run.meta, json.dumps(meta, indent=2, ensure_ascii=False) + "\n")


def _read_meta(run: RunDir) -> dict[str, Any]:
    return read_json_object(run.meta)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _git_commit() -> str | None:
    """The commit of the checkout that nmt runs from, with a + where files differ; None outside a checkout."""
    folder = Path(__file__).resolve().parents[1]
    if not (folder / ".git").exists():  # an installed package may lie inside a checkout of something else
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--abbrev=40", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _test(
    config: Config, run: RunDir, data: PreparedData, device: torch.device, reporter: Reporter, processes: Processes
) -> EvaluationResult | None:
    """Scores the test set with the best checkpoint, never the last by accident."""
    if data.test is None:
        reporter.info("no test set: nothing to score. Give data.test, or use `nmt eval --src FILE --tgt FILE`.")
        return None
    pairs = list(zip(data.test.src_texts(), data.test.tgt_texts(), strict=True))
    if not processes.first:
        share_translation(run, [source for source, _ in pairs], config.search, str(device), processes)
        return None
    start = time.perf_counter()
    result = evaluate_split(
        run, reporter, search=config.search, device=str(device), pairs=pairs, processes=processes
    )  # fmt: skip
    reporter.info(f"test set translated and scored in {time.perf_counter() - start:.0f} s")
    return result
