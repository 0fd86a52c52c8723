"""tcgen05.mma, tcgen05.cp and tcgen05.commit (PTX ISA 9.7.16): what one thread gives to the tensor core of its CTA.

A product is computed where it is issued, and its accumulator written. Until a commit behind it has been waited for, no thread may
touch what it writes, nor write what it reads; only the tensor core's own operations follow one another in order. The matrices in
shared memory lie as those of wgmma, in tensor memory a row a lane: rows of a product with M = 64 in the lower, or upper, half of
each quarter of the lanes. With .cta_group::2 a pair of CTAs of a cluster makes one product: each has its half of the rows of A and
D, and in its shared memory half of B's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from bitverdict.harness.emulator.ptx.opcodes import DTYPES
from bitverdict.harness.ptx_machine.mbarriers import barrier_at, by_barrier, hold_to_init
from bitverdict.harness.ptx_machine.program import StatementReader, ThreadStep, fault, instruction
from bitverdict.harness.ptx_machine.tensor_descriptors import K_BYTES, OPERANDS, WIDTHS, Product, product_of_descriptor
from bitverdict.harness.ptx_machine.tensor_memory import (
    COLUMNS,
    LANES,
    PipeFlight,
    TensorSpace,
    raise_tensor_race,
    tensor_of,
)
from bitverdict.harness.ptx_machine.warp_instructions import FORMATS, product_of
from bitverdict.harness.ptx_machine.warpgroups import matrix_places, read_matrix
from bitverdict.reference import tensor_core

if TYPE_CHECKING:
    from bitverdict.harness.ptx_machine.threads import Active, Threads

_SWIZZLES = {0: 0, 2: 3, 4: 2, 6: 1}  # mode of a tensor map, by bits 61 to 63 of a descriptor
GROUPS = ("cta_group::1", "cta_group::2")


@instruction("tcgen05")
def _mma(reader: StatementReader) -> ThreadStep | None:
    """tcgen05.mma of dense operands and of such with block scales, A by a descriptor or in tensor memory."""
    names, operands, statement = reader.modifiers, reader.operands, reader.statement
    if names[0] != "mma":
        return None
    kind = next((name[6:] for name in names if name.startswith("kind::")), "")
    is_scaled = "block_scale" in names
    blocks = {"block16": 16, "scale_vec::4X": 16, "block32": 32, "scale_vec::2X": 32, "scale_vec::1X": 32}
    reader.accept("mma", *GROUPS, f"kind::{kind}", "block_scale", *blocks, *(name for name in names if "collector" in name))
    masks = [reader.operand(name, "b32") for name in reader.names(operands[4])] if operands[4].startswith("{") else []
    if kind not in OPERANDS or is_scaled != kind.startswith("mx") or len(operands) != (7 if is_scaled else 5 + bool(masks)):
        return None
    block = next((blocks[name] for name in names if name in blocks), 16 if kind == "mxf4nvf4" else 32)
    target = reader.address(operands[0])
    in_tensor = operands[1].startswith("[")
    left = reader.address(operands[1]) if in_tensor else (reader.operand(operands[1], "b64"), 0)
    right, descriptor = reader.operand(operands[2], "b64"), reader.operand(operands[3], "b32")
    scales = [reader.address(text) for text in operands[4:6]] if is_scaled else []
    uses = reader.operand({"true": "1", "false": "0"}.get(operands[-1], operands[-1]), "pred")

    def execute(active: Active, step: ThreadStep) -> None:
        places = [(active.read(base).astype(np.int64) + offset).tolist() for base, offset in (target, left, *scales)]
        words = [active.read(source).tolist() for source in (right, descriptor, uses)]
        if any(active.read(mask).any() for mask in masks):
            raise fault("not modelled", f"{step.statement.opcode} with disabled lanes", step)
        for number, thread in enumerate(active.threads.tolist()):
            issue = _Issue.by_thread(active.machine, step, thread)
            product = product_of_descriptor(kind, words[1][number], len(issue.ctas) > 1)
            if isinstance(product, str):
                raise fault("not modelled", product, step)
            d, *sides = (each[number] % (1 << 64) for each in places)  # a descriptor's sign is none
            sides.insert(1, words[0][number])
            issue.multiply(product, d, sides, block, in_tensor=in_tensor, adds=words[2][number])

    registers = (target[0], left[0], right, descriptor, uses, *masks, *(base for base, _ in scales))
    return ThreadStep(
        statement, tuple(each for each in registers if isinstance(each, str)), (), lambda: None, execute=execute, size=8
    )


_COPIES = {
    "128x256b": (128, 32, (np.arange(128),)),
    "128x128b": (128, 16, (np.arange(128),)),
    "64x128b.warpx2::02_13": (64, 16, (np.arange(64), np.arange(64) + 64)),
    "64x128b.warpx2::01_23": (64, 16, (np.arange(64) + np.arange(64) // 32 * 32, np.arange(64) + np.arange(64) // 32 * 32 + 32)),
    "32x128b.warpx4": (32, 16, tuple(np.arange(32) + 32 * quarter for quarter in range(4))),
}
"""Rows, bytes of a row, and the lanes that the rows go to, each time (PTX ISA 9.7.16.2.3, tcgen05.cp)."""


@instruction("tcgen05")
def _copy(reader: StatementReader) -> ThreadStep | None:
    """tcgen05.cp: rows of shared memory to lanes of tensor memory."""
    names, statement = reader.modifiers, reader.statement
    form = ".".join(sorted(name for name in names if name[0].isdigit() or name.startswith("warpx")))
    if names[0] != "cp" or form not in _COPIES:
        return None
    reader.accept("cp", *GROUPS, *form.split("."))
    rows, size, lanes = _COPIES[form]
    target, source = reader.address(reader.operands[0]), reader.operand(reader.operands[1], "b64")

    def execute(active: Active, step: ThreadStep) -> None:
        places = active.read(target[0]).astype(np.int64) + target[1]
        for thread, place, word in zip(active.threads.tolist(), places.tolist(), active.read(source).tolist(), strict=True):
            issue = _Issue.by_thread(active.machine, step, thread)
            columns = (place & 0xFFFF) + np.arange(size // 4)
            contents = [issue.read_shared(cta, word, rows, size, 1, is_transposed=False) for cta in issue.ctas]
            cells = [np.stack([issue.cells(cta, own + (place >> 16), columns) for own in lanes]) for cta in issue.ctas]
            issue.begin(np.stack(cells).reshape(-1))
            for own_cells, content in zip(cells, contents, strict=True):
                issue.write(own_cells, np.ascontiguousarray(content).view(np.uint32))

    reads = tuple(each for each in (target[0], source) if isinstance(each, str))
    return ThreadStep(statement, reads, (), lambda: None, execute=execute, size=32)


@dataclass
class _Issue:
    """One operation that `thread` gives to the tensor cores of `ctas`: `units` of shared memory and `reads` cells that it has read
    so far."""

    machine: Threads
    step: ThreadStep
    thread: int
    ctas: tuple[int, ...]
    units: list[np.ndarray] = field(default_factory=list)
    reads: list[np.ndarray] = field(default_factory=list)

    @classmethod
    def by_thread(cls, machine: Threads, step: ThreadStep, thread: int) -> _Issue:
        """Of the own CTA, or of it and the other one of its pair."""
        cta = int(machine.cta[thread])
        if "cta_group::2" not in step.statement.opcode:
            return cls(machine, step, thread, (cta,))
        if machine.shape.cluster_ctas % 2:
            raise fault("illegal instruction", f"{step.statement.opcode} in a cluster of {machine.shape.cluster_ctas} CTAs", step)
        return cls(machine, step, thread, (cta // 2 * 2, cta // 2 * 2 + 1))

    @property
    def tensor(self) -> TensorSpace:
        assert self.machine.tensor is not None
        return self.machine.tensor

    def cells(self, cta: int, lanes: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """[lanes, columns]"""
        return self.tensor.cells(self.step, np.array([[cta]]), lanes[:, None], columns[None])

    def multiply(self, product: Product, d: int, sides: list[int], block: int, *, in_tensor: bool, adds: bool) -> None:
        """D = A B + D, or A B. `sides`: A and B, by descriptors (A `in_tensor`: its address), and the addresses of their scales."""
        a = [
            self.tensor_codes(cta, product, sides[0]) if in_tensor else self.shared_codes(cta, product, sides[0], 0)
            for cta in self.ctas
        ]
        b = np.concatenate([self.shared_codes(cta, product, sides[1], 1) for cta in self.ctas])
        scales = [
            [self.scale_codes(cta, product, address, block, side) for side, address in enumerate(sides[2:])] for cta in self.ctas
        ]
        cells = [self.accumulator_cells(cta, product, d) for cta in self.ctas]
        self.begin(np.stack(cells).reshape(-1))
        for own_cells, rows, own_scales in zip(cells, a, scales, strict=True):
            if adds:
                self.check_written(own_cells)
            dtype = DTYPES[16 if product.result == "f16" else 32]
            c = self.tensor.words[own_cells].astype(dtype) if adds else np.zeros(own_cells.shape, dtype)
            self.write(own_cells, self.words(product, block, rows, b, own_scales, c).astype(np.uint32))

    def accumulator_cells(self, cta: int, product: Product, address: int) -> np.ndarray:
        """[rows, columns] of D: with 64 rows in each CTA of a pair the second half of the columns lies in the upper lanes."""
        columns = (address & 0xFFFF) + np.arange(product.n)
        if len(self.ctas) == 1 or product.m == 128:
            return self.cells(cta, self.row_lanes(address, product.m), columns)
        rows = np.arange(LANES) + (address >> 16)
        lower, upper = self.cells(cta, rows, columns[: product.n // 2]).reshape(2, product.m, -1)
        return np.concatenate([lower, upper], axis=1)

    def words(
        self, product: Product, block: int, a: np.ndarray, b: np.ndarray, scales: list[np.ndarray], c: np.ndarray
    ) -> np.ndarray:
        types = product.left, product.right_type, product.result
        if product.kind == "i8":
            return product_of(self.machine.arch, "tcgen05", types, product.k, a[None], b[None], c[None], product.saturates)[0]
        rule = self.rule(product, block, types)
        return tensor_core.scaled_product(rule, a, scales[0], b.T, scales[1], c) if scales else tensor_core.product(rule, a, b.T, c)

    def rule(self, product: Product, block: int, types: tuple[str, str, str]) -> tensor_core.Instruction:
        options = {"scale": product.scale, "scale_block": block, "kind": product.kind} if product.scale else {}
        formats = [FORMATS.get(name, name) for name in types]
        try:
            return tensor_core.instruction(self.machine.arch, "tcgen05", *formats, **options)  # type: ignore[arg-type]
        except ValueError as error:
            raise fault("not modelled", str(error), self.step) from error

    def row_lanes(self, address: int, rows: int) -> np.ndarray:
        """The lane of each row of A or D: 64 rows have half of each quarter."""
        first, row = address >> 16, np.arange(rows)
        if first not in ((0, 16) if rows == 64 else (0,)):
            message = f"{self.step.statement.opcode}: a matrix of {rows} rows from lane {first} on"
            raise fault("illegal instruction", message, self.step)
        return first + (row // 16 * 32 + row % 16 if rows == 64 else row)

    def read_shared(self, cta: int, word: int, rows: int, k: int, size: int, *, is_transposed: bool, width: int = 8) -> np.ndarray:
        """[rows, k] elements of `size` bytes where the descriptor `word` says; those of 4 and 6 bits (`width`) in units of 16
        elements, which have 16 bytes."""
        mode = _SWIZZLES.get(word >> 61)
        if mode is None or word >> 46 & 3 != 1 or word >> 52 & 1 or (mode and word >> 49 & 7):
            raise fault("not modelled", f"a matrix descriptor {word:#x} of another version, swizzle or base offset", self.step)
        leading_offset, stride = ((word >> position & 0x3FFF) << 4 for position in (16, 32))
        places, shift = matrix_places(leading_offset, stride, mode, rows, k, size, is_transposed), np.zeros(1, np.uint8)
        if width < 8:
            element = (np.arange(rows)[:, None] if is_transposed else np.arange(k)[None]) % 16
            places = places - element + element * width // 8
            shift = (element * width % 8).astype(np.uint8)
            places = np.stack([places, places + (shift > 2)], axis=2) if width == 6 else places
        start = np.array([(word & 0x3FFF) << 4]) + self.machine.shared.ranks(np.array([cta]))
        own: list[np.ndarray] = []
        codes = read_matrix(self.machine, self.step, np.array([self.thread]), start, places, size, mode, own)[0]
        self.units.append(own[0][0])
        if width == 6:
            pair = codes.astype(np.uint16)
            codes = ((pair[..., 0] | pair[..., 1] << 8) >> shift).astype(np.uint8)
        return codes if width >= 8 else (codes if width == 6 else codes >> shift) & np.uint8((1 << width) - 1)

    def shared_codes(self, cta: int, product: Product, word: int, side: int) -> np.ndarray:
        """[rows, k] codes of A (`side` 0) or B."""
        kind, rows = (product.left, product.right_type)[side], (product.m, product.n // len(self.ctas))[side]
        width = WIDTHS.get(kind, 8)
        if product.is_packed:
            return self.with_sign(product, _nibbles(self.read_shared(cta, word, rows, K_BYTES, 1, is_transposed=False)), side)
        transposed = product.is_transposed[side]
        codes = self.read_shared(cta, word, rows, product.k, max(width // 8, 1), is_transposed=transposed, width=width)
        return self.with_sign(product, codes, side)

    def tensor_codes(self, cta: int, product: Product, address: int) -> np.ndarray:
        """[rows, k] codes of A in tensor memory: a row's 32 bytes in eight columns."""
        if (WIDTHS.get(product.left, 8) < 8 and not product.is_packed) or (len(self.ctas) > 1 and product.m == 64):
            raise fault("not modelled", f"A of {product.left} and {product.m} rows a CTA in tensor memory", self.step)
        columns = (address & 0xFFFF) + np.arange(K_BYTES // 4)
        words = self.read(self.cells(cta, self.row_lanes(address, product.m), columns))
        held = np.ascontiguousarray(words)
        codes = _nibbles(held.view(np.uint8)) if product.is_packed else held.view(DTYPES[WIDTHS.get(product.left, 8)])
        return self.with_sign(product, codes, 0)

    def with_sign(self, product: Product, codes: np.ndarray, side: int) -> np.ndarray:
        kind = (product.left, product.right_type)[side]
        if product.is_negated[side]:
            codes = codes ^ codes.dtype.type(1 << WIDTHS.get(kind, 8) - 1)
        return codes & np.uint32(0xFFFFE000) if kind == "tf32" else codes

    def scale_codes(self, cta: int, product: Product, address: int, block: int, side: int) -> np.ndarray:
        """[rows, blocks of K] scales: row r in lane r % 32 of each quarter and column r / 32, four blocks a column (PTX ISA
        9.7.16.10.7)."""
        rows, count, first_byte = (product.m, product.n)[side], product.k // block, product.scale_bytes[side]
        if address >> 16 or first_byte + count > 4:
            raise fault(
                "illegal instruction", f"{self.step.statement.opcode}: scales at {address:#x}, byte {first_byte}", self.step
            )
        columns = (address & 0xFFFF) + np.arange(-(-rows // 32))
        words = self.read(self.cells(cta, np.arange(LANES), columns), in_pipe=True).reshape(4, 32, -1)
        if (words != words[0]).any():
            raise fault("not modelled", "scales that are not the same in the four quarters of the lanes", self.step)
        of_rows = words[0].T.reshape(-1)[:rows]
        return (of_rows[:, None] >> 8 * (first_byte + np.arange(count, dtype=np.uint32))).astype(np.uint8)

    def read(self, cells: np.ndarray, *, in_pipe: bool = False) -> np.ndarray:
        """The words of `cells`, which stay as they are until this operation is over."""
        tensor, flat = self.tensor, cells.reshape(-1)
        tensor.check_flight(self.step, flat, writes=False, in_pipe=in_pipe)
        threads = np.full(len(flat), self.thread)
        if conflict := tensor.judge.with_writer(threads, flat, tensor.judge.shadow.slots(flat)):
            raise_tensor_race(self.machine, self.step, conflict, "reads")
        self.check_written(cells)
        self.reads.append(flat)
        return tensor.words[cells]

    def check_written(self, cells: np.ndarray) -> None:
        is_written = self.tensor.is_written[cells]
        if not is_written.all():
            column, lane = divmod(int(cells[~is_written][0]), LANES)
            message = f"{self.step.statement.opcode} reads column {column % COLUMNS}, lane {lane} of tensor memory: never written"
            raise fault("uninitialised read", message, self.step)

    def begin(self, cells: np.ndarray) -> None:
        """It is in flight from here on, and writes `cells`. Behind an operation that writes the same ones they need no check."""
        machine, tensor, step = self.machine, self.tensor, self.step
        last = tensor.flights[-1] if tensor.flights else None
        follows = last is not None and last.thread == self.thread and np.array_equal(last.writes, cells)
        if not (follows and (tensor.in_flight[cells] == last.number).all()):  # type: ignore[union-attr]
            tensor.check_flight(step, cells, writes=True, in_pipe=True)
            if conflict := tensor.judge.write(step, np.full(len(cells), self.thread), cells, 1):
                raise_tensor_race(machine, step, conflict, "writes")
        number = machine.new_flight(step)
        units, reads = (np.unique(np.concatenate(each)) if each else cells[:0] for each in (self.units, self.reads))
        machine.shared.is_read[units] = number
        tensor.mark(step, number, reads, cells)
        tensor.flights.append(PipeFlight(step, self.thread, self.ctas, units, reads, cells, number))

    def write(self, cells: np.ndarray, words: np.ndarray) -> None:
        self.tensor.words[cells], self.tensor.is_written[cells] = words, True


def _nibbles(held: np.ndarray) -> np.ndarray:
    """The codes in bytes [rows, n], two each, the lower one first."""
    return np.stack([held & np.uint8(15), held >> np.uint8(4)], axis=2).reshape(len(held), -1)


# -- commits ----------------------------------------------------------------------------------------------------------------------
@instruction("tcgen05")
def _commit(reader: StatementReader) -> ThreadStep | None:
    """tcgen05.commit: an arrival once all that this thread has given to the tensor core is over."""
    if reader.modifiers[0] != "commit":
        return None
    reader.accept("commit", *GROUPS, "mbarrier::arrive::one", "shared::cluster", "multicast::cluster", "b64")
    base, offset = reader.address(reader.operands[0])
    mask = reader.operand(reader.operands[1], "u16") if "multicast::cluster" in reader.modifiers else None

    def execute(active: Active, step: ThreadStep) -> None:
        machine, tensor = active.machine, tensor_of(active)
        for cta, address, positions in by_barrier(active, step, base, offset):
            for position in positions.tolist():
                thread = int(active.threads[position])
                flights = [flight for flight in tensor.flights if flight.thread == thread]
                for target in (cta,) if mask is None else _targets(machine, step, thread, int(active.read(mask)[position])):
                    barrier = barrier_at(machine, step, target, address)
                    hold_to_init(machine, step, target, address, active.threads[position : position + 1])
                    barrier.commits.append(partial(_finish, machine, step, flights))

    reads = tuple(each for each in (base, mask) if isinstance(each, str))
    return ThreadStep(reader.statement, reads, (), lambda: None, execute=execute)


def _targets(machine: Threads, step: ThreadStep, thread: int, mask: int) -> list[int]:
    """The CTAs of the cluster of `thread` that `mask` names."""
    n = machine.shape.cluster_ctas
    if not mask or mask >> n:
        raise fault("illegal instruction", f"{step.statement.opcode} to the CTAs {mask:#b} of a cluster of {n}", step)
    ctas = int(machine.cta[thread]) // n * n + np.array([rank for rank in range(n) if mask >> rank & 1])
    if machine.shared.reach is not None:
        machine.shared.reach(step, np.full(len(ctas), thread), ctas, True)
    found: list[int] = ctas.tolist()
    return found


def _finish(machine: Threads, step: ThreadStep, flights: list[PipeFlight], epoch: int) -> ThreadStep:
    """The operations `flights` are over, in the async proxy's `epoch`; `step` tells it."""
    tensor, space = machine.tensor, machine.shared
    assert tensor is not None
    finished_flights = [flight for flight in flights if flight.number in tensor.steps]
    numbers = {flight.number for flight in finished_flights}
    tensor.flights = [flight for flight in tensor.flights if flight.number not in numbers]
    for flight in finished_flights:
        space.is_read[flight.units[space.is_read[flight.units] == flight.number]] = 0
        del space.steps[flight.number], tensor.steps[flight.number]
        space.judge.end_async_read(flight.step, flight.units, epoch)
        tensor.judge.land(flight.step, flight.writes, epoch)
        tensor.judge.end_async_read(flight.step, flight.reads, epoch)
        for peer in set(flight.ctas) - {int(machine.cta[flight.thread])}:
            machine.cluster_phases.landings[peer] = epoch, flight.step
    for flight in tensor.flights:
        space.is_read[flight.units[space.is_read[flight.units] == 0]] = flight.number
    tensor.unmark([(flight.number, flight.reads, flight.writes) for flight in finished_flights])
    return step


__all__ = ["Product"]
