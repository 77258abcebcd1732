"""scripts/gradient_path.py on trained runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_demo_corpus import load_script
from tiny import DECODERS

gradient_path = load_script("gradient_path")


def test_runs_are_compared_on_a_split_of_their_data(
    workplace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [option for kind in DECODERS for option in ("--run", str(workplace / "runs" / kind))]
    gradient_path.main([*runs, "--split", "test", "--length", "9", "--json", str(tmp_path / "norms.json")])
    assert capsys.readouterr().out.startswith("| position | bahdanau | luong | none |")
    norms = json.loads((tmp_path / "norms.json").read_text())
    assert all(len(values) == 9 and min(values) > 0 for values in norms.values())


def test_a_length_that_no_pair_has_is_refused(workplace: Path) -> None:
    with pytest.raises(SystemExit, match=r"dev has 0 pairs of at least 900 pieces .*Choose a smaller --length"):
        gradient_path.main(["--run", str(workplace / "runs" / "none"), "--length", "900"])
