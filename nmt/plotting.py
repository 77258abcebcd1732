"""Figures: scores by sentence length and word frequency, attention heat maps.

Everything is drawn with matplotlib's Agg canvas on figures that pyplot does not know: no display is needed and nothing
is kept between calls.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from unicodedata import category

import numpy as np

from nmt.run_dir import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

# Fonts to take missing characters from, in this order, where the machine has them: matplotlib's own DejaVu Sans lacks
# most of Asia. What none of these has is looked for in all others.
_FALLBACK_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "Noto Sans Devanagari",
    "Noto Sans Thai",
    "Arial Unicode MS",
    "Hiragino Sans",
    "Microsoft YaHei",
    "Malgun Gothic",
)
_NO_FONTS = ("Last Resort", "Adobe Blank")  # they claim every character and draw none
_LONGEST_LABEL = 30  # characters of a word on an axis
_LONGEST_NAME = 60  # characters of a run's name in a legend
_LARGEST_SIDE = 40.0  # inches; beyond that cells shrink instead
FEW = 10  # fewer sentences say nothing of a corpus
# Colours, markers and line styles of several runs. The numbers of the latter two, and of all three, have no common
# factor that makes them repeat early: 45 runs differ without colour, 90 with it.
_COLORS = tuple(f"C{number}" for number in range(10))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", ">")
_LINE_STYLES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))


@dataclass(frozen=True)
class LengthRow:
    """Scores of the sentences whose source has `low` <= n < `high` words (`high` None: no limit).

    The four bounds are those of 95 % intervals, None where there are none, as of fewer than `FEW` sentences.
    """

    low: int
    high: int | None
    sentences: int
    bleu: float
    chrf: float
    bleu_low: float | None = None
    bleu_high: float | None = None
    chrf_low: float | None = None
    chrf_high: float | None = None

    @property
    def label(self) -> str:
        """`10–19`, `50+`."""
        return bucket_label(self.low, self.high)

    @property
    def few(self) -> bool:
        """Whether there are too few sentences for an interval, and for a line to lead there."""
        return self.sentences < FEW


@dataclass(frozen=True)
class FrequencyRow:
    """How well words are translated that training saw `low` <= n < `high` times (`high` None: no limit).

    `reference` and `hypothesis` count the words of such a frequency on either side, `matched` those that a sentence
    and its reference share. A rate is None where there is nothing to divide by.
    """

    low: int
    high: int | None
    reference: int
    hypothesis: int
    matched: int
    precision: float | None
    recall: float | None
    f_measure: float | None

    @property
    def label(self) -> str:
        """`0`, `5–9`, `1000+`."""
        return bucket_label(self.low, self.high)


def bucket_label(low: int, high: int | None) -> str:
    """What a range of counts is called: they are whole, so the upper end is shown as part of it."""
    if high is None:
        return f"{low}+"
    return f"{low}" if high == low + 1 else f"{low}–{high - 1}"


def plot_by_length(curves: Mapping[str, Sequence[LengthRow]], path: Path) -> None:
    """Writes a picture (kind by suffix, PNG at 150 dots an inch) of BLEU against source length, a line a system.

    Light bars behind the lines show how many sentences each point stands for, read on the right axis; thin bars at the
    points are their 95 % intervals. Points of fewer than `FEW` sentences are hollow, without an interval, and the line
    stops before them. A system without sentences in some bucket has no point there. The names of several systems are
    below the axes, that of a single one is in the title.

    Args:
        curves: name of the system -> its rows, ascending. Systems may have different buckets.
        path: the file to write; an existing one is replaced in one move.

    Raises:
        ValueError: when there is no row at all.
    """
    buckets = sorted({(row.low, row.high) for rows in curves.values() for row in rows}, key=_bucket_order)
    if not buckets:
        raise ValueError("plot_by_length needs at least one row")
    position = {bucket: number for number, bucket in enumerate(buckets)}
    labels = {(row.low, row.high): row.label for rows in curves.values() for row in rows}
    with _fonts(curves), _drawing():
        figure = _length_figure(curves, position, labels)
    save_figure(figure, path)


def frequency_picture(rows: Sequence[FrequencyRow]) -> bytes:
    """A PNG of the F-measure of words by how often training saw them; the counts of the references are below.

    Raises:
        ValueError: when there is no row.
    """
    if not rows:
        raise ValueError("frequency_picture needs at least one row")
    stream = BytesIO()
    with _drawing():
        _frequency_figure(rows).savefig(stream, format="png", dpi=150)
    return stream.getvalue()


def plot_attention(
    weights: np.ndarray[Any, Any],
    src_words: Sequence[str],
    tgt_words: Sequence[str],
    title: str = "",
    windows: Sequence[tuple[int, int]] | None = None,
) -> Figure:
    """Heat map of attention: a row a target word (top to bottom), a column a source word, dark is much.

    Args:
        weights: [T, S], 0 to 1.
        src_words: S words or pieces. They are shown as they are (no markup is read into them), control characters
            replaced, over-long ones shortened. A character that no font on the machine has is drawn as a box.
        tgt_words: T words or pieces.
        title: shown above, on one line or several.
        windows: first and last source position that each target word could look at, drawn as an outline.

    Raises:
        ValueError: when the shape does not match the words, or there are none.
    """
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != (len(tgt_words), len(src_words)) or weights.size == 0:
        raise ValueError(
            f"weights of shape {weights.shape} do not fit {len(tgt_words)} target and {len(src_words)} source words"
        )
    with _fonts([*src_words, *tgt_words, title]), _drawing():
        figure = _attention_figure(weights, src_words, tgt_words, title)
    if windows:
        _draw_windows(figure.axes[0], windows)
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Writes the figure, kind by suffix; the file appears whole or not at all.

    Raises:
        NmtError: when the file cannot be written.
    """
    with replacing(path) as stream, _drawing():
        figure.savefig(stream, format=path.suffix.lstrip(".").lower() or "png", dpi=150)


