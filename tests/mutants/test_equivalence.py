"""Contract under test: a mutant is called equivalent only where its tile program computes what the right one does."""

from __future__ import annotations

import pytest

from bitverdict.harness.emulator.frontend.edited_programs import EditedProgram
from bitverdict.harness.mutants.equivalence import (
    BARRIERS,
    LAYOUT,
    MACHINE,
    SAME_FORM,
    SMALL_NUMBERS,
    UNUSED_BARRIER_MEMORY,
    UNUSED_OTHER,
    equal_edits,
    equal_programs,
    prove_all_equal,
)
from bitverdict.harness.mutants.same_machine_code import same_machine_code

B = "tensor<32xi32, #blocked>"
M = "tensor<32xi1, #blocked>"
F = "tensor<32xf32, #blocked>"
P = "tensor<32x!tt.ptr<f32>, #blocked>"
WRAPS = "<{overflowFlags = #arith.overflow<none>}>"
LOADED = "operandSegmentSizes = array<i32: 1, 1, 1>"
PROGRAM = f"""// fences before lowering:{" "}
// written in: triton
#blocked = #ttg.blocked<{{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}}>
#loc = loc("kernel.py":1:0)
"builtin.module"() ({{
  "tt.func"() <{{function_type = (!tt.ptr<f32>, i32, i32) -> (), sym_name = "add", sym_visibility = "public"}}> ({{
  ^bb0(%x: !tt.ptr<f32> loc("x"(#loc)), %n: i32 loc("n"(#loc)), %stride: i32 loc("stride"(#loc))):
    %0 = "arith.constant"() <{{value = dense<0.000000e+00> : {F}}}> : () -> {F} loc(#loc)
    %4 = "arith.constant"() <{{value = 4 : i32}}> : () -> i32 loc(#loc)
    %9 = "arith.constant"() <{{value = 9 : i32}}> : () -> i32 loc(#loc)
    %row = "tt.get_program_id"() <{{axis = 0 : i32}}> : () -> i32 loc(#loc)
    %wide = "arith.extsi"(%row) : (i32) -> i64 loc(#loc)
    %s = "arith.extsi"(%stride) : (i32) -> i64 loc(#loc)
    %start = "arith.muli"(%wide, %s) {WRAPS} : (i64, i64) -> i64 loc(#loc)
    %lanes = "tt.make_range"() <{{end = 32 : i32, start = 0 : i32}}> : () -> {B} loc(#loc)
    %half = "arith.remsi"(%4, %9) : (i32, i32) -> i32 loc(#loc)
    %more = "arith.addi"(%n, %half) {WRAPS} : (i32, i32) -> i32 loc(#loc)
    %limit = "tt.splat"(%more) : (i32) -> {B} loc(#loc)
    %inside = "arith.cmpi"(%lanes, %limit) <{{predicate = 2 : i64}}> : ({B}, {B}) -> {M} loc(#loc)
    %p = "tt.addptr"(%x, %start) : (!tt.ptr<f32>, i64) -> !tt.ptr<f32> loc(#loc)
    %q = "tt.splat"(%p) : (!tt.ptr<f32>) -> {P} loc(#loc)
    %at = "tt.addptr"(%q, %lanes) : ({P}, {B}) -> {P} loc(#loc)
    %v = "tt.load"(%at, %inside, %0) <{{isVolatile = false, {LOADED}}}> : ({P}, {M}, {F}) -> {F} loc(#loc)
    %unused = "arith.mulf"(%v, %0) <{{fastmath = #arith.fastmath<none>}}> : ({F}, {F}) -> {F} loc(#loc)
    %sum = "arith.addf"(%v, %v) <{{fastmath = #arith.fastmath<none>}}> : ({F}, {F}) -> {F} loc(#loc)
    "tt.store"(%at, %sum, %inside) : ({P}, {F}, {M}) -> () loc(#loc)
    "tt.return"() : () -> () loc(#loc)
  }}) {{noinline = false}} : () -> () loc(#loc)
}}) {{"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.shared = 0 : i32, ttg.target = "cuda:90"}} : () -> () loc(#loc)"""

