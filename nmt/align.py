"""Word alignments by a model's attention, and how they compare with gold ones: the command `nmt align`.

Given pairs are aligned by forced decoding, a run's own translations along the back-pointers of the search. Text goes
through in blocks, so that no more than a block's weights are in memory, and links only where they are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nmt.config import SearchConfig
from nmt.data.links import (
    GoldLinks,
    Links,
    Method,
    format_links,
    link_pieces,
    read_links,
    symmetrize,
    transposed,
)
from nmt.data.pairs import read_files, read_split
from nmt.data.text import one_line, read_lines, write_line
from nmt.data.words import Range, locate_words, words_between_blanks
from nmt.errors import NmtError
from nmt.reporting import Reporter
from nmt.run_dir import RunDir
from nmt.translate import Translator, require_attention
from nmt.translations import word_alignment

Words = tuple[list[Range], list[Range]]
LINES_AT_ONCE = 1024  # enough for full batches of like length


@dataclass(frozen=True)
class AlignedPair:
    """The target of a pair, given or found, and its links. `truncated`: a side was too long and was cut."""

    target: str
    links: Links
    truncated: bool


@dataclass(frozen=True)
class AlignmentInput:
    """The sentences to align, what messages call them, and their translations, or None where they are to be found.

    `words` has the places of the words of both sides of each pair, or is None for those between blanks.
    """

    name: str
    sources: Sequence[str]
    targets: Sequence[str] | None
    words: Sequence[Words] | None = None


@dataclass(frozen=True)
class Aligner:
    """A translator, and how its weights become links: `shift` and `threshold` as `link_pieces` has them."""

    translator: Translator
    shift: int
    threshold: float | None

    @classmethod
    def load(
        cls,
        run: RunDir,
        checkpoint: Path | None = None,
        device: str = "auto",
        search: SearchConfig | None = None,
        shift: int | None = None,
        threshold: float | None = None,
    ) -> Aligner:
        """The aligner of a run, with the shift that it was trained for unless another is given.

        Raises:
            NmtError: if the run's decoder has no attention, and as `Translator.load`.
        """
        require_attention(run.settings(), run)
        translator = Translator.load(run, checkpoint=checkpoint, device=device, search=search)
        return cls(translator, translator.alignment_shift if shift is None else shift, threshold)

    def given(
        self, pairs: Sequence[tuple[str, str]], batch_tokens: int = 4096, words: Sequence[Words] | None = None
    ) -> list[AlignedPair]:
        """Aligns given pairs, in order; one with a blank side has no links. `words` as in `AlignmentInput`."""
        aligned = []
        for (_, target), forced in zip(pairs, self.translator.force(pairs, batch_tokens, words), strict=True):
            links: Links = frozenset()
            if forced.weights is not None:
                numbers = forced.tgt_words, forced.src_words
                links = link_pieces(forced.weights, *numbers, shift=self.shift, threshold=self.threshold)
            aligned.append(AlignedPair(target, links, forced.truncated))
        return aligned

    def translated(self, lines: Sequence[str], batch_tokens: int = 4096) -> list[AlignedPair]:
        """Translates lines and aligns each with its translation, in order."""
        found = self.translator.translate(lines, batch_tokens=batch_tokens, keep_weights=True)
        return [
            AlignedPair(one.text, word_alignment(one, shift=self.shift, threshold=self.threshold), one.truncated)
            for one in found
        ]


def read_input(
    run: RunDir,
    split: str | None,
    src: Path | None,
    tgt: Path | None,
    src_words: Path | None = None,
    tgt_words: Path | None = None,
) -> AlignmentInput:
    """The sentences to align: two files, one file to translate, or a split of the run's data.

    `src_words` and `tgt_words` are files with the words of the sentences of given pairs, blanks between.

    Raises:
        NmtError: for files of unequal length, words that do not spell their sentence, an unknown split, and what
            cannot be read.
    """
    if src is not None and tgt is None:
        return AlignmentInput(src.name, list(read_lines(src)), None)
    name = "test" if split is None else split
    if src is not None and tgt is not None:
        name, pairs = src.name, read_files(src, tgt)
    else:
        pairs = read_split(run.settings(), name)
    sides = [source for source, _ in pairs], [target for _, target in pairs]
    words: list[Words] | None = None
    if src_words is not None or tgt_words is not None:
        files = (src_words, tgt_words)
        words = list(zip(*(_places(texts, file) for texts, file in zip(sides, files, strict=True)), strict=True))
    return AlignmentInput(name, *sides, words)


def _places(texts: Sequence[str], file: Path | None) -> list[list[Range]]:
    """Where the words of each text are, by the file that has them."""
    if file is None:
        return [words_between_blanks(one_line(text)) for text in texts]
    lines = list(read_lines(file))
    if len(lines) != len(texts):
        raise NmtError(f"{file} has {len(lines)} lines for {len(texts)} sentences: line i must hold the words of each.")
    return [
        locate_words(one_line(text), line.split(), f"{file}, line {number}")
        for number, (text, line) in enumerate(zip(texts, lines, strict=True), 1)
    ]


def read_gold(path: Path, base: int, reverse: bool, given: AlignmentInput) -> list[GoldLinks]:
    """The gold links of the given pairs; with `reverse` the file has the target word first.

    Raises:
        NmtError: if the file has another number of lines, no link at all, or a link to a word that is not there.
    """
    gold = read_links(path, base)
    targets = given.targets or ()
    if len(gold) != len(targets):
        raise NmtError(
            f"{path} has {len(gold)} lines and {given.name} has {len(targets)} pairs: line i must hold the links of "
            "pair i, and be blank where there are none."
        )
    if reverse:
        gold = [GoldLinks(transposed(links.sure), transposed(links.possible)) for links in gold]
    for number, (links, *texts) in enumerate(zip(gold, given.sources, targets, strict=True), 1):
        for side, (what, text) in enumerate(zip(("source", "target"), texts, strict=True)):
            words = len(text.split() if given.words is None else given.words[number - 1][side])
            last = max((link[side] for link in links.possible), default=-1)
            if last >= words:
                raise NmtError(
                    f"{path}, line {number}: a link names word {last + base} of the {what}, which has {words}, counted "
                    f"from {base}. Is it the file of these pairs? Words are what stands between blanks: the text must "
                    "be cut as it was for the gold links (--src-words, --tgt-words), with the same first number "
                    f"(--gold-base), and {'the target' if reverse else 'the source'} word first (--gold-reversed "
                    f"{'is given' if reverse else 'for the other'})."
                )
    if not any(links.possible for links in gold):
        raise NmtError(f"{path}: every line is blank, so there is nothing to compare with.")
    return gold


def check_reverse(run: RunDir, reverse: RunDir) -> None:
    """Makes sure that a run translates in the other direction.

    Raises:
        NmtError: if its languages are not those of the run, changed over.
    """
    ours, theirs = run.settings().data, reverse.settings().data
    if (ours.src_lang, ours.tgt_lang) != (theirs.tgt_lang, theirs.src_lang):
        raise NmtError(
            f"{run.path} translates {ours.src_lang} to {ours.tgt_lang}, and {reverse.path} {theirs.src_lang} to "
            f"{theirs.tgt_lang}: --reverse-run needs a run from {ours.tgt_lang} to {ours.src_lang}."
        )


def align_blocks(
    given: AlignmentInput,
    forward: Aligner,
    backward: Aligner | None = None,
    method: Method = "grow-diag-final-and",
    batch_tokens: int = 4096,
) -> Iterator[list[AlignedPair]]:
    """The aligned pairs, in order and in blocks.

    Args:
        given: the sentences, with or without translations.
        forward: translates from source to target.
        backward: translates from target to source; its links are combined with those of `forward`.
        method: how they are combined.
        batch_tokens: pieces a batch.
    """
    for first in range(0, len(given.sources), LINES_AT_ONCE):
        block = slice(first, first + LINES_AT_ONCE)
        sources = given.sources[block]
        words = None if given.words is None else given.words[block]
        if given.targets is None:
            pairs = forward.translated(sources, batch_tokens)
        else:
            pairs = forward.given(list(zip(sources, given.targets[block], strict=True)), batch_tokens, words)
        if backward is not None:
            turned = [(pair.target, source) for pair, source in zip(pairs, sources, strict=True)]
            turned_words = None if words is None else [(tgt, src) for src, tgt in words]
            pairs = [
                AlignedPair(
                    one.target,
                    symmetrize(one.links, transposed(other.links), method),
                    one.truncated or other.truncated,
                )
                for one, other in zip(pairs, backward.given(turned, batch_tokens, turned_words), strict=True)
            ]
        yield pairs


def write_alignments(
    blocks: Iterable[list[AlignedPair]],
    out: BinaryIO,
    translations: BinaryIO | None,
    reporter: Reporter | None,
    given: AlignmentInput,
    keep: bool,
) -> tuple[list[Links], int]:
    """Writes a line of links for each pair, and its target to `translations`, as soon as they are there.

    Returns the links if they are to be kept, else nothing of them, and how many pairs were cut.
    """
    task, total, truncated, done = f"align {given.name}", len(given.sources), 0, 0
    links: list[Links] = []
    if reporter is not None:
        reporter.progress(task, 0, total)
    for block in blocks:
        for pair in block:
            if keep:
                links.append(pair.links)
            truncated += pair.truncated
            write_line(out, format_links(pair.links))
            if translations is not None:
                write_line(translations, pair.target)
        out.flush()
        done += len(block)
        if reporter is not None:
            reporter.progress(task, done, total)
    return links, truncated
