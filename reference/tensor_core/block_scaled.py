"""Words of a block-scaled product: tcgen05 mxf8f6f4, mxf4 and mxf4nvf4.

Equal to the definition because a scaled element is exact in float64, and its exponent is the element's field plus the scale's: what
`definition.factors` says. The chain is that of the other kinds.

The scale is part of the operand, before the sum and exactly: its exponent is added to the product's, its significand multiplies
(PTX ISA, `tcgen05.mma`, block scaling; docs/arithmetic.md).
"""

from __future__ import annotations

import numpy as np

from bitverdict.reference.formats import FORMATS, decode
from bitverdict.reference.tensor_core.chain import chain_elements, chain_products
from bitverdict.reference.tensor_core.fused_sum import exponents
from bitverdict.reference.tensor_core.product import accumulator, words
from bitverdict.reference.tensor_core.record import InfiniteAccumulator, Instruction
from bitverdict.reference.tensor_core.terms import Terms, scaled_operand


def scaled_product(
    rule: Instruction, a: np.ndarray, scale_a: np.ndarray, b: np.ndarray, scale_b: np.ndarray, c: np.ndarray | None = None
) -> np.ndarray:
    """Words of (A scale_a)(B scale_b) + C, one ascending chain over K; shape (M, N) of `rule.d`.

    `a` (M, K) and `b` (K, N): one element code a number, unpacked. `scale_a` (M, ceil(K / scale_block)) and `scale_b`
    (N, ceil(K / scale_block)): scale codes, K last in both, as the instruction takes them. Raises ValueError for other shapes.
    """
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"a (M, K) and b (K, N) do not meet: {a.shape} and {b.shape}; pass b with K first")
    c = accumulator(rule, c, (a.shape[0], b.shape[1]))  # (M, N)
    left = _scaled_terms(rule, rule.a, a, scale_a)
    right = _scaled_terms(rule, rule.b, b.T, scale_b)
    return words(rule.output, chain_products(rule, left, right, _values(rule, c)))  # (M, N)


def scaled_elements(
    rule: Instruction,
    a_rows: np.ndarray,
    scale_a: np.ndarray,
    b_columns: np.ndarray,
    scale_b: np.ndarray,
    c: np.ndarray | None = None,
) -> np.ndarray:
    """Words of chosen elements (P,): `a_rows`, `b_columns` (P, K), scales (P, ceil(K / scale_block)), `c` (P,)."""
    if a_rows.ndim != 2 or a_rows.shape != b_columns.shape:
        raise ValueError(f"a_rows and b_columns pair up, both (P, K): {a_rows.shape} and {b_columns.shape}")
    c = accumulator(rule, c, a_rows.shape[:1])  # (P,)
    left = _scaled_terms(rule, rule.a, a_rows, scale_a)
    right = _scaled_terms(rule, rule.b, b_columns, scale_b)
    return words(rule.output, chain_elements(rule, left, right, _values(rule, c)))  # (P,)


def _scaled_terms(rule: Instruction, name: str, codes: np.ndarray, scales: np.ndarray) -> Terms:
    """`codes` (L, K) with `scales` (L, blocks) multiplied in; k first."""
    if rule.scale is None or rule.scale_block is None:
        raise ValueError(f"{rule.name} takes no block scales: use product or elements")
    fmt, scale_fmt = FORMATS[name], FORMATS[rule.scale]
    blocks = -(-codes.shape[1] // rule.scale_block)
    if scales.shape != (codes.shape[0], blocks):
        raise ValueError(f"scales are {scales.shape}; {rule.name} with K = {codes.shape[1]} needs {(codes.shape[0], blocks)}")
    scale_values = decode(scale_fmt, scales)  # (L, blocks)
    finite = np.where(np.isfinite(scale_values), scale_values, 0.0)  # (L, blocks)
    scale_exponents = exponents(finite, scale_fmt.smallest_exponent, 0)  # (L, blocks)
    spread = [np.repeat(each, rule.scale_block, axis=1)[:, : codes.shape[1]].T for each in (scale_values, scale_exponents)]
    values = decode(fmt, codes).T * spread[0]  # (K, L) exact in float64
    return scaled_operand(rule, name, values, spread[0], spread[1])


def _values(rule: Instruction, c: np.ndarray) -> np.ndarray:
    values = decode(rule.output, c)  # (...)
    if rule.sums_groups_exactly and rule.choices.infinite_accumulator is InfiniteAccumulator.REFUSED and np.isinf(values).any():
        raise ValueError(f"{rule.name}: c is infinite, which this model does not know; choose InfiniteAccumulator.PASSES")
    return values
