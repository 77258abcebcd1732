"""A table of what users do wrong: what is prepared, the command, its exit code, and what the one message must say.

Each message says what is wrong, where, and what to do. Mistakes in single settings are in `test_config_errors.py`.
"""

from __future__ import annotations

import gzip
import json
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from tiny import nmt
from typer.testing import CliRunner

from nmt import cli

FOLDER, GONE = object(), object()  # in place of a file's content
RUN = "runs/bahdanau"
BEST, LAST = f"{RUN}/checkpoints/best.pt", f"{RUN}/checkpoints/last.pt"
MODEL = f"{RUN}/tokenizer/joint.model"
PREPARE = "prepare --config bahdanau.yaml"
TRAIN = "train --config bahdanau.yaml --run-dir new"
RESUME = f"train --resume --run-dir {RUN} --set training.max_steps=26"
TRANSLATE = f"translate --run {RUN}"
EVAL, ALIGN, INFO = f"eval --run {RUN}", f"align --run {RUN}", f"info --run {RUN}"
ATTENTION = f"attention --run {RUN}"
CONFIG = f"{RUN}/config.yaml"


class Row(NamedTuple):
    """A command, the parts of the message, what the files of the workplace become before, and the exit code.

    A content may also be a function that changes the checkpoint of that name.
    """

    command: str
    parts: tuple[str, ...]
    files: Mapping[str, Any] = {}
    code: int = 1


def changed(**parts: Any) -> Any:
    """Return what replaces parts of a checkpoint."""
    return lambda content: content | parts


BAD_BYTE = b"good\nb\xe4d\n"
NESTED = "\n".join(f"{name}: &{name} [{', '.join(['*' + inner] * 9)}]" for inner, name in zip("abcdef", "bcdefg"))

