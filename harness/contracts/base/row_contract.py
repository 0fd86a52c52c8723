"""What the contracts of kernels on rows share: sizes around a tile, layouts, operands as fp32, words in the type of the result."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from bitverdict.harness.contracts.base.single_config import Fields, KernelContract, far_pad
from bitverdict.harness.model.architectures import is_amd
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.triton_release import sums_by_tree
from bitverdict.harness.model.verdict import Basis
from bitverdict.kernels.row_tiles import DTYPES, LONGEST, block_of
from bitverdict.reference.formats import FORMATS, convert
from bitverdict.reference.row_functions import RowSum

LAYOUTS = ((4, 4), (1, 1), (8, 2), (2, 8))  # (per_thread, num_warps)
SIZES = ((1, 1), (2, 16), (3, 100), (2, 257), (1, 1030), (5, 33))  # (rows, columns)


class RowContract(KernelContract):
    """Contract of a kernel whose `Problem` has rows, columns and dtype, and whose `Config` has per_thread and num_warps."""

    conversions: frozenset[str] | None = frozenset()
    pads: tuple[str, ...] = ("x_pad",)
    """Fields of Problem: the elements that follow each row of an operand."""
    approximates: bool = False
    """The kernel takes a function whose words no public model of AMD's gives: there its outputs are held to a bound."""

    wide_regime: str = "normal"
    """The regime that stands for wide and subnormal numbers where a bound decides."""

    def has_bound(self, case: Case, target: Target) -> bool:
        """Whether `case` is held to a bound on `target`."""
        return bool(case.launcher) or (self.approximates and is_amd(target.arch))

    def required(self, target: Target) -> list[Case]:
        asked = dict.fromkeys(self._decidable(case, target) for case in super().required(target))
        return [case for case in asked if not (self.approximates and is_amd(target.arch)) or self.decides(case, target)]

    def cases(self, target: Target) -> Any:
        decidable_cases = super().cases(target).map(lambda case: self._decidable(case, target))
        return decidable_cases.filter(lambda case: not self.has_bound(case, target) or self.decides(case, target))

    def _decidable(self, case: Case, target: Target) -> Case:
        """`case` as a bound on `target` can decide it."""
        if case.launcher or not self.has_bound(case, target) or not self.expected_outcome(case, target).result:
            return case
        return self.with_regime_of_a_launcher(normal_for(case, "wide", "subnormals", by=self.wide_regime))

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        return [({"dtype": d}, {"per_thread": p, "num_warps": w}) for d in DTYPES for p, w in LAYOUTS]

    def draw_problem(self, draw: Callable, problem: Fields, config: object, target: Target) -> Fields:
        from hypothesis import strategies as st

        return problem | {"rows": draw(st.integers(0, 9)), "columns": draw(st.integers(1, 1100))} | self.draw_rest(draw)

    def draw_rest(self, draw: Callable) -> Fields:
        """Fields of Problem besides rows, columns and dtype."""
        return {}

    def listed_problems(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        pool = self.pool(target)
        for place in range(2 * len(pool)):  # each size in several types and layouts, each type in all regimes
            problem, config = pool[place % len(pool)]
            rows, columns = SIZES[(place + place // len(pool)) % len(SIZES)]
            yield problem | {"rows": rows, "columns": columns} | self.rest(place), config

    def rest(self, place: int) -> Fields:
        """Fields of Problem besides rows, columns and dtype, of the listed case at `place`."""
        return {}

    def for_launcher(self, case: Case, launcher: str) -> Case | None:
        return super().for_launcher(self.with_regime_of_a_launcher(case), launcher)

    def decides(self, case: Case, target: Target) -> bool:
        if case.regime != "planted":
            return True
        operands = {operand.name: operand for operand in self.operands(case)}
        outputs = self.expected(case, target, operands, {})
        return any(each.inconclusive is None or not each.inconclusive.size or not each.inconclusive.all() for each in outputs)

    def far_problems(self) -> Iterable[tuple[Fields, Fields]]:
        yield {"rows": 3, "columns": 40, "dtype": "bf16"} | dict.fromkeys(self.pads, far_pad(3, 40)), {}

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        yield {"rows": 2, "columns": 16, "dtype": "int32"}, {}
        yield {"rows": 2, "columns": 16}, {"per_thread": 3}
        yield {"rows": 2, "columns": 16}, {"num_warps": 32}
        yield {"rows": 2, "columns": LONGEST + 1}, {}


def normal_for(case: Case, *regimes: str, by: str = "normal") -> Case:
    """`case` with normal numbers, or those of the regime `by`, for those of `regimes`. Exponentials of wide numbers' differences
    hang on float64's last bits."""
    return dataclasses.replace(case, regime=by) if case.regime in regimes else case


def widen_to_fp32(operand: Operand, arch: str) -> np.ndarray:
    """fp32 words of an operand, as the kernel's conversion makes them."""
    codes = np.ascontiguousarray(operand.codes)
    return codes.view(np.uint32) if operand.format == "fp32" else convert(FORMATS[operand.format], FORMATS["fp32"], codes, arch)


def row_sum(columns: int, config: Any, arch: str) -> RowSum:
    """The order in which the kernel adds a row."""
    return RowSum(block_of(columns), config.per_thread, config.num_warps, int(arch.removeprefix("sm_")), chain=not sums_by_tree())


def output(name: str, words: np.ndarray, format_name: str, arch: str) -> ExpectedOutput:
    """fp32 `words`, rounded once to the format of the output."""
    found = words if format_name == "fp32" else convert(FORMATS["fp32"], FORMATS[format_name], words, arch)
    return ExpectedOutput(name=name, format=format_name, shape=found.shape, words=found, basis=Basis.WORDS, any_nan=is_amd(arch))
