"""Whether systems differ by more than chance on one test set: paired tests, as sacreBLEU computes them.

The tests are sacreBLEU's own (`sacrebleu.significance`), on metrics set up as its command line sets them up, so that
the figures are those of `sacrebleu REFERENCE -i A B … --paired-bs` and `--paired-ar`, to the last digit, wherever two
scores differ. The interval of a difference, which it does not give, is of the resamples of that bootstrap.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nmt.errors import NmtError
from nmt.plotting import FEW
from nmt.scoring import MOST_RESAMPLED, RESAMPLES, check_aligned, make_metric, score_corpus

TRIALS = 10_000  # sacreBLEU's default, and so that of its paper


@dataclass(frozen=True)
class SystemScore:
    """One system by one metric. `mean` ± `half_width` is the 95 % interval of the bootstrap (Koehn 2004).

    Of fewer than `FEW` sentences there is neither interval nor p-value: resamples of so few are mostly the same, and
    sacreBLEU, which counts larger differences alone, would call any difference significant.

    `difference` is to the baseline, and `difference_low` and `difference_high` bound the middle 95 % of it over the
    resamples. The p-values say how likely a difference as large is by chance. By approximate randomisation (Riezler and
    Maxwell 2005), in either direction; by sacreBLEU's paired bootstrap, which is that of Moses, in one: it counts
    resamples whose absolute difference is above the mean by more than the difference, and has about half of the other's
    p-value where the difference is clear. All five are None for the baseline. Where
    there is no difference both p-values are 1: sacreBLEU counts larger differences alone, and gives a system that is
    compared with itself the smallest p-value that there is.
    """

    score: float
    mean: float | None
    half_width: float | None
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    p_bootstrap: float | None
    p_randomisation: float | None


@dataclass(frozen=True)
class MetricComparison:
    """All systems by one metric, in the order in which they were given, and the signatures of the two tests.

    Fewer than `FEW` sentences are not tested, and both signatures are None.
    """

    bootstrap_signature: str | None
    randomisation_signature: str | None
    systems: tuple[SystemScore, ...]


def paired_tests(
    systems: Sequence[Sequence[str]],
    references: Sequence[str],
    *,
    metrics: Sequence[str],
    tgt_lang: str,
    bleu_tokenize: str | None = None,
    resamples: int = RESAMPLES,
    trials: int = TRIALS,
) -> dict[str, MetricComparison]:
    """Compares systems with the first of them, the baseline.

    Args:
        systems: the translations of each system, two or more, raw text.
        references: one a sentence.
        metrics: those of `nmt.scoring.score_corpus`.
        tgt_lang, bleu_tokenize: as there.
        resamples: of the bootstrap.
        trials: of approximate randomisation.

    Raises:
        NmtError: as `score_corpus` does, and for more sentences than the tests can hold.
    """
    for hypotheses in systems:
        check_aligned(hypotheses, references)
    refuse_more_than_tests_hold(len(references), resamples, trials)
    found = {}
    for name in metrics:
        if len(references) < FEW:
            found[name] = _untested(name, systems, references, tgt_lang, bleu_tokenize)
            continue
        bootstrap, bs_signature = _paired("bs", name, systems, references, tgt_lang, bleu_tokenize, resamples)
        shuffled, ar_signature = _paired("ar", name, systems, references, tgt_lang, bleu_tokenize, trials)
        base = bootstrap[0][0]
        between = _intervals(name, systems, references, tgt_lang, bleu_tokenize, resamples)
        scores = []
        for bounds, (score, mean, half_width, p), (*_, q) in zip(between, bootstrap, shuffled, strict=True):
            difference = None if bounds is None else score - base
            low, high = bounds or (None, None)
            scores.append(SystemScore(score, mean, half_width, difference, low, high, *_meant(score != base, p, q)))
        found[name] = MetricComparison(bs_signature, ar_signature, tuple(scores))
    return found


def _untested(
    name: str,
    systems: Sequence[Sequence[str]],
    references: Sequence[str],
    tgt_lang: str,
    bleu_tokenize: str | None,
) -> MetricComparison:
    """The scores of a metric by themselves."""
    scores = [
        score_corpus(each, references, metrics=[name], tgt_lang=tgt_lang, bleu_tokenize=bleu_tokenize)[name].score
        for each in systems
    ]
    differences = [None, *(score - scores[0] for score in scores[1:])]
    nothing = (None, None)  # of an interval
    rows = [
        SystemScore(score, *nothing, way, *nothing, *nothing) for score, way in zip(scores, differences, strict=True)
    ]
    return MetricComparison(None, None, tuple(rows))


def refuse_more_than_tests_hold(sentences: int, resamples: int = RESAMPLES, trials: int = TRIALS) -> None:
    """Refuse what sacreBLEU, which has all resamples and all trials at once, needs more than some 4 GB for.

    Raises:
        NmtError: naming the most sentences that so many resamples and trials can be made of.
    """
    most = min(MOST_RESAMPLED, MOST_RESAMPLED * RESAMPLES // resamples, MOST_RESAMPLED * 10 * TRIALS // trials)
    if sentences > most:
        fewer = " Fewer --resamples or --trials allow more." if most < MOST_RESAMPLED else ""
        raise NmtError(
            f"{sentences:,} sentences are more than the tests can hold in memory ({most:,}). Compare on a part of "
            f"them, given with --src and --tgt.{fewer}"
        )


def _meant(differ: bool, *p_values: float | None) -> tuple[float | None, ...]:
    """The p-values; 1 in place of each where there is no difference."""
    return tuple(p if differ or p is None else 1.0 for p in p_values)


def _intervals(
    name: str,
    systems: Sequence[Sequence[str]],
    references: Sequence[str],
    tgt_lang: str,
    bleu_tokenize: str | None,
    resamples: int,
) -> list[tuple[float, float] | None]:
    """Bounds of the middle 95 % of each system's difference to the first, None for the first itself.

    All systems are scored on the same resamples, which are those of sacreBLEU's test.
    """
    text = os.environ.get("SACREBLEU_SEED", "12345")
    seed = None if text.lower() == "none" else int(text) or None  # sacreBLEU takes 0 for none
    drawn = np.random.default_rng(seed).choice(len(references), size=(resamples, len(references)), replace=True)
    times = np.zeros((resamples, len(references)), dtype=np.float64)  # each sentence is in each resample
    for row, chosen in zip(times, drawn, strict=True):
        row[:] = np.bincount(chosen, minlength=len(references))
    scores = []
    for hypotheses in systems:
        metric = make_metric(name, tgt_lang, bleu_tokenize)
        statistics = np.array(metric._extract_corpus_statistics(list(hypotheses), [list(references)]), dtype=np.float64)
        sums = (times @ statistics).tolist()
        scores.append(np.array([metric._compute_score_from_stats(row).score for row in sums], dtype=np.float64))
    bounds = [np.percentile(score - scores[0], (2.5, 97.5)) for score in scores[1:]]
    return [None, *((float(low), float(high)) for low, high in bounds)]


def _paired(
    kind: str,
    name: str,
    systems: Sequence[Sequence[str]],
    references: Sequence[str],
    tgt_lang: str,
    bleu_tokenize: str | None,
    samples: int,
) -> tuple[list[tuple[float, float, float, float | None]], str]:
    """Score, mean, half width (0 where the test has none) and p-value of each system, and the signature."""
    from sacrebleu.significance import PairedTest, Result

    test = PairedTest(
        [(str(number), list(hypotheses)) for number, hypotheses in enumerate(systems)],
        {name: make_metric(name, tgt_lang, bleu_tokenize)},
        [list(references)],
        test_type=kind,
        n_samples=samples,
    )
    signatures, scores = test()
    (called, signature), *_ = signatures.items()
    results = [result for result in scores[called] if isinstance(result, Result)]
    return [
        (float(each.score), float(each.mean or 0.0), float(each.ci or 0.0), each.p_value) for each in results
    ], signature.format()
