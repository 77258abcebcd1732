"""Checkpoints: plain tensors and types in a file that appears whole or not at all."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch

from nmt.errors import NmtError, UnwritableError, is_out_of_memory, unwritable
from nmt.run_dir import RunDir, flush_folder, read_json_object, replacing, temporary_beside, write_atomic
from nmt.training.foreign import what_is_odd
from nmt.training.metrics import read_metrics
from nmt.training.state import TrainingState

# In meta.json: the step of the first one that was saved, or of the first that was taken up, where none was noted yet.
_FIRST = "first_checkpoint"
_STEP = re.compile(r"step_.*\.pt")


def save_checkpoint(run: RunDir, step: int, content: dict[str, Any], *, best: bool, keep: int) -> Path:
    """Writes `step_NNNNNN.pt`, lets `best.pt` on request and `last.pt` name the same file, drops the oldest.

    Those of later steps go, too: they are of a training that was taken up again from before them.

    Raises:
        NmtError: if it cannot be written; the older checkpoints stay.
    """
    path = run.checkpoints / f"step_{step:06d}.pt"
    # best.pt first: last.pt says which step is the best one.
    names = (*((run.best,) if best else ()), run.last)
    noted: list[OSError] = []
    try:
        with replacing(path) as stream:
            torch.save(content, cast(BinaryIO, _Noting(stream, noted)))
        for name in names:
            _second_name(path, name)
        flush_folder(run.checkpoints)  # before the older ones go
        steps = _by_step(run)
        later = [file for file in steps if _step(file) > step]
        steps = [file for file in steps if _step(file) <= step]
        for old in (*steps[: max(0, len(steps) - keep)], *later):
            old.unlink()
    except (OSError, RuntimeError, NmtError) as error:  # torch reports a full disk as a RuntimeError
        if is_out_of_memory(error):
            raise
        cause = next((each for each in (*noted, error, error.__cause__) if isinstance(each, OSError)), None)
        raise _not_saved(run, path, content, error if cause is None else cause) from error
    _note_saved(run, step)
    return path


def _note_saved(run: RunDir, step: int) -> None:
    """Records in meta.json that there was a checkpoint, should all of them be gone one day.

    After the first one is there: noted before, it would refuse a run that was killed in between, and has lost nothing.
    """
    meta = read_json_object(run.meta)
    if _FIRST not in meta:
        write_atomic(run.meta, json.dumps(meta | {_FIRST: step}, indent=2, ensure_ascii=False) + "\n")


def write_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Writes a checkpoint that no training goes on from, whole or not at all.

    Raises:
        NmtError: if it cannot be written.
    """
    noted: list[OSError] = []
    try:
        with replacing(path) as stream:
            torch.save(content, cast(BinaryIO, _Noting(stream, noted)))
    except RuntimeError as error:  # torch reports a full disk as one
        if is_out_of_memory(error) or not noted:
            raise
        raise unwritable(path, noted[0]) from error


def refuse_training_name(run: RunDir, path: Path) -> None:
    """Refuses a file that a training writes, drops or goes on from, also another run's, and what the run is made of.

    Raises:
        NmtError: naming it.
    """
    real = Path(os.path.realpath(path))  # a link may have a harmless name
    inside = real.parent == Path(os.path.realpath(run.checkpoints))
    if real.suffix != ".pt":
        raise NmtError(f"{path}: a checkpoint's name ends in .pt.")
    taken = any(name in (run.best.name, run.last.name) or _STEP.fullmatch(name) for name in (path.name, real.name))
    if taken or (run.needs(path) and not inside):
        raise NmtError(f"{path}: this name is one that training uses. Choose another, such as average.pt.")


class _Noting:
    """A stream to write to that keeps what the system said, for which torch has words of its own."""

    def __init__(self, stream: BinaryIO, noted: list[OSError]) -> None:
        self._stream, self._noted = stream, noted

    def write(self, data: bytes) -> int:
        try:
            return self._stream.write(data)
        except OSError as error:
            self._noted.append(error)
            raise

    def flush(self) -> None:
        """For torch; what fails here fails again, and is told, when the stream is closed."""


