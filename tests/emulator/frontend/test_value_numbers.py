"""Contract under test: values of LLVM's dialect and of the PTX have one number where they compute the same, and no others."""

import pytest

from bitverdict.harness.emulator.frontend.fold_code import FoldCode
from bitverdict.harness.emulator.frontend.fold_dialect import FoldDialect
from bitverdict.harness.emulator.frontend.value_numbers import of_code, of_dialect


def dialect_numbers(lines: list[str], names: list[str], exact: bool = False) -> list[int]:
    """Of the values `names`; each line of the dialect has a column of its own."""
    values = of_dialect(FoldDialect("\n".join(f'{line} loc("tile program":9:{n})' for n, line in enumerate(lines, 1))), exact)
    values.number([(name, ()) for name in names])
    return [values.numbers[name, ()] for name in names]


def code_numbers(lines: list[str], names: list[str]) -> list[int]:
    """Of the registers `names`."""
    text = "".join(f"\t.loc\t1 9 {n}\n\t{line};\n" for n, line in enumerate(lines, 1))
    values = of_code(FoldCode.from_ptx(text, set()))
    values.number([(name, None, None) for name in names])
    return [values.numbers[name, None, None] for name in names]


def test_a_circle_without_a_beginning_is_read_as_nothing():
    """No program has one. Where it had the number 0, such a value of the PTX would be any other of the dialect, and zero."""
    blocks = ["^bb1(%1: f32):", "llvm.br ^bb2(%1 : f32)", "^bb2(%2: f32):", "llvm.br ^bb1(%2 : f32)"]
    values = of_dialect(FoldDialect("\n".join(blocks)))
    values.number([("%1", ())])
    circles = [values.numbers["%1", ()], *code_numbers(["mov.b32 %r1, %r2", "mov.b32 %r2, %r1"], ["%r1"])]
    circles += code_numbers(["mov.b32 %r3, %r4", "mov.b32 %r4, %r3"], ["%r3"])
    assert len({0, *circles}) == 4


LOADED = [
    '%1 = llvm.inline_asm "ld.global.b32" %0 : (!llvm.ptr) -> f32',
    '%2 = llvm.inline_asm "ld.global.b32" %0 : (!llvm.ptr) -> f32',
    '%3 = llvm.fcmp "ogt" %1, %2 : f32',
    '%4 = llvm.fcmp "ogt" %2, %1 : f32',
]
PAIRS = {  # two values that PTX does not tell apart, and the first again
    "a rounding": [
        "%5 = llvm.fmul %1, %2 : f32", "%9 = llvm.fptrunc %1 : f32 to bf16", "%8 = llvm.fpext %9 : bf16 to f32",
        "%6 = llvm.fmul %8, %2 : f32", "%7 = llvm.fmul %2, %1 : f32",
    ],
    "a function": [
        '%5 = llvm.inline_asm "ex2.approx.f32 $0, $1;" %1 : (f32) -> f32',
        '%6 = llvm.inline_asm "ex2.approx.ftz.f32 $0, $1;" %1 : (f32) -> f32',
        '%7 = llvm.inline_asm "ex2.approx.f32 $0, $1;" %1 : (f32) -> f32',
    ],
    "a format": ["%5 = llvm.fadd %1, %2 : f32", "%6 = llvm.fadd %1, %2 : f16", "%7 = llvm.fadd %2, %1 : f32"],
    "a condition": [f"%{name} = llvm.select %{condition}, %1, %2 : i1, f32" for name, condition in ((5, 3), (6, 4), (7, 3))],
    "an integer": [
        "%8 = llvm.fptosi %1 : f32 to i32", "%9 = llvm.fptosi %2 : f32 to i32", "%5 = llvm.sitofp %8 : i32 to f32",
        "%6 = llvm.sitofp %9 : i32 to f32", "%7 = llvm.sitofp %8 : i32 to f32",
    ],
}  # fmt: skip


@pytest.mark.parametrize("difference", PAIRS)
def test_values_that_ptx_does_not_tell_apart_have_exact_numbers(difference):
    lines, names = [*LOADED, *PAIRS[difference]], ["%5", "%6", "%7"]
    first, second, again = dialect_numbers(lines, names)
    assert first == second == again
    first, second, again = dialect_numbers(lines, names, exact=True)
    assert first == again != second


def test_a_branch_a_load_and_a_result_of_its_own_have_exact_numbers():
    """Two branches that choose between the same values, two rounds of one address, two results of one assembly."""
    lines = [
        *LOADED,
        "llvm.cond_br %3, ^bb1(%1 : f32), ^bb1(%2 : f32)", "^bb1(%5: f32):",
        "llvm.cond_br %4, ^bb2(%1 : f32), ^bb2(%2 : f32)", "^bb2(%6: f32):",
        "%7 = llvm.mlir.addressof @global_smem : !llvm.ptr<3>", "%8 = llvm.load %7 : !llvm.ptr<3> -> f32",
        "%9 = llvm.load %7 : !llvm.ptr<3> -> f32",
        '%10 = llvm.inline_asm "mov.b64 {$0, $1}, $2;" %1 : (f32) -> !llvm.struct<(f32, f32)>',
        "%11 = llvm.extractvalue %10[0] : !llvm.struct<(f32, f32)>",
        "%12 = llvm.extractvalue %10[1] : !llvm.struct<(f32, f32)>",
    ]  # fmt: skip
    names = ["%5", "%6", "%8", "%9", "%11", "%12"]
    assert len(set(dialect_numbers(lines, names))) == 3
    assert len(set(dialect_numbers(lines, names, exact=True))) == 6


