"""A report as one HTML file: tables, pictures and sentences, with nothing to load and no script.

The template and the style lie beside this file. Every text is escaped, and the page's policy lets no script run.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from nmt.page import escaped, filled, items, policy, resource


@dataclass(frozen=True)
class Table:
    """Rows under a heading each; the columns after the first hold numbers."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Picture:
    """A PNG, and what it shows for whoever cannot see it."""

    png: bytes
    text: str


@dataclass(frozen=True)
class Sentences:
    """Sentences with what belongs to them: a heading, then (label, text) lines, for each."""

    entries: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]


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
    return f"<section><h2>{escaped(section.title)}</h2>{note}{''.join(map(_part, section.parts))}</section>"


def _part(part: Table | Picture | Sentences) -> str:
    match part:
        case Table():
            return _table(part)
        case Picture():
            data = b64encode(part.png).decode()
            return f'<img src="data:image/png;base64,{data}" alt="{escaped(part.text)}">'
        case Sentences():
            return "".join(_entry(heading, lines) for heading, lines in part.entries)


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escaped(text)}</th>' for text in table.head)
    rows = (
        f'<tr><th scope="row">{escaped(row[0])}</th>{"".join(f"<td>{escaped(text)}</td>" for text in row[1:])}</tr>'
        for row in table.rows
    )
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _entry(heading: str, lines: Sequence[tuple[str, str]]) -> str:
    # A text's own direction, whatever stands beside it.
    rows = "".join(f'<dt>{escaped(label)}</dt><dd dir="auto">{escaped(text)}</dd>' for label, text in lines)
    return f"<article><h3>{escaped(heading)}</h3><dl>{rows}</dl></article>"
