"""Where a model looked: `nmt attention`, and the heat maps of the development set at each validation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.attended import attended_sentence
from nmt.attention_page import AttendedSentence, PageHeader, attention_page
from nmt.config import BahdanauConfig, Config, LuongConfig, PlainConfig, SearchConfig
from nmt.data.text import one_line
from nmt.errors import NmtError
from nmt.plotting import plot_attention, save_figure, save_pages
from nmt.reporting import Reporter
from nmt.run_dir import RunDir, refuse_unwritable, write_atomic
from nmt.translate import Candidate, Forced, Translation, Translator, require_attention

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLOCK = 200  # lines between two reports of progress
DEV_MAPS = 4  # heat maps of each validation
_MODERATE = range(5, 26)  # pieces of a source that is neither trivial nor too long to look at


def draw_attention(
    run: RunDir,
    output: Path,
    lines: Sequence[str],
    *,
    targets: Sequence[str] | None = None,
    pieces: bool = False,
    n_best: int = 1,
    search: SearchConfig | None = None,
    checkpoint: Path | None = None,
    device: str = "auto",
    reporter: Reporter,
) -> list[Path]:
    """Draws what the model looks at in each line; returns the files written, in order.

    Args:
        run: of a kind with attention.
        output: its suffix says what is written: `.html` one page, `.pdf` one file with a page a sentence, `.png` and
            `.svg` a picture a sentence, numbered by line if there are several.
        lines: the sources; blank ones are left out.
        targets: their translations, to be read word by word; None to translate.
        pieces: whether rows and columns are the model's pieces instead of words.
        n_best: translations a sentence, for a page.
        search, checkpoint, device: as for `Translator.load`.
        reporter: is told of progress, and of lines left out.

    Raises:
        NmtError: if the model has no attention, no line has words, or a file cannot be written.
    """
    config = run.settings()
    require_attention(config, run)
    if targets is not None and len(targets) != len(lines):
        raise NmtError(f"{len(lines):,} source lines, but {len(targets):,} target lines: they must be aligned.")
    translator = Translator.load(run, checkpoint=checkpoint, device=device, search=search)
    blocks = _translated(translator, lines, n_best) if targets is None else _forced(translator, lines, targets)
    sentences: list[AttendedSentence] = []
    for done, block in enumerate(blocks, 1):
        sentences += [attended_sentence(*entry, pieces, is_windowed(config)) for entry in block]
        reporter.progress("lines read", min(done * BLOCK, len(lines)), len(lines))
    _report(sentences, len(lines), reporter)
    if output.suffix.lower() == ".html":
        header = page_header(config, translator.search, run, checkpoint or run.best, pieces, targets is not None)
        write_atomic(output, attention_page(header, sentences))
        return [output]
    return _draw_pictures(sentences, output, f"{run.name}: {_kind(config.model.decoder)}", reporter)


def _report(sentences: Sequence[AttendedSentence], lines: int, reporter: Reporter) -> None:
    if not sentences:
        raise NmtError("There is nothing to draw: no line has words on both sides. Give a sentence.")
    if left_out := lines - len(sentences):
        reporter.info(f"{left_out:,} blank line{'s were' if left_out > 1 else ' was'} left out.")
    if cut := sum(sentence.truncated for sentence in sentences):
        reporter.warning(f"{cut:,} line{'s were' if cut > 1 else ' was'} too long: only the beginning was read.")


# --- from the model -------------------------------------------------------------------------------------------------

_Block = list[tuple[int, str, Translation]]  # line number, source and its translations; blank lines are not there


def _translated(translator: Translator, lines: Sequence[str], n_best: int) -> Iterator[_Block]:
    for start in range(0, len(lines), BLOCK):
        block = lines[start : start + BLOCK]
        found = translator.translate(block, n_best=n_best, keep_weights=True)
        yield [entry for entry in zip(range(start + 1, start + 1 + len(block)), block, found) if entry[2].src_pieces]


def _forced(translator: Translator, lines: Sequence[str], targets: Sequence[str]) -> Iterator[_Block]:
    for start in range(0, len(lines), BLOCK):
        pairs = list(zip(lines[start : start + BLOCK], targets[start : start + BLOCK], strict=True))
        yield [
            (line, source, _as_translation(target, forced))
            for line, ((source, target), forced) in enumerate(zip(pairs, translator.force(pairs)), start + 1)
            if forced.src_pieces
        ]


def _as_translation(target: str, forced: Forced) -> Translation:
    """A given translation as if it had been searched for."""
    text = one_line(target)
    if forced.truncated:
        text = " ".join(text.split()[: forced.tgt_words[-1] + 1])
    candidate = Candidate(
        text, forced.tgt_pieces, forced.score, forced.log_prob, False, forced.weights, forced.tgt_words
    )
    return Translation((candidate,), forced.src_pieces, forced.truncated, forced.src_words)


# --- pictures -------------------------------------------------------------------------------------------------------


def _draw_pictures(sentences: Sequence[AttendedSentence], output: Path, model: str, reporter: Reporter) -> list[Path]:
    """One file a sentence, a page a sentence in a PDF; `model` is what their titles call it."""

    def figures() -> Iterator[Figure]:
        for done, sentence in enumerate(sentences, 1):
            yield sentence_figure(sentence, f"{model}\nscore of the translation {sentence.maps[0].score:.3f}")
            reporter.progress("sentences drawn", done, len(sentences))

    if output.suffix.lower() == ".pdf":
        save_pages(figures(), output)
        return [output]
    paths = [output]
    if len(sentences) > 1:
        digits = max(3, len(str(sentences[-1].line)))
        paths = [output.with_stem(f"{output.stem}-{sentence.line:0{digits}}") for sentence in sentences]
        for path in paths:
            refuse_unwritable(path)  # all of them before the first is drawn
    for figure, path in zip(figures(), paths, strict=True):
        save_figure(figure, path)
    return paths


def sentence_figure(sentence: AttendedSentence, title: str) -> Figure:
    """The heat map of a sentence's best translation."""
    best = sentence.maps[0]
    return plot_attention(best.weights, sentence.units, best.units, title, best.windows)


