"""`nmt serve`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli.app import app
from nmt.cli.loading import Chosen, choose_model
from nmt.cli.options import (
    BatchOption,
    BeamOption,
    CheckpointOption,
    CoveragePenaltyOption,
    DeviceOption,
    Int8Option,
    LengthPenaltyOption,
    ModelOption,
    RerankOption,
    RunsOption,
    SearchOptions,
)
from nmt.errors import NmtError

if TYPE_CHECKING:
    from nmt.serving.app import Served

INSTALL = 'pip install "fastapi>=0.162.5" "uvicorn>=0.54"'  # the extra `serve` in pyproject.toml says the same

HostOption = Annotated[str, typer.Option("--host", metavar="NAME", help="Address to listen at.")]
PortOption = Annotated[int, typer.Option("--port", min=0, max=65535, metavar="N", help="Port; 0 is any free one.")]
CharactersOption = Annotated[int, typer.Option("--max-chars", min=1, metavar="N", help="Most characters in a request.")]
LinesOption = Annotated[int, typer.Option("--max-lines", min=1, metavar="N", help="Most sentences in a request.")]
WaitingOption = Annotated[
    int, typer.Option("--max-waiting", min=1, metavar="N", help="Sentences that may wait; more are refused with 503.")
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0.1, max=3600, metavar="S", help="Most seconds a request may take.")
]
GraceOption = Annotated[
    float, typer.Option("--grace", min=0, max=3600, metavar="S", help="Seconds to finish open requests after a signal.")
]


@app.command(
    short_help="Serve a model: a page to translate on, and JSON over HTTP.",
    epilog=f"Takes two packages more: {INSTALL}",
)
def serve(
    run: RunsOption = None,
    model: ModelOption = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    beam: BeamOption = None,
    batch_tokens: BatchOption = 4096,
    length_penalty: LengthPenaltyOption = None,
    coverage_penalty: CoveragePenaltyOption = None,
    rerank: RerankOption = None,
    checkpoint: CheckpointOption = None,
    device: DeviceOption = "auto",
    int8: Int8Option = False,
    max_chars: CharactersOption = 10_000,
    max_lines: LinesOption = 100,
    max_waiting: WaitingOption = 1000,
    timeout: TimeoutOption = 60.0,
    grace: GraceOption = 10.0,
) -> None:
    """Serve a model on this machine: a page to translate on and to see where each word came from, and JSON.

    \b
    nmt serve --run runs/bahdanau
    nmt serve --model exports/bahdanau --port 8080
    curl -H 'Content-Type: application/json' -d '{"text": "The old dog sleeps."}' localhost:8000/translate

    \b
    POST /translate   {"text": "…" or ["…", …], "n_best": N, "beam": N, "weights": "words" or "pieces"};
                      all but the text may be left out; weights are given of up to 200 translations
    GET /health, /ready, /metrics (for Prometheus), /info, /openapi.json

    Requests that come together are translated together; the translations are those of nmt translate, whoever else asks,
    except that a model exported with int8 rounds with one scale a batch: its translations may depend on the others in
    the batch. There is no password: by default only this machine reaches the server. The first Ctrl-C or SIGTERM
    answers what is there and ends, the second ends at once.
    """
    chosen = choose_model(
        model, run or [], checkpoint=checkpoint, device=device, int8=int8,
        search=SearchOptions(beam, length_penalty, coverage_penalty, rerank), alignments=True,
    )  # fmt: skip
    try:
        from nmt.serving.server import bind, run_server
    except ImportError as error:
        raise NmtError(f"nmt serve needs FastAPI and uvicorn, which are not installed: {INSTALL}") from error
    from nmt.console import ConsoleReporter
    from nmt.serving.app import Limits

    limits = Limits(
        characters=max_chars, lines=max_lines, waiting=max_waiting, seconds=timeout, batch_tokens=batch_tokens
    )
    with ConsoleReporter() as reporter, bind(host, port) as bound:
        run_server(bound, host, _served(chosen), limits, grace, reporter)


def _served(chosen: Chosen) -> Served:
    """Load the model, and say what it is."""
    from nmt.exported import ExportedModel
    from nmt.serving.api import ModelAnswer
    from nmt.serving.app import Served

    translator = chosen.load()
    models, languages = [], ("", "")
    for opened in chosen.opened:
        name = opened.path.resolve().name
        if isinstance(opened, ExportedModel):
            own = opened.settings
            languages = own.src_lang, own.tgt_lang
            models.append(ModelAnswer(name=name, kind=own.kind, step=own.step))
        else:
            config = opened.settings()
            languages = config.data.src_lang, config.data.tgt_lang
            step = getattr(translator, "step", None)  # an ensemble's models have one each
            models.append(ModelAnswer(name=name, kind=config.model.decoder.kind, step=step))
    return Served(translator, *languages, tuple(models))
