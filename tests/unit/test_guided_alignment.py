"""Guided alignment: links of words become links of pieces, and attention is drawn to them."""

from __future__ import annotations

import dataclasses
import gzip
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from models import ATTENTIVE, small_model
from updates import first_batch, update

from nmt.config import Config, TrainingConfig
from nmt.data.batching import Alignment, Batch, TrainingBatches, in_order, make_batch
from nmt.data.report import format_report
from nmt.data.store import CorpusWriter, EncodedCorpus
from nmt.data.words import encode_words
from nmt.errors import NmtError
from nmt.model.attention import masked_softmax
from nmt.model.decoder import Decoder
from nmt.prepare import PreparedData, prepare
from nmt.reporting import SilentReporter
from nmt.run_dir import RunDir
from nmt.training.checkpoint import load_checkpoint, save_checkpoint
from nmt.training.loop import Training
from nmt.training.loss import LEAST_WEIGHT, alignment_loss
from nmt.training.metrics import MetricsWriter, read_metrics

Pieces = list[tuple[int, int]]  # target piece, source piece


def corpus_of(path: Path, sizes: Sequence[tuple[int, int]], links: Sequence[Pieces] | None) -> EncodedCorpus:
    """Random ids with so many pieces of source and target, and the links."""
    rng = np.random.default_rng(1)
    rows = [[rng.integers(4, 11, size).tolist() for size in pair] for pair in sizes]
    flat = None if links is None else [[index for link in each for index in link] for each in links]
    with CorpusWriter(path, links=links is not None) as writer:
        text = ["text"] * len(sizes)
        writer.write([row[0] for row in rows], [row[1] for row in rows], text, text, flat)
    return EncodedCorpus(path)


SIZES = [(3, 4), (5, 2), (4, 4), (1, 1)]
LINKS: list[Pieces] = [[(0, 0), (0, 2), (1, 1), (3, 0), (3, 1), (3, 2)], [(1, 4)], [], [(0, 0)]]


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    return make_batch(corpus_of(tmp_path / "pairs.arrow", SIZES, LINKS), np.arange(4))


def aligned(batch: Batch) -> Alignment:
    assert batch.alignment is not None
    return batch.alignment


# --- the loss -----------------------------------------------------------------------------------------------------


def random_weights(batch: Batch) -> torch.Tensor:
    """Weights [B, T, S] that are 0 on padding."""
    torch.manual_seed(5)
    scores = torch.randn(4, batch.tgt_in_BT.shape[1], batch.src_BS.shape[1], dtype=torch.float64)
    return masked_softmax(scores, torch.arange(scores.shape[2]) < batch.src_lengths_B[:, None])


@pytest.mark.parametrize("shift", [0, 1])
def test_the_loss_is_the_cross_entropy_of_links_and_weights(batch: Batch, shift: int) -> None:
    weights = random_weights(batch)
    expected = 0.0
    for row, ((src_size, tgt_size), links) in enumerate(zip(SIZES, LINKS)):
        matrix = np.zeros((tgt_size, src_size))
        for t, s in links:
            matrix[t, s] = 1
        shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
        attended = weights[row, shift : shift + tgt_size, :src_size].numpy()  # one step more than pieces: EOS
        expected -= float((shares * np.log(attended)).sum())
    assert float(alignment_loss(weights, aligned(batch), shift)) == pytest.approx(expected, rel=1e-6)
    assert aligned(batch).pieces == 5


def test_with_shift_1_the_last_piece_is_aligned_by_the_step_of_eos(tmp_path: Path) -> None:
    batch = make_batch(corpus_of(tmp_path / "pairs.arrow", [(2, 3)], [[(2, 1)]]), np.array([0]))
    for shift in (0, 1):
        weights = torch.full((1, 4, 3), 1 / 3, requires_grad=True)
        alignment_loss(weights, aligned(batch), shift).backward()  # type: ignore[no-untyped-call]
        assert weights.grad is not None
        assert weights.grad.nonzero().tolist() == [[0, 2 + shift, 1]]


