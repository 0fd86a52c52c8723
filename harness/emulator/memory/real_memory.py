"""Real values of what lies in memory (`numerics.real_values`): stores leave them, loads find them.

What no launch computed is exact: its words. A place holds a real value as long as it holds the word that the launch stored with it;
another word there was written by something else since.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.memory.onchip import UNSIGNED
from bitverdict.harness.emulator.numerics.real_values import Real, Taint, either, with_taint
from bitverdict.harness.emulator.numerics.scalar_ops import widen

if TYPE_CHECKING:
    from bitverdict.harness.emulator.execution.cta import Cta
    from bitverdict.harness.emulator.memory.global_memory import Region
    from bitverdict.harness.emulator.mlir_reader import Operation
    from bitverdict.harness.emulator.mlir_types import Type


@dataclass(eq=False)
class Shadow:
    """Real values of one storage whose words have one size: by word of it (n,)."""

    held: np.ndarray  # bool: something was stored there
    word: np.ndarray  # unsigned, what was stored
    value: np.ndarray  # float64
    error: np.ndarray  # float64; of integers inf where they hang on a rounding


@dataclass(frozen=True)
class RealValues:
    """`value` float64 and `error` float64 of the shape of a tensor. An error that is not finite: unknown."""

    value: np.ndarray
    error: np.ndarray


FORMATS_OF = {
    "torch.float32": "fp32", "torch.float16": "fp16", "torch.bfloat16": "bf16", "torch.float8_e4m3fn": "e4m3",
    "torch.float8_e5m2": "e5m2",
}  # fmt: skip


@dataclass(eq=False)
class RealMemory:
    """Real values that launches left in global memory: by where a storage begins, and the size of its words."""

    shadows: dict[tuple[int, int], Shadow] = field(default_factory=dict)

    def of(self, base: int, size: int, count: int) -> Shadow:
        if (found := self.shadows.get((base, size))) is None or found.held.size != count:
            found = self.shadows[base, size] = Shadow(
                np.zeros(count, np.bool_), np.zeros(count, UNSIGNED[size]), np.zeros(count), np.zeros(count)
            )
        return found

    def lose(self, m: Cta) -> None:
        """Nothing is known any more of what the launch may write: a branch hung on a rounding, so its stores do."""
        for region in m.memory.regions:
            if region.changes:
                for size in (1, 2, 4, 8):
                    shadow = self.of(region.base, size, region.raw.size // size)
                    shadow.held[:] = True
                    shadow.word[:] = region.words(size)
                    shadow.error[:] = np.inf

    def at(self, base: int, places: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """(held, value, error) of `words` (...) at `places` (...) of the storage at `base`; None where nothing is held of it."""
        shadow = self.shadows.get((base, words.itemsize))
        if shadow is None:
            return None
        inside = np.minimum(places, shadow.held.size - 1)
        held = shadow.held[inside] & (shadow.word[inside] == words) & (places == inside)
        return (held, shadow.value[inside], shadow.error[inside]) if held.any() else None

    def values_of(self, tensor: Any) -> RealValues:
        """Of all elements of `tensor` (torch, CPU)."""
        import torch

        size, fmt = tensor.element_size(), FORMATS_OF.get(str(tensor.dtype))
        words = tensor.contiguous().view(torch.uint8).numpy().view(UNSIGNED[size]).reshape(tensor.shape)
        if tensor.is_floating_point():
            held_as = words.view({None: np.float64, "fp32": np.float32}.get(fmt, words.dtype))
            value = np.asarray(widen(held_as, fmt))
        else:
            value = tensor.numpy().astype(np.float64)
        error = np.zeros(value.shape)
        offsets = np.full((), tensor.storage_offset(), np.int64)
        for count, stride in zip(tensor.shape, tensor.stride(), strict=True):
            offsets = np.add.outer(offsets, stride * np.arange(count, dtype=np.int64))
        at = self.at(tensor.untyped_storage().data_ptr(), offsets, words)
        if at is not None:
            held, real, bound = at
            value = np.where(held, real, value) if tensor.is_floating_point() else value
            error = np.where(held, bound, error)
        return RealValues(value, error)


def _touched(m: Cta, pointer: Any, mask: Any, shape: tuple[int, ...]) -> Iterator[tuple[Region, np.ndarray, np.ndarray]]:
    """(region, places (elements,) in `shape` flattened, their addresses) of an access."""
    address = np.broadcast_to(np.asarray(pointer, np.int64), shape).reshape(-1)
    chosen = np.ones(address.shape, np.bool_) if mask is None else np.broadcast_to(np.asarray(mask, np.bool_), shape).reshape(-1)
    for region in m.memory.regions:
        inside = chosen & (address >= region.base) & (address < region.end)
        if inside.any():
            places = np.flatnonzero(inside)
            yield region, places, address[places]


def stored(m: Cta, op: Operation, pointer: Any, value: Any, mask: Any, dtype: np.dtype, real: Real | Taint, hangs: Taint) -> None:
    """Behind a store of `value` (...) whose Real (of floats) or Taint is `real`; `hangs`: pointers or masks that do."""
    if m.launch.reals.journal is not None:
        m.launch.reals.journal.append((op, pointer, value, mask, dtype, real, hangs))
        return
    shape = np.broadcast_shapes(np.shape(pointer), np.shape(value))
    size = max(dtype.itemsize, 1)
    if isinstance(real, Real):
        real = with_taint(real, hangs)
        given, bound = real.value, 0.0 if real.error is None else real.error
    else:
        found = either(real, hangs)
        given, bound = 0.0, 0.0 if found is None else np.where(found, np.inf, 0.0)
    words = np.asarray(value, np.uint8 if dtype == np.bool_ else dtype).view(UNSIGNED[size])
    flat = [np.broadcast_to(each, shape).reshape(-1) for each in (words, given, bound)]
    for region, places, address in _touched(m, pointer, mask, shape):
        shadow = m.launch.reals.memory.of(region.base, size, region.raw.size // size)
        at = (address - region.base) // size
        shadow.held[at] = True
        shadow.word[at], shadow.value[at], shadow.error[at] = (each[places] for each in flat)


def loaded(m: Cta, op: Operation, found: Any, pointer: Any, mask: Any, kind: Type, other: Real | Taint, hangs: Taint) -> Any:
    """Behind a load that gave `found`: its Real, of a float, or Taint. `other`: of what is given outside the mask."""
    shape, size = np.shape(found), kind.itemsize
    word = np.asarray(found, np.uint8 if kind.dtype == np.bool_ else kind.dtype)
    value = np.array(widen(word, kind.format) if kind.is_float else np.zeros(shape), np.float64).reshape(-1)
    error: Any = None
    words = word.view(UNSIGNED[size]).reshape(-1)
    if isinstance(other, Real) and mask is not None:
        outside = ~np.broadcast_to(np.asarray(mask, np.bool_), shape).reshape(-1)
        value[outside] = np.broadcast_to(other.value, shape).reshape(-1)[outside]
        if other.error is not None:
            error = np.where(outside, np.broadcast_to(other.error, shape).reshape(-1), 0.0)
    for region, places, address in _touched(m, pointer, mask, shape):
        at = m.launch.reals.memory.at(region.base, (address - region.base) // size, words[places])
        if at is not None:
            held, real, bound = at
            error = np.zeros(value.shape) if error is None else error
            value[places] = np.where(held, real, value[places])
            error[places] = np.where(held, bound, error[places])
    if not kind.is_float:
        taint = either(hangs, None if error is None else error.reshape(shape) > 0)
        return taint if taint is None or taint.any() else None
    return with_taint(Real(value.reshape(shape), None if error is None else error.reshape(shape)), hangs)


__all__ = ["RealMemory", "RealValues", "loaded", "stored"]
