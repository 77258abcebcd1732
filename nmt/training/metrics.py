"""What a training run measures, written twice under the same names: `metrics.jsonl` and TensorBoard.

`metrics.jsonl` is the record that programs read: one JSON object a line, each with `step`. It is handed to the
operating system line by line, so that a killed process loses nothing it had written; TensorBoard's event file is
written at the same moment, so that the two never disagree.

A value that is not finite is `null` in `metrics.jsonl` (JSON has no NaN, and readers such as `jq` refuse it) and is
kept as it is in TensorBoard, which marks such points in the curve.
"""

from __future__ import annotations

import json
import math
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.errors import NmtError, unwritable
from nmt.run_dir import write_atomic
from nmt.training.append import Appender, EventFile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OF_VALIDATIONS = ("dev/", "attention/")  # how the names begin of all that validations write


class MetricsWriter:
    """Appends the measurements of one run.

    Args:
        jsonl: the run's `metrics.jsonl`.
        tensorboard: folder of TensorBoard's event files.
        resume_step: None starts afresh (an older file is replaced). A step continues the record from there: what an
            interrupted run had written after that step is cut from both, because the resumed run is going to write
            those steps again.
        validation_due: the validation of `resume_step` is going to be done again, too: what it had written is cut.

    Write what belongs to a step before the checkpoint of that step is saved: then neither a hole nor a double entry can
    arise, wherever the process is killed.

    Raises:
        NmtError: on resume, when a line of `metrics.jsonl` is not a JSON object with a step; here and in every method,
            when one of the two cannot be written.
    """

    def __init__(
        self, jsonl: Path, tensorboard: Path, resume_step: int | None = None, *, validation_due: bool = False
    ) -> None:
        try:
            jsonl.parent.mkdir(parents=True, exist_ok=True)
            if resume_step is not None:
                _cut_after(jsonl, resume_step, validation_due)
            elif tensorboard.exists():  # of a run that stopped before its first checkpoint
                shutil.rmtree(tensorboard)
        except OSError as error:
            raise unwritable(error.filename or jsonl, error) from error
        self._jsonl = Appender(jsonl, fresh=resume_step is None)
        self._tensorboard = EventFile(tensorboard, resume_step, OF_VALIDATIONS if validation_due else ())

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Adds one line to `metrics.jsonl` and one point to each of the named TensorBoard curves.

        Args:
            step: number of updates made so far.
            values: for example `{"train/loss": 1.25}`; anything that `float()` accepts (NumPy and torch scalars too).
        """
        from torch.utils.tensorboard.summary import scalar

        if "step" in values:
            raise ValueError("'step' is the name of the step itself, not of a value")
        numbers = {name: float(value) for name, value in values.items()}
        finite = {name: number if math.isfinite(number) else None for name, number in numbers.items()}
        self._jsonl.write(json.dumps({"step": step, **finite}, allow_nan=False).encode() + b"\n")
        for name, number in numbers.items():
            self._tensorboard.add(step, scalar(name, number))  # type: ignore[no-untyped-call]

    def text(self, step: int, name: str, text: str) -> None:
        """Adds a Markdown text to TensorBoard (sample translations, the run's settings)."""
        from torch.utils.tensorboard.summary import text as summary_of

        self._tensorboard.add(step, summary_of(name, text))  # type: ignore[no-untyped-call]

    def figure(self, step: int, name: str, figure: Figure) -> None:
        """Adds a picture of `figure` to TensorBoard.

        Drawn here rather than by `add_figure`, which goes through pyplot and so through whatever display there is.
        """
        import numpy as np
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from torch.utils.tensorboard.summary import image

        canvas = FigureCanvasAgg(figure)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            canvas.draw()  # type: ignore[no-untyped-call]
        pixels = np.asarray(canvas.buffer_rgba())[:, :, :3]  # type: ignore[no-untyped-call]
        self._tensorboard.add(step, image(name, pixels, dataformats="HWC"))  # type: ignore[no-untyped-call]

    def flush(self) -> None:
        """Sees to it that a checkpoint written after it has no measurements missing, not even after a loss of power."""
        self._jsonl.flush()
        self._tensorboard.flush()

    def close(self) -> None:
        """Closes both files; nothing can be written afterwards."""
        self._jsonl.close()
        self._tensorboard.close()


class NoMetrics(MetricsWriter):
    """The record of a process that writes none."""

    def __init__(self) -> None:
        pass

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Writes nothing."""

    def text(self, step: int, name: str, text: str) -> None:
        """Writes nothing."""

    def figure(self, step: int, name: str, figure: Figure) -> None:
        """Draws nothing."""

    def flush(self) -> None:
        """There is nothing."""

    def close(self) -> None:
        """There is nothing."""


def read_metrics(jsonl: Path) -> list[dict[str, Any]]:
    """All objects of a `metrics.jsonl`, in order; an absent file gives none.

    A last line that was cut off in the middle (the run is writing it, or was killed while it did) is left out.

    Raises:
        NmtError: when any other line is not a JSON object with an integer `step`.
    """
    if not jsonl.exists():
        return []
    complete = jsonl.read_bytes().split(b"\n")[:-1]  # what follows the last line break is nothing, or a torn line
    entries = []
    for number, line in enumerate(complete, start=1):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, dict) or not isinstance(entry.get("step"), int):
            raise NmtError(f'{jsonl}, line {number}: not a JSON object with a "step". Remove or mend that line.')
        entries.append(entry)
    return entries


def _cut_after(jsonl: Path, step: int, validation_due: bool) -> None:
    """Rewrites the file without the entries after `step` and without a torn last line."""
    kept = [entry for entry in read_metrics(jsonl) if entry["step"] <= step]
    if validation_due:
        kept = [entry if entry["step"] < step else _without_validation(entry) for entry in kept]
    write_atomic(jsonl, "".join(json.dumps(entry) + "\n" for entry in kept if entry))


def _without_validation(entry: dict[str, Any]) -> dict[str, Any]:
    """What a line has beside a validation's values; nothing if it has nothing else."""
    rest = {name: value for name, value in entry.items() if not name.startswith(OF_VALIDATIONS)}
    return rest if len(rest) > 1 or len(entry) == 1 else {}
