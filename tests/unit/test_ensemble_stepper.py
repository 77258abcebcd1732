"""The search with several models against the model alone, exhaustive enumeration, a greedy loop and forced decoding."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from models import DECODERS, VOCABULARY, small_model

from nmt.config import EncoderConfig
from nmt.model import selection
from nmt.model.ensemble_stepper import EnsembleStepper
from nmt.model.seq2seq import Seq2Seq
from nmt.model.stepper import Stepper
from nmt.model.torch_stepper import TorchStepper
from nmt.search import Hypothesis, beam_search, length_penalty

BANNED, BOS, EOS = (0, 1, 2), 2, 3
SOURCES = [[4, 5, 6, 3], [7, 3], [4, 4, 9, 8, 8, 3], [5, 6, 3]]


def steppers(models: list[Seq2Seq]) -> list[TorchStepper]:
    return [TorchStepper(model.eval(), BANNED, torch.device("cpu")) for model in models]


def search(stepper: Stepper, sources: list[list[int]] = SOURCES, **settings: object) -> list[list[Hypothesis]]:
    values: dict[str, object] = {"bos": BOS, "eos": EOS, "beam_size": 4, "alpha": 1.0}
    values["max_lengths"] = [8 for _ in sources]
    return beam_search(stepper, sources, **(values | settings))  # type: ignore[arg-type]


def unlike_models() -> list[Seq2Seq]:
    """Models of three kinds and as many sizes."""
    large = {"embedding_size": 10, "encoder": EncoderConfig(hidden_size=5, num_layers=2)}
    return [
        small_model("none", seed=3),
        small_model("bahdanau-lstm-2", seed=4, embedding_size=5),
        small_model("luong-feed", seed=5, **large),
    ]


@torch.no_grad()
def mean_log_probs(models: list[Seq2Seq], source: list[int], targets: list[tuple[int, ...]]) -> torch.Tensor:
    """The mean over the models of log p of each word after each of the targets' words, [targets, T + 1, V]."""
    src, lengths = torch.tensor([source] * len(targets)), torch.tensor([len(source)] * len(targets))
    given = torch.tensor([[BOS, *target] for target in targets])
    return torch.stack([m.output(m(src, lengths, given)[0]).log_softmax(-1) for m in models]).mean(0)


def forced_log_probs(models: list[Seq2Seq], source: list[int], targets: list[tuple[int, ...]]) -> list[float]:
    """The mean log p of targets of one length, EOS included."""
    words = torch.tensor([[*target, EOS] for target in targets])
    return mean_log_probs(models, source, targets).gather(2, words.unsqueeze(2)).sum((1, 2)).tolist()


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]], abs_: float) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert (one.tokens, one.length_limited) == (other.tokens, other.length_limited)
            assert one.score == pytest.approx(other.score, abs=abs_)
            assert one.weights is not None
            np.testing.assert_allclose(one.weights, other.weights, atol=abs_)


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_model_with_itself_is_the_model_alone(name: str, dtype: torch.dtype) -> None:
    (alone,) = steppers([small_model(name, dtype=dtype)])
    settings = {"n_best": 4, "keep_weights": True, "beta": 0.0 if name.startswith("none") else 0.3}
    assert_same(search(EnsembleStepper([alone] * 3), **settings), search(alone, **settings), 1e-5)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_wide_beam_finds_what_exhaustive_search_by_the_mean_finds(alpha: float) -> None:
    models, limit = unlike_models(), 4
    stepper = EnsembleStepper(steppers(models))
    for source in SOURCES[:2]:
        scored: dict[tuple[int, ...], float] = {}
        for length in range(limit):
            targets = list(itertools.product(range(4, VOCABULARY), repeat=length))
            log_probs = forced_log_probs(models, source, targets)
            scored |= {t: p / length_penalty(length + 1, alpha) for t, p in zip(targets, log_probs, strict=True)}
        best = sorted(scored, key=lambda target: -scored[target])[:5]
        found = search(stepper, [source], beam_size=400, alpha=alpha, max_lengths=[limit], n_best=5)[0]
        ended = [hypothesis for hypothesis in found if not hypothesis.length_limited]
        assert [hypothesis.tokens for hypothesis in ended] == best
        np.testing.assert_allclose([h.score for h in ended], [scored[target] for target in best], atol=1e-6)


def test_beam_one_takes_the_word_with_the_largest_mean() -> None:
    models = unlike_models()
    found = search(EnsembleStepper(steppers(models)), beam_size=1)
    for source, (ours, *_) in zip(SOURCES, found, strict=True):
        tokens: list[int] = []
        while len(tokens) < 8 and EOS not in tokens:
            mean_V = mean_log_probs(models, source, [tuple(tokens)])[0, -1]
            mean_V[list(BANNED)] = -torch.inf
            tokens.append(int(mean_V.argmax()))
        assert ours.tokens == tuple(token for token in tokens if token != EOS)
    assert [one.tokens for one, *_ in found] not in [
        [one.tokens for one, *_ in search(alone, beam_size=1)] for alone in steppers(models)
    ]


@torch.no_grad()
def test_the_score_is_that_of_forced_decoding_and_the_weights_are_the_mean_of_the_attentive_models() -> None:
    models = unlike_models()
    for source, hypotheses in zip(
        SOURCES, search(EnsembleStepper(steppers(models)), n_best=4, keep_weights=True), strict=True
    ):
        for one in hypotheses:
            steps = len(one.tokens) + (not one.length_limited)
            words = torch.tensor([*one.tokens, EOS][:steps])
            log_probs = mean_log_probs(models, source, [one.tokens])[0, :steps]
            assert one.log_prob == pytest.approx(float(log_probs.gather(1, words.unsqueeze(1)).sum()), abs=1e-6)
            fed = torch.tensor([[BOS, *one.tokens][:steps]])
            weights = [m(torch.tensor([source]), torch.tensor([len(source)]), fed)[1][0] for m in models[1:]]
            np.testing.assert_allclose(one.weights, torch.stack(weights).mean(0), atol=1e-6)


@pytest.mark.parametrize("rows", [4, 320])  # projected at once: one sentence's, or all
def test_batched_search_equals_one_by_one(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stepper = EnsembleStepper(steppers(unlike_models()))
    alone = [search(stepper, [source], n_best=3, keep_weights=True)[0] for source in SOURCES]
    monkeypatch.setattr(selection, "ROWS", rows)
    assert_same(search(stepper, n_best=3, keep_weights=True), alone, 1e-6)


def test_what_the_first_model_bans_is_in_no_hypothesis() -> None:
    models = unlike_models()
    first = TorchStepper(models[0].eval(), (*BANNED, 8), torch.device("cpu"))
    (free, *others) = steppers(models)
    for one, banned in ((free, {*BANNED, EOS}), (first, {*BANNED, EOS, 8})):
        found = search(EnsembleStepper([one, *others]), n_best=4)
        tokens = {token for hypotheses in found for hypothesis in hypotheses for token in hypothesis.tokens}
        assert tokens
        assert not tokens & banned
        assert (8 in tokens) == (8 not in banned)
