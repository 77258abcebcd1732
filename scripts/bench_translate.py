"""Translation speed: sentences and tokens a second, and the share that this is of the search's matrix products alone.

    python scripts/bench_translate.py --run runs/multi30k
    python scripts/bench_translate.py --run runs/multi30k --src news.en --beams 1 5 10
    python scripts/bench_translate.py --run runs/multi30k --json > speed.json

Translated are the sources of the run's test split, or --src: greedy and with a beam of 5, all lines at once ("many")
and one line at a time ("1", the first --single lines), in float32 and, on a CPU, in int8. Loading is not counted;
splitting into pieces, the search and putting the text together are. Tokens are target pieces, EOS included.

The bound is taken in the same process: in each step of the very same search, for its N = K x live sentences rows, each
product of a weight matrix of the decoder and of the output, and for all real source tokens of a batch those of the
encoder and of the keys; nothing between the products, no attention, no padding. The products are as fast as
nmt has them (packed once), with int8 those of the steps are int8, and the previous word is multiplied too, which the
search looks up in a table instead. Translations and products take turns; medians of the
repeats. The ratio is the share of the bound's speed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import torch
from bench_timing import seconds
from torch import Tensor, nn

from nmt.config import DEVICES, is_device, search_with
from nmt.data.pairs import read_split
from nmt.data.text import read_lines
from nmt.errors import NmtError
from nmt.model.products import PackedLinear, QuantizedLinear
from nmt.model.seq2seq import Seq2Seq
from nmt.model.stepper import Array, Continuations
from nmt.model.torch_stepper import StepState, TorchStepper
from nmt.run_dir import RunDir
from nmt.translate import Translator


@dataclass(frozen=True)
class Row:
    """One measurement. `batch` is "1" or "many"."""

    beam: int
    batch: str
    precision: str
    sentences_per_s: float
    tokens_per_s: float
    ms_per_sentence: float
    bound_sentences_per_s: float
    bound_ratio: float


class Recorder:
    """Stands before a stepper and notes how many rows each product of a search has."""

    def __init__(self, stepper: TorchStepper) -> None:
        self.stepper = stepper
        self.sources: list[tuple[int, int]] = []  # tokens and sentences of each batch
        self.rows: list[int] = []  # of each step

    def begin(self, sources: Sequence[Sequence[int]]) -> StepState:
        """As `TorchStepper.begin`."""
        self.sources.append((sum(map(len, sources)), len(sources)))
        return self.stepper.begin(sources)

    def step(self, state: StepState, tokens_BK: Array, log_probs_BK: Array, width: int) -> Continuations:
        """As `TorchStepper.step`."""
        self.rows.append(tokens_BK.size)
        return self.stepper.step(state, tokens_BK, log_probs_BK, width)

    def select(self, state: StepState, sentences_B: Array, rows_N: Array) -> StepState:
        """As `TorchStepper.select`."""
        return self.stepper.select(state, sentences_B, rows_N)


# --- the bound ----------------------------------------------------------------------------------------------------


def step_matrices(model: Seq2Seq) -> list[Tensor]:
    """The weight matrices [outputs, inputs] that each step multiplies by."""
    decoder = model.decoder
    matrices = [weight for layer in decoder.rnn.layers for weight in (layer.weight_ih_l0, layer.weight_hh_l0)]
    for owner in (getattr(decoder, "attention", None), getattr(decoder, "window", None)):
        query = getattr(owner, "query", None)
        if isinstance(query, nn.Linear):
            matrices.append(query.weight)
    readout = getattr(decoder, "readout", None)
    if isinstance(readout, nn.Linear):
        matrices.append(readout.weight)
    return [matrix.detach() for matrix in (*matrices, model.output.weight)]


def source_matrices(model: Seq2Seq) -> list[Tensor]:
    """Those that each source token meets once: the encoder's in both directions, and the keys'."""
    matrices = [
        weight
        for layer in model.encoder.layers
        for name, weight in layer.named_parameters()
        if name.startswith("weight")
    ]
    key = getattr(getattr(model.decoder, "attention", None), "key", None)
    if isinstance(key, nn.Linear):
        matrices.append(key.weight)
    return [matrix.detach() for matrix in matrices]


class Bound:
    """The products of a recorded search, and nothing else."""

    def __init__(self, model: Seq2Seq, record: Recorder, int8: bool) -> None:
        tokens = [count for count, _ in record.sources]
        sentences = [count for _, count in record.sources]
        starts = [layer.weight.detach() for layer in model.decoder.initial]
        self.work = [(tokens, source_matrices(model), False), (sentences, starts, False)]
        self.work.append((record.rows, step_matrices(model), int8))
        self.inputs: dict[int, Tensor] = {}
        self.products: dict[tuple[int, bool], Callable[[Tensor], Tensor]] = {}
        for rows, matrices, whole in self.work:
            for matrix in matrices:
                width = matrix.shape[1]
                fits = self.inputs.get(width)
                if fits is None or len(fits) < max(rows):
                    x = torch.randn(max(rows), width, device=matrix.device)
                    self.inputs[width] = x.mul_(40).clamp_(-127, 127).to(matrix.dtype)
                product = QuantizedLinear(matrix, None).multiply if whole else PackedLinear(matrix, None)
                self.products[id(matrix), whole] = product

    @torch.inference_mode()
    def run(self) -> None:
        """Multiplies."""
        for rows, matrices, whole in self.work:
            for count in rows:
                for matrix in matrices:
                    self.products[id(matrix), whole](self.inputs[matrix.shape[1]][:count])


# --- measuring ----------------------------------------------------------------------------------------------------


class Case:
    """One line of the table: a translator, its lines, and the products that they cost."""

    def __init__(self, translator: Translator, lines: list[str], batch: str, batch_tokens: int) -> None:
        self.translator, self.lines, self.batch, self.batch_tokens = translator, lines, batch, batch_tokens
        self.times: list[float] = []
        self.bound_times: list[float] = []
        stepper = translator.stepper
        recorder = Recorder(stepper)
        translator.stepper = recorder  # type: ignore[assignment]
        try:
            found = self.translate()
        finally:
            translator.stepper = stepper
        self.tokens = sum(len(one.candidates[0].pieces) + (not one.length_limited) for one in found)
        self.bound = Bound(translator.model, recorder, translator.int8)
        self.bound.run()

    def translate(self) -> list:  # type: ignore[type-arg]
        """Translates all lines, at once or one by one."""
        if self.batch == "many":
            return self.translator.translate(self.lines, batch_tokens=self.batch_tokens)
        return [one for line in self.lines for one in self.translator.translate([line])]

    def measure(self) -> None:
        """Times the translation and the products once."""
        device = self.translator.stepper.device
        self.times.append(seconds(self.translate, device))
        self.bound_times.append(seconds(self.bound.run, device))

    def row(self) -> Row:
        """The medians so far."""
        took, bound = statistics.median(self.times), statistics.median(self.bound_times)
        count = len(self.lines)
        precision = "int8" if self.translator.int8 else str(self.translator.model.output.weight.dtype).split(".")[-1]
        return Row(
            self.translator.search.beam_size, self.batch, precision, count / took, self.tokens / took,
            1000 * took / count, count / bound, bound / took,
        )  # fmt: skip


# --- the command --------------------------------------------------------------------------------------------------


def parse(args: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="folder of a trained run")
    parser.add_argument("--src", type=Path, help="a text to translate instead of the sources of the run's test split")
    parser.add_argument("--lines", type=int, help="how many of its lines; all by default")
    parser.add_argument("--single", type=int, default=50, help="how many lines one at a time, 0 for none")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 5], help="beam sizes; 1 is greedy")
    parser.add_argument("--batch-tokens", type=int, default=4096, help="source pieces of a batch, with padding")
    parser.add_argument("--precisions", choices=["float32", "int8"], nargs="+", help="float32 and, on a CPU, int8")
    parser.add_argument("--repeats", type=int, default=5, help="how often each is timed; the median counts")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1")
    parser.add_argument("--threads", type=int, help="of torch; its own choice by default")
    parser.add_argument("--json", action="store_true", help="a JSON list on standard output instead of a table")
    options = parser.parse_args(args)
    counts = [options.repeats, options.batch_tokens, *options.beams, options.lines, options.threads]
    if min(count for count in counts if count is not None) < 1 or options.single < 0:
        parser.error("all sizes and counts must be at least 1 (--single may be 0)")
    if not is_device(options.device):
        parser.error(f"--device {options.device}: must be one of {DEVICES}")
    if options.precisions is None:
        options.precisions = ["float32", "int8"] if options.device == "cpu" else ["float32"]
    return options


def cases(options: argparse.Namespace) -> list[Case]:
    """What to measure, each translated once already.

    Raises:
        NmtError: for a run without a checkpoint, a missing split or file, an empty text, or int8 on a GPU.
    """
    run = RunDir.open(options.run)
    config = run.settings()
    texts = read_lines(options.src) if options.src else iter([src for src, _ in read_split(config, "test")])
    lines = list(islice(texts, options.lines))
    if not any(line.strip() for line in lines):
        raise NmtError(f"{options.src or 'the test split'}: there is no line to translate.")
    found = []
    for precision in options.precisions:
        for beam in options.beams:
            search = search_with(config.search, {"beam_size": beam, "rerank": "none"})
            translator = Translator.load(run, device=options.device, search=search, int8=precision == "int8")
            found.append(Case(translator, lines, "many", options.batch_tokens))
            if options.single:
                found.append(Case(translator, lines[: options.single], "1", options.batch_tokens))
    return found


def main(args: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    options = parse(args)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    try:
        found = cases(options)
    except NmtError as error:
        sys.exit(f"error: {error}")
    for number in range(options.repeats):
        print(f"{number + 1}/{options.repeats}", file=sys.stderr, flush=True)
        for case in found:
            case.measure()
    rows = [case.row() for case in found]
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    print("beam  batch  precision  sentences/s  tokens/s  ms/sentence  bound, sentences/s  ratio")
    for row in rows:
        print(
            f"{row.beam:>4}  {row.batch:>5}  {row.precision:>9}  {row.sentences_per_s:>11.1f}  "
            f"{row.tokens_per_s:>8,.0f}  {row.ms_per_sentence:>11.1f}  {row.bound_sentences_per_s:>18.1f}  "
            f"{row.bound_ratio:>5.3f}"
        )


if __name__ == "__main__":
    main()
