"""The cases of scripts/fuzz_text.py: each gives drawn bytes to one reader or command and judges what comes of them."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import fuzz_inputs as inputs
import torch
from fuzz_inputs import Pair, Wrong
from typer.main import get_command

from nmt import cli
from nmt.config import Source, TokenizerConfig, load_config
from nmt.data.corpus import PairSource
from nmt.data.tokenizer import Tokenizers
from nmt.errors import NmtError
from nmt.model.seq2seq import build_model
from nmt.prepare import prepare
from nmt.reporting import SilentReporter
from nmt.run_dir import RunDir
from nmt.translate import Translator

CONFIG = """
data: {src_lang: en, tgt_lang: de, train: {src: a, tgt: b}, dev: {src: a, tgt: b}}
model:
  embedding_size: 6
  encoder: {hidden_size: 4}
  decoder: {kind: bahdanau, hidden_size: 6, attention_size: 4}
search: {beam_size: 2, max_length_ratio: 0.2}
"""
_COMMAND = get_command(cli.app)  # made once: it takes longer than most cases


class Silent(Exception):
    """A result that is not the input's, without a word."""


class FalseError(Exception):
    """An error for input that is good, or one that does not say what is wrong."""


@dataclass
class Workplace:
    """A folder with a run in it, and its translator."""

    folder: Path
    run: RunDir
    translator: Translator

    @classmethod
    def make(cls, folder: Path) -> Workplace:
        """Trains the pieces and writes a run with random weights."""
        (folder / "fuzz.yaml").write_text(CONFIG, encoding="utf-8")
        config = load_config(str(folder / "fuzz.yaml"))
        run = RunDir.create(folder / "run")
        rng = Random(0)
        pairs = [(" ".join(rng.choices(inputs.WORDS, k=5)), "der Hund sieht ein Haus") for _ in range(50)]
        learning = TokenizerConfig(vocab_size=290, byte_fallback=True)
        tokenizers, _ = Tokenizers.train(run.tokenizer, lambda: pairs, learning, len(pairs))
        torch.manual_seed(1)
        model = build_model(config.model, tokenizers.src.vocab_size, tokenizers.tgt.vocab_size)
        with torch.no_grad():  # larger than a real start: the words that follow should not be the same few
            for parameter in model.parameters():
                parameter.uniform_(-2.0, 2.0)
        content = {"model": model.state_dict(), "optimizer": {}, "schedule": {}, "state": {"step": 1}, "random": {}}
        torch.save(content, run.best)
        run.config.write_text(CONFIG, encoding="utf-8")  # short: it is read again in every case
        return cls(folder, run, Translator.load(run, device="cpu"))

    def file(self, name: str, data: bytes) -> Path:
        """Writes a file of the case."""
        path = self.folder / name
        path.write_bytes(data)
        return path


Check = Callable[[Random, Workplace], str]


def require(holds: bool, what: str) -> None:
    """Reports a silent failure."""
    if not holds:
        raise Silent(what)


def message_kind(message: str) -> str:
    """What an error is about, for the table."""
    kinds = [
        "not UTF-8", "cut off", "damaged", "tab-separated field", "not JSON", "JSON object", "text in quotes",
        "no column", "surrogate", "not valid CSV", r"\d+ fields", "no Parquet", "missing", "holds values of type",
        r"has [\d,]+ lines",
        "no sentence", "nothing to draw", "is no link", "names word", "every line is blank", "must be aligned",
        "no pairs in", "vocab_size", "nothing to learn", "counted from",
    ]  # fmt: skip
    return next((kind for kind in kinds if re.search(kind, message)), f"other: {message[:60]}")


def judged(expected: object, message: str | None) -> str | None:
    """Returns the kind of an error that had to come, None where there is none; raises for any other."""
    if isinstance(expected, Wrong):
        require(message is not None, f"no error, but one of {expected.patterns} was to come")
        if not expected.fits(message or ""):
            raise FalseError(f"{message} -- expected {expected.patterns}")
    elif message is not None and expected is not None:
        raise FalseError(message)
    return None if message is None else message_kind(message)


def drawn_file(rng: Random, place: Workplace, name: str, data: bytes) -> tuple[Path, list[str] | Wrong]:
    """A file of these bytes, perhaps compressed, and its lines."""
    written, broken = inputs.packed(rng, data)
    path = place.file(name, written)
    lines = inputs.lines_of(data)
    return path, lines if broken is None else broken


