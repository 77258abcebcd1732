"""Greedy and beam search over any model that can name the best continuations of a hypothesis.

The books are kept with NumPy on arrays of B x 2K; this file knows neither torch nor the kind of the decoder.

Axes: B live sentences, K hypotheses of a sentence, N = B x K rows, S source positions, C = 2K continuations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nmt.model.stepper import Array, Continuations, Stepper


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation: ids without EOS, log p, its score, and whether the length limit ended it.

    `weights` holds the attention weights of each step (EOS included) over the source positions, or None.
    """

    tokens: tuple[int, ...]
    log_prob: float
    score: float
    length_limited: bool
    weights: Array | None = None


def length_penalty(length: Array | int, alpha: float) -> Any:
    """lp = ((5 + |Y|) / 6)^α, |Y| counting EOS (Wu et al. 2016, eq. 14)."""
    return ((5.0 + length) / 6.0) ** alpha


def coverage_penalty(coverage: Array, beta: float) -> Any:
    """cp = β Σ_j log min(Σ_t α_tj, 1) over the last axis (Wu et al. 2016, eq. 14); a sum of 0 counts as 1e-38."""
    return beta * np.log(np.clip(coverage, 1e-38, 1.0)).sum(-1)


@dataclass
class _Finished:
    """The finished hypotheses of all sentences, as columns."""

    sentence: list[Array] = field(default_factory=list)
    step: list[Array] = field(default_factory=list)  # how many tokens, EOS included where there is one
    parent: list[Array] = field(default_factory=list)  # its row in the beam before its last token
    token: list[Array] = field(default_factory=list)
    log_prob: list[Array] = field(default_factory=list)
    score: list[Array] = field(default_factory=list)
    limited: list[Array] = field(default_factory=list)

    def columns(self) -> tuple[Array, ...]:
        return tuple(np.concatenate(column) if column else np.zeros(0) for column in vars(self).values())


