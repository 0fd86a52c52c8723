"""Real values of words in memory: beside each word what the program computes without rounding, as far as a launch computed it.

A `Shadow` lies beside the bytes of one memory: a storage of global memory, shared or tensor memory of a program. For each byte it
knows whether it belongs to a computed word, and of which type; for each such word the real value and its running error. A write
of what is exact takes the marks away. So what is not marked is exact: its real value is that of the word in the type it is read by.

`ShadowWords` are what a copy carries: the real values of some words in transit. A word that is read by another type than it was
computed in has a real value only where it is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from bitverdict.harness.emulator.memory.byte_arrays import UNSIGNED_TYPES, zeros
from bitverdict.harness.emulator.numerics.scalar_ops import widen
from bitverdict.reference.formats import FORMATS

EXACT, PARTS = 0, 255  # kinds of no type: nothing was computed; bytes of different words
_TYPES = ("f32", "f16", "bf16", "f8E4M3FN", "f8E5M2", "f64", "i1", "i8", "i16", "i32", "i64")
KINDS: dict[str, int] = {name: number for number, name in enumerate(_TYPES, 1)}
"""The mark of each byte of a word, by the element of its type (`mlir_types.ELEMENTS`)."""
_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "f64": 8, "i16": 2, "i32": 4, "i64": 8}
BYTES = np.ones(256, np.int64)  # (marks,) of a word
for _name, _number in KINDS.items():
    BYTES[_number] = _BYTES.get(_name, 1)
_BYTE_ONES = {size: int.from_bytes(b"\1" * size, "little") for size in UNSIGNED_TYPES}
Where = slice | np.ndarray


@dataclass(frozen=True, eq=False)
class ShadowWords:
    """Real values of words on their way, in one shape: `kind` (uint8) says in which type each was computed (`EXACT`: it was not,
    and has no `value`), `error` (inf: unknown) bounds what float64 lost."""

    kind: np.ndarray
    value: np.ndarray
    error: np.ndarray

    def __getitem__(self, place: Any) -> ShadowWords:
        return ShadowWords(self.kind[place], self.value[place], self.error[place])

    def reshape(self, *shape: Any) -> ShadowWords:
        return ShadowWords(self.kind.reshape(*shape), self.value.reshape(*shape), self.error.reshape(*shape))

    def where(self, chosen: np.ndarray) -> ShadowWords:
        """What is not `chosen` (of the same shape) is exact."""
        return ShadowWords(np.where(chosen, self.kind, np.uint8(EXACT)), self.value, self.error)

    def spread(self, lanes: np.ndarray, shape: tuple[int, ...]) -> ShadowWords:
        """These at `lanes` of `shape`, the others exact."""
        found = [np.zeros(shape, each.dtype) for each in (self.kind, self.value, self.error)]
        for each, mine in zip(found, (self.kind, self.value, self.error), strict=True):
            each.reshape(-1)[lanes] = mine
        return ShadowWords(*found)

    def merge_with(self, other: ShadowWords) -> ShadowWords:
        """These, and `other` where these are exact."""
        exact = self.kind == EXACT
        return ShadowWords(*(np.where(exact, theirs, mine) for mine, theirs in ((self.kind, other.kind), (self.value, other.value),
                                                                          (self.error, other.error))))  # fmt: skip


def make_shadow_words(element: str, value: np.ndarray, error: np.ndarray, shape: tuple[int, ...]) -> ShadowWords:
    """Words of type `element` whose real values are `value` and `error`, broadcast to `shape`."""
    kind = np.full(shape, KINDS[element], np.uint8)
    return ShadowWords(kind, np.broadcast_to(value, shape), np.broadcast_to(error, shape))


def round_shadow_words(carried: ShadowWords | None, words: np.ndarray, inside: np.ndarray | None) -> ShadowWords:
    """What fp32 `words`, which carry `carried`, carry once they are rounded on their way, where they are `inside`."""
    value, error = value_of(words, "f32"), np.zeros(words.shape)
    if carried is not None:
        value, error, _ = read_as(carried, words, "f32")
    found = make_shadow_words("f32", value, error, words.shape)
    return found if inside is None else found.where(inside)


def read_as(shadow_words: ShadowWords, words: np.ndarray, element: str) -> tuple[np.ndarray, np.ndarray, bool]:
    """(value, error, whether all are read in the type they were computed in) of `words` (held as `element` is, of the shape of
    `carried`) that are read as `element`. What was computed in another type is unknown, unless it is exact there."""
    mine = shadow_words.kind == KINDS[element]
    if mine.all():
        return shadow_words.value, shadow_words.error, True
    exact = shadow_words.kind == EXACT
    other = ~(mine | exact)
    if other.any():
        exact |= other & _exact(shadow_words, words)
    value = np.where(mine, shadow_words.value, value_of(words, element))
    error = np.where(mine, shadow_words.error, np.where(exact, 0.0, np.inf))
    return value, error, bool((mine | exact).all())


def _exact(shadow_words: ShadowWords, words: np.ndarray) -> np.ndarray:
    """Which of `words` have the real value that they hold in the type they were computed in."""
    size = words.dtype.itemsize
    exact_words = np.zeros(words.shape, np.bool_)
    held = np.ascontiguousarray(words).reshape(words.shape)  # (of a single word it would have an axis)
    bits = held.view(UNSIGNED_TYPES[size]) if words.dtype != np.bool_ else held.view(np.uint8)
    for number in np.unique(shadow_words.kind).tolist():
        element = _TYPES[number - 1] if number not in (EXACT, PARTS) else ""
        if element and _BYTES.get(element, 1) == size:
            same = (shadow_words.kind == number) & (shadow_words.error == 0)
            exact_words |= same & (shadow_words.value == value_of(bits.view(held_dtype(element)), element))
    return exact_words


@cache
def _table(element: str) -> np.ndarray:
    """(codes,) the value of each code of a narrow float type."""
    codes = np.arange(1 << (8 * _BYTES.get(element, 1)), dtype=held_dtype(element))
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return widen(codes, _FORMATS[element])


_FORMATS = {"f16": "fp16", "bf16": "bf16", "f8E4M3FN": "e4m3", "f8E5M2": "e5m2"}
assert set(_FORMATS.values()) <= set(FORMATS)


def held_dtype(element: str) -> np.dtype:
    from bitverdict.harness.emulator.mlir_types import element_dtype

    return element_dtype(element)


def value_of(words: np.ndarray, element: str) -> np.ndarray:
    """float64 values of `words` as the emulator holds them in the type `element`."""
    if element in _FORMATS:
        return _table(element).take(words)
    with np.errstate(invalid="ignore"):
        return np.asarray(words).astype(np.float64)


class Shadow:
    """Real values beside the `size` bytes of one memory."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.marks = zeros(size, np.uint8)  # (size,) the kind of the word that each byte belongs to
        self.sides: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # by bytes of a word: (words,) values and errors

    def __bool__(self) -> bool:
        return bool(self.sides)

    def clear(self) -> None:
        """All is exact."""
        if self.sides:
            self.marks.fill(EXACT)

    def words(self, size: int) -> np.ndarray:
        """The marks of all words of `size` bytes, as one number each."""
        return self.marks[: self.size // size * size].view(UNSIGNED_TYPES[size])

    def side(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        found = self.sides.get(size)
        if found is None:
            found = self.sides[size] = zeros(self.size // size, np.float64), zeros(self.size // size, np.float64)
        return found

    # -- by the number of a word ------------------------------------------------------------------------------------------
    def take(self, where: Where, size: int) -> ShadowWords | None:
        """What the words of `size` bytes at `where` (their numbers, or a slice of them) carry; None where all are exact."""
        return self._take_words(self.words(size)[where], size, where) if self.sides else None

    def put(self, where: Where, size: int, shadow_words: ShadowWords | None) -> None:
        """The words of `size` bytes at `where` carry `carried` now, of one shape with it; None: they are exact."""
        if shadow_words is None:
            if self.sides:
                self.words(size)[where] = 0
            return
        values, errors = self.side(size)
        self.words(size)[where] = shadow_words.kind * UNSIGNED_TYPES[size].type(_BYTE_ONES[size])
        values[where], errors[where] = shadow_words.value, shadow_words.error

    def _take_words(self, marks: np.ndarray, size: int, where: Any) -> ShadowWords | None:
        if not marks.any():
            return None
        kind = _kind(marks, size)
        values, errors = self.side(size)
        return ShadowWords(kind, np.array(values[where]), np.array(errors[where]))

    # -- by strides -------------------------------------------------------------------------------------------------------
    def strided_view(self, shape: tuple[int, ...], size: int, offset: int, strides: tuple[int, ...]) -> StridedShadow:
        """Words of `size` bytes, from byte `offset` on, `strides` bytes apart."""
        values, errors = self.side(size)
        apart = tuple(8 * stride // size for stride in strides)
        return StridedShadow(
            size,
            np.ndarray(shape, UNSIGNED_TYPES[size], self.marks, offset, strides),
            np.ndarray(shape, np.float64, values, 8 * offset // size, apart),
            np.ndarray(shape, np.float64, errors, 8 * offset // size, apart),
        )


@dataclass(frozen=True, eq=False)
class StridedShadow:
    """Words of a shadow that lie apart by strides: the arrays themselves, the marks as one number a word of `size` bytes."""

    size: int
    marks: np.ndarray
    values: np.ndarray
    errors: np.ndarray

    def take(self) -> ShadowWords | None:
        """What they carry now; None where all are exact."""
        if not self.marks.any():
            return None
        return ShadowWords(_kind(self.marks, self.size), self.values.copy(), self.errors.copy())

    def put(self, carried: ShadowWords) -> None:
        shape = self.marks.shape
        self.marks[...] = carried.kind.reshape(shape) * UNSIGNED_TYPES[self.size].type(_BYTE_ONES[self.size])
        self.values[...] = carried.value.reshape(shape)
        self.errors[...] = carried.error.reshape(shape)


def _kind(marks: np.ndarray, size: int) -> np.ndarray:
    """(...) uint8: the kind of each word, from the marks of its `size` bytes."""
    first = marks.astype(np.uint8)  # the lowest byte
    if size == 1:
        return first
    whole = marks == first * UNSIGNED_TYPES[size].type(_BYTE_ONES[size])
    return first if whole.all() else np.where(whole, first, np.uint8(PARTS))
