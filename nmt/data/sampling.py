"""Subword regularisation: the training pairs are segmented anew in each epoch (Kudo 2018; Provilkov et al. 2020).

No piece spans two words, so a sentence's segmentation is that of its words, each drawn by itself. SentencePiece can
draw, too, but from one generator a thread that some versions seed once and never again, so that a sentence's pieces
would depend on the version, the number of threads and all that was drawn before. Here the seed, the epoch, the pair
and the word's place in it decide, whatever the batch, the order or a resumed run.

Every word has a few segmentations, and a number hashed from (seed, epoch, side, pair, place) chooses one of them in
each place. They are drawn when they are first chosen, from the pieces that the corpus has of the word: these spell it,
but for characters without a piece, which are UNK however a word is segmented. Pairs are drawn some at a time, and of
the segmentations only so many are kept: memory does not grow with the corpus.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nmt.data.store import EncodedCorpus, Ids, Rows
from nmt.data.tokenizer import UNK, Inventory, Tokenizer, Tokenizers

VARIANTS, TOGETHER = 32, 4  # segmentations that a word has, and those that are drawn when one of them is needed
WORDS_KEPT, IDS_KEPT = 1 << 17, 1 << 23  # of a vocabulary: some 90 MB
PAIRS_AT_ONCE = 1 << 10  # bounds what is in memory beside the result

Numbers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Uniform = Iterator[float]  # endless numbers in [0, 1)
Draw = Callable[[Uniform], list[int]]
_SMALL = 1e-100

# SplitMix64: Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators (2014), figure 16.
_GAMMA, _FIRST, _SECOND, _64_BITS = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 2**64 - 1


# --- one word -------------------------------------------------------------------------------------------------------


def unigram_words(inventory: Inventory, alpha: float) -> Callable[[str], Draw]:
    """Return what, given a word, "▁" in front, returns what draws segmentations of it.

    Each is as likely as the power `alpha` of its probability: forward filtering and backward sampling on the lattice of
    all segmentations, SentencePiece's `nbest_size=-1`, here from the other end (Kudo 2018, section 3.3). A character
    without a piece is UNK, as likely as SentencePiece has it.
    """
    find = {piece: (number, math.exp(alpha * score)) for piece, (number, score) in inventory.pieces.items()}.get
    unknown, longest, append = math.exp(alpha * inventory.unknown_score), inventory.longest, inventory.append

    def of_word(word: str) -> Draw:
        end = len(word)
        mass = [1.0] * (end + 1)  # sum over the segmentations from a place to the end
        choices: list[tuple[list[float], list[tuple[int, int]]]] = [([], [])] * end
        for start in range(end - 1, -1, -1):
            sums: list[float] = []
            edges: list[tuple[int, int]] = []  # where the piece ends, and its id
            total = 0.0
            for stop in range(start + 1, min(end, start + longest) + 1):
                if (found := find(word[start:stop])) is not None:
                    total += found[1] * mass[stop]
                    sums.append(total)
                    edges.append((stop, found[0]))
            if not edges or edges[0][0] > start + 1:
                total += unknown * mass[start + 1]
                sums.append(total)
                edges.append((start + 1, UNK))
            mass[start], choices[start] = total, (sums, edges)
            if not _SMALL < total < 1 / _SMALL:  # only the ratios of those within a piece's reach matter
                reach = slice(start, start + longest + 1)
                mass[reach] = [each / total for each in mass[reach]]

        def draw(random: Uniform) -> list[int]:
            ids: list[int] = []
            place = 0
            while place < end:
                sums, edges = choices[place]
                stop, piece = edges[bisect_right(sums, next(random) * sums[-1], 0, len(sums) - 1)]
                append(ids, piece, word[place:stop])
                place = stop
            return ids

        return draw

    return of_word


def bpe_words(inventory: Inventory, alpha: float) -> Callable[[str], Draw]:
    """Return what, given a word, "▁" in front, returns what draws segmentations of it by BPE dropout.

    As SentencePiece does it (Provilkov et al. 2020): the merges that are possible are taken in their order, and each is
    left out with probability `alpha`; it may come again only when a neighbour has changed.
    """
    pieces = inventory.pieces

    def of_word(word: str) -> Draw:
        first = [
            (-found[1], place, word[place : place + 2])
            for place in range(len(word) - 1)
            if (found := pieces.get(word[place : place + 2]))
        ]
        heapify(first)

        def draw(random: Uniform) -> list[int]:
            symbols: list[str] = list(word)  # what was merged into its left neighbour is empty
            after = list(range(1, len(word) + 1))
            before = list(range(-1, len(word) - 1))
            agenda = list(first)

            def consider(left: int, right: int) -> None:
                if left >= 0 and right < len(word) and (found := pieces.get(merged := symbols[left] + symbols[right])):
                    heappush(agenda, (-found[1], left, merged))

            while agenda:
                _, left, merged = heappop(agenda)
                right = after[left]
                if right == len(word) or not symbols[left] or symbols[left] + symbols[right] != merged:
                    continue
                if next(random) < alpha:
                    continue
                symbols[left], symbols[right] = merged, ""
                after[left] = after[right]
                if after[right] < len(word):
                    before[after[right]] = left
                consider(before[left], left)
                consider(left, after[left])
            ids: list[int] = []
            for symbol in filter(None, symbols):
                inventory.append(ids, pieces[symbol][0] if symbol in pieces else UNK, symbol)
            return ids

        return draw

    return of_word


# --- the words of a vocabulary --------------------------------------------------------------------------------------


class _Words:
    """The words of a vocabulary that have come up, and the segmentations that have been drawn of them.

    What is kept saves time and decides nothing: of each segmentation the seed, the word and its number do.
    """

    def __init__(
        self, tokenizer: Tokenizer, kind: Callable[[Inventory, float], Callable[[str], Draw]], alpha: float, seed: int
    ) -> None:
        inventory = tokenizer.inventory()
        self._of_word = kind(inventory, alpha)
        self._seed = seed
        self._spelt = _spellings(inventory, tokenizer.vocab_size)
        self._begins = np.array([spelt.startswith("▁".encode()) for spelt in self._spelt])
        self._numbers: dict[bytes, int] = {}  # of each word, as the corpus has its pieces
        self._words: list[bytes] = []  # the same in order
        self._drawn = array("i", [0])  # of each segmentation the number of pieces, and the pieces
        self._places: Ids = np.zeros(0, dtype=np.int32)  # of the segmentations there, VARIANTS a word; 0: not yet drawn

    def draw(self, stored: Rows, pairs: Numbers, key: int) -> Rows:
        """Return other segmentations of sentences, those of their numbers in the epoch of this key."""
        begins = self._begins[stored.values]
        ends = stored.lengths.cumsum(dtype=np.int64)
        begins[(ends - stored.lengths)[stored.lengths > 0]] = True
        before = _sums(begins)
        counts = before[ends] - before[ends - stored.lengths]  # words of each sentence
        ends = counts.cumsum()
        place = np.arange(before[-1]) - np.repeat(ends - counts, counts)  # of the word in its sentence
        hashes = _hashed(np.repeat(pairs, counts), place, key) >> np.uint64(32)
        words, ids = len(self._words), len(self._drawn)
        numbers = self._numbered(stored.values, np.flatnonzero(begins))
        chosen = numbers * VARIANTS + (hashes % np.uint64(VARIANTS)).astype(np.int64)
        self._draw_missing(chosen)
        at = self._places[chosen].astype(np.int64)
        drawn = np.frombuffer(self._drawn, dtype=np.int32)
        sizes = drawn[at]
        after = _sums(sizes)
        result = Rows(drawn[_ranges(at + 1, sizes)], (after[ends] - after[ends - counts]).astype(np.int32))
        del drawn  # an array that is looked at cannot change its size
        if len(self._words) > WORDS_KEPT or len(self._drawn) > IDS_KEPT:
            self._forget(words, ids)
        return result

    def _numbered(self, stored: Ids, starts: Numbers) -> Numbers:
        """Return the number of each word, of which these are where its pieces start."""
        content, known = stored.tobytes(), self._numbers
        bounds = [*(stored.itemsize * starts).tolist(), len(content)]
        numbers = [known.setdefault(content[start:end], len(known)) for start, end in itertools.pairwise(bounds)]
        self._words.extend(itertools.islice(known, len(self._words), None))
        if (lacking := VARIANTS * len(known) - len(self._places)) > 0:
            self._places = np.append(self._places, np.zeros(max(lacking, len(self._places)), dtype=np.int32))
        return np.array(numbers, dtype=np.int64)

    def _draw_missing(self, chosen: Numbers) -> None:
        missing = np.unique(chosen[self._places[chosen] == 0] // TOGETHER) * TOGETHER
        for first in missing.tolist():
            pieces = np.frombuffer(self._words[first // VARIANTS], dtype=np.int32).tolist()
            text = b"".join([self._spelt[piece] for piece in pieces]).decode()
            draw = self._of_word(text)
            for number in range(first, first + TOGETHER):
                ids = draw(uniform(f"{self._seed} {number % VARIANTS} {text}"))
                self._places[number] = len(self._drawn)
                self._drawn.append(len(ids))
                self._drawn.extend(ids)

    def _forget(self, words: int, ids: int) -> None:
        """Keep the first so many words, and the segmentations in the first so many ids. What came first is frequent."""
        self._places[self._places >= ids] = 0
        del self._drawn[ids:], self._words[words:]
        while len(self._numbers) > words:
            self._numbers.popitem()


def _spellings(inventory: Inventory, size: int) -> list[bytes]:
    """Return what each of so many ids spells; UNK a character that is in no piece, so that it is UNK again."""
    alphabet = set().union(*inventory.pieces)
    unknown = next(char for char in map(chr, range(0xE000, 0x110000)) if char not in alphabet)
    spelt = [b""] * size
    spelt[UNK] = unknown.encode()
    for piece, (number, _) in inventory.pieces.items():
        spelt[number] = piece.encode()
    for byte, number in enumerate(inventory.byte_ids):
        spelt[number] = bytes([byte])
    return spelt


def _sums(numbers: npt.NDArray[Any]) -> Numbers:
    """Return the sum of the numbers before each place, and that of all, [numbers + 1]."""
    sums = np.zeros(len(numbers) + 1, dtype=np.int64)
    np.cumsum(numbers, out=sums[1:])
    return sums


def _ranges(starts: Numbers, sizes: Ids) -> Numbers:
    """Return start, start + 1, … of each range, so many of each, one after the other."""
    before = _sums(sizes)
    return np.arange(before[-1]) + np.repeat(starts - before[:-1], sizes)


def uniform(seed: str) -> Uniform:
    """Yield random numbers in [0, 1): SplitMix64, which costs a tenth of seeding Python's own generator."""
    state = int.from_bytes(hashlib.blake2b(seed.encode(), digest_size=8).digest(), "little")
    while True:
        state = (state + _GAMMA) & _64_BITS
        mixed = ((state ^ (state >> 30)) * _FIRST) & _64_BITS
        mixed = ((mixed ^ (mixed >> 27)) * _SECOND) & _64_BITS
        yield ((mixed ^ (mixed >> 31)) >> 11) * 2.0**-53


