"""From sources to encoded corpora: what is kept, what is reported, and when the cache is used again."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nmt.config import Config
from nmt.data.report import format_report
from nmt.errors import NmtError
from nmt.prepare import PreparedData, prepare
from nmt.reporting import SilentReporter

SRC = ["the", "a", "house", "dog", "sees", "runs", "big", "small", "red", "under", "over", "with", "woman", "man"]
TGT = ["das", "ein", "Haus", "Hund", "sieht", "rennt", "groß", "klein", "rot", "unter", "über", "mit", "Frau", "Mann"]


class Recorder(SilentReporter):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.infos: list[str] = []
        self.warnings: list[str] = []
        self.bars: dict[str, tuple[float, float | None]] = {}

    def info(self, text: str) -> None:
        self.infos.append(text)

    def warning(self, text: str) -> None:
        self.warnings.append(text)

    def progress(self, task: str, done: float, total: float | None, note: str = "") -> None:
        assert done >= self.bars.get(task, (0, None))[0], "progress never goes back"
        self.bars[task] = (done, total)


def pairs(count: int, seed: int) -> list[tuple[str, str]]:
    draw = random.Random(seed)
    picked = [draw.choices(range(len(SRC)), k=draw.randint(3, 9)) for _ in range(count)]
    return [(" ".join(SRC[i] for i in row), " ".join(TGT[i] for i in row)) for row in picked]


def write(folder: Path, name: str, rows: list[tuple[str, str]]) -> dict[str, str]:
    for side, lang in enumerate(("en", "de")):
        (folder / f"{name}.{lang}").write_bytes("".join(row[side] + "\n" for row in rows).encode())
    return {"src": str(folder / f"{name}.en"), "tgt": str(folder / f"{name}.de")}


def config(folder: Path, **data: Any) -> Config:
    sections: dict[str, Any] = {"src_lang": "en", "tgt_lang": "de", **data}
    for split, count, seed in (("train", 400, 1), ("dev", 30, 2), ("test", 20, 3)):
        if split not in sections:
            sections[split] = write(folder, split, pairs(count, seed))
    return Config.model_validate({"data": sections, "tokenizer": {"vocab_size": 48}})


def run(settings: Config, folder: Path) -> tuple[PreparedData, Recorder]:
    reporter = Recorder()
    return prepare(settings, folder / "cache", reporter), reporter


def test_every_pair_arrives_encoded_with_its_text(tmp_path: Path) -> None:
    prepared, reporter = run(config(tmp_path), tmp_path)
    for corpus, rows in ((prepared.train, pairs(400, 1)), (prepared.dev, pairs(30, 2)), (prepared.test, pairs(20, 3))):
        assert corpus is not None
        assert list(zip(corpus.src_texts(), corpus.tgt_texts())) == rows
        assert [ids.tolist() for ids in map(corpus.src_ids, range(len(corpus)))] == prepared.tokenizers.src.encode(
            [src for src, _ in rows]
        )
    report = prepared.report
    assert json.loads(json.dumps(report)) == report
    assert report["languages"] == {"src": "en", "tgt": "de"}
    assert report["cached"] is False
    assert (report["train"]["read"], report["train"]["kept"], report["train"]["dropped"]) == (400, 400, {})
    assert report["train"]["src"]["pieces"] == int(prepared.train.src_lengths.sum())
    assert report["train"]["tgt"]["max"] == int(prepared.train.tgt_lengths.max())
    assert report["vocabulary"]["src"] == prepared.tokenizers.src.vocab_size == 48
    assert (prepared.tokenizer_dir / "joint.model").is_file()
    assert format_report(report) == reporter.infos[-1]
    assert all(done == total for done, total in reporter.bars.values()), "every bar is ended"


def test_dropped_pairs_are_counted_and_held_out_pairs_are_all_kept(tmp_path: Path) -> None:
    odd = [("", "leer"), ("empty", "  "), ("the " * 60, "das"), ("the dog", "der Hund"), ("the dog", "der Hund")]
    distinct = list(dict.fromkeys(pairs(400, 1)))
    settings = config(
        tmp_path,
        train=write(tmp_path, "train", odd + distinct),
        dev=write(tmp_path, "dev", odd),
        test=None,
        max_length=40,
        drop_duplicates=True,
        max_ratio=9.0,
    )
    prepared, reporter = run(settings, tmp_path)
    dropped = prepared.report["train"]["dropped"]
    assert {reason: drops["count"] for reason, drops in dropped.items()} == {"empty": 2, "too long": 1, "duplicate": 1}
    assert [first["line"] for first in dropped["empty"]["first"]] == [1, 2]
    assert len(prepared.train) == 1 + len(distinct)
    assert prepared.dev.src_texts() == [src for src, _ in odd]
    assert prepared.dev.src_ids(0).tolist() == []
    assert prepared.test is None
    assert prepared.report["test"] is None
    assert "2 dropped as empty (lines 1, 2)" in reporter.infos[-1]
    assert "1 dropped as too long (data.max_length = 40; line 3)" in reporter.infos[-1]
    assert any("2 dev pairs have a side without text" in warning for warning in reporter.warnings)


def test_a_side_alone_is_never_dropped(tmp_path: Path) -> None:
    rows = [row if n % 3 else ("", row[1]) for n, row in enumerate(pairs(400, 1))]
    prepared, _ = run(config(tmp_path, train=write(tmp_path, "train", rows)), tmp_path)
    assert list(zip(prepared.train.src_texts(), prepared.train.tgt_texts())) == [row for row in rows if row[0]]


def test_overlap_of_dev_and_test_with_training_is_a_warning(tmp_path: Path) -> None:
    shared = [(src, "etwas anderes") for src, _ in pairs(400, 1)[10:13]]
    settings = config(tmp_path, test=write(tmp_path, "test", [("new one", "neu"), *shared]))
    prepared, reporter = run(settings, tmp_path)
    assert prepared.report["overlap"]["test"] == {
        "of": 4,
        "exact": {"sources": 3, "pairs": 0},
        "normalised": {"sources": 3, "pairs": 0},
        "first": [2, 3, 4],
    }
    assert prepared.report["overlap_dev_test"] == {
        "of": 4,
        "exact": {"sources": 0, "pairs": 0},
        "normalised": {"sources": 0, "pairs": 0},
        "first": [],
    }
    (warning,) = (text for text in reporter.warnings if "test" in text)
    assert "3 of 4 test source sentences are in the training data too (all word for word; 0 with the same" in warning
    assert "first: lines 2, 3, 4)" in warning
    assert "--set data.remove_overlap=true" in warning


def leaking(folder: Path) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Sources of which training has one dev and two test sentences, and the training pairs."""
    train = [("The dog runs!", "Der Hund rennt."), *pairs(200, 1), ("the red house", "x"), ("the red house", "x")]
    dev = [("", "leer"), ("the dog runs", "der Hund rennt"), ("unseen", "neu")]
    test = [("unseen", "neu"), ("the red house", "das rote Haus"), ("the Red House.", "x.")]
    rows = {"train": train, "dev": dev, "test": test}
    return {split: write(folder, split, some) for split, some in rows.items()}, train


