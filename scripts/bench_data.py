"""Measures how fast pairs of text are prepared for training and how much memory that takes, and how soon nmt is there.

python scripts/bench_data.py --pairs 5000000 --json data.json
python scripts/bench_data.py --startup --set 'data.train={hub: FOLDER, split: train}' --json startup.json

Pairs are generated (`generated_pairs.py`) into a temporary folder and prepared once in a process of their own, with
duplicates and uneven pairs dropped. The rate is of all that comes after the tokenizer was learnt: encoding, filtering,
writing, and flushing it all to disk. Another process then opens the result as training does. Memory is the peak of the
whole process (Linux; elsewhere as getrusage has it); what opening adds is without the pages of the mapped file.

With --startup: the median seconds of `nmt --help`, and from the command `nmt train` to the end of its first update,
with its data prepared before.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench_timing import status

HELD_OUT = 1000  # pairs of the development set
HELP_REPEATS, UPDATE_REPEATS = 10, 5
MAX_RATIO = 3.0  # drops the pairs that were generated uneven
FIRST_UPDATE = "training:"  # what the progress line after it begins with


# --- in a process of its own --------------------------------------------------------------------------------------


def prepare_in(folder: Path, vocabulary: int, sample: int) -> dict[str, Any]:
    """Prepare the pairs in a folder; return seconds by stage, memory and sizes."""
    from nmt.config import Config
    from nmt.prepare import prepare
    from nmt.reporting import SilentReporter

    def source(name: str) -> dict[str, str]:
        return {"src": str(folder / f"{name}.src"), "tgt": str(folder / f"{name}.tgt")}

    data = {"src_lang": "en", "tgt_lang": "de", "train": source("train"), "dev": source("dev")}
    data |= {"max_ratio": MAX_RATIO, "drop_duplicates": True}
    config = Config.model_validate({"data": data, "tokenizer": {"vocab_size": vocabulary, "sample_sentences": sample}})
    before = status("VmHWM")
    start = time.perf_counter()
    prepared = prepare(config, folder / "cache", SilentReporter())
    wall = time.perf_counter() - start
    report = prepared.report
    seconds = report["seconds"]
    after = wall - seconds["counting"] - seconds["learning"]
    where = Path(report["where"])
    return {
        "pairs": report["train"]["read"],
        "kept": report["train"]["kept"],
        "dropped": {reason: drops["count"] for reason, drops in report["train"]["dropped"].items()},
        "pieces_a_pair": report["train"]["src"]["mean"] + report["train"]["tgt"]["mean"],
        "pairs_per_second": report["train"]["read"] / after,
        "seconds": {name: spent for name, spent in seconds.items() if name != "total"} | {"all": round(wall, 2)},
        "lines_learnt_from": report["vocabulary"]["lines"],
        "peak_mib": status("VmHWM"),
        "imports_mib": before,
        "disk_mib": sum(file.stat().st_size for file in where.rglob("*") if file.is_file()) / 2**20,
        "train": str(where / "train.arrow"),
    }


def open_corpus(path: Path) -> dict[str, Any]:
    """Open an encoded corpus; return the seconds, and what it added to the memory that no file stands for."""
    from nmt.data.store import EncodedCorpus

    before = status("RssAnon")
    start = time.perf_counter()
    corpus = EncodedCorpus(path)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "mib": status("RssAnon") - before, "bytes_a_pair": own_bytes(corpus) / len(corpus)}


def own_bytes(corpus: Any) -> int:
    """Bytes of the arrays that a corpus holds itself."""
    return int(corpus.src_lengths.nbytes + corpus.tgt_lengths.nbytes)


def in_fresh_process(step: str, *arguments: object) -> dict[str, Any]:
    """Run one of the steps above in a new Python."""
    command = [sys.executable, __file__, "--step", step, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


# --- start-up -----------------------------------------------------------------------------------------------------


def help_seconds() -> list[float]:
    """Seconds of `nmt --help`, once to warm up and then as often as wanted."""
    return [_timed([sys.executable, "-m", "nmt", "--help"]) for _ in range(1 + HELP_REPEATS)][1:]


def _timed(command: Sequence[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def update_seconds(config: str, overrides: Sequence[str], folder: Path) -> list[float]:
    """Seconds from `nmt train` to the end of its first update; a first run prepares the data and does not count."""
    found = []
    for number in range(1 + UPDATE_REPEATS):
        command = [sys.executable, "-m", "nmt", "train", "--config", config, "--run-dir", str(folder / str(number))]
        for override in (*overrides, "training.max_steps=1"):
            command += ["--set", override]
        start = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            said = []
            for line in process.stderr:
                said.append(line)
                if line.startswith(FIRST_UPDATE):
                    found.append(time.perf_counter() - start)
                    break
            process.kill()
        if len(found) <= number:
            raise SystemExit(f"{' '.join(command)} ended before its first update:\n{''.join(said)}")
    return found[1:]


# --- what is written ----------------------------------------------------------------------------------------------


def prepared_text(found: Mapping[str, Any]) -> str:
    """The figures of preparing, for people."""
    seconds = ", ".join(f"{name} {spent:.1f}" for name, spent in found["seconds"].items())
    opened = found["open"]
    return "\n".join(
        [
            f"{found['pairs']:,} pairs, {found['pieces_a_pair']:.1f} pieces each; {found['kept']:,} kept",
            f"after the tokenizer    {found['pairs_per_second']:,.0f} pairs a second",
            f"seconds                {seconds}",
            f"peak memory            {found['peak_mib']:,.0f} MiB, {found['imports_mib']:,.0f} of them before any data",
            f"on disk                {found['disk_mib']:,.0f} MiB",
            f"opening                {opened['seconds']:.2f} s, {opened['mib']:,.0f} MiB of its own, "
            f"{opened['bytes_a_pair']:.0f} bytes a pair",
        ]
    )


def startup_text(found: Mapping[str, Sequence[float]]) -> str:
    """The medians of the times to start, with the fastest and the slowest."""
    return "\n".join(
        f"{name:<22} {statistics.median(times):.2f} s, median of {len(times)} ({min(times):.2f} to {max(times):.2f})"
        for name, times in found.items()
    )


# --- command line -------------------------------------------------------------------------------------------------


def measure_preparing(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Generate, prepare, open."""
    from generated_pairs import write_pairs

    start = time.perf_counter()
    size = write_pairs(folder, "train", options.pairs, options.seed, options.words)
    write_pairs(folder, "dev", HELD_OUT, options.seed + 1, options.words)
    spent = time.perf_counter() - start
    print(f"generated {size / 2**20:,.0f} MiB in {spent:.0f} s under {folder}", file=sys.stderr)
    found = in_fresh_process("prepare", folder, options.vocabulary, options.sample)
    return found | {"text_mib": size / 2**20, "open": in_fresh_process("open", found.pop("train"))}


