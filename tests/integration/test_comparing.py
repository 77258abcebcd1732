"""`nmt average`, `nmt compare` and scores of other checkpoints, as a user has them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import nmt


@pytest.fixture
def run(workplace: Path, tmp_path: Path) -> Path:
    """A copy of a run, with the data that was prepared for it beside."""
    shutil.copytree(workplace / "runs" / ".nmt-cache", tmp_path / ".nmt-cache")
    return Path(shutil.copytree(workplace / "runs" / "bahdanau", tmp_path / "copy"))


def test_an_average_translates_is_scored_apart_and_does_not_change_the_training(workplace: Path, run: Path) -> None:
    before = {file.name: file.read_bytes() for file in (run / "eval").iterdir()}
    done = nmt("average", "--run", run, "--last", 2, cwd=workplace)
    average = run / "checkpoints" / "average.pt"
    assert done.stdout.decode() == f"{average}\n"
    assert b"step_000016.pt (step 16), step_000024.pt (step 24)" in done.stderr
    text = b"the old dog.\n"
    assert nmt("translate", "--run", run, "--checkpoint", average, cwd=workplace, stdin=text).stdout.count(b"\n") == 1
    nmt("eval", "--run", run, "--checkpoint", average, cwd=workplace)
    assert {name: (run / "eval" / name).read_bytes() for name in before} == before
    stored = json.loads((run / "eval" / "test.average.json").read_text())
    assert (stored["checkpoint"], stored["step"]) == ("checkpoints/average.pt", 24)
    shown = nmt("info", "--run", run, cwd=workplace).stdout.decode()
    assert "Scores of test.average, of checkpoints/average.pt at step 24\n" in shown
    refused = nmt("train", "--resume", "--run-dir", run, "--checkpoint", average, cwd=workplace, check=1)
    assert b"this is an average of checkpoints" in refused.stderr
    nmt("train", "--resume", "--run-dir", run, "--set", "training.max_steps=28", cwd=workplace)
    assert average.exists()
    assert (run / "checkpoints" / "step_000028.pt").exists()


def test_an_evaluation_counts_words_by_their_frequency_in_training(workplace: Path) -> None:
    stored = json.loads((workplace / "runs/bahdanau/eval/test.json").read_text())
    reference = (workplace / "test.de").read_text(encoding="utf-8")
    rows = stored["by_frequency"]
    assert sum(row["reference"] for row in rows) == len(reference.replace(".", " .").split())
    assert rows[-1]["low"] == 100  # seven words in 300 sentences, and the full stop
    assert len(stored["worst"]) == 10
    assert [row["n"] for row in stored["repetition"]] == [1, 2, 3, 4]


def test_compared_runs_have_the_figures_of_sacrebleus_command_line(workplace: Path, tmp_path: Path) -> None:
    runs = ["runs/bahdanau", "runs/luong"]
    files = ["--json", tmp_path / "c.json", "--plot", tmp_path / "c.png", "--html", tmp_path / "c.html"]
    few = ["--resamples", 200, "--trials", 200]
    shown = nmt("compare", *runs, *files, *few, cwd=workplace).stdout.decode()
    found = json.loads((tmp_path / "c.json").read_text())["metrics"]
    systems = [f"{run}/eval/test.hyp.txt" for run in runs]
    command = [sys.executable, "-m", "sacrebleu", "test.de", "-i", *systems, "-m", "bleu", "ter", "-w", "4"]
    options = ["--format", "text", "--paired-bs", "--paired-bs-n", "200"]
    done = subprocess.run([*command, *options], cwd=workplace, capture_output=True, timeout=120, check=True)
    text = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout.decode())
    for metric in ("bleu", "ter"):
        for score in found[metric]["systems"].values():
            assert f"{score['score']:.4f} ({score['mean']:.4f} ± {score['half_width']:.4f})" in text
    p_values = [found[metric]["systems"]["luong"]["p_bootstrap"] for metric in ("bleu", "ter")]
    assert re.findall(r"p = (\d\.\d{4})", text) == [f"{value:.4f}" for value in p_values]
    assert f"{p_values[0]:.4f}" in shown
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert "</html>" in (tmp_path / "c.html").read_text()


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["compare", "runs/luong"], 2, "two runs or more"),
        (["compare", "runs/luong", "runs/luong"], 1, "named twice"),
        (["compare", "runs/luong", "runs/nobody"], 1, "there is no such run"),
        (["compare", "runs/luong", "runs/none", "--src", "test.en"], 2, "--src and --tgt go together"),
        (["compare", "runs/luong", "runs/none", "--plot", "c.jpg"], 2, "does not end in .png"),
        (["compare", "runs/luong", "runs/none", "--json", "runs/none/config.yaml"], 2, "a part of the run"),
        (["compare", "runs/luong", "runs/none", "--json", "runs/none/eval/test.json"], 2, "a part of the run"),
        (["compare", "runs/luong", "runs/none", "--json", "nowhere/c.json"], 1, "cannot be written"),
        (["average", "--run", "runs/luong", "--last", "9"], 1, "9 checkpoints are wanted"),
        (["average", "--run", "runs/luong", "--last", "2", "--best", "2"], 2, "give one of"),
        (["average", "--run", "runs/luong", "--checkpoint", "gone.pt", "--checkpoint", "gone2.pt"], 1, "no such"),
    ],
)
def test_a_mistake_has_one_message(workplace: Path, args: list[str], code: int, message: str) -> None:
    done = nmt(*args, cwd=workplace, check=code)
    text = " ".join(re.sub(r"[│╭╮╰╯─]", " ", done.stderr.decode()).split())
    assert message in text
    assert "Traceback" not in text
    assert done.stdout == b""
