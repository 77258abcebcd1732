"""Configuration: what is read, what is refused, and in which words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from nmt.config import (
    BahdanauConfig,
    Config,
    LuongConfig,
    PlainConfig,
    SearchConfig,
    Source,
    config_yaml,
    load_config,
    search_with,
    shipped_dir,
    with_overrides,
)
from nmt.errors import NmtError

SMALL = """\
data:
  src_lang: en
  tgt_lang: de
  train: {src: train.en, tgt: train.de}
  dev: {tsv: dev.tsv}
"""
SHIPPED = sorted(path.name for path in (shipped_dir() / "configs").glob("*.yaml"))


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL, encoding="utf-8")
    return file


def message(file: Path, *overrides: str) -> str:
    """Return the message that loading the file with these overrides fails with."""
    with pytest.raises(NmtError) as caught:
        load_config(str(file), overrides)
    return str(caught.value)


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "written.yaml"
    file.write_text(text, encoding="utf-8")
    return file


# --- what is read ---------------------------------------------------------------------------------------------------


def test_a_minimal_file_gets_the_documented_defaults(config_file: Path) -> None:
    config = load_config(str(config_file))
    assert config.tokenizer.vocab_size == 8000
    assert config.model.decoder == BahdanauConfig(hidden_size=512, attention_size=512, readout="deep")
    assert (config.training.batch_tokens, config.training.max_minutes) == (4096, None)
    assert config.evaluation.length_buckets == (10, 20, 30, 40, 50)
    assert config.data.test is None


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_config_parses_under_its_bare_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(load_config(name), Config)


def test_the_shipped_configs_are_those_promised() -> None:
    assert set(SHIPPED) >= {
        "bahdanau.yaml",
        "luong.yaml",
        "seq2seq.yaml",
        "multi30k-bahdanau.yaml",
        "multi30k-luong.yaml",
        "own-files.yaml",
    }


@pytest.mark.parametrize("name", SHIPPED)
def test_every_key_of_a_shipped_config_is_commented(name: str) -> None:
    text = (shipped_dir() / "configs" / name).read_text(encoding="utf-8")
    sections = {*Config.model_fields, "encoder", "decoder", "optimizer", "schedule"}
    for line in text.splitlines():
        key = re.match(r"\s*(\w+):", line)
        if key and key[1] not in sections:
            assert re.search(r"\S\s+# \S", line), f"{name}: {line}"


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_config_names_every_setting(name: str) -> None:
    tree = yaml.safe_load((shipped_dir() / "configs" / name).read_text(encoding="utf-8"))
    whole = yaml.safe_load(config_yaml(load_config(name)))
    assert keys(tree) == keys(whole)


def keys(tree: Any) -> Any:
    """Return a tree's keys without its values; what a SOURCE holds is the user's choice."""
    if not isinstance(tree, dict) or tree.keys() & {"src", "hub"}:
        return None
    return {key: keys(value) for key, value in tree.items()}


def test_the_shipped_demo_configs_point_into_the_shipped_data() -> None:
    for name in ("bahdanau.yaml", "luong.yaml", "seq2seq.yaml"):
        source = load_config(name).data.train[0]
        assert source.src == str(shipped_dir() / "data" / "demo" / "train.en")


def test_a_file_in_the_current_folder_wins_over_a_shipped_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bahdanau.yaml").write_text(SMALL, encoding="utf-8")
    assert load_config("bahdanau.yaml").data.dev.tsv == str(tmp_path / "dev.tsv")


@pytest.mark.parametrize("number", ["1e-4", "1.0e-4", "0.0001", "1E-4", "+1e-4", ".0001"])
def test_floats_are_read_as_people_write_them(config_file: Path, number: str) -> None:
    overrides = [f"training.optimizer.learning_rate={number}"]
    assert load_config(str(config_file), overrides).training.optimizer.learning_rate == 1e-4


@pytest.mark.parametrize(("text", "value"), [("2e4", 20000), ("1_000", 1000), ("010", 10), ("20000.0", 20000)])
def test_counts_are_read_as_people_write_them(config_file: Path, text: str, value: int) -> None:
    assert load_config(str(config_file), [f"training.max_steps={text}"]).training.max_steps == value


@pytest.mark.parametrize("code", ["no", "on", "yes", "off", "y"])
def test_language_codes_that_yaml_takes_for_truth_values_are_text(config_file: Path, code: str) -> None:
    assert load_config(str(config_file), [f"data.src_lang={code}"]).data.src_lang == code
    config = load_config(str(config_file), [f"data.src_lang={code}"])
    again = written(config_file.parent, config_yaml(config))
    assert load_config(str(again)) == config


def test_a_byte_order_mark_is_dropped(config_file: Path) -> None:
    config_file.write_bytes(b"\xef\xbb\xbf" + SMALL.encode())
    assert load_config(str(config_file)).data.src_lang == "en"


def test_train_takes_one_source_or_a_list(config_file: Path) -> None:
    one = load_config(str(config_file)).data.train
    assert [source.kind for source in one] == ["text"]
    many = load_config(str(config_file), ["data.train=[{tsv: a}, {jsonl: b}, {csv: c}, {parquet: d}]"]).data.train
    assert [source.kind for source in many] == ["tsv", "jsonl", "csv", "parquet"]


def test_kind_is_bahdanau_by_default(config_file: Path) -> None:
    decoder = load_config(str(config_file), ["model.decoder.hidden_size=8"]).model.decoder
    assert decoder == BahdanauConfig(hidden_size=8)


# --- paths ----------------------------------------------------------------------------------------------------------


def test_paths_in_a_file_start_at_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    Path("sub/c.yaml").write_text(SMALL.replace("dev.tsv", "../up.tsv"), encoding="utf-8")
    data = load_config("sub/c.yaml").data
    assert data.train[0].src == str(tmp_path / "sub" / "train.en")
    assert data.dev.tsv == str(tmp_path / "up.tsv")


@pytest.mark.parametrize(
    ("override", "split"),
    [
        ("data.train={src: x.en, tgt: x.de}", "train"),
        ("data.train=[{src: x.en, tgt: x.de}]", "train"),
        ("data.train.src=x.en", "train"),
        ("data.dev={src: x.en, tgt: x.de}", "dev"),
        ("data={src_lang: a, tgt_lang: b, train: {src: x.en, tgt: x.de}, dev: {src: x.en, tgt: y}}", "train"),
    ],
)
def test_paths_in_set_start_at_the_current_folder(
    config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, override: str, split: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    data = load_config(str(config_file), [override]).data
    source = data.train[0] if split == "train" else data.dev
    assert source.src == str(tmp_path / "elsewhere" / "x.en")


def test_a_hub_id_stays_and_a_local_folder_becomes_absolute(config_file: Path) -> None:
    (config_file.parent / "owner" / "local").mkdir(parents=True)
    text = SMALL.replace("{tsv: dev.tsv}", "{hub: owner/local, split: dev}")
    text = text.replace("{src: train.en, tgt: train.de}", "{hub: owner/remote, split: train}")
    config_file.write_text(text, encoding="utf-8")
    data = load_config(str(config_file)).data
    assert data.train[0].hub == "owner/remote"
    assert data.dev.hub == str(config_file.parent / "owner" / "local")


def test_a_hub_value_written_as_a_path_is_one(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(config_file.parent)
    dev = load_config(str(config_file), ["data.dev={hub: ./not-there, split: dev}"]).data.dev
    assert dev.hub == str(config_file.parent / "not-there")


def test_home_is_expanded(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert load_config(str(config_file), ["data.dev.tsv=~/d.tsv"]).data.dev.tsv == "/home/somebody/d.tsv"


# --- written back ---------------------------------------------------------------------------------------------------

ROUND_TRIPS = [
    [],
    ["model.decoder={kind: luong, score: concat, input_feeding: true}", "training.max_minutes=0.5"],
    ["model.decoder={kind: none, feed_context: true}", "training.optimizer.learning_rate=1e-5"],
    ["data.train=[{tsv: a}, {hub: o/n, name: de-en, split: '1e-4', revision: '010'}]", "data.test={csv: 'no'}"],
    ["evaluation.metrics=[chrf]", "evaluation.bleu_tokenize=none", "evaluation.length_buckets=[]"],
    ["data.dev.tsv=\"a: b # c 'd' \\N{SNOWMAN}\""],
]


@pytest.mark.parametrize("overrides", ROUND_TRIPS)
def test_config_yaml_reads_back_equal_from_anywhere(
    config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides: list[str]
) -> None:
    config = load_config(str(config_file), overrides)
    (tmp_path / "run").mkdir()
    file = tmp_path / "run" / "config.yaml"
    file.write_text(config_yaml(config), encoding="utf-8")
    monkeypatch.chdir("/")
    assert load_config(str(file)) == config
    assert config_yaml(load_config(str(file))) == config_yaml(config)


def test_config_yaml_writes_all_defaults_out(config_file: Path) -> None:
    tree = yaml.safe_load(config_yaml(load_config(str(config_file))))
    assert tree["model"]["decoder"]["readout"] == "deep"
    assert tree["training"]["schedule"]["warmup_steps"] == 0
    assert tree["data"]["train"] == {
        "src": str(config_file.parent / "train.en"),
        "tgt": str(config_file.parent / "train.de"),
    }


def test_settings_cannot_be_changed_after_loading(config_file: Path) -> None:
    config = load_config(str(config_file))
    with pytest.raises(ValueError, match="frozen"):
        config.training.seed = 3  # type: ignore[misc]


# --- --set ----------------------------------------------------------------------------------------------------------


def test_set_replaces_leaves_sections_and_list_items(config_file: Path) -> None:
    config = load_config(
        str(config_file),
        [
            "training.seed=7",
            "model.decoder={kind: luong, hidden_size: 64}",
            "model.decoder.score=concat",
            "data.train=[{tsv: a}, {tsv: b}]",
            "data.train.1.tsv=/c",
            "data.test={tsv: t}",
            "training.max_minutes=",
        ],
    )
    assert config.training.seed == 7
    assert config.model.decoder == LuongConfig(hidden_size=64, score="concat")
    assert config.data.train[1].tsv == "/c"
    assert config.data.test is not None
    assert config.training.max_minutes is None


def test_a_later_set_wins(config_file: Path) -> None:
    assert load_config(str(config_file), ["training.seed=1", "training.seed=2"]).training.seed == 2


def test_set_of_one_node_leaves_an_aliased_one_alone(tmp_path: Path) -> None:
    text = SMALL.replace("{tsv: dev.tsv}", "&dev {tsv: dev.tsv}") + "  test: *dev\n"
    config = load_config(str(written(tmp_path, text)), ["data.dev.tsv=/other"])
    assert config.data.test == Source(tsv=str(tmp_path / "dev.tsv"))


def test_with_overrides_changes_a_loaded_config(config_file: Path) -> None:
    config = with_overrides(load_config(str(config_file)), ["model.decoder={kind: none}"])
    assert config.model.decoder == PlainConfig()


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
    "alignments without guidance": ("data.train_alignments=a.align", "no use without training.alignment_weight"),
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
    "far too long": ("search.max_length_ratio=101", "search.max_length_ratio: must be at most 100, not 101"),
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
    "an item of a list": ("data.train=[{tsv: a}, 3]", "data.train.1: must be a section of keys, not 3"),
    "scale of concat": (
        "model.decoder={kind: luong, score: concat, scale: true}",
        "only for the scores dot and general",
    ),
    "tying without joint": (
        "tokenizer.joint=false",
        "model.tie_embeddings: needs one vocabulary for both sides: set tokenizer.joint: true",
    ),
    "tying a state": ("model.decoder.readout=state", "model.decoder.hidden_size is 512, model.embedding_size is 256"),
    "another kind's key": (
        "model.decoder={kind: luong, readout: deep}",
        "model.decoder.readout: kind luong has no such key; it belongs to kind bahdanau",
    ),
}


TYING = ("tokenizer.joint=false", "model.decoder.readout=state")  # wrong with tied embeddings alone


@pytest.mark.parametrize(("override", "part"), VALUE_ERRORS.values(), ids=VALUE_ERRORS)
def test_a_wrong_value_is_told_in_one_line(config_file: Path, override: str, part: str) -> None:
    tied = ["model.tie_embeddings=true"] if override in TYING else []
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