def test_overlap_but_for_case_and_punctuation_is_found(tmp_path: Path) -> None:
    prepared, reporter = run(config(tmp_path, **leaking(tmp_path)[0]), tmp_path)
    nothing = {"sources": 0, "pairs": 0}
    assert prepared.report["overlap"] == {
        "dev": {"of": 3, "exact": nothing, "normalised": {"sources": 1, "pairs": 1}, "first": [2]},
        "test": {
            "of": 3,
            "exact": {"sources": 1, "pairs": 0},
            "normalised": {"sources": 2, "pairs": 1},
            "first": [2, 3],
        },
    }
    assert any("(1 word for word, the others but for case or punctuation; 1 with" in text for text in reporter.warnings)
    assert len(prepared.train) == 203


def test_sentences_of_test_that_dev_has_too_are_a_warning(tmp_path: Path) -> None:
    prepared, reporter = run(config(tmp_path, **leaking(tmp_path)[0]), tmp_path)
    assert prepared.report["overlap_dev_test"] == {
        "of": 3,
        "exact": {"sources": 1, "pairs": 1},
        "normalised": {"sources": 1, "pairs": 1},
        "first": [1],
    }
    (warning,) = (text for text in reporter.warnings if "are in dev too" in text)
    assert warning.startswith("1 of 3 test source sentences are in dev too (all word for word; 1 with the same")
    assert "first: line 1): the best checkpoint is chosen by sentences that it is tested on." in warning
    settings = config(tmp_path).model_copy(update={"data": config(tmp_path).data.model_copy(update={"test": None})})
    assert run(settings, tmp_path)[0].report["overlap_dev_test"] is None


