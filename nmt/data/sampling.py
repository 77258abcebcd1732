"""Subword regularisation: the training pairs are segmented anew in each epoch (Kudo 2018; Provilkov et al. 2020).

No piece spans two words, so a sentence's segmentation is that of its words, each drawn by itself. SentencePiece can
draw, too, but from one generator a thread that some versions seed once and never again, so that a sentence's pieces
would depend on the version, the number of threads and all that was drawn before. Here the seed, the epoch, the pair
and the word's place in it decide, whatever the batch, the order or a resumed run.

Every word has a few segmentations, drawn when training starts, and a number hashed from (seed, epoch, side, pair,
place) chooses one of them in each place: no Python for each word of each epoch.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Literal

import numpy as np
import numpy.typing as npt

from nmt.data.store import EncodedCorpus, Ids
from nmt.data.tokenizer import UNK, Inventory, Tokenizer, Tokenizers

VARIANTS = 32  # segmentations that are drawn of a word,
VARIANTS_A_PLACE = 8  # but no more than that for each of its places in the corpus
_PAIRS_AT_ONCE = 1 << 16  # bounds the memory of the pass over an epoch

Numbers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Uniform = Iterator[float]  # endless numbers in [0, 1)
Draw = Callable[[Uniform], list[int]]

# SplitMix64: Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators (2014), figure 16.
_GAMMA, _FIRST, _SECOND, _64_BITS = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 2**64 - 1


# --- one word -------------------------------------------------------------------------------------------------------


def unigram_word(word: str, inventory: Inventory, alpha: float) -> Draw:
    """Return what draws segmentations of a word, "▁" in front, each as likely as the power `alpha` of its probability.

    Forward filtering and backward sampling on the lattice of all segmentations, SentencePiece's `nbest_size=-1`, here
    from the other end (Kudo 2018, section 3.3). A character without a piece is UNK, as likely as SentencePiece has it.
    """
    end, find = len(word), inventory.pieces.get
    mass = [0.0] * (end + 1)  # log of the sum over the segmentations from a place to the end
    choices: list[tuple[list[float], list[tuple[int, int]]]] = [([], [])] * end
    for start in range(end - 1, -1, -1):
        edges: list[tuple[int, int]] = []  # where the piece ends, and its id
        scores: list[float] = []
        for stop in range(start + 1, min(end, start + inventory.longest) + 1):
            if found := find(word[start:stop]):
                edges.append((stop, found[0]))
                scores.append(alpha * found[1] + mass[stop])
        if not edges or edges[0][0] > start + 1:
            edges.append((start + 1, UNK))
            scores.append(alpha * inventory.unknown_score + mass[start + 1])
        largest = max(scores)
        sums = list(itertools.accumulate([math.exp(score - largest) for score in scores]))
        mass[start] = largest + math.log(sums[-1])
        choices[start] = [total / sums[-1] for total in sums[:-1]], edges  # the last one is whatever remains

    def draw(random: Uniform) -> list[int]:
        ids: list[int] = []
        place = 0
        while place < end:
            borders, edges = choices[place]
            stop, piece = edges[bisect_right(borders, next(random))]
            inventory.append(ids, piece, word[place:stop])
            place = stop
        return ids

    return draw


def bpe_word(word: str, inventory: Inventory, alpha: float) -> Draw:
    """Return what draws segmentations of a word, "▁" in front, by BPE dropout (Provilkov et al. 2020).

    As SentencePiece does it: the merges that are possible are taken in their order, and each is left out with
    probability `alpha`; it may come again only when a neighbour has changed.
    """
    pieces = inventory.pieces
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


# --- one side of the corpus -----------------------------------------------------------------------------------------


class _Side:
    """The words of one side of the training pairs, and the segmentations that were drawn of them.

    Memory: 4 bytes a word of the corpus, and at most VARIANTS segmentations a different word.
    """

    def __init__(
        self, texts: Iterable[Sequence[str]], tokenizer: Tokenizer, word: Callable[[str], Draw], seed: int
    ) -> None:
        numbers: dict[str, int] = {}
        words, counts = array("i"), array("i")
        for batch in texts:
            for row in tokenizer.words(batch):
                words.extend([numbers.setdefault(each, len(numbers)) for each in row])
                counts.append(len(row))
        self._words: Ids = np.array(words, dtype=np.int32)
        self._bounds = np.zeros(len(counts) + 1, dtype=np.int64)
        np.cumsum(counts, out=self._bounds[1:])
        places = np.bincount(self._words, minlength=len(numbers))
        self._variants = np.minimum(VARIANTS, VARIANTS_A_PLACE * places)  # of each different word
        self._first = self._variants.cumsum() - self._variants  # the number of its first segmentation
        ids, sizes = array("i"), array("i")
        for each, variants in zip(numbers, self._variants.tolist(), strict=True):
            draw = word(each)
            for variant in range(variants):  # the seed, the word and this number alone decide
                drawn = draw(uniform(f"{seed} {variant} {each}"))
                ids.extend(drawn)
                sizes.append(len(drawn))
        self._ids: Ids = np.array(ids, dtype=np.int32)
        self._sizes: Ids = np.array(sizes, dtype=np.int32)
        self._starts = self._sizes.cumsum(dtype=np.int64) - self._sizes

    def lengths(self, key: int) -> Ids:
        """Return the pieces of every sentence in the epoch of this key, [pairs]."""
        pairs = len(self._bounds) - 1
        lengths: Ids = np.empty(pairs, dtype=np.int32)
        for start in range(0, pairs, _PAIRS_AT_ONCE):
            some = np.arange(start, min(start + _PAIRS_AT_ONCE, pairs))
            chosen, ends = self._chosen(some, key)
            total = np.zeros(len(chosen) + 1, dtype=np.int64)
            np.cumsum(self._sizes[chosen], out=total[1:])
            lengths[some] = np.diff(total[ends], prepend=0)
        return lengths

    def flat(self, pairs: Numbers, key: int) -> Ids:
        """Return the ids of these sentences in the epoch of this key one after the other, in memory of their own."""
        chosen, _ = self._chosen(pairs, key)
        sizes = self._sizes[chosen].astype(np.int64)
        shifts = self._starts[chosen] - (sizes.cumsum() - sizes)  # from the result to the ids that were drawn
        ids: Ids = self._ids[np.arange(sizes.sum()) + np.repeat(shifts, sizes)]
        return ids

    def _chosen(self, pairs: Numbers, key: int) -> tuple[Numbers, Numbers]:
        """Return the numbers of the segmentations of these sentences' words, and where each sentence's end there."""
        counts = self._bounds[pairs + 1] - self._bounds[pairs]
        ends = counts.cumsum()
        place = np.arange(ends[-1]) - np.repeat(ends - counts, counts)  # of the word in its sentence
        words = self._words[place + np.repeat(self._bounds[pairs], counts)]
        hashes = _hashed(np.repeat(pairs, counts), place, key) >> np.uint64(32)
        return self._first[words] + hashes.astype(np.int64) % self._variants[words], ends


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
    """The training pairs as each epoch sees them.

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
        """Read the corpus' text once.

        Args:
            corpus: the training pairs; no sentence of them has more than `max_length` pieces.
            tokenizers: they encoded the corpus.
            model_type: their kind.
            alpha: above 0.
            seed: of the run.
            max_length: a side whose drawn segmentation has more pieces keeps the best one in that epoch.
        """
        self._corpus, self._seed, self._max_length = corpus, seed, max_length
        of_word = unigram_word if model_type == "unigram" else bpe_word

        def side(number: int, tokenizer: Tokenizer) -> _Side:
            inventory = tokenizer.inventory()
            texts = (batch[number] for batch in corpus.text_batches())
            return _Side(texts, tokenizer, lambda word: of_word(word, inventory, alpha), seed)

        self._sides = side(0, tokenizers.src), side(1, tokenizers.tgt)

    def epoch(self, epoch: int) -> SampledPairs:
        """Return the pairs of an epoch, from 0; the same ones for the same epoch, whatever was asked for before."""
        sides = [
            self._side(number, side, stored, epoch)
            for number, (side, stored) in enumerate(
                zip(self._sides, (self._corpus.src_lengths, self._corpus.tgt_lengths), strict=True)
            )
        ]
        return SampledPairs(self._corpus, *sides)

    def _side(self, number: int, side: _Side, stored: Ids, epoch: int) -> _SampledSide:
        key = int(np.random.SeedSequence([self._seed, epoch, number]).generate_state(1, np.uint64)[0])
        lengths = side.lengths(key)
        kept = lengths > self._max_length
        return _SampledSide(side, key, np.where(kept, stored, lengths), kept)


