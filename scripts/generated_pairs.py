"""Parallel text of any size, the same for the same seed: what `bench_data.py` prepares.

Words are spelt in syllables and drawn by Zipf's law (Mandelbrot's form of it), frequent ones short; the lengths of
sentences are log-normal. A target sentence translates its source word by word, with a few words less or more, and some
neighbours change places. As in real corpora some pairs are wrong: duplicates, sides that do not match in length, blank
sides, and lines far too long.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

WORDS = 60_000  # of each language
EXPONENT, OFFSET = 1.05, 2.7  # a word's share falls with (rank + OFFSET) ** -EXPONENT
SPREAD = 0.45  # standard deviation of the logarithm of a sentence's length
AT_ONCE = 50_000  # pairs made at a time; another number gives other text
CONSONANTS = {"src": [*"tnsrhdlwmfcgpb"], "tgt": [*"nrstdhlgmbwkz", "sch"]}
VOWELS = {"src": [*"eaoiu", "ea", "ou"], "tgt": [*"eiau", "ei", "ie", *"äöü"]}

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Faults:
    """Shares of the pairs that are wrong in one way or another."""

    duplicate: float = 0.02
    uneven: float = 0.005
    blank: float = 0.001
    long: float = 0.0005


def write_pairs(
    folder: Path, name: str, pairs: int, seed: int, words: float = 14.0, faults: Faults | None = None
) -> int:
    """Write `name.src` and `name.tgt`; return their bytes.

    Args:
        folder: of the two files.
        name: of the two files.
        pairs: how many lines each gets.
        seed: the same one gives the same files.
        words: mean number of words of a source sentence.
        faults: what is wrong; by default the shares of `Faults`.
    """
    vocabulary = {side: pa.array(spelt_words(side)) for side in ("src", "tgt")}
    faults = Faults() if faults is None else faults
    size = 0
    first: tuple[pa.Array, pa.Array] | None = None
    with (folder / f"{name}.src").open("wb") as src_file, (folder / f"{name}.tgt").open("wb") as tgt_file:
        for start in range(0, pairs, AT_ONCE):
            rng = np.random.default_rng([seed, start])
            sides = _some_pairs(rng, min(AT_ONCE, pairs - start), words, vocabulary, faults)
            first = first or sides
            sides = _with_duplicates(rng, sides, first, faults.duplicate)
            for lines, file in zip(sides, (src_file, tgt_file)):
                size += file.write(_joined(lines, "\n"))
                size += file.write(b"\n")
    return size


@functools.cache
def spelt_words(side: str) -> list[str]:
    """Return the words of a language, the most frequent first, each different."""
    draw = random.Random(f"words {side}")
    found: dict[str, None] = {}
    while len(found) < WORDS:
        syllables = 1 + min(4, int(draw.expovariate(1.0) * 0.09 * len(found).bit_length()))
        parts = [draw.choice(CONSONANTS[side]) + draw.choice(VOWELS[side]) for _ in range(syllables)]
        ending = draw.choice(CONSONANTS[side]) if draw.random() < 0.5 else ""
        found["".join(parts) + ending] = None
    return list(found)


def _some_pairs(
    rng: np.random.Generator, count: int, words: float, vocabulary: dict[str, Any], faults: Faults
) -> tuple[Any, Any]:
    """Return `count` source and target sentences as Arrow arrays of text, duplicates excepted."""
    weights = (np.arange(WORDS) + OFFSET) ** -EXPONENT
    shares = np.cumsum(weights / weights.sum())
    lengths = np.exp(rng.normal(np.log(words) - SPREAD**2 / 2, SPREAD, count)).astype(np.int64).clip(1, 80)
    fault = rng.random(count)
    lengths[fault < faults.long] = 300
    ids = np.searchsorted(shares, rng.random(int(lengths.sum()))).clip(0, WORDS - 1)
    tgt_lengths = (lengths + rng.integers(-1, 2, count)).clip(1, None)
    tgt_lengths[(fault >= faults.long) & (fault < faults.long + faults.uneven)] = 40
    tgt_lengths[fault > 1 - faults.blank] = 0
    tgt_ids = _translated(rng, ids, lengths, tgt_lengths)
    sides = ((ids, lengths, vocabulary["src"]), (tgt_ids, tgt_lengths, vocabulary["tgt"]))
    src, tgt = (_sentences(*side) for side in sides)
    return src, tgt


def _translated(rng: np.random.Generator, ids: Numbers, lengths: Numbers, tgt_lengths: Numbers) -> Numbers:
    """Return the target's words: those of the same places, a share of them another sense, some neighbours swapped."""
    starts = np.cumsum(lengths) - lengths
    tgt_starts = np.cumsum(tgt_lengths) - tgt_lengths
    places = np.arange(int(tgt_lengths.sum())) - np.repeat(tgt_starts, tgt_lengths)
    # A target longer than its source goes through the source again.
    tgt_ids = ids[np.repeat(starts, tgt_lengths) + places % np.repeat(lengths, tgt_lengths)]
    other = rng.random(len(tgt_ids)) < 0.15
    tgt_ids[other] = (tgt_ids[other] * 7 + 3) % WORDS
    swapped = np.flatnonzero((rng.random(len(tgt_ids)) < 0.1)[1:] & (places[1:] > 0))
    tgt_ids[swapped], tgt_ids[swapped + 1] = tgt_ids[swapped + 1], tgt_ids[swapped]
    return tgt_ids


def _sentences(ids: Numbers, lengths: Numbers, vocabulary: Any) -> Any:
    """Return sentences: words with blanks between, a capital in front, a full stop behind."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), vocabulary.take(pa.array(ids)))
    text = pc.utf8_capitalize(pc.binary_join(lists, " "))
    return pc.if_else(pc.equal(pc.list_value_length(lists), 0), "", pc.binary_join_element_wise(text, ".", " "))


def _with_duplicates(
    rng: np.random.Generator, sides: tuple[Any, Any], first: tuple[Any, Any], share: float
) -> tuple[Any, Any]:
    """Replace a share of the pairs by pairs of the first ones that were made, so that they lie far apart."""
    count = len(sides[0])
    source = np.arange(count)
    replaced = np.flatnonzero(rng.random(count) < share)
    source[replaced] = count + rng.integers(0, len(first[0]), len(replaced))
    src, tgt = (pa.concat_arrays([lines, early]).take(pa.array(source)) for lines, early in zip(sides, first))
    return src, tgt


def _joined(lines: Any, separator: str) -> bytes:
    whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    joined: str = pc.binary_join(whole, separator)[0].as_py()
    return joined.encode()
