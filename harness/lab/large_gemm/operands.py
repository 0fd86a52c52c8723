"""Operands of large products, drawn fast, and the smaller problem that chosen rows and columns of them are.

An element of these products is a function of its row of A and its column of B alone, in one order of K that does not depend on
where the element lies. So the words of any rows and columns of a large result are the words of the small problem made of those rows
and columns: the contract that judges small cases gives them, by the same plan, and nothing is written twice.

Codes are normal deviates, drawn in fp16 or fp32 and converted by table; a drawing of 8192 x 8192 takes about a second on one core
and is the same on any number of cores.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

from bitverdict.harness.contracts.fp8_blockwise_matmul import SCALE_BLOCK, scales
from bitverdict.harness.contracts.inputs import block_scaled_inputs, regimes
from bitverdict.harness.contracts.inputs.block_scaled_inputs import Side
from bitverdict.harness.lab.large_gemm import row_numbers
from bitverdict.harness.lab.large_gemm.row_numbers import run_of
from bitverdict.harness.model.case import Case, Operand
from bitverdict.reference import packing, scale_layout
from bitverdict.reference.formats import FORMATS, Overflow, decode, encode

STRIPE = 1 << 20  # elements drawn from one generator


@lru_cache(maxsize=2)  # A and B: a case that follows another often multiplies the same, in another configuration
def draw(format_name: str, shape: tuple[int, int], data_seed: int, name: str) -> np.ndarray:
    """Codes of `shape` in the storage of `format_name`, for reading alone: normal deviates; all values alike often of "int8", all
    bytes of "pairs" of e2m1."""
    kind = {"int8": np.int8, "pairs": np.uint8}.get(format_name) or FORMATS[format_name].storage
    codes = np.empty(shape, kind)
    rows = max(1, STRIPE // max(shape[1], 1))

    def fill(number: int) -> None:
        part = codes[number * rows : (number + 1) * rows]
        rng = np.random.Generator(np.random.PCG64([data_seed, zlib.crc32(name.encode()), number]))
        if format_name in ("int8", "pairs"):
            ends = np.iinfo(kind)
            part[...] = rng.integers(ends.min, ends.max, part.shape, dtype=kind, endpoint=True)
            return
        values = rng.standard_normal(part.shape, dtype=np.float32)  # (rows, columns)
        if format_name == "fp32":
            part[...] = values.view(np.uint32)
            return
        halves = values.astype(np.float16).view(np.uint16)
        part[...] = halves if format_name == "fp16" else _from_half(format_name)[halves]

    stripes = range(-(-shape[0] // rows)) if codes.size else range(0)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(fill, stripes))
    return codes


@cache
def _from_half(format_name: str) -> np.ndarray:
    """(65536,) the code nearest to each fp16 code; NaN and infinities, which are not drawn, become zero."""
    values = decode(FORMATS["fp16"], np.arange(1 << 16, dtype=np.uint16))  # (65536,)
    return encode(FORMATS[format_name], np.where(np.isfinite(values), values, 0.0), overflow=Overflow.SATURATE)


def size_of(problem: Any) -> tuple[int, int, int]:
    """(m, n, k): rows and columns of the result, and K."""
    return getattr(problem, "out_rows", 0) or problem.m, problem.n, problem.k


def landing_rows(case: Case, given: Mapping[str, Operand]) -> np.ndarray:
    """(m,) the row of the result that each row of A, or place in the lists of row numbers, stands for."""
    return row_numbers.landing_rows(given) if hasattr(case.problem, "table_rows") else np.arange(case.problem.m)


def operands(case: Case) -> dict[str, Operand]:
    """The operands of a large case, by name, as its contract's launch takes them."""
    p = case.problem
    if hasattr(p, "format"):
        return _scaled_operands(case)
    if hasattr(p, "table_rows"):
        return row_numbers.operands(case, draw)
    b_shape = (p.n, p.k) if has_transposed_b(case) else (p.k, p.n)
    if hasattr(p, "a_pad"):
        strides = (p.k + p.a_pad, 1), (b_shape[1] + p.b_pad, 1)
    else:
        strides = p.a.strides(p.m, p.k), p.b.strides(p.k, p.n)
    sides = zip("ab", ((p.m, p.k), b_shape), strides, strict=True)
    operand_list = [
        Operand(name=name, format=p.dtype, codes=draw(p.dtype, shape, case.data_seed, name), strides=strides)
        for name, shape, strides in sides
    ]
    if promotes_blocks(case):
        blocks = -(-p.k // SCALE_BLOCK)
        operand_list += [scales(case, "a_scale", (p.m, blocks)), scales(case, "b_scale", (-(-p.n // SCALE_BLOCK), blocks))]
    return {operand.name: operand for operand in operand_list}


def has_transposed_b(case: Case) -> bool:
    """Whether B is given as (N, K)."""
    return "ampere_gemm" in case.contract or promotes_blocks(case) or getattr(case.problem, "transpose_b", False)


def promotes_blocks(case: Case) -> bool:
    """Whether each block of K has a sum of its own, which is scaled and added to an fp32 sum."""
    return "fp8_blockwise_matmul" in case.contract


def part(
    case: Case, full_operands: Mapping[str, Operand], rows: np.ndarray, columns: np.ndarray
) -> tuple[Case, dict[str, Operand]]:
    """The problem of `rows` of A (of places in the lists of row numbers) and `columns` of B alone, and its operands."""
    p = case.problem
    if hasattr(p, "format"):
        return _scaled_part(case, full_operands, rows, columns)
    if hasattr(p, "table_rows"):
        return row_numbers.part(case, full_operands, rows, columns)
    smaller = replace(case, problem=replace(p, m=len(rows), n=len(columns)))
    b = full_operands["b"].codes
    b = (
        b[run_of(columns)] if has_transposed_b(case) else np.ascontiguousarray(b[:, run_of(columns)])
    )  # (columns, k) or (k, columns)
    chosen = {"a": full_operands["a"].codes[run_of(rows)], "b": b}
    part_operands = {name: Operand(name=name, format=p.dtype, codes=codes) for name, codes in chosen.items()}
    if promotes_blocks(case):  # each chosen row of B with the scales of its block
        a_scale, b_scale = (
            full_operands["a_scale"].codes[run_of(rows)],
            full_operands["b_scale"].codes[columns // SCALE_BLOCK],
        )  # (rows or columns, blocks)
        part_operands |= {
            name: Operand(name=name, format="fp32", codes=codes) for name, codes in (("a_scale", a_scale), ("b_scale", b_scale))
        }
    return smaller, part_operands


def _scaled_operands(case: Case) -> dict[str, Operand]:
    from bitverdict.kernels.scaled_operands import FORMATS as SCALED

    p, f = case.problem, SCALED[case.problem.format]
    operand_list = []
    for name, element, rows in (("a", f.a, p.m), ("b", f.b, p.n)):
        blocks = scale_layout.scale_columns(p.k, f.block_size)
        rng = regimes.generator(case.data_seed, f"{name} scales")
        near = block_scaled_inputs.NEAR_CODES[f.scale]
        scales = (f.one_code + rng.integers(-near, near + 1, (rows, blocks))).astype(np.uint8)  # (rows, blocks)
        packed = element == "e2m1"
        codes = draw("pairs" if packed else element, (rows, p.k // 2 if packed else p.k), case.data_seed, name)
        operand_list.append(Operand(name=name, format="uint8" if packed else element, codes=codes, strides=(codes.shape[1], 1)))
        operand_list.append(
            block_scaled_inputs.scale_operand(f"{name}_scale", f.scale, Side(codes, scales), case.data_seed, row_pad=0, tile_pad=0)
        )
    return {operand.name: operand for operand in operand_list}


def _scaled_part(
    case: Case, full_operands: Mapping[str, Operand], rows: np.ndarray, columns: np.ndarray
) -> tuple[Case, dict[str, Operand]]:
    from bitverdict.kernels.scaled_operands import FORMATS as SCALED

    p, f = case.problem, SCALED[case.problem.format]
    blocks = scale_layout.scale_columns(p.k, f.block_size)
    part_operands: list[Operand] = []
    for name, element, chosen, size in (("a", f.a, rows, p.m), ("b", f.b, columns, p.n)):
        codes = full_operands[name].codes[run_of(chosen)]
        codes = packing.unpack(codes, length=p.k) if element == "e2m1" else codes  # (chosen, k)
        scales = scale_layout.unpack(full_operands[f"{name}_scale"].codes, size, blocks)[run_of(chosen)]  # (chosen, blocks)
        side = Side(codes, scales)
        part_operands.append(block_scaled_inputs.element_operand(name, element, side, pad=0, offset=0))
        part_operands.append(
            block_scaled_inputs.scale_operand(f"{name}_scale", f.scale, side, case.data_seed, row_pad=0, tile_pad=0)
        )
    smaller: Any = replace(p, m=len(rows), n=len(columns))
    return replace(case, problem=smaller), {operand.name: operand for operand in part_operands}
