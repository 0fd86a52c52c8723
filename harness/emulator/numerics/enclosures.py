"""Enclosures: what a value may be where the compiler leaves a choice that its output does not show.

Some sums may take in a product before it is rounded, or after; the compiled program does not always say which. Such a value is held
as a word and, beside it, the lowest and the highest word that any choice can give. An operation on it is computed on the word, and
then on the ends of the enclosure, by the same code. That is enough where the operation is monotone in each operand: rounding is.
Elsewhere it is computed on every word inside. What is neither, and what would choose by such a value, is refused when it runs.

A product that a sum takes in unrounded is less than one word away from the rounded one. So a sum that may take a product lies
between the sums with the words below and above the product.

Words are compared by their keys: integers in the order of the real values, with -0 below +0.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.advice import Advice, Note
from bitverdict.harness.emulator.faults import NotModelled
from bitverdict.harness.emulator.numerics.scalar_ops import widen

if TYPE_CHECKING:
    from bitverdict.harness.emulator.execution.cta import Cta
    from bitverdict.harness.emulator.mlir_reader import Operation

MOST_WORDS = 4096  # tried of an operand of a function that need not be monotone: an effort, beyond which the operation is refused


def keys(words: np.ndarray) -> np.ndarray:
    """(...) int64 keys of float `words` (fp32 and fp64 as such, narrower formats as their codes)."""
    words = np.asarray(words)
    signed = words.view(f"i{words.itemsize}")
    return (signed ^ ((signed >> (8 * words.itemsize - 1)) & np.iinfo(signed.dtype).max)).astype(np.int64)


def words_of(found: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The words of type `dtype` whose keys are `found`."""
    signed = found.astype(f"i{dtype.itemsize}")
    return (signed ^ ((signed >> (8 * dtype.itemsize - 1)) & np.iinfo(signed.dtype).max)).view(dtype)


@dataclass(frozen=True)
class Enclosure:
    """The lowest and the highest words that a value may have, as keys in its shape."""

    low: np.ndarray
    high: np.ndarray

    def joined(self, low: np.ndarray, high: np.ndarray) -> Enclosure:
        return Enclosure(np.minimum(self.low, low), np.maximum(self.high, high))


@dataclass
class EnclosedMemory:
    """Words of global memory that are enclosed, by address, over all launches of a device: `word` is what the launch stored, and an
    address that holds another by now was written by something else since."""

    address: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    word: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # its key
    low: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    high: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    size: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # bytes of a word

    def __bool__(self) -> bool:
        return bool(self.address.size)

    def forget(self, address: np.ndarray) -> None:
        self._keep(~np.isin(self.address, address))

    def store(self, address: np.ndarray, word: np.ndarray, low: np.ndarray, high: np.ndarray, size: int) -> None:
        """(n,) each, keys; none of the addresses twice."""
        self.forget(address)
        new = (address, word, low, high, np.full(address.shape, size))
        for name, each in zip(("address", "word", "low", "high", "size"), new, strict=True):
            setattr(self, name, np.concatenate([getattr(self, name), each]))
        self._keep(np.argsort(self.address))

    def _keep(self, places: np.ndarray) -> None:
        for name in ("address", "word", "low", "high", "size"):
            setattr(self, name, getattr(self, name)[places])

    def at(self, address: np.ndarray, word: np.ndarray, size: int) -> Enclosure | None:
        """What may lie at `address` (...) that holds the keys `word`; None where all of it is exact."""
        if not self:
            return None
        place = np.minimum(np.searchsorted(self.address, address), self.address.size - 1)
        there = (self.address[place] == address) & (self.word[place] == word) & (self.size[place] == size)
        if not there.any():
            return None
        return Enclosure(np.where(there, self.low[place], word), np.where(there, self.high[place], word))

    def overlaps(self, address: np.ndarray, size: int) -> bool:
        """Whether a byte of the `size` at any of `address` is part of an enclosed word."""
        flat = np.unique(np.asarray(address).reshape(-1))
        after = np.searchsorted(flat, self.address - size, "right")
        return bool((after < np.searchsorted(flat, self.address + self.size, "left")).any())


