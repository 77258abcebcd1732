"""The README of an exported model: what it is, what it was trained on, how good it is, and how to use it.

File names and figures come from the run; of paths only the last part is told.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt import __version__
from nmt.config import BahdanauConfig, Config, LuongConfig, PlainConfig, Source
from nmt.config_data import FILE_KEYS
from nmt.exported import ExportSettings
from nmt.run_dir import RunDir, read_json_object
from nmt.scoring import METRIC_NAMES, interval

if TYPE_CHECKING:
    from nmt.translate import Translator

PICTURE = "test_by_length.png"
_TIED = {False: "", "target": ", of the target tied with the output", True: ", tied"}


@dataclass(frozen=True)
class Facts:
    """What a card tells. `scores` is what `nmt eval` found for these weights on the test set, or empty."""

    name: str
    config: Config
    settings: ExportSettings
    parameters: int
    vocabulary: tuple[int, int]
    data: Mapping[str, Any]
    training: Mapping[str, Any]
    scores: Mapping[str, Any]
    picture: bytes | None
    licence: str | None

    @classmethod
    def of(
        cls, run: RunDir, config: Config, translator: Translator, settings: ExportSettings, folder: Path,
        parameters: int, licence: str | None,
    ) -> Facts:  # fmt: skip
        """Collect them from a run.

        Raises:
            NmtError: if a file of the run cannot be read.
        """
        checkpoint = translator.checkpoint
        if run.best.is_file() and checkpoint.samefile(run.best):  # by another of its names
            checkpoint = run.best
        name = run.evaluation_name("test", checkpoint)
        scores = read_json_object(run.eval / f"{name}.json")
        # Not the step alone: an average has that of the last checkpoint in it.
        if (scores.get("checkpoint"), scores.get("step")) != (run.inside(checkpoint), settings.step):
            scores = {}
        picture = run.eval / f"{name}_by_length.png"
        shown = bool(scores) and picture.is_file() and not picture.is_symlink()  # a link could name any file
        return cls(
            name=folder.name,
            config=config,
            settings=settings,
            parameters=parameters,
            vocabulary=(translator.tokenizers.src.vocab_size, translator.tokenizers.tgt.vocab_size),
            data=read_json_object(run.data_report),
            training=read_json_object(run.meta),
            scores=scores,
            picture=picture.read_bytes() if shown else None,
            licence=licence,
        )


def model_card(facts: Facts) -> str:
    """The text, in Markdown, headed by the fields that model hubs read."""
    settings = facts.settings
    # In quotes: to YAML 1.1 the language `no` is False.
    languages = "\n".join(f'- "{language}"' for language in dict.fromkeys((settings.src_lang, settings.tgt_lang)))
    licence = json.dumps(facts.licence or "unknown", ensure_ascii=False)
    head = (
        f"---\nlanguage:\n{languages}\nlicense: {licence}\nlibrary_name: nmt\n"
        "pipeline_tag: translation\ntags:\n- translation\n- recurrent\n- attention\n- onnx\n---\n"
    )
    parts = [
        head,
        f"# {facts.name}: {settings.src_lang} to {settings.tgt_lang}\n",
        f"A recurrent translation model, {_kind(facts.config)}, with {facts.parameters:,} parameters, trained and "
        f"exported with nmt {__version__}: ONNX graphs in {settings.precision} for ONNX Runtime on a CPU.\n",
        _usage(facts),
        _data(facts),
        _training(facts),
        _scores(facts),
        _lengths(facts),
        _limits(facts),
        "## Licence\n",
        f"{facts.licence}\n"
        if facts.licence
        else "Not stated. Who publishes the model names it here and in the field `license` above; the licences of the "
        "training data bear on it.\n",
    ]
    return "\n".join(part for part in parts if part)


def _kind(config: Config) -> str:
    decoder = config.model.decoder
    match decoder:
        case BahdanauConfig():
            more = ", with coverage" if decoder.coverage else ""
            return f"with additive attention before the step (Bahdanau et al. 2015), readout {decoder.readout}{more}"
        case LuongConfig():
            local = f", local attention ({decoder.window.kind})" if decoder.window is not None else ""
            feeding = ", input feeding" if decoder.input_feeding else ""
            return f"with attention after the step (Luong et al. 2015), score {decoder.score}{feeding}{local}"
        case PlainConfig():
            return "an encoder and decoder without attention"


def _usage(facts: Facts) -> str:
    folder = shlex.quote(facts.name)
    return f"""## Use

```sh
pip install onnxruntime
nmt translate --model {folder} --input news.{facts.settings.src_lang} --output news.{facts.settings.tgt_lang}
```

