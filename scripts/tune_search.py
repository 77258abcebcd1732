"""Chooses length and coverage penalty by BLEU on the development set: one search, its lists ranked by each setting.

    python scripts/tune_search.py --run runs/bahdanau
    python scripts/tune_search.py --run runs/a --run runs/b --beam 10 --coverage-penalties 0 0.1 0.2

The search orders its beam by log p; both penalties rank whole hypotheses. So what it finds with other penalties is what
its list has first by them, but for hypotheses beyond --beam that ended in the last step and are not in the list. The
--check best settings are searched for again, each by itself. Several runs are an ensemble, with the first one's data
and settings. The test set is not to be tuned on, and cannot be named.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nmt.config import DEVICES, Config, SearchConfig, is_device, search_with
from nmt.data.pairs import read_split
from nmt.ensemble import load_ensemble
from nmt.errors import NmtError
from nmt.model.stepper import Array
from nmt.run_dir import RunDir
from nmt.scoring import score_corpus
from nmt.search import coverage_penalty, length_penalty
from nmt.translate import Translator
from nmt.translations import Candidate, LineTranslator


@dataclass(frozen=True)
class Lists:
    """What ranks the hypotheses of all sentences: B sentences of at most K; where a list is shorter, log p is -inf.

    `coverage` is the coverage penalty for a factor of 1, 0 without attention.
    """

    texts: list[list[str]]
    log_probs_BK: Array
    lengths_BK: Array
    coverage_BK: Array

    @classmethod
    def of(cls, found: Sequence[Sequence[Candidate]]) -> Lists:
        """The lists of a search. What the length limit cut counts only in a list in which nothing ended."""
        lists = [[one for one in each if not one.length_limited] or list(each) for each in found]
        shape = len(lists), max(map(len, lists))
        log_probs, lengths, coverage = np.full(shape, -np.inf), np.ones(shape), np.zeros(shape)
        for row, each in enumerate(lists):
            for place, one in enumerate(each):
                log_probs[row, place] = one.log_prob
                lengths[row, place] = len(one.pieces) + (not one.length_limited)
                if one.weights is not None:
                    coverage[row, place] = coverage_penalty(one.weights.sum(0, dtype="float64"), 1.0)
        return cls([[one.text for one in each] for each in lists], log_probs, lengths, coverage)

    def best(self, alpha: float, beta: float) -> Array:
        """The place of each sentence's best hypothesis [B] for a length penalty and a coverage penalty."""
        scores_BK = self.log_probs_BK / length_penalty(self.lengths_BK, alpha) + beta * self.coverage_BK
        places_B: Array = scores_BK.argmax(1)
        return places_B


@dataclass(frozen=True)
class Setting:
    """Two penalties, and the BLEU of the lists when they rank."""

    alpha: float
    beta: float
    bleu: float

    @property
    def options(self) -> str:
        """As a training or `nmt translate` takes them."""
        return f"--set search.length_penalty={self.alpha:g} --set search.coverage_penalty={self.beta:g}"


def bleu_of(config: Config, texts: Sequence[str], references: Sequence[str]) -> float:
    """Corpus BLEU as `nmt eval` computes it."""
    language, tokenize = config.data.tgt_lang, config.evaluation.bleu_tokenize
    return score_corpus(texts, references, metrics=["bleu"], tgt_lang=language, bleu_tokenize=tokenize)["bleu"].score


def grid(
    config: Config, lists: Lists, references: Sequence[str], alphas: Sequence[float], betas: Sequence[float]
) -> list[Setting]:
    """Every pair of penalties with its BLEU."""
    known: dict[bytes, float] = {}  # by the choices, which neighbours share
    settings = []
    for alpha in alphas:
        for beta in betas:
            places_B = lists.best(alpha, beta)
            if (key := places_B.tobytes()) not in known:
                chosen = [texts[place] for texts, place in zip(lists.texts, places_B, strict=True)]
                known[key] = bleu_of(config, chosen, references)
            settings.append(Setting(alpha, beta, known[key]))
    return settings


