"""What an update keeps between its passes: nothing of size T x B x S x A, and nothing of size B x T x V."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_demo_corpus import load_script
from torch import Tensor, nn

from nmt.config import BahdanauConfig, DecoderConfig, EncoderConfig, LuongConfig, ModelConfig, PlainConfig
from nmt.model.attention import AdditiveScore
from nmt.model.seq2seq import Seq2Seq, build_model
from nmt.training import loss as loss_module
from nmt.training.loss import TokenLosses, token_losses

B, T, S, SIZE, V = 8, 9, 60, 16, 1000
PAIRS, LOGITS = B * S * SIZE, B * V  # of one step

KINDS: dict[str, DecoderConfig] = {
    "bahdanau": BahdanauConfig(hidden_size=SIZE, attention_size=SIZE),
    "bahdanau-coverage": BahdanauConfig(hidden_size=SIZE, attention_size=SIZE, coverage=True),
    "bahdanau-lstm-2": BahdanauConfig(hidden_size=SIZE, attention_size=SIZE, cell="lstm", num_layers=2),
    "luong-general": LuongConfig(kind="luong", hidden_size=SIZE, score="general"),
    "luong-concat": LuongConfig(kind="luong", hidden_size=SIZE, score="concat", attention_size=SIZE),
    "luong-feed": LuongConfig(kind="luong", hidden_size=SIZE, score="general", input_feeding=True),
    "luong-concat-feed": LuongConfig(
        kind="luong", hidden_size=SIZE, score="concat", attention_size=SIZE, input_feeding=True
    ),
    "luong-concat-feed-lstm": LuongConfig(
        kind="luong", hidden_size=SIZE, score="concat", attention_size=SIZE, input_feeding=True, cell="lstm"
    ),
    "none": PlainConfig(kind="none", hidden_size=SIZE),
}


def model_of(kind: str) -> Seq2Seq:
    torch.manual_seed(1)
    values = {"embedding_size": 8, "dropout": 0.3, "encoder": EncoderConfig(hidden_size=8), "decoder": KINDS[kind]}
    return build_model(ModelConfig.model_validate(values), V, V).train()


def graph_of(root: Any) -> list[Any]:
    """Every node that a backward pass from `root` would come by."""
    found, waiting = {}, [root]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found[node] = node
            waiting += [following for following, _ in node.next_functions]
    return list(found)


def held(value: Any, depth: int = 3) -> list[Tensor]:
    """The tensors in a value, in its containers, and in the attributes of what is no module."""
    if isinstance(value, Tensor):
        return [value]
    if depth == 0 or isinstance(value, nn.Module | type):
        return []
    if isinstance(value, dict):
        value = value.values()
    elif hasattr(value, "__dict__"):
        value = vars(value).values()
    elif not isinstance(value, list | tuple | set):
        return []
    return [tensor for part in value for tensor in held(part, depth - 1)]


def kept(model: Seq2Seq, steps: int) -> list[int]:
    """How many values each piece of memory has that a forward pass over so many steps leaves for the backward pass.

    What autograd saves, what custom functions save or hang onto their contexts, but not the parameters.
    """
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    src_BS, tgt_BT = torch.randint(4, V, (B, S)), torch.randint(4, V, (B, steps))
    lengths_B = torch.linspace(S, 3, B).long()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        readouts_BTR, weights_BTS = model(src_BS, lengths_B, tgt_BT)
        output = model.output
        losses = token_losses(readouts_BTR.flatten(0, 1), output.weight, output.bias, tgt_BT.flatten(), 0.1)
        total = losses.loss + weights_BTS.square().sum()  # as guided attention: the weights have a gradient, too
    for node in graph_of(total.grad_fn):
        saved += held(getattr(node, "__dict__", {}))
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    sizes = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() // t.element_size() for t in saved}
    total.backward()  # the graph was whole
    return [size for address, size in sizes.items() if address not in own]


def kept_a_step(model: Seq2Seq) -> float:
    """How many values one step more leaves, whether in one piece for all steps or in pieces for each."""
    return (sum(kept(model, 2 * T)) - sum(kept(model, T))) / T


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_as_large_as_all_pairs_or_all_logits_is_kept(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "CHUNK", 16)
    model = model_of(kind)
    assert max(kept(model, T)) < T * min(PAIRS, LOGITS) / 2
    assert 0 < kept_a_step(model) < min(PAIRS, LOGITS) / 2


def test_the_plain_loop_keeps_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is: the count above sees them."""
    model = model_of("bahdanau")
    for owner in (type(model.decoder), AdditiveScore):  # to be put back
        monkeypatch.setattr(owner, "forward", owner.forward)
    load_script("bench_train").use_plain_loop(model.decoder)
    assert kept_a_step(model) > PAIRS


def test_torchs_cross_entropy_keeps_all_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is: the count above sees them."""

    def plain(x_NR: Tensor, weight_VR: Tensor, bias_V: Tensor, gold_N: Tensor, smoothing: float) -> TokenLosses:
        logits_NV = nn.functional.linear(x_NR, weight_VR, bias_V)
        loss = nn.functional.cross_entropy(logits_NV, gold_N, label_smoothing=smoothing, reduction="sum")
        return TokenLosses(loss, loss.detach(), torch.zeros(()))

    monkeypatch.setitem(globals(), "token_losses", plain)
    model = model_of("none")
    assert max(kept(model, T)) == T * LOGITS
    assert kept_a_step(model) > LOGITS


def test_tensors_on_the_context_of_a_custom_function_are_seen() -> None:
    class Hoarder(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.hoard = {"all": [torch.ones(77)]}
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad

    out = Hoarder.apply(torch.ones(3, requires_grad=True)) * 2
    assert [len(tensor) for node in graph_of(out.grad_fn) for tensor in held(getattr(node, "__dict__", {}))] == [77]