def test_links_to_weights_of_exactly_0_are_left_out_and_tiny_ones_stay_finite() -> None:
    scores = torch.tensor([[[0.0, 60.0, -1e4, 3.0]]], requires_grad=True)
    window = torch.tensor([[True, True, True, False]])
    weights = masked_softmax(scores, window)
    assert 0 < weights[0, 0, 0] < LEAST_WEIGHT
    assert weights[0, 0, 1:].tolist() == [1, 0, 0]
    index = torch.zeros(4, dtype=torch.int64)
    loss = alignment_loss(weights, Alignment(index, index, torch.arange(4), torch.full((4,), 0.25), pieces=1), 0)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(-0.25 * np.log(LEAST_WEIGHT))
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


def test_pairs_without_links_and_pieces_without_links_add_nothing(tmp_path: Path, batch: Batch) -> None:
    weights = random_weights(batch)
    weights.requires_grad_()
    alignment_loss(weights, aligned(batch), 0).backward()  # type: ignore[no-untyped-call]
    assert weights.grad is not None
    found = {(row, t) for row, t, _ in weights.grad.nonzero().tolist()}
    assert found == {(row, t) for row, links in enumerate(LINKS) for t, _ in links}
    corpus = corpus_of(tmp_path / "more.arrow", SIZES, LINKS)
    assert make_batch(corpus, np.array([2])).alignment is None
    assert make_batch(corpus_of(tmp_path / "none.arrow", SIZES, None), np.arange(4)).alignment is None


def test_links_stay_with_their_pair_in_any_batch(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "pairs.arrow", SIZES, LINKS)
    for batch in (make_batch(corpus, pairs) for pairs in (np.array([3, 0]), *in_order(corpus, 6))):
        found: dict[int, Pieces] = {}
        if batch.alignment is not None:
            links = zip(batch.alignment.rows_L, batch.alignment.tgt_L, batch.alignment.src_L, strict=True)
            for row, t, s in links:
                found.setdefault(int(batch.pairs[int(row)]), []).append((int(t), int(s)))
        assert found == {int(pair): LINKS[pair] for pair in batch.pairs if LINKS[pair]}


def test_a_file_has_links_for_every_batch_or_for_none(tmp_path: Path) -> None:
    for links in (True, False):
        with pytest.raises(ValueError, match="every batch or for none"), CorpusWriter(tmp_path / "c", links) as writer:
            writer.write([[4]], [[5]], ["a"], ["b"], None if links else [[0, 0]])


def test_a_batch_moves_with_its_alignment(batch: Batch) -> None:
    moved = batch.to(torch.device("cpu"))
    for name, value in dataclasses.asdict(aligned(batch)).items():
        other = getattr(aligned(moved), name)
        assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other


@pytest.mark.parametrize("name", ATTENTIVE)
def test_the_gradient_reaches_attention_and_encoder(name: str, batch: Batch) -> None:
    model = small_model(name)
    _, weights = model(batch.src_BS, batch.src_lengths_B, batch.tgt_in_BT)
    alignment_loss(weights, aligned(batch), 0).backward()  # type: ignore[no-untyped-call]
    reached = [*model.decoder.attention.named_parameters(), *model.encoder.named_parameters()]  # type: ignore[union-attr]
    for parameter, tensor in reached:
        assert tensor.grad is not None, parameter
        assert tensor.grad.abs().max() > 1e-6, parameter


@pytest.mark.parametrize("name", ["bahdanau", "luong-general"])
@pytest.mark.parametrize("shift", [0, 1])
def test_the_gradient_of_the_whole_target_is_that_of_the_steps(name: str, shift: int, batch: Batch) -> None:
    gradients = []
    for by_steps in (False, True):
        model = small_model(name)
        memory = model.read(batch.src_BS, batch.src_lengths_B)
        run: Any = Decoder.forward if by_steps else type(model.decoder).forward
        embedded = model.tgt_embedding(batch.tgt_in_BT)
        readouts, weights = run(model.decoder, embedded, model.decoder.init_state(memory), memory)
        (readouts.sum() + 3 * alignment_loss(weights, aligned(batch), shift)).backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs)