EQUAL = {
    "nothing uses it": ('"arith.mulf"(%v, %0)', '"arith.addf"(%v, %0)'),
    "operands commute": ('"arith.addi"(%n, %half)', '"arith.addi"(%half, %n)'),
    "a program id is not negative": ('"arith.extsi"(%row)', '"arith.extui"(%row)'),
    "a stride is not negative": ('"arith.extsi"(%stride)', '"arith.extui"(%stride)'),
    "a remainder that changes nothing": ('"arith.remsi"(%4, %9)', '"arith.minsi"(%4, %9)'),
    "written the other way round": ('"arith.cmpi"(%lanes, %limit) <{predicate = 2', '"arith.cmpi"(%limit, %lanes) <{predicate = 4'),
    "another name": ("%limit", "%bound"),
}  # why the edit changes nothing
OTHERWISE = {
    "another limit": ('"arith.remsi"(%4, %9)', '"arith.maxsi"(%4, %9)'),
    "one lane more": ("predicate = 2", "predicate = 3"),
    "operands that do not commute": ('"arith.cmpi"(%lanes, %limit)', '"arith.cmpi"(%limit, %lanes)'),
    "another address": ('"tt.addptr"(%q, %lanes)', '"tt.addptr"(%q, %limit)'),
    "a store less": (f'    "tt.store"(%at, %sum, %inside) : ({P}, {F}, {M}) -> () loc(#loc)\n', ""),
    "another sum": ('"arith.addf"(%v, %v)', '"arith.addf"(%v, %0)'),
    "without its mask": (
        f"%at, %inside, %0) <{{isVolatile = false, {LOADED}}}> : ({P}, {M}, {F})",
        f"%at) <{{isVolatile = false}}> : ({P})",
    ),
}  # what the edit changes


@pytest.mark.parametrize("name", EQUAL)
def test_what_computes_the_same_is_equal(name: str) -> None:
    changed = PROGRAM.replace(*EQUAL[name])
    assert changed != PROGRAM and equal_programs(PROGRAM, changed, "sm_90") == SAME_FORM


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_computes_something_else_is_not_equal(name: str) -> None:
    changed = PROGRAM.replace(*OTHERWISE[name])
    assert changed != PROGRAM and equal_programs(PROGRAM, changed, "sm_90") == ""


def test_constants_are_folded() -> None:
    none, same = ('"arith.remsi"(%4, %9)', '"tt.mulhiui"(%4, %9)'), ('"arith.remsi"(%4, %9)', '"arith.xori"(%4, %4)')
    assert equal_programs(PROGRAM.replace(*none), PROGRAM.replace(*same), "sm_90") == SAME_FORM
    assert equal_programs(PROGRAM, PROGRAM.replace(*same), "sm_90") == ""


def test_an_argument_that_was_negative_may_be() -> None:
    changed = PROGRAM.replace(*EQUAL["a stride is not negative"])
    assert equal_programs(PROGRAM, changed, "sm_90", ("%stride",)) == ""
    assert equal_programs(PROGRAM, changed, "sm_90", ("%n",)) == SAME_FORM


def test_what_a_mask_leaves_out_may_be_anything_if_it_is_not_stored() -> None:
    changed = PROGRAM.replace("dense<0.000000e+00>", "dense<1.000000e+00>")
    assert equal_programs(PROGRAM, changed, "sm_90") == UNUSED_OTHER
    stored = PROGRAM.replace(f"%at, %sum, %inside) : ({P}, {F}, {M})", f"%at, %sum) : ({P}, {F})")
    assert equal_programs(stored, stored.replace("dense<0.000000e+00>", "dense<1.000000e+00>"), "sm_90") == ""


def test_one_load_may_give_anything_where_another_may_not() -> None:
    """What the first load gives outside of its mask is stored; of the second it is not."""
    constant = f'    %1 = "arith.constant"() <{{value = dense<0.000000e+00> : {F}}}> : () -> {F} loc(#loc)\n'
    second = f'    %w = "tt.load"(%at, %inside, %1) <{{isVolatile = false, {LOADED}}}> : ({P}, {M}, {F}) -> {F} loc(#loc)\n'
    kept = f'    "tt.store"(%at, %w, %inside) : ({P}, {F}, {M}) -> () loc(#loc)\n'
    stored = PROGRAM.replace(f"%at, %sum, %inside) : ({P}, {F}, {M})", f"%at, %sum) : ({P}, {F})")
    both = stored.replace('    %4 = "arith', f'{constant}    %4 = "arith').replace(
        '    "tt.store"', f'{second}{kept}    "tt.store"'
    )
    of_first, of_second = (
        both.replace(f'%{name} = "arith.constant"() <{{value = dense<0.0', f'%{name} = "arith.constant"() <{{value = dense<1.0')
        for name in "01"
    )
    assert len({both, of_first, of_second}) == 3
    assert equal_programs(both, of_second, "sm_90") == UNUSED_OTHER
    assert equal_programs(both, of_first, "sm_90") == ""


GIVEN = f"%at, %inside, %0) <{{isVolatile = false, {LOADED}}}> : ({P}, {M}, {F})"
BARE = f"%at, %inside) <{{isVolatile = false, {LOADED.replace('1, 1, 1', '1, 1, 0')}}}> : ({P}, {M})"


