"""The reader and writer of lines, over arbitrary bytes, against a few lines that say the rule."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import lzma
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.data import text
from nmt.data.text import (
    file_stamp,
    is_unicode,
    one_line,
    open_bytes,
    read_blocks,
    read_lines,
    write_line,
    write_lines,
)
from nmt.errors import NmtError

# Bytes that matter to the rule turn up often enough only if they are asked for.
ODD = [
    b"\n",
    b"\r",
    b"\r\n",
    b"\xef\xbb\xbf",
    b"\xe2\x80\xa8",
    b"\xc2\x85",
    b"\x0b",
    b"\x0c",
    b"\x1c",
    b"\0",
    b" ",
    b"\t",
]
ANY_BYTES = st.lists(st.one_of(st.sampled_from([*ODD, b"\xff", b"\xc3"]), st.binary(max_size=3))).map(b"".join)
ANY_TEXT = st.lists(st.one_of(st.sampled_from([o.decode() for o in ODD]), st.text(max_size=3))).map("".join)


class Chunks(io.RawIOBase):
    """A stream whose every read gives the next chunk, as a pipe does."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = [chunk for chunk in chunks if chunk]

    def read1(self, size: int = -1) -> bytes:
        return self.chunks.pop(0) if self.chunks else b""


def reference(data: bytes) -> list[str]:
    """Section 7, word for word; UnicodeDecodeError for a bad byte."""
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [line.removesuffix(b"\r").decode("utf-8") for line in lines]


def read(chunks: list[bytes]) -> list[str]:
    return [line for block in read_blocks(Chunks(chunks), "x") for line in block]  # type: ignore[arg-type]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(marks)]


@settings(max_examples=400, deadline=None)
@given(data=ANY_BYTES, places=st.lists(st.integers(0, 40), max_size=6))
def test_any_bytes_give_the_lines_of_the_rule_or_an_error_with_their_place(data: bytes, places: list[int]) -> None:
    try:
        expected = reference(data)
    except UnicodeDecodeError:
        with pytest.raises(NmtError, match="not UTF-8") as caught:
            read(cut(data, places))
        found = re.search(
            r"x, line (\d+), byte (\d+) of the line \(byte (\d+) of the text\): 0x(..)", str(caught.value)
        )
        assert found
        line, byte, offset = (int(found[n]) for n in (1, 2, 3))
        assert data[offset - 1] == int(found[4], 16)
        assert data[: offset - 1].count(b"\n") == line - 1
        assert data.split(b"\n")[line - 1][byte - 1] == data[offset - 1]
        data[: offset - 1].decode()  # everything before is good
    else:
        assert read(cut(data, places)) == expected


@settings(max_examples=200, deadline=None)
@given(content=ANY_TEXT)
def test_any_text_survives_a_file(content: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("text") / "f"
    path.write_bytes(content.encode())
    assert list(read_lines(path)) == reference(content.encode())


@settings(max_examples=200, deadline=None)
@given(texts=st.lists(ANY_TEXT, max_size=5))
def test_n_texts_written_are_n_lines_read(texts: list[str]) -> None:
    stream = io.BytesIO()
    for one in texts:
        write_line(stream, one)
    written = stream.getvalue()
    assert written.count(b"\n") == len(texts)
    assert len(written.decode().splitlines()) == len(texts)
    expected = [one_line(one) for one in texts]
    if expected:
        expected[0] = expected[0].removeprefix("\ufeff")
    assert read([written]) == expected


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb\xbf\n", [""]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb", ["a", "\ufeffb"]),
        (b"a\r\n\r\nb\r\r\n", ["a", "", "b\r"]),
        (b"a\rb\n", ["a\rb"]),
        (b"a\xe2\x80\xa8b\xc2\x85c\x0bd\x0ce\x1cf\n", ["a\u2028b\x85c\x0bd\x0ce\x1cf"]),
        (b"last", ["last"]),
        (b"last\r", ["last"]),
        (b"\n\n", ["", ""]),
    ],
)
def test_line_rule(data: bytes, lines: list[str]) -> None:
    assert read([data]) == lines
    assert read([data[i : i + 1] for i in range(len(data))]) == lines


def test_lines_before_a_bad_byte_are_yielded_first() -> None:
    blocks = read_blocks(io.BytesIO(b"one\ntwo\nth\xffree\nfour\n"), "in.txt")
    assert next(blocks) == ["one", "two"]
    with pytest.raises(
        NmtError, match=r"in\.txt, line 3, byte 3 of the line \(byte 11 of the text\): 0xff is not UTF-8"
    ):
        next(blocks)


def test_a_line_longer_than_the_chunk_is_carried_over(tmp_path: Path) -> None:
    long = "ä" * (3 * text.CHUNK_BYTES)
    (tmp_path / "f").write_text(f"a\n{long}\nb", encoding="utf-8")
    assert list(read_lines(tmp_path / "f")) == ["a", long, "b"]


