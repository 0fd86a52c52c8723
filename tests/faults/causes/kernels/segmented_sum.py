"""y[s] = the sum of x over rows starts[s] to starts[s + 1] - 1, in blocks of rows."""

import torch
import triton
import triton.language as tl

import bitverdict as bv


@triton.jit
def segmented_sum_kernel(x_ptr, starts_ptr, y_ptr, d, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr):
    segment = tl.program_id(0)
    cols = tl.arange(0, BLOCK_D)
    first = tl.load(starts_ptr + segment)
    end = tl.load(starts_ptr + segment + 1)
    acc = tl.zeros((BLOCK_D,), tl.float32)
    for start in range(first, end, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + rows[:, None] * d + cols[None, :], mask=(rows < end)[:, None] & (cols < d)[None, :], other=0.0)
        acc += tl.sum(x, axis=0)
    tl.store(y_ptr + segment * d + cols, acc, mask=cols < d)


def segmented_sum(x, starts):
    segments, d = starts.shape[0] - 1, x.shape[1]
    y = torch.empty((segments, d), dtype=torch.float32, device=x.device)
    segmented_sum_kernel[(segments,)](x, starts, y, d, BLOCK=8, BLOCK_D=triton.next_power_of_2(d))
    return y


def reference(xp, x, n0, n1, n2):
    rows, ends = xp.arange(x.shape[0]), (n0, n0 + n1, n0 + n1 + n2)
    starts = (0, *ends[:2])
    inside = [(rows >= first) & (rows < end) for first, end in zip(starts, ends, strict=True)]
    return xp.stack([xp.sum(xp.where(each[:, None], x, 0.0), axis=0) for each in inside])


@bv.judged(reference=reference)
def test_segmented_sum(draw):
    n0, n1, n2, d = (*(draw.size(1, 30, name=name) for name in ("n0", "n1", "n2")), draw.size(1, 40))
    x = draw.tensor("fp32", (n0 + n1 + n2, d))
    return segmented_sum(x, torch.tensor([0, n0, n0 + n1, n0 + n1 + n2], dtype=torch.int32, device=x.device))
