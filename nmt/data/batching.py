"""Batches of similar length under a token budget, in an order that a seed, an epoch and a position fix.

Axes: B sentences, S source positions, T target positions, N real target positions, L links
between pieces.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from nmt.data.cutting import Indices as Indices
from nmt.data.cutting import Numbers, cut_batches, sorted_by_length
from nmt.data.sampling import PAIRS_AT_ONCE, Drawing, SubwordSampling
from nmt.data.store import EncodedCorpus, Ids
from nmt.data.tokenizer import BOS, EOS, PAD

POOL, POOL_A_TOKEN = 2**16, 8  # pairs drawn at a time, at least, and for each token of the budget: hundreds of batches


class EncodedPairs(Protocol):
    """What batches are made from: an `EncodedCorpus`, or some of its pairs as one epoch has drawn them.

    `numbers` are those of pairs in the whole corpus.
    """

    linked: bool

    @property
    def src_lengths(self) -> Ids: ...
    @property
    def tgt_lengths(self) -> Ids: ...
    def __len__(self) -> int: ...
    def numbers(self, pairs: Indices, /) -> Indices: ...
    def src_flat(self, pairs: Indices, /) -> Ids: ...
    def tgt_flat(self, pairs: Indices, /) -> Ids: ...
    def links_flat(self, pairs: Indices, /) -> tuple[Ids, Indices]: ...


@dataclass(frozen=True)
class Alignment:
    """The links of a batch: piece `tgt_L` of sentence `rows_L` should attend to source position `src_L` by `shares_L`.

    A target piece with n links gives each a share of 1/n; `pieces` is the number of target pieces with links.
    """

    rows_L: Tensor
    tgt_L: Tensor
    src_L: Tensor
    shares_L: Tensor
    pieces: int


@dataclass(frozen=True)
class Batch:
    """Pairs as padded ids: the source ended by EOS, `tgt_in` started by BOS, `tgt_out` ended by EOS.

    `tgt_mask_BT` is True on real target positions, and `tgt_places_N` are their numbers b T + t, so that values can be
    taken from there without asking the device how many there are; `tgt_out_N` are the ids at these places.
    `src_lengths_B` is on the CPU wherever the rest is, as packing needs it there. `pairs` are the pairs' numbers in
    their corpus; `alignment` is None where no pair has links.
    """

    src_BS: Tensor
    src_lengths_B: Tensor
    tgt_in_BT: Tensor
    tgt_out_BT: Tensor
    tgt_mask_BT: Tensor
    tgt_places_N: Tensor
    tgt_out_N: Tensor
    pairs: Indices
    alignment: Alignment | None = None

    @property
    def tgt_tokens(self) -> int:
        """The real target positions, EOS included."""
        return len(self.tgt_places_N)

    def pinned(self) -> Batch:
        """The batch in memory that a GPU can copy from while the program goes on."""
        return self._each(lambda tensor: tensor.pin_memory())

    def to(self, device: torch.device) -> Batch:
        """The batch on `device`, but for the source's lengths; the copy of a pinned one does not wait."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def twice(self) -> Batch:
        """The batch and, after it, the batch again; a link counts half in either."""
        sentences, places = self.tgt_in_BT.shape[0], self.tgt_in_BT.numel()
        doubled = self._each(lambda tensor: torch.cat([tensor, tensor]))
        alignment = doubled.alignment
        if alignment is not None:
            links = len(alignment.rows_L) // 2
            alignment.rows_L[links:] += sentences
            alignment.shares_L.div_(2)
        doubled.tgt_places_N[self.tgt_tokens :] += places
        lengths_B = torch.cat([self.src_lengths_B, self.src_lengths_B])
        return replace(doubled, src_lengths_B=lengths_B)

    def _each(self, moved: Callable[[Tensor], Tensor]) -> Batch:
        """The batch with all of its tensors but the lengths replaced."""

        def fields(of: Batch | Alignment) -> dict[str, Any]:
            return {name: moved(value) for name, value in vars(of).items() if isinstance(value, Tensor)}

        alignment = self.alignment
        if alignment is not None:
            alignment = replace(alignment, **fields(alignment))
        return replace(self, **fields(self) | {"src_lengths_B": self.src_lengths_B, "alignment": alignment})


