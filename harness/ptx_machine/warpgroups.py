"""wgmma (PTX ISA 9.7.15): products of four warps whose operands lie in shared memory as a descriptor says, or A in registers.

A matrix in shared memory is made of rows of 8 elements' worth of 16 bytes (core matrices), or of rows as wide as the swizzle, whose
units of 16 bytes are exchanged. K-major: a row has the K of one m or n. MN-major: a row has the m or n of one k.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from bitverdict.harness.emulator.async_rules import WGMMA
from bitverdict.harness.emulator.ptx.opcodes import DTYPES, Words
from bitverdict.harness.ptx_machine.access import check_flight, other_end
from bitverdict.harness.ptx_machine.bulk_copies import end_read, hold_to_proxy
from bitverdict.harness.ptx_machine.program import StatementReader, ThreadStep, fault, instruction
from bitverdict.harness.ptx_machine.shared_space import ASYNC_PEERS
from bitverdict.harness.ptx_machine.tensor_maps import swizzle_addresses
from bitverdict.harness.ptx_machine.thread_order import WARP
from bitverdict.harness.ptx_machine.warp_instructions import BITS, accumulator_of, codes_of, fragments_of, product_of

if TYPE_CHECKING:
    from bitverdict.harness.emulator.ptx.steps import Step
    from bitverdict.harness.ptx_machine.threads import Active, Threads

GROUP = 4 * WARP
UNIT = 16  # bytes that a swizzle moves together
_SWIZZLE_OF_LAYOUT = {0: 0, 1: 3, 2: 2, 3: 1}  # mode of a tensor map, by bits 62 and 63 of a descriptor


@dataclass(eq=False)
class Flight:
    """One wgmma of the warpgroup of `first_thread`: until its group has been waited for it has the registers `writes` and `reads`
    and the `units` of shared memory."""

    step: ThreadStep
    first_thread: int
    group: int
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    units: np.ndarray
    number: int


@dataclass(eq=False)
class Products:
    """The wgmma of a batch: what is in flight, how many groups, registers that were changed since the last wgmma.fence."""

    lanes: int
    flights: list[Flight] = field(default_factory=list)
    written: dict[str, list[Flight]] = field(default_factory=dict)  # by register
    read: dict[str, list[Flight]] = field(default_factory=dict)
    changed: dict[str, np.ndarray] = field(default_factory=dict)  # by register: (lanes,)
    committed_groups: np.ndarray = field(init=False)
    _names: dict[int, tuple[frozenset[str], frozenset[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.committed_groups = np.zeros(self.lanes, np.int32)

    def note(self, machine: Threads, step: Step, lanes: np.ndarray | None) -> None:
        """A statement other than wgmma reads and writes registers: none may be in flight, but a move of one moves its flight."""
        if step.statement.opcode.startswith("wgmma"):
            return
        if id(step) not in self._names:
            reads = frozenset(name for name in (*step.reads, step.guard) if isinstance(name, str) and name)
            self._names[id(step)] = reads, frozenset(step.writes)
        reads, writes = self._names[id(step)]
        moved_flights = [flight for name in reads & self.written.keys() for flight in self._flights_of(self.written[name], lanes)]
        if moved_flights and step.statement.opcode.startswith("mov"):
            for name in writes:
                self.written[name] = [*self.written.get(name, []), *moved_flights]
                for flight in moved_flights:
                    flight.writes += (name,)
        elif moved_flights:
            raise self._race(machine, step, moved_flights[0], "reads")
        else:
            used_flights = [
                flight
                for table in (self.written, self.read)
                for name in writes & table.keys()
                for flight in self._flights_of(table[name], lanes)
            ]
            if used_flights:
                raise self._race(machine, step, used_flights[0], "writes")
        if step.statement.opcode.startswith("mov"):  # LLVM puts copies and zeros behind the fence, and ptxas where they are needed
            return
        for name in writes & machine.kernel.fragments:
            self.changed.setdefault(name, np.zeros(self.lanes, bool))[... if lanes is None else lanes] = True

    @staticmethod
    def _flights_of(flights: list[Flight], lanes: np.ndarray | None) -> list[Flight]:
        return flights if lanes is None else [flight for flight in flights if flight.first_thread in lanes]

    def _race(self, machine: Threads, step: Step, flight: Flight, verb: str) -> Exception:
        message = f"{step.statement.opcode} {verb} a register that a wgmma in flight uses: it was not waited for"
        at = step if isinstance(step, ThreadStep) else flight.step
        return fault("race", message, at, rule=WGMMA.rule.sentence, **other_end(flight.step))

    def begin(self, flight: Flight) -> None:
        self.flights.append(flight)
        for names, table in ((flight.writes, self.written), (flight.reads, self.read)):
            for name in names:
                table.setdefault(name, []).append(flight)

    def finish(self, machine: Threads, flight: Flight) -> None:
        for names, table in ((flight.writes, self.written), (flight.reads, self.read)):
            for name in set(names):
                table[name] = [each for each in table[name] if each is not flight]
                if not table[name]:
                    del table[name]
        end_read(machine, flight.step, flight.first_thread, flight.units, flight.number)


def _groups(active: Active, step: ThreadStep) -> np.ndarray:
    """The first threads of the warpgroups that are here, whole."""
    threads = active.threads
    first_threads = threads[::GROUP] if len(threads) % GROUP == 0 else threads[:0]
    whole = (
        (first_threads % WARP == 0).all()
        and len(first_threads)
        and (threads.reshape(-1, GROUP) == first_threads[:, None] + np.arange(GROUP)).all()
    )
    if not whole:
        raise fault("not modelled", f"{step.statement.opcode} where not all threads of a warpgroup are together", step)
    return first_threads


@instruction("wgmma")
def _wgmma(reader: StatementReader) -> ThreadStep | None:
    names, statement = reader.modifiers, reader.statement
    if names[0] in ("fence", "commit_group", "wait_group"):
        reader.accept(names[0], "sync", "aligned")
        most = int(reader.operands[0], 0) if reader.operands else 0
        act = {"fence": _fence, "commit_group": _commit, "wait_group": _wait}[names[0]]
        return ThreadStep(statement, (), (), lambda: None, execute=act, options=most)
    shape = re.fullmatch(r"m64n(\d+)k(\d+)", next((name for name in names if name.startswith("m64")), ""))
    if not shape or names[0] != "mma_async":
        return None
    types = names[names.index(shape[0]) + 1 :]
    saturates = "satfinite" in types
    types = [name for name in types if name != "satfinite"]
    reader.accept("mma_async", "sync", "aligned", shape[0], "satfinite", *types)
    if len(types) != 3 or types[1] not in BITS:
        return None
    n, k = int(shape[1]), int(shape[2])
    result, left, right = types
    d = reader.names(reader.operands[0])
    a_text, b_text, *rest = reader.operands[1:]
    from_registers = a_text.startswith("{")
    a = [reader.operand(name, "b32") for name in reader.names(a_text)] if from_registers else [reader.operand(a_text, "b64")]
    b, scale = reader.operand(b_text, "b64"), reader.operand({"true": "1", "false": "0"}.get(rest[0], rest[0]), "pred")
    signs = [int(text, 0) for text in rest[1:3]]
    is_transposed = [bool(int(text, 0)) for text in rest[3:]]
    if -1 in signs or len(signs) not in (0, 2):
        return None
    a_transposed, b_transposed = ([False] * 2 + is_transposed)[-2:] if not from_registers else [False, *(is_transposed or [False])]

    def execute(active: Active, step: ThreadStep) -> None:
        machine, first_threads = active.machine, _groups(active, step)
        products = machine.products
        changed = [name for name in (*d, *(a if from_registers else ())) if name in products.changed]
        if any(products.changed[name][active.threads].any() for name in changed):
            message = f"{step.statement.opcode} uses a register that was written since the last wgmma.fence"
            raise fault("race", message, step, rule="PTX ISA, wgmma.fence")
        units: list[np.ndarray] = []
        if from_registers:
            parts = [active.read(source).reshape(-1, WARP) for source in a]
            a_codes = codes_of(parts, 16, k, left, step_rows=2).reshape(len(first_threads), 64, k)
        else:
            a_codes = _matrix(active, step, first_threads, active.read(a[0])[::GROUP], 64, k, left, a_transposed, units)
        b_codes = _matrix(active, step, first_threads, active.read(b)[::GROUP], n, k, right, b_transposed, units)
        addend = np.zeros((len(first_threads) * 4, 16, n), DTYPES[16 if result == "f16" else 32])
        uses = np.broadcast_to(active.read(scale), len(active.threads))[::GROUP]
        if uses.any():
            for number in range(n // 8):
                per = len(d) // (n // 8)
                block = [active.read(name).reshape(-1, WARP) for name in d[per * number : per * (number + 1)]]
                addend[:, :, 8 * number : 8 * number + 8] = accumulator_of(block, 16, result)
        addend = addend.reshape(len(first_threads), 64, n)
        addend[~uses] = 0
        words = product_of(machine.arch, "wgmma", (left, right, result), k, a_codes, b_codes, addend, saturates).reshape(-1, 16, n)
        registers = [
            part for number in range(n // 8) for part in fragments_of(words[:, :, 8 * number : 8 * number + 8], 16, result)
        ]
        for name, part in zip(d, registers, strict=True):
            active.write(name, part.reshape(-1))
        for number, thread in enumerate(first_threads.tolist()):
            own = np.unique(np.concatenate([each[number] for each in units]))
            flight = machine.new_flight(step)
            machine.shared.is_read[own] = flight
            reads = tuple(name for name in a if isinstance(name, str)) if from_registers else ()
            products.begin(Flight(step, thread, int(products.committed_groups[thread]), d, reads, own, flight))

    reads = tuple(each for each in (*d, *a, b, scale) if isinstance(each, str))
    return ThreadStep(statement, reads, d, lambda: None, execute=execute, size=32)


def _matrix(
    active: Active,
    step: ThreadStep,
    first_threads: np.ndarray,
    descriptors: Words,
    rows: int,
    k: int,
    kind: str,
    is_transposed: bool,
    units: list[np.ndarray],
) -> np.ndarray:
    """Codes [warpgroups, rows, k] of the matrices at `descriptors`, whose `units` [warpgroups, n] the async proxy reads."""
    size = BITS[kind] // 8
    if len(np.unique(descriptors >> np.uint64(16))) != 1:
        raise fault("not modelled", "warpgroups whose matrices lie in different ways, by one instruction", step)
    word = int(descriptors[0])
    start = (descriptors & np.uint64(0x3FFF)).astype(np.int64) << 4
    leading_offset, stride = ((word >> at & 0x3FFF) << 4 for at in (16, 32))
    mode = _SWIZZLE_OF_LAYOUT[word >> 62]
    if word >> 49 & 7:
        raise fault("not modelled", "a matrix descriptor with a base offset", step)
    places = matrix_places(leading_offset, stride, mode, rows, k, size, is_transposed)
    start += active.machine.shared.ranks(active.machine.cta[first_threads])  # a descriptor has the byte in the own CTA
    return read_matrix(active.machine, step, first_threads, start, places, size, mode, units)


@lru_cache(maxsize=256)
def matrix_places(leading_offset: int, stride: int, mode: int, rows: int, k: int, size: int, is_transposed: bool) -> np.ndarray:
    """The byte [rows, k] from the start of a matrix in shared memory that each element of `size` bytes begins at, before the
    swizzle."""
    width = UNIT << mode  # bytes of a row
    row, column = np.arange(rows)[:, None], np.arange(k)[None]
    if is_transposed:
        across, along = divmod(row * size, width)
        down = leading_offset if mode else stride
        over = stride if mode else leading_offset
        return across * down + along + column % 8 * width + column // 8 * over
    if mode:
        return row // 8 * stride + row % 8 * width + column * size
    return row // 8 * stride + row % 8 * UNIT + column * size // UNIT * leading_offset + column * size % UNIT


def read_matrix(
    machine: Threads,
    step: ThreadStep,
    first_threads: np.ndarray,
    start: np.ndarray,
    places: np.ndarray,
    size: int,
    mode: int,
    units: list[np.ndarray],
) -> np.ndarray:
    """Words of `size` bytes [threads, *places.shape], which the async proxy reads behind the `start` of each thread's matrix."""
    space = machine.shared
    addresses = swizzle_addresses(start.reshape(-1, *[1] * places.ndim) + places, mode)  # (warpgroups, rows, k)
    threads = np.repeat(first_threads, places.size)
    offsets = space.flat_offsets(step, threads, addresses.reshape(-1), size, "read", ASYNC_PEERS)
    touched = np.unique(offsets.reshape(len(first_threads), -1) // space.judge.unit, axis=1) if len(first_threads) == 1 else None
    own = touched if touched is not None else np.sort(offsets.reshape(len(first_threads), -1) // space.judge.unit, axis=1)
    repeated = max(space.judge.unit // size, 1)
    own = own if touched is not None else own[:, ::repeated]
    units.append(own)
    flat, of_threads = own.reshape(-1), np.repeat(first_threads, own.shape[1])
    check_flight(machine, step, flat, "read")
    hold_to_proxy(machine, step, of_threads, flat, "reads")
    codes: np.ndarray = space.words(8 * size // 8)[offsets // size].reshape(addresses.shape)
    return codes


def _fence(active: Active, step: ThreadStep) -> None:
    products = active.machine.products
    for name in list(products.changed):
        products.changed[name][active.threads] = False
        if not products.changed[name].any():
            del products.changed[name]


def _commit(active: Active, step: ThreadStep) -> None:
    active.machine.products.committed_groups[active.threads] += 1


def _wait(active: Active, step: ThreadStep) -> None:
    machine, products = active.machine, active.machine.products
    waits = np.zeros(machine.lanes, bool)
    waits[active.threads] = True
    finished_flights = [
        each
        for each in products.flights
        if waits[each.first_thread] and each.group < products.committed_groups[each.first_thread] - step.options
    ]
    products.flights = [each for each in products.flights if each not in finished_flights]
    for flight in finished_flights:
        products.finish(machine, flight)
