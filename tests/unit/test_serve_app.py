"""What clients get over HTTP, from a real server with a model that only shouts."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import uvicorn

from nmt.config import SearchConfig
from nmt.errors import NmtError
from nmt.serving.api import ModelAnswer, Units, answer
from nmt.serving.app import Limits, Served, Service, create_app
from nmt.serving.page import serve_page
from nmt.serving.server import address_of, bind, is_loopback
from nmt.translations import Candidate, Translation

SMALL = Limits(characters=200, lines=5, weighted=12, beam=4, waiting=3, seconds=20)
NOWHERE = Translation((Candidate("", (), 0.0, 0.0, False, None),), (), False)


class Shouter:
    """A translator into capitals, one piece a word; it waits until it is let, and fails at "fail" and "defect"."""

    alignment_shift = 0

    def __init__(self, search: SearchConfig | None = None) -> None:
        self.search = search or SearchConfig(beam_size=2)
        self.let = threading.Event()
        self.let.set()
        self.began = threading.Event()
        self.batches: list[list[str]] = []

    def searching(self, search: SearchConfig) -> Shouter:
        other = Shouter(search)
        other.let, other.began, other.batches = self.let, self.began, self.batches
        return other

    def translate(
        self, lines: Sequence[str], n_best: int, batch_tokens: int, keep_weights: bool, before_each: Callable[[], None]
    ) -> list[Translation]:
        self.batches.append([*lines])
        self.began.set()
        assert self.let.wait(10)
        before_each()
        if "fail" in lines:
            raise NmtError("out of memory")
        if "defect" in lines:
            raise ValueError("secret: defect")
        return [self.shouted(line, n_best, keep_weights) if line.split() else NOWHERE for line in lines]

    def shouted(self, line: str, n_best: int, keep_weights: bool) -> Translation:
        words = line.split()
        numbers = tuple(range(len(words)))
        best = Candidate(
            f"{line.upper()} beam {self.search.beam_size}", (*words, "beam", "n"), -0.5, -1.0, "cut" in words,
            np.eye(len(words) + 3 - ("cut" in words), len(words) + 1) if keep_weights else None,
            (*numbers, len(words), len(words) + 1) if keep_weights else (),
        )  # fmt: skip
        return Translation((best,) * n_best, tuple(words), False, numbers if keep_weights else ())


@dataclass
class Site:
    service: Service
    port: int
    model: Shouter
    reported: list[Exception]

    def ask(
        self, path: str = "/translate", content: Any = None, body: Any = None, method: str | None = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        """Status, content and headers of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        if content is not None:
            body, headers = json.dumps(content), {"Content-Type": "application/json", **headers}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method or ("GET" if body is None else "POST"), path, body, named)
        answer = connection.getresponse()
        text, sent = answer.read().decode(), {name.lower(): value for name, value in answer.getheaders()}
        connection.close()
        return answer.status, json.loads(text) if sent["content-type"] == "application/json" else text, sent

    def refused(self, content: Any, **headers: str) -> tuple[int, str]:
        status, found, _ = self.ask(content=content, **headers)
        assert found.keys() == {"error"}
        return status, found["error"]

    def metric(self, sample: str) -> str | None:
        lines = self.ask("/metrics")[1].splitlines()
        return next((line.rpartition(" ")[2] for line in lines if line.startswith(f"{sample} ")), None)


def shouting(model: Shouter, kind: str = "luong") -> Served:
    return Served(model, "en", "ar", (ModelAnswer(name="small", kind=kind, step=7),))  # type: ignore[arg-type]