DATA = {
    "no such file": Row(f"{PREPARE} --set data.train.src=gone", ("gone: no such file", "starts at its folder")),
    "a folder for a file": Row(f"{PREPARE} --set data.dev.tgt=runs", ("runs is a folder, a file is needed",)),
    "below a file": Row(f"{PREPARE} --set data.train.src=dev.en/x", ("dev.en/x cannot be read: Not a directory",)),
    "empty file": Row(
        f"{PREPARE} --set 'data.dev={{src: a, tgt: b}}'",
        ("a and", "b: no pairs in it", "data.dev needs at least one"),
        {"a": "", "b": ""},
    ),
    "blank lines alone": Row(
        f"{PREPARE} --set 'data.train={{src: a, tgt: b}}'",
        ("nothing to learn pieces from", "no line with text"),
        {"a": "\n\n", "b": "\n\n"},
    ),
    "shorter than the other side": Row(
        f"{PREPARE} --set data.dev.tgt=test.de", ("dev.en has 20 lines", "test.de has 30", "line n")
    ),
    "not UTF-8": Row(
        f"{PREPARE} --set data.dev.src=bad",
        ("bad, line 2, byte 2 of the line", "0xe4 is not UTF-8", "iconv"),
        {"bad": BAD_BYTE},
    ),
    "cut gzip": Row(
        f"{PREPARE} --set data.dev.src=z",
        ("z is cut off", "Copy or download it again"),
        {"z": gzip.compress(b"a line\n" * 1000)[:-9]},
    ),
    "no gzip": Row(f"{PREPARE} --set data.dev.src=z", ("z is damaged",), {"z": b"\x1f\x8b\x08" + b"a" * 50}),
    "zip": Row(f"{PREPARE} --set data.dev.src=z", ("z is a ZIP archive", "unpack it first"), {"z": b"PK\x03\x04"}),
    "three fields": Row(
        f"{PREPARE} --set 'data.train={{tsv: t}}'",
        ("t, line 2: 3 tab-separated fields, need exactly 2", "cut -f1,2"),
        {"t": "a\tb\na\tb\tc\n"},
    ),
    "no JSON": Row(
        f"{PREPARE} --set 'data.train={{jsonl: t}}'", ("t, line 1: not JSON", "one complete object"), {"t": "{,}\n"}
    ),
    "a number in JSON": Row(
        f"{PREPARE} --set 'data.train={{jsonl: t}}'",
        ("t, line 1: the value of 'en' is 1", "text in quotes"),
        {"t": '{"en": 1, "de": "x"}\n'},
    ),
    "wrong columns": Row(
        f"{PREPARE} --set 'data.train={{csv: t}}'",
        ("t: no column 'en'; there is: a, b", "must name the columns"),
        {"t": "a,b\n1,2\n"},
    ),
    "open quote": Row(
        f"{PREPARE} --set 'data.train={{csv: t}}'",
        ("t, line 2: not valid CSV", "double quotes"),
        {"t": 'en,de\na,"b\n'},
    ),
    "no Parquet": Row(f"{PREPARE} --set 'data.train={{parquet: dev.en}}'", ("dev.en is no Parquet file",)),
    "a pipe": Row(f"{PREPARE} --set 'data.train={{tsv: /dev/null}}'", ("/dev/null is no regular file", "a pipe")),
    "empty hub folder": Row(
        f"{PREPARE} --set 'data.train={{hub: ./hub, split: train}}'",
        ("hub, split train cannot be read", "any data files", "train: {src: train.en"),
        {"hub": FOLDER},
    ),
    "no hub folder": Row(
        f"{PREPARE} --set 'data.train={{hub: ./gone, split: train}}'",
        ("gone: no such folder", "owner/name"),
    ),
    "no such split": Row(
        f"{PREPARE} --set 'data.train={{hub: ./hub, split: valid}}'",
        ('Unknown split "valid"', "train", "Change `split`"),
        {"hub/train.csv": "en,de\na,b\n"},
    ),
    "reader of files": Row(
        f"{PREPARE} --set 'data.train={{hub: csv, split: train}}'",
        ("hub: csv is the name of a reader of files", "{csv: FILE}"),
        {"train.csv": "en,de\na,b\n"},
    ),
    "one file twice": Row(f"{PREPARE} --set data.dev.src=dev.de", ("data.dev: source and target are the same file",)),
    "one column twice": Row(
        f"{PREPARE} --set 'data.train={{csv: t, src_column: de}}'",
        ("data.train: source and target are the same column, de", "src_column and tgt_column"),
    ),
    "empty name": Row(f"""{PREPARE} --set 'data.dev={{tsv: ""}}'""", ("data.dev.tsv: must not be empty",)),
    "NUL in a name": Row(f"""{PREPARE} --set 'data.dev={{tsv: "a\\0"}}'""", ("data.dev.tsv: holds a NUL",)),
    "country for a language": Row(f"{PREPARE} --set data.tgt_lang=cn", ("data.tgt_lang", "write zh, not 'cn'")),
    "alignments of other text": Row(
        f"{PREPARE} --set data.train_alignments=test.en", ("test.en, line 1", "is no link", "0-0 1-2")
    ),
    "too few alignments": Row(
        f"{PREPARE} --set data.train_alignments=a", ("a has 1 line, but data.train has 300 pairs",), {"a": "0-0\n"}
    ),
    "alignment of no word": Row(
        f"{PREPARE} --set data.train_alignments=a",
        ("a, line 1: the link 0-99 names target word 99", "belongs to data.train"),
        {"a": "0-99\n" * 300},
    ),
    "alignments and substitutions": Row(
        f"{PREPARE} --set data.train.substitutions=9 --set data.train_alignments=a",
        ("data.train_alignments: has no lines for the pairs that substitutions adds",),
        {"a": "0-0\n" * 300},
    ),
    "no pair to be made": Row(
        f"{PREPARE} --set 'data.train={{tsv: t, substitutions: 9}}'",
        ("t: no new pair can be made from it", "Leave substitutions out"),
        {"t": "one\teins\ntwo\tzwei\n"},
    ),
    "no new pair to be made": Row(
        f"{PREPARE} --set 'data.train={{tsv: t, substitutions: 9}}'",
        ("t: no new pair can be made from it", "all exchanges are in it already"),
        {"t": "we see dog here\twir sehen Hund hier\nwe see cat here\twir sehen Katze hier\n" * 5},
    ),
    "too many pairs to make others of": Row(
        f"{PREPARE} --set 'data.train={{tsv: t, substitutions: 9}}'",
        ("t: substitutions are made from at most 100,000 pairs", "a part of the corpus"),
        {"t": "a\tb\n" * 100_001},
    ),
    "vocabulary too large": Row(
        f"{PREPARE} --set tokenizer.vocab_size=5000", ("vocab_size is 5,000", "at most", "--set tokenizer.vocab_size=")
    ),
    "vocabulary too small": Row(
        f"{PREPARE} --set tokenizer.vocab_size=9",
        ("vocab_size is 9", "more than", "--set tokenizer.vocab_size=", "character_coverage"),
    ),
    "all pairs too long": Row(
        f"{PREPARE} --set data.max_length=1", ("no training pair is left of 300", "data.max_length (1)")
    ),
}

