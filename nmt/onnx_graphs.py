"""A model as two ONNX graphs: one reads the sources, the other makes one step of the search.

The decoder's own `read`, `init_state` and `step` are traced; only parts that a graph cannot hold as they are, or that
it would hold slowly, are exchanged: the encoder (ONNX has GRU and LSTM of padded sequences), products (weights lie as
MatMul wants them, so that they can be quantised), scores and windows (their shortcuts look at values and sizes).
Vocabulary projection, normalisation and the choice of the best continuations belong to the step's graph.

Names of inputs and outputs: what the first graph gives is an input of the second, by its name; an output `next_X` of
the second is the input `X` of the step that follows. `nmt.onnx_stepper` needs to know no more.

Axes: B sentences, K hypotheses of a sentence, N = B x K rows, S source positions, C continuations, E annotation size,
H hidden size, A attention size, G gates of a cell (3H of a GRU, 4H of an LSTM), V vocabulary, M directions.
"""

from __future__ import annotations

import copy
import inspect
import logging
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from nmt.errors import NmtError
from nmt.model.attention import AdditiveScore, DotScore, GeneralScore
from nmt.model.decoder import Decoder, DecoderState, LuongDecoder, Memory, PlainDecoder
from nmt.model.encoder import Encoder, Encoding
from nmt.model.layer_norm import layer_norm_of, next_state
from nmt.model.recurrent import Hidden, cell_weights
from nmt.model.seq2seq import Seq2Seq
from nmt.model.window import Window

OPSET = 20
LARGEST = 2**31 - 1  # bytes of a protobuf message: a larger graph would need files of weights beside it

# ONNX has the gates of a GRU as z, r, n and those of an LSTM as i, o, f, g; torch as r, z, n and i, f, g, o.
_GATES = {"gru": (1, 0, 2), "lstm": (0, 3, 1, 2)}


class GraphLinear(nn.Module):
    """x Wᵀ + b of an input that comes in parts, W stored the other way round."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = nn.Parameter(linear.weight.detach().t().contiguous(), requires_grad=False)
        self.bias = linear.bias

    def forward(self, *parts: Tensor) -> Tensor:
        """The product over the last axis."""
        x = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
        product = x @ self.weight
        return product if self.bias is None else product + self.bias


class GraphCell(nn.Module):
    """One step of a GRU or LSTM layer in one direction, as `nmt.model.recurrent.step_cell` calls it."""

    def __init__(self, layer: nn.RNNBase, end: str = "") -> None:
        super().__init__()
        w_input, w_state, b_input, b_state = cell_weights(layer, end)
        self.norm = layer_norm_of(layer, end)
        if self.norm is None:
            self.input, self.state = _linear(w_input, b_input), _linear(w_state, b_state)
        else:  # which adds the biases
            self.input, self.state = _linear(w_input, None), _linear(w_state, None)
            self.b_input, self.b_state = nn.Parameter(b_input, False), nn.Parameter(b_state, False)

    def forward(self, parts: tuple[Tensor, ...], state: Hidden) -> Hidden:
        """The next h of a GRU, or h and c of an LSTM, each [N, H]."""
        return self.advance(self.of_input(*parts), state)

    def of_input(self, *parts: Tensor) -> Tensor:
        """The product of the input, [..., G]."""
        product: Tensor = self.input(*parts)
        return product if self.norm is None else self.norm.of_input(product, self.b_input)

    def advance(self, input_NG: Tensor, state: Hidden) -> Hidden:
        """The next state, once the input's product is there."""
        state_NG = self.state(state[0])
        if self.norm is not None:
            state_NG = self.norm.of_state(state_NG, self.b_state)
        return next_state(input_NG, state_NG, state, self.norm)


def _linear(weight: Tensor, bias: Tensor | None) -> GraphLinear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    linear.weight = nn.Parameter(weight, False)
    if bias is not None:
        linear.bias = nn.Parameter(bias, False)
    return GraphLinear(linear)


