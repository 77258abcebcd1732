"""The model's side of a search: one step for all live sentences, reduced to the best continuations of each.

Axes: B live sentences, K hypotheses of a sentence, N = B x K rows, S source positions, C continuations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nmt.model.decoder import Decoded, DecoderState, Memory
from nmt.model.folded import folded
from nmt.model.selection import Best, Selection
from nmt.model.seq2seq import Seq2Seq
from nmt.model.stepper import Array, Continuations


@dataclass(frozen=True)
class StepState:
    """The live sentences: their memory, and the decoder state of each of their hypotheses."""

    memory: Memory
    decoder: DecoderState


class TorchStepper:
    """`Stepper` by a `Seq2Seq`, with its weights as they are now; `banned` are ids that no hypothesis may hold.

    With `int8` its steps multiply in 8 bits. After a change of the weights a new one is needed.
    """

    def __init__(self, model: Seq2Seq, banned: Sequence[int], device: torch.device, int8: bool = False) -> None:
        self.model = folded(model, int8)
        self.device = device
        self.selection = Selection(self.model.output, model.output.out_features, banned, device)

    @torch.inference_mode()
    def begin(self, sources: Sequence[Sequence[int]]) -> StepState:
        """Reads the sources (ids ended by EOS): one hypothesis a sentence, no word yet."""
        src_BS, lengths_B = pad_ids(sources)
        memory = self.model.read(src_BS.to(self.device), lengths_B)
        return StepState(memory, self.model.decoder.init_state(memory))

    @torch.inference_mode()
    def step(self, state: StepState, tokens_BK: Array, log_probs_BK: Array, width: int) -> Continuations:
        """Feeds each hypothesis its last word; the `width` best continuations of each sentence, best first."""
        readout_NR, decoder, weights_NS = self.decode(state, tokens_BK)
        before_N = torch.from_numpy(log_probs_BK.reshape(-1)).to(self.device)
        best = self.selection.best(readout_NR, before_N, tokens_BK.shape[1], width)
        return continuations(best, weights_NS, tokens_BK.shape, StepState(state.memory, decoder))

    def decode(self, state: StepState, tokens_BK: Array) -> Decoded:
        """The decoder's step: readouts [N, R] that are yet to be projected, its state, the weights [N, S]."""
        embedded_ND = self.model.tgt_embedding(torch.from_numpy(tokens_BK.reshape(-1)).to(self.device))
        return self.model.decoder.step(embedded_ND, state.decoder, state.memory)

    @torch.inference_mode()
    def select(self, state: StepState, sentences_B: Array, rows_N: Array) -> StepState:
        """Keeps the sentences `sentences_B`, and of the hypotheses the rows `rows_N` (in the old numbering)."""
        rows = torch.from_numpy(rows_N).to(self.device)
        if len(sentences_B) == len(state.memory.mask_BS):
            return StepState(state.memory, state.decoder.select(rows))
        sentences = torch.from_numpy(sentences_B).to(self.device)
        return StepState(state.memory.select(sentences), state.decoder.select(rows))


def continuations(best: Best, weights_NS: Tensor, shape: tuple[int, ...], state: Any) -> Continuations:
    """What a selection found for B sentences of K hypotheses, `shape`, as the search reads it."""
    best_BC, parents_BC, tokens_BC = best
    return Continuations(
        log_probs_BC=best_BC.double().cpu().numpy(),
        parents_BC=parents_BC.cpu().numpy(),
        tokens_BC=tokens_BC.cpu().numpy(),
        weights_BKS=weights_NS.view(*shape, -1).float().cpu().numpy(),
        state=state,
    )


def pad_ids(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Rows of ids as one int64 array, filled up at the end, and their lengths."""
    lengths_B = torch.tensor([len(row) for row in rows])
    ids_BS = torch.full((len(rows), max(len(row) for row in rows)), 0)
    for index, row in enumerate(rows):
        ids_BS[index, : len(row)] = torch.tensor(list(row))
    return ids_BS, lengths_B
