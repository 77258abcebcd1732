"""Scores: BLEU, chrF, chrF++ and TER with signatures and intervals, and by source length.

sacreBLEU (Post 2018) computes every number, on raw, detokenised text. What it would quietly accept is checked here
first: sacreBLEU 2.6 cuts the longer of two lists that differ in length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nmt.errors import NmtError
from nmt.plotting import FEW, LengthRow

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric
    from sacrebleu.metrics.bleu import BLEU

METRICS = ("bleu", "chrf", "ter")  # those that a configuration names; chrF++ goes with chrF
METRIC_NAMES = {"bleu": "BLEU", "chrf": "chrF", "chrf++": "chrF++", "ter": "TER"}
LESS_IS_BETTER = ("ter",)
RESAMPLES = 1000  # for the 95 % intervals, as `sacrebleu --confidence` does by default
MOST_RESAMPLED = 20_000  # sentences; sacreBLEU holds all resamples at once, of chrF++ 100 kB a sentence
# sacreBLEU's tokenizer by target language where 13a is wrong, under the codes of ISO 639-1 and 639-3.
_TOKENIZER_OF = {
    "zh": "zh",
    "zho": "zh",
    "cmn": "zh",
    "ja": "ja-mecab",
    "jpn": "ja-mecab",
    "ko": "ko-mecab",
    "kor": "ko-mecab",
}
_PIP_EXTRA_OF = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}


@dataclass(frozen=True)
class Score:
    """One metric on one corpus.

    `low` and `high` bound the 95 % bootstrap interval, sacreBLEU's mean ± half width over its resamples (Koehn 2004),
    None where it was not asked for. `signature` is what to quote beside the score.
    """

    score: float
    low: float | None
    high: float | None
    signature: str


def score_corpus(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    metrics: Sequence[str] = METRICS,
    tgt_lang: str,
    bleu_tokenize: str | None = None,
    bootstrap: int = 0,
) -> dict[str, Score]:
    """Scores translations against one reference each.

    Args:
        hypotheses: one string a sentence, raw text.
        references: as many strings.
        metrics: of `bleu`, `chrf`, `chrf++`, `ter`; 0 to 100 (TER may exceed 100, and less is better).
        tgt_lang: chooses BLEU's tokenizer: zh for Chinese, MeCab for Japanese and Korean, 13a for all others. TER cuts
            Chinese and Japanese into characters.
        bleu_tokenize: a tokenizer of sacreBLEU to use instead.
        bootstrap: resamples for the 95 % interval; under 2 for none. Of fewer than `FEW` sentences there is none,
            as resamples of so few are too much alike, nor of more than `MOST_RESAMPLED`, whose resamples memory does
            not hold. The seed is sacreBLEU's own (12345, or the environment's SACREBLEU_SEED), part of the signature.

    Raises:
        NmtError: when there are no sentences, counts differ, something is not a string, or a metric or tokenizer is
            unknown or not installed.
    """
    check_aligned(hypotheses, references)
    bootstrap = bootstrap if FEW <= len(references) <= MOST_RESAMPLED else 0
    scores = {}
    for name in metrics:
        metric = make_metric(name, tgt_lang, bleu_tokenize)
        _give_plain_floats(metric)
        result = metric.corpus_score(list(hypotheses), [list(references)], n_bootstrap=bootstrap)
        low = high = None
        if bootstrap > 1:
            # sacreBLEU hands these two out only as rounded text.
            mean, half_width = result._mean, result._ci
            low = max(0.0, mean - half_width)
            high = mean + half_width if name == "ter" else min(100.0, mean + half_width)
        scores[name] = Score(float(result.score), low, high, str(metric.get_signature()))
    return scores


def reported(metrics: Sequence[str]) -> tuple[str, ...]:
    """The metrics to report where these are configured: chrF++ (Popović 2017) goes with chrF."""
    return tuple(name for metric in metrics for name in ((metric, "chrf++") if metric == "chrf" else (metric,)))


def sentence_scores(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """chrF++ of each sentence, 0 to 100. BLEU says little of one sentence: it is 0 wherever no four words match.

    Raises as `score_corpus` does.
    """
    from sacrebleu.metrics.chrf import CHRF

    check_aligned(hypotheses, references)
    metric = CHRF(word_order=2)
    return [float(metric.sentence_score(text, [ref]).score) for text, ref in zip(hypotheses, references, strict=True)]


def word_splitter(tgt_lang: str, bleu_tokenize: str | None = None) -> Callable[[str], list[str]]:
    """What cuts a text into the words that BLEU counts. Raises as `check_tokenizer` does."""
    tokenizer = _bleu(tgt_lang, bleu_tokenize).tokenizer
    return lambda text: list(tokenizer(text.rstrip()).split())


def validation_scores(
    hypotheses: Sequence[str], references: Sequence[str], *, tgt_lang: str, bleu_tokenize: str | None = None
) -> dict[str, float]:
    """BLEU and chrF alone, without intervals: `{"bleu": 0–100, "chrf": 0–100}`. Raises as `score_corpus` does."""
    scores = score_corpus(
        hypotheses, references, metrics=("bleu", "chrf"), tgt_lang=tgt_lang, bleu_tokenize=bleu_tokenize
    )
    return {name: score.score for name, score in scores.items()}


def by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    buckets: Sequence[int],
    tgt_lang: str,
    bleu_tokenize: str | None = None,
    bootstrap: int = 0,
) -> list[LengthRow]:
    """Corpus BLEU and chrF of the sentences of like length, with 95 % intervals where resamples are asked for.

    A row of fewer than `FEW` sentences has no interval: its resamples are too much alike to say how far off it is.
    Length n is the number of whitespace words of the raw source. With `buckets` b1 < … < bk the rows are [0, b1),
    [b1, b2), …, [bk, no limit), ascending, those without sentences left out. `bootstrap` and what is raised are those
    of `score_corpus`.
    """
    check_aligned(hypotheses, references)
    check_aligned(sources, references, what="sources")
    lengths = [len(source.split()) for source in sources]
    lows = [0, *(bucket for bucket in buckets if bucket > 0)]
    highs: list[int | None] = [*lows[1:], None]
    rows = []
    for low, high in zip(lows, highs, strict=True):
        inside = [i for i, length in enumerate(lengths) if low <= length and (high is None or length < high)]
        if not inside:
            continue
        scores = score_corpus(
            [hypotheses[i] for i in inside],
            [references[i] for i in inside],
            metrics=("bleu", "chrf"),
            tgt_lang=tgt_lang,
            bleu_tokenize=bleu_tokenize,
            bootstrap=bootstrap if len(inside) >= FEW else 0,
        )
        bleu, chrf = scores["bleu"], scores["chrf"]
        intervals = (bleu.low, bleu.high, chrf.low, chrf.high)
        rows.append(LengthRow(low, high, len(inside), bleu.score, chrf.score, *intervals))
    return rows


def length_csv(rows: Sequence[LengthRow]) -> str:
    """The rows as CSV text: `low,high,sentences,bleu,chrf`, low <= n < high, an empty high for no limit."""
    lines = ["low,high,sentences,bleu,chrf"]
    for row in rows:
        high = "" if row.high is None else row.high
        lines.append(f"{row.low},{high},{row.sentences},{row.bleu:.4f},{row.chrf:.4f}")
    return "\n".join(lines) + "\n"


def interval(low: float | None, high: float | None) -> str:
    """An interval as text; a dash where there is none."""
    return "–" if low is None or high is None else f"{low:.2f} to {high:.2f}"


def check_aligned(hypotheses: Sequence[str], references: Sequence[str], what: str = "hypotheses") -> None:
    """Refuses what sacreBLEU would cut or misread without a word.

    Raises:
        NmtError: unless both are sequences of strings (not a string, no lists inside), equally many and not empty.
    """
    for name, texts in ((what, hypotheses), ("references", references)):
        if isinstance(texts, str):
            raise NmtError(f"The {name} are a single string: give a list with one string a sentence.")
        for number, text in enumerate(texts, start=1):
            if not isinstance(text, str):
                raise NmtError(
                    f"Number {number} of the {name} is of type {type(text).__name__}, not a string: give one string a "
                    "sentence, and one reference for each."
                )
    if len(hypotheses) != len(references):
        raise NmtError(
            f"{len(hypotheses)} {what} and {len(references)} references: there must be exactly one for each sentence, "
            "in the same order. Blank lines count."
        )
    if not references:
        raise NmtError("There is no sentence to score: the test set is empty.")


def bleu_tokenizer_name(tgt_lang: str) -> str:
    """sacreBLEU's tokenizer for a language code such as `de`, `zh`, `zh-Hans`, `ja_JP`."""
    return _TOKENIZER_OF.get(tgt_lang.lower().replace("_", "-").split("-")[0], "13a")


