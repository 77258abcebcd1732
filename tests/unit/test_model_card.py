"""A model card has the scores of the weights that are exported, and of no others."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nmt.config import load_config
from nmt.exported import ExportSettings
from nmt.model_card import Facts, model_card
from nmt.run_dir import RunDir

PNG = b"a picture"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir.create(tmp_path / "run")
    files = "{tsv: a.tsv}"
    made.config.write_text(f"data: {{src_lang: en, tgt_lang: de, train: {files}, dev: {files}, test: {files}}}\n")
    for name in ("best", "last", "average"):
        (made.checkpoints / f"{name}.pt").write_text(name)
    return made


def score(run: RunDir, name: str, checkpoint: str, bleu: float, **changes: Any) -> None:
    metrics = {
        metric: {"score": bleu, "low": bleu - 1, "high": bleu + 1, "signature": f"of {metric}"} | changes
        for metric in ("bleu", "chrf++")
    }
    content = {"checkpoint": f"checkpoints/{checkpoint}.pt", "step": 300, "sentences": 9, "metrics": metrics}
    (run.eval / f"{name}.json").write_text(json.dumps(content))
    (run.eval / f"{name}_by_length.png").write_bytes(PNG + name.encode())


def facts(run: RunDir, checkpoint: Path, step: int = 300) -> Facts:
    config = load_config(str(run.config))
    settings = ExportSettings(
        nmt_export=1, precision="float32", kind="bahdanau", src_lang="en", tgt_lang="de", step=step, max_source=400,
        alignment_shift=0, search=config.search, files={},
    )  # fmt: skip
    side = SimpleNamespace(vocab_size=8000)
    translator: Any = SimpleNamespace(tokenizers=SimpleNamespace(src=side, tgt=side), checkpoint=checkpoint)
    return Facts.of(run, config, translator, settings, Path("out"), 1000, None)


def test_an_average_has_its_own_scores_and_never_those_of_the_best_checkpoint_of_the_same_step(run: RunDir) -> None:
    score(run, "test", "best", 30)
    average = run.checkpoints / "average.pt"
    found = facts(run, average)
    assert (found.scores, found.picture) == ({}, None)
    assert "have not been scored" in model_card(found)
    score(run, "test.average", "average", 31)
    assert "31.00" in model_card(facts(run, average))
    assert facts(run, average).picture == PNG + b"test.average"
    assert "30.00" in model_card(facts(run, run.best))


def test_another_name_of_the_best_checkpoint_has_its_scores(run: RunDir) -> None:
    score(run, "test", "best", 30)
    assert facts(run, run.last).scores == {}
    run.last.unlink()
    run.last.hardlink_to(run.best)
    assert "30.00" in model_card(facts(run, run.last))


def test_scores_of_an_earlier_best_checkpoint_are_left_out(run: RunDir) -> None:
    score(run, "test", "best", 30)
    assert facts(run, run.best, step=400).scores == {}


def test_metrics_have_their_names_and_intervals_where_there_are_any(run: RunDir) -> None:
    score(run, "test", "best", 30)
    assert "| chrF++ | 30.00 | 29.00 to 31.00 |" in model_card(facts(run, run.best))
    score(run, "test", "best", 30, low=None, high=None)  # of a single sentence
    assert "| BLEU | 30.00 | – |" in model_card(facts(run, run.best))


def test_sources_are_named_with_what_was_made_of_them_and_without_their_folders(run: RunDir) -> None:
    train = "[{hub: a/b, split: x, substitutions: 2000}, {csv: secret/c.csv, src_column: de, tgt_column: en}]"
    text = run.config.read_text().replace("train: {tsv: a.tsv}", f"train: {train}")
    run.config.write_text(text)
    card = model_card(facts(run, run.best))
    assert (
        "a/b, split x, and up to 2,000 pairs made from them by substitution; c.csv, src_column de, tgt_column en"
        in card
    )
    assert "secret" not in card


@pytest.mark.parametrize(
    ("tying", "told"), [("false", ""), ("true", ", tied"), ("target", ", of the target tied with the output")]
)
def test_embeddings_are_told_with_what_they_share(run: RunDir, tying: str, told: str) -> None:
    run.config.write_text(run.config.read_text() + f"tokenizer: {{joint: true}}\nmodel: {{tie_embeddings: {tying}}}\n")
    assert f"| embeddings | 256{told} |" in model_card(facts(run, run.best))
