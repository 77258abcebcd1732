"""What a run holds: settings, progress, scores, parameters by part; the command `nmt info`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.config import BahdanauConfig, LuongConfig, ModelConfig, Tying
from nmt.errors import NmtError
from nmt.members import Member, members_of
from nmt.run_dir import RunDir, read_json_object
from nmt.training.checkpoint import load_checkpoint
from nmt.training.metrics import read_metrics

if TYPE_CHECKING:
    from torch import Tensor

# Prefixes of the state dict and what they are called; the longest that fits decides.
_PARTS = {
    "src_embedding.": "source embedding",
    "tgt_embedding.": "target embedding",
    "encoder.": "encoder",
    "decoder.initial.": "initial state",
    "decoder.attention.": "attention",
    "decoder.window.": "window",
    "decoder.rnn.": "decoder",
    "decoder.readout.": "readout",
    "output.": "output",
}
_TIED: dict[Tying, tuple[str, ...]] = {
    False: (),
    "target": ("tgt_embedding.weight", "output.weight"),
    True: ("src_embedding.weight", "tgt_embedding.weight", "output.weight"),
}


@dataclass(frozen=True)
class ParameterCounts:
    """How many numbers the model learned.

    `by_part` is in the order of the model; a tensor that several parts share is counted in the first of them, and
    `tied` names its other appearances, each with the name that it is counted under.
    """

    by_part: dict[str, int] = field(default_factory=dict)
    tied: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """All parts together."""
        return sum(self.by_part.values())


@dataclass(frozen=True)
class Formula:
    """How many parameters a part has by the configuration: the count, and how it comes about.

    `numbers` is `symbols` with the sizes filled in; it is empty, and `symbols` says why, where there are none.
    """

    count: int
    symbols: str
    numbers: str = ""

    def __str__(self) -> str:
        return f"{self.symbols} = {self.numbers}" if self.numbers else self.symbols


@dataclass(frozen=True)
class RunInfo:
    """Everything `nmt info` prints. None or empty where the run has not come that far.

    `state` holds the plain values of the newest checkpoint's training state (`step`, `epoch`, …); `best_step` and
    `best_scores` belong to `best.pt`; `validations` has one entry a validation, `{"step": …, "dev/bleu": …}`;
    `evaluations` has `{metric: score}` for every `eval/NAME.json`, `scored` which checkpoint those are of, or which
    runs as an ensemble, and `outdated` the step of those that scored an earlier `best.pt` or `last.pt`;
    `formulas` explains the parameters of attention, by part; `files` are sizes in bytes by path in the run.
    """

    path: str
    settings: dict[str, Any]
    meta: dict[str, Any]
    state: dict[str, Any]
    best_step: int | None
    best_scores: dict[str, float | None]
    validations: tuple[dict[str, Any], ...]
    evaluations: dict[str, dict[str, float]]
    scored: dict[str, dict[str, Any]]
    outdated: dict[str, int]
    parameters: ParameterCounts
    formulas: dict[str, Formula]
    files: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for `nmt info --json`."""
        parameters = {
            "total": self.parameters.total,
            "by_part": self.parameters.by_part,
            "tied": list(self.parameters.tied),
            "formulas": {part: asdict(formula) for part, formula in self.formulas.items()},
        }
        plain = asdict(self) | {"validations": list(self.validations), "parameters": parameters}
        return {name: value for name, value in plain.items() if name != "formulas"}


def describe(run: RunDir) -> RunInfo:
    """Reads a run, finished or not, without changing it.

    Raises:
        NmtError: when a file of the run cannot be read; the message names it.
    """
    best = load_checkpoint(run.best) if run.best.exists() else None
    last = load_checkpoint(run.last) if run.last.exists() else best
    config = run.settings()
    validations = _validations(run.metrics)
    best_step = best["state"].get("step") if best else None
    scores = next((entry for entry in validations if entry["step"] == best_step), {})
    model = (best or last or {}).get("model", {})
    return RunInfo(
        path=str(run.path),
        settings=config.model_dump(mode="json"),
        meta=read_json_object(run.meta),
        state=_plain_values(last["state"]) if last else {},
        best_step=best_step,
        best_scores={name: value for name, value in scores.items() if name != "step"},
        validations=tuple(validations),
        evaluations=_evaluations(run.eval),
        scored=_scored(run.eval),
        outdated=_outdated(run, {run.best: best, run.last: last if run.last.exists() else None}),
        parameters=count_parameters(model, tied=config.model.tie_embeddings),
        formulas=attention_formulas(config.model),
        files=_sizes(run),
    )


def count_parameters(state_dict: Mapping[str, Tensor], *, tied: Tying = False) -> ParameterCounts:
    """Counts a model's parameters by part.

    A name outside the known parts is counted under its first two components. Tensors with the same storage count once.

    Args:
        state_dict: the checkpoint's `model`.
        tied: the `model.tie_embeddings` of the run: equal copies of what is known to be one matrix count once as well.
    """
    counts: dict[str, int] = {}
    shared: dict[str, str] = {}
    seen: dict[tuple[Any, ...], str] = {}
    for name, tensor in state_dict.items():
        if not tensor.is_floating_point():
            continue  # bookkeeping, not learned
        part = _part(name)
        counts.setdefault(part, 0)
        key = (tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tuple(tensor.shape))
        group = _TIED[tied] if name in _TIED[tied] else ()
        copies = (other for other in group if other in seen.values() and state_dict[other].equal(tensor))
        first = seen.get(key) or next(copies, None)
        if first is not None:
            shared[name] = first
            continue
        seen[key] = name
        counts[part] += tensor.numel()
    return ParameterCounts({part: count for part, count in counts.items() if count}, shared)


