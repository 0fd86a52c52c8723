"""Element types of traced arrays: the standard's, and the formats of kernels.

A float type says how an operand is stored. Whatever is computed has the accumulation type, whatever its operands were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bitverdict.reference.formats import FORMATS, Format


class Untraceable(Exception):
    """An operator, or a use of one, that has no rule here. `operator` is its name as the standard writes it."""

    def __init__(self, operator: str, why: str = "") -> None:
        super().__init__(f"{operator}: {why}" if why else operator)
        self.operator = operator


@dataclass(frozen=True)
class DType:
    """`name`: as the standard writes it. `format`: the name of the words' format, as a contract writes it."""

    name: str
    kind: str  # "float", "integer" or "bool"
    format: str
    storage_type: type[np.generic]  # how `Traced.value` holds elements

    def __str__(self) -> str:
        return self.name

    @property
    def number(self) -> Format | None:
        """The record of a float format; None for float64 and for what is no float."""
        return FORMATS.get(self.format) if self.kind == "float" else None


DTypeLike: TypeAlias = DType | str | type
"""What names an element type: `dtype_of` finds it."""

Axes: TypeAlias = int | tuple[int, ...] | None
Shape: TypeAlias = int | Sequence[int]
_FLOATS = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
BOOL = DType("bool", "bool", "bool", np.bool_)
BY_FORMAT: dict[str, DType] = {
    **{fmt: DType(_FLOATS.get(fmt, fmt), "float", fmt, np.float64) for fmt in ("fp64", *FORMATS)},
    **{name: DType(name, "integer", name, getattr(np, name)) for name in _INTEGERS},
    "bool": BOOL,
}
BY_NAME: dict[str, DType] = {dtype.name: dtype for dtype in BY_FORMAT.values()}
_ALIASES = {"int1": "bool", "i1": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8"}
WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def dtype_of(type_like: object) -> DType:
    """The DType meant by a DType, the name of a format ("fp16") or of a type ("float16"); Untraceable for another."""
    if isinstance(type_like, DType):
        return type_like
    if type_like in (bool, int, float):
        return {bool: BOOL, int: BY_FORMAT["int64"], float: BY_FORMAT["fp64"]}[type_like]
    name = _ALIASES.get(str(type_like), str(type_like))
    found = BY_FORMAT.get(name) or BY_NAME.get(name)
    if found is None:
        raise Untraceable(f"dtype {type_like}", f"known are {', '.join(BY_NAME)}")
    return found


def promote(left: DType, right: DType) -> DType:
    """The standard's rule for integers and bools; of floats the wider."""
    if left == right:
        return left
    if "float" in (left.kind, right.kind):
        floats = [each for each in (left, right) if each.kind == "float"]
        return max(floats, key=lambda each: 11 if each.number is None else each.number.exponent_bits)
    if left.kind == "bool" or right.kind == "bool":
        return left if right.kind == "bool" else right
    found = np.promote_types(left.storage_type, right.storage_type)
    if found.kind == "f":
        raise Untraceable("type promotion", f"{left} with {right}: the standard does not promote uint64 with a signed integer")
    return BY_NAME[found.name]


@dataclass(frozen=True)
class FloatInfo:
    """The standard's `finfo`."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IntegerInfo:
    """The standard's `iinfo`."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(given: object) -> FloatInfo:
    """Limits of a float type, or of an array's."""
    dtype = dtype_of(getattr(given, "dtype", given))
    if dtype.kind != "float":
        raise Untraceable("finfo", f"{dtype} is no float")
    fmt = dtype.number
    if fmt is None:
        wide = np.finfo(np.float64)
        return FloatInfo(64, float(wide.eps), float(wide.max), float(wide.min), float(wide.smallest_normal), dtype)
    least = -fmt.largest if fmt.has_sign else fmt.smallest
    return FloatInfo(fmt.width, 2.0**-fmt.mantissa_bits, fmt.largest, least, fmt.smallest_normal, dtype)


def iinfo(given: object) -> IntegerInfo:
    """Limits of an integer type, or of an array's."""
    dtype = dtype_of(getattr(given, "dtype", given))
    if dtype.kind != "integer":
        raise Untraceable("iinfo", f"{dtype} is no integer")
    found = np.iinfo(np.dtype(dtype.storage_type))
    return IntegerInfo(found.bits, int(found.max), int(found.min), dtype)
