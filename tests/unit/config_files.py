"""Configuration files for the tests of the configuration."""

from __future__ import annotations

from pathlib import Path

SMALL = """\
data:
  src_lang: en
  tgt_lang: de
  train: {src: train.en, tgt: train.de}
  dev: {tsv: dev.tsv}
"""


def written(folder: Path, text: str, name: str = "written.yaml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file
