"""xFormers: its Triton operations, each by its public function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks.corpus_entry import Compared, Entry, Given, Package, compared, on_cpu

XFORMERS = Package("xformers", "0.0.35", environment={"XFORMERS_IGNORE_FLASH_VERSION_CHECK": "1"})
ENTRIES: list[Entry] = []


def add(name: str, operands: Callable[[Given], tuple], launcher: Callable[..., Any], reference: Callable[..., Any]) -> None:
    def run(given: Given) -> Iterator[Compared]:
        drawn = operands(given)
        expected = reference(*on_cpu(drawn))
        with torch.no_grad():
            got = launcher(*drawn)
        yield from compared(got, expected)

    ENTRIES.append(Entry(XFORMERS, name, run))


def rms(x: Tensor, weight: Tensor | None, eps: float = 1e-6) -> Tensor:
    normal = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return normal if weight is None else normal * weight


def rms_norm(*given: Any) -> Any:
    from xformers.ops.rmsnorm import rms_norm as function

    return function(*given)


def rms_norm_add(*given: Any) -> Any:
    from xformers.ops.rmsnorm import rms_norm_add as function

    return function(*given), given[0]  # the first operand becomes the sum


def index_select_cat(*given: Any) -> Any:
    from xformers.ops import index_select_cat as function

    return function(*given)


def scaled_index_add(*given: Any) -> Any:
    from xformers.ops import scaled_index_add as function

    return function(*given)


def tiled_matmul(*given: Any) -> Any:
    from xformers.ops.tiled_matmul import tiled_matmul as function

    return function(*given)


def blocks(given: Given, heights: tuple[int, ...], widths: tuple[int, ...]) -> list[list[Tensor]]:
    return [[given.normal(m, n, dtype=torch.float16) for n in widths] for m in heights]


def product_of_blocks(a: list[list[Tensor]], b: list[list[Tensor]]) -> list[list[Tensor]]:
    return [[sum(a[i][p] @ b[p][j] for p in range(len(b))) for j in range(len(b[0]))] for i in range(len(a))]  # type: ignore[misc]


def rows_scaled_added(x: Tensor, at: Tensor, source: Tensor, scaling: Tensor, alpha: float) -> Tensor:
    """x (b, m, d) with alpha * scaling * source (n, m, d) added to its rows `at` (n,)."""
    return x.index_add(0, at, source * scaling, alpha=alpha)


def different(given: Given, number: int, of: int) -> Tensor:
    return given.place(torch.randperm(of, generator=given.generator, device="cpu")[:number])


add("rms_norm", lambda g: (g.normal(13, 100), g.normal(100)), rms_norm, rms)
add("rms_norm without weight", lambda g: (g.normal(13, 100), None), rms_norm, rms)
add("rms_norm, fp16", lambda g: (g.normal(13, 128, dtype=torch.float16), g.normal(128, dtype=torch.float16)), rms_norm, rms)
add("rms_norm_add", lambda g: (g.normal(13, 100), g.normal(13, 100), g.normal(100)), rms_norm_add,
    lambda x, y, w: (rms(x + y, w), x + y))  # fmt: skip
add("index_select_cat", lambda g: ([g.normal(11, 64), g.normal(7, 64)], [different(g, 5, 11), different(g, 3, 7)]),
    index_select_cat,
    lambda sources, rows: torch.cat([s[at].flatten() for s, at in zip(sources, rows, strict=True)]))  # fmt: skip
add("scaled_index_add", lambda g: (g.normal(9, 7, 64), different(g, 5, 9), g.normal(5, 7, 64), g.normal(64), 0.5), scaled_index_add,
    rows_scaled_added)  # fmt: skip
add("tiled_matmul", lambda g: (blocks(g, (64, 32), (48, 64)), blocks(g, (48, 64), (32, 48))), tiled_matmul, product_of_blocks)