def _hashed(pairs: Numbers, places: Numbers, key: int) -> Hashes:
    """Return 64 even bits for each pair and place in it, by the finish of SplitMix64."""
    state = pairs.astype(np.uint64) * np.uint64(_GAMMA)
    state += places.astype(np.uint64) * np.uint64(0xD1342543DE82EF95)
    state += np.uint64(key)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(_FIRST)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(_SECOND)
    hashes: Hashes = state ^ (state >> np.uint64(31))
    return hashes


# --- pairs ----------------------------------------------------------------------------------------------------------


class SubwordSampling:
    """Segments training pairs anew in each epoch.

    `alpha` is the exponent of the segmentations' probabilities of a unigram model (smaller: more even, more varied)
    and the probability that BPE leaves out a merge (larger: more varied).
    """

    def __init__(
        self,
        corpus: EncodedCorpus,
        tokenizers: Tokenizers,
        model_type: Literal["unigram", "bpe"],
        alpha: float,
        seed: int,
        max_length: int,
    ) -> None:
        """Nothing is read or drawn yet.

        Args:
            corpus: the training pairs; no sentence of them has more than `max_length` pieces.
            tokenizers: they encoded the corpus.
            model_type: their kind.
            alpha: above 0.
            seed: of the run.
            max_length: a side whose drawn segmentation has more pieces keeps the best one in that epoch.
        """
        self._corpus, self._seed, self._max_length = corpus, seed, max_length
        kind = unigram_words if model_type == "unigram" else bpe_words
        src = _Words(tokenizers.src, kind, alpha, seed)
        self._sides = src, src if tokenizers.joint else _Words(tokenizers.tgt, kind, alpha, seed)

    def draw(self, pairs: Numbers, epoch: int) -> SampledPairs:
        """Return these pairs of the corpus as an epoch, from 0, has them, whatever else was asked for before."""
        return self.begin(pairs, epoch).end()

    def begin(self, pairs: Numbers, epoch: int) -> Drawing:
        """Return the same, to be drawn little by little."""
        return Drawing(pairs, self._blocks(pairs, epoch))

    def _blocks(self, pairs: Numbers, epoch: int) -> Iterator[tuple[Rows, Rows]]:
        reads = self._corpus.src_flat, self._corpus.tgt_flat
        lengths = self._corpus.src_lengths, self._corpus.tgt_lengths
        keys = [
            int(np.random.SeedSequence([self._seed, epoch, side]).generate_state(1, np.uint64)[0]) for side in (0, 1)
        ]

        def block(side: int, some: Numbers) -> Rows:
            stored = Rows(reads[side](some), lengths[side][some])
            drawn = self._sides[side].draw(stored, some, keys[side])
            return _either(drawn.lengths > self._max_length, stored, drawn)

        for start in range(0, len(pairs), PAIRS_AT_ONCE):
            some = pairs[start : start + PAIRS_AT_ONCE].astype(np.int64)
            yield block(0, some), block(1, some)


