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
