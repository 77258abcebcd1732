"""The data report for people: what they should know before believing a score, and the block of lines.

And for a run that is taken up again: in which texts two reports differ.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from typing import Any

_BARS = " ▁▂▃▄▅▆▇█"
ADVISED = 100  # occurrences of 95 % of the target's pieces (Gowda and May 2020, section 4)
_EXAMPLES = 5  # unknown characters that are shown
_LIMITED = {"too long": "data.max_length", "too uneven": "data.max_ratio"}
SPLITS = ("train", "dev", "test")
_FIRST_FIGURES = ("pieces", "max", "unknown")  # what the first reports had of a side


def find_warnings(report: dict[str, Any]) -> list[str]:
    """Return what the user should know before believing a score."""
    warnings = []
    for split, overlap in report["overlap"].items():
        if overlap["normalised"]["sources"] and not report["overlap_removed"]:
            warnings.append(_overlap_text(overlap, split, report[split]["unit"]))
        if report[split]["blank"]:
            warnings.append(
                f"{report[split]['blank']:,} {split} pairs have a side without text; they are kept, and scored"
            )
    if (shared := report["overlap_dev_test"]) is not None and shared["normalised"]["sources"]:
        warnings.append(
            f"{_found_text(shared, 'test', 'dev', report['test']['unit'])}: the best checkpoint is chosen by sentences "
            "that it is tested on. Take them out of one of the two files"
        )
    for split in ("train", *report["overlap"]):
        if folded := report[split]["line_breaks_folded"]:
            warnings.append(f"{folded:,} {split} pairs had a line break inside a text; it was replaced by a blank")
    if (found := report["train"].get("alignments")) and not found["pairs"]:
        warnings.append(f"{found['file']} has alignments of dropped pairs alone: nothing guides attention")
    if skipped := report["vocabulary"]["skipped_long"]:
        warnings.append(f"{skipped:,} lines over 65,536 bytes were left out when the pieces were learnt")
    return warnings


def format_report(report: dict[str, Any]) -> str:
    """Return the data report as a block of lines for people."""
    languages, vocabulary, train = report["languages"], report["vocabulary"], report["train"]
    out = [f"Data report, {languages['src']} to {languages['tgt']}"]
    out.append(f"  train  {train['read']:,} pairs read, {train['kept']:,} kept; {_lengths_text(train)}")
    details = [*_drops_lines(train), *_repeated_lines(train), *_histogram_lines(train)]
    out += [f"         {line}" for line in details]
    out += [f"         {_made_text(made)}" for made in train.get("made", ())]
    if found := train.get("alignments"):
        out.append(
            f"         {found['pairs']:,} with an alignment, {found['links_per_target_word']:.2f} links a target word"
            f" ({found['file']})"
        )
    for split in ("dev", "test"):
        if part := report.get(split):
            unknown = ", ".join(_unknown_text(part[side], side) for side in ("src", "tgt"))
            out.append(f"  {split:5}  {part['kept']:,} pairs; {_lengths_text(part)}; unknown {unknown}")
    sizes = f"{vocabulary['src']:,} pieces for both languages"
    if not vocabulary["joint"]:
        sizes = f"{vocabulary['src']:,} source and {vocabulary['tgt']:,} target pieces"
    out.append(f"  vocab  {sizes} ({vocabulary['model_type']}, learnt from {vocabulary['lines']:,} lines)")
    if most := train["tgt"].get("most_occur"):  # reports had none once
        advice = f" (Gowda and May 2020 want {ADVISED}, for Transformers)" if most < ADVISED else ""
        out.append(f"         95% of those in the target occur {most:,} times or more{advice}")
    out.append(f"  cache  {report['where']}{' (unchanged, used again)' if report['cached'] else ''}")
    return "\n".join(out)


def _made_text(made: dict[str, Any]) -> str:
    fewer = "" if made["pairs"] == made["wanted"] else f" (of {made['wanted']:,} asked for: no more were found)"
    return f"{made['pairs']:,} {made['source']}{fewer}"


def _lengths_text(part: dict[str, Any]) -> str:
    src, tgt = part["src"], part["tgt"]
    return f"pieces a sentence {src['mean']:.1f} src, {tgt['mean']:.1f} tgt, at most {max(src['max'], tgt['max'])}"


def _overlap_text(overlap: dict[str, Any], split: str, unit: str) -> str:
    """Return the warning that training has sentences of dev or test."""
    return (
        f"{_found_text(overlap, split, 'the training data', unit)}: scores on them say nothing about new text. To drop"
        " such pairs from training: --set data.remove_overlap=true"
    )


def _found_text(overlap: dict[str, Any], split: str, other: str, unit: str) -> str:
    """Return how many sentences of a split are elsewhere too, and how much alike they are."""
    exact, found = overlap["exact"]["sources"], overlap["normalised"]["sources"]
    how = "all word for word" if exact == found else f"{exact:,} word for word, the others but for case or punctuation"
    return (
        f"{found:,} of {overlap['of']:,} {split} source sentences are in {other} too ({how};"
        f" {overlap['normalised']['pairs']:,} with the same translation; first: {_numbers(overlap['first'], unit)})"
    )


def _drops_lines(train: dict[str, Any]) -> list[str]:
    """Return a line for each reason why pairs were dropped."""
    share = f", {train['repeated']['share']:.2%}"
    limits = {
        reason: f"{key} = {train['limits'][key.removeprefix('data.')]:,}; "
        for reason, key in _LIMITED.items()
        if reason in train["dropped"]
    }
    return [
        f"{drops['count']:,} dropped as {reason}{share * (reason == 'duplicate')}"
        f" ({limits.get(reason, '')}{_places(drops, train)})"
        for reason, drops in train["dropped"].items()
    ]


def _repeated_lines(train: dict[str, Any]) -> list[str]:
    """Return a line if there are pairs that have occurred before and were kept."""
    repeated = train["repeated"]
    if not repeated["count"] or "duplicate" in train["dropped"]:
        return []
    return [f"{repeated['count']:,} have occurred before, {repeated['share']:.2%} ({_places(repeated, train)})"]


def _places(drops: dict[str, Any], train: dict[str, Any]) -> str:
    """Return where the first of some pairs stand, by source if there are several."""
    lines: dict[str, list[int]] = {}
    for first in drops["first"]:
        lines.setdefault(first["source"], []).append(first["line"])
    several = len(train["sources"]) > 1
    places = [f"{label}: " * several + _numbers(numbers, train["unit"]) for label, numbers in lines.items()]
    more = ", …" if drops["count"] > len(drops["first"]) else ""
    return "; ".join(places) + more


def _histogram_lines(train: dict[str, Any]) -> list[str]:
    """Return a picture of the lengths of each side, one character a column."""
    width = train["lengths"]["width"]
    lines = []
    for side in ("src", "tgt"):
        counts = train["lengths"][side]
        highest = max(counts)
        bars = "".join(_BARS[math.ceil(count / highest * (len(_BARS) - 1))] for count in counts)
        columns = "1 piece a column" if width == 1 else f"{width:,} pieces a column"
        lines.append(f"{side} |{bars}| 1 to {len(counts) * width:,}, {columns}, at most {highest:,} pairs in one")
    return lines


def _unknown_text(part: dict[str, Any], side: str) -> str:
    """Return the share of unknown pieces, with the most frequent characters that have none."""
    text = f"{part['unknown_rate']:.2%} {side}"
    if not part["most_unknown"]:
        return text
    shown = [f"{_shown(character)} {count:,}" for character, count in list(part["most_unknown"].items())[:_EXAMPLES]]
    return f"{text} ({', '.join(shown)}{', …' * (part['unknown_characters'] > len(shown))})"


def _shown(character: str) -> str:
    """Return the character, or its number if it could not be seen or would act on the terminal or its neighbour."""
    visible = (
        character.isprintable() and not character.isspace() and not unicodedata.category(character).startswith("M")
    )
    return f"'{character}'" if visible else f"U+{ord(character):04X}"


def drops_text(train: dict[str, Any]) -> str:
    """Return why pairs were dropped, on one line."""
    return "; ".join(_drops_lines(train))


def _numbers(numbers: Sequence[int], unit: str) -> str:
    return f"{unit}{'s' * (len(numbers) != 1)} {', '.join(map(str, numbers))}"


def tells_texts(report: dict[str, Any]) -> bool:
    """Tell whether a data report, which may be damaged, has the parts that `other_texts` compares."""
    parts = [report.get(split) for split in SPLITS if split != "test" or report.get(split) is not None]
    inner = ("src", "tgt", "alignments")
    return all(isinstance(part, dict) and all(isinstance(part.get(key, {}), dict) for key in inner) for part in parts)


def other_texts(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return what is another text in the second of two reports: `train.src`, or `train` where the side is not known.

    By the checksums. A report that was written before there were any is compared by its numbers of pairs and pieces,
    so that it is not taken for one of other data because of what reports have gained since.
    """
    found = []
    for split in SPLITS:
        one, other = before.get(split), now.get(split)
        if not _same_pairs(one, other):
            sides = [side for side in ("src", "tgt") if _has_other_side(one, other, side)]
            found += [f"{split}.{side}" for side in sides] or [split]
    return found


def _has_other_side(before: dict[str, Any] | None, now: dict[str, Any] | None, side: str) -> bool:
    """Return whether one side of a split is known to differ."""
    texts = [(part or {}).get(side, {}).get("checksum") for part in (before, now)]
    return None not in texts and texts[0] != texts[1]


def _same_pairs(before: dict[str, Any] | None, now: dict[str, Any] | None) -> bool:
    if before is None or now is None:
        return before is now
    if "checksum" in before and "checksum" in now:
        return bool(before["checksum"] == now["checksum"])
    figures = [(part.get("kept"), part.get("alignments", {}).get("links")) for part in (before, now)]
    sides = [
        [part.get(side, {}).get(name) for side in ("src", "tgt") for name in _FIRST_FIGURES] for part in (before, now)
    ]
    return figures[0] == figures[1] and sides[0] == sides[1]
