"""A described kernel on rows whose words depend on the row alone, and launchers of it whose words depend on something else."""

from __future__ import annotations

import itertools

import torch
import triton
import triton.language as tl

import bitverdict as bv

BLOCK = 64
FEW, MANY = 2, 4  # parts in which a row is summed
_calls = itertools.count()


@triton.jit
def squares(x_ptr, y_ptr, first, columns, eps, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """y = sum of x x over a row, in PARTS parts that are added in order; one program a row, from row `first` on."""
    row = first + tl.program_id(0)
    total = 0.0
    for part in tl.static_range(PARTS):
        column = part * (BLOCK // PARTS) + tl.arange(0, BLOCK // PARTS)  # (BLOCK // PARTS,)
        x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=0.0)  # (BLOCK // PARTS,)
        total += tl.sum(x * x)
    tl.store(y_ptr + row, total + eps)


@triton.jit
def added_squares(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    """The same, by atomics: one program for sixteen columns of a row."""
    row, column = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=0.0)  # (BLOCK,)
    tl.atomic_add(y_ptr + row, tl.sum(x * x))


def in_parts(x: torch.Tensor, parts: int, eps: float = 0.0) -> torch.Tensor:
    y = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)  # (rows,)
    squares[(x.shape[0],)](x, y, 0, x.shape[1], eps, parts, BLOCK)
    return y


def by_atomics(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros(x.shape[0], dtype=torch.float32, device=x.device)  # (rows,)
    added_squares[(x.shape[0], triton.cdiv(x.shape[1], 16))](x, y, x.shape[1], 16)
    return y


def tail_apart(x: torch.Tensor) -> torch.Tensor:
    """The rows behind whole tiles of eight have a path of their own."""
    y = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)  # (rows,)
    whole = x.shape[0] // 8 * 8
    for first, rows, parts in ((0, whole, FEW), (whole, x.shape[0] - whole, MANY)):
        if rows:
            squares[(rows,)](x, y, first, x.shape[1], 0.0, parts, BLOCK)
    return y


def sum_of_squares(xp, x):
    return xp.sum(x * x, axis=1)


def drawn(draw):
    rows = draw.size(1, 40, name="rows")
    return draw.tensor("fp32", (rows, draw.size(1, BLOCK, around=BLOCK, name="columns")), strides="contiguous")


@bv.judged(reference=sum_of_squares)
def right(draw):
    return in_parts(drawn(draw), FEW)


@bv.judged(reference=sum_of_squares)
def split_by_batch(draw):
    x = drawn(draw)
    return in_parts(x, MANY if x.shape[0] < 8 else FEW)


@bv.judged(reference=sum_of_squares, batch_invariant="rows")
def promised(draw):
    return in_parts(drawn(draw), FEW)


@bv.judged(reference=sum_of_squares, batch_invariant="rows")
def broken_promise(draw):
    x = drawn(draw)
    return in_parts(x, MANY if x.shape[0] < 8 else FEW)


@bv.judged(reference=sum_of_squares, deterministic=True)
def promised_order(draw):
    return by_atomics(drawn(draw))


@bv.judged(reference=sum_of_squares)
def row_position(draw):
    return tail_apart(drawn(draw))


@bv.judged(reference=sum_of_squares)
def kept_state(draw):
    return in_parts(drawn(draw), (FEW, MANY)[next(_calls) % 2])


@bv.judged(reference=sum_of_squares)
def unwritten_memory(draw):
    x = drawn(draw)
    left = torch.empty(1, dtype=torch.float32, device=x.device)  # (1,)
    return in_parts(x, MANY if bool((left > 0).item()) else FEW)


@bv.judged(reference=sum_of_squares)
def neighbour_row(draw):
    x = drawn(draw)
    behind = in_parts(x.as_strided((x.shape[0] + 1, x.shape[1]), x.stride()), FEW)[-1]  # a row that is nobody's
    return in_parts(x, MANY if bool((behind < 1).item()) else FEW)


@bv.judged(reference=sum_of_squares)
def alignment(draw):
    x = drawn(draw)
    return in_parts(x, MANY if x.data_ptr() % 64 else FEW)


@bv.judged(reference=sum_of_squares)
def multiprocessors(draw):
    x = drawn(draw)
    count = torch.cuda.get_device_properties(x.device).multi_processor_count
    return in_parts(x, MANY if count < 8 else FEW)


@bv.judged(reference=sum_of_squares)
def atomics(draw):
    return by_atomics(drawn(draw))


@bv.judged(reference=sum_of_squares)
def small_constant(draw):
    return in_parts(drawn(draw), FEW, 1e-3)


@bv.judged(reference=lambda xp, x: xp.mean(x * x, axis=1))
def mean_of_squares(draw):
    x = drawn(draw)
    return in_parts(x, FEW) / x.shape[1]


@bv.judged(reference=sum_of_squares)
def split_by_columns(draw):
    x = drawn(draw)
    return in_parts(x, MANY if x.shape[1] > 40 else FEW)


@bv.judged(reference=lambda xp, x: xp.sum(x * x, axis=1) + 1e-3)
def shifted(draw):
    return in_parts(drawn(draw), FEW, 1e-3)