def drawn_pair(rng: Random, place: Workplace) -> tuple[Path, Path, list[Pair] | Wrong]:
    """Two files that are meant to be aligned, and their pairs."""
    count = rng.choice((0, 1, 2, 3, 4))
    src, src_lines = drawn_file(rng, place, "src", inputs.text_bytes(rng, count))
    tgt, tgt_lines = drawn_file(rng, place, "tgt", inputs.text_bytes(rng, count))
    wrong = [lines for lines in (src_lines, tgt_lines) if isinstance(lines, Wrong)]
    if wrong:
        return src, tgt, wrong[0] | wrong[-1]
    assert not isinstance(src_lines, Wrong)
    assert not isinstance(tgt_lines, Wrong)
    if len(src_lines) != len(tgt_lines):
        return src, tgt, Wrong((rf"has {len(src_lines)} lines?( and|, but) .* {len(tgt_lines)}",))
    return src, tgt, list(zip(src_lines, tgt_lines))


# --- sources --------------------------------------------------------------------------------------------------------


def read_source(source: Source, expected: list[Pair] | Wrong | None) -> str:
    """Reads a source and compares its pairs."""
    pairs, message = [], None
    try:
        pairs = list(PairSource(source, "en", "de"))
    except NmtError as error:
        message = str(error)
    kind = judged(expected, message)
    if isinstance(expected, list):
        require(pairs == expected, f"{len(pairs)} pairs: {pairs[:3]!r} are not {expected[:3]!r}")
    return kind or "pairs"


def text_source(rng: Random, place: Workplace) -> str:
    """Two aligned files."""
    src, tgt, expected = drawn_pair(rng, place)
    return read_source(Source(src=str(src), tgt=str(tgt)), expected)


