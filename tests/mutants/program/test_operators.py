"""Contract under test: operators change one operation of a tile program, name its source line, and keep the program's grammar."""

from __future__ import annotations

import pytest

from bitverdict.harness.emulator.frontend.program_verifier import verify_program
from bitverdict.harness.mutants.program.generate import apply_mutant, of_programs
from bitverdict.harness.mutants.program.lines import line_of
from bitverdict.harness.mutants.program.operators.table import offers
from bitverdict.harness.mutants.program.tile_program import TileProgram

B = "tensor<32xi32, #blocked>"
M = "tensor<32xi1, #blocked>"
F = "tensor<32xf32, #blocked>"
P = "tensor<32x!tt.ptr<f32>, #blocked>"
BARRIER = "!ttg.memdesc<1xi64, #shared, #smem, mutable>"
ALL = "operandSegmentSizes = array<i32: 1, 1, 1>"
PROGRAM = f"""// fences before lowering:{" "}
// written in: gluon
#blocked = #ttg.blocked<{{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}}>
#loc = loc("kernel.py":1:0)
#loc1 = loc(unknown)
#loc2 = loc("kernel.py":10:4)
#loc3 = loc("kernel.py":11:4)
#loc4 = loc("kernel.py":12:4)
#shared = #ttg.swizzled_shared<{{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}}>
#smem = #ttg.shared_memory
"builtin.module"() ({{
  "tt.func"() <{{function_type = (!tt.ptr<f32>, i32, i32) -> (), sym_name = "sum", sym_visibility = "public"}}> ({{
  ^bb0(%x: !tt.ptr<f32> loc("x"(#loc)), %stride_a: i32 loc("stride_a"(#loc)), %stride_b: i32 loc("stride_b"(#loc))):
    %0 = "arith.constant"() <{{value = 0 : i32}}> : () -> i32 loc(#loc1)
    %1 = "arith.constant"() <{{value = 8 : i32}}> : () -> i32 loc(#loc1)
    %2 = "arith.constant"() <{{value = dense<0.000000e+00> : {F}}}> : () -> {F} loc(#loc1)
    %row = "tt.get_program_id"() <{{axis = 0 : i32}}> : () -> i32 loc(#loc2)
    %start = "arith.muli"(%row, %stride_a) <{{overflowFlags = #arith.overflow<none>}}> : (i32, i32) -> i32 loc(#loc2)
    %lanes = "tt.make_range"() <{{end = 32 : i32, start = 0 : i32}}> : () -> {B} loc(#loc2)
    %limit = "tt.splat"(%stride_b) : (i32) -> {B} loc(#loc2)
    %inside = "arith.cmpi"(%lanes, %limit) <{{predicate = 2 : i64}}> : ({B}, {B}) -> {M} loc(#loc2)
    %begin = "tt.addptr"(%x, %start) : (!tt.ptr<f32>, i32) -> !tt.ptr<f32> loc(#loc2)
    %p = "tt.splat"(%begin) : (!tt.ptr<f32>) -> {P} loc(#loc2)
    %ring = "ttg.local_alloc"() {{allocation.offset = 0 : i32}} : () -> {BARRIER} loc(#loc2)
    "ttng.init_barrier"(%ring) <{{count = 1 : i32}}> : ({BARRIER}) -> () loc(#loc2)
    "cf.br"(%0, %2)[^bb1] : (i32, {F}) -> () loc(#loc3)
  ^bb1(%i: i32 loc("i"(#loc)), %sum: {F} loc("sum"(#loc))):  // 2 preds: ^bb0, ^bb2
    %more = "arith.cmpi"(%i, %1) <{{predicate = 2 : i64}}> : (i32, i32) -> i1 loc(#loc3)
    "cf.cond_br"(%more)[^bb2, ^bb3] <{{operandSegmentSizes = array<i32: 1, 0, 0>}}> : (i1) -> () loc(#loc3)
  ^bb2:  // pred: ^bb1
    %v = "tt.load"(%p, %inside, %2) <{{isVolatile = false, {ALL}}}> : ({P}, {M}, {F}) -> {F} loc(#loc3)
    %next = "arith.addf"(%sum, %v) <{{fastmath = #arith.fastmath<none>}}> : ({F}, {F}) -> {F} loc(#loc3)
    "ttng.barrier_expect"(%ring, %more) <{{size = 128 : i32}}> : ({BARRIER}, i1) -> () loc(#loc3)
    "ttng.wait_barrier"(%ring, %i, %more) <{{operandSegmentSizes = array<i32: 1, 1, 1, 0>}}> : ({BARRIER}, i32, i1) -> () loc(#loc3)
    %j = "arith.addi"(%i, %1) <{{overflowFlags = #arith.overflow<none>}}> : (i32, i32) -> i32 loc(#loc3)
    "cf.br"(%j, %next)[^bb1] : (i32, {F}) -> () loc(#loc3)
  ^bb3:  // pred: ^bb1
    "ttng.fence_async_shared"() <{{bCluster = false}}> : () -> () loc(#loc4)
    "ttng.async_tma_store_wait"() <{{pendings = 0 : i32}}> : () -> () loc(#loc4)
    "tt.store"(%p, %sum, %inside) : ({P}, {F}, {M}) -> () loc(#loc4)
    "tt.return"() : () -> () loc(#loc)
  }}) {{noinline = false}} : () -> () loc(#loc)
}}) {{"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.shared = 8 : i32, ttg.target = "cuda:90"}} : () -> () loc(#loc)"""

