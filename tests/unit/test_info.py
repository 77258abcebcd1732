"""`nmt info`: what is read from a run, and how parameters are counted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from models import DECODERS

from nmt.config import EncoderConfig, ModelConfig, load_config
from nmt.console import show_run
from nmt.errors import NmtError
from nmt.info import _PARTS, Formula, attention_formulas, count_parameters, describe
from nmt.model.seq2seq import build_model
from nmt.run_dir import RunDir
from nmt.training.foreign import KEYS

DECODER = "{kind: bahdanau, hidden_size: 8, attention_size: 6}"
MODEL = f"{{embedding_size: 4, dropout: 0.0, encoder: {{hidden_size: 4}}, decoder: {DECODER}}}"


def make_run(folder: Path) -> RunDir:
    run = RunDir.create(folder / "run")
    data = "{src_lang: en, tgt_lang: de, train: {tsv: a.tsv}, dev: {tsv: a.tsv}}"
    run.config.write_text(f"data: {data}\nmodel: {MODEL}\n")
    return run


def save(path: Path, model: dict[str, torch.Tensor], **state: Any) -> None:
    torch.save({key: {} for key in KEYS} | {"model": model, "state": state}, path)


def tiny_model(run: RunDir) -> torch.nn.Module:
    return build_model(load_config(str(run.config)).model, src_vocab=20, tgt_vocab=30)


def test_a_run_is_described_by_its_best_checkpoint(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    model = tiny_model(run)
    save(run.best, model.state_dict(), step=200, epoch=1, best=30.5)
    save(run.last, model.state_dict(), step=300, epoch=2, best=30.5, order=[1, 2])
    run.metrics.write_text(
        '{"step": 100, "train/loss": 3.0}\n{"step": 200, "dev/bleu": 30.5, "dev/chrf": 50.0}\n'
        '{"step": 200, "dev/loss": 1.5}\n{"step": 300, "dev/bleu": 29.0}\n'
    )
    run.meta.write_text(json.dumps({"training_seconds": 12.5}))
    (run.eval / "test.json").write_text(json.dumps({"metrics": {"bleu": {"score": 31.0, "low": 30, "high": 32}}}))
    info = describe(run)
    assert (info.best_step, info.best_scores) == (200, {"dev/bleu": 30.5, "dev/chrf": 50.0, "dev/loss": 1.5})
    assert info.state == {"step": 300, "epoch": 2, "best": 30.5}
    assert [entry["step"] for entry in info.validations] == [200, 300]
    assert info.evaluations == {"test": {"bleu": 31.0}}
    assert info.meta["training_seconds"] == 12.5
    assert info.settings["model"]["decoder"]["attention_size"] == 6
    assert info.files["checkpoints/best.pt"] == run.best.stat().st_size
    assert info.parameters.total == sum(parameter.numel() for parameter in model.parameters())


def test_scores_of_a_best_checkpoint_that_was_replaced_are_outdated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path)
    save(run.best, tiny_model(run).state_dict(), step=200)
    for name, checkpoint, step in (("test", "best", 100), ("dev", "best", 200), ("old", "step_000050", 50)):
        content = {"metrics": {"bleu": {"score": 31.0}}, "checkpoint": f"checkpoints/{checkpoint}.pt", "step": step}
        (run.eval / f"{name}.json").write_text(json.dumps(content))
    info = describe(run)
    assert info.outdated == {"test": 100}
    show_run(info)
    shown = capsys.readouterr().out
    assert "Scores of test, of checkpoints/best.pt at step 100: it has been replaced since" in shown
    assert "Scores of dev, of checkpoints/best.pt at step 200\n" in shown
    assert "Scores of old, of checkpoints/step_000050.pt at step 50\n" in shown
    save(run.last, tiny_model(run).state_dict(), step=300)
    for step in (200, 300):
        content = {"metrics": {}, "checkpoint": "checkpoints/last.pt", "step": step}
        (run.eval / f"last{step}.json").write_text(json.dumps(content))
    assert describe(run).outdated == {"test": 100, "last200": 200}
    assert info.to_dict()["scored"]["old"] == {"checkpoint": "checkpoints/step_000050.pt", "step": 50, "ensemble": []}


@pytest.mark.parametrize(
    ("ensemble", "names"),
    [
        ([{"run": ".", "name": "a", "step": 1}, {"run": "../b", "name": "b", "step": 2}], ["a", "b"]),
        ([], []),
        (None, []),
        ("ab", []),
        ([1, {"run": "../b"}, {"run": 2, "name": "b", "step": 1}], []),
    ],
)
def test_the_runs_of_an_ensemble_are_named_and_what_is_none_is_not(
    tmp_path: Path, ensemble: object, names: list[str]
) -> None:
    run = make_run(tmp_path)
    content = {"metrics": {}, "checkpoint": "checkpoints/best.pt", "step": 1, "ensemble": ensemble}
    (run.eval / "test+b.json").write_text(json.dumps(content))
    assert [member["name"] for member in describe(run).scored["test+b"]["ensemble"]] == names


def test_the_description_is_plain_json(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    save(run.best, tiny_model(run).state_dict(), step=1, best_score=-math.inf)
    plain = describe(run).to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["parameters"]["total"] == sum(plain["parameters"]["by_part"].values())
    formula = {"count": 102, "symbols": "d_a(d_s + d_h + 1)", "numbers": "6(8 + 8 + 1)"}
    assert plain["parameters"]["formulas"] == {"attention": formula}


def test_a_run_before_its_first_checkpoint_can_be_described(tmp_path: Path) -> None:
    info = describe(make_run(tmp_path))
    assert (info.best_step, info.best_scores, info.state, info.validations) == (None, {}, {}, ())
    assert info.parameters.total == 0


def test_without_a_best_checkpoint_the_last_one_is_counted(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    save(run.last, tiny_model(run).state_dict(), step=5)
    info = describe(run)
    assert info.best_step is None
    assert info.parameters.total > 0


def test_every_part_has_its_parameters(tmp_path: Path) -> None:
    counts = count_parameters(tiny_model(make_run(tmp_path)).state_dict())
    embedding, encoder, decoder, annotation, attention = 4, 4, 8, 8, 6
    assert counts.by_part["source embedding"] == 20 * embedding
    assert counts.by_part["target embedding"] == 30 * embedding
    assert counts.by_part["encoder"] == 2 * 3 * encoder * (embedding + encoder + 2)
    assert counts.by_part["attention"] == attention * (decoder + annotation + 1)  # the design's formula
    assert counts.by_part["initial state"] == decoder * encoder
    assert counts.by_part["decoder"] == 3 * decoder * (embedding + annotation + decoder + 2)
    assert counts.by_part["output"] == 30 * decoder + 30
    assert counts.tied == {}


TYINGS = {
    "true": (20, ("src_embedding.weight", "tgt_embedding.weight", "output.weight")),
    "target": (30, ("tgt_embedding.weight", "output.weight")),
}


@pytest.mark.parametrize("tying", TYINGS)
@pytest.mark.parametrize("cloned", [False, True])
def test_tied_embeddings_count_once_and_are_named(
    tmp_path: Path, cloned: bool, tying: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words, names = TYINGS[tying]
    run = make_run(tmp_path)
    run.config.write_text(run.config.read_text().replace("dropout: 0.0", f"dropout: 0.0, tie_embeddings: {tying}"))
    model = build_model(load_config(str(run.config)).model, src_vocab=20, tgt_vocab=words)
    tensors = {name: tensor.clone() if cloned else tensor for name, tensor in model.state_dict().items()}
    save(run.best, tensors, step=1)
    info = describe(run)
    assert info.parameters.total == sum(parameter.numel() for parameter in model.parameters())
    assert info.parameters.by_part["output"] == words  # its bias
    assert info.to_dict()["parameters"]["tied"] == list(names[1:])
    show_run(info)
    assert f"\n  shared: {', '.join(names)}\n" in capsys.readouterr().out


def test_equal_tensors_that_are_not_tied_count_twice() -> None:
    zeros = {"src_embedding.weight": torch.zeros(3, 2), "tgt_embedding.weight": torch.zeros(3, 2)}
    assert count_parameters(zeros).total == count_parameters(zeros, tied="target").total == 12


LOCAL = "{kind: luong, cell: lstm, hidden_size: 8, window: {kind: predictive}}"


@pytest.mark.parametrize("decoder", [DECODER, LOCAL, "{kind: none}"])
def test_every_tensor_of_a_model_belongs_to_a_named_part(tmp_path: Path, decoder: str) -> None:
    run = make_run(tmp_path)
    run.config.write_text(run.config.read_text().replace(DECODER, decoder))
    parts = count_parameters(tiny_model(run).state_dict()).by_part
    assert parts.keys() <= set(_PARTS.values())


def test_an_unknown_part_is_counted_under_two_components() -> None:
    state = {"decoder.new.position.weight": torch.zeros(3), "decoder.new.v": torch.zeros(2), "x": torch.zeros(1)}
    assert count_parameters(state).by_part == {"decoder.new": 5, "x": 1}


@pytest.mark.parametrize("name", DECODERS)
def test_the_formulas_of_attention_give_what_is_counted(name: str) -> None:
    config = ModelConfig(embedding_size=7, encoder=EncoderConfig(hidden_size=4), decoder=DECODERS[name])
    counted = count_parameters(build_model(config, 11, 11).state_dict()).by_part
    formulas = attention_formulas(config)
    assert {part: counted.get(part, 0) for part in ("attention", "window") if part in counted or part in formulas} == {
        part: formula.count for part, formula in formulas.items()
    }
    for formula in formulas.values():
        arithmetic = formula.numbers.replace("²", "**2").replace("·", "*").replace("(", "*(")
        assert formula.count == (eval(arithmetic) if arithmetic else 0)


SHOWN = {
    "{kind: bahdanau, hidden_size: 256, attention_size: 256}": {
        "attention": "131,328 = d_a(d_s + d_h + 1) = 256(256 + 256 + 1)"
    },
    "{kind: bahdanau, hidden_size: 6, attention_size: 5, coverage: true}": {
        "attention": "1,320 = d_a(d_s + d_h + 1) + d_a = 5(6 + 256 + 1) + 5"
    },
    "{kind: luong, score: dot, hidden_size: 256}": {"attention": "0 (s·h has none to learn)"},
    "{kind: luong, hidden_size: 512, window: {kind: monotonic}}": {
        "attention": "131,072 = d_s·d_h = 512·256",
        "window": "0 (min(t, S) has none to learn)",
    },
    "{kind: luong, score: concat, hidden_size: 8, attention_size: 5, window: {kind: predictive}}": {
        "attention": "1,325 = d_a(d_s + d_h + 1) = 5(8 + 256 + 1)",
        "window": "72 = d_s² + d_s = 8² + 8",
    },
    "{kind: none}": {"attention": "0 (this kind has none)"},
}


@pytest.mark.parametrize("decoder", SHOWN)
def test_the_parameters_of_attention_are_shown_with_their_formula(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], decoder: str
) -> None:
    run = make_run(tmp_path)
    text = run.config.read_text().replace(DECODER, decoder)
    run.config.write_text(text.replace("encoder: {hidden_size: 4}", "encoder: {hidden_size: 128}"))
    save(run.best, tiny_model(run).state_dict(), step=1)
    show_run(describe(run))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for part, shown in SHOWN[decoder].items():
        assert f"{part} {shown}" in lines


def test_a_configuration_changed_after_training_shows_both_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path)
    save(run.best, tiny_model(run).state_dict(), step=1)
    run.config.write_text(run.config.read_text().replace("attention_size: 6", "attention_size: 7"))
    info = describe(run)
    assert info.formulas == {"attention": Formula(7 * 17, "d_a(d_s + d_h + 1)", "7(8 + 8 + 1)")}
    show_run(info)
    shown = "102 in the checkpoint, but 119 by config.yaml: d_a(d_s + d_h + 1) = 7(8 + 8 + 1)"
    assert shown in capsys.readouterr().out


def test_before_the_first_checkpoint_no_count_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_run(describe(make_run(tmp_path)))
    shown = capsys.readouterr().out
    assert "d_a" not in shown
    assert "Parameters\n  total  known with the first checkpoint\n" in shown


@pytest.mark.parametrize("content", [b"", b"no checkpoint", None])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, content: bytes | None) -> None:
    run = make_run(tmp_path)
    if content is None:
        torch.save([1, 2], run.best)
    else:
        run.best.write_bytes(content)
    with pytest.raises(NmtError, match=r"best\.pt: this is not a checkpoint"):
        describe(run)


def test_a_damaged_json_file_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.meta.write_text("{")
    with pytest.raises(NmtError, match=r"meta\.json: not valid JSON"):
        describe(run)
