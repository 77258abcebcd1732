"""The loops of a CPU against torch's own GRU and LSTM: the same states and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nmt.model import gemm, packed
from nmt.model.packed import Packing, packed_states

LENGTHS = torch.tensor([4, 2, 6, 6, 1])
WIDTH = 7  # one position more than any sentence has


def torchs_states(
    layer: nn.RNNBase, x: torch.Tensor, start: torch.Tensor | None, lengths: torch.Tensor
) -> torch.Tensor:  # fmt: skip
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    first: torch.Tensor | tuple[torch.Tensor, torch.Tensor] | None = start
    if start is not None and isinstance(layer, nn.LSTM):
        c, h = start.chunk(2, -1)
        first = (h.contiguous(), c.contiguous())
    states: torch.Tensor = pad_packed_sequence(layer(packed, first)[0], batch_first=True, total_length=x.shape[1])[0]
    return states


@pytest.mark.parametrize(
    ("dtype", "tolerance", "onednn"),
    [(torch.float64, 1e-12, False), (torch.float32, 1e-5, False), (torch.float32, 1e-5, True)],
)
@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_states_and_gradients_equal_those_of_torchs_layers(
    kind: type[nn.RNNBase], bidirectional: bool, started: bool, dtype: torch.dtype, tolerance: float, onednn: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if onednn and not torch.backends.mkldnn.is_available():
        pytest.skip("torch without oneDNN")
    monkeypatch.setattr(gemm, "onednn_is_faster", lambda: onednn)
    torch.manual_seed(1)
    layer = kind(5, 4, batch_first=True, bidirectional=bidirectional).to(dtype)
    x = torch.randn(len(LENGTHS), WIDTH, 5, dtype=dtype, requires_grad=True)
    start = None
    if started:
        values = 4 if kind is nn.GRU else 8  # an LSTM's memory cell and h
        start = torch.randn(1 + bidirectional, len(LENGTHS), values, dtype=dtype, requires_grad=True)
    own = packed_states(layer, x, start, Packing.of(LENGTHS, WIDTH, bidirectional=bidirectional))
    theirs = torchs_states(layer, x, start, LENGTHS)
    torch.testing.assert_close(own, theirs, rtol=tolerance, atol=tolerance)
    assert (own[torch.arange(WIDTH) >= LENGTHS.unsqueeze(1)] == 0).all()
    wanted = [x, *layer.parameters(), *([] if start is None else [start])]
    weights = torch.randn_like(own)
    for ours, torchs in zip(
        torch.autograd.grad(own, wanted, weights), torch.autograd.grad(theirs, wanted, weights), strict=True
    ):
        torch.testing.assert_close(ours, torchs, rtol=tolerance, atol=tolerance)


def test_no_gradient_is_made_for_an_input_that_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    unpacked = packed._unpacked
    monkeypatch.setattr(packed, "_unpacked", lambda *args: made.append(1) or unpacked(*args))
    layer = nn.GRU(3, 2, batch_first=True)
    x = torch.randn(len(LENGTHS), WIDTH, 3)
    states = packed_states(layer, x, None, Packing.of(LENGTHS, WIDTH, bidirectional=False))
    made.clear()
    states.sum().backward()
    assert not made
    packed_states(layer, x.requires_grad_(), None, Packing.of(LENGTHS, WIDTH, bidirectional=False)).sum().backward()
    assert made
    assert all(parameter.grad is not None for parameter in layer.parameters())


def test_packing_names_each_real_position_once_in_time_order() -> None:
    packing = Packing.of(LENGTHS, WIDTH, bidirectional=True)
    forward, backward = (places.tolist() for places in packing.places)
    real = {b * WIDTH + j for b, length in enumerate(LENGTHS.tolist()) for j in range(length)}
    assert set(forward) == set(backward) == real
    assert len(forward) == len(backward) == len(real)
    assert packing.sizes == [5, 4, 3, 3, 2, 2]
    assert packing.order_B.tolist() == [2, 3, 0, 1, 4]  # the longest first, as they came among equals
    assert forward[:5] == [b * WIDTH for b in packing.order_B.tolist()]
    assert backward[:5] == [b * WIDTH + int(LENGTHS[b]) - 1 for b in packing.order_B.tolist()]
    assert packing.swap_N is not None
    assert [backward[row] for row in packing.swap_N.tolist()] == forward
