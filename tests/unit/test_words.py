"""The word of each piece, by the text and not by the pieces' own marks."""

from __future__ import annotations

import io
import random
import re
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nmt.data.tokenizer import Tokenizer
from nmt.data.words import decode_words, encode_words, locate_words, words_between_blanks
from nmt.errors import NmtError

WORDS = ["the", "house", "dog", "sees", "don't", "under", "with", "woman", "water", "a", "über", "10\u00a0000", "été!"]
KINDS = ("unigram", "bpe", "bytes", "nfkc")
# Blanks of several sorts, characters that NFKC drops, splits and joins, unknown ones, ones outside the first plane.
ODD = st.text("ab dogé.\u00a0\u3000\t\u2028\x07\u200b\ufb01½①e\u0301☃😀▁", max_size=12)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    """A model of each kind; one normalises, as a model from elsewhere may."""
    folder = tmp_path_factory.mktemp("spm")
    draw = random.Random(1)
    lines = [" ".join(draw.choices(WORDS, k=draw.randint(2, 9))) for _ in range(300)]
    models = {}
    for kind in KINDS:
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=model, minloglevel=2, num_threads=1,
            model_type="bpe" if kind == "bpe" else "unigram", byte_fallback=kind == "bytes",
            vocab_size=290 if kind == "bytes" else 36, pad_id=0, unk_id=1, bos_id=2, eos_id=3,
            normalization_rule_name="nmt_nfkc" if kind == "nfkc" else "identity",
        )  # fmt: skip
        (folder / kind).write_bytes(model.getvalue())
        models[kind] = Tokenizer(folder / kind)
    return models


def words_of(tokenizer: Tokenizer, line: str) -> list[tuple[str, int]]:
    [(ids, numbers)] = encode_words(tokenizer, [line])
    return list(zip(tokenizer.pieces(ids), numbers, strict=True))


def test_pieces_are_numbered_by_the_words_of_the_line(tokenizers: dict[str, Tokenizer]) -> None:
    pieces = words_of(tokenizers["unigram"], "  the woman's   dog ")
    by_word = ["".join(piece for piece, number in pieces if number == word) for word in range(3)]
    assert by_word == ["▁the", "▁woman's", "▁dog"]
    assert {number for _, number in pieces} == {0, 1, 2}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=50, deadline=None)
@given(line=ODD)
@example(line="a \x07 dog")
@example(line="\x07 dog")
@example(line="½ ½ a½")
@example(line="☃ 😀\u3000☃")
@example(line=" \u00a0 ")
def test_ids_are_those_of_encode_and_numbers_never_fall(tokenizers: dict[str, Tokenizer], kind: str, line: str) -> None:
    [(ids, numbers)] = encode_words(tokenizers[kind], [line])
    assert [ids] == tokenizers[kind].encode([line])
    assert len(numbers) == len(ids)
    assert numbers == sorted(numbers)
    assert all(0 <= number < max(1, len(line.split())) for number in numbers)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30, deadline=None)
@given(words=st.lists(st.text("abdogté.½①ﬁ☃😀\u0301", min_size=1, max_size=5), min_size=1, max_size=6))
def test_words_between_plain_blanks_have_the_pieces_that_spell_them(
    tokenizers: dict[str, Tokenizer], kind: str, words: list[str]
) -> None:
    tokenizer = tokenizers[kind]
    [(ids, numbers)] = encode_words(tokenizer, ["  ".join(words)])
    for number, word in enumerate(words):
        # Pieces never cross a plain blank, and what stands before a word does not change how it is cut.
        assert [i for i, n in zip(ids, numbers, strict=True) if n == number] == tokenizer.encode([word])[0]


def test_a_lone_blank_piece_belongs_to_the_word_that_follows(tokenizers: dict[str, Tokenizer]) -> None:
    pieces = words_of(tokenizers["unigram"], "☃ the ☃")
    assert pieces[0] == ("▁", 0)
    assert pieces[-2:] == [("▁", 2), ("<unk>", 2)]


