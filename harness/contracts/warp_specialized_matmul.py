"""What `kernels/warp_specialized_matmul.py` expects: the words of `blocked_matmul`, whichever partition brings them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product

import bitverdict.kernels.warp_specialized_matmul
from bitverdict.harness.contracts.base.promised_work import cdiv, of_options, of_schedule, promise_count
from bitverdict.harness.contracts.base.single_config import Fields, call_launcher, empty
from bitverdict.harness.contracts.base.tiled_gemm import BlockedContract, tiled_refusals
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import PromisedInstruction
from bitverdict.harness.model.targets import Target
from bitverdict.kernels.tile_scheduler import SCHEDULES

NAMES = ("block_m", "block_n", "block_k", "stages", "accumulators", "num_warps")
SMALL_CONFIG = dict(zip(NAMES, (64, 32, 32, 3, 2, 4), strict=True))


class WarpSpecializedContract(BlockedContract):
    parameters = (
        "(a, b, c, *, block_m=128, block_n=128, block_k=64, transpose_b=False, stages=4, accumulators=2, num_warps=4, "
        "schedule='grouped', group_size_m=8, programs=0)"
    )

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        tiles = [(64, 32, 32, 3, 2, 4), (128, 32, 64, 2, 1, 8), (64, 64, 32, 4, 2, 8), (128, 64, 32, 1, 3, 4)]
        forms = product(("fp16", "bf16", "e4m3", "e5m2"), (False, True))
        return [
            (
                {"dtype": dtype, "transpose_b": transposed},
                dict(zip(NAMES, tiles[place % 4], strict=True))
                | {"schedule": SCHEDULES[place % 3], "group_size_m": 1 + place % 3, "programs": 1 + place % 4},
            )
            for place, (dtype, transposed) in enumerate(forms)
        ]

    def listed_problems(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        for blocks in (1, 2, 3, 7):  # of K, in a ring of three: fewer, as many, more, and the second turn of a phase
            yield self.size_fields({}, 70, 40, 32 * blocks), SMALL_CONFIG | {"programs": 1}
        for schedule, accumulators in product(SCHEDULES, (1, 3)):  # five tiles a program: an accumulator's phase turns
            yield (
                self.size_fields({}, 64 * 5 - 3, 40, 40),
                SMALL_CONFIG | {"schedule": schedule, "accumulators": accumulators, "group_size_m": 2, "programs": 2},
            )
        yield from self.corners(self.pool(target))

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        sizes = {"m": 64, "n": 64, "k": 64}
        yield from tiled_refusals(sizes, tensor_memory=True)
        yield sizes, {"stages": 0}
        yield sizes, {"accumulators": 0}
        yield sizes, {"block_n": 256, "block_k": 16, "accumulators": 3}
        yield sizes, {"block_n": 256, "accumulators": 2, "stages": 8}
        yield sizes, {"schedule": "by columns"}
        yield sizes, {"group_size_m": 0}

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        p = case.problem
        c = empty(tensors["a"], (p.m, p.n), pad=p.c_pad)
        run = launcher or self.module.warp_specialized_matmul
        call_launcher(run, tensors["a"], tensors["b"], c, transpose_b=p.transpose_b, **vars(case.config))
        return {"c": c}

    def promised_instructions(self, case: Case) -> tuple[PromisedInstruction, ...]:
        p, c = case.problem, case.config
        tiles = cdiv(p.m, c.block_m) * cdiv(p.n, c.block_n)
        products = promise_count("ttng.tc_gen5_mma", tiles * cdiv(p.k, c.block_k))
        return (products, *of_schedule(c, tiles, c.schedule), *of_options(c, "stages", "accumulators"))


contract = WarpSpecializedContract
CONTRACT = contract(bitverdict.kernels.warp_specialized_matmul)
