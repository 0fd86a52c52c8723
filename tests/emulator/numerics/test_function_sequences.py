"""Contract under test: the reference's sequences are those that Triton's ptxas writes, for sm_80, sm_90 and sm_100.

The machine code of one-operation kernels is disassembled and executed on words; it must give the reference's, and run the
operations that the reference says. What the special-function unit computes is not in question here: hardware words decide that.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from bitverdict.harness.lab.hardware_words.function_words import edges
from bitverdict.reference.special_functions import constant_division, sequences
from bitverdict.reference.special_functions.instructions import INSTRUCTIONS, Instruction
from tests.faults import reference_modules as corpus
from tests.faults.mutants import Mutant, mutant_module
from tests.support import special_kernels
from tests.support.machine_words import Lanes, assembled, listing, of_kernel

CAPABILITIES = (80, 90, 100)
ENTRY = """
.visible .entry {name}(.param .u64 words)
{{
    .reg .b64 %at; .reg .{kind} %a, %b, %r;
    ld.param.u64 %at, [words];
    ld.global.{kind} %a, [%at];
    ld.global.{kind} %b, [%at + 8];
    {instruction} %r, {given};
    st.global.{kind} [%at + 16], %r;
    ret;
}}
"""
FROM_SM_90 = ("ex2.approx.ftz.bf16", "ex2.approx.ftz.bf16x2", "tanh.approx.bf16", "tanh.approx.bf16x2")  # PTX ISA, ex2 and tanh
UNITS = {  # the operations of each, in order; sm_80, sm_90 and sm_100 alike
    "ex2.approx.ftz.f32": ["MUFU.EX2"], "lg2.approx.ftz.f32": ["MUFU.LG2"], "rcp.approx.ftz.f32": ["MUFU.RCP"],
    "rsqrt.approx.ftz.f32": ["MUFU.RSQ"], "sqrt.approx.ftz.f32": ["MUFU.SQRT"], "tanh.approx.f32": ["MUFU.TANH"],
    "sin.approx.f32": ["FMUL.RZ", "MUFU.SIN"], "cos.approx.ftz.f32": ["FMUL.RZ", "MUFU.COS"],
    "rcp.approx.ftz.f64": ["MUFU.RCP64H"], "rsqrt.approx.ftz.f64": ["MUFU.RSQ64H"],
    "div.approx.ftz.f32": ["MUFU.RCP", "FMUL.FTZ"], "ex2.approx.f32": ["FSETP.GEU.AND", "FMUL", "MUFU.EX2", "FMUL"],
    "div.full.ftz.f32": ["FSETP.GT.FTZ.AND", "FMUL.FTZ", "FMUL.FTZ", "MUFU.RCP", "FMUL.FTZ"],
    "ex2.approx.f16": ["MUFU.EX2.F16"], "tanh.approx.f16x2": ["MUFU.TANH.F16", "MUFU.TANH.F16"],
}  # fmt: skip


def kind(instruction: Instruction) -> str:
    return {np.uint16: "b16", np.uint32: "b32", np.uint64: "b64"}[instruction.dtype]


@cache
def machine_code(capability: int) -> dict[str, list[str]]:
    """By PTX name: the machine code of a kernel of that instruction alone."""
    known = {name: each for name, each in INSTRUCTIONS.items() if capability >= 90 or name not in FROM_SM_90}
    entries = [
        ENTRY.format(name=name.replace(".", "_"), kind=kind(each), instruction=name, given="%a, %b" if each.operands == 2 else "%a")
        for name, each in known.items()
    ]
    text = f".version 8.6\n.target sm_{capability}\n.address_size 64\n" + "".join(entries)
    found = listing(assembled(text, capability))
    return {name: found[name.replace(".", "_")] for name in known}


def words(instruction: Instruction) -> list[list[np.ndarray]]:
    """Batches of operand words that take one branch each: every kind of number, and every pair of the divisions' edges."""
    if instruction.operands == 2:
        return [[grid.reshape(-1) for grid in np.meshgrid(edges(), edges(), indexing="ij")]]
    if instruction.dtype is np.uint16:
        return [[np.arange(1 << 16, dtype=np.uint16)]]
    drawn = np.random.default_rng(16).integers(0, 1 << 32, 20_000, dtype=np.uint32)
    if instruction.dtype is np.uint32:
        return [[np.concatenate([edges(), drawn])]]
    wide = edges().astype(np.uint64) << np.uint64(32) | edges()[::-1]  # high words of every kind
    wide = np.append(wide, np.array([1, 1 << 40, 1 << 63], np.uint64))
    wide = np.append(wide, drawn.astype(np.uint64) << np.uint64(32) | drawn[::-1])
    values = wide.view(np.float64)
    size = np.abs(values)
    kinds = np.select([np.isnan(values), size == 0, values < 0, np.isinf(values), size < 2.0**-1022], [1, 2, 3, 4, 5], 0)
    return [[wide[kinds == each]] for each in range(6) if (kinds == each).any()]


