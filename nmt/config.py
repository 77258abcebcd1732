"""Settings of a run: read from YAML and `--set`, all problems told at once, written back resolved.

The sections themselves are in `nmt.config_sections`; import them from here.
"""

from __future__ import annotations

import os
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from nmt.config_data import DEVICES, FILE_KEYS, DataConfig, Source, SourceKind, TokenizerConfig, is_device
from nmt.config_parsing import KeyPath, Override, Problem, dotted, dump_yaml, find_problems, parse_yaml
from nmt.config_sections import (
    DECODERS,
    STORED,
    BahdanauConfig,
    Config,
    DecoderConfig,
    EncoderConfig,
    EvaluationConfig,
    LuongConfig,
    Metric,
    ModelConfig,
    OptimizerConfig,
    PlainConfig,
    ScheduleConfig,
    SearchConfig,
    TrainingConfig,
    Tying,
    WindowConfig,
)
from nmt.errors import NmtError

__all__ = [
    "DEVICES",
    "BahdanauConfig",
    "Config",
    "DataConfig",
    "DecoderConfig",
    "EncoderConfig",
    "EvaluationConfig",
    "LuongConfig",
    "Metric",
    "ModelConfig",
    "OptimizerConfig",
    "PlainConfig",
    "ScheduleConfig",
    "SearchConfig",
    "Source",
    "SourceKind",
    "TokenizerConfig",
    "TrainingConfig",
    "Tying",
    "WindowConfig",
    "config_yaml",
    "find_config",
    "is_device",
    "load_config",
    "plain_settings",
    "search_with",
    "shipped_dir",
    "with_overrides",
]

_SPLITS = ("train", "dev", "test")


def shipped_dir() -> Path:
    """Return the folder with `configs/` and `data/demo/`: inside an installed package, or the checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "_shipped"
    return installed if installed.is_dir() else package.parent


def find_config(path: str | Path) -> Path:
    """Return the configuration file of that path, or the shipped one of that name where there is no such path.

    Raises:
        NmtError: if there is neither; the message lists the shipped names.
    """
    if not str(path):
        raise NmtError("--config: the name is empty; give a YAML file.")
    file = Path(os.path.expanduser(path))
    if os.path.isdir(file):
        raise NmtError(f"{path}: this is a folder; --config wants a YAML file.")
    if os.path.exists(file):
        return file
    shipped = shipped_dir() / "configs"
    if file == Path(file.name) and os.path.isfile(shipped / file.name):
        return shipped / file.name
    names = ", ".join(sorted(found.name for found in shipped.glob("*.yaml"))) or "none"
    raise NmtError(f"{path}: there is no such file. Configurations that come with nmt, found by name: {names}.")


def load_config(path: str | Path, overrides: Sequence[str] = (), *, stored: bool = False) -> Config:
    """Read a configuration; `overrides` are `KEY=VALUE` as for `--set`, applied in order.

    Relative paths of data files are taken from the file's folder, those in overrides from the current one. With
    `stored` it is that of a trained run (`RunDir.settings`), where settings that do nothing are let pass.

    Raises:
        NmtError: naming every problem, one a line, each with its path.
    """
    file = find_config(path)
    tree = parse_yaml(_read_text(file, str(path)), str(path))
    if tree is None:
        tree = {}
    if not isinstance(tree, dict):
        raise NmtError(f"{path}: a configuration is a YAML mapping with the sections {', '.join(Config.model_fields)}.")
    return _validated(_absolute(tree, (), Path(os.path.abspath(file)).parent), str(path), overrides, stored)


def with_overrides(config: Config, overrides: Sequence[str]) -> Config:
    """Return a configuration with `KEY=VALUE` overrides applied.

    Raises:
        NmtError: as `load_config`.
    """
    return _validated(plain_settings(config), "settings", overrides)


def search_with(search: SearchConfig, changes: Mapping[str, object]) -> SearchConfig:
    """Return search settings with some of them replaced, checked as those of a file are.

    Raises:
        NmtError: naming every value that is out of range.
    """
    tree = search.model_dump() | dict(changes)
    try:
        return SearchConfig.model_validate(tree)
    except ValidationError as error:
        problems = find_problems(error, tree, [(name,) for name in SearchConfig.model_fields], lambda path: None)
        raise NmtError("\n".join(f"search.{dotted(path)}: {text}" for path, text, _ in problems)) from error


def config_yaml(config: Config) -> str:
    """Write a configuration with all defaults; `load_config` of it gives an equal one."""
    return dump_yaml(plain_settings(config))


def plain_settings(config: Config) -> dict[str, Any]:
    """Return a configuration as plain values, without the keys a SOURCE does not use."""
    tree = config.model_dump(mode="json")
    data = tree["data"]
    sources = [_used(source) for source in data["train"]]
    data["train"] = sources[0] if len(sources) == 1 else sources
    for split in ("dev", "test"):
        data[split] = _used(data[split])
    return tree


def _used(source: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if source is None else {key: value for key, value in source.items() if value is not None}


def _read_text(file: Path, name: str) -> str:
    try:
        return file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        bad = f"byte 0x{error.object[error.start]:02x}"
        raise NmtError(f"{name}, line {line}: {bad} is not UTF-8. Save the file as UTF-8.") from error
    except OSError as error:
        raise NmtError(f"{name}: cannot be read: {error.strerror or error}.") from error


def _absolute(node: Any, path: KeyPath, base: Path) -> Any:
    """Return a copy of the node at `path` with the data files' paths absolute, relative ones starting at `base`."""
    keys = tuple(key for key in path if isinstance(key, str))
    if len(keys) <= 3 and isinstance(node, dict):
        return {key: _absolute(value, (*path, key), base) for key, value in node.items()}
    if len(keys) == len(path) == 2 and isinstance(node, list):
        return [_absolute(value, (*path, place), base) for place, value in enumerate(node)]
    if keys == ("data", "train_alignments") and isinstance(node, str) and node:
        return os.path.abspath(base / os.path.expanduser(node))
    if len(keys) == 3 and keys[0] == "data" and keys[1] in _SPLITS and isinstance(node, str) and node:
        expanded = base / os.path.expanduser(node)
        # A hub id such as owner/name looks like a path; it is one if it is written as one, or the folder is there.
        if keys[2] in FILE_KEYS or (keys[2] == "hub" and (node.startswith((".", "/", "~")) or os.path.isdir(expanded))):
            return os.path.abspath(expanded)
    return node


