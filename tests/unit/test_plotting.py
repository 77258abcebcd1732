"""Figures: they are written, hold what they are given, and no text in them can break them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from nmt.errors import NmtError
from nmt.plotting import (
    FEW,
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


LONG_NAMES = [f"multi30k-bahdanau-with-a-name-of-more-than-sixty-characters-{number:02}" for number in range(12)]


def length_figure(curves: Mapping[str, Sequence[LengthRow]]) -> Figure:
    rows = [row for each in curves.values() for row in each]
    buckets = list(dict.fromkeys((row.low, row.high) for row in rows))
    places = {bucket: place for place, bucket in enumerate(buckets)}
    return _length_figure(curves, places, {(row.low, row.high): row.label for row in rows})


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
    rows = [LengthRow(0, 10, FEW, 30.0, 50.0, 20.0, 90.0), LengthRow(10, None, 50, 40.0, 50.0)]
    axes = length_figure({"a": rows, "b": rows}).axes[0]
    bars = [segment for collection in axes.collections for segment in collection.get_segments()]
    assert [(low, high) for (_, low), (_, high) in bars] == [(20.0, 90.0)] * 2
    assert bars[0][0][0] < 0 < bars[1][0][0]
    assert axes.get_ylim()[1] > 90


def test_bars_are_named_beside_the_axis_only_where_there_are_any() -> None:
    few, enough = (LengthRow(0, 10, count, 30.0, 50.0, 20.0, 40.0) for count in (FEW - 1, FEW))
    without = length_figure({"a": [*ROWS[1:], few]}).axes[0]
    assert (without.get_ylabel(), len(without.collections)) == ("BLEU", 0)
    assert length_figure({"a": [*ROWS[1:], enough]}).axes[0].get_ylabel() == "BLEU (thin bars: 95 % intervals)"


def test_a_point_of_few_sentences_is_hollow_and_no_line_leads_there() -> None:
    rows = [*ROWS[:2], LengthRow(20, 30, FEW - 1, 70.0, 80.0, 60.0, 80.0), LengthRow(30, None, FEW, 20.0, 40.0)]
    axes = length_figure({"a": rows}).axes[0]
    line, points = axes.lines
    assert np.array_equal(np.asarray(line.get_ydata()), [41.5, 38.0, np.nan, 20.0], equal_nan=True)
    assert line.get_linestyle() != "None"
    assert np.asarray(points.get_xydata()).tolist() == [[2, 70]]
    assert (points.get_linestyle(), points.get_markerfacecolor()) == ("None", "white")
    assert (points.get_marker(), points.get_color()) == (line.get_marker(), line.get_color())
    assert axes.get_xlabel() == "source words (hollow points: fewer than 10 sentences)"
    assert length_figure({"a": ROWS}).axes[0].get_xlabel() == "source words"


def test_long_names_are_cut_so_that_runs_of_one_series_differ() -> None:
    series = "/home/anna/experiments/2026/translation/multi30k/first-series-of-all"
    names = [f"{series}/seed{number}/base" for number in (1, 2, 3)]
    [legend] = length_figure(dict.fromkeys(names, ROWS)).legends
    shown = [text.get_text() for text in legend.get_texts()]
    assert len(set(shown)) == 3
    assert all(len(text) == 60 and text.startswith("/home/anna") and "…" in text for text in shown)
    title = length_figure({"multi30k-bahdanau-seed1 + multi30k-luong-seed1": ROWS}).axes[0].get_title()
    assert title.endswith("\nmulti30k-bahdanau-seed1 + multi30k-luong-seed1")


@pytest.mark.parametrize("names", [["a", "b", "c"], LONG_NAMES, ["猫" * 60, "b"]], ids=["three", "twelve", "wide"])
def test_the_names_of_several_runs_cover_nothing_and_are_all_in_the_picture(names: list[str]) -> None:
    with _fonts(names), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = length_figure(dict.fromkeys(names, ROWS))
        figure.draw_without_rendering()
    [legend] = figure.legends
    box = legend.get_window_extent()
    assert len(legend.get_texts()) == len(names)
    for axes in figure.axes:
        assert axes.get_legend() is None
        assert not box.overlaps(axes.get_tightbbox())
        assert axes.get_window_extent().height > 280  # of the 420 of a figure without names
    assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
    assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1


def test_every_run_is_named_as_it_is_called() -> None:
    names = ["_", "_b", "$_{", "c"]
    [legend] = length_figure(dict.fromkeys(names, ROWS)).legends
    assert [text.get_text() for text in legend.get_texts()] == names
    assert not any(text.get_parse_math() for text in legend.get_texts())


def test_no_name_breaks_the_length_plot(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot_by_length(dict.fromkeys([*WORDS, *MORE_WORDS], ROWS), tmp_path / "plot.png")
        plot_by_length({"$_{\n猫\ud800": ROWS}, tmp_path / "plot.png")
    assert_is_a_picture(tmp_path / "plot.png")


def test_a_single_run_is_named_in_the_title() -> None:
    figure = length_figure({"$_{": ROWS})
    assert figure.legends == []
    assert figure.axes[0].get_title() == "BLEU by source length\n$_{"
    figure.draw_without_rendering()


def test_forty_runs_all_look_different_even_without_colour() -> None:
    figure = length_figure({f"run {number}": ROWS for number in range(40)})
    lines = figure.axes[0].lines
    assert len({(line.get_marker(), line._unscaled_dash_pattern) for line in lines}) == 40


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


def words_of(figure: Figure) -> tuple[list[str], list[str]]:
    """The words above a heat map and those beside it."""
    texts = figure.axes[0].texts
    above, beside = ([text.get_text() for text in texts if text.get_rotation() == degrees] for degrees in (90, 0))
    return above, beside


def test_the_heat_map_shows_the_words_and_the_weights(tmp_path: Path) -> None:
    weights = np.array([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]])
    figure = plot_attention(weights, ["the", "house", "."], ["das", "Haus"], title="50 % of $5")
    axes = figure.axes[0]
    assert words_of(figure) == (["the", "house", "."], ["das", "Haus"])
    assert np.array_equal(np.asarray(axes.images[0].get_array()), weights)
    save_figure(figure, tmp_path / "map.png")
    assert_is_a_picture(tmp_path / "map.png")


WORDS = [
    "$x$", "$\\frac{", "\\", "_^{}", "猫", "🦜", "ሰላም", "\n", "\x00", "\ud800", "", "\u2028", "x" * 500, "▁der",
]  # fmt: skip
MORE_WORDS = ["مرحبا", "नमस्ते", "\x1b[1m", "\u202e", "\U0010ffff", "-->", "]]>", "<&>"]


@pytest.mark.parametrize("size", [(1, 1), (2, 9), (9, 2), (40, 40)])
@pytest.mark.parametrize(
    ("title", "word"),
    [("", "I"), ("a title", "w" * 30), ("two\nlines, and one of them is wider than most maps " + "x" * 60, "猫" * 20)],
    ids=["narrow", "wide", "title"],
)
def test_all_texts_are_in_the_picture_and_beside_the_map(size: tuple[int, int], title: str, word: str) -> None:
    figure = plot_attention(np.full(size, 0.1), [word] * size[1], [word] * size[0], title)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.canvas.draw()
        axes, bar = figure.axes
        texts = [text.get_window_extent() for text in (*axes.texts, axes.title)]
        everything = [*texts, bar.get_tightbbox()]
    for box in everything:
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1
    cells = axes.get_window_extent()
    above, beside, heading = texts[: size[1]], texts[size[1] : -1], texts[-1]
    assert all(box.y0 > cells.y1 for box in (*above, heading))
    assert all(box.x1 < cells.x0 for box in beside)
    assert not title or heading.y0 > max(box.y1 for box in above)
    for number, box in enumerate(above):
        assert (box.x0 + box.x1) / 2 == pytest.approx(cells.x0 + (number + 0.5) * cells.width / size[1], abs=2)
    assert min(cells.width / size[1], cells.height / size[0]) >= 0.3 * figure.dpi


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
    assert words_of(figure) == (["میخواهم", "ab"], ["\ufffd", "d"])


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
    assert max(figure.get_size_inches()) < 40.001


@pytest.mark.parametrize(("shape", "src", "tgt"), [((2, 3), 2, 3), ((0, 3), 3, 0), ((6,), 3, 2)])
def test_weights_that_do_not_fit_the_words_are_refused(shape: tuple[int, ...], src: int, tgt: int) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        plot_attention(np.zeros(shape), ["s"] * src, ["t"] * tgt)