def save_pages(figures: Iterable[Figure], path: Path) -> None:
    """Writes a PDF with a figure a page, drawn one after the other; the file appears whole or not at all.

    Raises:
        NmtError: when the file cannot be written.
    """
    from matplotlib.backends.backend_pdf import PdfPages

    with replacing(path) as stream, PdfPages(stream) as pages, _drawing():
        for figure in figures:
            figure.savefig(pages, format="pdf")


@contextmanager
def _drawing() -> Iterator[None]:
    """While it is open, files hold the shapes of their letters: no reader needs the fonts. Nothing is said of boxes."""
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "path", "pdf.fonttype": 3}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def _fonts(texts: Iterable[str]) -> AbstractContextManager[None]:
    """While it is open, new labels take what DejaVu Sans lacks of `texts` from other fonts of the machine."""
    from matplotlib import rc_context

    missing = {ord(character) for text in texts for character in _plain(text, longest=200)} - set(range(127))
    families = []
    for family, file in _installed_fonts().items():
        if not missing:
            break
        found = missing.intersection(_characters(file))
        if found:
            families.append(family)
            missing -= found
    return rc_context({"font.family": list(dict.fromkeys(["DejaVu Sans", *families]))})


@cache
def _installed_fonts() -> dict[str, str]:
    """The machine's fonts, name and file, in the order in which they are asked for a character."""
    from matplotlib import font_manager

    files: dict[str, str] = {}
    for font in sorted(font_manager.fontManager.ttflist, key=lambda font: (font.style != "normal", font.fname)):
        if not font.name.startswith(_NO_FONTS):
            files.setdefault(font.name, font.fname)
    first = [name for name in ("DejaVu Sans", *_FALLBACK_FONTS) if name in files]
    return {name: files[name] for name in dict.fromkeys([*first, *sorted(files)])}


@cache
def _characters(file: str) -> frozenset[int]:
    """The characters that a font has, ASCII aside; none where the file has gone or cannot be read."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(FT2Font(file).get_charmap()) - frozenset(range(127))
    except (OSError, RuntimeError):
        return frozenset()


def _new_figure(width: float, height: float, layout: Literal["constrained"] | None = "constrained") -> Figure:
    """A figure with the Agg canvas; `width` and `height` in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def _length_figure(
    curves: Mapping[str, Sequence[LengthRow]],
    position: Mapping[tuple[int, int | None], int],
    labels: Mapping[tuple[int, int | None], str],
) -> Figure:
    """The figure of `plot_by_length`; `position` is each bucket's place on the x axis."""
    figure = _new_figure(max(6.4, 1.0 + 0.8 * len(position)), 4.2)
    axes = figure.add_subplot()
    _draw_counts(axes, curves, position)
    apart = min(0.08, 0.5 / len(curves))  # so that the intervals of several systems do not hide each other
    lines = []
    for number, rows in enumerate(curves.values()):
        shift = apart * (number - (len(curves) - 1) / 2)
        lines.append(_draw_curve(axes, [position[row.low, row.high] + shift for row in rows], rows, number))
    title = "BLEU by source length"
    if len(curves) == 1:
        [(name, rows)] = curves.items()
        title += f"\n{_plain(name, longest=_LONGEST_NAME)}"
        _write_scores(axes, [position[row.low, row.high] for row in rows], rows)
    axes.set_title(title, parse_math=False)
    every = [row for rows in curves.values() for row in rows]
    axes.set_xticks(range(len(position)), [labels[bucket] for bucket in position])
    axes.set_xlabel("source words" + f" (hollow points: fewer than {FEW} sentences)" * any(row.few for row in every))
    axes.set_ylabel("BLEU" + " (thin bars: 95 % intervals)" * any(_bounds(row) is not None for row in every))
    axes.set_ylim(0, max(10.0, max(map(_top, every)) * 1.15))
    axes.grid(axis="y", alpha=0.3)
    if len(curves) > 1:
        _add_legend(figure, lines, list(curves))
    return figure


