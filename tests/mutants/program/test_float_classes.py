"""Contract under test: a comparison that a NaN would decide is its ordered twin only where no NaN can come to it."""

from __future__ import annotations

import pytest

from bitverdict.harness.mutants.equivalence import SAME, equal_programs

PROGRAM = """#loc = loc(unknown)
#b = #ttg.blocked<{{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [1], order = [0]}}>
"builtin.module"() ({{
  "tt.func"() <{{function_type = (!tt.ptr<f32>, f32) -> (), sym_name = "k"}}> ({{
  ^bb0(%p: !tt.ptr<f32>, %given: f32):
    %zero = "arith.constant"() <{{value = dense<0.000000e+00> : {F}}}> : () -> {F}
    %one = "arith.constant"() <{{value = dense<1.000000e+00> : {F}}}> : () -> {F}
    %infinite = "arith.constant"() <{{value = dense<0x7F800000> : {F}}}> : () -> {F}
    %magnitude = "arith.constant"() <{{value = dense<{mask}> : tensor<4x2xi32, #b>}}> : () -> tensor<4x2xi32, #b>
    %limit = "arith.constant"() <{{value = dense<{limit}> : tensor<4xi32, #b>}}> : () -> tensor<4xi32, #b>
    %at = "tt.splat"(%p) : (!tt.ptr<f32>) -> tensor<4x2x!tt.ptr<f32>, #b>
    %x = "tt.load"(%at) <{{operandSegmentSizes = array<i32: 1, 0, 0>}}> : (tensor<4x2x!tt.ptr<f32>, #b>) -> {F}
    %other = "tt.splat"(%given) : (f32) -> {F}
    %words = "tt.bitcast"({of}) : ({F}) -> tensor<4x2xi32, #b>
    %sizes = "arith.andi"(%words, %magnitude) : (tensor<4x2xi32, #b>, tensor<4x2xi32, #b>) -> tensor<4x2xi32, #b>
    %largest = "tt.reduce"(%sizes) <{{axis = {axis} : i32}}> ({{
    ^bb0(%l: i32, %r: i32):
      %m = "arith.{combined}"(%l, %r) : (i32, i32) -> i32
      "tt.reduce.return"(%m) : (i32) -> ()
    }}) : (tensor<4x2xi32, #b>) -> tensor<4xi32, #b>
    %fits = "arith.cmpi"(%largest, %limit) <{{predicate = 2 : i64}}> : (tensor<4xi32, #b>, tensor<4xi32, #b>) -> tensor<4xi1, #b>
    %column = "tt.expand_dims"(%fits) <{{axis = 1 : i32}}> : (tensor<4xi1, #b>) -> tensor<4x1xi1, #b>
    %all = "tt.broadcast"(%column) : (tensor<4x1xi1, #b>) -> {I}
    %finite = "arith.select"(%all, %x, {otherwise}) : ({I}, {F}, {F}) -> {F}
    %is = "arith.cmpf"(%other, {than}) <{{predicate = {asked} : i64}}> : ({F}, {F}) -> {I}
    %by = "arith.select"(%is, %other, %infinite) : ({I}, {F}, {F}) -> {F}
    %made = "{made}"(%finite, {second}) : ({F}, {F}) -> {F}
    %size = "math.absf"(%made) : ({F}) -> {F}
    %code = "arith.cmpf"(%size, %one) <{{predicate = {predicate} : i64}}> : ({F}, {F}) -> {I}
    "tt.store"(%at, %size, %code) : (tensor<4x2x!tt.ptr<f32>, #b>, {F}, {I}) -> ()
    "tt.return"() : () -> ()
  }}) : () -> ()
}}) : () -> ()
"""
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
    assert shown(**same) == SAME


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
