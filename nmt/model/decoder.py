"""The three decoders behind one protocol: Bahdanau's, Luong's, and the plain one without attention.

`read` turns an encoding into a memory, `init_state` gives s_0, `step` advances the hypotheses of a search by one
word, `forward` runs a whole target with teacher forcing. `forward` equals repeated `step`, values and gradients.

Axes: B sentences, K hypotheses of a sentence, N = B x K rows, S source positions, T target positions,
E annotation size, H decoder size, A attention size, D embedding size, R readout size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from nmt.config import BahdanauConfig, LuongConfig, PlainConfig
from nmt.model.attention import AdditiveScore, DotScore, GeneralScore, attend, masked_softmax
from nmt.model.encoder import Encoding
from nmt.model.precision import product_of_parts
from nmt.model.recurrence import BahdanauLoop, FeedingLoop
from nmt.model.recurrent import Drawn, Hidden, RecurrentStack
from nmt.model.window import make_window


@dataclass(frozen=True)
class Memory:
    """A source as the decoder reads it: annotations, the keys projected once, mask and number of real positions.

    The K hypotheses of a sentence share its row; memory is never repeated K times.
    """

    annotations_BSE: Tensor
    keys_BSA: Tensor
    mask_BS: Tensor
    lengths_B: Tensor
    start_BH: Tensor
    summary_BE: Tensor

    def select(self, rows_B: Tensor) -> Memory:
        """The memory of the sentences that `rows_B` names."""
        return Memory(*(tensor[rows_B] for tensor in vars(self).values()))


@dataclass(frozen=True)
class DecoderState:
    """What a step hands to the next: hidden states, the steps so far, and what some decoders need beside them.

    `feed_NR` is the readout that input feeding gives back, `coverage_NS` the sum of each position's weights so far,
    `drawn` what training silences in every step.
    """

    hidden: Hidden
    steps: int = 0
    feed_NR: Tensor | None = None
    coverage_NS: Tensor | None = None
    drawn: Drawn | None = None

    def select(self, rows_N: Tensor) -> DecoderState:
        """The states of the hypotheses that `rows_N` names."""
        feed_NR = None if self.feed_NR is None else self.feed_NR[rows_N]
        coverage_NS = None if self.coverage_NS is None else self.coverage_NS[rows_N]
        return DecoderState(tuple(tensor[rows_N] for tensor in self.hidden), self.steps, feed_NR, coverage_NS)


Decoded = tuple[Tensor, DecoderState, Tensor]


class Decoder(nn.Module, ABC):
    """The protocol, and the initial state that all kinds share: s_0 = tanh(W_s ←h_1), one W_s a layer."""

    readout_size: int
    reads_words = False  # whether the last part that the readout reads is the previous word

    def __init__(self, rnn: RecurrentStack, start_size: int) -> None:
        super().__init__()
        self.rnn = rnn
        self.initial = nn.ModuleList(nn.Linear(start_size, rnn.hidden_size, bias=False) for _ in rnn.layers)

    def read(self, encoding: Encoding) -> Memory:
        """The memory of an encoding; keys are projected here, once a sentence."""
        return Memory(
            encoding.annotations_BSE,
            self.keys(encoding.annotations_BSE),
            encoding.mask_BS,
            encoding.mask_BS.sum(1),
            encoding.start_BH,
            encoding.summary_BE,
        )

    def init_state(self, memory: Memory) -> DecoderState:
        """s_0 of each sentence, one row a sentence."""
        start = self.start_vector(memory)
        return DecoderState(self.rnn.start([layer(start).tanh() for layer in self.initial]))

    def start_vector(self, memory: Memory) -> Tensor:
        """What s_0 is computed from, [B, start size]."""
        return memory.start_BH

    @abstractmethod
    def keys(self, annotations_BSE: Tensor) -> Tensor:
        """The annotations' side of the score, [B, S, A]."""

    @abstractmethod
    def step(self, embedded_ND: Tensor, state: DecoderState, memory: Memory) -> Decoded:
        """One step: readout [N, R], the next state, and the weights [N, S] of this step.

        N = B x K, the K hypotheses of a sentence one after the other; `embedded_ND` embeds the previous words.
        """

    def forward(self, embedded_BTD: Tensor, state: DecoderState, memory: Memory) -> tuple[Tensor, Tensor]:
        """All steps with the reference as the previous words: readouts [B, T, R] and weights [B, T, S]."""
        state = replace(state, drawn=self.rnn.draw(state.hidden))
        readouts, weights = [], []
        for embedded_BD in embedded_BTD.unbind(1):
            readout_BR, state, weights_BS = self.step(embedded_BD, state, memory)
            readouts.append(readout_BR)
            weights.append(weights_BS)
        return torch.stack(readouts, 1), torch.stack(weights, 1)


