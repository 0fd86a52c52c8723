"""A block-scaled product whose scales go into tensor memory by tcgen05.cp, in the forms around a fault of the compiler's."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

BLOCK, BLOCK_K = 128, 128


@triton.jit
def multiply(
    a, b, a_scales, b_scales, c, steps, STEPS: tl.constexpr, STAGES: tl.constexpr, FLAT: tl.constexpr, DESCRIBED: tl.constexpr,
    BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """c (BLOCK, BLOCK) = a (BLOCK, K) @ b (BLOCK, K) transposed, e4m3 with e8m0 scales in tiles of 512 bytes, one a step of K.

    STEPS: how many, or 0 for `steps`. FLAT: a tile of scales is loaded as a row of bytes, else as (32, 4, 4).
    """
    row, column = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK_K)[None, :]
    lane, four = tl.arange(0, 32), tl.arange(0, 4)
    if FLAT:
        places = tl.zeros((1, 1), tl.int32) + tl.arange(0, 512)[None, :]  # (1, 512)
    else:
        places = (
            tl.zeros((1, 1, 1, 1, 1), tl.int32)
            + lane[None, None, :, None, None] * 16
            + four[None, None, None, :, None] * 4
            + four[None, None, None, None, :]
        )  # (1, 1, 32, 4, 4)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for step in tl.range(STEPS if STEPS else steps, num_stages=STAGES):
        if DESCRIBED:
            left = a.load([0, step * BLOCK_K])  # (BLOCK, BLOCK_K)
            right = b.load([0, step * BLOCK_K])  # (BLOCK, BLOCK_K)
        else:
            left = tl.load(a + row * (STEPS * BLOCK_K) + column + step * BLOCK_K)
            right = tl.load(b + row * (STEPS * BLOCK_K) + column + step * BLOCK_K)
        by_a = tl.load(a_scales + step * 512 + places).reshape(1, 1, 32, 4, 4).trans(0, 3, 2, 1, 4).reshape(BLOCK, 4)
        by_b = tl.load(b_scales + step * 512 + places).reshape(1, 1, 32, 4, 4).trans(0, 3, 2, 1, 4).reshape(BLOCK, 4)
        total = tl.dot_scaled(left, by_a, "e4m3", right.T, by_b, "e4m3", total)
    tl.store(c + row * BLOCK + tl.arange(0, BLOCK)[None, :], total)


def product(
    steps: int, stages: int, *, constant: bool = True, flat: bool = True, described: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """(got, expected) of small integers with scales of 1 and 2, which no step can round. Raises what the launch raises."""
    draw, k = torch.Generator().manual_seed(0), steps * BLOCK_K
    a, b = (torch.randint(-3, 4, (BLOCK, k), generator=draw).float() for _ in range(2))
    scales = [torch.randint(127, 129, (steps, 512), generator=draw, dtype=torch.uint8) for _ in range(2)]
    c = torch.empty(BLOCK, BLOCK)
    tiles = [each.to(torch.float8_e4m3fn) for each in (a, b)]
    given = [TensorDescriptor.from_tensor(tile, [BLOCK, BLOCK_K]) for tile in tiles] if described else tiles
    multiply[(1,)](*given, *scales, c, steps, STEPS=steps if constant else 0, STAGES=stages, FLAT=flat, DESCRIBED=described,
                   BLOCK=BLOCK, BLOCK_K=BLOCK_K)  # fmt: skip
    factors = [2.0 ** (_by_block(scale).float() - 127) for scale in scales]  # (BLOCK, k / 32)
    left, right = (each * factor.repeat_interleave(32, 1) for each, factor in zip((a, b), factors, strict=True))
    return c, left @ right.T


def _by_block(scales: torch.Tensor) -> torch.Tensor:
    """(BLOCK, 4 * steps) scales from tiles (steps, 512) of (32, 4, 4): row % 32, row // 32, column."""
    return scales.view(-1, 32, 4, 4).permute(2, 1, 0, 3).reshape(BLOCK, -1)
