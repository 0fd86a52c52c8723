"""What a reference expects of one output: values, what is unknown, the words that may be stored, and where they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bitverdict.reference.error_bound import words_between
from bitverdict.reference.formats import FORMATS, decode
from bitverdict.reference.tracing.arrays import TracedArray, array
from bitverdict.reference.tracing.creation import asarray
from bitverdict.reference.tracing.dtypes import WORDS, Untraceable, dtype_of
from bitverdict.reference.tracing.results import real
from bitverdict.reference.tracing.state import Trace


def operand(trace: Trace, given: object) -> Any:
    """A (format, codes) pair as a traced array; anything else unchanged."""
    if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str) and isinstance(given[1], np.ndarray)):
        return given
    name, codes = given
    dtype = dtype_of(name)
    if dtype.kind == "bool":
        return TracedArray(trace, dtype, codes.astype(bool))
    if dtype.kind == "integer":
        width = np.dtype(dtype.storage_type).itemsize
        same = codes.dtype.itemsize == width and codes.dtype.kind in "iu"
        return TracedArray(
            trace, dtype, np.ascontiguousarray(codes).view(dtype.storage_type) if same else codes.astype(dtype.storage_type)
        )
    if codes.dtype.kind == "f":
        return TracedArray(trace, dtype, codes.astype(np.float64))
    if dtype.format == "fp64":
        return TracedArray(trace, dtype, np.ascontiguousarray(codes).view(np.float64))
    fmt = FORMATS[dtype.format]
    return TracedArray(trace, dtype, decode(fmt, np.ascontiguousarray(codes).view(WORDS[codes.dtype.itemsize])))


Operands = Sequence[Any]
Reference = Callable[..., Any]


class TracedOutput:
    """One output of a reference: arrays of one shape."""

    def __init__(self, traced: TracedArray, trace: Trace) -> None:
        self._traced, self._trace = traced, trace

    @property
    def kind(self) -> str:
        """ "float", "integer" or "bool"."""
        return self._traced.dtype.kind

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return self._traced.shape

    @property
    def value(self) -> np.ndarray:
        """The mathematics: float64, or the integers and bools themselves."""
        return np.asarray(self._traced.value)

    @property
    def error(self) -> np.ndarray:
        """float64: |value - mathematics| at most; inf where it is not known. 0 of integers."""
        if not self._traced.is_float:
            return np.where(self.unknown, np.inf, 0.0)
        return np.zeros(self.shape) if self._traced.error is None else np.broadcast_to(self._traced.error, self.shape)

    @property
    def unknown(self) -> np.ndarray:
        """Where the mathematics is not decidable."""
        found = self._traced
        if found.is_float:
            return np.zeros(self.shape, bool) if found.error is None else ~np.isfinite(self.error)
        return np.zeros(self.shape, bool) if found.hangs is None else np.broadcast_to(found.hangs, self.shape)

    @property
    def no_write_mask(self) -> np.ndarray:
        """Elements that no implementation may write."""
        mask = self._traced.no_write_mask
        return np.zeros(self.shape, bool) if mask is None else np.broadcast_to(mask, self.shape)

    @property
    def round_to_formats(self) -> frozenset[str]:
        """Formats of all `round_to` of the trace."""
        return frozenset(self._trace.round_to_formats)

    def interval(self, format: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(lowest words, highest words, whether NaN too, inconclusive) of what may be stored in `format`: unsigned words, by value
        from the lowest to the highest. Where `inconclusive`, nothing is said. Integers and bools have one word each."""
        traced_array = self._traced
        if format in FORMATS or format == "fp64":
            floats = real(traced_array)
            low, high = floats.ends
            open_ = np.zeros(self.shape, bool) if floats.open is None else np.broadcast_to(floats.open, self.shape)
            open_ = open_ | (np.isnan(low) != np.isnan(high)) | (np.isnan(floats.value) != np.isnan(low))
            if format == "fp64":
                return low.view(np.uint64), high.view(np.uint64), np.zeros(self.shape, bool), open_
            fmt = FORMATS[format]
            with np.errstate(all="ignore"):
                first, last, or_nan = words_between(fmt, low, high)
            return first, last, or_nan, open_
        if traced_array.is_float:
            raise Untraceable("output", f"a float in {format}: the reference must say astype, floor or round")
        dtype = dtype_of(format)
        words = np.ascontiguousarray(traced_array.value.astype(dtype.storage_type))
        if dtype.kind == "integer":
            words = words.view(f"u{words.itemsize}")
        else:
            words = words.astype(np.uint8)
        open_ = (
            np.zeros(self.shape, bool)
            if traced_array.words_differ is None
            else np.broadcast_to(traced_array.words_differ, self.shape)
        )
        return words, words, np.zeros(self.shape, bool), open_


def evaluate(function: Reference, trace: Trace, operands: Operands, keyword_operands: Mapping[str, object]) -> list[TracedArray]:
    """The outputs of one evaluation."""
    from bitverdict.reference.tracing.namespace import Namespace
    from bitverdict.reference.tracing.outputs import operand

    given = [operand(trace, output) for output in operands]
    found = function(Namespace(trace), *given, **{name: operand(trace, output) for name, output in keyword_operands.items()})
    outputs = list(found) if isinstance(found, (tuple, list)) else [found]
    for output in outputs:
        if not isinstance(output, (TracedArray, bool, int, float, np.generic)):
            raise Untraceable("output", f"of type {type(output).__name__}: a reference returns arrays of xp")
    return [output if isinstance(output, TracedArray) else asarray(trace, output) for output in outputs]


__all__ = ["TracedOutput", "array", "evaluate"]
