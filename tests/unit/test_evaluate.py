"""Scores equal sacreBLEU's own, sentences fall into the right buckets, and what does not fit is refused."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

import nmt.evaluate
import nmt.translate
from nmt.config import SearchConfig, load_config
from nmt.errors import NmtError
from nmt.evaluate import EvaluationResult, evaluate_split
from nmt.evaluation import digest_of_pairs
from nmt.plotting import LengthRow
from nmt.reporting import SilentReporter
from nmt.run_dir import RunDir
from nmt.scoring import (
    bleu_tokenizer_name,
    by_length,
    check_tokenizer,
    length_csv,
    length_ratio,
    reported,
    score_corpus,
    sentence_scores,
    validation_scores,
    word_splitter,
)

REFERENCES = [
    "Der alte Mann liest ein Buch.",
    "Die Kinder spielen heute im Garten, weil die Sonne scheint.",
    "Ich habe ihn nicht gesehen.",
    "Zwei Hunde laufen über die grüne Wiese.",
    "",
]
HYPOTHESES = [
    "Der alte Mann liest das Buch.",
    "Die Kinder spielen im Garten, weil die Sonne scheint.",
    "Ich habe ihn gesehen.",
    "Zwei Hunde laufen über eine grüne Wiese.",
    "Nichts.",
]


def test_scores_equal_sacrebleus_own() -> None:
    scores = score_corpus(HYPOTHESES, REFERENCES, tgt_lang="de")
    assert list(scores) == ["bleu", "chrf", "ter"]
    assert scores["bleu"].score == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert scores["chrf"].score == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert scores["ter"].score == sacrebleu.corpus_ter(HYPOTHESES, [REFERENCES]).score
    assert scores["bleu"].score > 30
    assert scores["bleu"].low is None
    assert scores["bleu"].high is None


def test_a_score_carries_its_signature() -> None:
    scores = score_corpus(HYPOTHESES, REFERENCES, tgt_lang="de")
    version = f"version:{sacrebleu.__version__}"
    assert scores["bleu"].signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|{version}"
    assert scores["chrf"].signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|{version}"
    assert scores["ter"].signature == f"nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|{version}"


def test_intervals_are_sacrebleus_bootstrap_with_its_seed() -> None:
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize="13a")
    theirs = json.loads(
        metric.corpus_score(HYPOTHESES, [REFERENCES], n_bootstrap=1000).format(
            width=9, signature=metric.get_signature().format(), is_json=True
        )
    )
    score = score_corpus(HYPOTHESES, REFERENCES, metrics=["bleu"], tgt_lang="de", bootstrap=1000)["bleu"]
    assert score.low == pytest.approx(max(0, theirs["confidence_mean"] - theirs["confidence_var"]))
    assert score.high == pytest.approx(min(100, theirs["confidence_mean"] + theirs["confidence_var"]))
    assert score.signature.startswith("nrefs:1|bs:1000|seed:12345|")
    again = score_corpus(HYPOTHESES, REFERENCES, metrics=["bleu"], tgt_lang="de", bootstrap=1000)["bleu"]
    assert again == score


def test_an_interval_of_a_perfect_translation_ends_at_100() -> None:
    score = score_corpus(REFERENCES, REFERENCES, metrics=["bleu", "ter"], tgt_lang="de", bootstrap=100)
    assert score["bleu"].low == pytest.approx(100, abs=1e-3)
    assert score["bleu"].high == pytest.approx(100, abs=1e-3)
    assert (score["ter"].score, score["ter"].low, score["ter"].high) == (0, 0, 0)


def test_intervals_of_a_tiny_and_bad_translation_exist() -> None:
    scores = score_corpus(["x", "b", ""], ["a", "b", ""], tgt_lang="de", bootstrap=1000)
    for score in scores.values():
        assert type(score.low) is float
        assert type(score.high) is float
        assert 0 <= score.low <= score.high


def test_validation_scores_are_the_same_bleu_and_chrf() -> None:
    full = score_corpus(HYPOTHESES, REFERENCES, tgt_lang="de")
    assert validation_scores(HYPOTHESES, REFERENCES, tgt_lang="de") == {
        "bleu": full["bleu"].score,
        "chrf": full["chrf"].score,
    }


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        ("de", "13a"), ("zh", "zh"), ("zh-Hans", "zh"), ("zh_CN", "zh"), ("ZH", "zh"), ("cmn", "zh"),
        ("ja", "ja-mecab"), ("ja_JP", "ja-mecab"), ("ko", "ko-mecab"), ("zha", "13a"), ("no", "13a"),
    ],
)  # fmt: skip
def test_bleus_tokenizer_follows_the_target_language(language: str, tokenizer: str) -> None:
    assert bleu_tokenizer_name(language) == tokenizer


def test_chinese_is_scored_by_character() -> None:
    hypotheses, references = ["我今天很高兴见到你。"], ["我今天非常高兴见到你。"]
    score = score_corpus(hypotheses, references, metrics=["bleu"], tgt_lang="zh")["bleu"]
    assert score.score == sacrebleu.corpus_bleu(hypotheses, [references], tokenize="zh").score
    assert "|tok:zh|" in score.signature


def test_the_configured_tokenizer_wins() -> None:
    score = score_corpus(HYPOTHESES, REFERENCES, metrics=["bleu"], tgt_lang="zh", bleu_tokenize="char")["bleu"]
    assert "|tok:char|" in score.signature
    assert score.score == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], tokenize="char").score


def test_a_tokenizer_that_is_not_installed_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import sacrebleu.tokenizers.tokenizer_ja_mecab as module

    monkeypatch.setattr(module, "MeCab", None)
    with pytest.raises(NmtError, match=r"'ja-mecab'.*sacrebleu\[ja\].*evaluation\.bleu_tokenize: char") as caught:
        score_corpus(["a"], ["a"], tgt_lang="ja")
    assert "\n" not in str(caught.value)


def test_a_tokenizer_can_be_checked_before_there_is_anything_to_score(monkeypatch: pytest.MonkeyPatch) -> None:
    import sacrebleu.tokenizers.tokenizer_ja_mecab as module

    for usable in (("de", None), ("ja", "char")):
        check_tokenizer(*usable)
    monkeypatch.setattr(module, "MeCab", None)
    with pytest.raises(NmtError, match=r"'ja-mecab'.*sacrebleu\[ja\]"):
        check_tokenizer("ja", None)
    with pytest.raises(NmtError, match="no tokenizer '14a'"):
        check_tokenizer("de", "14a")


def test_an_unknown_tokenizer_or_metric_lists_the_known_ones() -> None:
    with pytest.raises(NmtError, match=r"'14a'; choose of none, zh, 13a"):
        score_corpus(["a"], ["a"], tgt_lang="de", bleu_tokenize="14a")
    with pytest.raises(NmtError, match="'comet': choose of bleu, chrf, ter"):
        score_corpus(["a"], ["a"], tgt_lang="de", metrics=["comet"])


def test_different_counts_are_refused_with_both_numbers() -> None:
    with pytest.raises(NmtError, match="4 hypotheses and 5 references"):
        score_corpus(HYPOTHESES[:-1], REFERENCES, tgt_lang="de")
    with pytest.raises(NmtError, match="5 hypotheses and 4 references"):
        validation_scores(HYPOTHESES, REFERENCES[:-1], tgt_lang="de")
    with pytest.raises(NmtError, match="2 sources and 5 references"):
        by_length(["a", "b"], HYPOTHESES, REFERENCES, buckets=[10], tgt_lang="de")


def test_chrf_plus_plus_is_reported_with_chrf_and_equals_sacrebleus_own() -> None:
    assert reported(("chrf", "bleu")) == ("chrf", "chrf++", "bleu")
    assert reported(("ter",)) == ("ter",)
    score = score_corpus(HYPOTHESES, REFERENCES, metrics=["chrf++"], tgt_lang="de")["chrf++"]
    assert score.score == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES], word_order=2).score
    assert "|nw:2|" in score.signature


def test_a_sentences_score_is_its_own_chrf_plus_plus() -> None:
    expected = [sacrebleu.sentence_chrf(h, [r], word_order=2).score for h, r in zip(HYPOTHESES, REFERENCES)]
    assert sentence_scores(HYPOTHESES, REFERENCES) == expected


def test_words_are_those_that_bleu_counts() -> None:
    assert word_splitter("de")("Das Haus, alt.") == ["Das", "Haus", ",", "alt", "."]
    assert word_splitter("zh")("我很好") == ["我", "很", "好"]
    assert word_splitter("de", "none")("Das Haus, alt.") == ["Das", "Haus,", "alt."]


def test_nested_references_are_refused() -> None:
    nested: Any = [REFERENCES]
    with pytest.raises(NmtError, match="Number 1 of the references is of type list"):
        score_corpus(HYPOTHESES[:1], nested, tgt_lang="de")
    with pytest.raises(NmtError, match="The hypotheses are a single string"):
        score_corpus("ab", ["a", "b"], tgt_lang="de")
    missing: Any = ["a", None]
    with pytest.raises(NmtError, match="Number 2 of the hypotheses is of type NoneType"):
        score_corpus(missing, ["a", "b"], tgt_lang="de")


def test_a_single_sentence_has_a_score_but_no_interval() -> None:
    scores = score_corpus(["Ein alter Mann."], ["Der alte Mann."], tgt_lang="de", bootstrap=1000)
    for score in scores.values():
        assert (score.low, score.high) == (None, None)
        assert "bs:" not in score.signature


def test_empty_translations_and_blank_references_are_scored_and_bounded() -> None:
    scores = score_corpus([""] * 5, REFERENCES, tgt_lang="de", bootstrap=100)
    assert (scores["bleu"].score, scores["bleu"].low, scores["bleu"].high) == (0, 0, 0)
    assert scores["ter"].score == 100
    assert length_ratio([""] * 5, REFERENCES, tgt_lang="de") == 0
    assert length_ratio(["a"], [""], tgt_lang="de") is None
    for score in score_corpus(HYPOTHESES, [""] * 5, tgt_lang="de", bootstrap=100).values():
        assert type(score.low) is float


@pytest.mark.parametrize("language", ["zh", "ja"])
def test_ter_cuts_text_without_blanks(language: str) -> None:
    hypotheses, references = ["我今天很高兴见到你。"], ["我今天高兴见到你。"]
    score = score_corpus(hypotheses, references, metrics=["ter"], tgt_lang=language)["ter"]
    assert 0 < score.score < 50
    assert "|norm:yes|" in score.signature
    assert "|asian:yes|" in score.signature


def test_no_sentences_are_refused() -> None:
    with pytest.raises(NmtError, match="no sentence"):
        score_corpus([], [], tgt_lang="de")


def words(count: int) -> str:
    return " ".join(["w"] * count)


def test_a_border_belongs_to_the_bucket_above_it() -> None:
    counts = [0, 1, 9, 10, 19, 20, 29, 30, 31, 500]
    sources = [words(count) for count in counts]
    rows = by_length(sources, sources, sources, buckets=[10, 20, 30], tgt_lang="de")
    assert [(row.low, row.high, row.sentences) for row in rows] == [
        (0, 10, 3),
        (10, 20, 2),
        (20, 30, 2),
        (30, None, 3),
    ]


def test_buckets_without_sentences_are_left_out() -> None:
    sources = [words(15), words(60)]
    rows = by_length(sources, sources, sources, buckets=[10, 20, 30, 40, 50], tgt_lang="de")
    assert [(row.low, row.high) for row in rows] == [(10, 20), (50, None)]


def test_without_borders_there_is_one_bucket() -> None:
    rows = by_length(["a", "b"], ["a", "b"], ["a", "b"], buckets=[], tgt_lang="de")
    assert [(row.low, row.high, row.sentences) for row in rows] == [(0, None, 2)]


def test_any_whitespace_separates_words() -> None:
    [row] = by_length(["  a\tb   c\u3000d "], ["x"], ["x"], buckets=[4, 5], tgt_lang="de")
    assert (row.low, row.high) == (4, 5)


def test_a_buckets_scores_are_those_of_its_sentences() -> None:
    sources = [words(3), words(12), words(4), words(12), words(2)]
    rows = by_length(sources, HYPOTHESES, REFERENCES, buckets=[10], tgt_lang="de")
    long_hypotheses, long_references = [HYPOTHESES[1], HYPOTHESES[3]], [REFERENCES[1], REFERENCES[3]]
    assert rows[1].bleu == sacrebleu.corpus_bleu(long_hypotheses, [long_references]).score
    assert rows[1].chrf == sacrebleu.corpus_chrf(long_hypotheses, [long_references]).score


def test_the_csv_has_exactly_the_columns_of_the_contract() -> None:
    text = length_csv([LengthRow(0, 10, 3, 41.5, 60.25), LengthRow(50, None, 1, 0.0, 12.34567)])
    assert text == "low,high,sentences,bleu,chrf\n0,10,3,41.5000,60.2500\n50,,1,0.0000,12.3457\n"


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
    assert "|bs:20|" in stored["metrics"]["bleu"]["signature"]
    assert stored["metrics"]["bleu"]["score"] == pytest.approx(100)
    assert stored["search"]["beam_size"] == 3
    assert stored["length_limited"] == 1
    assert stored["length_ratio"] == pytest.approx(1)
    with (run.eval / "test_by_length.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["low"], row["high"], row["sentences"]) for row in rows] == [("0", "10", "3"), ("10", "20", "1")]
    assert (run.eval / "test_by_length.png").read_bytes().startswith(b"\x89PNG")


def test_the_best_checkpoint_is_used_unless_another_is_named(run: RunDir, translator: FakeTranslator) -> None:
    evaluate(run)
    assert translator.loaded["checkpoint"] is None
    result = evaluate(run, checkpoint=run.last, search=SearchConfig(beam_size=1))
    assert translator.loaded["checkpoint"] == run.last
    assert (result.checkpoint, result.search["beam_size"]) == ("checkpoints/last.pt", 1)
    assert json.loads((run.eval / "test.last.json").read_text())["step"] == 1800


def test_scores_of_another_checkpoint_have_files_of_their_own(run: RunDir, translator: FakeTranslator) -> None:
    evaluate(run)
    before = {file.name: file.read_bytes() for file in run.eval.iterdir()}
    results = [evaluate(run, checkpoint=run.last), evaluate(run, checkpoint=run.last, int8=True)]
    assert [result.split for result in results] == ["test.last", "test.last.int8"]
    assert {name: (run.eval / name).read_bytes() for name in before} == before
    assert json.loads((run.eval / "test.last.json").read_text())["checkpoint"] == "checkpoints/last.pt"


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


def test_the_length_rows_have_intervals_where_there_are_two_sentences(run: RunDir, translator: FakeTranslator) -> None:
    short, long = evaluate(run).by_length
    assert short.bleu_low is not None
    assert short.bleu_high is not None
    assert short.bleu_low <= short.bleu <= short.bleu_high + 1e-9
    assert (long.sentences, long.bleu_low, long.chrf_high) == (1, None, None)
    stored = json.loads((run.eval / "test.json").read_text())["by_length"]
    assert stored[0]["bleu_low"] == short.bleu_low


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
