"""The command `nmt eval`: translates a test set, scores it, and keeps scores, report, table, plot and translations."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.config import Config, SearchConfig
from nmt.data.pairs import read_files, read_split
from nmt.data.text import write_lines
from nmt.doubts import doubts_of_pairs, doubts_of_translations
from nmt.error_analysis import by_frequency, repetition, worst_sentences
from nmt.errors import NmtError
from nmt.evaluation import EvaluationResult, digest_of_pairs, evaluation_page
from nmt.members import Member, members_of, seen_from_first
from nmt.plotting import plot_by_length
from nmt.reporting import Reporter, SilentReporter, too_long
from nmt.run_dir import RunDir, read_json_object, refuse_repeated, refuse_unwritable, write_atomic
from nmt.scoring import (
    MOST_RESAMPLED,
    RESAMPLES,
    bleu_tokenizer_name,
    by_length,
    check_tokenizer,
    length_csv,
    length_ratio,
    reported,
    score_corpus,
    sentence_scores,
    word_splitter,
)
from nmt.training.processes import SINGLE, Processes
from nmt.word_counts import training_words

if TYPE_CHECKING:
    from nmt.translate import Translator
    from nmt.translations import LineTranslator, Translation

__all__ = ["EvaluationResult", "evaluate_split", "given_pairs", "share_translation"]

_LINES_AT_ONCE = 512  # between two movements of the progress bar; enough for full batches of like length


def evaluate_split(
    run: RunDir,
    reporter: Reporter,
    *,
    others: Sequence[RunDir] = (),
    split: str = "test",
    src: Path | None = None,
    tgt: Path | None = None,
    checkpoint: Path | None = None,
    search: SearchConfig | None = None,
    device: str = "auto",
    batch_tokens: int = 4096,
    int8: bool = False,
    pairs: Sequence[tuple[str, str]] | None = None,
    processes: Processes = SINGLE,
) -> EvaluationResult:
    """Translates a test set with a run's model, scores it and writes the results to the run's `eval/`.

    Writes `NAME.json`, `NAME.html`, `NAME_by_length.csv`, `NAME_by_length.png` and the translations, `NAME.hyp.txt`;
    NAME is that of `RunDir.evaluation_name`.

    Args:
        run: the run; its configuration says what the splits, metrics and buckets are.
        reporter: told of progress and of what looks wrong.
        others: runs that translate together with it, as an ensemble (`nmt.ensemble`) of their best checkpoints.
        split: `dev`, `test` or `train` of the run's data; not looked at when files are given.
        src, tgt: two aligned text files to score instead of a split; both or none.
        checkpoint: the model; None for the best one.
        search: settings of the search; None for the run's own.
        device: `auto`, `cpu`, `cuda`, `cuda:1`.
        batch_tokens: source pieces a batch of translation.
        int8: multiply in 8 bits; the stored search settings say so.
        pairs: the split's text where the caller has it at hand, so that no source is read again.
        processes: those that share the translation; on all but the first `share_translation` takes part.

    Raises:
        NmtError: for files of unequal length, an empty test set, an absent split, runs that make no ensemble, and what
            reading or scoring refuses.
    """
    config = run.settings()
    name, files, pairs = given_pairs(config, split, src, tgt, pairs)
    tgt_lang, tokenize = config.data.tgt_lang, config.evaluation.bleu_tokenize
    check_tokenizer(tgt_lang, tokenize)  # now, not after minutes of translation
    own_search, runs = _not_its_own(config.search, search), [run, *others]
    name = run.evaluation_name(name, checkpoint, others=others, search=own_search, int8=int8)
    _refuse_unwritable(run, name, files)
    _refuse_replacing(run, name, files, pairs, others)
    translator, members = _load(runs, checkpoint, device, search or config.search, int8)
    translator.processes = processes
    tokenizer = tokenize or bleu_tokenizer_name(tgt_lang)
    _tell_doubts(pairs, tokenizer, reporter)
    counts = training_words(run, tokenizer, word_splitter(tgt_lang, tokenize), reporter)
    translations, seconds = _translate(translator, [source for source, _ in pairs], name, batch_tokens, reporter)
    hypotheses = [translation.text for translation in translations]
    _write_translations(run, name, hypotheses)
    result = _score(config, pairs, translations, members, name, runs, seconds, files, counts)
    _tell_doubts_of_translations(result, pairs, hypotheses, reporter)
    _write(run, result)
    return result


def _load(
    runs: Sequence[RunDir], checkpoint: Path | None, device: str, search: SearchConfig, int8: bool
) -> tuple[LineTranslator, Sequence[Translator]]:
    """What translates, and the translators of the runs that it is made of; a checkpoint is of one run alone."""
    from nmt.translate import Translator

    refuse_repeated(runs)
    if len(runs) == 1:
        one = Translator.load(runs[0], checkpoint=checkpoint, device=device, search=search, int8=int8)
        return one, [one]
    from nmt.ensemble import load_ensemble

    ensemble = load_ensemble(runs, device=device, search=search, int8=int8)
    return ensemble, ensemble.members


def _tell_doubts(pairs: Sequence[tuple[str, str]], tokenizer: str, reporter: Reporter) -> None:
    """Tells what is doubtful about a test set, and that a very large one has no intervals."""
    for doubt in doubts_of_pairs(pairs, tokenizer):
        reporter.warning(doubt)
    if len(pairs) > MOST_RESAMPLED:
        reporter.info(f"More than {MOST_RESAMPLED:,} sentences have no intervals: memory would not hold resamples.")


def _tell_doubts_of_translations(
    result: EvaluationResult, pairs: Sequence[tuple[str, str]], hypotheses: Sequence[str], reporter: Reporter
) -> None:
    sources, references = zip(*pairs, strict=True)
    cut = [too_long(result.truncated)] if result.truncated else []
    for doubt in (*cut, *doubts_of_translations(sources, hypotheses, references)):
        reporter.warning(doubt)


def share_translation(
    run: RunDir, sources: Sequence[str], search: SearchConfig, device: str, processes: Processes
) -> None:
    """Does a process' share of what `evaluate_split` translates with the best checkpoint on the first one."""
    from nmt.translate import Translator

    translator = Translator.load(run, device=device, search=search)
    translator.processes = processes
    _translate(translator, sources, "", 4096, SilentReporter())


