"""The data report for people: what they should know before believing a score, and the block of lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def find_warnings(report: dict[str, Any]) -> list[str]:
    """Return what the user should know before believing a score."""
    warnings = []
    for split, overlap in report["overlap"].items():
        if overlap["sentences"]:
            first = _numbers(overlap["first"], report[split]["unit"])
            warnings.append(
                f"{overlap['sentences']:,} of {overlap['of']:,} {split} source sentences are in the training data too"
                f" (first: {first}): scores on them say nothing about new text"
            )
        if report[split]["blank"]:
            warnings.append(
                f"{report[split]['blank']:,} {split} pairs have a side without text; they are kept, and scored"
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
    out += [f"         {line}" for line in _drops_lines(train)]
    if found := train.get("alignments"):
        out.append(
            f"         {found['pairs']:,} with an alignment, {found['links_per_target_word']:.2f} links a target word"
            f" ({found['file']})"
        )
    for split in ("dev", "test"):
        if part := report.get(split):
            unknown = f"unknown {part['src']['unknown_rate']:.2%} src, {part['tgt']['unknown_rate']:.2%} tgt"
            out.append(f"  {split:5}  {part['kept']:,} pairs; {_lengths_text(part)}; {unknown}")
    sizes = f"{vocabulary['src']:,} pieces for both languages"
    if not vocabulary["joint"]:
        sizes = f"{vocabulary['src']:,} source and {vocabulary['tgt']:,} target pieces"
    out.append(f"  vocab  {sizes} ({vocabulary['model_type']}, learnt from {vocabulary['lines']:,} lines)")
    out.append(f"  cache  {report['where']}{' (unchanged, used again)' if report['cached'] else ''}")
    return "\n".join(out)


def _lengths_text(part: dict[str, Any]) -> str:
    src, tgt = part["src"], part["tgt"]
    return f"pieces a sentence {src['mean']:.1f} src, {tgt['mean']:.1f} tgt, at most {max(src['max'], tgt['max'])}"


def _drops_lines(train: dict[str, Any]) -> list[str]:
    """Return a line for each reason why pairs were dropped."""
    lines = []
    for reason, drops in train["dropped"].items():
        label = drops["first"][0]["source"]
        numbers = [first["line"] for first in drops["first"] if first["source"] == label]
        more = ", …" if drops["count"] > len(numbers) else ""
        where = f"{label}: " if len(train["sources"]) > 1 else ""
        lines.append(f"{drops['count']:,} dropped as {reason} ({where}{_numbers(numbers, train['unit'])}{more})")
    return lines


def drops_text(train: dict[str, Any]) -> str:
    """Return why pairs were dropped, on one line."""
    return "; ".join(_drops_lines(train))


def _numbers(numbers: Sequence[int], unit: str) -> str:
    return f"{unit}{'s' * (len(numbers) != 1)} {', '.join(map(str, numbers))}"
