"""The page of `nmt serve`: one document with its style and script, which talks to its own server and to nothing else.

It draws with the script and style of `nmt.attention_page`. The template and what is its own lie beside this file.
"""

from __future__ import annotations

from collections.abc import Sequence

from nmt.attention_page import side_tags
from nmt.page import embedded_json, escaped, filled, items, policy, resource

CHOICES = (1, 3, 5, 10)  # translations a sentence


def serve_page(src_lang: str, tgt_lang: str, models: Sequence[str], *, attends: bool, beam: int) -> tuple[str, str]:
    """Returns the page and its Content-Security-Policy. It offers no more translations than the beam has."""
    style = resource("attention_card.css") + resource("serving/page.css")
    script = resource("attention_card.js") + "\n" + resource("serving/page.js")
    allowed = policy(style, script, connects=True)
    tags = side_tags(src_lang, tgt_lang)
    data = {"src": src_lang, "tgt": tgt_lang, "tags": tags, "attends": attends, "sentences": []}
    parts = {
        "policy": allowed,
        "title": escaped(f"{src_lang} → {tgt_lang}"),
        "facts": items([*models, "without attention"] if not attends else models),
        "reading": resource("serving/attention.html") if attends else resource("serving/plain.html"),
        "choices": _choices(beam),
        "src": escaped(tags["s"]),
        "style": style,
        "script": script,
        "data": embedded_json(data),
    }
    return filled("serving/page.html", parts), f"{allowed}; frame-ancestors 'none'"


def _choices(beam: int) -> str:
    """Numbers of translations to choose from; one up to five is chosen."""
    offered = sorted({min(choice, beam) for choice in CHOICES})
    chosen = max(choice for choice in offered if choice <= 5)
    return "".join(f"<option{' selected' if choice == chosen else ''}>{choice}</option>" for choice in offered)
