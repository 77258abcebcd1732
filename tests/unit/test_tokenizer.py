"""SentencePiece as this package uses it."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config import TokenizerConfig
from nmt.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer, Tokenizers, learn_pieces, sample
from nmt.errors import NmtError

WORDS = ["the", "a", "house", "dog", "sees", "runs", "big", "small", "red", "under", "over", "with", "woman", "man"]
WORDS += ["child", "tree", "street", "water"]


def corpus(count: int = 300, seed: int = 1) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(2, 9))).capitalize() + "." for _ in range(count)]


def learn(folder: Path, lines: list[str], **settings_: object) -> Tokenizer:
    config = TokenizerConfig.model_validate({"vocab_size": 60, **settings_})
    learn_pieces(lines, folder / "m.model", config, "training text")
    return Tokenizer(folder / "m.model")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return learn(tmp_path_factory.mktemp("spm"), [*corpus(), "< > / s u n k p a d </s> <s> <unk> <pad>"], vocab_size=70)


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_special_ids_are_the_agreed_ones(model_type: str, tmp_path: Path) -> None:
    tokenizer = learn(tmp_path, corpus(), model_type=model_type)
    assert tokenizer.vocab_size == 60
    assert tokenizer.pieces([PAD, UNK, BOS, EOS]) == ["<pad>", "<unk>", "<s>", "</s>"]


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_text_that_spells_a_special_piece_never_becomes_its_id(model_type: str, tmp_path: Path) -> None:
    odd = ["Ends </s> here", "</s>", "x</s>y<s>z<pad>w<unk>v", "<s> <pad> <unk>"]
    # Also where training saw them so often that they would be pieces if they could.
    tokenizer = learn(tmp_path, corpus(100) + odd * 50, model_type=model_type, vocab_size=75)
    for ids in tokenizer.encode(odd):
        assert not {PAD, BOS, EOS} & set(ids)
    without_unknown = [ids for ids in tokenizer.encode(odd) if UNK not in ids]
    assert all(tokenizer.decode(without_unknown))


def test_lines_become_ids_and_text_again(tokenizer: Tokenizer) -> None:
    lines = ["The big dog sees a tree.", "", "A man  runs ", "   "]
    ids = tokenizer.encode(lines)
    assert ids[1] == ids[3] == []
    assert tokenizer.decode(ids) == ["The big dog sees a tree.", "", "A man runs", ""]
    assert tokenizer.encode([]) == []
    assert tokenizer.decode([]) == []


@settings(max_examples=300, deadline=None)
@given(lines=st.lists(st.text(max_size=8), max_size=4))
def test_any_text_gives_as_many_texts_each_one_line(tokenizer: Tokenizer, lines: list[str]) -> None:
    ids = tokenizer.encode(lines)
    assert len(ids) == len(lines)
    assert not {PAD, BOS, EOS} & {i for row in ids for i in row}
    texts = tokenizer.decode(ids)
    assert len(texts) == len(lines)
    assert not any("\n" in text or len(text.splitlines()) > 1 for text in texts)
    assert tokenizer.encode(lines) == [tokenizer.encode([line])[0] for line in lines]


def test_text_is_not_normalised(tmp_path: Path) -> None:
    odd = ["\ufb01ne \u2460 \uff21 \u00bd e\u0301 \u00e9 \u00a0x \u2026"] * 5
    tokenizer = learn(tmp_path, corpus(100) + odd, vocab_size=70)
    assert tokenizer.decode(tokenizer.encode(odd[:1])) == odd[:1]


def test_pieces_that_spell_a_line_break_decode_to_a_blank(tmp_path: Path) -> None:
    tokenizer = learn(tmp_path, corpus(), byte_fallback=True, vocab_size=320)
    newline = next(i for i in range(tokenizer.vocab_size) if tokenizer.pieces([i]) == ["<0x0A>"])
    dog = tokenizer.encode(["dog"])[0]
    assert tokenizer.decode([[*dog, newline, *dog]])[0].split() == ["dog", "dog"]
    assert "\n" not in tokenizer.decode([[newline]])[0]


def test_byte_fallback_leaves_nothing_unknown(tmp_path: Path) -> None:
    tokenizer = learn(tmp_path, corpus(), byte_fallback=True, vocab_size=320)
    ids = tokenizer.encode(["\u4f60\u597d"])
    assert UNK not in ids[0]
    assert tokenizer.decode(ids) == ["\u4f60\u597d"]


def test_special_ids_decode_to_nothing(tokenizer: Tokenizer) -> None:
    dog = tokenizer.encode(["dog"])[0]
    assert tokenizer.decode([[BOS, *dog, EOS, PAD, PAD]]) == ["dog"]


def test_an_argument_that_is_not_utf8_is_an_error(tokenizer: Tokenizer) -> None:
    with pytest.raises(NmtError, match="text 2 is not UTF-8"):
        tokenizer.encode(["good", b"\xff".decode(errors="surrogateescape")])


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_a_vocabulary_too_large_is_an_error_with_the_largest_possible(model_type: str, tmp_path: Path) -> None:
    with pytest.raises(
        NmtError, match=r"tokenizer\.vocab_size is 8,000, but the training text \(300 lines\)"
    ) as caught:
        learn(tmp_path, corpus(), model_type=model_type, vocab_size=8000)
    largest = offered(str(caught.value))
    assert f"gives at most {largest:,} pieces" in str(caught.value)
    assert learn(tmp_path, corpus(), model_type=model_type, vocab_size=largest).vocab_size == largest
    with pytest.raises(NmtError, match=f"at most {largest} "):
        learn(tmp_path, corpus(), model_type=model_type, vocab_size=largest + 1)


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_a_vocabulary_too_small_is_an_error_with_the_number_needed(model_type: str, tmp_path: Path) -> None:
    with pytest.raises(NmtError, match=r"vocab_size is 10, but the characters of the training text need") as caught:
        learn(tmp_path, corpus(), model_type=model_type, vocab_size=10)
    least = offered(str(caught.value))
    assert f"need more than {least - 1:,} pieces" in str(caught.value)
    assert learn(tmp_path, corpus(), model_type=model_type, vocab_size=least).vocab_size == least


def offered(message: str) -> int:
    return int(re.findall(r"--set tokenizer\.vocab_size=(\d+);", message)[0])


@pytest.mark.parametrize("lines", [[], ["", "  ", "\u3000"]])
def test_no_text_is_an_error(lines: list[str], tmp_path: Path) -> None:
    with pytest.raises(NmtError, match="nothing to learn pieces from"):
        learn(tmp_path, lines)


def test_an_error_of_the_reader_comes_through(tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        yield from corpus()
        raise NmtError("file f, line 301: bad")

    with pytest.raises(NmtError, match=r"^file f, line 301: bad$"):
        learn_pieces(lines(), tmp_path / "m.model", TokenizerConfig(vocab_size=60), "training text")


def test_an_interrupt_while_reading_stays_an_interrupt(tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        yield "a b c"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn_pieces(lines(), tmp_path / "m.model", TokenizerConfig(vocab_size=60), "training text")


def test_odd_and_very_long_lines_do_no_harm(tmp_path: Path) -> None:
    odd = ["x\u2028y", "c\rd", "nul\0x", "t\tab", "\ufeffbom", "\u2581low", "z " * 3000, "word " * 20_000]
    config = TokenizerConfig(vocab_size=70)
    tokenizers, stats = Tokenizers.train(tmp_path, lambda: [(line, line) for line in corpus() + odd], config)
    assert stats.lines == 2 * (300 + len(odd) - 1)
    assert stats.skipped_long == 2
    assert "z" in "".join(tokenizers.src.pieces(range(70)))


SCRIPT = """
import os, sys, pathlib
folder, root, cores = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
sys.path[:0] = [root, str(pathlib.Path(root) / "tests/unit")]
import numpy as np
from test_tokenizer import corpus
from nmt.config import TokenizerConfig
from nmt.data.sampling import SubwordSampling
from nmt.data.store import CorpusWriter, EncodedCorpus
from nmt.data.tokenizer import Tokenizers
src, tgt = corpus(), corpus(seed=2)
config = TokenizerConfig(vocab_size=60, sample_sentences=100)
tokenizers, _ = Tokenizers.train(folder, lambda: zip(src, tgt), config)
with CorpusWriter(folder / "pairs.arrow") as writer:
    writer.write(tokenizers.src.encode(src), tokenizers.tgt.encode(tgt), src, tgt)
