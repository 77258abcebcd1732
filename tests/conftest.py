"""Shared by all tests: the folder of test helpers on the path, and a marker for each tier."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:  # each worker has a core: more threads would only wait for each other
    os.environ.setdefault("OMP_NUM_THREADS", "1")

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "unit"))
sys.path.insert(0, str(HERE / "integration"))


# Whole files go to the workers in this order, the longest first, lest one worker end long after the others. The second
# does without the costly fixture of the first.
LONGEST = (
    "test_commands.py", "test_onnx_stepper.py", "test_processes.py", "test_faults.py", "test_resume.py",
    "test_export.py", "test_attention_command.py", "test_align.py",
    "test_user_errors.py", "test_guided_training.py", "test_readme.py", "test_batch_invariance.py",
    "test_demo_corpus.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        tier = item.path.relative_to(HERE).parts[0]
        item.add_marker(getattr(pytest.mark, tier))
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))
