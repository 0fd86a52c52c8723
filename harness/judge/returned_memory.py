"""Memory that a launcher returned: a later call must not return it again, because the caller may hold the first result still.

What was returned is held here, so that no allocator gives its memory to anybody else: what comes again in it, the launcher kept. As
much is held as `MOST_BYTES`, the newest. The storages are held and no tensors of them: to a kernel that keeps a pointer this memory
is as dead as without.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from bitverdict.harness.model.torch_internals import identity_of

if TYPE_CHECKING:
    import torch

MOST_BYTES = 64 << 20  # held in a process, guard bands included

_returned_places: deque[tuple[torch.UntypedStorage, int, int]] = (
    deque()
)  # storage, first byte of a result in it and the one after its last


def returned_before(outputs: Mapping[str, object], operands: Iterable[torch.Tensor]) -> list[str]:
    """The names of those of `outputs` that share a byte with a result of an earlier call. From now on these are results too.
    What lies in the memory of `operands` is the caller's own, and may come again."""
    theirs = list(operands)
    own = {n: place for n, output in outputs.items() if (place := _place(output)) is not None and not lies_in(output, theirs)}
    found = [name for name, place in own.items() if any(_overlap(place, held) for held in _returned_places)]
    _returned_places.extend(own.values())
    left = sum(storage.nbytes() for storage, _, _ in _returned_places)
    while left > MOST_BYTES:
        left -= _returned_places.popleft()[0].nbytes()
    return found


def lies_in(output: torch.Tensor, tensors: Iterable[torch.Tensor]) -> bool:
    """Whether `output` lies in the storage of one of `tensors`."""
    return (own := _storage(output)) is not None and any(
        identity_of(own) == identity_of(other) for tensor in tensors if (other := _storage(tensor)) is not None
    )


def forget() -> None:
    """Hold nothing: memory is short."""
    _returned_places.clear()


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Where a tensor lies; None of what has no memory of its own."""
    try:
        return tensor.untyped_storage()
    except (AttributeError, NotImplementedError, RuntimeError):
        return None


def _place(output: torch.Tensor) -> tuple[torch.UntypedStorage, int, int] | None:
    storage = _storage(output)
    if storage is None or not output.numel():
        return None
    reach = 1 + sum((size - 1) * stride for size, stride in zip(output.shape, output.stride(), strict=True))
    begin, itemsize = output.storage_offset(), output.dtype.itemsize
    return storage, begin * itemsize, (begin + reach) * itemsize


def _overlap(one: tuple[torch.UntypedStorage, int, int], other: tuple[torch.UntypedStorage, int, int]) -> bool:
    return identity_of(one[0]) == identity_of(other[0]) and one[1] < other[2] and other[1] < one[2]
