"""Subword regularisation: what is drawn, and that nothing but seed, epoch and pair decides it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import sentencepiece
from test_tokenizer import corpus

from nmt.config import TokenizerConfig
from nmt.data import batching, sampling
from nmt.data.batching import Deal, TrainingBatches, in_order, make_batch
from nmt.data.sampling import Draw, SubwordSampling, bpe_words, uniform, unigram_words
from nmt.data.store import CorpusWriter, EncodedCorpus
from nmt.data.tokenizer import EOS, UNK, Inventory, Tokenizers

ModelType = Literal["unigram", "bpe"]
ALPHA = {"unigram": 0.3, "bpe": 0.2}
ODD = ["", "the  dog ", "Zo\u00e9\u65e5\u672c sees \u00e9", "a \u2581b c\u3000d", "</s> <unk> the", "street"]


class Data:
    """A tokenizer of either kind, and a corpus that it encoded: reversed sentences as targets, odd ones at the end."""

    def __init__(self, folder: Path, model_type: ModelType, **settings: Any) -> None:
        self.model_type = model_type
        self.src = [*corpus(), *ODD[1:]]
        self.tgt = [" ".join(reversed(line.split())) for line in self.src]
        config = TokenizerConfig.model_validate({"vocab_size": 70, "model_type": model_type, **settings})
        self.tokenizers, _ = Tokenizers.train(folder, lambda: zip(corpus(), corpus(), strict=True), config)
        with CorpusWriter(folder / "pairs.arrow") as writer:
            for start in (0, 100):  # two batches in the file
                src, tgt = (side[start : start + 100 if start == 0 else None] for side in (self.src, self.tgt))
                writer.write(self.tokenizers.src.encode(src), self.tokenizers.tgt.encode(tgt), src, tgt)
        self.corpus = EncodedCorpus(folder / "pairs.arrow")

    def sampling(self, seed: int = 1, alpha: float | None = None, max_length: int = 100) -> SubwordSampling:
        alpha = ALPHA[self.model_type] if alpha is None else alpha
        return SubwordSampling(self.corpus, self.tokenizers, self.model_type, alpha, seed, max_length)


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Data:
    return Data(tmp_path_factory.mktemp(request.param), request.param)


def every(data: Data) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.arange(len(data.corpus))


def rows(flat: Any, lengths: Any) -> list[list[int]]:
    return [row.tolist() for row in np.split(flat, np.cumsum(lengths)[:-1])]


def drawn(data: Data, draws: SubwordSampling, epoch: int = 0) -> tuple[list[list[int]], list[list[int]]]:
    pairs = draws.draw(every(data), epoch)
    return rows(pairs.src_flat(every(data)), pairs.src_lengths), rows(pairs.tgt_flat(every(data)), pairs.tgt_lengths)


def of_word(data: Data) -> Callable[[str], Draw]:
    kind = unigram_words if data.model_type == "unigram" else bpe_words
    return kind(data.tokenizers.src.inventory(), ALPHA[data.model_type])


def test_the_pieces_of_each_epoch_spell_the_sentences(data: Data) -> None:
    for epoch in range(3):
        src, tgt = drawn(data, data.sampling(), epoch)
        for tokenizer, ids, lines in ((data.tokenizers.src, src, data.src), (data.tokenizers.tgt, tgt, data.tgt)):
            assert tokenizer.decode(ids) == tokenizer.decode(tokenizer.encode(lines))
            assert ids != tokenizer.encode(lines)


def test_epochs_sides_and_places_in_a_sentence_are_drawn_apart(data: Data) -> None:
    draws = data.sampling()
    first, second = drawn(data, draws, 0), drawn(data, draws, 1)
    assert first[0] != second[0]
    assert first[1] != second[1]
    draw = of_word(data)("▁street")
    assert len({tuple(draw(uniform(str(seed)))) for seed in range(50)}) > 1


def test_seed_epoch_and_pair_alone_decide_and_not_what_was_asked_for_before(data: Data) -> None:
    ours, theirs = data.sampling(), data.sampling()
    for epoch in (5, 0, 2):
        ours.draw(every(data)[epoch:], epoch)
    whole = drawn(data, ours, 3)
    assert whole == drawn(data, theirs, 3)
    assert whole != drawn(data, data.sampling(seed=2), 3)
    some = np.array([200, 3, 77])
    pairs, two = theirs.draw(some, 3), np.array([2, 0])
    assert pairs.numbers(two).tolist() == [77, 200]
    assert rows(pairs.tgt_flat(two), pairs.tgt_lengths[two]) == [whole[1][77], whole[1][200]]


def test_what_is_kept_of_earlier_draws_is_bounded_and_decides_nothing(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = [drawn(data, data.sampling(), epoch) for epoch in range(3)]
    monkeypatch.setattr(sampling, "PAIRS_AT_ONCE", 7)
    monkeypatch.setattr(sampling, "WORDS_KEPT", 12)
    monkeypatch.setattr(sampling, "IDS_KEPT", 300)
    draws = data.sampling()
    assert [drawn(data, draws, epoch) for epoch in range(3)] == whole
    words = draws._sides[0]
    assert 0 < len(words._words) == len(words._numbers) <= 12
    assert 1 < len(words._drawn) <= 300


def frequencies(draw: Any, count: int) -> dict[tuple[int, ...], float]:
    found = Counter(tuple(draw()) for _ in range(count))
    return {ids: number / count for ids, number in found.items()}


def distance(one: dict[Any, float], other: dict[Any, float]) -> float:
    return sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in one.keys() | other.keys()) / 2


@pytest.mark.parametrize("word", ["house", "street", "Zo\u00e9\u65e5\u672ct"])
def test_segmentations_are_as_frequent_as_those_of_sentencepiece(data: Data, word: str) -> None:
    alpha = ALPHA[data.model_type]
    model = data.tokenizers.src._model
    draw = of_word(data)(f"▁{word}")
    numbers = uniform("any")
    ours = frequencies(lambda: draw(numbers), 4000)
    theirs = frequencies(lambda: model.encode(word, enable_sampling=True, alpha=alpha, nbest_size=-1), 4000)
    assert distance(ours, theirs) < 0.08


def all_segmentations(word: str, inventory: Inventory) -> dict[tuple[int, ...], float]:
    """Each segmentation into known pieces with its log probability."""
    if not word:
        return {(): 0.0}
    found = {}
    for stop in range(1, len(word) + 1):
        if piece := inventory.pieces.get(word[:stop]):
            for rest, score in all_segmentations(word[stop:], inventory).items():
                found[(piece[0], *rest)] = piece[1] + score
    return found


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_a_unigram_segmentation_has_the_power_of_its_probability(alpha: float) -> None:
    pieces = {"a": (4, -1.0), "b": (5, -2.5), "ab": (6, -2.0), "ba": (7, -3.0), "aba": (8, -2.2), "bab": (9, -6.0)}
    inventory = Inventory(pieces, longest=3, unknown_score=-20.0, byte_ids=())
    scores = all_segmentations("ababa", inventory)
    total = sum(math.exp(alpha * score) for score in scores.values())
    exact = {ids: math.exp(alpha * score) / total for ids, score in scores.items()}
    of_word, numbers = unigram_words(inventory, alpha), uniform("any")
    draw = of_word("ababa")
    assert distance(frequencies(lambda: draw(numbers), 20_000), exact) < 0.02
    short, long = of_word("ab" * 50), of_word("ab" * 5000)  # the latter's probability is below every float
    assert len(long(numbers)) / 100 == pytest.approx(sum(len(short(numbers)) for _ in range(100)) / 100, rel=0.03)


@pytest.mark.parametrize("fallback", [False, True])
@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_unknown_text_is_one_unk_or_bytes_as_in_sentencepiece(
    model_type: ModelType, fallback: bool, tmp_path: Path
) -> None:
    data = Data(tmp_path, model_type, **({"vocab_size": 330, "byte_fallback": True} if fallback else {}))
    pair = data.src.index(ODD[2])
    ids = drawn(data, data.sampling())[0][pair]
    assert data.tokenizers.src.decode([ids]) == data.tokenizers.src.decode([data.corpus.src_ids(pair)])
    assert ids.count(UNK) == (0 if fallback else data.corpus.src_ids(pair).tolist().count(UNK))


def test_a_side_drawn_longer_than_max_length_keeps_its_best_segmentation(data: Data) -> None:
    free = drawn(data, data.sampling(max_length=10_000))
    limit = int(max(data.corpus.src_lengths.max(), data.corpus.tgt_lengths.max()))
    held = drawn(data, data.sampling(max_length=limit))
    over = 0
    for side, stored in enumerate((data.corpus.src_ids, data.corpus.tgt_ids)):
        for pair, (unlimited, found) in enumerate(zip(free[side], held[side], strict=True)):
            over += len(unlimited) > limit
            assert found == (stored(pair).tolist() if len(unlimited) > limit else unlimited)
    assert over > 0


@pytest.fixture(params=["one pool", "pools"])
def pools(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pools":
        monkeypatch.setattr(batching, "POOL", 70)
        monkeypatch.setattr(batching, "POOL_A_TOKEN", 0)


@pytest.mark.usefixtures("pools")
def test_batches_of_drawn_pairs_are_under_the_budget_and_hold_what_was_drawn(data: Data) -> None:
    batches = TrainingBatches(data.corpus, 200, 1, data.sampling())
    assert sorted(np.concatenate(batches.epoch(1))) == every(data).tolist()
    whole = drawn(data, data.sampling(), 1)
    order = batches.from_position(1, 0)
    for _ in range(len(batches.epoch(1))):
        epoch, _, portion = next(order)
        (batch,) = portion.parts
        assert epoch == 1
        assert max(batch.src_BS.numel(), batch.tgt_in_BT.numel()) <= 200
        for row, pair in enumerate(batch.pairs.tolist()):
            assert batch.src_BS[row, : batch.src_lengths_B[row]].tolist() == [*whole[0][pair], EOS]
            assert batch.tgt_out_BT[row][batch.tgt_mask_BT[row]].tolist() == [*whole[1][pair], EOS]


@pytest.mark.usefixtures("pools")
def test_sampled_training_goes_on_at_any_position(data: Data) -> None:
    def batches() -> TrainingBatches:
        return TrainingBatches(data.corpus, 200, 1, data.sampling())

    whole = batches().from_position(0, 0)
    order = [next(whole) for _ in range(len(batches().epoch(0)) + 5)]
    assert [epoch for epoch, _, _ in order[-6:]] == [0, 1, 1, 1, 1, 1]
    for start in range(1, len(order), 3):
        epoch, position, _ = order[start - 1]
        found = next(batches().from_position(epoch, position))
        assert found[:2] == order[start][:2]
        assert found[2].parts[0].src_BS.equal(order[start][2].parts[0].src_BS)
        assert found[2].parts[0].tgt_out_BT.equal(order[start][2].parts[0].tgt_out_BT)


def test_the_corpus_itself_is_never_drawn(data: Data) -> None:
    drawn(data, data.sampling())
    for pairs in in_order(data.corpus, 200):
        batch = make_batch(data.corpus, pairs)
        for row, pair in enumerate(batch.pairs.tolist()):
            assert batch.src_BS[row, : batch.src_lengths_B[row] - 1].tolist() == data.corpus.src_ids(pair).tolist()


def test_the_first_batch_needs_no_more_than_a_pool(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    flat = EncodedCorpus.src_flat
    monkeypatch.setattr(EncodedCorpus, "src_flat", lambda corpus, pairs: (read.extend(pairs), flat(corpus, pairs))[1])
    monkeypatch.setattr(batching, "POOL", 240)
    monkeypatch.setattr(batching, "POOL_A_TOKEN", 0)
    batches = TrainingBatches(data.corpus, 100, 1, data.sampling())
    shown = batches.batches_an_epoch()
    next(batches.from_position(0, 0))
    assert len(read) == len(set(read)) == 30
    assert shown.startswith("about ")
    assert int(shown.split()[1]) == pytest.approx(len(batches.epoch(0)), rel=0.4)


def test_processes_share_batches_of_drawn_pairs(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "POOL", 100)
    monkeypatch.setattr(batching, "POOL_A_TOKEN", 0)
    whole = TrainingBatches(data.corpus, 200, 1, data.sampling())
    dealt = [
        TrainingBatches(data.corpus, 100, 1, data.sampling(), Deal(rank, 2)).from_position(0, 0) for rank in (0, 1)
    ]
    for expected, *shares in zip(whole.from_position(0, 0), *dealt, range(60)):
        (batch,), (one, other) = expected[2].parts, (share[2].parts for share in shares[:2])
        assert all(share[:2] == expected[:2] and (share[2].pairs == batch.pairs).all() for share in shares[:2])
        found = {int(pair): row for part in (*one, *other) for pair, row in zip(part.pairs, part.tgt_out_BT)}
        for pair, row in zip(batch.pairs.tolist(), batch.tgt_out_BT):
            assert [i for i in found[pair].tolist() if i] == [i for i in row.tolist() if i]


def test_no_piece_is_in_two_words(data: Data) -> None:
    """What `_Words` takes for granted, as it tells words apart by the pieces that begin with "▁"."""
    model: sentencepiece.SentencePieceProcessor = data.tokenizers.src._model
    for line in [*ODD, *data.src[:20]]:
        pieces = model.encode(line, out_type=str)
        assert not any("▁" in piece[1:] for piece in pieces)
        words = [f"▁{word}" for word in model.normalize(line).split("▁")[1:]]
        assert [word for word in "".join(pieces).replace("▁", " ▁").split(" ") if word] == words
