"""`nmt serve` under load: many clients at once, every answer compared with that sentence translated alone beforehand.

Prints JSON: requests lost, failed or wrong, latency, requests a second, and the server's memory before the load and
after each thousand requests. Ends with 1 if an answer was lost, failed, wrong or another sentence's, if the server did
not end with 0, or if its memory grew by more than `--growth` MiB from the second thousand on. Linux.

    python scripts/load_serve.py --run runs/luong --input data/demo/train.en
    python scripts/load_serve.py --model exports/luong --input data/demo/train.en

A model exported with int8 rounds with one scale a batch, so there some answers may well be "wrong".
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nmt.cli.loading import choose_model
from nmt.cli.options import SearchOptions
from nmt.data.text import read_lines

TIE = 1e-4  # of scores: rounding, which differs with the batch, may decide between two that are nearer


@dataclass
class Tally:
    """What came of the requests so far, shared by all clients."""

    expected: dict[str, tuple[str, float]]
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def judge(self, line: str, status: int, body: bytes) -> str:
        """Say what an answer is."""
        if status != 200:
            return f"failed with {status}"
        [entry] = json.loads(body)["translations"]
        text, score = self.expected[line]
        if entry["text"] == text:
            return "right"
        if any(entry["text"] == other for other, _ in self.expected.values()):
            return "crossed"  # whatever the score
        return "tied" if abs(entry["score"] - score) < TIE else "wrong"


def resident(pid: int) -> float:
    """Return a process' memory in MiB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return round(int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024, 1)


def client(address: tuple[str, int], lines: list[str], tally: Tally, pid: int) -> None:
    """Ask for one line after the other over one connection."""
    connection = http.client.HTTPConnection(*address, timeout=120)
    for line in lines:
        started = time.perf_counter()
        try:
            body = json.dumps({"text": [line]}).encode()
            connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            outcome = tally.judge(line, answer.status, answer.read())
        except (OSError, http.client.HTTPException):
            connection.close()
            outcome = "lost"
        except (ValueError, LookupError, TypeError):  # the answer is no JSON, or another one than was asked for
            outcome = "malformed"
        with tally.lock:
            tally.outcomes[outcome] += 1
            tally.seconds.append(time.perf_counter() - started)
            if len(tally.seconds) % 1000 == 0:
                tally.memory.append(resident(pid))


def translated_alone(options: argparse.Namespace, lines: list[str]) -> dict[str, tuple[str, float]]:
    """Return text and score of each line, translated by itself."""
    translator = choose_model(
        options.model, options.run, checkpoint=None, device="auto", int8=options.int8,
        search=SearchOptions(options.beam, None, None, None), alignments=True,
    ).load()  # fmt: skip
    found = {}
    for line in lines:
        [one] = translator.translate([line])
        found[line] = one.text, one.score
    return found


def percentiles(seconds: list[float]) -> dict[str, float]:
    """Return some of them, in milliseconds."""
    ordered = sorted(seconds)
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {
        name: round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1)
        for name, share in shares.items()
    }


def arguments(options: argparse.Namespace) -> list[str]:
    """Return those of `nmt serve`."""
    models = [("--model", options.model)] if options.model else [("--run", run) for run in options.run]
    beam = [("--beam", options.beam)] if options.beam else []
    return [*(str(part) for pair in [*models, *beam] for part in pair), *(["--int8"] if options.int8 else [])]


def load(options: argparse.Namespace, lines: list[str]) -> dict[str, Any]:
    """Serve the model, ask for all lines, end the server; return the figures."""
    clients = options.clients
    tally = Tally(translated_alone(options, lines))
    command = [sys.executable, "-m", "nmt", "serve", "--port", "0", *arguments(options)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        address = next((found for line in server.stderr if (found := re.search(r"http://([\d.]+):(\d+)/", line))), None)
        if address is None:
            raise SystemExit("the server did not start")
        said: list[str] = []
        reader = threading.Thread(target=said.extend, args=(server.stderr,))  # at once, so that the server never waits
        reader.start()
        memory = resident(server.pid)
        where = address[1], int(address[2])
        threads = [
            threading.Thread(target=client, args=(where, lines[number::clients], tally, server.pid))
            for number in range(clients)
        ]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wall = time.perf_counter() - started
        server.send_signal(signal.SIGTERM)
        reader.join()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "requests": len(tally.seconds),
        "clients": clients,
        "outcomes": dict(tally.outcomes),
        "requests_per_s": round(len(tally.seconds) / wall, 1),
        "latency_ms": percentiles(tally.seconds),
        "server_cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
        "wall_s": round(wall, 1),
        "memory_mib": {"start": memory, "each_thousand": tally.memory},
        "exit_code": server.returncode,
        "last_words": "".join(said).strip(),
    }


def main() -> int:
    """Run the load, print the figures, and judge them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--run", type=Path, action="append", default=[], help="several are an ensemble")
    which.add_argument("--model", type=Path, help="an exported one")
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--input", type=Path, required=True, help="sentences, one a line")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--beam", type=int, default=None)
    parser.add_argument("--growth", type=float, default=32.0, help="MiB")
    given = parser.parse_args()
    distinct = list(dict.fromkeys(line for line in read_lines(given.input) if line.strip()))[: given.requests]
    if len(distinct) < given.requests:
        raise SystemExit(f"{given.input} has only {len(distinct)} different sentences")
    found = load(given, distinct)
    print(json.dumps(found, indent=2))
    later = found["memory_mib"]["each_thousand"][1:]
    flat = not later or max(later) - later[0] <= given.growth
    return int(not flat or found["exit_code"] != 0 or not {*found["outcomes"]} <= {"right", "tied"})


if __name__ == "__main__":
    raise SystemExit(main())
