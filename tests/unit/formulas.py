"""The papers' formulas in NumPy as they are printed: one sentence, loops over t and j from 1, no mask and no batch.

They share no code with the package: parameters come by their names in a state dict, everything else is written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from nmt.config import BahdanauConfig, LuongConfig, WindowConfig

Array = np.ndarray
Parameters = Mapping[str, Array]


def numbers(module: torch.nn.Module) -> dict[str, Array]:
    """A module's parameters by name."""
    return {name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}


def sigmoid(x: Array | float) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def softmax(scores: Sequence[float] | Array) -> Array:
    powers = np.exp(np.asarray(scores) - np.max(scores))
    return np.asarray(powers / powers.sum())


def gru(p: Parameters, prefix: str, x: Array, h: Array) -> Array:
    """torch's GRU from its documentation: the reset gate after the product."""
    wi, wh, bi, bh = (p[f"{prefix}.{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    (ir, iz, inew), (hr, hz, hnew) = np.split(wi @ x + bi, 3), np.split(wh @ h + bh, 3)
    z = sigmoid(iz + hz)
    return np.asarray((1 - z) * np.tanh(inew + sigmoid(ir + hr) * hnew) + z * h)


def lstm(p: Parameters, prefix: str, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    wi, wh, bi, bh = (p[f"{prefix}.{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    i, f, g, o = np.split(wi @ x + bi + wh @ h + bh, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


class Recurrence:
    """The decoder's layers; s_0 = tanh(W_s ←h_1), one W_s a layer, and c_0 = 0."""

    def __init__(self, config: BahdanauConfig | LuongConfig, p: Parameters, start: Array) -> None:
        self.cell, self.p = config.cell, p
        self.states = [np.tanh(p[f"initial.{layer}.weight"] @ start) for layer in range(config.num_layers)]
        self.cells = [np.zeros_like(state) for state in self.states]

    def step(self, x: Array) -> Array:
        for layer, (h, c) in enumerate(zip(self.states, self.cells, strict=True)):
            prefix = f"rnn.layers.{layer}"
            if self.cell == "gru":
                x = gru(self.p, prefix, x, h)
            else:
                x, self.cells[layer] = lstm(self.p, prefix, x, h, c)
            self.states[layer] = x
        return x


def additive(p: Parameters, s: Array, hj: Array, coverage: float = 0.0) -> float:
    """e = v_a·tanh(W_a s + U_a h_j + V_a C_j)."""
    inside = p["attention.query.weight"] @ s + p["attention.key.weight"] @ hj
    if "attention.coverage" in p:
        inside = inside + p["attention.coverage"] * coverage
    return float(p["attention.v"] @ np.tanh(inside))


def multiplicative(score: str, p: Parameters, s: Array, hj: Array, *, scale: bool) -> float:
    """e = s·h_j, or s·W_a h_j; over √d_s with `scale`."""
    product = s @ hj if score == "dot" else s @ p["attention.key.weight"] @ hj
    return float(product / np.sqrt(len(s)) if scale else product)


def centre(window: WindowConfig, p: Parameters, s: Array, t: int, length: int) -> float:
    """p_t of local-m and local-p."""
    if window.kind == "monotonic":
        return float(min(t, length))
    return float(length * sigmoid(p["window.v"] @ np.tanh(p["window.query.weight"] @ s)))


def inside(p_t: float, half_width: int, length: int) -> list[int]:
    """The positions of [p_t - D, p_t + D] that the sentence has."""
    return [j for j in range(1, length + 1) if p_t - half_width <= j <= p_t + half_width]


def local_weights(window: WindowConfig, e: Mapping[int, float], p_t: float, length: int) -> Array:
    """α of a step, [S], from the scores e_j; σ = D / 2."""
    near = inside(p_t, window.half_width, length)
    weights = np.zeros(length)
    for j, alpha in zip(near, softmax([e[j] for j in near]), strict=True):
        if window.kind == "predictive":
            alpha = alpha * np.exp(-((j - p_t) ** 2) / (2 * (window.half_width / 2) ** 2))
        weights[j - 1] = alpha
    return weights


def bahdanau(
    config: BahdanauConfig, p: Parameters, h: Array, start: Array, words: Sequence[Array]
) -> tuple[Array, Array]:
    """Readouts [T, R] and weights [T, S]; `words` embeds y_0 … y_{T-1}."""
    recurrence = Recurrence(config, p, start)
    covered = np.zeros(len(h))
    readouts, weights = [], []
    for y in words:
        before = recurrence.states[-1]
        alpha = softmax([additive(p, before, hj, covered[j]) for j, hj in enumerate(h)])
        c = sum(alpha[j] * hj for j, hj in enumerate(h))
        s = recurrence.step(np.concatenate([y, c]))
        covered = covered + alpha
        if config.readout == "state":
            readouts.append(s)
        elif config.readout == "deep":
            readouts.append(np.tanh(p["readout.weight"] @ np.concatenate([s, c, y])))
        else:
            readouts.append((p["readout.weight"] @ np.concatenate([before, c, y])).reshape(-1, 2).max(1))
        weights.append(alpha)
    return np.stack(readouts), np.stack(weights)


def luong(config: LuongConfig, p: Parameters, h: Array, start: Array, words: Sequence[Array]) -> tuple[Array, Array]:
    """Readouts s̃ [T, R] and weights [T, S]; `words` embeds y_0 … y_{T-1}."""
    recurrence = Recurrence(config, p, start)
    readout = np.zeros(len(p["readout.weight"]))
    readouts, weights = [], []
    for t, y in enumerate(words, 1):
        s = recurrence.step(np.concatenate([y, readout]) if config.input_feeding else y)
        if config.score == "concat":
            e = {j: additive(p, s, hj) for j, hj in enumerate(h, 1)}
        else:
            e = {j: multiplicative(config.score, p, s, hj, scale=config.scale) for j, hj in enumerate(h, 1)}
        if config.window is None:
            alpha = softmax([e[j] for j in sorted(e)])
        else:
            alpha = local_weights(config.window, e, centre(config.window, p, s, t, len(h)), len(h))
        c = sum(alpha[j] * hj for j, hj in enumerate(h))
        readout = np.tanh(p["readout.weight"] @ np.concatenate([s, c]))
        readouts.append(readout)
        weights.append(alpha)
    return np.stack(readouts), np.stack(weights)
