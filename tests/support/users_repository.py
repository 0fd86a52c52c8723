"""A repository of a user's: kernels as users write them, with wrong twins, and tests of them by the public functions.

It has packages called `kernels`, `reference` and `harness`, as theirs have.
"""

from __future__ import annotations

from pathlib import Path

KERNELS = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, w, y, n, stride, BLOCK: tl.constexpr, LEFT_OUT: tl.constexpr):
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n - LEFT_OUT
    a = tl.load(x + tl.program_id(0).to(tl.int64) * stride + at, mask=mask)
    b = tl.load(w + at, mask=mask)
    tl.store(y + tl.program_id(0) * n + at, a * b, mask=mask)


def scale(x, w, left_out=0):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    grid = (x.shape[0], triton.cdiv(x.shape[1], 64))
    scale_kernel[grid](x, w, y, x.shape[1], x.stride(0), BLOCK=64, LEFT_OUT=left_out)
    return y


def scale_short(x, w):
    return scale(x, w, left_out=1 if x.shape[1] > 64 else 0)


def scale_into(x, w, y):
    grid = (x.shape[0], triton.cdiv(x.shape[1], 64))
    scale_kernel[grid](x, w, y, x.shape[1], x.stride(0), BLOCK=64, LEFT_OUT=0)


@triton.jit
def best_kernel(x, value, index, n, OFF: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(x + tl.program_id(0) * n + at, mask=at < n, other=-float("inf"))
    tl.store(value + tl.program_id(0), tl.max(a, 0))
    tl.store(index + tl.program_id(0), tl.argmax(a, 0) + OFF)


def best(x, off=0):
    x = x.contiguous()
    value = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    index = torch.empty(x.shape[0], dtype=torch.int32, device=x.device)
    best_kernel[(x.shape[0],)](x, value, index, x.shape[1], off, BLOCK=128)
    return value, index


@triton.jit
def count_kernel(rows, counts, n, ONCE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(rows + at, mask=at < n)
    if ONCE:
        tl.atomic_max(counts + row, 1, mask=at < n)
    else:
        tl.atomic_add(counts + row, 1, mask=at < n)


def count(rows, bins, once=False):
    counts = torch.zeros(bins, dtype=torch.int32, device=rows.device)
    count_kernel[(triton.cdiv(rows.shape[0], 32),)](rows, counts, rows.shape[0], once, BLOCK=32)
    return counts


@triton.jit
def add_where_kernel(x, y, mask, alpha, n, EVERYWHERE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wanted = (tl.load(mask + at, mask=at < n, other=0) != 0) | EVERYWHERE
    a = tl.load(x + at, mask=at < n) + alpha * tl.load(y + at, mask=at < n)
    tl.store(x + at, a, mask=(at < n) & wanted)


def add_where_(x, y, mask, alpha, everywhere=False):
    add_where_kernel[(triton.cdiv(x.shape[0], 64),)](x, y, mask, alpha, x.shape[0], everywhere, BLOCK=64)
    return x


@triton.jit
def positive_kernel(x, out, n, OR_ZERO: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n)
    tl.store(out + at, (a >= 0) if OR_ZERO else (a > 0), mask=at < n)


def positive(x, or_zero=False):
    out = torch.empty(x.shape, dtype=torch.bool, device=x.device)
    positive_kernel[(triton.cdiv(x.shape[0], 64),)](x, out, x.shape[0], or_zero, BLOCK=64)
    return out


@triton.jit
def gather_kernel(table, rows, out, columns, CLAMP: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.load(rows + tl.program_id(0))
    if CLAMP:
        row = tl.maximum(row - 1, 0)
    at = tl.arange(0, BLOCK)
    a = tl.load(table + row * columns + at, mask=at < columns)
    tl.store(out + tl.program_id(0) * columns + at, a, mask=at < columns)


def gather(table, rows, clamp=False):
    assert table.is_contiguous()
    out = torch.empty((rows.shape[0], table.shape[1]), dtype=table.dtype, device=table.device)
    gather_kernel[(rows.shape[0],)](table, rows, out, table.shape[1], clamp, BLOCK=64)
    return out


@triton.autotune(configs=[triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=["n"])
@triton.jit
def twice_kernel(x, y, n, WRONG_AT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n)
    tl.store(y + at, a * (3 if BLOCK == WRONG_AT else 2), mask=at < n)


def twice(x, wrong_at=0):
    y = torch.empty_like(x)
    twice_kernel[lambda meta: (triton.cdiv(x.shape[0], meta["BLOCK"]),)](x, y, x.shape[0], wrong_at)
    return y
"""

TESTS = """
import unittest

import bitverdict as bv
from {kernels} import add_where_, best, count, gather, positive, scale, scale_into, scale_short, twice


def rows(draw):
    m, n = draw.size(1, 5), draw.size(1, 150, around=64)
    return draw.tensor("fp16", (m, n), strides=None), draw.tensor("fp16", n)


@bv.judged(reference=lambda xp, x, w: x * w)
def test_scale(draw):
    return scale(*rows(draw))


@bv.judged(reference=lambda xp, x, w: x * w)
def test_scale_wrong(draw):
    return scale_short(*rows(draw))


@bv.judged(reference=lambda xp, x, w: x * w, launcher="{file}:scale")
def test_named(draw):
    return rows(draw)


@bv.judged(reference=lambda xp, x, w: x * w, launcher="{file}:scale_short")
def test_named_wrong(draw):
    return rows(draw)


def by_name(xp, x, **named):
    return x * named["w"] if named["twice"] is False else x * named["w"] * 2


@bv.judged(reference=by_name)
def test_by_name(draw):
    x, n = draw.tensor("fp16", (3, draw.size(1, 150, around=64))), draw.flag(name="twice")
    y = scale(x, draw.tensor("fp16", x.shape[1], name="w"))
    return y + y if n else y


@bv.judged(reference=by_name)
def test_by_name_wrong(draw):
    x, n = draw.tensor("fp16", (3, draw.size(1, 150, around=64))), draw.flag(name="twice")
    return scale(x, draw.tensor("fp16", x.shape[1], name="w"))


@bv.judged(reference=lambda xp, x, w: x * w)
def test_into(draw):
    x, w = rows(draw)
    y = draw.output("fp16", x.shape)
    scale_into(x, w, y)
    return y


@bv.judged(reference=lambda xp, x, w: x * w)
def test_into_wrong(draw):
    x, w = rows(draw)
    y = draw.output("fp16", x.shape)
    if x.shape[1] < 100:
        scale_into(x, w, y)
    return y


def described_best(off):
    @bv.judged(reference=lambda xp, x: (xp.max(x, axis=1), xp.argmax(x, axis=1)))
    def test(draw):
        return best(draw.tensor("fp32", (draw.size(1, 4), draw.size(1, 70, around=32))), off)

    return test


test_best, test_best_wrong = described_best(0), described_best(1)


def described_count(once):
    @bv.judged(reference=lambda xp, rows, bins: xp.sum(xp.astype(rows[:, None] == xp.arange(bins), xp.int32), axis=0))
    def test(draw):
        bins = draw.size(1, 9, name="bins")
        return count(draw.indices(draw.size(1, 90, around=32), bins), bins, once)

    return test


test_count, test_count_wrong = described_count(False), described_count(True)


def described_add(everywhere):
    @bv.judged(reference=lambda xp, x, y, mask, alpha: xp.where(mask, x + alpha * y, xp.unchanged))
    def test(draw):
        n, alpha = draw.size(1, 150, around=64), draw.scalar(-2, 2, name="alpha")
        return add_where_(draw.tensor("fp32", n), draw.tensor("fp32", n), draw.mask(n), alpha, everywhere)

    return test


test_add_where, test_add_where_wrong = described_add(False), described_add(True)


def described_positive(or_zero):
    @bv.judged(reference=lambda xp, x: x > 0)
    def test(draw):
        return positive(draw.tensor("fp16", draw.size(1, 150, around=64)), or_zero)

    return test


test_positive, test_positive_wrong = described_positive(False), described_positive(True)


def described_gather(clamp, dtype="fp16"):
    @bv.judged(reference=lambda xp, table, rows: xp.take(table, rows, axis=0), exact=True)
    def test(draw):
        n = draw.size(1, 9)
        table, rows = draw.tensor(dtype, (n, draw.size(1, 40, around=16))), draw.indices(draw.size(1, 20), n)
        return gather(table, rows, clamp)

    return test


test_gather, test_gather_wrong, test_gather_e4m3 = described_gather(False), described_gather(True), described_gather(False, "e4m3")


@bv.judged(reference=lambda xp, x: 2 * x)
def test_twice(draw):
    return twice(draw.tensor("fp32", draw.size(1, 150, around=64)))


@bv.judged(reference=lambda xp, x: 2 * x)
def test_twice_wrong(draw):
    return twice(draw.tensor("fp32", draw.size(1, 150, around=64)), wrong_at=64)


@bv.judged(reference=lambda xp, x, w: xp.linalg.svd(x))
def test_untraceable(draw):
    return scale(*rows(draw))


@bv.judged(reference=lambda xp, x, w: x * w)
def test_refuses(draw):
    x, w = rows(draw)
    assert x.shape[1] % 8 == 0
    return scale(x, w)


@bv.judged(reference=lambda xp, x, w: x * w)
def test_draws_later(draw):
    x, w = rows(draw)
    y = scale(x, w)
    return scale(y, draw.tensor("fp16", x.shape[1]))


@bv.judged(reference=lambda xp, x, w: x * w, returns="fp32")
def test_another_type(draw):
    return scale(*rows(draw))


class TestRows(unittest.TestCase):
    @bv.judged(reference=lambda xp, x, w: x * w)
    def test_scale(draw):
        n = draw.size(1, 70)
        return scale(draw.tensor("fp16", (2, n)), draw.tensor("fp16", n))
"""
FILES = {
    "kernels/__init__.py": "",
    "kernels/rows.py": KERNELS,
    "reference/__init__.py": "def mine():\n    return 'reference of the user'\n",
    "harness/__init__.py": "",
    "harness/checks.py": "from . import __name__ as package\n",
    "tests/__init__.py": "from harness.checks import package\nassert package == 'harness'\n",
    "tests/test_rows.py": "from reference import mine\nfrom . import package\nassert mine()\n" + TESTS.format(
        kernels="kernels.rows", file="../kernels/rows.py"
    ),
}  # fmt: skip
FLAT = {"mykernels.py": KERNELS, "my_tests.py": TESTS.format(kernels="mykernels", file="mykernels.py")}
"""The same without packages: what a test of ours may import, beside the rooms."""


def make(folder: Path, files: dict[str, str] = FILES) -> Path:
    """The repository, in `folder`."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder
