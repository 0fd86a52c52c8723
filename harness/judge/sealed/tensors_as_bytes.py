"""The arguments and results of a call on a real GPU as a record and arrays: a tensor is a view of a storage, whose bytes are sent.

A call's given storages go over whole and come back whole, so what a launcher writes in place is there on the other side. What it
made itself comes back as words. Nothing else than numbers, texts, dtypes, lists and tensors goes either way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from bitverdict.harness.emulator.remote.errors import WireError

MOST_RESULTS = 256
DTYPES = {str(each).removeprefix("torch."): each for each in vars(torch).values() if isinstance(each, torch.dtype)}


class NotSent(TypeError):
    """A value that is not handed to the other process."""


class Sent:
    """Storages by the order in which they were met, and values as JSON. `made` gives the JSON of a tensor of no storage that is
    known; None: its storage becomes one."""

    def __init__(self, storages: Sequence[Any] = (), made: Callable[[torch.Tensor], Any] | None = None) -> None:
        self.storages, self.made = list(storages), made
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
        if isinstance(value, torch.device):
            return {"device": value.type}
        raise NotSent(f"a {type(value).__module__}.{type(value).__qualname__} is not handed to the other process of a sealed call")

    def _tensor(self, tensor: torch.Tensor) -> Any:
        storage = tensor.untyped_storage()
        place = self._places.get(storage.data_ptr()) if storage.nbytes() else None
        if place is None and self.made is not None:
            return self.made(tensor)
        if place is None:
            place = self._places[storage.data_ptr()] = len(self.storages)
            self.storages.append(storage)
        view = [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), list(tensor.stride()), tensor.storage_offset()]
        return {"view": [place, *view]}

    def arrays(self) -> dict[str, np.ndarray]:
        """The bytes of each storage."""
        return {f"storage {place}": _bytes(storage) for place, storage in enumerate(self.storages)}


def received(said: Any, storages: Sequence[torch.Tensor], arrays: dict[str, np.ndarray], device: Any, depth: int = 0) -> Any:
    """The value that was sent as `said`; `storages` are (bytes,) of uint8. WireError for anything that `Sent` makes of none."""
    if said is None or type(said) in (bool, int, float, str):
        return said
    if type(said) is not dict or len(said) != 1 or depth > 16:
        raise WireError(f"no value: {said!r:.100}")
    ((kind, told),) = said.items()
    try:
        if kind in ("tuple", "list"):
            found = [received(each, storages, arrays, device, depth + 1) for each in told[:MOST_RESULTS]]
            return tuple(found) if kind == "tuple" else found
        if kind == "dtype":
            return DTYPES[told]
        if kind == "device":
            return device
        if kind == "view":
            place, dtype, shape, strides, offset = told
            return _view(storages[place], DTYPES[dtype], shape, strides, offset)
        if kind == "words":
            name, dtype, shape = told
            words = torch.from_numpy(arrays[name].copy()).view(DTYPES[dtype])  # (elements,)
            return words.reshape(shape)
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        raise WireError(f"no value: {said!r:.100}: {type(error).__name__}") from None
    raise WireError(f"no value: {said!r:.100}")


def words_of(tensor: torch.Tensor, arrays: dict[str, np.ndarray]) -> Any:
    """A tensor that is no view of what was given: its words, put among `arrays`."""
    name = f"words {len(arrays)}"
    flat = tensor.detach().contiguous().cpu().reshape(-1)  # (elements,)
    arrays[name] = flat.view(torch.uint8).numpy() if flat.numel() else np.zeros(0, np.uint8)
    return {"words": [name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)]}


def _bytes(storage: Any) -> np.ndarray:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).cpu().numpy()


def _view(storage: torch.Tensor, dtype: torch.dtype, shape: list[int], strides: list[int], offset: int) -> torch.Tensor:
    """torch checks that it lies inside."""
    return torch.empty(0, dtype=dtype, device=storage.device).set_(storage.untyped_storage(), offset, tuple(shape), tuple(strides))
