"""Views whose elements lie anywhere: what an index tensor picks, and what the compiler's own order of a shared layout is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from bitverdict.harness.emulator.faults import OnChipFault
from bitverdict.harness.emulator.memory.byte_arrays import UNSIGNED_TYPES
from bitverdict.harness.emulator.memory.onchip import Space, View

if TYPE_CHECKING:
    from bitverdict.harness.emulator.memory.real_shadows import ShadowWords


class ScatteredView(View):
    """A memory descriptor by the byte of `space` at which each element begins: `at`, of `shape`, multiples of its size."""

    __slots__ = ("at",)

    def __init__(self, space: Space, at: np.ndarray, dtype: np.dtype) -> None:
        self.space, self.at, self.dtype, self.spread = space, at, dtype, 1
        self.shape = self.pieces = at.shape
        self.strides = ()
        self.low = self.offset = int(at.min(initial=space.size))
        self.high = int(at.max(initial=-dtype.itemsize)) + dtype.itemsize
        if self.high > space.size:
            raise OnChipFault("illegal address", f"a descriptor reaches byte {self.high} of {space.size} of {space.name}")

    def places(self) -> np.ndarray:
        return self.at

    def _words(self, state: np.ndarray) -> np.ndarray:
        size = self.dtype.itemsize
        return state[: state.size // size * size].view(UNSIGNED_TYPES[size])

    def _take(self, state: np.ndarray) -> np.ndarray:
        """The words of `state` (bytes of the space) at the elements, of `shape`."""
        return self._words(state).take(self.at // self.dtype.itemsize)

    def _set(self, state: np.ndarray, words: np.ndarray | int) -> None:
        self._words(state)[self.at // self.dtype.itemsize] = words

    @property
    def identity(self) -> tuple:
        return self.low, self.high, self.shape, self.at.tobytes()

    def get(self) -> np.ndarray:
        return self._take(self.space.data).view(self.dtype)

    def know(self) -> None:
        self._set(self.space.known, self.full)

    def forget(self) -> None:
        self._set(self.space.known, 0)
        if self.space.enclosed:
            self.space.enclosed.forget(self.at, self.dtype.itemsize)

    def put(self, values: np.ndarray, shadow_words: ShadowWords | None = None) -> None:
        self._set(
            self.space.data, np.ascontiguousarray(values, self.dtype).view(UNSIGNED_TYPES[self.dtype.itemsize]).reshape(self.shape)
        )
        self.know()
        if self.space.undefined is not None:
            self._set(self.space.undefined, 0)
        if shadow_words is not None or self.space.shadow is not None:
            self._carry(shadow_words)
        if self.space.enclosed:
            self.space.enclosed.forget(self.at, self.dtype.itemsize)

    def _carry(self, carried: ShadowWords | None) -> None:
        at = self.at // self.dtype.itemsize
        self.space.ensure_shadow().put(at, self.dtype.itemsize, carried if carried is None else carried.reshape(at.shape))

    def shadow_words(self) -> ShadowWords | None:
        shadow, size = self.space.shadow, self.dtype.itemsize
        return None if shadow is None else shadow.take(self.at // size, size)

    def leave_undefined(self, lanes: np.ndarray, loads: Iterable[str]) -> None:
        if self.space.undefined is None:
            self.space.undefined = np.zeros(self.space.size, np.uint8)
        self.space.undefined_by.update(loads)
        self._set(self.space.undefined, np.where(lanes, self.full, 0))

    def undefined_lanes(self) -> np.ndarray | None:
        if self.space.undefined is None:
            return None
        found = self._take(self.space.undefined) != 0
        return found if found.any() else None

    def unknown_lanes(self) -> np.ndarray:
        return self._take(self.space.known) != self.full

    @property
    def dense(self) -> bool:
        return False

    def holds(self, byte: int) -> bool:
        return bool(((self.at <= byte) & (byte < self.at + self.dtype.itemsize)).any())

    def bytes(self) -> np.ndarray:
        return np.unique(self.at.reshape(-1, 1) + np.arange(self.dtype.itemsize))

    def index(self, at: int) -> View:
        return ScatteredView(self.space, self.at[at], self.dtype)

    def subslice(self, offsets: list[int], shape: tuple[int, ...]) -> View:
        return ScatteredView(self.space, self.at[tuple(slice(o, o + n) for o, n in zip(offsets, shape, strict=True))], self.dtype)

    def transpose(self, order: list[int]) -> View:
        return ScatteredView(self.space, self.at.transpose(order), self.dtype)

    def reshape(self, shape: tuple[int, ...]) -> View:
        """The same elements, row-major, as `shape`."""
        return ScatteredView(self.space, self.at.reshape(shape), self.dtype)
