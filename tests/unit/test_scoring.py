"""Scores equal sacreBLEU's own, and sentences fall into the right buckets."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sacrebleu

import nmt.scoring
from nmt.errors import NmtError
from nmt.plotting import FEW, LengthRow
from nmt.scoring import (
    bleu_tokenizer_name,
    by_length,
    check_tokenizer,
    interval,
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
MANY_REFERENCES, MANY_HYPOTHESES = REFERENCES * 3, HYPOTHESES * 3


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
        metric.corpus_score(MANY_HYPOTHESES, [MANY_REFERENCES], n_bootstrap=1000).format(
            width=9, signature=metric.get_signature().format(), is_json=True
        )
    )
    score = score_corpus(MANY_HYPOTHESES, MANY_REFERENCES, metrics=["bleu"], tgt_lang="de", bootstrap=1000)["bleu"]
    assert score.low == pytest.approx(max(0, theirs["confidence_mean"] - theirs["confidence_var"]))
    assert score.high == pytest.approx(min(100, theirs["confidence_mean"] + theirs["confidence_var"]))
    assert score.signature.startswith("nrefs:1|bs:1000|seed:12345|")
    again = score_corpus(MANY_HYPOTHESES, MANY_REFERENCES, metrics=["bleu"], tgt_lang="de", bootstrap=1000)["bleu"]
    assert again == score


def test_more_sentences_than_memory_holds_resamples_of_have_no_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nmt.scoring, "MOST_RESAMPLED", len(MANY_REFERENCES) - 1)
    score = score_corpus(MANY_HYPOTHESES, MANY_REFERENCES, metrics=["bleu"], tgt_lang="de", bootstrap=1000)["bleu"]
    assert (score.low, score.high) == (None, None)
    assert "|bs:" not in score.signature


def test_fewer_than_ten_sentences_have_no_interval() -> None:
    for count in (1, FEW - 1, FEW):
        score = score_corpus(MANY_HYPOTHESES[:count], MANY_REFERENCES[:count], tgt_lang="de", bootstrap=100)["bleu"]
        assert (score.low is not None, score.high is not None, "|bs:" in score.signature) == (count >= FEW,) * 3


def test_an_interval_of_a_perfect_translation_ends_at_100() -> None:
    score = score_corpus(MANY_REFERENCES, MANY_REFERENCES, metrics=["bleu", "ter"], tgt_lang="de", bootstrap=100)
    assert score["bleu"].low == pytest.approx(100, abs=1e-3)
    assert score["bleu"].high == pytest.approx(100, abs=1e-3)
    assert (score["ter"].score, score["ter"].low, score["ter"].high) == (0, 0, 0)


def test_intervals_of_a_tiny_and_bad_translation_exist() -> None:
    scores = score_corpus(["x", "b", ""] * 4, ["a", "b", ""] * 4, tgt_lang="de", bootstrap=1000)
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
    scores = score_corpus([""] * 15, MANY_REFERENCES, tgt_lang="de", bootstrap=100)
    assert (scores["bleu"].score, scores["bleu"].low, scores["bleu"].high) == (0, 0, 0)
    assert scores["ter"].score == 100
    assert length_ratio([""] * 5, REFERENCES, tgt_lang="de") == 0
    assert length_ratio(["a"], [""], tgt_lang="de") is None
    for score in score_corpus(MANY_HYPOTHESES, [""] * 15, tgt_lang="de", bootstrap=100).values():
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


def test_buckets_of_few_sentences_have_scores_but_no_intervals() -> None:
    sources = [words(3)] * FEW + [words(12)] * (FEW - 1)
    hypotheses = (HYPOTHESES * FEW)[: len(sources)]
    references = (REFERENCES * FEW)[: len(sources)]
    enough, few = by_length(sources, hypotheses, references, buckets=[10], tgt_lang="de", bootstrap=100)
    assert (enough.few, few.few) == (False, True)
    assert None not in (enough.bleu_low, enough.bleu_high, enough.chrf_low, enough.chrf_high)
    assert {few.bleu_low, few.bleu_high, few.chrf_low, few.chrf_high} == {None}
    assert few.bleu == sacrebleu.corpus_bleu(hypotheses[FEW:], [references[FEW:]]).score


def test_an_interval_that_there_is_not_is_a_dash() -> None:
    assert interval(1.0, 2.5) == "1.00 to 2.50"
    assert interval(None, None) == "–"


def test_the_csv_has_exactly_the_columns_of_the_contract() -> None:
    text = length_csv([LengthRow(0, 10, 3, 41.5, 60.25), LengthRow(50, None, 1, 0.0, 12.34567)])
    assert text == "low,high,sentences,bleu,chrf\n0,10,3,41.5000,60.2500\n50,,1,0.0000,12.3457\n"
