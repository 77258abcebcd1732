"""The commands on tiny data, run as a user runs them."""

from __future__ import annotations

import io
import json
import re
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny import DECODERS, nmt, write_config, write_corpus

SCALARS = {
    "train/loss", "train/perplexity", "train/tokens_per_second", "train/gradient_norm", "train/learning_rate",
    "dev/loss", "dev/perplexity", "dev/bleu", "dev/chrf",
}  # fmt: skip


@pytest.mark.parametrize("kind", DECODERS)
def test_a_run_holds_all_its_files(workplace: Path, kind: str) -> None:
    run = workplace / "runs" / kind
    names = {path.relative_to(run).as_posix() for path in run.rglob("*")}
    wanted = {
        "config.yaml", "meta.json", "data_report.json", "tokenizer/joint.model", "checkpoints/best.pt",
        "checkpoints/last.pt", "checkpoints/step_000024.pt", "metrics.jsonl", "dev/step_000008.txt",
        "eval/test.json", "eval/test.html", "eval/test_by_length.csv", "eval/test_by_length.png", "eval/test.hyp.txt",
        "eval/training_words.tsv.gz",
    }  # fmt: skip
    assert wanted <= names
    meta = json.loads((run / "meta.json").read_text())
    assert meta["training_seconds"] > 0
    assert meta["versions"]["torch"] == torch.__version__
    assert meta["steps"] == 24
    assert len((run / "dev/step_000024.txt").read_text().splitlines()) == 20


@pytest.mark.parametrize("kind", DECODERS)
def test_curves_are_the_same_in_tensorboard_and_in_metrics_jsonl(workplace: Path, kind: str) -> None:
    run = workplace / "runs" / kind
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    names = SCALARS | ({"dev/attention_entropy"} if kind != "none" else set())
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == names
    for name in names:
        ours = [(line["step"], line[name]) for line in lines if name in line]
        assert ours == [(event.step, pytest.approx(event.value, rel=1e-5)) for event in events.Scalars(name)]
        assert [step for step, _ in ours] == ([8, 16, 24] if name.startswith("dev") else [4, 8, 12, 16, 20, 24])
    assert {"settings/text_summary", "dev/samples/text_summary"} <= set(events.Tags()["tensors"])


def test_eval_json_says_what_was_scored_and_how(workplace: Path) -> None:
    result = json.loads((workplace / "runs/bahdanau/eval/test.json").read_text())
    assert list(result)[:4] == ["split", "sentences", "checkpoint", "metrics"]
    assert (result["split"], result["sentences"], result["checkpoint"]) == ("test", 30, "checkpoints/best.pt")
    assert set(result["metrics"]) == {"bleu", "chrf", "chrf++", "ter"}
    assert "tok:13a" in result["metrics"]["bleu"]["signature"]
    assert "|bs:1000|" in result["metrics"]["bleu"]["signature"]
    assert result["search"]["beam_size"] == 3


@pytest.mark.parametrize("kind", DECODERS)
def test_as_many_lines_come_out_as_go_in(workplace: Path, kind: str) -> None:
    odd = ["the red dog.", "", "   ", "\t", "</s> <s> <unk>", "old cat"]
    odd += ["a\u2028b\x85c\x0bd\x0ce\rf", "日本語", "\ufeff", "x"]
    lines = odd * 100
    lines[505] = "the " * 700
    text = "\n".join(lines).encode()
    out = nmt("translate", "--run", f"runs/{kind}", "--beam", 1, cwd=workplace, stdin=text)
    assert out.stdout.count(b"\n") == 1000
    assert out.stdout.endswith(b"\n")
    found = out.stdout.decode().split("\n")[:-1]
    for place in range(1, 1000, 10):
        assert found[place : place + 3] == ["", "", ""]
    assert all(found[place] == found[place % 10] for place in range(1000) if place != 505)
    assert b"1 line was too long" in out.stderr


def test_the_best_translation_is_the_first_of_the_n_best(workplace: Path) -> None:
    text = b"the red dog sees the cat.\nthe old cat.\n"
    options = ("--run", "runs/bahdanau")
    plain = nmt("translate", *options, cwd=workplace, stdin=text, real=True).stdout.decode().splitlines()
    best = nmt("translate", "--run", "runs/bahdanau", "--n-best", 3, cwd=workplace, stdin=text).stdout.decode()
    rows = [row.split("\t") for row in best.splitlines()]
    assert [row[:2] for row in rows] == [[str(line), str(rank)] for line in (1, 2) for rank in (1, 2, 3)]
    assert [row[3] for row in rows if row[1] == "1"] == plain


