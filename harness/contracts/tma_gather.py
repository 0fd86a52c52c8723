"""What `kernels/tma_gather.py` expects: the rows asked for, bit for bit, and zeros for what lies outside the table.

A case whose regime ends in ``/unchecked`` is launched past the launcher's clauses: there the hardware's own answer is expected, the
fault by name that `bitverdict.reference.gather_scatter` says; a launch that does not trap is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np

import bitverdict.kernels.tma_gather
from bitverdict.harness.contracts.base.row_indices import MISALIGNMENT_PERIOD, SPAN_KIND, RowsContract, under_iisan
from bitverdict.harness.contracts.base.single_config import Fields, aligned_pad, call_launcher, drawn_operand, empty, far_pad
from bitverdict.harness.contracts.inputs.all_codes import ALL_CODES
from bitverdict.harness.contracts.oracle import shared_mathematics
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import ExpectedOutcome, ExpectedOutput, IndexList
from bitverdict.harness.model.mathematics import Mathematics
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Basis
from bitverdict.kernels.element_types import bits_of

UNCHECKED_SUFFIX = "unchecked"  # behind a regime: the launcher's clauses are not asked
MOST_TABLE_ROWS = 70  # of a drawn case
MOST_BLOCKS = 8  # of a drawn case: up to 1024 row numbers
TUTORIAL: dict[str, Any] = {
    "dtype": ("bf16", "fp32"),
    "block_x": (8, 128),
    "block_y": (16, 128),
    "column_offset": (-16, 0, 48, 1000),
    "table": ((1024, 1024),),
}


class TmaGatherContract(RowsContract):
    parameters = "(table, row_offsets, column_offset, block_x, block_y, *, num_warps=4)"
    signed_fields = frozenset({"column_offset"})
    rows_of = MappingProxyType({"table_pad": ("table_rows", "table_columns")})
    tutorial_regime = f"normal/{SPAN_KIND}"
    tutorial_parameters = TUTORIAL

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        blocks = [(8, 32, 4), (16, 64, 8), (32, 128, 1), (64, 32, 2), (128, 64, 4), (8, 256, 4)]
        dtypes = ("bf16", "fp32", "fp16", "e4m3", "e5m2", "int8", "int16", "int32")
        return [
            ({"dtype": dtype}, dict(zip(("block_x", "block_y", "num_warps"), blocks[(place + shift) % len(blocks)], strict=True)))
            for place, dtype in enumerate(dtypes)
            for shift in (0, 2)
        ]

    def draw_problem(self, draw: Callable, problem: Fields, config: Any, target: Target) -> Fields:
        from hypothesis import strategies as st

        unit = 128 // bits_of(problem["dtype"])
        columns = self.columns(draw(st.integers(1, 3 * config.block_y)), unit)
        low = 0 if self.stem == "tma_scatter" else -2 * config.block_y // unit
        return {
            "table_rows": draw(st.integers(1 if self.stem == "tma_gather" else 12, MOST_TABLE_ROWS)),
            "table_columns": columns,
            "offsets": draw(st.integers(1, 2 * config.block_x + 1) | st.integers(1, MOST_BLOCKS * config.block_x)),
            "column_offset": unit * draw(st.integers(low, (columns + config.block_y) // unit)) + off_the_boundary(draw, unit),
            "table_pad": aligned_pad(columns, problem["dtype"], draw(st.integers(0, 1))),
        } | self.source_fields(config.block_y)

    def most_rows(self, config: Any) -> int:
        return max(MOST_TABLE_ROWS, MOST_BLOCKS * config.block_x)

    def columns(self, drawn: int, unit: int) -> int:
        """Columns of a table, `drawn` or near it; `unit` columns are 16 bytes."""
        return drawn

    def source_fields(self, seed: int) -> Fields:
        """Fields of the operand that only a scatter has."""
        return {}

    def listed_problems(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        for place, (problem, config) in enumerate(self.pool(target)):
            unit = 128 // bits_of(problem["dtype"])
            columns = self.columns(config["block_y"] + 3 * place % 11 + 1, unit)
            steps = (0, 1, 2, -1, columns // unit + 1)[place % 5]  # in units of 16 bytes; the last begins past the end
            if self.stem == "tma_scatter":
                steps = abs(steps)
            yield (
                problem
                | {
                    "table_rows": 1 + 7 * place,
                    "table_columns": columns,
                    "offsets": config["block_x"] + (-3, 0, 5)[place % 3],
                    "column_offset": unit * steps,
                    "table_pad": aligned_pad(columns, problem["dtype"], place % 2),
                }
                | self.source_fields(place),
                config,
            )

    def tutorial(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        for dtype, x, y, column, table in product(*self.tutorial_parameters.values()):
            yield self.stored_case(dtype, x, y, column, table)

    def stored_case(self, dtype: str, block_x: int, block_y: int, column_offset: int, table: tuple) -> tuple[Fields, Fields]:
        return (
            {"dtype": dtype, "table_rows": table[0], "table_columns": table[1], "offsets": block_x, "column_offset": column_offset},
            {"block_x": block_x, "block_y": block_y},
        )

    def covering_problems(self, target: Target) -> Iterable[tuple[Fields, Fields, str]]:
        of_types = {problem["dtype"]: config for problem, config in reversed(self.pool(target))}
        for dtype, config in of_types.items():
            if bits_of(dtype) == 8:
                sizes = {"table_rows": 16, "table_columns": config["block_y"], "offsets": 16} | self.source_fields(16)
                yield {"dtype": dtype} | sizes, config, f"{ALL_CODES}/permuted"

    def far_problems(self) -> Iterable[tuple[Fields, Fields]]:
        rows, columns = 12, 64
        table = {"table_rows": rows, "table_columns": columns, "offsets": rows, "table_pad": far_pad(rows, columns)}
        result = {"gathered_pad": far_pad(rows, 32)} if self.stem == "tma_gather" else {}
        yield table | result, {"block_x": 8, "block_y": 32}

    def result_bytes(self, case: Case) -> int:
        p = case.problem
        return (p.offsets - 1) * (case.config.block_y + p.gathered_pad) * bits_of(p.dtype) // 8

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        table = {"table_rows": 9, "table_columns": 64, "offsets": 8}
        block = {"block_x": 8, "block_y": 64}
        yield table | {"column_offset": 2}, block
        yield table | {"column_offset": 1, "dtype": "fp32"}, block
        yield table | {"offsets": 0}, block
        yield table, block | {"block_x": 4}
        yield table, block | {"block_y": 8}
        yield table, block | {"block_x": 24}
        yield table, block | {"num_warps": 16}
        yield table, {"block_x": 1024, "block_y": 256}
        yield table | {"table_pad": 1}, block
        yield table | {"table_offset": 1}, block

    def faulting_fields(self) -> Iterable[Fields]:
        """Columns that the launcher refuses, and the hardware traps on."""
        yield {"column_offset": 2}
        yield {"column_offset": 1, "dtype": "fp32"}
        yield {"column_offset": -24, "dtype": "e4m3"}

    def required(self, target: Target) -> list[Case]:
        table, block = {"table_rows": 9, "table_columns": 64, "offsets": 8}, {"block_x": 8, "block_y": 64}
        past = [
            self.case(table | changed, block, regime=f"normal/{UNCHECKED_SUFFIX}", data_seed=place)
            for place, changed in enumerate(self.faulting_fields())
        ]
        sizes = table | {"table_rows": 1, "table_pad": 1 - table["table_columns"]}
        one_row = self.case(sizes, self.pool(target)[0][1], regime=self.regime(0), data_seed=7)
        return [*super().required(target), one_row, *past]

    def expected_outcome(self, case: Case, target: Target) -> ExpectedOutcome:
        if not is_unchecked(case):
            return super().expected_outcome(case, target)
        return self.fault(case, target) or ExpectedOutcome()

    def fault(self, case: Case, target: Target) -> ExpectedOutcome | None:
        """The fault that the hardware expects for the case's offsets, under iisan the assertion instead of it; None: a result."""
        from bitverdict.reference.gather_scatter import Request, fault
        from bitverdict.reference.tiled_copy import Direction

        p, c = case.problem, case.config
        direction = Direction.LOAD if self.stem == "tma_gather" else Direction.STORE
        rows = self.row_operands(case)[0].codes  # (offsets,)
        hardware_fault = fault(
            Request(direction, c.block_x, c.block_y, bits_of(p.dtype) // 8, target.arch), rows, p.column_offset, iisan=under_iisan()
        )
        return (
            None
            if hardware_fault is None
            else ExpectedOutcome(result=False, outcome=hardware_fault.outcome, layer="hardware", reason=hardware_fault.reason)
        )

    def index_lists(self, case: Case) -> tuple[IndexList, ...]:
        return (IndexList("row_offsets", "offsets", "table_rows"),)

    def operands(self, case: Case) -> list[Operand]:
        p = case.problem
        return [
            drawn_operand(case, "table", p.dtype, (p.table_rows, p.table_columns), pad=p.table_pad, offset=p.table_offset),
            *self.row_operands(case),
        ]

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        p, c = case.problem, case.config
        own = {}
        if launcher is None and p.gathered_pad:
            own["gathered"] = empty(tensors["table"], (p.offsets, c.block_y), pad=p.gathered_pad)
        with clauses(self.module, asked=not is_unchecked(case)):
            result = call_launcher(
                launcher or self.module.tma_gather,
                tensors["table"],
                tensors["row_offsets"],
                p.column_offset,
                c.block_x,
                c.block_y,
                num_warps=c.num_warps,
                **own,
            )
        return {"gathered": result}

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        from bitverdict.reference.gather_scatter import gather

        p, c = case.problem, case.config
        words = gather(operands["table"].codes, operands["row_offsets"].codes, p.column_offset, c.block_y)
        return [
            ExpectedOutput(
                name="gathered",
                format=p.dtype,
                shape=(p.offsets, c.block_y),
                words=words,
                tile=(c.block_x, c.block_y),
                basis=Basis.EXACT,
            )
        ]

    def mathematics(self, case: Case, operands: Mapping[str, Operand]) -> Mathematics:
        p = case.problem
        values = {
            "table": shared_mathematics.decode_operand(operands["table"]),
            "row_offsets": operands["row_offsets"].codes.astype(np.int64),
            "columns": p.column_offset + np.arange(case.config.block_y),  # (width,)
        }
        return Mathematics(function=shared_mathematics.gather_rows, operands=values, outputs=("gathered",))


def off_the_boundary(draw: Callable, unit: int) -> int:
    """Columns past a boundary of 16 bytes (`unit` columns): 0, but once in `MISALIGNMENT_PERIOD`, to be refused."""
    from hypothesis import strategies as st

    return (
        draw(st.integers(1, unit - 1))
        if unit > 1 and draw(st.integers(0, MISALIGNMENT_PERIOD - 1)) == MISALIGNMENT_PERIOD - 1
        else 0
    )


def is_unchecked(case: Case) -> bool:
    """Whether the kernel's own launcher is to let the case through; a user's launcher decides for itself."""
    return case.regime.endswith(f"/{UNCHECKED_SUFFIX}") and not case.launcher


@contextmanager
def clauses(module: ModuleType, *, asked: bool) -> Iterator[None]:
    """The launcher of `module` asks its clauses or, inside, does not."""
    names = vars(module)
    saved_require = names["require"]
    if not asked:
        names["require"] = lambda *_: None
    try:
        yield
    finally:
        names["require"] = saved_require


contract = TmaGatherContract
CONTRACT = contract(bitverdict.kernels.tma_gather)
