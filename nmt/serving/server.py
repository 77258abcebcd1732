"""`nmt serve`: the socket, the server, and how it ends.

At the first signal the server is not ready any more and takes no further request, answers what it has within a time of
grace, and ends; at the second it ends at once.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import math
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from nmt.errors import NmtError
from nmt.reporting import Reporter
from nmt.serving.app import Limits, Served, Service, create_app

CONNECTIONS = 1000  # at once; more are answered with 503
CLOSING_SECONDS = 1  # at least, so that after the grace those whose requests are given up can be told
_REASONS = {
    errno.EADDRINUSE: "another program listens there. Choose another port with --port, or 0 for any free one",
    errno.EACCES: "this user may not listen there. Choose a port from 1024 on with --port",
    errno.EADDRNOTAVAIL: "this machine has no such address. Name one that it has with --host",
}


def bind(host: str, port: int) -> socket.socket:
    """A socket at that address, which does not listen yet.

    Raises:
        NmtError: if there is no such address, or the port is taken.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise NmtError(f"--host {host}: there is no such address here. Leave it out, or name one.") from error
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # elsewhere it would let two programs have one port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise _unavailable(host, port, error) from error
    return bound


def _unavailable(host: str, port: int, error: OSError) -> NmtError:
    reason = _REASONS.get(error.errno or 0, f"{error.strerror or error}. Choose another with --host and --port")
    return NmtError(f"{host}, port {port}: {reason}.")


def is_loopback(bound: socket.socket) -> bool:
    """Whether only this machine reaches the socket."""
    return ipaddress.ip_address(bound.getsockname()[0].partition("%")[0]).is_loopback


def address_of(bound: socket.socket) -> str:
    """The address to open in a browser."""
    host, port = bound.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def run_server(
    bound: socket.socket, host: str, served: Served, limits: Limits, grace: float, reporter: Reporter
) -> None:
    """Answers requests until a signal comes.

    `host` is what the address was called; on loopback the server answers to that name and those of loopback alone, so
    that no page of another site can reach it under a name of its own.

    Raises:
        NmtError: if another program has taken the port since.
    """
    loopback = is_loopback(bound)
    names = {"localhost", "127.0.0.1", "::1", host.lower(), bound.getsockname()[0]}
    service = Service(served, limits, lambda error: reporter.warning(_told(error)))
    config = uvicorn.Config(
        create_app(service, sorted(names) if loopback else ["*"]),
        loop="asyncio", http="h11", ws="none", lifespan="off", log_config=None, log_level="critical", access_log=False,
        server_header=False, proxy_headers=False, limit_concurrency=CONNECTIONS,
    )  # fmt: skip
    try:
        bound.listen(config.backlog)
    except OSError as error:
        raise _unavailable(host, bound.getsockname()[1], error) from error

    def ready() -> None:
        reporter.info(f"ready: {address_of(bound)} (Ctrl-C ends it)")
        if not loopback:
            reporter.warning(
                f"{host} is not loopback: anybody who reaches this port can use the model; there is no password."
            )

    unfinished = asyncio.run(_serve(_Server(config), bound, service, grace, ready))
    what = f"{unfinished:,} unfinished after {grace:g} s" if unfinished else "all requests answered"
    reporter.info(f"stopped: {what}")
    if unfinished or not service.queue.ended(1.0):
        # A thread may be inside a batch or an answer. Nothing can break that off, and the interpreter would wait for
        # the one, and end under the other.
        sys.stderr.flush()
        os._exit(0)


class _Server(uvicorn.Server):
    """uvicorn's, without its own handling of signals."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to `_signals`."""
        yield


async def _serve(
    server: _Server, bound: socket.socket, service: Service, grace: float, ready: Callable[[], None]
) -> int:
    """Serves until a signal comes, then drains; returns how many requests were given up."""
    stop = asyncio.Event()
    with _signals(asyncio.get_running_loop(), stop):
        running = asyncio.create_task(server.serve(sockets=[bound]))
        while not server.started and not running.done():
            await asyncio.sleep(0.005)
        ready()
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
        service.drain()
        deadline = time.monotonic() + grace
        unfinished = 0
        if not await service.requests.ended(grace):
            unfinished = service.requests.open
            service.queue.abort()
        # What is left of the grace is for clients to take the answers that are on their way.
        server.config.timeout_graceful_shutdown = max(CLOSING_SECONDS, math.ceil(deadline - time.monotonic()))
        server.should_exit = True
        await running
    return unfinished


@contextmanager
def _signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> Iterator[None]:
    """Sets `stop` at the first SIGINT or SIGTERM, and ends the process at the second."""
    came = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if came:
            os._exit(128 + number)
        came = True
        loop.call_soon_threadsafe(stop.set)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _told(error: Exception) -> str:
    """What is logged of a failure: no message but our own, as others may quote what was translated."""
    if isinstance(error, NmtError):
        return str(error)
    where = "".join(traceback.format_tb(error.__traceback__)).rstrip()
    return f"a request failed with {type(error).__name__}, its message left out as it may hold a user's text:\n{where}"
