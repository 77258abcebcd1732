"""Pairs made by exchanging phrases: still translations, new, the same each time, and spaced as text is."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import pytest

from nmt.data.sources import Pair
from nmt.data.substitution import LONGEST, _consistent, _joined, _Place, _Word, _words, substitute

DEMO = Path(__file__).parents[2] / "data" / "demo"
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


def test_one_to_three_phrases_are_exchanged() -> None:
    draw = random.Random(1)
    frame = "one {} two three {} four five {} six seven {} eight nine {} ten"
    given = [frame.format(*draw.choices(NOUNS, k=5)) for _ in range(200)]
    pairs = [(src, " ".join(f"{each}x" for each in src.split())) for src in given]
    changed: Counter[int] = Counter()
    for src, _ in substitute(pairs, 200):
        changed[min(sum(map(str.__ne__, src.split(), each.split())) for each in given)] += 1
    assert changed[1] > 20 < changed[2], changed


def test_phrases_whose_translations_stand_between_other_words_stay() -> None:
    """The source says "we see … here" of both; the target has another verb."""
    pairs = [(f"we see {noun} here", f"wir sehen {noun}x hier") for noun in NOUNS[:6]] * 3
    pairs += [(f"we see {noun} here", f"wir treffen {noun}x hier") for noun in NOUNS[6:]] * 3
    pairs += [(f"they see {noun} here", f"sie sehen {noun}x hier") for noun in NOUNS[:6]]
    pairs += [(f"they see {noun} here", f"sie treffen {noun}x hier") for noun in NOUNS[6:11]]
    assert substitute(pairs, 50) == [(f"they see {NOUNS[11]} here", f"sie treffen {NOUNS[11]}x hier")]


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
    [
        "a  b",
        'He said: "no (really)!"',
        "don't well-known 3.5 A.",
        "Bonjour\u00a0? 10\u202f000",
        "東京 は晴れ、寒い。",
        "...",
        "x",
        "",
        "हिन्दी में।",
    ],
)
def test_words_and_marks_spell_their_text(text: str) -> None:
    assert _joined(_words(text)) == re.sub(" +", " ", text)


def test_scripts_without_blanks_are_cut_by_the_character() -> None:
    assert [each.text for each in _words("我爱 nmt，你")] == ["我", "爱", "nmt", "，", "你"]
    pairs = [
        (f"我看{noun}了。", f"we see {eng} now.")
        for noun, eng in zip("猫狗鸟鱼马牛", ["cat", "dog", "bird", "fish", "horse", "cow"])
    ]
    pairs += [(f"你看{noun}了。", f"you see {eng} now.") for noun, eng in zip("猫狗", ["cat", "dog"])]
    made = substitute(pairs * 4, 50)
    assert ("你看鱼了。", "You see fish now.".lower()) in made


# --- phrases --------------------------------------------------------------------------------------------------------


def spans(src: str, tgt: str, links: str) -> set[tuple[str, str]]:
    src_words, tgt_words = tuple(_words(src)), tuple(_words(tgt))
    found = frozenset((int(link.split("-")[0]), int(link.split("-")[1])) for link in links.split())
    return {
        (_joined(src_words[each.src_begin : each.src_end]), _joined(tgt_words[each.tgt_begin : each.tgt_end]))
        for each in _consistent(src_words, tgt_words, found)
    }


def test_a_phrase_is_not_linked_to_words_outside() -> None:
    assert spans("a b c d", "w x y z", "0-0 1-2 2-1 3-3") == {
        ("a", "w"),
        ("b", "y"),
        ("c", "x"),
        ("d", "z"),
        ("b c", "x y"),
    }
    assert spans("a b c d", "w x", "0-0 1-0 2-1 3-1") == {("a b", "w"), ("c d", "x")}


def test_a_mark_within_a_phrase_is_not_linked_to_words_outside() -> None:
    assert ("red, old", "rot alt") not in spans("red, old dog is", "rot alt Hund, ist", "0-0 1-3 2-1 3-2 4-4")
    assert ("red, old", "rot, alt") in spans("red, old dog is", "rot, alt Hund ist", "0-0 1-1 2-2 3-3 4-4")


def test_no_phrase_begins_or_ends_with_a_mark_or_a_word_without_link() -> None:
    found = spans("dogs , bark loudly . x", "Hunde , bellen laut . y", "0-0 1-1 2-2 4-4 5-5")
    assert found == {("dogs", "Hunde"), ("bark", "bellen"), ("x", "y"), ("dogs , bark", "Hunde , bellen")}
    assert ("if you", "wenn ,") not in spans("if you go now", "wenn , du gehst", "0-0 1-1 2-2 3-3")


def test_quotation_marks_and_brackets_are_in_no_phrase() -> None:
    assert spans('we say "yes you" now and', 'wir sagen „ja du“ jetzt und', "0-0 1-1 3-3 4-4 6-6 7-7") == {
        ("we", "wir"), ("say", "sagen"), ("yes", "ja"), ("you", "du"), ("now", "jetzt"), ("and", "und"),
        ("we say", "wir sagen"), ("yes you", "ja du"), ("now and", "jetzt und"),
    }  # fmt: skip
    assert ("a b", "x) y") not in spans("a b c d", "x) y z w", "0-0 1-2 2-3 3-4")


def test_phrases_are_short_on_both_sides() -> None:
    words = [f"w{number}" for number in range(12)]
    straight = " ".join(f"{number}-{number}" for number in range(12))
    lengths = {len(src.split()) for src, _ in spans(" ".join(words), " ".join(words).upper(), straight)}
    assert lengths == set(range(1, LONGEST + 1))
    assert {len(src.split()) for src, _ in spans("a b c d", "w x y z", "0-0 1-1 2-2 3-3")} == {1, 2}, "of 60 %"
    far = spans("a b c d e f g", "a x x x x b c d e f g", "0-0 1-5 2-6 3-7 4-8 5-9 6-10")
    assert not [pair for pair in far if pair[1].startswith("a ")]


@pytest.mark.parametrize(("begin", "touch"), [(0, True), (2, True), (3, True), (4, True), (5, False), (9, False)])
def test_phrases_with_a_word_or_none_between_touch(begin: int, touch: bool) -> None:
    """The word between them is what each was chosen by; or a mark, and then the other phrase is."""
    first = _Place(1, 3, 20, 21)
    for other in (_Place(begin, begin + 1, 0, 1), _Place(begin, begin + 2, 50, 51)):
        assert first.touches(other) == other.touches(first) == touch
    turned = _Place(20, 21, 1, 3)
    assert turned.touches(_Place(0, 1, begin, begin + 1)) == touch


# --- as text is written ---------------------------------------------------------------------------------------------


def test_what_is_made_of_the_demo_corpus_has_its_words_and_its_spacing() -> None:
    def read(name: str) -> list[str]:
        return (DEMO / name).read_text(encoding="utf-8").splitlines()[:400]

    pairs = list(zip(read("train.en"), read("train.de"), strict=True))
    known = [{word.text.lower() for pair in pairs for word in _words(pair[side])} for side in (0, 1)]
    made = substitute(pairs, 500)
    assert len(made) == 500
    for pair in made:
        for side in (0, 1):
            assert {word.text.lower() for word in _words(pair[side])} <= known[side], pair
            assert not re.search(r" [,.]|[,.]\w|  ", pair[side]), pair
            assert pair[side][0].isupper(), pair


def test_capitals_that_are_no_matter_of_place_stay() -> None:
    pairs = [(f"US {verb} left us {noun}.", f"US {verb}x verließ uns {noun}x.") for verb in VERBS for noun in NOUNS]
    for src, tgt in substitute(pairs[::2] * 2, 30):
        assert src.startswith("US chases")
        assert tgt.startswith("US chases")


def test_a_first_word_that_is_not_exchanged_stays_as_it_is() -> None:
    pairs = [(f"the {noun} sees us", f"der {noun}x sieht uns") for noun in NOUNS]
    pairs += [
        (f"The {noun} sees the {other}", f"Der {noun}x sieht der {other}x") for noun in NOUNS[:2] for other in NOUNS
    ]
    made = substitute(pairs * 2, 60)
    assert made
    assert {src.split()[0] for src, _ in made if " us" not in src} <= {"The", "the"}
    titles = [(f"The {noun} In The {other}", f"Der {noun}x In Der {other}x") for noun in NOUNS for other in NOUNS[:5]]
    assert not {*substitute(titles, 100)} & {*titles}


def test_where_most_lines_begin_small_nothing_is_capitalised() -> None:
    pairs = [(src[0].lower() + src[1:], tgt[0].lower() + tgt[1:]) for src, tgt in corpus(300)]
    assert all(src[0].islower() and tgt[0].islower() for src, tgt in substitute(pairs, 100))


def test_very_long_lines_are_left_as_they_are() -> None:
    long = " ".join(NOUNS * 9)
    pairs = [*corpus(100), (f"the dog0 {long}", f"der dog0x {long}x")]
    assert all(len(src.split()) < 100 for src, _ in substitute(pairs, 100))


def test_blanks_that_are_no_plain_ones_stay() -> None:
    assert [each.text for each in _words("Bonjour\u00a0? 10\u202f000")] == ["Bonjour", "\u00a0", "?", "10\u202f000"]
    assert _words("a") == [_Word("a", True)]


def test_progress_ends_at_the_number_that_was_wanted() -> None:
    told: list[int] = []
    substitute(corpus(200), 1500, progress=told.append)
    assert told[-1] == 1500
    assert told == sorted(set(told))
