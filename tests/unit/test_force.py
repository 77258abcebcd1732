"""Forced decoding against the search, on random models of every kind with real tokenizers."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from models import DECODERS

from nmt.config import EncoderConfig, ModelConfig, SearchConfig, TokenizerConfig
from nmt.data.tokenizer import EOS, Tokenizers
from nmt.errors import NmtError
from nmt.model.seq2seq import build_model
from nmt.translate import Forced, Translator

WORDS = ["the", "old", "woman's", "dog", "sees", "a", "big", "house", "under", "water"]
LINES = ["the old dog sees a house", "", "a", "water under the big big woman's house", "  \t ", "dog sees dog"]


def sentences(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(count)]


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> Tokenizers:
    lines = sentences(200, 1)
    config = TokenizerConfig(vocab_size=30)
    return Tokenizers.train(tmp_path_factory.mktemp("spm"), lambda: zip(lines, lines), config, len(lines))[0]


def translator(tokenizers: Tokenizers, name: str = "bahdanau", max_source: int = 100, **search: object) -> Translator:
    """A random model; its weights are large, so that it looks at some positions more than at others."""
    torch.manual_seed(3)
    values = {"embedding_size": 7, "encoder": EncoderConfig(hidden_size=4), "decoder": DECODERS[name], "dropout": 0.3}
    size = tokenizers.src.vocab_size
    model = build_model(ModelConfig.model_validate(values), size, size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.9, 0.9)
        # Words that are one piece, so that the tokenizer spells a translation as the beam did; some end early.
        pieces = tokenizers.tgt.pieces(range(size))
        model.output.bias += 6 * torch.tensor([piece[1:] in WORDS and piece[0] == "▁" for piece in pieces])
        model.output.bias[EOS] = 7.0
    settings = SearchConfig.model_validate({"beam_size": 4} | search)
    return Translator(model, tokenizers, settings, max_source, torch.device("cpu"))


def given(tokenizers: Tokenizers) -> list[tuple[str, str]]:
    return [*zip(LINES, [*LINES[1:], "the house"]), *zip(sentences(9, 2), sentences(9, 3))]


@pytest.mark.parametrize("name", DECODERS)
def test_a_translation_is_forced_to_the_score_and_weights_that_the_beam_gave_it(
    tokenizers: Tokenizers, name: str
) -> None:
    penalty = 0.0 if name.startswith("none") else 0.2
    ours = translator(tokenizers, name, coverage_penalty=penalty, beam_size=12)
    lines = sentences(8, 5)
    found = ours.translate(lines, n_best=12, keep_weights=True)
    checked = longest = 0
    for line, translation in zip(lines, found, strict=True):
        candidates = [one for one in translation.candidates if not one.length_limited and one.pieces]
        for one, forced in zip(candidates, ours.force([(line, one.text) for one in candidates]), strict=True):
            if forced.tgt_pieces != one.pieces:
                continue  # the beam may spell a text in other pieces than the tokenizer
            checked += 1
            longest = max(longest, len(one.pieces))
            assert forced.log_prob == pytest.approx(one.log_prob, abs=1e-4)
            assert forced.score == pytest.approx(one.score, rel=1e-6, abs=1e-4)
            assert forced.src_pieces == translation.src_pieces
            assert forced.src_words == translation.src_words
            assert forced.tgt_words == one.words
            if name.startswith("none"):
                assert forced.weights is None
            else:
                np.testing.assert_allclose(forced.weights, one.weights, atol=1e-5)
    assert checked > 8
    assert longest > 1


def same(one: Forced, other: Forced) -> bool:
    plain = [name for name in vars(one) if name not in ("weights", "log_prob", "score")]
    assert [getattr(one, name) for name in plain] == [getattr(other, name) for name in plain]
    assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
    assert one.score == pytest.approx(other.score, abs=1e-4)
    if one.weights is None or other.weights is None:
        return one.weights is other.weights
    return np.allclose(one.weights, other.weights, atol=1e-5)


@pytest.mark.parametrize("name", DECODERS)
def test_pairs_together_equal_one_by_one_in_order(tokenizers: Tokenizers, name: str) -> None:
    ours = translator(tokenizers, name)
    pairs = given(tokenizers)
    together = ours.force(pairs)
    assert all(map(same, [ours.force([pair])[0] for pair in pairs], together))
    assert all(map(same, ours.force(pairs, batch_tokens=60), together))


def test_a_pair_with_a_blank_side_is_blank(tokenizers: Tokenizers) -> None:
    pairs = [("", "dog"), ("dog", ""), (" \u3000", "a"), ("a", "\t"), ("", ""), ("dog", "dog")]
    *blank, real = translator(tokenizers).force(pairs)
    assert blank == [Forced()] * 5
    assert real.weights is not None
    assert translator(tokenizers).force([]) == []


def test_weights_are_a_row_a_step_and_a_column_a_source_position(tokenizers: Tokenizers) -> None:
    [forced] = translator(tokenizers).force([("the woman's dog", "a house")])
    assert forced.weights is not None
    assert forced.weights.shape == (len(forced.tgt_pieces) + 1, len(forced.src_pieces) + 1)
    np.testing.assert_allclose(forced.weights.sum(1), 1.0, atol=1e-5)
    assert forced.log_prob < 0
    assert set(forced.src_words) == {0, 1, 2}
    assert set(forced.tgt_words) == {0, 1}


def test_long_sides_are_cut_and_said_to_be(tokenizers: Tokenizers) -> None:
    ours = translator(tokenizers, max_source=5)
    line, long = "a dog", "the old woman's dog sees water"
    short, long_source, long_target = ours.force([(line, line), (long, line), (line, long)])
    assert [one.truncated for one in (short, long_source, long_target)] == [False, True, True]
    assert len(long_source.src_pieces) == len(long_source.src_words) == 5
    assert len(long_target.tgt_pieces) == len(long_target.tgt_words) == 5
    [searched] = ours.translate([long], keep_weights=True)
    assert searched.src_pieces == long_source.src_pieces
    assert searched.src_words == long_source.src_words


def test_a_line_break_within_a_text_is_a_blank(tokenizers: Tokenizers) -> None:
    ours = translator(tokenizers)
    assert same(*ours.force([("a\u2028dog", "big\r\nhouse"), ("a dog", "big house")]))


def test_projecting_a_few_rows_at_a_time_changes_nothing(
    tokenizers: Tokenizers, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = translator(tokenizers)
    together = ours.force(given(tokenizers))
    monkeypatch.setattr("nmt.translate.LOGITS", 3 * tokenizers.tgt.vocab_size)
    assert all(map(same, ours.force(given(tokenizers)), together))


def test_every_piece_of_a_translation_has_the_number_of_its_word(tokenizers: Tokenizers) -> None:
    for translation in translator(tokenizers).translate(LINES, n_best=3, keep_weights=True):
        assert len(translation.src_words) == len(translation.src_pieces)
        for one in translation.candidates:
            assert len(one.words) == len(one.pieces)
            assert all(0 <= word < max(1, len(one.text.split())) for word in one.words)


def test_keeping_weights_changes_no_translation(tokenizers: Tokenizers) -> None:
    plain, kept = (translator(tokenizers).translate(LINES, n_best=3, keep_weights=keep) for keep in (False, True))
    for one, other in zip(plain, kept, strict=True):
        assert (one.src_pieces, one.truncated) == (other.src_pieces, other.truncated)
        assert [(c.text, c.pieces, c.score) for c in one.candidates] == [
            (c.text, c.pieces, c.score) for c in other.candidates
        ]


def test_a_model_with_broken_weights_is_refused_as_in_the_search(tokenizers: Tokenizers) -> None:
    whole = translator(tokenizers)
    with torch.no_grad():
        whole.model.output.bias[5] = torch.nan
    broken = Translator(whole.model, tokenizers, whole.search, 100, torch.device("cpu"))
    with pytest.raises(NmtError, match="weights are broken"):
        broken.force([("the dog", "the dog")])
    with pytest.raises(NmtError, match="weights are broken"):
        broken.translate(["the dog"])
