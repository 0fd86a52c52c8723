"""Enclosures: what a value may be where the compiler leaves a choice that its output does not show.

Some sums may take in a product before it is rounded, or after; the compiled program does not always say which. Such a value is
held as a word and, beside it, the lowest and the highest word that any choice can give. An operation on it is computed on the word,
and then on the ends of the enclosure, by the same code. That is enough where the operation is monotone in each operand: rounding
is, and what the special-function units compute is, but for a number of words that is known. Elsewhere it is computed on every word
inside.

What decides by such a value gives an enclosure too: of truths a comparison, of integers a conversion, of both its operands a
choice. What would take an address, a mask, a branch or the bits of a word from one is refused when it runs.

A product that a sum takes in unrounded is less than one word away from the rounded one. So a sum that may take a product lies
between the sums with the words below and above the product.

Words are compared by their keys: integers in the order of the real values, with -0 below +0; of an integer, itself.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.advice import Advice, Note
from bitverdict.harness.emulator.faults import NotModelled
from bitverdict.harness.emulator.numerics.enclosed_memory import EnclosedMemory, Enclosure, has_repeats, without_repeats
from bitverdict.harness.emulator.numerics.scalar_ops import widen

if TYPE_CHECKING:
    from bitverdict.harness.emulator.execution.cta import Cta
    from bitverdict.harness.emulator.execution.cta_state import CtaState
    from bitverdict.harness.emulator.mlir_reader import Operation
    from bitverdict.harness.emulator.numerics.real_values import TileValue

MOST_WORDS = 4096  # tried of an operand of a function that need not be monotone: an effort, beyond which the operation is refused


INTEGER_KINDS = "ib"  # kinds of NumPy's types whose words are integers or truths; floats have those of floats, or of unsigned codes


def keys(words: np.ndarray) -> np.ndarray:
    """(...) int64 keys of `words`: floats (fp32 and fp64 as such, narrower formats as their codes), signed integers or truths."""
    words = np.asarray(words)
    if has_repeats(words):
        return np.broadcast_to(keys(without_repeats(words)), words.shape)
    if words.dtype.kind in INTEGER_KINDS:
        return words.astype(np.int64)
    signed = words.view(f"i{words.itemsize}")
    return (signed ^ ((signed >> (8 * words.itemsize - 1)) & np.iinfo(signed.dtype).max)).astype(np.int64)


def words_of(word_keys: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The words of type `dtype` whose keys are `word_keys`."""
    if has_repeats(word_keys):
        return np.broadcast_to(words_of(without_repeats(word_keys), dtype), word_keys.shape)
    if dtype.kind in INTEGER_KINDS:
        return word_keys.astype(dtype)
    signed = word_keys.astype(f"i{dtype.itemsize}")
    return (signed ^ ((signed >> (8 * dtype.itemsize - 1)) & np.iinfo(signed.dtype).max)).view(dtype)


class EnclosedRoom:
    """Memory on the chip: it knows what is enclosed of the words that it holds."""

    __slots__ = ()

    def enclosure(self) -> Enclosure | None:
        """Of the words that it holds now; None where all are exact."""
        raise NotImplementedError


class EnclosedInteger(int):
    """An enclosed integer or truth of a program: an object of its own, which those of Python and NumPy are not."""


@dataclass
class Enclosures:
    """The enclosed values of one launch, by identity: the code hands values on without copying them. Arrays are held weakly."""

    memory: EnclosedMemory = field(default_factory=EnclosedMemory)
    values_by_id: dict[int, tuple[Any, Enclosure]] = field(default_factory=dict)

    def enclosure_of(self, value: object) -> Enclosure | None:
        if isinstance(value, EnclosedRoom):
            return value.enclosure()
        found = self.values_by_id.get(id(value))
        if found is None:
            return None
        kept, enclosure = found
        return enclosure if (kept() if isinstance(kept, weakref.ref) else kept) is value else None

    def hold(self, value: object, enclosure: Enclosure) -> None:
        number = id(value)
        if isinstance(value, np.ndarray):
            self.values_by_id[number] = weakref.ref(value, lambda _: self.values_by_id.pop(number, None)), enclosure
        else:
            self.values_by_id[number] = value, enclosure


def array_of(value: TileValue, dtype: np.dtype) -> np.ndarray:
    return value if isinstance(value, np.ndarray) else np.asarray(value, dtype)


