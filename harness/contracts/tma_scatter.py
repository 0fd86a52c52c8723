"""What `kernels/tma_scatter.py` expects: the table with the source's rows in it, every other word as it was, and an illegal
instruction for a negative row, which no launcher can see, and for columns that the launcher was told to let through."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

import bitverdict.kernels.tma_scatter
from bitverdict.harness.contracts.base.promised_work import cdiv
from bitverdict.harness.contracts.base.row_indices import ROW_KINDS, SPAN_KIND, distinct
from bitverdict.harness.contracts.base.single_config import Fields, call_launcher, drawn_operand, empty, far_pad
from bitverdict.harness.contracts.oracle import shared_mathematics
from bitverdict.harness.contracts.tma_gather import TmaGatherContract, clauses, is_unchecked
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import ExpectedOutcome, ExpectedOutput, IndexList, PromisedInstruction
from bitverdict.harness.model.launcher_limits import read_claims
from bitverdict.harness.model.mathematics import Mathematics
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Basis
from bitverdict.kernels.element_types import bits_of

if TYPE_CHECKING:
    from bitverdict.reference.gather_scatter import ScatterResult

WAIVES = {"distinct rows": "row numbers that come twice"}
"""What a user's launcher may say that it is never given."""
TUTORIAL: dict[str, Any] = {
    "dtype": ("bf16", "fp32"),
    "block_x": (8, 128),
    "block_y": (16, 128),
    "column_offset": (0, 48, 1000),
    "table": ((1024, 1024),),
}


class TmaScatterContract(TmaGatherContract):
    parameters = "(table, row_offsets, column_offset, source, block_x, block_y, *, num_warps=4)"
    either_row = True
    waives = WAIVES
    tutorial_parameters = TUTORIAL

    def for_launcher(self, case: Case, launcher: str) -> Case | None:
        """As of any launcher; one that claims "distinct rows" is given each row at most once."""
        launcher_case = super().for_launcher(case, launcher)
        if launcher_case is None or "distinct rows" not in read_claims(launcher, (*self.claims, *WAIVES)):
            return launcher_case
        values, _, rows = launcher_case.regime.partition("/")
        if launcher_case.indices:
            once = tuple((name, distinct(numbers, launcher_case.problem.table_rows)) for name, numbers in launcher_case.indices)
            return dataclasses.replace(launcher_case, indices=once)
        return dataclasses.replace(launcher_case, regime=f"{values}/permuted") if rows in (*ROW_KINDS, SPAN_KIND) else launcher_case

    def columns(self, drawn: int, unit: int) -> int:
        return drawn if drawn % 8 == 0 else -(-drawn // unit) * unit  # rows that end inside a unit are refused

    def source_fields(self, seed: int) -> Fields:
        return {"source_pad": 5 * (seed % 2)}  # an ordinary load: no unit

    def far_problems(self) -> Iterable[tuple[Fields, Fields]]:
        for table, block in super().far_problems():
            yield table | {"source_pad": far_pad(table["offsets"], block["block_y"])}, block

    def result_bytes(self, case: Case) -> int:
        p = case.problem
        return (p.table_rows - 1) * (p.table_columns + p.table_pad) * bits_of(p.dtype) // 8

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        yield {"table_rows": 9, "table_columns": 61, "offsets": 8, "table_pad": 3}, {"block_x": 8, "block_y": 64}
        yield from super().refusals(target)
        yield {"table_rows": 9, "table_columns": 64, "offsets": 8, "column_offset": -16}, {"block_x": 8, "block_y": 64}

    def faulting_fields(self) -> Iterable[Fields]:
        yield from super().faulting_fields()
        yield {"column_offset": -8}
        yield {"column_offset": -64}  # as wide as the block: nothing of it lies inside, and it traps all the same

    def required(self, target: Target) -> list[Case]:
        negative = self.case(
            {"table_rows": 9, "table_columns": 64, "offsets": 8}, {"block_x": 8, "block_y": 64}, regime="normal/negative"
        )
        return [*super().required(target), negative]

    def expected_outcome(self, case: Case, target: Target) -> ExpectedOutcome:
        expected_outcome = super().expected_outcome(case, target)
        if expected_outcome.result and self.scatters_below_zero(case):
            return self.fault(case, target) or expected_outcome
        return expected_outcome

    def index_lists(self, case: Case) -> tuple[IndexList, ...]:
        return (IndexList("row_offsets", "offsets", "table_rows", (case.config or self.module.Config()).block_x),)

    def operands(self, case: Case) -> list[Operand]:
        p, c = case.problem, case.config
        return [
            drawn_operand(case, "table", p.dtype, (p.table_rows, p.table_columns), pad=p.table_pad, offset=p.table_offset),
            *self.row_operands(case),
            drawn_operand(case, "source", p.dtype, (p.offsets, c.block_y), pad=p.source_pad),
        ]

    def promised_instructions(self, case: Case) -> tuple[PromisedInstruction, ...]:
        p, c = case.problem, case.config
        return (PromisedInstruction("programs", cdiv(p.offsets, c.block_x), f"block_x={c.block_x}"),)

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        p, c = case.problem, case.config
        table = tensors["table"]
        if not p.table_offset:  # the operand must not change: the launch gets a table of its own, guarded as an output is
            table = empty(table, (p.table_rows, p.table_columns), pad=p.table_pad)
            table.copy_(tensors["table"])
        with clauses(self.module, asked=not is_unchecked(case)):
            call_launcher(
                launcher or self.module.tma_scatter,
                table,
                tensors["row_offsets"],
                p.column_offset,
                tensors["source"],
                c.block_x,
                c.block_y,
                num_warps=c.num_warps,
            )
        return {"table": table}

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        from bitverdict.reference.gather_scatter import scatter

        p, c = case.problem, case.config
        scatter_result = scatter(operands["table"].codes, operands["row_offsets"].codes, p.column_offset, operands["source"].codes)
        return [
            ExpectedOutput(
                name="table",
                format=p.dtype,
                shape=scatter_result.table.shape,
                words=scatter_result.table,
                inconclusive=several_writers(scatter_result),
                tile=(1, c.block_y),
                basis=Basis.EXACT,
            )
        ]

    def mathematics(self, case: Case, operands: Mapping[str, Operand]) -> Mathematics:
        values = {
            "table": shared_mathematics.decode_operand(operands["table"]),
            "row_offsets": operands["row_offsets"].codes.astype(np.int64),
            "columns": case.problem.column_offset + np.arange(case.config.block_y),  # (width,)
            "source": shared_mathematics.decode_operand(operands["source"]),
        }
        return Mathematics(function=shared_mathematics.scatter_rows, operands=values, outputs=("table",))


def several_writers(scatter_result: ScatterResult) -> np.ndarray:
    """(table rows, columns) True where two writers of one element bring different words: either may stay."""
    inconclusive = np.zeros(scatter_result.table.shape, bool)  # (table rows, columns)
    block = slice(scatter_result.first_column, scatter_result.first_column + scatter_result.words.shape[1])
    bits = scatter_result.words.view(f"u{scatter_result.words.dtype.itemsize}")  # (writers, columns that land)
    for row in scatter_result.repeated_rows:
        writers = bits[scatter_result.rows == row]  # (writers of this row, columns that land)
        inconclusive[row, block] = (writers != writers[0]).any(axis=0)
    return inconclusive


contract = TmaScatterContract
CONTRACT = contract(bitverdict.kernels.tma_scatter)
