"""The sections of a configuration but for the data's, each setting's range and meaning, and the checks across sections.

Import these from `nmt.config`. The shipped files in `configs/` explain the same settings beside each key.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from nmt.config_data import (
    DEVICES,
    BelowOne,
    Cell,
    Count,
    CountOrZero,
    DataConfig,
    Layers,
    Positive,
    Section,
    Size,
    TokenizerConfig,
    is_device,
    whole,
)
from nmt.config_parsing import Problem, problems_error, show

# --- model --------------------------------------------------------------------------------------------------------


class EncoderConfig(Section):
    """The recurrent network that reads the source."""

    cell: Cell = "gru"
    """Recurrent unit."""
    hidden_size: Size = 256
    """Units per direction."""
    num_layers: Layers = 1
    """Layers, each reading the one below."""
    bidirectional: bool = True
    """Whether a second network reads from the end."""
    residual: bool = False
    """Whether a layer above the first adds its input to what it makes of it; needs two layers."""

    @property
    def annotation_size(self) -> int:
        """Return the size of one annotation: both directions together."""
        return self.hidden_size * (2 if self.bidirectional else 1)


class BahdanauConfig(Section):
    """Additive attention before the step (Bahdanau et al. 2015)."""

    kind: Literal["bahdanau"] = "bahdanau"
    cell: Cell = "gru"
    """Recurrent unit."""
    hidden_size: Size = 512
    """Units of the decoder."""
    num_layers: Layers = 1
    """Layers; the top one's state is the query."""
    attention_size: Size = 512
    """Units of the score's hidden layer."""
    readout: Literal["deep", "state", "maxout"] = "deep"
    """What the vocabulary is predicted from: tanh of state, context and last word; the state; the paper's maxout."""
    coverage: bool = False
    """Whether the weights that each source position has had so far enter its score (Tu et al. 2016)."""


class WindowConfig(Section):
    """Local attention: weights only near one source position of each step (Luong et al. 2015, section 3.2)."""

    kind: Literal["monotonic", "predictive"]
    """Where the window's centre is: at the step's own number, or where the state predicts it."""
    half_width: Size = 10
    """Positions on either side of the centre, the paper's D."""


class LuongConfig(Section):
    """Multiplicative or concat attention after the step (Luong et al. 2015)."""

    kind: Literal["luong"] = "luong"
    cell: Cell = "gru"
    """Recurrent unit."""
    hidden_size: Size = 512
    """Units of the decoder."""
    num_layers: Layers = 1
    """Layers; the top one's state is the query."""
    score: Literal["dot", "general", "concat"] = "general"
    """How state and annotation are compared."""
    scale: bool = False
    """Whether dot and general scores are divided by the root of the decoder's size."""
    attention_size: Size = 512
    """Units of the concat score's hidden layer; unused by dot and general."""
    input_feeding: bool = False
    """Whether the last attentional state enters the next step."""
    window: WindowConfig | None = None
    """Local attention; null: every source position has weight."""


class PlainConfig(Section):
    """No attention: one vector for the whole source."""

    kind: Literal["none"] = "none"
    cell: Cell = "gru"
    """Recurrent unit."""
    hidden_size: Size = 512
    """Units of the decoder."""
    num_layers: Layers = 1
    """Layers."""
    feed_context: bool = False
    """Whether the source vector enters every step (Cho et al. 2014), not the first state alone."""


def _decoder_kind(value: Any) -> str:
    """Return the tag of a decoder section; kind is bahdanau by default."""
    kind = value.get("kind", "bahdanau") if isinstance(value, dict) else getattr(value, "kind", "bahdanau")
    return kind if isinstance(kind, str) else show(kind)


DecoderConfig = Annotated[
    Annotated[BahdanauConfig, Tag("bahdanau")]
    | Annotated[LuongConfig, Tag("luong")]
    | Annotated[PlainConfig, Tag("none")],
    Discriminator(_decoder_kind),
]
DECODERS: dict[str, type[Section]] = {"bahdanau": BahdanauConfig, "luong": LuongConfig, "none": PlainConfig}
Tying = Literal[False, "target", True]


def _tying(value: Any) -> Any:
    """Refuse 0 and 1, too, which `Literal` would take for truth values."""
    if isinstance(value, bool) or value == "target":
        return value
    raise ValueError(f"must be one of false, target, true, not {show(value)}")


