"""Which word of a text each of its pieces belongs to.

A word is what stands between whitespace, as `str.split` sees it, or what a given tokenisation says; they are numbered
from 0. Words are found in the text itself and not by the "▁" of the pieces: SentencePiece may normalise characters,
drop them or split one into several, and it takes fewer characters for a blank than `str.split` does.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from nmt.data.text import one_line
from nmt.data.tokenizer import Spans, Tokenizer
from nmt.errors import NmtError

Range = tuple[int, int]  # characters [begin, end) of a text

_WORD = re.compile(r"\S+")  # of a str: the same blanks as those of str.split


def encode_words(
    tokenizer: Tokenizer, lines: Sequence[str], words: Sequence[Sequence[Range]] | None = None
) -> list[tuple[list[int], list[int]]]:
    """Return the ids of each line as `Tokenizer.encode` gives them, and the number of each piece's word.

    The numbers never fall. A "▁" by itself belongs to the word that follows; a piece with characters of several words
    to the last of them. A word all of whose characters are dropped has no piece.

    Args:
        tokenizer: of the lines' side.
        lines: raw text.
        words: where the words of each line are, as `locate_words` gives it; None for those between whitespace.

    Raises:
        NmtError: if a line is no Unicode text.
    """
    encoded = tokenizer.encode_spans(lines)
    if words is None:
        return [(spans.ids, word_numbers(spans, words_between_blanks(spans.text))) for spans in encoded]
    return [(spans.ids, word_numbers(spans, places)) for spans, places in zip(encoded, words, strict=True)]


def words_between_blanks(text: str) -> list[Range]:
    """Return the characters [begin, end) of each word of a text."""
    return [match.span() for match in _WORD.finditer(text)]


def locate_words(text: str, words: Sequence[str], where: str) -> list[Range]:
    """Return the characters [begin, end) that each of the given words has in the text, which may lack their blanks.

    Raises:
        NmtError: if the words do not spell the text, blanks apart; `where` says what it calls them.
    """
    places: list[Range] = []
    position = 0
    for word in words:
        while position < len(text) and text[position].isspace():
            position += 1
        if not text.startswith(word, position):
            rest = text[position : position + 20]
            raise NmtError(
                f"{where}: the word {word!r} is not what comes next in the text, {rest!r}. The words must spell the "
                "text, character by character, with other blanks alone: no changed quotes, no escapes."
            )
        places.append((position, position + len(word)))
        position += len(word)
    if rest := text[position:].strip():
        raise NmtError(f"{where}: the words end before the text does: {rest[:20]!r} is in no word.")
    return places


def decode_words(tokenizer: Tokenizer, ids: Sequence[Iterable[int]]) -> list[tuple[str, list[int]]]:
    """Return the text of each sequence as `Tokenizer.decode` gives it, and the number of each piece's word there."""
    # What `one_line` replaces is whitespace before and after: it changes no word.
    decoded = tokenizer.decode_spans(ids)
    return [(one_line(spans.text), word_numbers(spans, words_between_blanks(spans.text))) for spans in decoded]


def word_numbers(spans: Spans, words: Sequence[Range]) -> list[int]:
    """Return the number of the word of each piece; of one without a visible character, that of the next with one.

    After the last word there is no next: such pieces belong to the last word, and to word 0 in a text of blanks.
    """
    starts = [start for start, _ in words]
    numbers = [0] * len(spans.ranges)
    following = max(0, len(words) - 1)
    for place in range(len(spans.ranges) - 1, -1, -1):
        begin, end = spans.ranges[place]
        if begin < end:
            word = bisect_left(starts, end) - 1  # the last that starts before the end
            if word >= 0 and words[word][1] > begin:
                following = word
        numbers[place] = following
    return numbers
