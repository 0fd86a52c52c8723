"""Shared and tensor memory of one program, as bytes with what is known of each, and the views that descriptors are.

Shared memory has the compiler's offsets; inside one allocation elements lie row-major, which is a bijection of where the swizzle
puts them, so that overlap, reuse and what is uninitialised show as they will.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

import numpy as np

from bitverdict.harness.emulator.faults import EmulatedFault, OnChipFault
from bitverdict.harness.emulator.memory.byte_arrays import UNSIGNED_TYPES
from bitverdict.harness.emulator.memory.real_shadows import Shadow, ShadowWords
from bitverdict.harness.emulator.numerics.enclosed_memory import EnclosedMemory, Enclosure
from bitverdict.harness.emulator.numerics.enclosures import EnclosedRoom, keys

SPREAD = 2  # of fp4 beside fp8: of 16 bytes of shared memory 8 hold elements (PTX ISA, tensor memory map: .b4x16_p64)
POISON = 0xFF  # a NaN in every float format we hold, and conspicuous as an integer


class Space:
    """One on-chip memory of one program: its bytes, and for each byte whether it was written since it was allocated."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size
        self.data = np.full(size, POISON, np.uint8)  # (size,)
        self.undefined: np.ndarray | None = None  # (size,) not 0 where a masked load left what was stored here undefined
        self.undefined_by: set[str] = set()  # the lines of those loads
        self.known = np.zeros(size, np.uint8)  # (size,) 0xFF where written
        self.shadow: Shadow | None = None  # the real values of what was computed; None where nothing was
        self.enclosed = EnclosedMemory()

    def reset(self) -> None:
        """Fresh: poisoned, nothing known."""
        self.data.fill(POISON)
        self.undefined = None
        self.known.fill(0)
        if self.shadow is not None:
            self.shadow.clear()
        if self.enclosed:
            self.enclosed = EnclosedMemory()

    def ensure_shadow(self) -> Shadow:
        """Its shadow, made where there is none."""
        if self.shadow is None:
            self.shadow = Shadow(self.size)
        return self.shadow


