"""The table of PTX opcodes: for each, the types of its operands and results and what it computes on words.

A register holds words (bool for a predicate, uint8 to uint64), one a lane, or one for all lanes. A builder takes an opcode apart
and must account for every modifier: one that it does not know makes the opcode unknown, never a simpler one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

Words = Any  # a NumPy array of unsigned words or bools; the stubs know no shifts of a width that is known when it runs
Compute = Callable[..., Any]  # words, or a tuple of them

CARRY = "%cc"  # the condition-code register, written by `.cc` and read by addc, subc, madc
DTYPES = {1: np.dtype(bool), 8: np.dtype(np.uint8), 16: np.dtype(np.uint16), 32: np.dtype(np.uint32), 64: np.dtype(np.uint64)}
_TYPE = re.compile(r"(pred|[bsu](?:8|16|32|64)|[su]16x2|f64|f32|f32x2|f16|f16x2|bf16|bf16x2|tf32|e[45]m[23]x[24]|e[23]m[123]x[24]|"
                   r"ue8m0x2|b16x2)$")  # fmt: skip
_BITS = {"pred": 1, "tf32": 32, "f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "f32x2": 64, "u16x2": 32, "s16x2": 32,
         "e4m3x2": 16, "e5m2x2": 16, "e2m1x2": 8, "e2m3x2": 16, "e3m2x2": 16, "ue8m0x2": 16, "b16x2": 32}  # fmt: skip


class UnknownOpcode(Exception):
    """An opcode, or a form of it, that is not executed here; the message names it."""


@cache
def bits(kind: str) -> int:
    """Width of a type of PTX: 32 for "f32", 1 for "pred"."""
    return _BITS.get(kind) or int(re.sub(r"\D", "", kind))


@dataclass(frozen=True)
class Meaning:
    """What an opcode does: operand types, result types, and the function from words to words.

    `reads` and `writes` may end in CARRY, which no statement names. `second`: of a comparison what goes to the q of "p|q".
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    compute: Compute
    second: Compute | None = None


@dataclass
class Opcode:
    """An opcode taken apart: "fma.rn.ftz.f32" has the kind "fma", the modifiers rn and ftz, and the type f32."""

    text: str
    kind: str = ""
    modifiers: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kind, *parts = re.sub(r"::", "..", self.text).split(".")
        self.types = [part for part in parts if _TYPE.match(part)]
        self.modifiers = [part for part in parts if not _TYPE.match(part)]

    def take(self, *names: str) -> str:
        """The one of `names` that is a modifier here, and is accounted for now; "" for none."""
        for name in names:
            if name in self.modifiers:
                self.modifiers.remove(name)
                return name
        return ""

    @property
    def type(self) -> str:
        """The last type. UnknownOpcode without one."""
        if not self.types:
            raise UnknownOpcode(f"{self.text} has no type that is known here")
        return self.types[-1]


Builder = Callable[[Opcode], Meaning | None]
BUILDERS: dict[str, list[Builder]] = {}


def opcode(*kinds: str) -> Callable[[Builder], Builder]:
    """Register a builder for opcodes of these kinds. It returns None where another builder of the kind may know the form."""

    def register(builder: Builder) -> Builder:
        for kind in kinds:
            BUILDERS.setdefault(kind, []).append(builder)
        return builder

    return register


def as_signed(words: Words) -> Words:
    """The same bits as signed integers."""
    return words.view(f"i{words.itemsize}")


def as_unsigned(words: Words) -> Words:
    """The same bits as unsigned integers."""
    return words.view(f"u{words.itemsize}")


def view_of_type(kind: str) -> Callable[[Words], Words]:
    """Choose how to view an operand of an integer type: as signed for "s32"."""
    return as_signed if kind.startswith("s") else as_unsigned
