"""What an evaluation writes, under which names, and what does not fit is refused."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import nmt.evaluate
import nmt.translate
from nmt.config import SearchConfig, load_config
from nmt.console import show_evaluation
from nmt.errors import NmtError
from nmt.evaluate import EvaluationResult, evaluate_split
from nmt.evaluation import digest_of_pairs
from nmt.reporting import SilentReporter
from nmt.run_dir import RunDir


@dataclass(frozen=True)
class FakeTranslation:
    text: str
    length_limited: bool = False
    truncated: bool = False


@dataclass
class FakeTranslator:
    """Translates a source by upper-casing it; sources of one word hit the length limit."""

    calls: list[int] = field(default_factory=list)
    loaded: dict[str, Any] = field(default_factory=dict)
    search: SearchConfig = field(default_factory=SearchConfig)
    int8: bool = False
    checkpoint: Path = Path()
    step: int = 1800

    def translate(self, lines: Sequence[str], n_best: int = 1, batch_tokens: int = 4096) -> list[FakeTranslation]:
        self.calls.append(len(lines))
        return [FakeTranslation(line.upper(), length_limited=len(line.split()) == 1) for line in lines]


SOURCES = [
    "The old man reads a book .", "one", "", "A much longer sentence stands here with more than ten words in it .",
]  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir.create(tmp_path / "demo")
    (tmp_path / "test.en").write_text("".join(f"{line}\n" for line in SOURCES))
    (tmp_path / "test.de").write_text("".join(f"{line.upper()}\n" for line in SOURCES))
    files = f"{{src: {tmp_path}/test.en, tgt: {tmp_path}/test.de}}"
    made.config.write_text(
        f"data: {{src_lang: en, tgt_lang: de, train: {files}, dev: {files}, test: {files}}}\n"
        "evaluation: {length_buckets: [10, 20]}\nsearch: {beam_size: 3}\n"
    )
    return made


@pytest.fixture
def translator(monkeypatch: pytest.MonkeyPatch) -> FakeTranslator:
    fake = FakeTranslator()

    def load(run: RunDir, **settings: Any) -> FakeTranslator:
        fake.loaded.update(settings)
        fake.search = settings["search"] or load_config(str(run.config)).search
        fake.int8 = settings["int8"]
        fake.checkpoint = settings["checkpoint"] or run.best
        return fake

    monkeypatch.setattr(nmt.translate.Translator, "load", load)
    monkeypatch.setattr(nmt.evaluate, "RESAMPLES", 20)  # 1,000 take the time: test_commands has them
    return fake


def evaluate(run: RunDir, **settings: Any) -> EvaluationResult:
    return evaluate_split(run, SilentReporter(), **settings)


def test_an_evaluation_writes_scores_table_plot_and_translations(run: RunDir, translator: FakeTranslator) -> None:
    result = evaluate(run)
    assert sorted(file.name for file in run.eval.iterdir()) == [
        "test.html",
        "test.hyp.txt",
        "test.json",
        "test_by_length.csv",
        "test_by_length.png",
    ]
    assert (run.eval / "test.hyp.txt").read_text() == "".join(f"{line.upper()}\n" for line in SOURCES)
    stored = json.loads((run.eval / "test.json").read_text())
    assert stored == json.loads(json.dumps(result.to_dict()))
    assert list(stored)[:6] == ["split", "sentences", "checkpoint", "metrics", "search", "length_limited"]
    assert (stored["split"], stored["sentences"], stored["checkpoint"]) == ("test", 4, "checkpoints/best.pt")
    assert list(stored["metrics"]) == ["bleu", "chrf", "chrf++", "ter"]
    assert stored["metrics"]["bleu"].keys() == {"score", "low", "high", "signature"}
    assert "|bs:" not in stored["metrics"]["bleu"]["signature"], "so few have no interval"
    assert stored["metrics"]["bleu"]["score"] == pytest.approx(100)
    assert stored["search"]["beam_size"] == 3
    assert stored["length_limited"] == 1
    assert stored["length_ratio"] == pytest.approx(1)
    with (run.eval / "test_by_length.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["low"], row["high"], row["sentences"]) for row in rows] == [("0", "10", "3"), ("10", "20", "1")]
    assert (run.eval / "test_by_length.png").read_bytes().startswith(b"\x89PNG")
    many = evaluate(run, pairs=[(line, line.upper()) for line in SOURCES] * 3)
    assert "|bs:20|" in many.metrics["bleu"].signature


def test_scores_of_another_file_of_the_same_name_are_not_written_over(
    run: RunDir, translator: FakeTranslator, tmp_path: Path
) -> None:
    for folder, sources in (("a", SOURCES), ("b", SOURCES[:3]), ("c", SOURCES)):
        (tmp_path / folder).mkdir()
        for side, lines in (("en", sources), ("de", [line.upper() for line in sources])):
            (tmp_path / folder / f"news.{side}").write_text("".join(f"{line}\n" for line in lines))
    files = {folder: {"src": tmp_path / folder / "news.en", "tgt": tmp_path / folder / "news.de"} for folder in "abc"}
    evaluate(run, **files["a"])
    before = (run.eval / "news.en.json").read_bytes()
    with pytest.raises(NmtError, match=r"news\.en\.json: these are the scores of .*a/news\.en and .*a/news\.de"):
        evaluate(run, **files["b"])
    assert (run.eval / "news.en.json").read_bytes() == before
    assert evaluate(run, **files["c"]).sentences == 4, "the same text elsewhere"
    (tmp_path / "c" / "news.en").write_text("".join(f"{line}!\n" for line in SOURCES))
    assert evaluate(run, **files["c"]).metrics["bleu"].score < 100, "the same file with other text"


def test_the_best_checkpoint_is_used_unless_another_is_named(run: RunDir, translator: FakeTranslator) -> None:
    evaluate(run)
    assert translator.loaded["checkpoint"] is None
    result = evaluate(run, checkpoint=run.last, search=SearchConfig(beam_size=1))
    assert translator.loaded["checkpoint"] == run.last
    assert (result.checkpoint, result.search["beam_size"]) == ("checkpoints/last.pt", 1)
    assert json.loads((run.eval / "test.last.beam1.json").read_text())["step"] == 1800


def test_scores_of_another_checkpoint_have_files_of_their_own(run: RunDir, translator: FakeTranslator) -> None:
    evaluate(run)
    before = {file.name: file.read_bytes() for file in run.eval.iterdir()}
    results = [evaluate(run, checkpoint=run.last), evaluate(run, checkpoint=run.last, int8=True)]
    assert [result.split for result in results] == ["test.last", "test.last.int8"]
    assert {name: (run.eval / name).read_bytes() for name in before} == before
    assert json.loads((run.eval / "test.last.json").read_text())["checkpoint"] == "checkpoints/last.pt"


def test_scores_of_another_search_than_the_runs_own_have_files_of_their_own(
    run: RunDir, translator: FakeTranslator
) -> None:
    evaluate(run)
    before = {file.name: file.read_bytes() for file in run.eval.iterdir()}
    others = [{"beam_size": 1}, {"length_penalty": 0.6, "coverage_penalty": 0.2}, {"max_length_ratio": 3.0}]
    others += [{"rerank": "mbr"}]
    own = load_config(str(run.config)).search
    results = [evaluate(run, search=own.model_copy(update=other)) for other in others]
    assert [result.split for result in results] == [
        "test.beam1", "test.length0.6.coverage0.2", "test.ratio3.0", "test.rerank-mbr",
    ]  # fmt: skip
    assert {name: (run.eval / name).read_bytes() for name in before} == before
    assert json.loads((run.eval / "test.beam1.json").read_text())["search"]["beam_size"] == 1
    assert evaluate(run, search=own.model_copy()).split == "test"


def test_translations_are_kept_whatever_goes_wrong_with_the_scores(
    run: RunDir, translator: FakeTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate(run)

    def fail(*args: object, **settings: object) -> None:
        raise MemoryError

    monkeypatch.setattr(nmt.evaluate, "score_corpus", fail)
    with pytest.raises(MemoryError):
        evaluate(run, pairs=[("other text", "OTHER TEXT")])
    assert (run.eval / "test.hyp.txt").read_text() == "OTHER TEXT\n"
    assert not (run.eval / "test.json").exists()


def test_damaged_word_counts_are_refused_before_translation(run: RunDir, translator: FakeTranslator) -> None:
    run.eval.mkdir(exist_ok=True)
    (run.eval / "training_words.tsv.gz").write_bytes(b"none")
    with pytest.raises(NmtError, match=r"training_words\.tsv\.gz.*Remove it"):
        evaluate(run)
    assert translator.calls == []


def test_a_checkpoint_from_elsewhere_has_files_of_its_own(
    run: RunDir, translator: FakeTranslator, tmp_path: Path
) -> None:
    evaluate(run, checkpoint=run.checkpoints / "step_000600.pt")
    before = (run.eval / "test.step_000600.json").read_bytes()
    elsewhere = [tmp_path / "other/checkpoints/step_000600.pt", tmp_path / "backup/step_000600.pt"]
    results = [evaluate(run, checkpoint=checkpoint) for checkpoint in elsewhere]
    assert [result.split for result in results] == ["test.other.step_000600", "test.backup.step_000600"]
    assert [result.checkpoint for result in results] == [str(checkpoint) for checkpoint in elsewhere]
    assert (run.eval / "test.step_000600.json").read_bytes() == before


def test_the_best_checkpoint_is_the_best_by_any_name_of_its_file(run: RunDir, translator: FakeTranslator) -> None:
    assert evaluate(run, checkpoint=run.path / "eval" / ".." / "checkpoints" / "best.pt").split == "test"


def test_the_length_rows_have_intervals_where_there_are_ten_sentences(run: RunDir, translator: FakeTranslator) -> None:
    pairs = [(source, source.upper()) for source in ["one or two"] * 10 + [SOURCES[3]] * 9]
    short, long = evaluate(run, pairs=pairs).by_length
    assert short.bleu_low is not None
    assert short.bleu_high is not None
    assert short.bleu_low <= short.bleu <= short.bleu_high + 1e-9
    assert (long.sentences, long.bleu_low, long.chrf_high) == (9, None, None)
    stored = json.loads((run.eval / "test.json").read_text())["by_length"]
    assert stored[0]["bleu_low"] == short.bleu_low
    assert [stored[1][key] for key in ("bleu_low", "bleu_high", "chrf_low", "chrf_high")] == [None] * 4


def test_buckets_of_few_sentences_have_a_dash_for_an_interval_in_the_tables(
    run: RunDir, translator: FakeTranslator, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [(source, source.upper()) for source in ["one or two"] * 10 + [SOURCES[3]] * 9]
    result = evaluate(run, pairs=pairs)
    cells = '<th scope="row">10–19</th><td>9</td><td>100.00</td><td>–</td><td>100.00</td><td>–</td>'
    assert cells in (run.eval / "test.html").read_text()
    show_evaluation(result, run)
    [shown] = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip().startswith("10–19")]
    assert shown == ["10–19", "9", "100.00", "–", "100.00", "–"]
    assert (run.eval / "test_by_length.csv").read_text().splitlines()[2] == "10,20,9,100.0000,100.0000"


def test_the_report_shows_the_scores_and_escapes_all_text(run: RunDir, translator: FakeTranslator) -> None:
    translator.translate = lambda lines, **_: [FakeTranslation("<b>&</b>") for _ in lines]  # type: ignore[method-assign]
    result = evaluate(run, pairs=[("a <script>", "b\x1b </article>")] * 2)
    page = (run.eval / "test.html").read_text()
    assert f"{result.metrics['chrf++'].score:.2f}" in page
    assert "data:image/png;base64," in page
    assert "&lt;b&gt;&amp;&lt;/b&gt;" in page
    assert "a &lt;script&gt;" in page
    assert not set(page) & {"\x1b"}
    assert "<script" not in page
    assert page.count("</article>") == 2
    assert re.findall('<dd dir="auto" lang="(.*?)">', page) == ["en", "de", "de"] * 2


def test_the_digest_tells_test_sets_apart() -> None:
    digests = {
        digest_of_pairs(pairs)
        for pairs in ([("a", "b")], [("b", "a")], [("a", "b")] * 2, [("a", "b\n")], [("ab", "")], [("", "ab")])
    }
    assert len(digests) == 6
    assert digest_of_pairs([("a", "\ud800")]) != digest_of_pairs([("a", "\ufffd")])


def test_scores_never_lie_beside_translations_of_another_model(
    run: RunDir, translator: FakeTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate(run)

    def fail(*args: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(nmt.evaluate, "plot_by_length", fail)
    with pytest.raises(OSError, match="No space"):
        evaluate(run)
    assert (run.eval / "test.hyp.txt").exists()
    assert not (run.eval / "test.json").exists()


def test_a_reference_that_the_results_would_replace_is_refused(
    run: RunDir, translator: FakeTranslator, tmp_path: Path
) -> None:
    evaluate(run, src=tmp_path / "test.en", tgt=tmp_path / "test.de")
    reference = run.eval / "test.en.hyp.txt"
    before = reference.read_bytes()
    with pytest.raises(NmtError, match="would replace it"):
        evaluate(run, src=tmp_path / "test.en", tgt=reference)
    assert reference.read_bytes() == before


def test_translations_without_a_word_are_counted(run: RunDir, translator: FakeTranslator) -> None:
    assert evaluate(run, pairs=[("a", "A"), ("", ""), ("...", "b")]).empty == 0
    translator.translate = lambda lines, **_: [FakeTranslation("") for _ in lines]  # type: ignore[method-assign]
    assert evaluate(run, pairs=[("a", "A"), ("", ""), (" ", "b")]).empty == 1


def test_sources_that_were_cut_are_warned_of(run: RunDir, translator: FakeTranslator) -> None:
    translator.translate = lambda lines, **_: [FakeTranslation("a", truncated=True) for _ in lines]  # type: ignore[method-assign]
    reporter = Listener()
    result = evaluate_split(run, reporter, pairs=[("a", "a")] * 3)
    assert result.truncated == 3
    assert reporter.warnings == ["3 lines were too long: only the beginning was translated."]


def test_an_int8_evaluation_has_a_record_of_its_own(run: RunDir, translator: FakeTranslator) -> None:
    plain, rounded = evaluate(run), evaluate(run, int8=True)
    assert (plain.split, rounded.split) == ("test", "test.int8")
    assert rounded.search == {**plain.search, "int8": True}
    assert json.loads((run.eval / "test.int8.json").read_text())["search"]["int8"] is True
    assert "int8" not in json.loads((run.eval / "test.json").read_text())["search"]
    assert (run.eval / "test.int8.hyp.txt").is_file()


def test_files_are_scored_under_their_own_name(run: RunDir, translator: FakeTranslator, tmp_path: Path) -> None:
    evaluate(run)
    before = (run.eval / "test.json").read_bytes()
    result = evaluate(run, src=tmp_path / "test.en", tgt=tmp_path / "test.de")
    assert result.split == "test.en"
    assert (run.eval / "test.json").read_bytes() == before
    stored = json.loads((run.eval / "test.en.json").read_text())
    assert stored["files"] == {"src": str(tmp_path / "test.en"), "tgt": str(tmp_path / "test.de")}


def test_files_of_different_length_are_refused_with_both_counts(
    run: RunDir, translator: FakeTranslator, tmp_path: Path
) -> None:
    (tmp_path / "short.de").write_text("eins\n")
    with pytest.raises(NmtError, match=r"test\.en has 4 lines and .*short\.de has 1") as caught:
        evaluate(run, src=tmp_path / "test.en", tgt=tmp_path / "short.de")
    assert "equal length" in str(caught.value)
    assert translator.calls == []


def test_one_file_alone_is_refused(run: RunDir, translator: FakeTranslator, tmp_path: Path) -> None:
    with pytest.raises(NmtError, match="both --src and --tgt"):
        evaluate(run, src=tmp_path / "test.en")


def test_empty_files_are_refused(run: RunDir, translator: FakeTranslator, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    with pytest.raises(NmtError, match="no sentence to score"):
        evaluate(run, src=tmp_path / "empty", tgt=tmp_path / "empty")


def test_an_unknown_or_absent_split_is_refused(run: RunDir, translator: FakeTranslator) -> None:
    with pytest.raises(NmtError, match="no split 'tset': choose test, dev or train"):
        evaluate(run, split="tset")
    text = "data: {src_lang: en, tgt_lang: de, train: {tsv: a.tsv}, dev: {tsv: a.tsv}}\n"
    run.config.write_text(text)
    with pytest.raises(NmtError, match=r"no data\.test.*--src and --tgt"):
        evaluate(run)


def test_text_at_hand_is_not_read_again(run: RunDir, translator: FakeTranslator, tmp_path: Path) -> None:
    (tmp_path / "test.en").unlink()
    result = evaluate(run, pairs=[("a b", "A C")])
    assert result.sentences == 1
    assert (run.eval / "test.hyp.txt").read_text() == "A B\n"


def test_a_missing_tokenizer_is_reported_before_translation(
    run: RunDir, translator: FakeTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sacrebleu.tokenizers.tokenizer_ja_mecab as module

    monkeypatch.setattr(module, "MeCab", None)
    run.config.write_text(run.config.read_text().replace("tgt_lang: de", "tgt_lang: ja"))
    with pytest.raises(NmtError, match="ja-mecab"):
        evaluate(run)
    assert translator.calls == []


class Listener(SilentReporter):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.steps: list[tuple[float, float | None]] = []

    def warning(self, text: str) -> None:
        self.warnings.append(text)

    def progress(self, task: str, done: float, total: float | None, note: str = "") -> None:
        self.steps.append((done, total))


def test_progress_runs_from_nothing_to_all(run: RunDir, translator: FakeTranslator) -> None:
    reporter = Listener()
    evaluate_split(run, reporter, pairs=[("ein Satz", "EIN SATZ")] * 1200)
    assert reporter.steps[0] == (0, 1200)
    assert reporter.steps[-1] == (1200, 1200)
    assert sum(translator.calls) == 1200
    assert reporter.warnings == []


def test_references_that_look_tokenised_are_warned_of(run: RunDir, translator: FakeTranslator) -> None:
    reporter = Listener()
    evaluate_split(run, reporter, pairs=[("a", "Ein Haus .")] * 20)
    [warning] = reporter.warnings
    assert "20 of 20 references" in warning