@contextmanager
def served(limits: Limits = SMALL, kind: str = "luong") -> Iterator[Site]:
    model, reported = Shouter(), []  # type: ignore[var-annotated]
    service = Service(shouting(model, kind), limits, reported.append)
    app = create_app(service, ["127.0.0.1"])
    config = uvicorn.Config(app, http="h11", ws="none", lifespan="off", log_config=None, timeout_graceful_shutdown=1)
    server, bound = uvicorn.Server(config), bind("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, args=([bound],))
    port = bound.getsockname()[1]
    thread.start()
    while not server.started:
        time.sleep(0.005)
    try:
        yield Site(service, port, model, reported)
    finally:
        model.let.set()
        server.should_exit = True
        thread.join()
        service.queue.abort()
        assert service.queue.ended(10)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with served() as found:
        yield found


# --- translations ---------------------------------------------------------------------------------------------------


def test_a_text_gives_a_translation_a_line_and_a_list_one_an_entry(site: Site) -> None:
    def texts(text: object) -> list[str]:
        status, found, _ = site.ask(content={"text": text})
        assert status == 200
        return [entry["text"] for entry in found["translations"]]

    assert texts("one\r\n\ntwo\u2028three\n") == ["ONE beam 2", "", "TWO\u2028THREE beam 2"]
    assert texts(["one\ntwo", " ", "three"]) == ["ONE\nTWO beam 2", "", "THREE beam 2"]


def test_an_answer_has_scores_alignments_and_the_n_best(site: Site) -> None:
    [entry] = site.ask(content={"text": "a cut", "n_best": 3})[1]["translations"]
    best = {"text": "A CUT beam 3", "score": -0.5, "alignment": [[0, 0], [1, 1]]}
    assert entry == {
        **best, "truncated": False, "n_best": [{**best, "log_prob": -1.0, "length_limited": True}] * 3
    }  # fmt: skip


def test_weights_come_if_they_are_asked_for(site: Site) -> None:
    [blank, entry] = site.ask(content={"text": ["", "a b"], "weights": "words"})[1]["translations"]
    assert "source" not in blank
    assert entry["source"] == ["a", "b", "</s>"]
    [one] = entry["n_best"]
    assert one["weights"]["target"] == ["A", "B", "beam", "2", "</s>"]
    assert one["weights"]["rows"] == [[1000, 0, 0], [0, 1000, 0], [0, 0, 1000], [0, 0, 0], [0, 0, 0]]


def test_a_beam_of_its_own_is_searched_with(site: Site) -> None:
    found = site.ask(content={"text": "a", "beam": 4})[1]["translations"]
    assert [entry["text"] for entry in found] == ["A beam 4"]


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("limited", [False, True])
def test_alignments_are_the_same_with_weights_and_without(shift: int, limited: bool) -> None:
    weights = np.random.default_rng(7).dirichlet(np.ones(6), size=8)[: 7 if limited else 8]
    weights[2] = 0
    words = 0, 0, 1, 2, 2, 3, 4
    one = Candidate("a b c d e", tuple("abcdefg"), -1.0, -2.0, limited, weights, words)
    whole = Translation((one,), tuple("vwxyz"), False, (0, 1, 1, 2, 2))
    units: list[Units | None] = [None, "words", "pieces"]
    found = [answer(["v w x"], [whole], shift=shift, weights=unit).translations[0].alignment for unit in units]
    assert found[0]
    assert found == [found[0]] * 3


def test_a_model_without_attention_gives_no_weights_and_its_page_says_so() -> None:
    with served(kind="none") as site:
        told = "weights: this model has no attention; leave them out."
        assert site.refused({"text": "a", "weights": "words"}) == (422, told)
        assert site.ask(content={"text": "a"})[1]["translations"][0]["alignment"] == []
        assert site.ask("/info")[1]["attention"] is False
        assert "no attention" in site.ask("/")[1]


def test_an_odd_language_does_not_break_the_page() -> None:
    page, _ = serve_page('e"n><b>', "</script>", ["small"], attends=True, beam=5)
    assert '<textarea id="text" rows="3" dir="auto" lang=""' in page
    assert '"tags":{"s":"","t":""}' in page
    assert "<b>" not in page
    page, _ = serve_page("zh_CN", "de", ["small"], attends=True, beam=5)
    assert 'dir="auto" lang="zh-CN"' in page
    assert '"tags":{"s":"zh-CN","t":"de"}' in page


@pytest.mark.parametrize(
    ("beam", "choices"),
    [(1, ["1*"]), (2, ["1", "2*"]), (5, ["1", "3", "5*"]), (8, ["1", "3", "5*", "8"]), (12, ["1", "3", "5*", "10"])],
)
def test_the_page_offers_no_more_translations_than_the_beam_has(beam: int, choices: list[str]) -> None:
    page, _ = serve_page("en", "ar", ["small"], attends=True, beam=beam)
    found = re.findall(r"<option( selected)?>(\d+)</option>", page)
    assert [number + "*" * bool(selected) for selected, number in found] == choices


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        ({"text": ""}, 422, "text: there is nothing to translate."),
        ({"text": []}, 422, "text: there is nothing to translate."),
        ({"text": 3}, 422, "text: must be a text, or a list of texts, in Unicode."),
        ({"text": ["a", None]}, 422, "text: must be a text, or a list of texts, in Unicode."),
        ({"text": "secret \ud800"}, 422, "text: holds a lone surrogate, which is no Unicode character."),
        ({}, 422, "text: must be a text, or a list of texts, in Unicode."),
        ({"text": "a", "n_bset": 3}, 422, "n_bset: Extra inputs are not permitted."),
        ({"text": "a", "n_best": 0}, 422, "n_best: Input should be greater than or equal to 1."),
        ({"text": "a", "n_best": 5}, 422, "n_best: at most 4 here, and 5 were asked for."),
        ({"text": "a", "beam": 5}, 422, "beam: at most 4 here, and 5 were asked for."),
        ({"text": "a", "beam": 1, "n_best": 2}, 422, "n_best: 2 translations need a beam of 2 or more."),
        ({"text": "a" * 201}, 413, "text: 201 characters, and at most 200 are translated at a time."),
        ({"text": ["a"] * 6}, 413, "text: 6 lines, and at most 5 are translated at a time."),
        ({"text": "a", "n_best": 10**3000}, 422, "n_best: Input should be less than or equal to 1000."),
        ({"text": "a", "beam": 10**3000}, 422, "beam: Input should be less than or equal to 1000."),
        ({"text": "a", "n" * 60: 3}, 422, "n" * 50 + ": Extra inputs are not permitted."),
        (
            {"text": ["a"] * 4, "n_best": 4, "weights": "words"},
            413,
            "weights: 4 lines with 4 translations each are 16, and at most 12 have their weights given at a time. Send "
            "fewer lines, or ask for fewer translations.",
        ),
        (["a"], 422, 'Send a JSON object such as {"text": "…"}.'),
    ],
)
def test_a_wrong_request_gets_one_message(site: Site, content: Any, status: int, message: str) -> None:
    assert site.refused(content) == (status, message)