def _validated(tree: Any, name: str, overrides: Sequence[str], stored: bool = False) -> Config:
    """Apply the overrides and check the whole; each problem is told with the file or the override it comes from."""
    parsed = [Override.parse(text) for text in overrides]
    for override in parsed:
        value = _absolute(override.value, override.path, Path.cwd())
        tree = Override(override.text, override.path, value).apply(tree)
    try:
        return Config.model_validate(tree, context=STORED if stored else None)
    except ValidationError as error:
        raise NmtError("\n".join(_line(problem, parsed, name) for problem in _all_problems(error, tree))) from error


def _line(problem: Problem, overrides: Sequence[Override], name: str) -> str:
    """Tell a problem with what set the node: the last override of it, of a part of it or of one above, or the file."""
    where = dotted(problem.path)
    for override in reversed(overrides):
        if all(ours == theirs for ours, theirs in zip(problem.path, override.path)):
            by = dotted(override.path)
            return f"--set {where}: {problem.text}" if by == where else f"--set {by}: {where}: {problem.text}"
    return f"{name}: {where}: {problem.text}"


def _all_problems(error: ValidationError, tree: Any) -> list[Problem]:
    """Return pydantic's findings, and those across sections, which pydantic looks for only when all else is right."""
    known = list(_setting_paths(Config, (), tree))
    problems = find_problems(error, tree, known, lambda path: _decoder_hint(path, tree))
    without: Any = tree
    for problem in problems:
        without = _without(without, problem.path)
    try:
        Config.model_validate(without)
    except ValidationError as second:
        found = find_problems(second, without, known, lambda path: None)
        wrong = [problem.path for problem in problems]
        problems += [more for more in found if more.rests_on and not _touches(more.rests_on, wrong)]
    return problems


def _touches(rests_on: Sequence[KeyPath], wrong: Sequence[KeyPath]) -> bool:
    """Tell whether a verdict rests on a setting whose value is wrong, so that it cannot be trusted."""
    pairs = ((path, bad) for path in rests_on for bad in wrong)
    return any(path[: len(bad)] == bad for path, bad in pairs)


def _without(node: Any, path: KeyPath) -> Any:
    """Return the tree without the node at `path`; its default takes its place."""
    if not path or not isinstance(node, dict):
        return node
    if len(path) == 1:
        return {key: value for key, value in node.items() if key != path[0]}
    return {key: _without(value, path[1:]) if key == path[0] else value for key, value in node.items()}


def _decoder(tree: Any) -> dict[str, Any]:
    """Return the plain decoder section, empty if there is none."""
    for key in ("model", "decoder"):
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree if isinstance(tree, dict) else {}


def _decoder_hint(path: KeyPath, tree: Any) -> str | None:
    """Explain a decoder's key that belongs to another kind."""
    if path[:2] != ("model", "decoder") or len(path) != 3:
        return None
    kind = _decoder(tree).get("kind", "bahdanau")
    if kind == "bahdanau" and path[2] == "score":
        return (
            "kind bahdanau has no choice of score: it is the additive score with attention before the step. The "
            "additive score with attention after the step is Luong's `concat`: remove score, or write kind: luong, "
            "score: concat"
        )
    owners = [other for other, section in DECODERS.items() if path[2] in section.model_fields]
    if not owners:
        return None
    return (
        f"kind {kind} has no such key; it belongs to kind {' and '.join(owners)}. Choose that kind, or remove the key, "
        f"or replace the whole section: --set 'model.decoder={{kind: {kind}}}'"
    )


def _setting_paths(section: type[BaseModel], above: KeyPath, tree: Any) -> Iterator[KeyPath]:
    """List the paths of all settings, of the decoder kind that is chosen, without places in lists."""
    for name, field in section.model_fields.items():
        path = (*above, name)
        yield path
        if path == ("model", "decoder"):
            inner: type[BaseModel] | None = DECODERS.get(str(_decoder(tree).get("kind")), BahdanauConfig)
        else:
            inner = _section_in(field.annotation)
        if inner is not None:
            yield from _setting_paths(inner, path, tree)


def _section_in(annotation: Any) -> type[BaseModel] | None:
    """Find the section in `Source | None`, `tuple[Source, ...]` and the like."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in typing.get_args(annotation) if (found := _section_in(part))), None)
