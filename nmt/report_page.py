"""A report as one HTML file: tables, pictures and sentences, with nothing to load and no script.

The template and the style lie beside this file. Every text is escaped, and the page's policy lets no script run.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from nmt.page import escaped, filled, items, language_tag, policy, resource, shown


@dataclass(frozen=True)
class Table:
    """Rows under a heading each; the columns after the first hold numbers, except those whose headings `texts` has."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Picture:
    """A PNG, and what it shows for whoever cannot see it."""

    png: bytes
    text: str


class Line(NamedTuple):
    """A sentence with its label; `language` is its code as the configuration has it."""

    label: str
    text: str
    language: str


@dataclass(frozen=True)
class Sentences:
    """Sentences with what belongs to them: a heading, then lines, for each."""

    entries: tuple[tuple[str, tuple[Line, ...]], ...]


@dataclass(frozen=True)
class Section:
    """A part of the report: its title, what to know of it, and what it shows."""

    title: str
    note: str
    parts: tuple[Table | Picture | Sentences, ...]


def report_page(title: str, facts: Sequence[str], sections: Sequence[Section]) -> str:
    """Returns the page; `facts` are short and stand below the title."""
    style = resource("report_page.css")
    return filled(
        "report_page.html",
        {
            "policy": policy(style),
            "title": escaped(title),
            "facts": items(facts),
            "style": style,
            "sections": "\n".join(map(_section, sections)),
        },
    )


def _section(section: Section) -> str:
    note = f"<p>{escaped(section.note)}</p>" if section.note else ""
    parts = "".join(_part(part, section.title) for part in section.parts)
    return f"<section><h2>{escaped(section.title)}</h2>{note}{parts}</section>"


def _part(part: Table | Picture | Sentences, title: str) -> str:
    match part:
        case Table():
            return _table(part, title)
        case Picture():
            data = b64encode(part.png).decode()
            return f'<img src="data:image/png;base64,{data}" alt="{escaped(part.text)}">'
        case Sentences():
            return "".join(_entry(heading, lines) for heading, lines in part.entries)


def _table(table: Table, title: str) -> str:
    kinds = [' class="text"' if heading in table.texts else "" for heading in table.head]
    head = (f'<th scope="col"{kind}>{_breakable(text)}</th>' for kind, text in zip(kinds, table.head, strict=True))
    rows = (
        f'<tr><th scope="row">{_breakable(row[0])}</th>'
        f"{''.join(f'<td{kind}>{_breakable(text)}</td>' for kind, text in zip(kinds[1:], row[1:], strict=True))}</tr>"
        for row in table.rows
    )
    # Where it is too wide it scrolls, which the keyboard can do to what has the focus.
    name = escaped(f"{title}: {table.head[0]}")
    return (
        f'<div class="table" role="region" aria-label="{name}" tabindex="0">'
        f"<table><thead><tr>{''.join(head)}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _breakable(text: str) -> str:
    """Text that may go on in another line within a signature, a path or a long name."""
    marked = re.sub("[|/_]", r"\g<0>\n", shown(text))
    return "<wbr>".join(map(escaped, re.sub(r"\S{16,}", _in_parts, marked).split("\n")))


def _in_parts(word: re.Match[str]) -> str:
    """The word in lines of about equal length, eight characters at the most."""
    length = len(word[0])
    size = ceil(length / ceil(length / 8))
    return "\n".join(word[0][start : start + size] for start in range(0, length, size))


def _entry(heading: str, lines: Sequence[Line]) -> str:
    # A text's own direction, whatever stands beside it.
    rows = "".join(
        f'<dt>{escaped(line.label)}</dt><dd dir="auto" lang="{language_tag(line.language)}">{escaped(line.text)}</dd>'
        for line in lines
    )
    return f"<article><h3>{escaped(heading)}</h3><dl>{rows}</dl></article>"
