"""`nmt info`: what is read from a run, and how parameters are counted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config import load_config
from nmt.errors import NmtError
from nmt.info import _PARTS, count_parameters, describe
from nmt.model.seq2seq import build_model
from nmt.run_dir import RunDir
from nmt.training.checkpoint import KEYS

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


def test_the_description_is_plain_json(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    save(run.best, tiny_model(run).state_dict(), step=1, best_score=-math.inf)
    plain = describe(run).to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["parameters"]["total"] == sum(plain["parameters"]["by_part"].values())


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
    assert counts.tied == ()


@pytest.mark.parametrize("cloned", [False, True])
def test_tied_embeddings_count_once(tmp_path: Path, cloned: bool) -> None:
    run = make_run(tmp_path)
    run.config.write_text(run.config.read_text().replace("dropout: 0.0", "dropout: 0.0, tie_embeddings: true"))
    model = build_model(load_config(str(run.config)).model, src_vocab=20, tgt_vocab=20)
    tensors = {name: tensor.clone() if cloned else tensor for name, tensor in model.state_dict().items()}
    save(run.best, tensors, step=1)
    parameters = describe(run).parameters
    assert parameters.total == sum(parameter.numel() for parameter in model.parameters())
    assert parameters.tied == ("tgt_embedding.weight", "output.weight")
    assert parameters.by_part["output"] == 20  # its bias


def test_equal_tensors_that_are_not_tied_count_twice() -> None:
    zeros = {"src_embedding.weight": torch.zeros(3, 2), "tgt_embedding.weight": torch.zeros(3, 2)}
    assert count_parameters(zeros).total == 12


@pytest.mark.parametrize("decoder", [DECODER, "{kind: luong, cell: lstm, hidden_size: 8}", "{kind: none}"])
def test_every_tensor_of_a_model_belongs_to_a_named_part(tmp_path: Path, decoder: str) -> None:
    run = make_run(tmp_path)
    run.config.write_text(run.config.read_text().replace(DECODER, decoder))
    parts = count_parameters(tiny_model(run).state_dict()).by_part
    assert parts.keys() <= set(_PARTS.values())


def test_an_unknown_part_is_counted_under_two_components() -> None:
    state = {"decoder.window.position.weight": torch.zeros(3), "decoder.window.v": torch.zeros(2), "x": torch.zeros(1)}
    assert count_parameters(state).by_part == {"decoder.window": 5, "x": 1}


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
