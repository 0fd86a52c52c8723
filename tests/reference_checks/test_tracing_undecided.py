"""Contract under test: what hangs on a rounding is unknown, in the mathematics or in the words, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bitverdict.reference.formats import BF16, E4M3, FORMATS, FP16, FP32, decode, encode
from bitverdict.reference.tracing import TracedOutput, Untraceable, trace

Operand = tuple[str, np.ndarray]


def fp32(*values: float) -> Operand:
    return "fp32", np.array(values, np.float32).view(np.uint32)


def fp16(*values: float) -> Operand:
    return "fp16", np.array(values, np.float16).view(np.uint16)


def one(function: Callable[..., Any], *operands: Any, **how: Any) -> TracedOutput:
    (output,) = trace(function, operands, **how)
    return output


def ends(output: TracedOutput, format: str = "fp32") -> tuple[list[float], list[float], list[bool]]:
    low, high, _, open_ = output.interval(format)
    return decode(FORMATS[format], low).tolist(), decode(FORMATS[format], high).tolist(), open_.tolist()


def test_a_comparison_inside_the_running_error_is_unknown() -> None:
    """0.1 x 10 against 1, of fp32 numbers: the sum of ten of them and their product differ by a rounding of float64, or by none."""
    x = fp32(*[0.1] * 10)
    three = one(lambda xp, x: xp.sum(x / 3) > x[0] * 10 / 3, x)
    assert three.unknown.all() and three.interval("bool")[3].all()
    far = one(lambda xp, x: xp.sum(x / 3) > x[0] * 9 / 3, x)
    assert not far.unknown.any() and not far.interval("bool")[3].any() and far.value


def test_a_comparison_inside_a_rounding_of_fp32_is_known_to_mathematics() -> None:
    output = one(lambda xp, x: x * x > 1 + 2.0**-22, fp32(1 + 2.0**-23, 1 + 2.0**-20))
    assert output.value.tolist() == [True, True] and not output.unknown.any()
    assert output.interval("bool")[3].tolist() == [True, False]


def test_where_joins_both_branches_of_an_undecided_condition() -> None:
    output = one(lambda xp, x: xp.where(x * x > 1 + 2.0**-22, x + 2, -x), fp32(1 + 2.0**-23, 1 + 2.0**-20, 0.5))
    low, high, open_ = ends(output)
    assert (low[0], high[0]) == (-1 - 2.0**-23, 3.0) or (low[0] <= -1 and high[0] >= 3)
    assert low[1] == high[1] == np.float32(3 + 2.0**-20) and low[2] == high[2] == -0.5 and not any(open_)
    assert not output.unknown.any()
    unknown = one(lambda xp, x: xp.where(x / 3 * 3 > x, 1.0, 2.0), fp32(0.1))
    assert unknown.error[0] >= 1


def test_floor_hangs_where_a_whole_number_lies_in_the_error() -> None:
    output = one(lambda xp, x: xp.floor(x / 3 * 3), fp32(5.0, 5.5))
    assert output.unknown.tolist() == [True, False]
    low, high, _ = ends(output)
    assert (low, high) == ([4.0, 5.0], [5.0, 5.0])


def test_an_error_of_less_than_half_a_place_of_float64_counts() -> None:
    """1 + 2^-60 is 1 in float64, and its floor is known all the same; 1 - 2^-60 is as well, and its floor is not."""
    tiny = fp32(2.0**-60)
    assert one(lambda xp, x: xp.floor(1 - x), tiny).unknown.all()
    assert one(lambda xp, x: 1 - x < 1, tiny).unknown.all() and not one(lambda xp, x: xp.floor(1.5 - x), tiny).unknown.any()
    close = one(lambda xp, x: xp.exp(100 - x), tiny)
    assert close.error[0] > np.exp(100) * 2.0**-50


def test_an_exact_quotient_does_not_hang() -> None:
    output = one(lambda xp, x: xp.floor(x / 3), fp32(6.0, 7.0))
    assert not output.unknown.any() and output.value.tolist() == [2, 2]
    assert one(lambda xp, x: x // 2, fp32(6.0, 7.0)).interval("fp32")[0].tolist() == [0x40400000] * 2


def test_argmax_hangs_between_elements_nearer_than_their_errors() -> None:
    x = np.array([[1, 1, 0], [1, 2, 3]], np.float32)
    exact = one(lambda xp, x: xp.argmax(x, axis=1), ("fp32", x.view(np.uint32)))
    assert exact.value.tolist() == [0, 2] and not exact.interval("int64")[3].any()
    rounded = one(lambda xp, x: xp.argmax(xp.exp(x), axis=1), ("fp32", x.view(np.uint32)))
    assert rounded.unknown.tolist() == [True, False] and rounded.interval("int64")[3].tolist() == [True, False]


def test_argsort_hangs_for_the_neighbours_alone() -> None:
    x = np.array([[3, 1, 1, 7, 5]], np.float32)
    output = one(lambda xp, x: xp.argsort(xp.exp(x), axis=1), ("fp32", x.view(np.uint32)))
    assert output.unknown.tolist() == [[True, True, False, False, False]] == output.interval("int64")[3].tolist()
    ties = one(lambda xp, x: xp.argsort(x, axis=1), ("fp32", x.view(np.uint32)))
    assert not ties.unknown.any() and ties.value.tolist() == [[1, 2, 0, 4, 3]]
    unstable = one(lambda xp, x: xp.argsort(x, axis=1, stable=False), ("fp32", x.view(np.uint32)))
    assert unstable.unknown.tolist() == [[True, True, False, False, False]]
    falling = one(lambda xp, x: xp.argsort(x, axis=1, descending=True), ("fp32", x.view(np.uint32)))
    assert falling.value.tolist() == [[3, 4, 0, 1, 2]] and not falling.unknown.any()


def test_what_an_undecided_index_takes_is_unknown() -> None:
    table = fp32(10.0, 20.0, 30.0)
    function = lambda xp, x, table: xp.take(table, xp.argmax(xp.exp(x), axis=0, keepdims=True), axis=0)
    assert one(function, fp32(1, 1), table).unknown.all() and not one(function, fp32(1, 2), table).unknown.any()
    out = one(lambda xp, table, places: xp.take(table, places, axis=0), table, ("int32", np.array([0, 3, -1], np.int32)))
    assert out.unknown.tolist() == [False, True, False] and out.interval("fp32")[3].tolist() == [False, True, False]


def test_integers_wrap_around_in_their_own_type() -> None:
    operands = ("int32", np.array([2**31 - 1], np.int32)), ("int8", np.array([100], np.int8))
    outputs = trace(lambda xp, a, b: (a + 1, b * 2, xp.astype(a, xp.int64) + 1, a + b, xp.sum(b)), operands)
    assert [int(each.value.reshape(-1)[0]) for each in outputs] == [-(2**31), -56, 2**31, -(2**31) + 99, 100]
    assert [each.value.dtype.name for each in outputs] == ["int32", "int8", "int64", "int32", "int64"]
    low, high, _, open_ = outputs[0].interval("int32")
    assert low.dtype == np.uint32 and low[0] == high[0] == 1 << 31 and not open_.any()


def test_a_conversion_hangs_at_whole_numbers_and_beyond_the_range() -> None:
    output = one(lambda xp, x: xp.astype(x / 3 * 3, xp.int32), fp32(5.0, 5.5, 3e9))
    assert output.unknown.tolist() == [True, False, True]
    whole = one(lambda xp, x: xp.astype(x, xp.int32), fp32(5.0, 3e9))
    assert whole.unknown.tolist() == [False, True] == whole.interval("int32")[3].tolist()


def test_round_to_is_unknown_at_a_tie_within_the_error() -> None:
    tie = (1 + 1.125) / 2  # between two numbers of e4m3
    output = one(lambda xp, x: xp.round_to(x / 3 * 3, "e4m3"), fp32(tie, 1.1, 1.0))
    assert output.unknown.tolist() == [True, False, False]
    exact = one(lambda xp, x: xp.round_to(x, "e4m3"), fp32(tie, 1.1, 1000.0))
    assert not exact.unknown.any() and exact.value[:2].tolist() == [1.0, 1.125] and np.isnan(exact.value[2])
    assert one(lambda xp, x: xp.round_to(x, "e4m3", saturate=True), fp32(1000.0)).value.tolist() == [448.0]
    assert one(lambda xp, x: xp.round_to(x, "e4m3", rounding="toward_zero"), fp32(1.9999)).value.tolist() == [1.875]


def test_kept_in_lets_an_implementation_round_and_leaves_the_mathematics() -> None:
    plain = one(lambda xp, x: x * x, fp32(1.001))
    kept = one(lambda xp, x: xp.kept_in(x * x, "bf16"), fp32(1.001))
    assert plain.value == kept.value and plain.error == kept.error
    (low,), (high,), *_ = ends(kept)
    exact = float(kept.value[0])
    assert abs(low - exact * (1 - 2.0**-8)) < 2.0**-21 and abs(high - exact * (1 + 2.0**-8)) < 2.0**-21
    through = one(lambda xp, x: xp.astype(x * x, xp.float16), fp32(1.001))
    assert ends(through)[0] == [decode(FP16, encode(FP16, kept.value))[0]]


def test_unchanged_elements_are_marked_and_nothing_is_said_of_them() -> None:
    output = one(lambda xp, x: xp.where(x > 0, x * 2, xp.unchanged), fp32(1.0, -1.0))
    assert output.no_write_mask.tolist() == [False, True] and output.interval("fp32")[3].tolist() == [False, True]
    whole = one(lambda xp, i: xp.where(i > 0, i, xp.unchanged), ("int32", np.array([1, -1], np.int32)))
    assert whole.no_write_mask.tolist() == [False, True] and whole.kind == "integer"


def test_a_kept_format_that_overflows_is_an_infinity_or_saturates() -> None:
    low, high, open_ = ends(one(lambda xp, x: xp.kept_in(x, "e4m3"), fp32(1000.0, -1000.0)))
    assert high[0] == np.inf and low[1] == -np.inf and not any(open_)


def test_integers_beyond_float64_are_not_exact_as_floats() -> None:
    output = one(lambda xp, i: i * 1.0, ("int64", np.array([2**53 + 1, 5], np.int64)))
    assert output.error[0] >= 1 and output.error[1] < 1e-15


def test_a_sum_of_python_adds_no_rounding() -> None:
    x = fp16(0.1, 0.2, 0.3)
    plain, summed = one(lambda xp, x: x[0] + x[1] + x[2], x), one(lambda xp, x: sum([x[0], x[1], x[2]]), x)
    assert ends(plain) == ends(summed)


def test_bits_hang_where_more_than_one_word_is_possible() -> None:
    words = one(lambda xp, x: xp.bits(x, "uint16"), fp16(1.0, -2.0))
    assert words.value.tolist() == [0x3C00, 0xC000] and not words.unknown.any()
    back = one(lambda xp, i: xp.from_bits(i, "fp16"), ("uint16", np.array([0x3C00, 0xC000], np.uint16)))
    assert back.value.tolist() == [1.0, -2.0]
    rounded = one(lambda xp, x: xp.bits(x / 3, "uint32"), fp32(1.0))
    assert rounded.interval("uint32")[3].all()
    with pytest.raises(Untraceable, match="same width"):
        one(lambda xp, x: xp.bits(x * x, "uint16"), fp16(1.0))


def test_sums_that_may_overflow_admit_infinity_and_on_both_sides_nothing() -> None:
    large = 3e38
    x = np.array([[large, large, -large], [large, -large / 2, 0]], np.float32)
    low, high, open_ = ends(one(lambda xp, x: xp.sum(x, axis=1), ("fp32", x.view(np.uint32))))
    assert high[0] == np.inf and high[1] < 2e38 and low[0] > 2e38 and not any(open_)
    met = one(lambda xp, x: xp.sum(x), fp32(large, large, -np.inf))  # the finite ones first: NaN
    assert met.interval("fp32")[3].all() and met.value == -np.inf
    assert not one(lambda xp, x: xp.sum(x), fp32(large, -np.inf)).interval("fp32")[3].any()
    both = one(lambda xp, x: xp.sum(x), fp32(large, large, -large, -large))
    assert both.interval("fp32")[3].all()


def test_infinities_and_nan_follow_ieee_754() -> None:
    special = fp32(np.inf, -np.inf, np.nan, 0.0)
    output = one(lambda xp, x: x - x, special)
    low, _, _, open_ = output.interval("fp32")
    assert np.isnan(output.value[:3]).all() and (low[:3] == FP32.nan_code).all() and not open_.any()
    assert ends(one(lambda xp, x: 1 / x, special))[0][3] == np.inf
    assert one(lambda xp, x: xp.maximum(x, 1.0), special).interval("fp32")[3].tolist() == [False, False, True, False]
    assert one(lambda xp, x: xp.max(x), special).unknown.all()
    assert ends(one(lambda xp, x: 1 / (1 + xp.exp(-x)), fp32(-200.0)))[0] == [0.0]


def test_the_interval_in_a_narrow_format_takes_the_store_in() -> None:
    """Both ends of an exact result round to one word, ties too; a result near a tie has two."""
    tie = 1 + 2.0**-11
    low, high, _ = ends(one(lambda xp, x: x + 0, fp32(tie)), "fp16")
    assert low == high == [1.0]
    low, high, _ = ends(one(lambda xp, x: x * x, fp32(np.sqrt(tie))), "fp16")
    assert (low, high) == ([1.0], [1 + 2.0**-10])
    saturated = one(lambda xp, x: x * 2, fp32(400.0)).interval("e4m3")
    assert saturated[0][0] == E4M3.largest_code and saturated[2][0]
    assert one(lambda xp, x: x * 2, fp32(3e38)).interval("bf16")[0][0] == BF16.infinity_code


def test_an_accumulation_type_of_its_own() -> None:
    x = fp16(*np.linspace(1, 2, 64))
    narrow, wide = (one(lambda xp, x: xp.sum(x), x, accumulation=how) for how in ("fp16", "fp32"))
    width = [np.subtract(*ends(each)[1::-1]) for each in (narrow, wide)]
    assert width[0] > 1000 * width[1] >= 0
    assert not one(lambda xp, x: xp.sum(x), x, accumulation="fp64").interval("fp64")[3].any()


def test_a_reference_that_returns_something_else_is_named() -> None:
    with pytest.raises(Untraceable, match="returns arrays"):
        one(lambda xp, x: "x", fp32(1.0))
    for function, name in ((lambda xp, x: np.linalg.svd(x), "numpy.linalg.svd"), (lambda xp, x: np.sqrt(x), "numpy.sqrt"),
                           (lambda xp, x: np.sum(x), "numpy.sum"), (lambda xp, x: np.ones(2) * x, "numpy.multiply"),
                           (lambda xp, x: x.sum(), "array.sum")):  # fmt: skip
        with pytest.raises(Untraceable) as raised:
            one(function, fp32(1.0))
        assert raised.value.operator == name
    two = one(lambda xp, x: np.float64(2) * x + np.int64(1) - np.float32(0.5) / x, fp32(1.0))
    assert two.value.tolist() == [2.5]
    with pytest.raises(Untraceable, match="changes no array"):
        one(lambda xp, x: x.__setitem__(0, 1), fp32(1.0))
    with pytest.raises(Untraceable, match="a mask: its shape depends on values"):
        one(lambda xp, x: x[x > 0], fp32(1.0))


def test_a_certain_nan_makes_arithmetic_nan_beside_what_is_open() -> None:
    """The maximum beside a NaN is open: IEEE 754 has two. A row of softmax that holds a NaN is NaN with either."""
    row = fp32(1.0, np.nan, 2.0)
    largest = one(lambda xp, x: xp.max(x), row)
    assert largest.interval("fp32")[3].all()
    powers: dict[str, Callable[..., Any]] = {
        "difference": lambda xp, x: (x - xp.max(x))[1],
        "product": lambda xp, x: (x * xp.max(x))[1],
        "quotient": lambda xp, x: (x / xp.max(x))[1],
        "sum": lambda xp, x: xp.sum(xp.exp(x - xp.max(x))),
        "mean": lambda xp, x: xp.mean(x - xp.max(x)),
    }
    for name, function in powers.items():
        low, high, open_ = ends(one(function, row))
        assert np.isnan([low, high]).all() and not np.any(open_), name
    beside = one(lambda xp, x: x - xp.max(x), row)
    assert beside.interval("fp32")[3].tolist() == [True, False, True]
    power = one(lambda xp, x: xp.pow(x[1], xp.max(x) * 0), row)  # pow(NaN, 0) is 1
    assert power.interval("fp32")[3].all()
