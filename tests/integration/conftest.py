"""One trained run of each kind, shared by the tests of this folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny import DECODERS, nmt, write_config, write_corpus


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the corpus, a configuration of each kind, and the runs `runs/KIND`; none is to be changed."""
    return made_once("workplace", tmp_path_factory, make_workplace)


def make_workplace(folder: Path) -> None:
    write_corpus(folder)
    for kind in DECODERS:
        write_config(folder, kind)
        nmt("train", "--config", f"{kind}.yaml", cwd=folder)


def made_once(name: str, factory: pytest.TempPathFactory, make: Callable[[Path], None]) -> Path:
    """Return a folder that `make` fills; of several workers one makes it, and each has a copy to itself."""
    folder = factory.mktemp(name)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        make(folder)
        return folder
    import fcntl

    shared = factory.getbasetemp().parent / f"shared-{name}"  # the folder of this session, above those of its workers
    with shared.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "made").exists():
            shutil.rmtree(shared, ignore_errors=True)  # what failed is made again, and fails where it is needed
            (shared / "content").mkdir(parents=True)
            make(shared / "content")
            (shared / "made").touch()
    shutil.copytree(shared / "content", folder, dirs_exist_ok=True)
    return folder
