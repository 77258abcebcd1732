"""Measures how fast pairs of text are prepared for training and how much memory that takes, and how soon nmt is there.

python scripts/bench_data.py --pairs 5000000 --json data.json
python scripts/bench_data.py --startup --set 'data.train={hub: FOLDER, split: train}' --json startup.json
python scripts/bench_data.py --memory 1000000 10000000 --sample 200000

Pairs are generated (`generated_pairs.py`) into a temporary folder and prepared once in a process of their own, with
duplicates and uneven pairs dropped. The rate is of all that comes after the tokenizer was learnt: encoding, filtering,
writing, and flushing it all to disk. Another process then opens the result as training does. Memory is the peak of the
whole process (Linux; elsewhere as getrusage has it); what opening adds is without the pages of the mapped file.

With --startup: the median seconds of `nmt --help`, and from the command `nmt train` to the end of its first update,
with its data prepared before.

With --memory: for each of these numbers of pairs the peak of `nmt prepare` and of `nmt train` (60 updates of a small
model and a validation, the data prepared before), all of it and what no file stands for, the seconds to the first
update, and how much a pair adds from the smallest number to the largest. `--set tokenizer.sampling_alpha=0.2`, or any
other setting, holds for both commands. Linux alone says so much of a process.
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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench_timing import status, statuses

HELD_OUT = 1000  # pairs of the development set
HELP_REPEATS, UPDATE_REPEATS = 10, 5
MAX_RATIO = 3.0  # drops the pairs that were generated uneven
FIRST_UPDATE = "training:"  # what the progress line after it begins with
UPDATES = 60  # of a training whose memory is measured
PEAKS = {"peak_mib": "VmHWM", "anonymous_mib": "RssAnon"}
EVERY = 0.02  # seconds between two looks at a process


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


# --- memory by the number of pairs ----------------------------------------------------------------------------------


def memory_rows(sizes: Sequence[int], options: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """The peaks of preparing and of training on so many pairs each; texts and runs go when they are measured."""
    from generated_pairs import write_pairs

    for pairs in sorted(set(sizes)):
        with tempfile.TemporaryDirectory(dir=folder) as name:
            place = Path(name)
            write_pairs(place, "train", pairs, options.seed, options.words)
            write_pairs(place, "dev", HELD_OUT // 5, options.seed + 1, options.words)
            config = place / "small.yaml"
            config.write_text(json.dumps(small_config(place, options)), encoding="utf-8")
            for step in ("prepare", "train"):
                command = [sys.executable, "-m", "nmt", step, "--config", str(config), "--run-dir", str(place / "run")]
                for override in options.set:
                    command += ["--set", override]
                yield {"pairs": pairs, "command": step} | watched(command, place / f"{step}.log")


def small_config(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The settings of a training in which the data is what takes memory; JSON is YAML."""
    sources = {
        name: {side: str(folder / f"{name}.{side}") for side in ("src", "tgt")} for name in ("train", "dev")
    }  # fmt: skip
    size = {"hidden_size": 64}
    return {
        "data": {"src_lang": "en", "tgt_lang": "de"} | sources,
        "tokenizer": {"vocab_size": options.vocabulary, "sample_sentences": options.sample},
        "model": {"embedding_size": 64, "encoder": size, "decoder": size | {"kind": "luong", "score": "general"}},
        "training": {"max_steps": UPDATES, "validate_every": UPDATES, "batch_tokens": 2000, "device": "cpu"},
        "search": {"beam_size": 1, "max_length_ratio": 0.2},
        "evaluation": {"metrics": ["bleu"]},
    }


def watched(command: Sequence[str], log: Path) -> dict[str, float]:
    """Run a command; return its seconds, its peaks in MiB, and the seconds to its first update if there was one."""
    found = dict.fromkeys(PEAKS, 0.0)
    start = time.perf_counter()
    with log.open("wb") as said, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said) as process:
        while process.poll() is None:
            figures = statuses(process.pid)
            found |= {name: max(most, figures.get(PEAKS[name], 0.0)) for name, most in found.items() if name in PEAKS}
            if "first_update" not in found and f"\n{FIRST_UPDATE}" in log.read_text(encoding="utf-8"):
                found["first_update"] = time.perf_counter() - start
            time.sleep(EVERY)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{log.read_text(encoding='utf-8')}")
    return found | {"seconds": time.perf_counter() - start}


def bytes_a_pair(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """What a pair adds to the peaks of each command, from the smallest number of pairs to the largest."""
    found = {}
    for command in dict.fromkeys(row["command"] for row in rows):
        first, *_, last = (row for row in rows if row["command"] == command)
        added = last["pairs"] - first["pairs"]
        found[command] = {name: (last[name] - first[name]) * 2**20 / added for name in PEAKS}
    return found


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


def memory_line(row: Mapping[str, Any]) -> str:
    """The figures of one command on so many pairs."""
    update = f"{row['first_update']:8.1f} s" if "first_update" in row else ""
    return (
        f"{row['pairs']:>12,}  {row['command']:<8} {row['peak_mib']:>9,.0f} {row['anonymous_mib']:>10,.0f}"
        f" {row['seconds']:>9,.0f} {update}"
    ).rstrip()


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


def measure_memory(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure, and print what comes."""
    print("       pairs  command   peak MiB  anonymous   seconds   to the first update", flush=True)
    rows = []
    for row in memory_rows(options.memory, options, folder):
        rows.append(row)
        print(memory_line(row), flush=True)
    added = bytes_a_pair(rows)
    for command, by_name in added.items():
        print(f"{command}: {by_name['peak_mib']:.1f} bytes a pair, {by_name['anonymous_mib']:.1f} of them anonymous")
    return {"rows": rows, "bytes_a_pair": added}


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
    parser.add_argument("--memory", type=int, nargs="+", metavar="PAIRS", help="measure memory by the number of pairs")
    parser.add_argument("--config", default="multi30k-bahdanau.yaml", help="what --startup trains")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="a setting; repeatable")
    parser.add_argument("--json", type=Path, help="the figures, as JSON")
    options = parser.parse_args(args)
    if min(options.pairs, options.vocabulary, options.sample) < 1 or options.words < 1:
        parser.error("--pairs, --words, --vocabulary and --sample must be at least 1")
    if options.memory and (min(options.memory) < 1 or len(set(options.memory)) < 2 or options.startup):
        parser.error("--memory takes two numbers of pairs or more, each at least 1, and not --startup")
    if options.memory and not statuses("self"):
        parser.error("--memory needs /proc, as Linux has it")
    content: dict[str, Any] = {"cores": os.cpu_count()}
    with tempfile.TemporaryDirectory(prefix="bench_data_", dir=options.folder) as folder:
        if options.startup:
            times = {"nmt --help": help_seconds()}
            times["first update"] = update_seconds(options.config, options.set, Path(folder))
            content["startup"] = times
            print(startup_text(times))
        elif options.memory:
            content["memory"] = measure_memory(options, Path(folder))
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