def in_form_of(value: TileValue, found: np.ndarray) -> Any:
    """`found` as the code holds `value`: a scalar may be a Python number."""
    if isinstance(value, np.ndarray):
        return found
    return found.reshape(()).item() if isinstance(value, (float, int)) else found.reshape(())[()]


def inside(m: Cta, *values: TileValue) -> bool:
    """Whether any of `values` is enclosed."""
    return any(map(m.launch.enclosures.enclosure_of, values))


def join_results(
    before: tuple[Enclosure, ...] | None, found: Sequence[TileValue], dtypes: tuple[np.dtype, ...]
) -> tuple[Enclosure, ...]:
    """`before` with the results `found` of one more choice; a tuple, also of one result."""
    at = [keys(array_of(value, dtype)) for value, dtype in zip(found, dtypes, strict=True)]
    return tuple(before[i].join(key, key) if before else Enclosure(key, key) for i, key in enumerate(at))


def hold(
    m: Cta,
    op: Operation,
    result_values: tuple[Any, ...],
    enclosures: tuple[Enclosure, ...],
    dtypes: tuple[np.dtype, ...],
    formats: tuple[str | None, ...],
    open_: bool,
) -> tuple[Any, ...]:
    """The results `result_values` of `op`, which lie in `enclosures`, and in themselves, as the code goes on with them. `open_`:
    here is where the choice is. NotModelled where a choice leads to a NaN and another does not."""
    known_enclosures, results = m.launch.enclosures, []
    for value, enclosure, dtype, fmt in zip(
        result_values, join_results(enclosures, result_values, dtypes), dtypes, formats, strict=True
    ):
        wide = enclosure.low != enclosure.high
        if wide.any():
            if dtype.kind in INTEGER_KINDS:
                value = value if isinstance(value, np.ndarray) else EnclosedInteger(value)
            elif any((np.isnan(widen(words_of(end, dtype), fmt)) & wide).any() for end in (enclosure.low, enclosure.high)):
                raise NotModelled(op, "of a value whose enclosure leads to a NaN")
            known_enclosures.hold(value, enclosure)
            if open_:
                m.notes.add(Note(Advice.OPEN_SUM, op.location))
        results.append(value)
    return tuple(results)


def refuse(m: Cta | CtaState, op: Operation, subject: str = "a value that is enclosed", *values: object) -> None:
    """NotModelled, with the first open element of the first of `values` that is enclosed."""
    place = ""
    enclosures = ((value, m.launch.enclosures.enclosure_of(value)) for value in values)  # of memory another one each time
    value, known = next((pair for pair in enclosures if pair[1]), (None, None))
    if known:
        at = tuple(each[0] for each in np.nonzero(np.atleast_1d(known.low != known.high)))
        dtype = np.dtype(np.int64) if isinstance(value, int) else getattr(value, "dtype", np.dtype(np.float64))
        low, high = (words_of(np.atleast_1d(end), dtype)[at] for end in (known.low, known.high))
        place = f" (element {[*map(int, at)]} may be {low} to {high})"
    raise NotModelled(op, f"of {subject}{place}, because the compiled program leaves open which sums take a product")


def note_store(
    m: Cta | CtaState, op: Operation, pointer: TileValue, value: TileValue, mask: TileValue | None, dtype: np.dtype
) -> None:
    """Behind a store: what is enclosed there now."""
    known_enclosures = m.launch.enclosures
    enclosure = known_enclosures.enclosure_of(value)
    if enclosure is None and not known_enclosures.memory:
        return
    address = np.atleast_1d(np.asarray(pointer, np.int64))
    stored_lanes = np.ones(address.shape, bool) if mask is None else np.broadcast_to(np.atleast_1d(mask), address.shape)
    known_enclosures.memory.forget(address[stored_lanes], dtype.itemsize)
    if enclosure is None:
        return
    low, high = (np.broadcast_to(each, address.shape) for each in (enclosure.low, enclosure.high))
    stored_lanes = stored_lanes & (low != high)
    at, first = np.unique(address[stored_lanes], return_index=True)
    if at.size:
        word = np.broadcast_to(keys(np.atleast_1d(array_of(value, dtype))), address.shape)
        whole = dtype.kind in INTEGER_KINDS
        known_enclosures.memory.store(
            at, word[stored_lanes][first], low[stored_lanes][first], high[stored_lanes][first], dtype.itemsize, whole
        )


