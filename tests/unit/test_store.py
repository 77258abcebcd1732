"""Encoded corpora on disk."""

from __future__ import annotations

import contextlib
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.data import store
from nmt.data.store import CorpusWriter, EncodedCorpus, Rows
from nmt.errors import NmtError

IDS = st.lists(st.integers(0, 2**31 - 1), max_size=5)
ROWS = st.lists(st.tuples(IDS, IDS, st.text(max_size=4), st.text(max_size=4)), max_size=6)


def write(path: Path, batches: list[list[tuple[list[int], list[int], str, str]]]) -> EncodedCorpus:
    with CorpusWriter(path) as writer:
        for batch in batches:
            writer.write(*([row[column] for row in batch] for column in range(4)))  # type: ignore[arg-type]
    return EncodedCorpus(path)


@settings(max_examples=100, deadline=None)
@given(batches=st.lists(ROWS, max_size=4))
def test_what_was_written_is_read(
    batches: list[list[tuple[list[int], list[int], str, str]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    corpus = write(tmp_path_factory.mktemp("store") / "c.arrow", batches)
    rows = [row for batch in batches for row in batch]
    assert len(corpus) == len(rows)
    for index, (src, tgt, src_text, tgt_text) in enumerate(rows):
        assert corpus.src_ids(index).tolist() == src
        assert corpus.tgt_ids(index).tolist() == tgt
        assert corpus.src_text(index) == src_text
        assert corpus.tgt_text(index) == tgt_text
    assert corpus.src_lengths.tolist() == [len(row[0]) for row in rows]
    assert corpus.tgt_lengths.tolist() == [len(row[1]) for row in rows]
    assert corpus.src_texts() == [row[2] for row in rows]
    assert corpus.tgt_texts() == [row[3] for row in rows]


@settings(max_examples=50, deadline=None)
@given(batches=st.lists(ROWS, max_size=4), data=st.data())
def test_sentences_together_are_those_that_were_written(
    batches: list[list[tuple[list[int], list[int], str, str]]],
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    corpus = write(tmp_path_factory.mktemp("store") / "c.arrow", batches)
    rows = [row for batch in batches for row in batch]
    pairs = np.array(data.draw(st.lists(st.integers(0, len(corpus) - 1), max_size=6) if len(corpus) else st.just([])))
    pairs = pairs.astype(np.int64)
    assert corpus.src_flat(pairs).tolist() == [piece for pair in pairs for piece in rows[pair][0]]
    assert corpus.tgt_flat(pairs).tolist() == [piece for pair in pairs for piece in rows[pair][1]]


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="no other system says what is mapped")
def test_what_was_read_of_the_file_is_no_memory_of_the_process(tmp_path: Path) -> None:
    def mapped() -> int:  # KB of the file
        lines = iter(Path("/proc/self/smaps").read_text().splitlines())
        return sum(int(next(at for at in lines if at.startswith("Rss:")).split()[1]) for at in lines if "c.arrow" in at)

    batch = [([5] * 20, [6] * 20, "x" * 50, "y" * 50)] * 10_000
    corpus = write(tmp_path / "c.arrow", [batch] * 10)
    corpus.src_flat(np.arange(0, len(corpus), 7))
    assert sum(len(sources) for sources, _ in corpus.text_batches()) == len(corpus)
    assert mapped() < 0.05 * (tmp_path / "c.arrow").stat().st_size / 1024
    assert corpus.src_text(99_999) == "x" * 50
    assert mapped() > 0


def test_a_file_is_read_alike_where_pread_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "read_at", store.seek_and_read)
    corpus = write(tmp_path / "c.arrow", [[([4, 5], [6], "a", "b")], [([7], [8, 9, 10], "c", "d"), ([], [11], "", "")]])
    assert corpus.src_flat(np.array([2, 1, 0])).tolist() == [7, 4, 5]
    assert corpus.tgt_flat(np.array([2, 1, 0])).tolist() == [11, 8, 9, 10, 6]


def test_a_file_that_becomes_shorter_is_told(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.arrow", [[([4, 5], [6], "a", "b")]])
    os.truncate(tmp_path / "c.arrow", 100)
    with pytest.raises(NmtError, match=r"c\.arrow could be read until now .*it has become shorter"):
        corpus.tgt_ids(0)


def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    batch = [([5] * 200, [6] * 200, "x" * 500, "y" * 500)] * 500
    tracemalloc.start()
    corpus = write(tmp_path / "c.arrow", [batch] * 40)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    assert sum(int(corpus.src_flat(np.arange(at, at + 100)).sum()) for at in range(0, 20_000, 100)) == 5 * 200 * 20_000
    assert tracemalloc.get_traced_memory()[1] - before < 1_000_000
    tracemalloc.stop()


def test_an_open_corpus_holds_4_bytes_a_sentence(tmp_path: Path) -> None:
    batch = [([5] * 20, [6] * 20, "x" * 50, "y" * 50)] * 10_000
    write(tmp_path / "c.arrow", [batch] * 10)
    tracemalloc.start()
    corpus = EncodedCorpus(tmp_path / "c.arrow")
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert corpus.src_lengths.nbytes + corpus.tgt_lengths.nbytes == 8 * len(corpus)
    assert held <= 8 * len(corpus) + 200_000


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(st.tuples(IDS, st.booleans()), max_size=6))
def test_rows_are_the_lists_that_were_chosen(rows: list[tuple[list[int], bool]]) -> None:
    lists = [ids for ids, _ in rows]
    chosen = np.array([wanted for _, wanted in rows], dtype=np.bool_)
    assert Rows.of(lists).to_arrow().to_pylist() == lists
    assert Rows.of(lists).select(chosen).to_arrow().to_pylist() == [ids for ids, wanted in rows if wanted]


def test_an_index_outside_is_an_error(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.arrow", [[([4], [5], "a", "b")]])
    for read in (corpus.src_ids, corpus.tgt_ids, corpus.src_text, corpus.tgt_text):
        with pytest.raises(IndexError):
            read(1)
    assert corpus.tgt_text(-1) == "b"


def test_columns_of_different_length_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="same length"), CorpusWriter(tmp_path / "c.arrow") as writer:
        writer.write([[1]], [[1], [2]], ["a"], ["b"])


@pytest.mark.parametrize("content", [b"", b"no arrow", b"ARROW1\0\0" + b"x" * 50])
def test_a_damaged_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c.arrow").write_bytes(content)
    with pytest.raises(NmtError, match=r"c\.arrow is no encoded corpus or damaged"):
        EncodedCorpus(tmp_path / "c.arrow")


def test_a_file_that_was_not_finished_is_an_error(tmp_path: Path) -> None:
    with contextlib.suppress(RuntimeError), CorpusWriter(tmp_path / "c.arrow") as writer:
        writer.write([[1]], [[2]], ["a"], ["b"])
        raise RuntimeError("stopped in the middle")
    with pytest.raises(NmtError, match="damaged"):
        EncodedCorpus(tmp_path / "c.arrow")
    with pytest.raises(NmtError, match="damaged"):
        EncodedCorpus(tmp_path / "missing.arrow")
