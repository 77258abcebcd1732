"""Scores as the teacher-forced loops use them: step by step, with gradients by hand.

Axes: T target positions, B sentences, S source positions, A size of queries and keys.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from nmt.model import devices
from nmt.model.attention import KeyPowers, additive_slope, doubled_powers, logistic


class AttentionSteps(ABC):
    """One score in a loop: the weights of a step forward, its gradients backward, those of the keys summed on the way.

    Between a forward and a backward pass it keeps nothing: each pass has an object of its own.
    """

    def __init__(self, keys_BSA: Tensor, mask_BS: Tensor) -> None:
        self.keys_BSA, self.padding_BS = keys_BSA, ~mask_BS

    def softmax(self, scores_BS: Tensor, weights_BS: Tensor) -> None:
        """Writes the weights of scores, which are overwritten; exactly 0 on padding."""
        torch.softmax(scores_BS.masked_fill_(self.padding_BS, -math.inf), -1, out=weights_BS)

    @abstractmethod
    def weigh(self, query_BA: Tensor, weights_BS: Tensor) -> None:
        """Writes the weights of the next step."""

    @abstractmethod
    def start_backward(self, weights_TBS: Tensor) -> None:
        """Makes room for the gradients."""

    @abstractmethod
    def backward(self, t: int, query_BA: Tensor, weights_BS: Tensor, grad_BS: Tensor, grad_query_BA: Tensor) -> None:
        """Writes the gradient of step t's query from that of its weights. Steps come in reverse order."""

    @abstractmethod
    def grad_keys(self, queries_TBA: Tensor) -> Tensor:
        """The gradient of the keys, after the last step."""


def softmax_gradient(weights_BS: Tensor, grad_BS: Tensor) -> Tensor:
    """The gradient of scores from that of their softmax."""
    mean_B1: Tensor = torch.linalg.vecdot(weights_BS, grad_BS).unsqueeze(-1)
    return weights_BS * (grad_BS - mean_B1)


class AdditiveSteps(AttentionSteps):
    """v·tanh(query + key), with coverage times `u_A` before the tanh if there is `u_A`.

    It works with r = σ(-2 (query + key)), as `nmt.model.attention.logistic` has it.
    """

    def __init__(self, keys_BSA: Tensor, mask_BS: Tensor, v_A: Tensor, u_A: Tensor | None = None) -> None:
        super().__init__(keys_BSA, mask_BS)
        self.v_A, self.u_A = v_A, u_A
        self.pairs_BSA = torch.empty_like(keys_BSA)
        self.coverage_BS = torch.zeros_like(keys_BSA[:, :, 0]) if u_A is not None else None
        self.factor_A = 4 * v_A  # that of all gradients, as a quarter of the slope is summed
        self.key_powers: KeyPowers | None = None
        if u_A is None and devices.on_cpu(keys_BSA):
            self.key_powers = KeyPowers(keys_BSA)

    def _logistic(self, query_BA: Tensor, coverage_BS: Tensor | None) -> Tensor:
        """r of each pair of a step."""
        if self.key_powers is not None and self.key_powers.fit(query_BA):
            query_B1A = doubled_powers(query_BA).unsqueeze(1)
            return self.key_powers.logistic(self.key_powers.values, query_B1A, out=self.pairs_BSA)
        pairs_BSA = torch.add(self.keys_BSA, query_BA.unsqueeze(1), out=self.pairs_BSA)
        if coverage_BS is not None and self.u_A is not None:
            pairs_BSA.addcmul_(coverage_BS.unsqueeze(2), self.u_A)
        return logistic(pairs_BSA)

    def weigh(self, query_BA: Tensor, weights_BS: Tensor) -> None:
        # The softmax is the same without the sum of v, which every score holds.
        scores_BS = (self._logistic(query_BA, self.coverage_BS) @ self.v_A).mul_(-2)
        self.softmax(scores_BS, weights_BS)
        if self.coverage_BS is not None:
            self.coverage_BS += weights_BS

    def start_backward(self, weights_TBS: Tensor) -> None:
        self.grad_keys_BSA, self.grad_v_A = torch.zeros_like(self.keys_BSA), torch.zeros_like(self.v_A)
        self.grad_u_A = torch.zeros_like(self.v_A)
        if self.u_A is not None:
            self.coverage_TBS = weights_TBS.cumsum(0) - weights_TBS  # before each step
            self.grad_coverage_BS = torch.zeros_like(weights_TBS[0])  # of the coverage after the step in hand

    def backward(self, t: int, query_BA: Tensor, weights_BS: Tensor, grad_BS: Tensor, grad_query_BA: Tensor) -> None:
        coverage_BS = None
        if self.u_A is not None:
            coverage_BS = self.coverage_TBS[t]
            grad_BS = grad_BS + self.grad_coverage_BS
        grad_e_BS = softmax_gradient(weights_BS, grad_BS)
        slope_BSA, grad_v_A = additive_slope(self._logistic(query_BA, coverage_BS), grad_e_BS)
        self.grad_v_A += grad_v_A
        self.grad_keys_BSA.addcmul_(slope_BSA, grad_e_BS.unsqueeze(2))
        if coverage_BS is not None and self.u_A is not None:
            self.grad_u_A += ((coverage_BS * grad_e_BS).view(1, -1) @ slope_BSA.flatten(0, 1)).squeeze(0)
            self.grad_coverage_BS += (slope_BSA @ (self.u_A * self.factor_A)) * grad_e_BS
        torch.mul(torch.bmm(grad_e_BS.unsqueeze(1), slope_BSA).squeeze(1), self.factor_A, out=grad_query_BA)

    def grad_keys(self, queries_TBA: Tensor) -> Tensor:
        return self.grad_keys_BSA.mul_(self.factor_A)

    def grad_u(self) -> Tensor | None:
        """The gradient of `u_A`, after the last step."""
        return None if self.u_A is None else self.grad_u_A.mul_(self.factor_A)


class DotSteps(AttentionSteps):
    """query·key times a factor."""

    def __init__(self, keys_BSA: Tensor, mask_BS: Tensor, factor: float) -> None:
        super().__init__(keys_BSA, mask_BS)
        self.factor = factor

    def weigh(self, query_BA: Tensor, weights_BS: Tensor) -> None:
        scores_BS = torch.bmm(self.keys_BSA, query_BA.unsqueeze(2)).squeeze(2)
        self.softmax(scores_BS if self.factor == 1 else scores_BS.mul_(self.factor), weights_BS)

    def start_backward(self, weights_TBS: Tensor) -> None:
        self.grad_e_TBS = torch.empty_like(weights_TBS)

    def backward(self, t: int, query_BA: Tensor, weights_BS: Tensor, grad_BS: Tensor, grad_query_BA: Tensor) -> None:
        torch.mul(softmax_gradient(weights_BS, grad_BS), self.factor, out=self.grad_e_TBS[t])
        grad_query_BA.copy_(torch.bmm(self.grad_e_TBS[t].unsqueeze(1), self.keys_BSA).squeeze(1))

    def grad_keys(self, queries_TBA: Tensor) -> Tensor:
        return torch.bmm(self.grad_e_TBS.permute(1, 2, 0), queries_TBA.transpose(0, 1))
