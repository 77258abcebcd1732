"""The page is one valid file that loads nothing, and no text can be more than text in it."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from nmt.attention_page import AttendedSentence, AttentionMap, PageHeader, attention_page
from nmt.page import embedded_json

VOID = {"meta", "link", "input", "br", "img"}
HEADER = PageHeader("Attention of a", "en", "de", "word", ("en → de", "bahdanau"), ("score = log p",))


class Reader(HTMLParser):
    """Checks that elements are closed in order; collects attributes and the text of each element."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names))
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            self.texts.setdefault(self._key(), []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self._key()][-1] += data

    def _key(self) -> str:
        attributes = next((attributes for tag, attributes in reversed(self.tags) if tag == self.open[-1]), {})
        return f"{self.open[-1]}#{attributes['id']}" if attributes.get("id") else self.open[-1]


def sentence(src: list[str], tgt: list[str], line: int = 1, **changes: Any) -> AttendedSentence:
    weights = np.random.default_rng(line).dirichlet(np.ones(len(src)), len(tgt))
    values = {"text": " ".join(tgt), "units": tuple(tgt), "score": -0.5, "log_prob": -2.0, "length_limited": False}
    one = AttentionMap(**{**values, "weights": weights, "windows": None, **changes})
    return AttendedSentence(line, tuple(src), False, (one,))


def data_of(page: str) -> dict[str, Any]:
    [text] = Reader(page).texts["script#data"]
    content: dict[str, Any] = json.loads(text)
    return content


def test_the_page_is_well_formed_html() -> None:
    page = attention_page(HEADER, [sentence(["a", "</s>"], ["b", "</s>"])])
    assert page.startswith("<!DOCTYPE html>\n")
    assert "{{" not in page
    reader = Reader(page)
    assert [tag for tag, _ in reader.tags][:2] == ["html", "head"]
    assert {"title", "main", "h1", "noscript"} <= {tag for tag, _ in reader.tags}
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert reader.texts["title"] == ["Attention of a"]


def test_the_page_loads_nothing() -> None:
    page = attention_page(HEADER, [sentence(["a", "</s>"], ["b", "</s>"])])
    reader = Reader(page)
    for tag, attributes in reader.tags:
        assert tag not in ("iframe", "object", "embed", "base")
        assert {"src", "srcset", "action", "style"}.isdisjoint(attributes)
        assert attributes.get("href") in (None, "data:,")
        assert not [name for name in attributes if name.startswith("on")]
    assert not re.search(r"url\(|@import", reader.texts["style"][0])
    script = reader.texts["script"][0]
    assert not re.search(r"fetch|XMLHttpRequest|import\(|WebSocket|sendBeacon|innerHTML|document\.write|eval", script)
    assert set(re.findall(r"https?:[^\"']*", page)) <= {"http://www.w3.org/2000/svg"}  # the name of the SVG elements


def test_the_policy_lets_this_style_and_this_script_apply_and_no_other() -> None:
    reader = Reader(attention_page(HEADER, []))
    [policy] = [attributes["content"] for _, attributes in reader.tags if "http-equiv" in attributes]
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy
    for rule, text in (("style-src", reader.texts["style"][0]), ("script-src", reader.texts["script"][0])):
        digest = b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}';" in policy


@pytest.mark.parametrize(
    "text",
    ["</script><img src=x onerror=alert(1)>", "<!--<script>", "]]>", "&lt;b&gt;", "{{script}}", "\\u003c", '"', "$x$"],
)
def test_text_stays_text(text: str) -> None:
    page = attention_page(PageHeader(text, "en", "de", text, (text,), (text,)), [sentence([text], [text])])
    reader = Reader(page)
    assert reader.texts["title"] == reader.texts["h1"] == [text]
    [entry] = data_of(page)["sentences"]
    assert (entry["s"], entry["c"][0]["t"], entry["c"][0]["y"]) == ([text], [text], text)
    assert [tag for tag, _ in reader.tags].count("script") == 2


def test_embedded_json_holds_nothing_that_html_could_read() -> None:
    text = embedded_json(["<>&", "</SCRIPT>", "<!--"])
    assert not set("<>&") & set(text)
    assert json.loads(text) == ["<>&", "</SCRIPT>", "<!--"]


def test_characters_that_html_cannot_hold_are_replaced() -> None:
    page = attention_page(HEADER, [sentence(["a\x00b", "\x1b[1m", "می\u200cخواهم"], ["\ud800", "\x85"])])
    page.encode()
    [entry] = data_of(page)["sentences"]
    assert entry["s"] == ["a\ufffdb", "\ufffd[1m", "می\u200cخواهم"]
    assert entry["c"][0]["t"] == ["\ufffd", "\ufffd"]


def test_weights_are_written_in_thousandths() -> None:
    weights = np.array([[0.98764, 0.01236], [0.0004, 0.9996]])
    page = attention_page(HEADER, [sentence(["a", "</s>"], ["b", "</s>"], weights=weights, windows=((0, 1), (0, 1)))])
    [candidate] = data_of(page)["sentences"][0]["c"]
    assert candidate["w"] == [[988, 12], [0, 1000]]
    assert candidate["b"] == [[0, 1], [0, 1]]
    assert candidate["e"] is True


def test_a_translation_that_the_length_limit_cut_has_no_end() -> None:
    [entry] = data_of(attention_page(HEADER, [sentence(["a"], ["b"], length_limited=True)]))["sentences"]
    assert (entry["c"][0]["e"], entry["c"][0]["l"]) == (False, True)


def test_hundreds_of_sentences_stay_a_small_page() -> None:
    words = [f"word{number}" for number in range(20)]
    page = attention_page(HEADER, [sentence(words, words, line) for line in range(1, 501)])
    assert len(page) < 2_000_000
