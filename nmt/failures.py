"""How a command ends when it does not end well: one message and one exit code for each kind of failure."""

from __future__ import annotations

import select
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, TextIO

import typer
from typer.core import TyperGroup

from nmt import __version__
from nmt.errors import NmtError, is_full, is_out_of_memory, printable

REPORT = (
    "This is a defect of nmt, not a mistake of yours. Please report it to the issue tracker of nmt-trainer, "
    f"with the lines above, the command, and this version: nmt {__version__}, Python {sys.version.split()[0]}."
)


class Commands(TyperGroup):
    """The commands, and what any of them does on a failure, a signal or a closed pipe."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command of `args`; an option given twice that takes one value is refused."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            _refuse_repeated(command, typer.Context(command, info_name=name, parent=ctx), rest)
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for; every failure ends as one exit code."""
        try:
            with _terminated_as_exit():
                result = super().invoke(ctx)
                if sys.stdout is not None:
                    sys.stdout.flush()
                return result
        except BrokenPipeError:
            if not _results_are_unread():
                _fail("a program that read what nmt writes has ended.")
            _drop(sys.stdout)
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            say("interrupted")
            raise typer.Exit(130) from None
        except NmtError as error:
            _fail(str(error))
        except Exception as error:
            # Typer's own, for usage errors and exits, carry their code.
            if hasattr(error, "exit_code") or isinstance(error, typer.Abort):
                raise
            if (message := _outside_cause(error)) is not None:
                _fail(message)
            say(f"{traceback.format_exc()}\n{REPORT}")
            raise typer.Exit(1) from None


def _refuse_repeated(command: Any, ctx: typer.Context, args: list[str]) -> None:
    try:
        _, _, given = command.make_parser(ctx).parse_args(list(args))
    except Exception as error:
        if not hasattr(error, "exit_code"):
            raise
        return  # a usage error, which the command itself reports
    if any(param.is_eager for param in given):  # --help: nothing is run
        return
    for param in given:
        values = param.param_type_name == "option" and not (param.multiple or param.is_flag or param.count)
        if values and given.count(param) > 1:
            raise typer.BadParameter(f"given {given.count(param)} times; this command takes one.", ctx, param)


def _fail(message: str) -> NoReturn:
    say(f"error: {message}")
    raise typer.Exit(1) from None


def say(message: str) -> None:
    """Write to stderr, control characters spelt out; where it is closed, the exit code must do."""
    try:
        print(printable(message), file=sys.stderr, flush=True)
    except OSError:
        _drop(sys.stderr)


def _drop(stream: TextIO | None) -> None:
    from nmt.console import silence

    silence(stream)


def _results_are_unread() -> bool:
    """Tell whether the reader of stdout has gone."""
    try:
        sys.stdout.flush()
        descriptor = sys.stdout.fileno()
    except BrokenPipeError:
        return True
    except (AttributeError, OSError, ValueError):
        return False
    if not hasattr(select, "poll"):
        return True  # Windows cannot tell; results are what is read most
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _outside_cause(error: Exception) -> str | None:
    """Say in one sentence what the machine lacks, if that is why the command failed; None for our own defects."""
    if is_out_of_memory(error):
        return "out of memory. Use smaller batches: --set training.batch_tokens=N to train, --batch-tokens N otherwise."
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    if isinstance(error, UnicodeEncodeError) and "surrogates" in error.reason:
        return f"the name of a file or folder is not UTF-8: {error.object[-200:]!a}. Rename it."
    if isinstance(error, OSError) and is_full(error):
        return f"{error.strerror}. Free some disk space, or write elsewhere."
    return None


@contextmanager
def _terminated_as_exit() -> Iterator[None]:
    """Let SIGTERM unwind like an exit, so that temporary files go and the terminal is left in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is stop:  # otherwise what ends the process is to be told undisturbed
            signal.signal(signal.SIGTERM, before)
