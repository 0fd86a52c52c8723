"""The namespace `xp` that a reference is given: names of the Python array API standard, and a few more.

Absent, because the shape of their result hangs on values: nonzero, unique_all, unique_counts, unique_inverse, unique_values, and
indexing by a mask. Absent, because there are no complex numbers: conj, imag, real. Absent altogether: from_dlpack, the fft
extension, and of linalg what factorises or solves (cholesky, det, eigh, eigvalsh, inv, matrix_power, matrix_rank, pinv, qr,
slogdet, solve, svd, svdvals, matrix_norm). `nextafter` and `searchsorted` hang on words. Each raises `Untraceable` with its name.
"""

from __future__ import annotations

import difflib
import math
from functools import partial
from typing import Any

from bitverdict.reference.tracing import (
    creation,
    elementwise,
    extensions,
    functions,
    movement,
    products,
    real_arithmetic,
    reductions,
)
from bitverdict.reference.tracing.dtypes import BOOL, BY_FORMAT, BY_NAME, dtype_of, finfo, iinfo
from bitverdict.reference.tracing.state import OPERATIONS, Trace
from bitverdict.reference.tracing.untraceable import Untraceable

MODULES = (creation, elementwise, extensions, functions, movement, products, real_arithmetic, reductions)
LINALG = {"matmul", "vecdot", "tensordot", "matrix_transpose", "outer"}


class Unchanged:
    """`xp.unchanged`: in `where`, an element that no implementation may write."""

    def __repr__(self) -> str:
        return "xp.unchanged"


class Namespace:
    """All operations on one trace."""

    pi, e, inf, nan, newaxis = math.pi, math.e, math.inf, math.nan, None
    __array_api_version__ = "2024.12"
    __name__ = "bitverdict.reference.tracing"

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = OPERATIONS.get(name)
        if found is not None:
            bound = partial(found, self._trace)
            setattr(self, name, bound)
            return bound
        if name in BY_NAME or name in BY_FORMAT:
            return BY_NAME.get(name) or BY_FORMAT[name]
        near = difflib.get_close_matches(name, [*OPERATIONS, *BY_NAME], 3)
        raise Untraceable(name, f"near are {', '.join(near)}" if near else "")

    def __dir__(self) -> list[str]:
        return sorted({*OPERATIONS, *BY_NAME, "finfo", "iinfo", "isdtype", "can_cast", "linalg", "unchanged"})

    bool = BOOL
    unchanged = Unchanged()
    finfo, iinfo = staticmethod(finfo), staticmethod(iinfo)

    @property
    def linalg(self) -> Linalg:
        """The extension's names that are products."""
        return Linalg(self)

    @staticmethod
    def isdtype(dtype: Any, kind: Any) -> Any:
        """Whether a type is of a kind of the standard ("real floating", "integral", "bool" ...), is a type, or any of several."""
        dtype = dtype_of(dtype)
        if isinstance(kind, tuple):
            return any(Namespace.isdtype(dtype, each) for each in kind)
        unsigned = dtype.kind == "integer" and dtype.name.startswith("u")
        known = {
            "bool": dtype.kind == "bool",
            "signed integer": dtype.kind == "integer" and not unsigned,
            "unsigned integer": unsigned,
            "integral": dtype.kind == "integer",
            "real floating": dtype.kind == "float",
            "complex floating": False,
            "numeric": dtype.kind != "bool",
        }
        return known[kind] if isinstance(kind, str) and kind in known else dtype == dtype_of(kind)

    @staticmethod
    def can_cast(from_: Any, to: Any, /) -> Any:
        """Whether the standard's promotion allows it."""
        from bitverdict.reference.tracing.dtypes import promoted

        source, found = dtype_of(getattr(from_, "dtype", from_)), dtype_of(to)
        try:
            return promoted(source, found) == found
        except Untraceable:
            return False


class Linalg:
    """`xp.linalg`: products alone."""

    def __init__(self, names: Namespace) -> None:
        self._names = names

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in LINALG:
            return getattr(self._names, name)
        raise Untraceable(f"linalg.{name}", f"there are {', '.join(sorted(LINALG))}")
