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


def masked_softmax(scores_BKS: Tensor, mask_BS: Tensor) -> Tensor:
    """Weights over the real positions of each row; exactly 0 on padding (mask False)."""
    return scores_BKS.masked_fill(~mask_BS.unsqueeze(1), -math.inf).softmax(-1)


class _AdditiveScores(torch.autograd.Function):
    """v·tanh(query + key) for all pairs; the tanh is computed again in the backward pass, never kept.

    It works query by query, so that no array is larger than B x S x A.
    """

    @staticmethod
    def forward(ctx: Any, query_BKA: Tensor, keys_BSA: Tensor, v_A: Tensor) -> Tensor:
        ctx.save_for_backward(query_BKA, keys_BSA, v_A)
        scores_BKS = query_BKA.new_empty(*query_BKA.shape[:2], keys_BSA.shape[1])
        for k in range(query_BKA.shape[1]):
            scores_BKS[:, k] = (keys_BSA + query_BKA[:, k : k + 1]).tanh_() @ v_A
        return scores_BKS

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BKS: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query_BKA, keys_BSA, v_A = ctx.saved_tensors
        grad_query_BKA = torch.empty_like(query_BKA)
        # Both hold sums over k without the factor v_A, which is applied once at the end.
        grad_keys_BSA = torch.zeros_like(keys_BSA)
        grad_v_A = torch.zeros_like(v_A)
        for k in range(query_BKA.shape[1]):
            grad_BS = grad_BKS[:, k]
            slope_BSA, tanh_grad_A = additive_slope(query_BKA[:, k], keys_BSA, grad_BS)
            grad_query_BKA[:, k] = torch.bmm(grad_BS.unsqueeze(1), slope_BSA).squeeze(1)
            grad_keys_BSA.addcmul_(slope_BSA, grad_BS.unsqueeze(2))
            grad_v_A += tanh_grad_A
        return grad_query_BKA.mul_(v_A), grad_keys_BSA.mul_(v_A), grad_v_A


def additive_slope(query_BA: Tensor, keys_BSA: Tensor, grad_BS: Tensor) -> tuple[Tensor, Tensor]:
    """1 - tanh², the slope at each query-key pair, and the gradient of v, given the gradient of the scores."""
    tanh_BSA = (keys_BSA + query_BA.unsqueeze(1)).tanh_()
    grad_v_A = grad_BS.reshape(1, -1) @ tanh_BSA.flatten(0, 1)
    return tanh_BSA.square_().neg_().add_(1), grad_v_A.squeeze(0)


class AdditiveScore(nn.Module):
    """e = v_a·tanh(W_a s + U_a h), without biases (Bahdanau et al. 2015, appendix A.1.2).

    Luong's `concat`, v_a·tanh(W_a [s; h]), is the same function: its W_a is [W_a, U_a] side by side.
    d_a (d_s + d_h + 1) parameters.
    """

    def __init__(self, query_size: int, annotation_size: int, attention_size: int) -> None:
        super().__init__()
        self.query = nn.Linear(query_size, attention_size, bias=False)
        self.key = nn.Linear(annotation_size, attention_size, bias=False)
        self.v = nn.Parameter(torch.empty(attention_size))
        nn.init.uniform_(self.v, -(attention_size**-0.5), attention_size**-0.5)

    def keys(self, annotations_BSE: Tensor) -> Tensor:
        """U_a h, [B, S, A]: it does not depend on the step and is computed once a sentence."""
        keys: Tensor = self.key(annotations_BSE)
        return keys

    def forward(self, query_BKH: Tensor, keys_BSA: Tensor) -> Tensor:
        """Scores [B, K, S] of every query against every key of its sentence."""
        scores: Tensor = _AdditiveScores.apply(self.query(query_BKH), keys_BSA, self.v)  # type: ignore[no-untyped-call]
        return scores


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
        return torch.bmm(query_BKH * self.factor, keys_BSH.transpose(1, 2))


class GeneralScore(DotScore):
    """e = s·W_a h (Luong et al. 2015, eq. 8), d_s d_h parameters; W_a h is computed once a sentence."""

    def __init__(self, query_size: int, annotation_size: int, scale: bool = False) -> None:
        super().__init__(query_size, scale)
        self.key = nn.Linear(annotation_size, query_size, bias=False)

    def keys(self, annotations_BSE: Tensor) -> Tensor:
        """W_a h, [B, S, H]."""
        keys: Tensor = self.key(annotations_BSE)
        return keys
