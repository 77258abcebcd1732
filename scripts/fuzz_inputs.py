"""Bytes that readers of text get wrong, and what section by section should come of them, said independently of `nmt`.

Everything is drawn from a `random.Random`, so that a seed and a number name a case, and hypothesis can shrink one.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

BOM = b"\xef\xbb\xbf"
Pair = tuple[str, str]

# What some tool or other takes for the end of a line, a blank or a mark of its own, and what pieces are spelt with.
ODD = [
    "\r", "\r\n", "\ufeff", "\u2028", "\u2029", "\x85", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x1f", "\0", "\t", " ",
    "  ", "\u00a0", "\u3000", "\u200b", "\u202e", "\x1b[31m", "▁", "</s>", "<unk>", "<0x0A>", "NA", "null", '"', "'",
    ",", "\\", "$x^$", "<b>&", "e\u0301", "\u00e9", "日本", "😀", "\U0010ffff", "\ufffd",
]  # fmt: skip
WORDS = ["the", "old", "dog", "Haus", "sieht", "a", "groß", "0-0", "1p2", "x."]
BAD = [b"\xff", b"\xc3", b"\x80", b"\xe2\x80", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98"]
ENDS = ["\n", "\n", "\n", "\n", "\r\n", "\n\n"]


def piece(rng: Random) -> str:
    """A word, an odd character, or a few characters of any kind."""
    kind = rng.randrange(10)
    if kind < 5:
        return rng.choice(WORDS)
    if kind < 9:
        return rng.choice(ODD)
    return "".join(chr(_scalar(rng)) for _ in range(rng.randint(1, 3)))


def _scalar(rng: Random) -> int:
    number = rng.randrange(rng.choice((0x80, 0x800, 0x10000, 0x110000)))
    return number if not 0xD800 <= number < 0xE000 and number != 10 else 0x41


def line_text(rng: Random) -> str:
    """The text of one line: no line feed, and seldom a very long one."""
    if rng.randrange(400) == 0:
        return rng.choice(["x", "ä ", "\u2028"]) * rng.randrange(70_000)
    joint = rng.choice(["", " ", " ", " "])
    return joint.join(piece(rng) for _ in range(rng.randrange(6)))


def text_bytes(rng: Random, lines: int | None = None) -> bytes:
    """A text with about that many lines; one in four has bytes that are not UTF-8."""
    count = rng.choice((0, 1, 1, 2, 3, 3, 4, 6)) if lines is None else lines
    data = "".join(line_text(rng) + rng.choice(ENDS) for _ in range(count)).encode()
    if rng.randrange(4) == 0:
        data = data.removesuffix(b"\n")
    if rng.randrange(4) == 0:
        data = BOM + data
    return damaged(rng, data) if rng.randrange(4) == 0 else data


def damaged(rng: Random, data: bytes) -> bytes:
    """The bytes with one to three places put out of order: a bad sequence, any byte, or one removed."""
    for _ in range(rng.randint(1, 3)):
        place = rng.randint(0, len(data))
        new = rng.choice((rng.choice(BAD), rng.choice(BAD), bytes([rng.randrange(256)]), b"\n", b""))
        data = data[:place] + new + data[place + rng.randrange(2) :]
    return data


# --- what should come of them ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wrong:
    """An error that must come; its message matches one of the patterns."""

    patterns: tuple[str, ...]

    def __or__(self, other: Wrong) -> Wrong:
        return Wrong(self.patterns + other.patterns)

    def fits(self, message: str) -> bool:
        """Whether the message is one of those expected."""
        return any(re.search(pattern, message, re.DOTALL) for pattern in self.patterns)


def lines_of(data: bytes) -> list[str] | Wrong:
    """The lines of a file, or the place of its first bad byte."""
    lines = []
    rows = data.split(b"\n")
    if rows[-1] == b"" or (len(rows) == 1 and rows[0] == BOM):
        rows.pop()
    for number, row in enumerate(rows, 1):
        skipped = len(BOM) if number == 1 and row.startswith(BOM) else 0
        try:
            text = row[skipped:].decode("utf-8")
        except UnicodeDecodeError as error:
            return Wrong((rf"line {number}, byte {skipped + error.start + 1} of the line .* is not UTF-8",))
        lines.append(text.removesuffix("\r"))
    return lines


def folded(text: str) -> str:
    """The text of a value as one line."""
    if text.endswith("\n"):
        text = text[:-1].removesuffix("\r")
    return text.replace("\r\n", " ").replace("\n", " ")


# --- compressed -----------------------------------------------------------------------------------------------------

_PACKERS: list[Callable[[bytes], bytes]] = [gzip.compress, bz2.compress, lzma.compress]


def packed(rng: Random, data: bytes) -> tuple[bytes, Wrong | None]:
    """The bytes as they are or compressed, in one stream or several, and what error must come if that was broken."""
    if rng.randrange(3):
        return data, None
    pack = rng.choice(_PACKERS)
    cuts = sorted(rng.randint(0, len(data)) for _ in range(rng.choice((0, 0, 1, 2))))
    parts = [pack(data[a:b]) for a, b in zip([0, *cuts], [*cuts, len(data)])]
    whole = b"".join(parts)
    if rng.randrange(3):
        return whole, None
    kind = rng.randrange(3)
    if kind == 0:  # cut off, but so that it is still known for what it is and does not end where a stream does
        ends = {sum(map(len, parts[: n + 1])) for n in range(len(parts))}
        places = [place for place in range(14, len(whole)) if place not in ends]
        if not places:
            return whole, None
        return whole[: rng.choice(places)], Wrong(("cut off", "damaged", "not UTF-8"))
    if kind == 1:  # followed by something else
        return whole + rng.choice((b"x", b"more text\n", b"BZ2", b"\x1f\x8c")), Wrong(
            ("cut off", "damaged", "not UTF-8")
        )
    more = bytearray(pack(b"the second stream\n"))  # a second stream whose checksum does not hold
    more[-10 if pack is not lzma.compress else -30] ^= 0x55
    return whole + bytes(more), Wrong(("cut off", "damaged", "not UTF-8"))


# --- structured -----------------------------------------------------------------------------------------------------


def value(rng: Random) -> str:
    """A text as a column may hold it: line feeds are allowed."""
    return rng.choice(("", "\n", "\r\n")).join(line_text(rng) for _ in range(rng.randrange(3)))


def tsv_pairs(lines: Sequence[str]) -> list[Pair] | Wrong:
    """The pairs of a TSV file."""
    pairs = []
    for number, line in enumerate(lines, 1):
        if line.count("\t") != 1:
            return Wrong((rf"line {number}: \d+ tab-separated field",))
        source, target = line.split("\t")
        pairs.append((source, target))
    return pairs


def jsonl_bytes(rng: Random) -> bytes:
    """Objects with `en` and `de`, flat or nested; some lines are something else."""
    rows = []
    for _ in range(rng.randrange(5)):
        row: dict[str, Any] = {"id": rng.randrange(9), "de": value(rng), "en": value(rng)}
        fault = rng.randrange(24)
        if fault == 0:
            row["en"] = rng.choice([None, 3, ["a"], {"x": "y"}, True])
        elif fault == 1:
            del row["de"]
        elif fault == 2:
            row["de"] += rng.choice("\ud800\udfff")
        text = json.dumps(
            row if rng.randrange(3) else {"translation": row}, ensure_ascii=fault == 2 or rng.random() < 0.5
        )
        other = {3: "", 4: "[]", 5: text[:-1], 6: "[" * 3000 + "]" * 3000, 7: text + ","}
        rows.append(other.get(fault, text))
    data = "".join(row + rng.choice(["\n", "\r\n"]) for row in rows).encode()
    return damaged(rng, data) if rng.randrange(4) == 0 else data


def jsonl_pairs(lines: Sequence[str]) -> list[Pair] | Wrong:
    """The pairs of a JSON Lines file with the columns `en` and `de`."""
    pairs = []
    for number, line in enumerate(lines, 1):
        wrong = Wrong((rf"line {number}\b",))
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            return wrong
        if not isinstance(row, dict):
            return wrong
        if not {"en", "de"} <= row.keys() and isinstance(row.get("translation"), dict):
            row = row["translation"]
        texts = [row.get("en"), row.get("de")]
        if not all(isinstance(text, str) for text in texts) or any(
            re.search("[\ud800-\udfff]", text) for text in texts
        ):
            return wrong
        pairs.append((folded(texts[0]), folded(texts[1])))
    return pairs


def csv_bytes(rng: Random) -> bytes:
    """Records under a header, quoted where they must be and elsewhere at random; some are wrong."""

    def field(text: str) -> str:
        if any(mark in text for mark in ',"\r\n') or rng.randrange(3) == 0:
            return '"' + text.replace('"', '""') + '"'
        return text

    rows = [rng.choice((["en", "de"], ["de", "id", "en"], ["id", "en", "de"]))]
    rows += [[value(rng) for _ in rows[0]] for _ in range(rng.randrange(5))]
    if rng.randrange(10) == 0:
        rng.choice(rows).append("more")
    data = "".join(",".join(map(field, row)) + rng.choice(["\n", "\r\n"]) for row in rows).encode()
    if rng.randrange(4) == 0:
        place = rng.randint(0, len(data))
        data = data[:place] + rng.choice((b'"', b",", b"\n", b"\r", b"\0")) + data[place:]
    return damaged(rng, data) if rng.randrange(6) == 0 else data


def csv_pairs(lines: Sequence[str]) -> list[Pair] | Wrong:
    """The pairs of a CSV file with the columns `en` and `de`, by a parser of RFC 4180."""
    text = "".join(line + "\n" for line in lines)
    header: list[str] | None = None
    pairs = []
    place = 0
    while place < len(text):  # the first fault is the one that is told
        number = text.count("\n", 0, place) + 1
        found = _record(text, place)
        if found is None:
            return Wrong((rf"line {number}: not valid CSV", "no column"))
        record, place = found
        if header is None:
            header = record
            if any(header.count(column) != 1 for column in ("en", "de")):
                return Wrong(("no column",))
        elif len(record) != len(header) or record == [""]:
            return Wrong((rf"line {number}: \d+ fields",))
        else:
            pairs.append((folded(record[header.index("en")]), folded(record[header.index("de")])))
    return Wrong(("no column",)) if header is None else pairs


def _record(text: str, place: int) -> tuple[list[str], int] | None:
    """The fields of the record at a place and where the next one begins; None if it is not valid."""
    record: list[str] = []
    while True:
        if text[place] == '"':
            match = re.compile('"((?:[^"]|"")*)"').match(text, place)
            if match is None:
                return None
            record.append(match[1].replace('""', '"'))
        else:
            match = re.compile("[^,\r\n]*").match(text, place)
            assert match is not None
            record.append(match[0])
        end = re.compile("(,)|\r*\n").match(text, match.end())
        if end is None or len(record[-1]) > 131072:
            return None
        place = end.end()
        if end[1] is None:
            return record, place


def write_parquet(rng: Random, path: Path) -> list[Pair] | Wrong | None:
    """A Parquet file of texts, and the pairs it holds or the error that must come; None: an error or as many rows."""
    pairs = [
        (value(rng), value(rng))
        for _ in range(rng.choice((0, 1, 3, 1001, 2500) if rng.randrange(8) == 0 else (0, 1, 3)))
    ]
    columns: dict[str, Any] = {
        name: pa.array([pair[side] for pair in pairs], pa.string()) for side, name in enumerate(("en", "de"))
    }
    expected: list[Pair] | Wrong | None = [(folded(src), folded(tgt)) for src, tgt in pairs]
    fault = rng.randrange(14)
    if fault < 5 and pairs:
        row = rng.randrange(len(pairs))
        texts: list[Any] = [pair[0] for pair in pairs]
        if fault == 0:
            texts[row] = None
            columns["en"], expected = pa.array(texts, pa.string()), Wrong((rf"row {row + 1}: .* missing \(null\)",))
        elif fault == 1:
            raw: list[Any] = [text.encode() for text in texts]
            raw[row] += rng.choice(BAD)
            binary = pa.array(raw, pa.binary())
            columns["en"] = pa.Array.from_buffers(pa.string(), len(raw), binary.buffers())
            expected = Wrong((rf"row {row + 1}: .* not UTF-8",))
        elif fault == 2:
            columns["en"], expected = pa.array(range(len(pairs))), Wrong(("holds values of type int64",))
        elif fault == 3:
            columns["en"] = columns["en"].dictionary_encode()
        else:
            columns["en"] = pa.array(texts, pa.large_string())
    elif fault == 5:
        del columns["de"]
        expected = Wrong(("no column 'de'",))
    table = pa.table({"id": pa.array(range(len(pairs))), **columns})
    if fault == 6:
        table = pa.table({"translation": pa.StructArray.from_arrays([columns["en"], columns["de"]], ["en", "de"])})
    rows = rng.choice([700, 5000] if len(pairs) > 3 else [1, 2])
    pq.write_table(table, path, compression=rng.choice(["none", "snappy", "zstd"]), row_group_size=rows)
    if fault == 7:
        data = path.read_bytes()
        path.write_bytes(data[: rng.randrange(len(data))])
        return Wrong(("no Parquet file or damaged", "damaged"))
    if fault == 8:
        path.write_bytes(text_bytes(rng))
        return Wrong(("no Parquet file or damaged", "damaged"))
    return expected