class ModelConfig(Section):
    """Shape of the network."""

    embedding_size: Size = 256
    """Size of a piece's vector, on either side."""
    dropout: BelowOne = 0.3
    """Share of units of embeddings, readouts, and between layers silenced in training, one mask a sentence."""
    word_dropout: BelowOne = 0.0
    """Share of words of either side whose embedding is silenced in training."""
    annotation_dropout: BelowOne = 0.0
    """Share of units of the annotations silenced in training, one mask a sentence."""
    weight_dropout: BelowOne = 0.0
    """Share of the weights between a state and the next silenced in training."""
    layer_norm: bool = False
    """Whether all cells of encoder and decoder normalise their products (Ba et al. 2016)."""
    tie_embeddings: Annotated[Tying, BeforeValidator(_tying)] = False
    """Whether one matrix is all embeddings and the output, which needs `tokenizer.joint`; target: those of the target
    and the output alone (Press and Wolf 2017)."""
    encoder: EncoderConfig = EncoderConfig()
    decoder: DecoderConfig = BahdanauConfig()


# --- training, search, evaluation ---------------------------------------------------------------------------------


class OptimizerConfig(Section):
    """How gradients become steps."""

    kind: Literal["adam"] = "adam"
    learning_rate: Annotated[float, Field(gt=0, le=10)] = 0.001
    """Step size, before the schedule."""


class ScheduleConfig(Section):
    """How the learning rate changes."""

    kind: Literal["plateau", "cosine", "inverse_sqrt", "constant"] = "plateau"
    """plateau: times `factor` when validation stops improving; cosine: to 0 at max_steps; inverse_sqrt: after warm-up
    by the root of warmup_steps / steps; constant."""
    factor: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """What plateau multiplies the rate by."""
    patience: CountOrZero = 2
    """Validations without improvement that plateau waits for."""
    warmup_steps: CountOrZero = 0
    """Steps over which the rate first rises from 0."""


class TrainingConfig(Section):
    """How long, how fast, and what is written on the way."""

    seed: Annotated[int, BeforeValidator(whole), Field(ge=0, lt=2**63)] = 1
    """Where all random numbers start."""
    device: str = "auto"
    """auto, cpu, cuda, or one GPU such as cuda:1."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of an update's large products; auto: bfloat16 on a GPU that computes in it, else float32."""
    batch_tokens: Count = 4096
    """Pieces a batch, padding included; of each process and part, where there are several."""
    accumulate: Count = 1
    """Batches of that size that one update is made from, one after the other: an update of as many times the pieces."""
    max_steps: Count = 20000
    """Steps after which training ends."""
    max_minutes: Positive | None = None
    """Minutes of updates, validations and checkpoints after which training ends; preparing the data before it, and the
    last validation and the scores of the test set after it, come on top."""
    label_smoothing: BelowOne = 0.1
    """Share of probability spread over all pieces."""
    r_drop: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """Weight of the divergence between two passes over a batch with other dropout; 0: one pass."""
    scheduled_sampling: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of previous words that are the model's own at max_steps, rising linearly from 0; 0: none."""
    clip_norm: Positive = 1.0
    """Largest norm of the gradient."""
    ema_decay: BelowOne = 0.0
    """Decay of the moving average of the weights that validation and best.pt use; 0: none."""
    alignment_weight: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """Weight of the loss that draws attention to `data.train_alignments`; 0: none."""
    alignment_shift: Annotated[int, BeforeValidator(whole), Field(ge=0, le=1)] = 0
    """0: a word's attention is that of the step that predicts it; 1: of the next step, whose state has read it."""
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    log_every: Count = 50
    """Steps between two lines of metrics."""
    validate_every: Count = 500
    """Steps between two validations."""
    patience: Count = 5
    """Validations without improvement after which training ends."""
    keep_checkpoints: Count = 3
    """Checkpoints kept beside best and last."""

    @field_validator("device")
    @classmethod
    def _known_device(cls, device: str) -> str:
        if not is_device(device):
            raise ValueError(f"must be one of {DEVICES}, not {device!r}")
        return device


