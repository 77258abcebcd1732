"""Requests of many clients, translated in batches by one thread. Nothing here knows torch or HTTP.

A request that comes while nothing runs is translated at once. What comes meanwhile waits, and goes into the next batch
together, so that batches grow with the load and nobody waits for a batch to fill.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

from nmt.errors import NmtError

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class QueueFullError(Exception):
    """As many sentences wait as may. `retry_after` is when to come again, in whole seconds."""

    def __init__(self, waiting: int, retry_after: int) -> None:
        super().__init__(f"{waiting:,} sentences are waiting, as many as may. Try again in {retry_after} s.")
        self.retry_after = retry_after


class QueueClosedError(Exception):
    """The server is shutting down, and this request is not translated any more."""

    def __init__(self) -> None:
        super().__init__("The server is shutting down.")


class TranslationFailedError(Exception):
    """The batch that a request was in could not be translated; the message is for the client."""


class _Abandoned(Exception):
    """Nobody waits for the batch any more."""


class Job(Generic[K, T]):
    """One request: its lines, the key of those that it may share a batch with, and its translations to come."""

    def __init__(self, lines: Sequence[str], key: K) -> None:
        self.lines, self.key = lines, key
        self.size = sum(len(line) + 1 for line in lines)
        self.future: Future[Sequence[T]] = Future()
        self.abandoned = False


class Observer(Protocol):
    """Who wants to know of each batch."""

    def batch(self, sentences: int, seconds: float) -> None: ...
    def failure(self, error: Exception) -> None: ...


class BatchQueue(Generic[K, T]):
    """A queue with a limit, and the thread that empties it.

    Args:
        translate: gives one result a line, in order, of the lines of a batch and their key. It is called in that thread
            alone. What it gets as third it calls between parts of its work, and lets the exception of it through.
        observer: is told of each batch and each failure, in that thread.
        batch_characters: how many characters are taken into one batch; one request may have more.
        most_waiting: sentences that may wait; more are refused.
    """

    def __init__(
        self,
        translate: Callable[[Sequence[str], K, Callable[[], None]], Sequence[T]],
        observer: Observer,
        *,
        batch_characters: int,
        most_waiting: int,
    ) -> None:
        self._translate, self._observer = translate, observer
        self._batch_characters, self._most_waiting = batch_characters, most_waiting
        self._changed = threading.Condition()
        self._jobs: deque[Job[K, T]] = deque()
        self._running: list[Job[K, T]] = []
        self._closed = False
        self._sentences, self._seconds = 0, 0.0  # what has been translated, and how long that took
        self._thread = threading.Thread(target=self._work, name="translating", daemon=True)
        self._thread.start()

    def submit(self, lines: Sequence[str], key: K) -> Job[K, T]:
        """Puts a request in the queue.

        Raises:
            QueueFullError: if too many sentences wait; a request is taken whatever its size if none does.
            QueueClosedError: after `close`.
        """
        job: Job[K, T] = Job(lines, key)
        with self._changed:
            if self._closed:
                raise QueueClosedError
            waiting = self._count()
            if waiting and waiting + len(lines) > self._most_waiting:
                raise QueueFullError(waiting, self._until_empty(waiting))
            self._jobs.append(job)
            self._changed.notify_all()
        return job

    def abandon(self, job: Job[K, T]) -> None:
        """Says that nobody waits for a request any more: it leaves the queue, and a batch of such ones alone ends."""
        with self._changed:
            job.abandoned = True
            if job in self._jobs:
                self._jobs.remove(job)
            job.future.cancel()
            self._changed.notify_all()

    def waiting(self) -> int:
        """How many sentences are in the queue."""
        with self._changed:
            return self._count()

    def running(self) -> int:
        """How many sentences are being translated."""
        with self._changed:
            return sum(len(job.lines) for job in self._running)

    def close(self) -> None:
        """Takes no further request; what waits is still translated."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def abort(self) -> int:
        """Gives up what waits and runs: each request gets a QueueClosedError. Returns how many those were."""
        self.close()
        with self._changed:
            left = [job for job in [*self._jobs, *self._running] if not job.abandoned]
            for job in left:
                job.abandoned = True
                self._settle(job, QueueClosedError())
            self._jobs.clear()
            self._changed.notify_all()
        return len(left)

    def ended(self, seconds: float) -> bool:
        """Waits for the thread after `close`, at most that long; returns whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _count(self) -> int:
        return sum(len(job.lines) for job in self._jobs)

    def _until_empty(self, waiting: int) -> int:
        """Whole seconds until those that wait are through, at the speed so far; at least 1, at most a minute."""
        if not self._seconds:
            return 1
        return min(60, max(1, math.ceil(waiting * self._seconds / self._sentences)))

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while self._next():
            started = time.monotonic()
            sentences = sum(len(job.lines) for job in self._running)
            try:
                if self._run():
                    seconds = time.monotonic() - started
                    self._sentences += sentences
                    self._seconds += seconds
                    self._observer.batch(sentences, seconds)
            finally:
                with self._changed:
                    self._running = []
                    self._changed.notify_all()

    def _next(self) -> bool:
        """Waits for requests and takes the oldest, and with it what has its key and fits; False when all is done."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            if not self._jobs:
                return False
            key, size, rest = self._jobs[0].key, 0, deque[Job[K, T]]()
            for job in self._jobs:
                if job.key == key and (not self._running or size + job.size <= self._batch_characters):
                    self._running.append(job)
                    size += job.size
                else:
                    rest.append(job)
            self._jobs = rest
            return True

    def _run(self) -> bool:
        """Translates the requests that were taken; whatever goes wrong is their answer, and the thread goes on."""
        lines = [line for job in self._running for line in job.lines]
        try:
            found = self._translate(lines, self._running[0].key, self._go_on)
            if len(found) != len(lines):
                raise RuntimeError(f"{len(found)} translations of {len(lines)} lines")
        except _Abandoned:
            return False
        except Exception as error:
            self._observer.failure(error)
            told = str(error) if isinstance(error, NmtError) else "An internal error; the server's log has more."
            for job in self._running:
                self._settle(job, TranslationFailedError(told))
            return False
        start = 0
        for job in self._running:
            self._settle(job, found[start : start + len(job.lines)])
            start += len(job.lines)
        return True

    def _go_on(self) -> None:
        if all(job.abandoned for job in self._running):
            raise _Abandoned

    def _settle(self, job: Job[K, T], answer: Any) -> None:
        """Gives a request its translations or exception, unless it has been answered or nobody waits for it."""
        with self._changed:
            if job.future.done():
                return
            if isinstance(answer, Exception):
                job.future.set_exception(answer)
            else:
                job.future.set_result(answer)
