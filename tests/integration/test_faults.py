"""Real faults of whole trainings: kills, a full disk, a second training, signals, too little memory."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_demo_corpus import load_script

from nmt.training.checkpoint import load_checkpoint
from nmt.training.metrics import read_metrics

resource = pytest.importorskip("resource", reason="kills and limits are POSIX's")
fault_runs = load_script("fault_runs")
kill_loop = load_script("kill_loop")
disk_faults = load_script("disk_faults")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a configuration, and an undisturbed run of 20 updates in `runs/whole`."""
    folder = tmp_path_factory.mktemp("work")
    fault_runs.write_work(folder, 16)
    assert nmt(folder, "train", "--config", "tiny.yaml", "--run-dir", "runs/whole").wait() == 0
    return folder


def nmt(folder: Path, *args: object, before: Callable[[], None] | None = None) -> Any:
    return fault_runs.Command(*args, cwd=folder, log=folder / f"log-{time.monotonic_ns()}", before=before)


def until(condition: Callable[[], bool], command: Any) -> None:
    """Wait for it, as long as the command runs."""
    while command.process.is_alive() and not condition():
        time.sleep(0.002)


@pytest.fixture
def stopped(work: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Any, Path]]:
    """A training in a folder of its own, held after its first checkpoint (SIGSTOP)."""
    run = work / "runs" / request.node.name
    command = nmt(work, "train", "--config", "tiny.yaml", "--run-dir", run, "--set", "training.max_steps=100000")
    until((run / "checkpoints" / "last.pt").exists, command)
    os.kill(command.process.pid, signal.SIGSTOP)
    yield command, run
    command.process.kill()
    command.wait()


def test_after_kills_nothing_is_lost_and_the_run_is_the_undisturbed_one(tmp_path: Path) -> None:
    report = kill_loop.kill_loop(tmp_path, tries=3, inside_saves=1, size=48, seed=1)
    assert report.clean(), report
    assert report.tries >= 3
    assert report.inside_saves >= 1


def test_a_second_training_is_refused_and_told_who_was_first(work: Path, stopped: tuple[Any, Path]) -> None:
    command, run = stopped
    for args in (["--resume"], ["--config", "tiny.yaml"]):
        second = nmt(work, "train", *args, "--run-dir", run)
        assert second.wait() == 1
        assert f"error: {run}: a training is writing here already (process {command.process.pid} on " in second.said()
    assert nmt(work, "translate", "--run", run, "the dog.").wait() == 0
    assert nmt(work, "eval", "--run", run).wait() == 0
    os.kill(command.process.pid, signal.SIGKILL)  # held as it is
    command.wait()
    third = nmt(work, "train", "--resume", "--run-dir", run, "--set", "training.max_steps=5")
    assert third.wait() == 0, third.said()


def test_of_two_trainings_begun_at_once_one_goes_on(work: Path) -> None:
    args = ("train", "--config", "tiny.yaml", "--run-dir", "runs/race")
    both = [nmt(work, *args) for _ in range(2)]
    assert sorted(command.wait() for command in both) == [0, 1]
    [loser] = [command.said() for command in both if command.process.exitcode == 1]
    assert "a training is writing here already" in loser or "there is a run here already" in loser
    assert fault_runs.differences(work / "runs/race", work / "runs/whole") == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_the_run_goes_on_as_if_there_had_been_none(work: Path, number: int, code: int) -> None:
    run = work / "runs" / f"signal{code}"
    args = ("train", "--config", "tiny.yaml", "--run-dir", run)
    command = nmt(work, *args, before=heed_interrupts)
    until(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size > 0, command)
    os.kill(command.process.pid, number)
    assert command.wait() == code, command.said()
    assert "Traceback" not in command.said()
    assert "nmt train --resume" in command.said()
    assert nmt(work, *args, "--resume").wait() == 0
    assert fault_runs.differences(run, work / "runs/whole") == []