def _not_saved(run: RunDir, path: Path, content: dict[str, Any], error: Exception) -> UnwritableError:
    """The message for a checkpoint that could not be written: how much room it takes, and what is still there."""
    if not isinstance(error, OSError):
        error = OSError((str(error).splitlines() or [type(error).__name__])[0][:100])
    kept = f"{run.last.name} is still the one before" if run.last.is_file() else "there is none before it"
    needed = sum(tensor.nbytes for tensor in _tensors(content))
    return unwritable(path, error, needed, what=f"the checkpoint cannot be written ({kept})")


def _tensors(content: Any) -> Iterator[torch.Tensor]:
    if isinstance(content, torch.Tensor):
        yield content
    elif isinstance(content, dict | list | tuple):
        for each in content.values() if isinstance(content, dict) else content:
            yield from _tensors(each)


def numbered_checkpoints(run: RunDir) -> dict[int, Path]:
    """The checkpoints that the run keeps, by the update after which they were saved, oldest first."""
    return {_step(file): file for file in _by_step(run)}


def _by_step(run: RunDir) -> list[Path]:
    """The numbered checkpoints, oldest first."""
    numbered = [file for file in run.checkpoints.glob("step_*.pt") if file.stem.removeprefix("step_").isdecimal()]
    return sorted(numbered, key=_step)


def _step(file: Path) -> int:
    return int(file.stem.removeprefix("step_"))


