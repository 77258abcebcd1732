"""`nmt compare`: stored translations count only where they are what an evaluation would give; test sets must agree."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import nmt.compare
import nmt.console
from nmt.compare import Comparison, cells, compare_runs, comparison_page, write_comparison
from nmt.config import load_config
from nmt.console import show_comparison
from nmt.errors import NmtError
from nmt.evaluation import digest_of_pairs
from nmt.reporting import SilentReporter
from nmt.run_dir import RunDir
from nmt.significance import SystemScore
from nmt.training.foreign import KEYS

PAIRS = [(f"source {n}", f"The reference of number {n} is here") for n in range(12)]
GOOD = [target for _, target in PAIRS]
BAD = [*GOOD[:3], "quite another text <b>", *GOOD[4:9], "", *GOOD[10:]]


def make_run(folder: Path, pairs: list[tuple[str, str]] = PAIRS, settings: str = "") -> RunDir:
    run = RunDir.create(folder)
    for number, side in enumerate(("en", "de")):
        (run.path.parent / f"{folder.name}.{side}").write_text("".join(f"{pair[number]}\n" for pair in pairs))
    files = f"{{src: {folder}.en, tgt: {folder}.de}}"
    run.config.write_text(
        f"data: {{src_lang: en, tgt_lang: de, train: {files}, dev: {files}, test: {files}}}\n"
        f"evaluation: {{metrics: [bleu, chrf], length_buckets: [2, 5]}}\n{settings}"
    )
    torch.save({key: {} for key in KEYS} | {"state": {"step": 7}}, run.best)
    return run


def store(run: RunDir, hypotheses: list[str], name: str = "test", **changes: Any) -> None:
    search = load_config(str(run.config)).search.model_dump(mode="json")
    content = {"checkpoint": "checkpoints/best.pt", "step": 7, "search": search, "pairs_digest": digest_of_pairs(PAIRS)}
    (run.eval / f"{name}.json").write_text(json.dumps(content | changes))
    (run.eval / f"{name}.hyp.txt").write_text("".join(f"{text}\n" for text in hypotheses))


@pytest.fixture
def runs(tmp_path: Path) -> list[RunDir]:
    made = [make_run(tmp_path / "a"), make_run(tmp_path / "b")]
    store(made[0], BAD)
    store(made[1], GOOD)
    return made


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[RunDir]:
    """The runs that were translated anew."""
    found: list[RunDir] = []

    def evaluate(run: RunDir, *_: object, **__: object) -> None:
        found.append(run)
        store(run, GOOD)

    monkeypatch.setattr(nmt.compare, "evaluate_split", evaluate)
    return found


def compare(runs: list[RunDir], **settings: Any) -> Comparison:
    return compare_runs(runs, SilentReporter(), resamples=50, trials=50, **settings)


def test_a_comparison_has_tests_curves_and_changed_sentences(runs: list[RunDir], evaluated: list[RunDir]) -> None:
    found = compare(runs)
    assert evaluated == []
    assert list(found.metrics) == ["bleu", "chrf", "chrf++"]
    base, other = found.metrics["bleu"].systems
    assert other.score == pytest.approx(100)
    assert other.difference == other.score - base.score
    assert {name: [row.sentences for row in rows] for name, rows in found.by_length.items()} == {"a": [12], "b": [12]}
    assert [row.line for row in found.changes["b"].better] == [10, 4]
    assert found.changes["b"].worse == ()
    assert found.changes["b"].better[0].baseline == ""
    assert [system.step for system in found.systems] == [7, 7]


def test_the_first_run_is_the_baseline(runs: list[RunDir], evaluated: list[RunDir]) -> None:
    found = compare(runs[::-1])
    assert [system.name for system in found.systems] == ["b", "a"]
    assert [row.line for row in found.changes["a"].worse] == [10, 4]
    assert len(compare(runs[::-1], changed=1).changes["a"].worse) == 1


STALE = {
    "another checkpoint": {"checkpoint": "checkpoints/last.pt"},
    "an earlier best": {"step": 6},
    "another search": {"search": {"beam_size": 1}},
    "other pairs": {"pairs_digest": "0"},
    "an older version": {"pairs_digest": None},
}


@pytest.mark.parametrize("case", STALE)
def test_translations_of_anything_else_are_made_anew(runs: list[RunDir], evaluated: list[RunDir], case: str) -> None:
    store(runs[0], BAD, **STALE[case])
    assert compare(runs).metrics["bleu"].systems[0].score == pytest.approx(100)
    assert evaluated == [runs[0]]


def test_translations_that_lack_a_line_are_made_anew(runs: list[RunDir], evaluated: list[RunDir]) -> None:
    store(runs[1], GOOD[:-1])
    compare(runs)
    assert evaluated == [runs[1]]


def test_another_test_set_is_refused_with_its_first_line(
    runs: list[RunDir], evaluated: list[RunDir], tmp_path: Path
) -> None:
    other = make_run(tmp_path / "c", [*PAIRS[:4], ("source 4", "changed"), *PAIRS[5:]])
    with pytest.raises(NmtError, match=r"c: its test set is not that of .*a: line 5 differs.*--src and --tgt"):
        compare([runs[0], other])
    shorter = make_run(tmp_path / "d", PAIRS[:-1])
    with pytest.raises(NmtError, match="11 pairs here, 12 there"):
        compare([runs[0], shorter])
    assert evaluated == []


def test_files_take_the_place_of_the_runs_test_sets(
    runs: list[RunDir], evaluated: list[RunDir], tmp_path: Path
) -> None:
    other = make_run(tmp_path / "c", PAIRS[:-1])
    files = {"src": tmp_path / "a.en", "tgt": tmp_path / "a.de"}
    for run in (runs[0], other):
        store(run, GOOD, name="a.en")
    assert compare([runs[0], other], **files).split == "a.en"
    assert evaluated == []


class Listener(SilentReporter):
    """Remembers the warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, text: str) -> None:
        self.warnings.append(text)