CONFIGS = {
    "a folder": Row("prepare --config runs", ("runs: this is a folder; --config wants a YAML file",)),
    "text": Row("prepare --config dev.en", ("dev.en: a configuration is a YAML mapping with the sections data",)),
    "no name": Row("prepare --config=", ("--config: the name is empty; give a YAML file",)),
    "a very long name": Row(f"prepare --config {'x' * 300}", ("there is no such file", "bahdanau.yaml")),
    "UTF-16": Row("prepare --config c", ("c, line 1: byte 0xff is not UTF-8", "Save"), {"c": "data:".encode("utf-16")}),
    "a bomb of aliases": Row(
        "prepare --config c",
        ("c, line 6", "not valid YAML", "more than 100,000 values"),
        {"c": f"a: &a [{'x, ' * 9}]\n{NESTED}\ndata: {{train: *g}}\n"},
    ),
    "an alias inside itself": Row(
        "prepare --config c", ("c, line 1, column 15", "inside what it names"), {"c": "data: {train: &a [*a]}\n"}
    ),
    "a tag that does not fit": Row(
        "prepare --config c", ("c, line 1", "'perhaps' is no bool"), {"c": "data: !!bool perhaps\n"}
    ),
    "a date": Row("prepare --config c", ("c, line 1", "not valid YAML", "timestamp"), {"c": "a: !!timestamp 1\n"}),
    "deep": Row("prepare --config c", ("c: not valid YAML", "nested too deep"), {"c": "[" * 3000}),
    "no = in --set": Row(f"{PREPARE} --set training.seed", ("--set training.seed: write it as KEY=VALUE",)),
    "a GPU that is not there": Row(
        f"{TRAIN} --set training.device=cuda:77", ("device cuda:77: torch sees", "--set training.device=auto")
    ),
}

RUNS = {
    "a file": Row("info --run dev.en", ("dev.en: this is a file; a run is a folder",)),
    "another folder": Row("info --run runs", ("runs: this is not the folder of a run", "config.yaml", "nmt train")),
    "no such run": Row("translate --run gone x", ("gone: there is no such run", "--run", "nmt train")),
    "a run is there": Row(f"train --config bahdanau.yaml --run-dir {RUN}", ("a run here already", "--resume")),
    "other files": Row("train --config bahdanau.yaml --run-dir .", ("holds other files", "--run-dir")),
    "a file for the run": Row("train --config bahdanau.yaml --run-dir dev.en", ("dev.en: this is a file", "--run-dir")),
    "resumed with another shape": Row(
        f"{RESUME} --set model.embedding_size=8", ("embedding_size: 16 -> 8", "--run-dir")
    ),
    "empty config": Row(TRANSLATE + " x", ("config.yaml: data: is missing",), {CONFIG: ""}),
    "config of another shape": Row(
        TRANSLATE + " x",
        ("best.pt: the weights are of a model of another shape", "config.yaml"),
        {BEST: BEST.replace("bahdanau", "none")},
    ),
    "no best checkpoint": Row(TRANSLATE + " x", ("no best checkpoint yet", "--resume", "--checkpoint"), {BEST: GONE}),
    "empty checkpoint": Row(TRANSLATE + " x", ("best.pt: this is not a checkpoint", "last.pt"), {BEST: b""}),
    "cut checkpoint": Row(
        TRANSLATE + " x", ("best.pt: this is not a checkpoint", "damaged"), {BEST: b"PK\x03\x04" * 9}
    ),
    "no such checkpoint": Row(
        TRANSLATE + " --checkpoint gone x",
        ("gone: there is no such checkpoint", f"{RUN}/checkpoints has best.pt, last.pt"),
    ),
    "text for a checkpoint": Row(TRANSLATE + " --checkpoint dev.en x", ("dev.en: this is not a checkpoint of nmt",)),
    "folder for a checkpoint": Row(
        TRANSLATE + " --checkpoint runs x", ("runs: there is no such checkpoint", f"{RUN}/checkpoints has best.pt")
    ),
    "no weights": Row(TRANSLATE + " x", ("best.pt", "another shape"), {BEST: changed(model={})}),
    "text for weights": Row(TRANSLATE + " x", ("best.pt", "not a checkpoint of nmt"), {BEST: changed(model="x")}),
    "damaged tokenizer": Row(TRANSLATE + " x", ("joint.model is no SentencePiece model",), {MODEL: b"x" * 100}),
    "empty tokenizer": Row(TRANSLATE + " x", ("joint.model is no SentencePiece model",), {MODEL: b""}),
    "no tokenizer": Row(TRANSLATE + " x", ("no such file; it should hold the SentencePiece model",), {MODEL: GONE}),
    "damaged metrics": Row(INFO, ("metrics.jsonl, line 1", "Remove or mend"), {f"{RUN}/metrics.jsonl": "nope\n"}),
    "damaged meta": Row(INFO, ("meta.json: not valid JSON", "Remove it"), {f"{RUN}/meta.json": "{"}),
    "damaged scores": Row(INFO, ("eval/test.json: not a JSON object",), {f"{RUN}/eval/test.json": "[]"}),
}