def check_tokenizer(tgt_lang: str, bleu_tokenize: str | None) -> None:
    """Makes sure that BLEU can be computed, before hours of work that end in it.

    Raises:
        NmtError: when sacreBLEU has no such tokenizer, or what it needs is not installed.
    """
    _bleu(tgt_lang, bleu_tokenize)


def make_metric(name: str, tgt_lang: str, bleu_tokenize: str | None) -> Metric:
    """sacreBLEU's metric of that name, set up for a target language. Raises as `score_corpus` does."""
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    match name:
        case "bleu":
            return _bleu(tgt_lang, bleu_tokenize)
        case "chrf":
            return CHRF()
        case "chrf++":
            return CHRF(word_order=2)
        case "ter":
            # Without blanks a whole sentence would be one word.
            unspaced = bleu_tokenizer_name(tgt_lang) in ("zh", "ja-mecab")
            return TER(normalized=unspaced, asian_support=unspaced)
    raise NmtError(f"There is no metric {name!r}: choose of {', '.join(METRICS)} in evaluation.metrics.")


def _give_plain_floats(metric: Metric) -> None:
    """Works around sacreBLEU 2.6: its resamples are scored as float32, but as float where nothing matches or the
    reference is empty, and its mean of such a mixture, which small or badly translated test sets make, is a TypeError.
    """
    compute = metric._compute_score_from_stats

    def compute_as_float(stats: list[Any]) -> Any:
        score = compute(stats)
        score.score = float(score.score)
        return score

    metric._compute_score_from_stats = compute_as_float  # type: ignore[method-assign]


