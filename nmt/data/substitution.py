"""More training pairs from few: phrases that stand between the same words change places, on both sides at once.

Where little text is known, most words occur in one sentence alone, and a model learns that sentence rather than the
word. New pairs with rare words in other sentences help against it (Fadaee, Bisazza and Monz 2017, "Data augmentation
for low-resource neural machine translation"). What may stand where is told by the neighbours, as by Andreas (2020,
"Good-enough compositional data augmentation"): two phrases that occur between the same words of the source, and whose
translations occur between the same words of the target, are exchanged together with them. Phrases and translations are
those of phrase-based translation (Koehn, Och and Marcu 2003, section 4.2), by the links of `word_alignment`.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nmt.data.links import Links
from nmt.data.sources import Pair
from nmt.data.word_alignment import align_words

MOST_PAIRS = 100_000  # that new ones are made of: all are in memory, some 30 KB each
LONGEST = 5  # words of a phrase, on either side
_LARGEST_SHARE = 0.6  # of the words of a sentence that a phrase may have
_EXCHANGES = (1, 1, 2, 2, 3)  # how many a new pair has, each as likely
_TRIES = 20  # for each new pair, until what can be made is taken for exhausted
_EDGE = ""  # the neighbour of a phrase that begins or ends a sentence

# Scripts without blanks: a word a character.
_BY_ITSELF = re.compile("[\u2e80-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uff65]")


@dataclass(frozen=True, slots=True)
class _Word:
    """A word or a mark of punctuation, and whether a blank is before it."""

    text: str
    after_blank: bool


_Words = tuple[_Word, ...]
_Neighbours = tuple[str, str, str, str]  # before and after the phrase, of the source and of the target


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a phrase pair stands: words [src_begin, src_end) and [tgt_begin, tgt_end) of its sentences."""

    src_begin: int
    src_end: int
    tgt_begin: int
    tgt_end: int

    def touches(self, other: _Place) -> bool:
        """Say whether the other one overlaps this one or is its neighbour."""
        src = self.src_begin <= other.src_end and other.src_begin <= self.src_end
        return src or (self.tgt_begin <= other.tgt_end and other.tgt_begin <= self.tgt_end)


_Phrase = tuple[_Words, _Words]  # of the source and its translation


def substitute(pairs: Sequence[Pair], count: int, seed: int = 1) -> list[Pair]:
    """Return up to `count` new pairs, each a pair of `pairs` with one to three phrases exchanged.

    They differ from all given pairs and from each other. There are fewer where no more are found.
    """
    sentences = _sentences(pairs)
    links = align_words([(_texts(src), _texts(tgt)) for src, tgt in sentences])
    places, phrases = _phrases(sentences, links)
    usable = [number for number, found in enumerate(places) if found]
    known = {tuple(map(_joined, pair)) for pair in sentences}
    begins_large = [_mostly_capitalised([pair[side] for pair in pairs]) for side in (0, 1)]
    draw = random.Random(seed)
    made: list[Pair] = []
    for _ in range(_TRIES * count if usable else 0):
        if len(made) == count:
            break
        number = draw.choice(usable)
        new = _exchanged(sentences[number], places[number], phrases, draw)
        if new not in known:
            known.add(new)
            src, tgt = (
                text[0].upper() + text[1:] if large and _is_large(old) else text
                for text, old, large in zip(new, pairs[number], begins_large)
            )
            made.append((src, tgt))
    return made


# --- text and words -------------------------------------------------------------------------------------------------


def _words(text: str) -> list[_Word]:
    """Return words and marks: marks at the ends of what stands between blanks are words by themselves."""
    found = []
    for chunk in text.split():
        parts: list[str] = []
        for part in _BY_ITSELF.sub(r" \g<0> ", chunk).split():
            begin, end = 0, len(part)
            while begin < end and _is_mark(part[begin]):
                begin += 1
            while end > begin and _is_mark(part[end - 1]):
                end -= 1
            parts += [*part[:begin], *([part[begin:end]] if begin < end else []), *part[end:]]
        found += [_Word(part, place == 0) for place, part in enumerate(parts)]
    return found


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"


def _texts(words: Sequence[_Word]) -> list[str]:
    return [word.text for word in words]


def _joined(words: Sequence[_Word]) -> str:
    return "".join(" " * word.after_blank + word.text for word in words).strip()


def _sentences(pairs: Sequence[Pair]) -> list[tuple[list[_Word], list[_Word]]]:
    """Return the words of each pair; a first word that is a capitalised common one has a small letter."""
    sides = []
    for side in (0, 1):
        texts = [_words(pair[side]) for pair in pairs]
        within = Counter(word.text for words in texts for word in words[1:])
        for words in texts:
            if words and within[words[0].text.lower()] >= max(within[words[0].text], 1):
                words[0] = _Word(words[0].text.lower(), words[0].after_blank)
        sides.append(texts)
    return list(zip(*sides))