@dataclass
class Enclosures:
    """The enclosed values of one launch, by identity: the code hands values on without copying them. Arrays are held weakly."""

    memory: EnclosedMemory = field(default_factory=EnclosedMemory)
    held: dict[int, tuple[Any, Enclosure]] = field(default_factory=dict)

    def of(self, value: Any) -> Enclosure | None:
        found = self.held.get(id(value))
        if found is None:
            return None
        kept, enclosure = found
        return enclosure if (kept() if isinstance(kept, weakref.ref) else kept) is value else None

    def hold(self, value: Any, enclosure: Enclosure) -> None:
        number = id(value)
        if isinstance(value, np.ndarray):
            self.held[number] = weakref.ref(value, lambda _: self.held.pop(number, None)), enclosure
        else:
            self.held[number] = value, enclosure


def _array(value: Any, dtype: np.dtype) -> np.ndarray:
    return value if isinstance(value, np.ndarray) else np.asarray(value, dtype)


def _like(value: Any, found: np.ndarray) -> Any:
    """`found` as the code holds `value`: a scalar may be a Python number."""
    return (
        found if isinstance(value, np.ndarray) else found.reshape(()).item() if isinstance(value, float) else found.reshape(())[()]
    )


def inside(m: Cta, *values: Any) -> bool:
    """Whether any of `values` is enclosed."""
    held = m.launch.enclosures
    return bool(held.held) and any(held.of(value) is not None for value in values)


Wide = bool | np.ndarray
"""Whether an operand may be a product that is taken in unrounded, of all elements or of each."""


def inexact(fmt: str | None, value: Any, left: Any, right: Any) -> Wide:
    """Where the product `value` of `left` and `right` was rounded: elsewhere it is the same, taken in or not. float64 holds a
    product of two numbers of narrower formats."""
    if fmt is None:
        return True
    with np.errstate(invalid="ignore", over="ignore"):
        whole = np.abs(np.multiply(*(np.asarray(widen(each, fmt), np.float64) for each in (left, right))))
    return np.asarray(whole != np.abs(np.asarray(widen(value, fmt), np.float64)))


def _ends(m: Cta, value: Any, dtype: np.dtype, wide: Wide) -> tuple[np.ndarray, np.ndarray] | None:
    enclosure, array = m.launch.enclosures.of(value), _array(value, dtype)
    if enclosure is None:
        if not np.any(wide):
            return None
        enclosure = Enclosure(keys(array), keys(array))
    elif wide is not False:
        wide = True  # its factors may be enclosed too
    if wide is False:
        return enclosure.low, enclosure.high
    low, high = _below(enclosure.low, array.dtype), _above(enclosure.high, array.dtype)
    return np.where(wide, low, enclosure.low), np.where(wide, high, enclosure.high)


