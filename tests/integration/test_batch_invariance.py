"""scripts/batch_invariance.py: a line's translation alone and within a batch; and what the comparison would find."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_demo_corpus import load_script
from tiny import DECODERS

script = load_script("batch_invariance")


def run(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[dict[str, Any], object]:
    with pytest.raises(SystemExit) as ended:
        script.main([str(arg) for arg in args])
    return json.loads(capsys.readouterr().out), ended.value.code


@pytest.mark.parametrize("kind", DECODERS)
def test_a_line_alone_is_translated_as_within_a_batch(
    workplace: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report, code = run(capsys, "--run", workplace / "runs" / kind, "--src", workplace / "train.en", "--lines", 70)
    assert code == 0
    assert [setting["beam"] for setting in report["settings"]] == [1, 3]
    for setting in report["settings"]:
        assert (setting["lines"], setting["batch"], setting["differences"]) == (70, 64, [])
        assert setting["same"] + len(setting["ties"]) == 70
        assert setting["same"] > 60
        assert setting["largest_score_difference"] < 1e-4


def test_int8_rounds_each_line_by_itself(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--run", workplace / "runs/bahdanau", "--precisions", "int8", "--beams", 3)
    report, _ = run(capsys, *options)
    [setting] = report["settings"]
    assert (setting["precision"], setting["lines"]) == ("int8", 30)
    assert setting["same"] >= 29


def test_another_hypothesis_is_a_difference_unless_the_scores_are_equal(workplace: Path) -> None:
    translator = script.Translator.load(script.RunDir.open(workplace / "runs/luong"), device="cpu")
    one, other = (translator.translate([line])[0] for line in ("the red dog.", "the old cat sees the big dog."))
    assert one.text != other.text
    close = replace(other, candidates=(replace(other.candidates[0], score=one.score + 9e-5),))
    far = replace(other, candidates=(replace(other.candidates[0], score=one.score + 2e-4),))
    found = script.Comparison(3, "float32", 64)
    for batched in (one, close, far):
        found.add(one, batched)
    assert (found.lines, found.same) == (3, 1)
    assert [tie.line for tie in found.ties] == [2]
    assert [difference.line for difference in found.differences] == [3]
