"""Configuration: what is refused, and in which words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from config_files import SMALL, written
from pydantic import BaseModel

from nmt.config import Config, LuongConfig, SearchConfig, load_config, search_with
from nmt.errors import NmtError


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    return written(tmp_path, SMALL, "small.yaml")


def message(file: Path, *overrides: str) -> str:
    """Return the message that loading the file with these overrides fails with."""
    with pytest.raises(NmtError) as caught:
        load_config(str(file), overrides)
    return str(caught.value)


# --- --set ----------------------------------------------------------------------------------------------------------

SET_ERRORS = {
    "no equals sign": (["training.seed"], ["--set training.seed", "KEY=VALUE"]),
    "no key": (["=3"], ["--set =3", "KEY=VALUE"]),
    "an empty part": (["training..seed=3"], ["KEY=VALUE"]),
    "not YAML": (["training.seed=[1"], ["--set training.seed=[1", "line 1", "not valid YAML"]),
    "below a leaf": (["data.src_lang.x=3"], ["data.src_lang is 'en'", "nothing called x"]),
    "an item that is not there": (["data.train=[{tsv: a}]", "data.train.5.tsv=b"], ["1 item", "numbered from 0"]),
    "an item of a section": (["data.train.0.src=b"], ["data.train is a section", "nothing called 0"]),
}


@pytest.mark.parametrize(("overrides", "parts"), SET_ERRORS.values(), ids=SET_ERRORS)
def test_a_bad_set_is_told(config_file: Path, overrides: list[str], parts: list[str]) -> None:
    text = message(config_file, *overrides)
    assert "\n" not in text
    for part in parts:
        assert part in text


# --- refused values -------------------------------------------------------------------------------------------------

VALUE_ERRORS = {
    "nearest key elsewhere": (
        "training.lerning_rate=3",
        "training.lerning_rate: unknown key; did you mean training.optimizer.learning_rate?",
    ),
    "guidance without alignments": ("training.alignment_weight=0.5", "needs data.train_alignments"),
    "shift without alignments": ("training.alignment_shift=1", "which steps data.train_alignments guides"),
    "window without a kind": ("model.decoder={kind: luong, window: {half_width: 3}}", "model.decoder.window.kind"),
    "empty window": (
        "model.decoder={kind: luong, window: {kind: monotonic, half_width: 0}}",
        "model.decoder.window.half_width",
    ),
    "window before the step": (
        "model.decoder={kind: bahdanau, window: {kind: monotonic}}",
        "model.decoder.window: kind bahdanau has no such key; it belongs to kind luong",
    ),
    "coverage after the step": ("model.decoder={kind: luong, coverage: true}", "it belongs to kind bahdanau"),
    "far from every key": (
        "model.decoder.fertilities=true",
        "unknown key; the keys here are attention_size, cell, coverage, hidden_size, kind, num_layers, readout",
    ),
    "same key elsewhere": ("model.hidden_size=3", "did you mean model.encoder.hidden_size?"),
    "like one here and one elsewhere": ("training.patienc=3", "did you mean training.patience?"),
    "nearest key here": ("training.batch_token=3", "did you mean training.batch_tokens?"),
    "nearest section": ("modle.dropout=3", "modle: unknown key; did you mean model?"),
    "nothing near": ("xyzzy=3", "the keys here are data, evaluation, model, search, tokenizer, training"),
    "unknown key of a source": ("data.train.srcc=3", "data.train.srcc: unknown key; did you mean data.train.src?"),
    "number as a key": ("training={1: 2}", "training.1: unknown key"),
    "text for a number": ("training.max_steps=many", "training.max_steps: must be a whole number, not 'many'"),
    "fraction for a count": ("training.patience=2.5", "training.patience: must be a whole number, not 2.5"),
    "truth value for a count": ("training.seed=true", "training.seed: must be a whole number, not true"),
    "null for a count": ("training.seed=null", "training.seed: must be a whole number, not null"),
    "negative": ("training.seed=-1", "training.seed: must be at least 0, not -1"),
    "zero size": ("model.embedding_size=0", "model.embedding_size: must be at least 1, not 0"),
    "too large": ("model.embedding_size=999999999999999999999", "must be at most 65536"),
    "thousands of digits": (f"model.embedding_size={'9' * 5000}", "model.embedding_size: must be a whole number"),
    "infinite": ("training.max_minutes=.inf", "training.max_minutes: must be a finite number"),
    "not a number": ("training.clip_norm=.nan", "training.clip_norm: must be a finite number"),
    "overflow": ("training.clip_norm=1e999", "training.clip_norm: must be a finite number"),
    "choice of one": ("search={beam_size: 1, rerank: mbr}", "search.rerank: mbr chooses among a beam's translations"),
    "no such choice": ("search.rerank=risk", "search.rerank: must be one of none, mbr, not 'risk'"),
    "far too long": ("search.max_length_ratio=101", "search.max_length_ratio: must be at most 100, not 101"),
    "residual": (
        "model.encoder.residual=true",
        "model.encoder.residual: needs a second layer, which adds what it reads",
    ),
    "schedule without its beginning": (
        "training.schedule.kind=inverse_sqrt",
        "training.schedule.kind: inverse_sqrt falls from the end of the warm-up on: set training.schedule.warmup_steps",
    ),
    "annotations that nothing reads": (
        "model={annotation_dropout: 0.2, decoder: {kind: none}}",
        "model.annotation_dropout: the decoder of kind none reads no annotations: set it to 0",
    ),
    "share of one": ("model.dropout=1", "model.dropout: must be less than 1, not 1"),
    "yes for true": ("tokenizer.joint=yes", "tokenizer.joint: must be true or false, not 'yes'"),
    "choice": ("tokenizer.model_type=wordpiece", "must be one of unigram, bpe, not 'wordpiece'"),
    "decoder kind": ("model.decoder.kind=lung", "model.decoder.kind: must be one of bahdanau, luong, none, not 'lung'"),
    "null decoder kind": ("model.decoder.kind=null", "model.decoder.kind: must be one of bahdanau, luong, none"),
    "value for a section": ("model=3", "model: must be a section of keys, not 3"),
    "value for a decoder": ("model.decoder=bahdanau", "model.decoder: must be a section of keys, not 'bahdanau'"),
    "list for a section": ("training=[1]", "training: must be a section of keys, not a list of 1"),
    "section for a leaf": (
        "training.seed={a: 1}",
        "training.seed: must be a whole number, not a section with the keys a",
    ),
    "value for a list": ("evaluation.metrics=bleu", "evaluation.metrics: must be a list, not 'bleu'"),
    "metric": ("evaluation.metrics=[bleu, comet]", "evaluation.metrics.1: must be one of bleu, chrf, ter, not 'comet'"),
    "metric twice": ("evaluation.metrics=[bleu, bleu]", "evaluation.metrics: names a metric twice"),
    "no metric": ("evaluation.metrics=[]", "evaluation.metrics: needs at least 1 item"),
    "buckets": ("evaluation.length_buckets=[20, 10]", "evaluation.length_buckets: must ascend"),
    "device": ("training.device=gpu", "training.device: must be one of auto, cpu, cuda, or one GPU such as cuda:1"),
    "language": ("data.src_lang=e n", "data.src_lang: must be a language code such as en or pt-BR, not 'e n'"),
    "no language": ("data.src_lang=", "data.src_lang: must be text, not null"),
    "empty train": ("data.train=[]", "data.train: needs at least 1 item"),
    "empty source": ("data.dev={}", "data.dev: a source is exactly one of {src, tgt}, {tsv}"),
    "two forms": ("data.dev={tsv: a, csv: b}", "this one has tsv, csv"),
    "one side": ("data.train={src: a}", "data.train.tgt: is missing: src needs tgt"),
    "hub without split": ("data.dev={hub: a/b}", "data.dev.split: is missing"),
    "split of a file": ("data.dev={tsv: a, split: dev}", "data.dev.split: only for a hub data set"),
    "columns of text": ("data.train.src_column=en", "data.train.src_column: only jsonl, csv, parquet and hub"),
    "made pairs to score on": (
        "data.dev={tsv: a, substitutions: 9}",
        "data.dev.substitutions: scores are of real pairs",
    ),
    "a number of pairs below 0": ("data.train={tsv: a, substitutions: -1}", "data.train.substitutions: must be"),
    "an item of a list": ("data.train=[{tsv: a}, 3]", "data.train.1: must be a section of keys, not 3"),
    "scale of concat": (
        "model.decoder={kind: luong, score: concat, scale: true}",
        "only for the scores dot and general",
    ),
    "tying without joint": (
        "tokenizer.joint=false",
        "model.tie_embeddings: needs one vocabulary for both sides: set tokenizer.joint: true as well, or "
        "tie_embeddings: target, which leaves the source a matrix of its own",
    ),
    "tying a state": (
        "model={tie_embeddings: true, decoder: {readout: state}}",
        "model.tie_embeddings: needs a decoder as large as the embeddings, as its state is what the vocabulary is "
        "predicted from: model.decoder.hidden_size is 512, model.embedding_size is 256",
    ),
    "tying the target to a state": (
        "model={tie_embeddings: target, decoder: {kind: none}}",
        "model.tie_embeddings: needs a decoder as large as the embeddings, as its state is what the vocabulary is "
        "predicted from: model.decoder.hidden_size is 512, model.embedding_size is 256",
    ),
    "no such tying": ("model.tie_embeddings=source", "model.tie_embeddings: must be one of false, target, true, not"),
    "number for a tying": ("model.tie_embeddings=1", "must be one of false, target, true, not 1"),
    "null for a tying": ("model.tie_embeddings=null", "must be one of false, target, true, not null"),
    "another kind's key": (
        "model.decoder={kind: luong, readout: deep}",
        "model.decoder.readout: kind luong has no such key; it belongs to kind bahdanau",
    ),
}


@pytest.mark.parametrize(("override", "part"), VALUE_ERRORS.values(), ids=VALUE_ERRORS)
def test_a_wrong_value_is_told_in_one_line(config_file: Path, override: str, part: str) -> None:
    tied = ["model.tie_embeddings=true"] if override == "tokenizer.joint=false" else []  # wrong with these alone
    text = message(config_file, *tied, override)
    assert part in text
    assert len(text.splitlines()) == 1
    assert not re.search(r"pydantic|type=|input_value|validation error|Extra inputs|Input should", text)


def real_settings(section: type[BaseModel] = Config, above: str = "") -> list[str]:
    """List the settings that are real numbers, by path."""
    found = []
    for name, field in section.model_fields.items():
        if "float" in str(field.annotation):
            found.append(f"{above}{name}")
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found += real_settings(field.annotation, f"{above}{name}.")
    return found


@pytest.mark.parametrize("setting", real_settings())
@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf"])
def test_no_setting_takes_what_is_not_a_number(config_file: Path, setting: str, value: str) -> None:
    assert f"{setting}: must be " in message(config_file, f"{setting}={value}")


def test_search_settings_are_replaced_under_the_same_checks() -> None:
    search = SearchConfig(max_length_ratio=3.0)
    assert search_with(search, {"beam_size": 7}) == SearchConfig(beam_size=7, max_length_ratio=3.0)
    with pytest.raises(NmtError) as caught:
        search_with(search, {"beam_size": 0, "length_penalty": float("nan")})
    assert str(caught.value).splitlines() == [
        "search.beam_size: must be at least 1, not 0",
        "search.length_penalty: must be a finite number, not nan",
    ]


def test_a_bahdanau_decoder_with_a_score_is_sent_to_concat(config_file: Path) -> None:
    text = message(config_file, "model.decoder.score=dot")
    assert "kind bahdanau has no choice of score" in text
    assert "The additive score with attention after the step is Luong's `concat`" in text


@pytest.mark.parametrize(
    ("encoder", "parts"),
    [
        (
            "{hidden_size: 100}",
            ["hidden_size is 512", "have 200", "score: general", "hidden_size: 200", "encoder.hidden_size: 256"],
        ),
        ("{hidden_size: 100, bidirectional: false}", ["512", "have 100", "score: general", "encoder.hidden_size: 512"]),
    ],
)
def test_dot_with_unequal_sizes_names_both_and_the_ways_out(config_file: Path, encoder: str, parts: list[str]) -> None:
    text = message(config_file, f"model.encoder={encoder}", "model.decoder={kind: luong, score: dot}")
    assert text.startswith("--set model.decoder: model.decoder.score: dot needs")
    for part in parts:
        assert part in text


def test_dot_with_equal_sizes_is_accepted(config_file: Path) -> None:
    overrides = ["model.decoder={kind: luong, score: dot}", "model.encoder.hidden_size=256"]
    assert isinstance(load_config(str(config_file), overrides).model.decoder, LuongConfig)


def test_another_kind_on_a_complete_config_names_the_keys_that_no_longer_belong(tmp_path: Path) -> None:
    text = message(Path("bahdanau.yaml"), "model.decoder.kind=luong")
    assert "model.decoder.readout: kind luong has no such key" in text
    assert "--set 'model.decoder={kind: luong}'" in text


def test_all_problems_are_told_at_once_each_with_its_path(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        SMALL
        + """\
  tset: {tsv: test.tsv}
