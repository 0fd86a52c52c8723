"""Contract under test: inline assembly that computes is executed by its PTX, in the registers that Triton's lowering gives it; what
is not known, and what leaves the registers, is refused by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.backends.nvidia.compiler import sm_arch_from_capability

from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.emulator import device as emulated_device
from bitverdict.harness.emulator.frontend.assembly import machine_code
from bitverdict.harness.emulator.frontend.assembly_sums import ROUNDED_PRODUCT, assembly_sums
from bitverdict.harness.emulator.frontend.compiled_operations import OPEN_PRODUCT
from bitverdict.harness.emulator.frontend.contraction import Contraction
from bitverdict.harness.emulator.frontend.inline_assembly import Assembly
from bitverdict.harness.emulator.ptx.text import NotPtx
from bitverdict.reference.special_functions.instructions import INSTRUCTIONS
from tests.support import library_kernels as kernels

GENERATOR = torch.Generator().manual_seed(3)


def test_a_statement_of_several_instructions_gives_several_results():
    values = torch.randn(512, generator=GENERATOR) * 20
    powers, exponents = torch.zeros(512), torch.zeros(512, dtype=torch.int32)
    octets = torch.arange(512).to(torch.int8)
    before = octets.clone()
    with emulated("sm_90"):
        kernels.assembled[(1,)](values, powers, exponents, octets, BLOCK=512)
    words = INSTRUCTIONS["ex2.approx.ftz.f32"](values.numpy().view(np.uint32))
    assert np.array_equal(powers.numpy().view(np.uint32), words)
    exponent = (values.numpy().view(np.uint32) >> 23 & 255).astype(np.int32)
    assert np.array_equal(exponents.numpy(), np.where(values.numpy() < 0, -exponent, exponent))
    assert torch.equal(octets.reshape(-1, 4), before.reshape(-1, 4).flip(1))  # four registers of a thread, the first one lowest


@pytest.mark.parametrize("size", [256, 64], ids=["pairs of a thread", "threads that hold one element"])
def test_packed_halves_each_round_once(size):
    left, right = (torch.randn(size, generator=GENERATOR).half() for _ in range(2))
    found = torch.zeros(size).half()
    with emulated("sm_90"):
        kernels.halves[(1,)](left, right, found, BLOCK=size)
    assert torch.equal(found, (left.double() * right.double() + left.double()).half())


REFUSED = {
    "vadd.s32.s32.s32 $0, $1, $1, $1;": r"vadd\.s32\.s32\.s32 is a PTX opcode that is not executed here",
    "mov.u32 $0, %laneid;": "'%laneid' is neither a register that is declared nor a constant",
    "ld.global.f32 $0, [$1];": r"ld\.global\.f32 is not executed in inline assembly that computes",
    "exit;": "exit is not executed in inline assembly that computes",
    "add.rn.f32 $0, $0, $1;": "read before it is written",
    "neg.f32 $2, $1;": r"\$2: the constraints name 2 operands",
    "bar.sync 0; neg.f32 $0, $1;": "beside fences and barriers only a move of a whole register is",
    "{ .reg .f32 t; ex2.approx.f32 t, $1; mov.f32 $0, t; }": "ends in a product that ptxas may fuse with a sum behind it",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_executed_is_refused_by_name(text):
    found = torch.full((32,), 5.0)
    with emulated("sm_90"), pytest.raises(EmulatedFault, match=REFUSED[text]) as raised:
        kernels.asked[(1,)](torch.ones(32), found, text, BLOCK=32)
    assert raised.value.outcome == "not modelled" and (found == 5).all()


def test_products_whose_rounding_is_said_are_executed_beside_sums():
    values, found = torch.randn(32, generator=GENERATOR), torch.zeros(32)
    with emulated("sm_90"):
        kernels.asked[(1,)](values, found, "{ .reg .f32 t; mul.rn.f32 t, $1, $1; add.rn.f32 $0, t, $1; }", BLOCK=32)
    assert torch.equal(found, (values * values + values) + 1)
    with emulated("sm_90"):
        kernels.asked[(1,)](values, found, "mul.f32 $0, $1, $1;", BLOCK=32, enable_fp_fusion=False)
    assert torch.equal(found, values * values + 1)


@pytest.mark.parametrize("mask", ["2147483647", "0x7fffffff", "0x7FFFFFFFU", "017777777777", f"0b{'1' * 31}", f"0B{'1' * 31}U"])
def test_a_whole_number_of_any_base_is_a_constant(mask):
    values, found = torch.randn(32, generator=GENERATOR), torch.zeros(32)
    with emulated("sm_90"):
        kernels.asked[(1,)](values, found, f"and.b32 $0, $1, {mask};", BLOCK=32)
    assert torch.equal(found, values.abs() + 1)


PTX = """
.version 8.6
.target {target}
.address_size 64
.visible .entry f(.param .b64 p) {{
    .reg .b64 %rd1; .reg .f32 %x, %y, %z;
    ld.param.b64 %rd1, [p];
    ld.volatile.global.f32 %x, [%rd1];
{statements}
    ret;
}}
.file 1 "kernel.py"
"""
FUNCTIONS = [f"{name}.approx{flush}.f32" for name in ("ex2", "rcp", "rsqrt", "sqrt", "div") for flush in (".ftz", "")]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_ptxas_multiplies_behind_functions_that_end_in_a_product(arch):
    statements = [
        f".loc 1 {line} 0\n ld.volatile.global.f32 %x, [%rd1]; ld.volatile.global.f32 %y, [%rd1+4];"
        f"{opcode} %z, {'%x, %y' if opcode.startswith('div') else '%x'}; add.f32 %z, %z, %y; st.volatile.global.f32 [%rd1], %z;"
        for line, opcode in enumerate(FUNCTIONS, 1)
    ]
    ptx = PTX.format(target=sm_arch_from_capability(int(arch[3:])), statements="\n".join(statements))
    code = machine_code(ptx, int(arch[3:]))
    for place, opcode in enumerate(FUNCTIONS):
        line = code[place]
        behind = line[next(number for number, instruction in enumerate(line) if "MUFU" in instruction) :]
        assert bool(OPEN_PRODUCT.match(opcode)) == any("FMUL" in each or "FFMA" in each for each in behind), (opcode, line)


def test_a_function_that_ends_in_no_product_stands_before_a_sum():
    values, found = torch.randn(32, generator=GENERATOR), torch.zeros(32)
    with emulated("sm_90"):
        kernels.asked[(1,)](values, found, "{ .reg .f32 t; ex2.approx.ftz.f32 t, $1; mov.f32 $0, t; }", BLOCK=32)
    words = INSTRUCTIONS["ex2.approx.ftz.f32"](values.numpy().view(np.uint32))
    assert torch.equal(found, torch.from_numpy(words.view(np.float32)) + 1)


SOFTPLUS = """{ .reg .pred p; setp.gt.f32 p, $1, 20.; @p mov.f32 $0, $1; @!p mul.f32 $0, $1, 1.4426950408889634;
@!p ex2.approx.ftz.f32 $0, $0; @!p add.f32 $0, $0, 1.0; @!p lg2.approx.ftz.f32 $0, $0; @!p mul.f32 $0, $0, 0.6931471805599453; }"""


def test_a_softplus_in_one_register_stands_before_a_sum():
    values, found = torch.linspace(-10, 30, 256), torch.zeros(256)
    with emulated("sm_90"):
        kernels.asked[(1,)](values, found, SOFTPLUS, BLOCK=256)

    def computed(opcode: str, operand: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(INSTRUCTIONS[opcode](operand.numpy().view(np.uint32)).view(np.float32))

    logarithm = computed("lg2.approx.ftz.f32", computed("ex2.approx.ftz.f32", values * 1.4426950408889634) + 1)
    assert torch.equal(found, torch.where(values > 20, values, logarithm * 0.6931471805599453) + 1)


def _once(*terms: torch.Tensor) -> torch.Tensor:
    """The sum of exact terms, rounded once to fp32."""
    return sum(terms).float()


SUMS = {  # what ptxas makes of each, seen in its machine code; float64 holds a product of fp32
    "mul.f32 t, $1, $2; add.f32 $0, t, $3;": lambda x, y, z: _once(x * y, z),
    "mul.f32 t, $1, $2; add.sat.f32 $0, t, $3;": lambda x, y, z: _once(x * y, z).clamp(0, 1),
    "mul.f32 t, $1, $2; sub.f32 $0, $3, t;": lambda x, y, z: _once(z, -x * y),
    "mul.ftz.f32 t, $1, $2; sub.ftz.f32 $0, t, $3;": lambda x, y, z: _once(x * y, -z),
    "mul.f32 t, $1, $2; mul.f32 u, $3, $3; add.f32 $0, t, u;": lambda x, y, z: _once(x * y, _once(z * z).double()),
    "mul.f32 t, $1, $2; mul.f32 u, $3, $3; sub.f32 $0, u, t;": lambda x, y, z: _once(z * z, -_once(x * y).double()),
    "mul.f32 t, $1, $2; add.f32 u, t, $3; add.f32 $0, t, u;": lambda x, y, z: _once(x * y, _once(x * y, z).double()),
    "mul.f32 t, $1, $2; mul.f32 t, t, $1; mov.b32 $0, t; add.f32 $0, $0, $3;": lambda x, y, z: _once(_once(x * y).double() * x, z),
    "mul.f32 t, $1, $2; add.rn.f32 $0, t, $3;": lambda x, y, z: _once(_once(x * y).double(), z),
    "setp.gt.f32 p, $1, 0f00000000; mul.f32 t, $1, $2; @p add.f32 t, t, $3; mov.b32 $0, t;": lambda x, y, z: _once(
        _once(x * y).double(), torch.where(x > 0, z, 0)
    ),
}


def _combine(text: str, operands: list[torch.Tensor], arch: str, letter: str = "f", pack: int = 1) -> tuple[torch.Tensor, object]:
    """What the statement gives on emulated `arch`, and the enclosure of that."""
    found = torch.zeros_like(operands[0])
    with emulated(arch) as device:
        inner = f"{{ .reg .b32 t, u; .reg .pred p; {text} }}"
        kernels.combined[(1,)](*operands, found, inner, letter, pack, BLOCK=found.numel(), enable_fp_fusion=True)
    return found, device.enclosure(found)


@pytest.mark.parametrize("text", SUMS)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_sums_without_rn_take_in_the_products_that_ptxas_takes_in(text, arch):
    operands = [torch.randn(256, generator=GENERATOR) for _ in range(3)]
    found, ends = _combine(text, operands, arch)
    assert torch.equal(found, SUMS[text](*(each.double() for each in operands))) and ends is None


@pytest.mark.parametrize(("form", "arch"), [("f16", "sm_80"), ("f16", "sm_90"), ("bf16", "sm_90"), ("bf16", "sm_100")])
def test_packed_sums_without_a_rounding_take_products_in(form, arch):
    dtype = torch.float16 if form == "f16" else torch.bfloat16
    operands = [torch.randn(256, generator=GENERATOR).to(dtype) for _ in range(3)]
    found, ends = _combine(f"mul.{form}x2 t, $1, $2; sub.{form}x2 $0, $3, t;", operands, arch, "r", 2)
    x, y, z = (each.double() for each in operands)
    assert torch.equal(found, (z - x * y).to(dtype)) and ends is None


def _misread(monkeypatch: pytest.MonkeyPatch, sides: set[int]) -> None:
    """Programs are translated anew, as if each sum took in what `sides` says."""

    def misread_sums(self: Contraction) -> dict[int, dict[int, set[int]]]:
        found = assembly_sums(self._packed_text[0], self.capability)
        return {line: dict.fromkeys(sums, sides) for line, sums in found.items()}

    monkeypatch.setattr(Contraction, "assembly_sums", property(misread_sums))
    monkeypatch.setattr(emulated_device, "_translations", {})
    monkeypatch.setenv("BITVERDICT_TRANSLATIONS", "off")


def test_another_reading_of_the_machine_code_gives_other_words(monkeypatch):
    text, operands = next(iter(SUMS)), [torch.randn(256, generator=GENERATOR) for _ in range(3)]
    _misread(monkeypatch, {ROUNDED_PRODUCT})
    found, _ = _combine(text, operands, "sm_90")
    x, y, z = (each.double() for each in operands)
    assert torch.equal(found, _once(_once(x * y).double(), z)) and not torch.equal(found, _once(x * y, z))


def test_a_sum_that_is_fused_in_one_place_only_encloses_both_words(monkeypatch):
    text, operands = next(iter(SUMS)), [torch.randn(256, generator=GENERATOR) for _ in range(3)]
    _misread(monkeypatch, {ROUNDED_PRODUCT, 0})
    _, ends = _combine(text, operands, "sm_90")
    x, y, z = (each.double() for each in operands)
    both = torch.stack([_once(x * y, z), _once(_once(x * y).double(), z)])
    assert np.array_equal(np.stack(ends).view(np.float32), torch.stack([both.amin(0), both.amax(0)]))


@pytest.mark.share(4)
def test_a_product_and_a_sum_of_two_statements_are_refused():
    """ptxas sees no statements: it makes one FFMA of all three forms."""
    operands = [torch.randn(256, generator=GENERATOR) for _ in range(3)]
    x, y, z = (each.double() for each in operands)
    found, fused = torch.zeros(256), _once(x * y, z)
    with emulated("sm_90") as device:
        kernels.in_two_statements[(1,)](*operands, found, True, False, BLOCK=256, enable_fp_fusion=True)
    low, high = (torch.from_numpy(end.view(np.float32)) for end in device.enclosure(found))
    assert ((low <= fused) & (fused <= high)).all() and (found != fused).any()
    for before in (True, False):
        with emulated("sm_90"), pytest.raises(EmulatedFault, match="takes in a product that is no mul beside it"):
            kernels.in_two_statements[(1,)](*operands, found, before, True, BLOCK=256, enable_fp_fusion=True)


def test_clocks_advance_and_programs_take_the_multiprocessors_in_turn():
    found = torch.zeros(3 * 140, dtype=torch.int64)
    with emulated("sm_90"):
        kernels.clocked[(140,)](found, STEPS=20)
    start, end, place = found.reshape(140, 3).T
    assert (end > start + 20).all() and (start > 0).all()
    assert place.tolist() == [number % 132 for number in range(140)]


FORMS = {"f32": ("f", "f32"), "f64": ("d", "f64"), "f16x2": ("r", "i32"), "bf16x2": ("r", "i32"), "f32x2": ("l", "i64")}


@pytest.mark.parametrize("form", FORMS)
def test_a_sum_of_any_form_is_open_unless_a_rounding_is_said(form):
    """ptxas 13 makes `FFMA.SAT` of `mul.f32` and `add.sat.f32`, `HFMA2` of packed halves."""
    letter, element = FORMS[form]
    for product, total in (("mul", "add"), ("mul", "sub"), ("mul.ftz", "add.sat"), ("mul.rn", "add"), ("mul", "add.rn")):
        if "." in total + product and form in ("f64", "bf16x2", "f32x2") and ".rn" not in total + product:
            continue  # no such instruction
        text = f"{{ .reg .b{64 if letter in 'dl' else 32} t; {product}.{form} t, $1, $1; {total}.{form} $0, t, $1; }}"
        asked = Assembly(text, f"={letter},{letter}", (element,), (element,), 1)
        assert asked.leaves_products is (".rn" not in total + product)


CONSTRAINTS = {  # constraints, operands, results, pack -> what is said
    ("=r,r", ("i8",), ("i32",), 1): 'constraint "r" for 1 element',
    ("=r,0", ("i32",), ("i32",), 1): "shares the register of a result",
    ("=r,r,r", ("i32",), ("i32",), 1): "3 registers are named|2 registers are named",
    ("=r,r", ("f16",), ("f16",), 4): r"2 register\(s\) of one kind for 4 element\(s\) of f16",
    ("=l,r", ("f16",), ("f16",), 2): 'constraint "l" for 2 element',
}


@pytest.mark.parametrize("given", CONSTRAINTS, ids=lambda given: f"{given[0]} x{given[3]}")
def test_constraints_that_do_not_fit_are_refused(given):
    with pytest.raises(NotPtx, match=CONSTRAINTS[given]):
        Assembly("mov.b32 $0, $1;", *given)


def test_four_elements_of_two_registers_come_back_in_order():
    swap = Assembly("mov.b32 $0, $3; mov.b32 $1, $2;", "=r,=&r,r,r,~{memory}", ("f16",), ("f16",), 4)
    words = np.arange(4 * 3, dtype=np.uint16).reshape(3, 4)  # (groups, pack)
    assert swap([words], 3)[0].tolist() == words[:, [2, 3, 0, 1]].tolist()


@triton.jit
def unpacked(packed, low, high, N: tl.constexpr, TABLE: tl.constexpr):
    at = tl.arange(0, N)
    word = tl.load(packed + at)
    magic: tl.constexpr = 0x64006400
    one = tl.inline_asm_elementwise(
        "lop3.b32 $0, $1, $2, $3, $4;", "=r,r,n,n,n", [word, 0x000F000F, magic, TABLE], tl.int32, True, 1
    )
    two = tl.inline_asm_elementwise(
        "lop3.b32 $0, $1, $2, $3, $4;", "=r,r,n,n,n", [word, 0x00F000F0, magic, TABLE], tl.int32, True, 1
    )
    tl.store(low + at, tl.inline_asm_elementwise("sub.f16x2 $0, $1, $2;", "=r,r,r", [one, magic], tl.int32, True, 1))
    # -0x2BFF2C00 is 0xd400d400: two halves of -64
    scaled = tl.inline_asm_elementwise(
        "fma.rn.f16x2 $0, $1, $2, $3;", "=r,r,r,r", [two, 0x2C002C00, -0x2BFF2C00], tl.int32, True, 1
    )
    tl.store(high + at, scaled)


@pytest.mark.parametrize("table, right", [(0xF0 & 0xCC | 0xAA, True), ((0xF0 | 0xCC) & 0xAA, False)], ids=["and-or", "or-and"])
def test_nibbles_become_halves_by_a_table_and_packed_sums(table, right):
    """Weights of four bits, as lmdeploy unpacks them: (word & mask) | 0x6400 is 1024 and a nibble, or 16 nibbles. Each of a byte,
    in each half; another table has other words."""
    octets = torch.arange(256, dtype=torch.int32)
    packed = octets | octets.flip(0) << 16  # (256,)
    low, high = torch.zeros_like(packed), torch.zeros_like(packed)
    with emulated("sm_90"):
        unpacked[(1,)](packed, low, high, 256, table)
    lower, upper = (torch.stack([octets >> shift & 15, octets.flip(0) >> shift & 15], 1).half() for shift in (0, 4))
    assert (torch.equal(low.view(torch.float16).reshape(-1, 2), lower)
            and torch.equal(high.view(torch.float16).reshape(-1, 2), upper)) is right  # fmt: skip
