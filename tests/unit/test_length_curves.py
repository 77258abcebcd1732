"""scripts/length_curves.py: one table of several runs, or one message why there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_demo_corpus import load_script

from nmt.plotting import LengthRow
from nmt.scoring import length_csv

length_curves = load_script("length_curves")


def scored(folder: Path, name: str, *borders: int, bleu: float = 30.0) -> str:
    run = folder / name
    (run / "eval").mkdir(parents=True)
    highs = [*borders[1:], None]
    rows = [LengthRow(low, high, 5, bleu, 50.0) for low, high in zip(borders, highs, strict=True)]
    (run / "eval" / "test_by_length.csv").write_text(length_csv(rows), encoding="utf-8")
    return str(run)


def test_several_runs_are_drawn_and_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [scored(tmp_path, "a", 0, 10), scored(tmp_path, "b", 0, 10, bleu=20.0)]
    length_curves.main([*runs, "--out", str(tmp_path / "curves.png")])
    assert capsys.readouterr().out.splitlines() == [
        "| words | a | b |",
        "| --- | ---: | ---: |",
        "| 0–9 | 30.0 | 20.0 |",
        "| 10+ | 30.0 | 20.0 |",
    ]
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("borders", [(0, 20), (0, 10, 20)])
def test_runs_with_different_buckets_are_refused(tmp_path: Path, borders: tuple[int, ...]) -> None:
    runs = [scored(tmp_path, "a", 0, 10), scored(tmp_path, "b", *borders)]
    with pytest.raises(SystemExit, match=r"a has the lengths 0–9, 10\+, and b has .*evaluation\.length_buckets"):
        length_curves.main([*runs, "--out", str(tmp_path / "curves.png")])
    assert not (tmp_path / "curves.png").exists()


def test_a_run_without_scores_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"a/eval/test_by_length\.csv: there is no such file\. Write it with"):
        length_curves.main([str(tmp_path / "a")])


def test_two_runs_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [scored(tmp_path, "x/a", 0), scored(tmp_path, "y/a", 0)]
    with pytest.raises(SystemExit):
        length_curves.main(runs)
    assert "same name" in capsys.readouterr().err
