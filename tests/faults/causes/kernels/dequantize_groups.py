"""y[i, j] = (q[i, j] - z[i, g]) * s[i, g], with g = j // GROUP; q of unsigned bytes."""

import torch
import triton
import triton.language as tl

import bitverdict as bv


@triton.jit
def dequantize_groups_kernel(q_ptr, z_ptr, s_ptr, y_ptr, n, groups, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    group = cols // GROUP
    q = tl.load(q_ptr + row * n + cols, mask=mask, other=0).to(tl.float32)
    z = tl.load(z_ptr + row * groups + group, mask=mask, other=0).to(tl.float32)
    s = tl.load(s_ptr + row * groups + group, mask=mask, other=0.0)
    tl.store(y_ptr + row * n + cols, (q - z) * s, mask=mask)


def dequantize_groups(q, z, s):
    m, n = q.shape
    groups = z.shape[1]
    y = torch.empty((m, n), dtype=torch.float32, device=q.device)
    dequantize_groups_kernel[(m,)](q, z, s, y, n, groups, GROUP=n // groups, BLOCK=triton.next_power_of_2(n))
    return y


def reference(xp, q, z, s):
    group = q.shape[1] // z.shape[1]
    return (xp.astype(q, xp.float32) - xp.repeat(xp.astype(z, xp.float32), group, axis=1)) * xp.repeat(s, group, axis=1)


@bv.judged(reference=reference)
def test_dequantize_groups(draw):
    m, groups, group = draw.size(1, 9), draw.size(1, 5), draw.choice((16, 8, 24))
    q = draw.integers((m, groups * group), 0, 255, dtype="uint8")
    return dequantize_groups(q, draw.integers((m, groups), 0, 255, dtype="uint8"), draw.tensor("fp32", (m, groups)))
