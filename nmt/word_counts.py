"""How often each target word is in a run's training text; kept in the run, as the prepared data may be deleted."""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nmt.data.store import EncodedCorpus
from nmt.errors import NmtError
from nmt.reporting import Reporter
from nmt.run_dir import RunDir, read_json_object, replacing

FILE = "training_words.tsv.gz"  # in eval/: the tokenizer's name, then count and word, frequent ones first
LIMIT = 1 << 29  # bytes of the file unpacked: some 30 million words; a stranger's file shall not fill the memory


def training_words(
    run: RunDir, tokenizer: str, words: Callable[[str], Sequence[str]], reporter: Reporter
) -> Counter[str] | None:
    """The words of the training targets, counted: those of the real pairs that training saw, after all filters.

    Counted once from the data prepared for the run, then read from its `eval/`. None, with a word on what to do, where
    neither is there.

    Args:
        run: the run.
        tokenizer: what `words` is called; counts of another one are made anew.
        words: cuts a text into words, none of which holds whitespace.
        reporter: told of progress, and of missing data.

    Raises:
        NmtError: when the file of counts is none, or cannot be written; or the data report is none.
    """
    file = run.eval / FILE
    if file.exists() and (kept := _read(file, tokenizer)) is not None:
        return kept
    report = read_json_object(run.data_report)
    # Only the name: what a stranger's run says of its place is not looked for there.
    folder = run.cache_root / Path(str(report.get("where"))).name
    if not (folder / "train.arrow").is_file():
        reporter.info(
            f"{run.path}: the data prepared for its training is gone, so nothing tells how often training saw a word: "
            f"no scores by frequency. Bring it back with: nmt prepare --config {run.quoted}/config.yaml "
            f"--run-dir {run.quoted}"
        )
        return None
    counts = _count(EncodedCorpus(folder / "train.arrow"), _made(report, run), words, reporter)
    lines = [
        tokenizer,
        *(f"{count}\t{word}" for word, count in sorted(counts.items(), key=lambda each: (-each[1], each[0]))),
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as stream:
        # No time in it: the same counts are the same bytes.
        stream.write(gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))
    return counts


def _made(report: dict[str, Any], run: RunDir) -> int:
    """The number of pairs that substitutions made; they are the last ones. Older reports have none."""
    try:
        return sum(int(each["kept"]) for each in report.get("train", {}).get("made", []))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NmtError(f"{run.data_report}: `nmt train` did not write this (train.made). Put the file back.") from error


def _count(corpus: EncodedCorpus, made: int, words: Callable[[str], Sequence[str]], reporter: Reporter) -> Counter[str]:
    """Count the words of all targets but the last `made`, which substitutions made of the others."""
    counts: Counter[str] = Counter()
    real = max(len(corpus) - made, 0)
    targets = (text for _, batch in corpus.text_batches() for text in batch)
    for done, text in enumerate(itertools.islice(targets, real), 1):
        counts.update(words(text))
        if done % 1000 == 0 or done == real:
            reporter.progress("count the words of training", done, real)
    return counts


def _read(file: Path, tokenizer: str) -> Counter[str] | None:
    """The counts in a file; None if they are of another tokenizer."""
    try:
        with gzip.open(file) as stream:
            content = stream.read(LIMIT + 1)
        if len(content) > LIMIT:
            raise ValueError(f"more than {LIMIT:,} bytes unpacked")
        head, *lines = content.decode().removesuffix("\n").split("\n")
        if head != tokenizer:
            return None
        pairs = (line.split("\t", 1) for line in lines)
        return Counter({word: int(count) for count, word in pairs})
    except (ValueError, EOFError, OSError, zlib.error) as error:
        raise NmtError(f"{file}: `nmt eval` did not write this ({error}). Remove it, and evaluate again.") from error
