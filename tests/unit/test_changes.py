"""What a resumed run may change, setting by setting, and that its text is the same wherever it lies."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from nmt import changes
from nmt.changes import check_changes, check_data
from nmt.config import Config, OptimizerConfig, plain_settings, with_overrides
from nmt.errors import NmtError
from nmt.reporting import SilentReporter
from nmt.run_dir import RunDir

FILES = {"src": __file__, "tgt": str(Path(__file__).with_name("test_cli.py"))}  # these are there
# Decided by the text; for each kind of decoder: refused; told with what it means; told alone.
MOVED = """
data.train.src=/b data.train.tgt=/b data.train={tsv: /b} data.dev.src=/b data.dev={tsv: /b} data.test={tsv: /b}
data.train_alignments=/b
"""
REFUSED = """
data.src_lang=fr data.tgt_lang=fr data.max_length=50
data.train.substitutions=10 data.max_ratio=2.0 data.drop_duplicates=true data.remove_overlap=true
tokenizer.vocab_size=100 tokenizer.model_type=bpe tokenizer.joint=false tokenizer.character_coverage=0.99
tokenizer.byte_fallback=true tokenizer.sample_sentences=10
model.embedding_size=512 model.tie_embeddings=true model.layer_norm=true model.encoder.cell=lstm
model.encoder.hidden_size=8 model.encoder.num_layers=2 model.encoder.bidirectional=false
model.decoder={kind: luong} model.decoder.cell=lstm model.decoder.hidden_size=8 model.decoder.num_layers=2
model.decoder.attention_size=8 model.decoder.coverage=true model.decoder.readout=state
model.encoder={residual: true, num_layers: 2} model.tie_embeddings=target
"""
MEANT = """
tokenizer.sampling_alpha=0.1 training.seed=2 training.batch_tokens=100 training.accumulate=2 training.precision=float32
training.label_smoothing=0.0 training.r_drop=1.0 training.scheduled_sampling=0.5
training.optimizer.learning_rate=0.1 training.schedule.kind=constant
training.schedule.factor=0.1 training.schedule.patience=0 training.schedule.warmup_steps=9 training.ema_decay=0.9
search.beam_size=2 search.length_penalty=0.0 search.coverage_penalty=0.2 search.max_length_ratio=1.0 search.rerank=mbr
evaluation.bleu_tokenize=intl
"""
TOLD = """
model.dropout=0.0 model.word_dropout=0.1 model.annotation_dropout=0.1 model.weight_dropout=0.1
training.device=cpu training.max_steps=9 training.max_minutes=3.0 training.clip_norm=2.0
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

    judged = [override.split("=")[0] for override in overrides(MOVED + REFUSED + MEANT + TOLD)]
    for leaf in leaves(plain_settings(config())):
        known = any(leaf == key or leaf.startswith(f"{key}.") for key in judged) or leaf == "data.dev.tgt"
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


def test_files_that_are_not_there_are_named_with_the_setting_that_says_where_they_are() -> None:
    new = with_overrides(config(), ["data.dev.src=/b", "data.train=[{src: /c, tgt: /d}, {tsv: /e}]"])
    message = (
        r"(?s)data\.train\.0\.src: /c\n.*data\.train\.1\.tsv: /e\n.*data\.dev\.src: /b\nPut .* --run-dir runs/x --set"
    )
    with pytest.raises(NmtError, match=message):
        check(config(), new)


def test_a_local_folder_of_the_hubs_layout_that_is_not_there_is_named(tmp_path: Path) -> None:
    moved = [f"data.dev={{hub: {tmp_path}/gone, split: dev}}"]
    message = rf"data\.dev\.hub: {tmp_path}/gone\nPut .* --set data\.dev\.hub=FOLDER\."
    with pytest.raises(NmtError, match=message):
        check(config(), with_overrides(config(), moved))
    check(config(), with_overrides(config(), ["data.dev={hub: owner/name, split: dev}"]))


def test_a_file_in_a_folder_that_may_not_be_entered_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    stat = os.stat

    def forbidden(path: Any, *args: Any, **options: Any) -> os.stat_result:
        if os.fspath(path) == "/b":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return stat(path, *args, **options)

    monkeypatch.setattr(os, "stat", forbidden)
    with pytest.raises(NmtError, match=r"are not there:\n  data\.dev\.src: /b \(Permission denied\)\nPut"):
        check(config(), with_overrides(config(), ["data.dev.src=/b"]))


