"""What the load script calls an answer."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from load_serve import Tally, arguments


@pytest.mark.parametrize(
    ("text", "score", "outcome"),
    [
        ("eins", -0.5, "right"),
        ("eins", -0.9, "right"),
        ("uno", -0.50001, "tied"),
        ("uno", -0.6, "wrong"),
        ("zwei", -0.9, "crossed"),
        ("zwei", -0.5, "crossed"),  # however near the scores of two sentences are
    ],
)
def test_another_sentences_answer_is_crossed_whatever_its_score(text: str, score: float, outcome: str) -> None:
    tally = Tally({"one": ("eins", -0.5), "two": ("zwei", -0.50001)})
    body = json.dumps({"translations": [{"text": text, "score": score}]}).encode()
    assert tally.judge("one", 200, body) == outcome
    assert tally.judge("one", 503, b"") == "failed with 503"


def test_the_server_gets_the_model_that_answers_are_compared_with() -> None:
    runs = argparse.Namespace(run=[Path("a"), Path("b")], model=None, beam=3, int8=True)
    assert arguments(runs) == ["--run", "a", "--run", "b", "--beam", "3", "--int8"]
    assert arguments(argparse.Namespace(run=[], model=Path("m"), beam=None, int8=False)) == ["--model", "m"]
