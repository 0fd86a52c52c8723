"""Words of a matrix product, as the instruction's hardware leaves them.

Equal to the definition because codes are decoded exactly, `chain` computes `definition.element`, and fp32 or fp16 holds its value.
"""

from __future__ import annotations

import numpy as np

from bitverdict.reference import fused_multiply_add
from bitverdict.reference.formats import Format, decode
from bitverdict.reference.tensor_core.chain import TERMS_AT_ONCE, chain_elements, chain_products, run_chain
from bitverdict.reference.tensor_core.record import Instruction, Step
from bitverdict.reference.tensor_core.terms import operand

LANES_AT_ONCE, DEPTH_AT_ONCE = 1024, 64  # elements, and k of each: what is decoded at a time stays in the caches


def product(rule: Instruction, a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
    """Words of A B + C, one ascending chain of `rule` over all of K; shape (M, N), in the storage of `rule.d`.

    `a` (M, K) and `b` (K, N) are codes; `c` (M, N) is in the format of d, None for +0. K is padded with zeros to whole blocks.
    int8 operands are int8 arrays, c and the result int32. Raises ValueError for shapes that do not meet.
    """
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"a (M, K) and b (K, N) do not meet: {a.shape} and {b.shape}; pass b with K first")
    c = accumulator(rule, c, (a.shape[0], b.shape[1]))  # (M, N)
    _refuse_scaled(rule)
    if rule.d == "int32":
        return _integers(rule, a.astype(np.float64) @ b.astype(np.float64), c)
    if rule.step is Step.MULTIPLY_ADD:
        return fused_multiply_add.chain(np.ascontiguousarray(a), np.ascontiguousarray(b), c)
    if a.shape[1] == 0:
        return c
    left, right = operand(rule, rule.a, a.T), operand(rule, rule.b, b)
    return words(rule.output, chain_products(rule, left, right, decode(rule.output, c)))  # (M, N)


def elements(rule: Instruction, a_rows: np.ndarray, b_columns: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
    """Words of chosen elements: `a_rows` (P, K) with `b_columns` (P, K) pairwise, `c` (P,); shape (P,). Costs P K products."""
    if a_rows.ndim != 2 or a_rows.shape != b_columns.shape:
        raise ValueError(f"a_rows and b_columns pair up, both (P, K): {a_rows.shape} and {b_columns.shape}")
    c = accumulator(rule, c, a_rows.shape[:1])  # (P,)
    _refuse_scaled(rule)
    if rule.d == "int32":
        return _integers(rule, np.einsum("pk,pk->p", a_rows.astype(np.float64), b_columns.astype(np.float64)), c)
    if rule.step is Step.MULTIPLY_ADD:
        return fused_multiply_add.paired_chain(np.ascontiguousarray(a_rows), np.ascontiguousarray(b_columns), c)
    if a_rows.shape[1] == 0:
        return c
    values = decode(rule.output, c)  # (P,)
    depth = rule.span * max(1, DEPTH_AT_ONCE // rule.span)
    for start in range(0, len(values), LANES_AT_ONCE):
        lanes = slice(start, start + LANES_AT_ONCE)
        for k in range(0, a_rows.shape[1], depth):
            left, right = (codes[lanes, k : k + depth].T for codes in (a_rows, b_columns))  # (depth, lanes)
            values[lanes] = chain_elements(rule, operand(rule, rule.a, left), operand(rule, rule.b, right), values[lanes])
    return words(rule.output, values)  # (P,)


def stacked_products(rule: Instruction, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Words of P small products at once: `a` (P, M, K), `b` (P, N, K), codes, on `c` (P, M, N). Equal to `elements` of the pairs
    because the same steps are taken on operands that are broadcast instead of repeated."""
    p, m, k = a.shape
    n = b.shape[1]
    if b.shape != (p, n, k):
        raise ValueError(f"a (P, M, K) and b (P, N, K) do not meet: {a.shape} and {b.shape}")
    c = accumulator(rule, c, (p, m, n))  # (P, M, N)
    _refuse_scaled(rule)
    if rule.d == "int32" or rule.step is Step.MULTIPLY_ADD or not k:
        rows, columns = (np.broadcast_to(each, (p, m, n, k)).reshape(-1, k) for each in (a[:, :, None], b[:, None]))
        return elements(rule, rows, columns, c.reshape(-1)).reshape(p, m, n)
    values = decode(rule.output, c)  # (P, M, N)
    at_once = max(1, TERMS_AT_ONCE // (rule.block * m * n))
    for start in range(0, p, at_once):
        some = slice(start, start + at_once)
        left, right = (
            operand(rule, name, codes[some].reshape(-1, k).T).with_shape(*shape)
            for name, codes, shape in ((rule.a, a, (m, 1)), (rule.b, b, (1, n)))
        )
        values[some] = run_chain(rule, left, right, values[some], by_pairs=True)
    return words(rule.output, values)  # (P, M, N)


def words(output: Format, values: np.ndarray) -> np.ndarray:
    """Words of `values`, float64 that fp32 or fp16 holds exactly; every NaN is 0x7FFFFFFF or 0x7FFF, as the hardware writes it."""
    found = values.astype(np.float32 if output.name == "fp32" else np.float16).view(output.storage)  # (...)
    found[np.isnan(values)] = output.nan_code
    return found


def _refuse_scaled(rule: Instruction) -> None:
    if rule.scale is not None:
        raise ValueError(f"{rule.name} takes block scales: use scaled_product or scaled_elements")


def accumulator(rule: Instruction, c: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
    """`c` checked against `rule` and `shape`, or +0 for None."""
    storage = np.int32 if rule.d == "int32" else rule.output.storage
    if c is None:
        return np.zeros(shape, storage)
    if c.shape != shape or c.dtype != storage:
        raise ValueError(f"c is {c.dtype} {c.shape}; {rule.name} needs {np.dtype(storage)} {shape}, words of {rule.d}")
    return c


def _integers(rule: Instruction, exact: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Equal to the definition because float64 holds the sum of up to 2^39 int8 products, each at most 2^14, exactly."""
    total = exact.astype(np.int64) + c  # (...)
    if rule.saturates:
        total = np.clip(total, np.iinfo(np.int32).min, np.iinfo(np.int32).max)  # (...)
    result: np.ndarray = total.astype(np.int32)  # (...) wraps modulo 2^32
    return result
