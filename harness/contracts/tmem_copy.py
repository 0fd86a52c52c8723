"""What `kernels/tmem_copy.py` expects: its source, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

import bitverdict.kernels.tmem_copy
from bitverdict.harness.contracts.base.single_config import Fields, KernelContract, call_launcher, drawn_operand
from bitverdict.harness.contracts.inputs.all_codes import ALL_CODES
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import ExpectedOutput, PromisedInstruction
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Basis
from bitverdict.kernels.element_types import bits_of

TUTORIAL: dict[str, Any] = {"m": (64, 128, 256), "n": (64, 128), "num_warps": (4, 8)}


class TmemCopyContract(KernelContract):
    parameters = "(source, *, num_warps=4, block_m=64, block_n=64, packed=False, atom='32x32b', parts=1, filled_by='tcgen05.st')"

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        tiles = [
            (64, 64, 64, 64),
            (128, 64, 64, 32),
            (128, 128, 128, 64),
            (256, 32, 128, 32),
            (64, 16, 64, 16),
            (256, 64, 64, 64),
            (128, 256, 128, 128),
            (64, 8, 64, 8),
        ]
        made = [
            ({"dtype": dtype, "m": m, "n": n}, {"block_m": bm, "block_n": bn, "num_warps": warps, "packed": packed})
            for (m, n, bm, bn), dtype, warps, packed in product(tiles, bitverdict.kernels.tmem_copy.DTYPES, (4, 8), (False, True))
        ]
        return [special for special in made if self.legal(*special)]

    def legal(self, problem: Fields, config: Fields) -> bool:
        wide = problem["dtype"] in ("fp32", "int32")
        return not (wide and config["packed"])

    def draw_problem(self, draw: Callable, problem: Fields, config: object, target: Target) -> Fields:
        return {}

    def listed_problems(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        yield {"m": 64, "n": 64}, {"block_n": 32}  # two blocks of 64 rows share their columns
        yield from self.pool(target)[::9]  # 28 of a tile: a step that meets each type, packed and not
        for m, n, warps in product(*TUTORIAL.values()):  # twelve, so each regime twice: the tutorial's own is normal
            yield {"m": m, "n": n}, {"num_warps": warps}
        # all columns, as blocks of 64 rows share them
        yield {"m": 128, "n": 512, "dtype": "fp16"}, {"block_m": 64, "block_n": 256, "num_warps": 8}

    def covering_problems(self, target: Target) -> Iterable[tuple[Fields, Fields, str]]:
        for place, dtype in enumerate(dtype for dtype in self.module.DTYPES if bits_of(dtype) == 8):
            yield {"m": 64, "n": 16, "dtype": dtype}, {"block_n": 16, "packed": place % 2 == 1}, ALL_CODES

    def tutorial(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        for m, n, warps in product(*TUTORIAL.values()):
            yield {"m": m, "n": n}, {"num_warps": warps}

        for m, n, bm, bn in ((128, 64, 128, 32), (64, 64, 64, 32), (128, 64, 64, 16), (256, 64, 64, 32), (256, 64, 128, 32)):
            for place, atom in enumerate(self.module.ATOMS):
                config = {"block_m": bm, "block_n": bn, "atom": atom, "num_warps": (4, 8)[place % 2]}
                yield {"m": m, "n": n, "dtype": ("fp32", "int32")[place % 2]}, config | {"parts": (1, 2)[(place + m // 64) % 2]}
        for n, warps, atom, parts in ((32, 4, "32x32b", 1), (64, 8, "16x256b", 2), (16, 4, "16x64b", 1)):
            copied = {"block_m": 128, "block_n": 16, "num_warps": warps, "atom": atom, "parts": parts, "filled_by": "tcgen05.cp"}
            yield {"m": 128, "n": n, "dtype": "int32" if parts > 1 else "fp32"}, copied

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        yield {"m": 64, "n": 64}, {"num_warps": 2}
        yield {"m": 64, "n": 64}, {"block_m": 32}
        yield {"m": 64, "n": 64}, {"block_n": 48}
        yield {"m": 96, "n": 64}, {}
        yield {"m": 64, "n": 64}, {"atom": "16x32bx2"}
        yield {"m": 64, "n": 64}, {"parts": 3}
        yield {"m": 64, "n": 64}, {"filled_by": "tcgen05.cp"}
        yield {"m": 256, "n": 512}, {"block_m": 128, "block_n": 128}
        yield {"m": 256, "n": 512}, {"block_m": 64, "block_n": 64}  # two blocks share columns, and still too many

    def operands(self, case: Case) -> list[Operand]:
        return [drawn_operand(case, "source", case.problem.dtype, (case.problem.m, case.problem.n))]

    def coverage(self, case: Case, target: Target) -> dict[str, str | int]:
        return super().coverage(case, target) | {"filled by": case.config.filled_by, "atom": case.config.atom}

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        run = launcher or self.module.tmem_copy
        return {"destination": call_launcher(run, tensors["source"], **vars(case.config))}

    def promised_instructions(self, case: Case) -> tuple[PromisedInstruction, ...]:
        filled_by, parts = case.config.filled_by, case.config.parts
        copied = filled_by == "tcgen05.cp"
        return (
            PromisedInstruction("ttng.tmem_copy", int(copied), f"filled_by={filled_by}"),
            PromisedInstruction("ttng.tmem_store", 0 if copied else parts, f"filled_by={filled_by}, parts={parts}"),
            PromisedInstruction("ttng.tmem_load", parts, f"parts={parts}"),
            PromisedInstruction("programs", 1, "a tile"),
        )

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        source = operands["source"]
        return [
            ExpectedOutput(
                name="destination",
                format=source.format,
                shape=source.codes.shape,
                words=source.codes,
                tile=(case.config.block_m, case.config.block_n),
                basis=Basis.EXACT,
            )
        ]


contract = TmemCopyContract
CONTRACT = contract(bitverdict.kernels.tmem_copy)
