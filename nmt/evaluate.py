"""Scores: BLEU, chrF and TER with signatures and intervals, and by source length; the command `nmt eval`.

sacreBLEU (Post 2018) computes every number, on raw, detokenised text. What it would quietly accept is checked here
first: sacreBLEU 2.6 cuts the longer of two lists that differ in length.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.config import Config, SearchConfig, load_config
from nmt.data.pairs import read_files, read_split
from nmt.errors import NmtError
from nmt.plotting import LengthRow, plot_by_length
from nmt.reporting import Reporter
from nmt.run_dir import RunDir, refuse_unwritable, write_atomic

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric
    from sacrebleu.metrics.bleu import BLEU

    from nmt.translate import Translation, Translator

METRICS = ("bleu", "chrf", "ter")
RESAMPLES = 1000  # for the 95 % intervals, as `sacrebleu --confidence` does by default
_LINES_AT_ONCE = 512  # between two movements of the progress bar; enough for full batches of like length
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


@dataclass(frozen=True)
class EvaluationResult:
    """What `nmt eval` prints and stores.

    `split` names the files under `eval/`; `checkpoint` is relative to the run where it lies inside. `length_limited`
    counts translations that stopped at the length limit, `truncated` sources longer than the limit. `length_ratio` is
    length of the hypotheses over that of the references, in BLEU's tokens (None for empty references).
    """

    split: str
    sentences: int
    checkpoint: str
    metrics: dict[str, Score]
    search: dict[str, Any]
    length_limited: int
    truncated: int
    length_ratio: float | None
    seconds: float
    by_length: tuple[LengthRow, ...]
    files: dict[str, str]

    @property
    def sentences_per_second(self) -> float:
        """Speed of the translation, scoring not included."""
        return self.sentences / self.seconds if self.seconds > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The content of `eval/SPLIT.json`."""
        return {
            "split": self.split,
            "sentences": self.sentences,
            "checkpoint": self.checkpoint,
            "metrics": {name: asdict(score) for name, score in self.metrics.items()},
            "search": self.search,
            "length_limited": self.length_limited,
            "truncated": self.truncated,
            "length_ratio": self.length_ratio,
            "seconds": self.seconds,
            "sentences_per_second": self.sentences_per_second,
            "by_length": [asdict(row) for row in self.by_length],
            "files": self.files,
        }


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
        metrics: of `bleu`, `chrf`, `ter`; 0 to 100 (TER may exceed 100, and less is better).
        tgt_lang: chooses BLEU's tokenizer: zh for Chinese, MeCab for Japanese and Korean, 13a for all others.
        bleu_tokenize: a tokenizer of sacreBLEU to use instead.
        bootstrap: resamples for the 95 % interval; under 2 for none. The seed is sacreBLEU's own (12345, or the
            environment's SACREBLEU_SEED) and part of the signature.

    Raises:
        NmtError: when there are no sentences, counts differ, something is not a string, or a metric or tokenizer is
            unknown or not installed.
    """
    check_aligned(hypotheses, references)
    scores = {}
    for name in metrics:
        metric = _metric(name, tgt_lang, bleu_tokenize)
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
) -> list[LengthRow]:
    """Corpus BLEU and chrF of the sentences of like length.

    Length n is the number of whitespace words of the raw source. With `buckets` b1 < … < bk the rows are [0, b1),
    [b1, b2), …, [bk, no limit), ascending, those without sentences left out. Raises as `score_corpus` does.
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
        scores = validation_scores(
            [hypotheses[i] for i in inside],
            [references[i] for i in inside],
            tgt_lang=tgt_lang,
            bleu_tokenize=bleu_tokenize,
        )
        rows.append(LengthRow(low, high, len(inside), scores["bleu"], scores["chrf"]))
    return rows


def length_csv(rows: Sequence[LengthRow]) -> str:
    """The rows as CSV text: `low,high,sentences,bleu,chrf`, low <= n < high, an empty high for no limit."""
    lines = ["low,high,sentences,bleu,chrf"]
    for row in rows:
        high = "" if row.high is None else row.high
        lines.append(f"{row.low},{high},{row.sentences},{row.bleu:.4f},{row.chrf:.4f}")
    return "\n".join(lines) + "\n"