@dataclass(frozen=True)
class Portion:
    """What one process has of an update's batch: the `parts` that it takes one after the other, perhaps none.

    `pairs` and `tgt_tokens`, the real target positions, are those of the whole batch, over all processes.
    """

    parts: tuple[Batch, ...]
    pairs: Indices
    tgt_tokens: int

    def pinned(self) -> Portion:
        """The portion in memory that a GPU can copy from."""
        return replace(self, parts=tuple(part.pinned() for part in self.parts))

    @classmethod
    def whole(cls, batch: Batch) -> Portion:
        """All of a batch, at once."""
        return cls((batch,), batch.pairs, batch.tgt_tokens)


@dataclass(frozen=True)
class Deal:
    """How the batch of an update is dealt out: to `processes`, of which this one is number `rank`, in `parts` each.

    Every part has the lengths of the whole, whose pairs are sorted by length, as it takes every so manieth of them.
    """

    rank: int = 0
    processes: int = 1
    parts: int = 1

    @property
    def budgets(self) -> int:
        """The parts of all processes: so many budgets are that of the whole batch."""
        return self.processes * self.parts

    def own(self, pairs: Indices) -> list[Indices]:
        """The parts of this process that are not empty, as numbers of pairs."""
        parts = (pairs[self.rank + self.processes * part :: self.budgets] for part in range(self.parts))
        return [part for part in parts if len(part)]

    def portion(self, corpus: EncodedPairs, pairs: Indices) -> Portion:
        """What this process has of the batch of these pairs."""
        parts = tuple(make_batch(corpus, part) for part in self.own(pairs))
        return Portion(parts, corpus.numbers(pairs), int(corpus.tgt_lengths[pairs].sum()) + len(pairs))


WHOLE = Deal()


def make_batch(corpus: EncodedPairs, pairs: Indices) -> Batch:
    """The pairs of a corpus with these numbers, padded to the longest of each side."""
    src_sizes_B1, tgt_sizes_B1 = corpus.src_lengths[pairs][:, None], corpus.tgt_lengths[pairs][:, None]
    src_positions_S = np.arange(src_sizes_B1.max() + 1)
    tgt_positions_T = np.arange(tgt_sizes_B1.max() + 1)
    src_BS = np.full((len(pairs), len(src_positions_S)), PAD, dtype=np.int64)
    tgt_in_BT = np.full((len(pairs), len(tgt_positions_T)), PAD, dtype=np.int64)
    tgt_out_BT = tgt_in_BT.copy()
    pieces_BT = tgt_positions_T < tgt_sizes_B1
    tgt_ids = corpus.tgt_flat(pairs)
    src_BS[src_positions_S < src_sizes_B1] = corpus.src_flat(pairs)
    src_BS[src_positions_S == src_sizes_B1] = EOS
    tgt_in_BT[:, 0] = BOS
    tgt_in_BT[:, 1:][pieces_BT[:, :-1]] = tgt_ids
    tgt_out_BT[pieces_BT] = tgt_ids
    tgt_out_BT[tgt_positions_T == tgt_sizes_B1] = EOS
    mask_BT = tgt_positions_T <= tgt_sizes_B1
    places_N = np.flatnonzero(mask_BT)
    return Batch(
        torch.from_numpy(src_BS),
        torch.from_numpy(src_sizes_B1[:, 0].astype(np.int64) + 1),
        torch.from_numpy(tgt_in_BT),
        torch.from_numpy(tgt_out_BT),
        torch.from_numpy(mask_BT),
        torch.from_numpy(places_N),
        torch.from_numpy(tgt_out_BT.ravel()[places_N]),
        pairs=corpus.numbers(pairs),
        alignment=_alignment(corpus, pairs) if corpus.linked else None,
    )


