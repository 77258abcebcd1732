"""scripts/bench_translate.py: the products of its bound against those of a search, and what it prints."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from models import DECODERS
from test_demo_corpus import load_script
from torch.utils.flop_counter import FlopCounterMode

from nmt.config import Config, EncoderConfig, ModelConfig, SearchConfig, TokenizerConfig
from nmt.data.tokenizer import Tokenizers
from nmt.model import folded, gemm, products, selection
from nmt.model.seq2seq import build_model
from nmt.translate import Translator

bench = load_script("bench_translate")
WORDS = ["the", "old", "woman's", "dog", "sees", "a", "big", "house", "under", "water"]
FIELDS = [
    "beam", "batch", "precision", "sentences_per_s", "tokens_per_s", "ms_per_sentence", "bound_sentences_per_s",
    "bound_ratio",
]  # fmt: skip


def sentences(count: int) -> list[str]:
    draw = random.Random(count)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(count)]


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> Tokenizers:
    lines = sentences(200)
    config = TokenizerConfig(vocab_size=30)
    return Tokenizers.train(tmp_path_factory.mktemp("spm"), lambda: zip(lines, lines), config, len(lines))[0]


def translator(tokenizers: Tokenizers, name: str = "bahdanau", beam: int = 3, int8: bool = False) -> Translator:
    torch.manual_seed(3)
    values = {"embedding_size": 7, "encoder": EncoderConfig(hidden_size=4), "decoder": DECODERS[name]}
    model = build_model(ModelConfig.model_validate(values), tokenizers.src.vocab_size, tokenizers.tgt.vocab_size)
    return Translator(model, tokenizers, SearchConfig(beam_size=beam), 100, torch.device("cpu"), int8=int8)


def multiplications(work: Any) -> int:
    """Those of products with weights: attention's own, sentence by sentence, are bmm."""
    with FlopCounterMode(display=False) as counter:
        work()
    found = {str(name).removeprefix("aten."): count for name, count in counter.get_flop_counts()["Global"].items()}
    return sum(count for name, count in found.items() if name != "bmm") // 2