TEXTS = {
    "no input": Row(TRANSLATE + " --input gone", ("gone: no such file",)),
    "input is a folder": Row(TRANSLATE + " --input runs", ("runs is a folder, a file is needed",)),
    "folder of the output": Row(TRANSLATE + " --input dev.en --output gone/x", ("gone/x: cannot be written",)),
    "output is a folder": Row(TRANSLATE + " --input dev.en --output runs", ("runs: this is a folder; name a file",)),
    "coverage without attention": Row(
        "translate --run runs/none --coverage-penalty 0.2 x", ("runs/none: a model of kind none has no attention",)
    ),
    "choice of one": Row(
        TRANSLATE + " --rerank mbr --beam 1 x",
        ("search.rerank: mbr chooses among a beam's translations, and beam_size is 1: use a beam of 2 or more",),
    ),
    "bad byte in the middle": Row(
        TRANSLATE + " --input bad --output out", ("bad, line 2, byte 2", "is not UTF-8"), {"bad": BAD_BYTE}
    ),
    "no such split": Row(EVAL + " --split ../x", ("There is no split '../x'", "test, dev or train", "--src and --tgt")),
    "no split's name": Row(EVAL + " --split=", ("There is no split ''", "test, dev or train")),
    "files of unequal length": Row(EVAL + " --src dev.en --tgt test.de", ("dev.en has 20 lines and test.de has 30",)),
    "nothing to score": Row(EVAL + " --src a --tgt b", ("a: there is no sentence to score",), {"a": "", "b": ""}),
    "file for eval/": Row(EVAL, (f"{RUN}/eval: this is a file", "Move the file away"), {f"{RUN}/eval": b"x"}),
    "folder for scores": Row(EVAL, ("test.json: this is a folder",), {f"{RUN}/eval/test.json": FOLDER}),
    "alignment without attention": Row("align --run runs/none", ("runs/none: a model of kind none has no attention",)),
    "same direction twice": Row(
        ALIGN + " --reverse-run runs/none", ("runs/none en to de", "--reverse-run needs a run from de to en")
    ),
    "gold of other pairs": Row(ALIGN + " --gold a", ("a has 1 lines and test has 30 pairs",), {"a": "0-0\n"}),
    "gold without a link": Row(ALIGN + " --gold a", ("a: every line is blank",), {"a": "\n" * 30}),
    "gold that is text": Row(ALIGN + " --gold test.en", ("test.en, line 1", "is no link")),
    "gold of no word": Row(
        ALIGN + " --gold a", ("a, line 1", "word 99 of the target", "--gold-base"), {"a": "0-99\n" * 30}
    ),
    "gold from 0": Row(
        ALIGN + " --gold a --gold-base 1", ("a, line 1: 0-1 names a word 0", "counts them from 0"), {"a": "0-1\n" * 30}
    ),
    "words of other text": Row(
        ALIGN + " --src dev.en --tgt dev.de --src-words dev.de", ("dev.de, line 1: the word", "must spell the text")
    ),
    "nothing to draw": Row(ATTENTION + " --input a", ("nothing to draw", "Give a sentence"), {"a": "\n\n"}),
    "maps without attention": Row("attention --run runs/none x", ("a model of kind none has no attention",)),
    "unequal files to draw": Row(
        ATTENTION + " --input dev.en --tgt test.de", ("dev.en has 20 lines", "test.de has 30")
    ),
    "a picture is a folder": Row(
        ATTENTION + " --input dev.en --limit 3 --output a.png", ("a-002.png: this is a folder",), {"a-002.png": FOLDER}
    ),
}

