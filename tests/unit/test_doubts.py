"""What a score is warned of, and that ordinary text is not."""

from __future__ import annotations

import math
import re
import unicodedata

import pytest

from nmt.config import ScheduleConfig, TrainingConfig
from nmt.doubts import doubt_of_schedule, doubt_of_training, doubts_of_pairs, doubts_of_translations
from nmt.training.state import TrainingState

ANIMALS = ["Hund", "Kater", "Vogel", "Fisch", "Mann", "Ochse", "Eber", "Hahn", "Fuchs", "Uhu"]
SOURCES = [f"The animal number {number} sees the old house." for number in range(10)]
REFERENCES = [f"Der {animal} schaut über den schönen Zaun." for animal in ANIMALS]
CHINESE = ["我今天很高兴见到你。"] * 10


def of_pairs(references: list[str], sources: list[str] = SOURCES, tokenizer: str = "13a") -> list[str]:
    return doubts_of_pairs(list(zip(sources, references, strict=True)), tokenizer)


def test_raw_text_raises_no_doubt() -> None:
    assert of_pairs(REFERENCES) == []
    assert doubts_of_translations(SOURCES, REFERENCES, REFERENCES) == []
    assert of_pairs(CHINESE, tokenizer="zh") == []


@pytest.mark.parametrize(
    ("references", "doubt"),
    [
        ([text.replace(".", " .") for text in REFERENCES], "10 of 10 references end in a separate ' .'"),
        ([text.lower() for text in REFERENCES], "none of the 10 references has a capital letter"),
        ([text.replace("sch", "sch@@ ") for text in REFERENCES], "10 of 10 references hold '@@'"),
        (["▁" + text.replace(" ", " ▁") for text in REFERENCES], "10 of 10 references hold '▁'"),
        ([text + " &apos;s" for text in REFERENCES], "hold '&apos;'"),
        (CHINESE, "no blanks between words, but BLEU's tokenizer 13a"),
        (SOURCES, "10 of 10 references are the source itself"),
        (["", *REFERENCES[1:3], " ", *REFERENCES[4:]], "2 of 10 pairs have text on one side only, the first in line 1"),
    ],
)  # fmt: skip
def test_references_that_were_changed_or_belong_elsewhere(references: list[str], doubt: str) -> None:
    [found] = of_pairs(references)
    assert doubt in found


@pytest.mark.parametrize(
    ("hypotheses", "doubt"),
    [
        ([text.replace(".", " .") for text in REFERENCES], "the model was trained on tokenised text"),
        ([text.lower() for text in REFERENCES], "no translation has a capital letter"),
        ([unicodedata.normalize("NFD", text) for text in REFERENCES], "10 of 10 translations and 0 of the references"),
        (SOURCES, "closer to the sources (chrF 100.0)"),
    ],
)
def test_translations_that_were_learnt_from_other_text(hypotheses: list[str], doubt: str) -> None:
    [found] = doubts_of_translations(SOURCES, hypotheses, REFERENCES)
    assert doubt in found


def test_a_few_sentences_raise_no_doubt_but_of_a_shift() -> None:
    assert of_pairs(SOURCES[:9], SOURCES[:9]) == []
    assert doubts_of_translations(SOURCES[:9], SOURCES[:9], REFERENCES[:9]) == []
    [found] = of_pairs(["", "b"], ["a", ""])
    assert "2 of 2 pairs" in found


@pytest.mark.parametrize(
    ("score", "bad", "said"),
    [
        (0.4, 0, "never above 0.40.*last validation, after 1,200 updates, was its best: train it longer"),
        (0.4, 3, "never above 0.40.*shifted files.*learning_rate"),
        (1.0, 3, None),
        (-math.inf, 0, None),  # of a run that was not validated
    ],
)
def test_a_model_that_has_learnt_nothing_is_told_with_what_may_be_the_matter(
    score: float, bad: int, said: str | None
) -> None:
    doubt = doubt_of_training(TrainingState(step=1200, best_score=score, bad_validations=bad))
    assert doubt is None if said is None else re.search(said, doubt or "")


@pytest.mark.parametrize(
    ("kind", "sampling", "step", "bad", "said"),
    [
        ("cosine", 0.0, 900, 5, None),  # 2 % of the rate: nothing is lost
        ("cosine", 0.0, 1, 0, None),  # of the warm-up: the rate has not been high yet
        ("constant", 0.4, 990, 0, None),
        ("cosine", 0.0, 500, 0, r"step 500 of 1,000.*learning rate was still at 50% of its height\..*max_minutes"),
        ("cosine", 0.0, 250, 5, r"at 85% of its height\..*larger training\.patience"),
        ("constant", 0.4, 300, 0, r"planned: the share of own words at 30% of training\.scheduled_sampling\."),
        ("cosine", 0.0, 1000, 0, None),
        ("plateau", 0.0, 500, 0, None),
    ],
)
def test_a_training_cut_in_the_middle_of_its_schedule_is_told(
    kind: str, sampling: float, step: int, bad: int, said: str | None
) -> None:
    schedule = ScheduleConfig.model_validate({"kind": kind, "warmup_steps": 100})
    config = TrainingConfig(max_steps=1000, max_minutes=5, scheduled_sampling=sampling, schedule=schedule)
    doubt = doubt_of_schedule(config, TrainingState(step=step, bad_validations=bad))
    assert doubt is None if said is None else re.search(said, doubt or "")
