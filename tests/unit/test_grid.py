"""scripts/grid.py: a row for each experiment as it ends, none twice, failures kept."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from test_demo_corpus import load_script

grid = load_script("grid")

EXPERIMENTS = {"base": [], "r_drop": ["training.r_drop=3"]}


class Nmt:
    """What the commands write, without their work: the first experiment's BLEU is higher, some fail."""

    def __init__(self, folder: Path, failing: str = "nothing") -> None:
        self.folder, self.failing, self.calls = folder, failing, [[""]][:0]

    def __call__(self, args: Sequence[str]) -> str | None:
        self.calls.append(list(args))
        run = Path(args[args.index("--run-dir" if args[0] == "train" else "--run") + 1])
        if self.failing in run.name:
            return "error: no memory"
        (run / "eval").mkdir(parents=True, exist_ok=True)
        if args[0] == "train":
            shutil.copy(self.folder / "small.yaml", run / "config.yaml")
            (run / "meta.json").write_text(json.dumps({"training_seconds": 90, "steps": 7}))
            return None
        split = args[args.index("--split") + 1]
        score = {"dev": 30.0, "test": 31.0}[split] + ("base" in run.name) + int(run.name[-1])
        (run / "eval" / f"{split}.json").write_text(json.dumps({"metrics": {"bleu": {"score": score}}}))
        (run / "eval" / "test.hyp.txt").write_text("Ein Hund läuft schnell .\nEINE KATZE SCHLÄFT HIER .\n")
        return None


@pytest.fixture
def grid_file(tmp_path: Path) -> Path:
    (tmp_path / "test.src").write_text("A dog runs fast .\nA cat sleeps here .\n")
    (tmp_path / "test.tgt").write_text("Ein Hund läuft schnell .\neine Katze schläft hier .\n")
    data = {side: str(tmp_path / f"test.{side}") for side in ("src", "tgt")}
    settings = {"data": {"src_lang": "en", "tgt_lang": "de", "train": data, "dev": data, "test": data}}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(settings))
    common = ["training.max_steps=7"]
    content = {"config": str(tmp_path / "small.yaml"), "set": common, "seeds": [1, 2], "experiments": EXPERIMENTS}
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(content))
    return tmp_path / "grid.yaml"


def run(file: Path, nmt: Nmt, *more: str) -> list[list[str]]:
    grid.main([str(file), "--out", str(file.parent / "out"), *more], nmt)
    return [line.split("\t") for line in (file.parent / "out" / "experiments.tsv").read_text().splitlines()]


