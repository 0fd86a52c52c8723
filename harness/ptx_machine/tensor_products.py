"""tcgen05.mma, tcgen05.cp and tcgen05.commit (PTX ISA 9.7.16): what one thread gives to the tensor core of its CTA.

A product is computed where it is issued, and its accumulator written. Until a commit behind it has been waited for, no thread may
touch what it writes, nor write what it reads; only the tensor core's own operations follow one another in order. The matrices in
shared memory lie as those of wgmma, in tensor memory a row a lane: rows of a product with M = 64 in the lower, or upper, half of
each quarter of the lanes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from bitverdict.harness.emulator.ptx.opcodes import DTYPES
from bitverdict.harness.ptx_machine.mbarriers import barrier_at, by_barrier, hold_to_init
from bitverdict.harness.ptx_machine.program import StatementReader, ThreadStep, fault, instruction
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
_NARROW = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}
_OPERANDS = {
    "f16": {0: "f16", 1: "bf16"},
    "tf32": {2: "tf32"},
    "f8f6f4": _NARROW,
    "i8": {0: "u8", 1: "s8"},
    "mxf8f6f4": _NARROW,
    "mxf4": {1: "e2m1"},
    "mxf4nvf4": {1: "e2m1"},
}
"""Types of operands by kind and code of the instruction descriptor (PTX ISA 9.7.16.4.2)."""
_RESULTS = {0: "f16", 1: "f32", 2: "s32"}
_WIDTHS = {"f16": 16, "bf16": 16, "tf32": 32, "e2m3": 6, "e3m2": 6, "e2m1": 4}  # bits of an element; else 8
_K_BYTES = 32  # of both operands of one instruction


@dataclass(frozen=True)
class Product:
    """What an instruction descriptor says. `scale_bytes`: the byte of a column that the scales of A, and of B, begin at."""

    kind: str
    left: str
    right_type: str
    result: str
    m: int
    n: int
    is_transposed: tuple[bool, bool]
    is_negated: tuple[bool, bool]
    saturates: bool = False
    scale: str = ""
    scale_bytes: tuple[int, int] = (0, 0)

    @property
    def is_packed(self) -> bool:
        """Two elements a byte: the kinds of four bits alone."""
        return self.kind in ("mxf4", "mxf4nvf4")

    @property
    def k(self) -> int:
        if self.is_packed:
            return 2 * _K_BYTES
        return 8 * _K_BYTES // max(_WIDTHS.get(self.left, 8), 8)


@cache
def _product_of_descriptor(kind: str, word: int) -> Product | str:
    """The product, or why it is not executed here."""
    left, right = (_OPERANDS[kind].get(word >> position & 7) for position in (7, 10))
    n, is_scaled = (word >> 17 & 63) << 3, kind.startswith("mx")
    m = (word >> 27 & 3) << 7 if is_scaled else (word >> 24 & 31) << 4
    result = "f32" if is_scaled else _RESULTS.get(word >> 4 & 3)
    fits = m in ((128,) if is_scaled else (64, 128)) and 8 <= n <= 256 and n % (16 if m == 128 else 8) == 0
    if left is None or right is None or result is None or not fits or (result == "s32") != (kind == "i8"):
        return f"the instruction descriptor {word:#x} says no product of kind::{kind}: {left} and {right} to {result}, M {m}, N {n}"
    unknown = word & (0x8000000F if is_scaled else 0xE0000007)
    if unknown:
        return f"an instruction descriptor {word:#x}, whose bits {unknown:#x} are not known here"
    bits = [bool(word >> position & 1) for position in (3, 13, 14, 15, 16, 23)]
    shape = (left, right, result, m, n, (bits[3], bits[4]), (bits[1], bits[2]))
    if is_scaled:
        return Product(kind, *shape, scale="e8m0" if bits[5] else "ue4m3", scale_bytes=(word >> 29 & 3, word >> 4 & 3))
    return Product(kind, *shape, saturates=bits[0])


@instruction("tcgen05")
def _mma(reader: StatementReader) -> ThreadStep | None:
    """tcgen05.mma of dense operands and of such with block scales, A by a descriptor or in tensor memory."""
    names, operands, statement = reader.modifiers, reader.operands, reader.statement
    if names[0] != "mma":
        return None
    kind = next((name[6:] for name in names if name.startswith("kind::")), "")
    is_scaled = "block_scale" in names
    blocks = {"block16": 16, "scale_vec::4X": 16, "block32": 32, "scale_vec::2X": 32, "scale_vec::1X": 32}
    reader.accept("mma", "cta_group::1", f"kind::{kind}", "block_scale", *blocks, *(name for name in names if "collector" in name))
    if kind not in _OPERANDS or is_scaled != kind.startswith("mx") or len(operands) != (7 if is_scaled else 5):
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
        for number, thread in enumerate(active.threads.tolist()):
            product = _product_of_descriptor(kind, words[1][number])
            if isinstance(product, str):
                raise fault("not modelled", product, step)
            issue = _Issue(active.machine, step, thread, [], [])
            d, *sides = (each[number] % (1 << 64) for each in places)  # a descriptor's sign is none
            sides.insert(1, words[0][number])
            issue.multiply(product, d, sides, block, in_tensor=in_tensor, adds=words[2][number])

    registers = (target[0], left[0], right, descriptor, uses, *(base for base, _ in scales))
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
    reader.accept("cp", "cta_group::1", *form.split("."))
    rows, size, lanes = _COPIES[form]
    target, source = reader.address(reader.operands[0]), reader.operand(reader.operands[1], "b64")

    def execute(active: Active, step: ThreadStep) -> None:
        places = active.read(target[0]).astype(np.int64) + target[1]
        for thread, place, word in zip(active.threads.tolist(), places.tolist(), active.read(source).tolist(), strict=True):
            issue = _Issue(active.machine, step, thread, [], [])
            content = issue.read_shared(word, rows, size, 1, is_transposed=False)
            cells = np.stack([issue.cells(own + (place >> 16), (place & 0xFFFF) + np.arange(size // 4)) for own in lanes])
            issue.begin(cells.reshape(-1))
            issue.write(cells, np.ascontiguousarray(content).view(np.uint32))

    reads = tuple(each for each in (target[0], source) if isinstance(each, str))
    return ThreadStep(statement, reads, (), lambda: None, execute=execute, size=32)


@dataclass
class _Issue:
    """One operation that `thread` gives to the tensor core: `units` of shared memory and `reads` cells that it has read so far."""

    machine: Threads
    step: ThreadStep
    thread: int
    units: list[np.ndarray]
    reads: list[np.ndarray]

    @property
    def tensor(self) -> TensorSpace:
        assert self.machine.tensor is not None
        return self.machine.tensor

    def cells(self, lanes: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """[lanes, columns]"""
        cta = self.machine.cta[self.thread : self.thread + 1, None]
        return self.tensor.cells(self.step, cta, lanes[:, None], columns[None])

    def multiply(self, product: Product, d: int, sides: list[int], block: int, *, in_tensor: bool, adds: bool) -> None:
        """D = A B + D, or A B. `sides`: A and B, by descriptors (A `in_tensor`: its address), and the addresses of their scales."""
        tensor = self.tensor
        a = self.tensor_codes(product, sides[0]) if in_tensor else self.shared_codes(product, sides[0], 0)
        b = self.shared_codes(product, sides[1], 1)
        scales = [self.scale_codes(product, address, block, side) for side, address in enumerate(sides[2:])]
        cells = self.cells(self.row_lanes(d, product.m), (d & 0xFFFF) + np.arange(product.n))
        self.begin(cells.reshape(-1))
        if adds:
            self.check_written(cells)
        dtype = DTYPES[16 if product.result == "f16" else 32]
        c = tensor.words[cells].astype(dtype) if adds else np.zeros(cells.shape, dtype)
        types = product.left, product.right_type, product.result
        if product.kind == "i8":
            words = product_of(self.machine.arch, "tcgen05", types, product.k, a[None], b[None], c[None], product.saturates)[0]
        else:
            rule = self.rule(product, block, types)
            words = (
                tensor_core.scaled_product(rule, a, scales[0], b.T, scales[1], c)
                if scales
                else tensor_core.product(rule, a, b.T, c)
            )
        self.write(cells, words.astype(np.uint32))

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

    def read_shared(self, word: int, rows: int, k: int, size: int, *, is_transposed: bool, width: int = 8) -> np.ndarray:
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
        start = np.array([(word & 0x3FFF) << 4])
        own: list[np.ndarray] = []
        codes = read_matrix(self.machine, self.step, np.array([self.thread]), start, places, size, mode, own)[0]
        self.units.append(own[0][0])
        if width == 6:
            pair = codes.astype(np.uint16)
            codes = ((pair[..., 0] | pair[..., 1] << 8) >> shift).astype(np.uint8)
        return codes if width >= 8 else (codes if width == 6 else codes >> shift) & np.uint8((1 << width) - 1)

    def shared_codes(self, product: Product, word: int, side: int) -> np.ndarray:
        """[rows, k] codes of A (`side` 0) or B."""
        kind, rows = (product.left, product.right_type)[side], (product.m, product.n)[side]
        width = _WIDTHS.get(kind, 8)
        if product.is_packed:
            return self.with_sign(product, _nibbles(self.read_shared(word, rows, _K_BYTES, 1, is_transposed=False)), side)
        transposed = product.is_transposed[side]
        codes = self.read_shared(word, rows, product.k, max(width // 8, 1), is_transposed=transposed, width=width)
        return self.with_sign(product, codes, side)

    def tensor_codes(self, product: Product, address: int) -> np.ndarray:
        """[rows, k] codes of A in tensor memory: a row's 32 bytes in eight columns."""
        if _WIDTHS.get(product.left, 8) < 8 and not product.is_packed:
            raise fault("not modelled", f"A of {product.left} in tensor memory", self.step)
        columns = (address & 0xFFFF) + np.arange(_K_BYTES // 4)
        words = self.read(self.cells(self.row_lanes(address, product.m), columns))
        held = np.ascontiguousarray(words)
        codes = _nibbles(held.view(np.uint8)) if product.is_packed else held.view(DTYPES[_WIDTHS.get(product.left, 8)])
        return self.with_sign(product, codes, 0)

    def with_sign(self, product: Product, codes: np.ndarray, side: int) -> np.ndarray:
        kind = (product.left, product.right_type)[side]
        if product.is_negated[side]:
            codes = codes ^ codes.dtype.type(1 << _WIDTHS.get(kind, 8) - 1)
        return codes & np.uint32(0xFFFFE000) if kind == "tf32" else codes

    def scale_codes(self, product: Product, address: int, block: int, side: int) -> np.ndarray:
        """[rows, blocks of K] scales: row r in lane r % 32 of each quarter and column r / 32, four blocks a column (PTX ISA
        9.7.16.10.7)."""
        rows, count, first_byte = (product.m, product.n)[side], product.k // block, product.scale_bytes[side]
        if address >> 16 or first_byte + count > 4:
            raise fault(
                "illegal instruction", f"{self.step.statement.opcode}: scales at {address:#x}, byte {first_byte}", self.step
            )
        columns = (address & 0xFFFF) + np.arange(-(-rows // 32))
        words = self.read(self.cells(np.arange(LANES), columns), in_pipe=True).reshape(4, 32, -1)
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
        tensor.flights.append(PipeFlight(step, self.thread, units, reads, cells, number))

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
    reader.accept("commit", "cta_group::1", "mbarrier::arrive::one", "shared::cluster", "b64")
    base, offset = reader.address(reader.operands[0])

    def execute(active: Active, step: ThreadStep) -> None:
        tensor = tensor_of(active)
        for cta, address, positions in by_barrier(active, step, base, offset):
            barrier = barrier_at(active.machine, step, cta, address)
            hold_to_init(active.machine, step, cta, address, active.threads[positions])
            for thread in active.threads[positions].tolist():
                flights = [flight for flight in tensor.flights if flight.thread == thread]
                barrier.commits.append(partial(_finish, active.machine, step, flights))

    return ThreadStep(reader.statement, (base,) if isinstance(base, str) else (), (), lambda: None, execute=execute)


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
    for flight in tensor.flights:
        space.is_read[flight.units[space.is_read[flight.units] == 0]] = flight.number
    tensor.unmark([(flight.number, flight.reads, flight.writes) for flight in finished_flights])
    return step


__all__ = ["Product"]
