"""`nmt export`, and `nmt translate --model`: the same translations as the run's, without torch; what is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from running_server import server
from test_demo_corpus import load_script
from tiny import nmt

from nmt.cli import main
from nmt.exported import ENCODER, JOINT, SETTINGS, STEP

LINES = b"the red dog sees the old cat.\n\nbig big big dog.\nthe cat.\n" + b"the old red big dog sees. " * 3 + b"\n"


@pytest.fixture(scope="module")
def exports(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the exported models `bahdanau` and `int8`."""
    folder = tmp_path_factory.mktemp("exports")
    run = workplace / "runs/bahdanau"
    done = nmt("export", "--run", run, "--output", "bahdanau", "--license", "cc-by-4.0", cwd=folder)
    assert done.stdout == b"bahdanau\n"
    nmt("export", "--run", run, "--int8", "--output", "int8", cwd=folder)
    return folder


@pytest.fixture
def model(exports: Path, tmp_path: Path) -> Path:
    """A copy of the exported model, to be damaged."""
    return Path(shutil.copytree(exports / "bahdanau", tmp_path / "model"))


def test_an_exported_model_translates_as_its_run_does(workplace: Path, exports: Path) -> None:
    run = workplace / "runs/bahdanau"
    for options in (
        ["--n-best", "3", "--beam", "4", "--rerank", "mbr"],
        ["--format", "jsonl", "--batch-tokens", "20"],
    ):
        wanted = nmt("translate", "--run", run, *options, cwd=workplace, stdin=LINES).stdout
        found = nmt("translate", "--model", exports / "bahdanau", *options, cwd=workplace, stdin=LINES).stdout
        assert without_scores(found) == without_scores(wanted)
    (exports / "in.txt").write_bytes(LINES)
    nmt("translate", "--model", "bahdanau", "--input", "in.txt", "--output", "out.txt", cwd=exports)
    assert (exports / "out.txt").read_bytes() == nmt("translate", "--run", run, cwd=workplace, stdin=LINES).stdout