def test_an_order_of_products_and_sums_is_another_value():
    lines = [
        *LOADED[:2], "%3 = llvm.fneg %1 : f32", "%4 = llvm.fmul %1, %2 : f32", "%5 = llvm.fmul %4, %2 : f32",
        "%6 = llvm.fmul %2, %2 : f32", "%7 = llvm.fmul %1, %6 : f32", "%8 = llvm.fmul %2, %3 : f32", "%9 = llvm.fmul %8, %2 : f32",
        "%10 = llvm.fneg %9 : f32", "%11 = llvm.fadd %4, %1 : f32", "%12 = llvm.fsub %11, %1 : f32",
    ]  # fmt: skip
    product, other, minus, first, back = dialect_numbers(lines, ["%5", "%7", "%10", "%4", "%12"])
    assert product == minus != other and first != back


def test_conversions_of_the_ptx_are_what_they_do():
    """Of two floats that one instruction rounds to a pair the last is the low half; to round to an integer is a function."""
    lines = [
        "ld.global.v2.b32 {%r1, %r2}, [%rd1]", "cvt.rn.bf16x2.f32 %r3, %r2, %r1", "mov.b32 {%rs1, %rs2}, %r3",
        "cvt.rmi.ftz.f32.f32 %r4, %r1", "cvt.rna.tf32.f32 %r5, %r1", "cvt.rn.f16.f32 %rs3, %r1", "cvt.rn.f32.s32 %r6, %r1",
    ]  # fmt: skip
    low, high, *others = code_numbers(lines, ["%r1", "%r2", "%rs1", "%rs2", "%rs3", "%r4", "%r5", "%r6"])
    assert others[:3] == [low, high, low] and low != high
    assert not {low, high} & {*others[3:]}


def test_a_pair_of_64_bits_has_the_halves_it_was_made_of():
    """Joined by integers, as LLVM does with Triton 3.6, and then without signs. What is moved by other than 32 bits is no half."""
    lines = ["ld.global.v2.b32 {%r1, %r2}, [%rd1]", "and.b32 %r3, %r2, 2147483647"]
    lines += ["cvt.u64.u32 %rd2, %r1", "cvt.u64.u32 %rd3, %r2"]
    for number, upper in enumerate(("shl.b64 %rd4, %rd3, 32", "shl.b64 %rd5, %rd3, 31", "cvt.u64.u32 %rd6, %r2"), 4):
        lines += [upper, f"or.b64 %rd1{number}, %rd{number}, %rd2", f"mov.b64 {{%r1{number}, %r2{number}}}, %rd1{number}"]
    lines += ["and.b64 %rd17, %rd14, 9223372034707292159", "mov.b64 {%r17, %r27}, %rd17"]
    names = ["%r1", "%r2", "%r3", "%r14", "%r24", "%r27", "%r17", "%r15", "%r25", "%r16", "%r26"]
    low, high, positive, lower, upper, without_sign, *others = code_numbers(lines, names)
    assert (lower, upper, without_sign) == (low, high, positive) and not {low, high, positive} & {*others}


def test_weights_that_llvm_adds_up_are_the_constants_it_writes():
    """A chain of combinations adds one to one, and again; a tree gives powers of two alone. No other sum is taken for one."""
    one, *sums = ["%1 = llvm.mlir.constant(1.0 : f32) : f32", *(f"%{n + 1} = llvm.fadd %{n}, %1 : f32" for n in range(1, 5))]
    loaded = LOADED[0].replace("%1", "%9")
    (of_weights, of_loads) = dialect_numbers([one, *sums, loaded, "%10 = llvm.fadd %9, %1 : f32"], ["%5", "%10"])
    written, other = code_numbers(["mov.b32 %r1, 0f40A00000", "mov.b32 %r2, 0f40800000"], ["%r1", "%r2"])
    assert of_weights == written != other and of_loads not in (written, other)


def test_multiply_adds_of_bf16_are_the_sums_that_they_stand_for():
    """sm_80 has no other instruction: times one it is a sum, and on -0 a product."""
    constants = ["ld.global.v2.b32 {%r1, %r2}, [%rd1]", "mov.b32 %r8, 1065369472", "mov.b32 %r9, -2147450880"]
    sums = ["fma.rn.bf16x2 %r3, %r1, %r8, %r2", "add.rn.bf16x2 %r4, %r2, %r1"]
    products = ["fma.rn.bf16x2 %r5, %r1, %r2, %r9", "mul.rn.bf16x2 %r6, %r2, %r1", "fma.rn.bf16x2 %r7, %r1, %r2, %r8"]
    first, second, third, fourth, other = code_numbers([*constants, *sums, *products], ["%r3", "%r4", "%r5", "%r6", "%r7"])
    assert first == second != third == fourth != other


def test_registers_of_a_large_tile_are_read_in_one_walk_of_their_struct():
    count = 200
    struct = f"!llvm.struct<({', '.join(['f32'] * count)})>"
    lines = [f"%x = llvm.mlir.constant(3.0 : f32) : f32\n%s0 = llvm.mlir.undef : {struct}"]
    lines += [f"%s{n + 1} = llvm.insertvalue %x, %s{n}[{n}] : {struct}" for n in range(count)]
    lines += [f"%e{n} = llvm.extractvalue %s{count}[{n}] : {struct}" for n in range(count)]
    text = "\n".join(lines).replace("\n%", ' loc("tile program":9:1)\n%') + ' loc("tile program":9:1)'
    values = of_dialect(FoldDialect(text))
    values.number((f"%e{n}", ()) for n in range(count))
    assert {values.numbers[f"%e{n}", ()] for n in range(count)} == {3}
    assert len(values.steps) < 4 * count  # and not as many as pairs of registers
