"""A few hundred cases of scripts/fuzz_text.py, drawn by hypothesis, which makes a failing one small."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_demo_corpus import load_script

fuzz = load_script("fuzz_text")
checks = load_script("fuzz_checks")
inputs = load_script("fuzz_inputs")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        fuzz.without_pictures(patch.setattr)
        yield checks.Workplace.make(tmp_path_factory.mktemp("fuzz"))


def fuzzed(examples: int) -> Any:
    limits = settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    return lambda test: limits(given(rng=st.randoms(use_true_random=False))(test))


@pytest.mark.parametrize("kind", ["text_source", "tsv_source", "jsonl_source", "csv_source"])
@fuzzed(50)
def test_a_source_gives_its_pairs_or_an_error_with_its_place(kind: str, place: Any, rng: random.Random) -> None:
    getattr(checks, kind)(rng, place)


@fuzzed(20)
def test_a_parquet_file_gives_its_pairs_or_an_error_with_its_row(place: Any, rng: random.Random) -> None:
    checks.parquet_source(rng, place)


@fuzzed(20)
def test_translate_gives_a_line_for_each_line_or_an_error_with_its_place(place: Any, rng: random.Random) -> None:
    checks.translate(rng, place)


@pytest.mark.parametrize("command", ["evaluate", "align", "attention"])
@fuzzed(12)
def test_other_commands_lose_no_line_either(command: str, place: Any, rng: random.Random) -> None:
    getattr(checks, command)(rng, place)


def test_preparing_keeps_every_line_of_the_development_set(place: Any) -> None:
    for number in range(3):
        checks.preparing(random.Random(number), place)


def test_the_report_counts_what_happened(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        fuzz.main(["--cases", "6", "--seed", "3", "--json", str(tmp_path / "fuzz.json")])
    report = json.loads((tmp_path / "fuzz.json").read_text())
    assert report == json.loads(capsys.readouterr().out)
    assert ended.value.code == 0
    assert (report["cases"], report["silent_failures"], report["false_errors"], report["crashes"]) == (6, 0, 0, 0)
    assert sum(counts["cases"] for counts in report["checks"].values()) == 6


def test_a_lost_line_is_found(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzzer itself: with a reader that breaks lines where Python does, it fails at once."""
    import nmt.data.text

    monkeypatch.setattr(nmt.data.text, "_split", lambda text: text.splitlines() or [""])
    report = fuzz.Report()
    for number in range(60):
        report.run(checks.text_source, random.Random(number), place, number)
    assert report.silent_failures + report.false_errors > 5
