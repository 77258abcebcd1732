"""Translation with a trained run: `nmt translate`, and the search that validation and evaluation use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from nmt.config import Config, SearchConfig, load_config
from nmt.data.batching import by_length
from nmt.data.text import one_line
from nmt.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizers
from nmt.errors import NmtError
from nmt.model.seq2seq import Seq2Seq, build_model
from nmt.model.stepper import Array
from nmt.model.torch_stepper import TorchStepper
from nmt.run_dir import RunDir
from nmt.search import Hypothesis, beam_search
from nmt.training.checkpoint import load_checkpoint

LOGITS = 2**24  # values of a step over beam and vocabulary, 64 MiB: short lines and a wide beam do not fill memory


@dataclass(frozen=True)
class Candidate:
    """One translation of a sentence. `weights` are [pieces and EOS, source pieces and EOS], or None."""

    text: str
    pieces: tuple[str, ...]
    score: float
    log_prob: float
    length_limited: bool
    weights: Array | None


@dataclass(frozen=True)
class Translation:
    """What became of one line. A line without words has an empty translation of score 0 and no source pieces.

    `truncated`: the source had more pieces than `data.max_length` and was cut there.
    """

    candidates: tuple[Candidate, ...]
    src_pieces: tuple[str, ...]
    truncated: bool

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


class Translator:
    """A model with its tokenizers and search settings."""

    def __init__(
        self, model: Seq2Seq, tokenizers: Tokenizers, search: SearchConfig, max_source: int, device: torch.device
    ) -> None:
        self.model = model.eval()
        self.tokenizers = tokenizers
        self.search = search
        self.max_source = max_source
        self.stepper = TorchStepper(model, (PAD, UNK, BOS), device)

    @classmethod
    def load(
        cls, run: RunDir, *, checkpoint: Path | None = None, device: str = "auto", search: SearchConfig | None = None
    ) -> Translator:
        """The translator of a run: its best checkpoint unless another is named, its own search settings likewise.

        Raises:
            NmtError: if the run has no checkpoint yet, or its parts do not fit together.
        """
        config = load_config(str(run.config))
        if checkpoint is None and not run.best.is_file():
            raise NmtError(
                f"{run.path}: this run has no best checkpoint yet: training has not come to its first validation. "
                "Wait, go on with `nmt train --resume`, or name a checkpoint with --checkpoint."
            )
        where = choose_device(device)
        content = load_checkpoint(checkpoint or run.best)
        tokenizers = Tokenizers.load(run.tokenizer)
        model = build_model(config.model, tokenizers.src.vocab_size, tokenizers.tgt.vocab_size)
        restore_weights(model, content["model"], checkpoint or run.best)
        return cls(model.to(where), tokenizers, search or config.search, longest_source(config), where)

    def translate(
        self, lines: Sequence[str], n_best: int = 1, batch_tokens: int = 4096, keep_weights: bool = False
    ) -> list[Translation]:
        """One translation a line, in order; a line of blanks gives a blank one.

        Sentences are searched for in batches of like length, of at most `batch_tokens` source pieces with padding.
        `n_best` candidates each.

        Raises:
            NmtError: if more candidates are asked for than the beam holds.
        """
        if n_best > self.search.beam_size:
            raise NmtError(
                f"{n_best} translations a sentence need a beam of at least {n_best}, and it is "
                f"{self.search.beam_size}: add --beam {n_best}."
            )
        ids = self.tokenizers.src.encode([one_line(line) for line in lines])
        results = [_BLANK] * len(lines)
        filled = [place for place, row in enumerate(ids) if row and lines[place].strip()]
        sources = [[*ids[place][: self.max_source], EOS] for place in filled]
        most = max(1, LOGITS // (self.search.beam_size * self.tokenizers.tgt.vocab_size))
        for batch in by_length([len(source) for source in sources], batch_tokens, most):
            found = self._search([sources[place] for place in batch], n_best, keep_weights)
            for place, hypotheses in zip(batch.tolist(), found, strict=True):
                if not hypotheses:
                    raise NmtError(
                        "The model gives no finite probability to any word: its weights are broken. Translate with an "
                        "earlier checkpoint (--checkpoint)."
                    )
                line = filled[place]
                truncated = len(ids[line]) > self.max_source
                results[line] = self._translation(hypotheses, sources[place][:-1], truncated)
        return results

    def _search(self, sources: list[list[int]], n_best: int, keep_weights: bool) -> list[list[Hypothesis]]:
        ratio = self.search.max_length_ratio
        return beam_search(
            self.stepper,
            sources,
            bos=BOS,
            eos=EOS,
            beam_size=self.search.beam_size,
            alpha=self.search.length_penalty,
            max_lengths=[int(ratio * len(source)) + 10 for source in sources],
            n_best=n_best,
            keep_weights=keep_weights,
        )

    def _translation(self, hypotheses: list[Hypothesis], source: list[int], truncated: bool) -> Translation:
        texts = self.tokenizers.tgt.decode([list(hypothesis.tokens) for hypothesis in hypotheses])
        candidates = tuple(
            Candidate(
                one_line(text),
                tuple(self.tokenizers.tgt.pieces(list(hypothesis.tokens))),
                hypothesis.score,
                hypothesis.log_prob,
                hypothesis.length_limited,
                hypothesis.weights,
            )
            for text, hypothesis in zip(texts, hypotheses, strict=True)
        )
        return Translation(candidates, tuple(self.tokenizers.src.pieces(source)), truncated)

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
            raise NmtError(f"device {name}: torch sees {count} GPUs here. Use --device cpu or auto.")
    return device


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