class View(EnclosedRoom):
    """A memory descriptor: `shape` elements of `dtype` in `space`, from byte `offset`, `strides` bytes apart.

    Tensor memory cuts a tensor into blocks of rows: there `pieces` is the shape that `strides` belong to, and `shape` what it
    reads as, row-major. `spread` is how many times its own size an element takes: 2 where the compiler pads fp4 (`SPREAD`).
    """

    __slots__ = ("_array", "_known", "dtype", "high", "low", "offset", "pieces", "shape", "space", "spread", "strides")

    def __init__(
        self,
        space: Space,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype,
        pieces: tuple[int, ...] | None = None,
        spread: int = 1,
    ) -> None:
        self.space, self.offset, self.shape, self.strides, self.dtype = space, offset, shape, strides, dtype
        self.pieces, self.spread = pieces or shape, spread
        self.low = offset
        self.high = offset + sum((n - 1) * s for n, s in zip(self.pieces, strides, strict=True)) + dtype.itemsize * spread
        if self.high > space.size:
            raise OnChipFault("illegal address", f"a descriptor reaches byte {self.high} of {space.size} of {space.name}")
        self._array: np.ndarray | None = None
        self._known: np.ndarray | None = None

    @property
    def array(self) -> np.ndarray:
        """The bits themselves, in `pieces`."""
        if self._array is None:
            self._array = np.ndarray(self.pieces, self.dtype, self.space.data, self.offset, self.strides)
        return self._array

    @property
    def known_marks(self) -> np.ndarray:
        """What is known of each element, in `pieces`: `full` where it was written."""
        if self._known is None:
            self._known = self._state_view(self.space.known)
        return self._known

    def _state_view(self, state: np.ndarray) -> np.ndarray:
        return np.ndarray(self.pieces, UNSIGNED_TYPES[self.dtype.itemsize], state, self.offset, self.strides)

    def get(self) -> np.ndarray:
        """A copy of the elements, in `shape`."""
        return self.array.reshape(self.shape) if self.pieces != self.shape else self.array.copy()

    def know(self) -> None:
        """All elements are written."""
        self.known_marks[...] = self.full

    def forget(self) -> None:
        """Nothing is known of any element."""
        self.known_marks[...] = 0
        if self.space.enclosed:
            self.space.enclosed.forget(self.places(), self.dtype.itemsize)

    def put(self, values: np.ndarray, shadow_words: ShadowWords | None = None) -> None:
        """Write `values` of `shape`, and know them. Their real values are `carried` (of any shape with as many), or they are
        exact."""
        self.array[...] = values if self.pieces == self.shape else np.reshape(values, self.pieces)
        self.known_marks[...] = self.full
        if self.space.undefined is not None:
            self._state_view(self.space.undefined)[...] = 0
        if shadow_words is not None or self.space.shadow is not None:
            self._carry(shadow_words)
        if self.space.enclosed:
            self.space.enclosed.forget(self.places(), self.dtype.itemsize)

    def enclose(self, ends: Enclosure | None) -> None:
        """The elements just written lie between `ends` (of as many), where there are some."""
        if ends is None:
            return
        low, high = ends.low.reshape(self.shape), ends.high.reshape(self.shape)
        open_, is_integer = low != high, self.dtype.kind in "ib"
        place, word = self.places()[open_], keys(self.get())[open_]
        self.space.enclosed.store(place, word, low[open_], high[open_], self.dtype.itemsize, is_integer)

    def enclosure(self) -> Enclosure | None:
        """Of the elements; None where all are exact. EmulatedFault where words of another type, or parts of words, are enclosed."""
        memory, is_integer = self.space.enclosed, self.dtype.kind in "ib"
        if not memory:
            return None
        places, size = self.places(), self.dtype.itemsize
        if memory.overlaps(places, size, is_integer):
            said = f"{self} is read as words of {size} bytes of another type than those that are enclosed in it"
            raise EmulatedFault("not modelled", f"{said}: read the type that was written")
        return memory.enclosure_at(places, keys(self.get()), size, is_integer)

    def _carry(self, carried: ShadowWords | None) -> None:
        """The real values of all elements are `carried` now; None: they are exact."""
        if carried is None:
            self._state_view(self.space.ensure_shadow().marks)[...] = 0
        else:
            self.space.ensure_shadow().strided_view(self.pieces, self.dtype.itemsize, self.offset, self.strides).put(carried)

    def shadow_words(self) -> ShadowWords | None:
        """The real values of the elements, in `shape`; None where all are exact."""
        if self.space.shadow is None:
            return None
        found = self.space.shadow.strided_view(self.pieces, self.dtype.itemsize, self.offset, self.strides).take()
        return found if found is None or self.pieces == self.shape else found.reshape(self.shape)

    def leave_undefined(self, lanes: np.ndarray, loads: Iterable[str]) -> None:
        """The elements just written are undefined in `lanes` (bool, of `shape`), by `loads`."""
        if self.space.undefined is None:
            self.space.undefined = np.zeros(self.space.size, np.uint8)
        self.space.undefined_by.update(loads)
        self._state_view(self.space.undefined)[...] = np.where(lanes, self.full, 0).reshape(self.pieces)

    def undefined_lanes(self) -> np.ndarray | None:
        """Which elements are undefined, in `shape`; None for none."""
        if self.space.undefined is None:
            return None
        found = self._state_view(self.space.undefined) != 0
        return found.reshape(self.shape) if found.any() else None

    def unknown_lanes(self) -> np.ndarray:
        """Which elements were never written, in `shape`."""
        return (self.known_marks != self.full).reshape(self.shape)

    def unknown(self) -> int:
        """How many elements were never written."""
        return int(self.unknown_lanes().sum())

    @property
    def full(self) -> int:
        return (1 << (8 * self.dtype.itemsize)) - 1

    @property
    def dense(self) -> bool:
        """Whether it covers all bytes from its first to its last, padding included."""
        return self.high - self.low == self.spread * self.dtype.itemsize * int(np.prod(self.shape))

    def holds(self, byte: int) -> bool:
        """Whether `byte` of its space may be one of it."""
        return self.low <= byte < self.high

    @property
    def extent(self) -> slice | np.ndarray:
        """What indexes the space's bytes that the view covers."""
        return slice(self.low, self.high) if self.dense else self.bytes()

    def places(self) -> np.ndarray:
        """The byte that each element begins at, of `shape`."""
        return places_in(self.shape, self.pieces, self.strides) + self.offset

    @property
    def identity(self) -> tuple:
        """Equal for two views of the same elements."""
        return self.low, self.high, self.shape, self.strides

    def bytes(self) -> np.ndarray:
        """Positions in the space of all bytes of the view, ascending."""
        if self.dense:
            return np.arange(self.low, self.high)
        marks = np.zeros(self.space.size, np.uint8)
        self._state_view(marks)[...] = self.full
        return np.flatnonzero(marks)

    def overlaps(self, other_view: View) -> bool:
        """Whether the two have a byte in common."""
        if self.space is not other_view.space or self.low >= other_view.high or other_view.low >= self.high:
            return False
        if self.dense and other_view.dense:
            return True
        marks = np.zeros(self.space.size, np.uint8)
        marks[self.extent] = 1
        return bool(marks[other_view.extent].any())

    def index(self, at: int) -> View:
        """Buffer `at` of an allocation of several."""
        return View(
            self.space,
            self.offset + at * self.strides[0],
            self.shape[1:],
            self.strides[1:],
            self.dtype,
            self.pieces[1:] if self.pieces != self.shape else None,
            self.spread,
        )

    def subslice(self, offsets: list[int], shape: tuple[int, ...]) -> View:
        """`shape` elements from `offsets` on. Along an axis in several pieces an offset is a multiple of how many it takes."""
        if self.pieces == self.shape:
            start = self.offset + sum(o * s for o, s in zip(offsets, self.strides, strict=True))
            return View(self.space, start, shape, self.strides, self.dtype, spread=self.spread)
        pieces: list[int] = []
        start, place = self.offset, len(self.pieces)
        for size, offset, count in zip(reversed(self.shape), reversed(offsets), reversed(shape), strict=True):
            inner_count, rest_offset, rest_count = 1, offset, count
            while inner_count < size:
                place -= 1
                factor = self.pieces[place]
                start += rest_offset % factor * self.strides[place]
                pieces.append(min(factor, rest_count))
                inner_count, rest_offset, rest_count = inner_count * factor, rest_offset // factor, rest_count // pieces[-1]
        kept = (1,) * place + tuple(reversed(pieces))
        return View(self.space, start, shape, self.strides, self.dtype, kept)

    def transpose(self, order: list[int]) -> View:
        """The axes in another order."""
        shape, strides = tuple(self.shape[i] for i in order), tuple(self.strides[i] for i in order)
        return View(self.space, self.offset, shape, strides, self.dtype, spread=self.spread)

    def __str__(self) -> str:
        if self.space.name == "tensor memory":
            row = 512 * 4
            return f"tensor memory columns {self.low % row // 4}..{(self.high - 1) % row // 4}"
        return f"{self.space.name} bytes {self.low}..{self.high - 1}"


