"""Label-smoothed cross-entropy over the vocabulary, and the loss of attention against given alignments.

Axes: B sentences, S source positions, T target positions, N real target positions of a batch, R readout size,
V vocabulary, L links between pieces.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.data.batching import Alignment
from nmt.model import devices
from nmt.model.gemm import add_weight_gradient, biased_product, product
from nmt.model.precision import product_dtype

CHUNK = 640  # rows projected at once: enough for full-speed products, and 20 MB of logits at 8,000 pieces
LEAST_P = 1e-30  # of a softmax, for its logarithm to be as exact as one of the logits
LEAST_WEIGHT = 1e-20  # below, a weight counts as this: the slope of the logarithm stays finite


class TokenLosses(NamedTuple):
    """Sums over tokens, in nats: the loss, which has the gradient, the plain negative log-likelihood, and how far two
    passes diverge, 0 for one.

    The loss is already multiplied by the scale that was asked for.
    """

    loss: Tensor
    likelihood: Tensor
    divergence: Tensor


class _ProjectedCrossEntropy(torch.autograd.Function):
    """The losses of logits W x + b, and the gradients of the one that is descended, without keeping N x V values.

    Loss and gradient come from one pass over chunks of real tokens. Each look at all logits of a chunk costs as much as
    fetching them, so there are few: bias and product, softmax, the gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, readouts_NR: Tensor, weight_VR: Tensor, bias_V: Tensor, targets_N: Tensor, smoothing: float,
        agreement: float, scale: float, wanted: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        needs_gradient = wanted and any(ctx.needs_input_grad[:3])
        count, classes = len(readouts_NR), len(weight_VR)
        share = smoothing / classes  # of every piece in the target distribution
        likelihood, logsumexp, divergence = readouts_NR.new_zeros(3).unbind()
        if needs_gradient:
            grad_x_NR, grad_w_VR, grad_b_V = (torch.zeros_like(each) for each in (readouts_NR, weight_VR, bias_V))
        # The three products of a chunk may round their factors; sums, softmax and gradients stay as they came.
        dtype = product_dtype(readouts_NR.dtype)
        x_NR, w_VR = readouts_NR.to(dtype), weight_VR.to(dtype)
        for parts in _chunks(count, 2 if agreement else 1):
            x_CR, gold_C1 = _taken(x_NR, parts), _taken(targets_N, parts).unsqueeze(1)
            logits = _logits(x_CR, w_VR, bias_V)
            gold_logit_C1 = logits.gather(1, gold_C1)
            p_CV, logsumexp_C1 = _softmax_(logits, gold_logit_C1, gold_C1, (x_CR, w_VR, bias_V))
            likelihood += (logsumexp_C1 - gold_logit_C1).sum()
            logsumexp += logsumexp_C1.sum()
            slope_CV = None
            if agreement:
                found, slope_CV = _divergence(*p_CV.chunk(2))
                divergence += found
            if needs_gradient:
                # d loss / d logits = softmax - target distribution
                grad_CV = p_CV.sub_(share) if smoothing else p_CV
                grad_CV.scatter_add_(1, gold_C1, grad_CV.new_full((1, 1), smoothing - 1).expand(len(gold_C1), 1))
                if slope_CV is not None:
                    grad_CV.add_(slope_CV, alpha=agreement)
                grad_b_V += grad_CV.sum(0)
                grad_CV = grad_CV.to(dtype)
                for rows, grad_x_CR in zip(parts, product(grad_CV, w_VR).chunk(len(parts)), strict=True):
                    grad_x_NR[rows] = grad_x_CR
                add_weight_gradient(grad_CV, x_CR, grad_w_VR)
        if needs_gradient:
            ctx.gradients = tuple(gradient.mul_(scale) for gradient in (grad_x_NR, grad_w_VR, grad_b_V))
        ctx.mark_non_differentiable(likelihood, divergence)
        logits_sum = readouts_NR.sum(0) @ weight_VR.sum(0) + count * bias_V.sum()
        smoothed = (1 - smoothing) * likelihood + smoothing * logsumexp - share * logits_sum
        return (smoothed + agreement * divergence) * scale, likelihood, divergence

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        gradients = ctx.gradients
        del ctx.gradients  # freed, and a second backward pass fails instead of scaling them again
        if not devices.on_cpu(grad) or float(grad) != 1:  # looking at it would make a GPU wait
            gradients = tuple(gradient.mul_(grad) for gradient in gradients)
        return (*gradients, None, None, None, None, None)


