"""Contract under test: words and bounds are held exactly, and the report names where wrong words lie and what they look like."""

from __future__ import annotations

import numpy as np
import pytest

from bitverdict.harness.judge.compare import compare, with_enclosed
from bitverdict.harness.judge.diagnose import first_words, ulp_distance
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.verdict import Outcome


def expected_outcome(values: np.ndarray, **more) -> ExpectedOutput:
    values = np.asarray(values, np.float32)
    return ExpectedOutput(name="c", format="fp32", shape=values.shape, words=values.view(np.uint32), **more)


def got(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


MATRIX = np.arange(1, 20 * 24 + 1, dtype=np.float32).reshape(20, 24)


def sentences(values: np.ndarray, **more) -> str:
    found = compare(expected_outcome(MATRIX, **more), got(values))
    assert found.outcome is Outcome.WRONG_WORDS
    return "; ".join(found.details["clusters"])


def test_equal_words_are_right_and_one_bit_is_not() -> None:
    assert compare(expected_outcome(MATRIX), got(MATRIX)).outcome is Outcome.PASS
    flipped = got(MATRIX).copy()
    flipped[3, 5] ^= 1
    found = compare(expected_outcome(MATRIX), flipped)
    assert (found.outcome, found.details["wrong"]) == (Outcome.WRONG_WORDS, 1)
    assert "first at [3, 5]: got 0x429c0001 (78.0000076), expected 0x429c0000 (78), 1 ulp" in found.message


def test_minus_zero_is_not_zero() -> None:
    assert compare(expected_outcome(np.zeros(3)), got(-np.zeros(3))).outcome is Outcome.WRONG_WORDS


def test_a_nan_of_another_payload_counts_only_where_one_is_expected() -> None:
    due, other = expected_outcome([np.nan, 1.0]), np.array([0x7FFFFFFF, 0x3F800000], np.uint32)
    assert compare(due, other).outcome is Outcome.WRONG_WORDS
    assert compare(expected_outcome([np.nan, 1.0], any_nan=True), other).outcome is Outcome.PASS
    assert compare(expected_outcome([np.nan, 1.0], any_nan=True), got(np.array([1.0, 1.0]))).outcome is Outcome.WRONG_WORDS


def test_where_several_words_are_right_one_of_them_must_come() -> None:
    """What lies between them is wrong; NaN may come where one of them is NaN."""
    due = expected_outcome([1.0, 2.0], any_nan=True, others=got([[1.0, 4.0], [3.0, np.nan]]))
    for right in ([1.0, 4.0], [3.0, 2.0], [3.0, np.nan]):
        assert compare(due, got(right)).outcome is Outcome.PASS
    for wrong in ([1.0, 3.0], [2.0, 2.0], [np.nan, 2.0]):
        assert compare(due, got(wrong)).outcome is Outcome.WRONG_WORDS
    assert "expected 0x3f800000 (1) or 0x40400000 (3)" in compare(due, got([2.0, 2.0])).message
    low, high = (np.full(2, word, np.uint32) for word in got([2.5, 3.5]))
    assert with_enclosed(due, low, high).inconclusive.tolist() == [True, False]


@pytest.mark.parametrize(
    ("value", "bound", "came", "outcome", "used"),
    [
        ([1.0], [0.5], [1.5], Outcome.PASS, 1.0),
        ([1.0], [0.5], [1.501], Outcome.OUTSIDE_BOUND, None),
        ([1.0], [0.0], [1.0], Outcome.PASS, 0.0),
        ([np.nan], [0.0], [1.0], Outcome.OUTSIDE_BOUND, None),
        ([1.0], [9.0], [np.nan], Outcome.OUTSIDE_BOUND, None),
        ([np.inf], [0.0], [np.inf], Outcome.PASS, None),
        ([np.inf], [np.inf], [-np.inf], Outcome.OUTSIDE_BOUND, None),
        ([1.0], [np.inf], [7.0], Outcome.INCONCLUSIVE, None),
        ([np.nan], [0.0], [np.nan], Outcome.PASS, None),
    ],
)
def test_the_bound_is_held_exactly_and_its_used_share_told(value, bound, came, outcome, used) -> None:
    due = ExpectedOutput(name="c", format="fp32", shape=(1,), value=np.array(value), bound=np.array(bound))
    found = compare(due, got(np.array(came)))
    assert found.outcome is outcome
    if outcome is Outcome.PASS:
        assert found.bound_used == used


def test_inconclusive_elements_neither_fail_nor_pass() -> None:
    mask = np.zeros(MATRIX.shape, bool)
    mask[0, 0] = True
    wrong = MATRIX.copy()
    wrong[0, 0] = -1
    found = compare(expected_outcome(MATRIX, inconclusive=mask), got(wrong))
    assert (found.outcome, found.inconclusive, found.words) == (Outcome.PASS, 1, MATRIX.size - 1)
    assert compare(expected_outcome(MATRIX, inconclusive=np.ones(MATRIX.shape, bool)), got(wrong)).outcome is Outcome.INCONCLUSIVE


def test_another_shape_or_width_is_its_own_outcome() -> None:
    assert compare(expected_outcome(MATRIX), got(MATRIX.T)).outcome is Outcome.WRONG_SHAPE
    assert compare(expected_outcome(MATRIX), MATRIX.astype(np.float16).view(np.uint16)).outcome is Outcome.WRONG_SHAPE


def test_unwritten_words_are_told_from_wrong_ones() -> None:
    holes = got(MATRIX).copy()
    holes[4:6] = 0xFFFFFFFF
    found = compare(expected_outcome(MATRIX), holes, poison=0xFFFFFFFF)
    assert found.details["never_written"] == 48 and "48 of them never written" in found.message
    assert "never written" not in compare(expected_outcome(MATRIX), holes, poison=0x7B7B7B7B).message


def test_the_last_ragged_row_of_tiles_is_named() -> None:
    wrong = MATRIX.copy()
    wrong[16:, :] += 1
    assert "only in the last row of tiles, which is ragged" in sentences(wrong, tile=(8, 8))


@pytest.mark.parametrize(
    ("shape", "rows", "columns", "told"),
    [
        ((20, 24), slice(3, 4), slice(0, 24), {"in row 3 of 20 alone"}),
        ((20, 24), slice(0, 20), slice(5, 6), {"in column 5 of 24 alone"}),
        ((20, 24), slice(3, 4), slice(5, 7), {"in row 3 of 20 and columns 5 to 6 of 24 alone"}),
        ((1, 24), slice(0, 1), slice(0, 2), {"in columns 0 to 1 of 24 alone"}),
        ((1, 1), slice(0, 1), slice(0, 1), set()),  # the report said "rows 0..0 of 1"
    ],
)
def test_a_row_or_a_column_is_named_where_it_is_one_of_several(shape, rows: slice, columns: slice, told: set[str]) -> None:
    due = MATRIX.reshape(-1)[: shape[0] * shape[1]].reshape(shape)
    wrong = due.copy()
    wrong[rows, columns] = -3.5
    said = compare(expected_outcome(due), got(wrong)).details["clusters"]
    assert {each for each in said if " alone" in each or ".." in each} == told


@pytest.mark.parametrize(
    ("came", "ulp"), [(-1.0, None), (0.0, None), (np.nan, None), (1.0, 0), (np.nextafter(np.float32(1), 2), 1)]
)
def test_no_distance_is_told_between_signs(came: float, ulp: int | None) -> None:
    due = np.ones((1, 1), np.float32)
    words = np.full((1, 1), came, np.float32).view(np.uint32)
    assert first_words(expected_outcome(due), words, np.ones((1, 1), bool))[0]["ulp"] == ulp


def test_a_residue_of_the_tile_is_named() -> None:
    wrong = MATRIX.copy()
    wrong[:, 7::8] += 100
    assert "columns modulo 8: only [7]" in sentences(wrong, tile=(8, 8))


def test_a_shift_a_sign_and_a_transposition_are_named() -> None:
    assert "the row before" in sentences(np.roll(MATRIX, 1, 0))
    assert "the column after" in sentences(np.roll(MATRIX, -1, 1))
    assert "the other sign" in sentences(-MATRIX)
    square = MATRIX[:20, :20]
    found = compare(expected_outcome(square), got(square.T))
    assert "each wrong word is the expected one of the transposed place" in found.details["clusters"]


def test_rounding_is_told_from_movement() -> None:
    assert "within 1 ulp" in sentences(np.nextafter(MATRIX, np.float32(np.inf)))


def test_ulp_distance_crosses_zero_on_one_ladder() -> None:
    a, b = np.array([0x00000001, 0x80000000, 0x3F800000], np.uint32), np.array([0x80000001, 0x00000000, 0x3F7FFFFF], np.uint32)
    assert ulp_distance("fp32", a, b).tolist() == [2, 0, 1]
    assert ulp_distance("int8", np.array([0xFF], np.uint8), np.array([0x01], np.uint8)).tolist() == [2]


def test_the_picture_has_a_cell_per_tile_and_its_share() -> None:
    wrong = MATRIX.copy()
    wrong[0, 0] = wrong[19, 23] = 0
    heat = compare(expected_outcome(MATRIX, tile=(4, 8)), got(wrong)).details["heat"]
    assert heat["cell"] == [4, 8] and heat["percent"][0] == [4, 0, 0] and heat["percent"][4] == [0, 0, 4]


@pytest.mark.parametrize(("tiles", "cell"), [((1, 1), [2, 4]), ((2, 2), [2, 4]), ((3, 1), [16, 64]), ((1, 3), [16, 64])])
def test_the_picture_looks_inside_where_there_are_few_tiles(tiles: tuple[int, int], cell: list[int]) -> None:
    """An eighth of a tile's rows by a sixteenth of its columns, so that a wrong corner of the one tile is seen to be one."""
    due = np.ones((16 * tiles[0], 64 * tiles[1]), np.float32)
    wrong = due.copy()
    wrong[:2, :4] = 2
    heat = compare(expected_outcome(due, tile=(16, 64)), got(wrong)).details["heat"]
    percent = np.array(heat["percent"])
    assert heat["cell"] == cell and percent.shape == tuple(np.array(due.shape) // cell)
    assert np.flatnonzero(percent).tolist() == [0] and percent[0, 0] == (100 if cell == [2, 4] else 1)


def test_an_empty_output_is_right() -> None:
    assert compare(expected_outcome(np.zeros((0, 5))), got(np.zeros((0, 5)))).outcome is Outcome.PASS


def between(values: list, low: list, high: list, **more) -> ExpectedOutput:
    ends = [np.array(end, np.float16).view(np.uint16) for end in (low, high)]
    exact = np.array(values, float)
    return ExpectedOutput(
        name="c", format="fp16", shape=exact.shape, value=exact, bound=np.full(exact.shape, 1.0), low=ends[0], high=ends[1], **more
    )


def half(values: list) -> np.ndarray:
    return np.array(values, np.float16).view(np.uint16)


def test_an_interval_of_words_admits_its_ends_and_nothing_beyond() -> None:
    due = between([2049.0, 1e9, np.nan], [2048, np.inf, np.nan], [2048, np.inf, np.nan])
    assert compare(due, half([2048, np.inf, np.nan])).outcome is Outcome.PASS
    for place, wrong in ((0, 2050), (1, 65504), (2, 1.0), (0, np.nan), (1, np.nan)):
        came = [2048, np.inf, np.nan]
        came[place] = wrong
        found = compare(due, half(came))
        assert (found.outcome, found.details["wrong"], found.words) == (Outcome.OUTSIDE_BOUND, 1, 3), (place, wrong)
    assert "got 0x6801 (2050), expected 0x6800 (2048), 1 ulp" in compare(due, half([2050, np.inf, np.nan])).message


def test_an_interval_of_two_words_is_told_by_both() -> None:
    due = between([1.0], [1.0], [1.0 + 2.0**-10], or_nan=np.array([True]))
    for fine in (1.0, 1.0 + 2.0**-10, np.nan):
        assert compare(due, half([fine])).outcome is Outcome.PASS
    assert "expected 0x3c00 (1) to 0x3c01 (1.00097656) or NaN" in compare(due, half([0.5])).message


def test_words_and_an_interval_decide_each_its_own_elements() -> None:
    """-0 for +0 is seen where the word is due, and not where an interval is."""
    due = between([0.0, 0.0], [0.0, 0.0], [0.0, 0.0], words=half([0.0, 0.0]), bounded=np.array([True, False]))
    assert compare(due, half([-0.0, 0.0])).outcome is Outcome.PASS
    assert compare(due, half([0.0, -0.0])).outcome is Outcome.WRONG_WORDS
    found = compare(due, half([1.0, 0.0]))
    assert (found.outcome, found.details["wrong"]) == (Outcome.OUTSIDE_BOUND, 1)
    apart = between([1.0, 0.0], [1.0, 5.0], [2.0, 5.0], words=half([9.0, 5.0]), bounded=np.array([True, False]))
    assert compare(apart, half([2.0, 5.0])).bound_used == 1.0, "the share is that of what the bound decides"


def test_a_right_word_of_another_value_is_said_to_be_one() -> None:
    """1.00000002 where 1.00000001 is due: both round to 1, and the kernel does not compute what it should."""

    class Reals:
        value, error = np.array([1.00000002]), np.array([1e-12])

    exact, one = np.array([1.00000001]), got(np.array([1.0]))
    expected = ExpectedOutput(name="c", format="fp32", shape=(1,), words=one, exact=exact, exact_error=np.array([1e-12]))
    found = compare(expected, one, real=Reals())
    assert found.outcome is Outcome.WRONG_MATHEMATICS and " ulp" not in found.message
    said = "got 0x3f800000 (1), which is the expected word, but without rounding 1.00000002, expected 1.00000001"
    assert said in found.message and "it is not rounded by the rule that the reference declares" in found.message
    assert "expected 0x3f800000 (1), 1 ulp" in compare(expected, got(np.array([1.0000001])), real=Reals()).message


def test_an_enclosure_of_integers_is_in_the_order_of_integers() -> None:
    words = np.array([-1, 5, 3], np.int32).view(np.uint32)
    due = ExpectedOutput(name="out", shape=(3,), format="int32", words=words)
    low, high = (np.array(ends, np.int32).view(np.uint32) for ends in ([-3, 4, 4], [0, 4, 9]))
    assert with_enclosed(due, low, high).inconclusive.tolist() == [True, False, False]
