"""What the pages have in common: which codes of languages are tags."""

from __future__ import annotations

import pytest

from nmt.page import language_tag


@pytest.mark.parametrize(
    ("code", "tag"),
    [("de", "de"), ("pt_BR", "pt-BR"), ("zh-Hant-TW", "zh-Hant-TW"), ("deu_Latn", "deu-Latn"), ("es_419", "es-419")],
)
def test_codes_of_languages_are_written_as_html_has_them(code: str, tag: str) -> None:
    assert language_tag(code) == tag


@pytest.mark.parametrize("code", ["", "x", "multi30k", "en_", "en__x", "en\n", "deutschland", 'en"><b>', "de at", "dé"])
def test_what_is_no_tag_is_a_language_that_is_not_known(code: str) -> None:
    assert language_tag(code) == ""
