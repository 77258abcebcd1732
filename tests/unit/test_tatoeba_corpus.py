"""scripts/tatoeba_corpus.py: a split without a common sentence, as text or as tokens."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from test_demo_corpus import load_script

corpus = load_script("tatoeba_corpus")
ROWS = [f"It's number {number}.\tC'est l'{word} {number}." for number in range(2100) for word in ("un", "autre")]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    file = tmp_path / "fra-eng.zip"
    with zipfile.ZipFile(file, "w") as writer:
        writer.writestr("_about.txt", "terms")
        writer.writestr("fra.txt", "".join(f"{row}\tCC-BY\n" for row in ROWS))
    return file


def written(out: Path) -> dict[str, list[tuple[str, str]]]:
    """The pairs, English first."""
    texts = {file.name: file.read_text(encoding="utf-8").splitlines() for file in out.iterdir()}
    return {split: [*zip(texts[f"{split}.en"], texts[f"{split}.fr"])] for split in ("train", "dev", "test")}


def test_raw_text_is_the_archive_s_split_by_english_sentence(archive: Path, tmp_path: Path) -> None:
    corpus.main([str(archive), str(tmp_path / "out"), "--raw"])
    splits = written(tmp_path / "out")
    assert {name: len(pairs) for name, pairs in splits.items()} == {"train": 200, "dev": 1000, "test": 1000}
    pairs = [pair for rows in splits.values() for pair in rows]
    assert len({*pairs}) == len(pairs)
    assert {*pairs} <= {tuple(row.split("\t")) for row in ROWS}
    english = [{english for english, _ in rows} for rows in splits.values()]
    assert sum(map(len, english)) == len(english[0] | english[1] | english[2]) == 2100


def test_tokens_are_in_lower_case_and_training_has_rows_of_pairs(archive: Path, tmp_path: Path) -> None:
    corpus.main([str(archive), str(tmp_path / "out"), "--join", "2"])
    train = written(tmp_path / "out")["train"]
    assert len(train) == 200 + 100
    english, french = train[0]
    number = english.split()[-2]
    assert english == f"it 's number {number} ."
    assert french in (f"c' est l' un {number} .", f"c' est l' autre {number} .")
    assert train[-1][0].count(".") == train[-1][1].count(".") == 2


@pytest.mark.parametrize("option", [("--join", "2"), ("--text", "gold.en")])
def test_what_goes_with_tokens_alone_is_refused_with_raw_text(
    archive: Path, tmp_path: Path, option: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        corpus.main([str(archive), str(tmp_path / "out"), "--raw", *option])
    assert "--text and --join go with tokenised text" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