def _draw_curve(axes: Axes, places: Sequence[float], rows: Sequence[LengthRow], number: int) -> Line2D:
    """The points, intervals and line of the system with that number; returns the line."""
    color, marker = _COLORS[number % len(_COLORS)], _MARKERS[number % len(_MARKERS)]
    style = _LINE_STYLES[number % len(_LINE_STYLES)]
    scores = [float("nan") if row.few else row.bleu for row in rows]  # the line breaks there
    [line] = axes.plot(places, scores, color=color, marker=marker, linestyle=style)
    few = [(place, row.bleu) for place, row in zip(places, rows, strict=True) if row.few]
    if few:
        axes.plot(*zip(*few), color=color, marker=marker, linestyle="none", markerfacecolor="white")
    intervals = [(place, *bounds) for place, row in zip(places, rows, strict=True) if (bounds := _bounds(row))]
    if intervals:
        x, low, high = zip(*intervals)
        axes.vlines(x, low, high, colors=color, linewidths=1.2, alpha=0.7)
    return line


def _write_scores(axes: Axes, places: Sequence[float], rows: Sequence[LengthRow]) -> None:
    """The scores as numbers above the points."""
    for place, row in zip(places, rows, strict=True):
        axes.annotate(f"{row.bleu:.1f}", (place, _top(row)), xytext=(0, 4), textcoords="offset points", ha="center")


def _bounds(row: LengthRow) -> tuple[float, float] | None:
    """The ends of the bar at a point; None where it has none."""
    return None if row.few or row.bleu_low is None or row.bleu_high is None else (row.bleu_low, row.bleu_high)


def _top(row: LengthRow) -> float:
    """How far up a point and its bar reach."""
    return max(row.bleu, *(_bounds(row) or (0.0,)))


def _add_legend(figure: Figure, lines: Sequence[Line2D], names: Sequence[str]) -> None:
    """The names of the lines below the axes, in as many columns as fit; the figure grows by what they take."""
    width, height = figure.get_size_inches()
    single = _legend(figure, lines, names, columns=1)
    fitting = int(width * figure.dpi / single.get_window_extent().width)
    single.remove()
    extent = _legend(figure, lines, names, columns=max(1, min(fitting, len(names)))).get_window_extent()
    figure.set_size_inches(max(width, extent.width / figure.dpi + 0.1), height + extent.height / figure.dpi)


def _legend(figure: Figure, lines: Sequence[Line2D], names: Sequence[str], columns: int) -> Legend:
    legend = figure.legend(
        lines, [""] * len(lines), loc="outside lower center", ncols=columns, handlelength=3.5, columnspacing=1.5
    )
    # Not as labels, of which those that begin with "_" are left out.
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set_text(_plain(name, longest=_LONGEST_NAME))
        text.set_parse_math(False)
    return legend


def _frequency_figure(rows: Sequence[FrequencyRow]) -> Figure:
    """The figure of `frequency_picture`."""
    figure = _new_figure(max(6.4, 1.0 + 0.8 * len(rows)), 4.2)
    axes = figure.add_subplot()
    places = range(len(rows))
    bars = axes.bar(places, [row.f_measure or 0.0 for row in rows], width=0.6, color="C0", alpha=0.85)
    axes.bar_label(bars, ["–" if row.f_measure is None else f"{row.f_measure:.2f}" for row in rows], padding=2)
    axes.set_xticks(places, [f"{row.label}\n({row.reference:,})" for row in rows])
    axes.set_xlabel("times in training (words of the references)")
    axes.set_ylabel("F-measure")
    axes.set_ylim(0, 1.1)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.set_title("Words by their frequency in training")
    return figure


