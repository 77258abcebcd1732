"""`nmt translate` and `nmt eval` with several runs: one with itself is as one; what does not go together is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import sacrebleu
from tiny import nmt

from nmt.cli import main
from nmt.run_dir import RunDir

LINES = b"the red dog sees the cat.\n\nold cat\n"


def outcome(workplace: Path, *options: object) -> list[dict[str, object]]:
    out = nmt("translate", *options, "--format", "jsonl", cwd=workplace, stdin=LINES).stdout
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize(("kind", "rerank"), [("bahdanau", "mbr"), ("none", "none")])
def test_a_run_with_itself_translates_as_the_run_does(workplace: Path, kind: str, rerank: str) -> None:
    run, options = ("--run", f"runs/{kind}"), ("--rerank", rerank)
    for one, other in zip(outcome(workplace, *run, *options), outcome(workplace, *run, *run, *options), strict=True):
        assert one.pop("score") == pytest.approx(other.pop("score"), abs=1e-4)
        assert one["text"] == other["text"]
        assert one.get("alignment") == other.get("alignment")


def test_runs_of_all_kinds_translate_together(workplace: Path) -> None:
    kinds = ("none", "luong", "bahdanau")
    runs = [part for kind in kinds for part in ("--run", f"runs/{kind}")]
    alone = [outcome(workplace, "--run", f"runs/{kind}", "--beam", 2) for kind in kinds]
    together = outcome(workplace, *runs, "--beam", 2)
    assert [line["line"] for line in together] == [1, 2, 3]
    assert together[1]["text"] == ""
    assert together[0]["alignment"]
    assert together[0]["score"] not in [found[0]["score"] for found in alone]


def copied(workplace: Path, folder: Path, kind: str = "luong", name: str = "other") -> Path:
    run = folder / name
    for part in ("config.yaml", "meta.json"):
        run.mkdir(exist_ok=True)
        shutil.copy(workplace / "runs" / kind / part, run)
    for part in ("tokenizer", "checkpoints", "eval"):
        shutil.copytree(workplace / "runs" / kind / part, run / part)
    return run


def test_eval_of_several_runs_scores_what_they_translate_together(workplace: Path, tmp_path: Path) -> None:
    first, second = copied(workplace, tmp_path, "bahdanau", "first"), copied(workplace, tmp_path, "luong", "second")
    before = {file: file.read_bytes() for run in (first, second) for file in sorted((run / "eval").iterdir())}
    runs = ("--run", first, "--run", second)
    said = nmt("eval", *runs, cwd=tmp_path).stdout.decode()
    text = nmt("translate", *runs, "--input", workplace / "test.en", cwd=tmp_path).stdout
    assert (first / "eval/test+second.hyp.txt").read_bytes() == text
    assert "ensemble of the best checkpoints of first (step " in said

    result = json.loads((first / "eval/test+second.json").read_text())
    assert [(member["run"], member["name"]) for member in result["ensemble"]] == [
        (".", "first"),
        ("../second", "second"),
    ]
    references = (workplace / "test.de").read_text().splitlines()
    bleu = sacrebleu.corpus_bleu(text.decode().splitlines(), [references]).score
    assert result["metrics"]["bleu"]["score"] == pytest.approx(bleu, abs=1e-9)
    assert "first + second" in pages_title(first / "eval/test+second.html")
    assert {file: file.read_bytes() for file in before} == before, "the scores of the runs themselves"

    nmt("eval", *runs, "--beam", 1, cwd=tmp_path)
    assert (first / "eval/test+second.beam1.json").is_file()
    steps = [member["step"] for member in result["ensemble"]]
    told = f"Scores of test+second, of the ensemble of first at step {steps[0]}, second at step {steps[1]}"
    assert f"{told}\n" in nmt("info", "--run", first, cwd=tmp_path).stdout.decode()
    other = next(
        file for file in sorted((second / "checkpoints").glob("step_*.pt")) if f"{steps[1]:06}" not in file.name
    )
    shutil.copy(other, second / "checkpoints/best.pt")
    assert f"{told}: one has been replaced since" in nmt("info", "--run", first, cwd=tmp_path).stdout.decode()


def test_scores_of_other_runs_or_of_another_text_are_never_written_over(
    workplace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, one = copied(workplace, tmp_path, "bahdanau", "first"), copied(workplace, tmp_path, name="m")
    (tmp_path / "elsewhere").mkdir()
    another = copied(workplace, tmp_path / "elsewhere", "none", "m")
    nmt("eval", "--run", first, "--run", one, cwd=tmp_path)
    before = {file: file.read_bytes() for file in sorted((first / "eval").iterdir())}
    said = refused(capsys, 1, "--run", first, "--run", another, command="eval")
    assert f"{first}/eval/test+m.json: these are the scores of the ensemble with ../m, and would be replaced" in said
    text = tmp_path / "test+m"
    shutil.copy(workplace / "test.en", text)
    said = refused(capsys, 1, "--run", first, "--src", text, "--tgt", workplace / "test.de", command="eval")
    assert "scores of the ensemble with ../m" in said
    said = refused(capsys, 1, first, another, "--src", text, "--tgt", workplace / "test.de", command="compare")
    assert "scores of the ensemble with ../m" in said, "nor taken for those of the run itself"
    assert "named twice" in refused(capsys, 1, "--run", first, "--run", f"{first}/", command="eval")
    assert {file: file.read_bytes() for file in sorted((first / "eval").iterdir())} == before


def test_the_names_of_many_runs_make_no_name_that_is_too_long(tmp_path: Path) -> None:
    others = [RunDir(tmp_path / f"multi30k-bahdanau-dropout0.3-seed{number}") for number in range(1, 9)]
    run = RunDir(tmp_path / "first")
    names = {run.evaluation_name("test", others=others[:count]) for count in range(9)}
    assert len(names) == 9
    assert max(map(len, names)) < 100
    assert run.evaluation_name("test", others=others) == run.evaluation_name("test", others=others[::-1])


def pages_title(page: Path) -> str:
    return page.read_text().split("<title>")[1].split("</title>")[0]


def test_eval_refuses_runs_that_make_no_ensemble_and_writes_nothing(
    workplace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, other = copied(workplace, tmp_path, "bahdanau", "first"), copied(workplace, tmp_path)
    model = other / "tokenizer/joint.model"
    model.write_bytes(model.read_bytes() + b"\0")
    shutil.rmtree(first / "eval")
    runs = "--run", first, "--run", other
    assert f"{first} and {other}: their SentencePiece models differ" in refused(capsys, 1, *runs, command="eval")
    checkpoint = first / "checkpoints/best.pt"
    assert "a checkpoint is of one run" in refused(capsys, 2, *runs, "--checkpoint", checkpoint, command="eval")
    assert not (first / "eval").exists()


def refused(capsys: pytest.CaptureFixture[str], code: int, *options: object, command: str = "translate") -> str:
    with pytest.raises(SystemExit) as end:
        main([command, *map(str, options), *(["the dog."] if command == "translate" else [])])
    assert end.value.code == code
    said = capsys.readouterr()
    assert said.out == ""
    return " ".join(said.err.split())


def test_another_vocabulary_direction_or_shift_is_refused(
    workplace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, other = workplace / "runs/bahdanau", copied(workplace, tmp_path)
    runs = "--run", first, "--run", first, "--run", other
    config = other / "config.yaml"
    before = config.read_text()

    config.write_text(before.replace("src_lang: en", "src_lang: fr"))
    said = refused(capsys, 1, *runs)
    assert f"{first} translates en to de, and {other} fr to de" in said

    guided = before.replace("train_alignments: null", "train_alignments: train.links")
    config.write_text(guided.replace("alignment_shift: 0", "alignment_shift: 1"))
    said = refused(capsys, 1, *runs, "--format", "tsv")
    assert f"{first} and {other}: the weights of the one link words with training.alignment_shift 0" in said
    nmt("translate", *runs, "the dog.", cwd=workplace)

    config.write_text(before)
    model = other / "tokenizer/joint.model"
    model.write_bytes(model.read_bytes() + b"\0")
    said = refused(capsys, 1, *runs)
    assert f"{first} and {other}: their SentencePiece models differ" in said


def test_options_that_do_not_go_with_several_runs_are_refused(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = workplace / "runs/bahdanau", workplace / "runs/luong"
    runs = "--run", first, "--run", second
    assert "a checkpoint is of one run" in refused(capsys, 2, *runs, "--checkpoint", first / "checkpoints/best.pt")
    assert "either --model or --run" in refused(capsys, 2, *runs, "--model", "exports/bahdanau")
    assert f"is a part of the run {second}" in refused(capsys, 2, *runs, "--output", second / "config.yaml")
    assert "there is no such run" in refused(capsys, 1, *runs, "--run", workplace / "runs/none-such")
