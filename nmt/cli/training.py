"""`nmt train` and `nmt prepare`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli.app import app
from nmt.cli.options import ConfigOption, RunDirOption, SetOption

if TYPE_CHECKING:
    from nmt.config import Config
    from nmt.evaluate import EvaluationResult
    from nmt.reporting import Reporter
    from nmt.run_dir import RunDir
    from nmt.training.processes import Processes


@app.command(short_help="Train a model, from parallel text to test scores.")
def train(
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Settings, in YAML; one that comes with nmt is found by its name. Without it --resume goes on with "
            "a run under its own settings.",
        ),
    ] = None,
    overrides: SetOption = None,
    run_dir: RunDirOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run where it stopped.")] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint",
            metavar="FILE",
            help="With --resume: go on from this checkpoint of the run; what came after it is dropped. [default: the "
            "run's checkpoints/last.pt]",
        ),
    ] = None,
) -> None:
    """Train a model: read the data, learn the vocabulary, train, validate, keep the best, score the test set.

    \b
    nmt train --config bahdanau.yaml
    nmt train --config my.yaml --set training.max_minutes=30 --run-dir runs/half-hour
    nmt train --config my.yaml --set 'data.train={src: a.en.gz, tgt: a.de.gz}'
    nmt train --resume --run-dir runs/half-hour
    nmt train --resume --run-dir runs/a --checkpoint runs/a/checkpoints/step_000500.pt
    torchrun --nproc-per-node 4 -m nmt train --config my.yaml

    Relative paths in the file are relative to the file, those in --set to the current folder. Ctrl-C stops after
    writing a checkpoint that --resume goes on from; a second one ends at once.
    """
    from nmt.training.processes import Elsewhere, joined

    if config is None and not resume:
        raise typer.BadParameter("needed, unless --resume goes on with a run.", param_hint="'--config'")
    if checkpoint is not None and not resume:
        raise typer.BadParameter("goes with --resume.", param_hint="'--checkpoint'")
    try:
        with joined() as processes:
            given = _settings(config, overrides or (), run_dir, resume) if processes.first else None
            settings, path = processes.from_first(given)
            _train_and_show(settings, path, resume, checkpoint, processes)
    except Elsewhere as end:
        raise typer.Exit(end.exit_code) from None


def _settings(config: str | None, overrides: Sequence[str], run_dir: Path | None, resume: bool) -> tuple[Config, Path]:
    """Return the settings and the run's folder."""
    from nmt.config import load_config
    from nmt.run_dir import RunDir

    if config is None:
        run = RunDir.open(run_dir) if run_dir is not None else RunDir.newest()
        return load_config(str(run.config), overrides), run.path
    settings, path = load_config(config, overrides), run_dir or _default_run(config)
    if not resume:
        RunDir(path).refuse_existing()  # before the heavy imports: told at once
    return settings, path


def _train_and_show(
    settings: Config, path: Path, resume: bool, checkpoint: Path | None, processes: Processes
) -> None:  # fmt: skip
    from nmt.console import ConsoleReporter, show_evaluation
    from nmt.run_dir import RunDir

    before = RunDir(path).settings_stamp()
    with ConsoleReporter() as reporter:
        try:
            result = _train(settings, path, resume, checkpoint, reporter, processes)
        except (KeyboardInterrupt, SystemExit):  # when no update is under way: that would be finished, and saved
            if processes.first:
                reporter.info(_what_is_kept(RunDir(path), before))
            raise
    if result is not None:
        show_evaluation(result, RunDir(path))


def _default_run(config: str) -> Path:
    return Path("runs") / Path(config).stem


def _what_is_kept(run: RunDir, before: tuple[int, int] | None) -> str:
    """Say what an interruption has not taken, and how to go on; `before`: of the settings when the command began."""
    from nmt.run_dir import read_json_object

    now = run.settings_stamp()
    if now == before:  # meta.json and config.yaml, if any, know nothing of this command and its options
        kept = "nothing has been trained yet, so nothing" if now is None else "nothing that was saved"
        return f"{kept} is lost: give the same command again. Data once prepared is kept."
    if read_json_object(run.meta).get("finished"):
        return f"the model is trained and saved; what is missing is its score: nmt eval --run {run.quoted}"
    return f"nothing that was saved is lost. Go on with: nmt train --resume --run-dir {run.quoted}"


def _train(
    settings: Config, path: Path, resume: bool, checkpoint: Path | None, reporter: Reporter, processes: Processes
) -> EvaluationResult | None:
    from nmt.train import train as run_training
    from nmt.training.signals import Stopped

    try:
        return run_training(
            settings,
            path,
            resume=resume,
            reporter=reporter,
            command=["nmt", *sys.argv[1:]],
            checkpoint=checkpoint,
            processes=processes,
        )
    except Stopped as stop:
        if processes.first:
            reporter.info(f"{stop}; all is saved. Go on with: nmt train --resume --run-dir {shlex.quote(str(path))}")
        raise typer.Exit(stop.exit_code) from None


@app.command(short_help="Read, check and encode the data, and report on it.")
def prepare(config: ConfigOption, overrides: SetOption = None, run_dir: RunDirOption = None) -> None:
    """Do the data part of training alone: read, check, filter, learn the vocabulary, encode; and report.

    What it makes is kept in .nmt-cache beside the run's folder, so in runs/.nmt-cache unless --run-dir says otherwise,
    and used by all training runs that lie there. The run itself is not begun.

    \b
    nmt prepare --config my.yaml
    """
    from nmt.config import load_config
    from nmt.console import ConsoleReporter
    from nmt.prepare import prepare as prepare_data
    from nmt.run_dir import RunDir

    settings = load_config(config, overrides or ())
    with ConsoleReporter() as reporter:
        prepare_data(settings, RunDir(run_dir or _default_run(config)).cache_root, reporter)
