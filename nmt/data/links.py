"""Word alignments: links between the words of a sentence and those of its translation, and how they are judged.

Links are written as Pharaoh did: `0-0 2-1`, the word of the source first. In a gold file `i-j` is a sure link, `ipj`
or `i?j` a possible one.

Weights are arrays [T target pieces or words, S source pieces or words]; EOS may follow as one position more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nmt.data.text import read_lines
from nmt.errors import NmtError

Link = tuple[int, int]
Links = frozenset[Link]  # (source word, target word), from 0
Array = npt.NDArray[Any]
Method = Literal["intersection", "union", "grow-diag-final-and"]

_LINK = re.compile(r"([0-9]{1,9})([-p?])([0-9]{1,9})")
_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


@dataclass(frozen=True)
class GoldLinks:
    """The links that people set in one pair: `sure` must be found, `possible`, which holds them too, may be."""

    sure: Links
    possible: Links


@dataclass(frozen=True)
class AlignmentScores:
    """How links compare with gold ones, and how many there are of each kind; from 0 to 1, of the error less is better.

    A ratio over nothing is perfect: without links there is no wrong one.
    """

    precision: float
    recall: float
    aer: float
    predicted: int
    sure: int
    possible: int


# --- text -----------------------------------------------------------------------------------------------------------


def parse_links(line: str, name: str, number: int, base: int = 0) -> GoldLinks:
    """Return the links on a line; `name` and `number` are what errors call file and line.

    Args:
        line: links with blanks between; `i-j` is sure, `ipj` and `i?j` are possible.
        name: of the file.
        number: of the line, from 1.
        base: the number of the first word, 0 or 1.

    Raises:
        NmtError: at what is no link, or a word 0 where they count from 1.
    """
    sure, possible = set(), set()
    for token in line.split():
        match = _LINK.fullmatch(token)
        if match is None:
            raise NmtError(
                f"{name}, line {number}: {token!r} is no link. A link is i-j (sure), ipj or i?j (possible): the "
                "numbers of a source and a target word, for example 0-0 1-2 3p2."
            )
        link = (int(match[1]) - base, int(match[3]) - base)
        if min(link) < 0:
            raise NmtError(
                f"{name}, line {number}: {token} names a word 0, but words were to be counted from {base}. This file "
                "counts them from 0."
            )
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return GoldLinks(frozenset(sure), frozenset(possible))


def read_links(path: str | Path, base: int = 0) -> list[GoldLinks]:
    """Return the links on each line of a file, plain or packed with gzip, bzip2 or xz.

    Raises:
        NmtError: as `parse_links`, and if the file cannot be read.
    """
    return [parse_links(line, str(path), number, base) for number, line in enumerate(read_lines(path), 1)]


def format_links(links: Links) -> str:
    """Return links as text, `0-0 1-2`, by source and then by target word."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def transposed(links: Links) -> Links:
    """Return the links with source and target changed over."""
    return frozenset((target, source) for source, target in links)


# --- from weights ---------------------------------------------------------------------------------------------------


def merge_words(
    weights: Array, tgt_words: Sequence[int], src_words: Sequence[int], n_tgt: int, n_src: int
) -> npt.NDArray[np.float64]:
    """Return the weights of words: the sum over a source word's pieces, the mean over a target word's.

    A row that sums to one still does. A word without pieces has zeros. To keep EOS apart, count it as a word of its
    own, the last.

    Args:
        weights: [target pieces, source pieces].
        tgt_words, src_words: the word that each piece belongs to.
        n_tgt, n_src: how many words there are.
    """
    by_source = np.asarray(weights, dtype=np.float64) @ _membership(src_words, n_src)
    members = _membership(tgt_words, n_tgt).T
    merged: npt.NDArray[np.float64] = members @ by_source / np.maximum(members.sum(1, keepdims=True), 1.0)
    return merged


def _membership(words: Sequence[int], count: int) -> Array:
    """Return the array [pieces, words] that is 1 where the piece belongs to the word."""
    numbers = np.asarray(words, dtype=np.int64).reshape(-1, 1)
    return np.asarray(numbers == np.arange(count), dtype=np.float64)


