"""scripts/gradient_path.py: the gradient it shows, and that attention shortens its way."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from models import small_model
from test_demo_corpus import load_script

gradient_path = load_script("gradient_path")


@pytest.mark.parametrize("name", ["bahdanau", "luong-general", "none"])
def test_norms_are_those_of_the_loss_of_the_last_token(name: str) -> None:
    model = small_model(name)
    sentences = gradient_path.Sentences(
        torch.tensor([[4, 5, 6, 3], [9, 8, 7, 3]]), torch.tensor([[5, 6, 3], [4, 4, 8]])
    )
    found = gradient_path.gradient_norms(model, sentences)
    norms = np.zeros((2, 4))
    step = 1e-6
    for b, j in np.ndindex(2, 4):
        for d in range(7):
            sides = []
            for sign in (1, -1):
                with torch.no_grad():
                    embedded_BSD = model.src_embedding(sentences.src).clone()
                    embedded_BSD[b, j, d] += sign * step
                    memory = model.decoder.read(model.encoder(embedded_BSD, torch.tensor([4, 4])))
                    words_BTD = model.tgt_embedding(torch.tensor([[2, 5, 6], [2, 4, 4]]))
                    readouts_BTR, _ = model.decoder(words_BTD, model.decoder.init_state(memory), memory)
                    sides.append(-float(model.output(readouts_BTR[b, -1]).log_softmax(-1)[sentences.tgt[b, -1]]))
            norms[b, j] += ((sides[0] - sides[1]) / (2 * step)) ** 2
    np.testing.assert_allclose(found, np.sqrt(norms).mean(0), rtol=1e-4)


def test_attention_shortens_the_way_to_every_source_position(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = tmp_path / "path.png", tmp_path / "path.json"
    options = ["--length", "30", "--sentences", "4", "--size", "16"]
    gradient_path.main([*options, "--out", str(files[0]), "--json", str(files[1])])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| position | none | bahdanau | luong |"
    assert [line.split(" | ")[0] for line in lines[2:]] == [
        "| 1", "| 8", "| 15", "| 23", "| 30", "| mean", "| smallest / largest",
    ]  # fmt: skip
    assert files[0].read_bytes().startswith(b"\x89PNG")
    norms = json.loads(files[1].read_text())
    assert [len(values) for values in norms.values()] == [30] * 3
    for kind in ("bahdanau", "luong"):
        assert min(norms[kind]) > 100 * max(norms["none"])
        assert min(norms[kind]) > 0.2 * max(norms[kind])


def test_a_seed_gives_the_same_norms_again() -> None:
    first, again = (gradient_path.untrained(6, 2, 4, 3) for _ in range(2))
    other = gradient_path.untrained(6, 2, 4, 4)
    for kind, norms in first.items():
        np.testing.assert_array_equal(norms, again[kind])
        assert not np.allclose(norms, other[kind])


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="nowhere"):
        gradient_path.main(["--run", str(tmp_path / "nowhere")])


def test_two_runs_of_one_name_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gradient_path.main(["--run", "a/x", "--run", "b/x"])
    assert "same name" in capsys.readouterr().err