def test_a_pipe_that_waits_for_each_answer_gets_it(workplace: Path) -> None:
    command = [sys.executable, "-m", "nmt", "translate", "--run", "runs/bahdanau"]
    with subprocess.Popen(command, cwd=workplace, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in (b"the red dog.\n", b"\n", b"the cat.\n"):
            process.stdin.write(line)
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], 60)
            assert ready
            assert process.stdout.readline().endswith(b"\n")
        process.stdin.close()
        assert process.wait(60) == 0


def test_eval_on_files_equals_eval_on_the_split(workplace: Path, tmp_path: Path) -> None:
    run = tmp_path / "copy"
    shutil.copytree(workplace / "runs/luong", run)
    nmt("eval", "--run", run, "--src", workplace / "test.en", "--tgt", workplace / "test.de", cwd=tmp_path)
    ours = json.loads((run / "eval/test.en.json").read_text())
    assert ours["metrics"] == json.loads((run / "eval/test.json").read_text())["metrics"]


def test_reranking_orders_the_beam_anew_and_eval_scores_what_translate_gives(workplace: Path, tmp_path: Path) -> None:
    run = tmp_path / "copy"
    shutil.copytree(workplace / "runs/bahdanau", run)
    given = ["--run", run, "--beam", 6, "--rerank", "mbr"]
    nmt("eval", *given, cwd=workplace)
    other = run / "eval/test.beam6.rerank-mbr"
    assert json.loads(Path(f"{other}.json").read_text())["search"]["rerank"] == "mbr"

    def best(*options: object) -> list[list[tuple[str, str]]]:
        out = nmt("translate", *options, "--n-best", 6, "--input", "test.en", cwd=workplace).stdout.decode()
        lists: list[list[tuple[str, str]]] = [[] for _ in range(30)]
        for line in out.splitlines():
            number, _, score, text, _ = line.split("\t")
            lists[int(number) - 1].append((score, text))
        return lists

    by_risk, by_score = best(*given), best(*given[:-1], "none")
    assert [each[0][1] for each in by_risk] == Path(f"{other}.hyp.txt").read_text(encoding="utf-8").splitlines()
    assert [sorted(each) for each in by_risk] == [sorted(each) for each in by_score]
    assert by_risk != by_score


def test_as_many_lines_come_out_as_go_in_with_int8(workplace: Path) -> None:
    text = "\n".join(["the red dog.", "", "  ", "</s> <unk>", "日本語", *["the old cat sees."] * 95]).encode()
    found = nmt("translate", "--run", "runs/bahdanau", "--int8", cwd=workplace, stdin=text).stdout.decode()
    lines = found.split("\n")
    assert len(lines) == 101
    assert lines[1:3] == ["", ""]
    assert len(set(lines[5:100])) == 1
    assert lines[100] == ""


def test_an_evaluation_in_int8_stands_beside_the_one_in_float32(workplace: Path, tmp_path: Path) -> None:
    run = tmp_path / "copy"
    shutil.copytree(workplace / "runs/luong", run)
    before = {path.name: path.read_bytes() for path in (run / "eval").iterdir()}
    nmt("eval", "--run", run, "--int8", cwd=workplace)
    after = {path.name: path.read_bytes() for path in (run / "eval").iterdir()}
    suffixes = (".json", ".html", ".hyp.txt", "_by_length.csv", "_by_length.png")
    new = {f"test.int8{suffix}" for suffix in suffixes}
    assert after.keys() - before.keys() == new
    assert all(after[name] == content for name, content in before.items())
    plain, rounded = (json.loads(after[name]) for name in ("test.json", "test.int8.json"))
    assert (rounded["split"], rounded["sentences"]) == ("test.int8", 30)
    assert rounded["search"] == plain["search"] | {"int8": True}
    assert after["test.int8.hyp.txt"].count(b"\n") == 30


