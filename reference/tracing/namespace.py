"""The namespace `xp` that a reference is given: names of the Python array API standard, version 2024.12, and a few more.

`ABSENT` says what of the standard is not here, and why. Each name of it raises `Untraceable`.
"""

from __future__ import annotations

import difflib
import math
from functools import partial
from typing import Any

from bitverdict.reference.tracing import (  # noqa: F401  (each registers its operations)
    choices,
    comparisons,
    conversions,
    creation,
    extensions,
    extremes,
    functions,
    functions_of_two,
    indexing,
    movement,
    products,
    real_arithmetic,
    reductions,
    scans,
    sort_operations,
    whole_numbers,
)
from bitverdict.reference.tracing.dtypes import BOOL, BY_FORMAT, BY_NAME, DTypeLike, Untraceable, dtype_of, finfo, iinfo, promote
from bitverdict.reference.tracing.state import OPERATIONS, Trace

LINALG = {"matmul", "vecdot", "tensordot", "matrix_transpose", "outer", "diagonal", "trace", "vector_norm"}
ABSENT = {
    **dict.fromkeys(("nonzero", "unique_all", "unique_counts", "unique_inverse", "unique_values"), "its shape depends on values"),
    **dict.fromkeys(("conj", "imag", "real"), "there are no complex numbers"),
    "nextafter": "it depends on words: use bits and from_bits",
    "from_dlpack": "a reference makes no arrays of other libraries",
    "fft": "the extension is not traced",
    **{
        f"linalg.{name}": "it factorises or solves"
        for name in ("cholesky", "det", "eigh", "eigvalsh", "inv", "matrix_norm", "matrix_power", "matrix_rank", "pinv", "qr",
                     "slogdet", "solve", "svd", "svdvals")
    },
    "linalg.cross": "no kernel needed it yet",
}  # fmt: skip
"""Names of the standard that are not traced -> why."""
_EXPONENTIALS = "e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))"
RECIPES = {
    "softmax": f"{_EXPONENTIALS}; e / xp.sum(e, axis=-1, keepdims=True)",
    "logsumexp": f"{_EXPONENTIALS}; xp.log(xp.sum(e, axis=-1)) + xp.max(x, axis=-1)",
    "relu": "xp.maximum(x, 0)",
    "sigmoid": "1 / (1 + xp.exp(-x))",
    "silu": "x / (1 + xp.exp(-x))",
    "gelu": "0.5 * x * (1 + xp.erf(x / 2**0.5))",
    "rsqrt": "1 / xp.sqrt(x)",
    "norm": "xp.sqrt(xp.sum(x * x, axis=-1))",
    **dict.fromkeys(("dot", "mm", "bmm", "einsum"), "a @ b, or xp.tensordot"),
    **dict.fromkeys(("transpose", "permute"), "xp.permute_dims(x, (1, 0))"),
    **dict.fromkeys(("cat", "concatenate"), "xp.concat((a, b), axis=0)"),
    "clamp": "xp.clip(x, low, high)",
    "amax": "xp.max(x, axis=-1)",
    "cumsum": "xp.cumulative_sum(x, axis=-1)",
}
"""Names of torch and NumPy that are not of the standard -> what to write."""


class UnchangedElement:
    """`xp.unchanged`: as an operand of `xp.where`, an element that no implementation may write."""

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
        if name in ABSENT:
            raise Untraceable(name, ABSENT[name])
        if name in RECIPES:
            raise Untraceable(f"xp has no {name} (array API standard)", f"write {RECIPES[name]}")
        near = difflib.get_close_matches(name, [*OPERATIONS, *BY_NAME], 3)
        raise Untraceable(name, f"near are {', '.join(near)}" if near else "")

    def __dir__(self) -> list[str]:
        return sorted({*OPERATIONS, *BY_NAME, "finfo", "iinfo", "isdtype", "can_cast", "linalg", "unchanged"})

    bool = BOOL
    unchanged = UnchangedElement()
    finfo, iinfo = staticmethod(finfo), staticmethod(iinfo)

    @staticmethod
    def __array_namespace_info__() -> Info:
        return Info()

    @property
    def linalg(self) -> Linalg:
        """The extension's names that are products and sums."""
        return Linalg(self)

    @staticmethod
    def isdtype(dtype: DTypeLike, kind: object) -> Any:
        """Whether a type is of a kind of the standard ("real floating", "integral", "bool" ...), is a type, or any of several."""
        dtype = dtype_of(dtype)
        if isinstance(kind, tuple):
            return any(Namespace.isdtype(dtype, each) for each in kind)
        unsigned = dtype.kind == "integer" and dtype.name.startswith("u")
        kinds = {
            "bool": dtype.kind == "bool",
            "signed integer": dtype.kind == "integer" and not unsigned,
            "unsigned integer": unsigned,
            "integral": dtype.kind == "integer",
            "real floating": dtype.kind == "float",
            "complex floating": False,
            "numeric": dtype.kind != "bool",
        }
        return kinds[kind] if isinstance(kind, str) and kind in kinds else dtype == dtype_of(kind)

    @staticmethod
    def can_cast(from_: object, to: object, /) -> Any:
        """Whether the standard's promotion allows it."""
        source, found = dtype_of(getattr(from_, "dtype", from_)), dtype_of(to)
        try:
            return promote(source, found) == found
        except Untraceable:
            return False


class Linalg:
    """`xp.linalg`: products and sums."""

    def __init__(self, names: Namespace) -> None:
        self._names = names

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in LINALG:
            return getattr(self._names, name if name in OPERATIONS else f"linalg.{name}")
        why = ABSENT.get(f"linalg.{name}")
        raise Untraceable(f"linalg.{name}", f"{why + '; ' if why else ''}there are {', '.join(sorted(LINALG))}")


class Info:
    """What the standard asks of a namespace."""

    def capabilities(self) -> dict[str, Any]:
        """No shape hangs on data."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> str:
        """There is one."""
        return "cpu"

    def devices(self) -> list[str]:
        """There is one."""
        return ["cpu"]

    def dtypes(self, *, device: object = None, kind: object = None) -> dict[str, Any]:
        """The types of a kind, all by default."""
        return {name: dtype for name, dtype in BY_NAME.items() if kind is None or Namespace.isdtype(dtype, kind)}

    def default_dtypes(self, *, device: object = None) -> dict[str, Any]:
        """Of real numbers and of integers."""
        return {"real floating": BY_NAME["float32"], "integral": BY_NAME["int64"], "indexing": BY_NAME["int64"]}
