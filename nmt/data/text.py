"""The one reader and the one writer of lines.

A line is what stands before a line feed, and nothing else ends one: U+2028, NEL, VT, FF and a lone carriage return
are characters inside a line. One carriage return directly before the line feed is dropped (Windows files), so is a
byte order mark at the very start. A last line without a line feed counts. Text is UTF-8, strictly: a bad byte is an
error that says where, never a replacement character.

Python's own text mode, `str.splitlines` and `csv` on an open text file all see more line ends than this, which is how
parallel files come to be shifted against each other; hence the work on bytes.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import stat
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from nmt.errors import NmtError
from nmt.run_dir import replacing

BOM = b"\xef\xbb\xbf"
CHUNK_BYTES = 1 << 16

# The first bytes of each format. bzip2's "BZh1" alone could begin a sentence, so its block's own mark is asked for.
_BZIP2 = re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)")
_GZIP = b"\x1f\x8b\x08"
_XZ = b"\xfd7zXZ\x00"
_OTHER_ARCHIVES = {b"PK\x03\x04": "ZIP", b"\x28\xb5\x2f\xfd": "Zstandard", b"7z\xbc\xaf\x27\x1c": "7z"}

# Whatever any common tool takes for the end of a line: the set of str.splitlines.
_LINE_BREAKS = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def open_bytes(path: str | Path) -> BinaryIO:
    """Open a file for reading; gzip, bzip2 and xz are recognised by their first bytes and unpacked on the way.

    Raises:
        NmtError: if there is no such file, it cannot be read, or is an archive of another kind.
    """
    path = Path(path)
    try:
        stream = path.open("rb")
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        head = stream.peek(10)[:10]
    except OSError as error:
        stream.close()
        raise unreadable(path, error) from error
    for mark, kind in _OTHER_ARCHIVES.items():
        if head.startswith(mark):
            stream.close()
            raise NmtError(
                f"{path} is a {kind} archive: unpack it first (gzip, bzip2 and xz files are read as they are)"
            )
    if not (head.startswith((_GZIP, _XZ)) or _BZIP2.match(head)):
        return stream
    if head.startswith(_GZIP):
        # GzipFile closes a file that it opened itself, and leaves open one that it is handed.
        source: str | BinaryIO = stream
        if stream.seekable():
            stream.close()
            source = str(path)
        return cast(BinaryIO, gzip.open(source, "rb"))
    return cast(BinaryIO, io.BufferedReader(_Unpacked(stream, _XZ if head.startswith(_XZ) else b"BZh")))


class _Unpacked(io.RawIOBase):
    """The content of a bzip2 or xz file of one or several streams.

    Python's own classes take a damaged second stream, as every parallel packer makes, for the end of the file, and give
    the first one alone without a word. Here all bytes must be of streams; zeros between them are padding, as xz has it.
    """

    def __init__(self, stream: BinaryIO, mark: bytes) -> None:
        self._stream = stream
        self._mark = mark
        self._decompressor = self._new()
        self._packed = b""
        self._started = False  # whether the stream at hand has been given a byte

    def _new(self) -> bz2.BZ2Decompressor | lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ) if self._mark == _XZ else bz2.BZ2Decompressor()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._unpack(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _unpack(self, size: int) -> bytes:
        """Unpack up to `size` bytes; none at the end.

        Raises:
            EOFError: if a stream is cut off.
            OSError, LZMAError: if it is damaged, or what follows it is no stream.
        """
        while True:
            if self._decompressor.eof:
                self._packed = self._decompressor.unused_data
                self._decompressor, self._started = self._new(), False
            if not self._started:
                self._packed = self._packed.lstrip(b"\0")
            if not self._packed and (self._decompressor.needs_input or not self._started):
                self._packed = _read_at_hand(self._stream)
                if not self._packed:
                    if self._started:
                        raise EOFError
                    return b""
                continue
            if not self._started and not self._mark.startswith(self._packed[: len(self._mark)]):
                raise OSError("what follows the compressed data is something else")
            self._started = True
            packed, self._packed = self._packed, b""
            if data := self._decompressor.decompress(packed, size):
                return data

    def close(self) -> None:
        self._stream.close()
        super().close()


def unreadable(path: str | Path, error: OSError) -> NmtError:
    """Return the message for a path that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return NmtError(
            f"{path}: no such file. A relative path in a configuration starts at its folder, "
            "any other at the current one"
        )
    if isinstance(error, IsADirectoryError):
        return NmtError(f"{path} is a folder, a file is needed")
    return NmtError(f"{path} cannot be read: {error.strerror or error}")


