"""More training pairs from few: phrases that stand between the same words change places, on both sides at once.

Where little text is known, most words occur in one sentence alone, and a model learns that sentence rather than the
word. New pairs with rare words in other sentences help against it (Fadaee, Bisazza and Monz 2017, "Data augmentation
for low-resource neural machine translation"). What may stand where is told by the neighbours, as by Andreas (2020,
"Good-enough compositional data augmentation"): two phrases that occur between the same words of the source, and whose
translations occur between the same words of the target, are exchanged together with them. Phrases and translations are
those of phrase-based translation (Koehn, Och and Marcu 2003, section 4.2), by the links of `word_alignment`. Most new
pairs are translations of each other; a wrong link makes one that is not.

A change of what is made needs a higher `nmt.prepare.FORMAT`: data that was prepared before is used again otherwise.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from nmt.data.links import Links
from nmt.data.sources import Pair
from nmt.data.word_alignment import align_words

MOST_PAIRS = 100_000  # that new ones are made of: all are in memory, some 30 KB each
LONGEST = 5  # words of a phrase, on either side
_LONGEST_SENTENCE = 100  # words; pairs with more are left as they are
_LARGEST_SHARE = 0.6  # of the words of a source sentence that a phrase may have
_EXCHANGES = (1, 1, 2, 2, 3)  # in a new pair, each as likely
_MISSES = 10_000  # exchanges one after the other that gave nothing new, until no more are looked for
_REPORTED = 1000  # new pairs from one word of progress to the next
_EDGE = ""  # the neighbour of a phrase that begins or ends a sentence

# Chinese and Japanese characters: each is a word. Other scripts without blanks have whole sentences for words.
_UNSPACED = re.compile("[\u2e80-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uff65]")


@dataclass(frozen=True, slots=True)
class _Word:
    """A word or a mark of punctuation, and whether a blank is before it."""

    text: str
    after_blank: bool

    @property
    def is_mark(self) -> bool:
        return _is_mark(self.text[0])

    @property
    def has_partner(self) -> bool:
        """Whether it is a quotation mark or bracket, which mean nothing alone."""
        return unicodedata.category(self.text[0]) in ("Ps", "Pe", "Pi", "Pf") or self.text in ("'", '"')


_Words = tuple[_Word, ...]
_Neighbours = tuple[str, str, str, str]  # before and after the phrase, of the source and of the target
_Phrase = tuple[_Words, _Words]  # of the source and its translation


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a phrase pair stands: words [src_begin, src_end) and [tgt_begin, tgt_end) of its sentences."""

    src_begin: int
    src_end: int
    tgt_begin: int
    tgt_end: int

    def touches(self, other: _Place) -> bool:
        """Say whether fewer than two words are between them on a side: what one stands beside, the other may change."""
        src = self.src_begin < other.src_end + 2 and other.src_begin < self.src_end + 2
        return src or (self.tgt_begin < other.tgt_end + 2 and other.tgt_begin < self.tgt_end + 2)


@dataclass(frozen=True, slots=True)
class _Found:
    """A phrase pair at its place, and its neighbours."""

    place: _Place
    neighbours: _Neighbours
    phrase: _Phrase


