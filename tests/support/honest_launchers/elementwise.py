"""x + 2 y, launched in the ways that users launch an elementwise kernel. Each function is a launcher of its own."""

# One file because it is one list: the ways in which users launch one kernel, each judged by its name here.

from __future__ import annotations

import contextlib
import functools
import logging
import os
import time
from dataclasses import dataclass
from functools import cache, partial

import torch
import triton
import triton.language as tl

log = logging.getLogger(__name__)
BLOCK = int(os.environ.get("AXPY_BLOCK", "128"))
FACTOR: tl.constexpr = tl.constexpr(2)
TL_TYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


@triton.jit
def axpy_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + 2 * y, mask=mask)


def plain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    output = torch.empty_like(x)
    n_elements = output.numel()
    grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)
    axpy_kernel[grid](x, y, output, n_elements, BLOCK_SIZE=1024)
    return output


def with_tuple_grid(x, y):
    n = x.numel()
    out = x.new_empty(x.shape)
    axpy_kernel[(triton.cdiv(n, 256), 1, 1)](x, y, out, n, 256)
    return out


def with_out_argument(x, y, out=None):
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    axpy_kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK_SIZE=64, num_warps=2)
    return out


def given_its_output(x, y, out):
    axpy_kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK_SIZE=64)
    return out


def with_zeros(x, y):
    out = torch.zeros_like(x)
    axpy_kernel[(triton.cdiv(x.numel(), 128),)](x, y, out, x.numel(), BLOCK_SIZE=128, num_warps=8, num_stages=2)
    return out


def on_named_device(x, y):
    assert x.is_cuda and y.device == x.device and x.shape == y.shape, "operands must lie on one GPU"
    out = torch.empty(x.shape, dtype=x.dtype, device="cuda")
    axpy_kernel[(triton.cdiv(x.numel(), 128),)](x, y, out, x.numel(), BLOCK_SIZE=128)
    return out


def on_current_device(x, y):
    device = torch.device("cuda", torch.cuda.current_device())
    out = torch.full(x.shape, float("nan"), dtype=x.dtype, device=device)
    axpy_kernel[(triton.cdiv(x.numel(), 128),)](x, y, out, x.numel(), BLOCK_SIZE=128)
    return out


def flattened(x, y):
    x_flat, y_flat = x.contiguous().view(-1), y.contiguous().view(-1)
    out = torch.empty_like(x_flat)
    axpy_kernel[(triton.cdiv(x_flat.numel(), 128),)](x_flat, y_flat, out, x_flat.numel(), BLOCK_SIZE=128)
    return out.view_as(x)


def of_rows(x, y):
    rows, columns = x.shape
    out = x.new_empty((rows, columns))
    for row in range(rows):
        axpy_kernel[(triton.cdiv(columns, 128),)](x[row], y[row], out[row], columns, BLOCK_SIZE=128)
    return out


def into_a_wider_buffer(x, y):
    rows, columns = x.shape
    wide = torch.empty((rows, columns + 3), device=x.device, dtype=x.dtype)
    out = wide[:, :columns]
    for row in range(rows):
        axpy_kernel[(triton.cdiv(columns, 128),)](x[row], y[row], out[row], columns, BLOCK_SIZE=128)
    return out


def turned(x, y):
    """The result as a view of its transpose."""
    xt, yt = x.t().contiguous(), y.t().contiguous()
    out = torch.empty_like(xt)
    axpy_kernel[(triton.cdiv(xt.numel(), 128),)](xt, yt, out, xt.numel(), BLOCK_SIZE=128)
    return out.t()


