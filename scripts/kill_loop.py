"""Kills a training again and again, at random moments and in the middle of saving, and looks at what is left.

python scripts/kill_loop.py --tries 50 --inside-saves 20 --json kills.json

A small training is started, ended by `kill -9`, and taken up with `--resume`, until it was killed as often as asked,
and inside a save as often as asked: then a temporary file of a checkpoint is left, or a numbered one that last.pt does
not name yet. After each kill every checkpoint is loaded. At the end the run is finished and compared with one that was
never disturbed: weights, optimizer, metrics.jsonl, TensorBoard, translations and scores must be equal, bit for bit.

Reported: tries; inside_saves; losses (no loadable last.pt although one had been saved, or one of an earlier step than
before); broken (checkpoints of any name that cannot be loaded); silent_failures (what differs in the end); failures
(starts that ended with a message). The exit code is 0 if the last four are nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fault_runs import Command, broken_checkpoints, differences, write_work

from nmt.errors import NmtError
from nmt.training.checkpoint import load_checkpoint

EVERY = 5  # updates between two checkpoints


@dataclass
class Report:
    """What was tried and what was found."""

    tries: int = 0
    inside_saves: int = 0
    ended_before: int = 0  # the training was over before it could be killed
    steps: int = 0
    losses: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    silent_failures: list[str] = field(default_factory=list)

    def clean(self) -> bool:
        """Return whether nothing was lost, broken or different."""
        return not (self.losses or self.broken or self.failures or self.silent_failures)


class Loop:
    """The training that is killed, in a folder of its own."""

    def __init__(self, folder: Path, size: int, seed: int) -> None:
        self.folder, self.run, self.log = folder, folder / "runs" / "killed", folder / "log"
        self.rng = random.Random(seed)
        self.report = Report()
        self.saved = -1  # step of the newest last.pt seen
        self.span, self.save_span = 1.0, 0.05  # seconds: from a start to its second checkpoint; of a save
        write_work(folder, size, max_steps=10**6, validate_every=EVERY)

    def train(self, *args: object, name: str = "killed") -> Command:
        """Start the training, or take it up."""
        there = (self.folder / "runs" / name / "config.yaml").exists()
        options = ["--resume"] if there else []
        return Command(
            "train",
            "--config",
            "tiny.yaml",
            "--run-dir",
            f"runs/{name}",
            *options,
            *args,
            cwd=self.folder,
            log=self.log,
        )

    def rehearse(self) -> None:
        """Learn how long a start, two checkpoints and a save take; the data is prepared on the way."""
        command = self.train(name="rehearsal")
        start, seen, times = time.perf_counter(), 0.0, []
        checkpoints = self.folder / "runs" / "rehearsal" / "checkpoints"
        while len(times) < 3 and command.process.is_alive():
            saving = self._saving(checkpoints)
            if saving and not seen:
                seen = time.perf_counter()
            elif not saving and seen:
                times.append(time.perf_counter() - seen)
                seen = 0.0
        self.span, self.save_span = time.perf_counter() - start, max(times, default=0.05)
        command.process.kill()
        command.wait()

    def kill(self, inside: bool) -> None:
        """Start, kill, look."""
        command = self.train()
        deadline = time.perf_counter() + self.rng.uniform(0, self.span)
        if inside:
            before = {path.name for path in self._temporary(self.run / "checkpoints")}
            while command.process.is_alive() and not self._saving(self.run / "checkpoints", before):
                pass
            deadline = time.perf_counter() + self.rng.uniform(0, self.save_span)
        while command.process.is_alive() and time.perf_counter() < deadline:
            time.sleep(0.0005)
        command.process.kill()
        code = command.wait()
        if code == -9:
            self.report.tries += 1
        elif code == 0:
            self.report.ended_before += 1
        else:
            self.report.failures.append(f"exit code {code}: {command.said()[-500:]}")
        self._look()

    @staticmethod
    def _temporary(checkpoints: Path) -> list[Path]:
        try:
            return list(checkpoints.glob(".*.tmp"))
        except OSError:
            return []

    def _saving(self, checkpoints: Path, before: set[str] | None = None) -> bool:
        return any(path.name not in (before or ()) for path in self._temporary(checkpoints))

    def _look(self) -> None:
        """Load what is there, and note what is wrong."""
        checkpoints = self.run / "checkpoints"
        last = checkpoints / "last.pt"
        newest = max((int(path.stem[5:]) for path in checkpoints.glob("step_*.pt")), default=-1)
        self.report.broken += broken_checkpoints(self.run)
        try:
            step = int(load_checkpoint(last)["state"]["step"]) if last.exists() else -1
        except NmtError as error:
            step = -1
            self.report.losses.append(f"try {self.report.tries}: {error}")
        if step < self.saved:
            self.report.losses.append(f"try {self.report.tries}: last.pt was of step {self.saved}, is of {step}")
        self.saved = max(step, self.saved)
        if self._temporary(checkpoints) or newest > step:
            self.report.inside_saves += 1

    def finish(self) -> None:
        """Let the training end, and compare it with one that was left alone."""
        self.report.steps = (max(self.saved, 0) // EVERY + 2) * EVERY
        for name in ("killed", "undisturbed"):
            command = self.train("--set", f"training.max_steps={self.report.steps}", name=name)
            if (code := command.wait()) != 0:
                self.report.failures.append(f"{name}: exit code {code}: {command.said()[-500:]}")
                return
        self.report.silent_failures = differences(self.run, self.folder / "runs" / "undisturbed")


def kill_loop(folder: Path, tries: int, inside_saves: int, size: int, seed: int, seconds: float = math.inf) -> Report:
    """Kill until both numbers are reached, twice as many tries were made, or time is up; finish, compare."""
    start = time.monotonic()
    loop = Loop(folder, size, seed)
    loop.rehearse()
    report = loop.report
    while (
        time.monotonic() - start < seconds
        and report.tries < 2 * tries
        and (report.tries < tries or report.inside_saves < inside_saves)
    ):
        missing = max(inside_saves - report.inside_saves, 0)
        loop.kill(inside=missing > 0 and loop.rng.random() < 2 * missing / max(tries - report.tries, 1))
        if len(report.failures) > 3:
            return report
    loop.finish()
    return report


def main() -> int:
    """Read the options, kill, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=50, help="kills")
    parser.add_argument("--inside-saves", type=int, default=20, help="how many of them inside a save, at least")
    parser.add_argument("--size", type=int, default=256, help="width of the model: the wider, the longer a save takes")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="kill no more after that time [default: no limit]"
    )
    parser.add_argument("--folder", type=Path, help="where to work, kept afterwards [default: a temporary folder]")
    parser.add_argument("--json", type=Path, help="write the report here, too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        report = kill_loop(folder.resolve(), args.tries, args.inside_saves, args.size, args.seed, args.seconds)
    text = json.dumps(asdict(report), indent=2)
    print(text)
    if args.json is not None:
        args.json.write_text(text + "\n", encoding="utf-8")
    enough = report.tries >= args.tries and report.inside_saves >= args.inside_saves
    return 0 if report.clean() and enough else 1


if __name__ == "__main__":
    sys.exit(main())
