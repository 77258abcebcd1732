"""The decoders: one protocol, both papers' timing, padding, and the fast path against repeated steps.

Their formulas are in test_attention_formulas.py.
"""

from __future__ import annotations

import pytest
import torch
from models import ATTENTIVE, MODELS, VOCABULARY, small_batch, small_model

from nmt.config import EncoderConfig
from nmt.model import devices, gemm
from nmt.model.cell_steps import GRU, LSTM, LoopCell
from nmt.model.decoder import Decoder
from nmt.model.recurrence import BahdanauLoop, FeedingLoop
from nmt.model.seq2seq import Seq2Seq
from nmt.training.loss import token_losses


def step_by_step(model: Seq2Seq) -> tuple[torch.Tensor, torch.Tensor]:
    """The reference: the base class's loop over `step`, whatever a kind makes of `forward`."""
    src_BS, lengths_B, tgt_in_BT = small_batch()
    memory = model.read(src_BS, lengths_B)
    embedded_BTD = model.tgt_embedding(tgt_in_BT)
    return Decoder.forward(model.decoder, embedded_BTD, model.decoder.init_state(memory), memory)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("dtype", "tolerance", "onednn"),
    [(torch.float64, 1e-11, False), (torch.float32, 2e-5, False), (torch.float32, 2e-5, True)],
)
def test_forward_equals_repeated_steps_in_values_and_gradients(
    name: str, dtype: torch.dtype, tolerance: float, onednn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if onednn and not torch.backends.mkldnn.is_available():
        pytest.skip("torch without oneDNN")
    monkeypatch.setattr(gemm, "onednn_is_faster", lambda: onednn)
    model = small_model(name, dtype=dtype)
    results = []
    for readouts, weights in (model(*small_batch()), step_by_step(model)):
        model.zero_grad()
        (readouts.square().sum() + (weights * weights.cumsum(-1)).sum()).backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        results.append([readouts.detach(), weights.detach(), *gradients])
    assert len(results[0]) == len(results[1]) > 8
    for fast, plain in zip(*results, strict=True):
        torch.testing.assert_close(fast, plain, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["bahdanau", "luong-concat-feed-lstm-2"])
def test_loops_equal_repeated_steps_where_keys_are_too_large_for_their_powers(name: str) -> None:
    model = small_model(name)
    with torch.no_grad():
        for layer in (model.decoder.attention.key, model.decoder.attention.query):
            layer.weight.mul_(300)
    results = []
    for readouts, weights in (model(*small_batch()), step_by_step(model)):
        model.zero_grad()
        (readouts.square().sum() + (weights * weights.cumsum(-1)).sum()).backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        results.append([readouts.detach(), weights.detach(), *gradients])
    for fast, plain in zip(*results, strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_the_whole_model_equal_numerical_ones(name: str) -> None:
    model = small_model(name)
    names, values = zip(*model.named_parameters(), strict=True)
    src_BS, lengths_B, tgt_in_BT = small_batch()
    batch = (src_BS[:2, :4], lengths_B[:2], tgt_in_BT[:2, :3])

    def readouts(*parameters: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, dict(zip(names, parameters, strict=True)), batch)[0].sum(-1)

    # fast_mode projects on random directions: the exact Jacobian of every weight takes minutes.
    assert torch.autograd.gradcheck(readouts, values, fast_mode=True)


def stack_shapes(cell: LoopCell, size: int, more: int, layers: int) -> list[tuple[int, ...]]:
    """Those of the parts of one `LoopLayer`, or of two without the mask between them, for 2 sentences."""
    gates, state = cell.gates * size, (2, cell.sizes * size)
    top = [state, (gates + more, size), (gates + more,)]
    return top if layers == 1 else [state, (gates, size), (gates,), *top, (gates, size), (gates,)]


def stack_of(tensors: tuple[torch.Tensor, ...]) -> list[torch.Tensor | None]:
    """All parts, from tensors of those shapes."""
    mask_BH = torch.tensor([[0.0, 2.0], [2.0, 2.0]], dtype=torch.float64)
    upper = [*tensors[3:], mask_BH] if len(tensors) > 3 else []
    return [*tensors[:3], None, None, None, *upper]


MASK_BS = torch.tensor([[True] * 4, [True, True, False, False]])


@pytest.mark.parametrize(
    ("cell", "coverage", "layers"),
    [(GRU, False, 1), (GRU, True, 1), (GRU, True, 2), (LSTM, False, 1), (LSTM, False, 2)],
)
def test_gradients_of_bahdanaus_loop_equal_numerical_ones(cell: LoopCell, coverage: bool, layers: int) -> None:
    torch.manual_seed(2)
    steps, batch, positions, e, h, a = 3, 2, 4, 3, 2, 3
    gates = cell.gates * h
    shapes = [(steps, batch, gates), (batch, positions, a), (batch, positions, e), (gates, e), (a,), (a,)]
    shapes += stack_shapes(cell, h, a, layers)
    tensors = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]

    def loop(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        u_A = args[5] if coverage else None
        return BahdanauLoop.apply(cell, *args[:3], MASK_BS, *args[3:5], u_A, *stack_of(args[6:]))  # type: ignore[no-any-return, no-untyped-call]

    assert torch.autograd.gradcheck(loop, tensors, fast_mode=layers > 1 or cell is LSTM)


@pytest.mark.parametrize(
    ("cell", "additive", "layers"),
    [(GRU, False, 1), (GRU, True, 1), (GRU, True, 2), (LSTM, False, 2), (LSTM, True, 1)],
)
def test_gradients_of_the_loop_with_input_feeding_equal_numerical_ones(
    cell: LoopCell, additive: bool, layers: int
) -> None:
    torch.manual_seed(2)
    steps, batch, positions, e, h, r = 3, 2, 4, 3, 2, 5
    gates = cell.gates * h
    a = 4 if additive else h
    shapes = [(steps, batch, gates), (batch, positions, a), (batch, positions, e), (gates, r), (r, h + e)]
    shapes += [(a, h), (a,), *stack_shapes(cell, h, 0, layers)]
    tensors = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]

    def loop(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        score = (*(args[5:7] if additive else (None, None)), 0.7)
        return FeedingLoop.apply(cell, *args[:3], MASK_BS, *args[3:5], *score, *stack_of(args[7:]))  # type: ignore[no-any-return, no-untyped-call]

    assert torch.autograd.gradcheck(loop, tensors, fast_mode=layers > 1 or cell is LSTM)


def keep_masks_between_layers(model: Seq2Seq, monkeypatch: pytest.MonkeyPatch) -> None:
    """One mask of the decoder's for all steps, as its loops have it, where each single step draws its own."""
    masks_BX = (torch.rand(3, model.decoder.rnn.hidden_size) > 0.4) / 0.6
    monkeypatch.setattr(model.decoder.rnn.dropout, "mask", lambda like_BX: masks_BX.to(like_BX))


SHAPES: list[dict[str, object]] = [
    {"encoder": EncoderConfig(hidden_size=4, num_layers=2)},
    {"encoder": EncoderConfig(hidden_size=4, num_layers=2, cell="lstm")},
    {"encoder": EncoderConfig(hidden_size=4, num_layers=2, bidirectional=False)},
    {"tie_embeddings": True},
    {"tie_embeddings": "target"},
]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {}) for name in MODELS),
        *(("bahdanau", shape) for shape in SHAPES),
        *(("none", s) for s in SHAPES[:3]),
    ],
)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 5e-5)])
def test_a_model_equals_torchs_recurrences_and_plain_steps_under_the_same_dropout(
    name: str, settings: dict[str, object], dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model(name, dtype=dtype, dropout=0.4, **settings).train()
    keep_masks_between_layers(model, monkeypatch)
    targets = torch.randint(VOCABULARY, (3, 5))
    results = []
    for plain in (False, True):
        if plain:
            monkeypatch.setattr(devices, "on_cpu", lambda tensor: False)  # torch's own layers, as on a GPU
            monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
            monkeypatch.setattr(type(model.decoder), "forward", Decoder.forward)
        model.zero_grad()
        torch.manual_seed(5)
        readouts, weights = model(*small_batch())
        if plain:
            logits = model.output(readouts).flatten(0, 1)
            loss = torch.nn.functional.cross_entropy(logits, targets.flatten(), reduction="sum", label_smoothing=0.1)
        else:
            rows = readouts.flatten(0, 1)
            loss = token_losses(rows, model.output.weight, model.output.bias, targets.flatten(), 0.1).loss
        loss.backward()
        results.append([loss.detach(), weights.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    assert len(results[0]) == len(results[1]) > 8
    for fast, reference in zip(*results, strict=True):
        torch.testing.assert_close(fast, reference, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_extra_padding_of_any_ids_changes_nothing(name: str) -> None:
    model = small_model(name)
    src_BS, lengths_B, tgt_in_BT = small_batch()
    padded_BS = torch.randint(0, 11, (3, 9))
    real_BS = torch.arange(9) < lengths_B.unsqueeze(1)
    padded_BS[real_BS] = src_BS[torch.arange(6) < lengths_B.unsqueeze(1)]
    before, weights_before = model(src_BS, lengths_B, tgt_in_BT)
    after, weights_after = model(padded_BS, lengths_B, tgt_in_BT)
    torch.testing.assert_close(before, after)
    if weights_before.shape[-1]:
        torch.testing.assert_close(weights_before, weights_after[:, :, :6])
        assert (weights_after[~real_BS.unsqueeze(1).expand(-1, 5, -1)] == 0).all()


@pytest.mark.parametrize("name", MODELS)
def test_a_sentence_does_not_depend_on_its_batch(name: str) -> None:
    model = small_model(name)
    src_BS, lengths_B, tgt_in_BT = small_batch()
    together, _ = model(src_BS, lengths_B, tgt_in_BT)
    for row in range(3):
        alone, _ = model(src_BS[row : row + 1, : lengths_B[row]], lengths_B[row : row + 1], tgt_in_BT[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone)


@pytest.mark.parametrize("name", ATTENTIVE)
def test_weights_of_every_step_sum_to_one_or_in_predictive_windows_to_at_most_one(name: str) -> None:
    _, weights_BTS = small_model(name)(*small_batch())
    sums_BT = weights_BTS.sum(-1)
    if "predictive" in name:
        assert ((sums_BT > 0) & (sums_BT <= 1)).all()
    else:
        torch.testing.assert_close(sums_BT, torch.ones(3, 5, dtype=torch.float64))


@pytest.mark.parametrize("name", ATTENTIVE)
def test_the_fed_word_reaches_luongs_weights_of_its_step_and_not_bahdanaus(name: str) -> None:
    model = small_model(name)
    src_BS, lengths_B, tgt_in_BT = small_batch()
    changed_BT = tgt_in_BT.clone()
    changed_BT[:, 2] = 1
    _, before = model(src_BS, lengths_B, tgt_in_BT)
    _, after = model(src_BS, lengths_B, changed_BT)
    torch.testing.assert_close(before[:, :2], after[:, :2], rtol=0, atol=0)
    same = torch.equal(before[1:, 2], after[1:, 2])
    assert same == name.startswith("bahdanau")
    assert not torch.allclose(before[:, 3], after[:, 3])


@pytest.mark.parametrize("name", MODELS)
def test_hypotheses_of_a_sentence_share_its_memory(name: str) -> None:
    model = small_model(name)
    src_BS, lengths_B, _ = small_batch()
    memory = model.read(src_BS, lengths_B)
    one = model.decoder.init_state(memory)
    three = one.select(torch.arange(3).repeat_interleave(3))
    tokens_BK = torch.tensor([[4, 5, 6], [7, 8, 9], [10, 4, 5]])
    together, _, weights_NS = model.decoder.step(model.tgt_embedding(tokens_BK.flatten()), three, memory)
    for k in range(3):
        alone, _, weights_BS = model.decoder.step(model.tgt_embedding(tokens_BK[:, k]), one, memory)
        torch.testing.assert_close(together.view(3, 3, -1)[:, k], alone)
        torch.testing.assert_close(weights_NS.view(3, 3, -1)[:, k], weights_BS)


def test_annotations_join_the_last_words_seen_in_both_directions() -> None:
    model = small_model("none")
    src_BS, lengths_B, _ = small_batch()
    encoding = model.encoder(model.src_embedding(src_BS), lengths_B)
    assert (encoding.annotations_BSE[0, 4:] == 0).all()
    for row, length in enumerate(lengths_B.tolist()):
        torch.testing.assert_close(encoding.summary_BE[row, :4], encoding.annotations_BSE[row, length - 1, :4])
        torch.testing.assert_close(encoding.summary_BE[row, 4:], encoding.annotations_BSE[row, 0, 4:])
        torch.testing.assert_close(encoding.start_BH[row], encoding.annotations_BSE[row, 0, 4:])