USAGE = {
    "config over itself": Row(f"{ALIGN} --src dev.en --output {CONFIG}", (f"{CONFIG}' is a part of the run",), {}, 2),
    "checkpoint over itself": Row(f"{TRANSLATE} --output {BEST} x", ("is a part of the run", "name another"), {}, 2),
    "page over the checkpoint": Row(
        f"{TRANSLATE} --checkpoint best.pt --output best.pt x", ("is the file of --checkpoint",), {"best.pt": "x"}, 2
    ),
    "a second run for a command of one": Row(
        "info --run runs/bahdanau --run runs/none", ("'--run'", "given 2 times", "this command takes one"), {}, 2
    ),
    "no run's name": Row("train --config bahdanau.yaml --run-dir=", ("--run-dir", "the name is empty"), {}, 2),
    "no input's name": Row(f"{TRANSLATE} --input=", ("--input", "the name is empty"), {}, 2),
    "dash for stdout": Row(f"{TRANSLATE} --output - x", ("--output", "leave --output out"), {}, 2),
    "gold with translations": Row(f"{ALIGN} --src dev.en --gold a", ("--gold", "give --tgt too"), {}, 2),
    "tgt alone": Row(f"{ALIGN} --tgt dev.de", ("--tgt", "needs --src"), {}, 2),
    "symmetrize one": Row(f"{ALIGN} --symmetrize union", ("--symmetrize", "give --reverse-run too"), {}, 2),
    "gold base alone": Row(f"{ALIGN} --gold-base 1", ("--gold-base", "goes with --gold"), {}, 2),
    "threshold of two": Row(f"{ALIGN} --threshold 2", ("--threshold",), {}, 2),
    "suffix": Row(f"{ATTENTION} --output a.gif x", ("a.gif", ".html, .png, .svg, .pdf"), {}, 2),
    "several on a picture": Row(f"{ATTENTION} --n-best 2 --output a.png x", ("--n-best", "one translation"), {}, 2),
    "no lines": Row(f"{ATTENTION} --limit 0 x", ("--limit",), {}, 2),
    "no beam": Row(f"{EVAL} --beam 0", ("--beam",), {}, 2),
    "no batch": Row(f"{EVAL} --batch-tokens 0", ("--batch-tokens",), {}, 2),
    "infinite penalty": Row(f"{TRANSLATE} --length-penalty inf x", ("--length-penalty",), {}, 2),
    "no number": Row(f"{TRANSLATE} --n-best two x", ("--n-best",), {}, 2),
    "extra word": Row(f"{INFO} more", ("more",), {}, 2),
}

TABLES = {"data": DATA, "configs": CONFIGS, "runs": RUNS, "texts": TEXTS, "usage": USAGE}
ROWS = {f"{table}: {name}": row for table, rows in TABLES.items() for name, row in rows.items()}


