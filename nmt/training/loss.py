"""Label-smoothed cross-entropy over the vocabulary, and the loss of attention against given alignments.

Axes: B sentences, S source positions, T target positions, N real target positions of a batch, R readout size,
V vocabulary, L links between pieces.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.data.batching import Alignment
from nmt.model.precision import product_dtype

CHUNK = 512  # rows projected at once: enough for full-speed products, and 16 MB of logits at 8,000 pieces
LEAST_WEIGHT = 1e-20  # below, a weight counts as this: the slope of the logarithm stays finite


class TokenLosses(NamedTuple):
    """Sums over tokens, in nats: the smoothed loss, which has the gradient, and the plain negative log-likelihood."""

    smoothed: Tensor
    likelihood: Tensor


class _ProjectedCrossEntropy(torch.autograd.Function):
    """The losses of logits W x + b, and the gradients of the smoothed one, without keeping N x V values.

    Loss and gradient come from one pass over chunks of real tokens.
    """

    @staticmethod
    def forward(
        ctx: Any, readouts_NR: Tensor, weight_VR: Tensor, bias_V: Tensor, targets_N: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        needs_gradient = any(ctx.needs_input_grad[:3])
        smoothed, likelihood = readouts_NR.new_zeros(()), readouts_NR.new_zeros(())
        count, classes = len(readouts_NR), len(weight_VR)
        grad_x_NR = torch.empty_like(readouts_NR) if needs_gradient else None
        grad_w_VR = torch.empty_like(weight_VR) if needs_gradient else None
        grad_b_V = torch.zeros_like(bias_V) if needs_gradient else None
        logits_CV = readouts_NR.new_empty(min(CHUNK, count), classes)  # one piece of memory for all chunks
        # The three products of a chunk may round their factors; sums, softmax and gradients stay as they came.
        dtype = product_dtype(readouts_NR.dtype)
        rounds = dtype != readouts_NR.dtype
        readouts_NR, weight_VR = readouts_NR.to(dtype), weight_VR.to(dtype)
        for start in range(0, count, CHUNK):
            x_NR = readouts_NR[start : start + CHUNK]
            gold_N1 = targets_N[start : start + CHUNK].unsqueeze(1)
            logits_NV = logits_CV[: len(x_NR)]
            if rounds:
                torch.add(x_NR @ weight_VR.t(), bias_V, out=logits_NV)
            else:
                torch.addmm(bias_V, x_NR, weight_VR.t(), out=logits_NV)
            gold_logits, largest_N1 = logits_NV.gather(1, gold_N1).sum(), logits_NV.amax(1, keepdim=True)
            total = logits_NV.sum() if smoothing else None
            p_NV = torch.softmax(logits_NV, -1, out=logits_NV)
            # The largest p is at least 1/V, so that its logarithm is exact: logsumexp without a pass of its own.
            logsumexp = (largest_N1 - p_NV.amax(1, keepdim=True).log_()).sum()
            nll = logsumexp - gold_logits
            likelihood += nll
            smoothed += (1 - smoothing) * nll
            if total is not None:
                smoothed += smoothing * logsumexp - total * (smoothing / classes)
            if grad_x_NR is None or grad_w_VR is None or grad_b_V is None:
                continue
            # d loss / d logits = softmax - target distribution
            grad_NV = p_NV.sub_(smoothing / classes) if smoothing else p_NV
            grad_NV.scatter_add_(1, gold_N1, grad_NV.new_full((1, 1), smoothing - 1).expand(len(gold_N1), 1))
            grad_b_V += grad_NV.sum(0)
            if rounds:
                rounded_NV = grad_NV.to(dtype)
                grad_x_NR[start : start + CHUNK] = rounded_NV @ weight_VR
                product_VR = rounded_NV.t() @ x_NR
                grad_w_VR = grad_w_VR.add_(product_VR) if start else grad_w_VR.copy_(product_VR)
                continue
            torch.mm(grad_NV, weight_VR, out=grad_x_NR[start : start + CHUNK])
            torch.addmm(grad_w_VR, grad_NV.t(), x_NR, beta=min(start, 1), out=grad_w_VR)  # the first one overwrites
        ctx.gradients = (grad_x_NR, grad_w_VR, grad_b_V)
        ctx.mark_non_differentiable(likelihood)
        return smoothed, likelihood

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gradients = ctx.gradients
        del ctx.gradients  # freed, and a second backward pass fails instead of scaling them again
        return (*(gradient.mul_(grad) for gradient in gradients), None, None)


def token_losses(
    readouts_NR: Tensor, weight_VR: Tensor, bias_V: Tensor, targets_N: Tensor, smoothing: float
) -> TokenLosses:
    """The loss that torch.nn.CrossEntropyLoss(label_smoothing=smoothing, reduction="sum") gives, and the plain one.

    The targets are (1 - ε) on the reference and ε / V on every piece (Szegedy et al. 2016, section 7).
    """
    losses = _ProjectedCrossEntropy.apply(readouts_NR, weight_VR, bias_V, targets_N, smoothing)  # type: ignore[no-untyped-call]
    return TokenLosses(*losses)


def alignment_loss(weights_BTS: Tensor, alignment: Alignment, shift: int) -> Tensor:
    """-Σ_t Σ_j A_tj log α_t+shift,j over the target pieces t that have links, A_tj the share of the link to j.

    Cross-entropy between given alignments and attention (Chen et al. 2016, Mi et al. 2016). With shift 1 a piece is
    aligned by the step after it, whose state has read it: for the last piece that is the step which predicts EOS.
    A link to where the weight is exactly 0, outside a local window, is left out: no gradient leads there.
    """
    linked_L = weights_BTS[alignment.rows_L, alignment.tgt_L + shift, alignment.src_L]
    return -(alignment.shares_L * torch.where(linked_L > 0, linked_L, 1.0).clamp_min(LEAST_WEIGHT).log()).sum()
