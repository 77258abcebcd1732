"""Trains a grid of experiments one after the other, and keeps a row of scores of each as it ends.

    python scripts/grid.py grid.yaml --out runs/grid
    python scripts/grid.py grid.yaml --out runs/grid --table

The grid is a YAML file: the configuration that all of them start from, settings of all, seeds, and by name the settings
of each experiment (none for the configuration as it is):

    config: multi30k-bahdanau.yaml
    set: [training.max_steps=6000]
    seeds: [1, 2, 3]
    experiments:
      base: []
      r_drop: [training.r_drop=3]
      r_drop_short: [training.r_drop=3, training.max_steps=3000]

An update with R-Drop reads its batch twice: `r_drop` compares with `base` by updates, `r_drop_short` by time. A cosine
schedule ends at `max_steps`: `max_minutes` would cut it, on each machine elsewhere.

All settings are checked before the first training. Every experiment is an `nmt train` of its own in OUT/NAME-SEED, and
`nmt eval` of both splits, whose reports go to stderr. Its row goes to OUT/experiments.tsv at once; what has scores
there is not trained again, and what was stopped is resumed, so the same command goes on with a grid that was cut. A
grid whose `config`, `set` or settings of a name have changed since is refused, as its table would mix two trainings. A
training that fails keeps a row, with the reason in the place of scores, and is tried again the next time; the exit code
is then 1. The table at the end is Markdown, and has the last failure of what has no scores: choose by dev, test is for
what was chosen. BLEU of dev and test as `nmt eval` has it, and of test in lower case too (sacreBLEU, case:lc).
"""

from __future__ import annotations

import argparse
import csv
import filecmp
import json
import os
import re
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml
from sacrebleu.metrics import BLEU

from nmt.config import Config, load_config, plain_settings
from nmt.data.pairs import read_split
from nmt.errors import NmtError
from nmt.run_dir import RunDir

NMT = (sys.executable, "-m", "nmt")
STOPPED = "stopped; the same command goes on"
OTHERWISE = "Give the experiment another name, or the grid another --out."
Run = Callable[[Sequence[str]], str | None]  # runs `nmt` with these arguments; why it failed, or None


@dataclass(frozen=True)
class Grid:
    """What to train. `experiments` maps a name to its settings, `--set` arguments all of them."""

    config: str
    common: tuple[str, ...]
    seeds: tuple[int, ...]
    experiments: dict[str, tuple[str, ...]]

    def sets(self, name: str, seed: int) -> tuple[str, ...]:
        """All settings of an experiment; of two of the same key the last counts."""
        return (*self.common, *self.experiments[name], f"training.seed={seed}")


@dataclass(frozen=True)
class Row:
    """One experiment, and what it was made of. Scores are BLEU; a failed one has none, and `note` says why."""

    name: str
    seed: int
    config: str
    common: str
    settings: str
    steps: str = ""
    minutes: str = ""
    dev: str = ""
    test: str = ""
    test_lowercased: str = ""
    note: str = ""