def test_a_coprocess_that_waits_gets_its_line() -> None:
    reader, writer = os.pipe()
    answers: list[list[str]] = []

    def serve() -> None:
        with os.fdopen(reader, "rb") as stream:
            for block in read_blocks(stream, "pipe"):
                answers.append(block)
                arrived.set()

    arrived = threading.Event()
    server = threading.Thread(target=serve, daemon=True)
    server.start()
    for line in ("first", "second"):
        os.write(writer, f"{line}\n".encode())
        assert arrived.wait(5), "the line was not handed on while the pipe stayed open"
        assert answers[-1] == [line]
        arrived.clear()
    os.write(writer, b"half")
    os.close(writer)
    server.join(5)
    assert answers == [["first"], ["second"], ["half"]]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_files_are_known_by_content(tmp_path: Path, pack: object) -> None:
    path = tmp_path / "no_telling_name"
    path.write_bytes(pack("a\nb\u2028c\n".encode()))  # type: ignore[operator]
    assert list(read_lines(path)) == ["a", "b\u2028c"]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_truncated_file_is_an_error(tmp_path: Path, pack: object) -> None:
    path = tmp_path / "cut"
    packed: bytes = pack(os.urandom(5000).hex().encode() + b"\n")  # type: ignore[operator]
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(NmtError, match=r"cut is cut off|cut is damaged"):
        list(read_lines(path))


def test_a_damaged_gzip_file_is_an_error(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(os.urandom(5000).hex().encode()))
    packed[100:120] = bytes(20)
    (tmp_path / "f.gz").write_bytes(packed)
    with pytest.raises(NmtError, match="damaged"):
        list(read_lines(tmp_path / "f.gz"))


def test_gzip_of_several_members_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(gzip.compress(b"a\nb") + gzip.compress(b"c\n"))
    assert list(read_lines(tmp_path / "f")) == ["a", "bc"]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_streams_that_follow_each_other_are_read_whole(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    long = b"x" * (2 * text.CHUNK_BYTES)
    (tmp_path / "f").write_bytes(b"".join(map(pack, (b"a\nb", b"", b"c\n", long))))
    assert list(read_lines(tmp_path / "f")) == ["a", "bc", long.decode()]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("what", ["text", "damage", "cut"])
def test_what_follows_compressed_data_is_not_lost_without_a_word(
    tmp_path: Path, pack: Callable[[bytes], bytes], what: str
) -> None:
    second = bytearray(pack(os.urandom(500).hex().encode()))
    second[len(second) // 2] ^= 0x55
    more = {"text": b"more\n", "damage": bytes(second), "cut": pack(b"b\n")[:-5]}[what]
    (tmp_path / "f").write_bytes(pack(b"a\n") + more)
    with pytest.raises(NmtError, match=r"cut off|damaged"):
        list(read_lines(tmp_path / "f"))


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_zeros_after_compressed_data_are_padding(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    (tmp_path / "f").write_bytes(pack(b"a\n") + bytes(8) + pack(b"b\n") + bytes(text.CHUNK_BYTES))
    assert list(read_lines(tmp_path / "f")) == ["a", "b"]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_pipe_is_read_as_a_file_is(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    os.mkfifo(tmp_path / "pipe")
    data = pack(b"a\nb\n") * 2
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(data,))
    writer.start()
    assert list(read_lines(tmp_path / "pipe")) == ["a", "b", "a", "b"]
    writer.join()


def test_utf_16_is_told_from_latin_1(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes("ein Satz\n".encode("utf-16"))
    with pytest.raises(NmtError, match=r"line 1, byte 1 .*iconv -f UTF-16 -t UTF-8"):
        list(read_lines(tmp_path / "f"))


def test_a_file_of_lines_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_lines(tmp_path / "f", ["a", "b\nc\u2028d", ""])
    assert (tmp_path / "f").read_bytes() == b"a\nb c d\n\n"

    def texts() -> Iterator[str]:
        yield "new"
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError):
        write_lines(tmp_path / "f", texts())
    assert (tmp_path / "f").read_bytes() == b"a\nb c d\n\n"
    assert [file.name for file in tmp_path.iterdir()] == ["f"]


def test_text_that_begins_like_bzip2_is_text(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"BZh1 is how it begins\n")
    assert list(read_lines(tmp_path / "f")) == ["BZh1 is how it begins"]


def test_other_archives_are_refused(tmp_path: Path) -> None:
    (tmp_path / "f.zip").write_bytes(b"PK\x03\x04rest")
    with pytest.raises(NmtError, match="ZIP archive: unpack it first"):
        open_bytes(tmp_path / "f.zip")


def test_a_missing_file_and_a_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(NmtError, match=r"nowhere: no such file"):
        open_bytes(tmp_path / "nowhere")
    with pytest.raises(NmtError, match="is a folder"):
        open_bytes(tmp_path)
    with pytest.raises(NmtError, match="is a folder"):
        file_stamp(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NmtError, match="no regular file"):
        file_stamp(tmp_path / "pipe")


def test_a_stamp_changes_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("a")
    before = file_stamp(path)
    path.write_text("ab")
    assert file_stamp(path) != before


def test_one_line_folds_whatever_breaks_lines_somewhere() -> None:
    assert one_line("a\r\nb\nc\u2028d\x85e\x0bf") == "a b c d e f"
    assert one_line("a\tb  c") == "a\tb  c"


def test_half_a_surrogate_pair_is_no_unicode() -> None:
    assert is_unicode("ä\U0001f600")
    assert not is_unicode("\ud83d")