def _bleu(tgt_lang: str, bleu_tokenize: str | None) -> BLEU:
    """BLEU with its tokenizer; all that can be missing is reported as an NmtError."""
    from sacrebleu.metrics.bleu import BLEU

    name = bleu_tokenize or bleu_tokenizer_name(tgt_lang)
    if name not in BLEU.TOKENIZERS:
        raise NmtError(
            f"evaluation.bleu_tokenize: sacreBLEU has no tokenizer {name!r}; choose of {', '.join(BLEU.TOKENIZERS)}."
        )
    try:
        # force: the advice on tokenised text goes to stderr line by line; ours is given once, see nmt.doubts.
        return BLEU(tokenize=name, force=True)
    except (ImportError, RuntimeError, OSError) as error:
        if name in _PIP_EXTRA_OF:
            remedy = f'Install it with `pip install "{_PIP_EXTRA_OF[name]}"`, or set `evaluation.bleu_tokenize: char`.'
        else:
            remedy = f"Set another evaluation.bleu_tokenize, for example `char`. The cause: {error}"
        raise NmtError(
            f"BLEU for {tgt_lang!r} needs sacreBLEU's tokenizer {name!r}, which is not usable here. {remedy}"
        ) from error


def length_ratio(
    hypotheses: Sequence[str], references: Sequence[str], *, tgt_lang: str, bleu_tokenize: str | None = None
) -> float | None:
    """BLEU's own `sys_len / ref_len`; None for references without a word. Raises as `score_corpus` does."""
    check_aligned(hypotheses, references)
    result = _bleu(tgt_lang, bleu_tokenize).corpus_score(list(hypotheses), [list(references)])
    return result.sys_len / result.ref_len if result.ref_len else None
