"""torch: its own Triton kernels for block-sparse matrices, by its operators' functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks.corpus_entry import Compared, Entry, Given, Package, compared

TORCH = Package("torch", "")
ENTRIES: list[Entry] = []
BLOCK = 16


def add(name: str, run: Callable[[Given], tuple[Any, Any]]) -> None:
    def entry(given: Given) -> Iterator[Compared]:
        yield from compared(*run(given))

    ENTRIES.append(Entry(TORCH, name, entry))


def block_sparse(given: Given, rows: int, columns: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A BSR matrix on the GPU, and the dense one in float64: each second block is zero, and no row of blocks is empty."""
    dense = given.normal(rows, columns, dtype=dtype).cpu()
    kept = torch.rand(rows // BLOCK, columns // BLOCK, generator=given.generator, device="cpu") < 0.5
    kept[:, 0] = True
    dense = dense * kept.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    bsr = dense.to_sparse_bsr((BLOCK, BLOCK))
    placed = torch.sparse_bsr_tensor(
        *(given.place(part) for part in (bsr.crow_indices(), bsr.col_indices(), bsr.values())), size=dense.shape
    )
    return placed, dense.double()


def bsr_dense_mm(given: Given) -> tuple[Any, Any]:
    from torch.sparse._triton_ops import bsr_dense_mm as function

    bsr, exact = block_sparse(given, 64, 96, torch.float16)
    dense = given.normal(96, 48, dtype=torch.float16)
    return function(bsr, dense), exact @ dense.cpu().double()


def bsr_dense_addmm(given: Given) -> tuple[Any, Any]:
    from torch.sparse._triton_ops import bsr_dense_addmm as function

    bsr, exact = block_sparse(given, 64, 96, torch.float16)
    dense, other = given.normal(96, 48, dtype=torch.float16), given.normal(64, 48, dtype=torch.float16)
    return function(other, bsr, dense, beta=0.5, alpha=2.0), 0.5 * other.cpu().double() + 2.0 * (exact @ dense.cpu().double())


def bsr_softmax(given: Given) -> tuple[Any, Any]:
    from torch.sparse._triton_ops import bsr_softmax as function

    bsr, exact = block_sparse(given, 64, 96, torch.float32)
    stored = torch.sparse_bsr_tensor(
        bsr.crow_indices().cpu(), bsr.col_indices().cpu(), torch.ones_like(bsr.values().cpu()), size=exact.shape
    )
    expected = exact.masked_fill(stored.to_dense() == 0, -torch.inf).softmax(-1).to_sparse_bsr((BLOCK, BLOCK))
    return function(bsr).values(), expected.values()


add("bsr_dense_mm", bsr_dense_mm)
add("bsr_dense_addmm", bsr_dense_addmm)
add("bsr_softmax", bsr_softmax)