def _chunks(count: int, passes: int) -> list[tuple[slice, ...]]:
    """The rows of each chunk, of each pass over the same tokens: in all at most CHUNK, and all but the last as many.

    A small rest would take longer than its share.
    """
    each = count // passes
    chunks = math.ceil(count / CHUNK)
    size = math.ceil(each / chunks) if chunks else 1
    starts = range(0, each, size)
    return [
        tuple(slice(k * each + start, k * each + min(start + size, each)) for k in range(passes)) for start in starts
    ]


def _taken(rows_NX: Tensor, parts: tuple[slice, ...]) -> Tensor:
    """The rows of a chunk; those of a single pass are no copy."""
    return rows_NX[parts[0]] if len(parts) == 1 else torch.cat([rows_NX[part] for part in parts])


def _divergence(p_CV: Tensor, q_CV: Tensor) -> tuple[Tensor, Tensor]:
    """(KL(p || q) + KL(q || p)) / 2, summed over rows, and its gradient [2C, V] in the logits of p and then of q."""
    log_ratio_CV = p_CV.clamp_min(LEAST_P).log_().sub_(q_CV.clamp_min(LEAST_P).log_())
    difference_CV = p_CV - q_CV
    slope_CV = torch.cat([p_CV, q_CV])
    slope_p_CV, slope_q_CV = slope_CV.chunk(2)
    slope_p_CV.mul_(log_ratio_CV)
    slope_q_CV.mul_(log_ratio_CV)
    to_q_C1, minus_to_p_C1 = slope_p_CV.sum(1, keepdim=True), slope_q_CV.sum(1, keepdim=True)
    slope_p_CV.addcmul_(p_CV, to_q_C1, value=-1).add_(difference_CV)
    slope_q_CV.neg_().addcmul_(q_CV, minus_to_p_C1).sub_(difference_CV)
    return (to_q_C1 - minus_to_p_C1).sum() / 2, slope_CV.div_(2)


def _logits(x_NR: Tensor, weight_VR: Tensor, bias_V: Tensor) -> Tensor:
    """W x + b in the type of the bias."""
    if x_NR.dtype == bias_V.dtype:
        return biased_product(x_NR, weight_VR.t(), bias_V)
    return (x_NR @ weight_VR.t()).to(bias_V.dtype).add_(bias_V)


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
    readouts_NR: Tensor, weight_VR: Tensor, bias_V: Tensor, targets_N: Tensor, smoothing: float, scale: float = 1.0,
    agreement: float = 0.0,
) -> TokenLosses:  # fmt: skip
    """The loss that torch.nn.CrossEntropyLoss(label_smoothing=smoothing, reduction="sum") gives, and the plain one.

    The targets are (1 - ε) on the reference and ε / V on every piece (Szegedy et al. 2016, section 7). The smoothed
    loss comes times `scale`: one over the number of tokens makes it the mean, at no cost in the gradients.

    With `agreement` the rows are two passes over the same tokens, one after the other, and the loss is that of R-Drop
    (Liang et al. 2021, equation 4) with that α: the smoothed loss of both and α times half the sum of the divergences
    from each to the other.
    """
    wanted = torch.is_grad_enabled()  # within a function torch says that it is not
    losses = _ProjectedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        readouts_NR, weight_VR, bias_V, targets_N, smoothing, agreement, scale, wanted
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
