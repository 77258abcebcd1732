"""`nmt prepare`: from the sources of a configuration to encoded corpora, a tokenizer and the data report.

Everything streams in batches, and the result is kept under a name made from all that it depends on. A result is
complete or absent: it is built in a temporary folder that is renamed at the end, so two runs that prepare the same data
at the same time do not disturb each other, and one that is killed leaves nothing that looks finished.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nmt.config import Config, DataConfig
from nmt.data.alignments import AlignmentReader, PieceLinks
from nmt.data.corpus import FIRST_LINES, MadePairs, PairFilter, PairSource
from nmt.data.digests import Mask
from nmt.data.encoding import SplitEncoder, Stopwatch, batches
from nmt.data.overlap import Overlap
from nmt.data.report import drops_text, find_warnings, format_report
from nmt.data.sources import Pair
from nmt.data.store import EncodedCorpus
from nmt.data.text import file_stamp
from nmt.data.tokenizer import LearningStats, Tokenizers
from nmt.errors import NmtError, unwritable
from nmt.reporting import Reporter
from nmt.training.signals import ended_at_once

FORMAT = 6  # of the prepared folder and what is made for it; a higher number makes older ones be built anew
REPORT_FILE = "report.json"
_ABANDONED_AFTER = 24 * 3600  # seconds without a write after which a temporary folder belongs to no running process


@dataclass(frozen=True)
class PreparedData:
    """What training needs, ready to be read.

    Attributes:
        train, dev, test: encoded pairs; dev and test hold every pair of their source, in order.
        tokenizer_dir: the SentencePiece models, to be copied into a run.
        report: the data report, plain values alone (it goes to `data_report.json`).
    """

    train: EncodedCorpus
    dev: EncodedCorpus
    test: EncodedCorpus | None
    tokenizers: Tokenizers
    tokenizer_dir: Path
    report: dict[str, Any]


def prepare(config: Config, cache_root: Path, reporter: Reporter) -> PreparedData:
    """Read, check, filter and encode the corpora, or take the result of an earlier call if nothing has changed.

    Args:
        config: its sections `data` and `tokenizer` are used.
        cache_root: holds one folder for each different set of data and settings; made if it does not exist.
        reporter: gets the data report, warnings and progress.

    Raises:
        NmtError: if anything is wrong with the data or the settings, or the cache cannot be written.
    """
    corpora = _Corpora(config.data)
    if any(source.is_remote for source in corpora.all()):
        reporter.info("Looking up the data sets of the hub …")
    folder = cache_root / _fingerprint(config, corpora)
    prepared = _open_complete(folder)
    if prepared is None:
        try:
            _build_into(folder, config, corpora, reporter)
        except OSError as error:
            raise unwritable(cache_root, error, what="prepared data cannot be written there") from error
        prepared = _open(folder, cached=False)
    reporter.info(format_report(prepared.report))
    for warning in prepared.report["warnings"]:
        reporter.warning(warning)
    return prepared


class _Corpora:
    """The opened sources, by split."""

    def __init__(self, data: DataConfig) -> None:
        def opened(sources: Iterable[Any]) -> list[PairSource]:
            return [PairSource(source, data.src_lang, data.tgt_lang) for source in sources if source is not None]

        real = opened(data.train)
        # The same pairs are often there both ways round: each source has a seed, for exchanges of its own.
        self.made = [
            MadePairs(pairs, source.substitutions, seed)
            for seed, (source, pairs) in enumerate(zip(data.train, real, strict=True), 1)
            if source.substitutions
        ]
        self.real = real
        self.train: list[PairSource | MadePairs] = [*real, *self.made]
        self.held_out = {"dev": opened([data.dev])}
        if data.test is not None:
            self.held_out["test"] = opened([data.test])
        self.alignments = data.train_alignments

    def all(self) -> list[PairSource]:
        """Return every source."""
        return [*self.real, *itertools.chain.from_iterable(self.held_out.values())]

    def stamps(self) -> list[list[Any]]:
        """Return what changes whenever any of the data may have changed."""
        stamps = [source.stamp() for source in self.all()]
        return stamps if self.alignments is None else [*stamps, file_stamp(self.alignments)]


def _fingerprint(config: Config, corpora: _Corpora) -> str:
    """Return a name for the result that is another one whenever the result could be another one."""
    key = {
        "format": FORMAT,
        "sentencepiece": version("sentencepiece"),  # another one may learn other pieces
        "data": config.data.model_dump(mode="json"),
        "tokenizer": config.tokenizer.model_dump(mode="json", exclude={"sampling_alpha"}),  # a matter of training alone
        "stamps": corpora.stamps(),
    }
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]


def _open_complete(folder: Path) -> PreparedData | None:
    """Open what was prepared before; a folder that somebody took files from is removed."""
    if not folder.is_dir():
        return None
    try:
        return _open(folder, cached=True)
    except (NmtError, OSError, ValueError, KeyError):
        shutil.rmtree(folder, ignore_errors=True)
        return None


def open_prepared(folder: Path) -> PreparedData:
    """Open what another process has just prepared.

    Raises:
        NmtError: if this process does not see it.
    """
    try:
        return _open(folder, cached=True)
    except (NmtError, OSError, ValueError, KeyError) as error:
        raise NmtError(
            f"{folder}: the first process prepared the data there, and this one cannot read it. Choose a --run-dir in "
            "a folder that all machines share."
        ) from error


def _open(folder: Path, cached: bool) -> PreparedData:
    report = json.loads((folder / REPORT_FILE).read_text(encoding="utf-8"))
    report |= {"cached": cached, "where": str(folder)}
    return PreparedData(
        train=EncodedCorpus(folder / "train.arrow"),
        dev=EncodedCorpus(folder / "dev.arrow"),
        test=EncodedCorpus(folder / "test.arrow") if report["test"] is not None else None,
        tokenizers=Tokenizers.load(folder / "tokenizer"),
        tokenizer_dir=folder / "tokenizer",
        report=report,
    )


def _build_into(folder: Path, config: Config, corpora: _Corpora, reporter: Reporter) -> None:
    """Build in a temporary folder beside, then rename."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep(folder.parent)
    temporary = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:8]}.tmp")
    temporary.mkdir()
    try:
        report = _build(temporary, config, corpora, reporter)
        (temporary / REPORT_FILE).write_text(json.dumps(report, ensure_ascii=False, indent=1), encoding="utf-8")
        for path in temporary.rglob("*"):
            _flush_to_disk(path)
        try:
            temporary.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was first, and its result is the same as this one
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _sweep(cache_root: Path) -> None:
    """Remove what killed processes have left; it can be as large as the corpus."""
    for folder in cache_root.glob("*.*.tmp"):
        try:
            newest = max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
        except OSError:  # its process has just renamed or removed it
            continue
        if folder.is_dir() and time.time() - newest > _ABANDONED_AFTER:
            shutil.rmtree(folder, ignore_errors=True)


