"""The fast teacher-forced loop of Bahdanau's decoder as one autograd function.

Equal to repeated steps in values and gradients, but every weight gets its gradient from one product over all
steps after the backward loop, and the tanh of the scores (T x B x S x A) is computed again instead of kept.

Axes: T target positions, B sentences, S source positions, E annotation size, H decoder size, A attention size.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.model.attention import additive_slope


def gru_gates(input_B3H: Tensor, state_B3H: Tensor, s_BH: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The next state, and gates r and z side by side [B, 2H], candidate n and the state's part of it, [B, H] each.

    `input_B3H` and `state_B3H` are the two affine products of torch's GRU in its order r, z, n.
    """
    size = s_BH.shape[-1]
    rz_B2H = (input_B3H[:, : 2 * size] + state_B3H[:, : 2 * size]).sigmoid_()
    state_n_BH = state_B3H[:, 2 * size :]
    n_BH = torch.addcmul(input_B3H[:, 2 * size :], rz_B2H[:, :size], state_n_BH).tanh_()
    return torch.lerp(n_BH, s_BH, rz_B2H[:, size:]), rz_B2H, n_BH, state_n_BH


def gru_gates_backward(
    grad_BH: Tensor, rz_B2H: Tensor, n_BH: Tensor, state_n_BH: Tensor, s_BH: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `gru_gates`' input [B, 3H], state product [B, 3H], and of the previous state past the products."""
    r_BH, z_BH = rz_B2H.chunk(2, -1)
    grad_n_BH = grad_BH * (1 - z_BH) * (1 - n_BH * n_BH)
    grad_r_BH = grad_n_BH * state_n_BH * r_BH * (1 - r_BH)
    grad_z_BH = grad_BH * (s_BH - n_BH) * z_BH * (1 - z_BH)
    grad_input_B3H = torch.cat([grad_r_BH, grad_z_BH, grad_n_BH], -1)
    grad_state_B3H = torch.cat([grad_r_BH, grad_z_BH, grad_n_BH * r_BH], -1)
    return grad_input_B3H, grad_state_B3H, grad_BH * z_BH


class BahdanauLoop(torch.autograd.Function):
    """States, contexts and weights of all steps of an additive decoder with one GRU layer.

    apply(inputs_TB3H, s0_BH, keys_BSA, annotations_BSE, mask_BS, w_context_3HE, w_state_XH, b_state_3H, v_A, u_A) ->
    (states_TBH, contexts_TBE, weights_TBS). `inputs_TB3H` is the GRU's product with the previous word and its input
    bias; `w_state_XH` stacks W_a [A, H] over the GRU's W_hh [3H, H], so that each step multiplies the state once.
    `u_A` is what coverage is multiplied by in the score, or None for no coverage. Gradients flow to all but the mask,
    and back from all three outputs.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs_TB3H: Tensor,
        s0_BH: Tensor,
        keys_BSA: Tensor,
        annotations_BSE: Tensor,
        mask_BS: Tensor,
        w_context_3HE: Tensor,
        w_state_XH: Tensor,
        b_state_3H: Tensor,
        v_A: Tensor,
        u_A: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        steps, batch = inputs_TB3H.shape[:2]
        size, attention = s0_BH.shape[1], keys_BSA.shape[2]
        states_TBH = inputs_TB3H.new_empty(steps + 1, batch, size)  # s_0 first
        contexts_TBE = inputs_TB3H.new_empty(steps, batch, annotations_BSE.shape[2])
        weights_TBS = inputs_TB3H.new_empty(steps, batch, keys_BSA.shape[1])
        queries_TBA = inputs_TB3H.new_empty(steps, batch, attention)
        gates_TB4H = inputs_TB3H.new_empty(steps, batch, 4 * size)  # r, z, n and the state's part of n
        states_TBH[0] = s0_BH
        w_state_HX, w_context_E3H = w_state_XH.t(), w_context_3HE.t()
        padding_BS = ~mask_BS
        pairs_BSA = torch.empty_like(keys_BSA)
        coverage_BS = torch.zeros_like(keys_BSA[:, :, 0])
        for t in range(steps):
            product_BX = states_TBH[t] @ w_state_HX
            queries_TBA[t] = product_BX[:, :attention]
            torch.add(keys_BSA, queries_TBA[t].unsqueeze(1), out=pairs_BSA)
            if u_A is not None:
                pairs_BSA.addcmul_(coverage_BS.unsqueeze(2), u_A)
            scores_BS = (pairs_BSA.tanh_() @ v_A).masked_fill_(padding_BS, -math.inf)
            weights_TBS[t] = scores_BS.softmax(-1)
            if u_A is not None:
                coverage_BS += weights_TBS[t]
            contexts_TBE[t] = torch.bmm(weights_TBS[t].unsqueeze(1), annotations_BSE).squeeze(1)
            input_B3H = torch.addmm(inputs_TB3H[t], contexts_TBE[t], w_context_E3H)
            state_B3H = product_BX[:, attention:] + b_state_3H
            states_TBH[t + 1], *gates = gru_gates(input_B3H, state_B3H, states_TBH[t])
            torch.cat(gates, -1, out=gates_TB4H[t])
        ctx.save_for_backward(
            keys_BSA, annotations_BSE, w_context_3HE, w_state_XH, v_A, u_A,
            states_TBH, contexts_TBE, weights_TBS, queries_TBA, gates_TB4H,
        )  # fmt: skip
        ctx.set_materialize_grads(False)
        return states_TBH[1:], contexts_TBE, weights_TBS

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_states_TBH: Tensor | None, grad_contexts_TBE: Tensor | None, grad_weights_TBS: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        (keys_BSA, annotations_BSE, w_context_3HE, w_state_XH, v_A, u_A,
         states_TBH, contexts_TBE, weights_TBS, queries_TBA, gates_TB4H) = ctx.saved_tensors  # fmt: skip
        steps, batch, size = gates_TB4H.shape[0], gates_TB4H.shape[1], states_TBH.shape[2]
        attention = keys_BSA.shape[2]
        grad_inputs_TB3H = states_TBH.new_empty(steps, batch, 3 * size)
        grad_products_TBX = states_TBH.new_empty(steps, batch, attention + 3 * size)
        grad_c_TBE = torch.empty_like(contexts_TBE)
        grad_keys_BSA, grad_v_A, grad_u_A = torch.zeros_like(keys_BSA), torch.zeros_like(v_A), torch.zeros_like(v_A)
        if u_A is not None:
            coverage_TBS = weights_TBS.cumsum(0)  # after each step
            grad_coverage_BS = torch.zeros_like(weights_TBS[0])  # of the coverage after the step in hand
        grad_s_BH = states_TBH.new_zeros(batch, size)
        for t in reversed(range(steps)):
            if grad_states_TBH is not None:
                grad_s_BH = grad_s_BH + grad_states_TBH[t]
            rz_B2H, n_BH, state_n_BH = gates_TB4H[t].split([2 * size, size, size], -1)
            grad_input, grad_state, grad_s_BH = gru_gates_backward(grad_s_BH, rz_B2H, n_BH, state_n_BH, states_TBH[t])
            grad_inputs_TB3H[t] = grad_input
            torch.mm(grad_input, w_context_3HE, out=grad_c_TBE[t])
            if grad_contexts_TBE is not None:
                grad_c_TBE[t] += grad_contexts_TBE[t]
            grad_a_BS = torch.bmm(annotations_BSE, grad_c_TBE[t].unsqueeze(2)).squeeze(2)
            if grad_weights_TBS is not None:
                grad_a_BS = grad_a_BS + grad_weights_TBS[t]
            if u_A is not None:
                grad_a_BS = grad_a_BS + grad_coverage_BS
            weights_BS = weights_TBS[t]
            grad_e_BS = weights_BS * (grad_a_BS - (weights_BS * grad_a_BS).sum(-1, keepdim=True))
            pairs_BSA = keys_BSA + queries_TBA[t].unsqueeze(1)
            if u_A is not None and t > 0:
                pairs_BSA.addcmul_(coverage_TBS[t - 1].unsqueeze(2), u_A)
            slope_BSA, step_grad_v_A = additive_slope(pairs_BSA, grad_e_BS)
            if u_A is not None and t > 0:
                grad_u_A += ((coverage_TBS[t - 1] * grad_e_BS).view(1, -1) @ slope_BSA.flatten(0, 1)).squeeze(0)
                grad_coverage_BS += (slope_BSA @ (u_A * v_A)) * grad_e_BS
            grad_v_A += step_grad_v_A
            grad_q_BA = torch.bmm(grad_e_BS.unsqueeze(1), slope_BSA).squeeze(1) * v_A
            grad_keys_BSA.addcmul_(slope_BSA, grad_e_BS.unsqueeze(2))
            torch.cat([grad_q_BA, grad_state], -1, out=grad_products_TBX[t])
            grad_s_BH = torch.addmm(grad_s_BH, grad_products_TBX[t], w_state_XH)
        grad_products_NX = grad_products_TBX.flatten(0, 1)
        return (
            grad_inputs_TB3H,
            grad_s_BH,
            grad_keys_BSA.mul_(v_A),
            torch.bmm(weights_TBS.permute(1, 2, 0), grad_c_TBE.transpose(0, 1)),
            None,
            grad_inputs_TB3H.flatten(0, 1).t() @ contexts_TBE.flatten(0, 1),
            grad_products_NX.t() @ states_TBH[:-1].flatten(0, 1),
            grad_products_NX[:, attention:].sum(0),
            grad_v_A,
            None if u_A is None else grad_u_A.mul_(v_A),
        )