# --- validation -----------------------------------------------------------------------------------------------------


def lines_to_watch(lengths: Sequence[int]) -> list[int]:
    """Numbers, from 0, of the lines whose attention is drawn at each validation, given their lengths in pieces.

    The first of moderate length; where there are too few, the shortest of the others, blank ones excepted.
    """
    moderate = [number for number, length in enumerate(lengths) if length in _MODERATE]
    others = [number for number, length in enumerate(lengths) if length and length not in _MODERATE]
    others.sort(key=lambda number: lengths[number])
    return sorted([*moderate, *others][:DEV_MAPS])


def validation_figure(line: int, source: str, translation: Translation, step: int, windowed: bool) -> Figure:
    """The heat map of a translation made with weights, in pieces: they suit every language and show every weight."""
    sentence = attended_sentence(line, source, translation, pieces=True, windowed=windowed)
    return sentence_figure(sentence, f"dev line {line}, step {step}")


# --- what the page says ---------------------------------------------------------------------------------------------


def page_header(
    config: Config, search: SearchConfig, run: RunDir, checkpoint: Path, pieces: bool, forced: bool
) -> PageHeader:
    """What stands above the sentences: which model this is, and what its numbers mean."""
    data, decoder = config.data, config.model.decoder
    inside = checkpoint.resolve().is_relative_to(run.path.resolve())
    name = checkpoint.resolve().relative_to(run.path.resolve()).as_posix() if inside else str(checkpoint)
    unit = "piece" if pieces else "word"
    searched = "given translations" if forced else f"beam {search.beam_size}"
    facts = (f"{data.src_lang} → {data.tgt_lang}", _kind(decoder), name, f"{unit}s", searched)
    notes = [_mechanism(decoder), score_note(search, forced)]
    if is_windowed(config):
        notes.append("The orange line is the border of the windows: outside, weights are exactly 0.")
    if not pieces:
        notes.append(
            "The weight of a source word is the sum over its pieces; a word of the translation has the mean over its "
            "pieces."
        )
    return PageHeader(f"Attention of {run.name}", data.src_lang, data.tgt_lang, unit, facts, tuple(notes))


def is_windowed(config: Config) -> bool:
    """Whether attention is local."""
    decoder = config.model.decoder
    return isinstance(decoder, LuongConfig) and decoder.window is not None


def _kind(decoder: BahdanauConfig | LuongConfig | PlainConfig) -> str:
    """The kind with what changes its attention."""
    if isinstance(decoder, LuongConfig):
        parts = [f"luong {decoder.score}{' scaled' if decoder.scale else ''}"]
        if decoder.input_feeding:
            parts.append("input feeding")
        if decoder.window is not None:
            parts.append(f"{decoder.window.kind} window of ±{decoder.window.half_width} pieces")
        return ", ".join(parts)
    covered = isinstance(decoder, BahdanauConfig) and decoder.coverage
    return f"{decoder.kind}{' with coverage' if covered else ''}"


def _mechanism(decoder: BahdanauConfig | LuongConfig | PlainConfig) -> str:
    """How the weights come about."""
    if isinstance(decoder, LuongConfig):
        score = {"dot": "s_t·h_j", "general": "s_t·W_a h_j", "concat": "v_a·tanh(W_a [s_t; h_j])"}[decoder.score]
        return (
            f"Weights: the softmax of {score} over the source positions j{' of the window' if decoder.window else ''}, "
            "after the decoder's step (Luong et al. 2015). The state s_t has read the row above, not the row itself."
        )
    coverage = " + U_c c_j" if isinstance(decoder, BahdanauConfig) and decoder.coverage else ""
    return (
        f"Weights: the softmax of v_a·tanh(W_a s + U_a h_j{coverage}) over the source positions j, s the state before "
        "the decoder's step (Bahdanau et al. 2015)."
    )


def score_note(search: SearchConfig, forced: bool) -> str:
    """What a score is, with the search's own numbers."""
    alpha = search.length_penalty
    text = "score = log p" if alpha == 0 else f"score = log p / ((5 + n) / 6)^{alpha:g}"
    if search.coverage_penalty:
        text += f" + {search.coverage_penalty:g} Σ_j log min(1, the weights that source position j has had)"
    if alpha != 0:
        text += ", n the pieces of the translation with its end"
    text += " (Wu et al. 2016), p its probability: nearer to 0 is better."
    if forced:
        return text + " These translations were given, not searched for."
    if search.rerank == "mbr":
        text += " The order is that of their expected chrF (minimum Bayes risk)."
    return text
