"""Which of a sentence's translations to choose once the search has found them: minimum Bayes risk by chrF, with NumPy.

Axes: K texts, N characters that begin an n-gram, V different n-grams.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nmt.model.stepper import Array

ORDERS, BETA = 6, 2  # sacreBLEU's chrF: n-grams of up to six characters, recall twice as important as precision


def by_expected_chrf(texts: Sequence[str], log_probs: Sequence[float]) -> list[int]:
    """The places of one sentence's translations in the order of their Bayes risk, least first; of equals the earlier.

    Minimum Bayes risk (Kumar and Byrne 2004; Eikema and Aziz 2020): text k has the expected utility Σ_l p_l chrF(k, l),
    l taking the place of the reference, and p the softmax of `log_probs`, the model's own, over these texts.
    """
    if not texts:
        return []
    p_K = np.exp(np.subtract(log_probs, max(log_probs)))
    # An exact sum: texts that are equal have equal utilities, whatever the machine.
    utility = [math.fsum(row_K) for row_K in pairwise_chrf(texts) * (p_K / p_K.sum())]
    return sorted(range(len(texts)), key=lambda place: -utility[place])


def pairwise_chrf(texts: Sequence[str]) -> Array:
    """chrF (Popović 2015) of each text, a row, with each as its reference, a column: [K, K], 0 to 100.

    As `sacrebleu.sentence_chrf` has it, which takes one pair after the other and 50 times as long: n-grams do not see
    blanks, and precision and recall are the means over the orders for which both texts are long enough.
    """
    bare = ["".join(text.split()) for text in texts]
    lengths_K = np.array([len(text) for text in bare])
    characters = np.frombuffer("".join(bare).encode("utf-32-le"), dtype=np.uint32)
    different, ids = np.unique(characters, return_inverse=True)
    texts_N = np.repeat(np.arange(len(bare)), lengths_K)
    left_N = np.repeat(lengths_K.cumsum(), lengths_K) - np.arange(len(characters))  # characters up to the text's end
    places_N, ngrams_N = np.arange(len(characters)), ids
    precision, recall, orders = (np.zeros((len(bare), len(bare))) for _ in range(3))
    for order in range(1, ORDERS + 1):
        if order > 1:
            kept = left_N[places_N] >= order
            places_N = places_N[kept]
            longer = ngrams_N[kept] * len(different) + ids[places_N + order - 1]
            ngrams_N = np.unique(longer, return_inverse=True)[1]
        if not len(places_N):
            break
        matches_KK, totals_K = _matches(texts_N[places_N], ngrams_N, len(bare))
        both_KK = (totals_K[:, None] > 0) & (totals_K > 0)
        precision += matches_KK / np.maximum(totals_K[:, None], 1)
        recall += matches_KK / np.maximum(totals_K, 1)
        orders += both_KK
    precision, recall = precision / np.maximum(orders, 1), recall / np.maximum(orders, 1)
    divisor = BETA**2 * precision + recall
    return 100 * (1 + BETA**2) * precision * recall / np.where(divisor > 0, divisor, 1)


def _matches(texts_N: Array, ngrams_N: Array, count: int) -> tuple[Array, Array]:
    """How many n-grams each two of `count` texts share, each as often as both have it: [K, K]; and how many each has.

    min(a, b) is the number of c ≥ 1 with a ≥ c and b ≥ c: a product of matrices of 0 and 1 for each c.
    """
    different = int(ngrams_N.max()) + 1
    counts_KV = np.bincount(texts_N * different + ngrams_N, minlength=count * different).reshape(count, different)
    matches_KK = np.zeros((count, count))
    for least in range(1, int(counts_KV.max()) + 1):
        counts_KV = counts_KV[:, (counts_KV >= least).any(0)]
        has_KV = (counts_KV >= least).astype(np.float32)
        matches_KK += has_KV @ has_KV.T
    return matches_KK, np.bincount(texts_N, minlength=count)
