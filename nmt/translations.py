"""Translations of lines, by whatever steps through a model: reading, batches of like length, the search, the text.

Nothing here knows torch: a run (`nmt.translate`) and an exported model (`nmt.exported`) translate by the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from nmt.config import SearchConfig
from nmt.data.cutting import by_length
from nmt.data.links import Links, link_pieces
from nmt.data.text import one_line
from nmt.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizers
from nmt.data.words import decode_words, encode_words
from nmt.errors import NmtError, out_of_memory_told
from nmt.model.stepper import Array, Stepper
from nmt.reranking import by_expected_chrf
from nmt.search import Hypothesis, beam_search

T = TypeVar("T")

BANNED = (PAD, UNK, BOS)  # ids that no translation may hold
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


def word_alignment(
    translation: Translation, candidate: Candidate | None = None, *, shift: int, threshold: float | None = None
) -> Links:
    """The links between the words of a line and those of one of its translations, by default the best.

    The translation was made with `keep_weights`; that of a blank line has no links.
    """
    one = candidate or translation.candidates[0]
    if one.weights is None:
        return frozenset()
    return link_pieces(one.weights, one.words, translation.src_words, shift=shift, threshold=threshold)


class Sharing(Protocol):
    """Those that share the batches of a translation; each of them gets all results. See `nmt.training.processes`."""

    def dealt(self, items: Sequence[T], /) -> Sequence[T | None]: ...
    def merged(self, own: list[T], /) -> list[T]: ...


class _Alone:
    def dealt(self, items: Sequence[T], /) -> Sequence[T | None]:
        return items

    def merged(self, own: list[T], /) -> list[T]:
        return own


class LineTranslator:
    """Steps through a model, its tokenizers and search settings.

    `alignment_shift` says which step's weights belong to a target piece: see `nmt.data.links.link_pieces`.
    """

    processes: Sharing = _Alone()

    def __init__(
        self, stepper: Stepper, tokenizers: Tokenizers, search: SearchConfig, max_source: int, alignment_shift: int
    ) -> None:
        self.stepper = stepper
        self.tokenizers = tokenizers
        self.search = search
        self.max_source = max_source
        self.alignment_shift = alignment_shift

    def searching(self, search: SearchConfig) -> LineTranslator:
        """The same model under other search settings; of a run it can only translate."""
        return LineTranslator(self.stepper, self.tokenizers, search, self.max_source, self.alignment_shift)

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
        most = max(1, LOGITS // (self.search.beam_size * self.tokenizers.tgt.vocab_size))
        batches = by_length([len(source) for source in sources], batch_tokens, most)
        own = []
        for batch in self.processes.dealt(batches):
            if before_each is not None:
                before_each()
            if batch is not None:
                rows = [sources[place] for place in batch]
                with out_of_memory_told(lambda: self._too_large(rows, batch_tokens)):  # noqa: B023
                    own.append(self._search(rows, n_best, keep_weights))
        found: list[list[Hypothesis]] = [[]] * len(filled)
        for batch, hypotheses in zip(batches, self.processes.merged(own), strict=True):
            for place, best in zip(batch.tolist(), hypotheses, strict=True):
                if not best:
                    raise broken_model()
                found[place] = best
        results = [_BLANK] * len(lines)
        for line, translation in zip(filled, self._translations(found, [encoded[line] for line in filled])):
            results[line] = translation
        return results

    def _too_large(self, sources: list[list[int]], batch_tokens: int) -> str:
        """What to say of a batch for which memory did not suffice."""
        return (
            f"in a batch of {len(sources):,} sentences of up to {max(map(len, sources)):,} pieces with beam "
            f"{self.search.beam_size} and --batch-tokens {batch_tokens}. Use smaller batches or a smaller beam: "
            f"--batch-tokens {max(batch_tokens // 2, 1)}, --beam; in training, search.beam_size."
        )

    def _search(self, sources: list[list[int]], n_best: int, keep_weights: bool) -> list[list[Hypothesis]]:
        """The n best of each source: the search's, or, with `rerank`, of all that it keeps those of least risk."""
        ratio, mbr = self.search.max_length_ratio, self.search.rerank == "mbr"
        found = beam_search(
            self.stepper,
            sources,
            bos=BOS,
            eos=EOS,
            beam_size=self.search.beam_size,
            alpha=self.search.length_penalty,
            beta=self.search.coverage_penalty,
            max_lengths=[int(ratio * len(source)) + 10 for source in sources],
            n_best=self.search.beam_size if mbr else n_best,
            keep_weights=keep_weights,
        )
        return [best[:n_best] for best in self._by_risk(found)] if mbr else found

    def _by_risk(self, found: Sequence[Sequence[Hypothesis]]) -> Iterator[list[Hypothesis]]:
        """Each sentence's hypotheses, those that ended first and by their Bayes risk.

        What the length limit cut stays behind: log p of a beginning is that of all its continuations.
        """
        ended = [[hypothesis for hypothesis in best if not hypothesis.length_limited] for best in found]
        texts = iter(self.tokenizers.tgt.decode([hypothesis.tokens for best in ended for hypothesis in best]))
        for best, everything in zip(ended, found, strict=True):
            order = by_expected_chrf([next(texts) for _ in best], [hypothesis.log_prob for hypothesis in best])
            yield [*(best[place] for place in order), *everything[len(best) :]]

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


def broken_model() -> NmtError:
    """The message for weights that are not finite."""
    return NmtError(
        "The model gives no finite probability to any word: its weights are broken. Name an earlier checkpoint "
        "(--checkpoint), for an exported model when it is exported."
    )