model:
  dropout: 2
  decoder: {kind: luong, score: dot, readout: deep}
  encoder: {hidden_size: 3}
training: {sede: 1, max_steps: -5, optimizer: adam}
""",
    )
    lines = message(file, "search.beam_size=0").splitlines()
    paths = ["data.tset", "model.dropout", "model.decoder.readout", "training.sede", "training.max_steps"]
    paths += ["training.optimizer", "model.decoder.score"]
    for path in paths:
        assert sum(line.startswith(f"{file}: {path}: ") for line in lines) == 1, path
    assert any(line.startswith("--set search.beam_size: ") for line in lines)
    assert len(lines) == len(paths) + 1


def test_a_verdict_that_rests_on_a_wrong_value_is_kept_back(config_file: Path) -> None:
    text = message(config_file, "model.decoder={kind: luong, score: dot}", "model.encoder.hidden_size=x")
    assert len(text.splitlines()) == 1
    assert "whole number" in text


# --- refused files --------------------------------------------------------------------------------------------------

FILE_ERRORS = {
    "syntax": ("data: {src_lang: en\nmodel: 3\n", ["line 2", "column", "not valid YAML"]),
    "tab": ("data:\n\tsrc_lang: en\n", ["line 2", "column 1"]),
    "twice": ("training:\n  seed: 1\n  seed: 2\n", ["line 3, column 3", "'seed' is given twice"]),
    "twice at the top": ("data: 1\ndata: 2\n", ["line 2", "'data' is given twice"]),
    "list as a key": ("[a]: 1\n", ["line 1", "a key must be a word"]),
    "a list": ("- a\n- b\n", ["a configuration is a YAML mapping", "data, tokenizer, model"]),
    "two documents": ("data: 1\n---\ndata: 2\n", ["not valid YAML"]),
    "an object": ("data: !!python/object:os.system 3\n", ["line 1", "not valid YAML"]),
    "a control character": ("data: \x01\n", ["not valid YAML"]),
    "deep": ("[" * 1000, ["not valid YAML"]),
    "empty": ("", ["data: is missing and has no default"]),
    "no dev": ("data: {src_lang: en, tgt_lang: de, train: {tsv: a}}\n", ["data.dev: is missing and has no default"]),
}


@pytest.mark.parametrize(("text", "parts"), FILE_ERRORS.values(), ids=FILE_ERRORS)
def test_a_bad_file_is_told_with_its_place(tmp_path: Path, text: str, parts: list[str]) -> None:
    file = written(tmp_path, text)
    told = message(file)
    assert told.startswith(str(file))
    for part in parts:
        assert part in told


def test_a_byte_that_is_not_utf8_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "latin.yaml"
    file.write_bytes(b"data:\n  src_lang: \xe9n\n")
    assert "line 2: byte 0xe9 is not UTF-8" in message(file)


def test_no_such_file_lists_the_shipped_ones(tmp_path: Path) -> None:
    text = message(tmp_path / "none.yaml")
    assert "there is no such file" in text
    assert "bahdanau.yaml" in text


def test_a_folder_is_not_a_config(tmp_path: Path) -> None:
    assert "this is a folder" in message(tmp_path)


def test_guidance_by_the_step_that_has_read_a_word_needs_the_references_words(config_file: Path) -> None:
    guided = ["data.train_alignments=a", "training.alignment_weight=0.5", "training.scheduled_sampling=0.1"]
    text = message(config_file, *guided, "training.alignment_shift=1")
    assert "training.scheduled_sampling: cannot go with alignment_shift 1" in text
    load_config(str(config_file), guided)


def test_r_drop_without_any_dropout_is_refused(config_file: Path) -> None:
    for more in ([], ["model.weight_dropout=0.1"], ["model.annotation_dropout=0.1", "model.decoder={kind: none}"]):
        text = message(config_file, "model.dropout=0", "training.r_drop=5", *more)
        assert "training.r_drop: needs dropout of units or words: without it both readings of a batch are the" in text
    load_config(str(config_file), ["model.dropout=0", "model.word_dropout=0.1", "training.r_drop=5"])
