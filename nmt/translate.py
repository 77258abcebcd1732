"""Translation with a trained run, for commands and validation, and decoding that is forced to a given text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from nmt.config import Config, SearchConfig, load_config
from nmt.data.batching import by_length
from nmt.data.text import one_line
from nmt.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizers
from nmt.data.words import Range, decode_words, encode_words
from nmt.errors import NmtError, out_of_memory_told
from nmt.model.forced import force
from nmt.model.memory import keep_freed_memory
from nmt.model.products import refuse_int8
from nmt.model.seq2seq import Seq2Seq, build_model
from nmt.model.stepper import Array
from nmt.model.torch_stepper import TorchStepper
from nmt.run_dir import RunDir
from nmt.search import Hypothesis, beam_search, coverage_penalty, length_penalty
from nmt.training.checkpoint import load_checkpoint

LOGITS = 2**24  # values of a step over beam and vocabulary, 64 MiB: short lines and a wide beam do not fill memory


@dataclass(frozen=True)
class Candidate:
    """One translation of a sentence. `weights` are [pieces and EOS, source pieces and EOS], or None.

    `words` has the number of each piece's word in `text`, where there are weights. A translation that the length limit
    cut has no step for EOS.
    """

    text: str
    pieces: tuple[str, ...]
    score: float
    log_prob: float
    length_limited: bool
    weights: Array | None
    words: tuple[int, ...] = ()


@dataclass(frozen=True)
class Translation:
    """What became of one line. A line without words has an empty translation of score 0 and no source pieces.

    `src_words` has the number of each source piece's word in the line, if weights were kept. `truncated`: the source
    had more pieces than `max_source` and was cut there.
    """

    candidates: tuple[Candidate, ...]
    src_pieces: tuple[str, ...]
    truncated: bool
    src_words: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        return self.candidates[0].text

    @property
    def score(self) -> float:
        return self.candidates[0].score

    @property
    def log_prob(self) -> float:
        return self.candidates[0].log_prob

    @property
    def length_limited(self) -> bool:
        return self.candidates[0].length_limited


_BLANK = Translation((Candidate("", (), 0.0, 0.0, False, None),), (), False)


@dataclass(frozen=True)
class Forced:
    """A given translation of a sentence as the model sees it; that of a pair with a blank side is empty.

    `weights` are [target pieces and EOS, source pieces and EOS], or None without attention; `src_words` and
    `tgt_words` have the number of each piece's word. `log_prob` and `score` are those of the search. `truncated`: a
    side had more pieces than `max_source` and was cut there.
    """

    src_pieces: tuple[str, ...] = ()
    tgt_pieces: tuple[str, ...] = ()
    src_words: tuple[int, ...] = ()
    tgt_words: tuple[int, ...] = ()
    weights: Array | None = None
    log_prob: float = 0.0
    score: float = 0.0
    truncated: bool = False


class Translator:
    """A model with its tokenizers and search settings. It searches with the weights that the model has now, not later.

    `alignment_shift` says which step's weights belong to a target piece: see `nmt.data.links.link_pieces`. With `int8`
    the search multiplies in 8 bits, on a CPU alone (`nmt.model.products`); forced decoding never does. `checkpoint`
    and `step` say which file and which update of the training they are of, as long as they come from a file.
    """

    checkpoint: Path
    step: int

    def __init__(
        self, model: Seq2Seq, tokenizers: Tokenizers, search: SearchConfig, max_source: int, device: torch.device,
        alignment_shift: int = 0, int8: bool = False,
    ) -> None:  # fmt: skip
        self.model = model.eval()
        self.tokenizers = tokenizers
        self.search = search
        self.max_source = max_source
        self.alignment_shift = alignment_shift
        self.int8 = int8
        self.stepper = TorchStepper(model, (PAD, UNK, BOS), device, int8)

    @classmethod
    def load(
        cls, run: RunDir, *, checkpoint: Path | None = None, device: str = "auto", search: SearchConfig | None = None,
        int8: bool = False,
    ) -> Translator:  # fmt: skip
        """The translator of a run: its best checkpoint unless another is named, its own search settings likewise.

        With `int8` the device `auto` is the CPU. On a CPU the process keeps freed memory from here on: see
        `nmt.model.memory`.

        Raises:
            NmtError: if the run has no checkpoint yet, or its parts do not fit together, or int8 is not to be had.
        """
        config = load_config(str(run.config))
        if checkpoint is None and not run.best.is_file():
            raise NmtError(
                f"{run.path}: this run has no best checkpoint yet: training has not come to its first validation. "
                "Wait, go on with `nmt train --resume`, or name a checkpoint with --checkpoint."
            )
        if int8:
            device = "cpu" if device == "auto" else device
            refuse_int8(torch.device(device))
        where = choose_device(device)
        if where.type == "cpu":
            keep_freed_memory()
        path = checkpoint or run.best
        content = load_checkpoint(path)
        tokenizers = Tokenizers.load(run.tokenizer)
        model = build_model(config.model, tokenizers.src.vocab_size, tokenizers.tgt.vocab_size)
        restore_weights(model, content["model"], path)
        translator = cls(
            model.to(where),
            tokenizers,
            search or config.search,
            longest_source(config),
            where,
            config.training.alignment_shift,
            int8,
        )
        translator.checkpoint, translator.step = path, content["state"]["step"]
        return translator

    def translate(
        self, lines: Sequence[str], n_best: int = 1, batch_tokens: int = 4096, keep_weights: bool = False,
        before_each: Callable[[], None] | None = None,
    ) -> list[Translation]:  # fmt: skip
        """One translation a line, in order; a line of blanks gives a blank one.

        Sentences are searched for in batches of like length, of at most `batch_tokens` source pieces with padding.
        `n_best` candidates each. `before_each` is called before each batch, and may end the work by an exception.

        Raises:
            NmtError: if more candidates are asked for than the beam holds, or memory does not suffice for a batch.
        """
        if n_best > self.search.beam_size:
            raise NmtError(
                f"{n_best} translations a sentence need a beam of at least {n_best}, and it is "
                f"{self.search.beam_size}: add --beam {n_best}."
            )
        texts = [one_line(line) for line in lines]
        # Which word a piece belongs to takes ten times as long to find as the pieces: only where weights want it.
        if keep_weights:
            encoded = encode_words(self.tokenizers.src, texts)
        else:
            encoded = [(ids, []) for ids in self.tokenizers.src.encode(texts)]
        filled = [place for place, (row, _) in enumerate(encoded) if row and lines[place].strip()]
        sources = [[*encoded[place][0][: self.max_source], EOS] for place in filled]
        found: list[list[Hypothesis]] = [[]] * len(filled)
        most = max(1, LOGITS // (self.search.beam_size * self.tokenizers.tgt.vocab_size))
        for batch in by_length([len(source) for source in sources], batch_tokens, most):
            if before_each is not None:
                before_each()
            rows = [sources[place] for place in batch]
            with out_of_memory_told(lambda: self._too_large(rows, batch_tokens)):  # noqa: B023
                hypotheses = self._search(rows, n_best, keep_weights)
            for place, best in zip(batch.tolist(), hypotheses, strict=True):
                if not best:
                    raise _broken_model()
                found[place] = best
        results = [_BLANK] * len(lines)
        for line, translation in zip(filled, self._translations(found, [encoded[line] for line in filled])):
            results[line] = translation
        return results

    def force(
        self,
        pairs: Sequence[tuple[str, str]],
        batch_tokens: int = 4096,
        words: Sequence[tuple[Sequence[Range], Sequence[Range]]] | None = None,
    ) -> list[Forced]:
        """Given translations as if the search had found them, in order; a pair with a blank side gives a blank one.

        In batches of like length, of at most `batch_tokens` pieces of the longer side with padding. `words` says where
        the words of both sides are (`nmt.data.words.locate_words`); by default they are what stands between blanks.

        Raises:
            NmtError: if a text is no Unicode, or the model's weights are broken.
        """
        sides = [
            encode_words(
                tokenizer,
                [one_line(pair[side]) for pair in pairs],
                None if words is None else [places[side] for places in words],
            )
            for side, tokenizer in enumerate((self.tokenizers.src, self.tokenizers.tgt))
        ]
        results = [Forced()] * len(pairs)
        encoded = list(zip(*sides, strict=True))
        filled = [
            place
            for place, ((src, _), (tgt, _)) in enumerate(encoded)
            if src and tgt and all(text.strip() for text in pairs[place])
        ]
        ids = [[[*row[: self.max_source], EOS] for row, _ in encoded[place]] for place in filled]
        widths = [max(map(len, both)) for both in ids]
        for batch in by_length(widths, batch_tokens, most=batch_tokens):
            log_probs, weights = force(
                self.model,
                [ids[place][0] for place in batch],
                [ids[place][1] for place in batch],
                bos=BOS,
                rows_at_once=max(1, LOGITS // self.tokenizers.tgt.vocab_size),
                device=self.stepper.device,
            )
            if not np.isfinite(log_probs).all():
                raise _broken_model()
            for row, place in enumerate(batch.tolist()):
                line = filled[place]
                results[line] = self._forced(encoded[line], float(log_probs[row]), weights[row])
        return results

    def _forced(self, encoded: tuple[tuple[list[int], list[int]], ...], log_prob: float, weights: Array) -> Forced:
        """The result of one pair from its row of a batch."""
        (src, src_words), (tgt, tgt_words) = encoded
        kept = slice(self.max_source)
        rows, columns = len(tgt[kept]) + 1, len(src[kept]) + 1
        score = log_prob / length_penalty(rows, self.search.length_penalty)
        # A copy: a view would keep the weights of the whole batch. Without attention there are no columns.
        own = weights[:rows, :columns].copy() if weights.shape[1] else None
        if own is not None and self.search.coverage_penalty:
            score += coverage_penalty(own.sum(0, dtype="float64"), self.search.coverage_penalty)
        return Forced(
            tuple(self.tokenizers.src.pieces(src[kept])),
            tuple(self.tokenizers.tgt.pieces(tgt[kept])),
            tuple(src_words[kept]),
            tuple(tgt_words[kept]),
            own,
            log_prob,
            float(score),
            max(len(src), len(tgt)) > self.max_source,
        )

    def _too_large(self, sources: list[list[int]], batch_tokens: int) -> str:
        """What to say of a batch for which memory did not suffice."""
        return (
            f"in a batch of {len(sources):,} sentences of up to {max(map(len, sources)):,} pieces with beam "
            f"{self.search.beam_size} and --batch-tokens {batch_tokens}. Use smaller batches or a smaller beam: "
            f"--batch-tokens {max(batch_tokens // 2, 1)}, --beam; in training, search.beam_size."
        )

    def _search(self, sources: list[list[int]], n_best: int, keep_weights: bool) -> list[list[Hypothesis]]:
        ratio = self.search.max_length_ratio
        return beam_search(
            self.stepper,
            sources,
            bos=BOS,
            eos=EOS,
            beam_size=self.search.beam_size,
            alpha=self.search.length_penalty,
            beta=self.search.coverage_penalty,
            max_lengths=[int(ratio * len(source)) + 10 for source in sources],
            n_best=n_best,
            keep_weights=keep_weights,
        )

    def _translations(
        self, found: Sequence[Sequence[Hypothesis]], encoded: Sequence[tuple[list[int], list[int]]]
    ) -> Iterator[Translation]:
        """The results of sentences from their hypotheses and the pieces of their sources, in order."""
        # SentencePiece decodes all at once, on all cores: a call costs more than a sentence.
        ids = [hypothesis.tokens for hypotheses in found for hypothesis in hypotheses]
        if found and found[0][0].weights is not None:
            texts = iter(decode_words(self.tokenizers.tgt, ids))
        else:
            texts = ((text, []) for text in self.tokenizers.tgt.decode(ids))
        kept = slice(self.max_source)
        for hypotheses, (source, words) in zip(found, encoded, strict=True):
            yield Translation(
                tuple(self._candidate(hypothesis, *next(texts)) for hypothesis in hypotheses),
                tuple(self.tokenizers.src.pieces(source[kept])),
                len(source) > self.max_source,
                tuple(words[kept]),
            )

    def _candidate(self, hypothesis: Hypothesis, text: str, words: list[int]) -> Candidate:
        return Candidate(
            text,
            tuple(self.tokenizers.tgt.pieces(hypothesis.tokens)),
            hypothesis.score,
            hypothesis.log_prob,
            hypothesis.length_limited,
            hypothesis.weights,
            tuple(words),
        )

    def stream(
        self, blocks: Iterable[list[str]], n_best: int = 1, batch_tokens: int = 4096, keep_weights: bool = False
    ) -> Iterator[list[Translation]]:
        """The translations of each block of lines as soon as they are there, in order."""
        for block in blocks:
            yield self.translate(block, n_best, batch_tokens, keep_weights)


def longest_source(config: Config) -> int:
    """How many pieces of a source are translated: several times what training saw, so that text is rarely cut."""
    return 4 * config.data.max_length


def choose_device(name: str) -> torch.device:
    """`auto` is the first GPU where there is one, else the CPU.

    Raises:
        NmtError: if a GPU is named that is not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise NmtError(
                f"device {name}: torch sees {count} GPU{'s' * (count != 1)} here. Use --device cpu or auto, or, "
                "to train, --set training.device=auto."
            )
    return device


def require_attention(config: Config, run: RunDir) -> None:
    """Refuses a run whose weights could not be looked at, as there are none.

    Raises:
        NmtError: if the decoder is of kind none.
    """
    if config.model.decoder.kind == "none":
        raise NmtError(
            f"{run.path}: a model of kind none has no attention, so nothing tells where it looked. Name a run of kind "
            "bahdanau or luong with --run."
        )


def _broken_model() -> NmtError:
    return NmtError(
        "The model gives no finite probability to any word: its weights are broken. Name an earlier checkpoint "
        "(--checkpoint)."
    )


def restore_weights(model: Seq2Seq, weights: dict[str, torch.Tensor], path: Path) -> None:
    """Loads a checkpoint's weights.

    Raises:
        NmtError: if they are those of a model of another shape.
    """
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        first = str(error).split("\n")[1].strip() if "\n" in str(error) else str(error)
        raise NmtError(
            f"{path}: the weights are of a model of another shape than the run's config.yaml ({first})."
        ) from error
