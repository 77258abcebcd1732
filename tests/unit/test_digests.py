"""Texts by their hashes, and the set that knows which have occurred."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.data.digests import DigestSet, text_digests

TEXTS = ["", "a", "ä", "a\nb", "a b", "𝄞 " * 100]


def test_a_digest_is_the_same_in_every_process() -> None:
    program = f"from nmt.data.digests import text_digests; print(text_digests({TEXTS!a}).tolist())"
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=environment)
        assert done.stdout.decode().strip() == str(text_digests(TEXTS).tolist())


def test_a_digest_is_blake2b_of_the_text() -> None:
    plain = [int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") for text in TEXTS]
    assert text_digests(TEXTS).tolist() == plain
    assert text_digests([]).tolist() == []


# Few numbers, so that they occur again; some so that they all want the same place of an array of 1,024.
NUMBERS = st.one_of(st.integers(1, 40), st.integers(0, 40).map(lambda n: 1024 * n + 5), st.integers(1, 2**64 - 1))


@settings(max_examples=200, deadline=None)
@given(batches=st.lists(st.lists(NUMBERS, max_size=60), max_size=8))
def test_a_digest_is_new_once(batches: list[list[int]]) -> None:
    digests, seen = DigestSet(), set()
    for batch in batches:
        plain = []
        for number in batch:
            plain.append(number not in seen)
            seen.add(number)
        assert digests.add(np.array(batch, dtype=np.uint64)).tolist() == plain
    assert len(digests) == len(seen)


def test_a_set_grows_beyond_what_was_expected() -> None:
    draw = random.Random(1)
    numbers = [draw.randrange(1, 2**64) for _ in range(200_000)]
    digests = DigestSet(expected=10)
    for start in range(0, len(numbers), 30_000):
        assert digests.add(np.array(numbers[start : start + 30_000], dtype=np.uint64)).all()
    assert len(digests) == 200_000
    assert digests.nbytes <= 24 * 200_000
    assert not digests.add(np.array(numbers, dtype=np.uint64)).any()


def test_no_digest_is_the_sign_of_a_free_place() -> None:
    digests = DigestSet()
    assert digests.add(np.array([0, 5, 0], dtype=np.uint64)).tolist() == [True, True, False]
    assert not digests.add(np.array([0], dtype=np.uint64)).any()


def test_as_many_as_were_expected_take_12_bytes_each() -> None:
    rng = np.random.default_rng(1)
    digests = DigestSet(expected=300_000)
    before = digests.nbytes
    for _ in range(30):
        digests.add(rng.integers(1, 2**64, 10_000, dtype=np.uint64))
    assert digests.nbytes == before <= 12 * 300_000 + 16