def _second_name(path: Path, name: Path) -> None:
    """Gives a file a second name, by a hard link where the file system has them, and replaces what had it."""
    temporary = temporary_beside(name)
    try:
        try:
            os.link(path, temporary)
        except OSError:
            with path.open("rb") as source, temporary.open("wb") as copy:
                shutil.copyfileobj(source, copy)
                copy.flush()
                os.fsync(copy.fileno())
        os.replace(temporary, name)
    finally:
        with suppress(OSError):  # what went wrong before is to be told, not that this fails for the same reason
            temporary.unlink(missing_ok=True)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Reads a checkpoint onto the CPU; nothing in the file is executed.

    Raises:
        NmtError: if there is none, or it is not one of ours, or damaged.
    """
    content = _read(path)
    if isinstance(content, str):
        others = [other.name for other in sorted(path.parent.glob("*.pt")) if other.name != path.name]
        offer = f" Other checkpoints beside it: {', '.join(others)} (--checkpoint)." if others else ""
        raise NmtError(f"{path}: {content}.{offer if path.is_file() else ''}")
    return content


def _read(path: Path) -> dict[str, Any] | str:
    """The content of a checkpoint, or what is wrong with it."""
    if not path.is_file():
        return "there is no such checkpoint"
    try:
        with zipfile.ZipFile(path) as archive:  # torch itself does not look at the checksums
            if (bad := archive.testzip()) is not None:
                return f"this checkpoint is damaged: the checksum of its part {bad} is wrong"
        content = torch.load(path, map_location="cpu", weights_only=True)
    except PermissionError as error:
        return f"cannot be read: {error.strerror}"
    except Exception as error:  # torch raises many kinds for what is not a checkpoint, with advice that is not ours
        if is_out_of_memory(error):
            raise
        empty = "" if path.stat().st_size else " (it is empty)"
        return f"this is not a checkpoint of nmt, or it is damaged{empty}"
    if (odd := what_is_odd(content)) is not None:
        return odd
    return dict(content)


def checkpoint_to_resume(run: RunDir, named: Path | None = None) -> tuple[Path, dict[str, Any]] | None:
    """The checkpoint that training goes on from, with its content: last.pt, unless another of the run's is named.

    None if the run was stopped before it saved any.

    Raises:
        NmtError: if it is not there, foreign or damaged; the newest one that is whole is offered with its command.
    """
    path = run.last if named is None else named
    if named is not None and named.resolve().parent != run.checkpoints.resolve():
        raise NmtError(f"{named}: a run goes on from a checkpoint of its own: name one in {run.checkpoints}.")
    if named is None:
        _finish_first_save(run)
    content = _read(path)
    if not isinstance(content, str):
        try:
            TrainingState.of(content["state"])
            return path, content
        except (AttributeError, KeyError, TypeError) as error:
            averaged = isinstance(content, dict) and "averaged" in content["state"]
            content = (
                "this is an average of checkpoints: it translates, and has no optimizer to go on with"
                if averaged
                else f"this checkpoint is of another version of nmt ({error})"
            )
    others = [file for file in (*_by_step(run)[::-1], run.best, run.last) if file.is_file() and file.name != path.name]
    if not others and not path.is_file() and named is None:
        _refuse_trained(run)
        return None
    for other in others:
        whole = _read(other)
        if not isinstance(whole, str):
            raise NmtError(
                f"{path}: {content}. {other.name}, of step {whole['state']['step']:,}, is whole. Go on from there "
                f"with: nmt train --resume --run-dir {run.quoted} --checkpoint {shlex.quote(str(other))}"
            )
    raise NmtError(
        f"{path}: {content}, and no other checkpoint of this run is whole. Train a new run with another --run-dir."
    )


def _finish_first_save(run: RunDir) -> None:
    """Gives the run's only checkpoint its other names, where a kill came after it was written and before that.

    A later save that is cut there leaves a last.pt, and the run goes on from that one.
    """
    steps = _by_step(run)
    if run.last.is_file() or len(steps) != 1 or _FIRST in read_json_object(run.meta):
        return
    content = _read(steps[0])
    if not isinstance(content, str):
        is_best = content["state"].get("best_step") == _step(steps[0])
        for name in (*((run.best,) if is_best else ()), run.last):
            _replace(steps[0], name)


def _refuse_trained(run: RunDir) -> None:
    """Refuses to start over where checkpoints were saved and are gone: the record of that training would go, too.

    meta.json says so, or the metrics: a run that was killed between its first validation and the checkpoint of it has
    one validation and nothing later.
    """
    noted = read_json_object(run.meta).get(_FIRST)
    lines = read_metrics(run.metrics)
    validated = {line["step"] for line in lines if any(name.startswith("dev/") for name in line)}
    validated |= {int(file.stem[5:]) for file in run.dev.glob("step_*.txt") if file.stem[5:].isdecimal()}
    last = max([*validated, *(line["step"] for line in lines)], default=0)
    scored = any(not file.name.startswith(".") for file in run.eval.glob("*"))
    if noted is not None or (validated and (last > min(validated) or scored)):
        last = max(last, noted if isinstance(noted, int) else 0)
        raise NmtError(
            f"{run.last}: it is gone, and no other checkpoint is there, but this run was trained to step {last:,} at "
            f"least, by its {run.meta.name} and metrics. Put it back, or train a new run with another --run-dir."
        )


def make_last(run: RunDir, path: Path, step: int) -> None:
    """Lets last.pt name another checkpoint of the run, of `step`, from which it goes on from now on, come what may.

    Raises:
        NmtError: if it cannot be written.
    """
    _note_saved(run, step)
    if path.name != run.last.name:
        _replace(path, run.last)


def _replace(path: Path, name: Path) -> None:
    try:
        _second_name(path, name)
    except OSError as error:
        raise unwritable(name, error) from error
    flush_folder(name.parent)


def best_is_missing(run: RunDir, state: dict[str, Any], *, mend: bool = True) -> bool:
    """Sees to it that best.pt is of the step that a checkpoint's state calls the best; whether it cannot be.

    Without `mend` it only looks.

    It may be of a later step: training was killed between best.pt and last.pt, or goes on from an older checkpoint.

    Raises:
        NmtError: if it has to be replaced and cannot be written.
    """
    best_step = state.get("best_step", 0)
    if not best_step:
        return False
    content = _read(run.best)
    if not isinstance(content, str) and content["state"]["step"] == best_step:
        return False
    numbered = run.checkpoints / f"step_{best_step:06d}.pt"
    if isinstance(_read(numbered), str):
        return True
    if mend:
        _replace(numbered, run.best)
    return False