def read_grid(file: Path) -> Grid:
    """The grid in a file.

    Raises:
        SystemExit: when it cannot be read or is of another form, or for a setting that `nmt train` would refuse.
    """
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SystemExit(f"{file}: cannot be read as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict) or not isinstance(content.get("experiments"), dict) or "config" not in content:
        raise SystemExit(f"{file}: is no grid, which has config and experiments. --help shows one.")
    if unknown := content.keys() - {"config", "set", "seeds", "experiments"}:
        keys = "config, set, seeds, experiments"
        raise SystemExit(f"{file}: unknown key {', '.join(sorted(map(str, unknown)))}; the keys are {keys}.")
    seeds = content.get("seeds", [1])
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        raise SystemExit(f"{file}: seeds: must be a list of whole numbers such as [1, 2, 3], not {seeds!r}.")
    named = {str(name): _settings(file, f"experiments.{name}", sets) for name, sets in content["experiments"].items()}
    for name in named:
        if not re.fullmatch(r"[\w.+=-]*\w[\w.+=-]*", name):
            raise SystemExit(
                f"{file}: experiments.{name}: a name has letters, digits and . + = - _, as a folder is called so."
            )
    grid = Grid(str(content["config"]), _settings(file, "set", content.get("set")), tuple(seeds), named)
    _check_settings(file, grid)
    return grid


def _check_settings(file: Path, grid: Grid) -> None:
    """Refuses what `nmt train` would refuse hours later."""
    for name, settings in grid.experiments.items():
        config = _loaded(grid.config, (*grid.common, *settings), f"{file}: experiments.{name}: ")
        if config.data.test is None:
            raise SystemExit(f"{file}: experiments.{name}: data.test is missing, which a row has a score of.")
    for name in [*grid.experiments][:1]:  # a seed is right or wrong whatever the other settings are
        for seed in grid.seeds:
            _loaded(grid.config, grid.sets(name, seed), f"{file}: seeds: ")


def _loaded(config: str, sets: Sequence[str], where: str = "") -> Config:
    """The configuration with settings; the message that refuses it says where it comes from."""
    try:
        return load_config(config, sets)
    except NmtError as error:
        raise SystemExit(f"{where}{error}") from error


def _settings(file: Path, key: str, given: Any) -> tuple[str, ...]:
    """A list of settings, which may be missing."""
    if given is not None and not isinstance(given, list):
        raise SystemExit(f"{file}: {key}: must be a list of settings, such as [{given}].")
    return tuple(map(str, given or ()))


def read_rows(file: Path) -> list[Row]:
    """The rows so far.

    Raises:
        SystemExit: for a table of other columns, as one of an older version of this script is, or with a damaged row.
    """
    if not file.exists():
        return []
    columns = [field.name for field in fields(Row)]
    with file.open(encoding="utf-8", newline="") as stream:
        header, *lines = list(csv.reader(stream, delimiter="\t")) or [[]]
    if header != columns:
        raise SystemExit(
            f"{file}: is no table of this version of the script, whose columns are {', '.join(columns)}: what its "
            "scores are of cannot be compared with the grid. Give the grid another --out; this table stays as it is."
        )
    for place, line in enumerate(lines, 2):
        if len(line) != len(columns) or not re.fullmatch(r"\d+", line[1]):
            raise SystemExit(
                f"{file}, row {place}: is damaged. Mend it, or remove it to have it trained or scored again."
            )
    return [Row(name, int(seed), *rest) for name, seed, *rest in lines]


def append_row(file: Path, row: Row) -> None:
    """Adds a row, after the names of the columns if it is the first."""
    new = not file.exists()
    with file.open("a", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t", lineterminator="\n")
        if new:
            writer.writerow(field.name for field in fields(Row))
        writer.writerow(astuple(row))


def run_nmt(args: Sequence[str]) -> str | None:
    """Runs `nmt` on this terminal; returns the last line of its errors if it fails.

    Raises:
        SystemExit: when it was stopped, which is no failure.
    """
    print("$ nmt " + " ".join(args), file=sys.stderr, flush=True)
    process = subprocess.Popen([*NMT, *args], stdout=sys.stderr, stderr=subprocess.PIPE, text=True)
    last = ""
    assert process.stderr is not None
    try:
        for line in process.stderr:
            sys.stderr.write(line)
            last = line.strip() or last
        code = process.wait()
    except KeyboardInterrupt:  # on a terminal it has reached the training too, which saves
        code = process.wait()
        raise SystemExit(STOPPED) from None
    if code < 0 or code - 128 in (signal.SIGINT, signal.SIGTERM):
        raise SystemExit(STOPPED)
    return last if code else None


def lowercased_bleu(run: RunDir) -> float:
    """BLEU of the test split without regard to case, from the translations that `nmt eval` wrote."""
    config = run.settings()
    references = [target for _, target in read_split(config, "test")]
    hypotheses = (run.path / "eval" / "test.hyp.txt").read_text(encoding="utf-8").split("\n")[:-1]
    tokenize = config.evaluation.bleu_tokenize
    metric = BLEU(lowercase=True, tokenize=tokenize, trg_lang=config.data.tgt_lang)
    return float(metric.corpus_score(hypotheses, [references]).score)


def experiment(grid: Grid, name: str, seed: int, out: Path, run: Run) -> Row:
    """Trains (or goes on with) one experiment, scores it, and returns its row."""
    folder = RunDir(out / f"{name}-{seed}")
    sets = [part for setting in grid.sets(name, seed) for part in ("--set", setting)]
    resumed = ["--resume"] if folder.config.exists() else []
    failure = run(["train", "--config", grid.config, "--run-dir", str(folder.path), *resumed, *sets])
    row = Row(name, seed, grid.config, " ".join(grid.common), " ".join(grid.experiments[name]))
    if failure is not None:
        return replace(row, note=failure)
    scores = {}
    for split in ("dev", "test"):
        if (failure := run(["eval", "--run", str(folder.path), "--split", split])) is not None:
            return replace(row, note=failure)
        found = json.loads((folder.path / "eval" / f"{split}.json").read_text(encoding="utf-8"))
        scores[split] = f"{found['metrics']['bleu']['score']:.2f}"
    meta: dict[str, Any] = json.loads(folder.meta.read_text(encoding="utf-8"))
    minutes = f"{meta['training_seconds'] / 60:.1f}"
    lowercased = f"{lowercased_bleu(folder):.2f}"
    return replace(row, steps=str(meta["steps"]), minutes=minutes, test_lowercased=lowercased, **scores)


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown, in their order, seeds of an experiment together: means, and how far seeds lie apart.

    A failure is shown for a seed that has no scores, the last one of several.
    """
    lines = ["| experiment | seeds | steps | minutes | dev | test | test, lower case |", "| --- |" + " ---: |" * 6]
    for name in dict.fromkeys(row.name for row in rows):
        own = [row for row in rows if row.name == name]
        scored = [row for row in own if row.dev]
        if scored:
            seeds = ", ".join(str(row.seed) for row in scored)
            counts = [_mean([row.steps for row in scored], 0), _mean([row.minutes for row in scored], 1)]
            scores = [_mean([getattr(row, key) for row in scored], 2) for key in ("dev", "test", "test_lowercased")]
            lines.append(
                "| " + " | ".join([f"{name}: {scored[0].settings or 'as it is'}", seeds, *counts, *scores]) + " |"
            )
        last = {row.seed: row for row in own}
        for row in (last[seed] for seed in last if seed not in {each.seed for each in scored}):
            lines.append(f"| {name}: {row.settings or 'as it is'} | {row.seed} | failed: {row.note} | | | | |")
    return "\n".join(lines)


def _mean(values: Sequence[str], digits: int) -> str:
    """The mean, with the range of several."""
    numbers = [float(value) for value in values]
    mean = f"{statistics.fmean(numbers):,.{digits}f}"
    if len(numbers) == 1 or min(numbers) == max(numbers):
        return mean
    return f"{mean} ({min(numbers):,.{digits}f} to {max(numbers):,.{digits}f})"


def main(args: Sequence[str] | None = None, run: Run = run_nmt) -> None:
    """Parses the command line (the process' own by default), trains what has no row, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grid", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/grid"), help="default: runs/grid")
    parser.add_argument("--table", action="store_true", help="only print the table of the rows so far")
    options = parser.parse_args(args)
    grid, rows_file = read_grid(options.grid), options.out / "experiments.tsv"
    if not options.table:
        _refuse_mixing(grid, options.out, read_rows(rows_file), rows_file)
        options.out.mkdir(parents=True, exist_ok=True)
        for seed in grid.seeds:
            for name in grid.experiments:
                if (name, seed) not in _scored(read_rows(rows_file)):
                    append_row(rows_file, experiment(grid, name, seed, options.out, run))
    print(table(rows := read_rows(rows_file)))
    done = _scored(rows)
    if not options.table and any((name, seed) not in done for name in grid.experiments for seed in grid.seeds):
        raise SystemExit(1)


def _scored(rows: Sequence[Row]) -> set[tuple[str, int]]:
    """Name and seed of what has scores."""
    return {(row.name, row.seed) for row in rows if row.dev}


def _refuse_mixing(grid: Grid, out: Path, rows: Sequence[Row], rows_file: Path) -> None:
    """Refuses a grid of other settings than those that have scores in its table, or were begun in its folder.

    A folder of a run has all settings, so that a changed file of the configuration is found by them. Files of the data
    may be called otherwise as long as they hold the same.
    """
    for row in rows:
        shared = [f"config: {row.config}"] if row.config != grid.config else []
        shared += [f"set: {row.common or 'none'}"] if row.common != " ".join(grid.common) else []
        now = " ".join(grid.experiments[row.name]) if row.name in grid.experiments else row.settings
        other = [*shared, row.settings or "none"] if row.settings != now else shared
        if row.dev and other:
            way = "Give the grid another --out." if shared else OTHERWISE
            raise SystemExit(
                f"{rows_file}: {row.name}, seed {row.seed}, has scores of other settings ({'; '.join(other)}). {way}"
            )
    for name in grid.experiments:
        for seed in grid.seeds:
            begun = RunDir(out / f"{name}-{seed}").config
            if not begun.exists():
                continue
            old, new = _loaded(str(begun), ()), _loaded(grid.config, grid.sets(name, seed))
            if old.model_copy(update={"data": new.data}) != new or not _same_data(old, new):
                raise SystemExit(f"{begun.parent}: was begun with other settings ({begun.name} has them). {OTHERWISE}")


def _same_data(old: Config, new: Config) -> bool:
    """Whether the settings of the data agree, but for the names of files that hold the same."""
    ours, theirs = (dict(_leaves(plain_settings(config)["data"])) for config in (old, new))
    return ours.keys() == theirs.keys() and all(
        value == theirs[path] or _same_file(value, theirs[path]) for path, value in ours.items()
    )


def _leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested settings, each with its path."""
    if not isinstance(tree, dict | list):
        yield path, tree
        return
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield from _leaves(value, f"{path}.{key}")


def _same_file(one: Any, other: Any) -> bool:
    names = isinstance(one, str) and isinstance(other, str)
    return names and os.path.isfile(one) and os.path.isfile(other) and filecmp.cmp(one, other, shallow=False)


if __name__ == "__main__":
    main()
