"""The mathematics that contracts share when a wrong result is explained (`bitverdict.harness.model.mathematics`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.model.case import Operand
from bitverdict.harness.model.mathematics import Mathematics
from bitverdict.reference.formats import FORMATS, decode

if TYPE_CHECKING:
    from bitverdict.reference.array_api import Array, ArrayNamespace


def decode_operand(operand: Operand) -> np.ndarray:
    """An operand's values: float64 of a format, integers and truths as they are."""
    codes = np.ascontiguousarray(operand.codes)
    if operand.format == "bool":
        return codes.view(np.bool_)
    if operand.format.startswith(("int", "uint")):
        return codes.view(np.dtype(operand.format)).astype(np.int64)
    fmt = FORMATS[operand.format]
    return decode(fmt, codes.view(fmt.storage))


def product_mathematics(a: np.ndarray, b: np.ndarray, *, activation: str = "", name: str = "c") -> Mathematics:
    """A B of values (M, K) and (K, N); with an activation leaky_relu of it, by the rule y = x + 1, then y or 0.01 y."""

    def plain_product(xp: ArrayNamespace, a: Array, b: Array) -> Any:
        return a @ b

    def activated_product(xp: ArrayNamespace, a: Array, b: Array) -> Any:
        y = (a @ b) + 1.0
        return xp.where(y >= 0, y, 0.01 * y)

    return Mathematics(
        function=activated_product if activation else plain_product,
        operands={"a": np.asarray(a, np.float64), "b": np.asarray(b, np.float64)},
        outputs=(name,),
        axes={"a": ("m", "k"), "b": ("k", "n"), name: ("m", "n")},
        sum_axes=("k",),
        linear=not activation,
    )


def scaled_product(
    a: np.ndarray, b: np.ndarray, a_scale: np.ndarray, b_scale: np.ndarray, *, block: int, rows_of_b: int = 1
) -> Mathematics:
    """A B^T of values (M, K) and (N, K), each block of `block` along K times a scale (M, blocks) and (N / rows_of_b, blocks)."""
    b_scale = np.repeat(b_scale, rows_of_b, axis=0)[: b.shape[0]]  # (N, blocks)

    def product(xp: ArrayNamespace, a: Array, b: Array, a_scale: Array, b_scale: Array) -> Any:
        k = a.shape[1]
        left = a * xp.repeat(a_scale, block, axis=1)[:, :k]
        return left @ xp.matrix_transpose(b * xp.repeat(b_scale, block, axis=1)[:, :k])

    return Mathematics(
        function=product,
        operands={"a": a, "b": b, "a_scale": a_scale, "b_scale": b_scale},
        outputs=("c",),
        axes={"a": ("m", "k"), "b": ("n", "k"), "a_scale": ("m", "k"), "b_scale": ("n", "k"), "c": ("m", "n")},
        sum_axes=("k",),
        linear=True,
        blocks={"a_scale": ("k", block), "b_scale": ("k", block)},
    )


def reference_mathematics(
    reference: Callable[..., object],
    operands: Mapping[str, Operand],
    arguments: Sequence[object],
    keywords: Mapping[str, object],
    outputs: tuple[str, ...],
) -> Mathematics:
    """The reference of a described kernel, its arguments as `Contract.expected` hands them to it: an operand as (format, codes)."""
    names = {id(operand.codes): name for name, operand in operands.items()}

    def name_of(argument: object) -> str | None:
        return names.get(id(argument[1])) if isinstance(argument, tuple) else None

    used_names = [name for argument in (*arguments, *keywords.values()) if (name := name_of(argument)) is not None]

    def function(xp: ArrayNamespace, *arrays: Array) -> Any:
        there = dict(zip(used_names, arrays, strict=True))
        positional = [there.get(name_of(argument) or "", argument) for argument in arguments]
        return reference(
            xp, *positional, **{key: there.get(name_of(argument) or "", argument) for key, argument in keywords.items()}
        )

    return Mathematics(
        function=function,
        operands={name: decode_operand(operands[name]) for name in used_names},
        outputs=outputs,
        formats={name: operands[name].format for name in used_names},
        strides={name: strides for name in used_names if (strides := operands[name].strides) is not None},
    )


def gather_rows(xp: ArrayNamespace, table: Array, rows: Array, columns: Array) -> Any:
    """Elements of `table` at rows (offsets,) and columns (width,); zero outside."""
    there = (rows >= 0) & (rows < table.shape[0])
    within = (columns >= 0) & (columns < table.shape[1])
    taken = xp.take(table, xp.clip(rows, 0, table.shape[0] - 1), axis=0)
    found = xp.take(taken, xp.clip(columns, 0, table.shape[1] - 1), axis=1)
    return xp.where(there[:, None] & within[None, :], found, 0.0)


def scatter_rows(xp: ArrayNamespace, table: Any, rows: Any, columns: Any, source: Any) -> Any:
    """`table` with row i of `source` at row rows[i] and `columns`; what lies outside is dropped."""
    found, rows, columns, source = (np.array(np.asarray(each)) for each in (table, rows, columns, source))
    within = (columns >= 0) & (columns < found.shape[1])
    for number, row in enumerate(rows.tolist()):
        if 0 <= row < found.shape[0]:
            found[row, columns[within]] = source[number, within]
    return xp.asarray(found)
