"""A model made ready for search: its weights as they are now, in the form in which a step multiplies least.

The decoder's `step` stays what it is; its parts are exchanged. What a step multiplies the previous word by does not
depend on the step: the products of all words with the input weights of the cell and with the readout are rows of one
table, and a step looks them up. Other products are packed, or rounded to int8: see `nmt.model.products`. The encoder
and what is computed once a sentence stay as they are: they take little of the time.

Axes: N rows, V vocabulary, D embedding size, H hidden size, G gates of a cell (3H of a GRU, 4H of an LSTM),
R outputs of the readout, W = G + R.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from nmt.model.layer_norm import layer_norm_of, next_state
from nmt.model.products import PackedLinear, QuantizedLinear, refuse_int8
from nmt.model.recurrent import cell_weights
from nmt.model.selection import padded

if TYPE_CHECKING:
    from nmt.model.seq2seq import Seq2Seq

# Makes a layer of a weight [outputs, inputs] and a bias.
Product = Callable[[Tensor, Tensor | None], PackedLinear | QuantizedLinear]
TABLE = 2**26  # values of a table at most: 256 MiB


class WordTable(nn.Module):
    """What a step needs of each word, [V, W]; computed anew from the embedding where the table would be too large."""

    def __init__(self, embedding: nn.Embedding, weight_WD: Tensor, bias_W: Tensor, product: Product) -> None:
        super().__init__()
        self.embedding = embedding
        self.table_VW: Tensor | None = None
        if embedding.num_embeddings * len(weight_WD) <= TABLE:
            self.table_VW = nn.functional.linear(embedding.weight.detach(), weight_WD, bias_W)
        else:
            self.product = product(weight_WD, bias_W)

    def forward(self, ids_N: Tensor) -> Tensor:
        """The rows of `ids_N`, [N, W]."""
        if self.table_VW is not None:
            return self.table_VW.index_select(0, ids_N)
        words_NW: Tensor = self.product(self.embedding(ids_N))
        return words_NW


class FoldedCell(nn.Module):
    """One step of a GRU or LSTM layer in one direction.

    With `words`, a number of inputs, the first part of its input is a row of the `WordTable`, which begins with their
    product and the input's bias; a layer that normalises adds both biases itself, after the sum of all products.
    """

    def __init__(self, layer: nn.Module, product: Product, words: int = 0) -> None:
        super().__init__()
        w_input, w_state, b_input, b_state = cell_weights(layer)
        self.gates = len(w_input)
        self.has_words = words > 0
        rest = w_input[:, words:]
        self.norm = layer_norm_of(layer)
        self.biases = (b_input.detach().clone(), b_state.detach().clone())
        self.input = product(rest, None if words or self.norm is not None else b_input) if rest.shape[1] else None
        self.state = product(w_state, None if self.norm is not None else b_state)

    def forward(self, parts: tuple[Tensor, ...], state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The next h of a GRU, or h and c of an LSTM, each [N, H], from those before and the parts of the input."""
        input_NG = self._input(parts)
        state_NG = self.state(state[0])
        if self.norm is not None:
            b_input_G, b_state_G = self.biases
            input_NG = self.norm.of_input(input_NG, b_input_G)
            return next_state(input_NG, self.norm.of_state(state_NG, b_state_G), state, self.norm)
        if len(state) == 1:
            return (_gru_state(input_NG, state_NG, state[0]),)
        i_NH, f_NH, g_NH, o_NH = state_NG.add_(input_NG).chunk(4, -1)
        c_NH = f_NH.sigmoid() * state[1] + i_NH.sigmoid() * g_NH.tanh()
        return o_NH.sigmoid() * c_NH.tanh(), c_NH

    def _input(self, parts: tuple[Tensor, ...]) -> Tensor:
        """The product of the input, in memory that may be a view of the words' rows."""
        words, rest = (parts[:1], parts[1:]) if self.has_words else ((), parts)
        if self.input is None:
            return words[0][:, : self.gates]
        input_NG: Tensor = self.input(*rest)
        return input_NG.add_(words[0][:, : self.gates]) if words else input_NG


def _gru_state(input_N3H: Tensor, state_N3H: Tensor, before_NH: Tensor) -> Tensor:
    """The next state of torch's GRU from its two products, gates in the order r, z, n; `state_N3H` is overwritten."""
    size = before_NH.shape[1]
    r_NH, z_NH = state_N3H[:, : 2 * size].add_(input_N3H[:, : 2 * size]).sigmoid_().chunk(2, -1)
    n_NH = torch.addcmul(input_N3H[:, 2 * size :], r_NH, state_N3H[:, 2 * size :]).tanh_()
    return n_NH.lerp_(before_NH, z_NH)


class FoldedReadout(nn.Module):
    """A readout whose last part is a row of the `WordTable`, which ends with that part's product."""

    def __init__(self, readout: nn.Linear, product: Product, words: int) -> None:
        super().__init__()
        self.rest = product(readout.weight[:, : readout.in_features - words], readout.bias)

    def forward(self, *parts: Tensor) -> Tensor:
        """The readout before its activation, [N, R]."""
        out_NR: Tensor = self.rest(*parts[:-1])
        return out_NR.add_(parts[-1][:, -out_NR.shape[1] :])


@torch.no_grad()
def folded(model: Seq2Seq, int8: bool = False) -> Seq2Seq:
    """A copy for the search alone; the weights that are not folded are those of `model` itself.

    Raises:
        NmtError: for int8 if the model is not on a CPU, or no fast int8 product is to be had.
    """
    if int8:
        refuse_int8(model.output.weight.device)
    product: Product = QuantizedLinear if int8 else PackedLinear
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    result = copy.deepcopy(model, shared)
    result.output = product(*padded(model.output))  # type: ignore[assignment]
    decoder, size = result.decoder, model.tgt_embedding.embedding_dim
    query = getattr(getattr(decoder, "attention", None), "query", None)
    if query is not None:
        decoder.attention.query = product(query.weight, query.bias)  # type: ignore[union-attr]
    w_input, _, b_input, _ = cell_weights(decoder.rnn.layers[0])
    weights, biases = [w_input[:, :size]], [b_input.new_zeros(len(b_input)) if decoder.rnn.normed else b_input]
    readout = getattr(decoder, "readout", None)
    if readout is not None:
        if decoder.reads_words:
            weights.append(readout.weight[:, -size:])
            biases.append(b_input.new_zeros(readout.out_features))
            decoder.readout = FoldedReadout(readout, product, size)
        else:
            decoder.readout = product(readout.weight, readout.bias)
    for index, layer in enumerate(decoder.rnn.layers):
        decoder.rnn.layers[index] = FoldedCell(layer, product, words=0 if index else size)
    result.tgt_embedding = WordTable(model.tgt_embedding, torch.cat(weights), torch.cat(biases), product)  # type: ignore[assignment]
    return result
