"""Trains on disks that are too small, and in folders that turn read-only, and looks at what is said and what is left.

python scripts/disk_faults.py --disks 40 --json disks.json

Needs root, to mount file systems in memory (Linux). A small training is run on disks of growing size, so that each of
its writes is once the one that does not fit: prepared data, settings, metrics, TensorBoard, translations, checkpoints,
scores. It must end with one message and no traceback, and every checkpoint must load. Then the disk is enlarged, and
the same training, taken up with `--resume` once there is a run, must give what one gives that was never disturbed, bit
for bit. Folders of a run are made read-only after its first checkpoint (mounted so, which holds for root, too).

A message must say what to free, and how much room there is, or what to make writable; and how to go on: the command
that resumes once there is a run, the same command before.

Reported: tries, how many of them failed and over which file, and what was wrong (nothing, if the exit code is 0).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fault_runs import Command, broken_checkpoints, differences, write_work

PLENTY = 64 * 2**20  # bytes of a disk on which everything fits
FOLDERS = ("checkpoints", "dev", "eval", "")


@dataclass
class Report:
    """What was tried and what was found; `failed` counts by the file or folder that messages name."""

    tries: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """Mount a file system of `size` bytes in memory for the time of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0777", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def made_read_only(folder: Path) -> Iterator[None]:
    """Mount a folder on itself for the time of the block, so that nothing in it can be written, not even by root."""
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def can_mount() -> bool:
    """Return whether this process may mount."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        try:
            with small_disk(Path(folder) / "disk", 2**20) as disk, made_read_only(disk):
                return True
        except subprocess.CalledProcessError:
            return False


class Trials:
    """A training that nothing disturbs, and others that are compared with it."""

    def __init__(self, folder: Path, size: int) -> None:
        self.work, self.log, self.report = folder / "work", folder / "log", Report()
        write_work(self.work, size, max_steps=15)
        self.whole = folder / "whole" / "run"
        self.check("undisturbed", self.train(self.whole).wait() == 0, self.log.read_text())
        files = {status.st_ino: status for status in map(Path.stat, self.whole.parent.rglob("*"))}
        self.used = sum(status.st_blocks * 512 for status in files.values())

    def train(self, run: Path) -> Command:
        """Start a training, or take it up."""
        resume = ["--resume"] if (run / "config.yaml").exists() else []
        args = ("train", "--config", self.work / "tiny.yaml", "--run-dir", run, *resume)
        return Command(*args, cwd=self.work, log=self.log)

    def check(self, name: str, condition: bool, what: object) -> None:
        """Note what is wrong unless the condition holds."""
        if not condition:
            self.report.wrong.append(f"{name}: {what}")

    def judge(self, name: str, code: int, run: Path) -> None:
        """Look at how a training ended that may have met a fault."""
        self.report.tries += 1
        self.check(name, code in (0, 1), f"exit code {code}")
        said = self.log.read_text(encoding="utf-8")
        if code:
            errors = re.findall(r"^error: (.*)", said, re.MULTILINE)
            self.check(
                name, len(errors) == 1 and said.count("error: ") == 1, f"{len(errors)} messages:\n{said[-2000:]}"
            )
            self.check(name, "Traceback" not in said, said[-2000:])
            part = part_of(errors[0], run) if errors else "nothing"
            self.report.failed[part] = self.report.failed.get(part, 0) + 1
            self.check(name, any(is_advice(error, run) for error in errors), f"no advice: {errors}")
        if (run / "checkpoints").is_dir():
            broken = broken_checkpoints(run)
            self.check(name, not broken, broken)

    def judge_resumed(self, name: str, run: Path) -> None:
        """Take the training up where nothing is in its way any more, and compare."""
        code = self.train(run).wait()
        self.check(name, code == 0, f"afterwards exit code {code}: {self.log.read_text()[-2000:]}")
        if code == 0:
            unlike = differences(run, self.whole)
            self.check(name, not unlike, unlike)

    def small(self, folder: Path, size: int) -> None:
        """Train on a disk of `size` bytes, then on the same one enlarged."""
        name = f"disk of {size:,} bytes"
        with small_disk(folder, size) as disk:
            run = disk / "runs" / "run"
            self.judge(name, self.train(run).wait(), run)
            subprocess.run(["mount", "-o", f"remount,size={PLENTY}", disk], check=True)
            self.judge_resumed(name, run)

    def read_only(self, folder: Path, part: str) -> None:
        """Make a folder of the run read-only after the first checkpoint, and writable again for the resume."""
        name = f"read-only {part or 'run'}"
        run = folder / "runs" / "run"
        command = self.train(run)
        while command.process.is_alive() and not (run / "checkpoints" / "last.pt").exists():
            time.sleep(0.001)
        os.kill(command.process.pid, signal.SIGSTOP)  # it would be over before
        with ExitStack() as stack:
            try:
                stack.enter_context(made_read_only(run / part))
            finally:  # a process that stays stopped would never end
                os.kill(command.process.pid, signal.SIGCONT)
            self.judge(name, code := command.wait(), run)
        self.check(name, code == 1, f"nothing came of it: exit code {code}")
        self.judge_resumed(name, run)


def is_advice(message: str, run: Path) -> bool:
    """Tell whether a message says what to free or to make writable, and how to go on from there."""
    how = "and give the same command again"
    if (run / "config.yaml").exists():
        how = f"and go on with: nmt train --resume --run-dir {run}"
    writable = r"Make (?:that folder|(?:that file and )?its folder) writable"
    remedy = rf"are free\)\. Free space on that disk\b|\. {writable}"
    return re.search(rf"(?:{remedy}).*, {re.escape(how)}", message) is not None


def part_of(message: str, run: Path) -> str:
    """Return the file or folder that a message is about, without what is different each time."""
    path = message.split(": ")[0].removeprefix(f"{run}/").removeprefix(f"{run.parent}/")
    return re.sub(r"\d{3,}(\.\S*)?", "N", path)


def disk_faults(folder: Path, disks: int, size: int) -> Report:
    """Run all trials, with that many sizes of disks."""
    folder.chmod(0o755)
    trials = Trials(folder, size)
    for number in range(disks):
        trials.small(folder / "disk", 16384 + (trials.used * (number + 1)) // (disks + 1) // 4096 * 4096)
    for part in FOLDERS:
        trials.read_only(folder / f"read-only-{part or 'run'}", part)
    return trials.report


def main() -> int:
    """Read the options, try, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--disks", type=int, default=40, help="sizes of disks to try")
    parser.add_argument("--size", type=int, default=16, help="width of the model")
    parser.add_argument("--json", type=Path, help="write the report here, too")
    args = parser.parse_args()
    if not can_mount():
        sys.exit("disk_faults.py mounts file systems: it needs root and Linux.")
    with tempfile.TemporaryDirectory() as temporary:
        report = disk_faults(Path(temporary).resolve(), args.disks, args.size)
    text = json.dumps(asdict(report), indent=2)
    print(text)
    if args.json is not None:
        args.json.write_text(text + "\n", encoding="utf-8")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
