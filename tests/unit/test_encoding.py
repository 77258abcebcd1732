"""Batches of pairs, and the time that each part of the work takes."""

from __future__ import annotations

import time

import numpy as np

from nmt.data.encoding import Stopwatch, batches


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
