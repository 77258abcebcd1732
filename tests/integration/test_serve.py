"""`nmt serve` with a trained run: the translations of `nmt translate`, whoever else asks; the page; the end."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

import pytest
from browser import Page, browser_page, find_browser
from running_server import Server, server
from test_serve_app import served
from tiny import nmt

from nmt.cli import main
from nmt.cli.serving import INSTALL

LINES = [
    "the red dog sees the cat.",
    "",
    "old cat",
    "big " * 12 + "dog.",
    "</s> & <b>",
    "the cat sees the big old dog.",
]

# A request that takes seconds on any machine: hypotheses worth most at their full length, and each sentence a batch.
LONG = "--length-penalty", 5, "--batch-tokens", 1
SLOW = {"text": ["big old dog " * 20] * 40, "beam": 20}


@pytest.fixture(scope="module")
def site(workplace: Path) -> Iterator[Server]:
    with server("--run", "runs/bahdanau", cwd=workplace) as running:
        yield running


def translated(workplace: Path, *options: object) -> list[dict[str, object]]:
    stdin = "".join(f"{line}\n" for line in LINES).encode()
    out = nmt("translate", "--format", "jsonl", *options, cwd=workplace, stdin=stdin).stdout
    return [json.loads(line) for line in out.splitlines()]


def assert_same(found: dict[str, object], wanted: dict[str, object]) -> None:
    assert found["text"] == wanted["text"]
    assert found["alignment"] == wanted["alignment"]
    assert found["score"] == pytest.approx(wanted["score"], abs=1e-4)


# --- translations ---------------------------------------------------------------------------------------------------


def test_translations_are_those_of_nmt_translate(site: Server, workplace: Path) -> None:
    for options, fields in ((("--n-best", 3, "--beam", 4), {"n_best": 3, "beam": 4}), ((), {})):
        status, found = site.ask(text="\n".join(LINES), **fields)
        assert status == 200
        for entry, wanted in zip(found["translations"], translated(workplace, "--run", "runs/bahdanau", *options)):
            assert_same(entry, wanted)
            for one, other in zip(entry["n_best"], wanted["n_best"], strict=True):  # type: ignore[call-overload]
                assert_same(one, other)


def test_many_clients_at_once_each_get_the_translation_of_their_sentence(site: Server) -> None:
    wanted = [site.ask(text=[line])[1]["translations"][0] for line in LINES]
    problems: list[str] = []

    def client(number: int) -> None:
        for turn in range(4):
            place = (number * 5 + turn) % len(LINES)
            try:
                _, found = site.ask(text=[LINES[place]])
                assert_same(found["translations"][0], wanted[place])
            except (AssertionError, OSError, KeyError) as error:
                problems.append(f"{LINES[place]}: {error!r}")

    threads = [threading.Thread(target=client, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


@pytest.mark.parametrize(
    ("host", "status"),
    [("evil.example", 400), ("localhost.evil.example", 400), ("[::1", 400), ("localhost:{}", 200), ("[::1]:{}", 200)],
)
def test_on_loopback_only_its_names_are_answered(site: Server, host: str, status: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
    connection.request("GET", "/health", headers={"Host": host.format(site.port)})
    answer = connection.getresponse()
    assert (answer.status, [*json.loads(answer.read())]) == (status, ["status" if status == 200 else "error"])
    connection.close()


# --- the end --------------------------------------------------------------------------------------------------------


def test_a_signal_lets_requests_finish_and_ends_with_0(workplace: Path) -> None:
    with server("--run", "runs/bahdanau", *LONG, "--grace", 100, cwd=workplace) as site, asked(site, SLOW) as answers:
        site.wait_until_busy()
        os.kill(site.process.pid, signal.SIGTERM)
        assert site.ended() == 0
    assert [status for status, _ in answers] == [200]
    assert site.lines[-1] == "stopped: all requests answered"
    assert not any("big" in line for line in site.lines)


def test_grace_has_an_end_and_an_ensemble_is_served_as_it_translates(workplace: Path) -> None:
    runs = "--run", "runs/none", "--run", "runs/luong", *LONG
    wanted = translated(workplace, *runs, "--beam", 2)
    with server(*runs, "--beam", 2, "--grace", 0, cwd=workplace) as site:
        for entry, other in zip(site.ask(text=LINES)[1]["translations"], wanted, strict=True):
            assert_same(entry, other)
        models = site.ask("/info")[1]["models"]
        assert [(one["name"], one["kind"]) for one in models] == [("none", "none"), ("luong", "luong")]
        with asked(site, SLOW) as answers:
            site.wait_until_busy()
            os.kill(site.process.pid, signal.SIGINT)
            assert site.ended() == 0
        assert answers == [(503, {"error": "The server is shutting down."})]
        assert site.lines[-1] == "stopped: 1 unfinished after 0 s"


def test_a_second_signal_ends_at_once(workplace: Path) -> None:
    with server("--run", "runs/bahdanau", *LONG, "--grace", 100, cwd=workplace) as site, asked(site, SLOW) as answers:
        site.wait_until_busy()
        for _ in range(2):
            os.kill(site.process.pid, signal.SIGINT)
            time.sleep(0.1)
        assert site.ended() == 128 + signal.SIGINT
    assert answers == ["cut off"]
    assert site.lines[-1].startswith("ready: ")


@contextmanager
def asked(site: Server, content: dict[str, object]) -> Iterator[list[object]]:
    """Asks while the block runs; the answer is in the list after it, if not before."""
    answers: list[object] = []

    def ask() -> None:
        try:
            answers.append(site.ask(**content))
        except (OSError, HTTPException):
            answers.append("cut off")

    thread = threading.Thread(target=ask)
    thread.start()
    yield answers
    thread.join()


# --- what is refused ------------------------------------------------------------------------------------------------


def refused(capsys: pytest.CaptureFixture[str], code: int, *options: object) -> str:
    with pytest.raises(SystemExit) as end:
        main(["serve", *map(str, options)])
    assert end.value.code == code
    return " ".join(capsys.readouterr().err.split())


def test_what_cannot_be_served_is_told_in_one_message(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = "--run", workplace / "runs/bahdanau"
    assert "there is no such run" in refused(capsys, 1, "--run", workplace / "runs/no-such")
    assert "there is no such folder" in refused(capsys, 1, "--model", workplace / "exports/no-such")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(capsys, 1, *run, "--port", port)
    assert said == (
        f"error: 127.0.0.1, port {port}: another program listens there. Choose another port with --port, or 0 for any "
        "free one."
    )
    assert "there is no such address here" in refused(capsys, 1, *run, "--host", "no.such.host.invalid")


def test_without_its_packages_the_command_says_how_to_get_them(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        __import__("sys").modules, "nmt.serving.server", None
    )  # what an import of a missing package comes to
    said = refused(capsys, 1, "--run", workplace / "runs/bahdanau")
    assert said.endswith(f"which are not installed: {INSTALL}")


def test_the_packages_are_the_same_wherever_they_are_named() -> None:
    packages = re.findall('"(.+?)"', INSTALL)
    root = Path(__file__).parents[2]
    assert "".join(f'  "{one}",\n' for one in packages) in (root / "pyproject.toml").read_text(encoding="utf-8")
    assert f"$ {INSTALL}\n" in (root / "README.md").read_text(encoding="utf-8")


# --- the page -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    find_browser()
    with browser_page() as tab:
        yield tab


def test_the_page_translates_and_shows_where_words_came_from(site: Server, page: Page) -> None:
    page.open(site.address)
    assert page.ask("document.activeElement.id") == "text"
    page.type("the red dog.\n<img src=x onerror=document.title='run'>")
    page.press("Enter")
    page.wait("document.querySelectorAll('article .map svg').length === 2")
    _, found = site.ask(text="the red dog.", n_best=3, weights="words")
    [entry] = found["translations"]
    texts = "[...document.querySelectorAll('#line-1 .candidates bdi')].map((one) => one.textContent)"
    assert page.ask(texts) == [one["text"] for one in entry["n_best"]]
    assert page.ask("document.querySelector('#line-1 .translation').textContent") == entry["text"]
    languages = "['#text', '.translation', 'bdi'].map((one) => document.querySelector(one).lang)"
    assert page.ask(languages) == ["en", "de", "de"]

    page.hover('#line-1 .word[data-side="t"][data-place="0"]')
    weights = entry["n_best"][0]["weights"]["rows"][0]
    shades = """[...document.querySelectorAll('#line-1 .word[data-side="s"]')].map(
        (word) => Math.round(1000 * getComputedStyle(word).getPropertyValue("--w")))"""
    assert page.ask(shades) == weights
    page.click('#line-1 .candidates input[value="1"]')
    assert page.ask("document.querySelector('#line-1 .translation').textContent") == entry["n_best"][1]["text"]
    limited = [one["length_limited"] for one in entry["n_best"]]
    assert page.ask("document.querySelectorAll('#line-1 .warn').length > 0") == limited[1]

    # The keyboard alone: from the text over the controls to a word, and along it.
    page.ask("document.querySelector('#pieces').focus()")
    for _ in range(2):
        page.press("Tab")
    assert page.ask("document.activeElement.className") == "word chosen"
    page.press("ArrowRight")
    assert page.ask("document.querySelector('.word.chosen').dataset.place") == "1"
    assert page.complaints == []
    assert page.ask("document.title") == "en → de"
    assert {url for url in page.requests if not url.startswith("data:")} == {site.address, f"{site.address}translate"}


def test_the_page_shows_errors_a_cut_and_text_from_right_to_left(site: Server, page: Page) -> None:
    page.open(site.address)
    page.type("a " * 5001)
    page.press("Enter")
    page.wait("!document.querySelector('#error').hidden")
    assert page.ask("document.querySelector('#error').textContent").startswith("text: 10,002 characters, and at most")
    page.complaints.clear()  # the browser notes the status 413

    cut = {"text": "ירוק", "score": -1, "log_prob": -2, "alignment": [], "length_limited": True}
    weights = {"target": ["ירוק", "b"], "rows": [[900, 100], [100, 900]]}
    entry = {**cut, "truncated": True, "source": ["أحمر", "</s>"], "n_best": [{**cut, "weights": weights}]}
    page.ask(f"window.fetch = async () => new Response(JSON.stringify({{translations: [{json.dumps(entry)}]}}))")
    page.ask("document.querySelector('#go').click()")
    page.wait("document.querySelectorAll('.word').length === 4")
    assert page.ask("document.querySelector('#error').hidden")
    warnings = "[...document.querySelectorAll('.about .warn')].map((one) => one.textContent)"
    assert page.ask(warnings) == ["source cut: too long", "stopped at the length limit"]
    left = "[...document.querySelectorAll('.word')].map((word) => word.getBoundingClientRect().x)"
    arabic, end, hebrew, other = page.ask(left)
    assert arabic > end
    assert hebrew > other
    page.ask("document.querySelector('.word').focus()")
    page.press("ArrowLeft")
    assert page.ask("document.activeElement.textContent").startswith("</s>")

    page.ask("window.fetch = async () => { throw new TypeError('gone') }; document.querySelector('#go').click()")
    page.wait("!document.querySelector('#error').hidden")
    assert page.ask("document.querySelector('#error').textContent").startswith("The server cannot be reached.")
    assert page.complaints == []


def test_the_page_of_a_model_without_attention_says_so_and_translates(page: Page) -> None:
    with served(kind="none") as small:
        page.open(f"http://127.0.0.1:{small.port}/")
        page.type("a b\ncut")
        page.press("Enter")
        page.wait("document.querySelectorAll('article').length === 2")
        texts = "[...document.querySelectorAll('.translation')].map((one) => one.textContent)"
        assert page.ask(texts) == ["A B beam 2", "CUT beam 2"]
        assert page.ask("document.querySelectorAll('.word, .map').length") == 0
        assert page.ask("document.querySelectorAll('.candidates input').length") == 4
        page.click('#line-2 .candidates input[value="1"]')
        assert page.ask("document.querySelector('#line-2 .about .warn').textContent") == "stopped at the length limit"
        assert "no attention" in page.ask("document.body.innerText")
        assert page.complaints == []
