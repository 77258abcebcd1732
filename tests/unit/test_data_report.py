"""The data report: how it is put, and when two of them are of the same data."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from nmt.data.report import drops_text, format_report, other_texts

SIDE = {"pieces": 30, "mean": 10.0, "max": 12, "unknown": 3, "unknown_rate": 0.1}
UNKNOWN = {"unknown_characters": 7, "most_unknown": {"ж": 1200, "\x1b": 4, "\u0301": 3, "\u00a0": 2, "中": 2, "文": 1}}


def report() -> dict[str, Any]:
    split = {"read": 3, "kept": 3, "dropped": {}, "sources": ["f"], "unit": "line", "checksum": "1"}
    split |= {"lengths": {"width": 5, "src": [1, 0, 2], "tgt": [0, 2, 1]}}
    held_out = split | {"src": SIDE | UNKNOWN, "tgt": SIDE | {"unknown_characters": 0, "most_unknown": {}}}
    return {
        "languages": {"src": "en", "tgt": "de"},
        "vocabulary": {"joint": True, "model_type": "bpe", "src": 40, "tgt": 40, "lines": 6},
        "train": split | {"src": dict(SIDE), "tgt": dict(SIDE), "repeated": {"count": 0, "first": [], "share": 0.0}},
        "dev": copy.deepcopy(held_out) | {"checksum": "2"},
        "test": copy.deepcopy(held_out) | {"checksum": "3"},
        "where": "here",
        "cached": False,
    }


def test_unknown_characters_that_cannot_be_seen_are_shown_by_number() -> None:
    shown = format_report(report())
    assert "unknown 10.00% src ('ж' 1,200, U+001B 4, U+0301 3, U+00A0 2, '中' 2, …), 10.00% tgt\n" in shown
    assert "\x1b" not in shown


def test_a_histogram_is_one_character_a_column() -> None:
    shown = format_report(report()).splitlines()
    assert "         src |▄ █| 1 to 15, 5 pieces a column, at most 2 pairs in one" in shown
    assert "         tgt | █▄| 1 to 15, 5 pieces a column, at most 2 pairs in one" in shown


@pytest.mark.parametrize(
    ("most", "shown"), [(100, "100 times or more\n"), (99, "99 times or more (Gowda and May 2020 want 100, ")]
)
def test_a_vocabulary_of_rare_pieces_is_told(most: int, shown: str) -> None:
    found = report()
    assert "95%" not in format_report(found)  # of a report that does not know
    found["train"]["tgt"]["most_occur"] = most
    assert f"95% of those in the target occur {shown}" in format_report(found)


@pytest.mark.parametrize(("wanted", "shown"), [(9, ""), (12, " (of 12 asked for: no more were found)")])
def test_made_pairs_are_told_with_their_source(wanted: int, shown: str) -> None:
    found = report()
    found["train"]["made"] = [{"source": "substitutions in f", "wanted": wanted, "pairs": 9}]
    assert f"         9 substitutions in f{shown}\n" in format_report(found)


def test_lines_of_dropped_pairs_are_named_by_source_if_there_are_several() -> None:
    train = report()["train"]
    first = [{"source": label, "line": line} for label, line in (("f", 2), ("f", 9), ("g", 1))]
    train["dropped"] = {"empty": {"count": 3, "first": first}, "too long": {"count": 5, "first": first[:1]}}
    train["limits"] = {"max_length": 1500, "max_ratio": None}
    limit = "data.max_length = 1,500; "
    assert drops_text(train) == f"3 dropped as empty (lines 2, 9; line 1); 5 dropped as too long ({limit}line 2, …)"
    train["sources"] = ["f", "g"]
    empty = "3 dropped as empty (f: lines 2, 9; g: line 1)"
    assert drops_text(train) == f"{empty}; 5 dropped as too long ({limit}f: line 2, …)"


def test_where_it_lies_and_how_long_it_took_are_not_the_data() -> None:
    now = report() | {"where": "there", "cached": True, "seconds": {"total": 3}, "format": 99, "warnings": ["new"]}
    now["train"] |= {"sources": ["elsewhere"], "gained": 5}
    assert other_texts(report(), now) == []


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_other_pairs_are_other_data(split: str) -> None:
    now = report()
    now[split]["checksum"] = "another"
    assert other_texts(report(), now) == [split]
    assert other_texts(report(), report() | {"test": None}) == ["test"]
    assert other_texts(report() | {"test": None}, report() | {"test": None}) == []


def test_a_report_without_checksums_is_compared_by_its_numbers() -> None:
    before = report()
    before["format"] = 1
    for split in ("train", "dev", "test"):
        del before[split]["checksum"]
    assert other_texts(before, report()) == []
    for part in (("dev", "kept"), ("train", "src", "pieces"), ("test", "tgt", "max"), ("dev", "tgt", "unknown")):
        other = copy.deepcopy(before)
        place: Any = other
        for key in part[:-1]:
            place = place[key]
        place[part[-1]] += 1
        assert other_texts(other, report()) == [part[0]]
    guided = report()
    guided["train"]["alignments"] = {"links": 5}
    assert other_texts(before, guided) == ["train"]
