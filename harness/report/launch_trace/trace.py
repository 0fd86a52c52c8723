"""A launch that was traced: the values of its tiles after each line of the kernel, who touched which element, and what is asked of
both."""

from __future__ import annotations

import html
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bitverdict.harness.emulator.device_probe import WordAccess
from bitverdict.harness.emulator.faults import BadArgument
from bitverdict.harness.emulator.frontend.edited_programs import EditedPrograms
from bitverdict.harness.emulator.numerics.enclosures import array_of, words_of
from bitverdict.harness.emulator.recorder import Event, Recorder
from bitverdict.harness.report.launch_trace.records import (
    UNNAMED_VALUE,
    Assignment,
    GlobalWords,
    MemoryAccess,
    ProgramEvent,
    Tile,
    event_of,
    is_atomic,
    last_tile,
    program_of,
)

if TYPE_CHECKING:
    import torch

    from bitverdict.harness.emulator.device import Launch
    from bitverdict.harness.emulator.execution.cta import Cta
    from bitverdict.harness.emulator.execution.cta_state import CtaState
    from bitverdict.harness.report.launch_trace.error_lines import LineError
    from bitverdict.harness.report.launch_trace.layouts import TileLayout
    from bitverdict.harness.report.launch_trace.memory_facts import MemoryFacts

MOST_BYTES = 1 << 28  # of tiles, events and accesses that a trace keeps
EVENT_BYTES = 512  # that an event counts for
SPACES = ("shared memory", "tensor memory")