def executed(lines: list[str], instruction: Instruction, operands: list[np.ndarray]) -> tuple[np.ndarray, list[str]]:
    """Result words, and the operations that ran."""
    given: dict[int, np.ndarray] = {}
    for number, operand in enumerate(operands):
        given[8 * number] = (operand & np.array(0xFFFFFFFF, operand.dtype)).astype(np.uint32) if operand.itemsize == 8 else (
            operand.astype(np.uint32))  # fmt: skip
        if operand.itemsize == 8:
            given[8 * number + 4] = (operand >> np.uint64(32)).astype(np.uint32)
    lanes = Lanes(given).run(lines)
    if instruction.dtype is np.uint64:
        return lanes.stored[16] | lanes.stored[20].astype(np.uint64) << np.uint64(32), lanes.executed
    return lanes.stored[16].astype(instruction.dtype), lanes.executed


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_machine_code_of_each_instruction_gives_the_reference_s_words(capability: int) -> None:
    code = machine_code(capability)
    assert len(code) == len(INSTRUCTIONS) - (len(FROM_SM_90) if capability < 90 else 0)
    for name, lines in code.items():
        instruction = INSTRUCTIONS[name]
        for operands in words(instruction):
            found, ran = executed(lines, instruction, operands)
            assert (found == instruction(*operands)).all(), name
            if name in UNITS:
                assert ran == UNITS[name]
    assert UNITS.keys() <= INSTRUCTIONS.keys()


@pytest.mark.parametrize("mutant", corpus.MACHINE_CODE, ids=lambda mutant: mutant.name)
def test_machine_code_refuses_another_sequence(mutant: Mutant) -> None:
    name = mutant.name
    with mutant_module(mutant) as changed:
        other: Instruction = changed.INSTRUCTIONS[name]
        batches = words(INSTRUCTIONS[name])
        found = [executed(machine_code(90)[name], INSTRUCTIONS[name], operands)[0] != other(*operands) for operands in batches]
    assert any(differs.any() for differs in found)


def rows() -> np.ndarray:
    """fp32 words of rows of 32: of ordinary size, far apart, all equal; [1000, 32]."""
    rng = np.random.default_rng(17)
    values = rng.standard_normal((1000, 32)) * 10.0 ** rng.integers(-3, 3, (1000, 1))
    values[0] = 1.5
    return values.astype(np.float32).view(np.uint32)


def butterfly(powers: np.ndarray) -> np.ndarray:
    """Sum of 32 lanes as a warp exchanges them: [..., 32] float32 to [..., 1]."""
    for distance in (16, 8, 4, 2, 1):
        powers = powers + powers[..., np.arange(32) ^ distance]
    return powers[..., :1]


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.share(4)
def test_triton_s_own_functions_are_these_sequences(capability: int) -> None:
    drawn = np.concatenate([edges(), np.random.default_rng(18).integers(0, 1 << 32, 32_000, dtype=np.uint32)])
    for kernel, function in ((special_kernels.exp, sequences.exp), (special_kernels.exp2, sequences.exp2),
                             (special_kernels.sigmoid, sequences.sigmoid)):  # fmt: skip
        lanes = Lanes({0: drawn}).run(of_kernel(kernel, capability))
        assert (lanes.stored[0] == function(drawn)).all(), function.__name__
    lanes = Lanes({0: rows().reshape(-1)}).run(of_kernel(special_kernels.softmax, capability))
    assert (lanes.stored[0].reshape(-1, 32) == sequences.softmax(rows(), butterfly)).all()
    a, b = (grid.reshape(-1) for grid in np.meshgrid(edges(), edges(), indexing="ij"))  # (65536,) each
    lanes = Lanes({0: a, 4: b}).run(of_kernel(special_kernels.divide, capability))
    assert (lanes.stored[0] == sequences.divide(a, b)).all()


