"""What is counted while a split is encoded."""

from __future__ import annotations

import time

import numpy as np

from nmt.data.encoding import HeldOut, PieceCounts, Stopwatch, batches
from nmt.data.store import Rows


def test_pieces_are_counted_over_all_batches() -> None:
    counts = PieceCounts()
    for lists in ([[4, 1, 5], [], [1]], [], [[6] * 4]):
        counts.add(Rows.of(lists))
    assert counts.report() == {"pieces": 8, "mean": 2.0, "max": 4, "unknown": 2, "unknown_rate": 0.25}
    assert PieceCounts().report()["mean"] == 0


def test_sentences_that_training_has_are_counted_each_time_they_occur_and_blank_ones_never() -> None:
    held_out = HeldOut()
    held_out.add(["a", "", " "])
    held_out.add(["b", "a", "c"])
    held_out.compare(["x", "", " ", "a"])
    held_out.compare(["c"])
    assert held_out.overlap() == {"sentences": 3, "of": 6, "first": [1, 5, 6]}


def test_batches_hold_every_pair_once_in_order() -> None:
    pairs = [(str(n), str(-n)) for n in range(20_001)]
    found = list(batches(pairs))
    assert [len(batch) for batch in found] == [10_000, 10_000, 1]
    assert [pair for batch in found for pair in batch] == pairs


def test_a_stopwatch_adds_up_the_time_of_each_part() -> None:
    watch = Stopwatch()
    for _ in range(2):
        with watch("waiting"):
            time.sleep(0.01)
    with watch("nothing"):
        np.zeros(1)
    seconds = watch.report()
    assert list(seconds) == ["waiting", "nothing", "total"]
    assert 0.02 <= seconds["waiting"] <= seconds["total"]
