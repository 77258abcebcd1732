"""The web application of `nmt serve`: a page, and the same translations as JSON. No text of a user is logged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from nmt import __version__
from nmt.config import search_with
from nmt.data.text import is_unicode
from nmt.serving.api import (
    ErrorAnswer,
    InfoAnswer,
    ModelAnswer,
    StateAnswer,
    TranslateAnswer,
    TranslateRequest,
    Units,
    answer,
)
from nmt.serving.guard import Guard, Requests
from nmt.serving.metrics import CONTENT_TYPE, Metrics
from nmt.serving.page import serve_page
from nmt.serving.queue import BatchQueue, QueueClosedError, QueueFullError, TranslationFailedError
from nmt.translations import LineTranslator, Translation

PATHS = frozenset({"/", "/translate", "/health", "/ready", "/metrics", "/info", "/openapi.json"})
CHARACTERS_A_PIECE = 4  # about: what goes into a batch is cut to its tokens by the translator itself
GONE = 499  # the client has; nobody reads this status but the metrics

T = TypeVar("T")
Search = tuple[int, int]  # beam and n-best: sentences with the same ones share a batch


@dataclass(frozen=True)
class Limits:
    """What one request may ask for, and how much may wait.

    `characters` and `lines` are those of a request, `weighted` its translations, n-best of all lines, that may have
    weights; `waiting` sentences may be in the queue, `seconds` may pass from a request's coming to its answer;
    `batch_tokens` is that of the translator.
    """

    characters: int = 10_000
    lines: int = 100
    weighted: int = 200
    beam: int = 20
    waiting: int = 1000
    seconds: float = 60.0
    batch_tokens: int = 4096

    @property
    def body_bytes(self) -> int:
        """Of a request: a character is at most 12 bytes of JSON, and the lines' quotes and commas come to that."""
        return 12 * self.characters + 8 * self.lines + 1024


@dataclass(frozen=True)
class Served:
    """A loaded model, and what there is to say of it; `models` are several for an ensemble."""

    translator: LineTranslator
    src_lang: str
    tgt_lang: str
    models: tuple[ModelAnswer, ...]

    @property
    def attends(self) -> bool:
        """Whether any of the models has attention."""
        return any(model.kind != "none" for model in self.models)


class Service:
    """The queue before a model, and its counts. `report` is told of what nobody expected, without any user's text."""

    def __init__(self, served: Served, limits: Limits, report: Callable[[Exception], None]) -> None:
        self.served, self.limits, self.report = served, limits, report
        self.metrics, self.requests = Metrics(), Requests()
        # Answers are built beside the event loop: many lines with weights take a while, in which others are answered.
        self.builders = ThreadPoolExecutor(2, thread_name_prefix="answering")
        self.draining = False
        self.queue: BatchQueue[Search, Translation] = BatchQueue(
            self._translate,
            self,
            batch_characters=CHARACTERS_A_PIECE * limits.batch_tokens,
            most_waiting=limits.waiting,
        )

    def batch(self, sentences: int, seconds: float) -> None:
        """Counts a batch."""
        self.metrics.batch(sentences, seconds)

    def failure(self, error: Exception) -> None:
        """Counts and reports a batch that failed."""
        self.metrics.failure(error)
        self.report(error)

    def drain(self) -> None:
        """Is not ready any more, and takes no further request."""
        self.draining = True
        self.queue.close()

    def search(self, wanted: TranslateRequest) -> Search:
        """Beam and n-best of a request, as `nmt translate` understands them.

        Raises:
            HTTPException: if they are too large, or do not go together.
        """
        own = self.served.translator.search.beam_size
        most = max(own, self.limits.beam)
        beam = wanted.beam if wanted.beam is not None else max(own, wanted.n_best)
        if wanted.beam is not None and wanted.beam < wanted.n_best:
            raise HTTPException(422, f"n_best: {wanted.n_best} translations need a beam of {wanted.n_best} or more.")
        if beam > most:
            name = "n_best" if wanted.beam is None else "beam"
            raise HTTPException(422, f"{name}: at most {most} here, and {beam} were asked for.")
        if beam == 1 and self.served.translator.search.rerank != "none":
            raise HTTPException(422, "beam: this server chooses among the hypotheses of a beam; ask for 2 or more.")
        return beam, wanted.n_best

    def _translate(self, lines: Sequence[str], search: Search, go_on: Callable[[], None]) -> Sequence[Translation]:
        beam, n_best = search
        translator = self.served.translator
        if beam != translator.search.beam_size:
            translator = translator.searching(search_with(translator.search, {"beam_size": beam}))
        return translator.translate(
            lines, n_best, self.limits.batch_tokens, keep_weights=self.served.attends, before_each=go_on
        )


