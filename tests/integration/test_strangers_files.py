"""Attacks by files: a checkpoint, run, configuration or data set of a stranger runs no code, and writes nowhere."""

from __future__ import annotations

import ast
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import nmt
from nmt import cli
from nmt.config import load_config
from nmt.errors import NmtError, printable

RUN = "stranger"
ESCAPE = "\x1b]0;owned\x07\x1b[2J"


def run(*args: object) -> Any:
    return CliRunner().invoke(cli.app, [str(arg) for arg in args])


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def place(workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder `here`, in which commands run, with a copy of a run, `stranger`; beside it is what is not theirs."""
    here = tmp_path / "here"
    shutil.copytree(workplace / "runs/bahdanau", here / RUN, ignore=shutil.ignore_patterns("tensorboard"))
    (tmp_path / "precious").write_text("mine")
    monkeypatch.chdir(here)
    return here


def refused(result: Any, part: str) -> None:
    assert result.exit_code == 1, result.stderr
    assert part in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


# --- code -----------------------------------------------------------------------------------------------------------


def attacks(folder: Path, mark: Path) -> dict[str, Path]:
    """Files that make `mark` if anything unpickles them."""
    whole = torch.load(folder / RUN / "checkpoints/best.pt", weights_only=True)
    files = {name: folder / f"{name}.pt" for name in ("raw", "archive", "old", "hidden", "key")}
    files["raw"].write_bytes(pickle.dumps(Payload(mark)))
    torch.save(Payload(mark), files["archive"])
    torch.save(Payload(mark), files["old"], _use_new_zipfile_serialization=False)
    torch.save(whole | {"schedule": {"a": [Payload(mark)]}}, files["hidden"])
    torch.save(whole | {"model": {**whole["model"], "evil": Payload(mark)}}, files["key"])
    return files


def test_the_attacks_work_where_nothing_guards_against_them(place: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for file in attacks(place, mark).values():
        if file.stem == "raw":
            pickle.loads(file.read_bytes())
        else:
            torch.load(file, weights_only=False)
        mark.rmdir()  # was made


def test_no_checkpoint_runs_code(place: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for file in attacks(place, mark).values():
        for command in ("translate", "eval", "align", "attention"):
            text = ["x"] if command in ("translate", "attention") else []
            refused(run(command, "--run", RUN, "--checkpoint", file, *text), f"{file}: this is not a checkpoint of nmt")
        for name, command in (("best.pt", ["info", "--run"]), ("last.pt", ["train", "--resume", "--run-dir"])):
            inside = place / RUN / "checkpoints" / name
            whole = inside.read_bytes()
            inside.unlink()
            shutil.copyfile(file, inside)
            refused(run(*command, RUN), "this is not a checkpoint of nmt")
            inside.unlink()
            inside.write_bytes(whole)
        assert not mark.exists()


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.mkdir [{mark}]",
        "!!python/object/new:os.mkdir [{mark}]",
        "!!python/name:os.system x",
        "!!python/module:os x",
        "!<tag:yaml.org,2002:python/object/apply:os.mkdir> [{mark}]",
    ],
)
def test_no_configuration_runs_code(place: Path, tmp_path: Path, text: str) -> None:
    attack = text.format(mark=tmp_path / "mark")
    config = place / RUN / "config.yaml"
    whole = config.read_text()
    config.write_text(f"{whole}\nmore: {attack}\n")
    refused(run("info", "--run", RUN), "not valid YAML: could not determine a constructor for the tag")
    config.write_text(whole)
    refused(run("prepare", "--config", config, "--set", f"training.seed={attack}"), "not valid YAML")
    assert not (tmp_path / "mark").exists()


def test_a_data_set_runs_no_code(place: Path, tmp_path: Path) -> None:
    folder = place / "hub"
    folder.mkdir()
    mark = tmp_path / "mark"
    script = f"import os\nos.mkdir({str(mark)!r})\nimport datasets\nclass Hub(datasets.GeneratorBasedBuilder): pass\n"
    (folder / "hub.py").write_text(script)
    config = place / RUN / "config.yaml"
    hub = ["prepare", "--config", config, "--set", "data.train={hub: ./hub, split: train}", "--run-dir", "runs/a"]
    refused(run(*hub), "needs a loading script")
    (folder / "train.csv").write_text("en,de\nx,y\n")
    run(*hub)
    assert not mark.exists()
    # `datasets` before 4.5 unpickles files of its reader `pandas`, and takes them from the current folder.
    (place / "train.pkl").write_bytes(pickle.dumps(Payload(mark)))
    hub[4] = "data.train={hub: pandas, split: train}"
    refused(run(*hub), "hub: pandas is the name of a reader of files")
    assert not mark.exists()


def test_the_package_has_no_way_to_run_code_of_a_file() -> None:
    for file in Path(str(nmt.__file__)).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert not names & {"pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle", "runpy"}, file
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            words = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            assert called not in ("eval", "exec", "compile", "__import__", "os.system", "np.load", "yaml.unsafe_load")
            assert "trust_remote_code" not in words
            assert words.get("shell") is None
            if called == "torch.load":
                assert words["weights_only"] == "True"
            if called == "yaml.load":
                assert words["Loader"] == "_Loader"


# --- places ---------------------------------------------------------------------------------------------------------


def outside(place: Path) -> dict[str, bytes]:
    """What lies around the stranger's run, but for what a command was told to write."""
    files = (path for path in place.parent.rglob("*") if path.is_file() and not path.is_symlink())
    return {
        path.relative_to(place.parent).as_posix(): path.read_bytes()
        for path in files
        if not path.is_relative_to(place / RUN) and path.name != "asked.html" and ".nmt-cache" not in path.parts
    }


def test_commands_on_a_run_write_nothing_outside_it(place: Path, workplace: Path) -> None:
    before = outside(place)
    for command in (
        ["translate", "--run", RUN, "the dog."],
        ["info", "--run", RUN],
        ["eval", "--run", RUN, "--beam", "1"],
        ["eval", "--run", RUN, "--src", workplace / "dev.en", "--tgt", "../here/../here/dev.de"],
        ["align", "--run", RUN],
        ["attention", "--run", RUN, "--output", "asked.html", "the dog."],
    ):
        shutil.copyfile(workplace / "dev.de", place / "dev.de")
        result = run(*command)
        (place / "dev.de").unlink()
        assert result.exit_code == 0, result.stderr
    assert outside(place) == before


@pytest.mark.parametrize("name", ["eval", "eval/test.hyp.txt", "eval/test.json", "eval/new"])
@pytest.mark.parametrize("target", ["precious", "folder", "not-there"])
def test_scores_are_not_written_through_a_link_out_of_the_run(place: Path, name: str, target: str) -> None:
    (place.parent / "folder").mkdir()
    (place.parent / "folder/test.json").write_text("mine too")
    path = place / RUN / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(place.parent / target)
    before = outside(place)
    refused_with = run("eval", "--run", RUN, "--beam", "1")
    assert refused_with.exit_code == 1
    assert f"{name}: this link leads out of the run, to {place.parent / target}" in refused_with.stderr
    assert outside(place) == before


@pytest.mark.parametrize("name", ["config.yaml", "meta.json", "metrics.jsonl", "dev", "tensorboard", "tokenizer/x"])
def test_training_does_not_go_on_through_a_link_out_of_the_run(place: Path, name: str) -> None:
    path = place / RUN / name
    moved = place.parent / "moved"
    if path.exists():
        shutil.move(path, moved)
    path.symlink_to(moved)
    before = outside(place)
    refused(run("train", "--resume", "--run-dir", RUN, "--set", "training.max_steps=25"), "leads out of the run")
    assert outside(place) == before


def test_links_inside_a_run_and_to_a_run_are_followed(place: Path) -> None:
    (place / RUN / "eval").rename(place / RUN / "scores")
    (place / RUN / "eval").symlink_to("scores")
    (place / "linked").symlink_to(place / RUN)
    result = run("eval", "--run", "linked", "--beam", "1")
    assert result.exit_code == 0, result.stderr


def test_a_configuration_cannot_name_a_folder_by_a_language(place: Path) -> None:
    for key in ("data.src_lang", "data.tgt_lang"):
        with pytest.raises(NmtError, match="must be a language code"):
            load_config(place / RUN / "config.yaml", [f"{key}=../../x"])


# --- terminals ------------------------------------------------------------------------------------------------------


def test_control_characters_are_spelt_out_in_messages_and_nothing_else_is() -> None:
    assert printable("a\tb\nç 日本 \u200d") == "a\tb\nç 日本 \u200d"
    assert printable("\x1b[2J\x07\x00\x85\r\u202e\ud800") == "\\x1b[2J\\x07\\x00\\x85\\r\\u202e\\ud800"


def test_no_text_of_a_file_drives_the_terminal(place: Path) -> None:
    stranger = place / RUN
    meta = json.loads((stranger / "meta.json").read_text())
    meta |= {f"a{ESCAPE}": ESCAPE, "starts": [{"time": ESCAPE, "command": [ESCAPE]}], "platform": {"x": ESCAPE}}
    (stranger / "meta.json").write_text(json.dumps(meta))
    result = run("info", "--run", RUN)
    assert result.exit_code == 0
    assert "\\x1b]0;owned\\x07" in result.stdout
    assert not set("\x1b\x07") & set(result.stdout + result.stderr)
    (place / "bad.tsv").write_text(f"{ESCAPE}\t\t\n")
    (place / "bad.jsonl").write_text(json.dumps({ESCAPE: 1}) + "\n")
    told = [run("prepare", "--config", stranger / "config.yaml", "--set", "data.train={jsonl: bad.jsonl}")]
    told.append(run("train", "--config", "bahdanau.yaml", "--set", f'"{ESCAPE}"=1'))
    (stranger / "config.yaml").write_text('"a\\e[2J": 1\n')
    told.append(run("info", "--run", RUN))
    for result in told:
        assert result.exit_code == 1
        assert "\\x1b" in result.stderr
        assert not set("\x1b\x07") & set(result.stdout + result.stderr)


# --- damaged models of SentencePiece --------------------------------------------------------------------------------

FUZZ = """
import pathlib, random, sys
from nmt.data.tokenizer import Tokenizer
from nmt.errors import NmtError

whole = pathlib.Path(sys.argv[1]).read_bytes()
file = pathlib.Path("mutated.model")
refused = 0
for number in range(int(sys.argv[2])):
    draw = random.Random(number)
    data = bytearray(whole)
    place = draw.randrange(len(data))
    match number % 5:
        case 0:
            del data[place:]
        case 1:
            for _ in range(draw.choice((1, 3, 30))):
                data[draw.randrange(len(data))] = draw.randrange(256)
        case 2:
            del data[place : place + draw.choice((1, 10, 100))]
        case 3:
            data[place:place] = draw.randbytes(draw.choice((1, 10, 100)))
        case 4:
            data += data[place : place + 200]
    file.write_bytes(data)
    print(number, flush=True)
    try:
        tokenizer = Tokenizer(file)
        ids = tokenizer.encode(["the red dog.", "x 日本"])
        tokenizer.decode(ids)
        tokenizer.encode_spans(["the dog."])
        tokenizer.pieces(range(tokenizer.vocab_size))
    except NmtError:
        refused += 1
print("refused", refused)
"""


def test_a_damaged_sentencepiece_model_is_refused_or_works_and_never_ends_the_process(
    place: Path, workplace: Path
) -> None:
    model = workplace / "runs/bahdanau/tokenizer/joint.model"
    command = [sys.executable, "-c", FUZZ, str(model), "300"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (done.stdout.splitlines()[-1:], done.stderr[-2000:])
    assert int(done.stdout.split()[-1]) > 100