class SearchConfig(Section):
    """How translations are searched for."""

    beam_size: Annotated[int, BeforeValidator(whole), Field(ge=1, le=1000)] = 5
    """Hypotheses kept a sentence; 1 is greedy search."""
    length_penalty: Annotated[float, Field(ge=0, le=10)] = 1.0
    """Exponent of ((5 + length) / 6) that log probabilities are divided by (Wu et al. 2016); 0: no penalty."""
    coverage_penalty: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Times the sum over source positions of log min(1, weights they have had) (Wu et al. 2016, beta); 0: none."""
    max_length_ratio: Annotated[float, Field(gt=0, le=100)] = 2.0
    """A translation has at most this many times the pieces of its source, plus 10."""
    rerank: Literal["none", "mbr"] = "none"
    """How to choose in the beam: none, by score; mbr, by expected chrF (minimum Bayes risk, Kumar and Byrne 2004)."""

    @model_validator(mode="after")
    def _something_to_choose_from(self) -> SearchConfig:
        if self.rerank == "mbr" and self.beam_size == 1:
            text = "mbr chooses among a beam's translations, and beam_size is 1: use a beam of 2 or more, or none"
            raise problems_error([Problem(("rerank",), text, (("search", "rerank"), ("search", "beam_size")))])
        return self


Metric = Literal["bleu", "chrf", "ter"]


class EvaluationConfig(Section):
    """How translations are scored."""

    metrics: Annotated[tuple[Metric, ...], Field(min_length=1, strict=False)] = ("bleu", "chrf", "ter")
    """Scores to report."""
    bleu_tokenize: (
        Literal["none", "13a", "char", "intl", "zh", "ja-mecab", "ko-mecab", "flores101", "flores200"] | None
    ) = None
    """sacreBLEU's tokenizer; null: the one it has for the target language."""
    length_buckets: Annotated[tuple[Count, ...], Field(strict=False)] = (10, 20, 30, 40, 50)
    """Borders, in words of the source, of the table by length."""

    @field_validator("metrics")
    @classmethod
    def _once(cls, metrics: tuple[Metric, ...]) -> tuple[Metric, ...]:
        if len(set(metrics)) < len(metrics):
            raise ValueError(f"names a metric twice: {', '.join(metrics)}")
        return metrics

    @field_validator("length_buckets")
    @classmethod
    def _ascending(cls, borders: tuple[int, ...]) -> tuple[int, ...]:
        if list(borders) != sorted(set(borders)):
            raise ValueError(f"must ascend, each border larger than the one before, not {list(borders)}")
        return borders


# The validation context of a trained run: that a setting does nothing is no reason to refuse what it learnt.
STORED = "stored"


class Config(Section):
    """All settings of a run."""

    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    search: SearchConfig = SearchConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _sections_agree(self, info: ValidationInfo) -> Config:
        found = [_decoder_problems(self.model), _tying_problems(self), _attention_problems(self)]
        if info.context != STORED:
            found.append(_idle_problems(self))
        if problems := [problem for each in found for problem in each]:
            raise problems_error(problems)
        return self


_ENCODER = ("model", "encoder")
_DECODER = ("model", "decoder")


def _decoder_problems(model: ModelConfig) -> list[Problem]:
    """Check what Luong's scores ask of the sizes around them."""
    decoder = model.decoder
    if not isinstance(decoder, LuongConfig):
        return []
    score = (*_DECODER, "score")
    if decoder.score == "concat" and decoder.scale:
        return [Problem((*_DECODER, "scale"), "only for the scores dot and general, not for concat", (score,))]
    if decoder.score != "dot" or decoder.hidden_size == model.encoder.annotation_size:
        return []
    both = " (twice its hidden_size, as it is bidirectional)" if model.encoder.bidirectional else ""
    text = (
        f"dot needs decoder and encoder of the same size: model.decoder.hidden_size is {decoder.hidden_size}, and the "
        f"encoder's annotations have {model.encoder.annotation_size}{both}. Choose score: general, which is a learned "
        f"projection between the two, or make the sizes equal, for example {_equal_sizes(model)}"
    )
    return [Problem(score, text, (score, _ENCODER, (*_DECODER, "hidden_size")))]


