"""Pairs made by exchanging phrases: still translations, new, the same each time, and spaced as text is."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from nmt.data.sources import Pair
from nmt.data.substitution import _joined, _words, substitute

NOUNS = [f"dog{number}" for number in range(12)]
VERBS = [f"chases{number}" for number in range(4)]


def word(text: str) -> str:
    """The translation of a word: each has one."""
    return {"the": "der", "a": "ein"}.get(text, f"{text}x")


def translated(text: str) -> str:
    """Word by word, the verb last, marks and capitals kept."""
    words = text.rstrip(".").lower().split()
    verb = next((place for place, each in enumerate(words) if each.startswith("chases")), None)
    if verb is not None:
        words.append(words.pop(verb))
    line = " ".join(word(each) for each in words) + "." * text.endswith(".")
    return line[0].upper() + line[1:] if text[0].isupper() else line


def corpus(count: int, seed: int = 1) -> list[Pair]:
    draw = random.Random(seed)
    texts = []
    for _ in range(count):
        who, whom = (f"{draw.choice(['the', 'a'])} {draw.choice(NOUNS)}" for _ in range(2))
        texts.append(f"{who} {draw.choice(VERBS)} {whom}.".capitalize())
    texts += [f"{each} the {noun}" for each in VERBS for noun in NOUNS[:3]]  # the articles within, in small letters
    return [(text, translated(text)) for text in texts]


def test_what_is_made_are_translations() -> None:
    made = substitute(corpus(400), 300)
    assert len(made) == 300
    wrong = [pair for pair in made if pair[1] != translated(pair[0])]
    assert not wrong, wrong[:3]


def test_made_pairs_are_new_and_differ() -> None:
    pairs = corpus(400)
    made = substitute(pairs, 300)
    assert len({*made}) == len(made)
    assert not {*made} & {*pairs}


def test_the_same_pairs_give_the_same_and_another_seed_others() -> None:
    pairs = corpus(200)
    assert substitute(pairs, 50) == substitute(pairs, 50) == substitute(pairs, 100)[:50]
    assert substitute(pairs, 50, seed=2) != substitute(pairs, 50)


def test_there_are_fewer_where_no_more_are_found() -> None:
    pairs = [(f"we see {noun} here", f"wir sehen {noun}x hier") for noun in NOUNS[:3]]
    pairs += [(f"they see {noun} here", f"sie sehen {noun}x hier") for noun in NOUNS[:2]]
    made = substitute(pairs * 5, 100)
    assert made == [(f"they see {NOUNS[2]} here", f"sie sehen {NOUNS[2]}x hier")]


@pytest.mark.parametrize("pairs", [[], [("", "")], [("a b", "c d")], [("one", "eins"), ("two", "zwei")]])
def test_text_without_phrases_to_exchange_gives_none(pairs: list[Pair]) -> None:
    assert substitute(pairs, 10) == []


def test_rare_phrases_are_drawn_as_often_as_frequent_ones() -> None:
    often = [(src, tgt) for src, tgt in corpus(4000) if src.split()[1] == NOUNS[0]]
    made = substitute([*corpus(100), *often], 200)
    counts = Counter(src.split()[1] for src, _ in made)
    others = [counts[noun] for noun in NOUNS[1:]]
    assert counts[NOUNS[0]] < 3 * sum(others) / len(others), counts


def test_one_word_has_one_text_with_or_without_marks_and_capitals() -> None:
    pairs = [
        (f'"The {noun}," we see, is ({noun}) here!', f"„Der {noun}x“, sehen wir, ist ({noun}x) hier!") for noun in NOUNS
    ]
    for src, tgt in substitute(pairs * 3, 40):
        assert re.fullmatch(r'"The dog[0-9]+," we see, is \(dog[0-9]+\) here!', src)
        assert tgt == re.sub(r'"The (dog[0-9]+),".*\((dog[0-9]+)\).*', r"„Der \1x“, sehen wir, ist (\2x) hier!", src)


@pytest.mark.parametrize(
    "text",
    ["a  b", 'He said: "no (really)!"', "don't well-known 3.5 A.", "東京 は晴れ、寒い。", "...", "x", "", "हिन्दी में।"],
)
def test_words_and_marks_spell_their_text(text: str) -> None:
    assert _joined(_words(text)) == " ".join(text.split())


def test_scripts_without_blanks_are_cut_by_the_character() -> None:
    assert [each.text for each in _words("我爱 nmt，你")] == ["我", "爱", "nmt", "，", "你"]
    pairs = [
        (f"我看{noun}了。", f"we see {eng} now.")
        for noun, eng in zip("猫狗鸟鱼马牛", ["cat", "dog", "bird", "fish", "horse", "cow"])
    ]
    pairs += [(f"你看{noun}了。", f"you see {eng} now.") for noun, eng in zip("猫狗", ["cat", "dog"])]
    made = substitute(pairs * 4, 50)
    assert ("你看鱼了。", "You see fish now.".lower()) in made
