"""Contract under test: what a condition leaves of an integer is known behind the choice that it makes."""

from __future__ import annotations

import pytest

from bitverdict.harness.mutants.equivalence import SAME_FORM, equal_programs

PROGRAM = """#loc = loc(unknown)
#b = #ttg.blocked<{{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [1], order = [0]}}>
"builtin.module"() ({{
  "tt.func"() <{{function_type = (!tt.ptr<i32>, !tt.ptr<f32>) -> (), sym_name = "k"}}> ({{
  ^bb0(%p: !tt.ptr<i32>, %q: !tt.ptr<f32>):
    %limit = "arith.constant"() <{{value = dense<{limit}> : {I}}}> : () -> {I}
    %ones = "arith.constant"() <{{value = dense<{ones}> : {I}}}> : () -> {I}
    %at = "tt.splat"(%p) : (!tt.ptr<i32>) -> tensor<4x!tt.ptr<i32>, #b>
    %to = "tt.splat"(%q) : (!tt.ptr<f32>) -> tensor<4x!tt.ptr<f32>, #b>
    %x = "tt.load"(%at) <{{operandSegmentSizes = array<i32: 1, 0, 0>}}> : (tensor<4x!tt.ptr<i32>, #b>) -> {I}
    %y = "tt.load"(%at) <{{operandSegmentSizes = array<i32: 1, 0, 0>}}> : (tensor<4x!tt.ptr<i32>, #b>) -> {I}
    %is = "arith.cmpi"({of}, %limit) <{{predicate = {predicate} : i64}}> : ({I}, {I}) -> tensor<4xi1, #b>
    %not = "arith.xori"({inverted}, %ones) : ({I}, {I}) -> {I}
    %chosen = "arith.select"(%is, {arms}) : (tensor<4xi1, #b>, {I}, {I}) -> {I}
    %f = "{cast}"(%chosen) : ({I}) -> tensor<4xf32, #b>
    "tt.store"(%to, %f) : (tensor<4x!tt.ptr<f32>, #b>, tensor<4xf32, #b>) -> ()
    "tt.return"() : () -> ()
  }}) : () -> ()
}}) : () -> ()
"""
PLAIN = {"limit": "0", "ones": "-1", "of": "%x", "predicate": "2", "inverted": "%x", "arms": "%not, %x", "I": "tensor<4xi32, #b>"}


def shown(**changed: str) -> str:
    """Why a cast of what was chosen may take it for unsigned."""
    told = "\n".join(f"{line} loc(#loc)" if " : (" in line else line for line in PROGRAM.split("\n"))
    signed, other = (told.format(**(PLAIN | changed), cast=cast) for cast in ("arith.sitofp", "arith.uitofp"))
    return equal_programs(signed, other, "sm_90")


@pytest.mark.parametrize(
    "same",
    [
        {},
        {"predicate": "3", "limit": "-1"},
        {"predicate": "5", "arms": "%x, %not"},
        {"predicate": "4", "limit": "-1", "arms": "%x, %not"},
    ],
    ids=str,
)
def test_what_inverts_negative_numbers_gives_none(same: dict[str, str]) -> None:
    assert shown(**same) == SAME_FORM


@pytest.mark.parametrize(
    "changed",
    [
        {"limit": "1"},  # 0 is inverted too
        {"limit": "-1"},  # -1 is not
        {"ones": "1"},  # the sign stays
        {"predicate": "3"},
        {"predicate": "4"},
        {"predicate": "5"},
        {"predicate": "6"},  # of unsigned numbers
        {"arms": "%x, %not"},
        {"arms": "%not, %y"},
        {"inverted": "%y"},
        {"of": "%y"},
    ],
    ids=str,
)
def test_a_number_that_may_be_negative_stays_signed(changed: dict[str, str]) -> None:
    assert shown(**changed) == ""
