"""torch: its own Triton kernel for products of blocks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from benchmarks.corpus_entry import Compared, Entry, Given, Package, compared

TORCH = Package("torch", "")


def scatter_mm(given: Given) -> Iterator[Compared]:
    """out[i] (m, n) = the sum of blocks[p] (m, k) @ others[q] (k, n) over the pairs from offsets[i] to offsets[i + 1]."""
    from torch.sparse._triton_ops import scatter_mm as function

    blocks, others = given.normal(5, 16, 32, dtype=torch.float16), given.normal(4, 32, 16, dtype=torch.float16)
    offsets, pairs = torch.tensor([0, 2, 3, 6]), torch.tensor([[0, 1], [1, 2], [2, 3], [3, 0], [4, 1], [0, 3]])
    one, other = blocks.cpu().double(), others.cpu().double()
    sums = [sum(one[p] @ other[q] for p, q in pairs[a:b].tolist()) for a, b in itertools.pairwise(offsets)]
    placed = (given.place(offsets.int()), given.place(pairs.int()))
    yield from compared(function(blocks, others, ("scatter_mm", *placed)), torch.stack(sums))  # type: ignore[arg-type]


ENTRIES = [Entry(TORCH, "scatter_mm", scatter_mm)]
