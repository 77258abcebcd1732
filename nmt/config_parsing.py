"""YAML as people write it, `--set`, and problems told in sentences. Knows pydantic, but none of our settings."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from nmt.errors import NmtError

KeyPath = tuple[str | int, ...]

PROBLEMS = "nmt_problems"  # the pydantic error type that carries Problems found by our own checks


class Problem(NamedTuple):
    """One thing wrong with a configuration: where, what, and which other settings the verdict rests on."""

    path: KeyPath
    text: str
    rests_on: tuple[KeyPath, ...] = ()


def problems_error(problems: Sequence[Problem]) -> PydanticCustomError:
    """Wrap our own findings for a pydantic validator to raise; `find_problems` unwraps them."""
    text = "; ".join(f"{dotted(problem.path)}: {problem.text}" for problem in problems)
    return PydanticCustomError(PROBLEMS, "{text}", {"text": text, "problems": list(problems)})


def dotted(path: KeyPath) -> str:
    """Write a path as `--set` takes it: `data.train.0.src`."""
    return ".".join(str(part) for part in path)


# --- YAML ---------------------------------------------------------------------------------------------------------

# The scalars of YAML 1.2's core schema. YAML 1.1, PyYAML's, reads `no` as False, `1e-4` as text, `010` as 8,
# `10:30` as 630 and `2017-01-01` as a date. Underscores between digits are ours: 1_000_000.
_SCALARS = (
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", "~nN\0"),
    ("tag:yaml.org,2002:int", r"[-+]?[0-9](_?[0-9])*", "-+0123456789"),
    (
        "tag:yaml.org,2002:float",
        r"[-+]?(\.[0-9]+|[0-9](_?[0-9])*(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+0123456789.",
    ),
    ("tag:yaml.org,2002:merge", r"<<", "<"),
)
_PATTERNS = {tag: re.compile(rf"^(?:{pattern})$") for tag, pattern, _ in _SCALARS}

# Aliases can make a few lines stand for billions of values. No configuration has as many as this.
_MOST_VALUES = 100_000


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars above, without repeated keys and without its other tags, such as sets and dates."""

    yaml_constructors: ClassVar[dict[Any, Any]] = {}  # filled below

    def get_single_node(self) -> Any:
        """Refuse a document that aliases make endless, or larger than anybody writes."""
        node = super().get_single_node()
        if node is not None:
            _count_values(node, {})
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        """Refuse text under a tag that it does not fit, such as `!!bool perhaps`, which PyYAML fails on anyhow."""
        if isinstance(node, yaml.ScalarNode) and node.tag in _PATTERNS and not _PATTERNS[node.tag].match(node.value):
            kind = node.tag.rsplit(":", 1)[1]
            raise yaml.constructor.ConstructorError(None, None, f"{show(node.value)} is no {kind}", node.start_mark)
        return super().construct_object(node, deep=deep)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key given twice: YAML forbids it, and PyYAML would keep the last one silently."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a word", key.start_mark)
            if key.value in seen:
                text = f"the key {key.value!r} is given twice in the same section"
                raise yaml.constructor.ConstructorError(None, None, text, key.start_mark)
            seen.add(key.value)
            if key.tag != "tag:yaml.org,2002:merge":
                key.tag = "tag:yaml.org,2002:str"  # `1:` and `true:` are unknown keys like any other
        return super().construct_mapping(node, deep=deep)

    def construct_integer(self, node: yaml.ScalarNode) -> int | float:
        """Read a decimal integer; `010` is ten."""
        digits = str(node.value).replace("_", "")
        # Python refuses to read thousands of digits; no setting takes so large a number, and the range check says so.
        return int(digits) if len(digits) < 1000 else float("inf")


class _Dumper(yaml.SafeDumper):
    """SafeDumper that quotes exactly the text that `_Loader` would not read as text."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write equal parts in full: `&id001` is not for people."""
        return True


