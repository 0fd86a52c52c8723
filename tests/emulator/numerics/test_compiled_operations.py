"""Contract under test: what the compiler expands is executed as it expands it: libdevice by one mechanism, tables and slow paths
included. Words of a real sm_90 are compared by `benchmarks/libdevice.py`; here the values are held to their documented errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch

from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.emulator.frontend import assembly
from bitverdict.harness.emulator.frontend.compiled_operations import (
    Operation,
    compile_operation,
    compiled_ptx,
    operation_of,
    takes_product,
    with_constants,
)
from bitverdict.harness.emulator.ptx import meanings, opcodes
from bitverdict.harness.emulator.ptx.lanes import Program
from bitverdict.harness.emulator.ptx.text import parse_module
from bitverdict.harness.lab.hardware_words.function_words import edges
from bitverdict.reference.scalar_arithmetic import fp32
from bitverdict.reference.special_functions import sequences
from tests.faults import reference_modules as corpus
from tests.faults.mutants import Mutant, mutant_module
from tests.support import library_kernels as kernels

RNG = np.random.default_rng(15)
ORDINARY = np.concatenate([RNG.standard_normal(250) * 3, [1.0, 0.5, 2.0, 1e-3, 40.0]])
POSITIVE = np.abs(ORDINARY)
FAR = np.concatenate([ORDINARY, RNG.standard_normal(40) * 1e6, [3e38, 1e30, 105615.0]])  # beyond 105615 by the slow path
NORMAL_ERROR = {  # symbol: (operand types, result type, exact, greatest error in units in the last place, operands)
    "__nv_logf": ("f32", "f32", math.log, 1, POSITIVE), "__nv_log2f": ("f32", "f32", math.log2, 1, POSITIVE),
    "__nv_sinf": ("f32", "f32", math.sin, 2, FAR), "__nv_cosf": ("f32", "f32", math.cos, 2, FAR),
    "__nv_erff": ("f32", "f32", math.erf, 2, ORDINARY), "__nv_tanhf": ("f32", "f32", math.tanh, 2, ORDINARY),
    "__nv_expm1f": ("f32", "f32", math.expm1, 1, ORDINARY), "__nv_cbrtf": ("f32", "f32", math.cbrt, 1, ORDINARY),
    "__nv_sin": ("f64", "f64", math.sin, 2, FAR), "__nv_exp": ("f64", "f64", math.exp, 1, ORDINARY),
    "__nv_fmodf": ("f32 f32", "f32", math.fmod, 0, FAR), "__nv_powf": ("f32 f32", "f32", math.pow, 4, POSITIVE[:200]),
    "__nv_llrint": ("f64", "i64", round, 0, FAR[:200]), "__nv_ilogbf": ("f32", "i32", lambda x: math.frexp(x)[1] - 1, 0, FAR),
    "__nv_popc": ("i32", "i32", lambda x: (x & 0xFFFFFFFF).bit_count(), 0, FAR[:200] * 1000),
}  # fmt: skip
"""Errors: CUDA C++ Programming Guide, Mathematical Functions (standard functions, tables of maximum errors)."""
TYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64}


def library(symbol: str, operands: str, result: str) -> Operation:
    attributes = {"libname": '""', "libpath": '""', "pure": "true", "symbol": f'"{symbol}"'}
    return operation_of("tt.extern_elementwise", attributes, tuple(operands.split()), result)


def errors(found: np.ndarray, exact: list[float]) -> np.ndarray:
    """In units in the last place of the exact value; of integers the difference."""
    if found.dtype.kind == "i":
        return np.abs(found - np.array(exact))
    unit = np.spacing(np.abs(np.array(exact)).astype(found.dtype)).astype(np.float64)  # (n,)
    return np.abs(found.astype(np.float64) - np.array(exact)) / unit


def greatest_error(symbol: str) -> float:
    kinds, result, function, _, drawn = NORMAL_ERROR[symbol]
    given = [np.roll(drawn, 7 * i).astype(TYPES[kind]) for i, kind in enumerate(kinds.split())]  # (n,) each
    found = compile_operation(library(symbol, kinds, result), "sm_90", True)(*given)
    return float(errors(found, [function(*(each.item() for each in row)) for row in zip(*given, strict=True)]).max())


@pytest.mark.share(4)
def test_a_dozen_functions_of_libdevice_are_as_near_as_documented():
    found = {symbol: greatest_error(symbol) for symbol in NORMAL_ERROR}
    assert all(np.isfinite(error) for error in found.values())
    assert not {symbol: error for symbol, error in found.items() if error > NORMAL_ERROR[symbol][3] + 2**-9}


def relearn(monkeypatch: pytest.MonkeyPatch, kind: str, builders: list[Callable]) -> None:
    """Opcodes of `kind` are what `builders` say, for programs made from now on."""
    meanings.meaning("add.f32")  # fills the table
    meanings.meaning.cache_clear()
    compile_operation.cache_clear()
    monkeypatch.setitem(opcodes.BUILDERS, kind, builders)


@pytest.fixture
def forgotten():
    """What was learnt of opcodes is forgotten behind the test."""
    yield
    meanings.meaning.cache_clear()
    compile_operation.cache_clear()


def test_a_wrong_instruction_shows_in_the_error(monkeypatch, forgotten):
    def twice_rounded(op: opcodes.Opcode) -> opcodes.Meaning:
        op.modifiers.clear()

        def run(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
            left, right, addend = (each.view(np.float32) for each in (a, b, c))
            return fp32.add(fp32.multiply(left, right), addend).view(np.uint32)

        return opcodes.Meaning(("f32",) * 3, ("f32",), run)

    relearn(monkeypatch, "fma", [twice_rounded])
    assert greatest_error("__nv_sinf") > 1000  # its reduction to a quadrant needs the low bits of the product


def test_an_unknown_opcode_is_refused_by_its_name_before_it_runs(monkeypatch, forgotten):
    relearn(monkeypatch, "fma", [])
    with pytest.raises(opcodes.UnknownOpcode, match=r"fma\.rn\.ftz\.f32"):
        compile_operation(library("__nv_tanhf", "f32", "f32"), "sm_90", True)


def test_functions_inside_a_kernel_are_the_compiled_operations():
    values, powers = torch.rand(64) * 8, torch.arange(64, dtype=torch.int32) % 9 - 4
    found, whole = torch.zeros(3 * 64), torch.zeros(64, dtype=torch.int32)
    with emulated("sm_90"):
        kernels.functions[(1,)](values, powers, found, whole, BLOCK=64)
    log = compile_operation(operation_of("math.log", {}, ("f32",), "f32"), "sm_90", True)(values.numpy())
    power = compile_operation(library("__nv_powif", "f32 i32", "f32"), "sm_90", True)(values.numpy(), powers.numpy())
    sine = compile_operation(operation_of("math.sin", {}, ("f32",), "f32"), "sm_90", True)(values.numpy()[0])
    assert np.array_equal(found.numpy(), np.concatenate([log, power, sine * values.numpy()]))
    assert torch.equal(whole, values.floor().to(torch.int32)) and sine != 0


@cache
def logarithm(arch: str) -> tuple[np.ndarray, np.ndarray]:
    """fp32 words, and what the compiled logarithm gives for them."""
    words = np.concatenate([edges(), np.random.default_rng(7).integers(0, 1 << 32, 20_000, dtype=np.uint32)])
    found = compile_operation(operation_of("math.log", {}, ("f32",), "f32"), arch, True)(words.view(np.float32))
    return words, found.view(np.uint32)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_the_references_logarithm_is_the_compiled_one(arch: str) -> None:
    words, found = logarithm(arch)
    assert np.array_equal(sequences.log(words), found)


@pytest.mark.parametrize("mutant", corpus.LOGARITHM, ids=lambda mutant: mutant.name)
def test_another_logarithm_is_refused(mutant: Mutant) -> None:
    words, found = logarithm("sm_90")
    with mutant_module(mutant) as changed:
        assert not np.array_equal(changed.log(words), found)


def test_a_product_that_the_compiler_fuses_into_a_function_is_refused():
    values, found = torch.rand(32) + 1, torch.zeros(32)
    with emulated("sm_90"), pytest.raises(EmulatedFault, match="of a product, operand 0, that the compiler fuses"):
        kernels.fused_into[(1,)](values, found, BLOCK=32)
    with emulated("sm_90"):
        kernels.fused_into[(1,)](values, found, BLOCK=32, enable_fp_fusion=False)
    assert np.allclose(found.numpy(), np.arccosh((values * values).numpy()), rtol=1e-5)
    assert not takes_product(library("__nv_logf", "f32", "f32"), 0, "sm_90")


def test_a_launch_may_ask_libdevice_to_keep_subnormals():
    values, found = torch.tensor([2.0**-130] * 32), torch.zeros(2 * 32)
    for flushes, kept in ((True, 0.0), (False, 2.0**-130)):
        with emulated("sm_90"):
            kernels.saturated[(1,)](values, found, BLOCK=32, enable_reflect_ftz=flushes)
        assert (found[:32] == kept).all()


def test_an_approximation_of_a_constant_is_what_ptxas_computes_itself():
    values, found = torch.rand(64) * 3, torch.zeros(2 * 64)
    with emulated("sm_90"):
        kernels.of_constants[(1,)](values, found, BLOCK=64)
    power = with_constants(library("__nv_powf", "f32 f32", "f32"), {0: "1.0e+04"})
    folded = compile_operation(power, "sm_90", True)
    assert power.operands == ("f32",) and "rcp.approx.ftz.f32" in compiled_ptx(power, "sm_90", fuses=True)
    log = compile_operation(operation_of("math.log", {}, ("f32",), "f32"), "sm_90", True)(np.float32(2))
    assert np.array_equal(found.numpy(), np.concatenate([folded(values.numpy()), values.numpy() + log]))
    with emulated("sm_90"), pytest.raises(EmulatedFault, match=r"ex2\.approx\.ftz\.f32 of a constant, which ptxas computes itself"):
        kernels.of_a_constant_alone[(1,)](found, BLOCK=64)


FOLDING = """
.visible .entry fold(.param .f32 x, .param .u64 out) {
    .reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %rd<2>;
    ld.param.b32 %r1, [x]; ld.param.b64 %rd1, [out]; mov.b32 %r2, WORD;
    rcp.approx.ftz.f32 %r3, SOURCE;
    st.global.b32 [%rd1], %r3;
    ret;
}
"""


def test_only_what_ptxas_knows_is_rounded_correctly():
    word = 0x3F8005A9  # whose reciprocal the unit does not round correctly
    out = np.array([1 << 41], np.uint64)
    found = []
    for source in ("%r1", "%r2"):
        module = parse_module(FOLDING.replace("WORD", str(word)).replace("SOURCE", source))
        found.append(int(Program(module, module.entry).run_kernel([np.array([word], np.uint32)], out)[0]))
    correct = int((np.float32(1) / np.array([word], np.uint32).view(np.float32)).view(np.uint32)[0])
    assert found[1] == correct != found[0]
    with pytest.raises(opcodes.UnknownOpcode, match=r"sqrt\.approx\.ftz\.f32 of a constant"):
        module = parse_module(FOLDING.replace("rcp", "sqrt").replace("WORD", str(word)).replace("SOURCE", "%r2"))
        Program(module, module.entry)


def test_ptx_is_compiled_once_and_found_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    operation = library("__nv_popc", "i32", "i32")
    first = compiled_ptx(operation, "sm_90", fuses=True)
    monkeypatch.setattr(assembly, "ptx", lambda *given, **named: pytest.fail("compiled again"))
    assert compiled_ptx(operation, "sm_90", fuses=True) == first and "popc.b32" in first
    with pytest.raises(BaseException, match="compiled again"):
        compiled_ptx(operation, "sm_80", fuses=True)


BRANCHES = """
.visible .entry loop(.param .u32 n, .param .u64 out) {
    .reg .pred %p<3>; .reg .b32 %r<6>; .reg .b64 %rd<2>;
    ld.param.b32 %r1, [n]; ld.param.b64 %rd1, [out];
    mov.b32 %r2, 0; mov.b32 %r3, 1;
$again:
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra $done;
    add.u32 %r2, %r2, 1;
    and.b32 %r4, %r2, 1;
    setp.eq.b32 %p2, %r4, 0;
    @!%p2 bra $odd;
    mul.lo.u32 %r3, %r3, 3;
    bra.uni $again;
$odd:
    add.u32 %r3, %r3, %r2;
    @%p2 add.u32 %r3, %r3, 1000;
    bra.uni $again;
$done:
    st.global.b32 [%rd1], %r3;
    ret;
}
"""


def test_lanes_that_part_in_a_loop_each_go_their_own_way():
    def alone(n: int) -> int:
        found = 1
        for i in range(1, n + 1):
            found = found * 3 if i % 2 == 0 else found + i
        return found % 2**32

    module = parse_module(BRANCHES)
    counts = RNG.integers(0, 30, 500).astype(np.uint32)  # (500,)
    found = Program(module, module.entry).run_kernel([counts], np.array([1 << 41], np.uint64))
    assert found.tolist() == [alone(int(n)) for n in counts]
