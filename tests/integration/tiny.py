"""A tiny corpus and tiny runs for the tests of whole commands."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import yaml
from test_demo_corpus import load_script

forked = load_script("forked")

WORDS = {"red": "rot", "old": "alt", "dog": "Hund", "cat": "Katze", "sees": "sieht", "the": "der", "big": "groß"}

DECODERS = {
    "bahdanau": {"kind": "bahdanau", "hidden_size": 24, "attention_size": 16},
    "luong": {"kind": "luong", "hidden_size": 24, "input_feeding": True},
    "none": {"kind": "none", "hidden_size": 24},
}


def write_corpus(folder: Path) -> None:
    """`train`, `dev` and `test` in made-up English and German: words of a fixed list, the last one first."""
    rng = random.Random(7)
    for split, count in (("train", 300), ("dev", 20), ("test", 30)):
        src = [[rng.choice(list(WORDS)) for _ in range(rng.randint(2, 14))] for _ in range(count)]
        tgt = [[WORDS[word] for word in (line[-1], *line[:-1])] for line in src]
        for name, lines in (("en", src), ("de", tgt)):
            (folder / f"{split}.{name}").write_text("".join(" ".join(line) + ".\n" for line in lines), encoding="utf-8")


def write_config(folder: Path, kind: str = "bahdanau", **training: object) -> Path:
    """A configuration of a tiny model on the corpus in `folder`; training settings as given."""
    values = {"batch_tokens": 200, "max_steps": 24, "validate_every": 8, "log_every": 4, "ema_decay": 0.9} | training
    config = {
        "data": {"src_lang": "en", "tgt_lang": "de"}
        | {split: {"src": f"{split}.en", "tgt": f"{split}.de"} for split in ("train", "dev", "test")},
        "tokenizer": {"vocab_size": 36},
        "model": {
            "embedding_size": 16,
            "dropout": 0.2,
            "encoder": {"hidden_size": 12},
            "decoder": DECODERS[kind],
        },
        "training": values,
        "search": {"beam_size": 3},
    }
    path = folder / f"{kind}.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def nmt(
    *args: object, cwd: Path, stdin: bytes = b"", check: int | None = 0, real: bool = False
) -> subprocess.CompletedProcess[bytes]:
    """Runs the command as a user does, in a process of its own; `check` is the exit code it must have.

    The process is a fork of one that has the imports (scripts/forked.py); with `real` it is one that the interpreter
    starts. Such are also those of test_commands' pipe that waits and its signal, of test_resume's hashes, and of
    tests/unit/test_cli.py; test_commands compares a training and translations of both kinds.
    """
    if real:
        done = subprocess.run(
            [sys.executable, "-m", "nmt", *map(str, args)],
            cwd=cwd,
            input=stdin,
            capture_output=True,
            timeout=300,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            check=False,
        )
    else:
        done = forked.run([str(arg) for arg in args], cwd, stdin)
    if check is not None and done.returncode != check:
        raise AssertionError(f"exit code {done.returncode}\n{done.stdout.decode()}\n{done.stderr.decode()}")
    return done
