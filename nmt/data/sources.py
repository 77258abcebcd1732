"""One reader for each SOURCE of the configuration: rows in, pairs of raw strings out, nothing left out.

Rows are counted from 1. Every reader streams: memory does not grow with the corpus. The strings are as the file has
them; `nmt.data.corpus` makes each one a line.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nmt.data.text import is_unicode, read_lines, unreadable
from nmt.errors import NmtError

Pair = tuple[str, str]
ROWS_AT_ONCE = 1000
NESTED = "translation"  # the column that hub data sets of translations keep their dict of languages in


def text_pairs(src: str, tgt: str) -> Iterator[Pair]:
    """Yield the pairs of two files that are aligned line by line.

    Raises:
        NmtError: if one ends before the other; both are counted to the end first.
    """
    try:
        yield from zip(read_lines(src), read_lines(tgt), strict=True)
    except ValueError:  # one has ended; how many lines there are is worth another pass then
        src_count, tgt_count = (sum(1 for _ in read_lines(path)) for path in (src, tgt))
        if src_count == tgt_count:
            raise
        raise NmtError(
            f"{src} has {src_count:,} lines and {tgt} has {tgt_count:,}: line n of the one must be the translation of"
            " line n of the other, so both need the same number of lines"
        ) from None


def tsv_pairs(path: str) -> Iterator[Pair]:
    """Yield the two fields of each line. No quoting, no escapes, no missing values: `NA` and `"` are text.

    Raises:
        NmtError: at a line that has not exactly one tab.
    """
    for number, line in enumerate(read_lines(path), 1):
        fields = line.split("\t")
        if len(fields) != 2:
            raise NmtError(
                f"{path}, line {number}: {len(fields)} tab-separated field{'s' * (len(fields) != 1)}, need exactly 2"
                " (source, tab, target). Cut other columns away first, for example with: cut -f1,2"
            )
        yield fields[0], fields[1]


def jsonl_pairs(path: str, wanted: Pair) -> Iterator[Pair]:
    """Yield two members of the JSON object on each line, or of the dict in its `translation` member.

    Raises:
        NmtError: at a line that is no JSON object, lacks a column or holds something else than text in it.
    """
    for number, line in enumerate(read_lines(path), 1):
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = "the line is empty" if not line.strip() else error
            raise NmtError(
                f"{where}: not JSON ({reason}). A JSON Lines file has one complete object on each line"
            ) from error
        if not isinstance(row, dict):
            raise NmtError(f"{where}: a JSON object is needed, such as {{{_example(wanted)}}}")
        if not all(column in row for column in wanted) and isinstance(row.get(NESTED), dict):
            row = row[NESTED]
        pair = _two([_member(row, column, where) for column in wanted])
        # A lone surrogate can only come from an escape: text that holds none need not be looked at.
        if "\\u" in line and not all(map(is_unicode, pair)):
            raise NmtError(f"{where}: the text holds half a surrogate pair (such as \\ud800), which is no character")
        yield pair


def csv_pairs(path: str, wanted: Pair) -> Iterator[Pair]:
    """Yield two columns of a CSV file (RFC 4180) with a header. Values are text: `NA` and an empty field are kept.

    Raises:
        NmtError: if the header lacks a column, or at a record with another number of fields or wrong quoting.
    """
    rows = csv.reader((line + "\n" for line in read_lines(path)), strict=True)
    start = 1  # a record with line breaks inside begins before the line that the reader has come to
    try:
        header = next(rows, [])
        for column in wanted:
            if header.count(column) != 1:
                raise _no_column(path, column, header, "its first line must name the columns, each once")
        first, second = map(header.index, wanted)
        start = rows.line_num + 1
        for row in rows:
            if len(row) != len(header):
                raise NmtError(
                    f"{path}, line {start}: {len(row)} fields, but the header has {len(header)}. A field that"
                    ' holds a comma, a quote or a line break must stand in "double quotes"'
                )
            yield row[first], row[second]
            start = rows.line_num + 1
    except csv.Error as error:
        raise NmtError(
            f"{path}, line {start}: not valid CSV ({error}) in the record that begins there. Fields are separated by"
            " commas; one that holds a comma, a quote or a line break stands in double quotes, and a quote inside is"
            ' doubled ("")'
        ) from error


def parquet_pairs(path: str, wanted: Pair) -> Iterator[Pair]:
    """Yield two columns of a Parquet file, flat or inside a `translation` column.

    Raises:
        NmtError: if the file is missing or damaged, lacks a column, or holds something else than text in it.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            column_names = top_columns(file.schema_arrow, wanted, path)
            first_row = 1
            for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=column_names):
                yield from table_pairs(batch, wanted, path, first_row)
                first_row += batch.num_rows
            if first_row - 1 != file.metadata.num_rows:
                raise pa.ArrowInvalid(f"{first_row - 1:,} rows instead of {file.metadata.num_rows:,}")
    except (pa.ArrowException, UnicodeDecodeError) as error:  # of many kinds, where a file is damaged
        raise NmtError(f"{path} is no Parquet file or damaged: {error}") from error
    except OSError as error:
        if not Path(path).is_file():
            raise unreadable(path, error) from error
        raise NmtError(f"{path} is damaged or cannot be read: {error}") from error


