"""SentencePiece: learnt from the training text, ids to text and back.

The text is not normalised (rule `identity`): references are raw, so a model that learnt normalised targets could never
write what it is scored against. Only runs of blanks become one, and blanks at either end go, as SentencePiece does it.

Ids are the only thing that leaves this module. What stands in a text, `</s>` for example, is spelt out in ordinary
pieces and never becomes the id that ends a sentence.
"""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencepiece

from nmt.config import TokenizerConfig
from nmt.data.text import is_unicode, one_line
from nmt.errors import NmtError

PAD, UNK, BOS, EOS = 0, 1, 2, 3

# The vocabulary that unigram training finds depends on the number of threads, so it is the same on every machine.
TRAINING_THREADS = 4
SAMPLING_SEED = 1
# Longer lines are no sentences, and one of them could fill the vocabulary. They are left out of the learning, counted.
MAX_LINE_BYTES = 1 << 16
UNKNOWN_PENALTY = 10.0  # SentencePiece's: an unknown character is that much less likely than the rarest piece

_TOO_LARGE = re.compile(r"Vocabulary size (?:is )?too high.*<= (\d+)", re.DOTALL)
_TOO_SMALL = re.compile(r"smaller than required_chars\. \d+ vs (\d+)")


# SentencePiece tells where pieces stand in the text in one form up to 0.2.1, and in another one since.
_MAPPING = hasattr(sentencepiece.SentencePieceProcessor, "EncodeAsOffsetMapping")
_WITH_OFFSETS: Any = "offset_mapping" if _MAPPING else "immutable_proto"


@dataclass(frozen=True)
class Spans:
    """A text, its ids, and the characters [begin, end) of the text that each piece stands for.

    The range of a piece may be empty: what is spelt in several pieces belongs to the last of them, and the blank
    between two words is nobody's where it is a piece of its own ("▁").
    """

    text: str
    ids: list[int]
    ranges: list[tuple[int, int]]


@dataclass(frozen=True)
class Inventory:
    """The pieces of a model that text is made of, for drawing segmentations.

    Attributes:
        pieces: id and score of each: the log probability (unigram), or larger the earlier it was merged (BPE).
        longest: characters of the longest piece.
        unknown_score: what a character without a piece counts in a unigram model.
        byte_ids: the 256 pieces that spell unknown characters; empty without `byte_fallback`.
    """

    pieces: dict[str, tuple[int, float]]
    longest: int
    unknown_score: float
    byte_ids: tuple[int, ...]

    def append(self, ids: list[int], piece: int, surface: str) -> None:
        """Append a piece as SentencePiece does: unknown text is spelt in bytes, or neighbours of it are one UNK."""
        if piece != UNK:
            ids.append(piece)
        elif self.byte_ids:
            ids.extend(self.byte_ids[byte] for byte in surface.encode())
        elif ids[-1:] != [UNK]:
            ids.append(UNK)


