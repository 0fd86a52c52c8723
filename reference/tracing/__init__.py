"""A reference evaluated three times at once: in float64, with float64's running error, and with what implementations may store.

`trace(function, operands, named)` calls `function(xp, *operands, **named)` with arrays of the namespace `xp`, the Python array API
standard and a few extensions. `docs/references.md` is for who writes one. Each module derives its rules:

`arrays` and `accumulation` say what is held, `real_arithmetic`, `functions`, `reductions` and `products` what operations make of
it, `function_errors` is the one table of documented errors, `elementwise` and `movement` round nothing, `extensions` are ours."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bitverdict.reference.tracing.accumulation import accumulation_type
from bitverdict.reference.tracing.arrays import TracedArray
from bitverdict.reference.tracing.dtypes import Untraceable
from bitverdict.reference.tracing.outputs import Operands, Reference, TracedOutput, evaluate
from bitverdict.reference.tracing.state import Trace

__all__ = ["TracedArray", "TracedOutput", "Untraceable", "declared_formats", "reference_values", "rounding_operations", "trace"]


def trace(
    function: Reference,
    operands: Operands,
    keyword_operands: Mapping[str, object] | None = None,
    *,
    arch: str = "sm_90",
    accumulation: str = "fp32",
) -> list[TracedOutput]:
    """The outputs of `function(xp, *operands, **named)`. `operands`: (format name, codes) pairs or Python scalars; `arch`: on which
    architecture implementations run; `accumulation`: the type in which they compute.

    Raises `Untraceable` with the operator's name for what has no rule."""
    record = Trace(arch, accumulation_type(accumulation))
    found = evaluate(function, record, operands, dict(keyword_operands or {}))
    return [TracedOutput(each, record) for each in found]


def reference_values(function: Reference, operands: Operands, named: Mapping[str, object] | None = None) -> list[np.ndarray]:
    """The values of the outputs, float64 or integers, and no bounds."""
    return [each.value for each in evaluate(function, Trace(is_of_values=True), operands, dict(named or {}))]


def rounding_operations(function: Reference, operands: Operands, named: Mapping[str, object] | None = None) -> frozenset[str]:
    """Names of the operations of the reference that round: "exp", "matmul", "sum" ..."""
    record = Trace(rounding_operations=set())
    evaluate(function, record, operands, dict(named or {}))
    return frozenset(record.rounding_operations or ())


def declared_formats(function: Reference, operands: Operands, named: Mapping[str, object] | None = None) -> frozenset[str]:
    """Formats of the conversions that the reference declares (`round_to`)."""
    record = Trace()
    evaluate(function, record, operands, dict(named or {}))
    return frozenset(record.round_to_formats)
