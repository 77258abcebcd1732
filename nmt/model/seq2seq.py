"""The whole model, and the one place that builds it from its configuration.

Axes: B sentences, S source positions, T target positions, N real target positions of a batch or rows of a search,
D embedding size, R readout size, V vocabulary.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn
from typing_extensions import assert_never

from nmt.config import BahdanauConfig, LuongConfig, ModelConfig, PlainConfig, Tying
from nmt.model.decoder import BahdanauDecoder, Decoder, LuongDecoder, Memory, PlainDecoder
from nmt.model.dropout import SharedDropout, WordDropout, set_weight_dropout
from nmt.model.encoder import Encoder
from nmt.model.layer_norm import add_layer_norm


class Seq2Seq(nn.Module):
    """Embeddings, encoder, decoder and the projection of readouts to the vocabulary."""

    def __init__(
        self, encoder: Encoder, decoder: Decoder, *, src_vocab: int, tgt_vocab: int, embedding_size: int,
        dropout: float, word_dropout: float, annotation_dropout: float, tie_embeddings: Tying,
    ) -> None:  # fmt: skip
        super().__init__()
        self.src_embedding = nn.Embedding(src_vocab, embedding_size)
        one_matrix = tie_embeddings is True
        self.tgt_embedding = self.src_embedding if one_matrix else nn.Embedding(tgt_vocab, embedding_size)
        self.encoder = encoder
        self.decoder = decoder
        self.output = nn.Linear(decoder.readout_size, tgt_vocab)
        self.dropout = SharedDropout(dropout)
        self.word_dropout = WordDropout(word_dropout)
        self.annotation_dropout = SharedDropout(annotation_dropout)
        for embedding in (self.src_embedding, self.tgt_embedding):
            nn.init.normal_(embedding.weight, std=embedding_size**-0.5)
        nn.init.zeros_(self.output.bias)
        if tie_embeddings:
            self.output.weight = self.tgt_embedding.weight
        else:
            nn.init.xavier_uniform_(self.output.weight)

    def read(self, src_BS: Tensor, src_lengths_B: Tensor) -> Memory:
        """The memory of source ids, each sentence ended by EOS; what stands beyond its length is ignored."""
        embedded_BSD = self.dropout(self.word_dropout(self.src_embedding(src_BS)))
        encoding = self.encoder(embedded_BSD, src_lengths_B)
        return self.decoder.read(replace(encoding, annotations_BSE=self.annotation_dropout(encoding.annotations_BSE)))

    def forward(self, src_BS: Tensor, src_lengths_B: Tensor, tgt_in_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Teacher forcing: readouts [B, T, R] after dropout, for `output` to project, and weights [B, T, S]."""
        memory = self.read(src_BS, src_lengths_B)
        embedded_BTD = self.dropout(self.word_dropout(self.tgt_embedding(tgt_in_BT)))
        readouts_BTR, weights_BTS = self.decoder(embedded_BTD, self.decoder.init_state(memory), memory)
        return self.dropout(readouts_BTR), weights_BTS


def build_model(config: ModelConfig, src_vocab: int, tgt_vocab: int) -> Seq2Seq:
    """The model that `config` describes, with fresh weights from torch's global generator."""
    encoder = Encoder(config.encoder, config.embedding_size, config.dropout)
    sizes = {
        "embedding_size": config.embedding_size,
        "annotation_size": encoder.annotation_size,
        "start_size": config.encoder.hidden_size,
        "readout_size": config.embedding_size if config.tie_embeddings else config.decoder.hidden_size,
    }
    decoder: Decoder
    match config.decoder:
        case BahdanauConfig():
            decoder = BahdanauDecoder(config.decoder, dropout=config.dropout, **sizes)
        case LuongConfig():
            decoder = LuongDecoder(config.decoder, dropout=config.dropout, **sizes)
        case PlainConfig():
            decoder = PlainDecoder(config.decoder, dropout=config.dropout, **sizes)
        case _:
            assert_never(config.decoder)
    for linear in decoder.modules():
        if isinstance(linear, nn.Linear):
            nn.init.xavier_uniform_(linear.weight)
    model = Seq2Seq(
        encoder, decoder, src_vocab=src_vocab, tgt_vocab=tgt_vocab, embedding_size=config.embedding_size,
        dropout=config.dropout, word_dropout=config.word_dropout, annotation_dropout=config.annotation_dropout,
        tie_embeddings=config.tie_embeddings,
    )  # fmt: skip
    set_weight_dropout(model, config.weight_dropout)
    if config.layer_norm:
        add_layer_norm(model)
    return model


def trainable_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Every parameter once, in a fixed order; tied ones count once."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