class Tokenizer:
    """One SentencePiece model."""

    def __init__(self, model_file: Path) -> None:
        """Load the model.

        Raises:
            NmtError: if the file is missing, no SentencePiece model, or one with other special ids.
        """
        if not model_file.is_file():
            raise NmtError(f"{model_file}: no such file; it should hold the SentencePiece model")
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_file=str(model_file))
            self.pieces(range(self.vocab_size))  # of a damaged model some are no UTF-8
        except (RuntimeError, OSError, UnicodeDecodeError) as error:
            raise NmtError(f"{model_file} is no SentencePiece model or damaged") from error
        ids = (self._model.pad_id(), self._model.unk_id(), self._model.bos_id(), self._model.eos_id())
        if ids != (PAD, UNK, BOS, EOS):
            raise NmtError(f"{model_file} has the ids {ids} for pad, unk, bos, eos; {(PAD, UNK, BOS, EOS)} are needed")

    @property
    def vocab_size(self) -> int:
        """The number of pieces, special ones included."""
        return self._model.get_piece_size()

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of each line, without BOS and EOS. On all cores; the result does not depend on how many.

        Raises:
            NmtError: if a line is no Unicode text (an argument that was not UTF-8).
        """
        encoded: list[list[int]] = self._encode(lines, int)
        return encoded

    def encode_spans(self, lines: Sequence[str]) -> list[Spans]:
        """Return the ids of each line as `encode` does, each with its characters. Raises as `encode` does."""
        rows = self._encode(lines, _WITH_OFFSETS)
        return [_spans(row, line) for row, line in zip(rows, lines, strict=True)]

    def _encode(self, lines: Sequence[str], form: Any) -> Any:
        try:
            return self._model.encode(list(lines), out_type=form, num_threads=-1)
        except (RuntimeError, TypeError, UnicodeEncodeError) as error:
            for number, line in enumerate(lines, 1):
                if not is_unicode(line):
                    raise NmtError(f"text {number} is not UTF-8: {line!a}") from error
            raise

    def inventory(self) -> Inventory:
        """Return the pieces with their scores."""
        model = self._model
        numbers = range(model.get_piece_size())
        text = [i for i in numbers if not (model.is_control(i) or model.is_unknown(i) or model.is_byte(i))]
        pieces = {model.id_to_piece(i): (i, model.get_score(i)) for i in text}
        lowest = min((score for _, score in pieces.values()), default=0.0)
        return Inventory(
            pieces,
            longest=max(map(len, pieces), default=1),
            unknown_score=lowest - UNKNOWN_PENALTY,
            byte_ids=tuple(model.piece_to_id(f"<0x{byte:02X}>") for byte in range(256))
            if any(model.is_byte(i) for i in numbers)
            else (),
        )

    def decode(self, ids: Sequence[Iterable[int]]) -> list[str]:
        """Return the text of each sequence, always one line: a line break that the pieces spell becomes a blank.

        PAD, BOS and EOS give nothing, UNK gives " ⁇ ".
        """
        texts: list[str] = self._model.decode([[int(i) for i in row] for row in ids], num_threads=-1)
        return [one_line(text) for text in texts]

    def decode_spans(self, ids: Sequence[Iterable[int]]) -> list[Spans]:
        """Return the text of each sequence and the characters of each id.

        The text is as the pieces spell it: `one_line` of it is what `decode` gives.
        """
        rows = [[int(i) for i in row] for row in ids]
        return [_spans(row) for row in self._model.decode(rows, out_type=_WITH_OFFSETS, num_threads=-1)]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each id, to be shown: "▁" marks the start of a word."""
        return [self._model.id_to_piece(int(i)) for i in ids]


def _spans(row: Any, text: str | None = None) -> Spans:
    """Return what SentencePiece tells of one text in either of its forms; it does not repeat a text it encoded."""
    if _MAPPING:
        ids, pieces, ranges = row["ids"], row["pieces"], row["offsets"]
        found = row["text"] if text is None else text
    else:
        entries = [(piece.id, piece.piece, (piece.begin, piece.end)) for piece in row.pieces]
        ids, pieces, ranges = [list(column) for column in zip(*entries)] if entries else ([], [], [])
        found = row.text if text is None else text
    if "▁" in pieces:
        ranges = [(end, end) if piece == "▁" else (begin, end) for piece, (begin, end) in zip(pieces, ranges)]
    return Spans(found, ids, ranges)