def _alignment(corpus: EncodedPairs, pairs: Indices) -> Alignment | None:
    """The links of these pairs; None if they have none."""
    links_L2, counts_B = corpus.links_flat(pairs)
    if not len(links_L2):
        return None
    rows_L = np.repeat(np.arange(len(pairs)), counts_B)
    tgt_L, src_L = links_L2.astype(np.int64).T.copy()
    piece_L = rows_L * (tgt_L.max() + 1) + tgt_L  # a number for each target piece of the batch
    _, place_L, counts = np.unique(piece_L, return_inverse=True, return_counts=True)
    shares_L = (1 / counts)[place_L].astype(np.float32)
    return Alignment(
        torch.from_numpy(rows_L),
        torch.from_numpy(tgt_L),
        torch.from_numpy(src_L),
        torch.from_numpy(shares_L),
        pieces=len(counts),
    )


class _Widths:
    """The longer side of each pair in pieces, EOS counted: what it costs of the budget. Worked out when asked for."""

    def __init__(self, corpus: EncodedPairs) -> None:
        self._src, self._tgt = corpus.src_lengths, corpus.tgt_lengths

    def __getitem__(self, pairs: Numbers) -> Numbers:
        widths: Numbers = np.maximum(self._src[pairs], self._tgt[pairs]) + 1
        return widths


@dataclass(frozen=True)
class _Pool:
    """Pairs that are sorted and cut together, and their batches as the pairs' numbers here, in random order."""

    pairs: EncodedPairs
    batches: list[Indices]


