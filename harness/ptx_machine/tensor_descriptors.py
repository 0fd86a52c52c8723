"""What the instruction descriptor of a tcgen05.mma says (PTX ISA 9.7.16.4.2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

_NARROW = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}
OPERANDS = {
    "f16": {0: "f16", 1: "bf16"},
    "tf32": {2: "tf32"},
    "f8f6f4": _NARROW,
    "i8": {0: "u8", 1: "s8"},
    "mxf8f6f4": _NARROW,
    "mxf4": {1: "e2m1"},
    "mxf4nvf4": {1: "e2m1"},
}
"""Types of operands by kind and code of the instruction descriptor (PTX ISA 9.7.16.4.2)."""
_RESULTS = {0: "f16", 1: "f32", 2: "s32"}
WIDTHS = {"f16": 16, "bf16": 16, "tf32": 32, "e2m3": 6, "e3m2": 6, "e2m1": 4}  # bits of an element; else 8
K_BYTES = 32  # of both operands of one instruction


@dataclass(frozen=True)
class Product:
    """What an instruction descriptor says. `scale_bytes`: the byte of a column that the scales of A, and of B, begin at."""

    kind: str
    left: str
    right_type: str
    result: str
    m: int
    n: int
    is_transposed: tuple[bool, bool]
    is_negated: tuple[bool, bool]
    saturates: bool = False
    scale: str = ""
    scale_bytes: tuple[int, int] = (0, 0)

    @property
    def is_packed(self) -> bool:
        """Two elements a byte: the kinds of four bits alone."""
        return self.kind in ("mxf4", "mxf4nvf4")

    @property
    def k(self) -> int:
        if self.is_packed:
            return 2 * K_BYTES
        return 8 * K_BYTES // max(WIDTHS.get(self.left, 8), 8)


@cache
def product_of_descriptor(kind: str, word: int, is_pair: bool) -> Product | str:
    """The product, of each CTA of a pair its own part of M, or why it is not executed here."""
    left, right = (OPERANDS[kind].get(word >> position & 7) for position in (7, 10))
    n, is_scaled = (word >> 17 & 63) << 3, kind.startswith("mx")
    m = ((word >> 27 & 3) << 7 if is_scaled else (word >> 24 & 31) << 4) >> is_pair
    result = "f32" if is_scaled else _RESULTS.get(word >> 4 & 3)
    fits = m in ((128,) if is_scaled else (64, 128)) and 8 <= n <= 256 and n % (16 if m == 128 else 8) == 0
    if left is None or right is None or result is None or not fits or (result == "s32") != (kind == "i8"):
        return f"the instruction descriptor {word:#x} says no product of kind::{kind}: {left} and {right} to {result}, M {m}, N {n}"
    unknown = word & (0x8000000F if is_scaled else 0xE0000007)
    if unknown:
        return f"an instruction descriptor {word:#x}, whose bits {unknown:#x} are not known here"
    bits = [bool(word >> position & 1) for position in (3, 13, 14, 15, 16, 23)]
    shape = (left, right, result, m, n, (bits[3], bits[4]), (bits[1], bits[2]))
    if is_scaled:
        return Product(kind, *shape, scale="e8m0" if bits[5] else "ue4m3", scale_bytes=(word >> 29 & 3, word >> 4 & 3))
    return Product(kind, *shape, saturates=bits[0])
