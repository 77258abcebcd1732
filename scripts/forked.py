"""The `nmt` command in processes that start in milliseconds, for tests and fault scripts that run it many times.

A process that imports torch and the rest anew spends four to five seconds on it. Here a server (multiprocessing's
"forkserver") imports everything once and computes nothing: a fork would lack OpenMP's threads. Each command is a fork
of it that is then made what `python -m nmt` would be: its own arguments, folder, environment and streams, and the
interpreter's exit codes. What the interpreter or a library reads once, at its start, is the server's: PYTHONHASHSEED,
PYTHONIOENCODING, the locale, the number of threads (one), warnings while importing. Tests of those, of the time to
start and of memory need real processes: tests/unit/test_cli.py, and those named at `nmt` in tests/integration/tiny.py.
Linux and macOS.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import TextIOWrapper
from multiprocessing import forkserver, reduction
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

LONGEST = 600  # seconds after which a process ends itself, should nobody be left to end it
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([
    "nmt.cli", "nmt.train", "nmt.prepare", "nmt.translate", "nmt.evaluate", "nmt.align", "nmt.attention_maps",
    "nmt.attention_page", "nmt.info", "nmt.average", "nmt.compare", "nmt.plotting", "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_pdf", "matplotlib.backends.backend_svg", "torch.utils.tensorboard",
    "tensorboard.compat.tensorflow_stub", "torch._dynamo",
])  # fmt: skip


class _Descriptor:
    """A file descriptor on its way to a new process, where it arrives as the number it has there."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        return _arrived, (reduction.DupFd(self.number),)


def _arrived(sent: Any) -> int:
    return int(sent.detach())


def start(
    args: list[str], cwd: Path, streams: tuple[int, int, int], before: Callable[[], None] | None = None
) -> multiprocessing.process.BaseProcess:
    """Start `nmt` with arguments in a folder; return the process, whose exit code is negative for a signal.

    `streams` are descriptors for stdin, stdout and stderr; the caller closes its own. `before`, a function of a module
    or a partial of one, is called first in the new process. The environment is the caller's as it is now.
    """
    one_thread = {"OMP_NUM_THREADS": "1"}
    with mock.patch.dict(os.environ, one_thread):  # OpenMP reads it when the server loads it
        forkserver.ensure_running()
        sent = [_Descriptor(number) for number in streams]
        process = _FORKS.Process(target=_command, args=(args, str(cwd), dict(os.environ), sent, before))
        process.start()
    return process


def run(args: list[str], cwd: Path, stdin: bytes = b"", timeout: float = 300) -> subprocess.CompletedProcess[bytes]:
    """Run `nmt` to its end, or kill it after `timeout` seconds and raise TimeoutExpired; streams are pipes."""
    (given, feed), (out, written), (err, said) = (os.pipe() for _ in range(3))
    theirs = (given, written, said)
    process = start(args, cwd, theirs)
    for end in theirs:
        os.close(end)
    with ThreadPoolExecutor(3) as pool:
        pool.submit(_feed, feed, stdin)
        texts = [pool.submit(_all, end) for end in (out, err)]
        process.join(timeout)
        if late := process.exitcode is None:
            process.kill()
            process.join()
        stdout, stderr = (text.result() for text in texts)
    if late:
        raise subprocess.TimeoutExpired(["nmt", *args], timeout, stdout, stderr)
    return subprocess.CompletedProcess(["nmt", *args], int(process.exitcode or 0), stdout, stderr)


def _feed(end: int, content: bytes) -> None:
    try:
        with os.fdopen(end, "wb") as pipe:
            pipe.write(content)
    except BrokenPipeError:  # it has not read all
        pass


def _all(end: int) -> bytes:
    with os.fdopen(end, "rb") as pipe:
        return pipe.read()


def _command(
    args: list[str], cwd: str, environment: dict[str, str], streams: list[int], before: Callable[[], None] | None
) -> NoReturn:
    """Become `python -m nmt`: what follows is what the interpreter does before and after a program."""
    signal.alarm(LONGEST)
    atexit._clear()  # type: ignore[attr-defined]  # these are the server's
    os.environ.clear()
    os.environ.update(environment)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        if stream > 2:
            os.close(stream)
    _make_streams()
    os.chdir(cwd)
    sys.path.insert(0, cwd)
    sys.argv = ["nmt", *args]
    code = 1
    try:
        if before is not None:
            before()
        runpy.run_module("nmt", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if not isinstance(ended.code, int | None):
            print(ended.code, file=sys.stderr)
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()  # type: ignore[attr-defined]
    os._exit(code & 0xFF if _flushed() else 120)


def _make_streams() -> None:
    """Make sys.stdin, stdout and stderr from the descriptors 0, 1 and 2 as the interpreter does."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        binary = open(number, "wb" if number else "rb", closefd=False)  # noqa: SIM115
        errors = "backslashreplace" if name == "stderr" else sys.__stdout__.errors  # type: ignore[union-attr]
        encoding = sys.__stdout__.encoding  # type: ignore[union-attr]
        binary.raw.name = f"<{name}>"  # type: ignore[attr-defined]
        lines = name == "stderr" or binary.isatty()
        text = TextIOWrapper(binary, encoding, errors, newline="\n", line_buffering=lines)
        text.mode = "w" if number else "r"  # type: ignore[misc]
        setattr(sys, name, text)
    # After all, as the encoding is that of the server's own.
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]


def _flushed() -> bool:
    """Tell whether all that was written has gone out."""
    good = True
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError) as error:
            good = False
            if stream is sys.stdout and sys.stderr is not None:
                print(f"Exception ignored in: {stream!r}\n{type(error).__name__}: {error}", file=sys.stderr)
    return good