# --- training -----------------------------------------------------------------------------------------------------


class Trainer:
    """A training on random pairs whose target piece t is linked to source piece t."""

    def __init__(self, folder: Path, *, linked: bool = True, resume: bool = False, **settings: Any) -> None:
        folder.mkdir(exist_ok=True)
        sizes = [(size, size) for size in np.random.default_rng(2).integers(1, 6, 60).tolist()]
        links = [[(t, t) for t in range(size)] if place % 3 else [] for place, (size, _) in enumerate(sizes)]
        batches = TrainingBatches(corpus_of(folder / "pairs.arrow", sizes, links if linked else None), 40, seed=1)
        values = {"max_steps": 10, "validate_every": 100, "log_every": 4} | settings
        self.run = RunDir(folder / "run") if resume else RunDir.create(folder / "run")
        content = load_checkpoint(self.run.last) if resume else None
        step = content["state"]["step"] if content else None
        self.metrics = MetricsWriter(self.run.metrics, self.run.tensorboard, step)
        self.model = small_model("bahdanau", dtype=torch.float32)
        self.training = Training(
            self.model, batches, TrainingConfig.model_validate(values), torch.device("cpu"), self.run, SilentReporter()
        )  # fmt: skip
        self.training.metrics = self.metrics
        if content:
            self.training.restore(content)

    def fit(self) -> Trainer:
        self.training.fit(lambda step: {"dev/bleu": 0.0, "dev/loss": 9.0})
        self.metrics.close()
        return self

    def values(self) -> list[dict[str, Any]]:
        return [{k: v for k, v in line.items() if "second" not in k} for line in read_metrics(self.run.metrics)]


