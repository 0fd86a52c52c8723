"""Contract under test: a comparison that a NaN would decide is its ordered twin only where no NaN can come to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitverdict.harness.mutants.equivalence import SAME_FORM, equal_programs

PROGRAM = (Path(__file__).parent / "test_float_classes.ttgir").read_text()
PLAIN = {
    "mask": "2147483647", "limit": "2139095040", "of": "%x", "axis": "1", "combined": "maxsi", "otherwise": "%zero",
    "than": "%zero", "asked": "2", "made": "tt.precise_divf", "second": "%by",
    "F": "tensor<4x2xf32, #b>", "I": "tensor<4x2xi1, #b>",
}  # fmt: skip


def shown(**changed: str) -> str:
    """Why the program whose last comparison a NaN would decide is the one whose comparison it would not."""
    told = "\n".join(f"{line} loc(#loc)" if " : (" in line else line for line in PROGRAM.split("\n"))
    ordered, other = (told.format(**(PLAIN | changed), predicate=each) for each in (2, 9))
    return equal_programs(ordered, other, "sm_90")


@pytest.mark.parametrize(
    "same", [{}, {"made": "arith.mulf", "second": "%one"}, {"otherwise": "%one"}, {"limit": "2139095000"}], ids=str
)
def test_no_nan_comes_of_finite_numbers_by_numbers_above_zero(same: dict[str, str]) -> None:
    assert shown(**same) == SAME_FORM


@pytest.mark.parametrize(
    "near",
    [
        {"mask": "2147483646"},
        {"limit": "2139095041"},
        {"of": "%other"},
        {"axis": "0"},
        {"combined": "minsi"},
        {"otherwise": "%other"},
        {"than": "%one", "asked": "5"},
        {"asked": "3"},
        {"asked": "9"},
        {"made": "arith.mulf"},
        {"made": "arith.addf"},
        {"second": "%other"},
        {"second": "%zero"},
    ],
    ids=str,
)
def test_where_a_nan_may_come_the_two_are_not_the_same(near: dict[str, str]) -> None:
    assert shown(**near) == ""


LOOP = """#loc = loc(unknown)
"builtin.module"() ({{
  "tt.func"() <{{function_type = (!tt.ptr<f32>, f32, f32, i1) -> (), sym_name = "k"}}> ({{
  ^bb0(%p: !tt.ptr<f32>, %x: f32, %y: f32, %again: i1):
    %zero = "arith.constant"() <{{value = 0.000000e+00 : f32}}> : () -> f32
    %first = "arith.constant"() <{{value = {first}}}> : () -> f32
    "cf.br"({begins}, %zero)[^bb1] : (f32, f32) -> ()
  ^bb1(%largest: f32, %other: f32):  // 2 preds: ^bb0, ^bb1
    %higher = "arith.{made}"(%largest, {with}) <{{fastmath = #arith.fastmath<none>}}> : (f32, f32) -> f32
    "cf.cond_br"(%again, {turn}, %x, {end})[^bb1, ^bb2] <{{operandSegmentSizes = array<i32: 1, 2, 1>}}> : (i1, f32, f32, f32) -> ()
  ^bb2(%last: f32):  // pred: ^bb1
    %is = "arith.cmpf"(%last, %y) <{{fastmath = #arith.fastmath<none>, predicate = {predicate} : i64}}> : (f32, f32) -> i1
    %is0 = "arith.cmpf"(%last, %zero) <{{fastmath = #arith.fastmath<none>, predicate = {asked} : i64}}> : (f32, f32) -> i1
    "tt.store"(%p, %last, %is0) : (!tt.ptr<f32>, f32, i1) -> ()
    "tt.return"() : () -> ()
  }}) : () -> ()
}}) : () -> ()
"""
CARRIED = {"first": "0xFF800000 : f32", "begins": "%first", "made": "maxnumf", "with": "%x", "turn": "%higher", "end": "%higher"}


def shown_of_a_loop(**changed: str) -> str:
    """Why the comparison behind the loop may be the ordered one."""
    told = "\n".join(f"{line} loc(#loc)" if " : (" in line else line for line in LOOP.split("\n"))
    ordered, other = (told.format(**(CARRIED | changed), predicate=1, asked=each) for each in (1, 8))
    return equal_programs(ordered, other, "sm_90")


@pytest.mark.parametrize("same", [{}, {"made": "minnumf"}, {"first": "1.000000e+00 : f32"}, {"end": "%largest"}], ids=str)
def test_the_largest_of_a_number_and_what_comes_stays_a_number(same: dict[str, str]) -> None:
    assert shown_of_a_loop(**same) == SAME_FORM


@pytest.mark.parametrize(
    "changed",
    [
        {"begins": "%y"},  # an argument
        {"first": "0x7FC00000 : f32"},  # NaN
        {"made": "maximumf"},  # NaN where either is
        {"made": "addf"},
        {"turn": "%x"},
        {"end": "%other"},  # zero at first, then the argument
        {"turn": "%other", "with": "%other"},
    ],
    ids=str,
)
def test_what_a_loop_may_carry_as_nan_stays_unordered(changed: dict[str, str]) -> None:
    assert shown_of_a_loop(**changed) == ""