def _flush_to_disk(path: Path) -> None:
    """Make sure that after a power cut a renamed folder does not hold empty files."""
    if path.is_file():
        with path.open("rb+") as stream:
            os.fsync(stream.fileno())


def _build(folder: Path, config: Config, corpora: _Corpora, reporter: Reporter) -> dict[str, Any]:
    """Write the corpora and the tokenizer; return the report."""
    watch = Stopwatch()
    data = config.data
    # One pass to count, and to meet every fault of the data before any time is spent on learning.
    with watch("counting"):
        counts = {split: _count(sources, split, reporter) for split, sources in corpora.held_out.items()}
        _make_pairs(corpora, data, reporter)
        counts["train"] = _count(corpora.train, "train", reporter, corpora.alignments)

    tokenizer_dir = folder / "tokenizer"
    tokenizer_dir.mkdir()
    reporter.info(f"Learning {config.tokenizer.vocab_size:,} {config.tokenizer.model_type} pieces …")
    with watch("learning"), ended_at_once():
        tokenizers, learning = Tokenizers.train(
            tokenizer_dir, lambda: itertools.chain(*corpora.train), config.tokenizer, counts["train"]
        )
    report: dict[str, Any] = {
        "format": FORMAT,
        "languages": {"src": data.src_lang, "tgt": data.tgt_lang},
        "vocabulary": _vocabulary_report(config, tokenizers, learning),
        "test": None,
    }
    overlap = Overlap()
    for split, sources in corpora.held_out.items():
        encoder = SplitEncoder(split, sources, tokenizers, counts[split], reporter, watch)
        report[split] = encoder.write(folder / f"{split}.arrow", overlap=overlap)
    pair_filter = PairFilter(
        data.max_length, data.max_ratio, data.drop_duplicates, counts["train"], overlap, data.remove_overlap
    )
    encoder = SplitEncoder("train", corpora.train, tokenizers, counts["train"], reporter, watch)
    links = PieceLinks(corpora.alignments, tokenizers) if corpora.alignments is not None else None
    report["train"] = encoder.write(folder / "train.arrow", pair_filter=pair_filter, links=links)
    if not pair_filter.kept:
        raise NmtError(
            f"no training pair is left of {pair_filter.read:,}: {drops_text(report['train'])}. Look at the source's"
            f" lines, at data.max_length ({data.max_length}) and data.remove_overlap"
        )
    kept = report["train"]["kept_of_each"][len(data.train) :]
    report["train"]["made"] = [made.report() | {"kept": each} for made, each in zip(corpora.made, kept, strict=True)]
    report["overlap"] = overlap.report(FIRST_LINES)
    report["overlap_dev_test"] = overlap.of_test_with_dev(FIRST_LINES)
    report["overlap_removed"] = data.remove_overlap
    report["warnings"] = find_warnings(report)
    report["seconds"] = watch.report()
    return report


