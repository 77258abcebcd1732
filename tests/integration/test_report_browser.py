"""The report in a real browser: its pictures are shown, nothing is loaded, and no text runs."""

from __future__ import annotations

from pathlib import Path

from browser import browser_page, find_browser

from nmt.plotting import FrequencyRow, frequency_picture
from nmt.report_page import Picture, Section, Sentences, Table, report_page

ATTACK = "\"><img src=x onerror=document.title='run'><script>document.title='run'</script></style>"


def test_the_report_shows_its_pictures_loads_nothing_and_runs_no_text(tmp_path: Path) -> None:
    find_browser()
    parts = (
        Table((ATTACK, ATTACK), ((ATTACK, ATTACK),)),
        Picture(frequency_picture([FrequencyRow(0, None, 1, 1, 1, 1.0, 1.0, 1.0)]), ATTACK),
        Sentences(((ATTACK, ((ATTACK, ATTACK),)),)),
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
        assert page.complaints == []
        assert [url for url in page.requests if not url.startswith("data:")] == [file.resolve().as_uri()]
