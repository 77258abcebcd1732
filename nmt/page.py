"""What the HTML pages have in common: files that need nothing else, in which no text of a corpus can do anything."""

from __future__ import annotations

import hashlib
import html
import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any
from unicodedata import category

from nmt import __version__


def filled(template: str, parts: Mapping[str, str]) -> str:
    """Returns the head of all pages and the template of that name, with `parts`, which are markup, in their places.

    A place is such as {{title}}.
    """
    known = {"generator": f"nmt {__version__}", **parts}
    # In one pass: what is filled in is not searched for further places.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: known[place[1]], resource("page_head.html") + resource(template))


def policy(style: str, script: str | None = None, *, connects: bool = False) -> str:
    """Nothing may be loaded, and only this style and this script apply: not even handlers in attributes run.

    With `connects` the script may talk to the server that the page is from, and to no other.
    """
    talks = "; connect-src 'self'" if connects else ""
    scripts = "'none'" if script is None else _digest(script)
    return (
        f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {scripts}; "
        f"base-uri 'none'; form-action 'none'{talks}"
    )


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def resource(name: str) -> str:
    """Returns the text of a file of the package, named from its folder."""
    return resources.files("nmt").joinpath(name).read_text(encoding="utf-8")


def embedded_json(content: Any) -> str:
    """JSON that can stand in a script element: no character in it begins or ends a tag or a comment."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def items(lines: Sequence[str]) -> str:
    """Returns the items of a list."""
    return "".join(f"<li>{escaped(line)}</li>" for line in lines)


def language_tag(code: str) -> str:
    """Returns a language's code as HTML has it; "", a language that is not known, for what is no language tag.

    Without an attribute of its own a text would count as English, as the page is.
    """
    tag = code.replace("_", "-")
    return tag if re.fullmatch("[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*", tag) else ""


def escaped(text: str) -> str:
    """Returns any text as markup that shows it, also within the quotes of an attribute."""
    return html.escape(shown(text))


def shown(text: str) -> str:
    """The text with U+FFFD for control characters and lone surrogates, which HTML cannot hold."""
    return "".join("\ufffd" if category(character) in ("Cc", "Cs") else character for character in text)
