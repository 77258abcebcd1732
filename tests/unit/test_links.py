"""Links as text, from weights, of two directions, and their scores."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.data.links import (
    GoldLinks,
    Links,
    alignment_error,
    format_links,
    link_pieces,
    links_of,
    merge_words,
    parse_links,
    read_links,
    symmetrize,
    transposed,
)
from nmt.errors import NmtError

LINKS = st.frozensets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20)


def links(text: str) -> Links:
    return parse_links(text, "links", 1).possible


# --- text -----------------------------------------------------------------------------------------------------------


def test_sure_links_are_possible_ones_too() -> None:
    found = parse_links(" 0-0 1p2\t3?4 12-10 ", "gold", 1)
    assert found == GoldLinks(
        sure=frozenset({(0, 0), (12, 10)}), possible=frozenset({(0, 0), (1, 2), (3, 4), (12, 10)})
    )
    assert parse_links("1p2 1-2", "gold", 1).sure == {(1, 2)}
    assert parse_links("", "gold", 1) == GoldLinks(frozenset(), frozenset())


def test_words_may_count_from_one() -> None:
    assert parse_links("1-1 3p2", "gold", 1, base=1).possible == {(0, 0), (2, 1)}
    with pytest.raises(NmtError, match=r"gold, line 7: 0-3 names a word 0.*counts them from 0"):
        parse_links("1-1 0-3", "gold", 7, base=1)


@pytest.mark.parametrize("token", ["3--4", "3-4-5", "a-1", "3", "-1-2", "3-", "٣-٤", "1-2,", "3-4-S", "9999999999-0"])
def test_what_is_no_link_is_named_with_its_line(token: str) -> None:
    with pytest.raises(NmtError, match="gold, line 3: ") as caught:
        parse_links(f"0-0 {token} 1-1", "gold", 3)
    assert token in str(caught.value)


def test_a_file_of_links_may_be_packed(tmp_path: Path) -> None:
    path = tmp_path / "gold.gz"
    path.write_bytes(gzip.compress(b"0-0 1p1\r\n\n2-2"))
    assert [format_links(gold.possible) for gold in read_links(path)] == ["0-0 1-1", "", "2-2"]


@settings(max_examples=40, deadline=None)
@given(found=LINKS)
def test_written_links_are_sorted_and_read_back(found: Links) -> None:
    text = format_links(found)
    assert parse_links(text, "links", 1).sure == found
    assert [tuple(map(int, token.split("-"))) for token in text.split()] == sorted(found)
    assert transposed(transposed(found)) == found


# --- from weights ---------------------------------------------------------------------------------------------------


def test_pieces_are_summed_over_a_source_word_and_averaged_over_a_target_word() -> None:
    weights = np.array([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.0, 0.5, 0.5]])
    merged = merge_words(weights, [0, 0, 2], [0, 1, 1], 3, 2)
    np.testing.assert_allclose(merged, [[0.2, 0.8], [0.0, 0.0], [0.0, 1.0]])


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_merged_rows_sum_to_one_and_equal_a_slow_sum(data: st.DataObject) -> None:
    n_tgt, n_src = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    tgt = sorted(data.draw(st.lists(st.integers(0, n_tgt - 1), min_size=1, max_size=8)))
    src = sorted(data.draw(st.lists(st.integers(0, n_src - 1), min_size=1, max_size=8)))
    weights = np.random.default_rng(len(tgt) * 10 + len(src)).dirichlet(np.ones(len(src)), len(tgt))
    merged = merge_words(weights, tgt, src, n_tgt, n_src)
    for t in range(n_tgt):
        rows = [row for row, word in zip(weights, tgt, strict=True) if word == t]
        assert merged[t].sum() == pytest.approx(1.0 if rows else 0.0)
        for s in range(n_src):
            sums = [sum(w for w, word in zip(row, src, strict=True) if word == s) for row in rows]
            assert merged[t, s] == pytest.approx(sum(sums) / len(sums) if sums else 0.0)


def test_each_target_word_is_linked_to_the_source_word_with_the_most_weight() -> None:
    weights = np.array([[0.1, 0.7, 0.2], [0.4, 0.4, 0.2], [0.0, 0.0, 0.0]])
    assert links_of(weights) == {(1, 0), (0, 1)}


def test_a_target_word_that_looks_at_eos_has_no_link() -> None:
    weights = np.array([[0.1, 0.2, 0.7], [0.4, 0.3, 0.3]])
    assert links_of(weights, eos=True) == {(0, 1)}
    assert links_of(weights, 0.25, eos=True) == {(0, 1), (1, 1)}
    assert links_of(weights) == {(2, 0), (0, 1)}


def test_a_threshold_links_every_word_that_has_as_much() -> None:
    weights = np.array([[0.5, 0.3, 0.2], [0.1, 0.0, 0.9]])
    assert links_of(weights, 0.3) == {(0, 0), (1, 0), (2, 1)}
    assert links_of(weights, 0.0) == {(0, 0), (1, 0), (2, 0), (0, 1), (2, 1)}
    assert links_of(weights, 1.0) == frozenset()


def test_no_words_have_no_links() -> None:
    for shape in ((0, 3), (3, 0), (0, 0)):
        assert links_of(np.zeros(shape)) == links_of(np.zeros(shape), 0.1) == frozenset()
    assert link_pieces(np.zeros((1, 1)), [], []) == frozenset()


def test_shift_gives_a_piece_the_weights_of_the_next_step() -> None:
    weights = np.eye(4)[[0, 1, 2, 0]]  # steps of three pieces and EOS, over three pieces and EOS
    assert link_pieces(weights, [0, 1, 2], [0, 1, 2]) == {(0, 0), (1, 1), (2, 2)}
    assert link_pieces(weights, [0, 1, 2], [0, 1, 2], shift=1) == {(1, 0), (2, 1), (0, 2)}
    # Before pieces become words: the word of pieces 0 and 1 then looks at pieces 1 and 2.
    assert link_pieces(weights, [0, 0, 1], [0, 1, 1], shift=1) == {(1, 0), (0, 1)}


def test_a_translation_cut_by_the_length_limit_has_no_step_after_its_last_piece() -> None:
    weights = np.eye(3)[[0, 1]]
    assert link_pieces(weights, [0, 1], [0, 1]) == {(0, 0), (1, 1)}
    assert link_pieces(weights, [0, 1], [0, 1], shift=1) == {(1, 0)}


def test_a_decoder_without_attention_links_nothing() -> None:
    assert link_pieces(np.zeros((3, 0)), [0, 1], [0, 1]) == frozenset()
    assert link_pieces(np.zeros((3, 0)), [0, 1], [0, 1], shift=1, threshold=0.0) == frozenset()


def test_weight_on_eos_leaves_a_word_without_a_link() -> None:
    weights = np.array([[0.3, 0.3, 0.4], [0.1, 0.2, 0.7], [1.0, 0.0, 0.0]])
    assert link_pieces(weights, [0, 1], [0, 0]) == {(0, 0)}  # 0.6 for the word's two pieces


# --- two directions -------------------------------------------------------------------------------------------------


def slow_grow_diag_final_and(forward: Links, backward: Links, size: int = 7) -> Links:
    """The pseudo-code of Koehn et al. as it stands, on matrices: e the target side, f the source side."""
    e2f, f2e = np.zeros((size, size), bool), np.zeros((size, size), bool)
    for matrix, found in ((e2f, forward), (f2e, backward)):
        for f, e in found:
            matrix[e, f] = True
    union, alignment = e2f | f2e, e2f & f2e
    neighbours = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]
    before = -1
    while before != alignment.sum():
        before = alignment.sum()
        for e in range(size):
            for f in range(size):
                for step_e, step_f in neighbours if alignment[e, f] else ():
                    new_e, new_f = e + step_e, f + step_f
                    if not (0 <= new_e < size and 0 <= new_f < size and union[new_e, new_f]):
                        continue
                    if not alignment[new_e].any() or not alignment[:, new_f].any():
                        alignment[new_e, new_f] = True
    for direction in (e2f, f2e):
        for e in range(size):
            for f in range(size):
                if direction[e, f] and not alignment[e].any() and not alignment[:, f].any():
                    alignment[e, f] = True
    return frozenset((int(f), int(e)) for e, f in zip(*np.nonzero(alignment), strict=True))


@settings(max_examples=150, deadline=None)
@given(forward=LINKS, backward=LINKS)
def test_grow_diag_final_and_is_the_published_algorithm(forward: Links, backward: Links) -> None:
    found = symmetrize(forward, backward, "grow-diag-final-and")
    assert found == slow_grow_diag_final_and(forward, backward)
    both, either = symmetrize(forward, backward, "intersection"), symmetrize(forward, backward, "union")
    assert both == forward & backward
    assert either == forward | backward
    assert both <= found <= either


def test_grow_diag_final_and_by_hand() -> None:
    forward, backward = links("0-0 1-1 2-1 3-3 5-5"), links("0-0 1-1 1-2 4-3 6-6 5-6")
    # The intersection is 0-0 1-1; 2-1 and 1-2 neighbour 1-1 and each links a free word. The rest neighbours nothing:
    # 3-3 and 5-5 link two free words each and come from `forward`; then 4-3 and 5-6 would link only one, 6-6 two.
    assert symmetrize(forward, backward, "grow-diag-final-and") == links("0-0 1-1 2-1 1-2 3-3 5-5 6-6")


def test_growth_goes_on_from_points_that_were_added() -> None:
    forward, backward = links("0-0 1-1 2-2 3-2"), links("0-0")
    assert symmetrize(forward, backward, "grow-diag-final-and") == links("0-0 1-1 2-2 3-2")


@settings(max_examples=40, deadline=None)
@given(found=LINKS)
def test_two_directions_that_agree_stay_as_they_are(found: Links) -> None:
    for method in ("intersection", "union", "grow-diag-final-and"):
        assert symmetrize(found, found, method) == found  # type: ignore[arg-type]


# --- scores ---------------------------------------------------------------------------------------------------------


def test_scores_are_those_of_och_and_ney_over_the_corpus() -> None:
    gold = [parse_links("0-0 1-1 2p1", "gold", 1), parse_links("0p0 1-0", "gold", 2)]
    predicted = [links("0-0 2-1 2-2"), links("1-0")]
    scores = alignment_error(predicted, gold)
    assert (scores.predicted, scores.sure, scores.possible) == (4, 3, 5)
    assert scores.precision == pytest.approx(3 / 4)
    assert scores.recall == pytest.approx(2 / 3)
    assert scores.aer == pytest.approx(1 - (2 + 3) / (4 + 3))


def test_perfect_links_have_no_error_and_none_have_all() -> None:
    gold = [parse_links("0-0 1-1 2p1", "gold", 1)]
    assert alignment_error([gold[0].sure], gold).aer == 0.0
    assert alignment_error([gold[0].possible], gold).aer == 0.0
    nothing = alignment_error([frozenset()], gold)
    assert (nothing.precision, nothing.recall, nothing.aer) == (1.0, 0.0, 1.0)
    empty = alignment_error([], [])
    assert (empty.precision, empty.recall, empty.aer) == (1.0, 1.0, 0.0)


@settings(max_examples=50, deadline=None)
@given(ours=LINKS, sure=LINKS, more=LINKS)
def test_scores_lie_between_zero_and_one(ours: Links, sure: Links, more: Links) -> None:
    scores = alignment_error([ours], [GoldLinks(sure, sure | more)])
    assert all(0 <= value <= 1 for value in (scores.precision, scores.recall, scores.aer))
