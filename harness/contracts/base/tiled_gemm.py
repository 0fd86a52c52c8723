"""What the tiled multiplications have in common: A (M, K) and B (K, N) or (N, K), a tile, ragged sizes, rows with a gap after
them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from bitverdict.harness.contracts.base.single_config import (
    BUDGET,
    EXACT_SIZES,
    Fields,
    KernelContract,
    aligned_pad,
    chain_of,
    drawn_operand,
    edges,
    far_pad,
    multiply_words,
)
from bitverdict.harness.contracts.inputs.all_codes import PAIRS
from bitverdict.harness.contracts.inputs.regimes import EXACT
from bitverdict.harness.contracts.oracle.dot_lowering import words_rest_on
from bitverdict.harness.contracts.oracle.gemm_bound import bounded_product, has_model, launched_instructions, product_opinion
from bitverdict.harness.contracts.oracle.shared_mathematics import decode_operand, product_mathematics
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import ExpectedOutput, Tile
from bitverdict.harness.model.mathematics import Mathematics
from bitverdict.harness.model.targets import Target
from bitverdict.kernels.element_types import bits_of

PAIR_SIZE = 256  # rows and columns of a product of every pair of 8-bit codes
TILES = (2, 2, 4)  # largest counts of tiles and of K blocks drawn, before the budget


class BlockedContract(KernelContract):
    """`family` multiplies; B lies as (N, K) where the problem says so, or always where `always_transposed`."""

    conversions = frozenset()
    rows_of = MappingProxyType({"a_pad": ("m", "k")})
    family = "tcgen05"
    always_transposed = False
    every_run = 4 * BUDGET  # products of a case of `tutorial` that every run judges whole

    def required(self, target: Target) -> list[Case]:
        problem, config = self.pool(target)[0]
        one_row = self.size_fields(problem, 1, 24, 40) | {"a_pad": 1 - 40}  # a stride of one element
        return [*super().required(target), self.case(one_row, config, regime=self.regime(0), data_seed=4)]

    def cut(self, problem: Fields, config: Fields) -> Fields:
        from bitverdict.harness.contracts.inputs import strategies

        made = self.module.Config(**config)
        tile = made.block_m, made.block_n, made.block_k
        sizes = strategies.within((problem["m"], problem["n"], problem["k"]), tile, self.every_run)
        return self.size_fields({name: value for name, value in problem.items() if not name.endswith("_pad")}, *sizes)

    def draw_problem(self, draw: Callable, problem: Fields, config: Any, target: Target) -> Fields:
        from hypothesis import strategies as st

        from bitverdict.harness.contracts.inputs import strategies

        tile = (config.block_m, config.block_n, config.block_k)
        sizes = [
            draw(strategies.sizes(t, count, draw(st.sampled_from(strategies.KINDS)))) for t, count in zip(tile, TILES, strict=True)
        ]
        m, n, k = (max(size, 1) for size in strategies.within(sizes, tile, BUDGET))
        return self.size_fields(problem, m, n, k, draw(st.integers(0, 2)))

    def size_fields(self, problem: Fields, m: int, n: int, k: int, extra: int = 0) -> Fields:
        """Fields of sizes and of gaps after rows that keep them on 16 bytes."""
        dtype = problem.get("dtype", "fp16")
        has_transposed_b = self.always_transposed or problem.get("transpose_b", False)
        fields = {
            "m": m,
            "n": n,
            "k": k,
            "a_pad": aligned_pad(k, dtype, extra),
            "b_pad": aligned_pad(k if has_transposed_b else n, dtype, (extra + n) % 3),
        }  # not A's gap
        return problem | fields | self.result_pad(problem, n, extra)

    def result_pad(self, problem: Fields, n: int, extra: int) -> Fields:
        out: str = problem.get("out") or problem.get("dtype", "fp16")
        return {"c_pad": aligned_pad(n, out, extra)}

    def far_problems(self) -> Iterable[tuple[Fields, Fields]]:
        problem, config = self.pool_of_far()
        m, n, k = 3, 8, 40
        rows, columns = (n, k) if self.always_transposed else (k, n)
        itemsize = bits_of(self.out_format(self.module.Problem(m=m, n=n, k=k, **problem))) // 8
        (result,) = self.result_pad(problem, n, 0)
        pads = {"a_pad": far_pad(m, k), "b_pad": far_pad(rows, columns), result: far_pad(m, n, itemsize)}
        yield problem | {"m": m, "n": n, "k": k} | pads, config

    def covering_problems(self, target: Target) -> Iterable[tuple[Fields, Fields, str]]:
        """Each pair of codes of each 8-bit type; where fp32 comes out, in fp32, and in the fewest programs."""

        def worth(special: tuple[Fields, Fields]) -> tuple[bool, int]:
            problem, config = special
            return problem.get("out") == "fp32", config["block_m"] * config["block_n"]

        of_types = {dtype_of(self.module, problem): (problem, config) for problem, config in sorted(self.pool(target), key=worth)}
        for dtype, (problem, config) in of_types.items():
            if bits_of(dtype) == 8:
                yield self.size_fields(problem, PAIR_SIZE, PAIR_SIZE, 33), config, PAIRS

    def pool_of_far(self) -> tuple[Fields, Fields]:
        """Element types of 16 bits, and a small tile."""
        return {"dtype": "bf16"}, {"block_m": 64, "block_n": 32, "block_k": 32}

    def result_bytes(self, case: Case) -> int:
        p = case.problem
        (result,) = self.result_pad({}, p.n, 0)
        return (p.m - 1) * (p.n + getattr(p, result)) * bits_of(self.out_format(p)) // 8

    def corners(self, pool: list[tuple[Fields, Fields]]) -> Iterable[tuple[Fields, Fields]]:
        """One ragged problem a specialisation: below, at and above the tile, and one, two and more K blocks."""
        problem, config = pool[0]
        yield self.size_fields(problem, 1, 1, 1), config  # sizes of one are constants to the compiler
        for place, (problem, config) in enumerate(pool):
            made = self.module.Config(**config)
            step = (-1, 0, 1, 5)[place % 4]
            m = made.block_m * (1 + place % 2) + step if place % 5 else 1
            n = max(made.block_n * (1 + place // 2 % 2) + (-3, 0, 2)[place % 3], 1)
            k = max(made.block_k * (1 + place % 4) + (0, -5, 3)[place % 3], 1)
            yield self.size_fields(problem, max(m, 1), n, k, place % 2), config

    def for_launcher(self, case: Case, launcher: str) -> Case | None:
        return super().for_launcher(self.with_regime_of_a_launcher(case), launcher)

    def around(self, tile: Tile, target: Target) -> list[Case]:
        pool = list(self.pool(target))
        problem, config = pool[0]
        of_types = {problem.get("dtype", ""): (problem, config) for problem, config in reversed(pool)}  # the first of each
        cases = [self.case(self.size_fields(problem, *sizes), config, **how) for sizes, how in edges(tile, target)]
        for problem, config in of_types.values():
            cases += [self.case(self.size_fields(problem, *sizes), config, regime=EXACT) for sizes in EXACT_SIZES]
        return cases

    def operands(self, case: Case) -> list[Operand]:
        p = case.problem
        transposed = self.always_transposed or p.transpose_b
        offset = getattr(p, "b_offset", 0)
        b_shape = (p.n, p.k) if transposed else (p.k, p.n)
        return [
            drawn_operand(case, "a", p.dtype, (p.m, p.k), pad=p.a_pad, offset=p.a_offset, side="a"),
            drawn_operand(case, "b", p.dtype, b_shape, pad=p.b_pad, offset=offset, side="b", k_axis=int(transposed)),
        ]

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        p, c = case.problem, case.config
        a, b = operands["a"].codes, operands["b"].codes
        b = b.T if self.always_transposed or p.transpose_b else b  # (K, N)
        out = self.out_format(p)
        gemm_problem = SimpleNamespace(m=p.m, n=p.n, k=p.k, dtype=p.dtype, out=out, activation="")
        if case.launcher or not has_model(target.arch):  # whose order, or whose step, nobody knows
            return [bounded_product(gemm_problem, a, b, target.arch, launched_kinds=launched_instructions(recorded))]
        words = multiply_words(target.arch, self.family, p.dtype, out, a, b)
        return [
            ExpectedOutput(
                name="c",
                format=out,
                shape=(p.m, p.n),
                words=words,
                tile=(c.block_m, c.block_n),
                k_block=c.block_k,
                basis=words_rest_on(chain_of(target.arch, self.family, p.dtype)),
                opinion=product_opinion(gemm_problem, words, a, b, target.arch, self.family),
            )
        ]

    def factors(self, case: Case, operands: Mapping[str, Operand]) -> tuple[np.ndarray, np.ndarray] | None:
        b = operands["b"].codes
        return operands["a"].codes, b if self.always_transposed or getattr(case.problem, "transpose_b", False) else b.T

    def mathematics(self, case: Case, operands: Mapping[str, Operand]) -> Mathematics | None:
        if set(operands) != {"a", "b"}:  # of a kernel that does more than multiply
            return None
        a, b = (decode_operand(operands[name]) for name in "ab")
        return product_mathematics(a, b.T if self.always_transposed or case.problem.transpose_b else b)

    def out_format(self, problem: Any) -> str:
        return problem.dtype

    def coverage(self, case: Case, target: Target) -> dict[str, str | int]:
        p, c = case.problem, case.config
        blocks = -(-p.k // c.block_k)
        return super().coverage(case, target) | {
            "K blocks": min(blocks, 4),
            "K ragged": str(p.k % c.block_k != 0),
            "B": "transposed" if self.always_transposed or p.transpose_b else "as it is",
        }


def dtype_of(module: ModuleType, problem: Fields) -> str:
    """The element type of the operands of a problem of `module`, given or by default."""
    default: str = module.Problem.__dataclass_fields__["dtype"].default
    return problem.get("dtype", default)


def tiled_refusals(sizes: Fields, *, tensor_memory: bool) -> Iterable[tuple[Fields, Fields]]:
    """Problems and configurations that each break one clause every tiled multiplication has."""
    yield sizes | {"dtype": "fp32"}, {}
    yield sizes | {"k": 0}, {}
    yield sizes, {"block_k": 48}
    yield sizes, {"block_k": 8}
    yield sizes, {"block_n": 8}
    yield sizes | {"a_pad": 1}, {}
    yield sizes | {"a_offset": 1}, {}
    if tensor_memory:
        yield sizes, {"num_warps": 2}
        yield sizes, {"block_m": 32}
        yield sizes, {"block_m": 128, "block_n": 256, "block_k": 512}
