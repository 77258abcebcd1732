"""`nmt train`: from data and a configuration to a run with a scored model."""

from __future__ import annotations

import itertools
import json
import platform
import shutil
import subprocess
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from nmt import __version__
from nmt.attention_maps import is_windowed, lines_to_watch, validation_figure
from nmt.changes import check_changes
from nmt.config import Config, PlainConfig, config_yaml, load_config
from nmt.data.batching import TrainingBatches, in_order
from nmt.data.sampling import SubwordSampling
from nmt.errors import NmtError
from nmt.evaluate import EvaluationResult, check_tokenizer, evaluate_split, validation_scores
from nmt.model.memory import keep_freed_memory
from nmt.model.seq2seq import Seq2Seq, build_model
from nmt.prepare import PreparedData, prepare
from nmt.reporting import Reporter
from nmt.run_dir import RunDir, write_atomic
from nmt.training.checkpoint import load_checkpoint
from nmt.training.loop import Training, TrainingState, likelihood
from nmt.training.metrics import MetricsWriter
from nmt.translate import Translation, Translator, choose_device, longest_source

SAMPLES = 4  # translations of the development set shown in TensorBoard at each validation


def train(
    config: Config, run_path: Path, *, resume: bool, reporter: Reporter, command: Sequence[str] = ()
) -> EvaluationResult | None:
    """Trains a model and scores the test set with its best checkpoint; None where there is no test set.

    Raises:
        NmtError: for everything a user can mend: data, settings, a run that exists.
        Stopped: after a signal, with everything saved.
    """
    run = RunDir(run_path)
    if resume:
        run = RunDir.open(run_path)
        check_changes(load_config(str(run.config)), config, run, reporter)
    else:
        run.refuse_existing()
    device = choose_device(config.training.device)
    check_tokenizer(config.data.tgt_lang, config.evaluation.bleu_tokenize)
    if config.data.train_alignments is not None and config.training.alignment_weight == 0:
        reporter.warning("training.alignment_weight is 0: data.train_alignments guides nothing.")
    data = prepare(config, run.cache_root, reporter)
    if device.type == "cpu":
        keep_freed_memory()  # from here on: what preparing needed is given back
    if resume:
        _check_data(run, data)
    else:
        RunDir.create(run_path)
    content = load_checkpoint(run.last) if resume and run.last.is_file() else None
    _describe(run, config, data, command)

    torch.manual_seed(config.training.seed)
    model = build_model(config.model, data.tokenizers.src.vocab_size, data.tokenizers.tgt.vocab_size).to(device)
    step = content["state"]["step"] if content else None
    metrics = MetricsWriter(run.metrics, run.tensorboard, step)
    batches = TrainingBatches(
        data.train, config.training.batch_tokens, config.training.seed, _subword_sampling(config, data)
    )
    training = Training(model, batches, config.training, device, run, metrics, reporter)
    parameters = sum(parameter.numel() for parameter in training.parameters)
    reporter.info(
        f"{parameters:,} parameters, {len(batches.epoch(0)):,} batches an epoch, on {device}"
        + (f" with {torch.get_num_threads()} threads" if device.type == "cpu" else "")
        + ("" if training.precision.rounded is None else ", large products in bfloat16")
    )
    if content is not None:
        training.restore(content)
        reporter.info(f"resumed at step {training.state.step:,}, epoch {training.state.epoch + 1}")
    else:
        metrics.text(0, "settings", "```yaml\n" + config_yaml(config) + "```")
    try:
        if training.state.finished and not training.reopened():
            reporter.info(f"this run is finished: {training.state.finished}. Nothing is left to train.")
        else:
            validation = Validation(config, data, model, device, run, metrics)
            state = training.fit(validation)
            reporter.info(f"training ended: {state.finished}; best {state.best_score:.2f} at step {state.best_step:,}")
    finally:
        metrics.close()
        _record_time(run, training.state)
    return _test(config, run, data, device, reporter)


def _subword_sampling(config: Config, data: PreparedData) -> SubwordSampling | None:
    """What segments the training pairs anew in each epoch; None where they keep one segmentation."""
    alpha = config.tokenizer.sampling_alpha
    if not alpha:
        return None
    model_type = config.tokenizer.model_type
    max_length = config.data.max_length
    return SubwordSampling(data.train, data.tokenizers, model_type, alpha, config.training.seed, max_length)


