"""The arguments and results of a call on a real GPU as a record and arrays: a tensor is a view of a storage, whose bytes are sent.

A call's given storages go over whole and come back whole, so what a launcher writes in place is there on the other side. What it
made itself comes back as words. An object of the candidate's stays where it is, and goes by its number. Nothing else than numbers,
texts, dtypes, lists, records and tensors goes either way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from bitverdict.harness.sealed.remote.errors import WireError

MOST_ELEMENTS = 1 << 14
"""Of one list: a model has a few thousand parameters."""
KINDS = frozenset("list tuple record dtype device object view words".split())
DTYPES = {str(each).removeprefix("torch."): each for each in vars(torch).values() if isinstance(each, torch.dtype)}


class UnsendableValueError(TypeError):
    """A value that is not handed to the other process."""


class ValueEncoder:
    """Storages by the order in which they were met, and values as JSON. `made` gives the JSON of a tensor of no storage that is
    known; None: its storage becomes one. `numbered` gives the number of an object of the candidate's, None of what is none."""

    def __init__(
        self,
        storages: Sequence[Any] = (),
        made: Callable[[torch.Tensor], object] | None = None,
        numbered: Callable[[object], int | None] = lambda value: None,
    ) -> None:
        self.storages, self.made, self.numbered = list(storages), made, numbered
        self._places = {storage.data_ptr(): place for place, storage in enumerate(self.storages)}

    def __call__(self, value: Any) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, tuple | list):
            return {"tuple" if isinstance(value, tuple) else "list": [self(each) for each in value]}
        if isinstance(value, dict) and all(type(name) is str for name in value):
            return {"record": [[name, self(each)] for name, each in value.items()]}
        if isinstance(value, torch.device):
            return {"device": value.type}
        if (number := self.numbered(value)) is not None:
            return {"object": number}
        raise UnsendableValueError(
            f"a {type(value).__module__}.{type(value).__qualname__} is not handed to the other process of a sealed call"
        )

    def _tensor(self, tensor: torch.Tensor) -> Any:
        storage = tensor.untyped_storage()
        place = self._places.get(storage.data_ptr()) if storage.nbytes() else None
        if place is None and self.made is not None:
            return self.made(tensor)
        if place is None:
            place = self._places[storage.data_ptr()] = len(self.storages)
            self.storages.append(storage)
        view = [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), list(tensor.stride()), tensor.storage_offset()]
        return {"view": [place, *view, tensor.requires_grad]}

    def arrays(self) -> dict[str, np.ndarray]:
        """The bytes of each storage."""
        return {f"storage {place}": _bytes(storage) for place, storage in enumerate(self.storages)}


class ValueDecoder:
    """Values that were sent, as they are here. WireError for anything that `ValueEncoder` makes of none.

    `storages` are (bytes,) of uint8 each, `arrays` what came beside the record. `place` is what a device becomes. `objects` gives
    the object of a number."""

    def __init__(
        self, storages: Sequence[torch.Tensor], arrays: Mapping[str, np.ndarray], place: object, objects: Callable[[int], object]
    ) -> None:
        self.storages, self.arrays, self.place, self.objects = storages, arrays, place, objects
        self.moving: list[torch.Tensor] = []
        """The tensors that came and have a gradient."""

    def __call__(self, value: Any, depth: int = 0) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) is not dict or len(value) != 1 or depth > 16:
            raise WireError(f"no value: {value!r:.100}")
        ((kind, told),) = value.items()
        try:
            if kind not in KINDS or (type(told) is list and len(told) > MOST_ELEMENTS):
                raise WireError(f"no value: {value!r:.100}")
            return getattr(self, f"_{kind}")(told, depth + 1)
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
            raise WireError(f"no value: {value!r:.100}: {type(error).__name__}") from None

    def _list(self, told: Any, depth: int) -> list[Any]:
        return [self(each, depth) for each in told]

    def _tuple(self, told: object, depth: int) -> tuple[Any, ...]:
        return tuple(self._list(told, depth))

    def _record(self, told: Any, depth: int) -> dict[str, Any]:
        return {str(name): self(each, depth) for name, each in told}

    def _dtype(self, told: Any, depth: int) -> torch.dtype:
        return DTYPES[told]

    def _device(self, told: object, depth: int) -> Any:
        return self.place

    def _object(self, told: Any, depth: int) -> Any:
        return self.objects(told)

    def _view(self, told: Any, depth: int) -> torch.Tensor:
        place, dtype, shape, strides, offset, moves = told
        storage, numbers = self.storages[place], (place, offset, *shape, *strides)
        if not all(type(each) is int and each >= 0 for each in numbers) or len(shape) != len(strides):
            raise ValueError("no view")
        last = offset + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True) if 0 not in shape)
        if (last + (0 not in shape)) * DTYPES[dtype].itemsize > storage.numel():  # torch would make the storage larger
            raise ValueError("a view beyond its storage")
        view = torch.empty(0, dtype=DTYPES[dtype], device=storage.device)
        return self._mark_moving(view.set_(storage.untyped_storage(), offset, tuple(shape), tuple(strides)), moves)

    def _words(self, told: Any, depth: int) -> torch.Tensor:
        name, dtype, shape, moves = told
        words = torch.from_numpy(self.arrays[name].copy()).view(DTYPES[dtype])  # (elements,)
        return self._mark_moving(words.reshape(shape), moves)

    def _mark_moving(self, tensor: torch.Tensor, moves: bool) -> torch.Tensor:
        if moves is True:
            self.moving.append(tensor.requires_grad_())
        return tensor


def words_of(tensor: torch.Tensor, arrays: dict[str, np.ndarray]) -> Any:
    """A tensor that is no view of what was given: its words, put among `arrays`."""
    name = f"words {len(arrays)}"
    flat = tensor.detach().contiguous().cpu().reshape(-1)  # (elements,)
    arrays[name] = flat.view(torch.uint8).numpy() if flat.numel() else np.zeros(0, np.uint8)
    return {"words": [name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), tensor.requires_grad]}


def _bytes(storage: Any) -> np.ndarray:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).cpu().numpy()
