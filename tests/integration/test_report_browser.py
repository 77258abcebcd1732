"""The report in a real browser: all of it can be read and reached, nothing is loaded, and no text runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import Page, browser_page, find_browser

from nmt.compare import ChangedSentence, Changes, Comparison, System, comparison_page
from nmt.error_analysis import RepetitionRow, ScoredSentence
from nmt.evaluation import EvaluationResult, evaluation_page
from nmt.plotting import FrequencyRow, LengthRow, frequency_picture
from nmt.report_page import Line, Picture, Section, Sentences, Table, report_page
from nmt.scoring import METRIC_NAMES, Score
from nmt.significance import MetricComparison, SystemScore

SIGNATURE = "nrefs:1|bs:1000|seed:12345|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:2.6.0"
PICTURE = frequency_picture([FrequencyRow(0, None, 1, 1, 1, 1.0, 1.0, 1.0)])
RUNS = ("multi30k-de-en-of-the-first-day", "multi30k_weight_dropout_0.2_seed_2", "x" * 40)
ATTACK = "\"><img src=x onerror=document.title='run'><script>document.title='run'</script></style>"


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    find_browser()
    with browser_page() as tab:
        yield tab


def open_at(page: Page, width: int, content: str, folder: Path, media: str = "") -> None:
    page.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    page.send("Emulation.setEmulatedMedia", media=media)
    file = folder / "report.html"
    file.write_text(content, encoding="utf-8")
    page.open(file)


def lengths() -> tuple[LengthRow, ...]:
    return tuple(LengthRow(low, low + 10, 1400, 42.98, 63.05, 40.18, 45.76, 61.09, 65.02) for low in range(0, 100, 10))


def evaluation(src: str = "de", tgt: str = "pt_BR") -> str:
    """The report of an evaluation with everything that one can hold."""
    words = tuple(FrequencyRow(low, None, 173_550, 178_040, 161_390, 0.787, 0.835, 0.81) for low in (0, 1000))
    result = EvaluationResult(
        split="test", sentences=14_000, checkpoint="checkpoints/best.pt", step=9000,
        metrics={name: Score(41.82, 40.25, 43.33, SIGNATURE) for name in METRIC_NAMES},
        search={"beam_size": 5}, length_limited=0, truncated=0, empty=0, length_ratio=0.985, seconds=10.0,
        by_length=lengths(), by_frequency=words, repetition=(RepetitionRow(1, 0.064, 0.055),),
        worst=(ScoredSentence(402, 12.3, "Ein Hund.", "Um cachorro.", "Um gato."),), pairs_digest="", files={},
        src_lang=src, tgt_lang=tgt,
    )  # fmt: skip
    return evaluation_page("deen", result, PICTURE)


def comparison(src: str = "de", tgt: str = "pt_BR") -> str:
    """The report of a comparison of runs with long names."""
    scores = (
        SystemScore(41.82, 41.79, 1.55, None, None, None, None, None),
        *[SystemScore(40.1, 40.2, 1.6, -1.72, -2.9, -0.5, 0.001, 0.001)] * 2,
    )
    changed = ChangedSentence(402, "Ein Hund.", "Um cachorro.", "Um gato.", "Um cachorro.", 12.3, 100.0)
    compared = Comparison(
        "test", 14_000, "", tuple(System(name, name, 9000, {"beam_size": 5}, ()) for name in RUNS),
        {name: MetricComparison(SIGNATURE, SIGNATURE, scores) for name in METRIC_NAMES},
        {name: lengths() for name in RUNS}, {RUNS[1]: Changes((changed,), ())}, src, tgt,
    )  # fmt: skip
    return comparison_page(compared, PICTURE)


# Texts of cells, headings and notes that are not wholly within the window and what holds them.
OUTSIDE = """[...document.querySelectorAll("th, td, p, li, h3, dt, dd")].filter((element) => {
    const range = document.createRange();
    range.selectNodeContents(element);
    const text = range.getBoundingClientRect(), holder = element.closest("section, header").getBoundingClientRect();
    const inside = text.left >= Math.max(0, holder.left) && text.right <= Math.min(innerWidth, holder.right) + 0.5;
    return element.textContent.trim() && !inside;
}).map((element) => element.textContent)"""


@pytest.mark.parametrize("width", [1000, 500])
@pytest.mark.parametrize("content", [evaluation, comparison])
def test_all_figures_are_inside_the_window(page: Page, tmp_path: Path, content: Callable[[], str], width: int) -> None:
    open_at(page, width, content(), tmp_path)
    assert page.ask(OUTSIDE) == []
    assert page.ask("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("content", [evaluation, comparison])
def test_paper_shows_all_figures(page: Page, tmp_path: Path, content: Callable[[], str]) -> None:
    open_at(page, 718, content(), tmp_path, media="print")  # A4 with margins of 1 cm
    assert page.ask(OUTSIDE) == []
    assert set(page.ask("[...document.querySelectorAll('.table')].map((one) => getComputedStyle(one).overflowX)")) == {
        "visible"
    }


def test_a_signature_is_read_from_the_left_and_copied_as_it_is(page: Page, tmp_path: Path) -> None:
    open_at(page, 500, evaluation(), tmp_path)
    assert page.ask("[...document.querySelectorAll('td.text')].map((one) => getComputedStyle(one).textAlign)") == [
        "left"
    ] * len(METRIC_NAMES)
    assert (
        page.ask("getSelection().selectAllChildren(document.querySelector('td.text')), `${getSelection()}`")
        == SIGNATURE
    )


@pytest.mark.parametrize(("content", "sides"), [(evaluation, 3), (comparison, 4)])
def test_every_sentence_has_the_language_of_its_side(
    page: Page, tmp_path: Path, content: Callable[..., str], sides: int
) -> None:
    languages = "[...document.querySelectorAll('dd')].map((one) => one.closest('[lang]').lang)"
    open_at(page, 1000, content(), tmp_path)
    assert page.ask(languages) == ["de", *["pt-BR"] * (sides - 1)]
    # Of no known language, where the code is no tag: not in English, as the page is.
    open_at(page, 1000, content("multi30k", ATTACK), tmp_path)
    assert page.ask(languages) == [""] * sides
    assert page.ask("document.querySelectorAll('dd')[1].textContent") == "Um cachorro."
    assert page.ask("document.title") != "run"


@pytest.mark.parametrize("content", [evaluation, comparison])
def test_every_column_has_a_heading_and_every_table_a_name(
    page: Page, tmp_path: Path, content: Callable[[], str]
) -> None:
    open_at(page, 1000, content(), tmp_path)
    assert "" not in page.ask("[...document.querySelectorAll('th')].map((one) => one.textContent.trim())")
    names = page.ask("[...document.querySelectorAll('.table[role=region]')].map((one) => one.ariaLabel)")
    assert len(names) == len({*names}) == page.ask("document.querySelectorAll('table').length")
    assert "" not in names


def test_a_table_that_is_too_wide_is_scrolled_by_the_keyboard(page: Page, tmp_path: Path) -> None:
    head = tuple(f"column{number}" for number in range(40))
    open_at(page, 500, report_page("wide", (), (Section("Wide", "", (Table(head, (head,)),)),)), tmp_path)
    page.press("Tab")
    assert page.ask("document.activeElement.ariaLabel") == "Wide: column0"
    page.press("ArrowRight")
    page.wait("document.activeElement.scrollLeft > 0")


def test_the_report_shows_its_pictures_loads_nothing_and_runs_no_text(tmp_path: Path) -> None:
    find_browser()
    parts = (
        Table((ATTACK, ATTACK), ((ATTACK, ATTACK),)),
        Picture(PICTURE, ATTACK),
        Sentences(((ATTACK, (Line(ATTACK, ATTACK, ATTACK),)),)),
    )
    file = tmp_path / "report.html"
    file.write_text(report_page(f"A report, {ATTACK}", (ATTACK,), (Section(ATTACK, ATTACK, parts),)), encoding="utf-8")
    with browser_page() as page:
        page.open(file)
        assert page.ask("document.title") == f"A report, {ATTACK}"
        assert page.ask("[...document.images].map((image) => image.naturalWidth > 100)") == [True]
        assert page.ask("document.scripts.length") == 0
        assert page.ask("getComputedStyle(document.querySelector('section')).borderTopStyle") == "solid"
        assert page.ask("document.querySelector('dd').textContent") == ATTACK
        assert page.ask("document.querySelector('.table').ariaLabel") == f"{ATTACK}: {ATTACK}"
        assert page.complaints == []
        assert [url for url in page.requests if not url.startswith("data:")] == [file.resolve().as_uri()]