def _idle_problems(config: Config) -> list[Problem]:
    """Check what would do nothing, for want of what it works on."""
    model, problems = config.model, []
    if model.encoder.residual and model.encoder.num_layers < 2:
        residual, layers = (*_ENCODER, "residual"), (*_ENCODER, "num_layers")
        text = "needs a second layer, which adds what it reads: set model.encoder.num_layers to 2 or more"
        problems.append(Problem(residual, text, (residual, layers)))
    annotations = model.annotation_dropout if model.decoder.kind != "none" else 0.0
    if model.annotation_dropout > annotations:
        silenced = ("model", "annotation_dropout")
        text = "the decoder of kind none reads no annotations: set it to 0, or choose kind: bahdanau or luong"
        problems.append(Problem(silenced, text, (silenced, _DECODER)))
    schedule = config.training.schedule
    if schedule.kind == "inverse_sqrt" and not schedule.warmup_steps:
        kind, warmup = (("training", "schedule", name) for name in ("kind", "warmup_steps"))
        text = "inverse_sqrt falls from the end of the warm-up on: set training.schedule.warmup_steps, such as 400"
        problems.append(Problem(kind, text, (kind, warmup)))
    # Not the weights': those dropped are the same for the whole batch, and so for both readings.
    if config.training.r_drop and not any((model.dropout, model.word_dropout, annotations)):
        r_drop, dropout = ("training", "r_drop"), ("model", "dropout")
        text = (
            "needs dropout of units or words: without it both readings of a batch are the same. Set model.dropout "
            "above 0"
        )
        problems.append(Problem(r_drop, text, (r_drop, dropout)))
    return problems


def _equal_sizes(model: ModelConfig) -> str:
    """Say how either side would fit the other."""
    decoder, encoder = model.decoder.hidden_size, model.encoder
    ways = [f"model.decoder.hidden_size: {encoder.annotation_size}"]
    if not encoder.bidirectional:
        ways.append(f"model.encoder.hidden_size: {decoder}")
    elif decoder % 2 == 0:
        ways.append(f"model.encoder.hidden_size: {decoder // 2}")
    return " or ".join(ways)


def _tying_problems(config: Config) -> list[Problem]:
    """Check what one matrix for embeddings and output asks for."""
    model, tied = config.model, ("model", "tie_embeddings")
    if not model.tie_embeddings:
        return []
    problems: list[Problem] = []
    if model.tie_embeddings is True and not config.tokenizer.joint:
        text = (
            "needs one vocabulary for both sides: set tokenizer.joint: true as well, or tie_embeddings: target, which "
            "leaves the source a matrix of its own"
        )
        problems.append(Problem(tied, text, (tied, ("tokenizer", "joint"))))
    # Only a readout with a projection of its own can have any size.
    decoder = model.decoder
    is_state = isinstance(decoder, PlainConfig) or (isinstance(decoder, BahdanauConfig) and decoder.readout == "state")
    if is_state and decoder.hidden_size != model.embedding_size:
        text = (
            "needs a decoder as large as the embeddings, as its state is what the vocabulary is predicted from: "
            f"model.decoder.hidden_size is {decoder.hidden_size}, model.embedding_size is {model.embedding_size}"
        )
        problems.append(Problem(tied, text, (tied, ("model", "embedding_size"), _DECODER)))
    return problems


def _attention_problems(config: Config) -> list[Problem]:
    """Check what is asked of attention that is not there, and that guided alignment has something to go by."""
    weight, penalty = ("training", "alignment_weight"), ("search", "coverage_penalty")
    given = ("data", "train_alignments")
    problems = []
    if isinstance(config.model.decoder, PlainConfig):
        why = "the decoder of kind none has no attention: set it to 0, or choose kind: bahdanau or luong"
        values = {weight: config.training.alignment_weight, penalty: config.search.coverage_penalty}
        problems += [Problem(path, why, (path, _DECODER)) for path, value in values.items() if value > 0]
    if config.training.alignment_weight > 0 and config.data.train_alignments is None:
        text = "needs data.train_alignments, a file of word alignments of the training pairs"
        problems.append(Problem(weight, text, (weight, given)))
    if config.training.alignment_weight > 0 and config.tokenizer.sampling_alpha > 0:
        text = (
            "cannot guide attention while tokenizer.sampling_alpha draws other pieces in each epoch, as the links are "
            "between the pieces of one segmentation: set one of the two to 0"
        )
        problems.append(Problem(weight, text, (weight, ("tokenizer", "sampling_alpha"))))
    guided = config.training.alignment_weight > 0 and config.data.train_alignments is not None
    if guided and config.training.alignment_shift and config.training.scheduled_sampling:
        sampling, shift = ("training", "scheduled_sampling"), ("training", "alignment_shift")
        text = (
            "cannot go with alignment_shift 1, which guides the step that has read a word: it would have read another "
            "one than the links are of. Set scheduled_sampling or alignment_shift to 0"
        )
        problems.append(Problem(sampling, text, (sampling, shift)))
    if config.training.alignment_shift and config.data.train_alignments is None:
        text = "says which steps data.train_alignments guides, and there is none: leave it at 0"
        problems.append(Problem(("training", "alignment_shift"), text, (("training", "alignment_shift"), given)))
    return problems
