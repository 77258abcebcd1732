"""Training speed: target tokens a second of whole updates, and the share that this is of their matrix products alone.

    python scripts/bench_train.py
    python scripts/bench_train.py --json --kinds bahdanau luong > speed.json
    python scripts/bench_train.py --device cuda --precision bfloat16
    python scripts/bench_train.py --memory
    python scripts/bench_train.py --processes 1 2
    python scripts/bench_train.py --kinds luong-feed --cell lstm --layers 2 --window predictive

The shape is that of the peers' benchmark: embeddings 256, encoder 2 x 256, decoder and attention 512, 8,000 pieces for
both languages without tied embeddings, 80 sentences a batch, dropout 0.3, label smoothing 0.1; the lengths are those of
Multi30k English to German. An update is the trainer's own: batch, both passes, clipping, Adam. The bound is taken in
the same process on the same batches: for N_t real target and N_s real source tokens (EOS included) each product of the
model, forward and its two gradients, all tokens at once by torch.mm, and nothing else; padding and everything between
products count against the trainer. `least_tokens_per_s` and `least_ratio` are the same with the products of the library
that the trainer uses on this processor (see `nmt.model.gemm`), which is another one where it is faster. Blocks of
updates and of both products take turns; medians of the blocks. Each kind has a process of its own, whose largest size
is `peak_mb` (of the GPU's memory on one).

`--cell`, `--layers` and `--window` change the model: the cells of encoder and decoder, the layers of the decoder, the
attention of Luong's kinds. `--memory` compares an update of 64 sentences of 200 pieces on both sides with the same
update by a loop of steps that autograd records: what each adds to the memory of the model at rest. `--processes`
compares so many processes under torchrun with one: tokens a second of all together, each with a batch of `--sentences`
for its share and one thread on a CPU (or `--threads`), a GPU each with `--device cuda`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from bench_timing import seconds, status
from torch import Tensor

from nmt.config import DEVICES, Config, is_device, load_config
from nmt.data.batching import Batch, Indices, Portion, make_batch
from nmt.data.store import CorpusWriter, EncodedCorpus
from nmt.errors import NmtError
from nmt.model import gemm
from nmt.model.attention import AdditiveScore
from nmt.model.decoder import Decoder
from nmt.model.memory import keep_freed_memory, limit_shape_caches
from nmt.model.seq2seq import build_model
from nmt.reporting import SilentReporter
from nmt.training.loop import Training
from nmt.training.processes import SINGLE, Processes
from nmt.translate import choose_device

EMBEDDING, ENCODER, DECODER, ATTENTION, VOCABULARY = 256, 256, 512, 512, 8000
ANNOTATION = 2 * ENCODER
KINDS: dict[str, list[str]] = {
    "bahdanau": ["model.decoder.kind=bahdanau", f"model.decoder.attention_size={ATTENTION}"],
    "luong": ["model.decoder.kind=luong", "model.decoder.input_feeding=false"],
    "luong-feed": ["model.decoder.kind=luong", "model.decoder.input_feeding=true"],
    "none": ["model.decoder.kind=none"],
}
# How many of Multi30k's 29,000 German sentences have 2, 3, 4, … pieces of a joint unigram vocabulary of 8,000, and how
# far the English ones lie from 0.74 times that plus 3.4, from -13 up.
TARGET_COUNTS = [
    1, 2, 11, 75, 257, 698, 1140, 1572, 1957, 2259, 2489, 2380, 2252, 2088, 1958, 1625, 1422, 1238, 981, 885, 695, 603,
    467, 396, 315, 257, 198, 162, 109, 103, 96, 74, 48, 35, 28, 21, 15, 17, 13, 16, 8, 5, 5, 6, 5, 4, 3,
]  # fmt: skip
SOURCE_OFFSETS = [
    1, 4, 3, 14, 24, 54, 136, 277, 516, 1080, 2116, 3634, 5081, 5026, 4020, 2775, 1789, 1057, 602, 334, 211, 98, 54, 41,
    21, 13, 8, 2, 4, 2, 3,
]  # fmt: skip


@dataclass(frozen=True)
class Variant:
    """What differs from the shape of the peers' benchmark."""

    cell: str = "gru"
    layers: int = 1
    window: str | None = None

    @property
    def changes(self) -> list[str]:
        """As `--set` takes them."""
        found = [f"model.{part}.cell={self.cell}" for part in ("encoder", "decoder")]
        found.append(f"model.decoder.num_layers={self.layers}")
        if self.window is not None:
            found.append(f"model.decoder.window={{kind: {self.window}, half_width: 10}}")
        return found


