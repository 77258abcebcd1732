"""A page of attention: many sentences in one HTML file that needs nothing else, with a heat map of each.

The template, styles and scripts lie beside this file; with `attention_card` other pages draw, too. All text travels as
JSON that the script writes into text nodes, and the page's policy lets no other script run and nothing be loaded, so no
text of a corpus can do anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nmt.page import embedded_json, escaped, filled, items, language_tag, policy, resource, shown


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
    style = resource("attention_card.css") + resource("attention_page.css")
    script = resource("attention_card.js") + "\n" + resource("attention_page.js")
    content = {
        "src": header.src_lang,
        "tgt": header.tgt_lang,
        "tags": side_tags(header.src_lang, header.tgt_lang),
        "sentences": [_sentence(sentence) for sentence in sentences],
    }
    parts = {
        "policy": policy(style, script),
        "title": escaped(header.title),
        "facts": items(header.facts),
        "unit": escaped(header.unit),
        "notes": items(header.notes),
        "style": style,
        "script": script,
        "data": embedded_json(content),
    }
    return filled("attention_page.html", parts)


def side_tags(src_lang: str, tgt_lang: str) -> dict[str, str]:
    """The languages of both sides as HTML has them, under the names that the script has for the sides."""
    return {"s": language_tag(src_lang), "t": language_tag(tgt_lang)}


def _sentence(sentence: AttendedSentence) -> dict[str, Any]:
    """The entry of one sentence; the script says what the keys mean."""
    return {
        "n": sentence.line,
        "s": [shown(unit) for unit in sentence.units],
        "x": sentence.truncated,
        "c": [_candidate(candidate) for candidate in sentence.maps],
    }


def _candidate(candidate: AttentionMap) -> dict[str, Any]:
    return {
        "y": shown(candidate.text),
        "t": [shown(unit) for unit in candidate.units],
        "e": not candidate.length_limited,
        "r": round(candidate.score, 4),
        "p": round(candidate.log_prob, 4),
        "l": candidate.length_limited,
        "w": np.rint(np.asarray(candidate.weights) * 1000).astype(int).tolist(),
        "b": candidate.windows,
    }
