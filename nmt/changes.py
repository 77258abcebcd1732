"""What changes when a run is resumed: which settings are refused, what the others do to the run, whose text differs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nmt.config import Config, plain_settings
from nmt.config_data import FILE_KEYS
from nmt.data.report import SPLITS, other_texts, tells_texts
from nmt.errors import NmtError
from nmt.reporting import Reporter
from nmt.run_dir import RunDir, read_json_object

Change = tuple[str, str]  # a setting's path, and "path: old -> new"

# What decides the meaning of ids, the shapes of weights, or what the optimizer's state is of.
_FIXED = ("data", "tokenizer", "model", "training.optimizer.kind")
_DROPOUTS = ("model.dropout", "model.word_dropout", "model.annotation_dropout", "model.weight_dropout")
_FREE = ("tokenizer.sampling_alpha", *_DROPOUTS)  # parts of these that are matters of training alone
_OTHER_ORDER = "the rest of this epoch comes in other batches: some pairs twice, others not at all"
_OTHER_SCORES = "scores of dev from here on do not compare with earlier ones, the best one among them"
# Where the text lies may change; that it is the same text is seen from its checksums.
_ALIGNMENTS = "data.train_alignments"
_PLACES = (*(f"data.{split}" for split in SPLITS), _ALIGNMENTS)
# The product of these is what an update's batch is cut by.
_PROCESSES = "processes"
_SHARES = ("training.batch_tokens", "training.accumulate", _PROCESSES)
# What the user would not guess; a key stands for all below it.
_MEANING = {
    "tokenizer.sampling_alpha": _OTHER_ORDER,
    "training.seed": _OTHER_ORDER + "; dropout goes on with the random numbers that the run began with",
    **dict.fromkeys(_SHARES, _OTHER_ORDER),
    "training.precision": "updates are rounded otherwise from here on",
    "training.label_smoothing": "train/loss from here on does not compare with earlier values",
    "training.scheduled_sampling": "the share of own words goes on as if training had begun with it",
    "training.r_drop": "updates take twice the time with it, or half the time without",
    "training.alignment_weight": "train/alignment_loss counts otherwise from here on",
    "training.optimizer.learning_rate": "what a plateau has taken off so far stays off",
    "training.schedule": "what a plateau has taken off so far stays off",
    "training.ema_decay": _OTHER_SCORES,
    "search": _OTHER_SCORES,
    "evaluation.bleu_tokenize": _OTHER_SCORES,
}


def check_changes(old: Config, new: Config, run: RunDir, reporter: Reporter, processes: int = 1) -> list[Change]:
    """Tell each setting that a resumed run changes, with a warning where it means more than it says.

    `processes` share each batch from now on; how many did before is in the run's meta.json.

    Returns the changes of where the text lies, which are for `check_data` to accept and tell.

    Raises:
        NmtError: naming every changed setting that the run cannot go on with (filters of the data, vocabulary, shape of
            the model, kind of optimizer), or the files of its data that are not there.
    """
    changes = _differences(plain_settings(old), plain_settings(new))
    moved = [change for change in changes if _is_part(change[0], _PLACES) and not _makes_text(change[0])]
    free = (*_FREE, *_PLACES)
    refused = [
        text for path, text in changes if _makes_text(path) or (_is_part(path, _FIXED) and not _is_part(path, free))
    ]
    if refused:
        raise NmtError(
            f"{run.path}: --resume cannot change data, tokenizer, model or optimizer of a run:\n  "
            + "\n  ".join(refused)
            + "\nTake them back (give each --set again that the run began with, or --resume without --config), or "
            f"train a new run with another --run-dir. The run's own settings: {run.config}"
        )
    _refuse_missing(new, run)
    before = read_json_object(run.meta).get("processes", 1)
    if before != processes:
        changes.append((_PROCESSES, f"{_PROCESSES}: {before} -> {processes}"))
    same_batches = _pieces(old, before) == _pieces(new, processes)
    for path, text in changes:
        if same_batches and path in _SHARES:
            reporter.info(f"changed: {text} (same batches)")
            continue
        meaning = [what for key, what in _meanings(new).items() if _is_part(path, (key,))]
        if meaning:
            reporter.warning(f"changed: {text}: {meaning[0]}.")
        elif (path, text) not in moved:
            reporter.info(f"changed: {text}")
    return moved


def _pieces(config: Config, processes: object) -> int:
    """Return the budget of an update's batch, 0 where nobody knows how many processes there were."""
    return config.training.batch_tokens * config.training.accumulate * (processes if isinstance(processes, int) else 0)


def _refuse_missing(config: Config, run: RunDir) -> None:
    """Refuse to go on without the files of the data, naming the settings that say where they lie."""
    found = [(path, f"{path}: {file}", _absence(file)) for path, file in _files(plain_settings(config)["data"], "data")]
    missing = [(path, line + absence) for path, line, absence in found if absence is not None]
    if missing:
        what = "FOLDER" if missing[0][0].endswith(".hub") else "FILE"
        raise NmtError(
            f"{run.path}: files of this run's data are not there:\n  "
            + "\n  ".join(line for _, line in missing)
            + f"\nPut them back, or say where they lie now: nmt train --resume --run-dir {run.quoted} --set "
            f"{missing[0][0]}={what}. What counts is that their text is the same."
        )