def _count_values(node: yaml.Node, counts: dict[int, int | None]) -> int:
    """Return how many values a node stands for with its aliases written out; None in `counts` marks those above it."""
    key = id(node)
    if key not in counts:
        counts[key] = None
        inner: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            inner = node.value
        elif isinstance(node, yaml.MappingNode):
            inner = [part for pair in node.value for part in pair]
        counts[key] = 1 + sum(_count_values(part, counts) for part in inner)
    count = counts[key]
    if count is None:
        raise yaml.constructor.ConstructorError(None, None, "an alias stands inside what it names", node.start_mark)
    if count > _MOST_VALUES:
        text = f"with its aliases written out, this part has more than {_MOST_VALUES:,} values"
        raise yaml.constructor.ConstructorError(None, None, text, node.start_mark)
    return count


for _class in (_Loader, _Dumper):
    _class.yaml_implicit_resolvers = {}
    for _tag, _, _first in _SCALARS:
        characters = ["" if first == "\0" else first for first in _first]
        _class.add_implicit_resolver(_tag, _PATTERNS[_tag], characters)
_KNOWN = ("bool", "null", "float", "str", "seq", "map")
_Loader.yaml_constructors = {
    tag: yaml.SafeLoader.yaml_constructors[tag] for tag in (None, *(f"tag:yaml.org,2002:{name}" for name in _KNOWN))
}
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_integer)


def parse_yaml(text: str, name: str) -> Any:
    """Read one YAML document. `name` is what the message calls the text.

    Raises:
        NmtError: with line and column, if it is not YAML.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}, line {mark.line + 1}, column {mark.column + 1}" if mark else name
        what = "; ".join(part for part in (error.context, error.problem) if part)
        raise NmtError(f"{place}: not valid YAML: {what}.") from error
    except RecursionError as error:
        raise NmtError(f"{name}: not valid YAML: brackets or sections are nested too deep.") from error
    except (yaml.YAMLError, ValueError) as error:
        raise NmtError(f"{name}: not valid YAML: {' '.join(str(error).split()) or type(error).__name__}.") from error


def dump_yaml(tree: Any) -> str:
    """Write plain values as YAML that `parse_yaml` reads back equal."""
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=1000)


# --- --set --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Override:
    """One `--set PATH=VALUE`."""

    text: str
    path: KeyPath
    value: Any

    @classmethod
    def parse(cls, text: str) -> Override:
        """Split `a.b=value`; the value is YAML, and a number in the path is a place in a list.

        Raises:
            NmtError: if there is no path or no `=`, or the value is not YAML.
        """
        key, equals, value = text.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts):
            raise NmtError(f"--set {text}: write it as KEY=VALUE, for example --set training.max_steps=5000.")
        path = tuple(int(part) if part.isdecimal() and place else part for place, part in enumerate(parts))
        return cls(text, path, parse_yaml(value, f"--set {text}"))

    def apply(self, tree: Any) -> Any:
        """Return the tree with this node replaced. Parts the tree shares with others are not changed."""
        return self._replace(tree, self.path)

    def _replace(self, node: Any, rest: KeyPath) -> Any:
        if not rest:
            return self.value
        head = rest[0]
        if isinstance(node, list) and isinstance(head, int):
            if head >= len(node):
                raise NmtError(f"--set {self.text}: the list has {len(node)} items, numbered from 0.")
            return [self._replace(item, rest[1:]) if place == head else item for place, item in enumerate(node)]
        if node is None or (isinstance(node, dict) and isinstance(head, str)):
            return {**(node or {}), str(head): self._replace((node or {}).get(str(head)), rest[1:])}
        above = dotted(self.path[: len(self.path) - len(rest)])
        raise NmtError(f"--set {self.text}: {above} is {show(node)}, which has nothing called {head}.")


# --- pydantic's errors in sentences -------------------------------------------------------------------------------


def show(value: Any) -> str:
    """Write a value for a message, as YAML has it, cut to a readable length."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return f"a section with the keys {_cut(', '.join(map(str, value)))}" if value else "an empty section"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


_LIMITS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}

_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "tuple": "a list",
    "list": "a list",
    "model": "a section of keys",
    "dict": "a section of keys",
    "finite": "a finite number",
}


def _number(limit: float) -> str:
    return str(int(limit)) if limit == int(limit) else str(limit)