ROW = '    %row = "tt.get'
EXPECTED = {
    ("mask dropped", 11): "%v = tt.load %p {isVolatile = false}",
    ("mask inverted", 12): "tt.store %p, %sum, (%inside ^ true)",
    ("other value changed", 11): "%v = tt.load %p, %inside, 1.000000e+00 {isVolatile = false}",
    ("mask off by one", 10): "%inside = arith.cmpi %lanes, %limit {predicate = 3 : i64}",
    ("trip count off by one", 11): "%more = arith.cmpi %i, %1 {predicate = 3 : i64}",
    ("first turn left out", 11): "%i = %0 + 1",
    ("step off by one", 11): "%i = %j + 1",
    ("accumulator not updated", 11): "%sum = %sum",
    ("accumulator begun anew", 11): "%sum = %2",
    ("accumulator begins with one", 11): "%sum = 1",
    ("stride exchanged", 10): "%start = arith.muli %row, %stride_b",
    ("axis exchanged", 10): "%row = tt.get_program_id {axis = 1 : i32}",
    ("index off by one", 10): "%lanes = tt.make_range {end = 33 : i32, start = 1 : i32}",
    ("offset off by one", 10): "%begin = tt.addptr %x, (%start + 1)",
    ("offset dropped", 10): "%x alone",
    ("operand dropped", 11): "%sum alone",
    ("byte count changed", 11): "ttng.barrier_expect %ring, %more {size = 64 : i32}",
    ("predicate dropped", 11): "ttng.barrier_expect %ring, true {size = 128 : i32}",
    ("phase flipped", 11): "ttng.wait_barrier %ring, (%i ^ 1), %more",
    ("arrival count off by one", 10): "ttng.init_barrier %ring {count = 2 : i32}",
    ("fence dropped", 12): "(taken out)",
    ("wait count off by one", 12): "ttng.async_tma_store_wait {pendings = 1 : i32}",
    ("write dropped", 12): "(taken out)",
    ("constant changed", 11): "%0 = arith.constant {value = 1 : i32}",
}  # operator, source line -> what the first of its mutants there makes


def test_each_operator_makes_its_change_at_its_source_line() -> None:
    made = list(of_programs("sum", "sm_90", [PROGRAM, PROGRAM]))
    found: dict[tuple[str, int], str] = {}
    for mutant in made:
        found.setdefault((mutant.operator, mutant.line), mutant.after)
    assert {key: found.get(key) for key in EXPECTED} == EXPECTED
    assert {mutant.file for mutant in made} == {"kernel.py"}
    assert len({mutant.id for mutant in made}) == len(made)
    assert made == list(of_programs("sum", "sm_90", [PROGRAM]))


def test_each_mutant_is_another_program_of_the_same_grammar() -> None:
    texts = []
    for mutant in of_programs("sum", "sm_90", [PROGRAM]):
        change = apply_mutant(mutant, PROGRAM)
        assert change is not None, mutant.id
        verify_program(change.text, "sm_90")
        assert len(change.original_lines) == len(change.text.split("\n"))
        texts.append(change.text)
    assert PROGRAM not in texts and len(set(texts)) == len(texts) > 50
    with pytest.raises(Exception, match="before it is defined"):
        verify_program(PROGRAM.replace('"tt.splat"(%begin)', '"tt.splat"(%nothing)'), "sm_90")


def test_an_edit_is_made_only_where_a_program_has_its_place() -> None:
    mutant = next(each for each in of_programs("sum", "sm_90", [PROGRAM]) if each.operator == "fence dropped")
    other = "\n".join(line for line in PROGRAM.split("\n") if "fence_async" not in line)
    assert apply_mutant(mutant, other) is None
    more = PROGRAM.replace(ROW, f'    %n = "tt.get_num_programs"() <{{axis = 0 : i32}}> : () -> i32 loc(#loc2)\n{ROW}')
    moved = apply_mutant(mutant, more)
    assert moved is not None and "fence_async" not in moved.text


def test_a_line_is_written_as_it_was_read() -> None:
    for text in PROGRAM.split("\n"):
        if text.startswith("  ") and '"' in text and not text.lstrip().startswith(("^", "}")):
            assert line_of(text).text == text


def test_a_constant_that_nothing_uses_has_no_mutant() -> None:
    text = PROGRAM.replace(ROW, f'    %9 = "arith.constant"() <{{value = 5 : i32}}> : () -> i32 loc(#loc2)\n{ROW}')
    program = TileProgram(text)
    (site,) = (each for each in program.sites.values() if "%9" in each.op.results)
    assert list(offers(site)) == []


@pytest.mark.parametrize(
    ("layout", "element", "made"),
    [
        ("#ttg.amd_mfma<{version = 3}>", "f32", 1),
        ("#ttg.amd_mfma<{version = 3}>", "bf16", 0),
        ("#ttg.nvidia_mma<{v = 2}>", "f32", 0),
    ],
)
def test_only_amd_has_two_precisions_of_fp32_products(layout: str, element: str, made: int) -> None:
    of, to = f"tensor<16x16x{element}, #of>", "tensor<16x16xf32, #mma>"
    dot = '"tt.dot"(%x, %y, %z) <{inputPrecision = 0 : i32}>'
    text = f"""#loc = loc("kernel.py":1:0)
#mma = {layout}
#of = #ttg.dot_op<{{opIdx = 0, parent = #mma}}>
"builtin.module"() ({{
  "tt.func"() <{{function_type = () -> (), sym_name = "k"}}> ({{
  ^bb0(%x: {of} loc(#loc), %y: {of} loc(#loc), %z: {to} loc(#loc)):
    %d = {dot} : ({of}, {of}, {to}) -> {to} loc(#loc)
    "tt.return"() : () -> () loc(#loc)
  }}) : () -> () loc(#loc)
}}) : () -> () loc(#loc)
"""
    (site,) = (each for each in TileProgram(text).sites.values() if each.op.name == "tt.dot")
    assert [each.operator for each in offers(site)].count("precision of a product") == made