def given_pairs(
    config: Config, split: str, src: Path | None, tgt: Path | None, pairs: Sequence[tuple[str, str]] | None
) -> tuple[str, dict[str, str], Sequence[tuple[str, str]]]:
    """What is to be scored: its name, the files that it was given as, and its pairs."""
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
    return name, files, pairs


def _not_its_own(own: SearchConfig, search: SearchConfig | None) -> list[str]:
    """The settings of a search that are not the run's, as a file name has them: `beam1`."""
    names = {"beam_size": "beam", "length_penalty": "length", "coverage_penalty": "coverage"}
    names |= {"max_length_ratio": "ratio", "rerank": "rerank-"}
    return [
        f"{name}{getattr(search, setting)}"
        for setting, name in names.items()
        if search is not None and getattr(search, setting) != getattr(own, setting)
    ]


def _translate(
    translator: LineTranslator, sources: Sequence[str], name: str, batch_tokens: int, reporter: Reporter
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
    members: Sequence[Translator],
    name: str,
    runs: Sequence[RunDir],
    seconds: float,
    files: dict[str, str],
    counts: Mapping[str, int] | None,
) -> EvaluationResult:
    hypotheses = [translation.text for translation in translations]
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    tgt_lang, tokenize = config.data.tgt_lang, config.evaluation.bleu_tokenize
    scores = score_corpus(
        hypotheses,
        references,
        metrics=reported(config.evaluation.metrics),
        tgt_lang=tgt_lang,
        bleu_tokenize=tokenize,
        bootstrap=RESAMPLES,
    )
    buckets = config.evaluation.length_buckets
    rows = by_length(
        sources,
        hypotheses,
        references,
        buckets=buckets,
        tgt_lang=tgt_lang,
        bleu_tokenize=tokenize,
        bootstrap=RESAMPLES,
    )
    words = word_splitter(tgt_lang, tokenize)
    worst = worst_sentences(sources, hypotheses, references, sentence_scores(hypotheses, references))
    return EvaluationResult(
        split=name,
        sentences=len(pairs),
        checkpoint=runs[0].inside(members[0].checkpoint),
        step=members[0].step,
        metrics=scores,
        search=members[0].search.model_dump(mode="json") | ({"int8": True} if members[0].int8 else {}),
        length_limited=sum(translation.length_limited for translation in translations),
        truncated=sum(translation.truncated for translation in translations),
        empty=sum(bool(src.strip()) and not text.strip() for src, text in zip(sources, hypotheses, strict=True)),
        length_ratio=length_ratio(hypotheses, references, tgt_lang=tgt_lang, bleu_tokenize=tokenize),
        seconds=seconds,
        by_length=tuple(rows),
        by_frequency=None if counts is None else tuple(by_frequency(hypotheses, references, counts, words)),
        repetition=tuple(repetition(hypotheses, references, words)),
        worst=tuple(worst),
        pairs_digest=digest_of_pairs(pairs),
        files=files,
        src_lang=config.data.src_lang,
        tgt_lang=tgt_lang,
        ensemble=_ensemble(runs, members),
    )


