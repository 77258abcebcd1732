"""What the data report says of the text of a split."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config import TokenizerConfig
from nmt.data.counts import COLUMNS, Checksum, PieceCounts, UnknownCharacters, histogram
from nmt.data.store import Rows
from nmt.data.tokenizer import UNK, Tokenizer, learn_pieces


def test_pieces_are_counted_over_all_batches() -> None:
    counts = PieceCounts()
    for lists in ([[4, 1, 5], [], [1]], [], [[6] * 4]):
        counts.add(Rows.of(lists))
    assert counts.report() == {"pieces": 8, "mean": 2.0, "max": 4, "unknown": 2, "unknown_rate": 0.25, "most_occur": 1}
    assert PieceCounts().report()["mean"] == 0
    assert PieceCounts().report()["most_occur"] == 0


def test_nineteen_of_twenty_pieces_occur_as_often_as_is_said_in_real_pairs() -> None:
    counts = PieceCounts()
    for piece in range(4, 44):  # forty pieces; piece n occurs n times, in batches in which others are missing
        counts.add(Rows.of([[piece] * piece]))
    counts.add(Rows.of([[4] * 100] * 5), made=True)  # what is made of the others is no new occurrence
    assert counts.most_occur() == 6
    assert sum(piece >= 6 for piece in range(4, 44)) / 40 == 0.95


@settings(max_examples=200, deadline=None)
@given(
    batches=st.lists(st.lists(st.tuples(st.integers(0, 130), st.integers(0, 130)), max_size=9), min_size=1, max_size=5)
)
def test_a_histogram_has_every_sentence_with_pieces_in_the_column_of_its_length(
    batches: list[list[tuple[int, int]]],
) -> None:
    sides = {"src": PieceCounts(), "tgt": PieceCounts()}
    for batch in batches:
        for number, counts in enumerate(sides.values()):
            counts.add(Rows.of([[4] * pair[number] for pair in batch]))
    found = histogram(sides)
    width = found["width"]
    lengths = [[pair[number] for batch in batches for pair in batch] for number in (0, 1)]
    longest = max((max(side, default=0) for side in lengths), default=0)
    for side, name in zip(lengths, ("src", "tgt")):
        assert len(found[name]) == -(-longest // width) <= COLUMNS
        assert found[name] == [
            sum(first < length <= first + width for length in side)
            for first in range(0, len(found[name]) * width, width)
        ]
    assert width in (1, 2, 5, 10)
    narrower = {1: -1, 2: 1, 5: 2, 10: 5}[width]
    assert longest > narrower * COLUMNS, "no wider than it must be"


def test_very_long_sentences_widen_the_columns() -> None:
    counts = PieceCounts()
    counts.add(Rows.of([[4] * 12_345, [4]]))
    assert histogram({"src": counts, "tgt": counts})["src"] == [1, *[0] * 11, 1]


def tokenizer(folder: Path) -> Tokenizer:
    words = ["the dog sees a cat", "a cat runs", "the cat sees the dog", "dogs run", "see the cats"]
    learn_pieces(words * 20, folder / "m.model", TokenizerConfig(vocab_size=22), "words")
    return Tokenizer(folder / "m.model")


def test_characters_without_a_piece_are_counted_most_frequent_first(tmp_path: Path) -> None:
    model = tokenizer(tmp_path)
    characters = UnknownCharacters(model)
    batches = [["the dog", "жж the ж", "", "中文 cat"], ["a cat"], ["d文g文 \u3000run", "x\x1b"]]
    for texts in batches:
        rows = Rows.of(model.encode(texts))
        characters.add(texts, rows)
    assert characters.report() == {
        "unknown_characters": 6,
        "most_unknown": {"ж": 3, "文": 3, "中": 1, "\u3000": 1, "x": 1, "\x1b": 1},
    }
    assert UNK in model.encode(["\u3000"])[0], "it was unknown indeed"


def test_ten_unknown_characters_are_named_and_all_are_counted(tmp_path: Path) -> None:
    model = tokenizer(tmp_path)
    characters = UnknownCharacters(model)
    texts = ["".join(chr(0x4E00 + n) * (40 - n) for n in range(30))]
    characters.add(texts, Rows.of(model.encode(texts)))
    found = characters.report()
    assert found["unknown_characters"] == 30
    assert list(found["most_unknown"].items()) == [(chr(0x4E00 + n), 40 - n) for n in range(10)]


def checksum(*batches: tuple[list[str], list[str], list[list[int]] | None]) -> str:
    found = Checksum()
    for src, tgt, links in batches:
        found.add(src, tgt, None if links is None else Rows.of(links))
    return found.report()


def test_a_checksum_does_not_depend_on_the_batches() -> None:
    src, tgt, links = ["a", "", "c d", "ä"], ["x", "y", "", "z"], [[0, 0], [], [1, 0, 1, 1], [0, 0]]
    whole = checksum((src, tgt, links))
    for cut in range(5):
        assert checksum((src[:cut], tgt[:cut], links[:cut]), (src[cut:], tgt[cut:], links[cut:])) == whole
    assert checksum((src, tgt, None)) != whole


def test_a_checksum_is_another_one_for_other_data() -> None:
    src, tgt, links = ["a", "", "c d"], ["x", "y", ""], [[0, 0], [], [1, 0, 1, 1]]
    others = [
        (src, tgt, links),
        (src[::-1], tgt[::-1], links[::-1]),
        (tgt, src, links),
        (["a", "c d", ""], tgt, links),
        (["a", "", "c", "d"], [*tgt, ""], [*links, []]),
        (["a", "", "c d "], tgt, links),
        (src, ["x", "", "y"], links),
        (src, tgt, [[0, 0], [1, 0], [1, 1]]),
        (src, tgt, [[0, 0], [], [1, 1, 1, 0]]),
        (src[:2], tgt[:2], links[:2]),
    ]
    assert len({checksum(other) for other in others}) == len(others)
    assert len(checksum()) == 32
