"""A page of attention: many sentences in one HTML file that needs nothing else, with a heat map of each.

The template, style and script lie beside this file. All text travels as JSON that the script writes into text nodes,
and the page's policy lets no other script run and nothing be loaded, so no text of a corpus can do anything.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any
from unicodedata import category

import numpy as np

from nmt import __version__


@dataclass(frozen=True)
class AttentionMap:
    """One translation of a sentence, and where the model looked for each part of it.

    Args:
        text: the translation.
        units: its words or pieces; the end of the sentence is the last unless `length_limited`.
        score: log p after the length penalty.
        log_prob: log p.
        length_limited: whether the length limit ended it.
        weights: [units, units of the source].
        windows: first and last source unit that each unit could look at, where attention is local; else None.
    """

    text: str
    units: tuple[str, ...]
    score: float
    log_prob: float
    length_limited: bool
    weights: np.ndarray[Any, Any]
    windows: tuple[tuple[int, int], ...] | None


@dataclass(frozen=True)
class AttendedSentence:
    """A source sentence, its end as the last unit, with its translations, best first; `line` counts from 1."""

    line: int
    units: tuple[str, ...]
    truncated: bool
    maps: tuple[AttentionMap, ...]


@dataclass(frozen=True)
class PageHeader:
    """What stands above the sentences: `facts` are short, `notes` whole sentences; `unit` is word or piece."""

    title: str
    src_lang: str
    tgt_lang: str
    unit: str
    facts: tuple[str, ...]
    notes: tuple[str, ...]


def attention_page(header: PageHeader, sentences: Sequence[AttendedSentence]) -> str:
    """Returns the page."""
    style, script = _resource("attention_page.css"), _resource("attention_page.js")
    content = {
        "src": header.src_lang,
        "tgt": header.tgt_lang,
        "sentences": [_sentence(sentence) for sentence in sentences],
    }
    parts = {
        "policy": _policy(style, script),
        "generator": f"nmt {__version__}",
        "title": html.escape(_shown(header.title)),
        "facts": _items(header.facts),
        "unit": html.escape(header.unit),
        "notes": _items(header.notes),
        "style": style,
        "script": script,
        "data": embedded_json(content),
    }
    # In one pass: what is filled in is not searched for further places.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _resource("attention_page.html"))


def embedded_json(content: Any) -> str:
    """JSON that can stand in a script element: no character in it begins or ends a tag or a comment."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(style: str, script: str) -> str:
    """Nothing may be loaded, and only this style and this script apply: not even handlers in attributes run."""
    return (
        f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _resource(name: str) -> str:
    return resources.files("nmt").joinpath(name).read_text(encoding="utf-8")


def _items(lines: Sequence[str]) -> str:
    return "".join(f"<li>{html.escape(_shown(line))}</li>" for line in lines)


def _sentence(sentence: AttendedSentence) -> dict[str, Any]:
    """The entry of one sentence; the script says what the keys mean."""
    return {
        "n": sentence.line,
        "s": [_shown(unit) for unit in sentence.units],
        "x": sentence.truncated,
        "c": [_candidate(candidate) for candidate in sentence.maps],
    }


def _candidate(candidate: AttentionMap) -> dict[str, Any]:
    return {
        "y": _shown(candidate.text),
        "t": [_shown(unit) for unit in candidate.units],
        "e": not candidate.length_limited,
        "r": round(candidate.score, 4),
        "p": round(candidate.log_prob, 4),
        "l": candidate.length_limited,
        "w": np.rint(np.asarray(candidate.weights) * 1000).astype(int).tolist(),
        "b": candidate.windows,
    }


def _shown(text: str) -> str:
    """The text with U+FFFD for control characters and lone surrogates, which HTML cannot hold."""
    return "".join("\ufffd" if category(character) in ("Cc", "Cs") else character for character in text)
