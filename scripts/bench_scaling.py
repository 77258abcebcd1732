"""Training speed by the number of processes, for `bench_train.py --processes`: torchrun runs this file."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from bench_timing import seconds
from bench_train import Task, Trainer, Variant, chosen_pairs, settings

from nmt.data.batching import Deal
from nmt.errors import NmtError
from nmt.training.processes import Elsewhere, Processes, joined


@dataclass(frozen=True)
class Scaling:
    """The speed of so many processes together, and how many times that of one it is."""

    kind: str
    processes: int
    tokens_per_s: float
    ratio: float


def scaling(task: Task, counts: Sequence[int]) -> Iterator[Scaling]:
    """The figures of a kind for one process and for each of these numbers of them, as they come.

    Raises:
        NmtError: if processes fail; they have told why.
    """
    alone = 0.0
    for count in sorted({1, *counts}):
        speed = together(task, count)
        alone = alone or speed
        yield Scaling(task.kind, count, round(speed, 1), round(speed / alone, 3))


def together(task: Task, count: int) -> float:
    """Target tokens a second of so many processes, each with `task.threads` on a CPU, one by default."""
    task = replace(task, threads=task.threads or 1)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    done = subprocess.run(
        [*torchrun, __file__, json.dumps(asdict(task))],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": str(task.threads)},
    )
    if done.returncode:
        raise NmtError(f"{count} processes of {task.kind} failed, as they say above")
    return float(json.loads(done.stdout.splitlines()[-1])["tokens_per_s"])


def work(task: Task, processes: Processes) -> float:
    """The share of one process: the median speed of all together, by its clock."""
    torch.set_num_threads(task.threads or 1)
    # The batch of all processes has the sentences of each: the same work for each, however many they are.
    whole = replace(task, sentences=task.sentences * processes.count)
    corpus, batches = chosen_pairs(whole, np.random.default_rng(1))
    deal = Deal(processes.rank, processes.count)
    portions = [deal.portion(corpus, pairs) for pairs in batches]
    trainer = Trainer(settings(task.kind, task.device, task.precision, task.variant), processes)

    def updates() -> None:
        for portion in portions:
            trainer.update(portion)

    updates()  # the first ones reserve memory
    spent = []
    for _ in range(task.repeats):
        processes.wait()
        spent.append(seconds(updates, trainer.device))
    return sum(portion.tgt_tokens for portion in portions) / statistics.median(spent)


def task_of(given: dict[str, Any]) -> Task:
    """A task from what `asdict` made of it."""
    return Task(**given | {"variant": Variant(**given["variant"])})


def main() -> None:
    """One of the processes that torchrun starts; the first prints."""
    try:
        with joined() as processes:
            speed = work(task_of(json.loads(sys.argv[1])), processes)
            if processes.first:
                print(json.dumps({"tokens_per_s": speed}), flush=True)
    except Elsewhere as ended:
        sys.exit(ended.exit_code)
    except NmtError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
