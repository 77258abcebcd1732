"""`nmt align` as a user runs it: its lines, its scores, both directions, and what it refuses."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from tiny import nmt
from typer.testing import CliRunner

from nmt import cli
from nmt.data.links import Links, alignment_error, parse_links, read_links, symmetrize, transposed

FORWARD = ("--run", "runs/fore")


@pytest.fixture(scope="module")
def place(workplace: Path) -> Path:
    """The workplace with runs that have learnt the corpus, `fore` and `back`, and the gold links of its test set."""
    config = yaml.safe_load((workplace / "bahdanau.yaml").read_text())
    config["model"]["dropout"] = 0.0
    config["training"] |= {"batch_tokens": 400, "max_steps": 300, "validate_every": 300}
    config["training"]["optimizer"] = {"kind": "adam", "learning_rate": 0.02}
    for run, languages in (("fore", ("en", "de")), ("back", ("de", "en"))):
        config["data"] |= dict(zip(("src_lang", "tgt_lang"), languages, strict=True))
        for split in ("train", "dev", "test"):
            config["data"][split] = {side: f"{split}.{lang}" for side, lang in zip(("src", "tgt"), languages)}
        (workplace / f"{run}.yaml").write_text(yaml.safe_dump(config))
        nmt("train", "--config", f"{run}.yaml", cwd=workplace)
    lines = (workplace / "test.en").read_text().splitlines()
    with (workplace / "gold").open("w") as gold:
        for words in map(len, map(str.split, lines)):  # the last word comes first; one link is but possible
            links = [f"{(word - 1) % words}-{word}" for word in range(words)]
            gold.write(" ".join([*links, f"0p{words - 1}"]) + "\n")
    return workplace


def align(*args: object, cwd: Path, check: int = 0) -> Result:
    """Runs the command in this process: there are many calls, and torch is long to import."""
    before = Path.cwd()
    os.chdir(cwd)
    try:
        result = CliRunner().invoke(cli.app, ["align", *map(str, args)])
    finally:
        os.chdir(before)
    assert result.exit_code == check, result.output
    return result


def links_of(output: bytes) -> list[Links]:
    assert output == b"" or output.endswith(b"\n")
    return [parse_links(line, "stdout", number).sure for number, line in enumerate(output.decode().split("\n")[:-1], 1)]


def files(place: Path, folder: Path, pairs: list[tuple[str, str]]) -> tuple[Any, ...]:
    for side, name in enumerate(("src", "tgt")):
        (folder / name).write_text("".join(pair[side] + "\n" for pair in pairs))
    return "--src", folder / "src", "--tgt", folder / "tgt"


def test_a_line_a_pair_with_links_within_its_words(place: Path) -> None:
    found = links_of(align(*FORWARD, cwd=place).stdout_bytes)
    sources, targets = ((place / f"test.{lang}").read_text().splitlines() for lang in ("en", "de"))
    assert len(found) == len(sources) == 30
    assert any(found)
    for links, src, tgt in zip(found, sources, targets, strict=True):
        assert all(0 <= source < len(src.split()) and 0 <= target < len(tgt.split()) for source, target in links)
        assert len({target for _, target in links}) == len(links)  # one source word for each target word


def test_given_words_are_what_links_are_of(place: Path, tmp_path: Path) -> None:
    sources, targets = ((place / f"test.{lang}").read_text().splitlines() for lang in ("en", "de"))
    given = files(place, tmp_path, list(zip(sources, targets, strict=True)))
    whole = align(*FORWARD, *given, cwd=place).stdout_bytes
    (tmp_path / "src.same").write_text("".join(f"{text}\n" for text in sources))
    assert align(*FORWARD, *given, "--src-words", tmp_path / "src.same", cwd=place).stdout_bytes == whole

    cut = [re.sub(r"(?<=\S)\.", " .", text) for text in sources]
    assert cut != sources
    (tmp_path / "src.cut").write_text("".join(f"{text}\n" for text in cut))
    gold = tmp_path / "gold.cut"
    gold.write_text("".join(f"{len(text.split()) - 1}-0\n" for text in cut))  # the last word is one more than before
    align(*FORWARD, *given, "--gold", gold, cwd=place, check=1)
    cut_args = ("--src-words", tmp_path / "src.cut", "--gold", gold)
    found = links_of(align(*FORWARD, *given, *cut_args, cwd=place).stdout_bytes)
    for links, text in zip(found, cut, strict=True):
        assert all(source < len(text.split()) for source, _ in links)


def test_words_that_are_of_another_text_are_told_with_their_line(place: Path, tmp_path: Path) -> None:
    sources, targets = ((place / f"test.{lang}").read_text().splitlines() for lang in ("en", "de"))
    given = files(place, tmp_path, list(zip(sources, targets, strict=True)))
    words = tmp_path / "words"
    words.write_text("".join(f"{text}\n" for text in [*sources[:2], f"x {sources[2]}", *sources[3:]]))
    text = align(*FORWARD, *given, "--src-words", words, cwd=place, check=1).stderr
    assert "words, line 3: the word 'x' is not what comes next" in text
    words.write_text("one\n")
    assert "has 1 lines for 30 sentences" in align(*FORWARD, *given, "--tgt-words", words, cwd=place, check=1).stderr
    alone = align(*FORWARD, "--src", tmp_path / "src", "--src-words", words, cwd=place, check=2).stderr
    assert "give --tgt too" in alone


def test_a_blank_side_gives_a_blank_line_and_files_equal_the_split(place: Path, tmp_path: Path) -> None:
    whole = align(*FORWARD, cwd=place).stdout_bytes.split(b"\n")
    pairs = list(zip(*((place / f"test.{lang}").read_text().splitlines()[:2] for lang in ("en", "de")), strict=True))
    pairs = [("", ""), pairs[0], ("the dog", " \t"), ("\u3000", "der Hund"), pairs[1], ("", "")]
    out = align(*FORWARD, *files(place, tmp_path, pairs), cwd=place).stdout_bytes
    assert out.split(b"\n") == [b"", whole[0], b"", b"", whole[1], b"", b""]


def test_a_file_is_written_whole_or_not_at_all(place: Path, tmp_path: Path) -> None:
    done = align(*FORWARD, "--output", tmp_path / "links", cwd=place)
    assert done.stdout_bytes == b""
    assert (tmp_path / "links").read_bytes() == align(*FORWARD, cwd=place).stdout_bytes
    (tmp_path / "links").write_text("old")
    pairs = [("the dog", "der Hund")]
    options = files(place, tmp_path, pairs)
    (tmp_path / "tgt").write_bytes(b"der Hund\nzwei\n")
    failed = align(*FORWARD, *options, "--output", tmp_path / "links", cwd=place, check=1)
    assert re.search(rb"src has 1 lines and \S*tgt has 2", failed.stderr_bytes)
    assert (tmp_path / "links").read_text() == "old"


def test_gold_links_give_precision_recall_and_the_error_rate_last(place: Path, tmp_path: Path) -> None:
    done = align(*FORWARD, "--gold", "gold", cwd=place)
    scores = alignment_error(links_of(done.stdout_bytes), read_links(place / "gold"))
    *_, ratios, last = done.stderr.splitlines()
    assert last == f"AER {scores.aer:.4f}"
    assert ratios.startswith(f"precision {scores.precision:.4f}, recall {scores.recall:.4f} of {scores.predicted} ")
    assert f"{scores.sure} sure and {scores.possible - scores.sure} more" in ratios
    # The same links, counted from one, and with the target word first.
    shifted = re.sub(
        r"(\d+)([-p])(\d+)", lambda m: f"{int(m[3]) + 1}{m[2]}{int(m[1]) + 1}", (place / "gold").read_text()
    )
    (tmp_path / "gold").write_text(shifted)
    options = ("--gold", tmp_path / "gold", "--gold-base", 1, "--gold-reversed")
    assert align(*FORWARD, *options, cwd=place).stderr.splitlines()[-1] == last


def test_links_that_are_the_gold_ones_have_no_error(place: Path, tmp_path: Path) -> None:
    links = align(*FORWARD, cwd=place).stdout_bytes
    (tmp_path / "gold").write_bytes(links)
    assert align(*FORWARD, "--gold", tmp_path / "gold", cwd=place).stderr_bytes.endswith(b"\nAER 0.0000\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0-0\n", r"gold has 1 lines and test has 30 pairs"),
        ("0-0 1-1 3--4\n" + "\n" * 29, r"gold, line 1: '3--4' is no link"),
        ("\n0-0 99-0\n" + "\n" * 28, r"gold, line 2: a link names word 99 of the source, which has \d+.*--gold-base"),
        ("0-0\n\n0p77\n" + "\n" * 27, r"gold, line 3: a link names word 77 of the target, which has \d+"),
        ("\n" * 30, r"gold: every line is blank"),
    ],
)
def test_gold_links_that_do_not_fit_are_refused(place: Path, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "gold").write_text(content)
    failed = align(*FORWARD, "--gold", tmp_path / "gold", cwd=place, check=1)
    assert re.search(message, failed.stderr)
    assert b"Traceback" not in failed.stderr_bytes
    assert failed.stdout_bytes == b""


def test_two_directions_are_combined(place: Path, tmp_path: Path) -> None:
    forward = links_of(align(*FORWARD, cwd=place).stdout_bytes)
    files_ = ("--src", "test.de", "--tgt", "test.en")
    backward = [transposed(links) for links in links_of(align("--run", "runs/back", *files_, cwd=place).stdout_bytes)]
    options = (*FORWARD, "--reverse-run", "runs/back")
    for method in ("intersection", "union", "grow-diag-final-and"):
        expected = [symmetrize(*both, method) for both in zip(forward, backward, strict=True)]  # type: ignore[arg-type]
        assert links_of(align(*options, "--symmetrize", method, cwd=place).stdout_bytes) == expected
    assert links_of(align(*options, cwd=place).stdout_bytes) == expected


def test_a_reverse_run_of_other_languages_is_refused(place: Path) -> None:
    failed = align(*FORWARD, "--reverse-run", "runs/luong", cwd=place, check=1)
    assert b"runs/fore translates en to de, and runs/luong en to de" in failed.stderr_bytes


@pytest.mark.parametrize("options", [("--run", "runs/none"), ("--run", "runs/back", "--reverse-run", "runs/none")])
def test_a_run_without_attention_is_refused(place: Path, options: tuple[str, ...]) -> None:
    failed = align(*options, cwd=place, check=1)
    assert b"runs/none: a model of kind none has no attention" in failed.stderr_bytes


def test_text_without_translations_is_translated_and_aligned_with_them(place: Path, tmp_path: Path) -> None:
    (tmp_path / "src").write_text("the old dog sees the cat.\n\nthe cat.\n")
    command = (*FORWARD, "--src", tmp_path / "src", "--beam", 2)
    found = links_of(align(*command, "--translations", tmp_path / "out", cwd=place).stdout_bytes)
    plain = nmt("translate", *FORWARD, "--input", tmp_path / "src", "--beam", 2, cwd=place).stdout
    assert (tmp_path / "out").read_bytes() == plain
    assert len(found) == 3
    assert not found[1]
    for links, src, tgt in zip(found, (tmp_path / "src").read_text().split("\n"), plain.decode().split("\n")):
        assert all(source < len(src.split()) and target < len(tgt.split()) for source, target in links)
    both = links_of(align(*command, "--reverse-run", "runs/back", "--symmetrize", "union", cwd=place).stdout_bytes)
    assert all(links <= more for links, more in zip(found, both, strict=True))


def test_a_threshold_links_more_words_the_lower_it_is(place: Path) -> None:
    counts = [
        sum(map(len, links_of(align(*FORWARD, "--threshold", value, cwd=place).stdout_bytes)))
        for value in (0, 0.1, 0.3, 1)
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]


def test_the_shift_is_that_of_the_run_unless_given(place: Path, tmp_path: Path) -> None:
    zero, one = (align(*FORWARD, "--shift", shift, cwd=place).stdout_bytes for shift in (0, 1))
    assert zero != one
    assert align(*FORWARD, cwd=place).stdout_bytes == zero
    copy = tmp_path / "run"
    shutil.copytree(place / "runs/fore", copy)
    config = (copy / "config.yaml").read_text()
    guided = config.replace("alignment_shift: 0", "alignment_shift: 1")
    guided = guided.replace("train_alignments: null", "train_alignments: gold")
    (copy / "config.yaml").write_text(guided)
    assert align("--run", copy, cwd=place).stdout_bytes == one


def test_a_model_that_has_learnt_to_translate_aligns_the_words(place: Path) -> None:
    """Bahdanau's weights choose the next word, so they are that word's: shift 0."""
    errors = [
        float(align(*FORWARD, "--gold", "gold", "--shift", shift, cwd=place).stderr.split()[-1]) for shift in (0, 1)
    ]
    assert errors[0] < 0.4
    assert errors[1] > 0.6


def test_pairs_that_are_too_long_are_aligned_in_part_with_a_warning(place: Path, tmp_path: Path) -> None:
    pairs = [("the dog " * 300, "der Hund"), ("the dog", "der Hund"), ("the dog", "der Hund " * 300)]
    done = align(*FORWARD, *files(place, tmp_path, pairs), cwd=place)
    assert b"warning: 2 pairs were too long" in done.stderr_bytes
    assert len(links_of(done.stdout_bytes)) == 3


# --- usage ----------------------------------------------------------------------------------------------------------

USAGE = {
    "tgt alone": (["--tgt", "a"], "it needs --src"),
    "split and files": (["--split", "dev", "--src", "a"], "either --split or files"),
    "gold without targets": (["--src", "a", "--gold", "g"], "give --tgt too"),
    "base without gold": (["--gold-base", "1"], "goes with --gold"),
    "reversed without gold": (["--gold-reversed"], "goes with --gold"),
    "beam for given pairs": (["--beam", "5"], "nothing is translated"),
    "translations of given pairs": (["--src", "a", "--tgt", "b", "--translations", "c"], "nothing is translated"),
    "one direction": (["--symmetrize", "union"], "give --reverse-run"),
    "source words of no pairs": (["--src", "a", "--src-words", "w"], "Invalid value for '--src-words'"),
    "target words of no pairs": (["--src", "a", "--tgt-words", "w"], "Invalid value for '--tgt-words'"),
    "two outputs in one": (["--src", "a", "--output", "x", "--translations", "./x"], "is the file of --output"),
    "translations over the source": (["--src", "s", "--translations", "s"], "is the file of --src"),
    "links over the source": (["--src", "s", "--output", "s"], "is the file of --src"),
    "links over the targets": (["--src", "s", "--tgt", "t", "--output", "t"], "is the file of --tgt"),
    "links over gold ones": (["--gold", "g", "--output", "g"], "is the file of --gold"),
    "links over source words": (["--src-words", "w", "--output", "w"], "is the file of --src-words"),
    "links over target words": (["--tgt-words", "w", "--output", "w"], "is the file of --tgt-words"),
    "base of two": (["--gold", "g", "--gold-base", "2"], "--gold-base"),
    "shift of two": (["--shift", "2"], "--shift"),
    "threshold beyond one": (["--threshold", "1.5"], "--threshold"),
}


@pytest.mark.parametrize(("args", "part"), USAGE.values(), ids=USAGE)
def test_options_that_do_not_go_together_are_a_usage_error(args: list[str], part: str) -> None:
    result = CliRunner().invoke(cli.app, ["align", *args])
    assert result.exit_code == 2
    assert part in result.stderr
    assert result.stdout == ""


def test_help_loads_no_heavy_package() -> None:
    code = (
        "import sys\nfrom nmt.cli import main\n"
        "try:\n    main(['align', '--help'])\n"
        "except SystemExit:\n    print('heavy', sorted(sys.modules.keys() & {'torch', 'numpy', 'sentencepiece'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert re.search(r"^  nmt align\b", done.stdout, re.MULTILINE)
    assert "heavy []" in done.stdout
