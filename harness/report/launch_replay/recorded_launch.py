"""What one launch on the emulated GPU was, as it goes to the process that runs it again: no object of the script is in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

PLACE_MODULUS = 256  # bytes: a storage begins at the same place of a block of so many, here and there


@dataclass(frozen=True)
class Pointer:
    """An argument that leads into a storage of the launch, `offset` bytes from its beginning; `storage` is -1 for none, as of an
    empty tensor. `dtype` is torch's name of the element type."""

    storage: int
    offset: int = 0
    dtype: str = "uint8"


@dataclass(frozen=True)
class TensorMap:
    """A tensor descriptor of the host: its base, and its other fields by name."""

    base: Pointer
    fields: dict[str, Any]


@dataclass(frozen=True)
class Storage:
    """One storage that the launch could reach. `word`: the bytes of an element, by the first argument that leads into it."""

    name: str
    size: int
    begins: int  # its address modulo `PLACED`
    word: int
    is_changed: bool  # whether its bytes are others after the launch
    written_words: int  # words that the launch has stored

    @property
    def words(self) -> int:
        return -(-self.size // self.word)


@dataclass(frozen=True)
class EnclosedWords:
    """Words that the launch stored of which the emulator knows bounds: `offset` (n,) in a storage, `low` and `high` (n,) keys in
    the order of the values (`emulator.numerics.enclosures.keys`), `size` (n,) bytes, `is_integer` (n,)."""

    storage: int
    offset: np.ndarray
    low: np.ndarray
    high: np.ndarray
    size: np.ndarray
    is_integer: np.ndarray


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel: `files` of the whole compilation by name, for a real GPU, or the tile `program` and its `metadata`."""

    name: str
    signature: dict[str, Any]
    files: dict[str, str] = field(default_factory=dict)
    program: bytes = b""
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RecordedLaunch:
    """All that decides what the launch leaves in memory, but for the bytes themselves, which follow it: of each storage those
    before, and those after where the launch changes them."""

    task: str
    configuration: str
    number: int  # of the launches of its task, from 0 on
    kernel: Kernel
    grid: tuple[int, int, int]
    values: tuple[Any, ...]
    storages: tuple[Storage, ...]
    enclosed_words: tuple[EnclosedWords, ...] = ()
    atomics: bool = False

    @property
    def row_start(self) -> dict[str, Any]:
        """Of its row in the results what is known before it runs again."""
        return {
            "event": "launch",
            "task": self.task,
            "configuration": self.configuration,
            "launch": self.number,
            "kernel": self.kernel.name,
            "grid": list(self.grid),
            "atomics": self.atomics,
        }


def with_places(value: Any, place: Any) -> Any:
    """`value`, an argument or a tuple of some, with `place(pointer)` for each Pointer in it, and each TensorMap as an object."""
    if isinstance(value, tuple):
        return tuple(with_places(part, place) for part in value)
    if isinstance(value, TensorMap):
        return Descriptor(place(value.base), value.fields)
    return place(value) if isinstance(value, Pointer) else value


class Descriptor:
    """A tensor descriptor as Triton's launcher reads one: attributes."""

    def __init__(self, base: object, fields: Mapping[str, object]) -> None:
        self.__dict__.update(fields, base=base)


def pointers(value: object) -> Iterator[Pointer]:
    """Each Pointer in an argument."""
    if isinstance(value, tuple):
        for part in value:
            yield from pointers(part)
    elif isinstance(value, TensorMap):
        yield value.base
    elif isinstance(value, Pointer):
        yield value
