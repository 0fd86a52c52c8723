"""Real values that launches left in global memory, over all launches of a device: a `Shadow` beside each storage that holds some.

While a launch runs, every write tells the shadow (`Region.carry`). Between launches others write: operations of torch on tensors
of the GPU are seen (`memory.real_tensors`), and whatever else wrote shows by the words: one that is not as the launch left it is
exact. Of a storage that is gone nothing is known where the same words lie at its place: they may be a copy of the old ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bitverdict.harness.emulator.memory.byte_arrays import UNSIGNED_TYPES
from bitverdict.harness.emulator.memory.real_shadows import BYTES, EXACT, PARTS, Shadow, read_as, value_of
from bitverdict.harness.model.torch_internals import StorageWeakRef

if TYPE_CHECKING:
    import torch

    from bitverdict.harness.emulator.memory.global_memory import Region


MOST_STORAGES = 256  # storages, beyond which those that are gone are forgotten


class RealValues(NamedTuple):
    """Of each element of a tensor, in its shape: float64 `value`, and `error`, by which it may be off; inf: unknown."""

    value: np.ndarray
    error: np.ndarray


@dataclass(eq=False)
class _StorageShadow:
    """The `shadow` of one storage, and its bytes as they were when that was right."""

    storage: Any  # a weak reference
    shadow: Shadow
    words: np.ndarray  # (bytes,) uint8


@dataclass(eq=False)
class RealMemory:
    """By where a storage begins. `lost`: the host chose by a word whose real value is another; nothing is known of what it does."""

    storages: dict[int, _StorageShadow] = field(default_factory=dict)
    is_lost: bool = False

    def __bool__(self) -> bool:
        return bool(self.storages)

    # -- a launch ---------------------------------------------------------------------------------------------------------
    def begin(self, regions: Iterable[Region]) -> None:
        """A launch that reaches `regions` begins."""
        for region in regions:
            region.shadow = self.shadow_at(region.base, region.raw)

    def end(self, regions: Iterable[Region], *, lost: bool = False) -> None:
        """The launch is over, whatever came of it. `lost`: a branch of it hung on a rounding, so what it may write is unknown."""
        for region in regions:
            if region.changes and (lost or self.is_lost):
                region.shadow = _unknown(region.raw.size)
            if region.shadow is not None:
                self.keep(region.base, region.raw, region.keep, region.shadow)

    # -- storages ---------------------------------------------------------------------------------------------------------
    def shadow_at(self, base: int, raw: np.ndarray) -> Shadow | None:
        """What is known of the storage that begins at `base`, whose bytes are `raw`; None where all of it is exact."""
        storage_shadow = self.storages.get(base)
        if storage_shadow is None:
            return None
        if storage_shadow.shadow.size != raw.size:
            del self.storages[base]
            return None
        if not np.array_equal(storage_shadow.words, raw):
            _drop(storage_shadow.shadow, storage_shadow.words != raw)
        if storage_shadow.storage.expired():
            for _, errors in storage_shadow.shadow.sides.values():
                errors.fill(np.inf)
        return storage_shadow.shadow

    def keep(self, base: int, raw: np.ndarray, tensor: torch.Tensor, shadow: Shadow) -> None:
        """`shadow` is right for the bytes `raw` of the storage of `tensor`."""
        if len(self.storages) >= MOST_STORAGES:
            self.storages = {at: kept for at, kept in self.storages.items() if not kept.storage.expired()}
        self.storages[base] = _StorageShadow(StorageWeakRef(tensor.untyped_storage()), shadow, raw.copy())

    # -- tensors ----------------------------------------------------------------------------------------------------------
    def values_of(self, tensor: torch.Tensor) -> RealValues:
        """What the elements of `tensor` (CPU, of any type) are."""
        words, element = words_of(tensor)
        shadow = self.shadow_at(*storage_of(tensor)) if tensor.numel() else None
        if shadow:
            size = words.dtype.itemsize
            strides = tuple(size * stride for stride in tensor.stride())
            found = shadow.strided_view(tuple(tensor.shape), size, size * tensor.storage_offset(), strides).take()
            if found is not None:
                value, error, _ = read_as(found, words, element)
                return RealValues(value, error)
        return RealValues(value_of(words, element), np.zeros(words.shape))


def words_of(tensor: torch.Tensor) -> tuple[np.ndarray, str]:
    """The elements of `tensor` (CPU) as the emulator holds them, in its shape, and the element of their type."""
    import torch

    element, wide_type = _ELEMENTS[str(tensor.dtype).removeprefix("torch.")]
    held = tensor.detach()
    if element in ("f16", "bf16"):
        return held.contiguous().view(torch.int16).numpy().view(np.uint16), element
    if element.startswith("f8"):
        return held.contiguous().view(torch.uint8).numpy(), element
    return (held if wide_type is None else held.contiguous().view(getattr(torch, wide_type))).numpy(), element


_ELEMENTS: dict[str, tuple[str, str | None]] = {
    "float32": ("f32", None), "float64": ("f64", None), "float16": ("f16", None), "bfloat16": ("bf16", None),
    "float8_e4m3fn": ("f8E4M3FN", None), "float8_e5m2": ("f8E5M2", None), "bool": ("i1", None), "uint8": ("i8", None),
    "int8": ("i8", None), "int16": ("i16", None), "int32": ("i32", None), "int64": ("i64", None), "uint16": ("i16", "int16"),
    "uint32": ("i32", "int32"), "uint64": ("i64", "int64"), "float8_e8m0fnu": ("i8", "uint8"),
    "float4_e2m1fn_x2": ("i8", "uint8"),
}  # fmt: skip


def storage_of(tensor: torch.Tensor) -> tuple[int, np.ndarray]:
    """Where the storage of `tensor` (CPU) begins, and its bytes."""
    import torch

    storage = tensor.untyped_storage()
    return storage.data_ptr(), torch.empty(0, dtype=torch.uint8).set_(storage).numpy()


def _drop(shadow: Shadow, changed: np.ndarray) -> None:
    """The words of which a byte is `changed` (bytes,) are exact."""
    at = np.flatnonzero(changed & (shadow.marks != EXACT))
    sizes = BYTES[shadow.marks[at]]
    for size in UNSIGNED_TYPES:
        numbers = np.unique(at[sizes == size] // size)
        if numbers.size:
            shadow.words(size)[numbers] = 0


def _unknown(size: int) -> Shadow:
    """Nothing is known of any of `size` bytes."""
    found = Shadow(size)
    found.side(1)
    found.marks.fill(PARTS)
    return found


__all__ = ["RealMemory", "RealValues", "storage_of", "words_of"]