def test_removing_overlap_drops_training_pairs_with_a_source_of_dev_or_test(tmp_path: Path) -> None:
    sources, train = leaking(tmp_path)
    before, _ = run(config(tmp_path, **sources), tmp_path)
    prepared, reporter = run(config(tmp_path, **sources, remove_overlap=True), tmp_path)
    assert list(zip(prepared.train.src_texts(), prepared.train.tgt_texts())) == train[1:-2]
    assert (len(prepared.dev), len(prepared.test or [])) == (3, 3)
    (label,) = prepared.report["train"]["sources"]
    assert prepared.report["train"]["dropped"] == {
        "in dev or test": {"count": 3, "first": [{"source": label, "line": line} for line in (1, 202, 203)]}
    }
    assert prepared.report["overlap"] == before.report["overlap"], "what was found is still told"
    assert "3 dropped as in dev or test (lines 1, 202, 203)" in reporter.infos[-1]
    assert not any("training data too" in text for text in reporter.warnings)
    assert prepared.report["where"] != before.report["where"]


def test_repeated_pairs_are_counted_whether_they_are_dropped_or_not(tmp_path: Path) -> None:
    distinct = list(dict.fromkeys(pairs(400, 1)))
    train = write(tmp_path, "train", [*distinct, *distinct[:7], ("", ""), ("", "")])
    kept, reporter = run(config(tmp_path, train=train), tmp_path)
    repeated = kept.report["train"]["repeated"]
    assert (repeated["count"], repeated["share"]) == (7, round(7 / (len(distinct) + 7), 6))
    first = len(distinct) + 1
    assert [place["line"] for place in repeated["first"]] == list(range(first, first + 5))
    assert f"7 have occurred before, {repeated['share']:.2%} (lines {first}, " in reporter.infos[-1]
    dropped, reporter = run(config(tmp_path, train=train, drop_duplicates=True), tmp_path)
    assert dropped.report["train"]["repeated"] == repeated
    assert f"7 dropped as duplicate, {repeated['share']:.2%} (lines {first}, " in reporter.infos[-1]
    assert "have occurred before" not in reporter.infos[-1]


def test_the_lengths_of_training_pairs_are_drawn(tmp_path: Path) -> None:
    prepared, reporter = run(config(tmp_path), tmp_path)
    lengths = prepared.report["train"]["lengths"]
    for side, counted in (("src", prepared.train.src_lengths), ("tgt", prepared.train.tgt_lengths)):
        width, columns = lengths["width"], lengths[side]
        assert columns == [
            int(((counted > low) & (counted <= low + width)).sum()) for low in range(0, width * len(columns), width)
        ]
        assert sum(columns) == 400
        (line,) = (line for line in reporter.infos[-1].splitlines() if line.strip().startswith(f"{side} |"))
        bars = line.split("|")[1]
        assert [bar == " " for bar in bars] == [not count for count in columns], "no column with a pair looks empty"
        assert bars[columns.index(max(columns))] == "█"
        assert f"| 1 to {width * len(columns)}, " in line
        assert f"at most {max(columns)} pairs in one" in line


def test_several_training_sources_are_read_in_order_and_named(tmp_path: Path) -> None:
    first = write(tmp_path, "one", pairs(200, 1))
    (tmp_path / "two.tsv").write_text("\ta\n" + "".join(f"{s}\t{t}\n" for s, t in pairs(200, 5)), encoding="utf-8")
    prepared, reporter = run(config(tmp_path, train=[first, {"tsv": str(tmp_path / "two.tsv")}]), tmp_path)
    assert prepared.train.src_texts() == [src for src, _ in pairs(200, 1) + pairs(200, 5)]
    dropped = prepared.report["train"]["dropped"]["empty"]
    assert dropped == {"count": 1, "first": [{"source": str(tmp_path / "two.tsv"), "line": 1}]}
    assert "two.tsv: line 1" in reporter.infos[-1]


