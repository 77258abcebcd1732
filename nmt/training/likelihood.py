"""Teacher forcing: what the model makes of the real target positions, and the likelihood of a development set.

Axes: B sentences, S source positions, T target positions, N real target positions, R size of a readout.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nmt.data.batching import Batch
from nmt.model.seq2seq import Seq2Seq
from nmt.training.loss import token_losses
from nmt.training.processes import SINGLE, Processes


def real_readouts(model: Seq2Seq, batch: Batch) -> tuple[Tensor, Tensor]:
    """Teacher forcing: readouts of the real target positions, [N, R], and the weights of all, [B, T, S]."""
    readouts_BTR, weights_BTS = model(batch.src_BS, batch.src_lengths_B, batch.tgt_in_BT)
    # As an embedding: its gradient is faster than that of a selection on a CPU.
    return nn.functional.embedding(batch.tgt_places_N, readouts_BTR.flatten(0, 1)), weights_BTS


class _Sums(NamedTuple):
    """Of a batch: negative log-likelihood, entropy of attention (None without any), and real target tokens."""

    likelihood: float
    entropy: float | None
    tokens: int


@torch.inference_mode()
def likelihood(
    model: Seq2Seq, batches: Iterable[Batch | None], device: torch.device, processes: Processes = SINGLE
) -> dict[str, float]:
    """Mean negative log-likelihood of a reference token in nats (no smoothing), its exponential, and how spread
    attention is: the mean entropy of the weights of a target position, in nats (no value without attention).

    With several processes `batches` are those dealt to this one, and every one gets the values of all of them: added
    in the order of a single process.
    """
    own = [_sums(model, batch.to(device)) for batch in batches if batch is not None]
    found = processes.merged(own)
    tokens = sum(each.tokens for each in found)
    loss = sum(each.likelihood for each in found) / tokens
    values = {"dev/loss": loss, "dev/perplexity": math.exp(min(loss, 700))}
    entropies = [each.entropy for each in found if each.entropy is not None]
    return values | ({"dev/attention_entropy": sum(entropies) / tokens} if entropies else {})


def _sums(model: Seq2Seq, batch: Batch) -> _Sums:
    readouts_NR, weights_BTS = real_readouts(model, batch)
    losses = token_losses(readouts_NR, model.output.weight, model.output.bias, batch.tgt_out_N, 0.0)
    entropy = None
    if weights_BTS.shape[-1]:
        entropy = float(torch.special.entr(weights_BTS).sum(-1)[batch.tgt_mask_BT].sum())
    return _Sums(losses.likelihood.item(), entropy, batch.tgt_tokens)
