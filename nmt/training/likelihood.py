"""Teacher forcing: what the model makes of the real target positions, and the likelihood of a development set.

Axes: B sentences, S source positions, T target positions, N real target positions, R size of a readout.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from nmt.data.batching import Batch
from nmt.model.seq2seq import Seq2Seq
from nmt.training.loss import token_losses


def real_readouts(model: Seq2Seq, batch: Batch) -> tuple[Tensor, Tensor]:
    """Teacher forcing: readouts of the real target positions, [N, R], and the weights of all, [B, T, S]."""
    readouts_BTR, weights_BTS = model(batch.src_BS, batch.src_lengths_B, batch.tgt_in_BT)
    # As an embedding: its gradient is faster than that of a selection on a CPU.
    return nn.functional.embedding(batch.tgt_places_N, readouts_BTR.flatten(0, 1)), weights_BTS


@torch.inference_mode()
def likelihood(model: Seq2Seq, batches: Iterable[Batch], device: torch.device) -> dict[str, float]:
    """Mean negative log-likelihood of a reference token in nats (no smoothing), its exponential, and how spread
    attention is: the mean entropy of the weights of a target position, in nats (no value without attention).
    """
    total, entropy, tokens = 0.0, 0.0, 0
    attends = False
    for batch in (batch.to(device) for batch in batches):
        readouts_NR, weights_BTS = real_readouts(model, batch)
        losses = token_losses(readouts_NR, model.output.weight, model.output.bias, batch.tgt_out_N, 0.0)
        total += losses.likelihood.item()
        tokens += batch.tgt_tokens
        if weights_BTS.shape[-1]:
            attends = True
            entropy += float(torch.special.entr(weights_BTS).sum(-1)[batch.tgt_mask_BT].sum())
    loss = total / tokens
    values = {"dev/loss": loss, "dev/perplexity": math.exp(min(loss, 700))}
    return values | ({"dev/attention_entropy": entropy / tokens} if attends else {})