def evaluate_split(
    run: RunDir,
    reporter: Reporter,
    *,
    split: str = "test",
    src: Path | None = None,
    tgt: Path | None = None,
    checkpoint: Path | None = None,
    search: SearchConfig | None = None,
    device: str = "auto",
    batch_tokens: int = 4096,
    int8: bool = False,
    translator: Translator | None = None,
    pairs: Sequence[tuple[str, str]] | None = None,
) -> EvaluationResult:
    """Translates a test set with a run's model, scores it and writes the results to the run's `eval/`.

    Writes `NAME.json`, `NAME_by_length.csv`, `NAME_by_length.png` and the translations, `NAME.hyp.txt`; NAME is the
    split, or for files the source file's own name, so that nobody's `test.en` replaces the run's test.

    Args:
        run: the run; its configuration says what the splits, metrics and buckets are.
        reporter: told of progress and of what looks wrong.
        split: `dev`, `test` or `train` of the run's data; not looked at when files are given.
        src, tgt: two aligned text files to score instead of a split; both or none.
        checkpoint: the model; None for the best one.
        search: settings of the search; None for the run's own.
        device: `auto`, `cpu`, `cuda`, `cuda:1`.
        batch_tokens: source pieces a batch of translation.
        int8: multiply in 8 bits; NAME then ends in `.int8`, and the stored search settings say so.
        translator: an already loaded one, which then decides checkpoint, search, device and int8.
        pairs: the split's text where the caller has it at hand, so that no source is read again.

    Raises:
        NmtError: for files of unequal length, an empty test set, an unknown or absent split, and all that reading,
            loading and scoring refuse.
    """
    from nmt.translate import Translator

    config = load_config(str(run.config))
    name, files = split, {}
    if src is not None and tgt is not None:
        pairs = read_files(src, tgt)
        name, files = _file_name(src), {"src": str(src), "tgt": str(tgt)}
    elif src is not None or tgt is not None:
        raise NmtError("Files to score come in pairs: give both --src and --tgt, or neither and a --split.")
    elif pairs is None:
        pairs = read_split(config, split)
    if not pairs:
        raise NmtError(f"{name}: there is no sentence to score.")
    check_tokenizer(config.data.tgt_lang, config.evaluation.bleu_tokenize)  # now, not after minutes of translation
    _warn_of_tokenized(pairs, reporter)
    if translator is None:
        translator = Translator.load(run, checkpoint=checkpoint, device=device, search=search, int8=int8)
    name = f"{name}.int8" if translator.int8 else name
    _refuse_unwritable(run, name)
    translations, seconds = _translate(translator, [source for source, _ in pairs], name, batch_tokens, reporter)
    settings = translator.search.model_dump(mode="json") | ({"int8": True} if translator.int8 else {})
    result = _score(config, pairs, translations, name, _relative(checkpoint or run.best, run), settings, seconds, files)
    _write(run, result, [translation.text for translation in translations])
    return result


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


def _metric(name: str, tgt_lang: str, bleu_tokenize: str | None) -> Metric:
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    match name:
        case "bleu":
            return _bleu(tgt_lang, bleu_tokenize)
        case "chrf":
            return CHRF()
        case "ter":
            return TER()
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
        # force: the advice on tokenised text goes to stderr line by line; ours is given once, by evaluate_split.
        return BLEU(tokenize=name, force=True)
    except (ImportError, RuntimeError, OSError) as error:
        if name in _PIP_EXTRA_OF:
            remedy = f'Install it with `pip install "{_PIP_EXTRA_OF[name]}"`, or set `evaluation.bleu_tokenize: char`.'
        else:
            remedy = f"Set another evaluation.bleu_tokenize, for example `char`. The cause: {error}"
        raise NmtError(
            f"BLEU for {tgt_lang!r} needs sacreBLEU's tokenizer {name!r}, which is not usable here. {remedy}"
        ) from error


