"""scripts/grid.py: a row for each experiment as it ends, none twice, failures kept."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from test_demo_corpus import load_script

from nmt.config import config_yaml, load_config

grid = load_script("grid")

OTHERWISE, OTHER_OUT = "Give the experiment another name", "Give the grid another --out."
EXPERIMENTS = {"base": [], "r_drop": ["training.r_drop=3"]}


class Nmt:
    """What the commands write, without their work: the first experiment's BLEU is higher, some fail."""

    def __init__(self, failing: str = "nothing", reason: str = "no memory") -> None:
        self.failing, self.reason, self.calls = failing, f"error: {reason}", [[""]][:0]

    def __call__(self, args: Sequence[str]) -> str | None:
        self.calls.append(list(args))
        run = Path(args[args.index("--run-dir" if args[0] == "train" else "--run") + 1])
        if self.failing in (args[0], run.name[:-2]):
            return self.reason
        (run / "eval").mkdir(parents=True, exist_ok=True)
        if args[0] == "train":
            sets = [value for option, value in pairwise(args) if option == "--set"]
            config = load_config(args[args.index("--config") + 1], sets)
            (run / "config.yaml").write_text(config_yaml(config))
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


def change(file: Path, **changes: object) -> None:
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | changes))


def test_each_experiment_and_seed_has_its_row_and_the_table_their_means(
    grid_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nmt = Nmt()
    _, *rows = run(grid_file, nmt)
    assert [row[:2] for row in rows] == [["base", "1"], ["r_drop", "1"], ["base", "2"], ["r_drop", "2"]]
    of = [str(grid_file.parent / "small.yaml"), "training.max_steps=7", "training.r_drop=3"]
    assert rows[1][2:] == [*of, "7", "1.5", "31.00", "32.00", "100.00", ""]
    trained = nmt.calls[3]
    assert trained[:3] == ["train", "--config", str(grid_file.parent / "small.yaml")]
    assert trained[-6:] == ["--set", "training.max_steps=7", "--set", "training.r_drop=3", "--set", "training.seed=1"]
    assert capsys.readouterr().out.splitlines()[2] == (
        "| base: as it is | 1, 2 | 7 | 1.5 | 32.50 (32.00 to 33.00) | 33.50 (33.00 to 34.00) | 100.00 |"
    )


def test_what_has_a_row_is_not_trained_again_and_what_was_stopped_is_resumed(grid_file: Path) -> None:
    def cut(args: Sequence[str]) -> str | None:
        if "base-2" in " ".join(args):
            nmt(args)
            raise SystemExit("stopped")
        return nmt(args)

    nmt = Nmt()
    with pytest.raises(SystemExit):
        run(grid_file, cut)  # type: ignore[arg-type]
    again = Nmt()
    assert len(run(grid_file, again)) == 5
    assert [call[0] for call in again.calls] == ["train", "eval", "eval"] * 2
    assert "--resume" in again.calls[0]
    assert "--resume" not in again.calls[3]


def test_a_failure_keeps_a_row_with_its_reason_and_is_tried_again(
    grid_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(grid_file, Nmt(failing="r_drop"))
    assert ended.value.code == 1
    assert "failed: error: no memory" in capsys.readouterr().out
    _, *rows = run(grid_file, Nmt())
    assert rows[1][:2] == ["r_drop", "1"]
    assert rows[1][4:] == ["training.r_drop=3", "", "", "", "", "", "error: no memory"]
    assert [row[:2] for row in rows[4:]] == [["r_drop", "1"], ["r_drop", "2"]]
    assert all(row[7] for row in rows[4:])
    assert "failed" not in capsys.readouterr().out


def test_the_table_has_the_last_failure_of_what_has_no_scores(
    grid_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seeds, failing, reason in [([1, 2], "r_drop", "no memory"), ([1], "none", ""), ([1, 2], "r_drop", "no disk")]:
        change(grid_file, seeds=seeds)
        with suppress(SystemExit):
            run(grid_file, Nmt(failing, reason))
    failures = [line for line in capsys.readouterr().out.splitlines()[-5:] if "failed" in line]
    assert failures == ["| r_drop: training.r_drop=3 | 2 | failed: error: no disk | | | | |"]
    _, *rows = run(grid_file, Nmt(), "--table")
    assert [row[-1] for row in rows if row[:2] == ["r_drop", "2"]] == ["error: no memory", "error: no disk"]


@pytest.mark.parametrize(
    ("changes", "who", "others", "way"),
    [
        ({"experiments": {"r_drop": ["training.r_drop=5"]}}, "r_drop", "training.r_drop=3", OTHERWISE),
        ({"experiments": {"base": ["training.r_drop=5"]}}, "base", "none", OTHERWISE),
        ({"set": ["training.max_steps=8"]}, "base", "set: training.max_steps=7", OTHER_OUT),
        ({"set": ["training.max_steps=8"], "seeds": [3]}, "base", "set: training.max_steps=7", OTHER_OUT),
        ({"set": ["training.max_steps=8"], "experiments": {"b": []}}, "base", "set: training.max_steps=7", OTHER_OUT),
        ({"config": "other.yaml"}, "base", "config: small.yaml", OTHER_OUT),
    ],
)
def test_scores_of_other_settings_are_not_taken_for_these(
    grid_file: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], who: str, others: str, way: str
) -> None:
    monkeypatch.chdir(grid_file.parent)
    shutil.copy("small.yaml", "other.yaml")
    change(grid_file, config="small.yaml")
    run(grid_file, Nmt())
    change(grid_file, **changes)
    nmt = Nmt()
    told = f"{who}, seed 1, has scores of other settings ({others}). {way}"
    with pytest.raises(SystemExit, match=re.escape(told)):
        run(grid_file, nmt)
    assert not nmt.calls


def test_a_training_that_was_cut_does_not_go_on_with_other_settings(grid_file: Path) -> None:
    """Nor with those of a file that has changed; where its data lie may."""
    nmt = Nmt(failing="eval")
    with pytest.raises(SystemExit):
        run(grid_file, nmt)
    change(grid_file, set=["training.max_steps=8"])
    again = Nmt()
    with pytest.raises(SystemExit, match=r"base-1: was begun with other settings \(config.yaml has them\). Give"):
        run(grid_file, again)
    change(grid_file, set=["training.max_steps=7"])
    small = grid_file.parent / "small.yaml"
    before = small.read_text()
    small.write_text(before + "model: {dropout: 0.5}\n")
    with pytest.raises(SystemExit, match="base-1: was begun with other settings"):
        run(grid_file, again)
    assert not again.calls
    moved = grid_file.parent / "moved.src"
    shutil.copy(grid_file.parent / "test.src", moved)
    small.write_text(before.replace("test.src", "moved.src"))
    assert len(run(grid_file, again)) == 9
    called = len(again.calls)
    (grid_file.parent / "other.src").write_text(moved.read_text() + "More.\n")
    for other in (before.replace("test.src", "other.src"), before.replace("data:\n", "data:\n  max_length: 7\n")):
        small.write_text(other)
        with pytest.raises(SystemExit, match="base-1: was begun with other settings"):
            run(grid_file, again)
    assert len(again.calls) == called


def test_a_table_of_an_older_version_is_told_and_left(grid_file: Path) -> None:
    old = "name\tseed\tsettings\tsteps\tminutes\tdev\ttest\ttest_lowercased\tnote\nbase\t1\t\t7\t1\t30\t31\t32\t\n"
    rows = grid_file.parent / "out" / "experiments.tsv"
    rows.parent.mkdir()
    for content, told in [
        (old, "is no table of this version of the script, whose columns are .* Give the grid another --out"),
        ("", "is no table of this version"),
        ("\t".join(field.name for field in fields(grid.Row)) + "\nbase\t1\n", "row 2: is damaged. Mend it, or remove"),
    ]:
        rows.write_text(content)
        for more in ([], ["--table"]):
            with pytest.raises(SystemExit, match=f"experiments.tsv.*{told}"):
                run(grid_file, Nmt(), *more)
        assert rows.read_text() == content


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
        ({"seeds": [1, -1]}, r"seeds: --set training.seed: must be at least 0"),
        ({"seeds": [2**63]}, r"seeds: --set training.seed: must be"),
        ({"seed": [1]}, "unknown key seed; the keys are"),
    ],
)
def test_what_is_no_grid_is_refused_in_one_line(grid_file: Path, changes: dict[str, object], part: str) -> None:
    change(grid_file, **changes)
    with pytest.raises(SystemExit, match=part) as refused:
        run(grid_file, Nmt())
    assert "\n" not in str(refused.value)
    assert not (grid_file.parent / "out").exists()


def test_the_example_of_its_help_is_a_grid(tmp_path: Path) -> None:
    example = grid.__doc__.split("as it is):\n")[1].split("\nAn update")[0]
    (tmp_path / "grid.yaml").write_text(example)
    assert list(grid.read_grid(tmp_path / "grid.yaml").experiments) == ["base", "r_drop", "r_drop_short"]


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
