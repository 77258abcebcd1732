"""scripts/bench_train.py: the products of its bound, its batches, and what it prints."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import numpy as np
import pytest
import torch
from test_demo_corpus import load_script
from torch.utils.flop_counter import FlopCounterMode

from nmt.model.seq2seq import Seq2Seq
from nmt.training import loop
from nmt.training.precision import Precision
from nmt.training.processes import Processes

bench = load_script("bench_train")
scaling = load_script("bench_scaling")
FIELDS = ["kind", "tokens_per_s", "bound_tokens_per_s", "bound_ratio", "peak_mb", "least_tokens_per_s", "least_ratio"]
CPU = torch.device("cpu")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark at sizes that are all different, in this process."""
    sizes = {"EMBEDDING": 6, "ENCODER": 5, "ANNOTATION": 10, "DECODER": 8, "ATTENTION": 7, "VOCABULARY": 40}
    for name, size in sizes.items():
        monkeypatch.setattr(bench, name, size)
    monkeypatch.setitem(bench.KINDS, "bahdanau", ["model.decoder.kind=bahdanau", "model.decoder.attention_size=7"])
    monkeypatch.setattr(bench, "in_new_process", lambda work, *args, **kwargs: work(*args, **kwargs))
    monkeypatch.setattr(bench, "keep_freed_memory", lambda: None)


def task(kind: str = "bahdanau", precision: str | None = None) -> Any:
    return bench.Task(kind, "cpu", precision, sentences=4, updates=2, repeats=1, threads=None)


# Of a target token: the vocabulary, the GRU by word and by state. Of a source token: both directions of the encoder.
GRU = 512 * 8000 + 256 * 1536 + 512 * 1536
ENCODER = 4 * 256 * 768


@pytest.mark.parametrize(
    ("kind", "of_target", "of_source"),
    [
        ("bahdanau", GRU + 1280 * 512 + 512 * 1536 + 512 * 512, ENCODER + 512 * 512),
        ("luong", GRU + 1024 * 512, ENCODER + 512 * 512),
        ("luong-feed", GRU + 1024 * 512 + 512 * 1536, ENCODER + 512 * 512),
        ("none", GRU, ENCODER),
    ],
)
def test_products_of_the_benchmarks_shape(kind: str, of_target: int, of_source: int) -> None:
    found = bench.products(kind, 1009, 1013)
    assert {rows for rows, _, _ in found} == {1009, 1013}
    assert sum(inputs * outputs for rows, inputs, outputs in found if rows == 1009) == of_target
    assert sum(inputs * outputs for rows, inputs, outputs in found if rows == 1013) == of_source


def matrices(model: Seq2Seq) -> tuple[int, int]:
    """How many weights a target token and a source token are multiplied by."""
    sizes = {name: weight.numel() for name, weight in model.named_parameters() if weight.dim() == 2}
    once = ("embedding", "initial")  # looked up, and multiplied once a sentence
    read = ("encoder", "decoder.attention.key")
    of_tokens = {name: size for name, size in sizes.items() if not any(part in name for part in once)}
    if getattr(model.decoder, "feed_context", False):  # one context for all steps: its product is one of a sentence
        gates = len(model.decoder.rnn.layers[0].weight_hh_l0)
        of_tokens["decoder.rnn.layers.0.weight_ih_l0"] -= gates * bench.ANNOTATION
    of_source = sum(size for name, size in of_tokens.items() if name.startswith(read))
    return sum(of_tokens.values()) - of_source, of_source


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("kind", "variant"),
    [
        *((kind, bench.AS_IT_IS) for kind in bench.KINDS),
        *((kind, bench.Variant("lstm", 2)) for kind in bench.KINDS),
        ("luong-feed", bench.Variant(layers=3, window="predictive")),
        ("luong", bench.Variant(window="monotonic")),
    ],
)
def test_every_weight_of_the_model_is_a_product_of_the_bound(kind: str, variant: Any) -> None:
    found = bench.products(kind, 1009, 1013, variant)
    sums = tuple(sum(i * o for rows, i, o in found if rows == count) for count in (1009, 1013))
    assert sums == matrices(bench.Trainer(bench.settings(kind, variant=variant)).model)


@pytest.mark.usefixtures("tiny")
def test_the_bound_multiplies_real_tokens_alone_three_times_each() -> None:
    batches = bench.make_batches(task(), np.random.default_rng(1))
    bound = bench.Bound("bahdanau", batches, CPU, torch.float32)
    with FlopCounterMode(display=False) as counter:
        bound.run()
    of_target, of_source = matrices(bench.Trainer(bench.settings("bahdanau")).model)
    tgt_tokens = sum(int((batch.tgt_out_BT != 0).sum()) for batch in batches)
    src_tokens = sum(int((batch.src_BS != 0).sum()) for batch in batches)
    assert counter.get_total_flops() == 2 * 3 * (tgt_tokens * of_target + src_tokens * of_source)


