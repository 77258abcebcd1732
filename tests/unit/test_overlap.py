"""Which sentences of dev and test training has as well."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.data.overlap import Overlap, Signatures, normalised


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The dog runs.", "the DOG runs"),
        ("The dog runs.", "  The   dog\truns ."),
        ("L'homme dort.", "l’ homme dort ."),
        ("don't", "don ´ t"),
        ("Straße", "STRASSE"),
        ("ΣΊΣΥΦΟΣ", "Σίσυφος"),
        ("ﬁve ½ Ⅳ", "five 1⁄2 iv"),
        ("ｆｕｌｌ　ｗｉｄｔｈ！", "full width"),
        ("été", "e\u0301te\u0301"),
        ("q\u0323\u0307", "q\u0307\u0323"),
        ("„So“, he said – or “so”?", '"So", he said -- or "so"'),
        ("我 喜欢 你 。", "我喜欢你。"),
        ("soft\u00adhyphen\u200b", "softhyphen"),
        ("...", ". . ."),
        ("…", "..."),
        ("\u0385", "\u00a8\u0301"),
    ],
)
def test_case_width_punctuation_and_blanks_make_no_difference(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)
    signatures = Signatures().of([one, other])
    assert signatures[0] == signatures[1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("schon", "schön"),
        ("2 + 2", "2 2"),
        ("10 €", "10 $"),
        ("a dog", "a cat"),
        ("dog", "god"),
        ("!", "?"),
        ("x 1", "x"),
    ],
)
def test_letters_accents_digits_and_symbols_make_a_difference(one: str, other: str) -> None:
    assert normalised(one) != normalised(other)


@pytest.mark.parametrize("text", ["", " ", "\u3000\t", "\u2028"])
def test_a_blank_text_has_no_form(text: str) -> None:
    assert normalised(text) == ""


TEXTS = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("aAbBäÄßẞéÉıİſσςΣ .,'’\u0301\u0345"))
)


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(TEXTS, max_size=6))
def test_texts_of_one_form_have_one_signature(texts: list[str]) -> None:
    signatures = Signatures()
    texts = [unicodedata.normalize(form, text) for text in texts for form in ("NFC", "NFD")]
    assert [normalised(text) for text in texts[::2]] == [normalised(text) for text in texts[1::2]]
    folded = [normalised(text) for text in texts]
    pairs = [
        (one, other) for one, form in zip(texts, folded) for other, another in zip(texts, folded) if form == another
    ]
    for one, other in pairs:
        assert signatures.of([one])[0] == signatures.of([other])[0]
    assert signatures.of(texts).tolist() == [signatures.of([text])[0] for text in texts]


def test_signatures_of_other_texts_differ() -> None:
    texts = [f"{first} {second}" for first in ("a", "the", "my") for second in ("dog", "cat", "house", "tree")]
    assert len(np.unique(Signatures().of(texts))) == len(texts)


LINES = st.sampled_from(["", " ", "a", "A", "a.", "b", "B b", "bb", "c", "C!", "?", "ab", "ba", "\u0301"])
PAIRS = st.lists(st.tuples(LINES, LINES), max_size=8)


@settings(max_examples=100, deadline=None)
@given(dev=PAIRS, test=PAIRS, training=st.lists(PAIRS, max_size=3), cut=st.integers(0, 8))
def test_overlap_is_what_comparing_every_pair_with_every_other_gives(
    dev: list[tuple[str, str]], test: list[tuple[str, str]], training: list[list[tuple[str, str]]], cut: int
) -> None:
    overlap = Overlap()
    for split, pairs in (("dev", dev[:cut]), ("dev", dev[cut:]), ("test", test)):
        overlap.add(split, [src for src, _ in pairs], [tgt for _, tgt in pairs])
    held_out = [normalised(src) for src, _ in dev + test if src.strip()]
    for batch in training:
        found = overlap.find([src for src, _ in batch], [tgt for _, tgt in batch])
        assert found.tolist() == [normalised(src) in held_out for src, _ in batch]

    trained = [pair for batch in training for pair in batch]
    filled = [pair for pair in dev if pair[0].strip()]
    found = {split: (overlap.report(5)[split], pairs, trained) for split, pairs in (("dev", dev), ("test", test))}
    found["test in dev"] = (overlap.of_test_with_dev(5), test, filled)
    for report, pairs, others in found.values():
        folded = [(normalised(src), normalised(tgt)) for src, tgt in others]
        plain = {"exact": {"sources": 0, "pairs": 0}, "normalised": {"sources": 0, "pairs": 0}}
        lines = []
        for line, (src, tgt) in enumerate(pairs, 1):
            if not src.strip():
                continue
            form = (normalised(src), normalised(tgt))
            plain["exact"]["sources"] += src in [one for one, _ in others]
            plain["exact"]["pairs"] += (src, tgt) in others
            plain["normalised"]["sources"] += form[0] in [one for one, _ in folded]
            plain["normalised"]["pairs"] += form in folded
            lines += [line] * (form[0] in [one for one, _ in folded])
        assert report == {"of": len(pairs), **plain, "first": lines[:5]}


def test_nothing_is_in_an_empty_set() -> None:
    assert Overlap().find(["a"], ["b"]).tolist() == [False]
    overlap = Overlap()
    overlap.add("dev", ["", " "], ["a", "b"])
    assert overlap.find(["", "a"], ["a", "b"]).tolist() == [False, False]
    assert overlap.report(5)["dev"]["of"] == 2
