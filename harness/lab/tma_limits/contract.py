"""A point of the grid as a case of the harness, so that a fault of one is a verdict and the next is unaffected.

The contract expects the plain result at every point, legal or not: the verdict then says what was observed, and the page holds it
against the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bitverdict.harness.contracts.base.single_config import empty
from bitverdict.harness.lab.tma_limits.points import Point
from bitverdict.harness.model.case import CASE_VERSION, Case, Operand
from bitverdict.harness.model.contract import Contract, ExpectedOutput
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Basis
from bitverdict.reference import gather_scatter, tiled_copy

ADDRESS = "bitverdict.harness.lab.tma_limits.contract:CONTRACT"
MODES = ("", "iisan")


@dataclass(frozen=True, kw_only=True)
class Build:
    """How the kernel is compiled: in Triton's instrumentation mode, or as the process is set."""

    mode: str = ""


def case_of(point: Point, mode: str = "") -> Case:
    return Case(contract=ADDRESS, problem=point, config=Build(mode=mode))


class TmaLimitsContract(Contract):
    stem, address = "tma_limits", ADDRESS

    def required(self, target: Target) -> list[Case]:
        """Few: the plain launches, one that iisan names, one that it does not, and one that faults nowhere and damages."""
        chosen = [Point(operation=operation, precondition="") for operation in ("tiled load", "tiled store")]
        chosen += [replace(chosen[0], column=2), replace(chosen[1], row=-8), replace(chosen[1], columns=33, pad=7, column=32)]
        return [case_of(point) for point in chosen]

    def operands(self, case: Case) -> list[Operand]:
        """Words from 1 up: none is a padding's zero. A store's source is half as large again, so that it is told from the table."""
        p = case.problem
        kind = np.dtype(f"u{p.itemsize}")
        table = (1 + np.arange(p.rows * p.columns) % 100).astype(kind).reshape(p.rows, p.columns)
        made = [Operand(name="table", format=p.dtype, codes=table, strides=(p.columns + p.pad, 1), offset=p.offset)]
        if not p.is_tiled:
            made.append(Operand(name="row_numbers", format="int32", codes=p.row_numbers()))
        if p.stores:
            made.append(Operand(name="source", format=p.dtype, codes=self.source(p)))
        return made

    def source(self, p: Point) -> np.ndarray:
        words = 101 + np.arange(p.block_rows * p.block_columns) % 27
        return words.astype(f"u{p.itemsize}").reshape(p.block_rows, p.block_columns)

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        from triton import knobs

        p, table = case.problem, tensors["table"]
        if p.stores:  # the operand must not change: the launch gets a table of its own, guarded as an output is
            table = self.own(p, table)
            tile = tensors["source"]
        else:
            tile = empty(table, (p.block_rows, p.block_columns))
        earlier = knobs.compilation.instrumentation_mode
        knobs.compilation.instrumentation_mode = case.config.mode or earlier
        try:
            self.copy(p, table, tile, tensors)
        finally:
            knobs.compilation.instrumentation_mode = earlier
        return {"out": table if p.stores else tile}

    def own(self, p: Point, like: object) -> Any:
        """A copy of the table `like` that the launch may write."""
        if p.offset:  # rows without a gap: what lies before the first element belongs to the buffer
            table = empty(like, (1, p.offset + p.rows * (p.columns + p.pad)))[0, p.offset :].view(p.rows, -1)[:, : p.columns]
        else:
            table = empty(like, (p.rows, p.columns), pad=p.pad)
        table.copy_(like)
        return table

    def copy(self, p: Point, table: object, tile: object, tensors: Mapping) -> None:
        from bitverdict.harness.lab.tma_limits import tma_kernels

        if p.is_tiled:
            tma_kernels.launch_tiled(p.operation, table, tile, p.row, p.column, on_device=p.on_device)
        else:
            tma_kernels.by_number(p.operation, table, tile, tensors["row_numbers"], p.column)

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        p, table = case.problem, operands["table"].codes
        box = (p.block_rows, p.block_columns)
        if p.operation == "tiled load":
            words = tiled_copy.load(table, (p.row, p.column), box)
        elif p.operation == "gather":
            words = gather_scatter.gather(table, operands["row_numbers"].codes, p.column, p.block_columns)
        elif p.operation == "tiled store":
            words = tiled_copy.store(table, (p.row, p.column), self.source(p))
        else:
            words = gather_scatter.scatter(table, operands["row_numbers"].codes, p.column, self.source(p)).table
        return [ExpectedOutput(name="out", format=p.dtype, shape=words.shape, words=words, basis=Basis.EXACT)]

    def case_from_json(self, record: Mapping) -> Case:
        """Inverse of `Case.to_json`; ValueError for another version or other fields."""
        if record.get("version") != CASE_VERSION:
            raise UsageError(f"case of version {record.get('version')!r}: this checkout reads version {CASE_VERSION}")
        try:
            return case_of(Point(**record["problem"]), record["config"]["mode"])
        except (KeyError, TypeError) as error:
            raise UsageError(f"case of the TMA limits: {error}: it must have the fields of Point") from error


CONTRACT = TmaLimitsContract()