AS_IT_IS = Variant()


@dataclass(frozen=True)
class Task:
    """What to measure."""

    kind: str
    device: str
    precision: str | None
    sentences: int
    updates: int
    repeats: int
    threads: int | None
    variant: Variant = AS_IT_IS


@dataclass(frozen=True)
class Row:
    """A kind's figures."""

    kind: str
    tokens_per_s: float
    bound_tokens_per_s: float
    bound_ratio: float
    peak_mb: float
    least_tokens_per_s: float
    least_ratio: float


# --- what is trained ----------------------------------------------------------------------------------------------


def settings(
    kind: str, device: str = "cpu", precision: str | None = None, variant: Variant = AS_IT_IS
) -> Config:  # fmt: skip
    """The configuration of a kind in the shape of the benchmark."""
    changes = [
        *KINDS[kind],
        *variant.changes,
        f"model.embedding_size={EMBEDDING}",
        f"model.encoder.hidden_size={ENCODER}",
        f"model.decoder.hidden_size={DECODER}",
        "model.tie_embeddings=false",
        "model.dropout=0.3",
        "training.ema_decay=0",
        f"training.device={device}",
    ]
    if precision is not None:
        changes.append(f"training.precision={precision}")
    name = {"luong-feed": "luong", "none": "seq2seq"}.get(kind, kind)
    return load_config(f"{name}.yaml", changes)


