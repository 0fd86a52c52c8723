"""What the lanes of a warp do together: shuffles, votes, matrix fragments and mma.sync (PTX ISA 9.7.9, 9.7.13, 9.7.15).

Fragments: of the 32 lanes, lane l has group g = l / 4 and place t = l % 4. A register of 32 bits holds e = 32 / bits elements.
Register i of A (rows m, columns k): row g + 8 (i % 2), k from e t + 4 e (i / 2). Register i of B: column n = g, k from e t + 4 e i.
C and D: rows g and g + 8, columns 2 t and 2 t + 1.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.ptx.meanings import meaning
from bitverdict.harness.emulator.ptx.opcodes import DTYPES, Words
from bitverdict.harness.ptx_machine.access import load_shared, store_shared
from bitverdict.harness.ptx_machine.program import StatementReader, ThreadStep, fault, instruction
from bitverdict.harness.ptx_machine.synchronisation import check_together
from bitverdict.harness.ptx_machine.thread_order import WARP
from bitverdict.reference import tensor_core
from bitverdict.reference.scalar_arithmetic import fp64

if TYPE_CHECKING:
    from bitverdict.harness.ptx_machine.threads import Active

FORMATS = {"f16": "fp16", "f32": "fp32"}  # of the reference, where PTX has another name
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "f64": 64}


def _by_warp(active: Active, words: Words) -> tuple[np.ndarray, np.ndarray]:
    """The words of all lanes of the warps that have active threads, [warps, 32], and the row of each thread. Lanes that are not
    active hold 0."""
    warps, rows = np.unique(active.threads // WARP, return_inverse=True)
    table = np.zeros((len(warps), WARP), words.dtype)
    table[rows, active.threads % WARP] = words
    return table, rows


@instruction("shfl")
def _shuffle(reader: StatementReader) -> ThreadStep:
    """shfl.sync (PTX ISA 9.7.9.6): a lane whose source lies outside of its segment keeps its own word."""
    reader.accept("sync", "up", "down", "bfly", "idx", "b32")
    mode = reader.modifiers[1]
    target, _, predicate = (part.strip() for part in reader.operands[0].partition("|"))
    source, distance, clamp, members = (reader.operand(text, "b32") for text in reader.operands[1:5])

    def execute(active: Active, step: ThreadStep) -> None:
        check_together(active, step, active.read(members))
        lane = active.threads % WARP
        by, control = active.read(distance).astype(np.int64) & 31, active.read(clamp).astype(np.int64)
        segment, bound = control >> 8 & 31, control & 31
        low, high = lane & segment, (lane & segment) | (bound & ~segment)
        wanted = {"up": lane - by, "down": lane + by, "bfly": lane ^ by, "idx": low | (by & ~segment)}[mode]
        inside = wanted >= high if mode == "up" else wanted <= high
        table, rows = _by_warp(active, active.read(source))
        active.write(target, table[rows, np.where(inside, wanted, lane) % WARP])
        if predicate:
            active.write(predicate, inside)
        if active.machine.shape.shuffles_order:
            active.machine.order.synchronise_warps(active.threads)

    reads = tuple(each for each in (source, distance, clamp, members) if isinstance(each, str))
    return ThreadStep(reader.statement, reads, (target, predicate) if predicate else (target,), lambda: None, execute=execute)


@instruction("elect")
def _elect(reader: StatementReader) -> ThreadStep:
    """elect.sync (PTX ISA 9.7.13.16): the leader is the first of the threads that the mask names."""
    reader.accept("sync")
    target, _, predicate = (part.strip() for part in reader.operands[0].partition("|"))
    members = reader.operand(reader.operands[1], "b32")

    def execute(active: Active, step: ThreadStep) -> None:
        mask = active.read(members)
        check_together(active, step, mask)
        lane = (active.threads % WARP).astype(np.uint32)
        live, rows = _by_warp(active, np.ones(len(lane), bool))
        leader = live.argmax(axis=1).astype(np.uint32)[rows]
        active.write(target, leader)
        active.write(predicate, lane == leader)

    reads = (members,) if isinstance(members, str) else ()
    return ThreadStep(
        reader.statement, reads, tuple(each for each in (target, predicate) if each != "_"), lambda: None, execute=execute
    )


@instruction("setmaxnreg", "griddepcontrol")
def _without_words(reader: StatementReader) -> ThreadStep:
    """Registers are not counted here, and no launch overlaps another."""
    return ThreadStep(reader.statement, (), (), lambda: None)


@instruction("match")
def _match(reader: StatementReader) -> ThreadStep | None:
    """match.sync (PTX ISA 9.7.13.12): which lanes of the mask have this one's word; .all: the mask where all have one."""
    if "sync" not in reader.modifiers or not {"any", "all"} & set(reader.modifiers):
        return None
    reader.accept("sync", "any", "all", "b32", "b64")
    target, _, predicate = (part.strip() for part in reader.operands[0].partition("|"))
    source = reader.operand(reader.operands[1], reader.modifiers[-1])
    members = reader.operand(reader.operands[2], "b32")
    is_any = "any" in reader.modifiers

    def execute(active: Active, step: ThreadStep) -> None:
        check_together(active, step, active.read(members))
        table, rows = _by_warp(active, active.read(source))
        member, _ = _by_warp(active, np.ones(len(rows), bool))
        lane = active.threads % WARP
        same = (table[rows] == table[rows, lane][:, None]) & member[rows]  # (threads, 32)
        is_one = (same == member[rows]).all(axis=1)
        found = _warp_masks(same)
        active.write(target, found if is_any else np.where(is_one, found, np.uint32(0)))
        if predicate:
            active.write(predicate, is_one)

    reads = tuple(each for each in (source, members) if isinstance(each, str))
    return ThreadStep(reader.statement, reads, (target, predicate) if predicate else (target,), lambda: None, execute=execute)


