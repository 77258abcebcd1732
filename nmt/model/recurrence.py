"""Teacher forcing where attention and the cells take turns: loops of decoders as one autograd function.

Equal to repeated steps in values and gradients, but every weight gets its gradient from one product over all steps
after the backward loop, and the tanh of additive scores (T x B x S x A) is computed again instead of kept. Dropout
between layers has one mask for all steps.

Axes: T target positions, B sentences, S source positions, E annotation size, H decoder size, A attention size,
R readout size, M size of a state and G rows of the weights of a cell (see `nmt.model.cell_steps`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.model.attention_steps import AdditiveSteps, AttentionSteps, DotSteps
from nmt.model.cell_steps import LoopCell
from nmt.model.gemm import product, write_product, write_sum
from nmt.model.stack_steps import LoopLayer, StackSlopes, StackSteps, product_gradient


class BahdanauLoop(torch.autograd.Function):
    """States, contexts and weights of all steps of an additive decoder.

    apply(cell, inputs_TBG, keys_BSA, annotations_BSE, mask_BS, w_context_GE, v_A, u_A, *stack) ->
    (joint_TBJ = [s_t; c_t], weights_TBS). `inputs_TBG` is the first layer's product with the previous word and its
    input bias, in the cell's `input_order`, as are the rows of `w_context_GE`. `u_A` is what coverage is multiplied by
    in the score, or None for no coverage. `stack` are the parts of every `LoopLayer`; below the weights of the last
    one's state are those of the query, so that each step multiplies that state once. Gradients flow to all but the
    masks, and back from both outputs.
    """

    @staticmethod
    def forward(
        ctx: Any, cell: LoopCell, inputs_TBG: Tensor, keys_BSA: Tensor, annotations_BSE: Tensor, mask_BS: Tensor,
        w_context_GE: Tensor, v_A: Tensor, u_A: Tensor | None, *stack: Tensor | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        layers = LoopLayer.all_of(stack)
        steps, batch, gates = inputs_TBG.shape
        size = layers[0].w_state_XH.shape[1]
        state = cell.sizes * size
        joint_TBJ = inputs_TBG.new_empty(steps + 1, batch, state + annotations_BSE.shape[2])  # the first state first
        weights_TBS = inputs_TBG.new_empty(steps, batch, keys_BSA.shape[1])
        rnn = StackSteps(cell, layers, joint_TBJ[:, :, :state])
        attention = AdditiveSteps(keys_BSA, mask_BS, v_A, u_A)
        inputs, contexts = inputs_TBG.unbind(0), joint_TBJ[1:, :, state:].unbind(0)
        queries_TBA = rnn.top_products_TBX[:, :, gates:]
        queries, weights, rows = queries_TBA.unbind(0), weights_TBS.unbind(0), weights_TBS.unsqueeze(2).unbind(0)
        w_context_EG = w_context_GE.t()
        for t in range(steps):
            rnn.multiply(t)
            attention.weigh(queries[t], weights[t])
            contexts[t].copy_(torch.bmm(rows[t], annotations_BSE).squeeze(1))
            write_sum(inputs[t], contexts[t], w_context_EG, rnn.input_BG)
            rnn.advance(t)
        ctx.save_for_backward(
            keys_BSA, annotations_BSE, mask_BS, w_context_GE, v_A, u_A, joint_TBJ, weights_TBS, queries_TBA, *rnn.saved
        )
        ctx.cell, ctx.state = cell, state
        ctx.set_materialize_grads(False)
        return joint_TBJ[1:, :, state - size :], weights_TBS

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_joint_TBJ: Tensor | None, grad_weights_TBS: Tensor | None) -> tuple[Tensor | None, ...]:
        (keys_BSA, annotations_BSE, mask_BS, w_context_GE, v_A, u_A,
         joint_TBJ, weights_TBS, queries_TBA, *saved) = ctx.saved_tensors  # fmt: skip
        rnn = StackSlopes(ctx.cell, saved, joint_TBJ[:, :, : ctx.state])
        steps, size = len(weights_TBS), rnn.size
        contexts_TBE = joint_TBJ[1:, :, ctx.state :]
        if grad_joint_TBJ is None:
            grad_joint_TBJ = torch.zeros_like(joint_TBJ[1:, :, ctx.state - size :])
        grad_c_TBE = torch.empty_like(grad_joint_TBJ[:, :, size:])
        attention = AdditiveSteps(keys_BSA, mask_BS, v_A, u_A)
        attention.start_backward(weights_TBS)
        queries, weights, grad_c = queries_TBA.unbind(0), weights_TBS.unbind(0), grad_c_TBE.unbind(0)
        grad_states, grad_contexts = (part.unbind(0) for part in grad_joint_TBJ.tensor_split([size], 2))
        rnn.grad_h.copy_(grad_states[-1])
        for t in reversed(range(steps)):
            rnn.step(t)
            write_sum(grad_contexts[t], rnn.of_input[t], w_context_GE, grad_c[t])
            grad_a_BS = torch.bmm(annotations_BSE, grad_c[t].unsqueeze(2)).squeeze(2)
            if grad_weights_TBS is not None:
                grad_a_BS += grad_weights_TBS[t]
            attention.backward(t, queries[t], weights[t], grad_a_BS, rnn.of_more[t])
            rnn.back(t, grad_states[t - 1] if t > 0 else None)
        return (
            None,
            rnn.grad_inputs,
            attention.grad_keys(queries_TBA),
            torch.bmm(weights_TBS.permute(1, 2, 0), grad_c_TBE.transpose(0, 1)),
            None,
            product_gradient(rnn.grad_inputs, contexts_TBE),
            attention.grad_v_A,
            attention.grad_u(),
            *rnn.gradients(),
        )


class FeedingLoop(torch.autograd.Function):
    """Readouts and weights of all steps of Luong's decoder with input feeding and global attention.

    apply(cell, inputs_TBG, keys_BSA, annotations_BSE, mask_BS, w_feed_GR, w_readout_RJ, w_query_AH, v_A, factor,
    *stack) -> (readouts_TBR, weights_TBS). `inputs_TBG` is the first layer's product with the previous word and its
    input bias, in the cell's `input_order`, as are the rows of `w_feed_GR`; `stack` are the parts of every `LoopLayer`.
    The score is the product of state and key times `factor`, or additive with `w_query_AH` and `v_A` (None otherwise).
    Gradients flow to all tensors but the masks, and back from both outputs.
    """

    @staticmethod
    def forward(
        ctx: Any, cell: LoopCell, inputs_TBG: Tensor, keys_BSA: Tensor, annotations_BSE: Tensor, mask_BS: Tensor,
        w_feed_GR: Tensor, w_readout_RJ: Tensor, w_query_AH: Tensor | None, v_A: Tensor | None, factor: float,
        *stack: Tensor | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        layers = LoopLayer.all_of(stack)
        steps, batch = inputs_TBG.shape[:2]
        readout, size = w_readout_RJ.shape[0], layers[0].w_state_XH.shape[1]
        state = cell.sizes * size
        # s̃, the state and c of each step, those before the first step first: s̃_0 = 0
        joint_TBJ = inputs_TBG.new_zeros(steps + 1, batch, readout + state + annotations_BSE.shape[2])
        feeds_TBR, states_TBM, contexts_TBE = joint_TBJ.tensor_split([readout, readout + state], 2)
        weights_TBS = inputs_TBG.new_empty(steps, batch, keys_BSA.shape[1])
        queries_TBA = inputs_TBG.new_empty(steps, batch, 0 if w_query_AH is None else len(w_query_AH))
        rnn = StackSteps(cell, layers, states_TBM)
        attention = _attention(keys_BSA, mask_BS, factor, v_A)
        feeds, contexts, h = feeds_TBR.unbind(0), contexts_TBE.unbind(0), rnn.h[-1]
        read = joint_TBJ[:, :, readout + state - size :].unbind(0)  # h and context
        queries = h[1:] if w_query_AH is None else queries_TBA.unbind(0)
        inputs, weights = inputs_TBG.unbind(0), weights_TBS.unbind(0)
        for t in range(steps):
            rnn.multiply(t)
            write_sum(inputs[t], feeds[t], w_feed_GR.t(), rnn.input_BG)
            rnn.advance(t)
            if w_query_AH is not None:
                write_product(h[t + 1], w_query_AH.t(), queries[t])
            attention.weigh(queries[t], weights[t])
            contexts[t + 1].copy_(torch.bmm(weights[t].unsqueeze(1), annotations_BSE).squeeze(1))
            torch.tanh(product(read[t + 1], w_readout_RJ.t()), out=feeds[t + 1])
        ctx.save_for_backward(
            keys_BSA, annotations_BSE, mask_BS, w_feed_GR, w_readout_RJ, w_query_AH, v_A,
            joint_TBJ, weights_TBS, queries_TBA, *rnn.saved,
        )  # fmt: skip
        ctx.cell, ctx.state, ctx.factor = cell, state, factor
        ctx.set_materialize_grads(False)
        return joint_TBJ[1:, :, :readout], weights_TBS

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out_TBR: Tensor | None, grad_weights_TBS: Tensor | None) -> tuple[Tensor | None, ...]:
        (keys_BSA, annotations_BSE, mask_BS, w_feed_GR, w_readout_RJ, w_query_AH, v_A,
         joint_TBJ, weights_TBS, queries_TBA, *saved) = ctx.saved_tensors  # fmt: skip
        readout = len(w_readout_RJ)
        feeds_TBR, states_TBM, contexts_TBE = joint_TBJ.tensor_split([readout, readout + ctx.state], 2)
        rnn = StackSlopes(ctx.cell, saved, states_TBM)
        size = rnn.size
        h_TBH = states_TBM[1:, :, -size:]
        tanh_slope_TBR = 1 - feeds_TBR[1:].square()
        grad_q_TBA = torch.empty_like(queries_TBA)
        attention = _attention(keys_BSA, mask_BS, ctx.factor, v_A)
        attention.start_backward(weights_TBS)
        grad_read_TBR, grad_c_TBE = torch.empty_like(tanh_slope_TBR), torch.empty_like(contexts_TBE[1:])
        grad_feed_BR = torch.zeros_like(tanh_slope_TBR[0])
        queries, grad_q = queries_TBA.unbind(0), grad_q_TBA.unbind(0)
        if w_query_AH is None:
            queries, grad_q = h_TBH.unbind(0), (torch.empty_like(h_TBH[0]),) * len(h_TBH)
        weights, grad_c = weights_TBS.unbind(0), grad_c_TBE.unbind(0)
        for t in reversed(range(len(h_TBH))):
            if grad_out_TBR is not None:
                grad_feed_BR += grad_out_TBR[t]
            torch.mul(grad_feed_BR, tanh_slope_TBR[t], out=grad_read_TBR[t])
            grad_hc_BJ = product(grad_read_TBR[t], w_readout_RJ)
            grad_h_BH = rnn.grad_h.add_(grad_hc_BJ[:, :size])
            grad_c[t].copy_(grad_hc_BJ[:, size:])
            grad_a_BS = torch.bmm(annotations_BSE, grad_c[t].unsqueeze(2)).squeeze(2)
            if grad_weights_TBS is not None:
                grad_a_BS += grad_weights_TBS[t]
            attention.backward(t, queries[t], weights[t], grad_a_BS, grad_q[t])
            if w_query_AH is None:
                grad_h_BH += grad_q[t]
            else:
                write_sum(grad_h_BH, grad_q[t], w_query_AH, grad_h_BH)
            rnn.step(t)
            write_product(rnn.of_input[t], w_feed_GR, grad_feed_BR)
            rnn.back(t)
        return (
            None,
            rnn.grad_inputs,
            attention.grad_keys(h_TBH if w_query_AH is None else queries_TBA),
            torch.bmm(weights_TBS.permute(1, 2, 0), grad_c_TBE.transpose(0, 1)),
            None,
            product_gradient(rnn.grad_inputs, feeds_TBR[:-1]),
            product_gradient(grad_read_TBR, joint_TBJ[1:, :, readout + ctx.state - size :]),
            None if w_query_AH is None else product_gradient(grad_q_TBA, h_TBH),
            attention.grad_v_A if isinstance(attention, AdditiveSteps) else None,
            None,
            *rnn.gradients(),
        )


def _attention(keys_BSA: Tensor, mask_BS: Tensor, factor: float, v_A: Tensor | None) -> AttentionSteps:
    """The score of Luong's loop: additive with `v_A`, else a product."""
    return DotSteps(keys_BSA, mask_BS, factor) if v_A is None else AdditiveSteps(keys_BSA, mask_BS, v_A)
