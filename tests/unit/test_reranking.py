"""Minimum Bayes risk against sacreBLEU's own chrF, one pair after the other."""

from __future__ import annotations

import itertools
import math
from typing import cast

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config import SearchConfig
from nmt.data.tokenizer import Tokenizers
from nmt.model.stepper import Stepper
from nmt.reranking import by_expected_chrf, pairwise_chrf
from nmt.search import Hypothesis
from nmt.translations import LineTranslator

TEXTS = st.lists(st.one_of(st.text("ab c", max_size=12), st.text(max_size=8)), min_size=1, max_size=6)


def expected_chrf(texts: list[str], log_probs: list[float]) -> list[float]:
    total = sum(math.exp(log_prob) for log_prob in log_probs)
    return [
        sum(
            math.exp(log_prob) / total * sacrebleu.sentence_chrf(text, [reference]).score
            for reference, log_prob in zip(texts, log_probs)
        )
        for text in texts
    ]


@settings(max_examples=40, deadline=None)
@given(TEXTS)
def test_chrf_of_all_pairs_is_sacrebleus_of_each(texts: list[str]) -> None:
    each = [[sacrebleu.sentence_chrf(text, [reference]).score for reference in texts] for text in texts]
    np.testing.assert_allclose(pairwise_chrf(texts), each, rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_order_is_that_of_a_search_through_all_pairs(data: st.DataObject) -> None:
    texts = data.draw(TEXTS)
    log_probs = data.draw(st.lists(st.floats(-30, 0), min_size=len(texts), max_size=len(texts)))
    order = by_expected_chrf(texts, log_probs)
    assert sorted(order) == list(range(len(texts)))
    utility = expected_chrf(texts, log_probs)
    for better, worse in itertools.pairwise(order):
        assert utility[better] >= utility[worse] - 1e-9
        if texts[better] == texts[worse]:
            assert better < worse


def test_a_less_probable_text_wins_when_the_others_are_like_it() -> None:
    texts = ["Ein Hund schläft.", "Die alte Katze sieht das Haus.", "Die alte Katze sieht das rote Haus."]
    assert by_expected_chrf(texts, [math.log(0.4), math.log(0.3), math.log(0.3)])[0] in (1, 2)
    assert by_expected_chrf(texts, [math.log(0.8), math.log(0.1), math.log(0.1)])[0] == 0


def test_only_differences_of_log_probabilities_count_however_small_they_all_are() -> None:
    texts = ["xyz", "abcd", "abce"]
    assert by_expected_chrf(texts, [-9000.0, -9000.1, -9000.2]) == by_expected_chrf(texts, [-1.0, -1.1, -1.2])
    assert by_expected_chrf(texts, [-9000.0, -9000.1, -9000.2]) == [1, 2, 0]


@pytest.mark.parametrize("texts", [[], [""], ["", " "]])
def test_texts_without_a_character_keep_their_order(texts: list[str]) -> None:
    assert by_expected_chrf(texts, [-1.0] * len(texts)) == list(range(len(texts)))


class Words:
    """A tokenizer whose ids are characters."""

    vocab_size = 100

    def decode(self, ids: list[tuple[int, ...]]) -> list[str]:
        return ["".join(map(chr, row)) for row in ids]


def test_what_the_length_limit_cut_stays_behind_and_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def hypothesis(text: str, probability: float, limited: bool = False) -> Hypothesis:
        return Hypothesis(tuple(map(ord, text)), math.log(probability), -1.0, limited)

    ended = [hypothesis("xyz", 0.2), hypothesis("abcd", 0.15), hypothesis("abce", 0.15)]
    cut = [hypothesis("xyz", 0.9, True), hypothesis("xyzxyz", 0.5, True)]
    asked = []

    def found(*_: object, n_best: int, **__: object) -> list[list[Hypothesis]]:
        asked.append(n_best)
        return [[*ended, *cut], cut, []]

    monkeypatch.setattr("nmt.translations.beam_search", found)
    tokenizers = Tokenizers(*[cast("object", Words())] * 2, True)  # type: ignore[arg-type]
    settings = SearchConfig(beam_size=5, rerank="mbr")
    translator = LineTranslator(cast("Stepper", None), tokenizers, settings, 100, 0)
    assert translator._search([[3], [3], [3]], 5, False) == [[ended[1], ended[2], ended[0], *cut], cut, []]
    assert translator._search([[3], [3], [3]], 1, False) == [[ended[1]], [cut[0]], []]
    assert asked == [5, 5]
