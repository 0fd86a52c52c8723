"""What `kernels/blocked_matmul_pipelined.py` expects: the words of `blocked_matmul`, for one K block as for many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

import bitverdict.kernels.blocked_matmul_pipelined
from bitverdict.harness.contracts.base.promised_work import cdiv, promise_count
from bitverdict.harness.contracts.base.single_config import Fields, empty
from bitverdict.harness.contracts.base.tiled_gemm import BlockedContract, tiled_refusals
from bitverdict.harness.contracts.blocked_matmul import tile_of
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import PromisedInstruction
from bitverdict.harness.model.targets import Target

TUTORIAL: dict[str, Any] = {
    "m, n, k": ((208, 416, 304), (2000, 1000, 2000)),
    "block_m, block_n, block_k": ((64, 64, 64), (128, 128, 128)),
    "num_warps": (4, 8),
}


class PipelinedContract(BlockedContract):
    parameters = "(a, b, c, block_m, block_n, block_k, num_warps)"

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        tiles = [(64, 32, 32), (64, 64, 64), (128, 32, 32)]
        forms = product(("fp16", "bf16", "e4m3", "e5m2"), (4, 8))
        return [
            (
                {"dtype": dtype},
                dict(zip(("block_m", "block_n", "block_k"), tiles[(place + shift) % 3], strict=True)) | {"num_warps": warps},
            )
            for place, (dtype, warps) in enumerate(forms)
            for shift in (0, 1)
        ]

    def listed_problems(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        for blocks in (1, 2, 3):  # of K: the ring's drain alone, and one turn of its loop
            yield self.size_fields({}, 130, 64, 32 * blocks), {"block_m": 64, "block_n": 64, "block_k": 32}
        yield from self.corners(self.pool(target))

    def tutorial(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        for sizes, tile, warps in product(*TUTORIAL.values()):
            yield self.size_fields({}, *sizes), tile_of(tile, warps)
        for warps in (4, 8):  # the tile of the tutorial's best figures, and the launcher's own: whole, and ragged in all three
            yield self.size_fields({}, 512, 128, 192), tile_of((128, 128, 64), warps)
            yield self.size_fields({}, 272, 120, 240), tile_of((128, 128, 64), warps)

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        sizes = {"m": 64, "n": 64, "k": 64}
        yield from tiled_refusals(sizes, tensor_memory=True)
        yield sizes, {"block_n": 256, "block_k": 256}

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        p, g = case.problem, case.config
        c = empty(tensors["a"], (p.m, p.n), pad=p.c_pad)
        (launcher or self.module.blocked_matmul_pipelined)(
            tensors["a"], tensors["b"], c, g.block_m, g.block_n, g.block_k, g.num_warps
        )
        return {"c": c}

    def promised_instructions(self, case: Case) -> tuple[PromisedInstruction, ...]:
        """Two tiles of C a program; two blocks of K at least."""
        p, g = case.problem, case.config
        tiles = 2 * cdiv(p.m, 2 * g.block_m) * cdiv(p.n, g.block_n)
        return (promise_count("ttng.tc_gen5_mma", tiles * max(cdiv(p.k, g.block_k), 2)),)


contract = PipelinedContract
CONTRACT = contract(bitverdict.kernels.blocked_matmul_pipelined)
