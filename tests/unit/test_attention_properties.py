"""What must hold for any sentence, batch and size: found by hypothesis, not by hand."""

from __future__ import annotations

from typing import NamedTuple

import formulas
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import ATTENTIVE, DECODERS, VOCABULARY, small_model
from torch import Tensor

from nmt.config import BahdanauConfig, DecoderConfig, EncoderConfig, LuongConfig, ModelConfig, WindowConfig
from nmt.model.attention import AdditiveScore, DotScore, GeneralScore, attend, masked_softmax
from nmt.model.encoder import Encoding
from nmt.model.seq2seq import build_model
from nmt.model.window import make_window

moderate = settings(max_examples=200, deadline=None, derandomize=True, database=None)

# --- scores, softmax and windows by themselves --------------------------------------------------------------------


class Case(NamedTuple):
    """A score, a window or none, and what they are given."""

    score: str
    window: WindowConfig | None
    lengths: list[int]
    steps: list[int]
    seed: int


windows = st.builds(WindowConfig, kind=st.sampled_from(["monotonic", "predictive"]), half_width=st.integers(1, 12))
cases = st.builds(
    Case,
    score=st.sampled_from(["dot", "dot-scaled", "general", "general-scaled", "concat", "coverage"]),
    window=st.none() | windows,
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    steps=st.lists(st.integers(1, 60), min_size=1, max_size=5),
    seed=st.integers(0, 2**32 - 1),
)
SIZE = 5


def make_score(name: str) -> AdditiveScore | DotScore:
    scale = name.endswith("scaled")
    if name in ("concat", "coverage"):
        return AdditiveScore(SIZE, SIZE, 6, coverage=name == "coverage")
    return GeneralScore(SIZE, SIZE, scale) if name.startswith("general") else DotScore(SIZE, scale)


class Attended(NamedTuple):
    """`window` marks the real positions inside each window, by the paper's formula; `learned` may get gradients."""

    weights: Tensor  # [B, K, S]
    context: Tensor  # [B, K, E]
    window: Tensor  # [B, K, S]
    learned: list[Tensor]


def attended(case: Case, size: float = 1.0) -> Attended:
    """Weights and contexts of a case; `size` multiplies the scores."""
    torch.manual_seed(case.seed)
    score = make_score(case.score).double()
    with torch.no_grad():
        if isinstance(score, AdditiveScore):
            score.v.mul_(size)
        else:
            score.factor *= size
    window = None if case.window is None or case.score == "coverage" else make_window(case.window, SIZE).double()
    batch, longest = len(case.lengths), max(case.lengths)
    states_BKH = torch.randn(batch, len(case.steps), SIZE, dtype=torch.float64, requires_grad=True)
    annotations_BSE = torch.randn(batch, longest, SIZE, dtype=torch.float64, requires_grad=True)
    mask_BS = torch.arange(longest) < torch.tensor(case.lengths).unsqueeze(1)
    keys_BSA, learned = score.keys(annotations_BSE), [states_BKH, annotations_BSE, *score.parameters()]
    if window is None:
        coverage = [torch.rand(batch, len(case.steps), longest).double()] if case.score == "coverage" else []
        weights_BKS = masked_softmax(score(states_BKH, keys_BSA, *coverage), mask_BS)
        window_BKS = mask_BS.unsqueeze(1).expand_as(weights_BKS)
        return Attended(weights_BKS, attend(weights_BKS, annotations_BSE), window_BKS, learned)
    steps_K = torch.tensor(case.steps)
    weights_BKS, context_BKE = window(score, states_BKH, steps_K, keys_BSA, annotations_BSE, mask_BS.sum(1))
    window_BKS = torch.zeros_like(weights_BKS, dtype=torch.bool)
    p = {f"window.{name}": array for name, array in formulas.numbers(window).items()}
    for b, length in enumerate(case.lengths):
        for k, t in enumerate(case.steps):
            p_t = formulas.centre(case.window, p, states_BKH[b, k].detach().numpy(), t, length)
            for j in formulas.inside(p_t, case.window.half_width, length):
                window_BKS[b, k, j - 1] = True
    return Attended(weights_BKS, context_BKE, window_BKS, [*learned, *window.parameters()])