def padded(x, y):
    """Operands that are padded to whole blocks, so that the kernel needs no mask."""
    n = x.numel()
    whole = triton.cdiv(n, 128) * 128
    a = torch.zeros(whole, dtype=x.dtype, device=x.device)
    b = torch.zeros_like(a)
    a[:n].copy_(x.reshape(-1))
    b[:n] = y.reshape(-1)
    out = torch.empty_like(a)
    axpy_kernel[(whole // 128,)](a, b, out, whole, BLOCK_SIZE=128)
    return out[:n].reshape(x.shape)


def in_single_precision(x, y):
    a, b = x.float(), y.to(torch.float32)
    out = torch.empty_like(a)
    axpy_kernel[(triton.cdiv(a.numel(), 128),)](a, b, out, a.numel(), BLOCK_SIZE=128)
    return out.to(x.dtype)


def or_nothing(x, y):
    out = torch.empty_like(x)
    if x.numel() == 0:
        return out
    axpy_kernel[(triton.cdiv(x.numel(), 128),)](x, y, out, x.numel(), BLOCK_SIZE=128)
    return out


def _launch(x, y, *, block_size, num_warps=4):
    out = torch.empty_like(x)
    axpy_kernel[(triton.cdiv(x.numel(), block_size),)](x, y, out, x.numel(), BLOCK_SIZE=block_size, num_warps=num_warps)
    return out


by_partial = partial(_launch, block_size=64, num_warps=1)
by_lambda = lambda x, y: _launch(x, y, block_size=32)


def timed(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        begun = time.perf_counter()
        result = function(*args, **kwargs)
        log.debug("%s took %.3f ms", function.__name__, 1e3 * (time.perf_counter() - begun))
        return result

    return wrapper


@timed
def decorated(x, y):
    print(f"axpy of {tuple(x.shape)} {x.dtype}")
    return _launch(x, y, block_size=128)


@contextlib.contextmanager
def on_device_of(tensor):
    with torch.cuda.device(tensor.device), torch.no_grad():
        yield


def in_a_context(x, y):
    with on_device_of(x):
        return _launch(x, y, block_size=BLOCK)


class Axpy:
    """A launcher that keeps its configuration."""

    def __init__(self, block_size=128):
        self.block_size = block_size
        self.calls = 0

    def __call__(self, x, y):
        self.calls += 1
        return _launch(x, y, block_size=self.block_size)

    @staticmethod
    def by_name(x, y):
        return _launch(x, y, block_size=64)


instance = Axpy(256)
bound_method = Axpy(64).__call__
static_method = Axpy.by_name


class AxpyModule(torch.nn.Module):
    def forward(self, x, y):
        return _launch(x, y, block_size=128)


module = AxpyModule()


@dataclass(frozen=True)
class Config:
    block_size: int = 128
    num_warps: int = 4


CONFIGS: dict[int, Config] = {7: Config(64, 2), 8: Config(), 9: Config(256), 10: Config(512, 8)}


@cache
def config_of(major: int) -> Config:
    return CONFIGS.get(major, Config())


def by_capability(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    config = config_of(torch.cuda.get_device_capability(x.device)[0])
    return _launch(x, y, block_size=config.block_size, num_warps=config.num_warps)


@triton.jit
def persistent_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK_SIZE), tl.num_programs(0)):
        offsets = block * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
        mask = offsets < n
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + 2 * tl.load(y_ptr + offsets, mask), mask)


def persistent(x, y):
    out = torch.empty_like(x)
    programs = min(torch.cuda.get_device_properties(x.device).multi_processor_count, triton.cdiv(x.numel(), 32))
    persistent_kernel[(programs,)](x, y, out, x.numel(), BLOCK_SIZE=32)
    return out


def persistent_by_the_driver(x, y):
    out = torch.empty_like(x)
    device = torch.cuda.current_device()
    properties = triton.runtime.driver.active.utils.get_device_properties(device)
    persistent_kernel[(properties["multiprocessor_count"],)](x, y, out, x.numel(), BLOCK_SIZE=32)
    return out


def on_a_stream(x, y):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        out = _launch(x, y, block_size=128)
    torch.cuda.current_stream().wait_stream(stream)
    return out


def between_events(x, y):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    out = _launch(x, y, block_size=128)
    end.record()
    torch.cuda.synchronize()
    log.info("%.3f ms", begin.elapsed_time(end))
    return out


_compiled: dict = {}


def warmed_up(x, y):
    """Compiled once by `warmup`; what that gives is launched."""
    if (key := (x.dtype, x.device)) not in _compiled:
        _compiled[key] = axpy_kernel.warmup(x, y, x, x.numel(), BLOCK_SIZE=128, grid=(1,))
    out = torch.empty_like(x)
    axpy_kernel[(triton.cdiv(x.numel(), 128),)](x, y, out, x.numel(), BLOCK_SIZE=128)
    return out


def by_run(x, y):
    out = torch.empty_like(x)
    axpy_kernel.run(x, y, out, x.numel(), BLOCK_SIZE=128, grid=(triton.cdiv(x.numel(), 128),), warmup=False)
    return out


def reading_the_compiled_kernel(x, y):
    out = torch.empty_like(x)
    compiled = axpy_kernel[(triton.cdiv(x.numel(), 128),)](x, y, out, x.numel(), BLOCK_SIZE=128)
    if compiled is not None:
        log.info("%d bytes of shared memory, %d warps", compiled.metadata.shared, compiled.metadata.num_warps)
    return out


@triton.jit
def cast_kernel(x_ptr, y_ptr, out_ptr, n, OUT: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + offsets, (x + FACTOR * y).to(OUT), mask=mask)


def with_a_type_parameter(x, y):
    if x.dtype not in TL_TYPES:
        raise ValueError(f"axpy takes {', '.join(map(str, TL_TYPES))}, not {x.dtype}")
    out = torch.empty_like(x)
    cast_kernel[(triton.cdiv(x.numel(), 128),)](x, y, out, x.numel(), OUT=TL_TYPES[x.dtype], BLOCK_SIZE=128)
    return out


@triton.jit(do_not_specialize=["n"])
def unspecialized_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + 2 * tl.load(y_ptr + offsets, mask), mask)


