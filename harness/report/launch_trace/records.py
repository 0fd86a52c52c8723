"""What a trace keeps of a launch: tiles, events on the chip, accesses to global memory."""

from __future__ import annotations

import linecache
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bitverdict.harness.emulator.frontend.local_errors import real_of_words
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.mlir_types import Type, parse_type
from bitverdict.harness.emulator.recorder import Event

UNNAMED_VALUE = re.compile(r"v\d+")  # what the generated code calls values that the kernel gives no name


@dataclass(frozen=True)
class Assignment:
    """A value of the traced program: the kernel's line that computes it, its name there, its type with aliases written out."""

    file: str
    line: int
    name: str
    type_text: str

    @property
    def kind(self) -> Type | None:
        return parse_type(self.type_text)


@dataclass(frozen=True, eq=False)
class Tile:
    """The value of a variable after a line of the kernel, in one program. `ends`: the lowest and the highest words that it may
    have, where the compiler leaves a choice open."""

    program: int
    agent: str
    assignment: Assignment
    words: np.ndarray
    ends: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def line(self) -> int:
        return self.assignment.line

    @property
    def file(self) -> str:
        return self.assignment.file

    @property
    def name(self) -> str:
        return self.assignment.name

    @property
    def value(self) -> np.ndarray:
        """As numbers: codes of narrow formats decoded."""
        return self.decode(self.words)

    def decode(self, words: np.ndarray) -> np.ndarray:
        kind = self.assignment.kind
        is_code = kind is not None and kind.is_float and words.dtype.kind != "f"
        return np.asarray(real_of_words(words, self.assignment.type_text).value) if is_code else words


class MemoryAccess(NamedTuple):
    """Who touched an element: the program, counted over the grid, its partition, the kernel's line, "load", "store" or "atomic"."""

    program: int
    agent: str
    location: str
    kind: str


@dataclass(frozen=True, eq=False)
class GlobalWords:
    """Words of one storage that an operation took or wrote: `places` are their numbers, `size` their bytes."""

    access: MemoryAccess
    name: str
    base: int
    places: np.ndarray | slice
    size: int
    step: int

    def __contains__(self, byte: int) -> bool:
        place = byte // self.size
        if isinstance(self.places, slice):
            return self.places.start <= place < self.places.stop
        return bool((self.places == place).any())


@dataclass(frozen=True, eq=False)
class ProgramEvent:
    """An event on the chip, of one program."""

    program: int
    event: Event


def last_tile(tiles: Sequence[Tile]) -> Tile:
    """The last one; a tensor where there is one, since the compiler names its own scalars, such as a condition, after variables."""
    tensors = [tile for tile in tiles if tile.assignment.kind is not None and tile.assignment.kind.kind == "tensor"]
    return (tensors or tiles)[-1]


def is_atomic(op: Operation) -> bool:
    return "atomic" in op.name or "reduce" in op.name


def program_of(moment: Tile | ProgramEvent | GlobalWords) -> int:
    return moment.access.program if isinstance(moment, GlobalWords) else moment.program


def event_of(moment: Tile | ProgramEvent | GlobalWords) -> Event | None:
    """An event or an access to global memory as an event; None of a tile."""
    if isinstance(moment, GlobalWords):
        access = moment.access
        return Event(moment.step, access.agent, access.kind, f"{access.kind} of {moment.name}", access.location)
    return moment.event if isinstance(moment, ProgramEvent) else None


def source_of(location: str) -> str:
    """The source at "file:line"."""
    file, _, line = location.rpartition(":")
    return linecache.getline(file, int(line)).strip() if line.isdigit() else ""
