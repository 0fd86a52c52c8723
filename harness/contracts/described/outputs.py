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

_PLAIN = {"float": "fp32", "integer": "int32", "bool": "bool"}  # what is due where something of another kind came


def expected_output(
    name: str, format_name: str, traced: TracedOutput, *, before: Operand | None, recorded: Mapping, exact: bool
) -> ExpectedOutput:
    """The output `name`, of format `format_name`, held to what its reference came to.

    `before`: the operand that it is written over. Elements that the reference leaves as they were keep its words, or the poison of
    the launch (`recorded`). `exact`: the word that is nearest to the reference, and no other.
    """
    known = format_name in INTEGERS or format_name in FORMATS or format_name == "bool"  # else torch's own name: none of ours
    kind = kind_of(format_name) if known else ""
    if kind != traced.kind and (kind, traced.kind) != ("float", "integer"):  # numbers may be counted in a float
        format_name, kind = _PLAIN[traced.kind], traced.kind
    made = _floats(name, format_name, traced, exact) if kind == "float" else _integers(name, format_name, traced)
    kept = np.asarray(traced.unchanged, bool)  # (*shape,)
    if not kept.any():
        return made
    itemsize = storage_of(format_name).itemsize
    unsigned = np.dtype(f"u{itemsize}")
    poison = int.from_bytes(bytes([int(recorded["poison"])]) * itemsize, "little")
    there = np.full(made.shape, poison, unsigned)  # (*shape,)
    if before is not None and before.codes.shape == made.shape and before.codes.dtype.itemsize == itemsize:
        there = np.ascontiguousarray(before.codes).view(unsigned).reshape(made.shape)
    words = there if made.words is None else np.where(kept, there, made.words.view(unsigned))
    return _replaced(made, words=words.reshape(made.shape), kept=kept)


def _replaced(made: ExpectedOutput, *, words: np.ndarray, kept: np.ndarray) -> ExpectedOutput:
    """`made` with `words` where `kept`: there they decide, and no real value is held to anything."""
    return replace(
        made,
        words=words,
        bounded=None if made.low is None else ~kept,
        inconclusive=None if made.inconclusive is None else made.inconclusive & ~kept,
        exact_error=None if made.exact_error is None else np.where(kept, np.inf, made.exact_error),
    )


def _floats(name: str, format_name: str, traced: TracedOutput, exact: bool) -> ExpectedOutput:
    value = np.asarray(traced.value, np.float64)  # (*shape,)
    error = np.where(np.asarray(traced.unknown, bool), np.inf, np.asarray(traced.error, np.float64))  # (*shape,)
    rest: dict[str, Any] = {
        "name": name,
        "format": format_name,
        "shape": value.shape,
        "exact": value,
        "exact_error": error,
        "declared": frozenset(traced.declared),
        "contributions": traced.contributions,
    }
    fmt = FORMATS[format_name]
    if exact:
        below, above = (encode(fmt, value + sign * np.where(np.isfinite(error), error, 0.0)) for sign in (-1.0, 1.0))
        open_ = ~np.isfinite(error) | ((below != above) & np.isfinite(value))
        return ExpectedOutput(words=encode(fmt, value), any_nan=True, inconclusive=open_, basis=Basis.EXACT, **rest)
    low, high, or_nan, open_ = traced.interval(format_name)
    with np.errstate(invalid="ignore", over="ignore"):
        least, most = decode(fmt, low), decode(fmt, high)
        bound = np.maximum(np.abs(most - value), np.abs(value - least))
    bound = np.where(np.isnan(bound), np.inf, bound)
    return ExpectedOutput(
        value=value, bound=bound, low=low, high=high, or_nan=or_nan, inconclusive=open_, basis=Basis.BOUND, **rest
    )


def _integers(name: str, format_name: str, traced: TracedOutput) -> ExpectedOutput:
    """Integers and truths, exact; what hangs on a rounding is decided by nobody."""
    words, _, _, open_ = traced.interval(format_name)
    open_ = open_ | traced.unknown
    return ExpectedOutput(
        name=name,
        format=format_name,
        shape=traced.shape,
        words=words,
        inconclusive=open_ if open_.any() else None,
        basis=Basis.EXACT,
    )
