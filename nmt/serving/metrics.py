"""What a server counts, in the text format of Prometheus (exposition format 0.0.4). Standard library alone."""

from __future__ import annotations

import bisect
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    """How many values lie at or below each of some bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Counts a value."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str) -> Iterator[str]:
        """The histogram in Prometheus' format."""
        for bound, count in zip([*map(str, self.bounds), "+Inf"], accumulate(self.counts), strict=True):
            yield f'{name}_bucket{{le="{bound}"}} {count}'
        yield f"{name}_sum {self.sum:.6f}"
        yield f"{name}_count {sum(self.counts)}"


class Metrics:
    """Counts of one server; any thread may add to them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._sentences = 0
        self._failures = 0
        self._latency, self._batch_seconds = Histogram(SECONDS), Histogram(SECONDS)
        self._batch_sizes = Histogram(SENTENCES)

    def request(self, path: str, status: int, seconds: float) -> None:
        """Counts an answered request; `path` is one of the server's own."""
        with self._lock:
            self._requests[path, status] += 1
            if path == "/translate" and status == 200:
                self._latency.add(seconds)

    def batch(self, sentences: int, seconds: float) -> None:
        """Counts a batch."""
        with self._lock:
            self._sentences += sentences
            self._batch_sizes.add(sentences)
            self._batch_seconds.add(seconds)

    def failure(self, error: Exception) -> None:
        """Counts a batch that could not be translated."""
        with self._lock:
            self._failures += 1

    def text(self, waiting: int, running: int) -> str:
        """All counts; `waiting` sentences are in the queue, `running` ones being translated."""
        with self._lock:
            lines = [*self._lines(waiting, running)]
        return "\n".join(lines) + "\n"

    def _lines(self, waiting: int, running: int) -> Iterator[str]:
        yield from _head("nmt_requests_total", "counter", "Answered requests by path and status.")
        for (path, status), count in sorted(self._requests.items()):
            yield f'nmt_requests_total{{path="{path}",status="{status}"}} {count}'
        yield from _head("nmt_sentences_total", "counter", "Sentences translated.")
        yield f"nmt_sentences_total {self._sentences}"
        yield from _head("nmt_failed_batches_total", "counter", "Batches that could not be translated.")
        yield f"nmt_failed_batches_total {self._failures}"
        yield from _head("nmt_queue_sentences", "gauge", "Sentences that wait.")
        yield f"nmt_queue_sentences {waiting}"
        yield from _head("nmt_running_sentences", "gauge", "Sentences that are being translated.")
        yield f"nmt_running_sentences {running}"
        yield from _head("nmt_request_seconds", "histogram", "Time from a request to its translations.")
        yield from self._latency.lines("nmt_request_seconds")
        yield from _head("nmt_batch_sentences", "histogram", "Sentences of a batch.")
        yield from self._batch_sizes.lines("nmt_batch_sentences")
        yield from _head("nmt_batch_seconds", "histogram", "Time that a batch took.")
        yield from self._batch_seconds.lines("nmt_batch_seconds")
        if (memory := resident_bytes()) is not None:
            yield from _head("process_resident_memory_bytes", "gauge", "Memory of the server.")
            yield f"process_resident_memory_bytes {memory}"


def _head(name: str, kind: str, what: str) -> tuple[str, str]:
    return f"# HELP {name} {what}", f"# TYPE {name} {kind}"


def resident_bytes() -> int | None:
    """The process' resident memory, where Linux tells it."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return None
    line = next((line for line in status.splitlines() if line.startswith("VmRSS:")), None)
    return None if line is None else int(line.split()[1]) * 1024