@instruction("vote", "redux", "activemask")
def _vote(reader: StatementReader) -> ThreadStep | None:
    kind = reader.statement.opcode.partition(".")[0]
    if kind == "activemask":
        target = reader.operands[0]

        def mask_of_active(active: Active, step: ThreadStep) -> None:
            table, rows = _by_warp(active, np.ones(len(active.threads), bool))
            active.write(target, _warp_masks(table)[rows])

        return ThreadStep(reader.statement, (), (target,), lambda: None, execute=mask_of_active)
    if "sync" not in reader.modifiers:
        return None
    modes = ("ballot", "any", "all", "uni") if kind == "vote" else ("add", "min", "max", "and", "or", "xor")
    mode, target = next((name for name in reader.modifiers if name in modes), ""), reader.operands[0]
    is_float = reader.modifiers[-1] == "f32"
    if not mode or (is_float and mode not in ("min", "max")):
        return None
    reader.accept("sync", mode, *(("NaN", "f32") if is_float else ("pred", "b32", "u32", "s32")))
    is_negated = reader.operands[1].startswith("!")
    source = reader.operand(reader.operands[1].lstrip("!"), "pred" if kind == "vote" else "b32")
    members = reader.operand(reader.operands[2], "b32")
    is_signed = reader.modifiers[-1] == "s32"

    def execute(active: Active, step: ThreadStep) -> None:
        mask = active.read(members)
        check_together(active, step, mask)
        words = active.read(source)
        words = ~words if is_negated else words
        table, rows = _by_warp(active, words)
        member, _ = _by_warp(active, np.ones(len(active.threads), bool))
        if kind == "vote":
            held = _warp_masks(table & member)[rows]
            every = _warp_masks(member)[rows]
            active.write(
                target, {"ballot": held, "any": held != 0, "all": held == every, "uni": (held == every) | (held == 0)}[mode]
            )
            return
        if is_float:
            extreme = meaning(f"{mode}.{'NaN.' if 'NaN' in step.statement.opcode else ''}f32").compute
            if not member.all():
                raise fault("not modelled", f"{step.statement.opcode} of some lanes of a warp", step)
            active.write(target, functools.reduce(extreme, table.T)[rows])
            return
        values = table.view(np.int32) if is_signed else table
        combine: Any = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or}.get(
            mode, np.bitwise_xor
        )
        neutral = {"add": 0, "or": 0, "xor": 0, "and": -1, "min": np.iinfo(values.dtype).max, "max": np.iinfo(values.dtype).min}[
            mode
        ]
        chosen = np.where(member, values, np.array(neutral).astype(values.dtype))
        active.write(target, combine.reduce(chosen, axis=1, dtype=values.dtype).view(np.uint32)[rows])

    reads = tuple(each for each in (source, members) if isinstance(each, str))
    return ThreadStep(reader.statement, reads, (target,), lambda: None, execute=execute)