def test_int8_on_a_gpu_is_refused_in_one_message(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    options = ["--run", "runs/bahdanau", "--int8", "--device", "cuda"]
    done = nmt("translate", *options, cwd=workplace, stdin=b"the dog.\n", check=1)
    text = done.stderr.decode()
    assert "Traceback" not in text
    assert text.count("error: ") == 1
    assert "--int8 is for CPUs" in text
    assert done.stdout == b""


@pytest.mark.parametrize("command", ["translate", "eval"])
def test_help_mentions_int8(workplace: Path, command: str) -> None:
    assert re.search(rb"--int8.+8 bits", nmt(command, "--help", cwd=workplace).stdout)


def same_weights(one: Path, other: Path) -> bool:
    first, second = (torch.load(path / "checkpoints/last.pt", weights_only=True) for path in (one, other))
    return all(torch.equal(first["model"][name], tensor) for name, tensor in second["model"].items()) and all(
        torch.equal(ours, theirs) for ours, theirs in zip(first["weights"], second["weights"], strict=True)
    )


def timeless(run: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "train/tokens_per_second"} for line in lines]


def test_a_run_that_ended_at_max_steps_goes_on_when_there_are_more(workplace: Path, tmp_path: Path) -> None:
    shutil.copytree(workplace, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("runs"))
    nmt("train", "--config", "bahdanau.yaml", "--set", "training.max_steps=16", cwd=tmp_path)
    nmt("train", "--config", "bahdanau.yaml", "--resume", cwd=tmp_path)
    ours, whole = tmp_path / "runs/bahdanau", workplace / "runs/bahdanau"
    assert same_weights(ours, whole)
    assert timeless(ours) == timeless(whole)


def test_a_finished_run_says_so(workplace: Path, tmp_path: Path) -> None:
    run = tmp_path / "copy"
    shutil.copytree(workplace / "runs/bahdanau", run)
    done = nmt("train", "--resume", "--run-dir", run, cwd=tmp_path)
    assert b"this run is finished: max_steps 24 reached" in done.stderr