class _Books:
    """The beam of every sentence: what is live, what has finished, and the back-pointers between steps."""

    def __init__(
        self, source_lengths: Array, max_lengths: Array, beam: int, alpha: float, beta: float, n_best: int, eos: int
    ) -> None:
        count = len(max_lengths)
        self.beam, self.alpha, self.beta, self.n_best, self.eos = beam, alpha, beta, n_best, eos
        self.source_lengths, self.max_lengths = source_lengths, max_lengths
        self.live_B = np.arange(count)  # numbers of the live sentences
        self.parents_TBK: list[Array] = []
        self.tokens_TBK: list[Array] = []
        self.weights_TBKS: list[tuple[Array, Array]] = []  # row of each live sentence, weights of the live ones
        self.coverage_BKS: Array = np.zeros((count, 1, int(source_lengths.max(initial=0))))  # of the live hypotheses
        self.finished = _Finished()
        self.finished_B = np.zeros(count, dtype=np.int64)
        self.best_scores_BN = np.full((count, n_best), -np.inf)  # ascending: the first is the n-th best

    def finish(self, rows: Array, columns: Array, found: Continuations, step: int, limited: bool) -> None:
        """Files continuations (`rows` of the live sentences, `columns` of their C) as finished after `step` tokens."""
        if not len(rows):
            return
        log_prob = found.log_probs_BC[rows, columns]
        sentence = self.live_B[rows]
        score = log_prob / length_penalty(step, self.alpha)
        if self.beta:
            score = score + self.coverage_penalties(rows, found.parents_BC[rows, columns], found.weights_BKS)
        entry = (
            sentence,
            np.full(len(rows), step),
            found.parents_BC[rows, columns],
            found.tokens_BC[rows, columns],
            log_prob,
            score,
            np.full(len(rows), limited),
        )
        for column, values in zip(vars(self.finished).values(), entry, strict=True):
            column.append(values)
        np.add.at(self.finished_B, sentence, 1)
        touched = self.live_B[np.unique(rows)]
        scores_BC = np.full((len(self.best_scores_BN), found.log_probs_BC.shape[1]), -np.inf)
        scores_BC[sentence, columns] = score
        ascending_BX = np.sort(np.concatenate([self.best_scores_BN[touched], scores_BC[touched]], 1), 1)
        self.best_scores_BN[touched] = ascending_BX[:, -self.n_best :]

    def coverage_penalties(self, rows: Array, parents: Array, weights_BKS: Array) -> Array:
        """cp of hypotheses that end now: those continuing beam rows `parents` of the live sentences `rows`."""
        real = np.arange(weights_BKS.shape[2]) < self.source_lengths[self.live_B[rows], None]
        coverage = self.coverage_BKS[rows, parents, : weights_BKS.shape[2]] + weights_BKS[rows, parents]
        penalties: Array = coverage_penalty(np.where(real, coverage, 1.0), self.beta)
        return penalties

    def advance(self, found: Continuations, step: int) -> tuple[Array, Array, Array, Array]:
        """Books one step: (kept live rows, their beams' parents [B, K], tokens, log-probabilities)."""
        real_BC = np.isfinite(found.log_probs_BC)
        ends_BC = (found.tokens_BC == self.eos) & real_BC
        # Of the 2K best at most K end, so K others remain; an end counts only among the K best.
        rows, columns = np.nonzero(ends_BC[:, : self.beam])
        self.finish(rows, columns, found, step, limited=False)
        order_BC = np.argsort(ends_BC | ~real_BC, axis=1, kind="stable")[:, : self.beam]
        log_probs_BK = np.take_along_axis(np.where(ends_BC, -np.inf, found.log_probs_BC), order_BC, 1)
        parents_BK = np.take_along_axis(found.parents_BC, order_BC, 1)
        tokens_BK = np.take_along_axis(found.tokens_BC, order_BC, 1)

        limit_B = self.max_lengths[self.live_B]
        at_limit_B = step >= limit_B
        unmet_B = at_limit_B & (self.finished_B[self.live_B] < self.n_best)
        if unmet_B.any():
            rows, places = np.nonzero(np.isfinite(log_probs_BK) & unmet_B[:, None])
            self.finish(rows, order_BC[rows, places], found, step, limited=True)
        # No live hypothesis can beat the n-th best finished one, even if every further word were certain and it had
        # covered all of the source: the coverage penalty is at most 0.
        bound_B = log_probs_BK.max(1) / length_penalty(np.maximum(limit_B, step), self.alpha)
        done_B = (
            at_limit_B
            | (self.finished_B[self.live_B] >= self.beam)
            | (self.best_scores_BN[self.live_B, 0] >= bound_B)
            | ~np.isfinite(log_probs_BK).any(1)
        )
        self._remember(parents_BK, tokens_BK)
        keep = np.nonzero(~done_B)[0]
        self.live_B = self.live_B[keep]
        if self.beta:
            coverage_BKS = self.coverage_BKS + found.weights_BKS
            self.coverage_BKS = np.take_along_axis(coverage_BKS, parents_BK[:, :, None], 1)[keep]
        return keep, parents_BK[keep], tokens_BK[keep], log_probs_BK[keep]

    def _remember(self, parents_BK: Array, tokens_BK: Array) -> None:
        """Back-pointers of this step, stored by sentence number."""
        everywhere = (len(self.max_lengths), parents_BK.shape[1])
        for history, values in ((self.parents_TBK, parents_BK), (self.tokens_TBK, tokens_BK)):
            step_BK = np.zeros(everywhere, dtype=np.int64)
            step_BK[self.live_B] = values
            history.append(step_BK)

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The n best of every sentence, best first, and after those that ended the ones that the length limit cut."""
        sentence, step, parent, token, log_prob, score, limited = self.finished.columns()
        results: list[list[Hypothesis]] = [[] for _ in self.max_lengths]
        for entry in np.lexsort((-score, limited, sentence)):
            number = int(sentence[entry])
            if len(results[number]) == self.n_best:
                continue
            tokens, weights = self._trace(number, int(step[entry]), int(parent[entry]))
            if limited[entry]:
                tokens.append(int(token[entry]))
            results[number].append(
                Hypothesis(tuple(tokens), float(log_prob[entry]), float(score[entry]), bool(limited[entry]), weights)
            )
        return results

    def _trace(self, number: int, step: int, row: int) -> tuple[list[int], Array | None]:
        """Follows the back-pointers from the beam row before token `step`: the tokens before it, and all weights."""
        source_length = self.source_lengths[number]
        tokens: list[int] = []
        weights: list[Array] = []
        for t in range(step - 1, -1, -1):
            if self.weights_TBKS:
                rows_B, weights_BKS = self.weights_TBKS[t]
                weights.append(weights_BKS[rows_B[number], row, :source_length])
            if t > 0:
                tokens.append(int(self.tokens_TBK[t - 1][number, row]))
                row = int(self.parents_TBK[t - 1][number, row])
        return tokens[::-1], np.stack(weights[::-1]) if weights else None


def beam_search(
    stepper: Stepper,
    sources: Sequence[Sequence[int]],
    *,
    bos: int,
    eos: int,
    beam_size: int,
    alpha: float,
    beta: float = 0.0,
    max_lengths: Sequence[int],
    n_best: int = 1,
    keep_weights: bool = False,
) -> list[list[Hypothesis]]:
    """The n best translations of each source (ids ended by EOS), ranked by log p / lp + cp (Wu et al. 2016).

    `alpha` is the exponent of the length penalty lp, `beta` the factor of the coverage penalty cp. The beam itself is
    ordered by log p: both penalties are of whole hypotheses.

    A sentence ends when `beam_size` hypotheses have ended, when no live one can still win, or at its entry of
    `max_lengths`, in tokens; it then leaves the batch. Beam size 1 is greedy search.
    """
    source_lengths = np.array([len(source) for source in sources])
    books = _Books(source_lengths, np.asarray(max_lengths), beam_size, alpha, beta, n_best, eos)
    state = stepper.begin(sources)
    tokens_BK = np.full((len(sources), 1), bos, dtype=np.int64)
    log_probs_BK = np.zeros((len(sources), 1))
    step = 0
    while len(books.live_B):
        step += 1
        found = stepper.step(state, tokens_BK, log_probs_BK, 2 * beam_size)
        if keep_weights:
            rows_B = np.zeros(len(sources), dtype=np.int64)
            rows_B[books.live_B] = np.arange(len(books.live_B))
            books.weights_TBKS.append((rows_B, found.weights_BKS))
        width = tokens_BK.shape[1]
        keep, parents_BK, tokens_BK, log_probs_BK = books.advance(found, step)
        state = stepper.select(found.state, keep, (keep[:, None] * width + parents_BK).reshape(-1))
    return books.hypotheses()