nmt loads no torch for it. Text, a file or stdin; one sentence a line, in and out; text as people write it, not
tokenised, not lowercased.
"""


def _data(facts: Facts) -> str:
    data, rows = facts.config.data, []
    for split, sources in (("train", data.train), ("dev", (data.dev,)), ("test", (data.test,))):
        part = facts.data.get(split, {})
        names = "; ".join(_source(source) for source in sources if source is not None)
        if names:
            rows.append((split, names, _count(part.get("read")), _count(part.get("kept"))))
    src, tgt = facts.vocabulary
    tokenizer = facts.config.tokenizer
    pieces = f"{src:,} pieces for both languages" if tokenizer.joint else f"{src:,} source and {tgt:,} target pieces"
    table = _table(("split", "from", "pairs read", "kept"), rows)
    return f"## Data\n\n{table}\nVocabulary: {pieces} (SentencePiece, {tokenizer.model_type}).\n"


def _source(source: Source) -> str:
    """A source by its name; where its files lie on this machine is nobody's business."""
    if source.hub is not None:
        name = Path(source.hub).name if Path(source.hub).is_absolute() else source.hub
    else:
        name = " and ".join(Path(file).name for key in FILE_KEYS if (file := getattr(source, key)) is not None)
    keys = ("name", "split", "revision", "src_column", "tgt_column")
    more = [f"{key} {value}" for key in keys if (value := getattr(source, key)) is not None]
    if source.substitutions:
        more.append(f"and up to {source.substitutions:,} pairs made from them by substitution")
    return ", ".join([name, *more])


def _training(facts: Facts) -> str:
    model, training = facts.config.model, facts.config.training
    encoder, decoder = model.encoder, model.decoder
    minutes = facts.training.get("training_seconds")
    rows = [
        ("updates", f"{facts.settings.step:,}"),
        ("minutes of training", f"{minutes / 60:,.0f}" if isinstance(minutes, int | float) else "unknown"),
        ("seed", str(training.seed)),
        ("tokens a batch", f"{training.batch_tokens:,}"),
        ("optimiser", f"{training.optimizer.kind}, learning rate {training.optimizer.learning_rate:g}"),
        ("label smoothing, dropout", f"{training.label_smoothing:g}, {model.dropout:g}"),
        ("embeddings", f"{model.embedding_size}{_TIED[model.tie_embeddings]}"),
        ("encoder", _layers(encoder.cell, encoder.num_layers, encoder.hidden_size, encoder.bidirectional)),
        ("decoder", _layers(decoder.cell, decoder.num_layers, decoder.hidden_size)),
        ("search", _pairs(facts.settings.search.model_dump())),
    ]
    return "## Settings\n\n" + _table(("setting", "value"), rows)


def _layers(cell: str, layers: int, size: int, bidirectional: bool = False) -> str:
    both = " in each direction" if bidirectional else ""
    return f"{layers} layer{'s' if layers > 1 else ''} of {size} {cell.upper()} units{both}"


def _scores(facts: Facts) -> str:
    metrics = facts.scores.get("metrics")
    if not isinstance(metrics, dict) or not metrics:
        return "## Scores\n\nThese weights have not been scored on a test set (`nmt eval`, before the export).\n"
    rows = [
        (METRIC_NAMES.get(name, str(name)), f"{one['score']:.2f}", interval(one["low"], one["high"]))
        for name, one in metrics.items()
    ]
    signatures = "".join(f"- {METRIC_NAMES.get(name, name)}: `{one['signature']}`\n" for name, one in metrics.items())
    of = f"The test set, {_count(facts.scores.get('sentences'))} sentences, {_pairs(facts.scores.get('search', {}))}"
    rounded = " They are of the run in float32, not of these rounded weights." * (facts.settings.precision == "int8")
    table = _table(("metric", "score", "95 % interval"), rows)
    return f"## Scores\n\n{of}.{rounded}\n\n{table}\nsacreBLEU's signatures:\n\n{signatures}"


def _lengths(facts: Facts) -> str:
    buckets = facts.scores.get("by_length")
    if not isinstance(buckets, list) or not buckets:
        return ""
    rows = [
        (_range(one["low"], one["high"]), _count(one["sentences"]), *(f"{one[key]:.1f}" for key in ("bleu", "chrf")))
        for one in buckets
    ]
    picture = f"\n![BLEU by length]({PICTURE})\n" if facts.picture is not None else ""
    return f"### By length\n\n{_table(('words of the source', 'sentences', 'BLEU', 'chrF'), rows)}{picture}"


def _limits(facts: Facts) -> str:
    lines = [
        f"A sentence of more than {facts.settings.max_source:,} pieces is cut there. On text unlike its training data "
        "the model writes fluent sentences that are wrong."
    ]
    if facts.settings.precision == "int8":
        lines.append(
            "In 8 bits the numbers of a batch are rounded on one scale: a translation may differ with the lines beside "
            "it."
        )
    return "## Limits\n\n" + "\n".join(lines) + "\n"


def _range(low: int, high: int | None) -> str:
    return f"{low}+" if high is None else f"{low} to {high - 1}"


def _pairs(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def _count(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else "unknown"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
