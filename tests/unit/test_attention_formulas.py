"""Whole decoders against the papers' formulas in NumPy, in training and in search; coverage; parameter counts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from formulas import Array, bahdanau, luong, numbers
from models import ATTENTIVE, DECODERS, VOCABULARY, small_batch, small_model

from nmt.config import BahdanauConfig, LuongConfig, PlainConfig
from nmt.model.decoder import Decoder
from nmt.model.seq2seq import Seq2Seq
from nmt.model.torch_stepper import TorchStepper
from nmt.search import beam_search

BOS, EOS = 2, 3
LENGTHS = (45, 9, 3)  # the first so long that windows are read alone, wherever a kind does that


def long_batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    src_BS = torch.randint(4, VOCABULARY, (len(LENGTHS), max(LENGTHS)), generator=generator)
    return src_BS, torch.tensor(LENGTHS), torch.randint(4, VOCABULARY, (len(LENGTHS), 7), generator=generator)


def by_the_paper(model: Seq2Seq, name: str, source: torch.Tensor, words: torch.Tensor) -> tuple[Array, Array]:
    """Readouts [T, R] and weights [T, S] of one sentence; the annotations alone are the model's."""
    with torch.no_grad():
        encoding = model.encoder(model.src_embedding(source[None]), torch.tensor([len(source)]))
        embedded = list(model.tgt_embedding(words).numpy())
    h, p = encoding.annotations_BSE[0].numpy(), numbers(model.decoder)
    start = h[0, model.encoder.hidden_size :]  # ←h_1
    config = DECODERS[name]
    if isinstance(config, LuongConfig):
        return luong(config, p, h, start, embedded)
    assert isinstance(config, BahdanauConfig)
    return bahdanau(config, p, h, start, embedded)


@pytest.mark.parametrize("batch", [small_batch(), long_batch()], ids=["short", "long"])
@pytest.mark.parametrize("name", ATTENTIVE)
def test_teacher_forcing_and_steps_follow_the_papers_formulas(name: str, batch: tuple[torch.Tensor, ...]) -> None:
    model = small_model(name)
    src_BS, lengths_B, tgt_in_BT = batch
    with torch.no_grad():
        memory = model.read(src_BS, lengths_B)
        state, embedded_BTD = model.decoder.init_state(memory), model.tgt_embedding(tgt_in_BT)
        ways = [model.decoder(embedded_BTD, state, memory), Decoder.forward(model.decoder, embedded_BTD, state, memory)]
    for row, length in enumerate(lengths_B.tolist()):
        readouts, weights = by_the_paper(model, name, src_BS[row, :length], tgt_in_BT[row])
        for readouts_BTR, weights_BTS in ways:
            np.testing.assert_allclose(readouts_BTR[row].numpy(), readouts, atol=1e-10)
            np.testing.assert_allclose(weights_BTS[row, :, :length].numpy(), weights, atol=1e-10)
            assert (weights_BTS[row, :, length:] == 0).all()


@pytest.mark.parametrize("name", ATTENTIVE)
def test_hypotheses_of_a_search_have_the_weights_and_the_score_of_the_formulas(name: str) -> None:
    model = small_model(name).eval()
    src_BS, lengths_B, _ = long_batch()
    sources = [src_BS[row, :length].tolist() for row, length in enumerate(lengths_B.tolist())]
    stepper = TorchStepper(model, (0, 1, 2), torch.device("cpu"))
    settings = {"bos": BOS, "eos": EOS, "beam_size": 4, "alpha": 1.0, "n_best": 3, "keep_weights": True}
    found = beam_search(stepper, sources, max_lengths=[6] * len(sources), **settings)
    for source, hypotheses in zip(sources, found, strict=True):
        for hypothesis in hypotheses:
            out = [*hypothesis.tokens] if hypothesis.length_limited else [*hypothesis.tokens, EOS]
            fed = torch.tensor([BOS, *out[:-1]])
            readouts, weights = by_the_paper(model, name, torch.tensor(source), fed)
            logits = readouts @ model.output.weight.detach().numpy().T + model.output.bias.detach().numpy()
            log_prob = sum(row[word] - np.log(np.exp(row).sum()) for row, word in zip(logits, out, strict=True))
            assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-6)
            np.testing.assert_allclose(hypothesis.weights, weights, atol=1e-6)


COVERAGE = ["bahdanau-coverage", "bahdanau-coverage-lstm-2"]  # the fast loop, and repeated steps


@pytest.mark.parametrize("name", COVERAGE)
def test_coverages_parameter_has_a_gradient_and_it_equals_the_numerical_one(name: str) -> None:
    model, batch = small_model(name), small_batch()
    parameter = model.decoder.attention.coverage

    def loss() -> torch.Tensor:
        readouts_BTR, weights_BTS = model(*batch)
        return readouts_BTR.square().sum() + (weights_BTS * weights_BTS.cumsum(-1)).sum()

    (gradient,) = torch.autograd.grad(loss(), parameter)
    assert (gradient.abs() > 1e-4).all()
    step = 1e-6
    with torch.no_grad():
        for place in range(len(parameter)):
            sides = []
            for sign in (1, -1):
                parameter[place] += sign * step
                sides.append(loss())
                parameter[place] -= sign * step
            assert gradient[place].item() == pytest.approx(((sides[0] - sides[1]) / (2 * step)).item(), rel=1e-5)


@pytest.mark.parametrize("name", COVERAGE)
def test_coverage_changes_every_step_but_the_first(name: str) -> None:
    model = small_model(name)
    _, with_BTS = model(*small_batch())
    with torch.no_grad():
        model.decoder.attention.coverage.zero_()
    _, without_BTS = model(*small_batch())
    torch.testing.assert_close(with_BTS[:, 0], without_BTS[:, 0], rtol=0, atol=0)
    for t in range(1, 5):
        assert ((with_BTS[:, t] - without_BTS[:, t]).abs().amax(-1) > 1e-6).all()


def parameters_of_attention(name: str) -> int:
    """The design's counts, from the configuration alone; an annotation of `small_model` has 8 values."""
    config, d_h = DECODERS[name], 8
    assert not isinstance(config, PlainConfig)
    d_s, d_a = config.hidden_size, config.attention_size
    if isinstance(config, BahdanauConfig):
        return d_a * (d_s + d_h + 1) + (d_a if config.coverage else 0)
    score = {"dot": 0, "general": d_s * d_h, "concat": d_a * (d_s + d_h + 1)}[config.score]
    predictive = config.window is not None and config.window.kind == "predictive"
    return score + (d_s * d_s + d_s if predictive else 0)


@pytest.mark.parametrize("name", ATTENTIVE)
def test_attention_has_as_many_parameters_as_its_formula(name: str) -> None:
    p = numbers(small_model(name).decoder)
    counted = sum(array.size for key, array in p.items() if key.startswith(("attention.", "window.")))
    assert counted == parameters_of_attention(name)


@pytest.mark.parametrize("name", [name for name in ATTENTIVE if name.startswith("luong")])
def test_luongs_readout_has_as_many_parameters_as_its_formula(name: str) -> None:
    model = small_model(name)
    d_s, d_h = DECODERS[name].hidden_size, 8
    assert model.decoder.readout.weight.numel() == d_s * (d_s + d_h)
