"""Every kind of source gives the same pairs, or one message that says what is wrong and where."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config import Source
from nmt.data.corpus import PairFilter, PairSource, read_pairs
from nmt.data.overlap import Overlap
from nmt.data.sources import Pair
from nmt.errors import NmtError

# What has been lost or changed by one reader or another.
PAIRS = [
    ("A house.", "Ein Haus."),
    ("NA", "null"),
    ("", "nan"),
    ('He said "no"', 'Er sagte "nein'),
    ("2020-01-01", "1"),
    ("a\u2028b\x85c", "x\x0by\x0cz"),
    ("comma, semicolon;", "'quote'"),
    ("</s> <unk>", " blanks  around "),
]


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    import datasets
    import huggingface_hub.constants

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("hf"))


def write(path: Path, content: str | bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def jsonl(rows: list[dict[str, object]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def as_csv(pairs: list[tuple[str, str]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    writer.writerow(["en", "de"])
    writer.writerows(pairs)
    return out.getvalue()


def flat(pairs: list[tuple[str, str]]) -> list[dict[str, object]]:
    return [{"en": src, "de": tgt} for src, tgt in pairs]


def nested(pairs: list[tuple[str, str]]) -> list[dict[str, object]]:
    return [{"id": n, "translation": {"en": src, "de": tgt}} for n, (src, tgt) in enumerate(pairs)]


def make(kind: str, folder: Path) -> Source:
    """Write PAIRS in the way of a kind of source."""
    lines = ["".join(pair[side] + "\n" for pair in PAIRS) for side in (0, 1)]
    table = pa.Table.from_pylist
    if kind == "text":
        return Source(src=write(folder / "en", lines[0]), tgt=write(folder / "de", lines[1]))
    if kind == "tsv":
        return Source(tsv=write(folder / "f.tsv", "".join(f"{src}\t{tgt}\n" for src, tgt in PAIRS)))
    if kind == "jsonl":
        return Source(jsonl=write(folder / "f.jsonl", jsonl(flat(PAIRS))))
    if kind == "jsonl-nested":
        return Source(jsonl=write(folder / "f.jsonl", jsonl(nested(PAIRS))))
    if kind == "csv":
        return Source(csv=write(folder / "f.csv", as_csv(PAIRS)))
    if kind == "parquet":
        pq.write_table(table(flat(PAIRS)), folder / "f.parquet")
        return Source(parquet=str(folder / "f.parquet"))
    if kind == "parquet-nested":
        pq.write_table(table(nested(PAIRS)), folder / "f.parquet")
        return Source(parquet=str(folder / "f.parquet"))
    if kind == "hub":
        write(folder / "set" / "train.jsonl", jsonl(flat(PAIRS)))
    elif kind == "hub-nested":
        write(folder / "set" / "train.jsonl", jsonl(nested(PAIRS)))
    elif kind == "hub-csv":
        write(folder / "set" / "train.csv", as_csv(PAIRS))
    elif kind == "hub-parquet":
        (folder / "set").mkdir()
        pq.write_table(table(flat(PAIRS)), folder / "set" / "train.parquet")
    return Source(hub=str(folder / "set"), split="train")


KINDS = ["text", "tsv", "jsonl", "jsonl-nested", "csv", "parquet", "parquet-nested"]
HUB_KINDS = ["hub", "hub-nested", "hub-csv", "hub-parquet"]


@pytest.mark.parametrize("kind", KINDS + HUB_KINDS)
def test_every_kind_gives_the_same_pairs(kind: str, tmp_path: Path) -> None:
    source = PairSource(make(kind, tmp_path), "en", "de")
    assert list(source) == PAIRS
    assert list(source) == PAIRS, "a second pass starts anew"
    assert source.folded == 0


@pytest.mark.parametrize("kind", KINDS + HUB_KINDS)
def test_a_source_is_streamed(kind: str, tmp_path: Path) -> None:
    pairs = read_pairs(make(kind, tmp_path), "en", "de")
    assert isinstance(pairs, Iterator)
    assert next(pairs) == PAIRS[0]


@pytest.mark.parametrize("kind", ["text", "tsv", "jsonl", "csv"])
@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_files_are_read(kind: str, pack: object, tmp_path: Path) -> None:
    source = make(kind, tmp_path)
    for key in ("src", "tgt", "tsv", "jsonl", "csv"):
        if path := getattr(source, key):
            Path(path).write_bytes(pack(Path(path).read_bytes()))  # type: ignore[operator]
    assert list(read_pairs(source, "en", "de")) == PAIRS


LINES = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=6)


@settings(max_examples=100, deadline=None)
@given(pairs=st.lists(st.tuples(LINES, LINES), min_size=1, max_size=5))
def test_any_text_comes_through_csv_and_jsonl(
    pairs: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("any")
    assert list(read_pairs(Source(csv=write(folder / "c", as_csv(pairs))), "en", "de")) == pairs
    escaped = "".join(json.dumps(row) + "\n" for row in flat(pairs))
    assert list(read_pairs(Source(jsonl=write(folder / "j", escaped)), "en", "de")) == pairs


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "hub"])
def test_a_line_feed_inside_a_text_becomes_a_blank_and_is_counted(kind: str, tmp_path: Path) -> None:
    broken = [("one\ntwo", "eins\r\nzwei"), ("end\n", "a\n\nb"), ("c", "d")]
    if kind == "jsonl":
        source = Source(jsonl=write(tmp_path / "f", jsonl(flat(broken))))
    elif kind == "csv":
        source = Source(csv=write(tmp_path / "f", as_csv(broken)))
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(flat(broken)), tmp_path / "f")
        source = Source(parquet=str(tmp_path / "f"))
    else:
        write(tmp_path / "set" / "train.jsonl", jsonl(flat(broken)))
        source = Source(hub=str(tmp_path / "set"), split="train")
    pairs = PairSource(source, "en", "de")
    assert list(pairs) == [("one two", "eins zwei"), ("end", "a  b"), ("c", "d")]
    assert pairs.folded == 2


def test_columns_may_have_any_name(tmp_path: Path) -> None:
    path = write(tmp_path / "f", '{"english": "a", "german": "b", "score": 1.5}\n')
    assert list(read_pairs(Source(jsonl=path, src_column="english", tgt_column="german"), "en", "de")) == [("a", "b")]


def table(tmp_path: Path, columns: dict[str, pa.Array]) -> Source:
    pq.write_table(pa.table(columns), tmp_path / "f.parquet")
    return Source(parquet=str(tmp_path / "f.parquet"))


def error_of(source: Source) -> str:
    with pytest.raises(NmtError) as caught:
        list(read_pairs(source, "en", "de"))
    return str(caught.value)


def test_files_of_different_length_are_an_error_with_both_counts(tmp_path: Path) -> None:
    short, long = write(tmp_path / "short", "a\nb\n"), write(tmp_path / "long", "a\nb\nc\nd\ne")
    for source in (Source(src=short, tgt=long), Source(src=long, tgt=short)):
        message = error_of(source)
        assert f"{short} has 2" in message
        assert f"{long} has 5" in message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tb\nc\n", r"f, line 2: 1 tab-separated field, need exactly 2"),
        ("a\tb\tc\n", r"f, line 1: 3 tab-separated fields"),
        ("a\tb\n\n", r"f, line 2: 1 tab-separated field"),
        (b"a\tb\nc\xff\td\n", r"f, line 2, byte 2 of the line"),
    ],
)
def test_tsv_errors(content: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(NmtError, match=message):
        list(read_pairs(Source(tsv=write(tmp_path / "f", content))))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"f, line 2: not JSON \("),
        ("", r"f, line 2: not JSON \(the line is empty\)"),
        ("[" * 100_000, r"f, line 2: not JSON \("),
        ('["a", "b"]', r'f, line 2: a JSON object is needed, such as {"en": "…", "de": "…"}'),
        ('{"en": "a", "fr": "b"}', r"f, line 2: no column 'de'; there is: en, fr\. Name the right one: set src_column"),
        ('{"en": "a", "de": 5}', r"f, line 2: the value of 'de' is 5, text in quotes is needed"),
        ('{"en": null, "de": "b"}', r"f, line 2: the value of 'en' is null"),
        ('{"en": "a", "de": ["b"]}', r"the value of 'de' is \[\"b\"\]"),
        ('{"en": "a\\ud83d", "de": "b"}', r"f, line 2: the text holds half a surrogate pair"),
    ],
)
def test_jsonl_errors(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(NmtError, match=message):
        list(read_pairs(Source(jsonl=write(tmp_path / "f", f'{{"en": "a", "de": "b"}}\n{line}\n')), "en", "de"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"f: no column 'en'; there is: none"),
        ("en,fr\na,b\n", r"f: no column 'de'; there is: en, fr"),
        ("en,de,de\na,b,c\n", r"f: no column 'de'"),
        ("en,de\na,b\nc\n", r"f, line 3: 1 fields, but the header has 2"),
        ("en,de\na,b,c\n", r"f, line 2: 3 fields"),
        ('en,de\na,"b"x\n', r"f, line 2: not valid CSV"),
        ('en,de\na,"b\nc,d\n', r"f, line 2: not valid CSV"),
        ("en,de\na\rb,c\n", r"f, line 2: not valid CSV"),
    ],
)
def test_csv_errors(content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(NmtError, match=message):
        list(read_pairs(Source(csv=write(tmp_path / "f", content)), "en", "de"))


def test_parquet_errors(tmp_path: Path) -> None:
    texts = pa.array(["a", "b"])
    assert "no column 'de'; there is: en, fr" in error_of(table(tmp_path, {"en": texts, "fr": texts}))
    assert "column 'de' holds values of type int64" in error_of(table(tmp_path, {"en": texts, "de": pa.array([1, 2])}))
    missing = pa.array(["a", None])
    assert "row 2: the value in column 'de' is missing" in error_of(table(tmp_path, {"en": texts, "de": missing}))
    translation = pa.array([{"en": "a", "fr": "b"}])
    assert "there is: translation, translation.en, translation.fr" in error_of(
        table(tmp_path, {"translation": translation})
    )
    bad = pa.Array.from_buffers(pa.string(), 1, [None, *pa.array([b"\xff"]).buffers()[1:]])
    assert "not UTF-8" in error_of(table(tmp_path, {"en": bad, "de": pa.array(["a"])}))
    assert "no Parquet file or damaged" in error_of(Source(parquet=write(tmp_path / "x", "text")))
    assert "no such file" in error_of(Source(parquet=str(tmp_path / "nowhere")))


def test_hub_split_configuration_and_column_errors_name_the_choices(tmp_path: Path) -> None:
    hub = make("hub", tmp_path).hub
    assert "['train']" in error_of(Source(hub=hub, split="test"))
    assert "`split`" in error_of(Source(hub=hub, split="train[:"))
    assert "Available: ['default']" in error_of(Source(hub=hub, split="train", name="de-en"))
    with pytest.raises(NmtError, match=r"no column 'fr'; there is: en, de"):
        list(read_pairs(Source(hub=hub, split="train"), "en", "fr"))


def test_a_hub_folder_with_a_loading_script_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "set" / "set.py", "raise SystemExit('this must not run')")
    write(tmp_path / "set" / "train.jsonl", jsonl(flat(PAIRS)))
    message = error_of(Source(hub=str(tmp_path / "set"), split="train"))
    assert "needs a loading script" in message
    assert "`revision: refs/convert/parquet`" in message


def test_a_hub_that_cannot_be_reached_is_an_error_that_shows_local_files() -> None:
    source = Source(hub="bentrevett/multi30k", split="train")
    message = error_of(source)
    assert "the hub cannot be reached, so bentrevett/multi30k cannot be fetched" in message
    assert "train: {src: train.en, tgt: train.de}" in message
    with pytest.raises(NmtError, match="cannot be reached"):
        PairSource(source).stamp()


def test_hub_folders_that_do_not_exist_or_are_empty_are_errors(tmp_path: Path) -> None:
    assert "no such folder" in error_of(Source(hub=str(tmp_path / "nowhere"), split="train"))
    assert "no such folder" in error_of(Source(hub="./nowhere", split="train"))
    (tmp_path / "empty").mkdir()
    assert "cannot be read" in error_of(Source(hub=str(tmp_path / "empty"), split="train"))


def test_damaged_files_of_a_hub_folder_are_errors(tmp_path: Path) -> None:
    write(tmp_path / "set" / "train.jsonl", '{"en": "a", "de": "b"}\n{"en": oops\n')
    assert "set, split train cannot be read" in error_of(Source(hub=str(tmp_path / "set"), split="train"))


def test_hub_values_that_are_not_text_are_errors(tmp_path: Path) -> None:
    # `datasets` stores a column of mixed types as JSON and reads dates as dates: neither may pass for text.
    for name, value in (("mixed", 5), ("list", ["b"])):
        write(tmp_path / name / "train.jsonl", jsonl([{"en": "a", "de": "b"}, {"en": "a", "de": value}]))
        assert "column 'de' holds values of type" in error_of(Source(hub=str(tmp_path / name), split="train"))
    write(tmp_path / "null" / "train.jsonl", '{"en": "a", "de": "b"}\n{"en": "a", "de": null}\n')
    assert "row 2: the value in column 'de' is missing" in error_of(Source(hub=str(tmp_path / "null"), split="train"))


def test_the_stamp_of_a_source_changes_with_its_files(tmp_path: Path) -> None:
    for kind in ("text", "tsv", "hub"):
        folder = tmp_path / kind
        folder.mkdir()
        source = PairSource(make(kind, folder), "en", "de")
        before = source.stamp()
        assert source.stamp() == before
        file = next(path for path in folder.rglob("*") if path.is_file())
        file.write_bytes(file.read_bytes() + b"\n")
        assert source.stamp() != before


def keep(chooser: PairFilter, pair: Pair, src_ids: list[int], tgt_ids: list[int], line: int) -> bool:
    """Whether the filter takes one pair."""
    lengths = (np.array([len(ids)], dtype=np.int32) for ids in (src_ids, tgt_ids))
    (kept,) = chooser.choose([pair[0]], [pair[1]], *lengths, "f", line).tolist()
    return bool(kept)


def test_pairs_are_dropped_for_the_first_reason_that_applies() -> None:
    chooser = PairFilter(max_length=3, max_ratio=2.0, drop_duplicates=True)
    cases = [
        (("a", "b"), [4], [5], True),
        (("", "b"), [], [5], False),
        (("a", " "), [4], [5], False),
        (("\u200b", "b"), [], [5], False),
        (("c", "d"), [4] * 4, [5], False),
        (("c", "d"), [4], [5] * 4, False),
        (("c", "d"), [4] * 3, [5], False),
        (("c", "d"), [4] * 2, [5], True),
        (("a", "b"), [4], [5], False),
        (("c", "e"), [4], [5], True),
    ]
    for line, (pair, src_ids, tgt_ids, kept) in enumerate(cases, 1):
        assert keep(chooser, pair, src_ids, tgt_ids, line) is kept, line
    assert (chooser.read, chooser.kept) == (10, 3)
    assert {reason: (d.count, [line for _, line in d.first]) for reason, d in chooser.dropped.items()} == {
        "empty": (3, [2, 3, 4]),
        "too long": (2, [5, 6]),
        "too uneven": (1, [7]),
        "duplicate": (1, [9]),
    }


def test_ratio_and_duplicates_are_opt_in_and_five_lines_are_named() -> None:
    chooser = PairFilter(max_length=100)
    assert all(keep(chooser, ("a", "b"), [4], [5] * 50, line) for line in range(1, 4))
    assert (chooser.repeated.count, chooser.repeated.first) == (2, [("f", 2), ("f", 3)])
    assert chooser.repeated_share() == 2 / 3
    for line in range(4, 20):
        keep(chooser, ("", "b"), [], [5], line)
    assert chooser.dropped["empty"].count == 16
    assert [line for _, line in chooser.dropped["empty"].first] == [4, 5, 6, 7, 8]


TEXTS = st.sampled_from(["", " ", "\u2003", "a", "b", "a b", "c"])
FILTERED = st.lists(st.tuples(TEXTS, TEXTS, st.integers(0, 6), st.integers(0, 6)), max_size=30)


@settings(max_examples=200, deadline=None)
@given(
    rows=FILTERED,
    size=st.integers(1, 10),
    max_length=st.integers(1, 6),
    max_ratio=st.sampled_from([None, 1.0, 1.5, 2.0]),
    drop_duplicates=st.booleans(),
    remove_overlap=st.booleans(),
)
def test_a_batch_of_pairs_is_filtered_as_one_pair_after_the_other(
    rows: list[tuple[str, str, int, int]],
    size: int,
    max_length: int,
    max_ratio: float | None,
    drop_duplicates: bool,
    remove_overlap: bool,
) -> None:
    overlap = Overlap()
    overlap.add("dev", ["A.", "unseen"], ["b", "b"])
    chooser = PairFilter(max_length, max_ratio, drop_duplicates, 0, overlap, remove_overlap)
    chosen: list[bool] = []
    for start in range(0, len(rows), size):
        src, tgt, src_lengths, tgt_lengths = zip(*rows[start : start + size])
        lengths = (np.array(column, dtype=np.int32) for column in (src_lengths, tgt_lengths))
        chosen += chooser.choose(src, tgt, *lengths, "f", 1 + start).tolist()

    seen: set[Pair] = set()
    plain: list[bool] = []
    dropped: dict[str, list[int]] = {}
    repeated: list[int] = []
    overlapping = overlap_pairs = 0
    for line, (src_text, tgt_text, m, n) in enumerate(rows, 1):
        reason = None
        if min(m, n) == 0 or not src_text.strip() or not tgt_text.strip():
            reason = "empty"
        elif max(m, n) > max_length:
            reason = "too long"
        elif max_ratio is not None and max(m, n) / min(m, n) > max_ratio:
            reason = "too uneven"
        else:
            overlapping += src_text == "a"
            overlap_pairs |= (src_text, tgt_text) == ("a", "b")
            if "a" in (src_text, tgt_text) and remove_overlap:
                reason = "in dev or test"
            elif (src_text, tgt_text) in seen:
                repeated.append(line)
                reason = "duplicate" if drop_duplicates else None
            else:
                seen.add((src_text, tgt_text))
        plain.append(reason is None)
        if reason is not None:
            dropped.setdefault(reason, []).append(line)
    assert chosen == plain
    assert (chooser.read, chooser.kept) == (len(rows), sum(plain))
    assert (chooser.repeated.count, chooser.repeated.first) == (len(repeated), [("f", line) for line in repeated[:5]])
    assert chooser.repeated_share() == (len(repeated) / (len(seen) + len(repeated)) if seen else 0)
    assert overlap.report(5)["dev"]["normalised"] == {"sources": min(overlapping, 1), "pairs": overlap_pairs}
    found = {reason: (drops.count, drops.first) for reason, drops in chooser.dropped.items()}
    assert list(found.items()) == [
        (reason, (len(lines), [("f", line) for line in lines[:5]])) for reason, lines in dropped.items()
    ]
