"""The pairs that evaluation and alignment work on: a split of the run's data, or two text files."""

from __future__ import annotations

from pathlib import Path

from nmt.config import Config
from nmt.data.corpus import read_pairs
from nmt.data.text import read_lines
from nmt.errors import NmtError


def read_split(config: Config, split: str) -> list[tuple[str, str]]:
    """Return the raw pairs of a split, every line of it (`train` before any filter).

    Raises:
        NmtError: for a split that is unknown or that the configuration does not have.
    """
    data = config.data
    sources = {"train": data.train, "dev": (data.dev,), "test": (data.test,)}.get(split)
    if sources is None:
        raise NmtError(f"There is no split {split!r}: choose test, dev or train, or give files with --src and --tgt.")
    pairs: list[tuple[str, str]] = []
    for source in sources:
        if source is None:
            raise NmtError(
                f"This run's configuration has no data.{split}: choose another split with --split dev, or give files "
                "with --src and --tgt."
            )
        pairs.extend(read_pairs(source, data.src_lang, data.tgt_lang))
    return pairs


def read_files(src: Path, tgt: Path) -> list[tuple[str, str]]:
    """Return the aligned lines of two text files (gzip, bzip2 and xz as well).

    Raises:
        NmtError: when their counts differ (both are named), or one cannot be read.
    """
    sources, targets = list(read_lines(src)), list(read_lines(tgt))
    if len(sources) != len(targets):
        raise NmtError(
            f"{src} has {len(sources)} lines and {tgt} has {len(targets)}: line i of one must translate line i of the "
            "other. Give files of equal length."
        )
    return list(zip(sources, targets, strict=True))
