"""Types of the tile program, read from their text: scalars, pointers, tensors, memory descriptors.

A tensor's layout is a fact of its type: values are held in logical order and only the operations that the layout decides
something about (which MMA, which k order) look at it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache

import numpy as np

# element -> (bits, format name in `bitverdict.reference.formats`, or None for integers)
ELEMENTS: dict[str, tuple[int, str | None]] = {
    "i1": (1, None),
    "i8": (8, None),
    "i16": (16, None),
    "i32": (32, None),
    "i64": (64, None),
    "index": (64, None),
    "f8E4M3FN": (8, "e4m3"),
    "f8E5M2": (8, "e5m2"),
    "f16": (16, "fp16"),
    "bf16": (16, "bf16"),
    "f32": (32, "fp32"),
    "f64": (64, None),
}
_CODES: dict[int, np.dtype] = {8: np.dtype(np.uint8), 16: np.dtype(np.uint16), 32: np.dtype(np.uint32)}
_INTS: dict[int, np.dtype] = {
    1: np.dtype(np.bool_),
    8: np.dtype(np.int8),
    16: np.dtype(np.int16),
    32: np.dtype(np.int32),
    64: np.dtype(np.int64),
}


@dataclass(frozen=True)
class Type:
    """`kind`: scalar, pointer, tensor, memdesc, token, desc (tensor descriptor). `element` names a scalar of ELEMENTS, of what a
    pointer points to when `pointers`; `shape` is empty for scalars."""

    text: str
    kind: str
    element: str = ""
    pointers: bool = False
    shape: tuple[int, ...] = ()
    layout: str = ""
    space: str = ""  # of a memdesc: "shared" or "tensor"
    allocation: tuple[int, ...] = field(default=())  # of a memdesc: shape of the allocation it is cut from

    @property
    def dtype(self) -> np.dtype:
        """NumPy type of a value: addresses int64, floats their codes (fp32: float32 itself, fp64: float64), integers signed."""
        if self.pointers:
            return _INTS[64]
        return element_dtype(self.element)

    @property
    def format(self) -> str | None:
        return None if self.pointers else ELEMENTS[self.element][1]

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory; of what a pointer points to."""
        return max(ELEMENTS[self.element][0] // 8, 1)

    @property
    def is_float(self) -> bool:
        return not self.pointers and (self.format is not None or self.element == "f64")

    @property
    def bits(self) -> int:
        return 64 if self.pointers else ELEMENTS[self.element][0]


def element_dtype(element: str) -> np.dtype:
    bits, fmt = ELEMENTS[element]
    if element == "f32":
        return np.dtype(np.float32)
    if element == "f64":
        return np.dtype(np.float64)
    return _CODES[bits] if fmt else _INTS[bits]


_SPACE = r'(?:, (?:\d+|"\w+"))?'  # of a pointer: a number, or "constant" where the author promised to write nothing there
_POINTER = re.compile(rf"!tt\.ptr<(\w+){_SPACE}>$")
_POINTERS = re.compile(rf"!tt\.ptr<!tt\.ptr<.*>{_SPACE}>$")  # what it points to is an address
_SHAPED_TYPE = re.compile(rf"((?:\d+x)*)(!tt\.ptr<.*{_SPACE}>|\w+)$")


@cache
def parse_type(text: str) -> Type | None:
    """The type written `text`; None for one that is not modelled (the caller names the operation)."""
    text = text.strip()
    if text in ELEMENTS:
        return Type(text, "scalar", text)
    if found := _POINTER.match(text):
        return Type(text, "pointer", found[1], pointers=True) if found[1] in ELEMENTS else None
    if _POINTERS.match(text):
        return Type(text, "pointer", "i64", pointers=True)
    if text == "!ttg.async.token":
        return Type(text, "token")
    if text.startswith(("tensor<", "!ttg.memdesc<")):
        parts = split_top(text[text.index("<") + 1 : -1])
        shaped_type = _parse_shape(parts[0])
        if shaped_type is None:
            return None
        shape, element, pointers = shaped_type
        if text.startswith("tensor<"):
            return Type(text, "tensor", element, pointers, shape, ", ".join(parts[1:]))
        space = "tensor" if "tensor_memory" in parts[2] else "shared"
        allocation = next((tuple(int(n) for n in p.split("x")) for p in parts[3:] if re.fullmatch(r"\d+(x\d+)*", p)), shape)
        return Type(text, "memdesc", element, pointers, shape, parts[1], space, allocation)
    if text.startswith(("!tt.tensordesc<", "!ttng.tensordesc_im2col<")):
        parts = split_top(text[text.index("<") + 1 : -1])
        inner = parts[0]
        if inner.startswith("tensor<"):
            inner = split_top(inner[len("tensor<") : -1])[0]
        shaped_type = _parse_shape(re.sub(r"x[su](i\d+)$", r"x\1", inner))  # a descriptor's integers have a sign, a tensor's none
        if shaped_type is None:
            return None
        return Type(text, "desc", shaped_type[1], False, shaped_type[0], ", ".join(parts[1:]))
    return None


def _parse_shape(text: str) -> tuple[tuple[int, ...], str, bool] | None:
    match = _SHAPED_TYPE.match(text)
    if not match:
        return None
    shape = tuple(int(n) for n in match[1].split("x")[:-1])
    if match[2].startswith("!tt.ptr<"):
        pointer = parse_type(match[2])
        return (shape, pointer.element, True) if pointer else None
    return (shape, match[2], False) if match[2] in ELEMENTS else None


_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|->|[<>(){}\[\],]')


def split_top(text: str) -> list[str]:
    """`text` split at the commas outside all brackets and strings, each part stripped; [] for blank text."""
    parts, depth, start = [], 0, 0
    for bracket in _BRACKET.finditer(text):
        mark = bracket[0]
        if mark in "<({[":
            depth += 1
        elif mark in ">)}]":
            depth -= 1
        elif mark == "," and depth == 0:
            parts.append(text[start : bracket.start()].strip())
            start = bracket.end()
    rest = text[start:].strip()
    return [*parts, rest] if rest or parts else []


def closing_position(text: str, start: int) -> int:
    """Position just after the bracket that closes the one at `start`."""
    depth = 0
    for bracket in _BRACKET.finditer(text, start):
        mark = bracket[0]
        if mark in "<({[":
            depth += 1
        elif mark in ">)}]":
            depth -= 1
            if depth == 0:
                return bracket.end()
    raise ValueError(f"no closing bracket for {text[start : start + 40]!r}")