def test_zeros_are_what_a_masked_load_gives_of_itself() -> None:
    stored = PROGRAM.replace(f"%at, %sum, %inside) : ({P}, {F}, {M})", f"%at, %sum) : ({P}, {F})")
    assert GIVEN in stored and equal_programs(stored, stored.replace(GIVEN, BARE), "sm_90") == SAME_FORM
    for other in ("1.000000e+00", "-0.000000e+00"):
        told = stored.replace("dense<0.000000e+00>", f"dense<{other}>")
        assert equal_programs(told, told.replace(GIVEN, BARE), "sm_90", machine=True) == ""


WAITS = PROGRAM.replace('    "tt.store"', '    "ttg.barrier"() <{addrSpace = 1 : i32}> : () -> () loc(#loc)\n    "tt.store"')


@pytest.mark.parametrize(
    ("right", "edit", "reason"),
    [
        (PROGRAM, ('"arith.addf"(%v, %v)', '"arith.subf"(%v, %v)'), ""),
        (PROGRAM, ('"arith.muli"(%wide, %s)', '"arith.shli"(%wide, %s)'), ""),
        (WAITS, ('    "ttg.barrier"() <{addrSpace = 1 : i32}> : () -> () loc(#loc)\n', ""), ""),
        (PROGRAM, ('"arith.addf"(%v, %v)', '"arith.unknown"(%v, %v)'), ""),
        (PROGRAM.replace("dense<0.0", "dense<2.0"), ('"arith.addf"(%v, %v)', '"arith.mulf"(%v, %0)'), MACHINE),
    ],
)
def test_equal_machine_code_is_asked_of_the_compiler(right: str, edit: tuple[str, str], reason: str) -> None:
    right = right.replace(GIVEN, BARE)
    changed = right.replace(*edit)
    assert changed != right and equal_programs(right, changed, "sm_90", machine=True) == reason
    assert equal_programs(right, changed, "sm_90") == equal_programs(right, changed, "gfx942", machine=True) == ""


def test_code_of_other_memory_or_warps_is_other_code() -> None:
    assert same_machine_code(PROGRAM, PROGRAM.replace("kernel.py", "other.py"), "sm_90")
    assert not same_machine_code(PROGRAM, PROGRAM.replace("ttg.shared = 0", "ttg.shared = 64"), "sm_90")


WIDER = ("sizePerThread = [1]", "sizePerThread = [4]")
APART = PROGRAM.replace('%n: i32 loc("n"(#loc))', '%y: !tt.ptr<f32> loc("y"(#loc)), %n: i32 loc("n"(#loc))').replace(
    '    "tt.store"(%at,', f'    %to = "tt.splat"(%y) : (!tt.ptr<f32>) -> {P} loc(#loc)\n    "tt.store"(%to,'
)  # stores to another tensor than it loads from
VIEW = "!ttg.memdesc<32xf32, #shared, #smem>"
SWIZZLE = "#ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 4, order = [0]}>"
STAGED = (
    APART.replace("#loc = loc", f"#shared = {SWIZZLE}\n#loc = loc")
    .replace(
        '    "tt.store"',
        f'    %held = "ttg.local_alloc"(%sum) {{allocation.offset = 0 : i32}} : ({F}) -> {VIEW} loc(#loc)\n'
        f'    %again = "ttg.local_load"(%held) : ({VIEW}) -> {F} loc(#loc)\n    "tt.store"',
    )
    .replace("%to, %sum", "%to, %again")
)


def test_a_layout_of_registers_or_a_swizzle_decides_no_element() -> None:
    assert equal_programs(APART, APART.replace(*WIDER), "sm_90") == LAYOUT
    assert equal_programs(STAGED, STAGED.replace(*WIDER), "sm_90") == LAYOUT
    assert equal_programs(STAGED, STAGED.replace("maxPhase = 4", "maxPhase = 2"), "sm_90") == LAYOUT


@pytest.mark.parametrize(
    ("right", "edit"),
    [
        (APART.replace('"arith.mulf"(%v, %0)', '"tt.histogram"(%v, %0)'), WIDER),
        (PROGRAM, WIDER),  # loads what another thread may have stored
        (APART.replace('"tt.splat"(%y)', '"tt.int_to_ptr"(%y)'), WIDER),
        (STAGED, ("allocation.offset = 0", "allocation.offset = 16")),
        (STAGED.replace("ttg.local_load", "ttg.memdesc_reinterpret"), ("maxPhase = 4", "maxPhase = 2")),
        (STAGED.replace(SWIZZLE, "#ttg.nvmma_shared<{swizzlingByteWidth = 64}>"), ("Width = 64", "Width = 32")),
        (APART.replace("#ttg.blocked<{", "#ttg.nvidia_mma<{"), WIDER),
        (APART, ('"ttg.num-warps" = 4', '"ttg.num-warps" = 8')),
    ],
)
def test_a_layout_that_may_decide_something_is_another_program(right: str, edit: tuple[str, str]) -> None:
    assert edit[0] in right and equal_programs(right, right.replace(*edit), "sm_90") == ""