def substitute(
    pairs: Sequence[Pair], count: int, seed: int = 1, progress: Callable[[int], None] | None = None
) -> list[Pair]:
    """Return up to `count` new pairs, each a pair of `pairs` with one to three phrases exchanged.

    They differ from all given pairs and from each other. There are fewer where no more are found.

    Args:
        pairs: what is exchanged in; pairs of more than 100 words on a side are left out.
        count: how many are wanted.
        seed: where the random choices start.
        progress: told how many there are, now and then and at the end.
    """
    sides = [_Side([_words(pair[side]) for pair in pairs]) for side in (0, 1)]
    sentences = [
        pair if all(0 < len(words) <= _LONGEST_SENTENCE for words in pair) else ((), ())
        for pair in zip(sides[0].sentences, sides[1].sentences, strict=True)
    ]
    links = align_words([(_texts(src), _texts(tgt)) for src, tgt in sentences])
    places, phrases = _phrases(sentences, links)
    usable = [number for number, found in enumerate(places) if found]
    known = {(_joined(_words(src)), _joined(_words(tgt))) for src, tgt in pairs}
    draw = random.Random(seed)
    made: list[Pair] = []
    misses = 0
    while usable and len(made) < count and misses < _MISSES:
        number = draw.choice(usable)
        chosen = _chosen(places[number], phrases, draw)
        new = (
            sides[0].exchanged(number, [(place.src_begin, place.src_end, phrase[0]) for place, phrase in chosen]),
            sides[1].exchanged(number, [(place.tgt_begin, place.tgt_end, phrase[1]) for place, phrase in chosen]),
        )
        misses += 1
        if new not in known:
            known.add(new)
            made.append(new)
            misses = 0
            if progress is not None and len(made) % _REPORTED == 0 and len(made) < count:
                progress(len(made))
    if progress is not None:
        progress(count)
    return made


# --- text and words -------------------------------------------------------------------------------------------------


def _words(text: str) -> list[_Word]:
    """Return words and marks: marks at the ends of what stands between blanks are words by themselves."""
    found = []
    for chunk in filter(None, text.split(" ")):
        parts: list[str] = []
        for part in filter(None, _UNSPACED.sub(r" \g<0> ", chunk).split(" ")):
            begin, end = 0, len(part)
            while begin < end and _is_mark(part[begin]):
                begin += 1
            while end > begin and _is_mark(part[end - 1]):
                end -= 1
            parts += [*part[:begin], *([part[begin:end]] if begin < end else []), *part[end:]]
        found += [_Word(part, place == 0) for place, part in enumerate(parts)]
    return found


def _is_mark(character: str) -> bool:
    """Say whether it is punctuation, a symbol or a blank that is no plain one, such as that before a French "?"."""
    return unicodedata.category(character)[0] in "PSZC"


def _texts(words: Sequence[_Word]) -> list[str]:
    return [word.text for word in words]


def _joined(words: Sequence[_Word]) -> str:
    return "".join(" " * word.after_blank + word.text for word in words).strip(" ")


def _is_capitalised(text: str) -> bool:
    return text[:1].isupper()


class _Side:
    """The sentences of one language.

    Attributes:
        sentences: words, the first in small letters where that is how it is mostly written within sentences.
    """

    def __init__(self, texts: Sequence[Sequence[_Word]]) -> None:
        within = Counter(word.text for words in texts for word in words[1:])
        self._first = [words[0] if words else None for words in texts]  # as they are written
        # Elsewhere a capital letter at the beginning is that of a name or noun.
        self._cased = 2 * sum(_is_capitalised(word.text) for word in self._first if word) > len(texts)
        self.sentences: list[_Words] = []
        for words in texts:
            small = list(words)
            if words and words[0].text[1:] == words[0].text[1:].lower():
                text = words[0].text.lower()
                if within[text] >= max(within[words[0].text], 1):
                    small[0] = _Word(text, words[0].after_blank)
            self.sentences.append(tuple(small))

    def exchanged(self, number: int, changes: Sequence[tuple[int, int, _Words]]) -> str:
        """Return the sentence with other words at [begin, end); the first keeps its capital letter or gets it."""
        words, first = list(self.sentences[number]), self._first[number]
        assert first is not None
        words[0] = first
        for begin, end, phrase in sorted(changes, key=lambda change: change[0], reverse=True):
            # The blank is that before the words that were there.
            words[begin:end] = [_Word(phrase[0].text, words[begin].after_blank), *phrase[1:]]
        text = _joined(words)
        begins_anew = any(begin == 0 for begin, _, _ in changes)
        return text[0].upper() + text[1:] if begins_anew and self._cased and _is_capitalised(first.text) else text


