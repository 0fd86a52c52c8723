"""What `kernels/fp8_blockwise_matmul.py` expects: a chain of e4m3 from zero in each block of K, promoted to fp32, word for word."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

import bitverdict.kernels.fp8_blockwise_matmul
from bitverdict.harness.contracts.base.single_config import (
    Fields,
    KernelContract,
    call_launcher,
    drawn_operand,
    far_pad,
    result_buffer,
)
from bitverdict.harness.contracts.base.tiled_gemm import PAIR_SIZE, BlockedContract
from bitverdict.harness.contracts.inputs.all_codes import PAIRS
from bitverdict.harness.contracts.inputs.exact_inputs import generator
from bitverdict.harness.contracts.inputs.regimes import EXACT
from bitverdict.harness.contracts.oracle import row_mathematics, shared_mathematics
from bitverdict.harness.contracts.oracle.dot_lowering import accumulator_words, dot_plan, one_chain, without_a_model, words_rest_on
from bitverdict.harness.model.architectures import is_amd
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.mathematics import Mathematics
from bitverdict.harness.model.targets import Target
from bitverdict.kernels.element_types import ELEMENT_TYPES
from bitverdict.reference.formats import convert
from bitverdict.reference.tensor_core.product_query import PromotedQuery, promoted_sum, promoted_words

SCALE_BLOCK = 128  # elements of K, and rows of B, that share a scale
TILES = ((64, 64, 128, 4, 3), (128, 64, 128, 8, 2), (64, 128, 64, 4, 4), (32, 32, 128, 4, 2), (16, 64, 32, 2, 3))
NAMES = ("block_m", "block_n", "block_k", "num_warps", "stages")


class Fp8BlockwiseMatmulContract(BlockedContract):
    always_transposed = True
    by_mfma = True
    parameters = "(a, b, a_scale, b_scale, c=None, *, out_dtype=torch.bfloat16, config=None)"

    def lacking(self, target: Target) -> frozenset:
        """Its program of gfx950 multiplies by f8f6f4 alone."""
        return super().lacking(target) | without_a_model(target.arch)

    def pool(self, target: Target) -> list[tuple[Fields, Fields]]:
        return [({"out": out}, dict(zip(NAMES, tile, strict=True))) for out in ("bf16", "fp32", "fp16") for tile in TILES]

    def far_problems(self) -> Iterable[tuple[Fields, Fields]]:
        m, n, k = 5, 8, 40
        pads = {"a_pad": far_pad(m, k, 1), "b_pad": far_pad(n, k, 1), "c_pad": far_pad(m, n)}
        yield {"m": m, "n": n, "k": k} | pads, {"block_m": 64, "block_n": 32}

    def listed_problems(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        pool = self.pool(target)
        yield self.size_fields({"out": "fp32"}, 17, 131, 2 * SCALE_BLOCK + 1), {"block_k": 64}  # three scales of a row, two of B
        stages = {"stages": 2} if is_amd(target.arch) else {}  # what 64 KiB hold
        yield (
            self.size_fields({}, 18, 135, 3 * SCALE_BLOCK),
            {"block_m": 16, "block_n": 256} | stages,
        )  # a tile that spans two scales of B
        yield from self.corners([*pool[1 : len(TILES)], pool[2 * len(TILES)]])

    def covering_problems(self, target: Target) -> Iterable[tuple[Fields, Fields, str]]:
        """In the configuration of a listed case, and with sizes that are as odd: one compiled kernel."""
        yield self.size_fields({"out": "fp32"}, PAIR_SIZE + 1, PAIR_SIZE + 1, 33), {"block_k": 64}, PAIRS

    def refusals(self, target: Target) -> Iterable[tuple[Fields, Fields]]:
        sizes = {"m": 64, "n": 64, "k": 128}
        yield sizes | {"dtype": "e5m2"}, {}
        yield sizes | {"out": "int8"}, {}
        yield sizes | {"k": 0}, {}
        yield sizes, {"block_n": 48}
        yield sizes | {"k": 200}, {"block_k": 256}  # one sum of two scales
        yield sizes, {"block_m": 8}

    def size_fields(self, problem: Fields, m: int, n: int, k: int, extra: int = 0) -> Fields:
        """Rows with gaps of any number of elements: no copy asks for whole 16 bytes."""
        return problem | {"m": m, "n": n, "k": k, "a_pad": extra, "b_pad": (extra + n) % 3, "c_pad": 3 * extra}

    def result_pad(self, problem: Fields, n: int, extra: int) -> Fields:
        return {"c_pad": 3 * extra}

    def operands(self, case: Case) -> list[Operand]:
        p = case.problem
        blocks = -(-p.k // SCALE_BLOCK)
        return [
            drawn_operand(case, "a", p.dtype, (p.m, p.k), pad=p.a_pad, side="a"),
            drawn_operand(case, "b", p.dtype, (p.n, p.k), pad=p.b_pad, side="b", k_axis=1),
            scales(case, "a_scale", (p.m, blocks)),
            scales(case, "b_scale", (-(-p.n // SCALE_BLOCK), blocks)),
        ]

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        p = case.problem
        factors = [tensors[name] for name in ("a", "b", "a_scale", "b_scale")]
        if launcher is not None:
            return {"c": call_launcher(launcher, *factors, out_dtype=ELEMENT_TYPES[p.out].torch)}
        c = result_buffer(case, tensors["a"], (p.m, p.n), pad=p.c_pad, dtype=p.out)
        got = self.module.fp8_blockwise_matmul(*factors, c, out_dtype=ELEMENT_TYPES[p.out].torch, config=case.config)
        return {"c": got if c is None else c}

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        if case.launcher:
            return row_mathematics.trace_outputs(
                row_mathematics.scaled_blocks, operands.values(), {"c": case.problem.out}, target.arch
            )
        p, c = case.problem, case.config
        plan = dot_plan(target.arch, p.dtype, block_m=c.block_m, block_n=c.block_n, block_k=c.block_k, num_warps=c.num_warps)
        sums = block_scaled_sums(plan, c.block_k, *(operands[name].codes for name in ("a", "b", "a_scale", "b_scale")))
        return [
            ExpectedOutput(
                name="c",
                format=p.out,
                shape=(p.m, p.n),
                words=convert("fp32", p.out, sums, target.arch),
                tile=(c.block_m, c.block_n),
                k_block=c.block_k,
                basis=words_rest_on(plan.rule, "a chain a block of K, promoted by fp32 multiply-adds"),
                any_nan=is_amd(target.arch),
            )
        ]

    def mathematics(self, case: Case, operands: Mapping[str, Operand]) -> Mathematics:
        a, b, a_scale, b_scale = (shared_mathematics.decode_operand(operands[name]) for name in ("a", "b", "a_scale", "b_scale"))
        return shared_mathematics.scaled_product(a, b, a_scale, b_scale, block=SCALE_BLOCK, rows_of_b=SCALE_BLOCK)

    def out_format(self, problem: Any) -> str:
        return problem.out

    def coverage(self, case: Case, target: Target) -> dict[str, str | int]:
        p = case.problem
        return KernelContract.coverage(self, case, target) | {
            "out": p.out,
            "scales of a row": min(-(-p.k // SCALE_BLOCK), 4),
            "scales of B in a tile": 1 + (min(case.config.block_n, p.n) > SCALE_BLOCK),
            "K ragged": str(p.k % case.config.block_k != 0),
        }


def block_scaled_sums(
    plan: Any, block_k: int, a: np.ndarray, b: np.ndarray, a_scale: np.ndarray, b_scale: np.ndarray
) -> np.ndarray:
    """fp32 codes (M, N): of each block of K the chain of `plan` from zero, times the scale of A rounded, times that of B fused into
    the sum. a (M, K), b (N, K) e4m3 codes; a_scale (M, blocks), b_scale (blocks of N, blocks) fp32 codes, or (N, blocks) where rows
    of B were chosen."""
    of_rows, of_columns = a_scale.view(np.float32), b_scale.view(np.float32)  # (M, blocks), (blocks of N or N, blocks)
    if len(of_columns) != len(b):
        of_columns = np.repeat(of_columns, SCALE_BLOCK, axis=0)[: len(b)]  # (N, blocks)
    if not len(a) or not len(b):
        return np.zeros((len(a), len(b)), np.uint32)
    step = min(block_k, SCALE_BLOCK)  # one scale an inner sum
    taken = [slice(start, start + step) for start in range(0, a.shape[1], step)]
    scaled = [each.start // SCALE_BLOCK for each in taken]  # (parts,)
    of_rows, of_columns = of_rows[:, scaled], of_columns[:, scaled]  # (M, parts), (N, parts)
    if plan.depth is not None:
        return promoted_sum((accumulator_words(plan, a[:, each], b[:, each].T) for each in taken), of_rows, of_columns)
    parts = tuple(one_chain(plan, a[:, each], b[:, each].T) for each in taken)
    return promoted_words(PromotedQuery(parts=parts, of_rows=of_rows, of_columns=of_columns))


def scales(case: Case, name: str, shape: tuple[int, int]) -> Operand:
    """fp32 scales of 2^-8 to 2^4 with all bits drawn; powers of two in the regime `EXACT`."""
    rng = generator(case.data_seed, name)
    powers = rng.integers(-8, 4, shape)  # (rows, blocks)
    significands = np.ones(shape) if case.regime == EXACT else rng.uniform(1.0, 2.0, shape)  # (rows, blocks)
    codes = np.ldexp(significands, powers).astype(np.float32).view(np.uint32)
    return Operand(name=name, format="fp32", codes=codes, strides=(shape[1], 1))


contract = Fp8BlockwiseMatmulContract
CONTRACT = contract(bitverdict.kernels.fp8_blockwise_matmul)