def _translate(
    translator: Translator, sources: Sequence[str], name: str, batch_tokens: int, reporter: Reporter
) -> tuple[list[Translation], float]:
    """The translations, in order, and the seconds they took."""
    start = time.perf_counter()
    task, total = f"translate {name}", len(sources)
    translations: list[Translation] = []
    reporter.progress(task, 0, total)
    for first in range(0, total, _LINES_AT_ONCE):
        part = sources[first : first + _LINES_AT_ONCE]
        translations.extend(translator.translate(part, batch_tokens=batch_tokens))
        reporter.progress(task, len(translations), total)
    return translations, time.perf_counter() - start


def _score(
    config: Config,
    pairs: Sequence[tuple[str, str]],
    translations: Sequence[Translation],
    name: str,
    checkpoint: str,
    search: dict[str, Any],
    seconds: float,
    files: dict[str, str],
) -> EvaluationResult:
    hypotheses = [translation.text for translation in translations]
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    tgt_lang, tokenize = config.data.tgt_lang, config.evaluation.bleu_tokenize
    scores = score_corpus(
        hypotheses,
        references,
        metrics=config.evaluation.metrics,
        tgt_lang=tgt_lang,
        bleu_tokenize=tokenize,
        bootstrap=RESAMPLES,
    )
    buckets = config.evaluation.length_buckets
    rows = by_length(sources, hypotheses, references, buckets=buckets, tgt_lang=tgt_lang, bleu_tokenize=tokenize)
    return EvaluationResult(
        split=name,
        sentences=len(pairs),
        checkpoint=checkpoint,
        metrics=scores,
        search=search,
        length_limited=sum(translation.length_limited for translation in translations),
        truncated=sum(translation.truncated for translation in translations),
        length_ratio=_length_ratio(hypotheses, references, _bleu(tgt_lang, tokenize)),
        seconds=seconds,
        by_length=tuple(rows),
        files=files,
    )


def _length_ratio(hypotheses: Sequence[str], references: Sequence[str], bleu: BLEU) -> float | None:
    """BLEU's own `sys_len / ref_len`."""
    result = bleu.corpus_score(list(hypotheses), [list(references)])
    return result.sys_len / result.ref_len if result.ref_len else None


def _refuse_unwritable(run: RunDir, name: str) -> None:
    """Refuses what `_write` could not write, before minutes of translation."""
    run.refuse_links_out(run.eval)
    if run.eval.exists() and not run.eval.is_dir():
        raise NmtError(f"{run.eval}: this is a file, and the scores need a folder of that name. Move the file away.")
    if run.eval.exists():
        for suffix in (".hyp.txt", "_by_length.csv", "_by_length.png", ".json"):
            refuse_unwritable(run.eval / f"{name}{suffix}")


def _write(run: RunDir, result: EvaluationResult, hypotheses: Sequence[str]) -> None:
    run.eval.mkdir(parents=True, exist_ok=True)
    write_atomic(run.eval / f"{result.split}.hyp.txt", "".join(f"{text}\n" for text in hypotheses))
    write_atomic(run.eval / f"{result.split}_by_length.csv", length_csv(result.by_length))
    plot_by_length({run.path.resolve().name: result.by_length}, run.eval / f"{result.split}_by_length.png")
    # Last: where this file is, the others belong to it.
    write_atomic(run.eval / f"{result.split}.json", json.dumps(result.to_dict(), indent=2, ensure_ascii=False) + "\n")


def _warn_of_tokenized(pairs: Sequence[tuple[str, str]], reporter: Reporter) -> None:
    """BLEU on text that was tokenised before is not comparable with anybody's; sacreBLEU's own rule of thumb."""
    count = sum(target.endswith(" .") for _, target in pairs)
    if count >= 100 or (len(pairs) >= 10 and count * 2 > len(pairs)):
        reporter.warning(
            f"{count} of {len(pairs)} references end in a separate ' .': they look tokenised. BLEU is meant for raw "
            "text; detokenise them for a score that others can compare."
        )


def _file_name(src: Path) -> str:
    return f"{src.name}.file" if src.name in ("train", "dev", "test") else src.name


def _relative(checkpoint: Path, run: RunDir) -> str:
    try:
        return checkpoint.resolve().relative_to(run.path.resolve()).as_posix()
    except ValueError:
        return str(checkpoint)
