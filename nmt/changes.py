"""Settings that change when a run is resumed: which ones are refused, and what the others do to the run."""

from __future__ import annotations

from typing import Any

from nmt.config import Config, plain_settings
from nmt.errors import NmtError
from nmt.reporting import Reporter
from nmt.run_dir import RunDir

# What decides the meaning of ids, the shapes of weights, or what the optimizer's state is of.
_FIXED = ("data", "tokenizer", "model", "training.optimizer.kind")
_FREE = ("tokenizer.sampling_alpha", "model.dropout")  # parts of these that are matters of training alone
_OTHER_ORDER = "the rest of this epoch comes in other batches: some pairs twice, others not at all"
_OTHER_SCORES = "scores of dev from here on do not compare with earlier ones, the best one among them"
# What the user would not guess; a key stands for all below it.
_MEANING = {
    "tokenizer.sampling_alpha": _OTHER_ORDER,
    "training.seed": _OTHER_ORDER + "; dropout goes on with the random numbers that the run began with",
    "training.batch_tokens": _OTHER_ORDER,
    "training.precision": "updates are rounded otherwise from here on",
    "training.label_smoothing": "train/loss from here on does not compare with earlier values",
    "training.alignment_weight": "train/alignment_loss counts otherwise from here on",
    "training.optimizer.learning_rate": "what a plateau has taken off so far stays off",
    "training.schedule": "what a plateau has taken off so far stays off",
    "training.ema_decay": _OTHER_SCORES,
    "search": _OTHER_SCORES,
    "evaluation.bleu_tokenize": _OTHER_SCORES,
}


def check_changes(old: Config, new: Config, run: RunDir, reporter: Reporter) -> None:
    """Tell each setting that a resumed run changes, with a warning where it means more than it says.

    Raises:
        NmtError: naming every changed setting that the run cannot go on with: data, vocabulary, shape of the model,
            kind of optimizer.
    """
    changes = _differences(plain_settings(old), plain_settings(new))
    refused = [text for path, text in changes if _is_part(path, _FIXED) and not _is_part(path, _FREE)]
    if refused:
        raise NmtError(
            f"{run.path}: --resume cannot change data, tokenizer, model or optimizer of a run:\n  "
            + "\n  ".join(refused)
            + "\nTake them back (give each --set again that the run began with, or --resume without --config), or "
            f"train a new run with another --run-dir. The run's own settings: {run.config}"
        )
    for path, text in changes:
        meaning = [what for key, what in _meanings(new).items() if _is_part(path, (key,))]
        if meaning:
            reporter.warning(f"changed: {text}: {meaning[0]}.")
        else:
            reporter.info(f"changed: {text}")


def _meanings(new: Config) -> dict[str, str]:
    """Return what changes mean, under the schedule that the run goes on with."""
    if new.training.schedule.kind != "cosine":
        return _MEANING
    return _MEANING | {"training.max_steps": "the cosine of the learning rate is stretched to it, and the rate jumps"}


def _is_part(path: str, keys: tuple[str, ...]) -> bool:
    return any(path == key or path.startswith(f"{key}.") for key in keys)


def _differences(old: Any, new: Any, path: str = "") -> list[tuple[str, str]]:
    """Return (path, "path: old -> new") of every setting that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key in {**old, **new}:
            found += _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
        return found
    return [] if old == new else [(path, f"{path}: {_shown(old)} -> {_shown(new)}")]


def _shown(value: Any) -> str:
    """Return a value as YAML has it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