def sums_to_at_most_one(case: Case) -> bool:
    return case.window is not None and case.window.kind == "predictive" and case.score != "coverage"


@given(cases)
@moderate
def test_weights_are_positive_in_the_window_and_exactly_zero_elsewhere(case: Case) -> None:
    found = attended(case)
    assert (found.weights[found.window] > 0).all()
    assert (found.weights[~found.window] == 0).all()


@given(cases)
@moderate
def test_weights_sum_to_one_or_in_predictive_windows_to_at_most_one(case: Case) -> None:
    sums_BK = attended(case).weights.sum(-1)
    if sums_to_at_most_one(case):
        assert ((sums_BK > 0) & (sums_BK <= 1 + 1e-12)).all()
    else:
        torch.testing.assert_close(sums_BK, torch.ones_like(sums_BK))


@given(cases)
@moderate
def test_no_window_is_empty_however_long_the_target(case: Case) -> None:
    late = case._replace(steps=[max(case.lengths) + 12 + step for step in case.steps])
    found = attended(late)
    assert found.window.any(-1).all()
    assert (found.weights.sum(-1) > 0).all()


@given(cases, st.sampled_from([1e4, 1e6]))
@moderate
def test_huge_scores_keep_weights_and_gradients_finite(case: Case, size: float) -> None:
    found = attended(case, size)
    assert found.weights.isfinite().all()
    assert (found.weights >= 0).all()
    assert (found.weights.sum(-1) <= 1 + 1e-9).all()
    if not sums_to_at_most_one(case):  # a Gaussian far from the one position with weight may leave next to nothing
        torch.testing.assert_close(found.weights.sum(-1), torch.ones_like(found.weights[..., 0]))
    loss = found.context.sum() + found.weights.square().sum()
    gradients = torch.autograd.grad(loss, found.learned, allow_unused=True)
    assert all(gradient is None or gradient.isfinite().all() for gradient in gradients)


@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=30), st.integers(0, 30))
@moderate
def test_weights_of_scores_up_to_ten_thousand_are_those_of_exact_arithmetic(scores: list[float], padding: int) -> None:
    mask_BS = torch.arange(len(scores) + padding) < len(scores)
    scores_BKS = torch.tensor([[[*scores, *([1e4] * padding)]]], dtype=torch.float64)
    weights_BKS = masked_softmax(scores_BKS, mask_BS.unsqueeze(0))
    np.testing.assert_allclose(weights_BKS[0, 0, : len(scores)].numpy(), formulas.softmax(scores), atol=1e-15)
    assert (weights_BKS[0, 0, len(scores) :] == 0).all()


# --- whole models -------------------------------------------------------------------------------------------------


class Sentences(NamedTuple):
    """A batch for the model of a name."""

    name: str
    lengths: list[int]
    steps: int
    seed: int

    def arrays(self, width: int) -> tuple[Tensor, Tensor, Tensor]:
        """Source ids up to `width`, lengths, and previous target words."""
        torch.manual_seed(self.seed)
        src_BS = torch.randint(0, VOCABULARY, (len(self.lengths), width))
        tgt_in_BT = torch.randint(0, VOCABULARY, (len(self.lengths), self.steps))
        return src_BS, torch.tensor(self.lengths), tgt_in_BT


MODELS = {name: small_model(name) for name in DECODERS}
batches = st.builds(
    Sentences,
    name=st.sampled_from(list(DECODERS)),
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    steps=st.integers(1, 8),
    seed=st.integers(0, 2**32 - 1),
)


