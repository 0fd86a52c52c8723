"""What a launch did on the chip, event by event, and which program stored each byte of global memory.

A recorder is one of the probes of a launch (`LaunchOptions.probes`), for a picture of one failing case. `Timeline` keeps sentences
of the last events for a finding; a recorder keeps the memory that each event concerns.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.device_probe import ChipEvent, DeviceProbe, LaunchRun, WordAccess
from bitverdict.harness.emulator.execution.onchip_access import TENSOR_ROW

if TYPE_CHECKING:
    import torch

    from bitverdict.harness.emulator.execution.async_ops import InFlight
    from bitverdict.harness.emulator.execution.cta_state import CtaState
    from bitverdict.harness.emulator.memory.onchip import View

MOST_EVENTS, MOST_PROGRAMS = 3000, 64  # of one program; programs of which events are kept, the last one besides
ADDS = "adds to what lies there"  # the note of a product that does
LARGEST = 1 << 26  # bytes of a storage whose writers are kept


@dataclass(frozen=True)
class Piece:
    """Bytes `low` up to `high` of a space ("shared memory", "tensor memory"); of tensor memory those of each lane, 4 a column."""

    space: str
    low: int
    high: int


@dataclass(frozen=True)
class Event:
    """One event of a program. `kind`: issued, landed, known, read, written, fault, barrier, phase, waits,
    passes.

    `flight` numbers an asynchronous operation of the program, from 1; 0: of none. `barrier` is the byte of an mbarrier, -1: of
    none; `phase` how many of its phases are complete.
    """

    step: int
    agent: str
    kind: str
    operation: str
    line: str
    note: str = ""
    reads: tuple[Piece, ...] = ()
    writes: tuple[Piece, ...] = ()
    flight: int = 0
    barrier: int = -1
    phase: int = 0


@dataclass(eq=False)
class Recorder(DeviceProbe):
    """Events by (launch, program), and the writers of each storage by the address it begins at."""

    events: dict[tuple[int, tuple[int, int, int]], list[Event]] = field(default_factory=dict)
    dropped_events: dict[tuple[int, tuple[int, int, int]], int] = field(default_factory=dict)
    launches: list[str] = field(default_factory=list)
    writers: list[tuple[int, tuple[int, int, int]]] = field(default_factory=list)
    """(launch, program), by the number in `writer_maps`, which counts from 1."""
    writer_maps: dict[int, np.ndarray] = field(default_factory=dict)
    """Where a storage begins -> (bytes,) int32, the number of the writer of each byte; 0: no kernel."""
    lines: dict[int, str] = field(default_factory=dict)
    """By its number the line at which a writer stored last."""
    _numbers: dict[tuple[int, tuple[int, int, int]], int] = field(default_factory=dict)
    _flights: dict[int, tuple[InFlight, int]] = field(default_factory=dict)  # by id, with the flight, or an id would come again

    runs_in_turn = True

    def begin(self, run: LaunchRun) -> None:
        self.launches.append(run.launch.name)

    @property
    def last_program(self) -> tuple[int, tuple[int, int, int]] | None:
        """The program of which an event came last; None without any."""
        return next(reversed(self.events), None)

    def add(self, state: CtaState, event: Event) -> None:
        """`event` of the program that `state` runs; of more than `MOST_EVENTS` the first ones go."""
        key = len(self.launches) - 1, state.program
        kept = self.events.pop(key, [])
        self.events[key] = kept  # the last one to have moved stands last
        kept.append(event)
        if len(kept) > MOST_EVENTS:
            del kept[0]
            self.dropped_events[key] = self.dropped_events.get(key, 0) + 1
        if len(self.events) > MOST_PROGRAMS + 1:
            del self.events[next(key for place, key in enumerate(self.events) if place == MOST_PROGRAMS // 2)]

    def on_move(self, event: ChipEvent) -> None:
        reads, writes = (tuple(map(piece, views)) for views in (event.reads, event.writes))
        number, barrier, operation, flight, state = 0, event.barrier, event.op.name, event.flight, event.state
        if flight is not None:
            number = self._flights.setdefault(id(flight), (flight, len(self._flights) + 1))[1]
            barrier, operation = flight.barriers[0] if flight.barriers else -1, flight.kind.name
        line, phase = event.op.location, event.phase
        note = ADDS if flight is not None and flight.adds else event.note
        self.add(state, Event(state.steps, event.agent, event.kind, operation, line, note, reads, writes, number, barrier, phase))

    def on_store(self, access: WordAccess) -> None:
        region = access.region
        if region.raw.size > LARGEST:
            return
        writer_map = self.writer_maps.get(region.base)
        if writer_map is None or writer_map.size != region.raw.size:
            writer_map = self.writer_maps[region.base] = np.zeros(region.raw.size, np.int32)
        key = len(self.launches) - 1, access.agent.place
        if key not in self._numbers:
            self.writers.append(key)
            self._numbers[key] = len(self.writers)
        number = self._numbers[key]
        self.lines[number] = access.op.location
        writer_map[: writer_map.size // access.size * access.size].reshape(-1, access.size)[access.places] = number

    def writers_of(self, tensor: torch.Tensor) -> np.ndarray:
        """The number of the writer of each element of `tensor` (CPU), in its shape (int32); 0: no kernel, or not kept."""
        shape, size = tuple(tensor.shape), tensor.element_size()
        held = self.writer_maps.get(tensor.untyped_storage().data_ptr()) if tensor.numel() else None
        if held is None:
            return np.zeros(shape, np.int32)
        strides = tuple(4 * size * stride for stride in tensor.stride())
        return np.ndarray(shape, np.int32, held, 4 * size * tensor.storage_offset(), strides).copy()

    def to_json(self, key: tuple[int, tuple[int, int, int]] | None) -> dict[str, Any]:
        """The events of one program as JSON; {} where none are kept."""
        if key not in self.events:
            return {}
        return {
            "kernel": self.launches[key[0]] if 0 <= key[0] < len(self.launches) else "",
            "launch": key[0],
            "program": list(key[1]),
            "dropped": self.dropped_events.get(key, 0),
            "events": [asdict(event) for event in self.events[key]],
        }


def piece(view: View) -> Piece:
    """The bytes from the first of `view` to its last. Of registers that an operation writes there is no view of a space."""
    low, high = int(view.low), int(view.high)
    if view.space.name == "tensor memory" and low % TENSOR_ROW <= (high - 1) % TENSOR_ROW:
        low, high = low % TENSOR_ROW, (high - 1) % TENSOR_ROW + 1
    return Piece(view.space.name, low, high)


__all__ = ["Event", "Piece", "Recorder"]