def test_without_a_weight_links_change_nothing(tmp_path: Path) -> None:
    plain = Trainer(tmp_path / "plain", linked=False).fit()
    linked = Trainer(tmp_path / "linked", alignment_weight=0.0).fit()
    assert plain.values() == linked.values()
    assert not any("train/alignment_loss" in line for line in linked.values())
    for ours, theirs in zip(plain.model.parameters(), linked.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_alignment_loss_shown_is_the_mean_of_a_linked_piece_and_falls(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path / "one", alignment_weight=1.0, log_every=1, max_steps=1)
    batch = first_batch(trainer.training)
    _, weights = trainer.model(batch.src_BS, batch.src_lengths_B, batch.tgt_in_BT)
    expected = alignment_loss(weights, aligned(batch), 0).item() / aligned(batch).pieces
    assert trainer.fit().values()[0]["train/alignment_loss"] == pytest.approx(expected)
    settings: dict[str, Any] = {"max_steps": 60, "log_every": 20, "optimizer": {"learning_rate": 0.02}}
    long = Trainer(tmp_path / "long", alignment_weight=1.0, **settings).fit()
    losses = [line["train/alignment_loss"] for line in long.values() if "train/alignment_loss" in line]
    assert losses[-1] < 0.7 * losses[0]


def test_the_weight_scales_the_gradient_of_the_alignment(tmp_path: Path) -> None:
    updates = []
    for place, weight in enumerate((0.0, 1.0, 3.0)):
        trainer = Trainer(tmp_path / str(place), alignment_weight=weight, clip_norm=1e9, log_every=1)
        kept: list[torch.Tensor] = []
        trainer.training.optimizer.step = lambda t=trainer, k=kept: k.extend(  # type: ignore[method-assign,misc]
            p.grad.clone() for p in t.training.parameters
        )
        update(trainer.training, first_batch(trainer.training))
        trainer.metrics.close()
        updates.append(kept)
    for none, once, thrice in zip(*updates, strict=True):
        torch.testing.assert_close(thrice - none, 3 * (once - none), rtol=1e-3, atol=1e-6)


def test_resumed_in_the_middle_of_a_window_equals_never_stopped(tmp_path: Path) -> None:
    guided: dict[str, Any] = {"alignment_weight": 0.7, "alignment_shift": 1}
    whole = Trainer(tmp_path / "whole", **guided).fit()
    cut = Trainer(tmp_path / "cut", **guided, max_steps=6)
    for epoch, position, portion in cut.training.batches.from_position(0, 0):
        cut.training.state.step += 1
        cut.training.state.epoch, cut.training.state.position = epoch, position
        cut.training.update(portion)
        cut.training.state.window.seconds += 1
        if cut.training.state.step == 4:
            cut.training.log()
        if cut.training.state.step == 6:
            break
    save_checkpoint(cut.run, 6, cut.training.checkpoint(), best=False, keep=1)
    cut.metrics.close()
    resumed = Trainer(tmp_path / "cut", resume=True, **guided)
    assert resumed.training.state.window.aligned > 0
    assert resumed.fit().values() == whole.values()
    for ours, theirs in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


# --- preparation --------------------------------------------------------------------------------------------------

WORDS = {"house": "Haus", "walking": "spazierend", "under": "unter", "woman": "Frau", "a": "ein", "red": "rot"}


def sentences(count: int) -> list[tuple[str, str, str]]:
    """Source, target and alignment; the target has the words of the source backwards."""
    draw = random.Random(3)
    rows = []
    for _ in range(count):
        picked = draw.choices(list(WORDS), k=draw.randint(1, 6))
        last = len(picked) - 1
        links = [f"{last - t}-{t}" for t in range(len(picked))]
        rows.append((" ".join(picked), " ".join(WORDS[word] for word in reversed(picked)), " ".join(links)))
    return rows


def prepared(folder: Path, rows: Sequence[tuple[str, str, str]], *, name: str = "train.align") -> PreparedData:
    for place, side in enumerate(("en", "de")):
        (folder / f"train.{side}").write_text("".join(f"{row[place]}\n" for row in rows), encoding="utf-8")
    lines = "".join(f"{row[2]}\n" for row in rows).encode()
    (folder / name).write_bytes(gzip.compress(lines) if name.endswith(".gz") else lines)
    return prepare(settings(folder, name), folder / "cache", SilentReporter())


def settings(folder: Path, name: str | None) -> Config:
    source = {"src": str(folder / "train.en"), "tgt": str(folder / "train.de")}
    data: dict[str, Any] = {"src_lang": "en", "tgt_lang": "de", "train": source, "dev": source, "max_length": 60}
    sections: dict[str, Any] = {"data": data, "tokenizer": {"vocab_size": 33}}
    if name is not None:
        data["train_alignments"] = str(folder / name)
        sections["training"] = {"alignment_weight": 0.5}
    return Config.model_validate(sections)


def test_every_piece_of_linked_words_is_linked_and_dropped_pairs_take_their_links_along(tmp_path: Path) -> None:
    rows = sentences(120)
    rows[3:3] = [("", "leer", ""), ("house " * 70, "Haus", "69-0"), ("red", " ", "")]
    rows.append(("under a red", "unter rot", "0-0 1p0 2?1"))  # possible links are links
    rows.append(("walking", "spazierend", " "))
    data = prepared(tmp_path, rows)
    kept = [row for row in rows if row[0] and row[1].strip() and len(row[0]) < 200]
    assert data.train.linked
    assert not data.dev.linked
    assert data.train.src_texts() == [row[0] for row in kept]
    several = 0
    for place, (src, tgt, line) in enumerate(kept):
        words = {tuple(map(int, link.replace("p", "-").replace("?", "-").split("-"))) for link in line.split()}
        [(_, src_words)] = encode_words(data.tokenizers.src, [src])
        [(_, tgt_words)] = encode_words(data.tokenizers.tgt, [tgt])
        expected = [[t, s] for t in range(len(tgt_words)) for s in range(len(src_words))]
        expected = [[t, s] for t, s in expected if (src_words[s], tgt_words[t]) in words]
        assert data.train.links(place).tolist() == expected
        several += len(expected) > len(words)
    assert several > 20, "words of several pieces must occur"
    assert len(data.train.links(len(kept) - 1)) == 0
    part = data.report["train"]["alignments"]
    links = sum(len(row[2].split()) for row in kept)
    targets = sum(len(row[1].split()) for row in kept if row[2].strip())
    assert part == {
        "file": str(tmp_path / "train.align"),
        "pairs": len(kept) - 1,
        "links": links,
        "links_per_target_word": round(links / targets, 3),
    }
    assert f"{len(kept) - 1} with an alignment, {links / targets:.2f} links a target word" in format_report(data.report)


def test_a_compressed_file_is_read_and_a_changed_one_read_again(tmp_path: Path) -> None:
    rows = sentences(120)
    plain = prepared(tmp_path, rows)
    assert prepare(settings(tmp_path, "train.align"), tmp_path / "cache", SilentReporter()).report["cached"]
    packed = prepared(tmp_path, rows, name="train.align.gz")
    assert [packed.train.links(n).tolist() for n in range(120)] == [plain.train.links(n).tolist() for n in range(120)]
    (tmp_path / "train.align").write_text("0-0\n" + "\n" * 119)
    changed = prepare(settings(tmp_path, "train.align"), tmp_path / "cache", SilentReporter())
    assert changed.report["cached"] is False
    assert changed.report["train"]["alignments"]["pairs"] == 1
    without = prepare(settings(tmp_path, None), tmp_path / "cache", SilentReporter())
    assert not without.train.linked
    assert "alignments" not in without.report["train"]


def test_alignments_of_dropped_pairs_alone_are_a_warning(tmp_path: Path) -> None:
    rows = [(src, tgt, "") for src, tgt, _ in sentences(120)]
    data = prepared(tmp_path, [("house " * 70, "Haus", "0-0"), *rows])
    assert data.report["train"]["alignments"]["pairs"] == 0
    assert any("train.align has alignments of dropped pairs alone" in text for text in data.report["warnings"])


def test_a_long_file_is_read_in_step_over_several_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sentences(120)
    whole = prepared(tmp_path, rows)
    monkeypatch.setattr("nmt.data.encoding.BATCH_PAIRS", 7)
    (tmp_path / "again").mkdir()
    again = prepared(tmp_path / "again", rows)
    assert [again.train.links(n).tolist() for n in range(120)] == [whole.train.links(n).tolist() for n in range(120)]


ROWS = sentences(120)
FAULTS = {
    "too few": (["0-0"] * 119, r"train\.align has 119 lines, but data\.train has 120 pairs: line n must be"),
    "too many": ([""] * 121, r"train\.align has 121 lines, but data\.train has 120 pairs"),
    "no link": ([""] * 120, r"train\.align: every line is blank.*leave out data\.train_alignments"),
    "no number": (["0-0", "0-x"], r"train\.align, line 2"),
    "no pair": (["0-0", "0-0", "3"], r"train\.align, line 3"),
    "a source word too far": (["0-0 6-0"], r"train\.align, line 1: the link 6-0 names source word 6, but .* has \d+ w"),
    "a target word too far": (["", "0-9"], r"train\.align, line 2: the link 0-9 names target word 9, but .* from 0"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_file_is_an_error_before_anything_is_learnt(fault: str, tmp_path: Path) -> None:
    lines, message = FAULTS[fault]
    padded = lines + [""] * (120 - len(lines)) if len(lines) < 100 else lines
    for place, side in enumerate(("en", "de")):
        (tmp_path / f"train.{side}").write_text("".join(f"{row[place]}\n" for row in ROWS), encoding="utf-8")
    (tmp_path / "train.align").write_text("".join(f"{line}\n" for line in padded))
    infos: list[str] = []
    reporter = SilentReporter()
    reporter.info = infos.append  # type: ignore[method-assign,assignment]
    with pytest.raises(NmtError, match=message):
        prepare(settings(tmp_path, "train.align"), tmp_path / "cache", reporter)
    assert not any("Learning" in text for text in infos)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    prepared(tmp_path, ROWS)
    with pytest.raises(NmtError, match=r"gone\.align: no such file"):
        prepare(settings(tmp_path, "gone.align"), tmp_path / "cache", SilentReporter())
