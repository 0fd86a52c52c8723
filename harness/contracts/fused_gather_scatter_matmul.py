"""What `kernels/fused_gather_scatter_matmul.py` expects: gathered rows times W, one chain of tcgen05, converted once and scattered;
rows that no number names as they were. Of a user's launcher the product is held to the derived bound."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np

import bitverdict.kernels.fused_gather_scatter_matmul
from bitverdict.harness.contracts.base.promised_work import cdiv, of_schedule, promise_count
from bitverdict.harness.contracts.base.row_indices import RowsContract, under_iisan
from bitverdict.harness.contracts.base.single_config import (
    BUDGET,
    Fields,
    aligned_pad,
    call_launcher,
    chain_of,
    drawn_operand,
    empty,
    far_pad,
    multiply_words,
)
from bitverdict.harness.contracts.inputs import strategies
from bitverdict.harness.contracts.inputs.all_codes import ALL_CODES, PAIRS
from bitverdict.harness.contracts.oracle.dot_lowering import words_rest_on
from bitverdict.harness.contracts.oracle.gemm_bound import bounded_product, has_model, launched_instructions, product_opinion
from bitverdict.harness.contracts.tma_scatter import several_writers
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import ExpectedOutcome, ExpectedOutput, IndexList, PromisedInstruction
from bitverdict.harness.model.targets import Target
from bitverdict.kernels.element_types import bits_of

MOST_TABLE_ROWS = 200  # of a drawn case
MOST_BLOCKS = 4  # of a drawn case, in M
TUTORIAL: dict[str, Any] = {
    "m, n, k": ((1024, 1024, 2048), (4096, 4096, 4096)),
    "block_m, block_n": ((128, 128), (128, 64)),
    "block_k, num_buffers": ((128, 2), (64, 3)),
}


class FusedContract(RowsContract):
    conversions = frozenset()
    parameters = "(x, gather, w, scatter, block_m, block_n, block_k, group_size_m, num_buffers, *, out, num_warps=4, programs=0)"
    product_by = "tcgen05"
    either_row = True
    tutorial_regime = "normal/permuted"

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        tiles = [(64, 32, 32, 2, 2), (128, 64, 32, 1, 3), (64, 64, 64, 8, 4), (64, 32, 32, 3, 3)]
        names = ("block_m", "block_n", "block_k", "group_size_m", "num_buffers")
        forms = product(("bf16", "fp16", "e4m3", "e5m2"), (4, 8))
        return [
            (
                {"dtype": dtype},
                dict(zip(names, tiles[(place + shift) % 4], strict=True)) | {"num_warps": warps, "programs": 1 + place % 4},
            )
            for place, (dtype, warps) in enumerate(forms)
            for shift in (0, 1)
        ]

    def draw_problem(self, draw: Callable, problem: Fields, config: Any, target: Target) -> Fields:
        from hypothesis import strategies as st

        tile = (config.block_m, config.block_n, config.block_k)
        sizes = [draw(st.integers(1, count * t)) for count, t in zip((MOST_BLOCKS, 3, 4), tile, strict=True)]
        rows, n, k = strategies.within(sizes, tile, BUDGET)
        return self.size_fields(
            problem,
            max(rows, 1),
            max(n, 1),
            max(k, 1),
            draw(st.integers(1, MOST_TABLE_ROWS)),
            draw(st.integers(12, MOST_TABLE_ROWS)),
            draw(st.integers(0, 1)),
        )

    def most_rows(self, config: Any) -> int:
        return max(MOST_TABLE_ROWS, MOST_BLOCKS * config.block_m)

    def size_fields(self, problem: Fields, rows: int, n: int, k: int, table_rows: int, out_rows: int, extra: int = 0) -> Fields:
        dtype = problem.get("dtype", "bf16")
        return problem | {
            "rows": rows,
            "n": n,
            "k": k,
            "table_rows": table_rows,
            "out_rows": out_rows,
            "x_pad": aligned_pad(k, dtype, extra),
            "w_pad": aligned_pad(n, dtype, extra),
            "out_pad": aligned_pad(n, dtype, extra),
        }

    def listed_problems(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        small_config = {"block_m": 64, "block_n": 32, "block_k": 32, "programs": 2}
        yield self.size_fields({}, 1, 1, 1, 1, 20), small_config  # sizes of one are constants to the compiler, where it is let
        for buffers, blocks in product((2, 3, 4), (1, 2, 3, 5)):  # K blocks: fewer than are loaded ahead, as many, more
            tables = (150, 150) if (buffers, blocks) == (2, 5) else (90, 170)  # permuted: every row of out is named
            yield (
                self.size_fields({}, 150, 40, 32 * blocks - 3 * (blocks % 2), *tables),
                small_config | {"num_buffers": buffers, "group_size_m": 2},
            )
        for place, (problem, config) in enumerate(self.pool(target)):
            rows = config["block_m"] * (1 + place % 4) + (-1, 0, 1, 7)[place % 4]
            yield (
                self.size_fields(
                    problem,
                    rows,
                    config["block_n"] * (1 + place % 3) + place % 2,
                    config["block_k"] * (1 + place % 5) - place % 2,
                    1 + 31 * place % 140,
                    40 + 57 * place % 150,
                    place % 2,
                ),
                config,
            )

    def tutorial(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        for (m, n, k), (block_m, block_n), (block_k, buffers) in product(*TUTORIAL.values()):
            config = {"block_m": block_m, "block_n": block_n, "block_k": block_k, "num_buffers": buffers}
            yield self.size_fields({}, m, n, k, m, m), config

    def cut(self, problem: Fields, config: Fields) -> Fields:
        sizes, tile = (problem["rows"], problem["n"], problem["k"]), (config["block_m"], config["block_n"], config["block_k"])
        m, n, k = strategies.within(sizes, tile, 4 * BUDGET)
        return self.size_fields({}, m, n, k, m, m)

    def covering_problems(self, target: Target) -> Iterable[tuple[Fields, Fields, str]]:
        pool = sorted(self.pool(target), key=lambda special: special[1]["block_m"] * special[1]["block_n"])
        of_types = {problem["dtype"]: (problem, config) for problem, config in pool}  # the last of each: in the fewest programs
        for dtype, (problem, config) in of_types.items():
            if bits_of(dtype) == 8:
                yield self.size_fields(problem, 256, 256, 33, 256, 288), config, f"{PAIRS}/permuted"

    def far_problems(self) -> Iterable[tuple[Fields, Fields]]:
        rows, n, k = 12, 32, 32
        sizes = {"table_rows": rows, "rows": rows, "out_rows": rows, "n": n, "k": k}
        pads = {"x_pad": far_pad(rows, k), "w_pad": far_pad(k, n), "out_pad": far_pad(rows, n)}
        yield sizes | pads, {"block_m": 64, "block_n": 32, "block_k": 32}

    def result_bytes(self, case: Case) -> int:
        p = case.problem
        return (p.out_rows - 1) * (p.n + p.out_pad) * bits_of(p.dtype) // 8

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        sizes = {"table_rows": 64, "rows": 64, "out_rows": 64, "n": 64, "k": 64}
        yield sizes | {"dtype": "fp32"}, {}
        yield sizes, {"block_m": 32}
        yield sizes, {"block_n": 48}
        yield sizes, {"block_k": 8}
        yield sizes, {"block_n": 8}
        yield sizes | {"rows": 0}, {}
        yield sizes, {"num_warps": 2}
        yield sizes, {"num_buffers": 1}
        yield sizes, {"group_size_m": 0}
        yield sizes, {"num_buffers": 8}
        yield sizes | {"x_pad": 1}, {}
        yield sizes | {"x_offset": 1}, {}

    def required(self, target: Target) -> list[Case]:
        sizes = self.size_fields({}, 20, 32, 32, 20, 20)
        return [
            *super().required(target),
            self.case(sizes, {"block_m": 64, "block_n": 32, "block_k": 32}, regime="normal/negative"),
        ]

    def promised_instructions(self, case: Case) -> tuple[PromisedInstruction, ...]:
        """As many blocks of K as are loaded ahead, at least."""
        p, c = case.problem, case.config
        tiles = cdiv(p.rows, c.block_m) * cdiv(p.n, c.block_n)
        products = promise_count("ttng.tc_gen5_mma", tiles * max(cdiv(p.k, c.block_k), c.num_buffers - 1))
        return (products, *of_schedule(c, tiles, "grouped"))

    def expected_outcome(self, case: Case, target: Target) -> ExpectedOutcome:
        expected_outcome = super().expected_outcome(case, target)
        if expected_outcome.result and self.scatters_below_zero(case):
            return self.fault(case, target) or expected_outcome
        return expected_outcome

    def fault(self, case: Case, target: Target) -> ExpectedOutcome | None:
        """The fault that the hardware expects of the scatter, under iisan the assertion instead of it; None: a result."""
        from bitverdict.reference.gather_scatter import Request, fault
        from bitverdict.reference.tiled_copy import Direction

        c = case.config or self.module.Config()
        _, scattered_to = self.row_operands(case)  # (rows,) each
        request = Request(Direction.STORE, c.block_m, c.block_n, bits_of(case.problem.dtype) // 8, target.arch)
        found = fault(request, scattered_to.codes, 0, iisan=under_iisan())
        return (
            None if found is None else ExpectedOutcome(result=False, outcome=found.outcome, layer="hardware", reason=found.reason)
        )

    def for_launcher(self, case: Case, launcher: str) -> Case | None:
        return super().for_launcher(self.with_regime_of_a_launcher(case), launcher)

    def index_lists(self, case: Case) -> tuple[IndexList, ...]:
        return (
            IndexList("gather", "rows", "table_rows"),
            IndexList("scatter", "rows", "out_rows", (case.config or self.module.Config()).block_m),
        )

    def operands(self, case: Case) -> list[Operand]:
        p = case.problem
        beside = dataclasses.replace(case, regime=ALL_CODES) if case.regime.startswith(PAIRS) else case  # rows where nothing lands
        return [
            drawn_operand(case, "x", p.dtype, (p.table_rows, p.k), pad=p.x_pad, offset=p.x_offset, side="a"),
            drawn_operand(case, "w", p.dtype, (p.k, p.n), pad=p.w_pad, side="b", k_axis=0),
            drawn_operand(beside, "out", p.dtype, (p.out_rows, p.n), pad=p.out_pad),
            *self.row_operands(case),
        ]

    def result_tensor(self, case: Case, tensors: Mapping) -> Any:
        """The result that the launcher is handed, with what it holds before. None, so that it allocates one, where that has the
        size asked for and every row is named: never to a launcher of another's."""
        p = case.problem
        if not (case.launcher or p.out_pad) and p.out_rows == p.table_rows:
            targets = tensors["scatter"].cpu().numpy()  # (rows,)
            if not np.setdiff1d(np.arange(p.out_rows), targets).size:
                return None
        out = empty(tensors["out"], (p.out_rows, p.n), pad=p.out_pad)
        return out.copy_(tensors["out"])

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        g = case.config
        result = call_launcher(
            launcher or self.module.fused_gather_scatter_matmul,
            tensors["x"],
            tensors["gather"],
            tensors["w"],
            tensors["scatter"],
            g.block_m,
            g.block_n,
            g.block_k,
            g.group_size_m,
            g.num_buffers,
            out=self.result_tensor(case, tensors),
            num_warps=g.num_warps,
            programs=g.programs,
        )
        return {"out": result}

    def factors(self, case: Case, operands: Mapping[str, Operand]) -> tuple[np.ndarray, np.ndarray]:
        from bitverdict.reference.gather_scatter import gather

        return gather(operands["x"].codes, operands["gather"].codes, 0, case.problem.k), operands["w"].codes.T

    def scattered_to(self, case: Case, codes: np.ndarray) -> np.ndarray:
        """(rows,) row numbers of `out` as they count for what is expected; none is negative where a result is."""
        return codes

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        from bitverdict.reference.gather_scatter import gather, scatter

        p, g = case.problem, case.config
        targets = self.scattered_to(case, operands["scatter"].codes)  # (rows,)
        gathered_rows = gather(operands["x"].codes, operands["gather"].codes, 0, p.k)  # (rows, k)
        product = SimpleNamespace(m=p.rows, n=p.n, k=p.k, dtype=p.dtype, out=p.dtype, activation="")
        if case.launcher or not has_model(target.arch):  # whose order, or whose step, nobody knows
            due = bounded_product(
                product, gathered_rows, operands["w"].codes, target.arch, launched_kinds=launched_instructions(recorded)
            )
            return [scatter_bound(due, operands["out"].codes, targets)]
        words = multiply_words(target.arch, self.product_by, p.dtype, p.dtype, gathered_rows, operands["w"].codes)  # (rows, n)
        scatter_result = scatter(operands["out"].codes, targets, 0, words)
        return [
            ExpectedOutput(
                name="out",
                format=p.dtype,
                shape=(p.out_rows, p.n),
                words=scatter_result.table,
                inconclusive=several_writers(scatter_result),
                tile=(1, g.block_n),
                k_block=g.block_k,
                basis=words_rest_on(chain_of(target.arch, self.product_by, p.dtype)),
                opinion=product_opinion(product, words, gathered_rows, operands["w"].codes, target.arch, self.product_by),
            )
        ]


