"""What an output of a described kernel must be, from the trace of its reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.contracts.described.dtypes import INTEGERS, kind_of, storage_of
from bitverdict.harness.model.case import Operand
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.verdict import Basis
from bitverdict.reference.formats import FORMATS, decode, encode

if TYPE_CHECKING:
    from bitverdict.reference.tracing import TracedOutput

_DEFAULT_FORMATS = {"float": "fp32", "integer": "int32", "bool": "bool"}  # what is due where something of another kind came


def expected_output(
    name: str, format_name: str, traced_output: TracedOutput, *, before: Operand | None, run_record: Mapping, exact: bool
) -> ExpectedOutput:
    """The output `name`, of format `format_name`, held to what its reference came to.

    `before`: the operand that it is written over. Elements that the reference leaves as they were keep its words, or the poison of
    the launch (`run_record`). `exact`: the word that is nearest to the reference, and no other.
    """
    known = format_name in INTEGERS or format_name in FORMATS or format_name == "bool"  # else torch's own name: none of ours
    kind = kind_of(format_name) if known else ""
    if kind != traced_output.kind and (kind, traced_output.kind) != ("float", "integer"):  # numbers may be counted in a float
        format_name, kind = _DEFAULT_FORMATS[traced_output.kind], traced_output.kind
    expected = _floats(name, format_name, traced_output, exact) if kind == "float" else _integers(name, format_name, traced_output)
    unchanged_elements = np.asarray(traced_output.no_write_mask, bool)  # (*shape,)
    if not unchanged_elements.any():
        return expected
    itemsize = storage_of(format_name).itemsize
    unsigned = np.dtype(f"u{itemsize}")
    poison = int.from_bytes(bytes([int(run_record["poison"])]) * itemsize, "little")
    there = np.full(expected.shape, poison, unsigned)  # (*shape,)
    if before is not None and before.codes.shape == expected.shape and before.codes.dtype.itemsize == itemsize:
        there = np.ascontiguousarray(before.codes).view(unsigned).reshape(expected.shape)
    words = there if expected.words is None else np.where(unchanged_elements, there, expected.words.view(unsigned))
    return _replace_words(expected, words=words.reshape(expected.shape), unchanged_elements=unchanged_elements)


def _replace_words(expected: ExpectedOutput, *, words: np.ndarray, unchanged_elements: np.ndarray) -> ExpectedOutput:
    """`expected` with `words` where `unchanged_elements`: there they decide, and no real value is held to anything."""
    return replace(
        expected,
        words=words,
        bounded=None if expected.low is None else ~unchanged_elements,
        inconclusive=None if expected.inconclusive is None else expected.inconclusive & ~unchanged_elements,
        exact_error=None if expected.exact_error is None else np.where(unchanged_elements, np.inf, expected.exact_error),
    )


def _floats(name: str, format_name: str, traced_output: TracedOutput, exact: bool) -> ExpectedOutput:
    value = np.asarray(traced_output.value, np.float64)  # (*shape,)
    error = np.where(np.asarray(traced_output.unknown, bool), np.inf, np.asarray(traced_output.error, np.float64))  # (*shape,)
    rest: dict[str, Any] = {
        "name": name,
        "format": format_name,
        "shape": value.shape,
        "exact": value,
        "exact_error": error,
        "declared": frozenset(traced_output.round_to_formats),
    }
    fmt = FORMATS[format_name]
    if exact:
        below, above = (encode(fmt, value + sign * np.where(np.isfinite(error), error, 0.0)) for sign in (-1.0, 1.0))
        open_ = ~np.isfinite(error) | ((below != above) & np.isfinite(value))
        return ExpectedOutput(words=encode(fmt, value), any_nan=True, inconclusive=open_, basis=Basis.EXACT, **rest)
    low, high, or_nan, open_ = traced_output.interval(format_name)
    with np.errstate(invalid="ignore", over="ignore"):
        least, most = decode(fmt, low), decode(fmt, high)
        bound = np.maximum(np.abs(most - value), np.abs(value - least))
    bound = np.where(np.isnan(bound), np.inf, bound)
    return ExpectedOutput(
        value=value, bound=bound, low=low, high=high, or_nan=or_nan, inconclusive=open_, basis=Basis.BOUND, **rest
    )


def _integers(name: str, format_name: str, traced_output: TracedOutput) -> ExpectedOutput:
    """Integers and truths, exact; what hangs on a rounding is decided by nobody."""
    words, _, _, open_ = traced_output.interval(format_name)
    open_ = open_ | traced_output.unknown
    return ExpectedOutput(
        name=name,
        format=format_name,
        shape=traced_output.shape,
        words=words,
        inconclusive=open_ if open_.any() else None,
        basis=Basis.EXACT,
    )
