"""One trained run of each kind, shared by the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny import DECODERS, nmt, write_config, write_corpus


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the corpus, a configuration of each kind, and the runs `runs/KIND`; none is to be changed."""
    folder = tmp_path_factory.mktemp("workplace")
    write_corpus(folder)
    for kind in DECODERS:
        write_config(folder, kind)
        nmt("train", "--config", f"{kind}.yaml", cwd=folder)
    return folder