def tsv_source(rng: Random, place: Workplace) -> str:
    """One file with a tab on each line."""
    count = rng.randrange(4)
    rows = [f"{inputs.line_text(rng)}\t{inputs.line_text(rng)}" for _ in range(count)]
    if rng.randrange(2):  # the odd characters hold tabs too: half of the files should be good ones
        rows = [
            "\t".join(side.replace("\t", " ") for side in (row[: len(row) // 2], row[len(row) // 2 :])) for row in rows
        ]
    data = "".join(row + rng.choice(["\n", "\r\n"]) for row in rows).encode()
    data = inputs.damaged(rng, data) if rng.randrange(4) == 0 else data
    return _structured(rng, place, "tsv", data, inputs.tsv_pairs)


def jsonl_source(rng: Random, place: Workplace) -> str:
    """JSON objects."""
    return _structured(rng, place, "jsonl", inputs.jsonl_bytes(rng), inputs.jsonl_pairs)


def csv_source(rng: Random, place: Workplace) -> str:
    """CSV records."""
    return _structured(rng, place, "csv", inputs.csv_bytes(rng), inputs.csv_pairs)


def _structured(
    rng: Random, place: Workplace, kind: str, data: bytes, parse: Callable[[list[str]], list[Pair] | Wrong]
) -> str:
    path, lines = drawn_file(rng, place, f"f.{kind}", data)
    if not isinstance(lines, Wrong):
        return read_source(Source.model_validate({kind: str(path)}), parse(lines))
    # What comes before the bad byte may be wrong as well, and is found first.
    before = inputs.lines_of(data)
    if isinstance(before, Wrong):
        good = data[: _first_bad(data)]
        before = inputs.lines_of(good[: good.rfind(b"\n") + 1])
    assert not isinstance(before, Wrong)
    parsed = parse(before)
    other = parsed if isinstance(parsed, Wrong) else Wrong(())
    loose = Wrong((r"not valid CSV", "no column", r"line \d+: \d+ fields")) if kind == "csv" else Wrong(())
    return read_source(Source.model_validate({kind: str(path)}), lines | other | loose)


def _first_bad(data: bytes) -> int:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(data)


def parquet_source(rng: Random, place: Workplace) -> str:
    """An Arrow table."""
    path = place.folder / "f.parquet"
    return read_source(Source(parquet=str(path)), inputs.write_parquet(rng, path))


# --- commands -------------------------------------------------------------------------------------------------------


def invoke(place: Workplace, *args: object, stdin: bytes | None = None) -> tuple[bytes, str | None]:
    """Runs a command in this process; returns stdout and the message of its error."""
    data = [io.BytesIO(stdin or b""), io.BytesIO(), io.BytesIO()]
    before = sys.stdin, sys.stdout, sys.stderr
    streams = [io.TextIOWrapper(each, "utf-8", errors="backslashreplace", write_through=True) for each in data]
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        code = _COMMAND.main([str(arg) for arg in args], prog_name="nmt", standalone_mode=True)
    except SystemExit as end:
        code = end.code
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
    if code in (130, 143):  # a signal is for the whole run
        sys.exit(code)
    out, errors = data[1].getvalue(), data[2].getvalue().decode("utf-8")
    if not code:
        return out, None
    found = re.search(r"^error: (.*)", errors, re.DOTALL | re.MULTILINE)
    if code != 1 or found is None or "Traceback" in errors:
        raise RuntimeError(f"exit code {code}: {errors[-2000:]}")
    return out, found[1].strip()


def compare_translations(
    rng: Random, place: Workplace, lines: Sequence[str], out: bytes, form: str, n_best: int
) -> None:
    """Each line of the input has its own translation, in its place, and no line of the output is broken."""
    require(out == b"" or out.endswith(b"\n"), "the last line has no end")
    rows = out.decode("utf-8").split("\n")[:-1]
    require(out.decode("utf-8").splitlines() == rows, "a line holds another line break")
    found: list[str]
    if form == "text":
        found = rows
    elif form == "jsonl":
        objects = [json.loads(row) for row in rows]
        require([row["line"] for row in objects] == list(range(1, len(lines) + 1)), "numbers of lines")
        found = [row["text"] for row in objects]
    else:
        fields = [row.split("\t") for row in rows]
        require(all(len(row) == (3 if n_best == 1 else 5) for row in fields), "fields of tsv")
        best = fields if n_best == 1 else [row[2:] for row in fields if row[1] == "1"]
        found = [row[1] for row in best]
    require(len(found) == len(lines), f"{len(found)} translations of {len(lines)} lines")
    # In another order, and so in other batches.
    order = list(range(len(lines)))
    rng.shuffle(order)
    others = place.translator.translate([lines[number] for number in order], n_best)
    for number, other in zip(order, others):
        expected = other.text.replace("\t", " ") if form == "tsv" else other.text
        require(found[number] == expected, f"line {number + 1}: {found[number]!r} is not {expected!r}")
        if not lines[number].strip():
            require(found[number] == "", f"line {number + 1} is blank, its translation is not")


def translate(rng: Random, place: Workplace) -> str:
    """From a file, from stdin or from arguments."""
    form, n_best = rng.choice((("text", 1), ("text", 1), ("tsv", 1), ("tsv", 2), ("jsonl", 2)))
    args: list[object] = ["translate", "--run", place.run.path, "--format", form, "--n-best", n_best]
    data = inputs.text_bytes(rng)
    lines: list[str] | Wrong
    stdin = None
    way = rng.randrange(3)
    if way == 0:
        path, lines = drawn_file(rng, place, "input", data)
        args += ["--input", path]
    elif way == 1:
        stdin, lines = data, inputs.lines_of(data)
    else:
        texts = [inputs.text_bytes(rng, 1).removesuffix(b"\n").replace(b"\0", b"") for _ in range(rng.randint(1, 3))]
        lines = inputs.lines_of(b"".join(text + b"\n" for text in texts))
        args += ["--", *map(os.fsdecode, texts)]
    to_file = rng.randrange(4) == 0
    output = place.folder / "output"
    output.unlink(missing_ok=True)
    if to_file:
        args[1:1] = ["--output", output]
    out, message = invoke(place, *args, stdin=stdin)
    kind = judged(lines, message)
    if to_file:
        require(out == b"" and output.exists() == (message is None), "an output that is not whole")
        out = output.read_bytes() if message is None else b""
    if not isinstance(lines, Wrong):
        compare_translations(rng, place, lines, out, form, n_best)
    return kind or form


def evaluate(rng: Random, place: Workplace) -> str:
    """Two files against each other."""
    src, tgt, expected = drawn_pair(rng, place)
    if expected == []:
        expected = Wrong(("no sentence",))
    scores = place.run.eval / "src.json"
    scores.unlink(missing_ok=True)
    _, message = invoke(place, "eval", "--run", place.run.path, "--src", src, "--tgt", tgt)
    kind = judged(expected, message)
    require(scores.exists() == (message is None), "scores that should not be there, or none")
    if not isinstance(expected, Wrong):
        result = json.loads(scores.read_text(encoding="utf-8"))
        require(result["sentences"] == len(expected), f"{result['sentences']} sentences of {len(expected)}")
        found = (place.run.eval / "src.hyp.txt").read_bytes()
        compare_translations(rng, place, [source for source, _ in expected], found, "text", 1)
    return kind or "scores"


def align(rng: Random, place: Workplace) -> str:
    """Given pairs, or the model's own; with gold links, fit or unfit ones."""
    args: list[object] = ["align", "--run", place.run.path]
    pairs: list[Pair] | Wrong
    if rng.randrange(3) == 0:
        path, lines = drawn_file(rng, place, "src", inputs.text_bytes(rng))
        pairs = lines if isinstance(lines, Wrong) else [(line, "") for line in lines]
        args += ["--src", path]
        given = False
    else:
        src, tgt, pairs = drawn_pair(rng, place)
        args += ["--src", src, "--tgt", tgt]
        given = True
    expected: object = pairs
    if given and not isinstance(pairs, Wrong) and rng.randrange(2):
        fit = rng.randrange(2)
        data = "".join("0-0\n" if src.strip() and tgt.strip() else "\n" for src, tgt in pairs).encode()
        gold, links = drawn_file(rng, place, "gold", data if fit else inputs.text_bytes(rng))
        args += ["--gold", gold]
        if isinstance(links, Wrong):
            expected = links | Wrong(("is no link",))
        elif not fit or b"0-0" not in data:
            expected = None  # an error, or as many lines
    out, message = invoke(place, *args)
    kind = judged(expected, message)
    if message is None:
        assert not isinstance(pairs, Wrong)
        rows = out.decode("utf-8").split("\n")
        require(rows.pop() == "" and len(rows) == len(pairs), f"{len(rows)} lines of links for {len(pairs)} pairs")
        for row, (src_text, tgt_text) in zip(rows, pairs):
            links_found = [tuple(map(int, link.split("-"))) for link in row.split()]
            require(
                all(source < len(src_text.split()) for source, _ in links_found), "a link to a word that is not there"
            )
            if given:
                require(all(target < len(tgt_text.split()) for _, target in links_found), "the same in the target")
    return kind or "links"


def attention(rng: Random, place: Workplace) -> str:
    """A page of heat maps, of translations or of given ones."""
    output = place.folder / "attention.html"
    output.unlink(missing_ok=True)
    args: list[object] = ["attention", "--run", place.run.path, "--output", output]
    pairs: list[Pair] | Wrong
    if rng.randrange(2):
        src, tgt, pairs = drawn_pair(rng, place)
        args += ["--input", src, "--tgt", tgt]
    else:
        path, lines = drawn_file(rng, place, "src", inputs.text_bytes(rng))
        pairs = lines if isinstance(lines, Wrong) else [(line, line) for line in lines]
        args += ["--input", path]
    if not isinstance(pairs, Wrong) and not any(src.strip() and tgt.strip() for src, tgt in pairs):
        pairs = Wrong(("nothing to draw",))
    _, message = invoke(place, *args)
    kind = judged(pairs, message)
    require(output.exists() == (message is None), "a page that should not be there, or none")
    return kind or "page"


def preparing(rng: Random, place: Workplace) -> str:
    """The data part of training: a development set of any bytes beside good training text."""
    src, tgt, expected = drawn_pair(rng, place)
    train = place.file("train.tsv", b"the old dog\tder alte Hund\n\tleer\na house\tein Haus\n")
    if expected == []:
        expected = Wrong(("dev", "no pair", "empty"))
    config = load_config(
        str(place.folder / "fuzz.yaml"),
        [
            f"data.train={{tsv: {train}}}",
            f"data.dev={{src: {src}, tgt: {tgt}}}",
            "tokenizer={vocab_size: 278, byte_fallback: true}",
        ],
    )
    message = None
    with tempfile.TemporaryDirectory(dir=place.folder) as cache:
        try:
            dev = prepare(config, Path(cache), SilentReporter()).dev
            pairs = list(zip(dev.src_texts(), dev.tgt_texts(), strict=True))
        except NmtError as error:
            message = str(error)
        kind = judged(expected, message)
        if isinstance(expected, list):
            require(pairs == expected, f"{pairs[:3]!r} are not {expected[:3]!r}")
    return kind or "prepared"
