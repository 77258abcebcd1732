"""What stands around every request: whom it asks, its kind, size and time, the headers of its answer, the count, and
what goes wrong.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from nmt.serving.metrics import Metrics

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

# No answer may be framed, guessed at, or kept; what a page may load is the page's own policy.
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)

_HOST = re.compile(r"(?:\[([^\]]*)\]|([^:\[\]]*))(?::\d*)?")  # a name or [IPv6 address], with a port or without
_CLOSE = {"connection": "close"}  # where a body is not read, the connection is of no further use


class Requests:
    """How many requests are here whose answers have not been sent; for the event loop alone."""

    def __init__(self) -> None:
        self.open = 0
        self._changed = asyncio.Event()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Counts one during the block."""
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1
            self._changed.set()

    async def ended(self, seconds: float) -> bool:
        """Waits until none is here, at most that long; returns whether that came about."""
        deadline = time.monotonic() + seconds
        while self.open:
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), max(0.0, deadline - time.monotonic()))
            except asyncio.TimeoutError:
                return False
        return True


class Guard:
    """Middleware.

    It tells what it stands around until when the answer must be ready: the scope's "deadline", of `time.monotonic`.

    Args:
        app: what answers.
        hosts: names and addresses that requests may ask for; `*` for any.
        requests: knows of each until its answer has been sent.
        metrics: counts the answers.
        paths: those that are counted by name.
        most_bytes: of a body; a longer one is refused before it is read, or once it has become too long.
        seconds: from a request's first line to its answer; here the body's share of them is kept.
        report: is told of an exception that nobody expected.
    """

    def __init__(
        self,
        app: App,
        *,
        hosts: Sequence[str],
        requests: Requests,
        metrics: Metrics,
        paths: frozenset[str],
        most_bytes: int,
        seconds: float,
        report: Callable[[Exception], None],
    ) -> None:
        self.app, self.requests, self.metrics, self.paths = app, requests, metrics, paths
        self.hosts = list(dict.fromkeys(host.lower().strip("[]") for host in hosts))
        self.most_bytes, self.seconds, self.report = most_bytes, seconds, report

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        with self.requests.one():
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        started = time.monotonic()
        deadline = started + self.seconds
        status = 0

        async def guarded_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
            await send(message)

        try:
            if (refusal := self._refused(scope)) is not None:
                await refusal(scope, receive, guarded_send)
            else:
                await self.app({**scope, "deadline": deadline}, self._limited(receive, deadline), guarded_send)
        except asyncio.CancelledError:  # the server ends, and nothing has time any more
            if not status:
                failure = JSONResponse({"error": "The server is shutting down."}, 503, headers=_CLOSE)
                await failure(scope, receive, guarded_send)
            raise
        except Exception as error:
            self.report(error)
            if not status:
                failure = JSONResponse({"error": "An internal error; the server's log has more."}, 500)
                await failure(scope, receive, guarded_send)
        finally:
            path = scope["path"] if scope["path"] in self.paths else "other"
            self.metrics.request(path, status, time.monotonic() - started)

    def _refused(self, scope: Message) -> JSONResponse | None:
        """The answer to a request whose headers tell that it is none for this server."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if not self._is_asked(headers.get(b"host", b"").decode("latin-1")):
            told = (
                f"This server was asked for by a name that is not its own. It answers to {', '.join(self.hosts)}; "
                "for another name start it with --host NAME."
            )
            return JSONResponse({"error": told}, 400, headers=_CLOSE)
        # A page of another site can send any other kind of content without the browser's asking about it.
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if scope["method"] == "POST" and kind != b"application/json":
            told = 'Send a JSON object such as {"text": "…"} with Content-Type: application/json.'
            return JSONResponse({"error": told}, 415, headers=_CLOSE)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.most_bytes:
            return JSONResponse({"error": self._too_large()}, 413, headers=_CLOSE)
        return None

    def _is_asked(self, host: str) -> bool:
        """Whether a Host header means this server."""
        if "*" in self.hosts:
            return True
        parts = _HOST.fullmatch(host.strip())
        return parts is not None and (parts[1] or parts[2] or "").lower() in self.hosts

    def _too_large(self) -> str:
        return f"The request is larger than {self.most_bytes:,} bytes. Send less text at a time."

    def _limited(self, receive: Receive, deadline: float) -> Receive:
        """Receives the body in time and size, and after it what else comes, whenever it does."""
        size, ended = 0, False

        async def limited() -> Message:
            nonlocal size, ended
            if ended:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(0.0, deadline - time.monotonic()))
            except asyncio.TimeoutError:
                told = f"The request has not come within {self.seconds:g} seconds."
                raise HTTPException(408, told, _CLOSE) from None
            size += len(message.get("body", b""))
            if size > self.most_bytes:
                raise HTTPException(413, self._too_large(), _CLOSE)
            ended = not message.get("more_body", False)
            return message

        return limited
