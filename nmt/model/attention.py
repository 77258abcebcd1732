"""Attention scores, and the masked softmax that turns them into weights.

Axes: B sentences, K queries of a sentence (target positions in training, hypotheses in search),
S source positions, E annotation size, H query size, A attention size.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nmt.model import devices
from nmt.model.precision import large_product

PAIRS = 2**18  # values of query + key at a time where no gradient is wanted: 1 MiB, which a core's cache holds
LARGEST_SUM = 43.0  # exp(±2 · 43) is within float32
GPU_PAIRS = 2**25  # there the many small parts would cost more


def masked_softmax(scores_BKS: Tensor, mask_BS: Tensor) -> Tensor:
    """Weights over the real positions of each row; exactly 0 on padding (mask False)."""
    return scores_BKS.masked_fill(~mask_BS.unsqueeze(1), -math.inf).softmax(-1)


def attend(weights_BKS: Tensor, annotations_BSE: Tensor) -> Tensor:
    """The context c = Σ_j α_j h_j of each query, [B, K, E]."""
    return torch.bmm(weights_BKS, annotations_BSE)


class _AdditiveScores(torch.autograd.Function):
    """v·tanh(query + key) for all pairs; nothing of a pair is kept, it is computed again in the backward pass.

    It works query by query, so that no array is larger than B x S x A. With `rows_BKW`, rows of the keys of all
    sentences one after the other, only those keys are scored, [B, K, W]. With `coverage_BKS` each pair gets
    coverage times `u_A` before the tanh.
    """

    @staticmethod
    def forward(
        ctx: Any, query_BKA: Tensor, keys_BSA: Tensor, v_A: Tensor, rows_BKW: Tensor | None,
        coverage_BKS: Tensor | None, u_A: Tensor | None,
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(query_BKA, keys_BSA, v_A, rows_BKW, coverage_BKS, u_A)
        width = keys_BSA.shape[1] if rows_BKW is None else rows_BKW.shape[2]
        scores_BKS = query_BKA.new_empty(*query_BKA.shape[:2], width)
        for k in range(query_BKA.shape[1]):
            scores_BKS[:, k] = _pairs(k, query_BKA, keys_BSA, rows_BKW, coverage_BKS, u_A).tanh_() @ v_A
        return scores_BKS

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BKS: Tensor) -> tuple[Tensor | None, ...]:
        query_BKA, keys_BSA, v_A, rows_BKW, coverage_BKS, u_A = ctx.saved_tensors
        grad_query_BKA = torch.empty_like(query_BKA)
        factor_A = 4 * v_A  # the sums over k are taken without it, and multiplied once at the end
        grad_keys_BSA = keys_BSA.new_zeros(keys_BSA.shape)  # contiguous, whatever the keys are
        grad_u_A, grad_v_A = torch.zeros_like(v_A), torch.zeros_like(v_A)
        grad_coverage_BKS = None if coverage_BKS is None else torch.empty_like(coverage_BKS)
        for k in range(query_BKA.shape[1]):
            grad_BS = grad_BKS[:, k]
            pairs_BSA = _pairs(k, query_BKA, keys_BSA, rows_BKW, coverage_BKS, u_A)
            slope_BSA, tanh_grad_A = additive_slope(logistic(pairs_BSA), grad_BS)
            grad_query_BKA[:, k] = torch.bmm(grad_BS.unsqueeze(1), slope_BSA).squeeze(1)
            if rows_BKW is None:
                grad_keys_BSA.addcmul_(slope_BSA, grad_BS.unsqueeze(2))
            else:
                pair_grads_NA = (slope_BSA * grad_BS.unsqueeze(2)).flatten(0, 1)
                grad_keys_BSA.view(-1, keys_BSA.shape[2]).index_add_(0, rows_BKW[:, k].flatten(), pair_grads_NA)
            grad_v_A += tanh_grad_A
            if coverage_BKS is not None and grad_coverage_BKS is not None:
                grad_coverage_BKS[:, k] = (slope_BSA @ (u_A * factor_A)) * grad_BS
                grad_u_A += ((coverage_BKS[:, k] * grad_BS).reshape(1, -1) @ slope_BSA.flatten(0, 1)).squeeze(0)
        return (
            grad_query_BKA.mul_(factor_A), grad_keys_BSA.mul_(factor_A), grad_v_A, None,
            grad_coverage_BKS, None if u_A is None else grad_u_A.mul_(factor_A),
        )  # fmt: skip


def _pairs(
    k: int,
    query_BKA: Tensor,
    keys_BSA: Tensor,
    rows_BKW: Tensor | None,
    coverage_BKS: Tensor | None,
    u_A: Tensor | None,
) -> Tensor:
    """The sums of query k and each key that it is compared with, [B, S or W, A], in memory of their own."""
    if rows_BKW is not None:
        keys_BSA = nn.functional.embedding(rows_BKW[:, k], keys_BSA.flatten(0, 1))
    pairs_BSA = keys_BSA + query_BKA[:, k : k + 1]
    if coverage_BKS is not None and u_A is not None:
        pairs_BSA.addcmul_(coverage_BKS[:, k].unsqueeze(2), u_A)
    return pairs_BSA


def logistic(pairs: Tensor) -> Tensor:
    """r = σ(-2 x) of sums x of query and key, in their place: tanh x = 1 - 2 r, and its slope is 4 r (1 - r)."""
    return pairs.mul_(-2).sigmoid_()


def additive_slope(logistic_BSA: Tensor, grad_BS: Tensor) -> tuple[Tensor, Tensor]:
    """A quarter of tanh's slope, r (1 - r), at each pair, and the gradient of v, given the gradient of the scores.

    `logistic_BSA` holds r and is overwritten.
    """
    grad_v_A = torch.sub(grad_BS.sum(), grad_BS.reshape(1, -1) @ logistic_BSA.flatten(0, 1), alpha=2)
    return torch.addcmul(logistic_BSA, logistic_BSA, logistic_BSA, value=-1, out=logistic_BSA), grad_v_A.squeeze(0)


def additive_scores(
    query_BKA: Tensor, keys_BSA: Tensor, v_A: Tensor, coverage_BKS: Tensor | None, u_A: Tensor | None
) -> Tensor:
    """What `_AdditiveScores` computes, without gradients: so many pairs at a time that they stay in the cache."""
    batch, queries, size = query_BKA.shape
    width = keys_BSA.shape[1]
    values = GPU_PAIRS if query_BKA.is_cuda else PAIRS
    some_queries = max(1, min(queries, values // (width * size)))
    sentences = max(1, values // (some_queries * width * size))
    # For a single query as many powers are taken of keys as tanh of pairs.
    pays = coverage_BKS is None and batch * queries > 1 and devices.on_cpu(keys_BSA)
    powers = KeyPowers(keys_BSA) if pays else None
    if powers is not None and not powers.fit(query_BKA):
        powers = None
    if powers is not None:
        query_BKA, keys_BSA = doubled_powers(query_BKA), powers.values
    scores_BKS = query_BKA.new_empty(batch, queries, width)
    for first in range(0, batch, sentences):
        for k in range(0, queries, some_queries):
            part = (slice(first, first + sentences), slice(k, k + some_queries))
            keys_BKSA, query_BKSA = keys_BSA[part[0]].unsqueeze(1), query_BKA[part].unsqueeze(2)
            if powers is not None:
                scores_BKS[part] = powers.logistic(keys_BKSA, query_BKSA) @ v_A
                continue
            pairs_BKSA = keys_BKSA + query_BKSA
            if coverage_BKS is not None and u_A is not None:
                pairs_BKSA.addcmul_(coverage_BKS[part].unsqueeze(3), u_A)
            scores_BKS[part] = pairs_BKSA.tanh_() @ v_A
    return scores_BKS if powers is None else scores_BKS.mul_(-2).add_(v_A.sum())


class KeyPowers:
    """exp(2 key) of float32 or float64: r = σ(-2 (query + key)) is 1 / (1 + exp(2 query) exp(2 key)).

    A power for each query and each key instead of one for each pair: on a CPU several times faster, and as exact as the
    sum of the pair is, as long as the powers stay within float32.
    """

    def __init__(self, keys: Tensor) -> None:
        # Of a smaller type too few would fit.
        self.largest = _largest(keys) if keys.dtype in (torch.float32, torch.float64) else math.inf
        self.values = doubled_powers(keys)
        self.one = keys.new_ones(())

    def fit(self, query: Tensor) -> bool:
        """Whether the powers of these queries may be multiplied with those of the keys."""
        return self.largest + _largest(query) < LARGEST_SUM

    def logistic(self, key_powers: Tensor, query_powers: Tensor, out: Tensor | None = None) -> Tensor:
        """r of pairs, from their powers."""
        return torch.addcmul(self.one, key_powers, query_powers, out=out).reciprocal_()


def _largest(values: Tensor) -> float:
    return max(map(abs, map(float, values.aminmax()))) if values.numel() else 0.0


def doubled_powers(values: Tensor) -> Tensor:
    """exp(2 x)."""
    return torch.mul(values, 2).exp_()


class AdditiveScore(nn.Module):
    """e = v_a·tanh(W_a s + U_a h), without biases (Bahdanau et al. 2015, appendix A.1.2).

    Luong's `concat`, v_a·tanh(W_a [s; h]), is the same function: its W_a is [W_a, U_a] side by side.
    d_a (d_s + d_h + 1) parameters. With `coverage`, e = v_a·tanh(W_a s + U_a h + V_a C), C the sum of the weights that
    the position had in earlier steps (Tu et al. 2016, without fertility), d_a parameters more.
    """

    def __init__(self, query_size: int, annotation_size: int, attention_size: int, coverage: bool = False) -> None:
        super().__init__()
        self.query = nn.Linear(query_size, attention_size, bias=False)
        self.key = nn.Linear(annotation_size, attention_size, bias=False)
        self.v = nn.Parameter(torch.empty(attention_size))
        self.coverage = nn.Parameter(torch.empty(attention_size)) if coverage else None
        for vector in (self.v, self.coverage):
            if vector is not None:
                nn.init.uniform_(vector, -(attention_size**-0.5), attention_size**-0.5)

    def keys(self, annotations_BSE: Tensor) -> Tensor:
        """U_a h, [B, S, A]: it does not depend on the step and is computed once a sentence."""
        return large_product(self.key, annotations_BSE)

    def forward(self, query_BKH: Tensor, keys_BSA: Tensor, coverage_BKS: Tensor | None = None) -> Tensor:
        """Scores [B, K, S] of every query against every key of its sentence; `coverage_BKS` sums earlier weights."""
        u_A = None if self.coverage is None or coverage_BKS is None else self.coverage
        return self._scores(query_BKH, keys_BSA, None, coverage_BKS, u_A)

    def near(self, query_BKH: Tensor, keys_BSA: Tensor, rows_BKW: Tensor) -> Tensor:
        """Scores [B, K, W] against the keys at `rows_BKW` alone, which counts through the sentences of the batch."""
        return self._scores(query_BKH, keys_BSA, rows_BKW, None, None)

    def _scores(
        self, query_BKH: Tensor, keys_BSA: Tensor, rows_BKW: Tensor | None, coverage_BKS: Tensor | None,
        u_A: Tensor | None,
    ) -> Tensor:  # fmt: skip
        query_BKA = self.query(query_BKH)
        if rows_BKW is None and not torch.is_grad_enabled():
            return additive_scores(query_BKA, keys_BSA, self.v, coverage_BKS, u_A)
        scores: Tensor = _AdditiveScores.apply(  # type: ignore[no-untyped-call]
            query_BKA, keys_BSA, self.v, rows_BKW, coverage_BKS, u_A
        )
        return scores

    @staticmethod
    def positions_read(queries: int, width: int) -> int:
        """The positions that windows of so many queries cost, where scoring without them costs all: one at a time."""
        return width


class DotScore(nn.Module):
    """e = s·h (Luong et al. 2015, eq. 8); with `scale` divided by the root of its size (Vaswani et al. 2017)."""

    def __init__(self, size: int, scale: bool = False) -> None:
        super().__init__()
        self.factor = size**-0.5 if scale else 1.0

    def keys(self, annotations_BSE: Tensor) -> Tensor:
        """The annotations themselves, [B, S, E]."""
        return annotations_BSE

    def forward(self, query_BKH: Tensor, keys_BSH: Tensor) -> Tensor:
        """Scores [B, K, S] of every query against every key of its sentence."""
        return torch.bmm(self._scaled(query_BKH), keys_BSH.transpose(1, 2))

    def near(self, query_BKH: Tensor, keys_BSH: Tensor, rows_BKW: Tensor) -> Tensor:
        """Scores [B, K, W] against the keys at `rows_BKW` alone, which counts through the sentences of the batch."""
        near_NWH = nn.functional.embedding(rows_BKW.flatten(0, 1), keys_BSH.flatten(0, 1))
        scores_N1W = torch.bmm(self._scaled(query_BKH).flatten(0, 1).unsqueeze(1), near_NWH.transpose(1, 2))
        return scores_N1W.view(rows_BKW.shape)

    def _scaled(self, query_BKH: Tensor) -> Tensor:
        return query_BKH if self.factor == 1 else query_BKH * self.factor

    @staticmethod
    def positions_read(queries: int, width: int) -> int:
        """The positions that windows of so many queries cost, where scoring without them costs all: copied for each."""
        return queries * width


class GeneralScore(DotScore):
    """e = s·W_a h (Luong et al. 2015, eq. 8), d_s d_h parameters; W_a h is computed once a sentence."""

    def __init__(self, query_size: int, annotation_size: int, scale: bool = False) -> None:
        super().__init__(query_size, scale)
        self.key = nn.Linear(annotation_size, query_size, bias=False)

    def keys(self, annotations_BSE: Tensor) -> Tensor:
        """W_a h, [B, S, H]."""
        return large_product(self.key, annotations_BSE)
