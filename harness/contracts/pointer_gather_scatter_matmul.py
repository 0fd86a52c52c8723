"""What `kernels/pointer_gather_scatter_matmul.py` expects: gathered rows times W, one chain of mma.sync, converted once and
scattered. A scattered row number outside `out` is ignored, a negative one too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product

import numpy as np

import bitverdict.kernels.pointer_gather_scatter_matmul
from bitverdict.harness.contracts.base.promised_work import cdiv, of_options, of_schedule, promise_count
from bitverdict.harness.contracts.base.single_config import Fields, call_launcher
from bitverdict.harness.contracts.fused_gather_scatter_matmul import FusedContract
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import IndexList, PromisedInstruction
from bitverdict.harness.model.targets import Target
from bitverdict.kernels.pointer_gather_scatter_matmul import LOADS

NAMES = ("block_m", "block_n", "block_k", "group_size_m", "stages", "num_warps", "programs")
SMALL_CONFIG = dict(zip(NAMES, (32, 32, 16, 2, 3, 4, 2), strict=True))


class PointerFusedContract(FusedContract):
    parameters = (
        "(x, gather, w, scatter, *, block_m=128, block_n=128, block_k=32, group_size_m=8, stages=3, num_warps=8, "
        "loads='async_copy', programs=0, out=None)"
    )
    product_by = "mma.sync"
    either_row = False

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        tiles = [(32, 32, 16, 2, 3, 4, 2), (64, 32, 32, 1, 2, 2, 3), (16, 64, 64, 8, 1, 1, 0), (64, 64, 32, 3, 4, 8, 1)]
        forms = (("bf16", LOADS[0]), ("fp16", LOADS[1]), ("bf16", LOADS[1]), ("fp16", LOADS[0]))
        made: list[tuple[Fields, Fields]] = [
            ({"dtype": dtype}, dict(zip(NAMES, tile, strict=True)) | {"loads": loads})
            for tile, (dtype, loads) in zip(tiles, forms, strict=True)
        ]
        return made if self.in_full(target) else made[:2]

    @staticmethod
    def in_full(target: Target) -> bool:
        """Whether `target` is asked everything: the kernel has one program for all, so of the emulated ones the first is."""
        return target.arch == "sm_80" or not target.emulated

    def listed_problems(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        yield self.size_fields({}, 1, 1, 1, 1, 20), SMALL_CONFIG  # sizes of one are constants to the compiler, where it is let
        if self.in_full(target):
            yield from self.ring()
        for place, (problem, config) in enumerate(2 * self.pool(target)):
            rows = config["block_m"] * (1 + place % 3) + (-1, 0, 1, 7)[place % 4]
            n, k = (
                config["block_n"] * (1 + place % 2) + (0, 1, 8)[place // 4 + place % 2],
                config["block_k"] * (1 + place % 4) - place % 2,
            )
            yield self.size_fields(problem, rows, n, k, 1 + 31 * place % 140, 40 + 57 * place % 150, place % 2), config
        yield (
            self.size_fields({}, 15, 17, 512 + 9, 20, 30),
            SMALL_CONFIG | {"block_k": 512, "stages": 1},
        )  # two turns of a warp for a row of X

    def ring(self) -> Iterable[tuple[Fields, Fields]]:
        """K blocks for a ring of three: fewer than stages, as many, more; with and without a remainder."""
        for blocks, loads in product((0, 1, 3, 7), LOADS):
            for rest, n in ((9, 45), (0, 40)):
                if blocks or rest:
                    tables = (70, 70) if blocks == 3 else (90, 170)  # permuted: every row of out is named
                    yield self.size_fields({}, 70, n, 16 * blocks + rest, *tables), SMALL_CONFIG | {"loads": loads}

    def tutorial(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        """None: the tutorial names this form of the kernel, and has no test of it."""
        return ()

    def far_problems(self) -> Iterable[tuple[Fields, Fields]]:
        for problem, _ in super().far_problems():
            yield problem, SMALL_CONFIG

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        sizes = {"table_rows": 64, "rows": 64, "out_rows": 64, "n": 64, "k": 64}
        yield sizes | {"dtype": "e4m3"}, {}
        yield sizes | {"rows": 0}, {}
        yield sizes, {"block_n": 48}
        yield sizes, {"block_k": 8}
        yield sizes, {"stages": 0}
        yield sizes, {"num_warps": 32}
        yield sizes, {"loads": "tma"}
        yield sizes, {"group_size_m": 0}
        yield sizes, {"stages": 16}
        yield sizes | {"x_pad": 1}, {}
        yield sizes | {"x_offset": 1}, {}

    def required(self, target: Target) -> list[Case]:
        below_zero = self.case(self.size_fields({}, 20, 32, 32, 20, 20), SMALL_CONFIG, regime="normal/negative")
        return [*super(FusedContract, self).required(target), below_zero]

    def scatters_below_zero(self, case: Case) -> bool:
        """Never with a fault: an ordinary store below the first row is masked."""
        return False

    def index_lists(self, case: Case) -> tuple[IndexList, ...]:
        return IndexList("gather", "rows", "table_rows"), IndexList("scatter", "rows", "out_rows", 1)

    def scattered_to(self, case: Case, codes: np.ndarray) -> np.ndarray:
        return np.where(codes < 0, case.problem.out_rows, codes)  # (rows,)

    def promised_instructions(self, case: Case) -> tuple[PromisedInstruction, ...]:
        p, c = case.problem, case.config
        tiles = cdiv(p.rows, c.block_m) * cdiv(p.n, c.block_n)
        copies = [PromisedInstruction("ttg.async_copy_global_to_local", 0, f"loads={c.loads}")] if c.loads == "gl.load" else []
        return (promise_count("tt.store", tiles), *of_schedule(c, tiles, "grouped"), *of_options(c, "stages"), *copies)

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        run = launcher or self.module.pointer_gather_scatter_matmul
        operands = (tensors[name] for name in ("x", "gather", "w", "scatter"))
        return {"out": call_launcher(run, *operands, **vars(case.config), out=self.result_tensor(case, tensors))}


contract = PointerFusedContract
CONTRACT = contract(bitverdict.kernels.pointer_gather_scatter_matmul)
