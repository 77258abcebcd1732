"""A running `nmt serve` for tests."""

from __future__ import annotations

import http.client
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tiny import forked


class Server:
    """The process, its port, and what it says on stderr, line by line."""

    def __init__(self, process: Any, said: int) -> None:
        self.process = process
        self.lines: list[str] = []
        self._stream = os.fdopen(said, encoding="utf-8")
        for line in self._stream:
            self.lines.append(line.rstrip("\n"))
            if found := re.search(r"^ready: http://127\.0\.0\.1:(\d+)/", line):
                self.port = int(found[1])
                break
        else:
            raise AssertionError("\n".join(self.lines))
        # What it says from here on is read at once, so that it never waits for a reader.
        self._reader = threading.Thread(target=lambda: self.lines.extend(self._stream.read().splitlines()))
        self._reader.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def ask(self, path: str = "/translate", **content: object) -> tuple[int, Any]:
        """Status and content of an answer; with content it is a POST."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = json.dumps(content) if content else None
        connection.request("POST" if body else "GET", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
        found = answer.status, text if path == "/metrics" else json.loads(text)
        connection.close()
        return found

    def wait_until_busy(self) -> None:
        """Waits until sentences are being translated."""
        deadline = time.monotonic() + 30
        while "\nnmt_running_sentences 0\n" in self.ask("/metrics")[1]:
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def ended(self) -> int:
        """The exit code, after the end; all that was said is in `lines`."""
        self.process.join(60)
        self._reader.join(60)
        return int(self.process.exitcode)


@contextmanager
def server(*args: object, cwd: Path) -> Iterator[Server]:
    """Starts `nmt serve` at a free port; ends it after the block if it still runs."""
    nothing, (said, say) = os.open(os.devnull, os.O_RDWR), os.pipe()
    process = forked.start(["serve", "--port", "0", *map(str, args)], cwd, (nothing, nothing, say))
    os.close(nothing)
    os.close(say)
    try:
        yield Server(process, said)
    finally:
        process.terminate()
        process.join(60)
        assert process.exitcode is not None
