"""The page in a real browser: what pointing, choosing and searching change, and that no text runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Page, browser_page, find_browser
from test_attention_command import page_data
from tiny import nmt

from nmt.attention_page import AttendedSentence, AttentionMap, PageHeader, attention_page

ATTACK = "</script><img src=x onerror=document.title='run'><script>document.title='run'</script>"
HEADER = PageHeader(f"Attention of {ATTACK}", "en", "de", "word", ("en → de", ATTACK), (ATTACK,))


@pytest.fixture(scope="module")
def program() -> str:
    return find_browser()


@pytest.fixture
def page(program: str) -> Iterator[Page]:
    with browser_page() as tab:
        yield tab


def candidate(units: list[str], rows: list[list[float]], score: float, **changes: Any) -> AttentionMap:
    values = {"score": score, "log_prob": 2 * score, "length_limited": False, "windows": None} | changes
    return AttentionMap(" ".join(units), (*units, "</s>"), weights=np.array(rows), **values)


def written(folder: Path, *sentences: AttendedSentence) -> Path:
    file = folder / "attention.html"
    file.write_text(attention_page(HEADER, sentences), encoding="utf-8")
    return file


def dog(line: int = 1) -> AttendedSentence:
    best = candidate(["der", "Hund"], [[0.8, 0.2, 0.0], [0.1, 0.85, 0.05], [0.0, 0.25, 0.75]], -0.25)
    second = candidate(["ein", "Hund"], [[0.6, 0.4, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], -0.5)
    return AttendedSentence(line, ("the", "dog", "</s>"), False, (best, second))


def word(side: str, place: int, line: int = 1) -> str:
    return f'#line-{line} .word[data-side="{side}"][data-place="{place}"]'


def shading(page: Page, side: str, line: int = 1) -> list[tuple[str, float, str]]:
    """Of each word of a side: its text, the weight that it is shaded by, the number below it."""
    found = page.ask(f"""[...document.querySelectorAll('#line-{line} .word[data-side="{side}"]')].map((word) => [
        word.firstChild.textContent, Number(getComputedStyle(word).getPropertyValue("--w")), word.lastChild.textContent
    ])""")
    return [(text, weight, number) for text, weight, number in found]


def colours(page: Page, side: str) -> list[str]:
    chosen = f".word[data-side={side}]"
    found = page.ask(f'[...document.querySelectorAll("{chosen}")].map((one) => getComputedStyle(one).backgroundColor)')
    return list(found)


def assert_quiet(page: Page, file: Path) -> None:
    """Nothing but the file itself was asked for, nothing was complained of, no text ran."""
    assert [url for url in page.requests if not url.startswith("data:")] == [file.resolve().as_uri()]
    assert page.complaints == []
    assert page.ask("document.title") == HEADER.title


def test_pointing_at_a_word_shades_the_words_of_the_other_side_by_their_weights(page: Page, tmp_path: Path) -> None:
    file = written(tmp_path, dog())
    page.open(file)
    page.wait("document.querySelectorAll('.word').length === 6")
    plain = colours(page, "s")
    assert len(set(plain)) == 1

    page.hover(word("t", 1))
    assert shading(page, "s") == [("the", 0.1, "0.10"), ("dog", 0.85, "0.85"), ("</s>", 0.05, "0.05")]
    shaded = colours(page, "s")
    assert len({*shaded, *plain}) == 4
    assert page.ask("document.querySelector('.detail').textContent") == "Hund ← dog 0.850 · the 0.100 · </s> 0.050"
    assert page.ask("document.querySelector('.map text.chosen').textContent") == "Hund"

    page.hover(word("s", 1))
    assert shading(page, "t") == [("der", 0.2, "0.20"), ("Hund", 0.85, "0.85"), ("</s>", 0.25, "0.25")]
    assert shading(page, "s") == [("the", 0, ""), ("dog", 0, ""), ("</s>", 0, "")]

    page.hover("h1")
    assert colours(page, "s") == plain
    assert_quiet(page, file)


def test_the_keyboard_does_what_pointing_does(page: Page, tmp_path: Path) -> None:
    page.open(written(tmp_path, dog()))
    page.wait("document.querySelectorAll('.word').length === 6")
    page.ask("document.querySelector('#maps').focus()")
    for _ in range(2):  # the line's link, then its first word
        page.press("Tab")
    assert page.ask("document.activeElement.firstChild.textContent") == "the"
    assert shading(page, "t")[0] == ("der", 0.8, "0.80")
    page.press("ArrowDown")
    page.press("ArrowRight")
    assert page.ask("document.activeElement.firstChild.textContent") == "Hund"
    assert shading(page, "s")[1] == ("dog", 0.85, "0.85")
    page.press("Escape")
    assert shading(page, "s")[1] == ("dog", 0, "")


def test_a_click_holds_a_word(page: Page, tmp_path: Path) -> None:
    page.open(written(tmp_path, dog()))
    page.wait("document.querySelectorAll('.word').length === 6")
    page.click(word("t", 0))
    page.hover(word("t", 1))
    assert shading(page, "s")[1] == ("dog", 0.85, "0.85")
    page.hover("h1")
    assert shading(page, "s")[0] == ("the", 0.8, "0.80")
    page.click(word("t", 0))
    page.ask("document.activeElement.blur()")
    assert shading(page, "s")[0] == ("the", 0, "")


def test_choosing_another_translation_changes_words_and_map(page: Page, tmp_path: Path) -> None:
    file = written(tmp_path, dog())
    page.open(file)
    page.wait("document.querySelectorAll('.candidates input').length === 2")
    assert page.ask("[...document.querySelectorAll('.candidates .num')].map((one) => one.textContent)") == [
        "−0.250", "−0.500",
    ]  # fmt: skip
    cells = page.ask("document.querySelectorAll('.map .cell').length")
    assert cells == 7
    page.click('.candidates input[value="1"]')
    assert [text for text, _, _ in shading(page, "t")] == ["ein", "Hund", "</s>"]
    assert page.ask("document.querySelectorAll('.map .cell').length") == 4
    assert page.ask("document.querySelector('.score').textContent") == "score −0.500"
    page.hover(word("t", 0))
    assert shading(page, "s")[:2] == [("the", 0.6, "0.60"), ("dog", 0.4, "0.40")]
    assert_quiet(page, file)


def test_pointing_at_the_map_shows_that_cell(page: Page, tmp_path: Path) -> None:
    page.open(written(tmp_path, dog()))
    page.wait("document.querySelector('.map .ground') !== null")
    page.hover(".map .ground")  # its middle is the second row's second column
    assert page.ask("document.querySelector('.detail').textContent").startswith("Hund ← dog 0.850")
    assert page.ask("[...document.querySelectorAll('.word.chosen')].map((one) => one.firstChild.textContent)") == [
        "dog", "Hund",
    ]  # fmt: skip


def test_text_with_markup_is_shown_and_does_nothing(page: Page, tmp_path: Path) -> None:
    odd = candidate([ATTACK, "مرحبا"], [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], -1.0)
    file = written(tmp_path, AttendedSentence(1, (ATTACK, "</s>"), True, (odd, odd)))
    page.open(file)
    page.wait("document.querySelectorAll('.word').length === 5")
    page.hover(word("t", 0))
    assert shading(page, "s")[0] == (ATTACK, 1, "1.00")
    assert page.ask("document.querySelector('h1').textContent") == HEADER.title
    assert page.ask("document.querySelectorAll('img, script:not([id]):not(:last-of-type)').length") == 0
    page.type(ATTACK)
    assert_quiet(page, file)


def test_the_policy_stops_a_script_that_got_in_after_all(page: Page, tmp_path: Path) -> None:
    page.open(written(tmp_path, dog()))
    page.ask("""(() => {
        const element = document.createElement("div");
        element.innerHTML = "<img src='data:,' onerror=\\"document.title='run'\\">";
        const script = document.createElement("script");
        script.textContent = "document.title = 'run'";
        document.body.append(element, script);
        return new Promise((done) => setTimeout(done, 300));
    })()""")
    assert page.ask("document.title") == HEADER.title
    assert any("Content Security Policy" in complaint for complaint in page.complaints)


def test_the_search_box_and_the_order_change_what_is_shown(page: Page, tmp_path: Path) -> None:
    cat = candidate(["Katze"], [[0.9, 0.1], [0.1, 0.9]], -0.1)
    page.open(written(tmp_path, dog(1), AttendedSentence(5, ("cat", "</s>"), False, (cat,))))
    page.wait("document.querySelectorAll('.word').length === 10")
    shown = "[...document.querySelectorAll('article:not([hidden])')].map((one) => one.id)"
    assert page.ask(shown) == ["line-1", "line-5"]
    page.ask("document.querySelector('#find').focus()")
    page.type("KATZ")
    assert page.ask(shown) == ["line-5"]
    assert page.ask("document.querySelector('#count').textContent") == "1 of 2 sentences"
    page.type("x")
    assert page.ask(shown) == []
    assert page.ask("document.querySelector('#nothing').hidden") is False
    choose = (
        "const sort = document.querySelector('#sort'); sort.value = 'best'; sort.dispatchEvent(new Event('change'))"
    )
    page.ask(f"document.querySelector('#find').select(); {choose}")
    page.type("a")  # in "Attention" of neither, in "cat" and no word of the dog
    assert page.ask(shown) == ["line-5"]
    page.ask("document.querySelector('#find').value = ''")
    page.ask("document.querySelector('#find').dispatchEvent(new Event('input'))")
    assert page.ask(shown) == ["line-5", "line-1"]


def test_a_page_of_hundreds_draws_what_is_near_the_screen(page: Page, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    words = [f"word{number}" for number in range(24)]
    many = [
        AttendedSentence(
            line, (*words, "</s>"), False, (candidate(words, rng.dirichlet(np.ones(25), 25).tolist(), -1.0),)
        )
        for line in range(1, 501)
    ]
    file = written(tmp_path, *many)
    page.open(file)
    page.wait("document.querySelectorAll('#line-1 .word').length === 50")
    assert page.ask("document.querySelectorAll('article').length") == 500
    assert page.ask("document.querySelectorAll('article .word').length") < 50 * 20
    page.ask("document.querySelector('#line-400').scrollIntoView()")
    page.wait("document.querySelectorAll('#line-400 .map .cell').length > 0")
    assert page.ask("document.querySelectorAll('article .word').length") < 50 * 60
    assert_quiet(page, file)


@pytest.mark.parametrize(
    ("codes", "tags"), [(("pt_BR", "de"), ("pt-BR", "de")), (('e"n', ATTACK), ("", ""))], ids=["tags", "no tags"]
)
def test_every_text_has_the_language_of_its_side(
    page: Page, tmp_path: Path, codes: tuple[str, str], tags: tuple[str, str]
) -> None:
    file = tmp_path / "attention.html"
    header = PageHeader(HEADER.title, *codes, "word", (), ())
    file.write_text(attention_page(header, [dog()]), encoding="utf-8")
    page.open(file)
    page.wait("document.querySelectorAll('.word').length === 6")
    page.hover(word("t", 1))
    found = page.ask("""[...document.querySelectorAll('.unit, bdi, .map text')].map((one) => [
        one.textContent, one.closest("[lang]").getAttribute("lang"), one.matches(":lang(en)")
    ])""")
    assert not any(english for *_, english in found)
    languages = {(text, tag) for text, tag, _ in found if text != "</s>"}
    assert languages == {
        *((text, tags[0]) for text in ("the", "dog")),
        *((text, tags[1]) for text in ("der", "Hund", "der Hund", "ein Hund")),
    }
    assert page.ask("[...document.querySelectorAll('.side')].map((one) => one.textContent)") == [*codes]
    assert_quiet(page, file)


def test_a_wide_map_is_scrolled_by_the_keyboard_and_fits_on_paper(page: Page, tmp_path: Path) -> None:
    wide = candidate(["Hund"], np.full((2, 80), 1 / 80).tolist(), -1.0)
    page.send("Emulation.setDeviceMetricsOverride", width=718, height=900, deviceScaleFactor=1, mobile=False)
    page.open(written(tmp_path, AttendedSentence(1, ("dog",) * 80, False, (wide,))))
    page.wait("document.querySelector('.map svg') !== null")
    page.ask("[...document.querySelectorAll('.word')].at(-1).focus()")
    page.press("Tab")
    assert page.ask("document.activeElement.ariaLabel") == "heat map of line 1"
    page.press("ArrowRight")
    page.wait("document.activeElement.scrollLeft > 0")
    page.send("Emulation.setEmulatedMedia", media="print")
    assert page.ask("document.querySelector('.map svg').getBoundingClientRect().right") <= 718


def test_the_page_fits_a_phone(page: Page, tmp_path: Path) -> None:
    page.send("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=2, mobile=True)
    long = candidate(["x" * 300, *"abcdefgh"], np.full((10, 3), 1 / 3).tolist(), -1.0)
    page.open(written(tmp_path, AttendedSentence(1, ("the", "dog", "</s>"), False, (long,))))
    page.wait("document.querySelectorAll('.word').length === 13")
    assert page.ask("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_colour_schemes_can_be_read(page: Page, tmp_path: Path, scheme: str) -> None:
    page.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    steps = np.linspace(0, 1, 26)
    shades = candidate(["Hund"], [steps.tolist(), (1 - steps).tolist()], -1.0)
    page.open(written(tmp_path, AttendedSentence(1, ("x",) * 25 + ("</s>",), False, (shades,))))
    page.wait("document.querySelectorAll('.word').length === 28")
    for place in range(2):
        page.hover(word("t", place))
        assert min(page.ask(CONTRAST)) >= 4.5  # WCAG 2, AA


CONTRAST = """[...document.querySelectorAll('.word')].map((word) => {
    const canvas = document.createElement("canvas").getContext("2d");
    const light = (colour) => {
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
        const [red, green, blue] = [...canvas.getImageData(0, 0, 1, 1).data].map((value) => linear(value / 255));
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const style = getComputedStyle(word);
    const [one, other] = [light(style.color), light(style.backgroundColor)];
    return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
})"""


def test_the_windows_of_a_local_model_are_outlined(page: Page, workplace: Path, tmp_path: Path) -> None:
    window = "model.decoder.window={kind: monotonic, half_width: 2}"
    args = ("--config", "luong.yaml", "--run-dir", tmp_path / "local", "--set", "training.max_steps=2")
    nmt("train", *args, "--set", window, cwd=workplace)
    nmt("attention", "the red dog.", "--run", tmp_path / "local", "--pieces", "--n-best", 2, cwd=tmp_path)
    file = tmp_path / "attention.html"
    [entry] = page_data(file)["sentences"]
    page.open(file)
    page.wait("document.querySelector('.map .window') !== null")
    corners = page.ask("document.querySelector('.map .window').getAttribute('d').split('L').length")
    assert corners == 4 * len(entry["c"][0]["t"])
    page.hover(word("t", 0))
    outside = "[...document.querySelectorAll('.word[data-side=s]')].map((one) => one.classList.contains('outside'))"
    assert page.ask(outside) == [place > 2 for place in range(len(entry["s"]))]
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith("data:")] == [file.resolve().as_uri()]