@dataclass
class LearningStats:
    """What the pieces were learnt from."""

    lines: int = 0
    skipped_long: int = 0  # longer than MAX_LINE_BYTES


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of both sides; the same object twice if they share a vocabulary."""

    src: Tokenizer
    tgt: Tokenizer
    joint: bool

    @classmethod
    def load(cls, folder: Path) -> Tokenizers:
        """Load `joint.model`, or `src.model` and `tgt.model`.

        Raises:
            NmtError: if they are missing or damaged.
        """
        if (folder / "joint.model").exists():
            joint = Tokenizer(folder / "joint.model")
            return cls(joint, joint, True)
        return cls(Tokenizer(folder / "src.model"), Tokenizer(folder / "tgt.model"), False)

    @classmethod
    def train(
        cls,
        folder: Path,
        pairs: Callable[[], Iterable[tuple[str, str]]],
        config: TokenizerConfig,
        pair_count: int | None = None,
    ) -> tuple[Tokenizers, LearningStats]:
        """Learn the pieces and write the model files into the folder.

        Args:
            folder: exists; gets `joint.model`, or `src.model` and `tgt.model`.
            pairs: opens a pass over the training pairs; called once for each model.
            config: size and kind.
            pair_count: how many pairs there are; they are counted in a pass of its own if it is not given.

        Raises:
            NmtError: if the text is too little for the vocabulary, or the vocabulary too small for its characters.
        """
        stats = LearningStats()
        count = sum(1 for _ in pairs()) if pair_count is None else pair_count
        limit = config.sample_sentences
        if config.joint:
            both = sample((line for pair in pairs() for line in pair), 2 * count, limit)
            learn_pieces(both, folder / "joint.model", config, "training text", stats)
        else:
            src_lines = sample((src for src, _ in pairs()), count, limit)
            learn_pieces(src_lines, folder / "src.model", config, "source side", stats)
            tgt_lines = sample((tgt for _, tgt in pairs()), count, limit)
            learn_pieces(tgt_lines, folder / "tgt.model", config, "target side", stats)
        return cls.load(folder), stats


def sample(lines: Iterable[str], count: int, limit: int) -> Iterator[str]:
    """Yield `limit` of `count` lines, in order, each set of them equally likely; all of them if there are no more.

    The same ones in every run (SentencePiece's own sampling differs from one process to the next, whatever the seed),
    and without keeping any in memory: selection sampling, Knuth, The Art of Computer Programming 3.4.2, algorithm S.
    """
    if count <= limit:
        yield from lines
        return
    draw = random.Random(SAMPLING_SEED).random
    wanted = limit
    for remaining, line in zip(range(count, 0, -1), lines):
        if draw() * remaining < wanted:
            wanted -= 1
            yield line


def learn_pieces(
    lines: Iterable[str], model_file: Path, config: TokenizerConfig, what: str, stats: LearningStats | None = None
) -> None:
    """Train one SentencePiece model; the same lines and settings give the same file.

    Args:
        lines: streamed, all of them used; blank ones and those over MAX_LINE_BYTES excepted.
        model_file: written at the end.
        config: size and kind.
        what: the lines, as error messages call them.
        stats: counts are added to it.

    Raises:
        NmtError: as `Tokenizers.train`, and whatever `lines` raises.
    """
    feed = _Feed(lines)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(feed),
            model_writer=model,
            model_type=config.model_type,
            vocab_size=config.vocab_size,
            character_coverage=config.character_coverage,
            byte_fallback=config.byte_fallback,
            shuffle_input_sentence=False,
            max_sentence_length=MAX_LINE_BYTES,
            normalization_rule_name="identity",
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            num_threads=TRAINING_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        if feed.error is not None:
            raise feed.error from None
        raise _explain(str(error), config, what, feed.used) from error
    if stats is not None:
        stats.lines += feed.used
        stats.skipped_long += feed.skipped_long
    model_file.write_bytes(model.getvalue())


class _Feed:
    """Hands lines to SentencePiece, and remembers the error that ended them: SentencePiece keeps its text alone."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = lines
        self.used = self.skipped_long = 0
        self.error: BaseException | None = None

    def __iter__(self) -> Iterator[bytes]:
        try:
            for line in self.lines:
                data = line.encode()
                if len(data) > MAX_LINE_BYTES:
                    self.skipped_long += 1
                elif line.strip():
                    self.used += 1
                    yield data
        except GeneratorExit:
            raise
        except BaseException as error:  # an interrupt too: it would come out as a RuntimeError of SentencePiece
            self.error = error
            raise


def _explain(text: str, config: TokenizerConfig, what: str, lines: int) -> NmtError:
    """Return SentencePiece's complaint in terms of the configuration."""
    given = f"tokenizer.vocab_size is {config.vocab_size:,}"
    if found := _TOO_LARGE.search(text):
        return NmtError(
            f"{given}, but the {what} ({lines:,} lines) gives at most {int(found[1]):,} pieces. Learn as many, or "
            f"fewer: --set tokenizer.vocab_size={found[1]}; or train on more text"
        )
    if found := _TOO_SMALL.search(text):
        least = int(found[1]) + 1
        return NmtError(
            f"{given}, but the characters of the {what} need more than {int(found[1]):,} pieces. Learn more: --set "
            f"tokenizer.vocab_size={least}; or lower tokenizer.character_coverage"
        )
    if "sentences_.empty()" in text or "all_chars_count" in text:
        return NmtError(f"there is nothing to learn pieces from: the {what} has no line with text")
    return NmtError(f"SentencePiece could not learn pieces from the {what}: {text}")
