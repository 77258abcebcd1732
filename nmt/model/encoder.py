"""The encoder: a recurrent network over the source, in one direction or both.

Axes: B sentences, S source positions, D embedding size, E annotation size, H encoder size a direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from nmt.config import EncoderConfig
from nmt.model import devices
from nmt.model.dropout import SharedDropout, run_layer
from nmt.model.layer_norm import layer_norm_of
from nmt.model.packed import Packing, packed_states
from nmt.model.recurrent import make_recurrent, normed_states


@dataclass(frozen=True)
class Encoding:
    """What the encoder makes of a batch.

    `annotations_BSE` holds h_j = [→h_j; ←h_j] and zeros on padding, `mask_BS` is True on real positions,
    `start_BH` is ←h_1 (→h_S of an encoder in one direction), `summary_BE` is [→h_S; ←h_1].
    """

    annotations_BSE: Tensor
    mask_BS: Tensor
    start_BH: Tensor
    summary_BE: Tensor


class Encoder(nn.Module):
    """Annotations of a source sentence (Bahdanau et al. 2015, section 3.2), of one or more layers.

    With `residual` a layer above the first adds what it reads to its states (Wu et al. 2016, section 3.1); the states
    that a decoder starts from are the top layer's own.

    Padding changes no state: each direction reads the real positions of a sentence alone. torch's GRU applies
    the reset gate after the product with the state, where the paper (Cho et al. 2014) applies it before.
    """

    def __init__(self, config: EncoderConfig, embedding_size: int, dropout: float) -> None:
        super().__init__()
        self.bidirectional = config.bidirectional
        self.hidden_size = config.hidden_size
        directions = 2 if config.bidirectional else 1
        self.annotation_size = directions * config.hidden_size
        sizes = [embedding_size] + [self.annotation_size] * (config.num_layers - 1)
        self.layers = nn.ModuleList(
            make_recurrent(config.cell, size, config.hidden_size, bidirectional=config.bidirectional) for size in sizes
        )
        self.dropout = SharedDropout(dropout)
        self.residual = config.residual

    def forward(self, embedded_BSD: Tensor, lengths_B: Tensor) -> Encoding:
        """`embedded_BSD` are source embeddings, `lengths_B` real positions a sentence (EOS included), on the CPU.

        torch packs by lengths on the CPU: those on a GPU would have to be waited for. Its own sorting waits, too.
        """
        x_BSX = embedded_BSD
        batch, steps = embedded_BSD.shape[:2]
        lengths_cpu_B = lengths_B.cpu()
        order_B = lengths_cpu_B.argsort(descending=True, stable=True)
        last_B = torch.arange(0, batch * steps, steps) + lengths_cpu_B - 1
        rows_4B = torch.stack([lengths_cpu_B, order_B, order_B.argsort(), last_B])
        if not devices.on_cpu(x_BSX):
            rows_4B = rows_4B.pin_memory()  # copied from there without a wait
        lengths_B, order_dev_B, place_B, last_B = rows_4B.to(x_BSX.device, non_blocking=True)
        packing = None
        if devices.on_cpu(x_BSX):
            packing = Packing.of(lengths_cpu_B, steps, bidirectional=self.bidirectional)
        mask_BS = torch.arange(steps, device=x_BSX.device) < lengths_B.unsqueeze(1)
        for layer in self.layers:
            below_BSX, first = x_BSX, layer is self.layers[0]
            if not first:
                x_BSX = self.dropout(x_BSX)
            if layer_norm_of(layer) is not None:
                states_BSX = normed_states(cast(nn.RNNBase, layer), x_BSX, None, mask_BS)
            elif packing is not None:
                states_BSX = packed_states(layer, x_BSX, None, packing)
            else:
                sorted_BSX = x_BSX.index_select(0, order_dev_B)
                packed = nn.utils.rnn.pack_padded_sequence(sorted_BSX, lengths_cpu_B[order_B], batch_first=True)
                made, _ = run_layer(layer, packed)
                padded_BSX, _ = nn.utils.rnn.pad_packed_sequence(made, batch_first=True, total_length=steps)
                states_BSX = padded_BSX.index_select(0, place_B)
            x_BSX = states_BSX + below_BSX if self.residual and not first else states_BSX
        last_BH = states_BSX.flatten(0, 1).index_select(0, last_B)[:, : self.hidden_size]
        start_BH = states_BSX[:, 0, self.hidden_size :] if self.bidirectional else last_BH
        summary_BE = torch.cat([last_BH, start_BH], -1) if self.bidirectional else last_BH
        return Encoding(x_BSX.contiguous(), mask_BS, start_BH, summary_BE)