def _ensemble(runs: Sequence[RunDir], members: Sequence[Translator]) -> tuple[Member, ...]:
    """The runs that translated together; none for one by itself."""
    found = zip(seen_from_first(runs), runs, members, strict=True)
    return tuple(Member(path, run.name, member.step) for path, run, member in found) if len(runs) > 1 else ()


def _files(run: RunDir, name: str) -> tuple[Path, Path, Path, Path, Path]:
    """The scores, the translations, the table, the plot and the report of an evaluation."""
    suffixes = (".json", ".hyp.txt", "_by_length.csv", "_by_length.png", ".html")
    scores, translations, table, plot, page = (run.eval / f"{name}{suffix}" for suffix in suffixes)
    return scores, translations, table, plot, page


def _refuse_unwritable(run: RunDir, name: str, files: dict[str, str]) -> None:
    """Refuses what `_write` could not write, or would write over a file to score, before minutes of translation."""
    written = {os.path.realpath(file) for file in _files(run, name)}
    for given in files.values():
        if os.path.realpath(given) in written:
            raise NmtError(f"{given}: the results of this evaluation would replace it. Move it out of {run.eval}.")
    run.refuse_links_out(run.eval)
    if run.eval.exists() and not run.eval.is_dir():
        raise NmtError(f"{run.eval}: this is a file, and the scores need a folder of that name. Move the file away.")
    if run.eval.exists():
        for file in _files(run, name):
            refuse_unwritable(file)


def _refuse_replacing(
    run: RunDir, name: str, files: dict[str, str], pairs: Sequence[tuple[str, str]], others: Sequence[RunDir]
) -> None:
    """Refuses to write over the scores of other runs, or of other text elsewhere, whose files have the same name."""
    scores = _files(run, name)[0]
    stored = read_json_object(scores)
    if not stored:
        return
    before, now = [member.run for member in members_of(stored)[1:]], seen_from_first([run, *others])[1:]
    text = stored.get("files")
    if sorted(before) != sorted(now):
        what = f"the ensemble with {', '.join(before)}" if before else "this run alone"
    elif isinstance(text, dict) and text != files and stored.get("pairs_digest") != digest_of_pairs(pairs):
        what = " and ".join(map(str, text.values())) or "a split of the run's data"
    else:
        return
    raise NmtError(
        f"{scores}: these are the scores of {what}, and would be replaced by those of another evaluation. Move them "
        "and their neighbours out of the folder, or name the file or run to score otherwise."
    )


def _write_translations(run: RunDir, name: str, hypotheses: Sequence[str]) -> None:
    """Keeps what took minutes before anything is made of it."""
    scores, translations, *_ = _files(run, name)
    run.eval.mkdir(parents=True, exist_ok=True)
    # First gone, last written: where this file is, the others belong to it.
    scores.unlink(missing_ok=True)
    write_lines(translations, hypotheses)


def _write(run: RunDir, result: EvaluationResult) -> None:
    scores, _, table, plot, page = _files(run, result.split)
    write_atomic(table, length_csv(result.by_length))
    _draw(run, result, plot, page)
    write_atomic(scores, json.dumps(result.to_dict(), indent=2, ensure_ascii=False) + "\n")


def _draw(run: RunDir, result: EvaluationResult, plot: Path, page: Path) -> None:
    """Writes the plot, and the report that holds it."""
    name = " + ".join(member.name for member in result.ensemble) or run.name
    plot_by_length({name: result.by_length}, plot)
    write_atomic(page, evaluation_page(name, result, plot.read_bytes()))


def _file_name(src: Path) -> str:
    return f"{src.name}.file" if src.name in ("train", "dev", "test") else src.name