class Drawing:
    """Pairs that are being drawn, so many at a time: what is due can go on between."""

    def __init__(self, pairs: Numbers, blocks: Iterator[tuple[Rows, Rows]]) -> None:
        self._pairs, self._left = pairs, blocks
        self._drawn: list[tuple[Rows, Rows]] = []

    def go_on(self) -> None:
        """Draw PAIRS_AT_ONCE more, unless all are drawn."""
        self._drawn.extend(itertools.islice(self._left, 1))

    def end(self) -> SampledPairs:
        """Draw what is left, and return all."""
        self._drawn.extend(self._left)
        src, tgt = zip(*self._drawn)
        return SampledPairs(self._pairs, _joined(src), _joined(tgt))


def _either(chosen: npt.NDArray[np.bool_], one: Rows, other: Rows) -> Rows:
    """Return the rows of the one where `chosen`, those of the other elsewhere."""
    if not chosen.any():
        return other
    lengths = np.where(chosen, one.lengths, other.lengths)
    of_one = np.repeat(chosen, lengths)
    values: Ids = np.empty(len(of_one), dtype=np.int32)
    values[of_one], values[~of_one] = one.select(chosen).values, other.select(~chosen).values
    return Rows(values, lengths)


def _joined(rows: Sequence[Rows]) -> Rows:
    return Rows(np.concatenate([each.values for each in rows]), np.concatenate([each.lengths for each in rows]))