def _is_large(text: str) -> bool:
    return text.lstrip()[:1].isupper()


def _mostly_capitalised(texts: Sequence[str]) -> bool:
    """Say whether sentences begin with a capital letter here; else one at the beginning is that of a name or noun."""
    return 2 * sum(map(_is_large, texts)) > len(texts)


# --- phrases --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Found:
    """A phrase pair at its place, and its neighbours."""

    place: _Place
    neighbours: _Neighbours
    phrase: _Phrase


def _phrases(
    sentences: Sequence[tuple[Sequence[_Word], Sequence[_Word]]], links: Sequence[Links]
) -> tuple[list[list[_Found]], dict[_Neighbours, list[_Phrase]]]:
    """Return what can be exchanged in each sentence, and the different phrases that occur between the same words.

    Each phrase counts once, however often it occurs: so rare ones are drawn as often as frequent ones.
    """
    places: list[list[_Found]] = []
    between: dict[_Neighbours, dict[_Phrase, None]] = {}  # dicts keep the order, so a seed gives the same pairs
    for (src, tgt), linked in zip(sentences, links, strict=True):
        found = []
        for place in _consistent(src, linked):
            phrase = (tuple(src[place.src_begin : place.src_end]), tuple(tgt[place.tgt_begin : place.tgt_end]))
            neighbours = (
                *_around(src, place.src_begin, place.src_end),
                *_around(tgt, place.tgt_begin, place.tgt_end),
            )
            found.append(_Found(place, neighbours, phrase))
            between.setdefault(neighbours, {})[phrase] = None
        places.append(found)
    phrases = {neighbours: list(found) for neighbours, found in between.items() if len(found) > 1}
    return [[each for each in found if each.neighbours in phrases] for found in places], phrases


def _around(words: Sequence[_Word], begin: int, end: int) -> tuple[str, str]:
    """Return the words before and after; a mark with the word beyond it, which agrees as in "Mann, der"."""
    before = words[begin - 1].text if begin else _EDGE
    after = words[end].text if end < len(words) else _EDGE
    if begin > 1 and _is_mark(before[0]):
        before = f"{words[begin - 2].text} {before}"
    if end + 1 < len(words) and _is_mark(after[0]):
        after = f"{after} {words[end + 1].text}"
    return before, after


def _consistent(src: Sequence[_Word], links: Links) -> Iterator[_Place]:
    """Yield phrase pairs none of whose words is linked to one outside, with links at all four ends."""
    by_src: dict[int, list[int]] = {}
    by_tgt: dict[int, list[int]] = {}
    for i, j in sorted(links):
        by_src.setdefault(i, []).append(j)
        by_tgt.setdefault(j, []).append(i)
    longest = min(LONGEST, int(_LARGEST_SHARE * len(src)))
    for begin in by_src:
        if _is_mark(src[begin].text[0]):
            continue
        first, last = by_src[begin][0], by_src[begin][-1]
        for end in range(begin, min(begin + longest, len(src))):
            if end not in by_src or _is_mark(src[end].text[0]):
                continue
            first, last = min(first, by_src[end][0]), max(last, by_src[end][-1])
            linked = (i for j in range(first, last + 1) for i in by_tgt.get(j, ()))
            if last - first < LONGEST and all(begin <= i <= end for i in linked):
                yield _Place(begin, end + 1, first, last + 1)


def _exchanged(
    sentence: tuple[Sequence[_Word], Sequence[_Word]],
    usable: Sequence[_Found],
    phrases: dict[_Neighbours, list[_Phrase]],
    draw: random.Random,
) -> Pair:
    """Return the sentences with one to three phrases exchanged, fewer if they would touch."""
    wanted = draw.choice(_EXCHANGES)
    chosen: list[_Found] = []
    for found in draw.sample(usable, len(usable)):
        if not any(found.place.touches(other.place) for other in chosen):
            chosen.append(found)
        if len(chosen) == wanted:
            break
    src, tgt = map(list, sentence)
    others = {}
    for found in chosen:
        others[found] = draw.choice([each for each in phrases[found.neighbours] if each != found.phrase])
    for found in sorted(chosen, key=lambda each: each.place.src_begin, reverse=True):
        _replace(src, found.place.src_begin, found.place.src_end, others[found][0])
    for found in sorted(chosen, key=lambda each: each.place.tgt_begin, reverse=True):
        _replace(tgt, found.place.tgt_begin, found.place.tgt_end, others[found][1])
    return _joined(src), _joined(tgt)


def _replace(words: list[_Word], begin: int, end: int, phrase: _Words) -> None:
    """Put the phrase there, with the blank that was before the words that it replaces."""
    words[begin:end] = [_Word(phrase[0].text, words[begin].after_blank), *phrase[1:]]
