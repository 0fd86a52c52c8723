"""Kernels that call libdevice, and inline assembly that computes."""

import triton
import triton.language as tl
from triton.language import core
from triton.language.extra.cuda import libdevice


@core.extern
def unknown(value, _semantic=None):
    table = {(core.dtype("fp32"),): ("__nv_no_such_function", core.dtype("fp32"))}
    return core.extern_elementwise("", "", [value], table, is_pure=True, _semantic=_semantic)


@triton.jit
def functions(values, powers, found, whole, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)  # (BLOCK,)
    x = tl.load(values + at)  # (BLOCK,)
    tl.store(found + at, tl.log(x))
    tl.store(found + BLOCK + at, libdevice.pow(x, tl.load(powers + at)))
    tl.store(found + 2 * BLOCK + at, tl.sin(tl.load(values)) * x)  # of a scalar
    tl.store(whole + at, libdevice.float2int_rd(x))


@triton.jit
def fused_into(values, found, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)  # (BLOCK,)
    x = tl.load(values + at)  # (BLOCK,)
    tl.store(found + at, libdevice.acosh(x * x))


@triton.jit
def of_no_library(values, found, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)  # (BLOCK,)
    tl.store(found + at, unknown(tl.load(values + at)))


@triton.jit
def halves(left, right, found, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)  # (BLOCK,)
    x, y = tl.load(left + at), tl.load(right + at)  # (BLOCK,) fp16
    tl.store(
        found + at,
        tl.inline_asm_elementwise("fma.rn.f16x2 $0, $1, $2, $1;", "=r,r,r", [x, y], dtype=tl.float16, is_pure=True, pack=2),
    )


@triton.jit
def assembled(values, functions, whole, neighbours, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)  # (BLOCK,)
    x = tl.load(values + at)  # (BLOCK,)
    power, exponent = tl.inline_asm_elementwise(
        """
        {
            .reg .pred low;
            .reg .b32 t;
            ex2.approx.ftz.f32 $0, $2;  // of all
            shr.u32 t, $2, 23;
            and.b32 $1, t, 255;
            setp.lt.f32 low, $2, 0f00000000;
            @low neg.s32 $1, $1;
        }
        """,
        "=f,=r,f", [x], dtype=(tl.float32, tl.int32), is_pure=True, pack=1,
    )  # fmt: skip
    tl.store(functions + at, power)
    tl.store(whole + at, exponent)
    octets = tl.load(neighbours + at)  # (BLOCK,) int8
    turned = tl.inline_asm_elementwise("prmt.b32 $0, $1, 0, 0x0123;", "=r,r", [octets], dtype=tl.int8, is_pure=True, pack=4)
    tl.store(neighbours + at, turned)


@triton.jit
def asked(values, found, ASM: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)  # (BLOCK,)
    x = tl.load(values + at)  # (BLOCK,)
    told = tl.inline_asm_elementwise(ASM, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(found + at, told + 1.0)


@triton.jit
def combined(a, b, c, found, ASM: tl.constexpr, LETTER: tl.constexpr, PACK: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)  # (BLOCK,)
    x, y, z = tl.load(a + at), tl.load(b + at), tl.load(c + at)  # (BLOCK,) each
    constraints: tl.constexpr = "=" + LETTER + "," + LETTER + "," + LETTER + "," + LETTER
    tl.store(found + at, tl.inline_asm_elementwise(ASM, constraints, [x, y, z], a.dtype.element_ty, True, PACK))


@triton.jit
def in_two_statements(a, b, c, found, BEFORE: tl.constexpr, AFTER: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)  # (BLOCK,)
    x, y, z = tl.load(a + at), tl.load(b + at), tl.load(c + at)  # (BLOCK,) each
    product = tl.inline_asm_elementwise("mul.f32 $0, $1, $2;", "=f,f,f", [x, y], tl.float32, True, 1) if BEFORE else x * y
    if AFTER:
        tl.store(found + at, tl.inline_asm_elementwise("add.f32 $0, $1, $2;", "=f,f,f", [product, z], tl.float32, True, 1))
    else:
        tl.store(found + at, product + z)


@triton.jit
def of_constants(values, found, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)  # (BLOCK,)
    x = tl.load(values + at)  # (BLOCK,)
    tl.store(found + at, libdevice.pow(10000.0, x))
    tl.store(found + BLOCK + at, x + tl.log(2.0))


@triton.jit
def of_a_constant_alone(found, BLOCK: tl.constexpr):
    tl.store(found + tl.arange(0, BLOCK), libdevice.tanh(tl.full((BLOCK,), 1.5, tl.float32)))


@triton.jit
def clocked(found, STEPS: tl.constexpr):
    here = found + 3 * tl.program_id(0)
    start = tl.extra.cuda.globaltimer()
    for step in range(STEPS):
        tl.store(here + 1, step)
    end = tl.extra.cuda.globaltimer()
    tl.store(here, start)
    tl.store(here + 1, end)
    tl.store(here + 2, tl.extra.cuda.smid())


@triton.jit
def saturated(values, found, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)  # (BLOCK,)
    tl.store(found + at, libdevice.saturatef(tl.load(values + at)))