class SampledPairs:
    """Some of the training pairs as one epoch has drawn them: what `make_batch` asks of a corpus, numbered from 0.

    There are no links between pieces.
    """

    linked = False

    def __init__(self, numbers: Numbers, src: Rows, tgt: Rows) -> None:
        self._numbers, self._src, self._tgt = numbers, src, tgt
        self._src_starts, self._tgt_starts = _sums(src.lengths), _sums(tgt.lengths)
        self.src_lengths, self.tgt_lengths = src.lengths, tgt.lengths

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self._numbers)

    def numbers(self, pairs: Numbers) -> Numbers:
        """Return the numbers of pairs in the corpus that they were drawn from."""
        return self._numbers[pairs].astype(np.int64)

    def src_flat(self, pairs: Numbers) -> Ids:
        """Return the piece ids of these sources one after the other, [Σ S] int32, in memory of their own."""
        ids: Ids = self._src.values[_ranges(self._src_starts[pairs], self.src_lengths[pairs])]
        return ids

    def tgt_flat(self, pairs: Numbers) -> Ids:
        """Return the piece ids of these targets one after the other, [Σ T] int32, in memory of their own."""
        ids: Ids = self._tgt.values[_ranges(self._tgt_starts[pairs], self.tgt_lengths[pairs])]
        return ids

    def links_flat(self, pairs: Numbers) -> tuple[Ids, Numbers]:
        """Raise: the links of the corpus are between other pieces."""
        raise ValueError("sampled pairs have no links")