def attention_formulas(config: ModelConfig) -> dict[str, Formula]:
    """How many parameters attention has, and the window of local attention; d_h is the size of an annotation."""
    decoder, d_h = config.decoder, config.encoder.annotation_size
    d_s = decoder.hidden_size
    if isinstance(decoder, BahdanauConfig):
        return {"attention": _additive(decoder.attention_size, d_s, d_h, coverage=decoder.coverage)}
    if not isinstance(decoder, LuongConfig):
        return {"attention": Formula(0, "this kind has none")}
    match decoder.score:
        case "dot":
            score = Formula(0, "s·h has none to learn")
        case "general":
            score = Formula(d_s * d_h, "d_s·d_h", f"{d_s}·{d_h}")
        case "concat":
            score = _additive(decoder.attention_size, d_s, d_h, coverage=False)
    if decoder.window is None:
        return {"attention": score}
    if decoder.window.kind == "monotonic":
        return {"attention": score, "window": Formula(0, "min(t, S) has none to learn")}
    return {"attention": score, "window": Formula(d_s**2 + d_s, "d_s² + d_s", f"{d_s}² + {d_s}")}


def _additive(d_a: int, d_s: int, d_h: int, *, coverage: bool) -> Formula:
    count, symbols, numbers = d_a * (d_s + d_h + 1), "d_a(d_s + d_h + 1)", f"{d_a}({d_s} + {d_h} + 1)"
    if coverage:
        return Formula(count + d_a, f"{symbols} + d_a", f"{numbers} + {d_a}")
    return Formula(count, symbols, numbers)


def _part(name: str) -> str:
    prefix = max((prefix for prefix in _PARTS if name.startswith(prefix)), key=len, default=None)
    return _PARTS[prefix] if prefix else ".".join(name.split(".")[:2])


def _validations(jsonl: Path) -> list[dict[str, Any]]:
    """One object a validation: all `dev/…` values of a step, ascending."""
    by_step: dict[int, dict[str, Any]] = {}
    for entry in read_metrics(jsonl):
        values = {name: _finite(value) for name, value in entry.items() if name.startswith("dev/")}
        if values:
            by_step.setdefault(entry["step"], {"step": entry["step"]}).update(values)
    return [by_step[step] for step in sorted(by_step)]


def _evaluations(folder: Path) -> dict[str, dict[str, float]]:
    scores = {}
    for file in sorted(folder.glob("*.json")):
        metrics = read_json_object(file).get("metrics")
        if isinstance(metrics, dict):
            scores[file.stem] = {name: _score(metric, file) for name, metric in metrics.items()}
    return scores


def _scored(folder: Path) -> dict[str, dict[str, Any]]:
    """The checkpoint, its step, and the runs of an ensemble, of each evaluation that says so."""
    contents = {file.stem: read_json_object(file) for file in sorted(folder.glob("*.json"))}
    return {
        name: {
            "checkpoint": content["checkpoint"],
            "step": content.get("step"),
            "ensemble": [asdict(member) for member in members_of(content)],
        }
        for name, content in contents.items()
        if isinstance(content.get("checkpoint"), str) and isinstance(content.get("step"), int | None)
    }


def _score(metric: Any, file: Path) -> float:
    score = _finite(metric.get("score")) if isinstance(metric, dict) else None
    if score is None:
        raise NmtError(f"{file}: a metric in it has no score: `nmt eval` did not write this. Evaluate again.")
    return score


def _finite(value: Any) -> float | None:
    """The value if it is a number that JSON can hold."""
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def _outdated(run: RunDir, now: Mapping[Path, Mapping[str, Any] | None]) -> dict[str, int]:
    """The step of each evaluation whose checkpoint, one of those in `now`, has been replaced since.

    That of an ensemble has been as soon as one of its models has.
    """
    steps = {run.inside(path): content["state"].get("step") for path, content in now.items() if content is not None}
    contents = {file.stem: read_json_object(file) for file in sorted(run.eval.glob("*.json"))}
    return {
        name: content["step"]
        for name, content in contents.items()
        if isinstance(content.get("step"), int)
        and (
            content["step"] != steps.get(str(content.get("checkpoint")), content["step"])
            or any(_has_changed(run, member) for member in members_of(content)[1:])
        )
    }


def _has_changed(run: RunDir, member: Member) -> bool:
    """Whether the best checkpoint of another run of an ensemble, where it is there, is not the one that was scored."""
    best = RunDir(run.path / member.run).best
    try:
        return best.is_file() and load_checkpoint(best)["state"].get("step") != member.step
    except NmtError:
        return True


def _plain_values(state: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers and texts of a training state, None for what JSON cannot hold (no best score yet is -inf)."""
    plain = {name: value for name, value in state.items() if isinstance(value, (bool, int, float, str, type(None)))}
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in plain.items()
    }


def _sizes(run: RunDir) -> dict[str, int]:
    """Sizes of the run's files, TensorBoard's and temporary ones left out."""
    sizes = {}
    for file in sorted(run.path.rglob("*")):
        hidden = any(part.startswith(".") for part in file.relative_to(run.path).parts)
        if file.is_file() and not hidden and run.tensorboard not in file.parents:
            name = os.fsencode(file.relative_to(run.path).as_posix()).decode(errors="replace")
            sizes[name] = file.stat().st_size
    return sizes
