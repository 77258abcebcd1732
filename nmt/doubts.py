"""What makes a score doubtful though it can be computed: text changed beforehand, sides that do not belong together.

Nothing here changes a score. Each doubt is one sentence for a warning: what was seen, how often, and what to do.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence

from nmt.config import TrainingConfig
from nmt.plotting import FEW
from nmt.training.optim import Schedule
from nmt.training.state import TrainingState

LEARNT = 1.0  # points of BLEU; less is what words that are frequent in any text score
CLOSER = 5.0  # points of chrF; a model of the demo corpus with its sides changed over has 7

_TOKENIZED = re.compile(r"\s[.。]$")  # sacreBLEU's own sign
_MARKS = {"@@ ": "pieces of words", "▁": "pieces of words", "&apos;": "escapes", "&quot;": "escapes"}
_LEFT = 0.05  # of a schedule, from which on it matters that it was not followed to its end
# Scripts that put no blanks between words: Thai, Lao, Tibetan, Burmese, Khmer; kana and Han.
_UNSPACED = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")


def doubts_of_pairs(pairs: Sequence[tuple[str, str]], tokenizer: str) -> list[str]:
    """Return what is doubtful about a test set, `tokenizer` being BLEU's.

    Args:
        pairs: source and reference of each sentence.
        tokenizer: as sacreBLEU calls it.
    """
    references = [reference for _, reference in pairs]
    found = [_shifted(pairs)]
    if len(pairs) >= FEW:
        found += [
            _untranslated(pairs),
            _tokenized(references),
            _marked(references),
            _lowercased(references),
            _unspaced(references, tokenizer),
        ]
    return [doubt for doubt in found if doubt]


def doubts_of_translations(sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> list[str]:
    """Return what is doubtful about translations beside their references; the arguments run in parallel."""
    if len(references) < FEW:
        return []
    found = [
        _other_habits(hypotheses, references),
        _other_forms(hypotheses, references),
        _closer_to_sources(sources, hypotheses, references),
    ]
    return [doubt for doubt in found if doubt]


def doubt_of_training(state: TrainingState) -> str | None:
    """Return that a training which has ended has taught the model nothing, and what may be the matter, if so it is."""
    if not -math.inf < state.best_score < LEARNT:
        return None
    found = f"dev BLEU was never above {state.best_score:.2f}: the model has learnt next to nothing. "
    if not state.bad_validations:
        return found + (
            f"Its last validation, after {state.step:,} updates, was its best: train it longer (--resume with a larger "
            "training.max_steps or training.max_minutes)."
        )
    return found + (
        "Likely causes: source and target lines that do not belong together (shifted files), far too little text, or "
        "a learning rate that does not suit (training.optimizer.learning_rate)."
    )


def doubt_of_schedule(config: TrainingConfig, state: TrainingState) -> str | None:
    """Return that a training ended in the middle of what is planned over its max_steps, and what to do, if so it is."""
    share = state.step / config.max_steps
    rate = Schedule(config.schedule, 1.0).rate(state.step, share)
    left = []
    if config.schedule.kind == "cosine" and rate >= _LEFT:
        left.append(f"the learning rate was still at {rate:.0%} of its height")
    if config.scheduled_sampling and share <= 1 - _LEFT:
        left.append(f"the share of own words at {share:.0%} of training.scheduled_sampling")
    if not left:
        return None
    limit = "patience" if state.bad_validations >= config.patience else "max_minutes"
    return (
        f"Training ended at step {state.step:,} of {config.max_steps:,}, for which it was planned: {', '.join(left)}. "
        f"It may be better with training.max_steps as large as there is time for, or a larger training.{limit}."
    )


def _shifted(pairs: Sequence[tuple[str, str]]) -> str | None:
    lines = [line for line, (src, tgt) in enumerate(pairs, 1) if bool(src.strip()) != bool(tgt.strip())]
    if not lines:
        return None
    return (
        f"{len(lines):,} of {len(pairs):,} pairs have text on one side only, the first in line {lines[0]:,}: they are "
        "scored as they are. Are the two sides shifted against each other?"
    )


def _untranslated(pairs: Sequence[tuple[str, str]]) -> str | None:
    count = sum(src == tgt for src, tgt in pairs)
    if count * 2 <= len(pairs):
        return None
    return f"{count:,} of {len(pairs):,} references are the source itself: is one file given for both sides?"


def _tokenized(references: Sequence[str]) -> str | None:
    count = sum(_TOKENIZED.search(reference) is not None for reference in references)
    if count < 100 and count * 2 <= len(references):
        return None
    return (
        f"{count} of {len(references)} references end in a separate ' .': they look tokenised. BLEU is meant for raw "
        "text; detokenise them for a score that others can compare."
    )


def _marked(references: Sequence[str]) -> str | None:
    for mark, what in _MARKS.items():
        count = sum(mark in reference for reference in references)
        if count * 10 >= len(references):
            return (
                f"{count:,} of {len(references):,} references hold {mark.strip()!r}: they look as if {what} had been "
                "left in. BLEU is meant for raw text."
            )
    return None


def _lowercased(references: Sequence[str]) -> str | None:
    if any(map(_has_capitals, references)) or not _are_cased(references):
        return None
    return (
        f"none of the {len(references):,} references has a capital letter: they look lowercased. BLEU is cased, and "
        "scores on lowercased text are not comparable with others."
    )


def _unspaced(references: Sequence[str], tokenizer: str) -> str | None:
    if tokenizer not in ("13a", "intl", "none"):
        return None
    letters = sum(character.isalpha() for reference in references for character in reference)
    unspaced = sum(len(_UNSPACED.findall(reference)) for reference in references)
    if unspaced * 2 <= letters:
        return None
    return (
        f"the references have no blanks between words, but BLEU's tokenizer {tokenizer} cuts at blanks: set "
        "data.tgt_lang to the language's code (zh, ja), or evaluation.bleu_tokenize=char."
    )


def _other_habits(hypotheses: Sequence[str], references: Sequence[str]) -> str | None:
    """Translations that were learnt from tokenised or lowercased text, beside raw references."""
    count = len(hypotheses)
    ours, theirs = (sum(_TOKENIZED.search(text) is not None for text in texts) for texts in (hypotheses, references))
    if ours * 2 > count and theirs * 2 <= count:
        return (
            f"{ours:,} of {count:,} translations end in a separate ' .', the references do not: the model was trained "
            "on tokenised text. BLEU is meant for raw text; train on raw text."
        )
    capitals = sum(map(_has_capitals, references))
    if capitals * 2 > count and _are_cased(hypotheses) and not any(map(_has_capitals, hypotheses)):
        return (
            "no translation has a capital letter, the references have: the model was trained on lowercased text, or "
            "has hardly been trained. BLEU is cased."
        )
    return None


def _other_forms(hypotheses: Sequence[str], references: Sequence[str]) -> str | None:
    ours, theirs = (
        sum(not unicodedata.is_normalized("NFC", text) for text in texts) for texts in (hypotheses, references)
    )
    if abs(ours - theirs) * 10 <= len(references):
        return None
    return (
        f"{ours:,} of {len(hypotheses):,} translations and {theirs:,} of the references have characters in pieces (not "
        "in Unicode's form NFC), so that equal words do not match: bring training text and references to one form."
    )


def _closer_to_sources(sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> str | None:
    from sacrebleu.metrics.chrf import CHRF

    to_sources, to_references = (
        float(CHRF().corpus_score(list(hypotheses), [list(texts)]).score) for texts in (sources, references)
    )
    if to_sources <= to_references + CLOSER:
        return None
    return (
        f"the translations are closer to the sources (chrF {to_sources:.1f}) than to the references "
        f"({to_references:.1f}): are source and target the right way round for this model?"
    )


def _has_capitals(text: str) -> bool:
    return any(map(str.isupper, text))


def _are_cased(texts: Sequence[str]) -> bool:
    return sum(any(map(str.islower, text)) for text in texts) * 2 > len(texts)