BARRIER = '    "ttg.barrier"() <{addrSpace = 1 : i32}> : () -> () loc(#loc)\n'
FENCED = STAGED.replace("    %again", f"{BARRIER}    %again")
MOVED = STAGED.replace('    "tt.store"', f'{BARRIER}    "tt.store"')


def test_a_barrier_of_the_compiler_stands_for_the_author_s() -> None:
    assert FENCED != STAGED != MOVED and prove_all_equal([(FENCED, MOVED)], "sm_90") == BARRIERS
    assert equal_programs(FENCED, MOVED, "sm_90") == ""  # an edit of what the compiler left


@pytest.mark.parametrize(
    "edit",
    [
        ('"tt.splat"(%y)', '"tt.splat"(%x)'),  # what a thread loads another one may have stored
        ('"arith.mulf"(%v, %0)', '"tt.atomic_rmw"(%v, %0)'),
        ('"arith.mulf"(%v, %0)', '"ttng.warp_group_dot"(%v, %0)'),
    ],
)
def test_a_barrier_that_orders_more_than_shared_memory_is_needed(edit: tuple[str, str]) -> None:
    assert edit[0] in FENCED and prove_all_equal([(FENCED.replace(*edit), MOVED.replace(*edit))], "sm_90") == ""
    assert prove_all_equal([(FENCED, MOVED.replace("%to, %again", "%to, %v"))], "sm_90") == ""


def test_a_barrier_may_be_left_valid_at_the_end() -> None:
    kind = "!ttg.memdesc<1xi64, #shared, #smem, mutable>"
    ends = f'    "ttng.inval_barrier"(%ring) : ({kind}) -> () loc(#loc)\n    "tt.return"'
    right = PROGRAM.replace(
        '    "tt.return"', f'    %ring = "ttg.local_alloc"() {{allocation.offset = 0 : i32}} : () -> {kind} loc(#loc)\n{ends}'
    )
    assert equal_programs(right, right.replace(ends, '    "tt.return"'), "sm_90") == UNUSED_BARRIER_MEMORY


def test_every_program_of_a_mutant_must_be_equal() -> None:
    same = PROGRAM, PROGRAM.replace(*EQUAL["operands commute"])
    other = PROGRAM, PROGRAM.replace(*OTHERWISE["another limit"])
    assert prove_all_equal([same, same], "sm_90") == SAME_FORM
    assert prove_all_equal([same, other], "sm_90") == "" == prove_all_equal([], "sm_90")


def edit(right: str, mutant: str, *, floats: bool = False) -> tuple[str, EditedProgram]:
    """An edit that changes no number of lines."""
    return right, EditedProgram(mutant, tuple(range(len(mutant.split("\n")))), floats)


BEGIN = '    %p = "tt.addptr"(%x, %start)'
TWICE = BEGIN, f'    %twice = "arith.addi"(%lanes, %lanes) {WRAPS} : ({B}, {B}) -> {B} loc(#loc)\n{BEGIN}'
FURTHER = '"tt.addptr"(%q, %lanes)', '"tt.addptr"(%q, %twice)'


def test_equal_numbers_on_a_small_domain_are_equivalent() -> None:
    whole = PROGRAM.replace(*TWICE)
    first = whole.replace('"arith.addi"(%n, %half)', '"arith.divsi"(%half, %half)')  # a limit of one: lane 0 alone
    assert equal_edits([edit(first, first.replace(*FURTHER))], "sm_90") == SMALL_NUMBERS
    assert equal_edits([edit(whole, whole.replace(*FURTHER))], "sm_90") == ""
    assert equal_edits([edit(first, first.replace(*FURTHER), floats=True)], "sm_90") == ""


def test_a_value_that_no_formula_makes_is_not_shown_equal() -> None:
    stored = PROGRAM.replace('"arith.addf"(%v, %v)', '"arith.addf"(%v, %unused)')
    assert equal_edits([edit(stored, stored.replace('"arith.mulf"(%v, %0)', '"arith.subf"(%v, %0)'))], "sm_90") == ""
    fewer = "\n".join(line for line in PROGRAM.split("\n") if '"tt.store"' not in line)
    assert equal_edits([edit(PROGRAM, fewer)], "sm_90") == ""


@pytest.mark.parametrize("name", OTHERWISE)
def test_a_small_domain_tells_what_is_something_else(name: str) -> None:
    changed = PROGRAM.replace(*OTHERWISE[name])
    assert name == "a store less" or equal_edits([edit(PROGRAM, changed)], "sm_90") == ""