def _makes_text(path: str) -> bool:
    """Say whether it is a setting of a source that its text depends on, other than where it lies."""
    return path.startswith("data.train.") and path.endswith(".substitutions")


def _absence(file: str) -> str | None:
    """Return what to say of a file that cannot be seen, nothing more where it is not there; None if it is there."""
    try:
        os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return f" ({error.strerror})"
    return None


def _files(tree: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the value of each setting that names a file of the data, or a folder in the hub's layout."""
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if isinstance(value, dict | list | tuple):
            yield from _files(value, f"{path}.{key}")
        elif value is None:
            continue
        elif key in (*FILE_KEYS, "train_alignments") or (key == "hub" and os.path.isabs(value)):
            yield f"{path}.{key}", value


def check_data(
    run: RunDir, report: dict[str, Any], tokenizer_dir: Path, moved: Sequence[Change], reporter: Reporter
) -> None:
    """Refuse to go on with other text than the run began with, by its checksums: ids would mean other pieces.

    Args:
        run: the run, with its own data report and SentencePiece models.
        report: of the data as it is now.
        tokenizer_dir: the SentencePiece models as they are now.
        moved: what `check_changes` returned; told if it is accepted.
        reporter: told so.

    Raises:
        NmtError: naming each text that is another one, or the vocabulary.
    """
    before = read_json_object(run.data_report)
    if not tells_texts(before):
        raise NmtError(
            f"{run.data_report}: it does not say what text this run began with, so nobody can tell whether it is the "
            "same. Put the file back, or train a new run with another --run-dir."
        )
    others = other_texts(before, report)
    # Without a checksum nobody knows what a file in another place holds.
    others += [
        split
        for split in SPLITS
        if "checksum" not in (before.get(split) or {}) and any(_is_part(path, _places(split)) for path, _ in moved)
    ]
    if others:
        lines = dict.fromkeys(line for other in others for line in _told(other, moved, report))
        raise NmtError(
            f"{run.path}: --resume cannot change the text of a run, and this is another one:\n  "
            + "\n  ".join(lines)
            + f"\nPut the old files back ({run.data_report.name} of the run has their checksums), or train a new run "
            "with another --run-dir."
        )
    if not all(_is_copy(run.tokenizer / file.name, file) for file in tokenizer_dir.glob("*.model")):
        raise NmtError(
            f"{run.path}: the vocabulary that is learnt from data.train is another one than when this run began, but "
            "the pairs that are kept are the same: pairs that are dropped have changed, or SentencePiece has. Put the "
            "old ones back, or train a new run with another --run-dir."
        )
    for _, text in moved:
        reporter.info(f"changed: {text} (same text)")


def _is_copy(copy: Path, file: Path) -> bool:
    return copy.is_file() and copy.read_bytes() == file.read_bytes()


def _places(split: str) -> tuple[str, ...]:
    """Return the settings that say where a split lies."""
    return (f"data.{split}", _ALIGNMENTS) if split == "train" else (f"data.{split}",)


def _told(other: str, moved: Sequence[Change], report: dict[str, Any]) -> list[str]:
    """Return a line for each setting by which a text that differs, such as `dev.tgt`, was given."""
    split, _, side = other.partition(".")
    keys = (f"data.{split}",) if side else _places(split)
    places = [(path, text) for path, text in moved if _is_part(path, keys)]
    of_side = [(path, text) for path, text in places if path.rpartition(".")[2] == side] if side else []
    if places:
        return [text for _, text in of_side or places]
    part = report.get(split) or {}
    sources = [*part.get("sources", []), *([] if side or "alignments" not in part else [part["alignments"]["file"]])]
    return [f"data.{other}: another text than before ({'; '.join(sources) or 'none'})"]


def _meanings(new: Config) -> dict[str, str]:
    """Return what changes mean, under the schedule that the run goes on with."""
    stretched = []
    if new.training.schedule.kind == "cosine":
        stretched.append("the cosine of the learning rate is stretched to it, and the rate jumps")
    if new.training.scheduled_sampling:
        stretched.append("the share of own words is stretched to it, and jumps")
    return _MEANING | ({"training.max_steps": "; ".join(stretched)} if stretched else {})


def _is_part(path: str, keys: tuple[str, ...]) -> bool:
    return any(path == key or path.startswith(f"{key}.") for key in keys)


def _differences(old: Any, new: Any, path: str = "") -> list[Change]:
    """Return (path, "path: old -> new") of every setting that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key in {**old, **new}:
            found += _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
        return found
    if path == "data.train" and isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [each for place, pair in enumerate(zip(old, new)) for each in _differences(*pair, f"{path}.{place}")]
    return [] if old == new else [(path, f"{path}: {_shown(old)} -> {_shown(new)}")]


def _shown(value: Any) -> str:
    """Return a value as YAML has it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