def _warp_masks(table: np.ndarray) -> Words:
    """[warps] masks of truths [warps, 32]."""
    return np.packbits(table, axis=1, bitorder="little").view(np.uint32)[:, 0]


# -- matrices -------------------------------------------------------------------------------------------------------------------
@instruction("ldmatrix", "stmatrix")
def _matrices(reader: StatementReader) -> ThreadStep | None:
    """ldmatrix and stmatrix of 8 x 8 elements of 16 bits: lanes 8 j to 8 j + 7 have the addresses of the rows of matrix j."""
    reader.accept("sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta", "b16")
    loads = reader.statement.opcode.startswith("ld")
    registers, place = reader.operands if loads else reader.operands[::-1]
    names = reader.names(registers)
    base, offset = reader.address(place)
    lane = np.arange(WARP)
    major, minor = np.broadcast_to((lane // 4)[:, None], (WARP, 2)), 2 * (lane % 4)[:, None] + np.arange(2)
    row, column = (minor, major) if "trans" in reader.modifiers else (major, minor)  # (32, 2)

    def execute(active: Active, step: ThreadStep) -> None:
        warps = active.whole_warps(step)  # (warps, 32)
        words = active.read(base)
        addresses = (words + words.dtype.type(offset % (1 << 32))).astype(np.int64)[warps]  # (warps, 32)
        threads, machine = active.threads[warps], active.machine
        if (addresses[:, : 8 * len(names)] & 15).any():
            raise fault("misaligned address", f"{step.statement.opcode} at an address that is no multiple of 16", step)
        for number, name in enumerate(names):
            rows = addresses[:, 8 * number : 8 * number + 8]  # (warps, 8)
            owners = threads[:, 8 * number : 8 * number + 8].reshape(-1)
            if loads:
                matrix = load_shared(machine, step, owners, rows.reshape(-1), 8, 2).reshape(-1, 8, 8)  # (warps, 8, 8)
                part = np.ascontiguousarray(matrix[:, row, column])  # (warps, 32, 2)
                active.write(name, part.view(np.uint32)[:, :, 0].reshape(-1))
            else:
                matrix = np.empty((len(warps), 8, 8), np.uint16)
                matrix[:, row, column] = np.ascontiguousarray(active.read(name)[warps]).view(np.uint16).reshape(-1, WARP, 2)
                store_shared(machine, step, owners, rows.reshape(-1), matrix.reshape(-1, 8))

    reads = ((base,) if isinstance(base, str) else ()) + (() if loads else names)
    return ThreadStep(reader.statement, reads, names if loads else (), lambda: None, execute=execute, size=16)


@functools.cache
def _model(arch: str, family: str, formats: tuple[str, str, str], k: int) -> tensor_core.Instruction:
    return tensor_core.instruction(arch, family, *formats, k=k if family == "mma.sync" else None)


@instruction("mma")
def _mma(reader: StatementReader) -> ThreadStep | None:
    """mma.sync m16n8kK, and m8n8k4 of fp64."""
    found = re.fullmatch(r"m(\d+)n8k(\d+)", next((name for name in reader.modifiers if re.match(r"m\d+n", name)), ""))
    if not found:
        return None
    rows, k = int(found[1]), int(found[2])
    types = reader.modifiers[-4:]
    reader.accept("sync", "aligned", found[0], "row", "col", "satfinite", *types)
    result, left, right, addend = types
    if left not in BITS or reader.modifiers.index("row") > reader.modifiers.index("col"):
        return None
    d, a, b, c = (reader.names(text) for text in reader.operands[:4])
    if rows != 16 and left != "f64":
        return None
    saturates = "satfinite" in reader.modifiers
    sources = [reader.operand(name, "b64" if left == "f64" else "b32") for name in (*a, *b, *c)]

    def execute(active: Active, step: ThreadStep) -> None:
        warps = active.whole_warps(step)
        parts = [active.read(source)[warps] for source in sources]  # (warps, 32) each
        left_codes = codes_of(parts[: len(a)], rows, k, left, step_rows=2 if rows == 16 else 1)  # (warps, m, k)
        right_codes = codes_of(parts[len(a) : len(a) + len(b)], 8, k, right, step_rows=1)  # (warps, n, k)
        accumulator = accumulator_of(parts[len(a) + len(b) :], rows, addend)  # (warps, m, n)
        words = product_of(
            active.machine.arch, "mma.sync", (left, right, result), k, left_codes, right_codes, accumulator, saturates
        )
        for name, part in zip(d, fragments_of(words, rows, result), strict=True):
            active.write(name, part.reshape(-1))

    reads = tuple(source for source in sources if isinstance(source, str))
    return ThreadStep(reader.statement, reads, d, lambda: None, execute=execute)


def _lanes() -> tuple[np.ndarray, np.ndarray]:
    lane = np.arange(WARP)
    return lane // 4, lane % 4


def codes_of(parts: list[np.ndarray], rows: int, k: int, kind: str, *, step_rows: int) -> np.ndarray:
    """Codes [warps, rows, k] of fragments [warps, 32]; register i has rows from 8 (i % step_rows)."""
    group, place = _lanes()
    per = max(32 // BITS[kind], 1)
    codes = np.empty((len(parts[0]), rows, k), DTYPES[BITS[kind]])
    for number, words in enumerate(parts):
        elements = np.ascontiguousarray(words).view(codes.dtype).reshape(len(words), WARP, per)
        row = group + 8 * (number % step_rows)
        column = per * place + 4 * per * (number // step_rows)
        codes[:, row[:, None], column[:, None] + np.arange(per)] = elements
    return codes


def accumulator_of(parts: list[np.ndarray], rows: int, kind: str) -> np.ndarray:
    """Words [warps, rows, 8]."""
    group, place = _lanes()
    dtype = DTYPES[{"f16": 16, "f64": 64}.get(kind, 32)]
    words = np.empty((len(parts[0]), rows, 8), dtype)
    for number, part in enumerate(parts):
        if kind == "f16":
            pair = np.ascontiguousarray(part).view(np.uint16).reshape(len(part), WARP, 2)
            words[:, (group + 8 * number)[:, None], 2 * place[:, None] + np.arange(2)] = pair
        else:
            words[:, group + 8 * (number // 2), 2 * place + number % 2] = part
    return words


def fragments_of(words: np.ndarray, rows: int, kind: str) -> list[np.ndarray]:
    """The registers [warps, 32] of D [warps, rows, 8]."""
    group, place = _lanes()
    if kind == "f16":
        return [
            np.ascontiguousarray(words[:, (group + 8 * number)[:, None], 2 * place[:, None] + np.arange(2)]).view(np.uint32)[
                :, :, 0
            ]
            for number in range(rows // 8)
        ]
    return [words[:, group + 8 * (number // 2), 2 * place + number % 2] for number in range(rows // 4)]


def product_of(
    arch: str,
    family: str,
    types: tuple[str, str, str],
    k: int,
    left: np.ndarray,
    right: np.ndarray,
    addend: np.ndarray,
    saturates: bool,
) -> np.ndarray:
    """D [warps, m, n] of codes A [warps, m, k], B [warps, n, k] and words C [warps, m, n]."""
    if types[0] == "f64":
        total: np.ndarray = addend.view(np.float64)
        for place in range(k):
            total = fp64.fma(left[:, :, None, place].view(np.float64), right[:, None, :, place].view(np.float64), total)
        return total.view(np.uint64)
    if types[0] in ("s8", "u8"):
        signs = [np.int8 if kind == "s8" else np.uint8 for kind in types[:2]]
        a, b = (codes.view(sign).astype(np.int64) for codes, sign in zip((left, right), signs, strict=True))
        exact = np.matmul(a, b.swapaxes(1, 2)) + addend.view(np.int32)
        if saturates:
            exact = np.clip(exact, -(1 << 31), (1 << 31) - 1)
        return exact.astype(np.int32).view(np.uint32)
    if types[0] == "tf32":
        left, right = (codes & np.uint32(0xFFFFE000) for codes in (left, right))
    rule = _model(arch, family, tuple(FORMATS.get(kind, kind) for kind in types), k)
    return tensor_core.stacked_products(rule, left, right, addend)