def test_substitutions_follow_the_real_pairs_and_are_the_same_each_time(tmp_path: Path) -> None:
    real = write(tmp_path, "train", pairs(400, 1))
    settings = config(tmp_path, train=[real | {"substitutions": 60}, write(tmp_path, "more", pairs(10, 5))])
    prepared, reporter = run(settings, tmp_path)
    rows = list(zip(prepared.train.src_texts(), prepared.train.tgt_texts()))
    assert rows[:410] == pairs(400, 1) + pairs(10, 5)
    made = rows[410:]
    assert len(made) == 60
    assert not {*made} & {*pairs(400, 1)}
    meaning = dict(zip(SRC, TGT))
    assert [tgt for _, tgt in made] == [" ".join(meaning[word] for word in src.split()) for src, _ in made]
    label = f"substitutions in {real['src']} and {real['tgt']}"
    first = [list(pair) for pair in made[:5]]
    assert prepared.report["train"]["made"] == [
        {"source": label, "wanted": 60, "pairs": 60, "first": first, "kept": 60}
    ]
    assert f"60 {label}" in "\n".join(reporter.infos)
    shutil.rmtree(tmp_path / "cache")
    again, _ = run(settings, tmp_path)
    assert again.report["train"]["checksum"] == prepared.report["train"]["checksum"]


def test_nothing_is_made_of_pairs_that_are_removed_as_those_of_dev_and_test_in_either_direction(tmp_path: Path) -> None:
    held_out = [(f"the w{number} sees a house", f"das v{number} sieht ein Haus") for number in range(20)]
    files = write(tmp_path, "train", pairs(300, 1) + held_out)
    turned = {"src": files["tgt"], "tgt": files["src"], "substitutions": 100}
    train = [files | {"substitutions": 100}, turned]
    test = write(tmp_path, "test", [(src.upper(), tgt) for src, tgt in held_out])
    prepared, _ = run(config(tmp_path, train=train, test=test, remove_overlap=True), tmp_path)
    assert prepared.report["train"]["dropped"]["in dev or test"]["count"] >= 40
    texts = " ".join([*prepared.train.src_texts(), *prepared.train.tgt_texts()])
    assert "w1" not in texts
    assert "v1" not in texts
    first, second = prepared.report["train"]["made"]
    assert first["pairs"] == second["pairs"] == 100
    assert first["first"] != [pair[::-1] for pair in second["first"]]
    kept, _ = run(config(tmp_path, train=train, test=test), tmp_path)
    assert "w1" in " ".join(kept.train.src_texts())


def test_line_feeds_of_a_source_with_substitutions_count_once(tmp_path: Path) -> None:
    rows = [{"en": src.replace(" ", "\n", number == 0), "de": tgt} for number, (src, tgt) in enumerate(pairs(300, 1))]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    prepared, _ = run(config(tmp_path, train={"jsonl": str(tmp_path / "t.jsonl"), "substitutions": 20}), tmp_path)
    assert prepared.report["train"]["line_breaks_folded"] == 1
    assert prepared.report["train"]["kept_of_each"] == [300, 20]
    assert not any("\n" in text for text in prepared.train.src_texts())


def test_first_lines_are_those_of_each_source(tmp_path: Path) -> None:
    one = write(tmp_path, "one", [*pairs(200, 1), ("", "x"), ("", "x")])
    (tmp_path / "two.csv").write_text(
        "en,de\n" + "".join(f"{s},{t}\n" for s, t in pairs(9_900, 5)) + '"a\nb",x\n ,y\n,z\n', encoding="utf-8"
    )
    two = {"csv": str(tmp_path / "two.csv")}
    settings = config(tmp_path, train=[one, two, one], drop_duplicates=True)
    prepared, reporter = run(settings, tmp_path)
    labels = prepared.report["train"]["sources"]
    empty = prepared.report["train"]["dropped"]["empty"]
    assert empty["count"] == 6
    lines = [(labels[0], 201), (labels[0], 202), (labels[1], 9_902), (labels[1], 9_903), (labels[2], 201)]
    assert [(place["source"], place["line"]) for place in empty["first"]] == lines
    shown = f"6 dropped as empty ({labels[0]}: rows 201, 202, 201; {labels[1]}: rows 9902, 9903, …)"
    assert shown in reporter.infos[-1]