def top_columns(schema: Any, wanted: Pair, where: str) -> list[str]:
    """Return the columns to read from a table of this Arrow schema.

    Raises:
        NmtError: if neither it nor its `translation` column has the wanted ones; the message names those it has.
    """
    names: list[str] = list(schema.names)
    if all(column in names for column in wanted):
        return list(dict.fromkeys(wanted))
    inner: list[str] = []
    if NESTED in names and pa.types.is_struct(schema.field(NESTED).type):
        struct = schema.field(NESTED).type
        inner = [struct.field(index).name for index in range(struct.num_fields)]
        if all(column in inner for column in wanted):
            return [NESTED]
    missing = next(column for column in wanted if column not in (inner or names))
    available = [*names, *(f"{NESTED}.{name}" for name in inner)]
    raise _no_column(where, missing, available, "set src_column and tgt_column of the source")


def table_pairs(table: Any, wanted: Pair, where: str, first_row: int) -> Iterator[Pair]:
    """Yield the pairs of an Arrow table or record batch that has the columns of `top_columns`.

    Raises:
        NmtError: at a value that is not text.
    """
    names = table.schema.names
    columns = []
    for column in wanted:
        # A wanted column may itself be called "translation", so the flat layout is asked for first.
        if all(name in names for name in wanted):
            values = table.column(column)
        else:
            values = pc.struct_field(table.column(NESTED), [column])
        columns.append(_strings(values, column, where, first_row))
    yield from zip(*columns)


def _strings(values: Any, column: str, where: str, first_row: int) -> list[str]:
    """Return an Arrow column as strings."""
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if values.null_count:
        row = first_row + values.is_null().to_pylist().index(True)
        raise NmtError(f"{where}, row {row}: the value in column {column!r} is missing (null), text is needed")
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise NmtError(f"{where}: column {column!r} holds values of type {kind}, text is needed")
    try:
        texts: list[str] = values.to_pylist()
    except UnicodeDecodeError as error:
        row = first_row + next(place for place, value in enumerate(values) if not _is_utf8(value))
        raise NmtError(f"{where}, row {row}: column {column!r} holds bytes that are not UTF-8 ({error})") from error
    return texts


def _is_utf8(value: Any) -> bool:
    try:
        value.as_py()
    except UnicodeDecodeError:
        return False
    return True


def _member(row: dict[str, Any], column: str, where: str) -> str:
    if column not in row:
        raise _no_column(where, column, list(row), "set src_column and tgt_column of the source")
    value = row[column]
    if not isinstance(value, str):
        raise NmtError(f"{where}: the value of {column!r} is {_shown(value)}, text in quotes is needed")
    return value


def _no_column(where: str, column: str, available: Sequence[str], advice: str) -> NmtError:
    shown = ", ".join(available[:20]) + (", …" if len(available) > 20 else "")
    return NmtError(f"{where}: no column {column!r}; there is: {shown or 'none'}. Name the right one: {advice}")


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "very deeply nested"
    return text if len(text) <= 40 else text[:39] + "…"


def _example(wanted: Pair) -> str:
    return f'"{wanted[0]}": "…", "{wanted[1]}": "…"'


def _two(values: list[str]) -> Pair:
    return values[0], values[1]


Reader = Callable[[], Iterator[Pair]]
