"""Shows how far a late target token's loss reaches back: the norm of its gradient at each source position's embedding.

python scripts/gradient_path.py --out gradient_path.png
python scripts/gradient_path.py --run runs/seq2seq --run runs/bahdanau --run runs/luong --length 15

Without --run the models are untrained, of equal size, and read sentences of random ids: kind none, in which everything
goes through one vector, against bahdanau and luong, whose attention is a path of a few steps to each position. With
--run they are those of the runs, on pairs of a split that are long enough on both sides, cut to the length.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from nmt.config import BahdanauConfig, DecoderConfig, EncoderConfig, LuongConfig, ModelConfig, PlainConfig
from nmt.data.pairs import read_split
from nmt.data.tokenizer import BOS, EOS
from nmt.errors import NmtError
from nmt.model.seq2seq import Seq2Seq, build_model
from nmt.plotting import save_figure
from nmt.run_dir import RunDir
from nmt.translate import Translator

VOCABULARY = 1000  # of untrained models; ids below 4 are special
FEWEST = 8  # pairs of a run that a mean is taken over

Norms = np.ndarray


class Sentences(NamedTuple):
    """Ids of source [B, S] and target [B, T], both ended by EOS; all of one length, so that there is no padding."""

    src: Tensor
    tgt: Tensor


def gradient_norms(model: Seq2Seq, sentences: Sentences) -> Norms:
    """Norms of the gradient of the last target token's loss at each source embedding, [S], the mean over sentences."""
    model.eval().requires_grad_(False)
    batch = len(sentences.src)
    embedded_BSD = model.src_embedding(sentences.src).detach().requires_grad_()
    lengths_B = torch.full((batch,), sentences.src.shape[1])
    memory = model.decoder.read(model.encoder(embedded_BSD, lengths_B))
    tgt_in_BT = torch.cat([torch.full((batch, 1), BOS), sentences.tgt[:, :-1]], 1)
    readouts_BTR, _ = model.decoder(model.tgt_embedding(tgt_in_BT), model.decoder.init_state(memory), memory)
    loss = nn.functional.cross_entropy(model.output(readouts_BTR[:, -1]), sentences.tgt[:, -1], reduction="sum")
    (gradient_BSD,) = torch.autograd.grad(loss, embedded_BSD)
    norms: Norms = gradient_BSD.norm(dim=-1).mean(0).numpy()
    return norms


def untrained(length: int, sentences: int, size: int, seed: int) -> dict[str, Norms]:
    """The norms of models as training starts with them."""
    decoders: dict[str, DecoderConfig] = {
        "none": PlainConfig(kind="none", hidden_size=2 * size),
        "bahdanau": BahdanauConfig(hidden_size=2 * size, attention_size=2 * size),
        "luong": LuongConfig(kind="luong", hidden_size=2 * size),
    }
    found = {}
    for name, decoder in decoders.items():
        torch.manual_seed(seed)
        config = ModelConfig(embedding_size=size, dropout=0.0, encoder=EncoderConfig(hidden_size=size), decoder=decoder)
        model = build_model(config, VOCABULARY, VOCABULARY)
        torch.manual_seed(seed)  # the same sentences for all
        found[name] = gradient_norms(model, random_sentences(length, sentences))
    return found


def random_sentences(length: int, count: int) -> Sentences:
    """Source and target of random ids, each ended by EOS."""
    src, tgt = (torch.randint(4, VOCABULARY, (count, length)) for _ in range(2))
    src[:, -1] = tgt[:, -1] = EOS
    return Sentences(src, tgt)