@pytest.fixture
def place(workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the corpus, the configurations and the runs, to be spoilt."""
    shutil.copytree(
        workplace, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("luong", ".nmt-cache", "tensorboard")
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def spoil(place: Path, files: Mapping[str, Any]) -> None:
    for name, content in files.items():
        path = place / name
        if callable(content):
            content = content(torch.load(path, weights_only=True))
        if isinstance(content, str) and content.endswith(".pt"):
            content = (place / content).read_bytes()
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        if content is FOLDER:
            path.mkdir()
        elif isinstance(content, dict):
            torch.save(content, path)
        elif content is not GONE:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())


def contents(place: Path) -> dict[str, bytes]:
    """The files but for finished ones of the cache of prepared data, and the locks, which say who trained last."""
    return {
        path.relative_to(place).as_posix(): path.read_bytes()
        for path in place.rglob("*")
        if path.is_file() and (".nmt-cache" not in path.parts or ".tmp" in path.as_posix()) and path.name != ".lock"
    }


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_mistake_gets_one_message_that_says_what_and_where_and_leaves_nothing(place: Path, row: Row) -> None:
    spoil(place, row.files)
    before = contents(place)
    result = CliRunner().invoke(cli.app, shlex.split(row.command))
    assert result.exit_code == row.code, result.stderr
    assert "Traceback" not in result.stderr
    assert result.stderr.lower().count("error: ") == 1
    for part in row.parts:
        assert part in result.stderr
    if "bad --output" not in row.command:
        assert result.stdout == ""
    assert contents(place) == before


def test_the_table_is_as_long_as_was_promised() -> None:
    assert len(ROWS) >= 80


@pytest.mark.parametrize("name", ["texts: bad byte in the middle", "configs: a bomb of aliases"])
def test_the_process_ends_as_the_runner_says(place: Path, name: str) -> None:
    row = ROWS[name]
    spoil(place, row.files)
    done = nmt(*shlex.split(row.command), cwd=place, check=row.code, real=True)
    for part in row.parts:
        assert part in done.stderr.decode()
    assert (b"Traceback" in done.stderr, done.stdout) == (False, b"")


ODD = ["", "[]", "3", "{}", '{"a": NaN}', "[" * 9999, f'{{"a": {"9" * 5000}}}']
ODD += ['{"metrics": 3}', '{"metrics": {"bleu": 3}}', '{"metrics": {"bleu": {"score": "x"}}}']
ODD += ['{"starts": 3}', '{"starts": [3]}', '{"starts": [{"command": 3}]}', '{"starts": [{"command": [3]}]}']
ODD += ['{"step": 8, "dev/bleu": [1]}\n', '{"step": 8, "dev/bleu": NaN}\n', '{"step": "x"}\n']


@pytest.mark.parametrize("name", ["meta.json", "metrics.jsonl", "eval/test.json"])
def test_info_of_a_run_with_an_odd_file_is_told_or_refused_and_never_a_defect(place: Path, name: str) -> None:
    for checkpoint in (place / RUN / "checkpoints").iterdir():
        checkpoint.unlink()  # they take longest to read
    for odd in ODD:
        (place / RUN / name).write_text(odd)
        for option in ([], ["--json"]):
            result = CliRunner().invoke(cli.app, ["info", "--run", RUN, *option])
            assert "Traceback" not in result.stderr, odd
            assert result.exit_code in (0, 1), odd
            if result.exit_code == 0 and option:
                json.loads(result.stdout, parse_constant=pytest.fail)


@pytest.mark.parametrize("name", ["meta.json", "data_report.json"])
@pytest.mark.parametrize("odd", ["", "[]", '{"starts": 3}'])
def test_a_run_with_an_odd_file_goes_on_or_says_which(place: Path, name: str, odd: str) -> None:
    (place / RUN / name).write_text(odd)
    cheap = [
        "--set",
        "search.beam_size=1",
        "--set",
        "evaluation.metrics=[bleu]",
        "--set",
        "search.max_length_ratio=0.1",
    ]
    result = CliRunner().invoke(cli.app, ["train", "--resume", "--run-dir", RUN, *cheap])
    assert "Traceback" not in result.stderr
    assert (result.exit_code, name in result.stderr) in ((0, False), (1, True))


ODD_PARTS = [3, {"a": 1}, None]


@pytest.mark.parametrize("command", [INFO, TRANSLATE + " x", RESUME])
def test_a_checkpoint_with_an_odd_part_is_refused_and_never_a_defect(place: Path, command: str) -> None:
    name = LAST if command == RESUME else BEST
    whole = (place / name).read_bytes()
    needed = ["model", "state"] if command != RESUME else list(torch.load(place / name, weights_only=True))
    for key in needed:
        for odd in ODD_PARTS if command != RESUME else [{"a": 1}]:
            spoil(place, {name: changed(**{key: odd})})
            result = CliRunner().invoke(cli.app, shlex.split(command))
            assert "Traceback" not in result.stderr, (key, odd)
            assert result.exit_code == 1, (key, odd)
            assert result.stderr.count("error: ") == 1, (key, odd)
            assert Path(name).name in result.stderr
            (place / name).unlink()
            (place / name).write_bytes(whole)