def main(args: Sequence[str] | None = None) -> None:
    """Parses the command line, measures, prints, and writes what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1_000_000, help="how many are generated (default 1000000)")
    parser.add_argument("--words", type=float, default=14.0, help="mean words of a source sentence (default 14)")
    parser.add_argument("--vocabulary", type=int, default=8000, help="pieces of the joint vocabulary (default 8000)")
    parser.add_argument("--sample", type=int, default=1_000_000, help="lines it is learnt from (default 1000000)")
    parser.add_argument("--seed", type=int, default=1, help="of the generated text")
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made, on a disk with enough room")
    parser.add_argument("--startup", action="store_true", help="measure the start of nmt instead")
    parser.add_argument("--config", default="multi30k-bahdanau.yaml", help="what --startup trains")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="a setting of it; repeatable")
    parser.add_argument("--json", type=Path, help="the figures, as JSON")
    options = parser.parse_args(args)
    if min(options.pairs, options.vocabulary, options.sample) < 1 or options.words < 1:
        parser.error("--pairs, --words, --vocabulary and --sample must be at least 1")
    content: dict[str, Any] = {"cores": os.cpu_count()}
    with tempfile.TemporaryDirectory(prefix="bench_data_", dir=options.folder) as folder:
        if options.startup:
            times = {"nmt --help": help_seconds()}
            times["first update"] = update_seconds(options.config, options.set, Path(folder))
            content["startup"] = times
            print(startup_text(times))
        else:
            content["prepare"] = measure_preparing(options, Path(folder))
            print(prepared_text(content["prepare"]))
    if options.json:
        options.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def run_step(step: str, arguments: Sequence[str]) -> None:
    """Do what `in_fresh_process` asked for, and print it as JSON."""
    if step == "prepare":
        found = prepare_in(Path(arguments[0]), *map(int, arguments[1:]))
    else:
        found = open_corpus(Path(arguments[0]))
    print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--step"]:
        run_step(sys.argv[2], sys.argv[3:])
    else:
        main()