class Validation:
    """Scores the model on the development set as it stands; called by the training loop."""

    def __init__(
        self, config: Config, data: PreparedData, model: Seq2Seq, device: torch.device, run: RunDir,
        metrics: MetricsWriter,
    ) -> None:  # fmt: skip
        self.config, self.data, self.model, self.device = config, data, model, device
        self.run, self.metrics = run, metrics
        self.translator = Translator(model, data.tokenizers, config.search, longest_source(config), device)
        self.sources = data.dev.src_texts()
        self.references = data.dev.tgt_texts()
        attends = not isinstance(config.model.decoder, PlainConfig)
        lengths = [len(ids) for ids in data.tokenizers.src.encode(self.sources)] if attends else []
        self.watched = lines_to_watch(lengths)

    def __call__(self, step: int) -> dict[str, float]:
        """Likelihood, attention entropy, BLEU and chrF; writes the translations to `dev/`, heat maps to TensorBoard."""
        values = likelihood(self.model, in_order(self.data.dev, self.config.training.batch_tokens), self.device)
        translations = self._translate()
        hypotheses = [translation.text for translation in translations]
        self._draw(step, [translations[line] for line in self.watched])
        write_atomic(self.run.dev / f"step_{step:06d}.txt", "".join(f"{text}\n" for text in hypotheses))
        scores = validation_scores(
            hypotheses,
            self.references,
            tgt_lang=self.config.data.tgt_lang,
            bleu_tokenize=self.config.evaluation.bleu_tokenize,
        )
        samples = (
            f"    source       {source}\n    reference    {reference}\n    translation  {hypothesis}\n"
            for source, reference, hypothesis in zip(self.sources, self.references, hypotheses, strict=True)
        )
        self.metrics.text(step, "dev/samples", "\n".join(itertools.islice(samples, SAMPLES)))
        return values | {f"dev/{name}": score for name, score in scores.items()}

    def _translate(self) -> list[Translation]:
        """All of the development set; the weights are kept of the sentences that are drawn, no others."""
        watched = set(self.watched)
        others = [source for line, source in enumerate(self.sources) if line not in watched]
        kept = iter(self.translator.translate([self.sources[line] for line in self.watched], keep_weights=True))
        rest = iter(self.translator.translate(others))
        return [next(kept if line in watched else rest) for line in range(len(self.sources))]

    def _draw(self, step: int, translations: Sequence[Translation]) -> None:
        """The same sentences at each validation, so that attention can be seen to form."""
        for number, (line, translation) in enumerate(zip(self.watched, translations, strict=True), 1):
            if translation.src_pieces:  # not a line of blanks, which has no weights
                figure = validation_figure(line + 1, self.sources[line], translation, step, is_windowed(self.config))
                self.metrics.figure(step, f"attention/{number}", figure)


def _check_data(run: RunDir, data: PreparedData) -> None:
    """Refuses to go on with other text than the run began with: ids would mean other pieces.

    Raises:
        NmtError: if the data report or the vocabulary is not the one in the run's folder.
    """
    here = data.tokenizer_dir.glob("*.model")
    same = all((run.tokenizer / file.name).read_bytes() == file.read_bytes() for file in here)
    volatile = ("cached", "where", "seconds")
    before, now = (
        {key: value for key, value in report.items() if key not in volatile}
        for report in (json.loads(run.data_report.read_text(encoding="utf-8")), data.report)
    )
    if not same or before != now:
        raise NmtError(
            f"{run.path}: the data has changed since this run began (its {run.data_report.name} and the one above "
            "differ). Put the old files back, or train a new run with another --run-dir."
        )


def _describe(run: RunDir, config: Config, data: PreparedData, command: Sequence[str]) -> None:
    """Writes what the run is made of: settings, versions, data report, tokenizer."""
    write_atomic(run.data_report, json.dumps(data.report, indent=2, ensure_ascii=False) + "\n")
    shutil.copytree(data.tokenizer_dir, run.tokenizer, dirs_exist_ok=True)
    meta = _read_meta(run)
    packages = ("torch", "sentencepiece", "datasets", "sacrebleu", "numpy", "pyarrow")
    meta |= {
        "nmt": __version__,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "git_commit": _git_commit(),
        "seed": config.training.seed,
    }
    meta["starts"] = [*meta.get("starts", []), {"time": _now(), "command": list(command)}]
    write_atomic(run.meta, json.dumps(meta, indent=2, ensure_ascii=False) + "\n")
    write_atomic(run.config, config_yaml(config))  # last: a folder that has it has all that resuming needs


def _record_time(run: RunDir, state: TrainingState) -> None:
    meta = _read_meta(run) | {
        "training_seconds": round(state.seconds, 3),
        "steps": state.step,
        "best_step": state.best_step,
        "finished": state.finished,
        "last_end": _now(),
    }
    write_atomic(run.meta, json.dumps(meta, indent=2, ensure_ascii=False) + "\n")


def _read_meta(run: RunDir) -> dict[str, Any]:
    return dict(json.loads(run.meta.read_text(encoding="utf-8"))) if run.meta.is_file() else {}


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
    config: Config, run: RunDir, data: PreparedData, device: torch.device, reporter: Reporter
) -> EvaluationResult | None:
    """Scores the test set with the best checkpoint, never the last by accident."""
    if data.test is None:
        reporter.info("no test set: nothing to score. Give data.test, or use `nmt eval --src FILE --tgt FILE`.")
        return None
    pairs = list(zip(data.test.src_texts(), data.test.tgt_texts(), strict=True))
    start = time.perf_counter()
    result = evaluate_split(run, reporter, split="test", search=config.search, device=str(device), pairs=pairs)
    reporter.info(f"test set translated and scored in {time.perf_counter() - start:.0f} s")
    return result