def test_a_word_that_normalisation_drops_has_no_piece(tokenizers: dict[str, Tokenizer]) -> None:
    lines = {"dog \x07 dog": {0, 2}, "\x07 dog": {1}, "dog \x07 ☃": {0, 2}, "dog \x07": {0}, "a\x07 \x07dog": {0, 1}}
    for line, expected in lines.items():
        assert {number for _, number in words_of(tokenizers["nfkc"], line)} == expected
    assert {number for _, number in words_of(tokenizers["unigram"], "dog \x07 dog")} == {0, 1, 2}


def test_what_is_split_into_several_pieces_stays_with_its_word(tokenizers: dict[str, Tokenizer]) -> None:
    for kind, line in (("nfkc", "dog ½ dog"), ("bytes", "dog ☃😀 dog")):
        pieces = words_of(tokenizers[kind], line)
        assert len([number for _, number in pieces if number == 1]) > 1
        assert pieces[-1][1] == 2


def test_blanks_that_only_python_sees_part_words_too(tokenizers: dict[str, Tokenizer]) -> None:
    assert {number for _, number in words_of(tokenizers["unigram"], "dog\u3000dog\u2028a\tdog")} == {0, 1, 2, 3}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_decoded_pieces_are_numbered_by_the_words_of_their_text(
    tokenizers: dict[str, Tokenizer], kind: str, data: st.DataObject
) -> None:
    tokenizer = tokenizers[kind]
    ids = data.draw(st.lists(st.integers(4, tokenizer.vocab_size - 1), max_size=12))
    [(text, numbers)] = decode_words(tokenizer, [ids])
    assert [text] == tokenizer.decode([ids])
    assert len(numbers) == len(ids)
    assert numbers == sorted(numbers)
    assert all(0 <= number < max(1, len(text.split())) for number in numbers)


@pytest.mark.parametrize("kind", KINDS)
def test_encoded_and_decoded_text_have_the_same_words(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    [(ids, numbers)] = encode_words(tokenizers[kind], ["the woman's dog sees a house under water"])
    assert decode_words(tokenizers[kind], [ids]) == [("the woman's dog sees a house under water", numbers)]


def test_a_line_that_is_no_text_is_named(tokenizers: dict[str, Tokenizer], tmp_path: Path) -> None:
    with pytest.raises(NmtError, match="text 2 is not UTF-8"):
        encode_words(tokenizers["unigram"], ["dog", "\udcff"])


@given(st.lists(st.lists(st.text("ab.,'é漢", min_size=1, max_size=4), min_size=1, max_size=3), max_size=5))
def test_given_words_are_found_wherever_the_text_has_no_blank_between(words: list[list[str]]) -> None:
    text = "  ".join("".join(parts) for parts in words)
    tokens = [token for parts in words for token in parts]
    places = locate_words(text, tokens, "words, line 1")
    assert [text[begin:end] for begin, end in places] == tokens
    assert locate_words(text, text.split(), "words, line 1") == words_between_blanks(text)


def test_pieces_belong_to_the_given_words(tokenizers: dict[str, Tokenizer]) -> None:
    line, tokens = "woman don't water", ["wom", "an", "do", "n't", "water"]
    [(ids, numbers)] = encode_words(tokenizers["bytes"], [line], [locate_words(line, tokens, "words")])
    assert set(numbers) <= set(range(len(tokens)))
    spans = tokenizers["bytes"].encode_spans([line])[0]
    for (begin, end), number in zip(spans.ranges, numbers, strict=True):
        place = locate_words(line, tokens, "words")[number]
        assert begin == end or (begin < place[1] and end <= place[1])  # of the last word that it has characters of
    assert len(ids) == len(numbers)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["the", "cat", "."], "the word 'cat' is not what comes next in the text, 'dog.'"),
        (["the", "dog"], "the words end before the text does: '.' is in no word"),
        (["the", "dog", ".", "x"], "the word 'x' is not what comes next in the text, ''"),
    ],
)
def test_words_that_do_not_spell_the_text_are_an_error(tokens: list[str], message: str) -> None:
    with pytest.raises(NmtError, match=re.escape(f"f.tok, line 3: {message}")):
        locate_words("the dog.", tokens, "f.tok, line 3")
