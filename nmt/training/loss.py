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
from nmt.model import devices
from nmt.model.precision import product_dtype

CHUNK = 512  # rows projected at once: enough for full-speed products, and 16 MB of logits at 8,000 pieces
LEAST_P = 1e-30  # of a softmax, for its logarithm to be as exact as one of the logits
LEAST_WEIGHT = 1e-20  # below, a weight counts as this: the slope of the logarithm stays finite


class TokenLosses(NamedTuple):
    """Sums over tokens, in nats: the smoothed loss, which has the gradient, and the plain negative log-likelihood.

    The smoothed loss is already multiplied by the scale that was asked for.
    """

    smoothed: Tensor
    likelihood: Tensor


class _ProjectedCrossEntropy(torch.autograd.Function):
    """The losses of logits W x + b, and the gradients of the smoothed one, without keeping N x V values.

    Loss and gradient come from one pass over chunks of real tokens. Every pass over a chunk's logits costs as much as
    they take to fetch, so what smoothing adds to each logit's gradient is added to sums over the vocabulary instead.
    """

    @staticmethod
    def forward(
        ctx: Any, readouts_NR: Tensor, weight_VR: Tensor, bias_V: Tensor, targets_N: Tensor, smoothing: float,
        scale: float,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        needs_gradient = any(ctx.needs_input_grad[:3])
        count, classes = len(readouts_NR), len(weight_VR)
        likelihood = readouts_NR.new_zeros(())
        logits_CV = readouts_NR.new_empty(min(CHUNK, count), classes)  # one piece of memory for all chunks
        smooth = _Smoothing(readouts_NR, weight_VR, bias_V, smoothing)
        if needs_gradient:
            grad_x_NR, grad_w_VR, grad_b_V = smooth.gradients(scale)
        # The three products of a chunk may round their factors; sums, softmax and gradients stay as they came.
        dtype = product_dtype(readouts_NR.dtype)
        x_NR, w_VR = readouts_NR.to(dtype), weight_VR.to(dtype)
        for start in range(0, count, CHUNK):
            x_CR = x_NR[start : start + CHUNK]
            gold_C1 = targets_N[start : start + CHUNK].unsqueeze(1)
            logits = _logits(x_CR, w_VR, bias_V, logits_CV[: len(x_CR)])
            gold_logit_C1 = logits.gather(1, gold_C1)
            p_CV, logsumexp_C1 = _softmax_(logits, gold_logit_C1, gold_C1, (x_CR, w_VR, bias_V))
            likelihood += (logsumexp_C1 - gold_logit_C1).sum()
            smooth.logsumexp += logsumexp_C1.sum()
            if needs_gradient:
                # d loss / d logits = softmax - target distribution
                p_CV.scatter_add_(1, gold_C1, p_CV.new_full((1, 1), smoothing - 1).expand(len(gold_C1), 1))
                grad_b_V.add_(p_CV.sum(0), alpha=scale)
                rounded_CV = p_CV.to(dtype)
                _add_product(grad_x_NR[start : start + CHUNK], rounded_CV, w_VR, scale)
                _add_product(grad_w_VR, rounded_CV.t(), x_CR, scale)
        if needs_gradient:
            ctx.gradients = (grad_x_NR, grad_w_VR, grad_b_V)
        ctx.mark_non_differentiable(likelihood)
        return smooth.loss(likelihood) * scale, likelihood

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gradients = ctx.gradients
        del ctx.gradients  # freed, and a second backward pass fails instead of scaling them again
        if not devices.on_cpu(grad) or float(grad) != 1:  # looking at it would make a GPU wait
            gradients = tuple(gradient.mul_(grad) for gradient in gradients)
        return (*gradients, None, None, None)


class _Smoothing:
    """What label smoothing adds to the loss of all tokens and to its gradients.

    The targets' share ε/V of every piece takes ε/V from the gradient of every logit, which is a vector for all rows of
    the readouts' gradient, and one for all rows of the weights'.
    """

    def __init__(self, readouts_NR: Tensor, weight_VR: Tensor, bias_V: Tensor, smoothing: float) -> None:
        self.readouts_NR, self.weight_VR, self.bias_V = readouts_NR, weight_VR, bias_V
        self.smoothing, self.share = smoothing, smoothing / len(weight_VR)
        self.x_R, self.w_R = readouts_NR.sum(0), weight_VR.sum(0)
        self.logsumexp = readouts_NR.new_zeros(())  # summed over tokens

    def gradients(self, scale: float) -> tuple[Tensor, Tensor, Tensor]:
        """This part of the gradients of readouts, weights and bias, times `scale`, to add the rest to."""
        factor = -self.share * scale
        return (
            (self.w_R * factor).repeat(len(self.readouts_NR), 1),
            (self.x_R * factor).repeat(len(self.weight_VR), 1),
            torch.full_like(self.bias_V, factor * len(self.readouts_NR)),
        )

    def loss(self, likelihood: Tensor) -> Tensor:
        """The smoothed loss of all tokens from their negative log-likelihood."""
        logits = self.x_R @ self.w_R + len(self.readouts_NR) * self.bias_V.sum()
        return (1 - self.smoothing) * likelihood + self.smoothing * self.logsumexp - self.share * logits


def _logits(x_NR: Tensor, weight_VR: Tensor, bias_V: Tensor, out: Tensor | None = None) -> Tensor:
    """W x + b in the type of the bias."""
    if x_NR.dtype == bias_V.dtype:
        return torch.addmm(bias_V, x_NR, weight_VR.t(), out=out)
    return torch.add(x_NR @ weight_VR.t(), bias_V, out=out)


def _add_product(into: Tensor, left: Tensor, right: Tensor, scale: float) -> None:
    """Adds a product times `scale`, whatever its factors were rounded to."""
    if left.dtype == into.dtype:
        into.addmm_(left, right, alpha=scale)
    else:
        into.add_(left @ right, alpha=scale)


def _softmax_(
    logits_NV: Tensor, gold_logit_N1: Tensor, gold_N1: Tensor, factors: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """The softmax of the logits in their place, and their log-sum-exp [N, 1]; `factors` are what the logits came from.

    On a CPU the log-sum-exp is read off the reference's probability, which saves passes over the logits.
    """
    if not devices.on_cpu(logits_NV):
        logsumexp_N1 = logits_NV.logsumexp(1, keepdim=True)
        return torch.softmax(logits_NV, -1, out=logits_NV), logsumexp_N1
    x_NR, weight_VR, bias_V = factors
    p_NV = torch.softmax(logits_NV, -1, out=logits_NV)
    gold_p_N1 = p_NV.gather(1, gold_N1)
    logsumexp_N1 = gold_logit_N1 - gold_p_N1.log()
    rare_N = (gold_p_N1.squeeze(1) < LEAST_P).nonzero().squeeze(1)
    if len(rare_N):  # too near to 0, or to what float32 can hold, for its logarithm to be exact
        logsumexp_N1[rare_N] = _logits(x_NR[rare_N], weight_VR, bias_V).logsumexp(1, keepdim=True)
    return p_NV, logsumexp_N1


def token_losses(
    readouts_NR: Tensor, weight_VR: Tensor, bias_V: Tensor, targets_N: Tensor, smoothing: float, scale: float = 1.0
) -> TokenLosses:
    """The loss that torch.nn.CrossEntropyLoss(label_smoothing=smoothing, reduction="sum") gives, and the plain one.

    The targets are (1 - ε) on the reference and ε / V on every piece (Szegedy et al. 2016, section 7). The smoothed
    loss comes times `scale`: one over the number of tokens makes it the mean, at no cost in the gradients.
    """
    losses = _ProjectedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        readouts_NR, weight_VR, bias_V, targets_N, smoothing, scale
    )
    return TokenLosses(*losses)


def alignment_loss(weights_BTS: Tensor, alignment: Alignment, shift: int) -> Tensor:
    """-Σ_t Σ_j A_tj log α_t+shift,j over the target pieces t that have links, A_tj the share of the link to j.

    Cross-entropy between given alignments and attention (Chen et al. 2016, Mi et al. 2016). With shift 1 a piece is
    aligned by the step after it, whose state has read it: for the last piece that is the step which predicts EOS.
    A link to where the weight is exactly 0, outside a local window, is left out: no gradient leads there.
    """
    linked_L = weights_BTS[alignment.rows_L, alignment.tgt_L + shift, alignment.src_L]
    return -(alignment.shares_L * torch.where(linked_L > 0, linked_L, 1.0).clamp_min(LEAST_WEIGHT).log()).sum()
