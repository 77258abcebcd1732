"""scripts/tune_search.py: a list ranked anew is what the search finds; the table's scores; what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import sacrebleu
import torch
from models import small_model
from test_demo_corpus import load_script

from nmt.config import Config, SearchConfig, config_yaml
from nmt.model.torch_stepper import TorchStepper
from nmt.search import Hypothesis, beam_search
from nmt.translations import Candidate, Translation

tune_search = load_script("tune_search")

BANNED, BOS, EOS = (0, 1, 2), 2, 3
SOURCES = [[4, 5, 6, 3], [7, 3], [4, 4, 9, 8, 8, 3], [5, 6, 3]]


def candidate(found: Hypothesis) -> Candidate:
    pieces = tuple(map(str, found.tokens))
    return Candidate(" ".join(pieces), pieces, found.score, found.log_prob, found.length_limited, found.weights)


@pytest.mark.parametrize("name", ["bahdanau", "luong-feed"])
def test_a_list_ranked_anew_has_first_what_the_search_finds(name: str) -> None:
    model = small_model(name).eval()
    with torch.no_grad():
        model.output.bias[EOS] += 2  # so that most hypotheses end before the limit

    def search(alpha: float, beta: float, n_best: int) -> list[list[Candidate]]:
        settings = {"beam_size": 8, "alpha": alpha, "beta": beta, "n_best": n_best, "max_lengths": [9, 9, 9, 2]}
        stepper = TorchStepper(model, BANNED, torch.device("cpu"))
        found = beam_search(stepper, SOURCES, bos=BOS, eos=EOS, keep_weights=True, **settings)  # type: ignore[arg-type]
        return [[candidate(one) for one in each] for each in found]

    lists = tune_search.Lists.of(search(1.0, 0.0, 8))
    different = set()
    for alpha in (0.0, 0.5, 1.0, 2.0):
        for beta in (0.0, 0.3, 2.0):
            best = [texts[place] for texts, place in zip(lists.texts, lists.best(alpha, beta), strict=True)]
            assert best == [each[0].text for each in search(alpha, beta, 1)]
            different.add(tuple(best))
    assert len(different) > 1


REFERENCES = ["der alte Hund schläft heute", "die Katze sieht das rote Haus"]
FOUND = [  # text, log p, pieces
    [("der Hund", -2.0, 2), ("der alte Hund schläft heute", -2.5, 5)],
    [("die Katze sieht das rote Haus", -2.0, 6), ("die Katze sieht das rote rote rote Haus", -2.5, 8)],
]


class FakeTranslator:
    """Gives `FOUND`, with attention to the first of two source positions or without any, and notes its settings."""

    def __init__(self, attentive: bool, asked: list[SearchConfig], search: SearchConfig) -> None:
        self.weights = torch.tensor([[0.5, 0.1]]).numpy() if attentive else None
        self.search, self.asked = search, asked

    def translate(
        self, lines: Sequence[str], n_best: int = 1, batch_tokens: int = 0, keep_weights: bool = False
    ) -> list[Translation]:
        self.asked.append(self.search)
        assert (n_best, keep_weights) in {(2, True), (1, False)}
        return [
            Translation(
                tuple(
                    Candidate(text, ("x",) * count, 0.0, log_prob, False, self.weights)
                    for text, log_prob, count in each
                )[:n_best],
                (),
                False,
            )
            for each in FOUND
        ]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[SearchConfig], SimpleNamespace]:
    config = Config.model_validate(
        {
            "data": {"src_lang": "en", "tgt_lang": "de"}
            | {split: {"src": str(tmp_path / "en"), "tgt": str(tmp_path / "de")} for split in ("train", "dev")},
            "search": {"beam_size": 2, "length_penalty": 0.0, "rerank": "mbr"},
        }
    )
    (tmp_path / "en").write_text("a\nb\n", encoding="utf-8")
    (tmp_path / "de").write_text("".join(f"{line}\n" for line in REFERENCES), encoding="utf-8")
    (tmp_path / "config.yaml").write_text(config_yaml(config), encoding="utf-8")
    for name in ("tokenizer", "checkpoints"):
        (tmp_path / name).mkdir()
    asked: list[SearchConfig] = []
    model = SimpleNamespace(attentive=True)
    monkeypatch.setattr(
        tune_search, "load", lambda runs, device, search: FakeTranslator(model.attentive, asked, search)
    )
    return str(tmp_path), asked, model


def test_the_best_setting_is_that_of_the_highest_bleu_and_is_searched_for(
    run: tuple[str, list[SearchConfig], SimpleNamespace], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, asked, _ = run
    options = ["--length-penalties", "0", "1", "3", "--coverage-penalties", "0", "0.1"]
    tune_search.main(["--run", folder, *options])
    short, right, long = (
        sacrebleu.corpus_bleu([FOUND[0][one][0], FOUND[1][other][0]], [REFERENCES]).score
        for one, other in ((0, 0), (1, 0), (1, 1))
    )
    assert short < long < right
    # The attention is the same for all, so that coverage changes nothing.
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| --- | ---: | ---: |",
        f"| 0 | {short:.2f} | {short:.2f} |",
        f"| 1 | {right:.2f} | {right:.2f} |",
        f"| 3 | {long:.2f} | {long:.2f} |",
        f"as it is: --set search.length_penalty=0 --set search.coverage_penalty=0: {short:.2f}",
        f"best: --set search.length_penalty=1 --set search.coverage_penalty=0: {right:.2f}",
        f"searched: --set search.length_penalty=1 --set search.coverage_penalty=0: {short:.2f}",
    ]
    assert [(search.length_penalty, search.rerank) for search in asked] == [(0.0, "none"), (1.0, "none")]


def test_mistakes_are_told_before_or_instead_of_a_table(
    run: tuple[str, list[SearchConfig], SimpleNamespace], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, asked, model = run
    for options in (["--split", "test"], ["--batch-tokens", "0"], ["--device", "gpu"], ["--check", "-1"]):
        with pytest.raises(SystemExit, match="2"):
            tune_search.main(["--run", folder, *options])
    for option, value in (("--length-penalties", "-1"), ("--coverage-penalties", "11"), ("--beam", "0")):
        with pytest.raises(SystemExit, match=r"error: search\.\w+: must be at (least|most)"):
            tune_search.main(["--run", folder, option, value])
    with pytest.raises(SystemExit, match="there is no such run"):
        tune_search.main(["--run", f"{folder}/gone"])
    assert not asked
    model.attentive = False
    with pytest.raises(SystemExit, match="no attention; use --coverage-penalties 0"):
        tune_search.main(["--run", folder, "--coverage-penalties", "0.1"])
    tune_search.main(["--run", folder, "--check", "0"])
    assert capsys.readouterr().out.splitlines()[1:3] == ["| | 0 |", "| --- | ---: |"]