def test_each_experiment_and_seed_has_its_row_and_the_table_their_means(
    grid_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nmt = Nmt(grid_file.parent)
    _, *rows = run(grid_file, nmt)
    assert [row[:2] for row in rows] == [["base", "1"], ["r_drop", "1"], ["base", "2"], ["r_drop", "2"]]
    assert rows[1][2:] == ["training.r_drop=3", "7", "1.5", "31.00", "32.00", "100.00", ""]
    trained = nmt.calls[3]
    assert trained[:3] == ["train", "--config", str(grid_file.parent / "small.yaml")]
    assert trained[-6:] == ["--set", "training.max_steps=7", "--set", "training.r_drop=3", "--set", "training.seed=1"]
    assert capsys.readouterr().out.splitlines()[2] == (
        "| base: as it is | 1, 2 | 7 | 1.5 | 32.50 (32.00 to 33.00) | 33.50 (33.00 to 34.00) | 100.00 |"
    )


def test_what_has_a_row_is_not_trained_again_and_what_was_stopped_is_resumed(grid_file: Path) -> None:
    def cut(args: Sequence[str]) -> str | None:
        if "base-2" in " ".join(args):
            (grid_file.parent / "out" / "base-2").mkdir(parents=True)
            (grid_file.parent / "out" / "base-2" / "config.yaml").touch()
            raise SystemExit("stopped")
        return nmt(args)

    nmt = Nmt(grid_file.parent)
    with pytest.raises(SystemExit):
        run(grid_file, cut)  # type: ignore[arg-type]
    again = Nmt(grid_file.parent)
    assert len(run(grid_file, again)) == 5
    assert [call[0] for call in again.calls] == ["train", "eval", "eval"] * 2
    assert "--resume" in again.calls[0]
    assert "--resume" not in again.calls[3]


def test_a_failure_keeps_a_row_with_its_reason_and_is_tried_again(
    grid_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(grid_file, Nmt(grid_file.parent, failing="r_drop"))
    assert ended.value.code == 1
    assert "failed: error: no memory" in capsys.readouterr().out
    _, *rows = run(grid_file, Nmt(grid_file.parent))
    assert rows[1] == ["r_drop", "1", "training.r_drop=3", "", "", "", "", "", "error: no memory"]
    assert [row[:2] for row in rows[4:]] == [["r_drop", "1"], ["r_drop", "2"]]
    assert all(row[5] for row in rows[4:])


def test_scores_of_other_settings_are_not_taken_for_these(grid_file: Path) -> None:
    run(grid_file, Nmt(grid_file.parent))
    content = yaml.safe_load(grid_file.read_text())
    content["experiments"]["r_drop"] = ["training.r_drop=5"]
    grid_file.write_text(yaml.safe_dump(content))
    with pytest.raises(SystemExit, match=r"r_drop, seed 1, has scores of other settings \(training.r_drop=3\)"):
        run(grid_file, Nmt(grid_file.parent))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"experiments": {"b": "training.r_drop=3"}}, r"experiments.b: must be a list of settings, such as \[tr"),
        ({"experiments": {"b": ["training.r_drop=-3"]}}, r"experiments.b: .*training.r_drop: must be at least 0"),
        ({"experiments": {"b": ["data.test=null"]}}, r"experiments.b: data.test is missing"),
        ({"experiments": {"../b": []}}, r"experiments.../b: a name has letters"),
        ({"experiments": {"..": []}}, r"a name has letters"),
        ({"experiments": ["b"]}, "is no grid"),
        ({"config": "nowhere.yaml"}, "nowhere.yaml"),
        ({"seeds": 1}, r"seeds: must be a list of whole numbers such as \[1, 2, 3\], not 1"),
        ({"seed": [1]}, "unknown key seed; the keys are"),
    ],
)
def test_what_is_no_grid_is_refused_in_one_line(grid_file: Path, changes: dict[str, object], part: str) -> None:
    grid_file.write_text(yaml.safe_dump(yaml.safe_load(grid_file.read_text()) | changes))
    with pytest.raises(SystemExit, match=part) as refused:
        run(grid_file, Nmt(grid_file.parent))
    assert "\n" not in str(refused.value)
    assert not (grid_file.parent / "out").exists()


@pytest.mark.parametrize("text", [None, "[", "3"])
def test_what_is_no_yaml_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "grid.yaml").write_text(text)
    with pytest.raises(SystemExit, match=r"grid\.yaml: (cannot be read|is no grid)"):
        grid.main([str(tmp_path / "grid.yaml"), "--out", str(tmp_path / "out")])


@pytest.mark.parametrize(("code", "stopped"), [(0, False), (1, False), (130, True), (143, True), (-9, True)])
def test_a_training_that_is_stopped_is_no_failure(monkeypatch: pytest.MonkeyPatch, code: int, stopped: bool) -> None:
    ending = f"os.kill(os.getpid(), {-code})" if code < 0 else f"sys.exit({code})"
    program = f"import os, sys; print('error: why', file=sys.stderr, flush=True); {ending}"
    monkeypatch.setattr(grid, "NMT", (sys.executable, "-c", program))
    if stopped:
        with pytest.raises(SystemExit, match="the same command goes on"):
            grid.run_nmt(["train"])
    else:
        assert grid.run_nmt(["train"]) == ("error: why" if code else None)