def without_scores(output: bytes) -> list[object]:
    """Lines of any format; scores, which differ in their last digits, are rounded."""

    def rounded(value: object) -> object:
        if isinstance(value, dict):
            return {key: rounded(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [rounded(entry) for entry in value]
        return round(value, 3) if isinstance(value, float) else value

    def parsed(line: str) -> object:
        if line.startswith("{"):
            return rounded(json.loads(line))
        return [
            str(round(float(field), 3)) if "." in field and is_number(field) else field for field in line.split("\t")
        ]

    return [parsed(line) for line in output.decode().splitlines()]


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def test_an_exported_model_is_served_as_it_translates(exports: Path) -> None:
    wanted = nmt("translate", "--model", "bahdanau", "--format", "jsonl", cwd=exports, stdin=LINES).stdout
    with server("--model", "bahdanau", cwd=exports) as site:
        _, found = site.ask(text=LINES.decode())
        [model] = site.ask("/info")[1]["models"]
    assert [entry["text"] for entry in found["translations"]] == [
        json.loads(line)["text"] for line in wanted.splitlines()
    ]
    assert model == {"name": "bahdanau", "kind": "bahdanau", "step": model["step"]}


def test_neither_torch_nor_datasets_is_imported_to_translate(exports: Path) -> None:
    code = (
        "import sys\nfrom nmt.cli import main\n"
        "try: main(['translate', '--model', 'int8', '--rerank', 'mbr', '--format', 'tsv', 'x.'])\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert not {'torch', 'datasets', 'onnx', 'onnxscript'} & {*sys.modules}, sorted(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=exports, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.count(b"\t") == 2


def test_int8_is_smaller_and_asked_for_by_its_option(exports: Path) -> None:
    assert (exports / "int8" / STEP).stat().st_size < (exports / "bahdanau" / STEP).stat().st_size
    assert nmt("translate", "--model", "int8", "--int8", "the dog.", cwd=exports).stdout.count(b"\n") == 1
    refused = nmt("translate", "--model", "bahdanau", "--int8", "the dog.", cwd=exports, check=1).stderr
    assert b"exported in float32" in refused


def test_the_card_has_data_settings_scores_and_licence(workplace: Path, exports: Path) -> None:
    card = (exports / "bahdanau/README.md").read_text()
    head = yaml.safe_load(card.split("---\n")[1])
    assert head["license"] == "cc-by-4.0"
    assert head["language"] == ["en", "de"]
    scores = json.loads((workplace / "runs/bahdanau/eval/test.json").read_text())
    for metric in scores["metrics"].values():
        assert metric["signature"] in card
        assert f"{metric['score']:.2f}" in card
    assert "| train | train.en and train.de | 300 |" in card
    assert str(workplace) not in card
    assert "### By length" in card
    assert "float32, not of these rounded weights" in (exports / "int8/README.md").read_text()


def with_settings(**changes: object) -> Callable[[Path], object]:
    def change(model: Path) -> None:
        settings = json.loads((model / SETTINGS).read_text())
        (model / SETTINGS).write_text(json.dumps(settings | changes))

    return change


def flipped(name: str) -> Callable[[Path], object]:
    def change(model: Path) -> None:
        content = bytearray((model / name).read_bytes())
        content[len(content) // 2] ^= 1
        (model / name).write_bytes(content)

    return change


def led_out(name: str) -> Callable[[Path], object]:
    def change(model: Path) -> None:
        (model / name).rename(model.parent / "elsewhere")
        (model / name).symlink_to(model.parent / "elsewhere")

    return change


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped bit in the encoder": flipped(ENCODER),
    "a flipped bit in the pieces": flipped(JOINT),
    "no step": lambda model: (model / STEP).unlink(),
    "settings cut short": lambda model: (model / SETTINGS).write_text((model / SETTINGS).read_text()[:50]),
    "no settings": lambda model: (model / SETTINGS).unlink(),
    "settings of a later version": with_settings(nmt_export=2),
    "a setting out of range": with_settings(search={"beam_size": 0}),
    "a file outside the folder": with_settings(files={"../secret": ""}),
    "a link out of the folder": led_out(STEP),
    "an unknown setting": with_settings(run="import os"),
}


@pytest.mark.parametrize("change", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_folder_gives_one_message(
    model: Path, change: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    change(model)
    with pytest.raises(SystemExit) as end:
        main(["translate", "--model", str(model), "the dog."])
    assert end.value.code == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert str(model) in printed.err
    assert "export" in printed.err.lower()
    assert "Traceback" not in printed.err


def test_a_graph_that_keeps_its_weights_elsewhere_is_refused(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import hashlib

    import onnx

    graph = onnx.load(model / STEP)
    onnx.save_model(graph, model / STEP, save_as_external_data=True, location="weights", size_threshold=0)
    files = json.loads((model / SETTINGS).read_text())["files"]
    with_settings(files=files | {STEP: hashlib.sha256((model / STEP).read_bytes()).hexdigest()})(model)
    with pytest.raises(SystemExit):
        main(["translate", "--model", str(model), "the dog."])
    assert "refers to other files" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said", "code"),
    [
        (["--run", "runs/bahdanau"], "either --model or --run", 2),
        (["--checkpoint", "best.pt"], "either --model or --checkpoint", 2),
        (["--device", "cuda"], "runs on the CPU", 2),
        (["--output", f"MODEL/{SETTINGS}"], "is a part of the model", 2),
        (["--output", "MODEL/README.md"], "is a part of the model", 2),
    ],
)
def test_options_that_do_not_go_with_a_model_are_refused(
    exports: Path, options: list[str], said: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(exports / "bahdanau")
    with pytest.raises(SystemExit) as end:
        main(["translate", "--model", model, *(option.replace("MODEL", model) for option in options), "the dog."])
    assert end.value.code == code
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_run_is_no_exported_model_and_a_folder_that_is_taken_stays(workplace: Path, exports: Path) -> None:
    run = workplace / "runs/bahdanau"
    assert b"name it with --run" in nmt("translate", "--model", run, "the dog.", cwd=workplace, check=1).stderr
    before = (exports / "bahdanau" / SETTINGS).read_bytes()
    refused = nmt("export", "--run", run, "--output", "bahdanau", cwd=exports, check=1).stderr
    assert b"the folder is not empty" in refused
    assert (exports / "bahdanau" / SETTINGS).read_bytes() == before
    assert sorted(path.name for path in exports.iterdir() if path.name.startswith(".")) == []


def test_without_the_packages_export_says_what_to_install(
    workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("nmt.export.find_spec", lambda name: None)
    with pytest.raises(SystemExit) as end:
        main(["export", "--run", str(workplace / "runs/bahdanau"), "--output", str(tmp_path / "model")])
    assert end.value.code == 1
    assert "pip install onnx onnxruntime onnxscript" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


def test_the_benchmark_has_a_row_for_each_engine_and_precision(
    workplace: Path, exports: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = load_script("bench_export")
    exported = {False: exports / "bahdanau", True: exports / "int8"}  # once is enough
    monkeypatch.setattr(bench, "export_run", lambda run, folder, reporter, *, int8: exported[int8])
    bench.main(["--run", str(workplace / "runs/bahdanau"), "--lines", "8", "--repeats", "1", "--json"])
    rows = json.loads(capsys.readouterr().out)
    ways = [(row["engine"], row["precision"]) for row in rows]
    assert ways == [("torch", "float32"), ("torch", "int8"), ("onnx", "float32"), ("onnx", "int8")]
    assert rows[2]["differ"] == rows[0]["differ"] == 0
    assert rows[0]["ratio"] == 1
