"""Write the embedded English-German demo corpus: text, gold word alignments and a table of what is in it.

The same seed gives byte-identical files in every Python version.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from pathlib import Path

from demo_lexicon import load
from demo_sentences import Pair, Sentences

# Length buckets by English words: first, last, and the share of the training pairs.
BUCKETS = ((3, 9, 46), (10, 19, 26), (20, 29, 11), (30, 39, 7), (40, 49, 5), (50, 60, 5))
# The held-out splits need at least 100 pairs in each bucket.
HELD_OUT = (22, 20, 18, 16, 13, 11)
MAX_GERMAN = 65
MIN_COUNT = 5
PUNCTUATION = ".,?"
Splits = dict[str, list[Pair]]


def forms(text: str) -> list[str]:
    """Return the words of a sentence without punctuation, in lower case."""
    return [word.strip(PUNCTUATION).lower() for word in text.split()]


def quotas(size: int, shares: tuple[int, ...]) -> list[int]:
    """Split a size over the buckets by their shares; the first bucket takes the rest."""
    parts = [size * share // sum(shares) for share in shares]
    parts[0] += size - sum(parts)
    return parts


def shuffle(pairs: list[Pair], rng: random.Random) -> None:
    """Shuffle in place with random() only, whose output does not change between Python versions."""
    for i in range(len(pairs) - 1, 0, -1):
        j = int(rng.random() * (i + 1))
        pairs[i], pairs[j] = pairs[j], pairs[i]


class Builder:
    """Draw the splits one after the other, never the same source sentence twice."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.grammar = Sentences(self.rng, load())
        self.german: dict[str, str] = {}

    def fresh(self, pair: Pair) -> bool:
        """Say whether the source is new; fail when one source has two translations."""
        known = self.german.get(pair.en)
        if known is not None and known != pair.de:
            raise ValueError(f"two translations of {pair.en!r}: {known!r} and {pair.de!r}")
        return known is None and len(pair.de.split()) <= MAX_GERMAN

    def split(self, size: int, shares: tuple[int, ...], counts: dict[str, Counter[str]] | None) -> list[Pair]:
        """Draw a split; `counts` are the training counts that every word of a held-out pair must reach."""
        result: list[Pair] = []
        for (low, high, _), quota in zip(BUCKETS, quotas(size, shares)):
            taken = 0
            while taken < quota:
                pair = self.grammar.sentence(low, high)
                if pair is None or not self.fresh(pair) or (counts and rare_words(pair, counts)):
                    continue
                self.german[pair.en] = pair.de
                result.append(pair)
                taken += 1
        shuffle(result, self.rng)
        return result


def rare_words(pair: Pair, counts: dict[str, Counter[str]]) -> list[str]:
    """Return the words of a pair that occur less than MIN_COUNT times in the training text."""
    sides = (("en", pair.en), ("de", pair.de))
    return [word for side, text in sides for word in forms(text) if counts[side][word] < MIN_COUNT]


def count_forms(pairs: list[Pair]) -> dict[str, Counter[str]]:
    """Count the word forms of both sides."""
    return {
        "en": Counter(word for pair in pairs for word in forms(pair.en)),
        "de": Counter(word for pair in pairs for word in forms(pair.de)),
    }


def build(seed: int, train: int, held_out: int) -> Splits:
    """Draw the three splits."""
    builder = Builder(seed)
    training = builder.split(train, tuple(b[2] for b in BUCKETS), None)
    # A small sample cannot hold every word, so only full corpora filter the held-out pairs.
    counts = count_forms(training) if train >= 20000 else None
    dev = builder.split(held_out, HELD_OUT, counts)
    return {"train": training, "dev": dev, "test": builder.split(held_out, HELD_OUT, counts)}


def write(splits: Splits, out: Path) -> None:
    """Write text and links."""
    out.mkdir(parents=True, exist_ok=True)
    for name, pairs in splits.items():
        files = {"en": [p.en for p in pairs], "de": [p.de for p in pairs]}
        if name != "train":
            files["align"] = [" ".join(f"{i}-{j}" for i, j in p.links) for p in pairs]
        for suffix, lines in files.items():
            (out / f"{name}.{suffix}").write_bytes("".join(line + "\n" for line in lines).encode("utf-8"))


def construction_shares(splits: Splits) -> dict[str, dict[str, float]]:
    """Return the share of pairs of each split that show a construction."""
    names = sorted({tag for pairs in splits.values() for pair in pairs for tag in pair.tags})
    return {
        name: {split: sum(name in p.tags for p in pairs) / max(1, len(pairs)) for split, pairs in splits.items()}
        for name in names
    }


def report(splits: Splits) -> str:
    """Return the table of sizes, length buckets, word forms and constructions."""
    lines = [f"{'':32}" + "".join(f"{name:>9}" for name in splits)]

    def row(name: str, values: list[str]) -> None:
        lines.append(f"{name:32}" + "".join(f"{value:>9}" for value in values))

    groups = list(splits.values())
    row("pairs", [str(len(pairs)) for pairs in groups])
    row("English words", [str(sum(p.length for p in pairs)) for pairs in groups])
    row("German words", [str(sum(len(p.de.split()) for p in pairs)) for pairs in groups])
    row("longest German sentence", [str(max(len(p.de.split()) for p in pairs)) for pairs in groups])
    for low, high, _ in BUCKETS:
        row(f"{low} to {high} English words", [str(sum(low <= p.length <= high for p in pairs)) for pairs in groups])
    counted = {name: count_forms(pairs) for name, pairs in splits.items()}
    for side, language in (("en", "English"), ("de", "German")):
        row(f"{language} word forms", [str(len(counted[name][side])) for name in splits])
        rare = [sum(counted["train"][side][word] < MIN_COUNT for word in counted[name][side]) for name in splits]
        row(f"  under {MIN_COUNT} times in training", [str(number) for number in rare])
    for name, shares in construction_shares(splits).items():
        row(name, [f"{100 * share:.1f} %" for share in shares.values()])
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("data/demo"), help="folder to write to")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random draws")
    parser.add_argument("--train", type=int, default=22000, help="number of training pairs")
    parser.add_argument("--held-out", type=int, default=1000, help="number of pairs in dev and in test")
    args = parser.parse_args(argv)
    splits = build(args.seed, args.train, args.held_out)
    write(splits, args.out)
    print(report(splits))


if __name__ == "__main__":
    main()
