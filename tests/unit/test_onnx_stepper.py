"""An exported model finds what the model itself finds: every kind of decoder, every kind of encoder."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from models import VOCABULARY, small_model

import nmt
from nmt.config import EncoderConfig
from nmt.errors import NmtError
from nmt.model import gemm
from nmt.model.seq2seq import Seq2Seq
from nmt.model.torch_stepper import TorchStepper
from nmt.onnx_graphs import quantised, trace
from nmt.onnx_stepper import OnnxStepper
from nmt.search import Hypothesis, beam_search
from nmt.translations import BANNED

# Every kind, score, window, readout and cell, in few models, as a graph takes torch two seconds to make.
# Beside them every form of the encoder, and both ways to tie embeddings.
MODELS: dict[str, dict[str, object]] = {
    "bahdanau-state": {"encoder": EncoderConfig(hidden_size=4, bidirectional=False)},
    "bahdanau-maxout": {"encoder": EncoderConfig(hidden_size=4, cell="lstm", num_layers=2)},
    "bahdanau-coverage-lstm-2": {"tie_embeddings": True},
    "luong-dot-scaled": {"tie_embeddings": "target"},
    "luong-gru-2": {"encoder": EncoderConfig(hidden_size=4, num_layers=2, residual=True)},
    "luong-monotonic": {},
    "luong-concat-predictive-feed": {},
    "none": {"encoder": EncoderConfig(hidden_size=4, cell="lstm", bidirectional=False)},
    "none-feed-lstm": {},
    "bahdanau-gru-2-normed": {"encoder": EncoderConfig(hidden_size=4, cell="lstm")},
}
SOURCES = [[4, 5, 6, 7, 8, 9, 10, 4, 5, 3], [7, 3], [4, 4, 9, 8, 8, 3], [3], [10, 6, 3]]


@lru_cache
def model_of(name: str) -> Seq2Seq:
    return small_model(name, dtype=torch.float32, **MODELS[name]).eval()


@lru_cache
def graphs_of(name: str) -> tuple[bytes, bytes]:
    # As on a processor where training multiplies by oneDNN, which no graph can hold.
    here = hasattr(torch.ops.mkldnn, "_linear_pointwise")
    with mock.patch.object(gemm, "onednn_is_faster", return_value=here):
        return trace(model_of(name), BANNED)


def search(stepper: TorchStepper | OnnxStepper, beam: int = 4, beta: float = 0.0) -> list[list[Hypothesis]]:
    return beam_search(
        stepper, SOURCES, bos=2, eos=3, beam_size=beam, alpha=1.0, beta=beta,
        max_lengths=[2 * len(source) + 3 for source in SOURCES], n_best=min(beam, 3), keep_weights=True,
    )  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_an_exported_model_finds_the_hypotheses_of_the_model(name: str) -> None:
    ours = TorchStepper(model_of(name), BANNED, torch.device("cpu"))
    exported = OnnxStepper(*graphs_of(name), VOCABULARY)
    for beam, beta in ((4, 0.0), (1, 0.0), (20, 0.0 if name.startswith("none") else 0.3)):
        for wanted, found in zip(search(ours, beam, beta), search(exported, beam, beta), strict=True):
            assert [one.tokens for one in found] == [one.tokens for one in wanted]
            assert [one.length_limited for one in found] == [one.length_limited for one in wanted]
            for one, other in zip(found, wanted, strict=True):
                assert one.score == pytest.approx(other.score, abs=1e-5)
                assert one.weights is not None
                assert other.weights is not None
                np.testing.assert_allclose(one.weights, other.weights, atol=1e-5)


def test_padding_has_no_weight_in_an_exported_model() -> None:
    stepper = OnnxStepper(*graphs_of("luong-gru-2"), VOCABULARY)
    state = stepper.begin(SOURCES)
    found = stepper.step(state, np.full((len(SOURCES), 1), 2), np.zeros((len(SOURCES), 1)), 4)
    for row, source in zip(found.weights_BKS, SOURCES, strict=True):
        assert not row[:, len(source) :].any()
        assert row.sum() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_in_8_bits_the_probabilities_of_the_first_words_stay_near(name: str) -> None:
    read, step = graphs_of(name)
    small = quantised(step)
    assert b"MatMulInteger" in small
    assert b"MatMulInteger" not in step
    exact, rounded = (OnnxStepper(read, graph, VOCABULARY) for graph in (step, small))
    tokens, before = np.full((len(SOURCES), 1), 2), np.zeros((len(SOURCES), 1))
    wanted, found = (one.step(one.begin(SOURCES), tokens, before, VOCABULARY) for one in (exact, rounded))
    real = VOCABULARY - len(BANNED)
    assert not np.array_equal(found.log_probs_BC, wanted.log_probs_BC)
    np.testing.assert_allclose(found.log_probs_BC[:, :real], wanted.log_probs_BC[:, :real], atol=0.1)


def test_banned_words_are_never_continuations() -> None:
    stepper = OnnxStepper(*graphs_of("luong-gru-2"), VOCABULARY)
    found = stepper.step(stepper.begin(SOURCES), np.full((5, 1), 2), np.zeros((5, 1)), VOCABULARY)
    finite = np.isfinite(found.log_probs_BC)
    assert finite.sum() == len(SOURCES) * (VOCABULARY - len(BANNED))
    assert not np.isin(found.tokens_BC[finite], BANNED).any()


def test_a_graph_tells_nothing_of_the_machine_it_was_made_on() -> None:
    for content in graphs_of("bahdanau-gru-2-normed"):
        assert b".py" not in content
        assert str(Path(nmt.__file__).parent).encode() not in content
        assert b"location" not in content  # what nmt.exported takes for a reference to another file


def test_what_cannot_be_exported_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **options: object) -> None:
        try:
            raise RuntimeError("no such operator\nand how to write one")
        except RuntimeError as error:
            raise torch.onnx.errors.OnnxExporterError("step 3/3\nNext steps:") from error

    monkeypatch.setattr(torch.onnx, "export", fail)
    with pytest.raises(NmtError, match=r"cannot export this model: no such operator\. Try another version of torch\.$"):
        trace(model_of("none"), BANNED)


def test_what_is_no_graph_is_refused() -> None:
    read, step = graphs_of("luong-gru-2")
    for broken in ((read, b"no graph"), (read[:100], step), (step, read), (step, step)):
        with pytest.raises(ValueError, match=r"."):
            OnnxStepper(*broken, VOCABULARY)


def test_a_graph_of_another_model_is_told_when_it_does_not_run() -> None:
    read, _ = graphs_of("bahdanau-state")
    _, step = graphs_of("bahdanau-maxout")
    stepper = OnnxStepper(read, step, VOCABULARY)
    with pytest.raises(NmtError, match="does not run"):
        stepper.step(stepper.begin(SOURCES), np.full((5, 1), 2), np.zeros((5, 1)), 4)


def test_without_onnx_runtime_one_message_has_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(NmtError, match="pip install onnxruntime"):
        OnnxStepper(b"", b"", VOCABULARY)
