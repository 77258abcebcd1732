"""What a resumed run may change, setting by setting."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from nmt.changes import check_changes
from nmt.config import Config, OptimizerConfig, plain_settings, with_overrides
from nmt.errors import NmtError
from nmt.reporting import SilentReporter
from nmt.run_dir import RunDir

FILES = {"src": "/a.en", "tgt": "/a.de"}
# For each kind of decoder: refused; told with what it means; told alone.
REFUSED = """
data.src_lang=fr data.tgt_lang=fr data.train={tsv: /b} data.dev={tsv: /b} data.test={tsv: /b} data.max_length=50
data.max_ratio=2.0 data.drop_duplicates=true data.remove_overlap=true data.train_alignments=/b
tokenizer.vocab_size=100 tokenizer.model_type=bpe tokenizer.joint=false tokenizer.character_coverage=0.99
tokenizer.byte_fallback=true tokenizer.sample_sentences=10
model.embedding_size=512 model.tie_embeddings=true model.encoder.cell=lstm model.encoder.hidden_size=8
model.encoder.num_layers=2 model.encoder.bidirectional=false model.decoder={kind: luong} model.decoder.cell=lstm
model.decoder.hidden_size=8 model.decoder.num_layers=2 model.decoder.attention_size=8 model.decoder.coverage=true
model.decoder.readout=state
"""
MEANT = """
tokenizer.sampling_alpha=0.1 training.seed=2 training.batch_tokens=100 training.precision=float32
training.label_smoothing=0.0 training.optimizer.learning_rate=0.1 training.schedule.kind=constant
training.schedule.factor=0.1 training.schedule.patience=0 training.schedule.warmup_steps=9 training.ema_decay=0.9
search.beam_size=2 search.length_penalty=0.0 search.coverage_penalty=0.2 search.max_length_ratio=1.0
evaluation.bleu_tokenize=intl
"""
TOLD = """
model.dropout=0.0 training.device=cpu training.max_steps=9 training.max_minutes=3.0 training.clip_norm=2.0
training.log_every=9 training.validate_every=9 training.patience=9 training.keep_checkpoints=9
evaluation.metrics=[bleu] evaluation.length_buckets=[5]
"""
# These need a file of alignments.
WITH_ALIGNMENTS = {"training.alignment_weight", "training.alignment_shift"}


class Listener(SilentReporter):
    def __init__(self) -> None:
        self.infos: list[str] = []
        self.warnings: list[str] = []

    def info(self, text: str) -> None:
        self.infos.append(text)

    def warning(self, text: str) -> None:
        self.warnings.append(text)


def config() -> Config:
    tree: dict[str, Any] = {"data": {"src_lang": "en", "tgt_lang": "de", "train": FILES, "dev": FILES, "test": None}}
    return with_overrides(Config.model_validate(tree), ["model.decoder.hidden_size=256"])


def overrides(table: str) -> list[str]:
    return re.findall(r"\S+=(?:\{[^}]*\}|\S+)", table)


def check(old: Config, new: Config) -> Listener:
    listener = Listener()
    check_changes(old, new, RunDir(Path("runs/x")), listener)
    return listener


@pytest.mark.parametrize("override", overrides(REFUSED))
def test_another_data_vocabulary_or_model_is_refused(override: str) -> None:
    key = override.split("=")[0]
    with pytest.raises(NmtError, match=rf"(?s)--resume cannot change.*{re.escape(key)}[.a-z_]*: .* -> .*--run-dir"):
        check(config(), with_overrides(config(), [override]))


@pytest.mark.parametrize("override", overrides(MEANT))
def test_a_change_that_means_more_than_it_says_is_a_warning(override: str) -> None:
    key, value = override.split("=")
    found = check(config(), with_overrides(config(), [override]))
    assert found.infos == []
    (text,) = found.warnings
    assert re.fullmatch(rf"changed: {key}: \S+ -> {re.escape(value)}: .+\.", text)


@pytest.mark.parametrize("override", overrides(TOLD))
def test_any_other_change_is_told(override: str) -> None:
    key = override.split("=")[0]
    found = check(config(), with_overrides(config(), [override]))
    assert found.warnings == []
    (text,) = found.infos
    assert re.fullmatch(rf"changed: {key}: .+ -> .+", text)


def test_every_setting_has_its_verdict() -> None:
    def leaves(tree: dict[str, Any], path: str = "") -> list[str]:
        found = []
        for key, value in tree.items():
            found += leaves(value, f"{path}{key}.") if isinstance(value, dict) else [f"{path}{key}"]
        return found

    judged = [override.split("=")[0] for override in overrides(REFUSED + MEANT + TOLD)]
    for leaf in leaves(plain_settings(config())):
        known = any(leaf == key or leaf.startswith(f"{key}.") for key in judged)
        assert known or leaf in WITH_ALIGNMENTS or leaf in ("training.optimizer.kind", "model.decoder.kind"), leaf


def test_longer_training_under_a_cosine_is_a_warning() -> None:
    cosine = with_overrides(config(), ["training.schedule.kind=cosine"])
    (text,) = check(cosine, with_overrides(cosine, ["training.max_steps=9"])).warnings
    assert text.startswith("changed: training.max_steps: 20000 -> 9: the cosine")


def test_another_kind_of_optimizer_is_refused() -> None:
    old = config()
    kind = OptimizerConfig.model_construct(kind="sgd", learning_rate=0.001)  # type: ignore[arg-type]
    new = old.model_copy(update={"training": old.training.model_copy(update={"optimizer": kind})})
    with pytest.raises(NmtError, match=r"training\.optimizer\.kind: adam -> sgd"):
        check(old, new)


def test_all_refused_settings_are_named_at_once_and_nothing_is_told() -> None:
    new = with_overrides(config(), ["data.max_length=5", "tokenizer.joint=false", "training.seed=2"])
    with pytest.raises(NmtError, match=r"(?s)data\.max_length: 100 -> 5\n  tokenizer\.joint: true -> false\nTake") as e:
        check(config(), new)
    assert "seed" not in str(e.value)


def test_the_same_settings_say_nothing() -> None:
    found = check(config(), config())
    assert found.infos == found.warnings == []