def lengths_like_multi30k(pairs: int, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Source and target lengths in pieces, EOS not counted."""
    targets = rng.choice(np.arange(2, 2 + len(TARGET_COUNTS)), pairs, p=np.array(TARGET_COUNTS) / sum(TARGET_COUNTS))
    offsets = np.arange(-13, len(SOURCE_OFFSETS) - 13)
    drawn = rng.choice(offsets, pairs, p=np.array(SOURCE_OFFSETS) / sum(SOURCE_OFFSETS))
    return np.maximum(np.rint(0.74 * targets + 3.4).astype(np.int64) + drawn, 1), targets


def corpus_of(src_lengths: Indices, tgt_lengths: Indices, rng: np.random.Generator) -> EncodedCorpus:
    """Random pieces of these lengths, in the file format of training."""

    def sentences(lengths: Indices) -> list[list[int]]:
        return [rng.integers(4, VOCABULARY, length).tolist() for length in lengths.tolist()]

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.arrow"
        with CorpusWriter(path) as writer:
            no_text = [""] * len(src_lengths)
            writer.write(sentences(src_lengths), sentences(tgt_lengths), no_text, no_text)
        return EncodedCorpus(path)


def make_batches(task: Task, rng: np.random.Generator) -> list[Batch]:
    """Batches of like length, as the trainer makes them, of a fixed number of sentences."""
    corpus, batches = chosen_pairs(task, rng)
    return [make_batch(corpus, pairs) for pairs in batches]


def chosen_pairs(task: Task, rng: np.random.Generator) -> tuple[EncodedCorpus, list[Indices]]:
    """Pairs, and their numbers in each batch."""
    src_lengths, tgt_lengths = lengths_like_multi30k(29_000, rng)
    order = np.lexsort((src_lengths, tgt_lengths))
    cuts = [order[start : start + task.sentences] for start in range(0, len(order), task.sentences)]
    chosen = rng.choice(len(cuts), min(task.updates, len(cuts)), replace=False)
    pairs = np.concatenate([cuts[place] for place in chosen])
    corpus = corpus_of(src_lengths[pairs], tgt_lengths[pairs], rng)
    borders = np.cumsum([0] + [len(cuts[place]) for place in chosen])
    return corpus, [np.arange(start, end) for start, end in itertools.pairwise(borders)]


class Trainer:
    """The trainer of a kind, with nothing around it that writes files."""

    def __init__(self, config: Config, processes: Processes = SINGLE) -> None:
        self.device = processes.placed(choose_device(config.training.device))
        if self.device.type == "cpu":
            limit_shape_caches()
            keep_freed_memory()  # both as `nmt train` does
        torch.manual_seed(1)
        self.model = build_model(config.model, VOCABULARY, VOCABULARY).to(self.device)
        nothing = cast(Any, None)  # the data, the run's folder and its metrics: no update uses them
        silent = SilentReporter()
        self.training = Training(self.model, nothing, config.training, self.device, nothing, silent, processes)
        self.model.train()

    def update(self, portion: Portion) -> None:
        """One update, as `Training.fit` makes it."""
        self.training.state.step += 1
        self.training.update(portion)


# --- the bound ----------------------------------------------------------------------------------------------------


def products(
    kind: str, tgt_tokens: int, src_tokens: int, variant: Variant = AS_IT_IS
) -> list[tuple[int, int, int]]:  # fmt: skip
    """The products of an update's forward pass as (rows, inputs, outputs)."""
    gates, enc_gates = (size * (4 if variant.cell == "lstm" else 3) for size in (DECODER, ENCODER))
    decoder = [(DECODER, VOCABULARY), (EMBEDDING, gates), (DECODER, gates)]
    decoder += [(DECODER, gates)] * 2 * (variant.layers - 1)
    if variant.window == "predictive":
        decoder += [(DECODER, DECODER)]
    encoder = [(EMBEDDING, enc_gates)] * 2 + [(ENCODER, enc_gates)] * 2
    if kind == "bahdanau":
        decoder += [(DECODER + ANNOTATION + EMBEDDING, DECODER), (ANNOTATION, gates), (DECODER, ATTENTION)]
        encoder += [(ANNOTATION, ATTENTION)]
    if kind.startswith("luong"):
        decoder += [(DECODER + ANNOTATION, DECODER)]
        encoder += [(ANNOTATION, DECODER)]
    if kind == "luong-feed":
        decoder += [(DECODER, gates)]
    return [(tgt_tokens, *shape) for shape in decoder] + [(src_tokens, *shape) for shape in encoder]


class Bound:
    """The products of batches alone, forward and both gradients."""

    def __init__(
        self, kind: str, batches: Sequence[Batch], device: torch.device, dtype: torch.dtype,
        variant: Variant = AS_IT_IS,
    ) -> None:  # fmt: skip
        self.shapes = [products(kind, batch.tgt_tokens, int(batch.src_lengths_B.sum()), variant) for batch in batches]
        self.arrays = []
        for place, (_, inputs, outputs) in enumerate(self.shapes[0]):
            rows = max(shapes[place][0] for shapes in self.shapes)

            def random(*size: int) -> Tensor:
                return torch.randn(*size, device=device, dtype=dtype)

            x, w, g = random(rows, inputs), random(outputs, inputs), random(rows, outputs)
            self.arrays.append((x, w, g, torch.empty_like(g), torch.empty_like(x), torch.empty_like(w)))

    def run(self) -> None:
        """Every product of every batch, once, by torch's own."""
        for shapes in self.shapes:
            for (rows, _, _), (x, w, g, y, grad_x, grad_w) in zip(shapes, self.arrays, strict=True):
                torch.mm(x[:rows], w.t(), out=y[:rows])
                torch.mm(g[:rows], w, out=grad_x[:rows])
                torch.mm(g[:rows].t(), x[:rows], out=grad_w)

    def run_fastest(self) -> None:
        """The same by the library that the trainer uses."""
        for shapes in self.shapes:
            for (rows, _, _), (x, w, g, *_) in zip(shapes, self.arrays, strict=True):
                gemm.product(x[:rows], w.t())
                gemm.product(g[:rows], w)
                gemm.product(x[:rows].t(), g[:rows])


# --- measuring ----------------------------------------------------------------------------------------------------


def measure(task: Task) -> Row:
    """A kind's figures, taken in this process."""
    if task.threads is not None:
        torch.set_num_threads(task.threads)
    batches = make_batches(task, np.random.default_rng(1))
    trainer = Trainer(settings(task.kind, task.device, task.precision, task.variant))
    rounded = trainer.training.precision.rounded or torch.float32
    bound = Bound(task.kind, batches, trainer.device, rounded, task.variant)

    def updates() -> None:
        for batch in batches:
            trainer.update(Portion.whole(batch))

    updates()  # the first ones reserve memory
    peak = peak_mib(trainer.device)
    works = (updates, bound.run, bound.run_fastest)
    for products_alone in works[1:]:
        products_alone()
    spent = [[seconds(work, trainer.device) for work in works] for _ in range(task.repeats)]
    tokens = sum(batch.tgt_tokens for batch in batches)

    def median(figure: Callable[[float, float, float], float]) -> float:
        return statistics.median(figure(*seconds_of) for seconds_of in spent)

    return Row(
        kind=task.kind,
        tokens_per_s=round(median(lambda update, *_: tokens / update), 1),
        bound_tokens_per_s=round(median(lambda _, bound, __: tokens / bound), 1),
        bound_ratio=round(median(lambda update, bound, _: bound / update), 4),
        peak_mb=round(peak, 1),
        least_tokens_per_s=round(median(lambda *both: tokens / both[-1]), 1),
        least_ratio=round(median(lambda update, _, least: least / update), 4),
    )


def peak_mib(device: torch.device) -> float:
    """The most memory so far: of this process, or what tensors had of the GPU's, in MiB."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return status("VmHWM")


def update_memory(kind: str, *, plain: bool) -> float:
    """MiB that an update of 64 pairs of 200 pieces adds on the CPU to the model at rest, in this process."""
    rng = np.random.default_rng(1)
    corpus = corpus_of(np.full(66, 199), np.full(66, 199), rng)
    trainer = Trainer(settings(kind))
    if plain:
        use_plain_loop(trainer.model.decoder)
    trainer.update(Portion.whole(make_batch(corpus, np.arange(64, 66))))  # Adam's moments
    at_rest = status("VmRSS")
    trainer.update(Portion.whole(make_batch(corpus, np.arange(64))))
    return status("VmHWM") - at_rest


def use_plain_loop(decoder: Decoder) -> None:
    """Makes teacher forcing a loop of steps, and the additive score plain tensor code: autograd keeps everything."""

    def scores(self: Any, query_BKH: Tensor, keys_BSA: Tensor, *_: Any) -> Tensor:
        pairs_BKSA = self.query(query_BKH).unsqueeze(2) + keys_BSA.unsqueeze(1)
        return pairs_BKSA.tanh() @ self.v

    kind = type(decoder)
    kind.forward = Decoder.forward
    AdditiveScore.forward = scores


def in_new_process(work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a call in a process of its own."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        return pool.submit(work, *args, **kwargs).result()


# --- the command --------------------------------------------------------------------------------------------------


def parse(args: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], help="of the passes; float32 on a CPU")
    parser.add_argument("--sentences", type=int, default=80, help="of a batch")
    parser.add_argument("--updates", type=int, default=12, help="of a block")
    parser.add_argument("--repeats", type=int, default=5, help="blocks; their median counts")
    parser.add_argument("--cell", choices=["gru", "lstm"], default="gru", help="of encoder and decoder")
    parser.add_argument("--layers", type=int, default=1, help="of the decoder")
    parser.add_argument("--window", choices=["monotonic", "predictive"], help="of 10 pieces either side; Luong's kinds")
    parser.add_argument("--threads", type=int, help="of torch; its own choice by default")
    parser.add_argument("--memory", action="store_true", help="compare memory with a plain loop of steps instead")
    parser.add_argument("--processes", type=int, nargs="+", help="compare so many processes with one instead")
    parser.add_argument("--json", action="store_true", help="a JSON list on standard output instead of a table")
    options = parser.parse_args(args)
    counts = [options.sentences, options.updates, options.repeats, options.layers, *(options.processes or ())]
    if min(*counts, 1 if options.threads is None else options.threads) < 1:
        parser.error("--sentences, --updates, --repeats, --layers, --threads and --processes must be at least 1")
    if options.memory and options.processes:
        parser.error("--memory and --processes are two measurements: leave one of them out")
    options.variant = Variant(options.cell, options.layers, options.window)
    if options.window is not None and any(not kind.startswith("luong") for kind in options.kinds):
        parser.error("--window is for Luong's kinds: name them with --kinds")
    if options.memory and options.variant != AS_IT_IS:
        parser.error("--memory knows no variants: leave --cell, --layers and --window out")
    if not is_device(options.device):
        parser.error(f"--device {options.device}: must be one of {DEVICES}")
    if options.memory and options.device != "cpu":
        parser.error("--memory measures the memory of this process: leave --device out")
    return options


def tasks(options: argparse.Namespace) -> list[Task]:
    """What was asked for, by kind."""
    common = (options.sentences, options.updates, options.repeats, options.threads, options.variant)
    return [Task(kind, options.device, options.precision, *common) for kind in options.kinds]


def compare_memory(kinds: Sequence[str]) -> list[dict[str, Any]]:
    """What an update of long sentences needs, beside the plain loop."""
    rows = []
    for kind in kinds:
        own, plain = (in_new_process(update_memory, kind, plain=plain) for plain in (False, True))
        rows.append({"kind": kind, "update_mb": round(own, 1), "plain_mb": round(plain, 1), "ratio": own / plain})
    return rows


def main(args: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    options = parse(args)
    try:
        report(options)
    except NmtError as error:
        sys.exit(f"error: {error}")


def report(options: argparse.Namespace) -> None:
    """Measures what was asked for, and prints it.

    Raises:
        NmtError: for a GPU that is not there, or one that does not compute in bfloat16.
    """
    choose_device(options.device)  # before a table is begun
    if options.memory:
        rows = compare_memory(options.kinds)
        if options.json:
            print(json.dumps(rows, indent=2))
            return
        print("an update of 64 x 200 pieces, MiB above the model at rest\n\nkind           own    plain loop   ratio")
        for row in rows:
            print(f"{row['kind']:<11} {row['update_mb']:>8,.0f}  {row['plain_mb']:>10,.0f}   {row['ratio']:.3f}")
        return
    if options.processes:
        report_scaling(options)
        return
    found = []
    if not options.json:
        print("kind         tokens/s   bound tokens/s   ratio   peak MiB   fastest products   ratio", flush=True)
    for task in tasks(options):
        row = in_new_process(measure, task)
        found.append(row)
        if not options.json:
            print(
                f"{row.kind:<11} {row.tokens_per_s:>9,.0f} {row.bound_tokens_per_s:>16,.0f} {row.bound_ratio:>7.3f}"
                f" {row.peak_mb:>10,.0f} {row.least_tokens_per_s:>18,.0f} {row.least_ratio:>7.3f}",
                flush=True,
            )
    if options.json:
        print(json.dumps([asdict(row) for row in found], indent=2))
    sys.stdout.flush()


def report_scaling(options: argparse.Namespace) -> None:
    """Measures and prints by the number of processes.

    Raises:
        NmtError: if processes fail.
    """
    from bench_scaling import scaling  # which imports this file

    rows = itertools.chain.from_iterable(scaling(task, options.processes) for task in tasks(options))
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    print("kind         processes   tokens/s   times one", flush=True)
    for row in rows:
        print(f"{row.kind:<11} {row.processes:>10} {row.tokens_per_s:>10,.0f} {row.ratio:>11.2f}", flush=True)


if __name__ == "__main__":
    main()
