"""scripts/bench_data.py: the text that it generates, and what it says of preparing it."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from test_demo_corpus import load_script

bench_data = load_script("bench_data")
generated_pairs = load_script("generated_pairs")


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def test_generated_pairs_are_the_same_for_the_same_seed(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        generated_pairs.write_pairs(tmp_path, name, 300, seed)
    for side in ("src", "tgt"):
        a, b, c = (lines(tmp_path / f"{name}.{side}") for name in "abc")
        assert a == b
        assert a != c
        assert len(a) == 300


def test_generated_pairs_have_the_faults_that_were_asked_for(tmp_path: Path) -> None:
    faults = generated_pairs.Faults(duplicate=0.1, uneven=0.05, blank=0.05, long=0.02)
    size = generated_pairs.write_pairs(tmp_path, "a", 4000, 1, faults=faults)
    src, tgt = lines(tmp_path / "a.src"), lines(tmp_path / "a.tgt")
    assert size == sum((tmp_path / f"a.{side}").stat().st_size for side in ("src", "tgt"))
    assert 200 < sum(count - 1 for count in Counter(zip(src, tgt)).values() if count > 1) < 600
    assert 100 < tgt.count("") < 300
    assert 40 < sum(len(line.split()) > 200 for line in src) < 120
    words = [len(line.split()) for line in src]
    assert 12 < sorted(words)[len(words) // 2] < 16


def test_frequent_words_are_short_and_follow_zipf(tmp_path: Path) -> None:
    generated_pairs.write_pairs(tmp_path, "a", 4000, 1)
    counts = Counter(word for line in lines(tmp_path / "a.src") for word in line.lower().split() if word != ".")
    ranked = counts.most_common()
    assert 5 < ranked[9][1] / ranked[99][1] < 13
    assert sum(len(word) for word, _ in ranked[:100]) < sum(len(word) for word, _ in ranked[2000:2100])


def test_every_figure_is_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "data.json"
    bench_data.main(
        ["--pairs", "3000", "--vocabulary", "400", "--sample", "400", "--folder", str(tmp_path), "--json", str(file)]
    )
    shown = capsys.readouterr().out
    found = json.loads(file.read_text())["prepare"]
    assert found["pairs"] == 3000 == found["kept"] + sum(found["dropped"].values())
    assert {"too uneven", "duplicate"} <= found["dropped"].keys()
    assert set(found["seconds"]) >= {"counting", "learning", "reading", "encoding", "filtering", "writing", "all"}
    assert f"{found['pairs_per_second']:,.0f} pairs a second" in shown
    assert f"{found['peak_mib']:,.0f} MiB" in shown
    assert found["open"]["bytes_a_pair"] == 8
    assert [path.name for path in tmp_path.iterdir()] == ["data.json"], "nothing is left behind"


def test_numbers_below_one_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_data.main(["--pairs", "0"])
    assert "at least 1" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no other system says so much of a process")
def test_a_command_is_watched_until_it_ends(tmp_path: Path) -> None:
    work = "import sys, time; held = bytearray(100 * 2**20); print('a\\ntraining: 1%', file=sys.stderr, flush=True)"
    found = bench_data.watched([sys.executable, "-c", f"{work}; time.sleep(0.3)"], tmp_path / "log")
    assert 100 < found["anonymous_mib"] < found["peak_mib"] < 150
    assert 0 < found["first_update"] < found["seconds"] - 0.1
    assert "first_update" not in bench_data.watched([sys.executable, "-c", "pass"], tmp_path / "log")
    with pytest.raises(SystemExit, match="no data"):
        bench_data.watched([sys.executable, "-c", "raise SystemExit('no data')"], tmp_path / "log")


def test_what_a_pair_adds_is_between_the_smallest_and_the_largest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def watched(command: list[str], log: Path) -> dict[str, Any]:
        commands.append(command)
        pairs = len(lines(log.parent / "train.src"))
        assert json.loads((log.parent / "small.yaml").read_text())["data"]["train"]["src"].endswith("train.src")
        training = {"first_update": 5.0} if "train" in command else {}
        size = 100 + pairs * (3 if training else 2)
        return {"peak_mib": size, "anonymous_mib": size / 2, "seconds": 1.0} | training

    monkeypatch.setattr(bench_data, "watched", watched)
    monkeypatch.setattr(bench_data, "HELD_OUT", 50)
    file = tmp_path / "data.json"
    given = ["--memory", "30", "10", "20", "--set", "a=b", "--folder", str(tmp_path), "--json", str(file)]
    bench_data.main(given)
    found = json.loads(file.read_text())["memory"]
    assert [(row["pairs"], row["command"]) for row in found["rows"]] == [
        (pairs, command) for pairs in (10, 20, 30) for command in ("prepare", "train")
    ]
    assert all(command[-2:] == ["--set", "a=b"] for command in commands)
    assert found["bytes_a_pair"] == {
        "prepare": {"peak_mib": 2 * 2**20, "anonymous_mib": 2**20},
        "train": {"peak_mib": 3 * 2**20, "anonymous_mib": 1.5 * 2**20},
    }
    assert "5.0 s" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["data.json"]


@pytest.mark.parametrize("given", ["--memory 10", "--memory 10 10", "--memory 0 10", "--memory 10 20 --startup"])
def test_memory_is_compared_at_two_sizes_at_least(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_data.main(given.split())
    assert "two numbers of pairs or more" in capsys.readouterr().err
