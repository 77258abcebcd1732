"""Word alignments of the training pairs, read in step with them, as links between pieces."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from nmt.data.links import Links, parse_links
from nmt.data.sources import Pair
from nmt.data.text import read_lines
from nmt.data.tokenizer import Tokenizers
from nmt.data.words import encode_words
from nmt.errors import NmtError


class AlignmentReader:
    """One pass over a file of Pharaoh lines (`0-0 2-1`, source word first), one for each training pair of all sources.

    A blank line says that nothing is known of its pair. Possible links (`0p0`) count as links. Only the lines of the
    batch at hand are in memory.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.lines = 0
        self._linked = False  # whether any line has a link
        self._rest: Iterator[str] = read_lines(path)

    def read(self, pairs: Sequence[Pair]) -> list[Links]:
        """Return the word links of the next pairs; none where the file has ended, which `finish` reports.

        Raises:
            NmtError: at a line that is no alignment, or names a word that its pair does not have.
        """
        batch: list[Links] = []
        for pair, line in zip(pairs, itertools.islice(self._rest, len(pairs))):
            self.lines += 1
            links = parse_links(line, self.path, self.lines).possible
            self._check(links, pair)
            batch.append(links)
            self._linked = self._linked or bool(links)
        return batch + [frozenset()] * (len(pairs) - len(batch))

    def finish(self, pairs: int) -> None:
        """End the pass over that many pairs.

        Raises:
            NmtError: if the file has more or fewer lines, or no link at all.
        """
        self.lines += sum(1 for _ in self._rest)
        if self.lines != pairs:
            raise NmtError(
                f"{self.path} has {self.lines:,} line{'s' * (self.lines != 1)}, but data.train has {pairs:,} pairs:"
                " line n must be the alignment of pair n of all training sources in order, blank where none is known"
            )
        if not self._linked:
            raise NmtError(
                f"{self.path}: every line is blank, so there is nothing to guide attention by. Fill in alignments, or"
                " leave out data.train_alignments and training.alignment_weight"
            )

    def _check(self, links: Links, pair: Pair) -> None:
        if not links:
            return
        for side, (name, text) in enumerate(zip(("source", "target"), pair)):
            words = len(text.split())
            link = max(links, key=lambda link: link[side])
            if link[side] >= words:
                raise NmtError(
                    f"{self.path}, line {self.lines}: the link {link[0]}-{link[1]} names {name} word {link[side]}, but"
                    f" the {name} sentence of the pair has {words} word{'s' * (words != 1)}. Links are source-target,"
                    " and count whitespace words from 0: check that the file belongs to data.train, in its order"
                )


class PieceLinks:
    """The links of the training pairs between pieces instead of words, counted for the data report."""

    def __init__(self, path: str, tokenizers: Tokenizers) -> None:
        self.path = path
        self._reader = AlignmentReader(path)
        self._tokenizers = tokenizers
        self._pairs = self._links = self._words = 0

    def read(self, pairs: Sequence[Pair], kept: Sequence[bool]) -> list[list[int]]:
        """Read on by these pairs; return [t0, s0, t1, s1, …] of each kept one: piece t of the target is linked to s.

        Ascending. Every piece of a target word is linked to every piece of the source words that it is linked to.

        Raises:
            NmtError: as `AlignmentReader.read`.
        """
        batch = list(itertools.compress(self._reader.read(pairs), kept))
        pairs = list(itertools.compress(pairs, kept))
        aligned = [place for place, links in enumerate(batch) if links]
        src = encode_words(self._tokenizers.src, [pairs[place][0] for place in aligned])
        tgt = encode_words(self._tokenizers.tgt, [pairs[place][1] for place in aligned])
        rows: list[list[int]] = [[] for _ in batch]
        for place, (_, src_words), (_, tgt_words) in zip(aligned, src, tgt):
            rows[place] = _piece_links(batch[place], src_words, tgt_words)
            self._pairs += bool(rows[place])
            self._links += len(batch[place])
            self._words += len(pairs[place][1].split())
        return rows

    def finish(self, pairs: int) -> None:
        """End the pass; see `AlignmentReader.finish`."""
        self._reader.finish(pairs)

    def report(self) -> dict[str, Any]:
        """Return the file, the pairs that have links, and the mean number of links of a word of their target sides."""
        return {
            "file": self.path,
            "pairs": self._pairs,
            "links": self._links,
            "links_per_target_word": round(self._links / max(self._words, 1), 3),
        }


def _piece_links(links: Links, src_words: Sequence[int], tgt_words: Sequence[int]) -> list[int]:
    """Return the flat links between pieces, from the links of words and the word of each piece on either side."""
    src_pieces: dict[int, list[int]] = {}
    for piece, word in enumerate(src_words):
        src_pieces.setdefault(word, []).append(piece)
    linked: dict[int, list[int]] = {}
    for src_word, tgt_word in links:
        linked.setdefault(tgt_word, []).extend(src_pieces.get(src_word, ()))
    return [index for t, tgt_word in enumerate(tgt_words) for s in sorted(linked.get(tgt_word, ())) for index in (t, s)]