def links_of(weights: Array, threshold: float | None = None, *, eos: bool = False) -> Links:
    """Return the links that word-level weights [target words, source words] speak for.

    Without a threshold each target word is linked to the source word with the most weight, the first of equals; with
    one, to every source word that has at least that much. Where there is no weight, there is no link.

    Args:
        weights: as `merge_words` gives them.
        threshold: the least weight of a link.
        eos: whether the last column is that of EOS. A target word with the most weight there has no link: the decoder
            looked at no word. With a threshold it is left out.
    """
    width = weights.shape[1] - eos
    if threshold is not None:
        targets, sources = np.nonzero((weights >= threshold) & (weights > 0))
    elif weights.size:
        sources = weights.argmax(1)
        targets = np.arange(len(weights))
        some = weights[targets, sources] > 0
        targets, sources = targets[some], sources[some]
    else:
        return frozenset()
    real = sources < width
    return frozenset(zip(sources[real].tolist(), targets[real].tolist(), strict=True))


def link_pieces(
    weights: Array,
    tgt_words: Sequence[int],
    src_words: Sequence[int],
    *,
    shift: int = 0,
    threshold: float | None = None,
) -> Links:
    """Return the links of words that a decoder's weights on pieces speak for.

    Args:
        weights: [T + 1, S + 1], a row for each step and the columns of the source pieces, EOS last in both. A
            translation that the length limit cut has no last step and T rows; without attention there are no columns.
        tgt_words, src_words: the word that each of the T and S pieces belongs to.
        shift: 0 gives a target piece the weights of the step that chooses it, 1 those of the next one, whose state
            has read it; the last piece then has those of EOS, and none where the length limit left that step out.
        threshold: as in `links_of`.
    """
    if not tgt_words or not src_words or not weights.shape[1]:
        return frozenset()
    rows = weights[shift : shift + len(tgt_words)]
    n_tgt, n_src = max(tgt_words) + 1, max(src_words) + 1
    merged = merge_words(rows, tgt_words[: len(rows)], [*src_words, n_src], n_tgt, n_src + 1)
    return links_of(merged, threshold, eos=True)


# --- two directions -------------------------------------------------------------------------------------------------


def symmetrize(forward: Links, backward: Links, method: Method) -> Links:
    """Return one alignment from those of both directions, both as (source word, target word).

    `grow-diag-final-and` (Koehn, Och and Marcu 2003; the variant of Moses): from the intersection grow by points of the
    union that neighbour a point, diagonally too, and link a word that has no link yet, until there is none; then add
    points of `forward` and after them of `backward` whose words both have none. Points are visited by target word and
    then by source word, and those just added count at once.
    """
    match method:
        case "intersection":
            return forward & backward
        case "union":
            return forward | backward
        case "grow-diag-final-and":
            return _grow_diag_final_and(forward, backward)


def _grow_diag_final_and(forward: Links, backward: Links) -> Links:
    def in_order(link: Link) -> Link:
        return link[1], link[0]

    links = set(forward & backward)
    sources = {source for source, _ in links}
    targets = {target for _, target in links}

    def add(link: Link, wanted: Callable[[bool, bool], bool]) -> bool:
        if link in links or not wanted(link[0] not in sources, link[1] not in targets):
            return False
        links.add(link)
        sources.add(link[0])
        targets.add(link[1])
        return True

    union = forward | backward
    visited = sorted(union, key=in_order)
    growing = True
    while growing:
        growing = False
        for source, target in visited:
            if (source, target) not in links:
                continue
            for down, right in _NEIGHBOURS:
                neighbour = (source + right, target + down)
                if neighbour in union:
                    growing |= add(neighbour, lambda source_free, target_free: source_free or target_free)
    for direction in (forward, backward):
        for link in sorted(direction, key=in_order):
            add(link, lambda source_free, target_free: source_free and target_free)
    return frozenset(links)


# --- scores ---------------------------------------------------------------------------------------------------------


def alignment_error(predicted: Sequence[Links], gold: Sequence[GoldLinks]) -> AlignmentScores:
    """Return precision, recall and alignment error rate over a corpus, as many gold pairs as predicted ones.

    Precision |A∩P| / |A|, recall |A∩S| / |S|, AER 1 - (|A∩S| + |A∩P|) / (|A| + |S|) with the links A, the sure S and
    the possible P, S among them (Och and Ney 2003).
    """
    links = sure = possible = in_sure = in_possible = 0
    for ours, theirs in zip(predicted, gold, strict=True):
        links += len(ours)
        sure += len(theirs.sure)
        possible += len(theirs.possible)
        in_sure += len(ours & theirs.sure)
        in_possible += len(ours & theirs.possible)
    return AlignmentScores(
        precision=in_possible / links if links else 1.0,
        recall=in_sure / sure if sure else 1.0,
        aer=1.0 - (in_sure + in_possible) / (links + sure) if links + sure else 0.0,
        predicted=links,
        sure=sure,
        possible=possible,
    )
