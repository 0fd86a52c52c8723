"""Integer products on the GPU: int8 operands, int32 sums modulo 2^32, as `reference.tensor_core.product` has them."""

from __future__ import annotations

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from bitverdict.harness.lab.gpu_oracle.chain import LAYOUT, TILE, tile_of
from bitverdict.harness.lab.gpu_oracle.operands import SIDE_MULTIPLE


@gluon.jit
def integer_chain(
    a_ptr, b_ptr, c_ptr, d_ptr, m, n, k, m_padded, n_padded,
    HAS_C: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    """A tile of A B + C: `a_ptr` (k, m_padded), `b_ptr` (k, n_padded) int8; `c_ptr`, `d_ptr` (m, n) int32."""
    i, j, inside, places = tile_of(m, n, n_padded, BLOCK_M, BLOCK_N, layout)
    total = gl.zeros((BLOCK_M, BLOCK_N), gl.int32, layout)
    if HAS_C:
        total = gl.load(c_ptr + places, mask=inside, other=0)
    a_row, b_row = a_ptr + i, b_ptr + j
    for _ in range(k):
        total += gl.load(a_row).to(gl.int32)[:, None] * gl.load(b_row).to(gl.int32)[None, :]
        a_row += m_padded
        b_row += n_padded
    gl.store(d_ptr + places, total, mask=inside)


def integer_product(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None = None) -> torch.Tensor:
    """A B + C modulo 2^32 (M, N) int32, of `a` (K, M) and `b` (K, N) int8; `c` (M, N) int32."""
    sides = [torch.nn.functional.pad(each, (0, -each.shape[1] % SIDE_MULTIPLE)).contiguous() for each in (a, b)]  # (K, L')
    m, n = a.shape[1], b.shape[1]
    d = torch.empty((m, n), dtype=torch.int32, device=a.device)  # (M, N)
    padded = [each.shape[1] for each in sides]
    integer_chain[(padded[0] // TILE[0] * (padded[1] // TILE[1]),)](
        *sides, c if c is not None else d, d, m, n, a.shape[0], *padded,
        HAS_C=c is not None, BLOCK_M=TILE[0], BLOCK_N=TILE[1], layout=LAYOUT,
    )  # fmt: skip
    return d