def _below(low: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return np.where(_finite(low - 1, dtype), low - 1, low)


def _above(high: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return np.where(_finite(high + 1, dtype), high + 1, high)


def _finite(found: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Whether `found` are keys of numbers or infinities in the format of its size with the widest exponent."""
    size = dtype.itemsize
    return np.abs(found) <= {8: 0x7FF << 52, 4: 0x7F800000, 2: 0x7F80, 1: 0x7F}[size]


def ends(m: Cta, value: Any, dtype: np.dtype, wide: Wide) -> tuple[Any, ...]:
    """The lowest and the highest word of `value` element by element, or itself where it is exact. `wide`: one word further."""
    found = _ends(m, value, dtype, wide)
    if found is None:
        return (value,)
    return tuple(_like(value, words_of(each, _array(value, dtype).dtype)) for each in found)


def sides(m: Cta, values: tuple[Any, ...], dtypes: tuple[np.dtype, ...], wide: tuple[Wide, ...]) -> tuple[tuple[Any, ...], ...]:
    """`values` at their lowest words, then all at their highest."""
    found = [ends(m, *each) for each in zip(values, dtypes, wide, strict=True)]
    return tuple(each[0] for each in found), tuple(each[-1] for each in found)


def every(m: Cta, op: Operation, value: Any, dtype: np.dtype) -> Iterator[Any]:
    """`value` at each of its words. NotModelled where an element has more than `MOST_WORDS`."""
    found = _ends(m, value, dtype, False)
    if found is None:
        yield value
        return
    low, high = found
    count = int((high - low).max()) + 1
    if count > MOST_WORDS:
        raise NotModelled(op, f"of a value whose enclosure has {count} words: at most {MOST_WORDS} are tried")
    for step in range(count):
        yield _like(value, words_of(np.minimum(low + step, high), _array(value, dtype).dtype))


def joined(
    op: Operation, before: tuple[Enclosure, ...] | None, found: Any, formats: tuple[str | None, ...]
) -> tuple[Enclosure, ...]:
    """`before` with the results `found` of one more choice; a tuple, also of one result."""
    made = []
    for i, (value, fmt) in enumerate(zip(found, formats, strict=True)):
        array = np.asarray(value, np.float32 if fmt == "fp32" else np.float64 if fmt is None else None)
        if np.isnan(widen(array, fmt)).any():
            raise NotModelled(op, "of a value whose enclosure leads to a NaN")
        at = keys(array)
        made.append(before[i].joined(at, at) if before else Enclosure(at, at))
    return tuple(made)


def hold(
    m: Cta, op: Operation, found: Any, enclosures: tuple[Enclosure, ...], formats: tuple[str | None, ...], open_: bool
) -> None:
    """The results `found` of `op` lie in `enclosures`, and in themselves. `open_`: here is where the choice is."""
    held = m.launch.enclosures
    for value, enclosure in zip(found, joined(op, enclosures, found, formats), strict=True):
        if (enclosure.low != enclosure.high).any():
            held.hold(value, enclosure)
            if open_:
                m.notes.add(Note(Advice.OPEN_SUM, op.location))


def settled(op: Operation, found: Any, other: Any) -> None:
    """`other` is what `op` gives by another choice than `found`. NotModelled where they differ: the program would choose by it."""
    if not np.array_equal(np.asarray(found), np.asarray(other)):
        raise NotModelled(op, "of a value that is enclosed: the result depends on a choice that the compiled program leaves open")


def refuse(m: Cta, op: Operation) -> None:
    raise NotModelled(op, "of a value that is enclosed, because the compiled program leaves open which sums take a product")


def stored(m: Cta, op: Operation, pointer: Any, value: Any, mask: Any, dtype: np.dtype) -> None:
    """Behind a store: what is enclosed there now."""
    held = m.launch.enclosures
    enclosure = held.of(value)
    if enclosure is None and not held.memory:
        return
    address = np.atleast_1d(np.asarray(pointer, np.int64))
    chosen = np.ones(address.shape, bool) if mask is None else np.broadcast_to(np.atleast_1d(mask), address.shape)
    held.memory.forget(address[chosen])
    if enclosure is None:
        return
    low, high = (np.broadcast_to(each, address.shape) for each in (enclosure.low, enclosure.high))
    chosen = chosen & (low != high)
    at, first = np.unique(address[chosen], return_index=True)
    if at.size:
        word = np.broadcast_to(keys(np.atleast_1d(_array(value, dtype))), address.shape)
        held.memory.store(at, word[chosen][first], low[chosen][first], high[chosen][first], dtype.itemsize)


def loaded(m: Cta, op: Operation, found: Any, pointer: Any, mask: Any, dtype: np.dtype, is_float: bool) -> None:
    """Behind a load: hold what is enclosed of it. NotModelled where other words than floats, or parts of words, are read there."""
    held = m.launch.enclosures
    if not held.memory:
        return
    address = np.atleast_1d(np.asarray(pointer, np.int64))
    array = np.atleast_1d(_array(found, dtype))
    enclosure = held.memory.at(address, keys(array), dtype.itemsize) if is_float else None
    if enclosure is None:
        read = address if mask is None else address[np.broadcast_to(np.atleast_1d(mask), address.shape)]
        if not is_float and held.memory.overlaps(read, dtype.itemsize):
            refuse(m, op)
        return
    shape = np.shape(found)
    held.hold(found, Enclosure(enclosure.low.reshape(shape), enclosure.high.reshape(shape)))


def untouched(m: Cta, op: Operation) -> None:
    """Before an operation that reads global memory otherwise than by `tt.load`: none of it may be enclosed."""
    if m.launch.enclosures.memory:
        refuse(m, op)
