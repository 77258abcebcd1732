"""Batches: every pair once, under the budget, in an order that resumes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.data import cutting
from nmt.data.batching import Deal, TrainingBatches, in_order, make_batch
from nmt.data.cutting import by_length, cut_batches
from nmt.data.store import CorpusWriter, EncodedCorpus
from nmt.data.tokenizer import BOS, EOS, PAD


@pytest.fixture
def corpus(tmp_path: Path) -> EncodedCorpus:
    rng = np.random.default_rng(1)
    src = [rng.integers(4, 50, rng.integers(1, 30)).tolist() for _ in range(300)]
    tgt = [rng.integers(4, 50, rng.integers(1, 30)).tolist() for _ in range(300)]
    with CorpusWriter(tmp_path / "pairs.arrow") as writer:
        writer.write(src, tgt, ["s"] * 300, ["t"] * 300)
    return EncodedCorpus(tmp_path / "pairs.arrow")


def test_an_epoch_holds_every_pair_once_under_the_budget(corpus: EncodedCorpus) -> None:
    batches = TrainingBatches(corpus, 200, seed=1).epoch(0)
    assert sorted(np.concatenate(batches)) == list(range(300))
    for pairs in batches:
        longest = max(max(corpus.src_lengths[pair], corpus.tgt_lengths[pair]) + 1 for pair in pairs)
        assert longest * len(pairs) <= 200


def test_epochs_differ_and_the_seed_fixes_them(corpus: EncodedCorpus) -> None:
    def flat(seed: int, epoch: int) -> list[int]:
        return [int(pair) for pairs in TrainingBatches(corpus, 200, seed).epoch(epoch) for pair in pairs]

    assert flat(1, 0) == flat(1, 0)
    assert flat(1, 0) != flat(1, 1)
    assert flat(1, 0) != flat(2, 0)


def test_training_goes_on_at_any_position(corpus: EncodedCorpus) -> None:
    batches = TrainingBatches(corpus, 200, seed=3)
    count = len(batches.epoch(0))
    whole = batches.from_position(0, 0)
    order = [next(whole) for _ in range(count + 5)]
    for start in (1, count - 1, count, count + 2):
        epoch, position, _ = order[start - 1]
        rest = batches.from_position(epoch, position)
        for expected in order[start:]:
            found = next(rest)
            assert found[:2] == expected[:2]
            np.testing.assert_array_equal(found[2].pairs, expected[2].pairs)


def test_batches_have_like_lengths(corpus: EncodedCorpus) -> None:
    batches = TrainingBatches(corpus, 200, seed=1).epoch(0)
    padded = sum(len(pairs) * max(corpus.tgt_lengths[pairs]) for pairs in batches)
    assert padded < 1.1 * corpus.tgt_lengths.sum()


def test_a_batch_frames_its_sentences_and_masks_the_rest(corpus: EncodedCorpus) -> None:
    batch = make_batch(corpus, np.array([3, 7, 11]))
    assert batch.tgt_tokens == int(batch.tgt_mask_BT.sum())
    for row, pair in enumerate(batch.pairs):
        src, tgt = corpus.src_ids(int(pair)).tolist(), corpus.tgt_ids(int(pair)).tolist()
        length = len(tgt) + 1
        assert batch.src_BS[row, : len(src) + 1].tolist() == [*src, EOS]
        assert batch.src_lengths_B[row] == len(src) + 1
        assert batch.tgt_in_BT[row, :length].tolist() == [BOS, *tgt]
        assert batch.tgt_out_BT[row, :length].tolist() == [*tgt, EOS]
        assert batch.tgt_mask_BT[row].tolist() == [True] * length + [False] * (batch.tgt_mask_BT.shape[1] - length)
        assert (batch.src_BS[row, len(src) + 1 :] == PAD).all()
        assert (batch.tgt_in_BT[row, length:] == PAD).all()
        assert (batch.tgt_out_BT[row, length:] == PAD).all()


def test_the_places_of_real_targets_are_those_of_the_mask(corpus: EncodedCorpus) -> None:
    batch = make_batch(corpus, np.array([3, 7, 11]))
    values_BTR = torch.randn(*batch.tgt_mask_BT.shape, 4)
    chosen_NR = values_BTR.flatten(0, 1).index_select(0, batch.tgt_places_N)
    assert torch.equal(chosen_NR, values_BTR[batch.tgt_mask_BT])
    assert torch.equal(batch.tgt_out_N, batch.tgt_out_BT[batch.tgt_mask_BT])


def test_on_another_device_only_the_lengths_stay_where_they_were(corpus: EncodedCorpus) -> None:
    batch = make_batch(corpus, np.array([3, 7, 11]))
    moved = batch.to(torch.device("meta"))
    assert moved.src_lengths_B is batch.src_lengths_B
    assert moved.pairs is batch.pairs
    devices = {name: value.device.type for name, value in vars(moved).items() if isinstance(value, torch.Tensor)}
    assert devices.pop("src_lengths_B") == "cpu"
    assert set(devices.values()) == {"meta"}
    assert moved.tgt_tokens == batch.tgt_tokens


def test_a_sentence_over_the_budget_makes_a_batch_of_its_own() -> None:
    cut = cut_batches(np.arange(5), np.array([3, 50, 2, 2, 2]), 10)
    assert [batch.tolist() for batch in cut] == [[0], [1], [2, 3, 4]]


def test_translation_batches_are_longest_first_and_complete() -> None:
    lengths = [3, 9, 1, 9, 4]
    assert [batch.tolist() for batch in by_length(lengths, 18, most=100)] == [[1, 3], [4, 0, 2]]
    assert [batch.tolist() for batch in by_length(lengths, 18, most=2)] == [[1, 3], [4, 0], [2]]


def test_the_likelihood_reads_every_pair_once(corpus: EncodedCorpus) -> None:
    pairs = np.concatenate(in_order(corpus, 300))
    assert sorted(pairs) == list(range(300))


@pytest.mark.parametrize("budget", [60, 200])
@pytest.mark.parametrize(("processes", "parts"), [(1, 3), (2, 1), (3, 2)])
def test_a_batch_is_dealt_out_once_and_its_order_does_not_depend_on_how(
    corpus: EncodedCorpus, processes: int, parts: int, budget: int
) -> None:
    whole = TrainingBatches(corpus, budget * processes * parts, seed=1)
    dealt = [
        TrainingBatches(corpus, budget, seed=1, deal=Deal(rank, processes, parts)).from_position(0, 0)
        for rank in range(processes)
    ]
    for expected, *shares in zip(whole.from_position(0, 0), *dealt, range(len(whole.epoch(0)))):
        *shares, _ = shares
        assert all(share[:2] == expected[:2] for share in shares)
        assert all(share[2].tgt_tokens == expected[2].tgt_tokens for share in shares)
        found = [part for share in shares for part in share[2].parts]
        assert sorted(np.concatenate([part.pairs for part in found])) == sorted(expected[2].pairs)
        assert sum(part.tgt_tokens for part in found) == expected[2].tgt_tokens
        for part in found:
            longest = max(part.src_BS.shape[1], part.tgt_in_BT.shape[1])
            assert (len(part.pairs) - 1) * longest < budget  # over it by less than a sentence


@pytest.mark.parametrize("longest", [0, 3, 200, 70_000])
@pytest.mark.parametrize("count", [0, 1, 5_000])
def test_sorting_by_length_is_a_stable_sort_however_it_is_cut(
    count: int, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting, "AT_ONCE", 700)
    rng = np.random.default_rng(count + longest)
    src, tgt = (rng.integers(0, longest + 1, count).astype(np.int32) for _ in range(2))
    pairs = rng.permutation(count).astype(np.int32)
    expected = pairs[np.lexsort((src[pairs], tgt[pairs]))]
    found = cutting.sorted_by_length(pairs, src, tgt)
    assert found.dtype == np.int32
    assert np.array_equal(found, expected)


@settings(max_examples=200, deadline=None)
@given(
    widths=st.lists(st.integers(0, 9), max_size=40), budget=st.integers(1, 40), at_once=st.integers(1, 12)
)  # fmt: skip
def test_batches_are_as_long_as_the_budget_lets_them_be(widths: list[int], budget: int, at_once: int) -> None:
    expected: list[list[int]] = []
    for pair, width in enumerate(widths):
        if expected and (len(expected[-1]) + 1) * max(width, *(widths[of] for of in expected[-1])) <= budget:
            expected[-1].append(pair)
        else:
            expected.append([pair])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cutting, "AT_ONCE", at_once)
        cut = cut_batches(np.arange(len(widths)), np.array(widths, dtype=np.int32), budget)
    assert [batch.tolist() for batch in cut] == expected