def _attention_figure(
    weights: np.ndarray[Any, Any], src_words: Sequence[str], tgt_words: Sequence[str], title: str
) -> Figure:
    """The figure of `plot_attention`, its arguments checked.

    Laid out by the sizes of its words: ticks and matplotlib's own layout took most of the time, at every validation.
    """
    figure = _new_figure(3.0, 3.0, layout=None)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0), xticks=[], yticks=[])
    image = axes.imshow(weights, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
    # parse_math: "$" is a character of the text
    across, down = axes.get_xaxis_transform(), axes.get_yaxis_transform()
    above = [
        axes.text(column, 1.0, _plain(word), rotation=90, va="bottom", ha="center", transform=across, parse_math=False)
        for column, word in enumerate(src_words)
    ]
    beside = [
        axes.text(0.0, row, _plain(word), va="center_baseline", ha="right", transform=down, parse_math=False)
        for row, word in enumerate(tgt_words)
    ]
    lines = [_plain(line, longest=200) for line in title.split("\n")]
    heading = axes.set_title("\n".join(lines), y=1.0, pad=0.0, parse_math=False)
    rows, columns = weights.shape
    # Not a grid of minor ticks, which would take a third of the time.
    axes.vlines(np.arange(1, columns) - 0.5, -0.5, rows - 0.5, colors="0.9", linewidths=0.5)
    axes.hlines(np.arange(1, rows) - 0.5, -0.5, columns - 0.5, colors="0.9", linewidths=0.5)
    bar = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    figure.colorbar(image, cax=bar, label="weight")
    _arrange(figure, (axes, bar), above, beside, heading)
    return figure


def _arrange(
    figure: Figure, both: tuple[Axes, Axes], above: Sequence[Text], beside: Sequence[Text], heading: Text
) -> None:
    """Give a heat map, its bar and its texts the places that the sizes of the texts leave; all in inches."""
    axes, bar = both
    margin, gap, cell, smallest, bar_width, bar_numbers = 0.12, 0.08, 0.32, 1.2, 0.15, 0.55
    sizes = [text.get_window_extent() for text in (*above, *beside, heading)]
    column_words, row_words = sizes[: len(above)], sizes[len(above) : -1]
    words_above = max(size.height for size in column_words) / figure.dpi + gap
    words_beside = max(size.width for size in row_words) / figure.dpi + gap
    title_width, title_height = sizes[-1].width / figure.dpi, sizes[-1].height / figure.dpi
    top = margin + title_height + (gap if title_height else 0.0) + words_above
    right = gap + bar_width + bar_numbers + margin
    across = min(max(cell * len(above), smallest), _LARGEST_SIDE - words_beside - margin - right)
    down = min(max(cell * len(beside), smallest), _LARGEST_SIDE - top - margin)
    half = (title_width - across) / 2  # what the title, which is in the middle of the map, needs on each side of it
    left, right = max(words_beside, half) + margin, max(right, half + margin)
    width, height = left + across + right, margin + down + top
    figure.set_size_inches(width, height)
    axes.set_position((left / width, margin / height, across / width, down / height))
    bar.set_position(((left + across + gap) / width, margin / height, bar_width / width, down / height))
    for text in above:
        text.set_y(1.0 + gap / 2 / down)
    for text in beside:
        text.set_x(-gap / across)
    heading.set_y(1.0 + (words_above + gap) / down)


def _draw_windows(axes: Axes, windows: Sequence[tuple[int, int]]) -> None:
    """One outline around the windows of all rows: down their right ends, up their left ends."""
    right = [(last + 0.5, row + side) for row, (_, last) in enumerate(windows) for side in (-0.5, 0.5)]
    left = [(first - 0.5, row + side) for row, (first, _) in enumerate(windows) for side in (-0.5, 0.5)]
    x, y = zip(*right, *left[::-1], right[0])
    axes.plot(x, y, color="C1", linewidth=1.5, clip_on=False)


def _draw_counts(
    axes: Axes, curves: Mapping[str, Sequence[LengthRow]], position: Mapping[tuple[int, int | None], int]
) -> None:
    """Bars of sentence counts on a right axis behind the curves; systems scored on the same test share them."""
    counts = [0] * len(position)
    for rows in curves.values():
        for row in rows:
            place = position[row.low, row.high]
            counts[place] = max(counts[place], row.sentences)
    behind = axes.twinx()
    bars = behind.bar(range(len(counts)), counts, width=0.6, color="0.9")
    behind.bar_label(bars, [str(count) for count in counts], color="0.5", fontsize=8, padding=1)
    # Bars keep to the lower part, away from the curves.
    behind.set_ylim(0, max(counts) * 2.5)
    behind.set_ylabel("sentences", color="0.5")
    behind.tick_params(axis="y", colors="0.5")
    axes.set_zorder(behind.get_zorder() + 1)
    axes.patch.set_visible(False)


def _bucket_order(bucket: tuple[int, int | None]) -> tuple[int, float]:
    low, high = bucket
    return low, float("inf") if high is None else high


def _plain(text: str, longest: int = _LONGEST_LABEL) -> str:
    """Text as a label: what cannot be drawn (line breaks, controls, lone surrogates) replaced, then cut in its middle.

    Names of runs differ at their ends more often than elsewhere, and those of one series begin alike.

    Marks that only steer a text's layout, such as the joiners of Persian and Hindi, are left out.
    """
    steered = "".join(character for character in text if category(character) != "Cf")
    shown = "".join(character if character.isprintable() else "\ufffd" for character in steered)
    if len(shown) <= longest:
        return shown
    start = (longest - 1) // 3
    return f"{shown[:start]}…{shown[len(shown) - (longest - 1 - start) :]}"
