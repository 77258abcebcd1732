"""The paired tests give what sacreBLEU's own command line prints."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sacrebleu

import nmt.significance
from nmt.config import shipped_dir
from nmt.errors import NmtError
from nmt.significance import MetricComparison, paired_tests

METRICS = ["bleu", "chrf++", "ter"]
RESAMPLES, TRIALS = 200, 300


def translations(references: list[str], errors: float, seed: int) -> list[str]:
    """The references with words lost, at that rate."""
    rng = random.Random(seed)
    return [" ".join(word for word in text.split() if rng.random() > errors) for text in references]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("systems")
    references = (shipped_dir() / "data/demo/test.de").read_text(encoding="utf-8").split("\n")[:40]
    texts = [references, *(translations(references, rate, seed) for seed, rate in enumerate((0.15, 0.2, 0.4)))]
    paths = [folder / name for name in ("reference", "a", "b", "c")]
    for path, lines in zip(paths, texts, strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


@pytest.fixture(scope="module")
def compared(files: list[Path]) -> dict[str, MetricComparison]:
    references, *systems = (path.read_text(encoding="utf-8").split("\n")[:-1] for path in files)
    return paired_tests(systems, references, metrics=METRICS, tgt_lang="de", resamples=RESAMPLES, trials=TRIALS)


def printed(files: list[Path], *options: str) -> str:
    """What sacreBLEU prints, four digits each, without colours and borders."""
    reference, *systems = map(str, files)
    command = [sys.executable, "-m", "sacrebleu", reference, "-i", *systems, "-m", "bleu", "chrf", "ter", "-w", "4"]
    command += ["--chrf-word-order", "2", "--format", "text", *options]
    done = subprocess.run(command, capture_output=True, timeout=120, check=True)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout.decode())
    return " ".join(re.sub(r"[│|┃]", " ", plain).split())


def test_the_bootstrap_is_that_of_sacrebleus_command_line(
    files: list[Path], compared: dict[str, MetricComparison]
) -> None:
    text = printed(files, "--paired-bs", "--paired-bs-n", str(RESAMPLES))
    for each in compared.values():
        for score in each.systems:
            assert f"{score.score:.4f} ({score.mean:.4f} ± {score.half_width:.4f})" in text
    expected = [f"{each.systems[n].p_bootstrap:.4f}" for n in (1, 2) for each in compared.values()]
    assert re.findall(r"p = (\d\.\d{4})", text) == expected
    assert len(set(expected)) > 2


def test_the_randomisation_is_that_of_sacrebleus_command_line(
    files: list[Path], compared: dict[str, MetricComparison]
) -> None:
    text = printed(files, "--paired-ar", "--paired-ar-n", str(TRIALS))
    expected = [f"{each.systems[n].p_randomisation:.4f}" for n in (1, 2) for each in compared.values()]
    assert re.findall(r"p = (\d\.\d{4})", text) == expected
    assert len(set(expected)) > 2


def test_the_interval_of_a_difference_is_that_of_resamples_scored_anew(
    files: list[Path], compared: dict[str, MetricComparison]
) -> None:
    references, *systems = (path.read_text(encoding="utf-8").split("\n")[:-1] for path in files)
    drawn = np.random.default_rng(12345).choice(len(references), size=(RESAMPLES, len(references)), replace=True)
    scores = [
        [sacrebleu.corpus_bleu([system[n] for n in lines], [[references[n] for n in lines]]).score for lines in drawn]
        for system in systems[:2]
    ]
    differences = np.sort(np.subtract(scores[1], scores[0]))
    low, high = (np.interp(share * (RESAMPLES - 1), range(RESAMPLES), differences) for share in (0.025, 0.975))
    found = compared["bleu"].systems[1]
    assert (found.difference_low, found.difference_high) == (pytest.approx(low), pytest.approx(high))


def test_every_difference_lies_in_its_interval(compared: dict[str, MetricComparison]) -> None:
    for each in compared.values():
        base, *others = each.systems
        assert (base.difference_low, base.difference_high) == (None, None)
        assert all(other.difference_low < other.difference < other.difference_high for other in others)


def test_the_baseline_has_no_difference_and_no_p_value(compared: dict[str, MetricComparison]) -> None:
    for each in compared.values():
        base, *others = each.systems
        assert (base.difference, base.p_bootstrap, base.p_randomisation) == (None, None, None)
        assert [other.difference for other in others] == [other.score - base.score for other in others]
        assert f"|bs:{RESAMPLES}|seed:12345|" in each.bootstrap_signature
        assert f"|ar:{TRIALS}|seed:12345|" in each.randomisation_signature


def test_without_a_difference_nothing_is_significant() -> None:
    references = ["the old dog sees a cat", "the red cat sleeps here now", "a dog runs"]
    # Only case differs, which TER does not look at.
    found = paired_tests(
        [["the old dog sees", "the red cat", "a dog"] * 4, ["The old dog sees", "The red cat", "A dog"] * 4],
        references * 4,
        metrics=["ter", "bleu"],
        tgt_lang="en",
        resamples=50,
        trials=50,
    )
    other = found["ter"].systems[1]
    assert (other.difference, other.p_bootstrap, other.p_randomisation) == (0, 1, 1)
    assert found["bleu"].systems[1].difference != 0


@pytest.mark.parametrize(("sentences", "tested"), [(1, False), (4, False), (9, False), (10, True)])
def test_few_sentences_have_scores_alone(sentences: int, tested: bool) -> None:
    systems = [["the old dog sees a red cat"] * sentences, ["the old dog sees a cat"] * sentences]
    found = paired_tests(systems, systems[0], metrics=["bleu"], tgt_lang="en", resamples=50, trials=50)
    base, other = found["bleu"].systems
    assert other.difference == other.score - base.score != 0
    told = (base.mean, base.half_width, other.half_width, other.p_bootstrap, other.p_randomisation)
    assert [value is not None for value in told] == [tested] * 5
    signatures = found["bleu"].bootstrap_signature, found["bleu"].randomisation_signature
    assert [signature is not None for signature in signatures] == [tested] * 2
    assert base.score == pytest.approx(sacrebleu.corpus_bleu(systems[0], [systems[0]]).score)
    assert other.score == pytest.approx(sacrebleu.corpus_bleu(systems[1], [systems[0]]).score)


def test_more_sentences_than_memory_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nmt.significance, "MOST_RESAMPLED", 12)
    with pytest.raises(NmtError, match=r"13 sentences are more.*\(12\).*--src and --tgt"):
        paired_tests([["a"] * 13] * 2, ["a"] * 13, metrics=["bleu"], tgt_lang="de")
    for samples in ({"resamples": 2000}, {"trials": 200_000}):
        with pytest.raises(NmtError, match=r"7 sentences are more.*\(6\).*Fewer --resamples or --trials"):
            paired_tests([["a"] * 7] * 2, ["a"] * 7, metrics=["bleu"], tgt_lang="de", **samples)


def test_systems_of_another_length_are_refused() -> None:
    with pytest.raises(NmtError, match="1 hypotheses and 2 references"):
        paired_tests([["a", "b"], ["a"]], ["a", "b"], metrics=["bleu"], tgt_lang="de")