def test_the_cache_is_used_again_when_nothing_changed(tmp_path: Path) -> None:
    settings = config(tmp_path)
    first, _ = run(settings, tmp_path)
    again, reporter = run(settings.model_copy(update={"training": settings.training}), tmp_path)
    assert again.report == first.report | {"cached": True}
    assert not reporter.bars, "nothing was read again"
    assert "used again" in reporter.infos[-1]


def test_the_cache_is_not_used_when_files_or_settings_changed(tmp_path: Path) -> None:
    settings = config(tmp_path)
    first, _ = run(settings, tmp_path)
    for other in ({"max_length": 20}, {"remove_overlap": True}, {"drop_duplicates": True}):
        assert run(config(tmp_path, **other), tmp_path)[0].report["where"] != first.report["where"]
    settings = config(tmp_path)
    path = Path(str(settings.data.train[0].src))
    path.write_bytes(path.read_bytes().replace(b"dog", b"cat"))
    changed, _ = run(settings, tmp_path)
    assert changed.report["cached"] is False
    assert any("cat" in text for text in changed.train.src_texts())
    larger = settings.model_copy(update={"tokenizer": settings.tokenizer.model_copy(update={"vocab_size": 50})})
    assert run(larger, tmp_path)[0].tokenizers.src.vocab_size == 50


def test_a_damaged_cache_is_built_anew(tmp_path: Path) -> None:
    settings = config(tmp_path)
    first, _ = run(settings, tmp_path)
    for damage in ("train.arrow", "report.json", "tokenizer/joint.model"):
        path = Path(first.report["where"]) / damage
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        again, _ = run(settings, tmp_path)
        assert again.report["cached"] is False
        assert len(again.train) == 400
    shutil.rmtree(Path(first.report["where"]) / "tokenizer")
    assert run(settings, tmp_path)[0].report["cached"] is False


def test_two_at_the_same_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    settings = config(tmp_path)
    results: list[PreparedData] = []
    threads = [threading.Thread(target=lambda: results.append(run(settings, tmp_path)[0])) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(result.train) for result in results] == [400] * 3
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [Path(results[0].report["where"]).name]


