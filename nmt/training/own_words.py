"""Scheduled sampling: some of the previous words that training gives are the model's own, as in a translation.

Axes: B sentences, T target positions, D embedding size, V vocabulary.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from nmt.data.batching import Batch
from nmt.model.seq2seq import Seq2Seq


def share_of_own_words(final: float, done: float) -> float:
    """The share of own words when a share `done` of the updates are done: it rises linearly to `final`.

    It is the linear decay of Bengio et al. (2015, section 2.4), with ε_i = 1 - this.
    """
    return final * min(done, 1.0)


@torch.no_grad()
def with_own_words(model: Seq2Seq, batch: Batch, share: float) -> Batch:
    """The batch, whose previous words are the model's own with probability `share` (Bengio et al. 2015, section 2.3).

    For each position a coin is thrown, and the word drawn from what the model predicts after the words before it,
    own ones among them. No gradient flows through the choice, as in the paper. The model predicts without dropout.
    """
    training = model.training
    model.eval()
    memory = model.read(batch.src_BS, batch.src_lengths_B)
    state = model.decoder.init_state(memory)
    tgt_in_BT = batch.tgt_in_BT.clone()
    own_BT = torch.rand(tgt_in_BT.shape, device=tgt_in_BT.device) < share
    for t in range(tgt_in_BT.shape[1] - 1):
        embedded_BD = model.tgt_embedding(tgt_in_BT[:, t])
        readout_BR, state, _ = model.decoder.step(embedded_BD, state, memory)
        logits_BV = model.output(readout_BR)
        drawn_B = (logits_BV - torch.empty_like(logits_BV).exponential_().log_()).argmax(-1)  # Gumbel: one of softmax
        tgt_in_BT[:, t + 1] = torch.where(own_BT[:, t + 1], drawn_B, tgt_in_BT[:, t + 1])
    model.train(training)
    return replace(batch, tgt_in_BT=tgt_in_BT)
