"""Teacher forcing where attention and the cell take turns: loops of decoders with one GRU layer as one autograd node.

Equal to repeated steps in values and gradients, but every weight gets its gradient from one product over all steps
after the backward loop, and the tanh of additive scores (T x B x S x A) is computed again instead of kept.

Axes: T target positions, B sentences, S source positions, E annotation size, H decoder size, A attention size,
R readout size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.model.attention_steps import AdditiveSteps, AttentionSteps, DotSteps
from nmt.model.gru import GRUSlopes, GRUSteps, Views


class BahdanauLoop(torch.autograd.Function):
    """States, contexts and weights of all steps of an additive decoder with one GRU layer.

    apply(inputs_TB3H, s0_BH, keys_BSA, annotations_BSE, mask_BS, w_context_3HE, w_state_XH, b_state_3H, v_A, u_A) ->
    (joint_TBJ = [s_t; c_t], weights_TBS). `inputs_TB3H` is the GRU's product with the previous word and its input
    bias, gates in the order n, r, z, as are the rows of `w_context_3HE`; `w_state_XH` stacks the GRU's W_hh [3H, H]
    over W_a [A, H], so that each step multiplies the state once. `u_A` is what coverage is multiplied by in the score,
    or None for no coverage. Gradients flow to all but the mask, and back from both outputs.
    """

    @staticmethod
    def forward(
        ctx: Any, inputs_TB3H: Tensor, s0_BH: Tensor, keys_BSA: Tensor, annotations_BSE: Tensor, mask_BS: Tensor,
        w_context_3HE: Tensor, w_state_XH: Tensor, b_state_3H: Tensor, v_A: Tensor, u_A: Tensor | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        steps, batch, gates = inputs_TB3H.shape
        size = s0_BH.shape[1]
        joint_TBJ = inputs_TB3H.new_empty(steps + 1, batch, size + annotations_BSE.shape[2])  # s_0 first
        weights_TBS = inputs_TB3H.new_empty(steps, batch, keys_BSA.shape[1])
        products_TBX = inputs_TB3H.new_empty(steps, batch, w_state_XH.shape[0])
        input_B3H = torch.empty_like(inputs_TB3H[0])
        joint_TBJ[0, :, :size] = s0_BH
        w_state_HX, w_context_E3H = w_state_XH.t(), w_context_3HE.t()
        bias_X = torch.cat([b_state_3H, b_state_3H.new_zeros(len(w_state_XH) - gates)])
        attention = AdditiveSteps(keys_BSA, mask_BS, v_A, u_A)
        states, contexts = joint_TBJ[:, :, :size].unbind(0), joint_TBJ[1:, :, size:].unbind(0)
        inputs, products, queries = inputs_TB3H.unbind(0), products_TBX.unbind(0), products_TBX[:, :, gates:].unbind(0)
        weights, rows = weights_TBS.unbind(0), weights_TBS.unsqueeze(2).unbind(0)
        gru = GRUSteps(None, products_TBX, states[:-1], states[1:], _by_step)
        input_parts = gru.input_parts(input_B3H, _as_it_is)[0]
        for t in range(steps):
            torch.addmm(bias_X, states[t], w_state_HX, out=products[t])
            attention.weigh(queries[t], weights[t])
            contexts[t].copy_(torch.bmm(rows[t], annotations_BSE).squeeze(1))
            torch.addmm(inputs[t], contexts[t], w_context_E3H, out=input_B3H)
            gru.advance(t, input_parts)
        ctx.save_for_backward(
            keys_BSA, annotations_BSE, mask_BS, w_context_3HE, w_state_XH, v_A, u_A,
            joint_TBJ, weights_TBS, products_TBX, gru.candidates_H,
        )  # fmt: skip
        ctx.set_materialize_grads(False)
        return joint_TBJ[1:], weights_TBS

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_joint_TBJ: Tensor | None, grad_weights_TBS: Tensor | None) -> tuple[Tensor | None, ...]:
        (keys_BSA, annotations_BSE, mask_BS, w_context_3HE, w_state_XH, v_A, u_A,
         joint_TBJ, weights_TBS, products_TBX, candidates_TBH) = ctx.saved_tensors  # fmt: skip
        steps, batch, size = candidates_TBH.shape
        if grad_joint_TBJ is None:
            grad_joint_TBJ = torch.zeros_like(joint_TBJ[1:])
        grad_c_TBE = torch.empty_like(grad_joint_TBJ[:, :, size:])
        # dn, dr, dz and that of the state's part of n, then that of the query: see GRUSlopes
        blocks_TBY = joint_TBJ.new_empty(steps, batch, size + len(w_state_XH))
        blocks_TB4H = blocks_TBY[:, :, : 4 * size].unflatten(2, (4, size))
        slopes = GRUSlopes(products_TBX, candidates_TBH, joint_TBJ[:-1, :, :size], blocks_TB4H, _by_step)
        attention = AdditiveSteps(keys_BSA, mask_BS, v_A, u_A)
        attention.start_backward(weights_TBS)
        weights, grad_c = weights_TBS.unbind(0), grad_c_TBE.unbind(0)
        grad_states, grad_contexts = (part.unbind(0) for part in grad_joint_TBJ.tensor_split([size], 2))
        queries = products_TBX[:, :, 3 * size :].unbind(0)
        of_input, of_query, of_state = (
            blocks_TBY[:, :, columns].unbind(0)
            for columns in (slice(3 * size), slice(4 * size, None), slice(size, None))
        )
        grad_s_BH = grad_states[-1]
        for t in reversed(range(steps)):
            slopes.step(t, grad_s_BH)
            torch.addmm(grad_contexts[t], of_input[t], w_context_3HE, out=grad_c[t])
            grad_a_BS = torch.bmm(annotations_BSE, grad_c[t].unsqueeze(2)).squeeze(2)
            if grad_weights_TBS is not None:
                grad_a_BS += grad_weights_TBS[t]
            attention.backward(t, queries[t], weights[t], grad_a_BS, of_query[t])
            kept_BH = grad_s_BH * slopes.keep_H[t]
            grad_s_BH = kept_BH if t == 0 else kept_BH.add_(grad_states[t - 1])
            grad_s_BH.addmm_(of_state[t], w_state_XH)
        blocks_NY, joint_NJ = blocks_TBY.flatten(0, 1), joint_TBJ.flatten(0, 1)
        return (
            blocks_TBY[:, :, : 3 * size],
            grad_s_BH,
            attention.grad_keys(products_TBX[:, :, 3 * size :]),
            torch.bmm(weights_TBS.permute(1, 2, 0), grad_c_TBE.transpose(0, 1)),
            None,
            blocks_NY[:, : 3 * size].t() @ joint_NJ[batch:, size:],
            blocks_NY[:, size:].t() @ joint_NJ[:-batch, :size],
            blocks_NY[:, size : 4 * size].sum(0),
            attention.grad_v_A,
            attention.grad_u(),
        )


class FeedingLoop(torch.autograd.Function):
    """Readouts and weights of all steps of Luong's decoder with input feeding and one GRU layer.

    apply(inputs_TB3H, s0_BH, keys_BSA, annotations_BSE, mask_BS, w_feed_3HR, w_state_3HH, b_state_3H, w_readout_RJ,
    factor, w_query_AH, v_A) -> (readouts_TBR, weights_TBS). `inputs_TB3H` is the GRU's product with the previous word
    and its input bias, gates in the order n, r, z, as are the rows of `w_feed_3HR`. The score is the product of state
    and key times `factor`, or additive with `w_query_AH` and `v_A` (None otherwise). Gradients flow to all but the mask
    and the factor, and back from both outputs.
    """

    @staticmethod
    def forward(
        ctx: Any, inputs_TB3H: Tensor, s0_BH: Tensor, keys_BSA: Tensor, annotations_BSE: Tensor, mask_BS: Tensor,
        w_feed_3HR: Tensor, w_state_3HH: Tensor, b_state_3H: Tensor, w_readout_RJ: Tensor, factor: float,
        w_query_AH: Tensor | None, v_A: Tensor | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        steps, batch = inputs_TB3H.shape[:2]
        readout, size = w_readout_RJ.shape[0], s0_BH.shape[1]
        # s̃, s and c of each step, those before the first step first: s̃_0 = 0
        joint_TBJ = inputs_TB3H.new_zeros(steps + 1, batch, readout + size + annotations_BSE.shape[2])
        joint_TBJ[0, :, readout : readout + size] = s0_BH
        weights_TBS = inputs_TB3H.new_empty(steps, batch, keys_BSA.shape[1])
        products_TB3H = torch.empty_like(inputs_TB3H)
        input_B3H = torch.empty_like(inputs_TB3H[0])
        attention = _attention(keys_BSA, mask_BS, factor, v_A)
        feeds, states, contexts = (part.unbind(0) for part in joint_TBJ.tensor_split([readout, readout + size], 2))
        read = joint_TBJ[:, :, readout:].unbind(0)  # state and context
        queries_TBA = None if w_query_AH is None else inputs_TB3H.new_empty(steps, batch, keys_BSA.shape[2])
        queries = states[1:] if queries_TBA is None else queries_TBA.unbind(0)
        inputs, products, weights = inputs_TB3H.unbind(0), products_TB3H.unbind(0), weights_TBS.unbind(0)
        gru = GRUSteps(None, products_TB3H, states[:-1], states[1:], _by_step)
        input_parts = gru.input_parts(input_B3H, _as_it_is)[0]
        for t in range(steps):
            torch.addmm(b_state_3H, states[t], w_state_3HH.t(), out=products[t])
            torch.addmm(inputs[t], feeds[t], w_feed_3HR.t(), out=input_B3H)
            gru.advance(t, input_parts)
            if w_query_AH is not None:
                torch.mm(states[t + 1], w_query_AH.t(), out=queries[t])
            attention.weigh(queries[t], weights[t])
            contexts[t + 1].copy_(torch.bmm(weights[t].unsqueeze(1), annotations_BSE).squeeze(1))
            torch.tanh(read[t + 1] @ w_readout_RJ.t(), out=feeds[t + 1])
        ctx.save_for_backward(
            keys_BSA, annotations_BSE, mask_BS, w_feed_3HR, w_state_3HH, w_readout_RJ, w_query_AH, v_A,
            joint_TBJ, weights_TBS, products_TB3H, gru.candidates_H, queries_TBA,
        )  # fmt: skip
        ctx.factor = factor
        ctx.set_materialize_grads(False)
        return joint_TBJ[1:, :, :readout], weights_TBS

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out_TBR: Tensor | None, grad_weights_TBS: Tensor | None) -> tuple[Tensor | None, ...]:
        (keys_BSA, annotations_BSE, mask_BS, w_feed_3HR, w_state_3HH, w_readout_RJ, w_query_AH, v_A,
         joint_TBJ, weights_TBS, products_TB3H, candidates_TBH, queries_TBA) = ctx.saved_tensors  # fmt: skip
        steps, batch, size = candidates_TBH.shape
        readout = len(w_readout_RJ)
        states_TBH = joint_TBJ[:, :, readout : readout + size]
        if queries_TBA is None:
            queries_TBA = states_TBH[1:]
        blocks_TBY = joint_TBJ.new_empty(steps, batch, 4 * size)
        blocks_TB4H = blocks_TBY.unflatten(2, (4, size))
        slopes = GRUSlopes(products_TB3H, candidates_TBH, states_TBH[:-1], blocks_TB4H, _by_step)
        of_input, of_state = blocks_TBY[:, :, : 3 * size].unbind(0), blocks_TBY[:, :, size:].unbind(0)
        tanh_slope_TBR = 1 - joint_TBJ[1:, :, :readout].square()
        attention = _attention(keys_BSA, mask_BS, ctx.factor, v_A)
        attention.start_backward(weights_TBS)
        grad_read_TBR, grad_q_TBA = torch.empty_like(tanh_slope_TBR), torch.empty_like(queries_TBA)
        grad_c_TBE = torch.empty_like(joint_TBJ[1:, :, readout + size :])
        grad_s_BH, grad_feed_BR = torch.zeros_like(states_TBH[0]), torch.zeros_like(tanh_slope_TBR[0])
        queries, weights, grad_q, grad_c = (
            array.unbind(0) for array in (queries_TBA, weights_TBS, grad_q_TBA, grad_c_TBE)
        )
        for t in reversed(range(steps)):
            if grad_out_TBR is not None:
                grad_feed_BR += grad_out_TBR[t]
            torch.mul(grad_feed_BR, tanh_slope_TBR[t], out=grad_read_TBR[t])
            grad_sc_BJ = grad_read_TBR[t] @ w_readout_RJ
            grad_s_BH += grad_sc_BJ[:, :size]
            grad_c[t].copy_(grad_sc_BJ[:, size:])
            grad_a_BS = torch.bmm(annotations_BSE, grad_c[t].unsqueeze(2)).squeeze(2)
            if grad_weights_TBS is not None:
                grad_a_BS += grad_weights_TBS[t]
            attention.backward(t, queries[t], weights[t], grad_a_BS, grad_q[t])
            if w_query_AH is None:
                grad_s_BH += grad_q[t]
            else:
                grad_s_BH.addmm_(grad_q[t], w_query_AH)
            slopes.step(t, grad_s_BH)
            grad_s_BH.mul_(slopes.keep_H[t]).addmm_(of_state[t], w_state_3HH)
            torch.mm(of_input[t], w_feed_3HR, out=grad_feed_BR)
        blocks_NY, joint_NJ = blocks_TBY.flatten(0, 1), joint_TBJ.flatten(0, 1)
        return (
            blocks_TBY[:, :, : 3 * size],
            grad_s_BH,
            attention.grad_keys(queries_TBA),
            torch.bmm(weights_TBS.permute(1, 2, 0), grad_c_TBE.transpose(0, 1)),
            None,
            blocks_NY[:, : 3 * size].t() @ joint_NJ[:-batch, :readout],
            blocks_NY[:, size:].t() @ states_TBH[:-1].flatten(0, 1),
            blocks_NY[:, size:].sum(0),
            grad_read_TBR.flatten(0, 1).t() @ joint_NJ[batch:, readout:],
            None,
            None if w_query_AH is None else grad_q_TBA.flatten(0, 1).t() @ states_TBH[1:].flatten(0, 1),
            attention.grad_v_A if isinstance(attention, AdditiveSteps) else None,
        )


def _attention(keys_BSA: Tensor, mask_BS: Tensor, factor: float, v_A: Tensor | None) -> AttentionSteps:
    """The score of Luong's loop: additive with `v_A`, else a product."""
    return DotSteps(keys_BSA, mask_BS, factor) if v_A is None else AdditiveSteps(keys_BSA, mask_BS, v_A)


def _by_step(array_TBX: Tensor) -> Views:
    """The part of each step."""
    return array_TBX.unbind(0)


def _as_it_is(array_BX: Tensor) -> Views:
    """An array of one step."""
    return (array_BX,)