KILLED = """
import sys, pathlib
sys.path[:0] = [sys.argv[1], str(pathlib.Path(sys.argv[1]) / "tests/integration")]
import nmt.prepare, time
from test_prepare import config, prepare, Recorder
def wait(*_):
    print("writing", flush=True)
    time.sleep(60)
nmt.prepare._flush_to_disk = wait  # everything is written, nothing renamed
folder = pathlib.Path(sys.argv[2])
prepare(config(folder), folder / "cache", Recorder())
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_a_killed_one_leaves_nothing_that_looks_finished(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    with subprocess.Popen([sys.executable, "-c", KILLED, root, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        os.kill(process.pid, signal.SIGKILL)
    assert all(path.suffix == ".tmp" for path in (tmp_path / "cache").iterdir())
    prepared, _ = run(config(tmp_path), tmp_path)
    assert prepared.report["cached"] is False
    assert len(prepared.train) == 400


def test_what_was_killed_long_ago_is_removed(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    hours_ago = {"old.12345678.tmp": (30, 30), "still-written.12345678.tmp": (30, 2), "new.12345678.tmp": (1, 1)}
    for name, (made, written) in hours_ago.items():
        (cache / name).mkdir(parents=True)
        (cache / name / "train.arrow").touch()
        for path, hours in ((cache / name / "train.arrow", written), (cache / name, made)):
            os.utime(path, (time.time() - hours * 3600,) * 2)
    run(config(tmp_path), tmp_path)
    assert {path.name for path in cache.glob("*.tmp")} == hours_ago.keys() - {"old.12345678.tmp"}


def test_another_sentencepiece_learns_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config(tmp_path)
    run(settings, tmp_path)
    monkeypatch.setattr("nmt.prepare.version", lambda package: f"another {package}")
    assert run(settings, tmp_path)[0].report["cached"] is False


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    settings = config(tmp_path)
    settings = settings.model_copy(update={"tokenizer": settings.tokenizer.model_copy(update={"vocab_size": 9000})})
    with pytest.raises(NmtError, match=r"tokenizer\.vocab_size is 9,000.*at most \d+ pieces"):
        run(settings, tmp_path)
    assert list((tmp_path / "cache").iterdir()) == []


def test_faults_of_the_data_are_met_before_anything_is_learnt(tmp_path: Path) -> None:
    settings = config(tmp_path)
    path = Path(str(settings.data.train[0].tgt))
    path.write_bytes(path.read_bytes() + b"one more\n")
    reporter = Recorder()
    with pytest.raises(NmtError, match=r"train\.en has 400 lines and .*train\.de has 401"):
        prepare(settings, tmp_path / "cache", reporter)
    assert not any("Learning" in text for text in reporter.infos)


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_a_source_without_pairs_is_an_error(split: str, tmp_path: Path) -> None:
    with pytest.raises(NmtError, match=rf"no pairs in it\. data\.{split} needs at least one"):
        run(config(tmp_path, **{split: write(tmp_path, split, [])}), tmp_path)


def test_no_training_pair_left_is_an_error_with_the_reasons(tmp_path: Path) -> None:
    with pytest.raises(
        NmtError, match=r"no training pair is left of 400: 400 dropped as too long \(data\.max_length = 1; lines 1, 2"
    ):
        run(config(tmp_path, max_length=1), tmp_path)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    settings = config(tmp_path)
    Path(str(settings.data.dev.tgt)).unlink()
    with pytest.raises(NmtError, match=r"dev\.de: no such file"):
        run(settings, tmp_path)


def test_a_cache_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(NmtError, match="cannot be written"):
        run(config(tmp_path), tmp_path)


def test_separate_vocabularies(tmp_path: Path) -> None:
    settings = config(tmp_path)
    tokenizer = settings.tokenizer.model_copy(update={"joint": False, "vocab_size": 34})
    prepared, reporter = run(settings.model_copy(update={"tokenizer": tokenizer}), tmp_path)
    assert prepared.tokenizers.src is not prepared.tokenizers.tgt
    assert "34 source and 34 target pieces" in reporter.infos[-1]
    assert prepared.tokenizers.tgt.decode([prepared.dev.tgt_ids(0)]) == [prepared.dev.tgt_text(0)]


def test_unknown_pieces_of_dev_are_counted(tmp_path: Path) -> None:
    prepared, reporter = run(config(tmp_path, dev=write(tmp_path, "dev", [("the dog 你", "der Hund")])), tmp_path)
    part = prepared.report["dev"]["src"]
    assert part["unknown"] == 1
    assert (part["unknown_characters"], part["most_unknown"]) == (1, {"你": 1})
    assert prepared.report["dev"]["tgt"]["most_unknown"] == {}
    assert f"unknown {part['unknown_rate']:.2%} src ('你' 1), 0.00% tgt" in reporter.infos[-1]
    assert part["unknown_rate"] == pytest.approx(1 / part["pieces"], abs=1e-6)


def test_a_hub_data_set_runs_the_same_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    (tmp_path / "set").mkdir()
    for name, count, seed in (("train", 400, 1), ("validation", 30, 2), ("test", 20, 3)):
        rows = [json.dumps({"en": src, "de": tgt}, ensure_ascii=False) for src, tgt in pairs(count, seed)]
        (tmp_path / "set" / f"{name}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    hub = str(tmp_path / "set")
    splits = {"train": "train", "dev": "validation", "test": "test"}
    sources = {split: {"hub": hub, "split": name} for split, name in splits.items()}
    prepared, _ = run(config(tmp_path, **sources), tmp_path)
    plain, _ = run(config(tmp_path), tmp_path)
    assert prepared.train.src_texts() == plain.train.src_texts()
    model = Path("tokenizer") / "joint.model"
    folders = [Path(result.report["where"]) for result in (prepared, plain)]
    assert (folders[0] / model).read_bytes() == (folders[1] / model).read_bytes()
    time.sleep(0.01)
    (tmp_path / "set" / "test.jsonl").write_text('{"en": "new", "de": "neu"}\n')
    changed, _ = run(config(tmp_path, **sources), tmp_path)
    assert changed.test is not None
    assert changed.test.src_texts() == ["new"]
