"""Answers that take long to build: the time of a request, and the end of a server, hold for them too."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn
from test_serve_app import SMALL, Shouter, Site, asked, served, shouting, until

from nmt.serving.api import TranslateAnswer, answer
from nmt.serving.app import Limits, Service, create_app
from nmt.serving.server import _serve, _Server, bind


class Building:
    """Answers that are being built until they are let."""

    def __init__(self) -> None:
        self.let, self.began = threading.Event(), threading.Event()

    def answer(self, *args: Any, **options: Any) -> TranslateAnswer:
        self.began.set()
        assert self.let.wait(20)
        return answer(*args, **options)


@pytest.fixture
def building(monkeypatch: pytest.MonkeyPatch) -> Iterator[Building]:
    found = Building()
    monkeypatch.setattr("nmt.serving.app.answer", found.answer)
    yield found
    found.let.set()


def test_building_an_answer_is_in_the_time_of_its_request_and_holds_up_no_other(building: Building) -> None:
    with served(Limits(seconds=0.5)) as site:
        assert [status for status, _ in (site.refused({"text": "a"}) for _ in range(3))] == [504] * 3
        assert site.ask("/health")[0] == 200
        assert building.began.is_set()


def drained(service: Service, grace: float, client: Callable[[int], None]) -> int:
    """Serves until `client`, in a thread of its own, has sent a signal; returns how many requests were given up."""
    with bind("127.0.0.1", 0) as bound:
        app = create_app(service, ["127.0.0.1"])
        config = uvicorn.Config(app, http="h11", ws="none", lifespan="off", log_config=None)
        bound.listen()
        thread = threading.Thread(target=client, args=(bound.getsockname()[1],))
        try:
            return asyncio.run(_serve(_Server(config), bound, service, grace, thread.start))
        finally:
            thread.join()
            assert service.queue.ended(10)


@pytest.mark.parametrize("grace", [20, 0.2])
def test_a_signal_waits_for_answers_that_are_being_built_but_not_for_ever(building: Building, grace: float) -> None:
    model, answers = Shouter(), []  # type: ignore[var-annotated]
    service = Service(shouting(model), SMALL, lambda error: None)

    def client(port: int) -> None:
        site = Site(service, port, model, [])
        with asked(site, "a") as found:
            assert building.began.wait(10)
            os.kill(os.getpid(), signal.SIGTERM)
            if grace > 1:
                until(lambda: service.draining)
                assert site.ask("/ready")[:2] == (503, {"status": "shutting down"})
                assert site.refused({"text": "late"}) == (503, "The server is shutting down.")
                assert found == [None]  # it is still at work
                building.let.set()
        answers.extend(found)

    assert drained(service, grace, client) == (0 if grace > 1 else 1)
    if grace < 1:
        assert answers == [(503, {"error": "The server is shutting down."})]
    else:
        assert [status for status, _ in answers] == [200]
