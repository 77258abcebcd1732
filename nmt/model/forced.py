"""Given translations as the model sees them: their log-probabilities and attention weights, by teacher forcing.

Axes: B sentences, S source positions, T target positions, N real target positions, R readout size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nmt.model.seq2seq import Seq2Seq
from nmt.model.stepper import Array
from nmt.model.torch_stepper import pad_ids


@torch.inference_mode()
def force(
    model: Seq2Seq,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    bos: int,
    rows_at_once: int,
    device: torch.device,
) -> tuple[Array, Array]:
    """The log-probability of each target, as a search would count it, and the weights [B, T, S] of its steps.

    Args:
        model: in the mode of evaluation.
        sources, targets: ids ended by EOS.
        bos: the id that starts a target.
        rows_at_once: how many rows of logits may be in memory at a time.
        device: where the model is.
    """
    src_BS, src_lengths_B = pad_ids(sources)
    tgt_out_BT, tgt_lengths_B = pad_ids(targets)
    tgt_in_BT = torch.cat([torch.full((len(targets), 1), bos), tgt_out_BT[:, :-1]], 1)
    mask_BT = torch.arange(tgt_out_BT.shape[1]) < tgt_lengths_B.unsqueeze(1)
    readouts_BTR, weights_BTS = model(src_BS.to(device), src_lengths_B, tgt_in_BT.to(device))
    # Sums in float64, as the search's are.
    log_probs_BT = torch.zeros(mask_BT.shape, dtype=torch.float64)
    log_probs_BT[mask_BT] = _token_log_probs(
        model, readouts_BTR[mask_BT.to(device)], tgt_out_BT[mask_BT].to(device), rows_at_once
    )
    return log_probs_BT.sum(1).numpy(), weights_BTS.float().cpu().numpy()


def _token_log_probs(model: Seq2Seq, readouts_NR: Tensor, targets_N: Tensor, rows_at_once: int) -> Tensor:
    """log p of each target word, on the CPU."""
    parts = []
    for start in range(0, len(readouts_NR), rows_at_once):
        rows = slice(start, start + rows_at_once)
        logits_NV = model.output(readouts_NR[rows])
        logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
        chosen_N = logits_NV.gather(1, targets_N[rows].unsqueeze(1)).squeeze(1)
        parts.append((chosen_N - logits_NV.logsumexp(-1)).double().cpu())
    return torch.cat(parts)