def load(runs: Sequence[RunDir], device: str, search: SearchConfig) -> LineTranslator:
    """The translator of a run, or of several together."""
    if len(runs) == 1:
        return Translator.load(runs[0], device=device, search=search)
    return load_ensemble(runs, device=device, search=search)


def parse(args: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, action="append", required=True, help="folder of a run; repeatable")
    parser.add_argument("--split", choices=["dev", "train"], default="dev", help="what to score on; dev by default")
    parser.add_argument("--beam", type=int, help="hypotheses kept and ranked; the run's setting by default")
    parser.add_argument("--length-penalties", type=float, nargs="+", help="0 to 2 by 0.1 by default")
    parser.add_argument("--coverage-penalties", type=float, nargs="+", help="0 to 0.5 by 0.1 by default")
    parser.add_argument("--check", type=int, default=1, help="how many of the best to search with; 1 by default")
    parser.add_argument("--batch-tokens", type=int, default=4096, help="source pieces of a batch, with padding")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1")
    options = parser.parse_args(args)
    if options.batch_tokens < 1 or options.check < 0:
        parser.error("--batch-tokens must be at least 1, --check at least 0")
    if not is_device(options.device):
        parser.error(f"--device {options.device}: must be one of {DEVICES}")
    options.length_penalties = options.length_penalties or [step / 10 for step in range(21)]
    return options


def tune(options: argparse.Namespace) -> None:
    """Searches, ranks, and prints the table, the setting as it is, and the best ones.

    Raises:
        NmtError: for a run or split that is not there, settings out of range, and a coverage penalty without attention.
    """
    runs = [RunDir.open(path) for path in options.run]
    config = runs[0].settings()
    beam = config.search.beam_size if options.beam is None else options.beam
    own = search_with(config.search, {"beam_size": beam, "rerank": "none"})
    for name, values in (("length", options.length_penalties), ("coverage", options.coverage_penalties or ())):
        for value in values:
            search_with(own, {f"{name}_penalty": value})  # refuses what is out of range before minutes of search
    sources, references = zip(*read_split(config, options.split), strict=True)
    translator = load(runs, options.device, own)
    found = translator.translate(sources, own.beam_size, options.batch_tokens, keep_weights=True)
    attentive = any(one.weights is not None for each in found for one in each.candidates)
    betas = options.coverage_penalties or ([step / 10 for step in range(6)] if attentive else [0.0])
    if any(betas) and not attentive:
        raise NmtError(f"{runs[0].path}: a model of kind none has no attention; use --coverage-penalties 0.")
    lists = Lists.of([each.candidates for each in found])
    settings = grid(config, lists, references, options.length_penalties, betas)
    [now] = grid(config, lists, references, [own.length_penalty], [own.coverage_penalty])
    print(f"BLEU on {options.split} by length penalty (rows) and coverage penalty, beam {own.beam_size}")
    print("| | " + " | ".join(f"{beta:g}" for beta in betas) + " |\n| --- |" + " ---: |" * len(betas))
    for first in range(0, len(settings), len(betas)):
        row = settings[first : first + len(betas)]
        print(f"| {row[0].alpha:g} | " + " | ".join(f"{each.bleu:.2f}" for each in row) + " |")
    print(f"as it is: {now.options}: {now.bleu:.2f}")
    # Of equals the one nearest to what it is.
    settings.sort(key=lambda each: (-each.bleu, abs(each.beta - now.beta), abs(each.alpha - now.alpha)))
    print(f"best: {settings[0].options}: {settings[0].bleu:.2f}")
    for each in settings[: options.check]:
        translator.search = search_with(own, {"length_penalty": each.alpha, "coverage_penalty": each.beta})
        texts = [one.text for one in translator.translate(sources, batch_tokens=options.batch_tokens)]
        print(f"searched: {each.options}: {bleu_of(config, texts, references):.2f}")


def main(args: Sequence[str] | None = None) -> None:
    """Tunes, or says in one message why not."""
    options = parse(args)
    try:
        tune(options)
    except NmtError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