@dataclass(eq=False, repr=False)
class Trace(Recorder):
    """What one launch computed and touched: `moments` are its tiles, events on the chip and accesses to global memory, in the order
    in which they came."""

    kernel: str = ""
    arch: str = ""
    grid: tuple[int, int, int] = (1, 1, 1)
    launch: Launch | None = None
    moments: list[Tile | ProgramEvent | GlobalWords] = field(default_factory=list)
    earlier_launches: list[Trace] = field(default_factory=list)
    """Of what was traced the launches before this one."""
    traced_programs: Collection[int] | None = None
    bytes_taken: int = 0
    step: int = 0
    """Operations of the program that runs, when a tile or an event came last."""
    omissions: dict[tuple[int, str], str] = field(default_factory=dict)
    """Of (program, variable) why a value of it is not kept; of (program, "") why events are not."""
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    """Those that the launch was given, by parameter (on the CPU, with their bytes)."""
    places: dict[str, int] = field(default_factory=dict)
    """Of each parameter its number."""
    facts_of: Callable[[], MemoryFacts] | None = None
    relaunch: Callable[[EditedPrograms], object] | None = None
    """Launches all that was traced again, with real values and these programs."""

    # -- what is read -------------------------------------------------------------------------------------------------
    @property
    def tiles(self) -> list[Tile]:
        """In the order in which they came."""
        return [moment for moment in self.moments if isinstance(moment, Tile)]

    def tile(self, name: str, program: int = 0, line: int = 0) -> np.ndarray:
        """The last value of the kernel's variable `name` in a program, counted over the grid; or its last one of `line`."""
        last_value = self.find_tile(name, program, line)
        if last_value.ends is not None and not np.array_equal(*last_value.ends):
            raise BadArgument(
                f"trace of {name!r} in program {program}: has no one value, because the compiled program leaves open how a sum "
                f"before line {last_value.line} is rounded; bounds({name!r}) has the lowest and the highest it may be"
            )
        return last_value.value

    def bounds(self, name: str, program: int = 0, line: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and the highest value that `tile` may have: twice the same where the compiled program leaves nothing open."""
        last_value = self.find_tile(name, program, line)
        low, high = last_value.ends or (last_value.words, last_value.words)
        return last_value.decode(low), last_value.decode(high)

    def find_tile(self, name: str, program: int = 0, line: int = 0) -> Tile:
        """As `tile`, with its type. BadArgument where there is none."""
        tiles = [tile for tile in self.tiles if tile.name == name and tile.program == program and line in (0, tile.line)]
        if (why := self.omissions.get((program, name))) and not (tiles and line):
            raise BadArgument(f"trace of {name!r} in program {program}: {why}")
        self.check_program(program)
        if not tiles:
            here = [tile for tile in self.tiles if tile.program == program and tile.line and not UNNAMED_VALUE.fullmatch(tile.name)]
            known = ", ".join(dict.fromkeys(f"{tile.name} (line {tile.line})" for tile in here))
            raise BadArgument(f"trace of {name!r} in program {program}: no such value; there are {known or 'none'}")
        return last_tile(tiles)

    def check_program(self, program: int) -> None:
        if not 0 <= program < prod(self.grid):
            raise BadArgument(f"trace of program {program}: of no such program; the grid {self.grid} has {prod(self.grid)}")
        if not self.is_traced(program):
            raise BadArgument(f"trace of program {program}: it was not traced; write bv.trace(..., traced_programs=[{program}])")

    def is_traced(self, program: int) -> bool:
        return self.traced_programs is None or program in self.traced_programs

    def accesses(self, name: str, index: int | Sequence[int], program: int | None = None) -> list[MemoryAccess]:
        """Who touched the element `index` of the tensor that the launch was given as `name`, in order; or byte `index` of
        "shared memory" or "tensor memory", of each program or of one."""
        if name in SPACES:
            byte = int(cast(int, index))
            return [
                MemoryAccess(moment.program, moment.event.agent, moment.event.line, kind)
                for moment in self.moments
                if isinstance(moment, ProgramEvent) and program in (None, moment.program)
                for kind, pieces in (("load", moment.event.reads), ("store", moment.event.writes))
                if moment.event.kind in ("read", "written", "issued" if kind == "load" else "landed")
                and any(piece.space == name and piece.low <= byte < piece.high for piece in pieces)
            ]
        base, byte = self._byte_of(name, index)
        return [
            moment.access
            for moment in self.moments
            if isinstance(moment, GlobalWords)
            and moment.base == base
            and program in (None, moment.access.program)
            and byte in moment
        ]

    def _byte_of(self, name: str, index: int | Sequence[int]) -> tuple[int, int]:
        """(where the storage begins, the byte in it) of an element."""
        tensor = self.tensors.get(name)
        if tensor is None:
            raise BadArgument(f"accesses of {name!r}: no tensor of the launch; there are {', '.join((*self.tensors, *SPACES))}")
        place = (index,) if isinstance(index, int) else tuple(index)
        shape = tuple(tensor.shape)
        if len(place) != len(shape) or not all(0 <= at < size for at, size in zip(place, shape, strict=True)):
            raise BadArgument(f"accesses of {name}[{', '.join(map(str, place))}]: it has the shape {shape}")
        offset = tensor.storage_offset() + sum(at * stride for at, stride in zip(place, tensor.stride(), strict=True))
        return tensor.untyped_storage().data_ptr(), offset * tensor.element_size()

    def layout(self, name: str, program: int = 0, line: int = 0) -> TileLayout:
        """Which thread holds each element of a tile, in which register."""
        from bitverdict.harness.report.launch_trace.layouts import layout_of_tile

        return layout_of_tile(self.find_tile(name, program, line))

    def errors(self, name: str) -> list[LineError]:
        """What each line of the kernel adds to the error of the worst element of the tensor `name`, the largest first. Launches
        all that was traced once for each line that rounds, on an emulated GPU of its own."""
        from bitverdict.harness.report.launch_trace.error_lines import error_lines

        return error_lines(self, name)

    def facts(self) -> MemoryFacts:
        """Widths of accesses and bank conflicts by line, of the PTX of the launch, which is executed for it thread by thread."""
        if self.facts_of is None:
            raise BadArgument("facts of a launch that did not end: there are none")
        return self.facts_of()

    def timeline(self, program: int = 0) -> list[Event]:
        """What happened on the chip in a program, and its accesses to global memory ("load", "store", "atomic"), in order."""
        self.check_program(program)
        return [event for moment in self.moments if (event := event_of(moment)) is not None and program_of(moment) == program]

    # -- what is recorded ---------------------------------------------------------------------------------------------
    def keep(self, m: Cta, assignment: Assignment, value: object, is_second: bool) -> None:
        """Called by the traced program: `value` was assigned. `is_second`: by the operation that has done so, with what is open."""
        program, name = m.number, assignment.name
        if not self.is_traced(program):
            return
        if not isinstance(value, np.ndarray | np.generic | int | float):
            self.omissions.setdefault((program, name), f"is a {type(value).__name__}, which no array holds")
            return
        self.step = m.state.steps
        last = self.moments[-1] if self.moments else None
        if is_second and isinstance(last, Tile) and last.assignment is assignment:
            self.moments.pop()
        words = np.array(value)
        enclosure = m.launch.enclosures.enclosure_of(value)
        ends = None
        if enclosure is not None:
            dtype = array_of(cast(Any, value), words.dtype).dtype
            ends = words_of(enclosure.low, dtype).reshape(words.shape), words_of(enclosure.high, dtype).reshape(words.shape)
        if self._has_room(program, name, words.nbytes * (1 if ends is None else 3)):
            self.moments.append(Tile(program, m.state.agent.name, assignment, words, ends))

    def _has_room(self, program: int, name: str, size: int) -> bool:
        self.bytes_taken += size
        if self.bytes_taken <= MOST_BYTES:
            return True
        why = (
            f"is cut: a trace keeps {MOST_BYTES >> 20} MiB, and they were full when a value of it came; trace fewer programs, by "
            f"bv.trace(..., traced_programs=[{program}]), or a smaller launch"
        )
        self.omissions.setdefault((program, name), why)
        return False

    def add(self, state: CtaState, event: Event) -> None:
        self.step = state.steps
        if self.is_traced(state.number) and self._has_room(state.number, "", EVENT_BYTES):
            self.moments.append(ProgramEvent(state.number, event))

    def on_load(self, access: WordAccess) -> None:
        if not is_atomic(access.op):
            self._touch(access, "load", access.places)

    def on_store(self, access: WordAccess) -> None:
        self._touch(access, "atomic" if is_atomic(access.op) else "store", access.places)

    def _touch(self, access: WordAccess, kind: str, places: np.ndarray | slice) -> None:
        x, y, z = access.agent.place
        program = x + self.grid[0] * (y + self.grid[1] * z)
        size = EVENT_BYTES + (0 if isinstance(places, slice) else places.nbytes)
        if self.is_traced(program) and self._has_room(program, "", size):
            touched = MemoryAccess(program, access.agent.name, access.op.location, kind)
            self.moments.append(GlobalWords(touched, access.region.name, access.region.base, places, access.size, self.step))

    # -- what is shown ------------------------------------------------------------------------------------------------
    def __repr__(self) -> str:
        return f"<Trace of {self.kernel} on {self.arch}, grid {self.grid}: {len(self.tiles)} tiles>"

    def _repr_html_(self) -> str:
        """For a notebook: the page of the first program that was traced, in a frame of its own."""
        from bitverdict.harness.report.launch_trace.page import trace_page

        first = 0 if self.traced_programs is None else min(self.traced_programs)
        page = html.escape(trace_page(self, first), quote=True)
        return f'<iframe title="{html.escape(self.kernel)}" style="width: 100%; height: 40rem; border: 0" srcdoc="{page}"></iframe>'
