"""Translation with a trained run, for commands and validation, and decoding that is forced to a given text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from nmt.config import Config, SearchConfig
from nmt.data.cutting import by_length
from nmt.data.text import one_line
from nmt.data.tokenizer import BOS, EOS, Tokenizers
from nmt.data.words import Range, encode_words
from nmt.errors import NmtError
from nmt.model.forced import force
from nmt.model.memory import keep_freed_memory, limit_shape_caches
from nmt.model.products import refuse_int8
from nmt.model.seq2seq import Seq2Seq, build_model
from nmt.model.stepper import Array
from nmt.model.torch_stepper import TorchStepper
from nmt.run_dir import RunDir
from nmt.search import coverage_penalty, length_penalty
from nmt.training.checkpoint import load_checkpoint
from nmt.translations import BANNED, LOGITS, LineTranslator, broken_model
from nmt.translations import Candidate as Candidate  # for who translates with a run
from nmt.translations import Translation as Translation


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


class Translator(LineTranslator):
    """A model with its tokenizers and search settings. It searches with the weights that the model has now, not later.

    With `int8` the search multiplies in 8 bits, on a CPU alone (`nmt.model.products`); forced decoding never does.
    `checkpoint` and `step` say which file and which update of the training they are of, as long as they come from a
    file.
    """

    stepper: TorchStepper
    checkpoint: Path
    step: int

    def __init__(
        self, model: Seq2Seq, tokenizers: Tokenizers, search: SearchConfig, max_source: int, device: torch.device,
        alignment_shift: int = 0, int8: bool = False,
    ) -> None:  # fmt: skip
        self.model = model.eval()
        self.int8 = int8
        stepper = TorchStepper(model, BANNED, device, int8)
        super().__init__(stepper, tokenizers, search, max_source, alignment_shift)

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
        config = run.settings()
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
            limit_shape_caches()
            keep_freed_memory()
        path = checkpoint or run.best
        if not path.is_file() and (kept := sorted(each.name for each in run.checkpoints.glob("*.pt"))):
            raise NmtError(f"{path}: there is no such checkpoint. {run.checkpoints} has {', '.join(kept)}.")
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
                raise broken_model()
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


def restore_weights(model: Seq2Seq, weights: dict[str, torch.Tensor], path: Path) -> None:
    """Loads a checkpoint's weights.

    Raises:
        NmtError: if they are those of a model of another shape, or one that shares less.
    """
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        first = str(error).split("\n")[1].strip() if "\n" in str(error) else str(error)
        raise NmtError(
            f"{path}: the weights are of a model of another shape than the run's config.yaml ({first})."
        ) from error
    first_names: dict[torch.nn.Parameter, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        other = first_names.setdefault(parameter, name)
        if other == name:
            continue
        # torch has loaded one over the other. Equal weights that are no numbers are equal here, too.
        if not torch.allclose(weights[other].double(), weights[name].double(), rtol=0, atol=0, equal_nan=True):
            raise NmtError(
                f"{path}: its {other} and {name} differ, which by model.tie_embeddings of the run's config.yaml are "
                "one matrix: the weights are of another model."
            )
