"""Figures: they are written, hold what they are given, and no text in them can break them."""

from __future__ import annotations

import warnings
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.image import imread

from nmt.errors import NmtError
from nmt.plotting import (
    LengthRow,
    _fonts,
    _installed_fonts,
    _length_figure,
    plot_attention,
    plot_by_length,
    save_figure,
    save_pages,
)

ROWS = [LengthRow(0, 10, 300, 41.5, 60.0), LengthRow(10, 20, 500, 38.0, 58.0), LengthRow(50, None, 12, 20.0, 44.0)]


def assert_is_a_picture(path: Path) -> None:
    pixels = imread(path)
    assert pixels.shape[0] > 200
    assert pixels.shape[1] > 200
    assert len(np.unique(pixels.reshape(-1, pixels.shape[-1]), axis=0)) > 20
    assert [file.name for file in path.parent.iterdir()] == [path.name]  # nothing temporary is left


def test_labels_name_the_whole_counts_of_a_bucket() -> None:
    assert [row.label for row in ROWS] == ["0–9", "10–19", "50+"]
    assert LengthRow(1, 2, 1, 0.0, 0.0).label == "1"


def test_the_length_plot_is_written(tmp_path: Path) -> None:
    plot_by_length({"bahdanau": ROWS}, tmp_path / "test_by_length.png")
    assert_is_a_picture(tmp_path / "test_by_length.png")


def test_systems_with_different_buckets_share_a_plot(tmp_path: Path) -> None:
    curves = {"a": ROWS, "b $_{": ROWS[:1], "c": [LengthRow(10, 30, 5, 12.0, 30.0)]}
    plot_by_length(curves, tmp_path / "compare.png")
    assert_is_a_picture(tmp_path / "compare.png")


def test_intervals_are_bars_from_bound_to_bound_inside_the_picture() -> None:
    rows = [LengthRow(0, 10, 5, 30.0, 50.0, 20.0, 90.0), LengthRow(10, None, 1, 40.0, 50.0)]
    position, labels = {(0, 10): 0, (10, None): 1}, {(0, 10): "0–9", (10, None): "10+"}
    axes = _length_figure({"a": rows, "b": rows}, position, labels).axes[0]
    bars = [segment for collection in axes.collections for segment in collection.get_segments()]
    assert [(low, high) for (_, low), (_, high) in bars] == [(20.0, 90.0)] * 2
    assert bars[0][0][0] < 0 < bars[1][0][0]
    assert axes.get_ylim()[1] > 90


def test_scores_of_zero_can_be_plotted(tmp_path: Path) -> None:
    plot_by_length({"untrained": [LengthRow(0, 10, 1, 0.0, 0.0)]}, tmp_path / "zero.png")
    assert_is_a_picture(tmp_path / "zero.png")


def test_a_plot_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one row"):
        plot_by_length({"a": []}, tmp_path / "nothing.png")


def test_a_folder_that_does_not_exist_is_an_error_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(NmtError, match=r"nowhere.*cannot be written"):
        plot_by_length({"a": ROWS}, tmp_path / "nowhere" / "plot.png")


def test_plotting_leaves_pyplot_and_the_settings_alone(tmp_path: Path) -> None:
    from matplotlib import rcParams

    before = dict(rcParams)
    plot_by_length({"a": ROWS}, tmp_path / "plot.png")
    assert dict(rcParams) == before


def test_the_heat_map_shows_the_words_and_the_weights(tmp_path: Path) -> None:
    weights = np.array([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]])
    figure = plot_attention(weights, ["the", "house", "."], ["das", "Haus"], title="50 % of $5")
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["the", "house", "."]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["das", "Haus"]
    assert np.array_equal(np.asarray(axes.images[0].get_array()), weights)
    save_figure(figure, tmp_path / "map.png")
    assert_is_a_picture(tmp_path / "map.png")