def test_the_same_seed_trains_the_same_model(workplace: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    write_config(tmp_path, "luong")
    nmt("train", "--config", "luong.yaml", cwd=tmp_path, real=True)  # the workplace's is a fork
    assert same_weights(tmp_path / "runs/luong", workplace / "runs/luong")


def test_a_small_model_learns_the_tiny_language(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    # Seeds 1 to 6 end between 79 and 96, so that another rounding of the same sums does not decide.
    write_config(tmp_path, max_steps=700, validate_every=100, ema_decay=0.0, optimizer={"learning_rate": 0.01})
    nmt("train", "--config", "bahdanau.yaml", "--set", "model.dropout=0", cwd=tmp_path)
    result = json.loads((tmp_path / "runs/bahdanau/eval/test.json").read_text())
    assert result["metrics"]["bleu"]["score"] > 75


def test_lines_before_a_bad_byte_are_translated_and_the_byte_is_named(workplace: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"the dog.\nb\xe4d\nthe cat.\n")
    run = workplace / "runs/bahdanau"
    done = nmt("translate", "--run", run, "--input", "bad.txt", cwd=tmp_path, check=1)
    assert done.stdout.count(b"\n") == 1
    assert re.search(rb"error: bad\.txt, line 2.*byte", done.stderr)
    kept = nmt("translate", "--run", run, "--input", "bad.txt", "--output", "out.txt", cwd=tmp_path, check=1)
    assert kept.stdout == b""
    assert not (tmp_path / "out.txt").exists()


WRONG = [
    (["train", "--config", "bahdanau.yaml"], r"there is a run here already.*--resume"),
    (["train", "--config", "absent.yaml"], r"absent\.yaml: there is no such file"),
    (["train", "--config", "bahdanau.yaml", "--set", "training.lerning_rate=1"], r"learning_rate"),
    (["train", "--config", "bahdanau.yaml", "--run-dir", "new", "--set", "tokenizer.vocab_size=9000"], r"at most \d+"),
    (["train", "--config", "bahdanau.yaml", "--run-dir", "new", "--set", "data.dev.tgt=test.de"], r"20.*30|30.*20"),
    (["train", "--config", "bahdanau.yaml", "--run-dir", "new", "--set", "data.dev.tgt=bad.txt"],
     r"bad\.txt.*line 2.*byte"),
    (["train", "--config", "bahdanau.yaml", "--run-dir", "new", "--set", "data.dev.tgt=gone.txt"], r"gone\.txt"),
    (["train", "--config", "luong.yaml", "--run-dir", "new", "--set", "model.decoder.score=dot",
      "--set", "model.decoder.hidden_size=32"], r"32.*24|24.*32"),
    (["train", "--config", "bahdanau.yaml", "--run-dir", "new", "--set", "model.decoder.score=dot"], r"concat"),
    (["train", "--config", "bahdanau.yaml", "--resume", "--set", "model.embedding_size=8"], r"embedding_size: 16 -> 8"),
    (["train", "--config", "bahdanau.yaml", "--resume", "--run-dir", "absent"], r"absent: there is no such run"),
    (["train", "--config", "bahdanau.yaml", "--run-dir", "new", "--set", "training.device=cuda:7"], r"cuda:7"),
    (["translate", "--run", "absent", "x"], r"absent: there is no such run"),
    (["translate", "--run", "runs/bahdanau", "--input", "gone.txt"], r"gone\.txt"),
    (["translate", "--run", "runs/bahdanau", "--checkpoint", "bad.txt", "x"], r"not a checkpoint of nmt"),
    (["translate", "--run", "runs/bahdanau", "--checkpoint", "runs/luong/checkpoints/best.pt", "x"], r"another shape"),
    (["eval", "--run", "runs/bahdanau", "--src", "dev.en", "--tgt", "test.de"], r"20 lines.*30"),
    (["info", "--run", "dev.en"], r"a run is a folder"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "message"), WRONG, ids=[" ".join(args) for args, _ in WRONG])
def test_a_mistake_gets_one_message_and_exit_code_one(workplace: Path, args: list[str], message: str) -> None:
    (workplace / "bad.txt").write_bytes(b"good\nb\xe4d\n")
    done = nmt(*args, cwd=workplace, check=1)
    text = done.stderr.decode()
    assert "Traceback" not in text
    assert text.count("error: ") == 1
    assert re.search(message, text, re.DOTALL)
    assert done.stdout == b""
    assert not (workplace / "new").exists()


def test_the_test_set_is_scored_by_the_best_checkpoint_where_the_last_is_another(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    # Step 8 is made the best for good: no later score is above 100.
    config = ["--config", write_config(tmp_path, max_steps=8, ema_decay=0.0, optimizer={"learning_rate": 0.01})]
    nmt("train", *config, "--set", "evaluation.metrics=[bleu]", cwd=tmp_path)
    run = tmp_path / "runs/bahdanau"
    best, last = ((run / f"checkpoints/{name}.pt").read_bytes() for name in ("best", "last"))
    content = torch.load(io.BytesIO(last), weights_only=True)
    content["state"]["best_score"] = 101.0
    (run / "checkpoints/last.pt").unlink()  # step_000008.pt is the same file
    torch.save(content, run / "checkpoints/last.pt")
    nmt("train", *config, "--resume", "--set", "training.max_steps=24", "--set", "training.validate_every=24",
        "--set", "training.optimizer.learning_rate=9.0", cwd=tmp_path)  # fmt: skip
    assert (run / "checkpoints/best.pt").read_bytes() == best
    assert (run / "checkpoints/last.pt").read_bytes() != best
    result = json.loads((run / "eval/test.json").read_text())
    assert (result["checkpoint"], result["step"]) == ("checkpoints/best.pt", 8)
    scored = (run / "eval/test.hyp.txt").read_bytes()
    for name in ("best", "last"):
        options = ["--run", run, "--checkpoint", run / f"checkpoints/{name}.pt", "--input", "test.en"]
        assert (nmt("translate", *options, cwd=tmp_path).stdout == scored) == (name == "best")


def test_the_best_checkpoint_translates_as_it_did_when_it_became_the_best(workplace: Path) -> None:
    run = workplace / "runs/bahdanau"
    step = torch.load(run / "checkpoints/best.pt", weights_only=True)["state"]["step"]
    found = nmt("translate", "--run", run, "--input", "dev.en", cwd=workplace).stdout
    assert found == (run / f"dev/step_{step:06d}.txt").read_bytes()
