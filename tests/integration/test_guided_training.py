"""Guided alignment on sentences of the demo corpus: attention learns the given links, and it does so sooner."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from nmt.config import Config, load_config, with_overrides
from nmt.data.links import alignment_error, link_pieces, parse_links
from nmt.reporting import SilentReporter
from nmt.run_dir import RunDir
from nmt.train import train
from nmt.training.metrics import read_metrics
from nmt.translate import Translator

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"
LONGEST = 10  # words: short sentences make a short test
UNKNOWN = 40  # nothing is said about the last pairs

DECODERS: dict[str, dict[str, Any]] = {
    "bahdanau": {"kind": "bahdanau", "hidden_size": 48, "attention_size": 48},
    "luong": {"kind": "luong", "score": "general", "hidden_size": 48},
}


def short_pairs() -> list[tuple[str, str, str]]:
    """Source, target and gold links of the short sentences of the development set."""
    columns = [(DEMO / f"dev.{end}").read_text(encoding="utf-8").split("\n")[:-1] for end in ("en", "de", "align")]
    return [row for row in zip(*columns, strict=True) if max(len(row[0].split()), len(row[1].split())) <= LONGEST]


def write_lines(path: Path, lines: Iterable[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def trained(folder: Path, kind: str, weight: float, shift: int) -> RunDir:
    """A run on the short pairs, guided by their own links where there is a weight."""
    src, tgt, links = zip(*short_pairs())
    data: dict[str, Any] = {"src_lang": "en", "tgt_lang": "de"}
    data["train"] = {"src": write_lines(folder / "src", src), "tgt": write_lines(folder / "tgt", tgt)}
    data["dev"] = {"src": write_lines(folder / "few.src", src[:5]), "tgt": write_lines(folder / "few.tgt", tgt[:5])}
    if weight:
        data["train_alignments"] = write_lines(folder / "links", (*links[:-UNKNOWN], *[""] * UNKNOWN))
    config = Config.model_validate({
        "data": data,
        "tokenizer": {"vocab_size": 300},
        "model": {"embedding_size": 32, "dropout": 0.0, "encoder": {"hidden_size": 32}, "decoder": DECODERS[kind]},
        "training": {
            "device": "cpu", "batch_tokens": 500, "max_steps": 150, "validate_every": 1000, "log_every": 30,
            "alignment_weight": weight, "alignment_shift": shift if weight else 0,
            "optimizer": {"learning_rate": 0.01}, "schedule": {"kind": "constant"},
        },
        "search": {"beam_size": 1},
    })  # fmt: skip
    train(config, folder / "run", resume=False, reporter=SilentReporter())
    return RunDir(folder / "run")


def error_rates(run: RunDir, shift: int) -> tuple[float, float]:
    """AER by forced decoding: on the pairs whose links guided training, and on those that it knew nothing of."""
    pairs = short_pairs()
    gold = [parse_links(links, "dev.align", number) for number, (_, _, links) in enumerate(pairs, 1)]
    found = []
    for forced in Translator.load(run, device="cpu").force([(src, tgt) for src, tgt, _ in pairs]):
        assert forced.weights is not None
        found.append(link_pieces(forced.weights, forced.tgt_words, forced.src_words, shift=shift))
    known = len(pairs) - UNKNOWN
    return alignment_error(found[:known], gold[:known]).aer, alignment_error(found[known:], gold[known:]).aer


@pytest.mark.parametrize(("kind", "shift", "share"), [("bahdanau", 0, 0.75), ("luong", 1, 0.25)])
def test_guided_attention_aligns_far_better_than_attention_left_to_itself(
    kind: str, shift: int, share: float, tmp_path: Path
) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "guided").mkdir()
    plain = trained(tmp_path / "plain", kind, 0.0, shift)
    guided = trained(tmp_path / "guided", kind, 1.0, shift)
    (known, unknown), (plain_known, plain_unknown) = error_rates(guided, shift), error_rates(plain, shift)
    assert known < share * plain_known
    assert unknown < plain_unknown - 0.15
    losses: list[float] = [
        line["train/alignment_loss"] for line in read_metrics(guided.metrics) if "train/loss" in line
    ]
    assert losses == sorted(losses, reverse=True)
    assert not any("train/alignment_loss" in line for line in read_metrics(plain.metrics))
    report = json.loads(guided.data_report.read_text(encoding="utf-8"))["train"]
    assert report["alignments"]["pairs"] == report["kept"] - UNKNOWN
    assert_guidance_can_end(guided)


def assert_guidance_can_end(run: RunDir) -> None:
    """A run goes on without the loss, its data unchanged, and says that the alignments are of no use now."""
    config = with_overrides(load_config(run.config), ["training.alignment_weight=0", "training.max_steps=152"])
    reporter = Warnings()
    train(config, run.path, resume=True, reporter=reporter)
    assert [text for text in reporter.warnings if "guides nothing" in text]
    assert "train/alignment_loss" not in [*read_metrics(run.metrics)][-2]


class Warnings(SilentReporter):
    """Keeps the warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, text: str) -> None:
        self.warnings.append(text)