def hold_load(m: Cta, op: Operation, loaded_value: TileValue, pointer: TileValue, mask: TileValue | None, dtype: np.dtype) -> Any:
    """Behind a load: hold what is enclosed of `loaded_value`, and give that back: by its address, or where it lies. NotModelled
    where words of another type, or parts of words, are read there."""
    known_enclosures = m.launch.enclosures
    pointers = known_enclosures.enclosure_of(pointer)
    if not known_enclosures.memory and pointers is None:
        return loaded_value
    word, is_integer = np.atleast_1d(array_of(loaded_value, dtype)), dtype.kind in INTEGER_KINDS
    lanes = None if mask is None else np.broadcast_to(np.atleast_1d(mask).astype(bool), word.shape)
    enclosure: Enclosure | None = None
    for address in (
        [np.atleast_1d(np.asarray(pointer, np.int64))] if pointers is None else _addresses(m, op, pointers, lanes, dtype)
    ):
        read = _read(address, lanes)
        if known_enclosures.memory.overlaps(read, dtype.itemsize, is_integer):
            refuse(m, op)
        words = keys(word)
        if pointers is not None:
            stored = np.dtype(np.uint8) if dtype == np.bool_ else dtype
            words = keys(m.launch.memory.load(op, address, lanes, word.astype(stored), stored, m.state.agent, None).astype(dtype))
        each = known_enclosures.memory.enclosure_at(address, words, dtype.itemsize, is_integer)
        if each is not None or pointers is not None:
            each = each or Enclosure(words, words)
            enclosure = each if enclosure is None else enclosure.join(each.low, each.high)
    if enclosure is None:
        return loaded_value
    if is_integer and not isinstance(loaded_value, np.ndarray):
        loaded_value = EnclosedInteger(loaded_value)
    shape = np.shape(loaded_value)
    known_enclosures.hold(loaded_value, Enclosure(enclosure.low.reshape(shape), enclosure.high.reshape(shape)))
    return loaded_value


def _read(address: np.ndarray, mask: TileValue | None) -> np.ndarray:
    """The addresses that `mask` lets be read; one truth of a scalar may be an integer."""
    return address if mask is None else address[np.broadcast_to(np.atleast_1d(mask).astype(bool), address.shape)]


def _addresses(m: Cta, op: Operation, known: Enclosure, lanes: np.ndarray | None, dtype: np.dtype) -> Iterator[np.ndarray]:
    """Each address that a load may take, where the index is open. NotModelled where no tensor of the launch reaches one, or the
    launch may write it: whether that is a fault, or which word lies there, hangs on the choice."""
    size, low, high = max(dtype.itemsize, 1), *(np.atleast_1d(end) for end in (known.low, known.high))
    if lanes is not None:
        low, high = np.where(lanes, low, 0), np.where(lanes, high, 0)
    count = int((high - low).max()) // size + 1
    if count > MOST_WORDS or ((high - low) % size).any():
        raise NotModelled(op, f"of an address that is enclosed, of one of {count} words: at most {MOST_WORDS} are tried")
    for step in range(count):
        address = np.minimum(low + step * size, high)
        fixed = m.launch.memory.is_fixed(address, size)
        if not (fixed if lanes is None else fixed | ~lanes).all():
            refuse(m, op, "an address that depends on a value that is enclosed, outside of what the launch only reads")
        yield address


def enclosure_of_copy(
    m: CtaState, op: Operation, words: np.ndarray, address: np.ndarray, lanes: np.ndarray | None
) -> Enclosure | None:
    """What is enclosed of `words`, which a copy on its way to memory on the chip took from `address` in `lanes`. NotModelled where
    it takes words of another type, or parts of words."""
    memory, is_integer = m.launch.enclosures.memory, words.dtype.kind in INTEGER_KINDS
    if not memory:
        return None
    if memory.overlaps(_read(address, lanes), words.dtype.itemsize, is_integer):
        refuse(m, op, "words of another type that are enclosed")
    return memory.enclosure_at(address, keys(words), words.dtype.itemsize, is_integer)


def refuse_enclosed(m: Cta, op: Operation, pointer: TileValue | None = None, mask: TileValue | None = None, size: int = 0) -> None:
    """Before an operation that reads global memory otherwise than by `tt.load`: no word of `size` bytes at `pointer`, where `mask`,
    may be enclosed; of an operation whose addresses are not known, none at all."""
    memory = m.launch.enclosures.memory
    if not memory:
        return
    if size:
        address = np.atleast_1d(np.asarray(pointer, np.int64))
        if not memory.overlaps(_read(address, mask), size):
            return
    refuse(m, op)