def test_runs_that_search_or_translate_otherwise_are_told(runs: list[RunDir], tmp_path: Path) -> None:
    same, other = Listener(), Listener()
    compare_runs(runs, same, resamples=50, trials=50)
    assert same.warnings == []
    greedy = make_run(tmp_path / "c", settings="search: {beam_size: 1}\n")
    greedy.config.write_text(greedy.config.read_text().replace("tgt_lang: de", "tgt_lang: nl"))
    store(greedy, GOOD)
    found = compare_runs([runs[0], greedy], other, resamples=50, trials=50)
    assert other.warnings == [
        "the runs were made to translate different ways: a en to de, c en to nl.",
        "the runs search differently, each as its configuration says, and that may be the difference: "
        "a beam_size 5; c beam_size 1.",
    ]
    assert [system["search"]["beam_size"] for system in found.to_dict()["systems"]] == [5, 1]


def test_what_looks_wrong_with_the_test_set_is_told(tmp_path: Path) -> None:
    pairs = [(source, f"{target} .") for source, target in PAIRS]
    made = [make_run(tmp_path / name, pairs) for name in ("a", "b")]
    for run in made:
        store(run, GOOD, pairs_digest=digest_of_pairs(pairs))
    reporter = Listener()
    compare_runs(made, reporter, resamples=50, trials=50)
    [warning] = reporter.warnings
    assert "look tokenised" in warning


def test_few_sentences_are_compared_by_scores_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = [make_run(tmp_path / name, PAIRS[:3]) for name in ("a", "b")]
    for run, texts in zip(made, (BAD[1:4], GOOD[:3]), strict=True):
        store(run, texts, pairs_digest=digest_of_pairs(PAIRS[:3]))
    reporter = Listener()
    found = compare_runs(made, reporter, resamples=50, trials=50)
    assert reporter.warnings == ["3 sentences are too few for intervals and tests: scores alone are given."]
    show_comparison(found)
    write_comparison(found, *(tmp_path / name for name in ("c.png", "c.json", "c.html")))
    shown = capsys.readouterr().out
    assert not any(sign in shown for sign in ("±", "bootstrap:", "randomisation:"))
    assert "Fewer than 10 sentences are not tested." in (tmp_path / "c.html").read_text()
    other = json.loads((tmp_path / "c.json").read_text())["metrics"]["bleu"]["systems"]["b"]
    assert (other["mean"], other["half_width"], other["p_bootstrap"], other["p_randomisation"]) == (None,) * 4