WORDS = [
    "$x$", "$\\frac{", "\\", "_^{}", "猫", "🦜", "ሰላም", "\n", "\x00", "\ud800", "", "\u2028", "x" * 500, "▁der",
]  # fmt: skip
MORE_WORDS = ["مرحبا", "नमस्ते", "\x1b[1m", "\u202e", "\U0010ffff", "-->", "]]>", "<&>"]


@pytest.mark.parametrize("word", WORDS, ids=ascii)
def test_no_word_breaks_the_heat_map(tmp_path: Path, word: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = plot_attention(np.full((2, 3), 1 / 3), [word, "b", word], [word, "d"], title=word)
        save_figure(figure, tmp_path / "map.png")
    assert_is_a_picture(tmp_path / "map.png")


def test_no_words_break_svg_and_pdf_and_neither_needs_fonts(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        words = [*WORDS, *MORE_WORDS]
        figure = plot_attention(np.eye(len(words)), words, words, title=" ".join(MORE_WORDS))
        for suffix in ("svg", "pdf"):
            save_figure(figure, tmp_path / f"map.{suffix}")
    tree = ElementTree.parse(tmp_path / "map.svg")
    assert not list(tree.iter("{http://www.w3.org/2000/svg}text"))
    pdf = (tmp_path / "map.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    assert b"/Type3" in pdf


def test_characters_are_taken_from_fonts_that_have_them() -> None:
    from matplotlib.ft2font import FT2Font

    with _fonts(["Der alte Hund", "猫 नमस्ते 🦜"]):
        from matplotlib import rcParams

        families = list(rcParams["font.family"])
    assert families[0] == "DejaVu Sans"
    files = _installed_fonts()
    for character in "猫न🦜":
        having = {name for name, file in files.items() if FT2Font(file).get_char_index(ord(character))}
        assert not having or having & set(families)


def test_text_that_dejavu_sans_covers_asks_for_no_other_font() -> None:
    from matplotlib import rcParams

    with _fonts(["Größe ▁Straße — Ελλάδα, Россия"]):
        assert list(rcParams["font.family"]) == ["DejaVu Sans"]


def test_marks_that_only_steer_the_layout_are_not_drawn() -> None:
    figure = plot_attention(np.eye(2), ["می\u200cخواهم", "a\u202eb"], ["\x07", "d"])
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["میخواهم", "ab"]
    assert figure.axes[0].get_yticklabels()[0].get_text() == "\ufffd"


def test_windows_are_outlined() -> None:
    figure = plot_attention(np.eye(3), ["a", "b", "c"], ["d", "e", "f"], windows=[(0, 1), (0, 2), (1, 2)])
    [outline] = figure.axes[0].lines
    corners = {(float(x), float(y)) for x, y in np.asarray(outline.get_xydata())}
    right = {(1.5, -0.5), (1.5, 0.5), (2.5, 0.5), (2.5, 1.5), (2.5, 2.5)}
    left = {(-0.5, -0.5), (-0.5, 0.5), (-0.5, 1.5), (0.5, 1.5), (0.5, 2.5)}
    assert corners == right | left


def test_pages_share_a_file(tmp_path: Path) -> None:
    save_pages((plot_attention(np.eye(2), ["a", "b"], ["c", "d"]) for _ in range(3)), tmp_path / "maps.pdf")
    assert (tmp_path / "maps.pdf").read_bytes().count(b"/Type /Page ") == 3


def test_long_sentences_get_smaller_cells_not_a_larger_file(tmp_path: Path) -> None:
    size = 300
    figure = plot_attention(np.eye(size), ["w"] * size, ["w"] * size)
    assert max(figure.get_size_inches()) <= 40


@pytest.mark.parametrize(("shape", "src", "tgt"), [((2, 3), 2, 3), ((0, 3), 3, 0), ((6,), 3, 2)])
def test_weights_that_do_not_fit_the_words_are_refused(shape: tuple[int, ...], src: int, tgt: int) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        plot_attention(np.zeros(shape), ["s"] * src, ["t"] * tgt)
