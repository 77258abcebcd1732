"""Which sentences of dev and test training has as well, and test dev: word for word, or but for their form.

A score on a sentence that was trained on says nothing about new text. Four things are counted of each held-out pair:
whether training has its source sentence, and whether it has the whole pair, exactly and normalised. The source alone
is what matters: with it training has seen the very question, and another translation of it is an answer too (a corpus
with several translations of a sentence, split by pairs, leaks in that way). The whole pair says how much of that can be
recited. The target alone is not counted: several sentences may well have one translation, and finding it still has to
be learnt.

Normalised, two sentences are one if their letters, digits, accents and symbols are the same after Unicode's
compatibility caseless folding (NFKD and full case folding: The Unicode Standard, D146). Case, width, punctuation and
blanks make no difference: blanks because where they stand depends on the tokenizer. "L'homme dort." is
"l' homme dort ." after another one, and Chinese has none before it is cut into words.

Normalising every training sentence would take longer than encoding it. So each one gets a signature first, a sum over
its characters that all texts of one normalised form share, by the batch; only the few whose signature is that of a
held-out sentence are normalised.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt.data.digests import Digests, Mask, text_digests


class _Letters(dict[int, str]):
    """What is compared of each character, by its number, for `str.translate`; filled as characters occur."""

    def __missing__(self, number: int) -> str:
        # "´" goes as it is: its compatible form is a blank with an accent, and the accent would stay.
        form = _without_dropped(unicodedata.normalize("NFD", chr(number)))
        for _ in range(2):  # a folded character may have a decomposition that can be folded
            form = unicodedata.normalize("NFKD", form.casefold())
        self[number] = _without_dropped(form)
        return self[number]


def _without_dropped(text: str) -> str:
    return "".join(character for character in text if not _is_dropped(character))


def _is_dropped(character: str) -> bool:
    """Return whether it is punctuation, a blank, a control or invisible formatting character, or a lone accent."""
    category = unicodedata.category(character)
    return category[0] in "PZ" or category in ("Cc", "Cf", "Sk")


_LETTERS = _Letters()


def normalised(text: str) -> str:
    """Return the form in which sentences are compared; of a text that is all punctuation, its characters but blanks."""
    form = unicodedata.normalize("NFKD", text.translate(_LETTERS))
    return form or "".join(unicodedata.normalize("NFKC", text).split())


class Signatures:
    """Sums over the characters of texts: equal for texts with one normalised form, and seldom for others.

    What is compared of a character has a number of 64 random bits, and the order does not enter the sum, just as the
    order of two accents on a letter does not enter the form. So the work is one look-up a character in NumPy.
    """

    def __init__(self) -> None:
        self._weights: Digests = np.zeros(sys.maxunicode + 1, dtype=np.uint64)  # pages no text touches take no memory
        self._known: Mask = np.zeros(sys.maxunicode + 1, dtype=np.bool_)

    def of(self, texts: Sequence[str]) -> Digests:
        """Return the signature of each text, [texts]."""
        characters = np.frombuffer("".join(texts).encode("utf-32-le"), dtype="<u4").astype(np.intp)
        known = self._known[characters]
        if not known.all():
            for number in np.unique(characters[~known]).tolist():
                self._weights[number] = text_digests(_LETTERS[number]).sum(dtype=np.uint64)
                self._known[number] = True
        lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        # One more weight, for an empty text at the end to begin at; `reduceat` has no empty sums.
        sums = np.add.reduceat(np.append(self._weights[characters], np.uint64(0)), np.cumsum(lengths) - lengths)
        sums[lengths == 0] = 0
        return sums


_FORMS = ("exact", "normalised")
_PARTS = ("sources", "pairs")
_NORMALISED_SOURCE = 2  # the row of it in `_keys`


def _keys(src: Sequence[str], tgt: Sequence[str]) -> Digests:
    """Return what sentences are known by, [forms x parts, pairs]: rows in the order of _FORMS, of _PARTS in each."""
    rows = []
    for texts in ((src, tgt), ([normalised(text) for text in src], [normalised(text) for text in tgt])):
        rows += [text_digests(texts[0]), text_digests(f"{one}\n{other}" for one, other in zip(*texts))]
    return np.stack(rows)


class _HeldOut:
    """One of dev and test: the keys of its pairs, and which keys training has. Blank sources do not count."""

    def __init__(self) -> None:
        self.size = 0
        self.keys: Digests = np.zeros((len(_FORMS) * len(_PARTS), 0), dtype=np.uint64)
        self.lines: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)  # of these keys
        self.found: Mask = np.zeros(self.keys.shape, dtype=np.bool_)  # in training

    def add(self, src: Sequence[str], tgt: Sequence[str]) -> list[str]:
        """Append pairs; return the sources with text."""
        places = [place for place, text in enumerate(src) if text.strip()]
        sources = [src[place] for place in places]
        keys = _keys(sources, [tgt[place] for place in places])
        self.keys = np.concatenate([self.keys, keys], axis=1)
        self.lines = np.concatenate([self.lines, self.size + 1 + np.array(places, dtype=np.int64)])
        self.found = np.zeros(self.keys.shape, dtype=np.bool_)
        self.size += len(src)
        return sources

    def compare(self, keys: Digests) -> Mask:
        """Note which of the pairs training has, these [keys, pairs] for some; return which have a source of here."""
        for held, found, row in zip(self.keys, self.found, keys):
            found |= np.isin(held, row)
        return np.isin(keys[_NORMALISED_SOURCE], self.keys[_NORMALISED_SOURCE])

    def within(self, other: _HeldOut, lines: int) -> dict[str, Any]:
        """Return what `report` would if `other` were training."""
        found = np.stack([np.isin(row, others) for row, others in zip(self.keys, other.keys)])
        return self._counted(found, lines)

    def report(self, lines: int) -> dict[str, Any]:
        return self._counted(self.found, lines)

    def _counted(self, found: Mask, lines: int) -> dict[str, Any]:
        counts = iter(np.count_nonzero(found, axis=1).tolist())
        first = self.lines[found[_NORMALISED_SOURCE]][:lines].tolist()
        return {"of": self.size, **{form: {part: next(counts) for part in _PARTS} for form in _FORMS}, "first": first}


class Overlap:
    """Finds the training pairs whose source sentence, normalised, is one of dev or test, and counts for the report.

    Add every held-out pair first, then go through training. Memory is some 50 bytes for each held-out pair, and none
    for those of training.
    """

    def __init__(self) -> None:
        self._splits: dict[str, _HeldOut] = {}
        self._signatures = Signatures()
        self._held: Digests = np.zeros(0, dtype=np.uint64)  # signatures of held-out sources

    def add(self, split: str, src: Sequence[str], tgt: Sequence[str]) -> None:
        """Append pairs of dev or test."""
        sources = self._splits.setdefault(split, _HeldOut()).add(src, tgt)
        self._held = np.union1d(self._held, self._signatures.of(sources))

    def find(self, src: Sequence[str], tgt: Sequence[str]) -> Mask:
        """Return which of these training pairs have a source sentence of dev or test, normalised, [pairs]."""
        found = np.isin(self._signatures.of(src), self._held)
        if found.any():
            places = np.flatnonzero(found).tolist()
            keys = _keys([src[place] for place in places], [tgt[place] for place in places])
            found[places] = np.any([split.compare(keys) for split in self._splits.values()], axis=0)
        return found

    def has(self, texts: Sequence[str]) -> Mask:
        """Return which of the texts is a source sentence of dev or test, normalised, [texts]; not for the report."""
        found = np.isin(self._signatures.of(texts), self._held)
        for place in np.flatnonzero(found).tolist():
            digest = text_digests([normalised(texts[place])])
            found[place] = any(np.isin(digest, split.keys[_NORMALISED_SOURCE]).any() for split in self._splits.values())
        return found

    def report(self, lines: int) -> dict[str, dict[str, Any]]:
        """Return for each split how many of its pairs training has.

        In `of` pairs there are as many `sources` and whole `pairs` that training has, `exact` and `normalised` (which
        includes the exact ones); `first` are the `lines` first lines of normalised sources.
        """
        return {split: held_out.report(lines) for split, held_out in self._splits.items()}

    def of_test_with_dev(self, lines: int) -> dict[str, Any] | None:
        """Return how many pairs of test dev has, as `report` puts it; None where there is no test."""
        if "test" not in self._splits:
            return None
        return self._splits["test"].within(self._splits["dev"], lines)
