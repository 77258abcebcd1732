"""Local attention by itself: windows against NumPy loops, reading windows alone against scoring everything."""

from __future__ import annotations

from collections.abc import Callable

import formulas
import numpy as np
import pytest
import torch
from models import VOCABULARY, small_model

from nmt.config import WindowConfig
from nmt.model.attention import AdditiveScore, DotScore, GeneralScore, attend, masked_softmax
from nmt.model.torch_stepper import TorchStepper
from nmt.model.window import MonotonicWindow, PredictiveWindow, Window, make_window
from nmt.search import beam_search

H = 4  # of queries and of annotations, so that dot fits as well
SCORES: dict[str, Callable[[], AdditiveScore | DotScore]] = {
    "dot": lambda: DotScore(H),
    "dot-scaled": lambda: DotScore(H, scale=True),
    "general": lambda: GeneralScore(H, H),
    "general-scaled": lambda: GeneralScore(H, H, scale=True),
    "concat": lambda: AdditiveScore(H, H, 5),
}
KINDS = ("monotonic", "predictive")
LENGTHS = (9, 1, 14, 4)
STEPS = (1, 4, 30)  # the last one far beyond every source


def modules(
    score: str, kind: str, half_width: int, dtype: torch.dtype = torch.float64
) -> tuple[AdditiveScore | DotScore, Window]:
    torch.manual_seed(5)
    config = WindowConfig.model_validate({"kind": kind, "half_width": half_width})
    made = SCORES[score](), make_window(config, H)
    for module in made:
        for parameter in module.parameters():
            torch.nn.init.uniform_(parameter, -2, 2)  # so that centres are spread over the sentence
        module.to(dtype)
    return made


def arrays(
    lengths: tuple[int, ...] = LENGTHS, queries: int = len(STEPS), dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """States, annotations and the mask."""
    torch.manual_seed(6)
    states_BKH = torch.randn(len(lengths), queries, H, dtype=dtype)
    annotations_BSE = torch.randn(len(lengths), max(lengths), H, dtype=dtype)
    return states_BKH, annotations_BSE, torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)