def unspecialized(x, y):
    out = torch.empty_like(x)
    unspecialized_kernel[(triton.cdiv(x.numel(), 128),)](x, y, out, x.numel(), BLOCK_SIZE=128)
    return out


@triton.jit
def doubled(y):
    return y + y


@triton.jit
def helped_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr, PARTS: tl.constexpr):
    start = tl.program_id(0) * BLOCK_SIZE * PARTS
    tl.static_assert(BLOCK_SIZE >= 16)
    for part in tl.static_range(PARTS):
        offsets = start + part * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
        mask = offsets < n
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + doubled(tl.load(y_ptr + offsets, mask)), mask)


def with_helpers(x, y):
    out = torch.empty_like(x)
    helped_kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK_SIZE=32, PARTS=2)
    return out


@triton.jit
def asserting_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    tl.device_assert(n > 0, "nothing to add")
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + 2 * tl.load(y_ptr + offsets, mask), mask)


def with_device_assert(x, y):
    out = torch.empty_like(x)
    asserting_kernel[(triton.cdiv(x.numel(), 128),)](x, y, out, x.numel(), BLOCK_SIZE=128, debug=True)
    return out


@triton.jit
def strided_kernel(x_ptr, y_ptr, out_ptr, rows, columns, sxm, sxn, sym, syn, som, son, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = at < columns
    x = tl.load(x_ptr + row * sxm + at * sxn, mask=mask)
    y = tl.load(y_ptr + row * sym + at * syn, mask=mask)
    tl.store(out_ptr + row * som + at * son, x + 2 * y, mask=mask)


def strided(x, y):
    rows, columns = x.shape
    out = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    grid = (rows, triton.cdiv(columns, 64))
    strided_kernel[grid](x, y, out, rows, columns, *x.stride(), *y.stride(), *out.stride(), BLOCK_SIZE=64)
    return out


def two_kernels(x, y):
    """y is doubled by one kernel into a workspace, and added by another."""
    zeros, work = torch.zeros_like(y), torch.empty_like(y)
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 128),)
    axpy_kernel[grid](zeros, y, work, x.numel(), BLOCK_SIZE=128)
    half_kernel[grid](x, work, out, x.numel(), BLOCK_SIZE=128)
    return out


@triton.jit
def half_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + tl.load(y_ptr + offsets, mask), mask)


@triton.jit
def in_place_kernel(x_ptr, y_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask) + 2 * tl.load(y_ptr + offsets, mask), mask)


def in_place(x, y):
    in_place_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK_SIZE=128)
    return x


def in_place_of_a_clone(x, y):
    out = x.clone()
    in_place_kernel[(triton.cdiv(x.numel(), 128),)](out, y, x.numel(), BLOCK_SIZE=128)
    return out


if __name__ == "__main__":
    import triton.testing

    a, b = torch.randn(1 << 20, device="cuda"), torch.randn(1 << 20, device="cuda")
    print(triton.testing.do_bench(lambda: plain(a, b)))