@pytest.fixture
def whole_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a search multiply by all that the bound multiplies by, in products that torch counts."""
    monkeypatch.setattr(folded, "TABLE", 0)
    monkeypatch.setattr(products, "onednn_is_here", lambda: False)
    monkeypatch.setattr(gemm, "onednn_is_faster", lambda: False)
    monkeypatch.setattr(selection, "BLOCK", 1)


@pytest.mark.parametrize("name", ["bahdanau", "bahdanau-state", "luong-concat-feed-lstm-2", "luong-predictive", "none"])
def test_the_bound_multiplies_as_often_as_a_search_without_padding_and_table(
    tokenizers: Tokenizers, name: str, whole_search: None
) -> None:
    case = bench.Case(translator(tokenizers, name), ["a dog", "the"], "1", 4096)
    assert multiplications(case.bound.run) == multiplications(case.translate)


def test_padding_is_not_in_the_bound(tokenizers: Tokenizers, whole_search: None) -> None:
    lines = ["a", "the dog sees"]
    case = bench.Case(translator(tokenizers), lines, "many", 4096)
    (encoder, _, _), *_ = case.bound.work
    assert sum(encoder) == sum(len(source) + 1 for source in tokenizers.src.encode(lines))
    assert multiplications(case.bound.run) < multiplications(case.translate)


def test_the_bounds_size_on_a_tiny_model(tokenizers: Tokenizers) -> None:
    model = translator(tokenizers).model
    sizes = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    of_step = [sizes[f"decoder.{name}.weight"] for name in ("attention.query", "readout")]
    of_step += [sizes[f"decoder.rnn.layers.0.weight_{name}_l0"] for name in ("ih", "hh")] + [sizes["output.weight"]]
    assert sorted(tuple(matrix.shape) for matrix in bench.step_matrices(model)) == sorted(of_step)
    both = [(12, 7), (12, 4)] * 2
    assert sorted(tuple(matrix.shape) for matrix in bench.source_matrices(model)) == sorted([*both, (5, 8)])


def test_with_int8_every_whole_product_of_the_search_is_in_the_bound(
    tokenizers: Tokenizers, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: list[tuple[int, ...]] = []
    engine = products._ENGINES[products.int8_engine()]
    multiply = engine.__call__

    def counted(self: Any, x_NI: torch.Tensor) -> torch.Tensor:
        out_NO = multiply(self, x_NI)
        shapes.append((*out_NO.shape, x_NI.shape[1]))
        return out_NO

    monkeypatch.setattr(selection, "BLOCK", 1)  # no columns beyond the vocabulary
    case = bench.Case(translator(tokenizers, int8=True), sentences(5), "many", 4096)
    monkeypatch.setattr(engine, "__call__", counted)
    found = []
    for work in (case.translate, case.bound.run):
        shapes.clear()
        work()
        found.append(sorted(shapes))
    assert len(found[0]) == len(found[1]) > 0
    # The bound multiplies by the previous word as well, the search looks its products up.
    assert [shape[:2] for shape in found[0]] == [shape[:2] for shape in found[1]]
    assert all(ours[2] <= bound[2] for ours, bound in zip(*found, strict=True))


def test_recording_changes_nothing(tokenizers: Tokenizers) -> None:
    ours, lines = translator(tokenizers), sentences(6)
    stepper, found = ours.stepper, ours.translate(lines)
    case = bench.Case(ours, lines, "many", 4096)
    assert ours.stepper is stepper
    assert [one.text for one in case.translate()] == [one.text for one in found]
    assert case.tokens == sum(len(one.candidates[0].pieces) + (not one.length_limited) for one in found)


def test_json_has_a_row_for_every_case(
    tokenizers: Tokenizers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(_: Any, *, device: str, search: SearchConfig, int8: bool) -> Translator:
        return translator(tokenizers, beam=search.beam_size, int8=int8)

    monkeypatch.setattr(bench.RunDir, "settings", lambda _: Config.model_construct(search=SearchConfig()))
    monkeypatch.setattr(bench.RunDir, "open", bench.RunDir)
    monkeypatch.setattr(bench.Translator, "load", load)
    text = tmp_path / "text.en"
    text.write_text("\n".join(sentences(4)), encoding="utf-8")
    args = ["--run", "run", "--src", str(text), "--repeats", "1", "--single", "2"]
    bench.main([*args, "--json"])
    rows = json.loads(capsys.readouterr().out)
    cases = [(beam, batch, kind) for kind in ("float32", "int8") for beam in (1, 5) for batch in ("many", "1")]
    assert [(row["beam"], row["batch"], row["precision"]) for row in rows] == cases
    for row in rows:
        assert list(row) == FIELDS
        assert row["ms_per_sentence"] == pytest.approx(1000 / row["sentences_per_s"])
        assert row["bound_ratio"] == pytest.approx(row["sentences_per_s"] / row["bound_sentences_per_s"])
    bench.main([*args, "--beams", "2", "--precisions", "float32", "--single", "0"])
    assert len(capsys.readouterr().out.splitlines()) == 2
    text.write_text("\n \n", encoding="utf-8")
    with pytest.raises(SystemExit, match="there is no line to translate"):
        bench.main(args)


WRONG = ["--beams 0", "--repeats 0", "--lines 0", "--threads 0", "--batch-tokens 0", "--single -1", "--device gpu"]


@pytest.mark.parametrize("wrong", [*WRONG, "--precisions float16"])
def test_wrong_options_are_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        bench.main(["--run", "absent", *wrong.split()])
    assert re.search("at least 1|must be one of|invalid choice", capsys.readouterr().err)


def test_a_run_that_is_not_there_is_told_in_one_line() -> None:
    with pytest.raises(SystemExit, match=r"^error: absent: there is no such run"):
        bench.main(["--run", "absent"])
