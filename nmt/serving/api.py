"""What clients send and get: the fields of requests and answers, and how a translation becomes one."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from nmt.attended import attended_sentence
from nmt.attention_page import AttendedSentence
from nmt.data.links import links_of
from nmt.data.text import read_blocks
from nmt.translations import Translation, word_alignment

MOST = 1000  # of a beam, whatever the server's limit: no message has to repeat a number of thousands of digits

Units = Literal["words", "pieces"]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TranslateRequest(_Message):
    """Text to translate, and how."""

    text: Annotated[str | list[str], Field(description="Lines of text, or a list of sentences.")]
    n_best: Annotated[int, Field(ge=1, le=MOST, strict=True, description="Translations a sentence.")] = 1
    beam: Annotated[
        int | None, Field(ge=1, le=MOST, strict=True, description="Hypotheses kept; by default the server's.")
    ] = None
    weights: Annotated[Units | None, Field(description="Of words or of pieces, the attention weights too.")] = None

    def lines(self) -> list[str]:
        """The sentences: those of a list, or the lines of a text as `nmt translate` reads them."""
        if isinstance(self.text, list):
            return self.text
        blocks = read_blocks(io.BytesIO(self.text.encode()), "text")
        return [line for block in blocks for line in block]


class Weights(_Message):
    """Where the model looked: a row for each target unit, a number for each source unit, in thousandths.

    The last source unit is the end of the sentence, and so is the last target unit unless the length limit cut it off.
    """

    target: tuple[str, ...]
    rows: list[list[int]]


class CandidateAnswer(_Message):
    """One translation of a sentence."""

    text: str
    score: float
    log_prob: float
    alignment: list[tuple[int, int]]
    length_limited: bool
    weights: Weights | None = None


class TranslationAnswer(_Message):
    """The translations of one sentence, best first; the first three fields are those of the best."""

    text: str
    score: float
    alignment: list[tuple[int, int]]
    truncated: Annotated[bool, Field(description="Only the beginning of the source was translated.")]
    source: Annotated[tuple[str, ...] | None, Field(description="The source's units, if weights were asked for.")] = (
        None
    )
    n_best: list[CandidateAnswer]


class TranslateAnswer(_Message):
    """One entry a sentence, in order."""

    translations: list[TranslationAnswer]


class ErrorAnswer(_Message):
    """What went wrong, in one message."""

    error: str


class StateAnswer(_Message):
    """Whether the server is alive, or takes requests."""

    status: Literal["alive", "ready", "shutting down"]


class ModelAnswer(_Message):
    """One of the models that translate."""

    name: str
    kind: Annotated[str, Field(description="Of the decoder.")]
    step: Annotated[int | None, Field(description="Updates of its training, where that is known.")]


class InfoAnswer(_Message):
    """What is served."""

    nmt: Annotated[str, Field(description="Version.")]
    src_lang: str
    tgt_lang: str
    models: list[ModelAnswer]
    attention: Annotated[bool, Field(description="Whether weights and alignments can be had.")]
    search: dict[str, Any]
    limits: dict[str, Any]


def answer(
    lines: Sequence[str], translations: Sequence[Translation], *, shift: int, weights: Units | None
) -> TranslateAnswer:
    """The answer to a request; `weights` is None where none were asked for."""
    return TranslateAnswer(
        translations=[
            _translation(line, translation, shift, weights)
            for line, translation in zip(lines, translations, strict=True)
        ]
    )


def _translation(line: str, translation: Translation, shift: int, weights: Units | None) -> TranslationAnswer:
    attended: AttendedSentence | None = None
    if weights is not None and translation.src_pieces:
        attended = attended_sentence(0, line, translation, pieces=weights == "pieces")
    candidates = []
    for place, one in enumerate(translation.candidates):
        heat = None if attended is None else attended.maps[place]
        found = None
        if heat is not None:
            rows = (heat.weights * 1000).round().astype(int).tolist()
            found = Weights.model_construct(target=heat.units, rows=rows)  # checking a million numbers takes seconds
        if heat is not None and weights == "words" and shift == 0:
            links = links_of(heat.weights[: len(heat.weights) - (not one.length_limited)], eos=True)
        else:
            links = word_alignment(translation, one, shift=shift)
        candidates.append(
            CandidateAnswer(
                text=one.text,
                score=one.score,
                log_prob=one.log_prob,
                alignment=sorted(links),
                length_limited=one.length_limited,
                weights=found,
            )
        )
    best = candidates[0]
    return TranslationAnswer(
        text=best.text,
        score=best.score,
        alignment=best.alignment,
        truncated=translation.truncated,
        source=None if attended is None else attended.units,
        n_best=candidates,
    )
