"""The queue before a model: batches, order, limits, failures and the end, with a translator that only shouts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError

import pytest

from nmt.errors import NmtError
from nmt.serving.queue import BatchQueue, QueueClosedError, QueueFullError, TranslationFailedError

Queue = BatchQueue[str, str]
SECONDS = 10


def drained(queue: Queue) -> bool:
    """Waits until nothing waits or runs."""
    deadline = time.monotonic() + SECONDS
    while queue.waiting() or queue.running():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


class Model:
    """Translates into capitals once it is let; notes batches and failures."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[str]]] = []
        self.let = threading.Event()
        self.began = threading.Event()
        self.counted: list[int] = []
        self.failures: list[Exception] = []
        self.parts = 1

    def translate(self, lines: Sequence[str], key: str, go_on: Callable[[], None]) -> list[str]:
        self.batches.append((key, list(lines)))
        self.began.set()
        for _ in range(self.parts):
            assert self.let.wait(SECONDS)
            go_on()
        if "broken" in lines:
            raise NmtError("the model is broken")
        if "odd" in lines:
            raise ValueError("secret text")
        return [line.upper() for line in lines][: -1 if "short" in lines else None]

    def batch(self, sentences: int, seconds: float) -> None:
        self.counted.append(sentences)

    def failure(self, error: Exception) -> None:
        self.failures.append(error)


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def queue(model: Model) -> Iterator[Queue]:
    made: Queue = BatchQueue(model.translate, model, batch_characters=20, most_waiting=6)
    yield made
    model.let.set()
    made.abort()
    assert made.ended(SECONDS)


def occupied(queue: Queue, model: Model) -> None:
    """Puts a request into the model's hands, so that the next ones wait."""
    queue.submit(["first"], "a")
    assert model.began.wait(SECONDS)


def test_a_request_is_translated_at_once_and_by_itself_if_nothing_runs(queue: Queue, model: Model) -> None:
    model.let.set()
    assert queue.submit(["one", "two"], "a").future.result(SECONDS) == ["ONE", "TWO"]
    assert model.batches == [("a", ["one", "two"])]


def test_what_comes_meanwhile_shares_a_batch_and_each_gets_its_own(queue: Queue, model: Model) -> None:
    occupied(queue, model)
    jobs = [queue.submit(lines, "a") for lines in (["one"], ["two", "three"], ["four"])]
    assert queue.waiting() == 4
    model.let.set()
    assert [job.future.result(SECONDS) for job in jobs] == [["ONE"], ["TWO", "THREE"], ["FOUR"]]
    assert model.batches[1:] == [("a", ["one", "two", "three", "four"])]
    assert drained(queue)
    assert model.counted == [1, 4]


def test_many_clients_get_their_own_answers(model: Model) -> None:
    model.let.set()
    queue: Queue = BatchQueue(model.translate, model, batch_characters=200, most_waiting=10_000)
    wrong: list[str] = []

    def client(number: int) -> None:
        for turn in range(50):
            lines = [f"c{number} t{turn} l{line}" for line in range(1 + (number + turn) % 3)]
            found = queue.submit(lines, f"key{turn % 2}").future.result(SECONDS)
            if found != [line.upper() for line in lines]:
                wrong.append(f"{lines}: {found}")

    threads = [threading.Thread(target=client, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sum(model.counted) == sum(1 + (number + turn) % 3 for number in range(16) for turn in range(50))
    queue.close()
    assert queue.ended(SECONDS)


def test_only_requests_of_one_key_share_a_batch_and_the_oldest_is_first(queue: Queue, model: Model) -> None:
    occupied(queue, model)
    jobs = [queue.submit([line], key) for line, key in (("one", "b"), ("two", "a"), ("three", "b"))]
    model.let.set()
    assert [job.future.result(SECONDS) for job in jobs] == [["ONE"], ["TWO"], ["THREE"]]
    assert model.batches[1:] == [("b", ["one", "three"]), ("a", ["two"])]


def test_a_batch_takes_what_fits_and_at_least_one(queue: Queue, model: Model) -> None:
    occupied(queue, model)
    lines = ["x" * 100, "a" * 9, "b" * 9, "c"]
    jobs = [queue.submit([line], "a") for line in lines]
    model.let.set()
    assert [job.future.result(SECONDS) for job in jobs] == [[line.upper()] for line in lines]
    assert [batch for _, batch in model.batches[1:]] == [lines[:1], lines[1:3], lines[3:]]


def test_a_full_queue_refuses_and_says_when_to_come_again(queue: Queue, model: Model) -> None:
    occupied(queue, model)
    whole = queue.submit(["line"] * 50, "a")  # more than may wait, but nothing waits
    with pytest.raises(QueueFullError, match="50 sentences are waiting") as full:
        queue.submit(["more"], "a")
    assert full.value.retry_after >= 1
    model.let.set()
    assert whole.future.result(SECONDS) == ["LINE"] * 50
    assert queue.submit(["more"], "a").future.result(SECONDS) == ["MORE"]


def test_a_request_that_is_abandoned_leaves_the_queue(queue: Queue, model: Model) -> None:
    occupied(queue, model)
    gone, stays = queue.submit(["gone"], "a"), queue.submit(["stays"], "a")
    queue.abandon(gone)
    assert queue.waiting() == 1
    model.let.set()
    assert stays.future.result(SECONDS) == ["STAYS"]
    assert model.batches[1:] == [("a", ["stays"])]
    with pytest.raises(CancelledError):
        gone.future.result(SECONDS)


def test_a_batch_that_nobody_waits_for_ends_and_others_go_on(queue: Queue, model: Model) -> None:
    model.parts = 2
    job = queue.submit(["gone"], "a")
    assert model.began.wait(SECONDS)
    queue.abandon(job)
    model.let.set()
    assert drained(queue)
    assert (model.counted, model.failures) == ([], [])
    assert queue.submit(["more"], "a").future.result(SECONDS) == ["MORE"]


def test_a_failure_answers_all_of_its_batch_and_the_server_goes_on(queue: Queue, model: Model) -> None:
    occupied(queue, model)
    jobs = [queue.submit([line], "a") for line in ("fine", "broken")]
    model.let.set()
    for job in jobs:
        with pytest.raises(TranslationFailedError, match="the model is broken"):
            job.future.result(SECONDS)
    assert len(model.failures) == 1
    assert queue.submit(["more"], "a").future.result(SECONDS) == ["MORE"]


@pytest.mark.parametrize("line", ["odd", "short"])
def test_a_defect_is_reported_but_not_told_to_the_client(queue: Queue, model: Model, line: str) -> None:
    model.let.set()
    with pytest.raises(TranslationFailedError) as failed:
        queue.submit([line], "a").future.result(SECONDS)
    assert str(failed.value) == "An internal error; the server's log has more."
    assert len(model.failures) == 1


def test_a_closed_queue_finishes_what_it_has_and_takes_no_more(queue: Queue, model: Model) -> None:
    occupied(queue, model)
    job = queue.submit(["waits"], "a")
    queue.close()
    with pytest.raises(QueueClosedError):
        queue.submit(["late"], "a")
    model.let.set()
    assert drained(queue)
    assert job.future.result(0) == ["WAITS"]
    assert queue.ended(SECONDS)


def test_what_is_given_up_is_told_so(queue: Queue, model: Model) -> None:
    running = queue.submit(["first"], "a")
    assert model.began.wait(SECONDS)
    waiting = queue.submit(["waits"], "a")
    assert queue.abort() == 2
    for job in (running, waiting):
        with pytest.raises(QueueClosedError):
            job.future.result(0)
    model.let.set()
    assert queue.ended(SECONDS)