@given(batches)
@moderate
@torch.no_grad()
def test_weights_of_a_model_are_a_distribution_over_the_real_positions(batch: Sentences) -> None:
    src_BS, lengths_B, tgt_in_BT = batch.arrays(max(batch.lengths) + 2)
    _, weights_BTS = MODELS[batch.name](src_BS, lengths_B, tgt_in_BT)
    if batch.name not in ATTENTIVE:
        assert weights_BTS.shape[-1] == 0
        return
    real_BTS = (torch.arange(src_BS.shape[1]) < lengths_B.unsqueeze(1)).unsqueeze(1).expand_as(weights_BTS)
    assert (weights_BTS >= 0).all()
    assert (weights_BTS[~real_BTS] == 0).all()
    sums_BT = weights_BTS.sum(-1)
    if "predictive" in batch.name:
        assert ((sums_BT > 0) & (sums_BT <= 1 + 1e-12)).all()
    else:
        torch.testing.assert_close(sums_BT, torch.ones_like(sums_BT))


@given(batches, st.randoms(use_true_random=False))
@moderate
@torch.no_grad()
def test_a_permuted_batch_has_its_results_permuted(batch: Sentences, random: object) -> None:
    src_BS, lengths_B, tgt_in_BT = batch.arrays(max(batch.lengths))
    order = list(range(len(batch.lengths)))
    random.shuffle(order)  # type: ignore[attr-defined]
    model = MODELS[batch.name]
    before = model(src_BS, lengths_B, tgt_in_BT)
    after = model(src_BS[order], lengths_B[order], tgt_in_BT[order])
    for ordered, permuted in zip(before, after, strict=True):
        torch.testing.assert_close(permuted, ordered[order], rtol=1e-10, atol=1e-12)