class Outside(View):
    """Where an index beyond the buffers of a descriptor leads: an address that may be formed, so a fault only once it is used.

    It has a shape and a type; whatever asks where it lies raises the fault. Views of it are outside too.
    """

    __slots__ = ("details", "said")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, said: str, details: dict[str, str]) -> None:
        self.shape = self.pieces = shape
        self.dtype, self.spread, self.said, self.details = dtype, 1, said, details

    def __getattr__(self, name: str) -> NoReturn:
        """Of what a view has and this has not: the place."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise OnChipFault("illegal address", self.said, details=dict(self.details))

    def _of_shape(self, shape: tuple[int, ...]) -> Outside:
        return Outside(shape, self.dtype, self.said, self.details)

    def index(self, at: int) -> View:
        return self._of_shape(self.shape[1:])

    def subslice(self, offsets: list[int], shape: tuple[int, ...]) -> View:
        return self._of_shape(shape)

    def transpose(self, order: list[int]) -> View:
        return self._of_shape(tuple(self.shape[i] for i in order))


def places_in(shape: tuple[int, ...], pieces: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """The byte, from the first on, that each element of `shape` begins at, whose `pieces` lie `strides` apart."""
    found = np.zeros((), np.int64)
    for axis, (size, stride) in enumerate(zip(pieces, strides, strict=True)):
        along = [1] * len(pieces)
        along[axis] = size
        found = found + (np.arange(size, dtype=np.int64) * stride).reshape(along)
    return found.reshape(shape)


def row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))
