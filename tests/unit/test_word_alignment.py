"""The hidden Markov model against a sum over all alignments, and its links against known ones."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest

from nmt.data import word_alignment as wa
from nmt.data.links import alignment_error, parse_links

DEMO = Path(__file__).parents[2] / "data" / "demo"


def _by_enumeration(
    table: dict[tuple[int, int], float], source: list[int], target: list[int], jumps: wa._Jumps
) -> tuple[wa.Floats, wa.Floats, wa.Floats]:
    """Posteriors [J, I], expected distances and first positions, by a loop over every path of states."""
    size = len(source)
    moves, start = jumps.matrix(size)
    states = [(place, empty) for place in range(size) for empty in (False, True)]
    posterior, distances = np.zeros((len(target), size)), np.zeros_like(jumps.distances)
    first, total = np.zeros_like(jumps.first), 0.0
    for path in itertools.product(states, repeat=len(target)):
        weight, before = 1.0, None
        for word, (place, empty) in zip(target, path):
            if before is None:
                weight *= start[place]
            elif empty:
                weight *= float(place == before)
            else:
                weight *= moves[before, place]
            share = wa._EMPTY_SHARE if empty else 1 - wa._EMPTY_SHARE
            weight *= share * table[0 if empty else source[place], word]
            before = place
        total += weight
        first[path[0][0]] += weight
        for step, (place, empty) in enumerate(path):
            posterior[step, place] += weight * (not empty)
        for (left, _), (right, empty) in itertools.pairwise(path):
            distances[right - left + wa._LONGEST_JUMP] += weight * (not empty)
    return posterior / total, distances / total, first / total


def test_the_pass_is_the_sum_over_all_alignments() -> None:
    draw = np.random.default_rng(3)
    sources = [np.array(words) for words in ([1, 2, 3], [2, 2, 4], [5, 1, 2])]
    targets = [np.array(words) for words in ([1, 2], [3, 1, 2, 1], [4])]
    groups, owners = wa._groups(sources, targets)
    assert len(groups) == 1, "one length of source: padded to four target words"
    table = np.append(draw.uniform(0.1, 1.0, len(owners)), 1.0)
    jumps = wa._Jumps(draw.uniform(0.1, 1.0, 2 * wa._LONGEST_JUMP + 1), draw.uniform(0.1, 1.0, wa._LONGEST_JUMP + 1))
    found = wa._Pass(groups[0], table, jumps)

    distances, first, counts = np.zeros_like(jumps.distances), np.zeros_like(jumps.first), np.zeros_like(table)
    for place, number in enumerate(groups[0].pairs):
        source, target = sources[number].tolist(), targets[number].tolist()
        cells = groups[0].cells[place]
        places = {(word, aim): cells[j, i] for i, word in enumerate([*source, 0]) for j, aim in enumerate(target)}
        meant = {key: float(table[cell]) for key, cell in places.items()}
        posterior, more_distances, more_first = _by_enumeration(meant, source, target, jumps)
        np.testing.assert_allclose(found.from_words[place, : len(target)], posterior, rtol=1e-9)
        assert not found.from_words[place, len(target) :].any()
        distances += more_distances
        first += more_first
        for j, aim in enumerate(target):
            for i, word in enumerate(source):
                counts[places[word, aim]] += posterior[j, i]
            counts[places[0, aim]] += 1 - posterior[j].sum()
    np.testing.assert_allclose(found.distances, distances, rtol=1e-9)
    np.testing.assert_allclose(found.first, first, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.counts(len(table))[:-1], counts[:-1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["same order", "backwards", "swapped by twos"])
def test_words_that_always_meet_are_linked_in_any_order(kind: str) -> None:
    draw = random.Random(1)
    pairs, gold = [], []
    for _ in range(300):
        words = draw.sample(range(40), draw.randint(2, 9))
        order = list(range(len(words)))
        if kind == "backwards":
            order.reverse()
        elif kind == "swapped by twos":
            order = [place for first in range(0, len(order), 2) for place in reversed(order[first : first + 2])]
        pairs.append(([f"s{word}" for word in words], [f"t{words[place]}" for place in order]))
        gold.append(frozenset((place, step) for step, place in enumerate(order)))
    assert wa.align_words(pairs) == gold


def test_a_word_without_a_counterpart_has_no_link() -> None:
    draw = random.Random(2)
    pairs, gold = [], []
    for _ in range(300):
        words = draw.sample(range(30), draw.randint(2, 7))
        place = draw.randint(0, len(words))
        target = [f"t{word}" for word in words]
        target.insert(place, "filler")
        pairs.append(([f"s{word}" for word in words], target))
        gold.append(frozenset((step, step + (step >= place)) for step in range(len(words))))
    assert wa.align_words(pairs) == gold


def test_groups_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(4)
    texts = [[draw.choice("abcdefgh") for _ in range(draw.randint(1, 6))] for _ in range(120)]
    pairs = list(zip(texts[:60], texts[60:]))
    whole = wa.align_words(pairs)
    monkeypatch.setattr(wa, "_GROUP_PAIRS", 3)
    assert wa.align_words(pairs) == whole


def test_case_does_not_count_and_empty_sides_have_no_links() -> None:
    pairs = [(["A", "dog"], ["Ein", "Hund"]), ([], ["x"]), (["x"], []), (["the", "Dog"], ["der", "hund"])]
    found = wa.align_words(pairs * 3)
    assert found[0] == found[3] == {(0, 0), (1, 1)}
    assert found[1] == found[2] == frozenset()
    assert wa.align_words([]) == []
    assert wa.align_words([([], [])]) == [frozenset()]


def test_the_links_of_the_demo_corpus_are_found() -> None:
    def read(name: str) -> list[list[str]]:
        return [line.split() for line in (DEMO / name).read_text(encoding="utf-8").splitlines()]

    links = (DEMO / "test.align").read_text(encoding="utf-8").splitlines()
    gold = [parse_links(line, "test.align", number) for number, line in enumerate(links, 1)]
    pairs = list(zip(read("test.en"), read("test.de"), strict=True))
    found = wa.align_words(pairs)
    scores = alignment_error(found, gold)
    assert scores.precision > 0.9, scores
    assert scores.recall > 0.7, scores