@given(batches, st.integers(0, 6), st.integers(0, 2**32 - 1))
@moderate
@torch.no_grad()
def test_padding_of_any_ids_and_any_width_changes_nothing(batch: Sentences, more: int, seed: int) -> None:
    longest = max(batch.lengths)
    src_BS, lengths_B, tgt_in_BT = batch.arrays(longest)
    real_BS = torch.arange(longest + more) < lengths_B.unsqueeze(1)
    torch.manual_seed(seed)
    padded_BS = torch.randint(0, VOCABULARY, real_BS.shape)
    padded_BS[real_BS] = src_BS[real_BS[:, :longest]]
    model = MODELS[batch.name]
    readouts_BTR, weights_BTS = model(src_BS, lengths_B, tgt_in_BT)
    padded_BTR, padded_BTS = model(padded_BS, lengths_B, tgt_in_BT)
    torch.testing.assert_close(padded_BTR, readouts_BTR, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(padded_BTS[..., :longest], weights_BTS, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ATTENTIVE)
def test_a_source_of_ten_thousand_positions_has_finite_weights_and_gradients(name: str) -> None:
    model, size = small_model(name, dtype=torch.float32), 10_000
    torch.manual_seed(1)
    mask_BS = torch.arange(size) < torch.tensor([[size], [9000]])
    annotations_BSE = torch.randn(2, size, 8).tanh() * mask_BS.unsqueeze(-1)
    memory = model.decoder.read(Encoding(annotations_BSE, mask_BS, annotations_BSE[:, 0, 4:], annotations_BSE[:, 0]))
    state = model.decoder.init_state(memory)
    readouts_BTR, weights_BTS = model.decoder(model.tgt_embedding(torch.tensor([[2, 4, 5]] * 2)), state, memory)
    assert weights_BTS.isfinite().all()
    assert (weights_BTS[1, :, 9000:] == 0).all()
    sums_BT = weights_BTS.sum(-1)
    assert (sums_BT <= 1 + 1e-4).all()
    assert (sums_BT > (0 if "predictive" in name else 1 - 1e-4)).all()
    (readouts_BTR.sum() + weights_BTS.square().sum()).backward()
    for key, parameter in model.decoder.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key


# --- before and after training ------------------------------------------------------------------------------------


def luong(score: str, *, kind: str | None = None, **more: object) -> LuongConfig:
    window = None if kind is None else {"kind": kind, "half_width": 4}
    return LuongConfig.model_validate({"kind": "luong", "score": score, "window": window} | more)


UNTRAINED: dict[str, DecoderConfig] = {
    "bahdanau": BahdanauConfig(),
    "bahdanau-coverage": BahdanauConfig(coverage=True),
    "bahdanau-lstm-2": BahdanauConfig(cell="lstm", num_layers=2),
    "dot": luong("dot"),
    "dot-scaled": luong("dot", scale=True),
    "general": luong("general"),
    "general-scaled": luong("general", scale=True),
    "concat": luong("concat"),
    "general-feed": luong("general", input_feeding=True),
    "general-monotonic": luong("general", kind="monotonic"),
    "concat-predictive": luong("concat", kind="predictive"),
    "dot-predictive-feed": luong("dot", kind="predictive", scale=True, input_feeding=True),
}


@pytest.mark.parametrize("name", UNTRAINED)
@torch.no_grad()
def test_rows_of_an_untrained_model_are_nearly_uniform(name: str) -> None:
    """Within 20 % of 1/S; of one over the positions in the window, and but for the Gaussian, where it is local."""
    decoder = UNTRAINED[name]
    torch.manual_seed(1)
    model = build_model(ModelConfig(dropout=0.0, decoder=decoder), 1000, 1000)
    p = formulas.numbers(model.decoder)
    for size in (5, 20, 60):
        memory = model.read(torch.randint(4, 1000, (4, size)), torch.full((4,), size))
        state = model.decoder.init_state(memory)
        for t in range(1, 11):
            word_BD = model.tgt_embedding(torch.randint(4, 1000, (4,)))
            _, state, weights_BS = model.decoder.step(word_BD, state, memory)
            for s, weights_S in zip(model.decoder.rnn.top(state.hidden).numpy(), weights_BS.numpy(), strict=True):
                flat = np.full(size, 1 / size)
                if isinstance(decoder, LuongConfig) and decoder.window is not None:
                    p_t = formulas.centre(decoder.window, p, s, t, size)
                    flat = formulas.local_weights(decoder.window, dict.fromkeys(range(1, size + 1), 0.0), p_t, size)
                np.testing.assert_allclose(weights_S, flat, rtol=0.2, atol=1e-7)


def entropy(weights_BTS: Tensor) -> float:
    """The mean entropy of rows, each made a distribution, in nats."""
    rows_BTS = weights_BTS / weights_BTS.sum(-1, keepdim=True)
    return float(-torch.xlogy(rows_BTS, rows_BTS).sum(-1).mean())


# Not every kind: the others differ from one of these by a factor, a cell or the score.
TRAINED = ["bahdanau", "bahdanau-coverage", "dot", "dot-scaled", "general", "concat", "general-feed"]
TRAINED += ["general-monotonic", "concat-predictive"]


@pytest.mark.parametrize("name", TRAINED)
def test_attention_becomes_sharper_in_training(name: str) -> None:
    """Copying sentences of random words: nothing but the source tells the next one."""
    decoder = UNTRAINED[name].model_copy(update={"hidden_size": 48, "attention_size": 32})
    torch.manual_seed(1)
    config = ModelConfig(embedding_size=24, dropout=0.0, encoder=EncoderConfig(hidden_size=24), decoder=decoder)
    model = build_model(config, 24, 24)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    entropies, losses = [], []
    for _ in range(200):
        src_BS = torch.randint(4, 24, (16, 8))
        tgt_in_BT = torch.cat([torch.full((16, 1), 2), src_BS[:, :-1]], 1)
        readouts_BTR, weights_BTS = model(src_BS, torch.full((16,), 8), tgt_in_BT)
        loss = torch.nn.functional.cross_entropy(model.output(readouts_BTR).flatten(0, 1), src_BS.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        entropies.append(entropy(weights_BTS.detach()))
    assert np.mean(losses[-10:]) < losses[0] / 2
    assert np.mean(entropies[-10:]) < 0.95 * entropies[0]