def test_tiny_p_values_and_differences_are_told_as_such() -> None:
    shown = cells(SystemScore(39.0, 39.0, 1.5, -0.0004, -1.0, 0.0004, 1 / 100_001, 0.00012))
    assert shown == ("39.00", "+0.00", "39.00 ± 1.50", "<0.0001", "0.0001")
    few = SystemScore(39.0, None, None, 1.0, None, None, None, None)
    assert cells(few) == ("39.00", "+1.00", "–", "–", "–")
    baseline = SystemScore(39.0, 39.0, 1.5, None, None, None, None, None)
    assert cells(baseline) == ("39.00", "", "39.00 ± 1.50", "", "")


def test_the_intervals_of_differences_are_told_beside_the_table(
    runs: list[RunDir], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = compare(runs)
    show_comparison(found)
    page = comparison_page(found, b"")
    for name, each in found.metrics.items():
        _, other = each.systems
        assert other.difference_low < other.difference < other.difference_high, name
        text = f"95 % interval of the difference to a: b {other.difference_low:+.2f} to {other.difference_high:+.2f}"
        assert text in page
    assert capsys.readouterr().out.count("95 % interval of the difference to a: b ") == len(found.metrics)


@pytest.mark.parametrize("width", [60, 80, 10_000])
def test_long_names_are_never_cut(
    runs: list[RunDir], tmp_path: Path, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"multi30k-bahdanau-seed{number}" for number in (1, 2, 3)]
    made = [make_run(tmp_path / name) for name in names]
    for run in made:
        store(run, GOOD)
    monkeypatch.setattr(nmt.console, "NO_WIDTH", width)
    show_comparison(compare(made))
    lines = capsys.readouterr().out.splitlines()
    assert "…" not in "".join(lines)
    if width == 10_000:
        return
    # A name is broken between the first line of its row and the next ones: put together it is whole.
    start = next(place for place, line in enumerate(lines) if line.strip() == "BLEU")
    table = lines[start : next(place for place, line in enumerate(lines) if line.startswith("bootstrap:"))]
    column = "".join(line[2:14].strip() for line in table)
    assert all(name in column for name in names)


def test_a_run_named_twice_is_refused_and_equal_names_are_told_apart(runs: list[RunDir], tmp_path: Path) -> None:
    with pytest.raises(NmtError, match="named twice"):
        compare([runs[0], RunDir(runs[0].path / ".." / "a")])
    (tmp_path / "more").mkdir()
    same = make_run(tmp_path / "more" / "a")
    store(same, GOOD)
    assert [system.name for system in compare([runs[0], same]).systems] == ["a", "more/a"]


def test_what_is_written_is_what_was_found(
    runs: list[RunDir], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = compare(runs)
    files = [tmp_path / name for name in ("c.png", "c.json", "c.html")]
    write_comparison(found, *files)
    assert files[0].read_bytes().startswith(b"\x89PNG")
    stored = json.loads(files[1].read_text())
    assert stored == json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert stored["metrics"]["bleu"]["systems"]["b"]["p_bootstrap"] == found.metrics["bleu"].systems[1].p_bootstrap
    assert stored["changed"]["b"]["better"][0]["line"] == 10
    page = files[2].read_text()
    assert "quite another text &lt;b&gt;" in page
    assert "<script" not in page
    assert re.findall('<dd dir="auto" lang="(.*?)">', page) == ["en", "de", "de", "de"] * 2
    assert f"{found.metrics['bleu'].systems[0].score:.2f}" in page
    show_comparison(found)
    shown = capsys.readouterr().out
    assert "quite another text <b>" in shown
    assert found.metrics["chrf++"].randomisation_signature in shown
