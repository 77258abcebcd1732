"""The best continuations by blocks against a plain log-softmax and torch.topk over everything."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

from nmt.model import selection
from nmt.model.products import PackedLinear
from nmt.model.selection import BLOCK, Selection, best_of_blocks, padded


def make_selection(output: nn.Linear, banned: list[int]) -> Selection:
    return Selection(PackedLinear(*padded(output)), output.out_features, banned, torch.device("cpu"))


def plain(output: nn.Linear, readout_NR: Tensor, before_N: Tensor, beam: int, width: int, banned: list[int]) -> Tensor:
    totals_NV = output(readout_NR).log_softmax(-1) + before_N.unsqueeze(1)
    totals_NV[:, banned] = -math.inf
    totals_BM = totals_NV.view(len(readout_NR) // beam, -1)
    return totals_BM.topk(min(width, totals_BM.shape[1]), -1).values


@torch.no_grad()
@pytest.mark.parametrize("vocabulary", [5, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
@pytest.mark.parametrize(("beam", "width"), [(1, 2), (3, 6), (4, 200)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_best_are_those_of_a_plain_log_softmax(vocabulary: int, beam: int, width: int, dtype: torch.dtype) -> None:
    torch.manual_seed(vocabulary + beam)
    output = nn.Linear(6, vocabulary, dtype=dtype)
    readout_NR, before_N = 3 * torch.randn(4 * beam, 6, dtype=dtype), -torch.rand(4 * beam, dtype=dtype)
    best_BC, parents_BC, tokens_BC = make_selection(output, [0, 2]).best(readout_NR, before_N, beam, width)
    torch.testing.assert_close(best_BC, plain(output, readout_NR, before_N, beam, width, [0, 2]))
    totals_BKV = (output(readout_NR).log_softmax(-1) + before_N.unsqueeze(1)).view(4, beam, vocabulary)
    found = totals_BKV[torch.arange(4).unsqueeze(1), parents_BC, tokens_BC]
    finite = best_BC.isfinite()
    torch.testing.assert_close(best_BC[finite], found[finite])
    pairs = [set(zip(*row)) for row in zip(parents_BC.tolist(), tokens_BC.tolist())]
    chosen = [set(list(zip(p, t))[: int(n)]) for p, t, n in zip(parents_BC.tolist(), tokens_BC.tolist(), finite.sum(1))]
    assert [len(one) for one in chosen] == finite.sum(1).tolist()  # none comes twice
    assert all(token < vocabulary for one in pairs for _, token in one)


@torch.no_grad()
def test_equal_values_are_found_as_often_as_they_are_there() -> None:
    logits_NP = torch.zeros(2, 3 * BLOCK)
    logits_NP[0, 5] = logits_NP[1, 130] = logits_NP[1, 131] = 1.0
    peaks_NQ = logits_NP.view(2, 3, BLOCK).amax(-1)
    best_BC, parents_BC, columns_BC = best_of_blocks(logits_NP, peaks_NQ, torch.zeros(2, 1), 2, 8, 3 * BLOCK)
    assert best_BC.tolist() == [[1.0] * 3 + [0.0] * 5]
    places = list(zip(parents_BC[0].tolist(), columns_BC[0].tolist()))
    assert set(places[:3]) == {(0, 5), (1, 130), (1, 131)}
    assert len(set(places)) == 8


@torch.no_grad()
def test_rows_at_a_time_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    output, readout_NR = nn.Linear(6, 150), torch.randn(21, 6)
    whole = make_selection(output, [0]).best(readout_NR, -torch.rand(21), 3, 6)
    torch.manual_seed(1)
    output, readout_NR = nn.Linear(6, 150), torch.randn(21, 6)
    monkeypatch.setattr(selection, "ROWS", 7)
    parts = make_selection(output, [0]).best(readout_NR, -torch.rand(21), 3, 6)
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other)


@torch.no_grad()
@pytest.mark.parametrize("shift", [-200.0, -50.0, 0.0, 50.0, 200.0])
def test_logits_of_any_size_are_normalised(shift: float) -> None:
    output, readout_NR, before_N = nn.Linear(6, 150), torch.randn(4, 6), -torch.rand(4)
    output.bias.add_(shift)
    best_BC, _, _ = make_selection(output, [0]).best(readout_NR, before_N, 2, 4)
    torch.testing.assert_close(best_BC, plain(output, readout_NR, before_N, 2, 4, [0]), atol=1e-4, rtol=0)


@torch.no_grad()
def test_a_banned_word_that_takes_nearly_all_probability_still_counts() -> None:
    output = nn.Linear(2, 9)
    output.bias[0] = 500.0
    readout_NR, before_N = torch.randn(3, 2), torch.zeros(3)
    best_BC, _, tokens_BC = make_selection(output, [0]).best(readout_NR, before_N, 1, 4)
    torch.testing.assert_close(best_BC, plain(output, readout_NR, before_N, 1, 4, [0]))
    assert 0 not in tokens_BC


@torch.no_grad()
def test_half_precision_is_normalised_in_float32() -> None:
    torch.manual_seed(2)
    output = nn.Linear(8, 100, dtype=torch.bfloat16)
    readout_NR = torch.randn(4, 8, dtype=torch.bfloat16)
    best_BC, _, _ = make_selection(output, [0]).best(readout_NR, torch.zeros(4), 2, 4)
    expected_NV = output(readout_NR).float().log_softmax(-1)
    expected_NV[:, 0] = -math.inf
    torch.testing.assert_close(best_BC, expected_NV.view(2, -1).topk(4).values)


def test_searches_in_several_threads_may_share_a_selection() -> None:
    torch.manual_seed(1)
    selection = make_selection(nn.Linear(6, 200), [0])
    work = [(torch.randn(rows, 6), torch.zeros(rows)) for rows in (8, 12, 4, 8)]
    with torch.inference_mode():
        expected = [selection.best(*one, 4, 8) for one in work]

    def search(place: int) -> bool:
        with torch.inference_mode():
            found = [selection.best(*work[place], 4, 8) for _ in range(50)]
        return all(torch.equal(a, b) for one in found for a, b in zip(one, expected[place], strict=True))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(search, range(4)))
