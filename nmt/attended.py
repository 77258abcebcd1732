"""Translations as words or pieces with the weights between them: what pages and pictures of attention draw.

Nothing here knows torch, so that an exported model can be looked at, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmt.attention_page import AttendedSentence, AttentionMap
from nmt.data.links import merge_words
from nmt.model.stepper import Array
from nmt.translations import Candidate, Translation

END = "</s>"


def attended_sentence(
    line: int, source: str, translation: Translation, pieces: bool = True, windowed: bool = False
) -> AttendedSentence:
    """Brings what the model gave for a line into the form that is drawn."""
    words = source.split()
    if translation.truncated:
        words = words[: translation.src_words[-1] + 1]
    src = _units(translation.src_pieces, None if pieces else (words, translation.src_words), ended=True)
    maps = tuple(_map(candidate, src, pieces, windowed) for candidate in translation.candidates)
    return AttendedSentence(line, src.shown, translation.truncated, maps)


@dataclass(frozen=True)
class _Units:
    """The rows or columns of a map: what is shown, and which of them each piece belongs to."""

    shown: tuple[str, ...]
    numbers: tuple[int, ...]


def _units(pieces: Sequence[str], words: tuple[Sequence[str], Sequence[int]] | None, *, ended: bool) -> _Units:
    """The pieces, or the words with the number of each piece's word, and the end of the sentence if it is there."""
    shown, numbers = (pieces, range(len(pieces))) if words is None else words
    if pieces and not shown:
        shown = (" ",)  # pieces that spell nothing but blanks
    end = ((END,), (len(shown),)) if ended else ((), ())
    return _Units((*shown, *end[0]), (*numbers, *end[1]))


def _map(candidate: Candidate, src: _Units, pieces: bool, windowed: bool) -> AttentionMap:
    """The map of one candidate over the source's units. One that the length limit cut has no row for its end."""
    assert candidate.weights is not None
    words = None if pieces else (candidate.text.split(), candidate.words)
    tgt = _units(candidate.pieces, words, ended=not candidate.length_limited)
    weights = merge_words(candidate.weights, tgt.numbers, src.numbers, len(tgt.shown), len(src.shown))
    return AttentionMap(
        candidate.text,
        tgt.shown,
        candidate.score,
        candidate.log_prob,
        candidate.length_limited,
        weights,
        window_spans(weights) if windowed else None,
    )


def window_spans(weights: Array) -> tuple[tuple[int, int], ...]:
    """The first and the last position with weight of each row: its window, as weights are exactly 0 outside.

    Inside they are not, but for ones too small for a float: then the borders are those of what is left.
    """
    some = weights > 0
    some[~some.any(1)] = True  # a row without any weight leaves nothing out
    last = some.shape[1] - 1 - some[:, ::-1].argmax(1)
    return tuple(zip(some.argmax(1).tolist(), last.tolist()))