@dataclass(frozen=True)
class _SampledSide:
    """One side in one epoch: the pieces of each sentence, [pairs], and which ones are segmented as ever, [pairs]."""

    words: _Side
    key: int
    lengths: Ids
    kept: npt.NDArray[np.bool_]

    def flat(self, pairs: Numbers, stored: Callable[[Numbers], Ids]) -> Ids:
        """Return the ids of these sentences one after the other; `stored` gives those of the corpus."""
        kept = self.kept[pairs]
        if not kept.any():
            return self.words.flat(pairs, self.key)
        from_corpus = np.repeat(kept, self.lengths[pairs])
        ids: Ids = np.empty(len(from_corpus), dtype=np.int32)
        ids[from_corpus] = stored(pairs[kept])
        if not kept.all():
            ids[~from_corpus] = self.words.flat(pairs[~kept], self.key)
        return ids


class SampledPairs:
    """The training pairs in one epoch: what `make_batch` asks of a corpus. There are no links between pieces."""

    linked = False

    def __init__(self, corpus: EncodedCorpus, src: _SampledSide, tgt: _SampledSide) -> None:
        self._corpus, self._src, self._tgt = corpus, src, tgt
        self.src_lengths, self.tgt_lengths = src.lengths, tgt.lengths

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self._corpus)

    def src_flat(self, pairs: Numbers) -> Ids:
        """Return the piece ids of these sources one after the other, [Σ S] int32, in memory of their own."""
        return self._src.flat(pairs, self._corpus.src_flat)

    def tgt_flat(self, pairs: Numbers) -> Ids:
        """Return the piece ids of these targets one after the other, [Σ T] int32, in memory of their own."""
        return self._tgt.flat(pairs, self._corpus.tgt_flat)

    def links_flat(self, pairs: Numbers) -> tuple[Ids, Numbers]:
        """Raise: the links of the corpus are between other pieces."""
        raise ValueError("sampled pairs have no links")