class BahdanauDecoder(Decoder):
    """Attention before the step, with s_{t-1} (Bahdanau et al. 2015, section 3.1 and appendix A).

    e_tj = v_a·tanh(W_a s_{t-1} + U_a h_j); s_t = GRU([y_{t-1}; c_t], s_{t-1}). torch's GRU applies the reset gate
    after the product with the state, the paper before it. Readout: `state` s_t; `deep` tanh(W_r [s_t; c_t; y_{t-1}]);
    `maxout` the larger of each pair of U_o s_{t-1} + V_o y_{t-1} + C_o c_t (appendix A.2.2). With `coverage` the sum of
    the weights that position j had in earlier steps enters its score (Tu et al. 2016).
    """

    reads_words = True

    def __init__(
        self, config: BahdanauConfig, *, embedding_size: int, annotation_size: int, start_size: int,
        readout_size: int, dropout: float,
    ) -> None:  # fmt: skip
        size = config.hidden_size
        rnn = RecurrentStack(config.cell, embedding_size + annotation_size, size, config.num_layers, dropout)
        super().__init__(rnn, start_size)
        self.attention = AdditiveScore(size, annotation_size, config.attention_size, config.coverage)
        self.readout_kind = config.readout
        self.readout_size = readout_size
        if config.readout != "state":
            width = readout_size * (2 if config.readout == "maxout" else 1)
            self.readout = nn.Linear(size + annotation_size + embedding_size, width, bias=False)

    def keys(self, annotations_BSE: Tensor) -> Tensor:
        return self.attention.keys(annotations_BSE)

    def init_state(self, memory: Memory) -> DecoderState:
        state = super().init_state(memory)
        if self.attention.coverage is None:
            return state
        return replace(state, coverage_NS=torch.zeros_like(memory.annotations_BSE[:, :, 0]))

    def step(self, embedded_ND: Tensor, state: DecoderState, memory: Memory) -> Decoded:
        before_NH = self.rnn.top(state.hidden)
        query_BKH = before_NH.view(memory.mask_BS.shape[0], -1, before_NH.shape[-1])
        coverage_NS = state.coverage_NS
        coverage_BKS = None if coverage_NS is None else coverage_NS.view(*query_BKH.shape[:2], -1)
        weights_BKS = masked_softmax(self.attention(query_BKH, memory.keys_BSA, coverage_BKS), memory.mask_BS)
        context_NE = attend(weights_BKS, memory.annotations_BSE).flatten(0, 1)
        hidden = self.rnn.step((embedded_ND, context_NE), state.hidden, state.drawn)
        joint_NJ = torch.cat([self.rnn.top(hidden), context_NE], -1)
        readout_NR = self.read_out(before_NH, joint_NJ, embedded_ND)
        weights_NS = weights_BKS.flatten(0, 1)
        if coverage_NS is not None:
            coverage_NS = coverage_NS + weights_NS
        after = replace(state, hidden=hidden, steps=state.steps + 1, coverage_NS=coverage_NS)
        return readout_NR, after, weights_NS

    def read_out(self, before: Tensor, joint: Tensor, embedded: Tensor) -> Tensor:
        """The readout from s_{t-1}, [s_t; c_t] and y_{t-1}, their last axes H, H + E, D."""
        size = before.shape[-1]
        match self.readout_kind:
            case "state":
                return joint[..., :size]
            case "deep":
                return product_of_parts(self.readout, joint, embedded).tanh()
            case "maxout":
                pairs = product_of_parts(self.readout, before, joint[..., size:], embedded)
                return pairs.view(*pairs.shape[:-1], self.readout_size, 2).amax(-1)

    def forward(self, embedded_BTD: Tensor, state: DecoderState, memory: Memory) -> tuple[Tensor, Tensor]:
        if self.rnn.normed:
            return super().forward(embedded_BTD, state, memory)
        embedded_TBD = embedded_BTD.transpose(0, 1).contiguous()
        cell, inputs_TBG, w_context_GE, stack = self.rnn.loop_parts(
            embedded_TBD, state.hidden, self.attention.query.weight
        )
        joint_TBJ, weights_TBS = BahdanauLoop.apply(  # type: ignore[no-untyped-call]
            cell,
            inputs_TBG,
            memory.keys_BSA,
            memory.annotations_BSE,
            memory.mask_BS,
            w_context_GE,
            self.attention.v,
            self.attention.coverage,
            *stack,
        )
        s0_BH = self.rnn.top(state.hidden)
        before_TBH = s0_BH.unsqueeze(0)
        if self.readout_kind == "maxout":
            before_TBH = torch.cat([before_TBH, joint_TBJ[:-1, :, : s0_BH.shape[-1]]])
        readouts_TBR = self.read_out(before_TBH, joint_TBJ, embedded_TBD)
        return readouts_TBR.transpose(0, 1), weights_TBS.transpose(0, 1)


