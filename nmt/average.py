"""The command `nmt average`: the mean of several checkpoints' weights, as a checkpoint to translate with.

The mean of the last weights of one training lies nearer to the middle of the region that its updates wander through
(Polyak and Juditsky 1992; for translation Junczys-Dowmunt et al. 2016).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nmt.errors import NmtError
from nmt.reporting import Reporter
from nmt.run_dir import RunDir, read_json_object, refuse_unwritable
from nmt.training.checkpoint import load_checkpoint, numbered_checkpoints, refuse_training_name, write_checkpoint
from nmt.training.foreign import KEYS
from nmt.training.metrics import read_metrics

SCORE = "dev/bleu"  # what training calls the best by


@dataclass(frozen=True)
class Averaged:
    """What was averaged into `path`: the checkpoints and the update after which each was saved, in one order."""

    path: Path
    checkpoints: tuple[Path, ...]
    steps: tuple[int, ...]


def average_checkpoints(
    run: RunDir,
    reporter: Reporter,
    *,
    checkpoints: Sequence[Path] = (),
    last: int | None = None,
    best: int | None = None,
    output: Path | None = None,
) -> Averaged:
    """Averages checkpoints of a run into one, which has no optimizer and which training does not go on from.

    Args:
        run: the run that the average belongs to; its vocabulary is the one that counts.
        reporter: told of what looks wrong.
        checkpoints: which ones, by name.
        last: or that many of the newest that the run keeps.
        best: or that many with the best BLEU on dev, of those that the run keeps. Of neither: all that it keeps.
        output: the file to write; None for `checkpoints/average.pt`.

    Raises:
        NmtError: when there are not so many, one is given twice or is an average, a shape or vocabulary is another
            one, or the file cannot be written, is one of them or has a name that training uses.
    """
    path = output or run.checkpoints / "average.pt"
    refuse_training_name(run, path)
    run.refuse_links_out(run.checkpoints)
    refuse_unwritable(path)
    chosen = list(checkpoints) or _kept(run, last, best)
    _refuse_repeated(chosen, path)
    for checkpoint in chosen:
        _check_vocabulary(run, checkpoint, reporter)
    weights, steps = _mean(chosen)
    if path.exists():
        _tell_older_scores(run, path, reporter)
    content: dict[str, Any] = {key: {} for key in KEYS}
    write_checkpoint(path, content | {"model": weights, "state": {"step": max(steps), "averaged": steps}})
    return Averaged(path, tuple(chosen), tuple(steps))


def _tell_older_scores(run: RunDir, path: Path, reporter: Reporter) -> None:
    """Tells which scores, by their names and those of other searches, are of the average that is written over."""
    here = run.inside(path)
    older = [file.stem for file in run.eval.glob("*.json") if read_json_object(file).get("checkpoint") == here]
    if older:
        names = ", ".join(sorted(older))
        reporter.warning(
            f"{run.eval}: {names}: these are scores of the average that {path} was before. Evaluate it again."
        )


def _kept(run: RunDir, last: int | None, best: int | None) -> list[Path]:
    """The checkpoints that the run keeps, oldest first: all, the newest or the best ones."""
    kept = numbered_checkpoints(run)
    if best is not None and run.best.is_file():
        kept.setdefault(int(load_checkpoint(run.best)["state"]["step"]), run.best)
    steps, wanted = sorted(kept), last or best or 2
    if best is not None:
        scores = {line["step"]: line[SCORE] for line in read_metrics(run.metrics) if SCORE in line}
        steps = [step for step in steps if isinstance(scores.get(step), int | float)]
        # Of equal scores the newer one: it was trained for longer.
        steps.sort(key=lambda step: (-scores[step], -step))
    if len(steps) < wanted:
        raise NmtError(
            f"{run.checkpoints}: {wanted} checkpoints are wanted, and the run keeps {len(steps)}"
            f"{' with a score on dev' if best is not None else ''}. Ask for fewer, name some with --checkpoint, or "
            "train with --set training.keep_checkpoints=10."
        )
    if last is not None:
        steps = steps[-last:]
    if best is not None:
        steps = steps[:best]
    return [kept[step] for step in sorted(steps)]


def _refuse_repeated(checkpoints: Sequence[Path], output: Path) -> None:
    if len(checkpoints) < 2:
        raise NmtError(f"{checkpoints[0]}: one checkpoint is no average: give --checkpoint for each of them.")
    for number, one in enumerate(checkpoints):
        if os.path.realpath(one) == os.path.realpath(output):
            raise NmtError(f"{output}: this is one of the checkpoints to average. Name another file with --output.")
        for other in checkpoints[:number]:
            if one.exists() and other.exists() and one.samefile(other):
                raise NmtError(f"{one}: this is the same checkpoint as {other}: it would count twice. Leave one out.")


def _check_vocabulary(run: RunDir, checkpoint: Path, reporter: Reporter) -> None:
    """Refuses a checkpoint of a run with other pieces, whose numbers would mean other text."""
    home = checkpoint.resolve().parent
    if home == run.checkpoints.resolve():
        return
    other = RunDir(home.parent)
    if not other.tokenizer.is_dir():
        reporter.warning(f"{checkpoint}: it lies in no run, so nothing tells whether its vocabulary is this run's.")
        return
    ours, theirs = (
        {file.name: file.read_bytes() for file in folder.glob("*.model")} for folder in (run.tokenizer, other.tokenizer)
    )
    if ours != theirs:
        raise NmtError(
            f"{checkpoint}: the vocabulary of its run, {other.path}, is another one than that of {run.path}: the same "
            "number stands for other pieces. Average checkpoints of one vocabulary, best of one run."
        )
    reporter.warning(f"{checkpoint}: it is of another run. Models that began from other weights have no useful mean.")


def _mean(checkpoints: Sequence[Path]) -> tuple[dict[str, torch.Tensor], list[int]]:
    """The mean of the weights, and the checkpoints' steps. In float64, with one checkpoint at a time beside the sum."""
    sums: dict[str, torch.Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    steps: list[int] = []
    for checkpoint in checkpoints:
        content = load_checkpoint(checkpoint)
        if "averaged" in content["state"]:
            raise NmtError(f"{checkpoint}: this is an average itself. Name the checkpoints that training saved.")
        weights = content["model"]
        if steps:
            _check_shapes(weights, sums, checkpoint, checkpoints[0])
        for name, tensor in weights.items():
            sums[name] = tensor.double() if not steps else sums[name].add_(tensor)
            kinds[name] = tensor.dtype
        steps.append(content["state"]["step"])
    return {name: total.div_(len(steps)).to(kinds[name]) for name, total in sums.items()}, steps


def _check_shapes(
    weights: dict[str, torch.Tensor], others: dict[str, torch.Tensor], checkpoint: Path, first: Path
) -> None:
    for name in {**others, **weights}:
        shapes = [tuple(each[name].shape) if name in each else None for each in (weights, others)]
        if shapes[0] != shapes[1]:
            ours, theirs = (str(list(shape)) if shape is not None else "absent" for shape in shapes)
            raise NmtError(
                f"{checkpoint}: the model is of another shape than that of {first}: {name} is {ours} here and {theirs} "
                "there. Average checkpoints of one model."
            )
