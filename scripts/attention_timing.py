"""What attention costs: operations by formula, and the time of the decoders' own modules. Used by attention_cost.py.

A step is what the search does for each hypothesis between two words: query, scores, softmax and context; the keys are
there already, or are projected again in every step ("no keys"). A sentence has as many steps as source positions.
Operations are multiplications with their additions.

Axes: B sentences, K hypotheses of a sentence, T target and S source positions, E and H the size d, A attention size.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from nmt.config import WindowConfig
from nmt.model.attention import AdditiveScore, DotScore, GeneralScore, attend, masked_softmax
from nmt.model.window import make_window

MOST = 0.25  # of the global step's time: what a local one may cost at the size of `BAR`
Score = Literal["additive", "dot", "general"]
Windowed = Literal["monotonic", "predictive"]


@dataclass(frozen=True)
class Kind:
    """A score, a window or none, and whether coverage enters the score."""

    score: Score
    window: Windowed | None = None
    coverage: bool = False


# Bahdanau's additive score and Luong's concat are one function: the same module, and the same cost.
KINDS = {
    "bahdanau, concat": Kind("additive"),
    "bahdanau, coverage": Kind("additive", coverage=True),
    "dot": Kind("dot"),
    "general": Kind("general"),
    "concat, monotonic": Kind("additive", "monotonic"),
    "general, monotonic": Kind("general", "monotonic"),
    "concat, predictive": Kind("additive", "predictive"),
    "general, predictive": Kind("general", "predictive"),
}
PAIRS = {"general, predictive": "general", "concat, predictive": "bahdanau, concat"}


@dataclass(frozen=True)
class Sizes:
    """Source positions, size of states and annotations, attention size, sentences, hypotheses, D."""

    positions: int
    size: int
    batch: int
    beam: int = 1
    half_width: int = 10
    attention_size: int | None = None

    @property
    def d_a(self) -> int:
        return self.attention_size or self.size


BAR = Sizes(positions=400, size=512, batch=64)
TEXTBOOK = Sizes(positions=50, size=512, batch=32, attention_size=256)


# --- operations ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operations:
    """Multiplications with their additions, and powers of the softmax, for one hypothesis."""

    keys: int  # once a sentence
    step: int  # once a word

    @property
    def step_without_keys(self) -> int:
        """A step that projects the keys again."""
        return self.keys + self.step


def count_operations(kind: Kind, sizes: Sizes) -> Operations:
    """Operations by the formulas of the scores; powers and divisions of the softmax count 3 a position, as there."""
    d = sizes.size
    read = sizes.positions if kind.window is None else min(2 * sizes.half_width + 1, sizes.positions)
    centre = d * d + d if kind.window == "predictive" else 0
    softmax, context = 3 * read, read * d
    match kind.score:
        case "additive":
            coverage = read * sizes.d_a if kind.coverage else 0
            score, keys = sizes.d_a * d + coverage + read * sizes.d_a, sizes.positions * sizes.d_a * d
        case "general":
            score, keys = read * d, sizes.positions * d * d
        case "dot":
            score, keys = read * d, 0
    return Operations(keys, centre + score + softmax + context)


# --- measuring ----------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """One kind with a batch of sentences in memory; `step` is a step of the search."""

    def __init__(self, kind: Kind, sizes: Sizes) -> None:
        super().__init__()
        torch.manual_seed(1)
        d = sizes.size
        self.score: AdditiveScore | DotScore
        match kind.score:
            case "additive":
                self.score = AdditiveScore(d, d, sizes.d_a, kind.coverage)
            case "general":
                self.score = GeneralScore(d, d)
            case "dot":
                self.score = DotScore(d)
        self.window = None
        if kind.window is not None:
            self.window = make_window(WindowConfig(kind=kind.window, half_width=sizes.half_width), d)
        self.states_BKH = torch.randn(sizes.batch, sizes.beam, d).tanh()
        self.annotations_BSE = torch.randn(sizes.batch, sizes.positions, d).tanh()
        self.mask_BS = torch.ones(sizes.batch, sizes.positions, dtype=torch.bool)
        self.lengths_B = self.mask_BS.sum(1)
        self.coverage_BKS = torch.rand(sizes.batch, sizes.beam, sizes.positions) if kind.coverage else None
        with torch.no_grad():
            self.keys_BSA = self.score.keys(self.annotations_BSE)

    def attend(
        self,
        steps_K: Tensor,
        states_BKH: Tensor,
        keys_BSA: Tensor,
        annotations_BSE: Tensor,
        coverage_BKS: Tensor | None,
    ) -> Tensor:
        """Contexts [B, K, E], as the decoders compute them."""
        if self.window is not None:
            local = self.window(self.score, states_BKH, steps_K, keys_BSA, annotations_BSE, self.lengths_B)
            context_BKE: Tensor = local[1]
            return context_BKE
        coverage = () if coverage_BKS is None else (coverage_BKS,)
        weights_BKS = masked_softmax(self.score(states_BKH, keys_BSA, *coverage), self.mask_BS)
        return attend(weights_BKS, annotations_BSE)

    def step(self, t: int, keys_BSA: Tensor) -> None:
        """Step t of all hypotheses."""
        steps_K = torch.full((self.states_BKH.shape[1],), t)
        self.attend(steps_K, self.states_BKH, keys_BSA, self.annotations_BSE, self.coverage_BKS)

    @torch.inference_mode()
    def with_keys(self) -> None:
        """A step in the middle of the sentence."""
        self.step(self.keys_BSA.shape[1] // 2, self.keys_BSA)

    @torch.inference_mode()
    def without_keys(self) -> None:
        """The same, the keys projected again."""
        self.step(self.keys_BSA.shape[1] // 2, self.score.keys(self.annotations_BSE))

    @torch.inference_mode()
    def sentence(self) -> None:
        """The keys once, and as many steps as there are source positions."""
        keys_BSA = self.score.keys(self.annotations_BSE)
        for t in range(1, keys_BSA.shape[1] + 1):
            self.step(t, keys_BSA)

    def taught(self) -> None:
        """The keys and all steps of the sentence in one call, and their gradients: as many targets as positions."""
        positions = self.annotations_BSE.shape[1]
        states_BTH = self.states_BKH[:, :1].repeat(1, positions, 1).requires_grad_()
        coverage_BTS = None if self.coverage_BKS is None else self.coverage_BKS[:, :1].repeat(1, positions, 1)
        annotations_BSE = self.annotations_BSE.clone().requires_grad_()
        keys_BSA = self.score.keys(annotations_BSE)
        steps_T = torch.arange(1, positions + 1)
        context_BTE = self.attend(steps_T, states_BTH, keys_BSA, annotations_BSE, coverage_BTS)
        context_BTE.sum().backward()


def seconds(work: Callable[[], None], least: float) -> float:
    """The time of one call, from as many as take `least` seconds together."""
    calls, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < least or calls == 0:
        work()
        calls += 1
    return spent / calls


def medians(works: dict[str, Callable[[], None]], repeats: int, least: float) -> dict[str, float]:
    """The median time of each, in seconds; they take turns, so that a busy machine slows all of them alike."""
    samples: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()  # once for the caches and the allocator
    for _ in range(repeats):
        for name, work in works.items():
            samples[name].append(seconds(work, least))
    return {name: statistics.median(times) for name, times in samples.items()}


@dataclass(frozen=True)
class Row:
    """One measurement: a step of all sentences and hypotheses of a batch; one sentence in search, and in training."""

    sweep: str
    kind: str
    positions: int
    size: int
    batch: int
    beam: int
    step_ms: float
    step_without_keys_ms: float
    sentence_ms: float | None
    training_ms: float | None
    step_operations: int
    step_without_keys_operations: int
    sentence_operations: int


@dataclass(frozen=True)
class Effort:
    """How often and how long to measure; whole sentences in batches of at most `sentence_batch`, 0 for none."""

    repeats: int
    least: float
    sentence_batch: int


def measure(sweep: str, sizes: Sizes, kinds: Sequence[str], effort: Effort) -> list[Row]:
    """A row for each of some kinds at one size."""
    steps = {name: Attention(KINDS[name], sizes) for name in kinds}
    works = {f"{name}|step": attention.with_keys for name, attention in steps.items()}
    works |= {f"{name}|no keys": attention.without_keys for name, attention in steps.items()}
    times = medians(works, effort.repeats, effort.least)
    small = replace(sizes, batch=min(sizes.batch, effort.sentence_batch), beam=1)
    if effort.sentence_batch:
        batches = {name: Attention(KINDS[name], small) for name in kinds}
        whole = {f"{name}|sentence": attention.sentence for name, attention in batches.items()}
        whole |= {f"{name}|training": attention.taught for name, attention in batches.items()}
        found = medians(whole, max(1, effort.repeats // 3), effort.least)
        times |= {name: spent / small.batch for name, spent in found.items()}
    rows = []
    for name in kinds:
        count = count_operations(KINDS[name], sizes)
        milliseconds = {work.split("|")[1]: spent * 1e3 for work, spent in times.items() if work.startswith(f"{name}|")}
        rows.append(
            Row(
                sweep,
                name,
                sizes.positions,
                sizes.size,
                sizes.batch,
                sizes.beam,
                milliseconds["step"],
                milliseconds["no keys"],
                milliseconds.get("sentence"),
                milliseconds.get("training"),
                count.step,
                count.step_without_keys,
                count.keys + sizes.positions * count.step,
            )
        )
    return rows


@dataclass(frozen=True)
class Share:
    """What a local step costs of the global one with the same score."""

    kind: str
    beam: int
    step_ms: float
    global_ms: float

    @property
    def ratio(self) -> float:
        """Local over global time."""
        return self.step_ms / self.global_ms


def measure_bar(bar: Sizes, effort: Effort) -> list[Share]:
    """Predictive windows against the whole sentence, for the beams 1 and 5."""
    shares = []
    for beam in (1, 5):
        works = {
            name: Attention(KINDS[name], replace(bar, beam=beam)).with_keys for pair in PAIRS.items() for name in pair
        }
        times = medians(works, effort.repeats, effort.least)
        shares += [Share(name, beam, times[name] * 1e3, times[whole] * 1e3) for name, whole in PAIRS.items()]
    return shares


@dataclass(frozen=True)
class Example:
    """A line of the textbook example: what is done in a step, operations, and milliseconds for the batch."""

    what: str
    operations: int
    step_ms: float


def measure_example(sizes: Sizes, effort: Effort) -> list[Example]:
    """The textbook example: what it counts, and what there is to do."""
    additive, general = (Attention(KINDS[name], sizes) for name in ("bahdanau, concat", "general"))
    readout = nn.Linear(2 * sizes.size, sizes.size, bias=False)
    pair_NX = torch.cat([additive.states_BKH, additive.annotations_BSE[:, : sizes.beam]], -1)

    @torch.inference_mode()
    def all_at_each_position() -> None:
        assert isinstance(additive.score, AdditiveScore)
        states_BSH = additive.states_BKH[:, :1].expand_as(additive.annotations_BSE).contiguous()
        sums_BSA = additive.score.query(states_BSH) + additive.score.keys(additive.annotations_BSE)
        weights_BS = (sums_BSA.tanh() @ additive.score.v).softmax(-1)
        attend(weights_BS.unsqueeze(1), additive.annotations_BSE)

    @torch.inference_mode()
    def general_and_readout() -> None:
        general.with_keys()
        readout(pair_NX).tanh()

    add, mul = (count_operations(KINDS[name], sizes) for name in ("bahdanau, concat", "general"))
    combine = 2 * sizes.size * sizes.size
    again = (sizes.positions - 1) * sizes.d_a * sizes.size  # W_a s at each position but the first
    lines: dict[str, tuple[int, Callable[[], None]]] = {
        "Bahdanau, W_a s and U_a h at each position in each step": (
            add.step_without_keys + again,
            all_at_each_position,
        ),
        "Bahdanau, U_a h in each step": (add.step_without_keys, additive.without_keys),
        "Bahdanau, U_a h once a sentence": (add.step, additive.with_keys),
        "Luong general, W_a h in each step": (mul.step_without_keys, general.without_keys),
        "Luong general, W_a h once a sentence": (mul.step, general.with_keys),
        "the same, and W_c [s; c]": (mul.step + combine, general_and_readout),
    }
    times = medians({what: work for what, (_, work) in lines.items()}, effort.repeats, effort.least)
    return [Example(what, operations, times[what] * 1e3) for what, (operations, _) in lines.items()]