class LuongDecoder(Decoder):
    """Attention after the step, with s_t (Luong et al. 2015, section 3).

    s_t = GRU(y_{t-1}, s_{t-1}); s̃_t = tanh(W_c [s_t; c_t]). With `input_feeding` the cell reads [y_{t-1}; s̃_{t-1}]
    (section 3.3), s̃_0 = 0. With `window` attention is local (section 3.2). Luong used stacked LSTMs (`cell: lstm`,
    `num_layers`); torch's GRU applies the reset gate after the product with the state.
    """

    def __init__(
        self, config: LuongConfig, *, embedding_size: int, annotation_size: int, start_size: int,
        readout_size: int, dropout: float,
    ) -> None:  # fmt: skip
        size = config.hidden_size
        self_feed = readout_size if config.input_feeding else 0
        rnn = RecurrentStack(config.cell, embedding_size + self_feed, size, config.num_layers, dropout)
        super().__init__(rnn, start_size)
        self.input_feeding = config.input_feeding
        self.attention: AdditiveScore | DotScore
        match config.score:
            case "dot":
                self.attention = DotScore(size, config.scale)
            case "general":
                self.attention = GeneralScore(size, annotation_size, config.scale)
            case "concat":
                self.attention = AdditiveScore(size, annotation_size, config.attention_size)
        self.window = make_window(config.window, size) if config.window is not None else None
        self.readout_size = readout_size
        self.readout = nn.Linear(size + annotation_size, readout_size, bias=False)

    def keys(self, annotations_BSE: Tensor) -> Tensor:
        return self.attention.keys(annotations_BSE)

    def init_state(self, memory: Memory) -> DecoderState:
        state = super().init_state(memory)
        if not self.input_feeding:
            return state
        feed_NR = memory.annotations_BSE.new_zeros(memory.mask_BS.shape[0], self.readout_size)
        return replace(state, feed_NR=feed_NR)

    def read_out(self, states_BKH: Tensor, steps_K: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """s̃ [B, K, R] and the weights [B, K, S] of K states of each sentence; `steps_K` are their t, from 1."""
        if self.window is None:
            weights_BKS = masked_softmax(self.attention(states_BKH, memory.keys_BSA), memory.mask_BS)
            context_BKE = attend(weights_BKS, memory.annotations_BSE)
        else:
            weights_BKS, context_BKE = self.window(
                self.attention, states_BKH, steps_K, memory.keys_BSA, memory.annotations_BSE, memory.lengths_B
            )
        return product_of_parts(self.readout, states_BKH, context_BKE).tanh(), weights_BKS

    def step(self, embedded_ND: Tensor, state: DecoderState, memory: Memory) -> Decoded:
        parts = (embedded_ND,) if state.feed_NR is None else (embedded_ND, state.feed_NR)
        hidden = self.rnn.step(parts, state.hidden, state.drawn)
        top_NH = self.rnn.top(hidden)
        states_BKH = top_NH.view(memory.mask_BS.shape[0], -1, top_NH.shape[-1])
        steps_K = torch.full((states_BKH.shape[1],), state.steps + 1, device=top_NH.device)
        readout_BKR, weights_BKS = self.read_out(states_BKH, steps_K, memory)
        readout_NR = readout_BKR.flatten(0, 1)
        feed_NR = readout_NR if self.input_feeding else None
        after = replace(state, hidden=hidden, steps=state.steps + 1, feed_NR=feed_NR)
        return readout_NR, after, weights_BKS.flatten(0, 1)

    def forward(self, embedded_BTD: Tensor, state: DecoderState, memory: Memory) -> tuple[Tensor, Tensor]:
        if self.input_feeding and (self.window is not None or self.rnn.normed):  # a loop with windows was no faster
            return super().forward(embedded_BTD, state, memory)
        if self.input_feeding:
            return self._forward_feeding(embedded_BTD, state, memory)
        steps_T = state.steps + 1 + torch.arange(embedded_BTD.shape[1], device=embedded_BTD.device)
        return self.read_out(self.rnn.sequence(embedded_BTD, state.hidden), steps_T, memory)

    def _forward_feeding(self, embedded_BTD: Tensor, state: DecoderState, memory: Memory) -> tuple[Tensor, Tensor]:
        """`forward` with input feeding and global attention."""
        embedded_TBD = embedded_BTD.transpose(0, 1).contiguous()
        cell, inputs_TBG, w_feed_GR, stack = self.rnn.loop_parts(embedded_TBD, state.hidden)
        additive = self.attention if isinstance(self.attention, AdditiveScore) else None
        readouts_TBR, weights_TBS = FeedingLoop.apply(  # type: ignore[no-untyped-call]
            cell,
            inputs_TBG,
            memory.keys_BSA,
            memory.annotations_BSE,
            memory.mask_BS,
            w_feed_GR,
            self.readout.weight,
            None if additive is None else additive.query.weight,
            None if additive is None else additive.v,
            1.0 if isinstance(self.attention, AdditiveScore) else self.attention.factor,
            *stack,
        )
        return readouts_TBR.transpose(0, 1), weights_TBS.transpose(0, 1)


class PlainDecoder(Decoder):
    """The encoder-decoder without attention: all of the source in s_0 = tanh(W_s [→h_S; ←h_1]).

    s_t = GRU(y_{t-1}, s_{t-1}) and the readout is s_t (Sutskever et al. 2014); `feed_context` also gives
    [→h_S; ←h_1] to every step (Cho et al. 2014). Its weights are an empty array: there are none.
    """

    def __init__(
        self, config: PlainConfig, *, embedding_size: int, annotation_size: int, start_size: int,
        readout_size: int, dropout: float,
    ) -> None:  # fmt: skip
        context_size = annotation_size if config.feed_context else 0
        rnn = RecurrentStack(config.cell, embedding_size + context_size, config.hidden_size, config.num_layers, dropout)
        super().__init__(rnn, annotation_size)
        self.feed_context = config.feed_context
        self.readout_size = readout_size

    def keys(self, annotations_BSE: Tensor) -> Tensor:
        return annotations_BSE[:, :, :0]

    def start_vector(self, memory: Memory) -> Tensor:
        return memory.summary_BE

    def cell_input(self, embedded_BKD: Tensor, memory: Memory) -> tuple[Tensor, ...]:
        """The parts of the cell's input: y, and c with `feed_context`, each [B, K, ...]."""
        if not self.feed_context:
            return (embedded_BKD,)
        return embedded_BKD, memory.summary_BE.unsqueeze(1).expand(-1, embedded_BKD.shape[1], -1)

    def step(self, embedded_ND: Tensor, state: DecoderState, memory: Memory) -> Decoded:
        embedded_BKD = embedded_ND.view(memory.mask_BS.shape[0], -1, embedded_ND.shape[-1])
        parts = tuple(part.flatten(0, 1) for part in self.cell_input(embedded_BKD, memory))
        hidden = self.rnn.step(parts, state.hidden, state.drawn)
        return self.rnn.top(hidden), replace(state, hidden=hidden, steps=state.steps + 1), embedded_ND[:, :0]

    def forward(self, embedded_BTD: Tensor, state: DecoderState, memory: Memory) -> tuple[Tensor, Tensor]:
        parts = self.cell_input(embedded_BTD, memory)
        states_BTH = self.rnn.sequence(torch.cat(parts, -1), state.hidden)
        return states_BTH, embedded_BTD[:, :, :0]
