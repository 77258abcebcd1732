"""Configuration: what is read, and what is written back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from config_files import SMALL, written

from nmt.config import (
    BahdanauConfig,
    Config,
    LuongConfig,
    PlainConfig,
    Source,
    config_yaml,
    load_config,
    shipped_dir,
    with_overrides,
)

SHIPPED = sorted(path.name for path in (shipped_dir() / "configs").glob("*.yaml"))


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    return written(tmp_path, SMALL, "small.yaml")


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
        "multi30k-de-en.yaml",
        "multi30k-en-fr.yaml",
        "multi30k-low-resource.yaml",
        "tatoeba-en-de.yaml",
        "tatoeba-fr-en.yaml",
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


@pytest.mark.parametrize("joint", ["true", "false"])
def test_target_and_output_are_tied_with_one_vocabulary_or_two(config_file: Path, joint: str) -> None:
    config = load_config(str(config_file), ["model.tie_embeddings=target", f"tokenizer.joint={joint}"])
    assert config.model.tie_embeddings == "target"


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
    ["model.tie_embeddings=target", "tokenizer.joint=false"],
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