@pytest.mark.usefixtures("tiny")
def test_batches_have_the_asked_number_of_sentences_of_like_length() -> None:
    batches = bench.make_batches(task(), np.random.default_rng(1))
    assert [len(batch.src_BS) for batch in batches] == [4, 4]
    for batch in batches:
        assert batch.src_lengths_B.tolist() == (batch.src_BS != 0).sum(1).tolist()
        lengths_B = batch.tgt_mask_BT.sum(1)
        assert batch.tgt_tokens == lengths_B.sum()
        assert lengths_B.max() - lengths_B.min() <= 1
        assert max(batch.src_BS.max(), batch.tgt_out_BT.max()) < 40


def test_lengths_are_those_of_multi30k() -> None:
    src, tgt = bench.lengths_like_multi30k(29_000, np.random.default_rng(1))
    assert tgt.mean() == pytest.approx(np.average(np.arange(2, 49), weights=bench.TARGET_COUNTS), rel=0.01)
    assert src.mean() == pytest.approx(0.74 * tgt.mean() + 3.4, rel=0.02)


@pytest.mark.usefixtures("tiny")
def test_json_has_the_documented_fields_of_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--sentences", "4", "--updates", "2", "--repeats", "1"]
    bench.main([*args, "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert [row["kind"] for row in rows] == ["bahdanau", "luong", "luong-feed", "none"]
    for row in rows:
        assert list(row) == FIELDS
        assert all(row[field] > 0 for field in FIELDS[1:])
        assert row["bound_ratio"] == pytest.approx(row["tokens_per_s"] / row["bound_tokens_per_s"], abs=2e-4)
        assert row["least_ratio"] == pytest.approx(row["tokens_per_s"] / row["least_tokens_per_s"], abs=2e-4)
    bench.main([*args, "--kinds", "none"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["kind", "none"]


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("asked", ["bfloat16", None])
def test_the_bound_is_in_the_precision_of_the_updates(asked: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    types = []
    make = bench.Bound
    monkeypatch.setattr(bench, "Bound", lambda *args: types.append(args[3]) or make(*args))
    if asked is None:  # as on a GPU, where it is chosen
        monkeypatch.setattr(loop, "choose_precision", lambda *_: Precision(torch.bfloat16, CPU))
    bench.measure(task("luong", asked))
    assert types == [torch.bfloat16]


@pytest.mark.parametrize(
    ("args", "message"),
    [("--sentences 0", "at least 1"), ("--threads 0", "at least 1"), ("--kinds gru", "invalid choice"),
     ("--device gpu", "must be one of"), ("--memory --device cuda", "leave --device out"),
     ("--layers 0", "at least 1"), ("--window monotonic", "for Luong's kinds"),
     ("--memory --cell lstm", "no variants"), ("--processes 0", "at least 1"),
     ("--memory --processes 2", "two measurements")],
)  # fmt: skip
def test_wrong_options_are_refused(args: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        bench.main(args.split())
    assert message in capsys.readouterr().err


def test_a_gpu_that_is_not_there_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match=r"^error: device cuda: torch sees 0 GPUs here"):
        bench.main(["--device", "cuda"])


@pytest.mark.usefixtures("tiny")
def test_the_shares_of_processes_are_the_batch_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[list[Any]] = []

    class Recorder:
        device = CPU

        def __init__(self, config: Any, processes: Any) -> None:
            made.append([])

        def update(self, portion: Any) -> None:
            made[-1].append(portion)

    monkeypatch.setattr(scaling, "Trainer", Recorder)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    for rank in range(2):
        processes = Processes()
        processes.rank, processes.count = rank, 2
        assert scaling.work(task("none"), processes) > 0
    for first, second in zip(*made, strict=True):
        (one,), (two,) = first.parts, second.parts
        assert sorted([*one.pairs, *two.pairs]) == sorted(first.pairs) == sorted(second.pairs)
        assert len(one.pairs) == len(two.pairs) == 4
        assert one.tgt_tokens + two.tgt_tokens == first.tgt_tokens == second.tgt_tokens


def test_torchrun_is_given_the_task_and_ratios_are_to_one_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(command: list[str], *, env: dict[str, str], **_: Any) -> Any:
        count = int(command[command.index("--nproc-per-node") + 1])
        given = scaling.task_of(json.loads(command[-1]))
        assert (given.threads, given.sentences, given.variant) == (1, 80, bench.Variant("lstm"))
        assert env["OMP_NUM_THREADS"] == "1"
        if count == 4:
            return subprocess.CompletedProcess(command, 1, "")
        return subprocess.CompletedProcess(command, 0, f'a warning\n{{"tokens_per_s": {1000 * count**0.5}}}\n')

    monkeypatch.setattr(scaling.subprocess, "run", run)
    args = ["--kinds", "none", "--cell", "lstm", "--processes"]
    bench.main([*args, "3", "2", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert [(row["kind"], row["processes"], row["ratio"]) for row in rows] == [
        ("none", 1, 1.0), ("none", 2, 1.414), ("none", 3, 1.732),
    ]  # fmt: skip
    with pytest.raises(SystemExit, match="error: 4 processes of none failed"):
        bench.main([*args, "4"])
    assert capsys.readouterr().out.splitlines()[-1].split() == ["none", "1", "1,000", "1.00"]