@pytest.mark.parametrize("override", overrides(MOVED))
def test_where_text_lies_is_told_when_its_checksums_are_known_to_be_the_same(
    override: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "_refuse_missing", lambda *_: None)
    new = with_overrides(config(), [override])
    listener = Listener()
    moved = check_changes(config(), new, RunDir(tmp_path), listener)
    assert moved
    assert listener.infos == listener.warnings == []
    run = run_with(tmp_path, report())
    check_data(run, report(), tmp_path, moved, listener)
    assert listener.infos == [f"changed: {text} (same text)" for _, text in moved]
    assert all(text.startswith(override.split("=")[0]) for _, text in moved)
    split = override.split("=")[0].split(".")[1].removesuffix("_alignments")
    other = report()
    other[split]["checksum"] = "other"
    lines = "\n  ".join(text for _, text in moved)
    with pytest.raises(NmtError, match=rf"cannot change the text.*:\n  {re.escape(lines)}\nPut the old files back"):
        check_data(run, other, tmp_path, moved, listener)


def report() -> dict[str, Any]:
    sides = {"src": {"checksum": "1"}, "tgt": {"checksum": "2"}}
    return {split: {"checksum": "0", "sources": [f"{split}.txt"], **sides} for split in ("train", "dev", "test")}


def run_with(folder: Path, before: dict[str, Any]) -> RunDir:
    run = RunDir(folder)
    run.data_report.write_text(json.dumps(before))
    return run


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_of_a_text_that_differs_only_the_side_that_does_is_named(split: str, tmp_path: Path) -> None:
    moved = [(f"data.{split}.{side}", f"data.{split}.{side}: /a -> /b") for side in ("src", "tgt")]
    other = report()
    other[split] |= {"checksum": "other", "tgt": {"checksum": "other"}}
    with pytest.raises(NmtError, match=rf"one:\n  data\.{split}\.tgt: /a -> /b\nPut"):
        check_data(run_with(tmp_path, report()), other, tmp_path, moved, Listener())
    with pytest.raises(NmtError, match=rf"one:\n  data\.{split}\.tgt: another text than before \({split}\.txt\)\nPut"):
        check_data(run_with(tmp_path, report()), other, tmp_path, [], Listener())


def test_where_no_checksum_is_known_no_text_is_the_same_in_another_place(tmp_path: Path) -> None:
    old = {split: {} for split in ("train", "dev", "test")}
    check_data(run_with(tmp_path, old), old, tmp_path, [], Listener())
    for key in ("data.dev.src", "data.train_alignments"):
        with pytest.raises(NmtError, match=rf"one:\n  {re.escape(key)}: /a -> /b\nPut"):
            check_data(run_with(tmp_path, old), old, tmp_path, [(key, f"{key}: /a -> /b")], Listener())


DAMAGED = [
    None,
    "{}",
    '{"train": [], "dev": 3}',
    '{"train": {"src": 3, "checksum": "9"}, "dev": {}}',
    '{"train": {}, "dev": {}, "test": [1]}',
    '{"train": {}, "dev": {}, "test": "x"}',
    '{"train": {"alignments": 3}, "dev": {}}',
]


@pytest.mark.parametrize("text", DAMAGED)
def test_without_its_data_report_a_run_is_not_resumed(tmp_path: Path, text: str | None) -> None:
    run = RunDir(tmp_path)
    if text is not None:
        run.data_report.write_text(text)
    with pytest.raises(NmtError, match=r"data_report\.json: it does not say what text this run began with"):
        check_data(run, report(), tmp_path, [], Listener())


def test_other_pieces_learnt_from_the_same_pairs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "tokenizer").mkdir()
    for folder, pieces in (("new", b"a"), ("tokenizer", b"b")):
        (tmp_path / folder / "joint.model").write_bytes(pieces)
    with pytest.raises(NmtError, match=r"the vocabulary that is learnt from data\.train is another one"):
        check_data(run_with(tmp_path, report()), report(), tmp_path / "new", [], Listener())