def _make_pairs(corpora: _Corpora, data: DataConfig, reporter: Reporter) -> None:
    """Make the pairs of `substitutions`; of none that training drops as one of dev or test, in either direction."""
    overlap = Overlap()
    if corpora.made and data.remove_overlap:
        for split, sources in corpora.held_out.items():
            for batch in itertools.chain.from_iterable(map(batches, sources)):
                overlap.add(split, *zip(*batch))

    def refused(pairs: Sequence[Pair]) -> Mask:
        src, tgt = zip(*pairs) if pairs else ((), ())
        return overlap.has(src) | overlap.has(tgt)

    for made in corpora.made:
        task = f"Making {made.label}"
        reporter.progress(task, 0, made.wanted)  # the words are aligned first
        made.make(refused, partial(reporter.progress, task, total=made.wanted))


def _count(
    sources: Sequence[PairSource | MadePairs], split: str, reporter: Reporter, alignments: str | None = None
) -> int:
    """Read everything once, the file of alignments too; return the number of pairs.

    Raises:
        NmtError: if there are none, and for whatever is wrong with the data.
    """
    task = f"Reading {split}"
    total = 0
    reader = AlignmentReader(alignments) if alignments is not None else None
    for source in sources:
        first = total
        for batch in batches(source):
            if reader is not None:
                reader.read(batch)
            total += len(batch)
            reporter.progress(task, total, None)
        if total == first:
            raise NmtError(f"{source.label}: no pairs in it. data.{split} needs at least one")
    if reader is not None:
        reader.finish(total)
    reporter.progress(task, total, total)
    return total


def _vocabulary_report(config: Config, tokenizers: Tokenizers, learning: LearningStats) -> dict[str, Any]:
    return {
        "joint": tokenizers.joint,
        "model_type": config.tokenizer.model_type,
        "src": tokenizers.src.vocab_size,
        "tgt": tokenizers.tgt.vocab_size,
        "lines": learning.lines,
        "skipped_long": learning.skipped_long,
    }