def both_ways(
    score: AdditiveScore | DotScore,
    window: Window,
    states_BKH: torch.Tensor,
    annotations_BSE: torch.Tensor,
    mask_BS: torch.Tensor,
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Weights and contexts by scoring all positions, and by those of the windows alone."""
    lengths_B, found = mask_BS.sum(1), []
    for way in (window.attend_all, window.attend_near):
        centres_BK = window.centres(states_BKH, torch.tensor(STEPS), lengths_B)
        found.append(way(score, states_BKH, centres_BK, lengths_B, score.keys(annotations_BSE), annotations_BSE))
    return found


@pytest.mark.parametrize("half_width", [1, 3, 20])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SCORES)
def test_weights_and_contexts_follow_the_papers_formulas(name: str, kind: str, half_width: int) -> None:
    score, window = modules(name, kind, half_width)
    states_BKH, annotations_BSE, mask_BS = arrays()
    found = both_ways(score, window, states_BKH, annotations_BSE, mask_BS)
    p = {f"attention.{key}": array for key, array in formulas.numbers(score).items()}
    p |= {f"window.{key}": array for key, array in formulas.numbers(window).items()}
    config = WindowConfig.model_validate({"kind": kind, "half_width": half_width})
    for b, length in enumerate(LENGTHS):
        h = annotations_BSE[b, :length].numpy()
        for k, t in enumerate(STEPS):
            s = states_BKH[b, k].numpy()
            if name == "concat":
                e = {j: formulas.additive(p, s, hj) for j, hj in enumerate(h, 1)}
            else:
                plain, scale = name.removesuffix("-scaled"), name.endswith("scaled")
                e = {j: formulas.multiplicative(plain, p, s, hj, scale=scale) for j, hj in enumerate(h, 1)}
            p_t = formulas.centre(config, p, s, t, length)
            weights = formulas.local_weights(config, e, p_t, length)
            for weights_BKS, context_BKE in found:
                np.testing.assert_allclose(weights_BKS[b, k, :length].detach().numpy(), weights, atol=1e-12)
                assert (weights_BKS[b, k, length:] == 0).all()
                np.testing.assert_allclose(context_BKE[b, k].detach().numpy(), weights @ h, atol=1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 5e-5)])
@pytest.mark.parametrize("half_width", [1, 4, 20])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SCORES)
def test_reading_windows_alone_equals_scoring_everything_in_values_and_gradients(
    name: str, kind: str, half_width: int, dtype: torch.dtype, tolerance: float
) -> None:
    score, window = modules(name, kind, half_width, dtype)
    states_BKH, annotations_BSE, mask_BS = arrays(dtype=dtype)
    inputs = [states_BKH.requires_grad_(), annotations_BSE.requires_grad_()]
    learned = [*inputs, *score.parameters(), *window.parameters()]
    results = []
    for weights_BKS, context_BKE in both_ways(score, window, *inputs, mask_BS):
        loss = (weights_BKS * torch.arange(1, 15)).square().sum() + context_BKE.sin().sum()
        results.append([weights_BKS, context_BKE, *torch.autograd.grad(loss, learned)])
    for everything, near in zip(*results, strict=True):
        torch.testing.assert_close(near, everything, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("way", ["attend_all", "attend_near"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SCORES)
def test_gradients_equal_numerical_ones(name: str, kind: str, way: str) -> None:
    score, window = modules(name, kind, 2)
    states_BKH, annotations_BSE, mask_BS = arrays(lengths=(8, 3), queries=2)
    lengths_B, steps_K = mask_BS.sum(1), torch.tensor([1, 5])

    def attended(*tensors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        states_BKH, annotations_BSE = tensors[:2]
        centres_BK = window.centres(states_BKH, steps_K, lengths_B)
        keys_BSA = score.keys(annotations_BSE)
        found: tuple[torch.Tensor, torch.Tensor] = getattr(window, way)(
            score, states_BKH, centres_BK, lengths_B, keys_BSA, annotations_BSE
        )
        return found

    inputs = (states_BKH.requires_grad_(), annotations_BSE.requires_grad_())
    assert torch.autograd.gradcheck(attended, (*inputs, *score.parameters(), *window.parameters()))


@pytest.mark.parametrize("name", SCORES)
def test_a_monotonic_window_wider_than_the_sentence_is_global_attention(name: str) -> None:
    score, window = modules(name, "monotonic", 30)
    states_BKH, annotations_BSE, mask_BS = arrays()
    weights_BKS = masked_softmax(score(states_BKH, score.keys(annotations_BSE)), mask_BS)
    for local_BKS, context_BKE in both_ways(score, window, states_BKH, annotations_BSE, mask_BS):
        torch.testing.assert_close(local_BKS, weights_BKS)
        torch.testing.assert_close(context_BKE, attend(weights_BKS, annotations_BSE))


def test_a_target_longer_than_source_and_window_keeps_the_last_window() -> None:
    score, window = modules("general", "monotonic", 2)
    states_BKH, annotations_BSE, mask_BS = arrays()
    for weights_BKS, _ in both_ways(score, window, states_BKH, annotations_BSE, mask_BS):
        for b, length in enumerate(LENGTHS):
            window_S = weights_BKS[b, -1].nonzero().flatten() + 1  # t = 30
            assert window_S.tolist() == list(range(max(1, length - 2), length + 1))


@pytest.mark.parametrize("half_width", [1, 10])
@pytest.mark.parametrize("logit", [-1e4, -50.0, 0.0, 50.0, 1e4])
def test_centres_at_the_ends_leave_a_window_and_finite_gradients(logit: float, half_width: int) -> None:
    score, window = modules("concat", "predictive", half_width, torch.float32)
    assert isinstance(window, PredictiveWindow)
    states_BKH, annotations_BSE, mask_BS = arrays(dtype=torch.float32)
    states_BKH[..., 0] = 50.0  # tanh is 1
    with torch.no_grad():
        window.query.weight.zero_()
        window.query.weight[0, 0] = 1
        window.v.copy_(torch.tensor([logit, 0.0, 0.0, 0.0]))
    for weights_BKS, context_BKE in both_ways(score, window, states_BKH.requires_grad_(), annotations_BSE, mask_BS):
        assert ((weights_BKS.sum(-1) > 0) & (weights_BKS.sum(-1) <= 1 + 1e-6)).all()
        gradients = torch.autograd.grad(context_BKE.sum(), [states_BKH, *window.parameters()])
        assert all(gradient.isfinite().all() for gradient in gradients)


def test_centres_have_the_digits_of_single_precision_in_half_precision_too() -> None:
    lengths_B = torch.tensor([9999])
    for window in (MonotonicWindow(2), PredictiveWindow(2, H).bfloat16()):
        centres_BK = window.centres(torch.ones(1, 1, H, dtype=torch.bfloat16), torch.tensor([4999]), lengths_B)
        assert centres_BK.dtype == torch.float32
    assert MonotonicWindow(2).centres(torch.ones(1, 1, H), torch.tensor([4999]), lengths_B).tolist() == [[4999]]


def test_monotonic_windows_learn_nothing_and_predictive_ones_a_matrix_and_a_vector() -> None:
    assert list(MonotonicWindow(10).parameters()) == []
    assert sum(parameter.numel() for parameter in PredictiveWindow(10, 7).parameters()) == 7 * 7 + 7


# --- where only the window is read --------------------------------------------------------------------------------


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ways that windows took since the start of the test."""
    taken: list[str] = []

    def spied(name: str) -> Callable[..., object]:
        original = getattr(Window, name)

        def attend_and_note(*args: object) -> object:
            taken.append(name)
            return original(*args)

        return attend_and_note

    for name in ("attend_all", "attend_near"):
        monkeypatch.setattr(Window, name, spied(name))
    return taken


@pytest.mark.parametrize(
    ("score", "queries", "size", "way"),
    [
        ("general", 1, 400, "attend_near"),
        ("general", 5, 400, "attend_near"),
        ("general", 12, 400, "attend_all"),  # windows overlap: copying them costs more than scoring everything
        ("dot", 1, 43, "attend_near"),
        ("dot", 1, 42, "attend_all"),
        ("concat", 1, 400, "attend_near"),
        ("concat", 60, 400, "attend_near"),  # one query at a time: many are no reason against it
        ("concat", 1, 42, "attend_all"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_windows_alone_are_read_where_that_is_less(
    ways: list[str], kind: str, score: str, queries: int, size: int, way: str
) -> None:
    scores, window = modules(score, kind, 10)
    states_BKH, annotations_BSE, mask_BS = arrays(lengths=(size,), queries=queries)
    steps_K = torch.arange(1, queries + 1)
    window(scores, states_BKH, steps_K, scores.keys(annotations_BSE), annotations_BSE, mask_BS.sum(1))
    assert ways == [way]


LOCAL = [
    "luong-monotonic",
    "luong-predictive",
    "luong-dot-predictive-wide",
    "luong-concat-monotonic-feed",
    "luong-concat-predictive-feed",
    "luong-concat-predictive",
]


@pytest.mark.parametrize("name", LOCAL)
def test_a_search_in_long_sources_reads_windows_alone_and_finds_what_forward_gives(name: str, ways: list[str]) -> None:
    model = small_model(name).eval()
    torch.manual_seed(8)
    sources = [torch.randint(4, VOCABULARY, (length,)).tolist() for length in (200, 170, 4)]
    stepper = TorchStepper(model, (0, 1, 2), torch.device("cpu"))
    settings = {"bos": 2, "eos": 3, "beam_size": 3, "alpha": 1.0, "max_lengths": [6] * 3, "keep_weights": True}
    found = beam_search(stepper, sources, **settings)
    assert set(ways) == {"attend_near"}
    for source, (best, *_) in zip(sources, found, strict=True):
        out = list(best.tokens) if best.length_limited else [*best.tokens, 3]
        with torch.no_grad():
            fed = torch.tensor([[2, *out[:-1]]])
            readouts, weights = model(torch.tensor([source]), torch.tensor([len(source)]), fed)
            log_probs = model.output(readouts[0]).log_softmax(-1)
        assert best.log_prob == pytest.approx(float(log_probs[range(len(out)), out].sum()), abs=1e-6)
        np.testing.assert_allclose(best.weights, weights[0].numpy(), atol=1e-6)


@pytest.mark.parametrize("name", LOCAL)
def test_gradients_of_a_model_in_long_sources_equal_numerical_ones(name: str, ways: list[str]) -> None:
    model = small_model(name)
    names, values = zip(*model.named_parameters(), strict=True)
    torch.manual_seed(9)
    src_BS, tgt_in_BT = torch.randint(4, VOCABULARY, (2, 60)), torch.randint(4, VOCABULARY, (2, 3))
    batch = (src_BS, torch.tensor([60, 20]), tgt_in_BT)

    def readouts(*parameters: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, dict(zip(names, parameters, strict=True)), batch)[0].sum(-1)

    assert torch.autograd.gradcheck(readouts, values, fast_mode=True)
    expected = "attend_all" if name == "luong-dot-predictive-wide" else "attend_near"  # 3 windows of 19 positions
    assert set(ways) == {expected}
