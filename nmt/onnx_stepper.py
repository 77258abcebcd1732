"""The model's side of a search by ONNX Runtime, without torch.

Two graphs (`nmt.onnx_graphs` makes them): one reads the sources, the other makes one step. What the first gives is an
input of the second by its name; an output `next_X` of the second is the input `X` of the step that follows; the other
outputs of the first stay what they are.

Axes: B live sentences, K hypotheses of a sentence, N = B x K rows, S source positions, C continuations.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nmt.errors import NmtError
from nmt.model.stepper import Array, Continuations


@dataclass(frozen=True)
class OnnxState:
    """The live sentences: what was read of each, the state of each of their hypotheses, and the steps so far."""

    memory: dict[str, Array]  # [B, ...]
    hypotheses: dict[str, Array]  # [B, K, ...]
    steps: int = 0


class OnnxStepper:
    """`Stepper` by two ONNX graphs, on the CPU. Searches in several threads may share one."""

    def __init__(self, read: bytes, step: bytes, vocabulary: int) -> None:
        """Loads the graphs.

        Raises:
            NmtError: if ONNX Runtime is not installed.
            ValueError: if it cannot load a graph, or the graphs are not such as `nmt.onnx_graphs` makes.
        """
        self.read_graph, self.step_graph = _session(read), _session(step)
        self.vocabulary = vocabulary
        self.read_names = [output.name for output in self.read_graph.get_outputs()]
        self.step_names = [output.name for output in self.step_graph.get_outputs()]
        self.recurrent = [name[5:] for name in self.step_names if name.startswith("next_")]
        inputs = {node.name for node in self.step_graph.get_inputs()}
        given = {"tokens_BK", "log_probs_BK", "width", "step", *self.read_names}
        if inputs != given or not {*self.recurrent} <= {*self.read_names}:
            raise ValueError(f"the step reads {sorted(inputs)} and is given {sorted(given)}")
        if self.step_names[:2] != ["best_BC", "place_BC"]:
            raise ValueError(f"the step gives {self.step_names}")

    def begin(self, sources: Sequence[Sequence[int]]) -> OnnxState:
        """Reads the sources (ids ended by EOS): one hypothesis a sentence, no word yet."""
        lengths_B = np.array([len(source) for source in sources], dtype=np.int64)
        src_BS = np.zeros((len(sources), lengths_B.max()), dtype=np.int64)
        for row, source in zip(src_BS, sources, strict=True):
            row[: len(source)] = source
        parts = _run(self.read_graph, self.read_names, {"src_BS": src_BS, "src_lengths_B": lengths_B})
        hypotheses = {name: parts.pop(name) for name in self.recurrent}
        return OnnxState(parts, hypotheses)

    def step(self, state: OnnxState, tokens_BK: Array, log_probs_BK: Array, width: int) -> Continuations:
        """Feeds each hypothesis its last word; the `width` best continuations of each sentence, best first."""
        batch, beam = tokens_BK.shape
        found = _run(
            self.step_graph,
            self.step_names,
            {
                "tokens_BK": np.ascontiguousarray(tokens_BK, dtype=np.int64),
                "log_probs_BK": log_probs_BK.astype(np.float32),
                "width": np.array(min(width, beam * self.vocabulary), dtype=np.int64),
                "step": np.array(state.steps + 1, dtype=np.int64),
                **state.memory,
                **state.hypotheses,
            },
        )
        after = OnnxState(state.memory, {name: found[f"next_{name}"] for name in self.recurrent}, state.steps + 1)
        parents_BC, tokens_BC = np.divmod(found["place_BC"], self.vocabulary)
        weights_BKS = found.get("weights_BKS")
        return Continuations(
            log_probs_BC=found["best_BC"].astype(np.float64),
            parents_BC=parents_BC,
            tokens_BC=tokens_BC,
            weights_BKS=np.zeros((batch, beam, 0), dtype=np.float32) if weights_BKS is None else weights_BKS,
            state=after,
        )

    def select(self, state: OnnxState, sentences_B: Array, rows_N: Array) -> OnnxState:
        """Keeps the sentences `sentences_B`, and of the hypotheses the rows `rows_N` (in the old numbering)."""
        memory = state.memory
        if any(len(sentences_B) < len(part) for part in memory.values()):
            memory = {name: part[sentences_B] for name, part in memory.items()}
        rows_BK = rows_N.reshape(len(sentences_B), len(rows_N) // max(1, len(sentences_B)))
        hypotheses = {name: part.reshape(-1, part.shape[2])[rows_BK] for name, part in state.hypotheses.items()}
        return OnnxState(memory, hypotheses, state.steps)


def _session(graph: bytes) -> Any:
    """A session of ONNX Runtime on the CPU, with as many threads as OMP_NUM_THREADS says, or the process has cores."""
    try:
        import onnxruntime
    except ImportError as error:
        raise NmtError("ONNX Runtime, which runs exported models, is not installed: pip install onnxruntime") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads()
    options.log_severity_level = 4  # what goes wrong comes as an exception
    # Not its own format, which it would tell by the first bytes: `nmt.exported` has looked at what ONNX can refer to.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions have no base class of their own
        raise ValueError(str(error)) from error


def threads() -> int:
    """How many threads a graph is run with."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run(session: Any, names: list[str], inputs: dict[str, Array]) -> dict[str, Array]:
    try:
        return dict(zip(names, session.run(names, inputs), strict=True))
    except Exception as error:  # its exceptions have no base class of their own
        if "allocate memory" in str(error):
            raise MemoryError(str(error)) from error
        raise NmtError(f"the exported model does not run: {error}. Export it again.") from error