def heed_interrupts() -> None:
    """What a shell starts in the background ignores them, and so would these tests."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize(
    ("moment", "said"),
    [
        ("build_model", "nothing has been trained yet, so nothing is lost: give the same command again. Data once"),
        ("Validation", "nothing that was saved is lost. Go on with: nmt train --resume --run-dir "),
        ("evaluate_split", "the model is trained and saved; what is missing is its score: nmt eval --run "),
    ],
)
def test_an_interruption_when_no_update_is_under_way_says_what_is_kept(work: Path, moment: str, said: str) -> None:
    run = work / "runs" / f"interrupted-{moment}"
    args = ("train", "--config", "tiny.yaml", "--run-dir", run, "--set", "training.max_steps=1")
    command = nmt(work, *args, before=partial(interrupted_at, moment))
    assert command.wait() == 130
    assert said in command.said()
    assert command.said().endswith("\ninterrupted\n")
    if moment != "evaluate_split":
        again = nmt(work, *args, *(["--resume"] if moment == "Validation" else []))
        assert again.wait() == 0, again.said()


def test_a_finished_run_interrupted_while_it_is_taken_up_is_not_called_trained(work: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(work / "runs/whole", run)
    args = ("train", "--resume", "--run-dir", run, "--set", "training.max_steps=21")
    for moment, said in (
        ("prepare", "nothing that was saved is lost: give the same command again. Data once prepared is kept.\n"),
        ("Validation", f"nothing that was saved is lost. Go on with: nmt train --resume --run-dir {run}\n"),
    ):
        command = nmt(work, *args, before=partial(interrupted_at, moment))
        assert command.wait() == 130
        assert command.said().endswith(f"{said}interrupted\n"), command.said()


def interrupted_at(name: str) -> None:
    """In this process a signal comes where `nmt.train` calls that."""
    import nmt.train

    heed_interrupts()
    setattr(nmt.train, name, lambda *args, **options: os.kill(os.getpid(), signal.SIGINT))


def test_a_second_signal_ends_at_once_in_the_middle_of_a_save(work: Path) -> None:
    run = work / "runs" / "twice"
    command = nmt(work, "train", "--config", "tiny.yaml", "--run-dir", run, before=never_finish_saving)
    until(lambda: any((run / "checkpoints").glob(".*.tmp")), command)
    os.kill(command.process.pid, signal.SIGTERM)
    command.process.join(0.5)
    assert command.process.is_alive(), "the first one lets the save end"
    os.kill(command.process.pid, signal.SIGTERM)
    assert command.wait() == -signal.SIGTERM
    assert nmt(work, "train", "--resume", "--run-dir", run).wait() == 0
    assert fault_runs.differences(run, work / "runs/whole") == []


def never_finish_saving() -> None:
    import torch

    def slow(content: object, stream: Any) -> None:
        stream.write(b"half")
        while True:
            time.sleep(0.01)

    torch.save = slow  # type: ignore[assignment]


def test_on_a_full_disk_and_in_a_read_only_folder_one_message_then_the_undisturbed_run(tmp_path: Path) -> None:
    if not disk_faults.can_mount():
        pytest.skip("file systems can be mounted by root alone")
    trials = disk_faults.Trials(tmp_path, 16)
    for share in (0.3, 0.75):
        trials.small(tmp_path / "disk", int(trials.used * share))
    trials.read_only(tmp_path / "read-only", "dev")
    assert trials.report.wrong == []
    assert sum(trials.report.failed.values()) == 3
    assert trials.report.failed["dev/step_N"] == 1


def test_a_training_does_not_stay_stopped_when_its_folder_cannot_be_made_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append(number))
    monkeypatch.setattr(disk_faults.subprocess, "run", lambda *_, **__: 1 / 0)
    trials = object.__new__(disk_faults.Trials)
    process = SimpleNamespace(pid=1, is_alive=lambda: False)
    trials.train = lambda run: SimpleNamespace(process=process)
    with pytest.raises(ZeroDivisionError):
        trials.read_only(tmp_path, "dev")
    assert sent == [signal.SIGSTOP, signal.SIGCONT]


def test_memory_that_is_too_small_for_a_batch_names_its_shape_and_the_budget(work: Path) -> None:
    run = work / "runs" / "memory"
    (work / "many.en").write_text("the big dog sees the old red cat.\n" * 20_000)
    (work / "many.de").write_text("der Hund groß sieht die Katze alt rot.\n" * 20_000)
    source = "[{src: train.en, tgt: train.de}, {src: many.en, tgt: many.de}]"
    args = ["--set", f"data.train={source}", "--set", "training.batch_tokens=1000000", "--run-dir", run]
    args += ["--set", "model.embedding_size=256"]
    assert nmt(work, "prepare", "--config", "tiny.yaml", *args).wait() == 0
    command = nmt(work, "train", "--config", "tiny.yaml", *args, before=little_memory)
    assert command.wait() == 1
    assert "Traceback" not in command.said()
    message = command.said().split("error: ")[1]
    assert re.match(
        r"out of memory at step [123]: its batch has [12]\d,\d{3} sentences of up to \d+ source and", message
    )
    assert "training.batch_tokens is 1,000,000" in message
    assert f"nmt train --resume --run-dir {run} --set training.batch_tokens=500000" in message


def test_memory_that_is_too_small_to_translate_names_the_batch_and_the_budget(work: Path) -> None:
    (work / "wide.en").write_text(("the dog sees " * 20 + "\n") * 600)
    args = ("--run", "runs/whole", "--beam", 1000, "--batch-tokens", 300000)
    command = nmt(work, "translate", *args, "--input", "wide.en", before=little_memory)
    assert command.wait() == 1
    assert "Traceback" not in command.said()
    assert "error: out of memory in a batch of" in command.said()
    assert "--batch-tokens 150000" in command.said()


def little_memory() -> None:
    """Leave this process room for little more than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + 300 * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def test_a_damaged_last_checkpoint_offers_the_one_before_with_its_command(work: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(work / "runs/whole", run)
    last, newest = run / "checkpoints/last.pt", run / "checkpoints/step_000020.pt"
    for content in (b"", newest.read_bytes()[:-1000], None):
        for path in (last, newest):
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_bytes(content)
        command = nmt(work, "train", "--resume", "--run-dir", run)
        assert command.wait() == 1
        offer = f"nmt train --resume --run-dir {run} --checkpoint {run}/checkpoints/step_000015.pt"
        assert offer in command.said()
        assert len(read_metrics(run / "metrics.jsonl")) == len(read_metrics(work / "runs/whole/metrics.jsonl"))
    assert nmt(work, *offer.split()[1:]).wait() == 0
    assert fault_runs.differences(run, work / "runs/whole") == []


def test_going_back_leaves_nothing_of_what_came_after(work: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(work / "runs/whole", run)
    older = run / "checkpoints/step_000010.pt"
    args = ("--resume", "--run-dir", run, "--set", "training.max_steps=12")
    assert nmt(work, "train", *args, "--checkpoint", older, before=die_in_the_first_update).wait() == 9
    command = nmt(work, "train", *args)
    assert command.wait() == 0, command.said()
    assert "resumed at step 10" in command.said(), "what was cut is not gone on from"
    steps = [int(file.stem[5:]) for file in (run / "checkpoints").glob("step_*.pt")]
    assert sorted(steps) == [10, 12]
    assert max(line["step"] for line in read_metrics(run / "metrics.jsonl")) == 12
    assert sorted(file.name for file in (run / "dev").iterdir())[-1] == "step_000012.txt"
    best = load_checkpoint(run / "checkpoints/best.pt")["state"]["step"]
    assert best == load_checkpoint(run / "checkpoints/last.pt")["state"]["best_step"]


def die_in_the_first_update() -> None:
    from nmt.training.loop import Training

    Training.update = lambda self, batch: os._exit(9)  # type: ignore[method-assign]


def test_a_resume_that_is_refused_leaves_the_run_as_it_was(work: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(work / "runs/whole", run)
    checkpoints = run / "checkpoints"
    odd = checkpoints / "step_000010.pt"
    torch.save(load_checkpoint(odd) | {"optimizer": {"a": 1}}, odd)
    resume = ("train", "--resume", "--run-dir", run)
    refused(work, run, "its parts do not fit the run", *resume, "--checkpoint", odd)
    (checkpoints / "best.pt").unlink()
    best = load_checkpoint(checkpoints / "last.pt")["state"]["best_step"]
    (checkpoints / f"step_{best:06d}.pt").unlink(missing_ok=True)
    refused(work, run, f"nmt eval --run {run} --checkpoint {checkpoints}/last.pt. Or go on with a larger", *resume)
    for file in checkpoints.iterdir():
        file.unlink()
    refused(work, run, "last.pt: it is gone, and no other checkpoint is there, but this run was trained", *resume)


def refused(work: Path, run: Path, message: str, *args: object) -> None:
    def files() -> dict[Path, bytes]:
        return {file: file.read_bytes() for file in run.rglob("*") if file.is_file() and file.name != ".lock"}

    before = files()
    command = nmt(work, *args)
    assert command.wait() == 1
    assert message in command.said()
    assert files() == before


def test_a_run_whose_files_were_moved_goes_on_where_they_lie_now_and_with_no_other_text(
    work: Path, tmp_path: Path
) -> None:
    run, old, new = tmp_path / "run", tmp_path / "old", tmp_path / "new"
    shutil.copytree(work / "runs/whole", run)
    (run / "config.yaml").write_text((run / "config.yaml").read_text().replace(f"{work}/", f"{old}/"))
    new.mkdir()
    for split in ("train", "dev", "test"):
        for side in ("en", "de"):
            shutil.copy(work / f"{split}.{side}", new)
    resume = ("train", "--resume", "--run-dir", run)
    refused(work, run, f"files of this run's data are not there:\n  data.train.src: {old}/train.en\n", *resume)
    moves = [f"data.{split}={{src: {new}/{split}.en, tgt: {new}/{split}.de}}" for split in ("train", "dev", "test")]
    resume = (*resume, *(part for move in moves for part in ("--set", move)))
    for split in ("train", "dev", "test"):
        text = (new / f"{split}.de").read_text()
        (new / f"{split}.de").write_text(text.replace(".\n", "..\n", 1))
        message = f"cannot change the text of a run, and this is another one:\n  data.{split}.tgt: {old}/{split}.de -> "
        refused(work, run, message, *resume)
        (new / f"{split}.de").write_text(text)
    command = nmt(work, *resume, "--set", "training.max_steps=21")
    assert command.wait() == 0, command.said()
    for split in ("train", "dev", "test"):
        assert f"changed: data.{split}.tgt: {old}/{split}.de -> {new}/{split}.de (same text)\n" in command.said()
    assert "resumed at step 20" in command.said()
    assert str(old) not in (run / "config.yaml").read_text()


def test_a_checkpoint_of_another_run_is_refused(work: Path, stopped: tuple[Any, Path]) -> None:
    command = nmt(
        work, "train", "--resume", "--run-dir", "runs/whole", "--checkpoint", stopped[1] / "checkpoints/last.pt"
    )
    assert command.wait() == 1
    assert "a run goes on from a checkpoint of its own" in command.said()
