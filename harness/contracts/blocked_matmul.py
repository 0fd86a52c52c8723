"""What `kernels/blocked_matmul.py` expects: one chain of tcgen05 over all of K, converted once, word for word."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

import bitverdict.kernels.blocked_matmul
from bitverdict.harness.contracts.base.single_config import Fields, empty
from bitverdict.harness.contracts.base.tiled_gemm import BlockedContract, tiled_refusals
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target

TUTORIAL: dict[str, Any] = {
    "m, n, k": ((208, 416, 304), (2000, 1000, 2000)),
    "block_m, block_n, block_k": ((64, 64, 64), (128, 128, 128)),
    "transpose_b": (False, True),
    "num_warps": (4, 8),
}
TIMED_TILES = ((64, 64, 128), (64, 64, 256), (128, 128, 64), (128, 128, 256))
"""Tiles (block_m, block_n, block_k) of the tutorial's table of figures that its test does not ask."""


class BlockedMatmulContract(BlockedContract):
    parameters = "(a, b, c, block_m, block_n, block_k, transpose_b, num_warps)"

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        tiles = [(64, 64, 32), (128, 32, 64), (64, 32, 128), (128, 64, 32)]
        forms = product(("fp16", "bf16", "e4m3", "e5m2"), (False, True), (4, 8))
        return [
            (
                {"dtype": dtype, "transpose_b": transposed},
                dict(zip(("block_m", "block_n", "block_k"), tiles[place % 4], strict=True)) | {"num_warps": warps},
            )
            for place, (dtype, transposed, warps) in enumerate(forms)
        ]

    def listed_problems(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        yield from self.corners(self.pool(target))

    def tutorial(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        for sizes, tile, transposed, warps in product(*TUTORIAL.values()):
            yield self.size_fields({"transpose_b": transposed}, *sizes), tile_of(tile, warps)
        for block_m, block_n, block_k in TIMED_TILES:  # whole tiles, as at the sizes that are timed, and ragged in all three
            config = tile_of((block_m, block_n, block_k), 4)
            yield self.size_fields({}, 2 * block_m, block_n, 2 * block_k), config
            yield self.size_fields({}, block_m + 16, block_n - 8, block_k + 48), config
        yield self.size_fields({}, 150, 136, 200), {}  # the launcher's own configuration

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        sizes = {"m": 64, "n": 64, "k": 64}
        yield from tiled_refusals(sizes, tensor_memory=True)
        yield sizes | {"transpose_b": True}, {"block_m": 128, "block_n": 256, "block_k": 512}

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        p, g = case.problem, case.config
        c = empty(tensors["a"], (p.m, p.n), pad=p.c_pad)
        (launcher or self.module.blocked_matmul)(
            tensors["a"], tensors["b"], c, g.block_m, g.block_n, g.block_k, p.transpose_b, g.num_warps
        )
        return {"c": c}


def tile_of(tile: tuple[int, int, int], num_warps: int) -> Fields:
    return dict(zip(("block_m", "block_n", "block_k"), tile, strict=True)) | {"num_warps": num_warps}


contract = BlockedMatmulContract
CONTRACT = contract(bitverdict.kernels.blocked_matmul)
