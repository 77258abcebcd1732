"""Words by frequency, repetition, worst sentences: counted by hand, and the counts that a run keeps."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from nmt.data.store import CorpusWriter
from nmt.error_analysis import by_frequency, repetition, worst_sentences
from nmt.errors import NmtError
from nmt.plotting import FrequencyRow, frequency_picture
from nmt.reporting import SilentReporter
from nmt.run_dir import RunDir
from nmt.word_counts import FILE, training_words

COUNTS = {"a": 1000, "b": 5, "c": 1}


def test_words_are_counted_by_how_often_training_has_them() -> None:
    # a: two in the reference, three in the hypothesis, two match; c: one each, in different sentences.
    rows = by_frequency(["a a a c", "b x"], ["a a b", "c y"], COUNTS, str.split)
    assert rows == [
        FrequencyRow(0, 1, 1, 1, 0, 0.0, 0.0, 0.0),
        FrequencyRow(1, 2, 1, 1, 0, 0.0, 0.0, 0.0),
        FrequencyRow(5, 10, 1, 1, 0, 0.0, 0.0, 0.0),
        FrequencyRow(1000, None, 2, 3, 2, 2 / 3, 1.0, 0.8),
    ]
    assert [row.label for row in rows] == ["0", "1", "5–9", "1000+"]


def test_every_word_is_in_one_bucket() -> None:
    counts = {f"w{n}": n for n in (0, 1, 2, 4, 5, 9, 10, 99, 100, 999, 1000, 10**6)}
    text = " ".join(counts)
    rows = by_frequency([text], [text], counts, str.split)
    assert [(row.label, row.reference) for row in rows] == [
        ("0", 1), ("1", 1), ("2–4", 2), ("5–9", 2), ("10–99", 2), ("100–999", 2), ("1000+", 2),
    ]  # fmt: skip
    assert all(row.f_measure == 1 for row in rows)


def test_a_side_without_such_words_has_no_rate() -> None:
    [row] = by_frequency([""], ["c"], COUNTS, str.split)
    assert (row.precision, row.recall, row.f_measure) == (None, 0.0, 0.0)
    [row] = by_frequency(["c"], [""], COUNTS, str.split)
    assert (row.precision, row.recall, row.f_measure) == (0.0, None, None)
    assert by_frequency([""], [""], COUNTS, str.split) == []


def test_repeated_n_grams_are_those_that_their_sentence_had_before() -> None:
    rows = repetition(["a b a b a", "a b"], ["a b c", "a b"], str.split)
    assert [row.n for row in rows] == [1, 2, 3, 4]
    assert rows[0].hypotheses == pytest.approx(1 - (2 + 2) / (5 + 2))
    assert rows[1].hypotheses == pytest.approx(1 - (2 + 1) / (4 + 1))
    assert rows[2].hypotheses == pytest.approx(1 - 2 / 3)
    assert [row.references for row in rows] == [0, 0, 0, None]


def test_the_worst_sentences_come_first_and_blank_or_equal_references_are_left_out() -> None:
    texts = ["one", "two", " ", "four"]
    rows = worst_sentences(texts, ["h"] * 4, texts, [5.0, 1.0, 0.0, 1.0], count=2)
    assert [(row.line, row.score, row.source) for row in rows] == [(2, 1.0, "two"), (4, 1.0, "four")]
    rows = worst_sentences(texts, ["one", "h", "h", "four"], texts, [100.0, 1.0, 0.0, 100.0])
    assert [row.line for row in rows] == [2]


def test_the_picture_by_frequency_is_a_png() -> None:
    rows = by_frequency(["a"], ["c"], COUNTS, str.split)
    assert frequency_picture(rows).startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="at least one row"):
        frequency_picture([])


class Listener(SilentReporter):
    def __init__(self) -> None:
        self.said: list[str] = []

    def info(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir.create(tmp_path / "runs" / "run")
    folder = made.cache_root / "abc"
    folder.mkdir(parents=True)
    with CorpusWriter(folder / "train.arrow") as writer:
        writer.write([[4], [5]], [[4], [5]], ["x", "y"], ["b a", "a\u00a0c"])
        writer.write([[4]], [[4]], ["z"], ["a"])
    made.data_report.write_text(json.dumps({"where": f"/elsewhere/{folder.name}"}))
    return made


def test_the_words_of_training_are_counted_once_and_kept_in_the_run(run: RunDir) -> None:
    expected = Counter({"a": 3, "b": 1, "c": 1})
    assert training_words(run, "none", str.split, SilentReporter()) == expected
    kept = (run.eval / FILE).read_bytes()
    assert gzip.decompress(kept).decode() == "none\n3\ta\n1\tb\n1\tc\n"
    (run.cache_root / "abc" / "train.arrow").unlink()
    assert training_words(run, "none", str.split, SilentReporter()) == expected


def test_words_of_pairs_that_substitutions_made_do_not_count(run: RunDir) -> None:
    report = json.loads(run.data_report.read_text())
    run.data_report.write_text(json.dumps(report | {"train": {"made": [{"kept": 1}, {"kept": 1}]}}))
    assert training_words(run, "none", str.split, SilentReporter()) == Counter({"a": 1, "b": 1})


@pytest.mark.parametrize("train", [3, {"made": 3}, {"made": [3]}, {"made": [{}]}, {"made": [{"kept": "x"}]}])
def test_a_data_report_of_something_else_is_named(run: RunDir, train: object) -> None:
    report = json.loads(run.data_report.read_text())
    run.data_report.write_text(json.dumps(report | {"train": train}))
    with pytest.raises(NmtError, match=r"data_report.json: `nmt train` did not write this"):
        training_words(run, "none", str.split, SilentReporter())


def test_counts_of_another_tokenizer_are_made_anew(run: RunDir) -> None:
    training_words(run, "none", str.split, SilentReporter())
    counts = training_words(run, "char", list, SilentReporter())
    assert counts is not None
    assert counts[" "] == 1
    assert gzip.decompress((run.eval / FILE).read_bytes()).startswith(b"char\n")


def test_without_the_prepared_data_there_are_no_counts_and_a_word_on_what_to_do(run: RunDir) -> None:
    (run.cache_root / "abc" / "train.arrow").unlink()
    reporter = Listener()
    assert training_words(run, "none", str.split, reporter) is None
    [text] = reporter.said
    assert f"nmt prepare --config {run.path}/config.yaml --run-dir {run.path}" in text


@pytest.mark.parametrize(
    "content",
    [
        b"x",
        gzip.compress(b"none\nx\ty\n"),
        gzip.compress(b"none\n1\n"),
        b"\x1f\x8b",
        gzip.compress(b"none\n1\t" + b"a" * 99),
    ],
    ids=["no gzip", "no number", "no word", "cut short", "huge"],  # gzip holds the time: the bytes are no name
)
def test_a_file_of_counts_that_is_none_is_named(run: RunDir, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.word_counts.LIMIT", 50)
    (run.eval / FILE).write_bytes(content)
    with pytest.raises(NmtError, match=rf"{FILE}: `nmt eval` did not write this"):
        training_words(run, "none", str.split, SilentReporter())