def test_what_is_no_json_is_refused(site: Site) -> None:
    assert site.ask(body='{"text"', Content_Type="application/json")[:2] == (400, {"error": "The body is not JSON."})
    digits = '{"text": "a", "beam": 1' + "0" * 5000 + "}"  # more than Python reads
    with served(Limits(seconds=20)) as large:
        assert large.ask(body=digits, Content_Type="application/json")[0] == 400
    assert site.ask("/translate")[:2] == (405, {"error": "Method Not Allowed"})
    assert site.ask("/docs")[:2] == (404, {"error": "Not Found"})


@pytest.mark.parametrize("kind", [{}, {"Content_Type": "text/plain"}, {"Content_Type": "application/jsonp"}])
def test_what_a_page_of_another_site_can_send_is_refused(site: Site, kind: dict[str, str]) -> None:
    before = len(site.model.batches)
    status, found, _ = site.ask(body='{"text": "a"}', **kind)
    told = 'Send a JSON object such as {"text": "…"} with Content-Type: application/json.'
    assert (status, found) == (415, {"error": told})
    assert len(site.model.batches) == before
    assert site.ask(body='{"text": "a"}', Content_Type="Application/JSON; charset=utf-8")[0] == 200


def received(client: socket.socket) -> bytes:
    """All that comes until the server closes the connection."""
    parts: list[bytes] = []
    with suppress(ConnectionResetError):
        while part := client.recv(10_000):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_not_read_to_its_end(site: Site, chunked: bool) -> None:
    with socket.create_connection(("127.0.0.1", site.port), timeout=10) as client:
        size = "Transfer-Encoding: chunked" if chunked else "Content-Length: 1000000000"
        head = f"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{size}\r\n\r\n"
        client.sendall(head.encode() + b"1388\r\n" + b" " * 5000)
        answer = received(client)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"The request is larger than 3,464 bytes." in answer


def test_a_body_that_does_not_come_is_not_waited_for_long() -> None:
    with (
        served(Limits(seconds=0.1)) as site,
        socket.create_connection(("127.0.0.1", site.port), timeout=10) as client,
    ):
        head = "POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 9"
        client.sendall(f"{head}\r\n\r\n{{".encode())
        assert received(client).startswith(b"HTTP/1.1 408 ")


def test_the_time_of_a_request_counts_from_its_coming() -> None:
    body = b'{"text": "a"}'
    head = "POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
    with served(Limits(seconds=1.5)) as site, socket.create_connection(("127.0.0.1", site.port), timeout=10) as client:
        site.model.let.clear()
        started = time.monotonic()
        client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:-1])
        time.sleep(1.2)
        client.sendall(body[-1:])
        assert received(client).startswith(b"HTTP/1.1 504 ")
        assert time.monotonic() - started < 2.6  # and not 1.2 + 1.5


def test_only_the_hosts_of_the_server_are_answered(site: Site) -> None:
    told = (
        "This server was asked for by a name that is not its own. It answers to 127.0.0.1; for another name start it "
        "with --host NAME."
    )
    assert site.ask("/", Host="evil.example")[:2] == (400, {"error": told})
    assert site.ask("/", Host=f"127.0.0.1:{site.port}")[0] == 200


# --- the queue ------------------------------------------------------------------------------------------------------


@contextmanager
def asked(site: Site, *texts: str) -> Iterator[list[tuple[int, Any]]]:
    """Asks for each text in a thread of its own; after the block the answers are in the list, in order."""
    found: list[Any] = [None] * len(texts)

    def ask(place: int) -> None:
        found[place] = site.ask(content={"text": texts[place]})[:2]

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(texts))]
    for thread in threads:
        thread.start()
    yield found
    for thread in threads:
        thread.join()


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture
def busy() -> Iterator[Site]:
    """A server whose model is at work until it is let."""
    with served() as site:
        site.model.let.clear()
        with asked(site, "first"):
            assert site.model.began.wait(10)
            yield site
            site.model.let.set()