class TrainingBatches:
    """The endless order of training: in each epoch every pair once, batches of like length, in random order.

    Pairs are sorted by target and source length with ties broken at random, so that there is next to no padding,
    and cut by the budget. `seed` and the epoch alone fix the order: it resumes at any position.

    With `sampling` the lengths, and so the batches and the budget, are those of the epoch's own segmentations. These
    are drawn, sorted and cut for a pool of pairs at a time, taken from the epoch in random order: neither memory nor
    the time to the first batch grows with the corpus. A pool is drawn between the batches of the one before.
    Without `sampling` all pairs are one pool.

    `batch_tokens` is the budget of one part of `deal`; batches are cut by that of all parts together, and then dealt
    out. So neither batches nor positions depend on how many processes and parts share the same whole. A part may be
    larger than its budget by less than one sentence, as the sentences of a batch are not always a multiple of the
    parts.
    """

    def __init__(
        self, corpus: EncodedCorpus, batch_tokens: int, seed: int, sampling: SubwordSampling | None = None,
        deal: Deal = WHOLE,
    ) -> None:  # fmt: skip
        self.corpus = corpus
        self.batch_tokens = batch_tokens * deal.budgets
        self.deal = deal
        self.seed = seed
        self.sampling = sampling
        whole, size = len(corpus), max(POOL, POOL_A_TOKEN * self.batch_tokens)
        in_pools = sampling is not None and whole > size
        # The first pool is small, as training waits for it.
        self._bounds = [0, *(range(size // 8, whole, size) if in_pools else ()), max(whole, 1)]
        self._pools = len(self._bounds) - 1
        self._shuffled: tuple[int, Numbers] | None = None  # the last epoch that came in pools
        self._drawing: tuple[tuple[int, int], Drawing] | None = None  # the last epoch and pool that was begun
        self._cut: tuple[tuple[int, int], _Pool] | None = None  # the last epoch and pool asked for

    def epoch(self, epoch: int) -> list[Indices]:
        """The batches of an epoch (from 0), as numbers of pairs."""
        pools = (self._pool(epoch, number) for number in range(self._pools))
        return [pool.pairs.numbers(batch) for pool in pools for batch in pool.batches]

    def batches_an_epoch(self) -> str:
        """How many batches the first epoch has, for people; of several pools only the first is looked at."""
        count = len(self._pool(0, 0).batches)
        return f"{count:,}" if self._pools == 1 else f"about {round(count * len(self.corpus) / self._bounds[1]):,}"

    def _pool(self, epoch: int, number: int) -> _Pool:
        if self._cut is None or self._cut[0] != (epoch, number):
            self._cut = None  # before the next one takes its room
            self._cut = (epoch, number), self._cut_pool(epoch, number)
        return self._cut[1]

    def _cut_pool(self, epoch: int, number: int) -> _Pool:
        pairs: EncodedPairs = self.corpus
        src_lengths, rng = pairs.src_lengths, np.random.default_rng([self.seed, epoch])
        if self.sampling is not None:
            pairs, self._drawing = self._begun(self.sampling, epoch, number).end(), None
            rng = np.random.default_rng([self.seed, epoch, 1 + number])
            # Short sources first and last in turn, so that they are alike where the target's length changes: there
            # are few of each length.
            odd = pairs.tgt_lengths % 2 == 1
            src_lengths = np.where(odd, pairs.src_lengths.max() - pairs.src_lengths, pairs.src_lengths)
        order = sorted_by_length(_shuffled(len(pairs), rng), src_lengths, pairs.tgt_lengths)
        batches = cut_batches(order, _Widths(pairs), self.batch_tokens)
        return _Pool(pairs, [batches[place] for place in rng.permutation(len(batches))])

    def _begun(self, sampling: SubwordSampling, epoch: int, number: int) -> Drawing:
        """The pool of this number, which comes in the next epoch if this one has no such pool, as it is being drawn."""
        if number >= self._pools:
            epoch, number = epoch + 1, 0
        if self._drawing is None or self._drawing[0] != (epoch, number):
            if self._shuffled is None or self._shuffled[0] != epoch:
                self._shuffled = None
                self._shuffled = epoch, _shuffled(len(self.corpus), np.random.default_rng([self.seed, epoch]))
            pairs = self._shuffled[1][self._bounds[number] : self._bounds[number + 1]]
            self._drawing = (epoch, number), sampling.begin(np.sort(pairs), epoch)  # in the order of the file
        return self._drawing[1]

    def from_position(self, epoch: int, position: int) -> Iterator[tuple[int, int, Portion]]:
        """Endless (epoch, position of the next batch, what this process has of the batch), from a position.

        A position is the number of batches before it in its pool, and of pairs in the pools before that.
        """
        number = bisect_right(self._bounds, position) - 1
        place = position - self._bounds[number]
        while True:
            if number >= self._pools:
                epoch, number, place = epoch + 1, 0, 0
            pool, first = self._pool(epoch, number), self._bounds[number]
            following = self._bounds[(number + 1) % self._pools : (number + 1) % self._pools + 2]
            pause = max(1, len(pool.batches) * PAIRS_AT_ONCE // (following[1] - following[0]))  # batches between draws
            for after in range(place + 1, len(pool.batches) + 1):
                pairs = pool.batches[after - 1].astype(np.int64)
                yield epoch, first + after, self.deal.portion(pool.pairs, pairs)
                if self.sampling is not None and after % pause == 0:
                    self._begun(self.sampling, epoch, number + 1).go_on()
            del pool  # before the next one takes its room
            number, place = number + 1, 0


def _shuffled(count: int, rng: np.random.Generator) -> Numbers:
    numbers = np.arange(count, dtype=np.int32 if count < 2**31 else np.int64)
    rng.shuffle(numbers)
    return numbers


def in_order(corpus: EncodedCorpus, batch_tokens: int) -> list[Indices]:
    """Every pair once, sorted by length and cut into batches: for the likelihood of a development set."""
    order = sorted_by_length(np.arange(len(corpus)), corpus.src_lengths, corpus.tgt_lengths)
    return cut_batches(order, _Widths(corpus), batch_tokens)
