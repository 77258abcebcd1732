"""Which word of a text each of its pieces belongs to.

A word is what stands between whitespace, as `str.split` sees it, numbered from 0. Words are found in the text itself
and not by the "▁" of the pieces: SentencePiece may normalise characters, drop them or split one into several, and it
takes fewer characters for a blank than `str.split` does.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from nmt.data.text import one_line
from nmt.data.tokenizer import Spans, Tokenizer

_WORD = re.compile(r"\S+")  # of a str: the same blanks as those of str.split


def encode_words(tokenizer: Tokenizer, lines: Sequence[str]) -> list[tuple[list[int], list[int]]]:
    """Return the ids of each line as `Tokenizer.encode` gives them, and the number of each piece's word.

    The numbers never fall. A "▁" by itself belongs to the word that follows; a piece with characters of several words
    to the last of them. A word all of whose characters are dropped has no piece.

    Raises:
        NmtError: if a line is no Unicode text.
    """
    return [(spans.ids, word_numbers(spans)) for spans in tokenizer.encode_spans(lines)]


def decode_words(tokenizer: Tokenizer, ids: Sequence[Iterable[int]]) -> list[tuple[str, list[int]]]:
    """Return the text of each sequence as `Tokenizer.decode` gives it, and the number of each piece's word there."""
    # What `one_line` replaces is whitespace before and after: it changes no word.
    return [(one_line(spans.text), word_numbers(spans)) for spans in tokenizer.decode_spans(ids)]


def word_numbers(spans: Spans) -> list[int]:
    """Return the number of the word of each piece; of one without a visible character, that of the next with one.

    After the last word there is no next: such pieces belong to the last word, and to word 0 in a text of blanks.
    """
    words = [match.span() for match in _WORD.finditer(spans.text)]
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
