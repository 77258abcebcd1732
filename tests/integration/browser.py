"""A headless browser for tests, spoken to over the pipe of the DevTools protocol: it needs no driver, no package."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--no-default-browser-check", "--mute-audio", "--hide-scrollbars", "--window-size=1200,900",
)  # fmt: skip
KEYS = {"Tab": 9, "Escape": 27, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "ArrowLeft": 37, "Enter": 13}
TIMEOUT = 60.0

# The browser reads commands from descriptor 3 and answers on 4. (A shell may know descriptors of one digit alone.)
START = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)


def find_browser() -> str:
    """The browser's program. Without one the test is skipped, or fails where NMT_BROWSER_TESTS=required."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    if os.environ.get("NMT_BROWSER_TESTS") == "required":
        pytest.fail(f"no browser is installed: none of {', '.join(NAMES)} is on the path")
    pytest.skip("no browser is installed: apt-get install chromium")


class Page:
    """One tab, and what has happened in it: `requests`, `complaints` (console, exceptions, policy)."""

    def __init__(self, process: subprocess.Popen[bytes], commands: int, answers: int) -> None:
        self.process, self.commands, self.answers = process, commands, answers
        self.session: str | None = None
        self.number, self.unread = 0, b""
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.loaded = False
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "DOM"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """One command; its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + TIMEOUT
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result

    def receive(self, deadline: float) -> dict[str, Any]:
        """The next message; events are noted."""
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.answers], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            chunk = os.read(self.answers, 1 << 16)
            assert chunk, f"the browser has ended with {self.process.poll()}"
            self.unread += chunk
        line, _, self.unread = self.unread.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(str([argument.get("value") for argument in params["args"]]))
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])

    def open(self, place: Path | str) -> None:
        """Opens a file or an address and waits until it is loaded and drawn: keys before that are lost."""
        self.loaded = False
        self.send("Page.navigate", url=place if isinstance(place, str) else place.resolve().as_uri())
        deadline = time.monotonic() + TIMEOUT
        while not self.loaded:
            self.receive(deadline)
        self.ask("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Asks until the answer is true; returns it."""
        deadline = time.monotonic() + TIMEOUT
        while not (value := self.ask(expression)):
            assert time.monotonic() < deadline, expression
            time.sleep(0.05)
        return value

    def hover(self, selector: str) -> None:
        """Moves the mouse to the middle of an element."""
        self._mouse("mouseMoved", selector)

    def click(self, selector: str) -> None:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self._mouse(kind, selector)

    def _mouse(self, kind: str, selector: str) -> None:
        x, y = self.ask(f"""(() => {{
            const element = document.querySelector({json.dumps(selector)});
            element.scrollIntoView({{ block: "center" }});
            const box = element.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        }})()""")
        button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def press(self, key: str) -> None:
        """Presses and releases a key of KEYS."""
        for kind in ("rawKeyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key])

    def type(self, text: str) -> None:
        """Types into what has the focus."""
        self.send("Input.insertText", text=text)

    def screenshot(self, file: Path) -> None:
        file.write_bytes(b64decode(self.send("Page.captureScreenshot")["data"]))


@contextmanager
def browser_page() -> Iterator[Page]:
    """A fresh browser with one empty tab; it ends with the block."""
    program = find_browser()
    read_commands, commands = os.pipe()
    answers, write_answers = os.pipe()
    with tempfile.TemporaryDirectory(prefix="nmt-browser-", ignore_cleanup_errors=True) as profile:
        options = [*OPTIONS, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        process = subprocess.Popen(
            [sys.executable, "-c", START, str(read_commands), str(write_answers), program, *options],
            pass_fds=(read_commands, write_answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_commands)
        os.close(write_answers)
        try:
            yield Page(process, commands, answers)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(commands)
            os.close(answers)