class GraphAdditiveScore(nn.Module):
    """`AdditiveScore` of all pairs at once."""

    def __init__(self, score: AdditiveScore) -> None:
        super().__init__()
        self.query, self.key = GraphLinear(score.query), GraphLinear(score.key)
        self.v_A1 = nn.Parameter(score.v.detach().unsqueeze(1), requires_grad=False)
        self.coverage = score.coverage

    def keys(self, annotations_BSE: Tensor) -> Tensor:
        """U_a h, [B, S, A]."""
        keys_BSA: Tensor = self.key(annotations_BSE)
        return keys_BSA

    def forward(self, query_BKH: Tensor, keys_BSA: Tensor, coverage_BKS: Tensor | None = None) -> Tensor:
        """Scores [B, K, S]."""
        pairs_BKSA = self.query(query_BKH).unsqueeze(2) + keys_BSA.unsqueeze(1)
        if coverage_BKS is not None and self.coverage is not None:
            pairs_BKSA = pairs_BKSA + coverage_BKS.unsqueeze(3) * self.coverage
        scores_BKS: Tensor = (pairs_BKSA.tanh() @ self.v_A1).squeeze(3)
        return scores_BKS


class GraphWindow(nn.Module):
    """A window that always scores all positions: which way is the cheaper one depends on sizes."""

    def __init__(self, window: Window) -> None:
        super().__init__()
        self.window = window

    def forward(
        self, score: Any, states_BKH: Tensor, steps_K: Tensor, keys_BSA: Tensor, annotations_BSE: Tensor,
        lengths_B: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """As `Window.forward`."""
        centres_BK = self.window.centres(states_BKH, steps_K, lengths_B)
        return self.window.attend_all(score, states_BKH, centres_BK, lengths_B, keys_BSA, annotations_BSE)


class GraphEncoder(nn.Module):
    """`Encoder` by ONNX's own GRU and LSTM, which end each sentence at its length in either direction.

    They cannot normalise: the steps of layers that do are the body of a Scan.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.residual = encoder.residual
        layers = [cast(nn.RNNBase, layer) for layer in encoder.layers]
        self.layers = nn.ModuleList(
            GraphLayer(layer) if layer_norm_of(layer) is None else GraphNormedLayer(layer) for layer in layers
        )

    def forward(self, embedded_BSD: Tensor, lengths_B: Tensor) -> Encoding:
        """As `Encoder.forward`."""
        steps = embedded_BSD.shape[1]
        mask_BS = torch.arange(steps) < lengths_B.unsqueeze(1)
        x_SBX = embedded_BSD.transpose(0, 1)
        for index, layer in enumerate(self.layers):
            states_SBX, last_MBH = layer(x_SBX, lengths_B, mask_BS)
            x_SBX = states_SBX + x_SBX if self.residual and index > 0 else states_SBX
        # The last state of a direction is that of the last position which it reads.
        summary_BE = torch.cat([*last_MBH], -1)
        return Encoding(x_SBX.transpose(0, 1), mask_BS, last_MBH[-1], summary_BE)


class GraphLayer(nn.Module):
    """A layer of the encoder as ONNX has it: weights by direction, gates in its own order."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.cell = "gru" if isinstance(layer, nn.GRU) else "lstm"
        self.hidden_size, self.bidirectional = layer.hidden_size, layer.bidirectional
        order = _GATES[self.cell]

        def gates(name: str) -> Tensor:
            weights = [getattr(layer, f"{name}_l0{end}").detach() for end in _directions(layer)]
            parts = [weight.chunk(len(order)) for weight in weights]
            return torch.stack([torch.cat([part[gate] for gate in order]) for part in parts])

        self.w_input_MGX = nn.Parameter(gates("weight_ih"), False)
        self.w_state_MGH = nn.Parameter(gates("weight_hh"), False)
        self.bias_MG = nn.Parameter(torch.cat([gates("bias_ih"), gates("bias_hh")], 1), False)

    def forward(self, x_SBX: Tensor, lengths_B: Tensor, mask_BS: Tensor) -> tuple[Tensor, Tensor]:
        """h of all positions, [S, B, M·H], and the last one of each direction, [M, B, H]."""
        (steps, batch), directions, size = x_SBX.shape[:2], 2 if self.bidirectional else 1, self.hidden_size
        attributes: dict[str, Any] = {
            "hidden_size": size,
            "direction": "bidirectional" if self.bidirectional else "forward",
        }
        if self.cell == "gru":
            attributes["linear_before_reset"] = 1  # torch applies the reset gate after the product with the state
        shapes = [(steps, directions, batch, size)] + [(directions, batch, size)] * (1 if self.cell == "gru" else 2)
        states_SMBH, last_MBH, *_ = torch.onnx.ops.symbolic_multi_out(
            self.cell.upper(),
            (x_SBX, self.w_input_MGX, self.w_state_MGH, self.bias_MG, lengths_B.to(torch.int32)),
            attributes,
            dtypes=[torch.float32] * len(shapes),
            shapes=shapes,
            version=OPSET,
        )
        return states_SMBH.transpose(1, 2).flatten(2), last_MBH


class GraphNormedLayer(nn.Module):
    """A layer of the encoder that normalises: see `nmt.model.layer_norm`."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.cells = nn.ModuleList(GraphCell(layer, end) for end in _directions(layer))
        self.hidden_size, self.states = layer.hidden_size, 1 if isinstance(layer, nn.GRU) else 2

    def forward(self, x_SBX: Tensor, lengths_B: Tensor, mask_BS: Tensor) -> tuple[Tensor, Tensor]:
        """As `GraphLayer.forward`."""
        from torch._higher_order_ops import scan  # older versions of torch, which train and translate, have none

        real_SB1 = mask_BS.t().unsqueeze(2)
        start = tuple(x_SBX.new_zeros(x_SBX.shape[1], self.hidden_size) for _ in range(self.states))
        states, last = [], []
        for cell, backward in zip(cast(Iterable[GraphCell], self.cells), (False, True)):

            def step(before: Hidden, row: tuple[Tensor, Tensor], cell: GraphCell = cell) -> tuple[Hidden, Tensor]:
                after = cell.advance(row[0], before)
                kept = tuple(torch.where(row[1], new, old) for new, old in zip(after, before, strict=True))
                return kept, kept[0].clone()

            end, states_SBH = scan(step, start, (cell.of_input(x_SBX), real_SB1), reverse=backward)
            states.append(states_SBH)
            last.append(end[0])
        return torch.cat(states, -1) * real_SB1, torch.stack(last)


def _directions(layer: nn.RNNBase) -> tuple[str, ...]:
    """How the names of the parameters of each direction end."""
    return ("", "_reverse") if layer.bidirectional else ("",)


def graph_parts(model: Seq2Seq) -> Seq2Seq:
    """A copy with the parts that a graph needs in the place of the model's own; other weights are the model's."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    result = copy.deepcopy(model, shared).eval()
    decoder: Any = result.decoder
    result.encoder = GraphEncoder(model.encoder)  # type: ignore[assignment]
    result.output = GraphLinear(model.output)  # type: ignore[assignment]
    for index, layer in enumerate(decoder.rnn.layers):
        decoder.rnn.layers[index] = GraphCell(layer)
    if isinstance(getattr(decoder, "attention", None), AdditiveScore):
        decoder.attention = GraphAdditiveScore(decoder.attention)
    if hasattr(decoder, "readout"):
        decoder.readout = GraphLinear(decoder.readout)
    if getattr(decoder, "window", None) is not None:
        window = decoder.window
        if hasattr(window, "query"):
            window.query = GraphLinear(window.query)
        decoder.window = GraphWindow(window)
    return result


def memory_names(decoder: Decoder) -> list[str]:
    """The parts of a `Memory` that the steps of this decoder read."""
    if isinstance(decoder, PlainDecoder):
        return ["mask_BS", "summary_BE"] if decoder.feed_context else ["mask_BS"]
    names = ["annotations_BSE", "mask_BS"]
    if not keys_are_annotations(decoder):
        names.append("keys_BSA")
    if isinstance(decoder, LuongDecoder) and decoder.window is not None:
        names.append("lengths_B")
    return names


def keys_are_annotations(decoder: Decoder) -> bool:
    """Whether the score compares with the annotations themselves, so that they need not be kept twice."""
    score = getattr(decoder, "attention", None)
    return isinstance(score, DotScore) and not isinstance(score, GeneralScore)


def state_parts(state: DecoderState) -> dict[str, Tensor]:
    """The tensors of a state by name."""
    parts = {f"hidden_{index}": tensor for index, tensor in enumerate(state.hidden)}
    more = {"feed": state.feed_NR, "coverage": state.coverage_NS}
    return parts | {name: tensor for name, tensor in more.items() if tensor is not None}


class ReadGraph(nn.Module):
    """Source ids and their lengths -> what steps read of the memory, and s_0 of one hypothesis a sentence."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model
        self.memory = memory_names(model.decoder)

    def forward(self, src_BS: Tensor, src_lengths_B: Tensor) -> tuple[Tensor, ...]:
        """The parts of the memory, then those of the state, [B, 1, ...]."""
        memory = self.model.decoder.read(self.model.encoder(self.model.src_embedding(src_BS), src_lengths_B))
        state = state_parts(self.model.decoder.init_state(memory))
        return (*(getattr(memory, name) for name in self.memory), *(part.unsqueeze(1) for part in state.values()))


class StepGraph(nn.Module):
    """One step of the search -> the best continuations of each sentence, the weights, and the next state."""

    def __init__(self, model: Seq2Seq, state: Sequence[str], banned: Sequence[int]) -> None:
        super().__init__()
        self.model = model
        self.memory, self.state = memory_names(model.decoder), list(state)
        bias_V = torch.zeros(model.tgt_embedding.num_embeddings)
        bias_V[list(banned)] = -torch.inf
        self.allowed_V = nn.Parameter(bias_V, requires_grad=False)

    def forward(
        self, tokens_BK: Tensor, log_probs_BK: Tensor, width: Tensor, step: Tensor, *parts: Tensor
    ) -> tuple[Tensor, ...]:
        """`width` is C, at most K x V; `step` counts from 1; the parts are those of memory and state, [B, K, ...]."""
        decoder = self.model.decoder
        memory = dict(zip(self.memory, parts))
        rows = {name: part.flatten(0, 1) for name, part in zip(self.state, parts[len(memory) :], strict=True)}
        hidden = tuple(part for name, part in rows.items() if name.startswith("hidden"))
        before = DecoderState(hidden, step - 1, rows.get("feed"), rows.get("coverage"))  # type: ignore[arg-type]
        embedded_ND = self.model.tgt_embedding(tokens_BK.flatten())
        readout_NR, after, weights_NS = decoder.step(embedded_ND, before, _memory(memory))
        best_BC, place_BC = self._best(readout_NR, log_probs_BK, width)
        weights = [] if isinstance(decoder, PlainDecoder) else [weights_NS]
        more = (*weights, *state_parts(after).values())
        return best_BC, place_BC, *(part.view(*tokens_BK.shape, *part.shape[1:]) for part in more)

    def _best(self, readout_NR: Tensor, log_probs_BK: Tensor, width: Tensor) -> tuple[Tensor, Tensor]:
        """The C largest of each sentence's K x V continuations, and their places among these."""
        # Banned words count in the normalisation: a hypothesis has the score that forced decoding gives it. ONNX
        # Runtime's LogSoftmax is nine times as fast as its ReduceLogSumExp.
        word_NV = self.model.output(readout_NR).log_softmax(-1)
        scores_NV = word_NV + self.allowed_V + log_probs_BK.flatten().unsqueeze(1)
        count = cast(int, width.item())
        scores_BX = scores_NV.view(*log_probs_BK.shape, -1).flatten(1)
        torch._check(count <= scores_BX.shape[1])  # type: ignore[no-untyped-call]
        best_BC, place_BC = scores_BX.topk(count, -1)
        return best_BC, place_BC


def _memory(parts: Mapping[str, Tensor]) -> Memory:
    """The memory of the parts that there are; the others are never looked at."""
    nothing = parts["mask_BS"]
    annotations_BSE = parts.get("annotations_BSE", nothing)
    return Memory(
        annotations_BSE,
        parts.get("keys_BSA", annotations_BSE),
        nothing,
        parts.get("lengths_B", nothing),
        nothing,
        parts.get("summary_BE", nothing),
    )


# --- tracing --------------------------------------------------------------------------------------------------------

_B, _K, _S = (torch.export.Dim(name) for name in "BKS")
_READ_INPUTS = {"src_BS": {0: _B, 1: _S}, "src_lengths_B": {0: _B}}
_STEP_INPUTS: dict[str, dict[int, Any]] = {
    "tokens_BK": {0: _B, 1: _K}, "log_probs_BK": {0: _B, 1: _K}, "width": {}, "step": {},
}  # fmt: skip
_MEMORY: dict[str, dict[int, Any]] = {
    "annotations_BSE": {0: _B, 1: _S}, "keys_BSA": {0: _B, 1: _S}, "mask_BS": {0: _B, 1: _S}, "lengths_B": {0: _B},
    "summary_BE": {0: _B},
}  # fmt: skip


@torch.no_grad()
def trace(model: Seq2Seq, banned: Sequence[int]) -> tuple[bytes, bytes]:
    """The two graphs of a model, as the bytes of two ONNX files; `banned` are ids that no hypothesis may hold.

    Raises:
        NmtError: if torch cannot export, or the graphs would be too large for a file.
    """
    parts = graph_parts(model)
    read = ReadGraph(parts)
    src_BS, lengths_B = torch.full((3, 5), 4), torch.tensor([5, 4, 2])
    memory = parts.decoder.read(model.encoder(model.src_embedding(src_BS), lengths_B))
    state = state_parts(parts.decoder.init_state(memory))
    read_file = _traced(read, (src_BS, lengths_B), _READ_INPUTS, [*read.memory, *state])
    beam = 2
    more = {name: getattr(memory, name) for name in read.memory}
    more |= {name: part.unsqueeze(1).repeat(1, beam, 1) for name, part in state.items()}
    axes = {name: {0: _B, 1: _K, 2: _S} if name == "coverage" else {0: _B, 1: _K} for name in state}
    inputs = _STEP_INPUTS | {name: _MEMORY.get(name) or axes[name] for name in more}
    tokens_BK = torch.full((len(src_BS), beam), 4)
    example = (tokens_BK, torch.zeros(tokens_BK.shape), torch.tensor(4), torch.tensor(3), *more.values())
    weights = [] if isinstance(model.decoder, PlainDecoder) else ["weights_BKS"]
    outputs = ["best_BC", "place_BC", *weights, *(f"next_{name}" for name in state)]
    return read_file, _traced(StepGraph(parts, list(state), banned), example, inputs, outputs)


def _traced(
    graph: nn.Module, example: tuple[Tensor, ...], inputs: Mapping[str, dict[int, Any]], outputs: Sequence[str]
) -> bytes:
    shapes = list(inputs.values())
    named = inspect.signature(graph.forward).parameters
    if "parts" in named:  # what comes as *parts is one argument to torch
        shapes = [*shapes[: len(named) - 1], tuple(shapes[len(named) - 1 :])]  # type: ignore[list-item]
    with _quiet():
        try:
            program = torch.onnx.export(
                graph.eval(),
                example,
                dynamo=True,
                dynamic_shapes=tuple(shapes),
                input_names=list(inputs),
                output_names=list(outputs),
                opset_version=OPSET,
                external_data=False,
                verbose=False,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            cause = _first_cause(error)
            raise NmtError(
                f"torch {torch.__version__} cannot export this model: {cause}. Try another version of torch."
            ) from error
    assert program is not None
    file = program.model_proto
    if file.ByteSize() > LARGEST:
        raise NmtError(
            f"the exported model would have {file.ByteSize() / 2**30:.1f} GiB, and one ONNX file holds 2 at most. "
            "Train a smaller one: tokenizer.vocab_size, model.decoder.hidden_size."
        )
    _forget_origin(file.graph)
    content: bytes = file.SerializeToString()
    return content


def _first_cause(error: BaseException) -> str:
    """What went wrong, in a line: the exporter wraps it in pages of advice on itself."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def _forget_origin(graph: Any) -> None:
    """Removes where in which source file each node comes from: paths of the machine, and of no use elsewhere."""
    for part in (graph, *graph.node, *graph.initializer, *graph.input, *graph.output, *graph.value_info):
        del part.metadata_props[:]
        part.doc_string = ""
    for node in graph.node:  # the body of a Scan
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _forget_origin(attribute.g)


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter's remarks on itself are of no use to who exports."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def quantised(graph: bytes) -> bytes:
    """A graph whose products with weight matrices are in 8 bits, by ONNX Runtime's dynamic quantisation.

    Weights have a scale a column and 7 bits, so that no product of pairs overflows 16 bits on processors without VNNI;
    factors are rounded as they come, with one scale an array. Products with a vector stay as they are.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load_from_string(graph)
    vectors = {tensor.name for tensor in model.graph.initializer if len(tensor.dims) == 1 or tensor.dims[-1:] == [1]}
    excluded = [node.name for node in model.graph.node if node.op_type == "MatMul" and node.input[1] in vectors]
    with _quiet(), tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "int8.onnx"
        quantize_dynamic(
            model,
            file,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=excluded,
            extra_options={"MatMulConstBOnly": True},
        )
        return file.read_bytes()
