"""Small models of every kind, shared by the tests of the model, the search and the training."""

from __future__ import annotations

import torch

from nmt.config import BahdanauConfig, DecoderConfig, EncoderConfig, LuongConfig, ModelConfig, PlainConfig, WindowConfig
from nmt.model.seq2seq import Seq2Seq, build_model

VOCABULARY = 11

DECODERS: dict[str, DecoderConfig] = {
    "bahdanau": BahdanauConfig(hidden_size=6, attention_size=5),
    "bahdanau-state": BahdanauConfig(hidden_size=6, attention_size=5, readout="state"),
    "bahdanau-maxout": BahdanauConfig(hidden_size=6, attention_size=5, readout="maxout"),
    "bahdanau-lstm-2": BahdanauConfig(hidden_size=6, attention_size=5, cell="lstm", num_layers=2),
    "bahdanau-gru-2": BahdanauConfig(hidden_size=6, attention_size=5, num_layers=2),
    "bahdanau-coverage": BahdanauConfig(hidden_size=6, attention_size=5, coverage=True),
    "bahdanau-coverage-lstm-2": BahdanauConfig(
        hidden_size=6, attention_size=5, coverage=True, cell="lstm", num_layers=2
    ),
    "luong-dot": LuongConfig(kind="luong", hidden_size=8, score="dot"),
    "luong-dot-scaled": LuongConfig(kind="luong", hidden_size=8, score="dot", scale=True),
    "luong-general": LuongConfig(kind="luong", hidden_size=6, score="general"),
    "luong-gru-2": LuongConfig(kind="luong", hidden_size=6, score="general", num_layers=2),
    "luong-concat": LuongConfig(kind="luong", hidden_size=6, score="concat", attention_size=5),
    "luong-feed": LuongConfig(kind="luong", hidden_size=6, score="general", input_feeding=True),
    "luong-concat-feed-lstm-2": LuongConfig(
        kind="luong", hidden_size=6, score="concat", attention_size=5, input_feeding=True, cell="lstm", num_layers=2
    ),
    "luong-monotonic": LuongConfig(
        kind="luong", hidden_size=6, score="general", window=WindowConfig(kind="monotonic", half_width=2)
    ),
    "luong-predictive": LuongConfig(
        kind="luong", hidden_size=6, score="general", window=WindowConfig(kind="predictive", half_width=1)
    ),
    "luong-dot-predictive-wide": LuongConfig(
        kind="luong", hidden_size=8, score="dot", scale=True, window=WindowConfig(kind="predictive", half_width=9)
    ),
    "luong-concat-monotonic-feed": LuongConfig(
        kind="luong",
        hidden_size=6,
        score="concat",
        attention_size=5,
        input_feeding=True,
        window=WindowConfig(kind="monotonic", half_width=1),
    ),
    "luong-concat-predictive-feed": LuongConfig(
        kind="luong",
        hidden_size=6,
        score="concat",
        attention_size=5,
        input_feeding=True,
        window=WindowConfig(kind="predictive", half_width=1),
    ),
    "luong-concat-predictive": LuongConfig(
        kind="luong",
        hidden_size=6,
        score="concat",
        attention_size=5,
        window=WindowConfig(kind="predictive", half_width=2),
    ),
    "none": PlainConfig(kind="none", hidden_size=6),
    "none-feed-lstm": PlainConfig(kind="none", hidden_size=6, feed_context=True, cell="lstm"),
}
# Cells that normalise; the tests of what does not see the cells can do without.
NORMED: dict[str, DecoderConfig] = {
    "bahdanau-gru-2-normed": DECODERS["bahdanau-gru-2"],
    "luong-feed-lstm-normed": DECODERS["luong-feed"].model_copy(update={"cell": "lstm"}),
    "luong-general-normed": DECODERS["luong-general"],
    "none-feed-lstm-normed": DECODERS["none-feed-lstm"],
}
MODELS = DECODERS | NORMED
ATTENTIVE = [name for name in DECODERS if not name.startswith("none")]


def small_model(name: str, *, seed: int = 1, dtype: torch.dtype = torch.float64, **settings: object) -> Seq2Seq:
    """A model of VOCABULARY ids on either side, one of `MODELS`; the encoder gives 8 values a position."""
    torch.manual_seed(seed)
    values: dict[str, object] = {
        "embedding_size": 7, "dropout": 0.0, "layer_norm": name in NORMED, "encoder": EncoderConfig(hidden_size=4),
    }  # fmt: skip
    config = ModelConfig.model_validate(values | {"decoder": MODELS[name]} | settings)
    model = build_model(config, VOCABULARY, VOCABULARY).to(dtype)
    with torch.no_grad():  # larger than a real start, so that the tests see every term
        for parameter in model.parameters():
            parameter.uniform_(-0.7, 0.7)
    return model


def small_batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sources of lengths 4, 2 and 6 (EOS, id 3, included), and previous target words [3, 5]."""
    src_BS = torch.tensor([[4, 5, 6, 3, 0, 0], [7, 3, 0, 0, 0, 0], [4, 4, 9, 8, 8, 3]])
    tgt_in_BT = torch.tensor([[2, 5, 6, 7, 8], [2, 9, 9, 4, 10], [2, 10, 4, 4, 6]])
    return src_BS, torch.tensor([4, 2, 6]), tgt_in_BT
