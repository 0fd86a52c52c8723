"""What `kernels/hopper_matmul.py` expects: one chain of wgmma over all of K, converted once, word for word."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import bitverdict.kernels.hopper_matmul
from bitverdict.harness.contracts.base.single_config import Fields, call_launcher, result_buffer
from bitverdict.harness.contracts.base.tiled_gemm import BlockedContract, tiled_refusals
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target

NAMES = ("block_m", "block_n", "block_k", "stages", "num_warps")


class HopperMatmulContract(BlockedContract):
    family = "wgmma"
    parameters = "(a, b, c=None, *, block_m=128, block_n=128, block_k=64, transpose_b=False, stages=3, num_warps=4)"

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        tiles = [(64, 64, 32, 3, 4), (64, 32, 64, 1, 4), (128, 64, 32, 2, 8), (64, 128, 32, 4, 4)]
        kinds = [
            ("fp16", "fp16", False),
            ("bf16", "bf16", True),
            ("fp16", "fp32", True),
            ("bf16", "fp32", False),
            ("e4m3", "e4m3", True),
            ("e5m2", "fp32", True),
            ("e4m3", "fp32", True),
        ]
        return [
            ({"dtype": dtype, "out": out, "transpose_b": transposed}, dict(zip(NAMES, tiles[(place + shift) % 4], strict=True)))
            for place, (dtype, out, transposed) in enumerate(kinds)
            for shift in (0, 1)
        ]

    def listed_problems(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        for stages in (1, 3):
            for blocks in (1, 2, 3, 7):  # of K: fewer than stages, as many, more, and the second turn of a phase
                yield self.size_fields({}, 70, 72, 32 * blocks), dict(zip(NAMES, (64, 64, 32, stages, 4), strict=True))
        for problem, config in self.corners(self.pool(target)):
            deep = config["stages"] == 4 and problem["m"] == 1  # a ring of four goes round twice: one row is cheap
            yield (self.size_fields(problem, 1, problem["n"], 9 * 32 + 3, 1) if deep else problem), config
        # the widest instruction; a ragged N, of which whole units are as many as rows
        yield self.size_fields({}, 72, 69, 32), dict(zip(NAMES, (64, 256, 32, 1, 4), strict=True))

    def pool_of_far(self) -> tuple[Fields, Fields]:
        problem, config = super().pool_of_far()
        return problem | {"out": "bf16"}, config

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        sizes = {"m": 64, "n": 64, "k": 64}
        yield from tiled_refusals(sizes, tensor_memory=False)
        yield sizes | {"out": "bf16"}, {}
        yield sizes | {"dtype": "e4m3", "out": "e4m3"}, {}
        yield sizes, {"num_warps": 2}
        yield sizes, {"block_m": 64, "num_warps": 8}
        yield sizes, {"stages": 0}
        yield sizes, {"stages": 12}
        yield sizes, {"block_k": 512}
        yield sizes | {"n": 60}, {}

    def out_format(self, problem: Any) -> str:
        return problem.out

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        p, g = case.problem, case.config
        c = result_buffer(case, tensors["a"], (p.m, p.n), pad=p.c_pad, dtype=p.out, optional=p.out == p.dtype)
        result = call_launcher(
            launcher or self.module.hopper_matmul, tensors["a"], tensors["b"], c=c, transpose_b=p.transpose_b, **vars(g)
        )
        return {"c": result if c is None or launcher is not None else c}


contract = HopperMatmulContract
CONTRACT = contract(bitverdict.kernels.hopper_matmul)
