"""Scores and weights against independent NumPy formulas and the worked examples."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nmt.model.attention import AdditiveScore, DotScore, GeneralScore, KeyPowers, doubled_powers, masked_softmax

WORKED = [
    ((0.2, 3.0, 0.1), (0.0545, 0.8962, 0.0493)),
    ((0.2, 0.3, 0.1), (0.3322, 0.3672, 0.3006)),
    ((1, 2, 0), (0.2447, 0.6652, 0.0900)),
    ((0.5, 2.1, 0.3), (0.1477, 0.7314, 0.1209)),
    ((1.2, 3.5, 0.8, 2.1, 0.5), (0.0685, 0.6831, 0.0459, 0.1685, 0.0340)),
    ((0.1, 0.1, 4, 0.1, 0.1), (0.0187, 0.0187, 0.9251, 0.0187, 0.0187)),
    ((0.1, 0.2, 0.15, 0.1, 0.05), (0.1958, 0.2164, 0.2058, 0.1958, 0.1862)),
]
CONTEXTS = [
    ((0.2, 3.0, 0.1), (0.1038, 0.9455)),
    ((0.2, 0.3, 0.1), (0.6328, 0.6678)),
    ((1, 2, 0), (0.3348, 0.7553)),
]


@pytest.mark.parametrize(("scores", "weights"), WORKED)
def test_worked_examples_give_their_weights(scores: tuple[float, ...], weights: tuple[float, ...]) -> None:
    found = masked_softmax(torch.tensor([[scores]], dtype=torch.float64), torch.ones(1, len(scores), dtype=torch.bool))
    np.testing.assert_allclose(found[0, 0].numpy(), weights, atol=5.1e-5)


@pytest.mark.parametrize(("scores", "context"), CONTEXTS)
def test_worked_examples_give_their_contexts(scores: tuple[float, ...], context: tuple[float, ...]) -> None:
    weights = masked_softmax(torch.tensor([[scores]], dtype=torch.float64), torch.ones(1, 3, dtype=torch.bool))
    annotations = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    np.testing.assert_allclose((weights[0, 0] @ annotations).numpy(), context, atol=5.1e-5)


def arrays() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    return torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 5, 6, dtype=torch.float64)


def test_additive_score_is_v_tanh_of_both_projections() -> None:
    query_BKH, annotations_BSE = arrays()
    score = AdditiveScore(4, 6, 7).double()
    found = score(query_BKH, score.keys(annotations_BSE)).detach().numpy()
    w, u, v = (p.detach().numpy() for p in (score.query.weight, score.key.weight, score.v))
    for b, k, s in np.ndindex(2, 3, 5):
        expected = v @ np.tanh(w @ query_BKH[b, k].numpy() + u @ annotations_BSE[b, s].numpy())
        assert found[b, k, s] == pytest.approx(expected, abs=1e-12)


def test_luong_concat_is_the_additive_score_of_the_stacked_matrix() -> None:
    query_BKH, annotations_BSE = arrays()
    score = AdditiveScore(4, 6, 7).double()
    stacked = torch.cat([score.query.weight, score.key.weight], 1)
    pair = torch.cat([query_BKH[1, 2], annotations_BSE[1, 4]])
    found = score(query_BKH, score.keys(annotations_BSE))[1, 2, 4]
    assert found.item() == pytest.approx((score.v @ (stacked @ pair).tanh()).item(), abs=1e-12)


def test_general_score_is_s_w_h_and_dot_is_s_h() -> None:
    query_BKH, annotations_BSE = arrays()
    general = GeneralScore(4, 6).double()
    expected = np.einsum("bkh,he,bse->bks", query_BKH, general.key.weight.detach(), annotations_BSE)
    found = general(query_BKH, general.keys(annotations_BSE))
    np.testing.assert_allclose(found.detach().numpy(), expected, atol=1e-12)
    keys_BSH = annotations_BSE[:, :, :4]
    np.testing.assert_allclose(
        DotScore(4)(query_BKH, keys_BSH).numpy(), np.einsum("bkh,bsh->bks", query_BKH, keys_BSH), atol=1e-12
    )
    np.testing.assert_allclose(DotScore(4, scale=True)(query_BKH, keys_BSH), DotScore(4)(query_BKH, keys_BSH) / 2)


def test_additive_gradients_equal_numerical_ones() -> None:
    torch.manual_seed(4)
    tensors = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 3, 4), (2, 5, 6))]
    score = AdditiveScore(4, 6, 3).double()

    def scores(query_BKH: torch.Tensor, annotations_BSE: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = score(query_BKH, score.keys(annotations_BSE))
        return result

    assert torch.autograd.gradcheck(scores, (*tensors, *score.parameters()))


def test_coverage_is_added_inside_the_tanh() -> None:
    query_BKH, annotations_BSE = arrays()
    score = AdditiveScore(4, 6, 7, coverage=True).double()
    assert score.coverage is not None
    coverage_BKS = torch.rand(2, 3, 5, dtype=torch.float64)
    found = score(query_BKH, score.keys(annotations_BSE), coverage_BKS).detach().numpy()
    w, u, v, c = (p.detach().numpy() for p in (score.query.weight, score.key.weight, score.v, score.coverage))
    for b, k, s in np.ndindex(2, 3, 5):
        inside = w @ query_BKH[b, k].numpy() + u @ annotations_BSE[b, s].numpy() + c * coverage_BKS[b, k, s].item()
        assert found[b, k, s] == pytest.approx(v @ np.tanh(inside), abs=1e-12)


def test_gradients_with_coverage_equal_numerical_ones() -> None:
    torch.manual_seed(4)
    shapes = ((2, 3, 4), (2, 5, 6), (2, 3, 5))
    tensors = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    score = AdditiveScore(4, 6, 3, coverage=True).double()

    def scores(
        query_BKH: torch.Tensor, annotations_BSE: torch.Tensor, coverage_BKS: torch.Tensor, *_: torch.Tensor
    ) -> torch.Tensor:
        result: torch.Tensor = score(query_BKH, score.keys(annotations_BSE), coverage_BKS)
        return result

    assert torch.autograd.gradcheck(scores, (*tensors, *score.parameters()))


@pytest.mark.parametrize("score", [AdditiveScore(4, 6, 7), GeneralScore(4, 6), GeneralScore(4, 6, scale=True)])
def test_scores_of_some_rows_of_the_keys_are_those_columns_of_all(score: AdditiveScore | GeneralScore) -> None:
    query_BKH, annotations_BSE = arrays()
    score = score.double()
    keys_BSA = score.keys(annotations_BSE)
    columns_BKW = torch.tensor([[[0, 1], [4, 4], [3, 0]], [[2, 2], [1, 0], [4, 3]]])  # any order, some twice
    found = score.near(query_BKH, keys_BSA, columns_BKW + 5 * torch.arange(2).view(2, 1, 1))
    torch.testing.assert_close(found, score(query_BKH, keys_BSA).gather(2, columns_BKW))


def test_weights_sum_to_one_and_padding_gets_exactly_none() -> None:
    torch.manual_seed(5)
    mask_BS = torch.tensor([[True] * 5, [True, True, False, False, False]])
    weights_BKS = masked_softmax(torch.randn(2, 3, 5) * 100, mask_BS)
    assert (weights_BKS[~mask_BS.unsqueeze(1).expand(-1, 3, -1)] == 0).all()
    torch.testing.assert_close(weights_BKS.sum(-1), torch.ones(2, 3))


def test_scores_of_ten_thousand_stay_finite() -> None:
    scores_BKS = torch.tensor([[[10_000.0, -10_000.0, 0.0]]])
    weights_BKS = masked_softmax(scores_BKS, torch.ones(1, 3, dtype=torch.bool))
    assert weights_BKS.tolist() == [[[1.0, 0.0, 0.0]]]


def test_parameter_counts_follow_the_formulas() -> None:
    additive = AdditiveScore(query_size=4, annotation_size=6, attention_size=7)
    assert sum(p.numel() for p in additive.parameters()) == 7 * (4 + 6 + 1)
    covering = AdditiveScore(query_size=4, annotation_size=6, attention_size=7, coverage=True)
    assert sum(p.numel() for p in covering.parameters()) == 7 * (4 + 6 + 1) + 7
    assert sum(p.numel() for p in GeneralScore(4, 6).parameters()) == 4 * 6
    assert sum(p.numel() for p in DotScore(4).parameters()) == 0


def test_keys_in_any_memory_layout_get_their_gradient() -> None:
    query_BKH, annotations_BSE = arrays()
    score = AdditiveScore(4, 6, 3).double()
    rows_BKW = torch.tensor([[[0, 1], [1, 2], [3, 4]], [[5, 6], [7, 8], [8, 9]]])
    gradients = []
    for strided in (False, True):
        keys_BSA = score.keys(annotations_BSE).detach()
        keys_BSA = keys_BSA.transpose(0, 1).contiguous().transpose(0, 1) if strided else keys_BSA
        keys_BSA.requires_grad_()
        score.near(query_BKH, keys_BSA, rows_BKW).sum().backward()  # type: ignore[no-untyped-call]
        gradients.append(keys_BSA.grad)
    assert gradients[0] is not None
    assert gradients[0].abs().sum() > 0
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("values", [1, 60, 10**6])
@pytest.mark.parametrize("covered", [False, True])
def test_scores_without_gradients_are_those_with_them(
    values: int, covered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.model.attention.PAIRS", values)
    score = AdditiveScore(4, 6, 5, coverage=covered).double()
    query_BKH, keys_BSA = torch.randn(3, 4, 4).double(), torch.randn(3, 7, 5).double()
    coverage_BKS = torch.rand(3, 4, 7).double() if covered else None
    expected = score(query_BKH, keys_BSA, coverage_BKS)
    with torch.no_grad():
        torch.testing.assert_close(score(query_BKH, keys_BSA, coverage_BKS), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [0.01, 1.0, 10.0, 20.0, 50.0, 400.0])
def test_scores_by_powers_are_those_by_tanh_however_large_the_keys(size: float, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    score = AdditiveScore(5, 6, 7).to(dtype)
    query_BKH, annotations_BSE = torch.randn(3, 4, 5, dtype=dtype), torch.randn(3, 9, 6, dtype=dtype)
    with torch.no_grad():
        keys_BSA = size * score.keys(annotations_BSE)
        query_BKH = size * query_BKH
        found = score(query_BKH, keys_BSA)
        pairs = score.query(query_BKH).unsqueeze(2) + keys_BSA.unsqueeze(1)
    torch.testing.assert_close(found, pairs.tanh() @ score.v, rtol=1e-6, atol=2e-6 if dtype == torch.float32 else 1e-13)


def test_powers_are_taken_only_where_they_stay_within_float32() -> None:
    query, powers = torch.full((1, 2), -20.0), KeyPowers(torch.full((1, 3), 22.9))
    assert powers.fit(query)
    assert (doubled_powers(torch.tensor([-43.0, 43.0])) > 0).all()
    assert doubled_powers(torch.tensor([-43.0, 43.0])).isfinite().all()
    assert not powers.fit(query - 0.2)
    assert not powers.fit(torch.full((1, 1), torch.nan))
    assert KeyPowers(torch.zeros(1, 0)).fit(query)
