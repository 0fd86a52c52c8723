"""What `kernels/ampere_gemm.py` expects: one chain of mma.sync over all of K, in fp32, word for word."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

import bitverdict.kernels.ampere_gemm
from bitverdict.harness.contracts.base.single_config import BUDGET, Fields, call_launcher, products, result_buffer
from bitverdict.harness.contracts.base.tiled_gemm import BlockedContract, tiled_refusals
from bitverdict.harness.contracts.inputs.regimes import TENTH
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target

TUTORIAL: dict[str, Any] = {
    "m, n, k": (
        (64, 64, 64),
        (64, 64, 256),
        (128, 128, 128),
        (256, 256, 256),
        (512, 512, 512),
        (1024, 1024, 1024),
        (2048, 2048, 2048),
        (4096, 4096, 4096),
    )
}
FRAGMENTS = ("ldmatrix", "ld.shared")


class AmpereGemmContract(BlockedContract):
    family = "mma.sync"
    always_transposed = True
    every_run = BUDGET
    tutorial_regime = TENTH
    parameters = "(a, bt, d=None, *, block_m=64, block_n=64, block_k=16, stages=2, num_warps=4, fragments='ldmatrix')"

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        tiles = [
            (64, 64, 16, 2, 4),
            (32, 64, 32, 3, 4),
            (64, 32, 16, 1, 2),
            (16, 16, 64, 4, 1),
            (128, 64, 32, 2, 8),
            (32, 16, 16, 5, 4),
        ]
        names = ("block_m", "block_n", "block_k", "stages", "num_warps")
        return [
            ({"dtype": dtype}, dict(zip(names, tile, strict=True)) | {"fragments": FRAGMENTS[(place + turn) % 2]})
            for turn, dtype in enumerate(("bf16", "fp16"))
            for place, tile in enumerate(tiles)
        ]

    def listed_problems(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        yield from self.ring("ldmatrix")
        yield from self.corners(self.pool(target))
        yield from self.ring("ld.shared")
        yield (
            self.size_fields({}, 15, 17, 512 + 9),
            {"block_m": 16, "block_n": 16, "block_k": 512, "stages": 1, "num_warps": 1},
        )  # long rows

    def ring(self, fragments: str) -> Iterable[tuple[Fields, Fields]]:
        """K blocks for a ring of four: fewer than stages, as many, more, two rings; with and without a remainder."""
        for blocks in (0, 1, 2, 3, 4, 8):
            for rest in (0, 9):
                if blocks or rest:
                    yield self.size_fields({}, 40, 33, 16 * blocks + rest), {"stages": 4, "fragments": fragments}

    def tutorial(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        """Each size in both ways to load fragments; by ld.shared, as the tutorial's own kernel does, on its chip and on any GPU."""
        fragments = FRAGMENTS if target.arch == "sm_80" or not target.emulated else FRAGMENTS[:1]
        for name, sizes in product(fragments, TUTORIAL["m, n, k"]):
            yield self.size_fields({"dtype": "bf16"}, *sizes), {"fragments": name}

    def whole(self, target: Target) -> list[Case]:
        """On a real GPU every size. Emulated: on the tutorial's chip alone, and below 4096 cubed, which takes twenty minutes of a
        core."""
        asked = super().whole(target)
        if not target.emulated:
            return asked
        return [case for case in asked if products(vars(case.problem)) < 4096**3] if target.arch == "sm_80" else []

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        sizes = {"m": 64, "n": 64, "k": 64}
        yield from tiled_refusals(sizes, tensor_memory=False)
        yield sizes | {"dtype": "e4m3"}, {}
        yield sizes | {"b_pad": 3}, {}
        yield sizes | {"b_offset": 2}, {}
        yield sizes, {"stages": 0}
        yield sizes, {"fragments": "ld.global"}
        yield sizes, {"num_warps": 32}
        yield sizes, {"stages": 64, "block_k": 32}

    def shared_bytes(self, case: Case) -> int:
        return self.module.shared_bytes(case.config)

    def result_pad(self, problem: Fields, n: int, extra: int) -> Fields:
        return {"d_pad": 3 * extra}  # an ordinary store: no unit

    def out_format(self, problem: object) -> str:
        return "fp32"

    def coverage(self, case: Case, target: Target) -> dict[str, str | int]:
        return super().coverage(case, target) | {"fragments": case.config.fragments}

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        p, g = case.problem, case.config
        d = result_buffer(case, tensors["a"], (p.m, p.n), pad=p.d_pad, dtype="fp32")
        result = call_launcher(launcher or self.module.ampere_gemm, tensors["a"], tensors["b"], d=d, **vars(g))
        return {"c": result if d is None or launcher is not None else d}


contract = AmpereGemmContract
CONTRACT = contract(bitverdict.kernels.ampere_gemm)