def of_run(folder: Path, split: str, length: int, most: int) -> Norms:
    """The norms of a run's best checkpoint.

    The source is cut to `length` with its EOS; of the target the first `length` pieces are read, and the last of these
    is the late token.

    Raises:
        NmtError: when the split has too few pairs of that length, or the run cannot be read.
    """
    run = RunDir.open(folder)
    translator = Translator.load(run, device="cpu")
    pairs = read_split(run.settings(), split)
    sources, targets = zip(*pairs)
    encoded = zip(translator.tokenizers.src.encode(sources), translator.tokenizers.tgt.encode(targets), strict=True)
    rows = [(src, tgt) for src, tgt in encoded if min(len(src) + 1, len(tgt)) >= length][:most]
    if len(rows) < FEWEST:
        raise NmtError(
            f"{folder}: {split} has {len(rows)} pairs of at least {length} pieces on both sides, too few for a mean. "
            "Choose a smaller --length or another --split."
        )
    src = torch.tensor([[*src[: length - 1], EOS] for src, _ in rows])
    return gradient_norms(translator.model, Sentences(src, torch.tensor([tgt[:length] for _, tgt in rows])))


def table(found: Mapping[str, Norms]) -> str:
    """Markdown: norms at some positions, and the share of the largest that the smallest is."""
    length = len(next(iter(found.values())))
    places = sorted({1, (length + 3) // 4, (length + 1) // 2, (3 * length + 3) // 4, length})
    lines = ["| position | " + " | ".join(found) + " |", "| --- |" + " ---: |" * len(found)]
    lines += [f"| {j} | " + " | ".join(f"{norms[j - 1]:.2e}" for norms in found.values()) + " |" for j in places]
    rows = {"mean": np.mean, "smallest / largest": lambda norms: norms.min() / norms.max()}
    lines += [
        f"| {what} | " + " | ".join(f"{of(norms):.2e}" for norms in found.values()) + " |" for what, of in rows.items()
    ]
    return "\n".join(lines)


def draw(found: Mapping[str, Norms], title: str, path: Path) -> None:
    """The norms by position, a line a model, on a logarithmic axis."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, norms in found.items():
        axes.plot(range(1, len(norms) + 1), norms, marker=".", label=name)
    axes.set_yscale("log")
    axes.set_xlabel("source position")
    axes.set_ylabel("norm of the gradient at the embedding")
    axes.set_title(title, parse_math=False)
    axes.grid(alpha=0.3)
    for text in axes.legend().get_texts():
        text.set_parse_math(False)
    save_figure(figure, path)


def main(args: Sequence[str] | None = None) -> None:
    """Parses the command line, measures, prints the table, and writes what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, action="append", default=[], help="a trained run; may be repeated")
    parser.add_argument("--split", default="dev", help="of the runs: dev, test or train")
    parser.add_argument("--length", type=int, default=50, help="pieces of source and target, EOS included")
    parser.add_argument("--sentences", type=int, default=32, help="how many the mean is taken over (of a run: at most)")
    parser.add_argument("--size", type=int, default=256, help="of untrained models: embeddings, encoder a direction")
    parser.add_argument("--seed", type=int, default=1, help="of untrained models and their sentences")
    parser.add_argument("--out", type=Path, help="picture, PNG, SVG or PDF")
    parser.add_argument("--json", type=Path, help="the norms by model, as JSON")
    options = parser.parse_args(args)
    if min(options.length, options.sentences, options.size) < 1:
        parser.error("--length, --sentences and --size must be at least 1")
    names = [run.resolve().name for run in options.run]
    if len(set(names)) < len(names):
        parser.error("two of the runs have the same name, which is what the plot would call both")
    if options.run:
        try:
            norms = [of_run(run, options.split, options.length, options.sentences) for run in options.run]
        except NmtError as error:
            raise SystemExit(str(error)) from error
        found = dict(zip(names, norms, strict=True))
    else:
        found = untrained(options.length, options.sentences, options.size, options.seed)
    print(table(found))
    if options.json:
        content = {name: [float(norm) for norm in norms] for name, norms in found.items()}
        options.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    if options.out:
        which = "trained" if options.run else "untrained"
        draw(found, f"Gradient of target token {options.length} ({which} models)", options.out)


if __name__ == "__main__":
    main()
