"""What is drawn: words and pieces with their weights, the end of a sentence, windows, and which lines are watched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from nmt.attended import attended_sentence, window_spans
from nmt.attention_maps import (
    _as_translation,
    _draw_pictures,
    _kind,
    _mechanism,
    lines_to_watch,
    score_note,
    sentence_figure,
    validation_figure,
)
from nmt.config import BahdanauConfig, LuongConfig, SearchConfig
from nmt.config_sections import WindowConfig
from nmt.reporting import SilentReporter
from nmt.translate import Candidate, Forced, Translation

# the old dog. -> der Hund., in pieces, and where each piece of the translation looked
SRC_PIECES, SRC_WORDS = ("▁the", "▁o", "ld", "▁dog", "."), (0, 1, 1, 2, 2)
TGT_PIECES, TGT_WORDS = ("▁der", "▁Hu", "nd", "."), (0, 1, 1, 1)
WEIGHTS = np.array(
    [
        [0.5, 0.2, 0.3, 0.0, 0.0, 0.0],
        [0.0, 0.1, 0.1, 0.8, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.6, 0.4, 0.0],
        [0.0, 0.0, 0.0, 0.1, 0.9, 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.25, 0.75],
    ]
)


def translation(limited: bool = False, truncated: bool = False) -> Translation:
    weights = WEIGHTS[:-1] if limited else WEIGHTS
    candidate = Candidate("der Hund.", TGT_PIECES, -0.4, -1.2, limited, weights, TGT_WORDS)
    return Translation((candidate,), SRC_PIECES, truncated, SRC_WORDS)


def test_words_have_the_weights_of_their_pieces_and_the_end_is_the_last() -> None:
    found = attended_sentence(7, "the old  dog.", translation(), pieces=False)
    [best] = found.maps
    assert (found.line, found.units, best.units) == (7, ("the", "old", "dog.", "</s>"), ("der", "Hund.", "</s>"))
    # The sum over the pieces of a source word, the mean over those of a target word.
    wanted = [[0.5, 0.5, 0.0, 0.0], [0.0, 0.2 / 3, 2.8 / 3, 0.0], [0.0, 0.0, 0.25, 0.75]]
    assert best.weights == pytest.approx(np.array(wanted))
    assert best.windows is None


def test_pieces_have_their_own_weights() -> None:
    [best] = (found := attended_sentence(1, "the old dog.", translation())).maps
    assert (found.units, best.units) == ((*SRC_PIECES, "</s>"), (*TGT_PIECES, "</s>"))
    assert np.array_equal(best.weights, WEIGHTS)


@pytest.mark.parametrize("pieces", [True, False])
def test_a_translation_that_the_length_limit_cut_has_no_row_for_its_end(pieces: bool) -> None:
    [best] = attended_sentence(1, "the old dog.", translation(limited=True), pieces).maps
    assert "</s>" not in best.units
    assert best.weights.shape[0] == len(best.units)


def test_of_a_source_that_was_cut_only_the_words_that_were_read_are_shown() -> None:
    found = attended_sentence(1, "the old dog. It sleeps.", translation(truncated=True), pieces=False)
    assert found.units == ("the", "old", "dog.", "</s>")
    assert found.truncated


def test_an_empty_translation_has_a_row_for_its_end_alone() -> None:
    candidate = Candidate("", (), -3.0, -3.0, False, WEIGHTS[-1:], ())
    found = attended_sentence(1, "the old dog.", Translation((candidate,), SRC_PIECES, False, SRC_WORDS), pieces=False)
    assert (found.maps[0].units, found.maps[0].weights.shape) == (("</s>",), (1, 4))


def test_pieces_that_spell_nothing_but_blanks_have_a_row() -> None:
    candidate = Candidate("", ("▁",), -3.0, -3.0, False, WEIGHTS[-2:], (0,))
    found = attended_sentence(1, "the old dog.", Translation((candidate,), SRC_PIECES, False, SRC_WORDS), pieces=False)
    assert found.maps[0].units == (" ", "</s>")


def test_a_given_translation_is_drawn_like_one_that_was_found() -> None:
    forced = Forced(SRC_PIECES, TGT_PIECES, SRC_WORDS, TGT_WORDS, WEIGHTS, -1.2, -0.4)
    ours = attended_sentence(1, "the old dog.", _as_translation("der Hund.", forced), pieces=False)
    theirs = attended_sentence(1, "the old dog.", translation(), pieces=False)
    assert ours.units == theirs.units
    assert ours.maps[0].units == theirs.maps[0].units
    assert np.array_equal(ours.maps[0].weights, theirs.maps[0].weights)


def test_of_a_given_translation_that_was_cut_only_the_words_that_were_read_are_shown() -> None:
    forced = Forced(SRC_PIECES, TGT_PIECES, SRC_WORDS, TGT_WORDS, WEIGHTS, -1.2, -0.4, truncated=True)
    found = attended_sentence(1, "the old dog.", _as_translation("der Hund. Er schläft.", forced), pieces=False)
    assert found.maps[0].units == ("der", "Hund.", "</s>")


def test_a_window_reaches_from_the_first_to_the_last_weight_however_small() -> None:
    weights = np.array([[1e-30, 1.0, 0.0, 0.0], [0.0, 0.5, 0.0, 0.5], [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    assert window_spans(weights) == ((0, 1), (1, 3), (3, 3), (0, 3))
    [best] = attended_sentence(1, "the old dog.", translation(), pieces=False, windowed=True).maps
    assert best.windows == ((0, 1), (1, 2), (2, 3))


def test_the_first_lines_of_moderate_length_are_watched() -> None:
    assert lines_to_watch([0, 3, 10, 200, 25, 26, 5, 4, 12, 9]) == [2, 4, 6, 8]


def test_where_moderate_lines_are_few_the_shortest_others_are_watched_but_no_blank_one() -> None:
    assert lines_to_watch([0, 30, 10, 300, 4]) == [1, 2, 3, 4]
    assert lines_to_watch([0, 30, 10, 300, 4, 2, 200]) == [1, 2, 4, 5]
    assert lines_to_watch([0, 0]) == []


def test_a_score_is_explained_with_the_numbers_of_the_search() -> None:
    assert "log p / ((5 + n) / 6)^0.8," in score_note(SearchConfig(length_penalty=0.8), forced=False)
    assert score_note(SearchConfig(length_penalty=0.0), forced=False).startswith("score = log p (")
    assert "+ 0.2 Σ_j" in score_note(SearchConfig(coverage_penalty=0.2), forced=False)
    assert "order is that of their expected chrF" in score_note(SearchConfig(rerank="mbr"), forced=False)
    assert "given" in score_note(SearchConfig(), forced=True)


def test_the_mechanism_is_that_of_the_kind() -> None:
    assert "before" in _mechanism(BahdanauConfig())
    assert "U_c" in _mechanism(BahdanauConfig(coverage=True))
    for score, formula in (("dot", "s_t·h_j"), ("general", "s_t·W_a h_j"), ("concat", "v_a·tanh(W_a [s_t; h_j])")):
        assert formula in _mechanism(LuongConfig(score=score))  # type: ignore[arg-type]
    local = LuongConfig(window=WindowConfig(kind="predictive", half_width=4), input_feeding=True, scale=True)
    assert _kind(local) == "luong general scaled, input feeding, predictive window of ±4 pieces"


def test_pictures_of_several_lines_are_numbered_by_line(tmp_path: Path) -> None:
    sentences = [attended_sentence(line, "the old dog.", translation(), pieces=False) for line in (2, 1000)]
    paths = _draw_pictures(sentences, tmp_path / "map.png", "bahdanau", SilentReporter())
    assert [path.name for path in paths] == ["map-0002.png", "map-1000.png"]
    assert all(imread(path).shape[0] > 200 for path in paths)
    assert _draw_pictures(sentences[:1], tmp_path / "one.SVG", "luong", SilentReporter()) == [tmp_path / "one.SVG"]
    assert b"<svg" in (tmp_path / "one.SVG").read_bytes()


def test_pages_of_several_lines_share_a_pdf(tmp_path: Path) -> None:
    sentences = [attended_sentence(line, "the old dog.", translation(), pieces=False) for line in (1, 2, 3)]
    paths = _draw_pictures(sentences, tmp_path / "maps.pdf", "bahdanau", SilentReporter())
    assert paths == [tmp_path / "maps.pdf"]
    assert (tmp_path / "maps.pdf").read_bytes().count(b"/Type /Page ") == 3


def test_figures_say_which_sentence_they_show() -> None:
    found = attended_sentence(3, "the old dog.", translation(), pieces=False, windowed=True)
    figure = sentence_figure(found, "luong, score -0.400")
    assert figure.axes[0].get_title() == "luong, score -0.400"
    assert len(figure.axes[0].lines) == 1  # the windows
    figure = validation_figure(3, "the old dog.", translation(), 500, windowed=False)
    assert figure.axes[0].get_title() == "dev line 3, step 500"
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts[len(SRC_PIECES) + 1 :] == [*TGT_PIECES, "</s>"]


def test_drawing_leaves_the_random_numbers_of_training_alone() -> None:
    import random

    import torch

    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index, union-attr]
    validation_figure(1, "the old dog.", translation(), 1, windowed=False)
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index, union-attr]
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