every = np.arange(len(src))
sampling = SubwordSampling(EncodedCorpus(folder / "pairs.arrow"), tokenizers, "unigram", 0.2, 1, 100)
pairs = sampling.draw(every, 2)
(folder / "drawn").write_bytes(pairs.src_flat(every).tobytes() + pairs.tgt_flat(every).tobytes())
"""


def test_the_same_text_gives_the_same_vocabulary_and_the_same_draws_in_every_process(tmp_path: Path) -> None:
    """Whatever its cores, the threads it is told to use, and the order of its sets."""
    found = []
    for name, cores in (("1", "1"), ("77", "64")):
        folder = tmp_path / name
        folder.mkdir()
        subprocess.run(
            [sys.executable, "-c", SCRIPT, str(folder), str(Path(__file__).parents[2]), cores],
            env=os.environ | {"PYTHONHASHSEED": name, "OMP_NUM_THREADS": cores},
            check=True,
        )
        found.append([(folder / file).read_bytes() for file in ("joint.model", "pairs.arrow", "drawn")])
    assert found[0] == found[1]


def test_learning_is_silent(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    learn(tmp_path, corpus())
    with pytest.raises(NmtError):
        learn(tmp_path, corpus(), vocab_size=9000)
    assert capfd.readouterr() == ("", "")


def test_a_sample_has_its_size_keeps_order_and_is_even() -> None:
    assert list(sample(iter("abc"), 3, 5)) == ["a", "b", "c"]
    lines = [f"{n}" for n in range(1000)]
    drawn = [int(line) for line in sample(iter(lines), 1000, 100)]
    assert len(drawn) == 100
    assert drawn == sorted(set(drawn))
    thirds = Counter(n // 334 for n in drawn)
    assert min(thirds.values()) > 20


def test_joint_and_separate_models_are_loaded_as_they_were_trained(tmp_path: Path) -> None:
    pairs = list(zip(corpus(), [line[::-1] for line in corpus(seed=2)]))
    config = TokenizerConfig(vocab_size=60)
    for joint in (True, False):
        folder = tmp_path / str(joint)
        folder.mkdir()
        trained, stats = Tokenizers.train(folder, lambda: pairs, config.model_copy(update={"joint": joint}))
        loaded = Tokenizers.load(folder)
        assert stats.lines == 600
        assert (loaded.src is loaded.tgt) is loaded.joint is trained.joint is joint
        assert {p.name for p in folder.iterdir()} == ({"joint.model"} if joint else {"src.model", "tgt.model"})
        assert loaded.tgt.encode(["god eht"]) == trained.tgt.encode(["god eht"])


def test_files_that_are_no_models_are_errors(tmp_path: Path) -> None:
    with pytest.raises(NmtError, match=r"src\.model: no such file"):
        Tokenizers.load(tmp_path)
    (tmp_path / "joint.model").write_bytes(b"not a model")
    with pytest.raises(NmtError, match="no SentencePiece model or damaged"):
        Tokenizers.load(tmp_path)


def test_a_model_with_other_special_ids_is_refused(tmp_path: Path) -> None:
    import sentencepiece

    with (tmp_path / "joint.model").open("wb") as stream:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus()), model_writer=stream, vocab_size=60, minloglevel=2
        )
    with pytest.raises(NmtError, match=r"has the ids \(-1, 0, 1, 2\)"):
        Tokenizers.load(tmp_path)