def create_app(service: Service, hosts: Sequence[str]) -> FastAPI:
    """The application; `hosts` are the names that it answers to, `*` for any."""
    app = FastAPI(
        title="nmt serve",
        version=__version__,
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        # Whatever the environment says: spans and logs could hold the text.
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
    )
    app.add_middleware(
        Guard,
        hosts=hosts,
        requests=service.requests,
        metrics=service.metrics,
        paths=PATHS,
        most_bytes=service.limits.body_bytes,
        seconds=service.limits.seconds,
        report=service.report,
    )
    _add_errors(app)
    _add_state(app, service)
    _add_translation(app, service)
    return app


def _add_errors(app: FastAPI) -> None:
    """Every error is one JSON object with one message."""

    @app.exception_handler(HTTPException)
    async def told(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        problems = error.errors()
        if any(problem["type"] == "json_invalid" for problem in problems):
            return JSONResponse({"error": "The body is not JSON."}, 400)
        if any(problem["loc"] == ("body",) for problem in problems):
            return JSONResponse({"error": 'Send a JSON object such as {"text": "…"}.'}, 422)
        return JSONResponse({"error": " ".join(dict.fromkeys(map(_problem, problems)))}, 422)


def _problem(problem: Any) -> str:
    """One sentence on a field that is wrong; what was sent is not in it."""
    names = [str(part) for part in problem["loc"][1:] if not isinstance(part, int)]
    name = names[0] if names else "body"
    if name == "text":
        return "text: must be a text, or a list of texts, in Unicode."
    return f"{name[:50]}: {problem['msg']}."


def _add_state(app: FastAPI, service: Service) -> None:
    """Adds what tells how the server is."""
    served, limits = service.served, service.limits
    names, beam = [model.name for model in served.models], served.translator.search.beam_size
    page, policy = serve_page(served.src_lang, served.tgt_lang, names, attends=served.attends, beam=beam)

    @app.get("/", include_in_schema=False)
    async def show_page() -> Response:
        return Response(page, media_type="text/html", headers={"content-security-policy": policy})

    @app.get("/health", response_model=StateAnswer)
    async def health() -> StateAnswer:
        return StateAnswer(status="alive")

    @app.get("/ready", response_model=StateAnswer, responses={503: {"model": StateAnswer}})
    async def ready() -> Response:
        state = StateAnswer(status="shutting down" if service.draining else "ready")
        return JSONResponse(state.model_dump(), 503 if service.draining else 200)

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        return Response(service.metrics.text(service.queue.waiting(), service.queue.running()), media_type=CONTENT_TYPE)

    for path, shown in (("/", show_page), ("/health", health), ("/ready", ready)):  # monitors ask for the head alone
        app.head(path, include_in_schema=False)(shown)

    @app.get("/info", response_model=InfoAnswer)
    async def info() -> InfoAnswer:
        return InfoAnswer(
            nmt=__version__,
            src_lang=served.src_lang,
            tgt_lang=served.tgt_lang,
            models=list(served.models),
            attention=served.attends,
            search=served.translator.search.model_dump(),
            limits={
                "characters": limits.characters,
                "lines": limits.lines,
                "weighted": limits.weighted,
                "beam": max(limits.beam, served.translator.search.beam_size),
                "seconds": limits.seconds,
            },
        )


def _add_translation(app: FastAPI, service: Service) -> None:
    errors: dict[int | str, dict[str, Any]] = {
        status: {"model": ErrorAnswer, "description": HTTPStatus(status).phrase}
        for status in (400, 408, 413, 415, 422, 500, 503, 504)
    }

    @app.post("/translate", response_model=TranslateAnswer, responses=errors)
    async def translate(request: Request, wanted: TranslateRequest) -> Response:
        """Translates sentences; the results are those of `nmt translate`."""
        lines = _checked_lines(wanted, service.limits)
        search = service.search(wanted)
        _check_weights(wanted, service, len(lines))
        gone = asyncio.create_task(_disconnected(request))
        try:
            found = await _answer(service, lines, search, wanted.weights, gone, request.scope["deadline"])
        except _GoneError:
            return Response(status_code=GONE)
        finally:
            gone.cancel()
        return Response(found, media_type="application/json")


def _closing(error: QueueClosedError) -> HTTPException:
    return HTTPException(503, str(error), {"retry-after": "5", "connection": "close"})


def _check_weights(wanted: TranslateRequest, service: Service, lines: int) -> None:
    """Refuses weights that a model does not have, or too many of them."""
    if wanted.weights is None:
        return
    if not service.served.attends:
        raise HTTPException(422, "weights: this model has no attention; leave them out.")
    translations, most = lines * wanted.n_best, service.limits.weighted
    if translations > most:
        raise HTTPException(
            413,
            f"weights: {lines:,} lines with {wanted.n_best} translations each are {translations:,}, and at most "
            f"{most:,} have their weights given at a time. Send fewer lines, or ask for fewer translations.",
        )


def _checked_lines(wanted: TranslateRequest, limits: Limits) -> list[str]:
    """The sentences of a request, if they are not too many or too long."""
    texts = [wanted.text] if isinstance(wanted.text, str) else wanted.text
    if not all(map(is_unicode, texts)):
        raise HTTPException(422, "text: holds a lone surrogate, which is no Unicode character.")
    lines = wanted.lines()
    if not lines:
        raise HTTPException(422, "text: there is nothing to translate.")
    characters = sum(map(len, lines))
    if characters > limits.characters:
        raise HTTPException(
            413, f"text: {characters:,} characters, and at most {limits.characters:,} are translated at a time."
        )
    if len(lines) > limits.lines:
        raise HTTPException(413, f"text: {len(lines):,} lines, and at most {limits.lines:,} are translated at a time.")
    return lines


class _GoneError(Exception):
    """The client has gone."""


async def _answer(
    service: Service,
    lines: Sequence[str],
    search: Search,
    weights: Units | None,
    gone: asyncio.Future[None],
    deadline: float,
) -> str:
    """Has lines translated and the answer built.

    Raises:
        HTTPException: if it is not there at the deadline, or there is none.
        _GoneError: if `gone` is done before.
    """
    try:
        job = service.queue.submit(lines, search)
        try:
            translations = await _in_time(asyncio.wrap_future(job.future), gone, deadline, service.limits)
        finally:
            if not job.future.done() or job.future.cancelled():
                service.queue.abandon(job)
        shift = service.served.translator.alignment_shift
        built = service.builders.submit(
            lambda: answer(lines, translations, shift=shift, weights=weights).model_dump_json(exclude_none=True)
        )
        return await _in_time(asyncio.wrap_future(built), gone, deadline, service.limits)
    except QueueFullError as error:
        raise HTTPException(503, str(error), {"retry-after": str(error.retry_after)}) from None
    except QueueClosedError as error:
        raise _closing(error) from None
    except TranslationFailedError as error:
        raise HTTPException(500, str(error)) from None


async def _in_time(result: asyncio.Future[T], gone: asyncio.Future[None], deadline: float, limits: Limits) -> T:
    """Waits for a result; if it does not come, or nobody wants it any more, it is cancelled."""
    either: set[asyncio.Future[Any]] = {result, gone}
    try:
        timeout = max(0.0, deadline - time.monotonic())
        await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if result.done():
            return result.result()
        if gone.done():
            raise _GoneError
        told = f"No translation within {limits.seconds:g} seconds. Send less text, or try again later."
        raise HTTPException(504, told)
    finally:
        result.cancel()


async def _disconnected(request: Request) -> None:
    """Returns when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
