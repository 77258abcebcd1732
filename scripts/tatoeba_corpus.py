"""Makes of a Tatoeba archive (English–French, English–German) a corpus to translate, or to measure word alignment on.

    python scripts/tatoeba_corpus.py deu-eng.zip tatoeba-de --raw
    python scripts/tatoeba_corpus.py fra-eng.zip tatoeba --text gold.fr --text gold.en

Several rows of Tatoeba share one English sentence: the split is by distinct English sentence, so that none of dev and
test is in training. A sentence of the other language may be there, as the translation of another English one; for a
model that reads that language `data.remove_overlap: true` leaves such pairs out. With --raw that is all. Without, the
text is tokenised as gold alignments have it (punctuation apart, `l' homme`, `don 't`) and lowercased. Tatoeba's
sentences are short, seven words: `--join N` adds every pair once more, in random groups of two to N pairs that stand in
a row, so that a model meets long sentences too. Each `--text` file, tokenised already, is written with the same
characters and case, line by line and token by token.

Writes `train`, `dev` and `test` with the languages as suffixes, and the texts under their own names.
"""

from __future__ import annotations

import argparse
import random
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, cast

from nmt.data.text import read_blocks

HELD_OUT = 1000  # distinct English sentences of dev, and as many of test

# What one character stands for in either text.
_CHARACTERS = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "«": '"', "»": '"', "\u00a0": " ", "\u202f": " "})
_WORD = re.compile(r"\w+(?:[-.]\w+)*|\.\.\.|[^\w\s]")
_ELISION = re.compile(r"\b(\w+)'(?=\w)", re.IGNORECASE)  # l'homme
_CONTRACTION = re.compile(r"'(s|t|ve|ll|re|d|m)\b", re.IGNORECASE)  # don't
_INVERSION = re.compile(r"(?<=\w)-(?:t-)?(je|tu|il|elle|on|nous|vous|ils|elles|ce|moi|toi|le|la|les|lui|y|en|là|ci)\b")


def plain(text: str) -> str:
    """The text with one character for each kind of quotation mark and apostrophe, in lower case."""
    return text.translate(_CHARACTERS).lower()


def tokenize(text: str, language: str) -> str:
    """Words and punctuation, blanks between."""
    text = plain(text)
    if language == "en":
        text = _CONTRACTION.sub(r" '\1", text)
        pattern = re.compile(rf"'(?:s|t|ve|ll|re|d|m)\b|{_WORD.pattern}")
    elif language == "fr":
        text = _ELISION.sub(r"\1' ", _INVERSION.sub(r" -\1", text))
        pattern = re.compile(rf"\w+'(?= )|-\w+|{_WORD.pattern}")
    else:
        pattern = _WORD
    return " ".join(pattern.findall(text))


def read_pairs(archive: Path) -> tuple[str, list[tuple[str, str]]]:
    """The other language's code, and (English, other) of every row of the archive."""
    with zipfile.ZipFile(archive) as opened:
        names = [name for name in opened.namelist() if re.fullmatch(r"(?:[a-z]+-eng/)?([a-z]{3})\.txt", name)]
        if len(names) != 1:
            raise SystemExit(f"{archive}: no file such as fra.txt inside.")
        with opened.open(names[0]) as stream:
            rows = [row for block in read_blocks(cast(BinaryIO, stream), f"{archive}, {names[0]}") for row in block]
    code = {"fra": "fr", "deu": "de"}.get(Path(names[0]).stem, Path(names[0]).stem)
    return code, [(row.split("\t")[0], row.split("\t")[1]) for row in rows if row.count("\t") >= 1]


def split_by_english(pairs: list[tuple[str, str]], rng: random.Random) -> dict[str, list[tuple[str, str]]]:
    """Train, dev and test without a common English sentence; dev and test have one row of each."""
    by_english: dict[str, list[tuple[str, str]]] = {}
    for english, other in pairs:
        by_english.setdefault(english, []).append((english, other))
    sentences = sorted(by_english)
    rng.shuffle(sentences)
    held_out = {
        "dev": [by_english[sentence][0] for sentence in sentences[:HELD_OUT]],
        "test": [by_english[sentence][0] for sentence in sentences[HELD_OUT : 2 * HELD_OUT]],
    }
    train = [pair for sentence in sentences[2 * HELD_OUT :] for pair in by_english[sentence]]
    return {"train": train, **held_out}


def joined(pairs: list[tuple[str, str]], most: int, rng: random.Random) -> list[tuple[str, str]]:
    """Every pair once, in random groups of 2 to `most` that stand in a row; the last may be smaller."""
    order = pairs[:]
    rng.shuffle(order)
    groups = []
    while order:
        size = rng.randint(2, most)
        group, order = order[-size:], order[:-size]
        groups.append((" ".join(english for english, _ in group), " ".join(other for _, other in group)))
    return groups


def main(args: Sequence[str] | None = None) -> None:
    """Runs the script with `args`, the process' own by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, help="fra-eng.zip or deu-eng.zip, of www.manythings.org/anki")
    parser.add_argument("out", type=Path, help="folder to write to")
    parser.add_argument("--raw", action="store_true", help="text as it is, no pairs in a row")
    parser.add_argument("--join", type=int, metavar="N", help="pairs in a row, at most; 1: none (default 5)")
    parser.add_argument("--text", type=Path, action="append", default=[], help="a tokenised text to convert as well")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(args)
    if options.raw and (options.text or options.join is not None):
        parser.error("--text and --join go with tokenised text: leave them or --raw out")
    most = 5 if options.join is None else options.join

    rng = random.Random(options.seed)
    code, pairs = read_pairs(options.archive)
    splits = split_by_english(pairs, rng)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, rows in splits.items():
        if not options.raw:
            rows = [(tokenize(english, "en"), tokenize(other, code)) for english, other in rows]
            if name == "train" and most > 1:
                rows += joined(rows, most, rng)
        for column, language in enumerate(("en", code)):
            text = "".join(f"{row[column]}\n" for row in rows)
            (options.out / f"{name}.{language}").write_text(text, encoding="utf-8")
        print(f"{name}: {len(rows):,} pairs")
    for file in options.text:
        (options.out / file.name).write_text(plain(file.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
