"""The demo corpus under data/demo: sizes, splits, gold links, and the grammar that writes it."""

from __future__ import annotations

import importlib
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
DEMO = ROOT / "data" / "demo"
BUCKETS = ((3, 9), (10, 19), (20, 29), (30, 39), (40, 49), (50, 60))
FILES = ("train.en", "train.de", "dev.en", "dev.de", "dev.align", "test.en", "test.de", "test.align")


def load_script(name: str) -> Any:
    """Import a module of scripts/, which is no package."""
    if str(SCRIPTS) not in sys.path:
        sys.path.insert(0, str(SCRIPTS))
    return importlib.import_module(name)


def lines(name: str) -> list[str]:
    return (DEMO / name).read_text(encoding="utf-8").splitlines()


def words(name: str) -> list[list[str]]:
    return [line.split() for line in lines(name)]


def links_of(line: str) -> list[tuple[int, int]]:
    return [(int(left), int(right)) for left, right in (link.split("-") for link in line.split())]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Run the generator as a user does; return its folder and what it printed."""
    out = tmp_path_factory.mktemp("demo")
    command = [sys.executable, str(SCRIPTS / "make_demo_corpus.py"), "--out", str(out), "--seed", "1"]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, capture_output=True, check=True, encoding="utf-8", env=environment)
    return out, done.stdout


@pytest.fixture
def grammar() -> Any:
    """Return the grammar with a fixed seed."""
    return load_script("demo_sentences").Sentences(random.Random(7), load_script("demo_lexicon").load())


def verb(grammar: Any, english: str, frame: str) -> Any:
    return next(v for v in grammar.by_frame[frame] if " ".join(v.en) == english)


def noun(grammar: Any, english: str) -> Any:
    return next(n for n in grammar.lex.nouns if n.en_sg == english)


def clause(grammar: Any, english: str, frame: str, subject: str, tense: str = "pres", **slots: Any) -> Any:
    subj = grammar.pronoun(subject, "nom")
    verb_pair = verb(grammar, english, frame)
    fields: dict[str, Any] = {"tense": tense, "key": grammar.key(), "aux_key": grammar.key(), "person": subj.person}
    return load_script("demo_clauses").Clause(subj, verb_pair, **{**fields, **slots})


def text(tokens: list[tuple[str, tuple[int, ...]]]) -> str:
    return " ".join(word for word, _ in tokens)


# The files


@pytest.mark.parametrize("name", FILES)
def test_the_generator_reproduces_the_committed_files_byte_for_byte(generated: tuple[Path, str], name: str) -> None:
    assert (generated[0] / name).read_bytes() == (DEMO / name).read_bytes()


def test_every_construction_is_in_two_percent_of_the_pairs_of_every_split(generated: tuple[Path, str]) -> None:
    rows = [line for line in generated[1].splitlines() if line.endswith("%")]
    shares = {row[:32].strip(): [float(x) for x in row[32:].replace("%", "").split()] for row in rows}
    assert len(shares) >= 25
    assert {name: values for name, values in shares.items() if min(values) < 2.0} == {}


def test_the_splits_have_22000_1000_and_1000_parallel_pairs() -> None:
    for split, size in (("train", 22000), ("dev", 1000), ("test", 1000)):
        assert len(lines(f"{split}.en")) == len(lines(f"{split}.de")) == size


def test_no_source_sentence_occurs_twice_in_training() -> None:
    assert len(set(lines("train.en"))) == 22000


def test_dev_and_test_sources_do_not_occur_in_training() -> None:
    training = set(lines("train.en"))
    assert not training & set(lines("dev.en"))
    assert not training & set(lines("test.en"))


def test_dev_and_test_share_no_source() -> None:
    dev, test = set(lines("dev.en")), set(lines("test.en"))
    assert len(dev) == len(test) == 1000
    assert not dev & test


def test_sentences_have_3_to_60_english_and_at_most_65_german_words() -> None:
    for split in ("train", "dev", "test"):
        assert all(3 <= len(sentence) <= 60 for sentence in words(f"{split}.en"))
        assert all(2 <= len(sentence) <= 65 for sentence in words(f"{split}.de"))


@pytest.mark.parametrize("split", ["dev", "test"])
def test_every_length_bucket_of_a_held_out_split_has_100_pairs(split: str) -> None:
    sizes = [len(sentence) for sentence in words(f"{split}.en")]
    assert all(sum(low <= size <= high for size in sizes) >= 100 for low, high in BUCKETS)


def test_training_has_1500_german_word_forms() -> None:
    forms = {word.strip(".,?").lower() for sentence in words("train.de") for word in sentence}
    assert len(forms) >= 1500


@pytest.mark.parametrize("side", ["en", "de"])
def test_every_word_of_dev_and_test_occurs_five_times_in_training(side: str) -> None:
    counts = Counter(word.strip(".,?").lower() for sentence in words(f"train.{side}") for word in sentence)
    held_out = {word.strip(".,?").lower() for split in ("dev", "test") for s in words(f"{split}.{side}") for word in s}
    assert [word for word in sorted(held_out) if counts[word] < 5] == []


@pytest.mark.parametrize("split", ["dev", "test"])
def test_every_held_out_pair_has_links_and_they_point_at_words(split: str) -> None:
    rows = zip(words(f"{split}.en"), words(f"{split}.de"), lines(f"{split}.align"), strict=True)
    for english, german, row in rows:
        links = links_of(row)
        assert links
        assert links == sorted(set(links))
        assert all(0 <= i < len(english) and 0 <= j < len(german) for i, j in links)


@pytest.mark.parametrize("split", ["dev", "test"])
def test_every_english_word_is_linked_and_only_german_articles_and_jahr_are_not(split: str) -> None:
    unlinked = set()
    rows = zip(words(f"{split}.en"), words(f"{split}.de"), lines(f"{split}.align"), strict=True)
    for english, german, row in rows:
        links = links_of(row)
        assert {i for i, _ in links} == set(range(len(english)))
        unlinked |= {german[j].lower() for j in set(range(len(german))) - {j for _, j in links}}
    assert unlinked <= {"jahr", "der", "die", "das", "den", "dem", "des"}


def test_sentences_begin_with_a_capital_and_end_with_a_mark() -> None:
    for split in ("train", "dev", "test"):
        for line in lines(f"{split}.en") + lines(f"{split}.de"):
            assert line[0].isupper() or line[0].isdigit()
            assert line[-1] in ".?"
            assert ",," not in line
            assert "  " not in line


def test_the_demo_files_stay_below_eight_megabytes() -> None:
    assert sum((DEMO / name).stat().st_size for name in FILES) < 8_000_000


# The grammar


@pytest.mark.parametrize(
    ("det", "case", "word", "plural", "german"),
    [
        ("def", "nom", "dog", False, "der alte Hund"),
        ("def", "acc", "dog", False, "den alten Hund"),
        ("def", "dat", "dog", False, "dem alten Hund"),
        ("def", "gen", "dog", False, "des alten Hundes"),
        ("def", "dat", "child", True, "den alten Kindern"),
        ("indef", "nom", "dog", False, "ein alter Hund"),
        ("indef", "acc", "dog", False, "einen alten Hund"),
        ("indef", "nom", "house", False, "ein altes Haus"),
        ("indef", "dat", "woman", False, "einer alten Frau"),
        ("dies", "nom", "house", False, "dieses alte Haus"),
        ("bare", "acc", "book", True, "alte Bücher"),
        ("bare", "dat", "book", True, "alten Büchern"),
        ("def", "acc", "student", False, "den alten Studenten"),
        ("neg", "acc", "dog", False, "keinen alten Hund"),
        ("neg", "acc", "book", True, "keine alten Bücher"),
        ("jeder", "dat", "man", False, "jedem alten Mann"),
    ],
)
def test_articles_adjectives_and_nouns_agree(
    grammar: Any, det: str, case: str, word: str, plural: bool, german: str
) -> None:
    old = next(a for a in grammar.lex.adjectives if a.en == "old")
    item = noun(grammar, word)
    article, pattern = grammar.determiner(det, case, item, plural, 0)
    built = [w for w, _ in article.de] + [old.german(pattern, case, item.column(plural)), item.german(case, plural)]
    assert " ".join(built) == german


def test_strong_endings_appear_without_an_article(grammar: Any) -> None:
    cold = next(a for a in grammar.lex.adjectives if a.en == "cold")
    assert [cold.german("strong", case, 2) for case in ("nom", "acc", "dat")] == ["kaltes", "kaltes", "kaltem"]


@pytest.mark.parametrize(
    ("english", "frame", "present", "participle"),
    [
        ("read", "T", ("lese", "liest", "liest", "lesen", "lesen"), "gelesen"),
        ("repair", "T", ("repariere", "reparierst", "repariert", "reparieren", "reparieren"), "repariert"),
        ("work", "I", ("arbeite", "arbeitest", "arbeitet", "arbeiten", "arbeiten"), "gearbeitet"),
        ("dance", "I", ("tanze", "tanzt", "tanzt", "tanzen", "tanzen"), "getanzt"),
        ("feed", "T", ("füttere", "fütterst", "füttert", "füttern", "füttern"), "gefüttert"),
        ("visit", "T", ("besuche", "besuchst", "besucht", "besuchen", "besuchen"), "besucht"),
        ("know", "S", ("weiß", "weißt", "weiß", "wissen", "wissen"), "gewusst"),
    ],
)
def test_verbs_have_their_german_paradigm(
    grammar: Any, english: str, frame: str, present: tuple[str, ...], participle: str
) -> None:
    found = verb(grammar, english, frame)
    assert (found.present, found.participle) == (present, participle)


def test_a_separable_verb_splits_in_a_main_clause_and_joins_in_a_subordinate_one(grammar: Any) -> None:
    clauses = load_script("demo_clauses")
    call = clause(grammar, "call", "T", "he", pronouns=[grammar.pronoun("she", "acc")])
    assert text(clauses.german_main(call)) == "er ruft sie an"
    call.lead = grammar.word("because", "weil")
    assert text(clauses.german_final(call)) == "weil er sie anruft"
    assert text(clauses.german_infinitive(clause(grammar, "call", "T", "he"), 0)) == "anzurufen"


def test_the_simple_past_becomes_a_perfect_with_the_participle_last(grammar: Any) -> None:
    clauses = load_script("demo_clauses")
    arrive = clause(grammar, "arrive", "I", "we", "past", time=grammar.word("yesterday", "gestern"), front="time")
    assert text(clauses.english(arrive)) == "yesterday we arrived"
    assert text(clauses.german_main(arrive)) == "gestern sind wir angekommen"


def test_a_modal_sends_the_infinitive_to_the_end(grammar: Any) -> None:
    clauses = load_script("demo_clauses")
    can = next(m for m in grammar.lex.modals if m.en == ("can",))
    help_him = clause(grammar, "help", "D", "I", "modal", modal=can, negation=grammar.key())
    help_him.pronouns = help_him.english_objects = [grammar.pronoun("he", "dat")]
    assert text(clauses.english(help_him)) == "I cannot help him"
    assert text(clauses.german_main(help_him)) == "ich kann ihm nicht helfen"


@pytest.mark.parametrize(
    ("prep", "word", "german"),
    [
        ("in", "garden", "im Garten"),
        ("zu", "school", "zur Schule"),
        ("an", "lake", "am See"),
        ("in", "city", "in der Stadt"),
    ],
)
def test_prepositions_contract_with_the_definite_article(grammar: Any, prep: str, word: str, german: str) -> None:
    phrase = grammar.np([noun(grammar, word)], "dat", {"def": 1}, share=0)
    while phrase.plural:
        phrase = grammar.np([noun(grammar, word)], "dat", {"def": 1}, share=0)
    assert text(grammar.pp("prep", prep, phrase).de) == german


def test_the_indefinite_article_depends_on_the_sound_that_follows() -> None:
    takes_an = load_script("demo_phrases").takes_an
    assert [takes_an(word) for word in ("old", "honest", "house", "university", "apple")] == [
        True,
        True,
        False,
        False,
        True,
    ]


def test_links_join_prefix_and_stem_to_the_verb_and_no_word_to_a_bare_comma(grammar: Any) -> None:
    sentences, clauses = load_script("demo_sentences"), load_script("demo_clauses")
    call = clause(grammar, "call", "T", "he", negation=grammar.key())
    call.pronouns = call.english_objects = [grammar.pronoun("she", "acc")]
    pair = sentences.finish(load_script("demo_phrases").Bi(clauses.english(call), clauses.german_main(call)), [], ".")
    assert (pair.en, pair.de) == ("He does not call her.", "Er ruft sie nicht an.")
    # he-er, does-ruft, does-an, not-nicht, call-ruft, call-an, her-sie
    assert pair.links == ((0, 0), (1, 1), (1, 4), (2, 3), (3, 1), (3, 4), (4, 2))


def test_negation_and_article_both_link_to_kein(grammar: Any) -> None:
    sentences, clauses = load_script("demo_sentences"), load_script("demo_clauses")
    buy = clause(grammar, "buy", "T", "she", negation=grammar.key(), absorbed=True)
    article, _ = grammar.determiner("neg", "acc", noun(grammar, "car"), False, buy.negation)
    item = article + grammar.word("car", "Auto")
    buy.objects = buy.english_objects = [item]
    pair = sentences.finish(load_script("demo_phrases").Bi(clauses.english(buy), clauses.german_main(buy)), [], ".")
    assert (pair.en, pair.de) == ("She does not buy a car.", "Sie kauft kein Auto.")
    assert pair.links == ((0, 0), (1, 1), (2, 2), (3, 1), (4, 2), (5, 3))