@cache
def of_constants(capability: int) -> tuple[np.ndarray, dict[str, list[str]]]:
    """Divisors, and the machine code that divides the first word of its argument (or pi) by each; result i is stored at
    4 (i + 1)."""
    drawn = np.random.default_rng(19).integers(0, 1 << 23, 60, dtype=np.uint32) | np.uint32(0x3F800000)
    divisors = np.concatenate([edges()[::3], drawn])
    divisors = divisors[~np.isnan(divisors.view(np.float32)) & (divisors != 0x3F800000)]  # a division by 1 is a move
    entries = ""
    for name in ("div.full.f32", "div.approx.f32"):
        for given in ("%a", "0f40490FDB"):
            lines = "".join(
                f"{name} %r, {given}, 0f{word:08X}; st.global.b32 [%at + {4 * i + 4}], %r;\n"
                for i, word in enumerate(divisors.tolist())
            )
            title = f"{name}_{given[1:]}".replace(".", "_")
            entries += f""".visible .entry {title}(.param .u64 words) {{ .reg .b64 %at; .reg .b32 %a, %r;
                ld.param.u64 %at, [words]; ld.global.b32 %a, [%at]; {lines} ret; }}\n"""
    return divisors, listing(assembled(f".version 8.6\n.target sm_{capability}\n.address_size 64\n{entries}", capability))


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_ptxas_rounds_the_reciprocal_of_a_constant_correctly(capability: int) -> None:
    divisors, code = of_constants(capability)
    differs = {}
    for name, function in (("div_full_f32", constant_division.divide), ("div_approx_f32", constant_division.divide_approximately)):
        for given, dividends in (("a", edges()), ("f40490FDB", np.array([0x40490FDB], np.uint32))):
            lines = code[f"{name}_{given}"]
            assert not any("MUFU" in line for line in lines)
            stored = Lanes({0: dividends}).run(lines).stored
            found = np.stack([np.broadcast_to(stored[4 * i + 4], dividends.shape) for i in range(len(divisors))])
            expected = function(dividends[None, :], divisors[:, None])
            differs[name, given] = int((found != expected).sum())
            assert not name.startswith("div_full") or (expected != sequences.divide(dividends[None, :], divisors[:, None])).any()
    assert set(differs.values()) == {0}, differs


@pytest.mark.parametrize("mutant", corpus.FOLDED, ids=lambda mutant: mutant.name)
def test_another_reciprocal_of_a_constant_is_refused(mutant: Mutant) -> None:
    divisors, code = of_constants(90)
    same = []
    with mutant_module(mutant) as changed:
        for name, function in (("div_full_f32_a", changed.divide), ("div_approx_f32_a", changed.divide_approximately)):
            stored = Lanes({0: edges()}).run(code[name]).stored
            found = np.stack([stored[4 * i + 4] for i in range(len(divisors))])
            same.append((function(edges()[None, :], divisors[:, None]) == found).all())
    assert not all(same)


@pytest.mark.parametrize("mutant", corpus.TRITON_FUNCTIONS, ids=lambda mutant: mutant.name)
def test_another_sequence_of_triton_s_functions_is_refused(mutant: Mutant) -> None:
    with mutant_module(mutant) as changed, np.errstate(all="ignore"):
        drawn, found = edges(), []
        for kernel, function in ((special_kernels.exp, changed.exp), (special_kernels.sigmoid, changed.sigmoid)):
            found.append((Lanes({0: drawn}).run(of_kernel(kernel, 90)).stored[0] == function(drawn)).all())
        softmax = Lanes({0: rows().reshape(-1)}).run(of_kernel(special_kernels.softmax, 90)).stored[0]
        found.append((softmax.reshape(-1, 32) == changed.softmax(rows(), butterfly)).all())
    assert not all(found)


def test_an_operation_of_machine_code_that_is_not_known_is_named() -> None:
    with pytest.raises(KeyError, match="R0"):
        Lanes({0: np.zeros(1, np.uint32)}).run(["/*0000*/   XMAD R0, R1, R2 ;"])