def scatter_bound(bound: ExpectedOutput, table: np.ndarray, row_numbers: np.ndarray) -> ExpectedOutput:
    """`due` (rows, n) scattered into `table` (out_rows, n): the table's words where no row lands, the interval where one does.
    Where several rows land that do not bring the same, nothing is decided: either may stay."""
    from bitverdict.reference.formats import FORMATS, decode
    from bitverdict.reference.gather_scatter import scatter

    numbers = np.arange(len(row_numbers))[:, None]  # (rows, 1)
    scatter_result = scatter(np.full((len(table), 1), -1), row_numbers, 0, numbers)
    writer_rows = scatter_result.table[:, 0]  # (out_rows,) the row of `due` that lands here, or -1
    fields = {
        name: getattr(bound, name)[writer_rows]
        for name in ("value", "bound", "low", "high", "or_nan", "inconclusive", "exact", "exact_error")
    }  # (out_rows, n)
    for row in scatter_result.repeated_rows:
        writers = scatter_result.words[scatter_result.rows == row, 0]
        for end in (bound.low, bound.high):
            assert end is not None
            fields["inconclusive"][row] |= (end[writers] != end[writer_rows[row]]).any(axis=0)
        assert bound.exact is not None
        fields["exact_error"][row, (bound.exact[writers] != bound.exact[writer_rows[row]]).any(axis=0)] = np.inf
    bounded = np.broadcast_to((writer_rows >= 0)[:, None], table.shape)  # (out_rows, n)
    fields["inconclusive"] &= bounded
    fields["exact"] = np.where(bounded, fields["exact"], decode(FORMATS[bound.format], table))  # (out_rows, n)
    fields["exact_error"] = np.where(bounded, fields["exact_error"], 0.0)  # (out_rows, n)
    return dataclasses.replace(bound, name="out", shape=table.shape, words=table, bounded=bounded, **fields)


contract = FusedContract
CONTRACT = contract(bitverdict.kernels.fused_gather_scatter_matmul)