def _sentence(error: ErrorDetails) -> str:
    """Say what one pydantic error means, for all types but unknown keys."""
    kind, given = error["type"], show(error["input"])
    context: Mapping[str, Any] = error.get("ctx", {})
    if kind == "missing":
        return "is missing and has no default"
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        return f"must be {words} {_number(context[key])}, not {given}"
    if kind == "literal_error":
        choices = str(context["expected"]).replace("'", "").replace(" or ", ", ")
        return f"must be one of {choices}, not {given}"
    if kind == "union_tag_invalid":
        choices = str(context["expected_tags"]).replace("'", "")
        return f"must be one of {choices}, not {show(context['tag'])}"
    if kind == "value_error":
        return str(context["error"])
    if kind == "too_short":
        return f"needs at least {context['min_length']} item"
    wanted = _KINDS.get(kind.split("_")[0])
    if wanted is not None:
        return f"must be {wanted}, not {given}"
    return f"{error['msg'][:1].lower()}{error['msg'][1:]} (given: {given})"


_NEAR = 0.6  # of difflib's likeness, for a key of the same section
_FARTHER = 0.2  # how much more like it a key of another section must be


def nearest(path: KeyPath, known: Sequence[KeyPath]) -> KeyPath | None:
    """Return the known path most like `path`, or None where none is near: one of another section only if much alike."""

    def alike(other: KeyPath) -> tuple[float, int]:
        word, candidate = str(path[-1]), str(other[-1])
        shared = next((i for i, (a, b) in enumerate(zip(path, other)) if a != b), min(len(path), len(other)))
        likeness = difflib.SequenceMatcher(None, word.lower(), candidate.lower()).ratio()
        return likeness - (0 if path[:-1] == other[:-1] else _FARTHER), shared

    best = max(known, key=alike, default=None)
    return best if best is not None and alike(best)[0] >= _NEAR else None


def _real_path(location: KeyPath, raw: Any) -> KeyPath:
    """Drop from pydantic's location what the user did not write: union tags, the place in a list of one."""
    path: list[str | int] = []
    node = raw
    for place, part in enumerate(location):
        last = place == len(location) - 1
        if isinstance(node, dict) and isinstance(part, str) and (part in node or last):
            node = node.get(part)
        elif isinstance(node, list) and isinstance(part, int):
            node = node[part] if part < len(node) else None
        elif not (last and isinstance(part, str) and node is None):
            continue
        path.append(part)
    return tuple(path)


def find_problems(
    error: ValidationError, raw: Any, known: Sequence[KeyPath], hint: Callable[[KeyPath], str | None]
) -> list[Problem]:
    """Turn a pydantic error on the plain values `raw` into Problems.

    `known` lists the paths of all settings, without places in lists; `hint` may have a better sentence for a path
    than "unknown key".
    """
    problems: list[Problem] = []
    all_details = error.errors(include_url=False)
    for details in all_details:
        path = _real_path(details["loc"], raw)
        if details["type"] == PROBLEMS:
            for found in details["ctx"]["problems"]:
                problems.append(Problem(path + found.path, found.text, found.rests_on))
        elif details["type"] == "extra_forbidden":
            problems.append(Problem(path, hint(path) or _unknown_key(path, known)))
        elif details["type"] == "union_tag_invalid":
            problems.append(Problem((*path, "kind"), _sentence(details)))
        elif details["type"] != "too_short" or not _has_parts(details, all_details):
            problems.append(Problem(path, _sentence(details)))
    return problems


def _has_parts(details: ErrorDetails, others: Sequence[ErrorDetails]) -> bool:
    """Tell whether an error has others inside it; pydantic counts wrong items of a list as absent."""
    location = details["loc"]
    return any(len(other["loc"]) > len(location) and other["loc"][: len(location)] == location for other in others)


def _unknown_key(path: KeyPath, known: Sequence[KeyPath]) -> str:
    path = tuple(part for part in path if isinstance(part, str))
    best = nearest(path, known)
    if best is not None:
        return f"unknown key; did you mean {dotted(best)}?"
    siblings = sorted({str(other[len(path) - 1]) for other in known if other[:-1] == path[:-1]})
    return f"unknown key; the keys here are {', '.join(siblings)}" if siblings else "unknown key"
