"""What `kernels/warp_specialized_gather_scatter_matmul.py` expects: the words of `fused_gather_scatter_matmul`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product

import bitverdict.kernels.warp_specialized_gather_scatter_matmul
from bitverdict.harness.contracts.base.promised_work import cdiv, of_options, of_schedule, promise_count
from bitverdict.harness.contracts.base.single_config import Fields, call_launcher
from bitverdict.harness.contracts.fused_gather_scatter_matmul import FusedContract
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import PromisedInstruction
from bitverdict.harness.model.targets import Target
from bitverdict.kernels.tile_scheduler import SCHEDULES

NAMES = ("block_m", "block_n", "block_k", "stages", "accumulators", "num_warps", "load_warps")
SMALL_CONFIG = dict(zip(NAMES, (64, 32, 32, 3, 2, 4, 2), strict=True))


class WarpSpecializedFusedContract(FusedContract):
    parameters = (
        "(x, gather, w, scatter, *, block_m=128, block_n=128, block_k=64, stages=3, accumulators=2, num_warps=4, load_warps=4, "
        "schedule='grouped', group_size_m=8, programs=0, out=None)"
    )

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        tiles = [(64, 32, 32, 3, 2, 4, 4), (128, 64, 32, 2, 1, 8, 2), (64, 64, 64, 1, 2, 4, 1), (64, 32, 32, 4, 3, 8, 4)]
        forms = product(("bf16", "fp16", "e4m3", "e5m2"), (0, 1))
        return [
            (
                {"dtype": dtype},
                dict(zip(NAMES, tiles[(place + shift) % 4], strict=True))
                | {"schedule": SCHEDULES[place % 3], "group_size_m": 1 + place % 3, "programs": 1 + place % 4},
            )
            for place, (dtype, shift) in enumerate(forms)
        ]

    def listed_problems(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        yield self.size_fields({}, 1, 1, 1, 1, 20), SMALL_CONFIG | {"programs": 2}
        for blocks in (1, 2, 3, 7):  # of K, in a ring of three: fewer, as many, more, and the second turn of a phase
            tables = (70, 70) if blocks == 7 else (90, 170)  # permuted: every row of out is named
            yield self.size_fields({}, 70, 40, 32 * blocks - 3 * (blocks % 2), *tables), SMALL_CONFIG | {"programs": 1}
        for schedule, accumulators in product(SCHEDULES, (1, 3)):  # five tiles a program: an accumulator's phase turns
            yield (
                self.size_fields({}, 64 * 5 - 3, 40, 40, 90, 400),
                SMALL_CONFIG | {"schedule": schedule, "accumulators": accumulators, "group_size_m": 2, "programs": 2},
            )
        for place, (problem, config) in enumerate(self.pool(target)):
            rows = config["block_m"] * (1 + place % 3) + (-1, 0, 1, 7)[place % 4]
            n, k = config["block_n"] * (1 + place % 3) + (place + 1) % 2, config["block_k"] * (1 + place % 5) - place % 2
            yield self.size_fields(problem, rows, n, k, 1 + 31 * place % 140, 40 + 57 * place % 150, place % 2), config

    def tutorial(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        """None: the tutorial names this form of the kernel, and has no test of it."""
        return ()

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        sizes = {"table_rows": 64, "rows": 64, "out_rows": 64, "n": 64, "k": 64}
        yield sizes | {"dtype": "fp32"}, {}
        yield sizes | {"rows": 0}, {}
        yield sizes, {"block_n": 48}
        yield sizes, {"block_k": 8}
        yield sizes, {"block_n": 8}
        yield sizes, {"block_n": 512}
        yield sizes, {"accumulators": 0}
        yield sizes, {"load_warps": 3}
        yield sizes, {"num_warps": 2}
        yield sizes, {"block_m": 32}
        yield sizes, {"block_n": 256, "block_k": 16, "accumulators": 3}
        yield sizes, {"schedule": "by columns"}
        yield sizes, {"group_size_m": 0}
        yield sizes, {"stages": 8}
        yield sizes | {"x_pad": 1}, {}
        yield sizes | {"x_offset": 1}, {}

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        run = launcher or self.module.warp_specialized_gather_scatter_matmul
        operands = (tensors[name] for name in ("x", "gather", "w", "scatter"))
        return {"out": call_launcher(run, *operands, **vars(case.config), out=self.result_tensor(case, tensors))}

    def promised_instructions(self, case: Case) -> tuple[PromisedInstruction, ...]:
        """A thread of the load partition has registers for its warp's row numbers, and 48."""
        p, c = case.problem, case.config
        tiles = cdiv(p.rows, c.block_m) * cdiv(p.n, c.block_n)
        return (
            promise_count("ttng.tc_gen5_mma", tiles * cdiv(p.k, c.block_k)),
            *of_schedule(c, tiles, c.schedule),
            *of_options(c, "stages", "accumulators", "load_warps"),
            PromisedInstruction("constant LOAD_REGISTERS", c.block_m // c.load_warps + 48, f"load_warps={c.load_warps}"),
        )


contract = WarpSpecializedFusedContract
CONTRACT = contract(bitverdict.kernels.warp_specialized_gather_scatter_matmul)
