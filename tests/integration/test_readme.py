"""What the README tells people to do works as written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import yaml
from tiny import nmt, write_corpus

from nmt.config import load_config, shipped_dir

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")

SMALL = ["--set", "tokenizer.vocab_size=36", "--set", "training.max_steps=4", "--set", "training.batch_tokens=200"]
SMALL += ["--set", "model.embedding_size=8", "--set", "model.encoder.hidden_size=8"]
SMALL += ["--set", "model.decoder.hidden_size=8"]


def code_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_example_for_own_data_trains_translates_and_scores(tmp_path: Path) -> None:
    (example,) = code_blocks("yaml")
    write_corpus(tmp_path)
    (tmp_path / "mine.yaml").write_text(example, encoding="utf-8")
    nmt("train", "--config", "mine.yaml", *SMALL, cwd=tmp_path)
    assert nmt("translate", "the red dog.", cwd=tmp_path).stdout.count(b"\n") == 1
    assert b"BLEU" in nmt("eval", cwd=tmp_path).stdout
    assert b"Parameters" in nmt("info", cwd=tmp_path).stdout


def test_the_example_for_own_data_has_about_ten_lines() -> None:
    (example,) = code_blocks("yaml")
    assert len(example.splitlines()) <= 12


def test_ci_installs_and_tests_with_the_readmes_commands() -> None:
    install, test = code_blocks("sh")
    ci = (ROOT / ".ci/run").read_text(encoding="utf-8")
    (pip,) = re.findall(r"pip install [^&\n]*", install)
    assert pip.strip().removeprefix("pip install ") in ci
    assert re.search(rf"^{re.escape(test.strip())}$", ci, re.MULTILINE)


def test_every_configuration_that_is_named_exists() -> None:
    named = set(re.findall(r"[\w-]+\.yaml", README)) - {"mine.yaml", "config.yaml", "NAME.yaml"}
    shipped = {path.name for path in (shipped_dir() / "configs").glob("*.yaml")}
    assert shipped <= named
    assert named <= shipped


def test_every_picture_and_file_that_is_named_exists() -> None:
    for name in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README):
        assert (ROOT / name).is_file(), name
    for name in re.findall(r"`((?:scripts|configs|nmt)/[\w/.-]+)`", README):
        assert (ROOT / name).exists(), name


def test_every_option_in_the_table_of_commands_exists() -> None:
    table = re.findall(r"^\| `nmt (\w+)([^`]*)`", README, re.MULTILINE)
    assert {command for command, _ in table} == {
        "train", "prepare", "translate", "eval", "compare", "average", "align", "attention", "export", "serve",
        "info",
    }  # fmt: skip
    for command, usage in table:
        options = set(re.findall(r"--[\w-]+", usage))
        helped = nmt(command, "--help", cwd=ROOT).stdout.decode()
        assert options <= set(re.findall(r"--[\w-]+", helped)), command


def test_every_setting_given_as_an_example_is_one(tmp_path: Path) -> None:
    settings = re.findall(r"--set ('[^']+'|\S+=\S+)", README)
    values = [shlex.split(setting.strip("`"))[0] for setting in settings if "K=V" not in setting]
    assert values
    # Refused beside guided attention.
    others = [value for value in values if "sampling_alpha" in value or "substitutions" in value]
    load_config("bahdanau.yaml", others)
    load_config("bahdanau.yaml", [value for value in values if value not in others])
    assert all(yaml.safe_load(value.split("=", 1)[1]) is not None for value in values)
