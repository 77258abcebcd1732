"""The search against exhaustive enumeration, a greedy loop, and forced decoding."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from models import DECODERS, VOCABULARY, small_model

from nmt.model.seq2seq import Seq2Seq
from nmt.model.torch_stepper import TorchStepper
from nmt.search import Hypothesis, beam_search, length_penalty

BANNED, BOS, EOS = (0, 1, 2), 2, 3
SOURCES = [[4, 5, 6, 3], [7, 3], [4, 4, 9, 8, 8, 3], [5, 6, 3]]


def search(model: Seq2Seq, sources: list[list[int]] = SOURCES, **settings: object) -> list[list[Hypothesis]]:
    values: dict[str, object] = {"bos": BOS, "eos": EOS, "beam_size": 4, "alpha": 1.0}
    values["max_lengths"] = [8 for _ in sources]
    stepper = TorchStepper(model.eval(), BANNED, torch.device("cpu"))
    return beam_search(stepper, sources, **(values | settings))  # type: ignore[arg-type]


@torch.no_grad()
def forced_log_prob(model: Seq2Seq, source: list[int], target: tuple[int, ...], ended: bool = True) -> float:
    """log p of a target by teacher forcing, EOS included where it ended."""
    out = [*target, EOS] if ended else list(target)
    readouts, _ = model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([[BOS, *target][: len(out)]]))
    return float(model.output(readouts[0]).log_softmax(-1)[range(len(out)), out].sum())


@pytest.mark.parametrize("name", DECODERS)
def test_the_forced_score_of_a_hypothesis_is_its_beam_score(name: str) -> None:
    model = small_model(name)
    for source, hypotheses in zip(SOURCES, search(model, n_best=4), strict=True):
        assert len(hypotheses) == 4
        for found in hypotheses:
            log_prob = forced_log_prob(model, source, found.tokens, ended=not found.length_limited)
            assert found.log_prob == pytest.approx(log_prob, abs=1e-6)
            length = len(found.tokens) + (not found.length_limited)
            assert found.score == pytest.approx(log_prob / ((5 + length) / 6), abs=1e-6)


@torch.no_grad()
def forced_coverage_penalty(model: Seq2Seq, source: list[int], target: tuple[int, ...], beta: float) -> float:
    """cp by the weights of teacher forcing."""
    _, weights_BTS = model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([[BOS, *target]]))
    return beta * sum(math.log(min(1.0, float(total))) for total in weights_BTS[0].sum(0))


@pytest.mark.parametrize("name", ["bahdanau", "bahdanau-coverage", "luong-feed"])
def test_the_coverage_penalty_is_of_the_weights_along_the_back_pointers(name: str) -> None:
    model, beta = small_model(name), 0.7
    with torch.no_grad():
        model.output.bias[EOS] += 2  # so that hypotheses end before the limit
    best = search(model, n_best=4, beta=beta)
    for source, hypotheses in zip(SOURCES, best, strict=True):
        ended = [found for found in hypotheses if not found.length_limited]
        assert ended
        for found in ended:
            expected = found.log_prob / length_penalty(len(found.tokens) + 1, 1.0)
            expected += forced_coverage_penalty(model, source, found.tokens, beta)
            assert found.score == pytest.approx(expected, abs=1e-6)
        assert [found.score for found in ended] == sorted((found.score for found in ended), reverse=True)


def test_the_coverage_penalty_finds_what_exhaustive_search_finds() -> None:
    model, limit, beta = small_model("bahdanau"), 4, 0.5
    targets = [t for n in range(limit) for t in itertools.product(range(4, VOCABULARY), repeat=n)]
    for source in SOURCES[:2]:
        scored = {
            target: forced_log_prob(model, source, target) / length_penalty(len(target) + 1, 1.0)
            + forced_coverage_penalty(model, source, target, beta)
            for target in targets
        }
        found = search(model, [source], beam_size=400, beta=beta, max_lengths=[limit], n_best=5)[0]
        best = sorted(scored, key=lambda target: -scored[target])[:5]
        assert [hypothesis.tokens for hypothesis in found if not hypothesis.length_limited] == best


def test_a_position_without_any_weight_leaves_the_coverage_penalty_finite() -> None:
    model = small_model("luong-monotonic")
    for hypotheses in search(model, [[4, 5, 6, 7, 8, 9, 10, 4, 5, 3]], beta=1.0, max_lengths=[3], n_best=2):
        assert all(np.isfinite(found.score) for found in hypotheses)


@pytest.mark.parametrize("name", ["bahdanau", "luong-feed", "none"])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_wide_beam_finds_what_exhaustive_search_finds(name: str, alpha: float) -> None:
    model = small_model(name)
    limit, words = 4, range(4, VOCABULARY)
    targets = [t for n in range(limit) for t in itertools.product(words, repeat=n)]
    for source in SOURCES[:2]:
        scored = {t: forced_log_prob(model, source, t) / length_penalty(len(t) + 1, alpha) for t in targets}
        best = sorted(scored, key=lambda target: -scored[target])[:5]
        found = search(model, [source], beam_size=400, alpha=alpha, max_lengths=[limit], n_best=5)[0]
        ended = [hypothesis for hypothesis in found if not hypothesis.length_limited]
        assert [hypothesis.tokens for hypothesis in ended] == best[: len(ended)]
        assert len(ended) == 5
        np.testing.assert_allclose([h.score for h in ended], [scored[target] for target in best], atol=1e-6)


@pytest.mark.parametrize("name", DECODERS)
def test_beam_one_is_greedy(name: str) -> None:
    model = small_model(name)
    for source, (found, *_) in zip(SOURCES, search(model, beam_size=1), strict=True):
        tokens: list[int] = []
        while len(tokens) < 8:
            readouts, _ = model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([[BOS, *tokens]]))
            logits = model.output(readouts[0, -1]).detach()
            logits[list(BANNED)] = -torch.inf
            tokens.append(int(logits.argmax()))
            if tokens[-1] == EOS:
                break
        assert found.tokens == tuple(token for token in tokens if token != EOS)
        assert found.length_limited == (EOS not in tokens)


@pytest.mark.parametrize("name", DECODERS)
def test_batched_search_equals_one_by_one(name: str) -> None:
    model = small_model(name)
    together = search(model, n_best=3, keep_weights=True)
    for source, expected in zip(SOURCES, together, strict=True):
        for one, other in zip(search(model, [source], n_best=3, keep_weights=True)[0], expected, strict=True):
            assert one.tokens == other.tokens
            assert one.score == pytest.approx(other.score, abs=1e-6)
            np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)


@pytest.mark.parametrize("name", ["bahdanau", "luong-feed", "luong-general"])
def test_weights_follow_the_hypothesis_along_its_back_pointers(name: str) -> None:
    model = small_model(name)
    for source, hypotheses in zip(SOURCES, search(model, n_best=3, keep_weights=True), strict=True):
        for found in hypotheses:
            fed = [BOS, *found.tokens][: len(found.tokens) + (not found.length_limited)]
            _, weights = model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([fed]))
            np.testing.assert_allclose(found.weights, weights[0].detach().numpy(), atol=1e-6)


def test_results_are_ranked_and_distinct_and_hold_no_banned_word() -> None:
    for hypotheses in search(small_model("bahdanau"), beam_size=6, n_best=6):
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({(h.tokens, h.length_limited) for h in hypotheses}) == 6
        assert not {token for h in hypotheses for token in h.tokens} & {*BANNED, EOS}


def test_the_first_of_the_n_best_is_the_one_best_also_at_the_length_limit() -> None:
    rng = np.random.default_rng(2)
    cut = 0
    for seed in range(40):
        model = small_model("bahdanau", seed=seed)
        with torch.no_grad():
            model.output.bias[EOS] = float(rng.uniform(-4, 0))  # ends late: the limit cuts many
        limits = rng.integers(1, 7, len(SOURCES)).tolist()
        for n_best in (2, 4):
            several = search(model, max_lengths=limits, n_best=n_best)
            for (one, *_), found in zip(search(model, max_lengths=limits), several, strict=True):
                assert found[0].tokens == one.tokens
                ended = [not hypothesis.length_limited for hypothesis in found]
                assert ended == sorted(ended, reverse=True)
                cut += not all(ended)
    assert cut > 50


def test_a_sentence_ends_at_its_own_length_limit() -> None:
    model = small_model("bahdanau")
    with torch.no_grad():
        model.output.bias[EOS] = -1000.0  # it would never end
    for limit, (found, *_) in zip((3, 5, 4, 1), search(model, max_lengths=[3, 5, 4, 1]), strict=True):
        assert len(found.tokens) == limit
        assert found.length_limited


def test_length_penalty_is_that_of_wu_et_al() -> None:
    assert length_penalty(1, 0.6) == pytest.approx(1.0)
    assert length_penalty(7, 1.0) == pytest.approx(2.0)
    assert length_penalty(13, 0.5) == pytest.approx(3**0.5)
    assert length_penalty(40, 0.0) == 1.0