def test_a_full_queue_says_when_to_come_again_and_the_rest_is_answered(busy: Site) -> None:
    with asked(busy, "one", "two", "three") as found:
        until(lambda: busy.service.queue.waiting() == 3)
        status, content, headers = busy.ask(content={"text": "four"})
        assert (status, int(headers["retry-after"]) >= 1) == (503, True)
        assert content["error"].startswith("3 sentences are waiting, as many as may.")
        assert (busy.metric("nmt_queue_sentences"), busy.metric("nmt_running_sentences")) == ("3", "1")
        busy.model.let.set()
    texts = [content["translations"][0]["text"] for _, content in found]
    assert texts == ["ONE beam 2", "TWO beam 2", "THREE beam 2"]
    assert sorted(busy.model.batches[1]) == ["one", "three", "two"]
    assert busy.metric('nmt_requests_total{path="/translate",status="503"}') == "1"
    assert busy.metric("nmt_sentences_total") == "4"
    assert busy.metric("nmt_batch_sentences_count") == "2"


def test_a_client_that_goes_leaves_the_queue(busy: Site) -> None:
    body = json.dumps({"text": "gone"}).encode()
    head = f"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", busy.port), timeout=10) as client:
        client.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        until(lambda: busy.service.queue.waiting() == 1)
    until(lambda: busy.service.queue.waiting() == 0)
    busy.model.let.set()
    assert busy.ask(content={"text": "next"})[0] == 200
    assert busy.model.batches == [["first"], ["next"]]


def test_an_answer_that_takes_too_long_is_a_504() -> None:
    with served(Limits(seconds=0.5)) as site:
        site.model.let.clear()
        status, error = site.refused({"text": "a"})
        assert (status, error[:35]) == (504, "No translation within 0.5 seconds. ")
        site.model.let.set()
        assert len(site.service.queue.submit(["b"], (2, 1)).future.result(10)) == 1


def test_a_failure_of_the_model_is_told_and_the_server_goes_on(site: Site) -> None:
    assert site.refused({"text": "fail"}) == (500, "out of memory")
    assert site.refused({"text": "defect"}) == (500, "An internal error; the server's log has more.")
    assert [type(error) for error in site.reported] == [NmtError, ValueError]
    assert site.ask(content={"text": "a"})[0] == 200


def test_a_server_that_drains_answers_what_it_has_and_is_not_ready(busy: Site) -> None:
    with asked(busy, "waits") as found:
        until(lambda: busy.service.queue.waiting() == 1)
        assert busy.ask("/ready")[:2] == (200, {"status": "ready"})
        busy.service.drain()
        assert busy.ask("/ready")[:2] == (503, {"status": "shutting down"})
        assert busy.ask("/health")[:2] == (200, {"status": "alive"})
        assert busy.refused({"text": "late"}) == (503, "The server is shutting down.")
        busy.model.let.set()
    assert found[0][0] == 200


# --- the rest -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/health", "/ready"])
def test_the_head_alone_is_that_of_the_answer(site: Site, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=20)
    connection.request("HEAD", path)
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    assert answer.getheader("content-type") == site.ask(path)[2]["content-type"]
    connection.close()


def test_info_says_what_is_served(site: Site) -> None:
    found = site.ask("/info")[1]
    assert found["models"] == [{"name": "small", "kind": "luong", "step": 7}]
    assert (found["src_lang"], found["tgt_lang"], found["attention"]) == ("en", "ar", True)
    assert found["search"]["beam_size"] == 2
    assert found["limits"] == {"characters": 200, "lines": 5, "weighted": 12, "beam": 4, "seconds": 20}


def test_nothing_may_be_framed_kept_or_loaded_from_elsewhere(site: Site) -> None:
    for path in ("/", "/info", "/nothing"):
        headers = site.ask(path)[2]
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
    _, page, headers = site.ask("/")
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
    assert policy.removesuffix("; frame-ancestors 'none'") in page


def test_a_port_that_is_taken_and_an_address_that_is_none_are_told() -> None:
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(NmtError, match=r"another program listens there\. Choose another port with --port"):
            bind("127.0.0.1", taken.getsockname()[1])
        assert is_loopback(taken)
    with pytest.raises(NmtError, match=r"--host no\.such\.host\.invalid: there is no such address"):
        bind("no.such.host.invalid", 0)
    with bind("0.0.0.0", 0) as open_to_all:
        assert not is_loopback(open_to_all)
        assert address_of(open_to_all) == f"http://127.0.0.1:{open_to_all.getsockname()[1]}/"