# --- phrases --------------------------------------------------------------------------------------------------------


def _phrases(
    sentences: Sequence[tuple[_Words, _Words]], links: Sequence[Links]
) -> tuple[list[list[_Found]], dict[_Neighbours, list[_Phrase]]]:
    """Return what can be exchanged in each sentence, and the different phrases that occur between the same words.

    Each phrase counts once, however often it occurs: so rare ones are drawn as often as frequent ones.
    """
    places: list[list[_Found]] = []
    between: dict[_Neighbours, dict[_Phrase, None]] = {}  # dicts keep the order, so a seed gives the same pairs
    for (src, tgt), linked in zip(sentences, links, strict=True):
        found = []
        for place in _consistent(src, tgt, linked):
            phrase = (src[place.src_begin : place.src_end], tgt[place.tgt_begin : place.tgt_end])
            neighbours = (
                *_neighbours(src, place.src_begin, place.src_end),
                *_neighbours(tgt, place.tgt_begin, place.tgt_end),
            )
            found.append(_Found(place, neighbours, phrase))
            between.setdefault(neighbours, {})[phrase] = None
        places.append(found)
    phrases = {neighbours: list(found) for neighbours, found in between.items() if len(found) > 1}
    return [[each for each in found if each.neighbours in phrases] for found in places], phrases


def _neighbours(words: _Words, begin: int, end: int) -> tuple[str, str]:
    """Return the words before and after; a mark with the word beyond it, which agrees as in "Mann, der"."""
    before = words[begin - 1].text if begin else _EDGE
    after = words[end].text if end < len(words) else _EDGE
    if begin > 1 and words[begin - 1].is_mark:
        before = f"{words[begin - 2].text} {before}"
    if end + 1 < len(words) and words[end].is_mark:
        after = f"{after} {words[end + 1].text}"
    return before, after


def _consistent(src: _Words, tgt: _Words, links: Links) -> Iterator[_Place]:
    """Yield phrase pairs none of whose words is linked to one outside.

    All four ends are linked words, no marks; there are at most LONGEST words on a side, and no quotation marks or
    brackets, whose partner would be left behind.
    """
    by_src: dict[int, list[int]] = {}
    by_tgt: dict[int, list[int]] = {}
    for i, j in sorted(links):
        by_src.setdefault(i, []).append(j)
        by_tgt.setdefault(j, []).append(i)
    longest = min(LONGEST, int(_LARGEST_SHARE * len(src)))
    for begin in by_src:
        first, last = by_src[begin][0], by_src[begin][-1]
        for end in range(begin, min(begin + longest, len(src))):
            if end in by_src:
                first, last = min(first, by_src[end][0]), max(last, by_src[end][-1])
            if last - first >= LONGEST or src[end].has_partner:
                break
            ends = src[begin], src[end], tgt[first], tgt[last]
            linked = (i for j in range(first, last + 1) for i in by_tgt.get(j, ()))
            if end not in by_src or any(word.is_mark for word in ends) or not all(begin <= i <= end for i in linked):
                continue
            if not any(word.has_partner for word in tgt[first : last + 1]):
                yield _Place(begin, end + 1, first, last + 1)


def _chosen(
    usable: Sequence[_Found], phrases: dict[_Neighbours, list[_Phrase]], draw: random.Random
) -> list[tuple[_Place, _Phrase]]:
    """Return one to three places that do not touch, and what comes there."""
    wanted = draw.choice(_EXCHANGES)
    chosen: list[_Found] = []
    for found in draw.sample(usable, len(usable)):
        if not any(found.place.touches(other.place) for other in chosen):
            chosen.append(found)
        if len(chosen) == wanted:
            break
    others = [[each for each in phrases[found.neighbours] if each != found.phrase] for found in chosen]
    return [(found.place, draw.choice(each)) for found, each in zip(chosen, others, strict=True)]
