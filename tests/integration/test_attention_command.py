"""`nmt attention`, and the heat maps that training writes, on tiny models."""

from __future__ import annotations

import io
import json
import re
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from matplotlib.image import imread
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny import nmt
from typer.testing import CliRunner

from nmt import cli

TEXT = b"the red dog sees the cat.\n\nthe old cat.\n"


def page_data(page: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


@pytest.fixture(scope="module")
def local(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose attention is local: monotonic, three pieces to either side."""
    run = tmp_path_factory.mktemp("local") / "run"
    window = "model.decoder.window={kind: monotonic, half_width: 3}"
    args = ("--config", "luong.yaml", "--run-dir", run, "--set", "training.max_steps=4", "--set", window)
    nmt("train", *args, cwd=workplace)
    return run


@pytest.mark.parametrize("kind", ["bahdanau", "luong"])
def test_a_page_of_several_sentences_is_what_is_written_by_default(workplace: Path, tmp_path: Path, kind: str) -> None:
    run = workplace / "runs" / kind
    done = nmt("attention", "--run", run, "--n-best", 3, cwd=tmp_path, stdin=TEXT)
    assert done.stdout == b"attention.html\n"
    assert b"1 blank line was left out" in done.stderr
    page = (tmp_path / "attention.html").read_text(encoding="utf-8")
    assert f"<title>Attention of {kind}</title>" in page
    for fact in ("en → de", kind, "checkpoints/best.pt", "words", "beam 3", "log p / ((5 + n) / 6)^1"):
        assert fact in page
    sentences = page_data(tmp_path / "attention.html")["sentences"]
    assert [(entry["n"], entry["s"][-2:]) for entry in sentences] == [(1, ["cat.", "</s>"]), (3, ["cat.", "</s>"])]
    for entry in sentences:
        assert len(entry["c"]) == 3
        scores = [candidate["r"] for candidate in entry["c"] if not candidate["l"]]
        assert scores == sorted(scores, reverse=True)
        for candidate in entry["c"]:
            assert candidate["b"] is None
            assert len(candidate["w"]) == len(candidate["t"])
            for row in candidate["w"]:
                assert len(row) == len(entry["s"])
                assert abs(sum(row) - 1000) <= len(row)


def test_the_translations_on_the_page_are_those_of_translate(workplace: Path, tmp_path: Path) -> None:
    run = workplace / "runs/bahdanau"
    wanted = nmt("translate", "--run", run, cwd=tmp_path, stdin=TEXT).stdout.decode().split("\n")
    nmt("attention", "--run", run, "--pieces", cwd=tmp_path, stdin=TEXT)
    sentences = page_data(tmp_path / "attention.html")["sentences"]
    assert [entry["c"][0]["y"] for entry in sentences] == [wanted[0], wanted[2]]
    assert "".join(sentences[0]["s"][:-1]).replace("▁", " ").strip() == "the red dog sees the cat."


def test_given_translations_are_read_instead_of_searched_for(workplace: Path, tmp_path: Path) -> None:
    args = ("--run", "runs/luong", "--input", "dev.en", "--tgt", "dev.de", "--output", tmp_path / "dev.html")
    nmt("attention", *args, "--limit", 5, cwd=workplace)
    sentences = page_data(tmp_path / "dev.html")["sentences"]
    for name, side in (("dev.en", "s"), ("dev.de", "t")):
        lines = (workplace / name).read_text(encoding="utf-8").split("\n")[:5]
        shown = [entry["s"] if side == "s" else entry["c"][0]["t"] for entry in sentences]
        assert shown == [[*line.split(), "</s>"] for line in lines]
    assert "These translations were given" in (tmp_path / "dev.html").read_text(encoding="utf-8")


def test_the_windows_of_local_attention_are_on_the_page(local: Path, tmp_path: Path) -> None:
    nmt("attention", "the red dog sees the cat.", "--run", local, "--pieces", cwd=tmp_path)
    [entry] = page_data(tmp_path / "attention.html")["sentences"]
    last = len(entry["s"]) - 1
    [candidate] = entry["c"]
    wanted = [
        [max(0, min(row, last) - 3), min(last, min(row, last) + 3)] for row in range(len(candidate["w"]))
    ]  # position min(t, S), three to either side
    assert candidate["b"] == wanted
    assert "monotonic window of ±3 pieces" in (tmp_path / "attention.html").read_text(encoding="utf-8")


def test_pictures_are_numbered_by_line_and_listed(workplace: Path, tmp_path: Path) -> None:
    run = workplace / "runs/bahdanau"
    done = nmt("attention", "--run", run, "--output", "map.png", cwd=tmp_path, stdin=TEXT)
    assert done.stdout == b"map-001.png\nmap-003.png\n"
    assert all(imread(tmp_path / name).shape[1] > 200 for name in ("map-001.png", "map-003.png"))
    done = nmt("attention", "the old cat.", "--run", run, "--output", "map.svg", "--pieces", cwd=tmp_path)
    assert done.stdout == b"map.svg\n"
    ElementTree.parse(tmp_path / "map.svg")
    done = nmt("attention", "--run", run, "--output", "map.pdf", cwd=tmp_path, stdin=TEXT)
    assert done.stdout == b"map.pdf\n"
    assert (tmp_path / "map.pdf").read_bytes().count(b"/Type /Page ") == 2


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf", "html"])
def test_no_text_breaks_a_picture(workplace: Path, tmp_path: Path, suffix: str) -> None:
    words = ["猫", "नमस्ते", "مرحبا", "🦜", "$x$", "\x01", "</script>", "\u2028", "</s>", "▁", "x" * 300, "\ufeff"]
    text = "\n".join([" ".join(words), "\x01", "▁", "$"]).encode()
    run = workplace / "runs/bahdanau"
    done = nmt("attention", "--run", run, "--output", f"odd.{suffix}", cwd=tmp_path, stdin=text)
    assert b"Traceback" not in done.stderr
    for name in done.stdout.decode().splitlines():
        assert (tmp_path / name).stat().st_size > 1000


def test_more_lines_than_the_limit_are_told(workplace: Path, tmp_path: Path) -> None:
    args = ("--run", workplace / "runs/bahdanau", "--input", workplace / "dev.en", "--limit", 2)
    done = nmt("attention", *args, cwd=tmp_path)
    assert b"dev.en has more than 2 lines: the first 2 are drawn. --limit" in done.stderr
    assert b"warning" not in done.stderr  # it was asked for
    assert len(page_data(tmp_path / "attention.html")["sentences"]) == 2
    done = nmt("attention", *args[:-1], 20, cwd=tmp_path)
    assert b"the first" not in done.stderr


class Endless(io.RawIOBase):
    """The same line for ever; one who tries to read it to its end gets an error."""

    LINE = b"the old dog.\n"

    def __init__(self) -> None:
        self.reads = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.reads += 1
        assert self.reads < 20
        count = len(buffer) // len(self.LINE)
        buffer[: count * len(self.LINE)] = self.LINE * count
        return count * len(self.LINE)


def run(*args: object) -> Any:
    return CliRunner().invoke(cli.app, ["attention", *map(str, args)])


def test_no_more_is_read_of_a_pipe_than_is_drawn(
    workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(*args: object) -> Any:
        return nullcontext((io.BufferedReader(Endless()), "standard input"))

    monkeypatch.setattr("nmt.cli.attending.text_input", endless)
    page = tmp_path / "a.html"
    monkeypatch.setattr("nmt.cli.attending._MOST", 2)
    options = ("--run", workplace / "runs/luong", "--output", page)
    done = run(*options)
    assert done.exit_code == 0, done.output
    assert "warning: standard input has more than 2 lines: the first 2 are drawn." in done.stderr
    assert len(page_data(page)["sentences"]) == 2
    done = run(*options, "--tgt", workplace / "dev.de")
    assert done.exit_code == 0, done.output
    assert len(page_data(page)["sentences"]) == 2
    (tmp_path / "short").write_text("der Hund\n", encoding="utf-8")
    done = run(*options, "--tgt", tmp_path / "short")
    assert done.exit_code == 1
    assert re.search(r"standard input has more than 2 lines, but \S*short has 1: they must be aligned", done.stderr)


WRONG = [
    (["--run", "runs/none", "the dog."], 1, r"runs/none: a model of kind none has no attention"),
    (["--run", "runs/luong", "the dog.", "--output", "map.gif"], 2, r"'map\.gif' does not end in one of \.html, \.png"),
    (["--run", "runs/luong", "the dog.", "--output", "gone/map.html"], 1, r"gone/map\.html: cannot be written"),
    (["--run", "runs/luong", "the dog.", "--output", "gone/map.png"], 1, r"gone/map\.png: cannot be written"),
    (["--run", "runs/luong", "the dog.", "--output", "a.png", "--n-best", "2"], 2, r"one translation"),
    (["--run", "runs/luong", "the dog.", "--n-best", "4", "--beam", "2"], 2, r"need --beam 4"),
    (["--run", "runs/luong", "--input", "dev.en", "--tgt", "test.de"], 1, r"dev\.en has 20 lines.*test\.de has 30"),
    (
        ["--run", "runs/luong", "--input", "dev.en", "--tgt", "test.de", "--limit", "5"],
        1,
        r"dev\.en has 20 lines, but test\.de has 30",
    ),
    (["--run", "runs/luong", "--input", "test.en", "--tgt", "dev.de", "--limit", "25"], 1, r"30 lines.*dev\.de has 20"),
    (
        ["--run", "runs/luong", "the dog.", "--tgt", "dev.de", "--limit", "1"],
        1,
        r"TEXT has 1 line, but dev\.de has 20",
    ),
    (["--run", "runs/luong", "--input", "dev.en", "--tgt", "dev.de", "--beam", "2"], 2, r"nothing is searched"),
    (["--run", "runs/luong", "the dog.", "--input", "dev.en"], 2, r"not both"),
    (["--run", "runs/luong", " "], 1, r"nothing to draw"),
    (["--run", "runs/luong", "--input", "gone.en"], 1, r"gone\.en: no such file"),
]


@pytest.mark.parametrize(("args", "code", "message"), WRONG, ids=[" ".join(args) for args, _, _ in WRONG])
def test_a_mistake_gets_one_message_and_writes_nothing(
    workplace: Path, args: list[str], code: int, message: str
) -> None:
    before = set(workplace.iterdir())
    done = nmt("attention", *args, cwd=workplace, check=code)
    text = re.sub(r"\s+", " ", re.sub("[│╭╮╰╯─]", " ", done.stderr.decode()))
    assert re.search(message, text)
    assert "Traceback" not in text
    assert done.stdout == b""
    assert set(workplace.iterdir()) == before


# --- training -------------------------------------------------------------------------------------------------------


def heat_maps(run: Path) -> dict[str, list[int]]:
    """The steps of each picture in the run's event files."""
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"images": 0})
    events.Reload()
    found: dict[str, list[int]] = {}
    for tag in events.Tags()["images"]:
        images = events.Images(tag)
        assert all(image.encoded_image_string.startswith(b"\x89PNG") and image.width > 200 for image in images)
        found[tag] = [image.step for image in images]
    return found


@pytest.mark.parametrize("kind", ["bahdanau", "luong"])
def test_each_validation_draws_the_same_sentences(workplace: Path, kind: str) -> None:
    assert heat_maps(workplace / "runs" / kind) == {f"attention/{number}": [8, 16, 24] for number in range(1, 5)}


def test_a_model_without_attention_draws_none(workplace: Path) -> None:
    assert heat_maps(workplace / "runs/none") == {}


def test_a_run_that_stopped_and_went_on_has_each_picture_once(workplace: Path, tmp_path: Path) -> None:
    shutil.copytree(workplace, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("runs"))
    nmt("train", "--config", "luong.yaml", "--set", "training.max_steps=16", cwd=tmp_path)
    run = tmp_path / "runs/luong"
    # As after a kill between the second validation's pictures and its checkpoint: it is done again.
    shutil.copy(run / "checkpoints/step_000008.pt", run / "checkpoints/last.pt")
    nmt("train", "--config", "luong.yaml", "--resume", cwd=tmp_path)
    assert heat_maps(run) == {f"attention/{number}": [8, 16, 24] for number in range(1, 5)}