def file_stamp(path: str | Path) -> list[str | int]:
    """Return path, size and time of change in nanoseconds: another value means that the content may be another.

    Raises:
        NmtError: if it is not a regular file (a pipe can be read only once).
    """
    try:
        status = Path(path).stat()
    except OSError as error:
        raise unreadable(path, error) from error
    if stat.S_ISDIR(status.st_mode):
        raise NmtError(f"{path} is a folder, a file is needed")
    if not stat.S_ISREG(status.st_mode):
        raise NmtError(f"{path} is no regular file: training data is read more than once, so a pipe will not do")
    return [str(path), status.st_size, status.st_mtime_ns]


def read_blocks(stream: BinaryIO, name: str) -> Iterator[list[str]]:
    """Yield the complete lines of each chunk that the stream has at hand, as one non-empty list.

    A program that writes one line and waits for the answer gets it: `read1` returns what a pipe holds, without
    waiting for more. A line that is not complete is carried over to the next chunk.

    Raises:
        NmtError: at a byte that is not UTF-8, with the name, line and byte, after the lines before it were yielded; if
            the stream is damaged or cannot be read.
    """
    decoder = _LineDecoder(name)
    unfinished: list[bytes] = []
    while chunk := _read_chunk(stream, name):
        end = chunk.rfind(b"\n")
        if end < 0:
            unfinished.append(chunk)
            continue
        unfinished.append(chunk[:end])
        yield from decoder.lines(b"".join(unfinished))
        unfinished = [chunk[end + 1 :]] if end + 1 < len(chunk) else []
    rest = b"".join(unfinished)
    if rest and not (decoder.offset == 0 and rest == BOM):
        yield from decoder.lines(rest)


def read_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a file, without their ends.

    Raises:
        NmtError: as `open_bytes` and `read_blocks`.
    """
    with open_bytes(path) as stream:
        for block in read_blocks(stream, str(path)):
            yield from block


def one_line(text: str) -> str:
    """Return the text with a blank for everything that some tool could take for a line break.

    For what is written. It is wider than the reader's rule on purpose: a hypothesis with U+2028 in it would count as
    two lines in programs less careful than this one.
    """
    return _LINE_BREAKS.sub(" ", text)


def write_line(stream: BinaryIO, text: str) -> None:
    """Write the text as exactly one line of UTF-8, ended by a line feed."""
    stream.write(one_line(text).encode() + b"\n")


def write_lines(path: str | Path, texts: Iterable[str]) -> None:
    """Write each text as one line of a file, which appears whole or not at all.

    Raises:
        NmtError: if it cannot be written.
    """
    with replacing(path) as stream:
        for text in texts:
            write_line(stream, text)


def is_unicode(text: str) -> bool:
    """Return whether the text can be written as UTF-8.

    A lone surrogate cannot. It comes from a JSON escape such as `\\ud800`, or from an argument that was not UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_at_hand(stream: BinaryIO) -> bytes:
    """Read what is at hand, at most CHUNK_BYTES. Empty at the end."""
    return cast(bytes, getattr(stream, "read1", stream.read)(CHUNK_BYTES))


def _read_chunk(stream: BinaryIO, name: str) -> bytes:
    """Read what is at hand, as lines are to be made of it."""
    try:
        return _read_at_hand(stream)
    except EOFError as error:
        raise NmtError(
            f"{name} is cut off: the compressed file ends in the middle. Copy or download it again"
        ) from error
    except (OSError, zlib.error, lzma.LZMAError) as error:
        raise NmtError(f"{name} is damaged or cannot be read: {error}") from error


class _LineDecoder:
    """Turns runs of complete lines into text, and knows where in the file each one stands."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.offset = 0  # bytes before the block at hand
        self.line = 1  # number of the block's first line

    def lines(self, block: bytes) -> Iterator[list[str]]:
        """Yield the block's lines as one list; the block comes without the line feed that ends it."""
        start = len(BOM) if self.offset == 0 and block.startswith(BOM) else 0
        try:
            yield _split(block[start:].decode())
        except UnicodeDecodeError as error:
            bad = start + error.start
            line_start = block.rfind(b"\n", 0, bad) + 1
            if line_start:
                yield _split(block[start : line_start - 1].decode())
            line = self.line + block.count(b"\n", 0, bad)
            is_utf16 = self.offset == 0 and block.startswith((b"\xff\xfe", b"\xfe\xff"))
            raise NmtError(
                f"{self.name}, line {line}, byte {bad - line_start + 1} of the line (byte {self.offset + bad + 1} of"
                f" the text): 0x{block[bad]:02x} is not UTF-8 ({error.reason}). Convert the file to UTF-8, for example"
                f" with: iconv -f {'UTF-16' if is_utf16 else 'ISO-8859-1'} -t UTF-8"
            ) from error
        self.offset += len(block) + 1
        self.line += block.count(b"\n") + 1


def _split(text: str) -> list[str]:
    lines = text.split("\n")
    if "\r" in text:
        return [line[:-1] if line.endswith("\r") else line for line in lines]
    return lines
