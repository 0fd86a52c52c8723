"""Loads, stores and atomics of threads: global, shared, local and parameter memory (PTX ISA 9.7.9, 9.7.13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import numpy as np

from bitverdict.harness.emulator.ptx.meanings import meaning
from bitverdict.harness.emulator.ptx.opcodes import DTYPES, Words, bits
from bitverdict.harness.emulator.ptx.steps import DATA, conversion_of_load
from bitverdict.harness.ptx_machine.memory import ASYNC, Conflict, Judge
from bitverdict.harness.ptx_machine.program import PARAMETERS, StatementReader, ThreadStep, fault, instruction
from bitverdict.harness.ptx_machine.shared_space import OWN, PEERS
from bitverdict.harness.ptx_machine.strong_accesses import semantics_of
from bitverdict.harness.ptx_machine.thread_order import WARP

if TYPE_CHECKING:
    from bitverdict.harness.ptx_machine.threads import Active, Threads

SHARED_WINDOW = 1 << 56  # generic addresses of shared memory begin here
_CACHES = ("ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "weak", "volatile")
SCOPES = ("cta", "gpu", "sys", "cluster", "relaxed", "acquire", "release", "acq_rel")
SPACES = ("global", "shared", "shared::cta", "shared::cluster", "local", "param", "const")


def raise_race(
    machine: Threads, step: ThreadStep, conflict: Conflict, name: str, verb: str, judge: Judge | None = None
) -> NoReturn:
    """The fault of two accesses to the memory `name` of `judge`, or to the place `name`, that nothing orders."""
    threads = machine.shape.threads
    ends = [divmod(number, threads) for number in (conflict.thread, max(conflict.other, 0))]
    (cta, thread), (other_cta, other) = ends
    earlier = "wrote" if conflict.other_writes else "read"
    who = f"thread {other} of CTA {other_cta}" if conflict.other != ASYNC else "an asynchronous operation"
    place = name if judge is None else f"byte {conflict.unit * judge.unit} of {name}"
    message = f"thread {thread} of CTA {cta} {verb} {place}, which {who} {earlier}: nothing orders the two"
    raise fault("race", message, step, **other_end(conflict.other_step))


def load_global(
    machine: Threads, step: ThreadStep, threads: np.ndarray, addresses: np.ndarray, count: int, size: int
) -> np.ndarray:
    """`count` words of `size` bytes at each address (int64): [threads, count] unsigned, of bytes where no word has that size."""
    memory = machine.memory
    access_bytes = count * size
    aligned = size in (1, 2, 4, 8)
    unit = size if aligned else 1
    result = np.empty((len(addresses), access_bytes // unit), DTYPES[8 * unit])
    for region, offsets, positions in memory.locate(step, threads, addresses, access_bytes, "read"):
        if region.changes:
            judge = memory.judge(region)
            if conflict := judge.read(step, *_first_readers(machine, threads[positions], offsets), access_bytes):
                raise_race(machine, step, conflict, region.name, "reads", judge)
        words = region.raw[: region.raw.size // unit * unit].view(DTYPES[8 * unit])
        result[positions] = words[(offsets // unit)[:, None] + np.arange(access_bytes // unit)]
    return result


def _first_readers(machine: Threads, threads: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the threads of a CTA that load the same bytes by one instruction the first: a compiler lets redundant threads load what
    only that one stores, and what they loaded reaches no store."""
    _, first = np.unique(offsets + machine.cta[threads] * (1 << 44), return_index=True)
    return threads[first], offsets[first]


def store_global(
    machine: Threads, step: ThreadStep, threads: np.ndarray, addresses: np.ndarray, words: np.ndarray, *, either_stays: bool = False
) -> None:
    """`words` [threads, count] to each address. `either_stays`: instructions like `step` may store other words to one place."""
    memory, size = machine.memory, words.dtype.itemsize
    access_bytes = size * words.shape[1]
    for region, offsets, positions in memory.locate(step, threads, addresses, access_bytes, "write"):
        target = region.raw[: region.raw.size // size * size].view(words.dtype)
        places = (offsets // size)[:, None] + np.arange(words.shape[1])
        judge = memory.judge(region)
        changes = (target[places] != words[positions]).any(axis=1)
        machine.changes += bool(changes.any())
        conflict = judge.write(step, threads[positions], offsets, access_bytes, changes=changes)
        if conflict and not (either_stays and conflict.other_step.statement.opcode == step.statement.opcode):
            raise_race(machine, step, conflict, region.name, "writes", judge)
        target[places] = words[positions]
        if either_stays:
            continue
        _check_overwritten(
            machine, step, region.name, threads[positions], offsets, (target[places] != words[positions]).any(axis=1)
        )


def _kept_words(offsets: np.ndarray, threads: np.ndarray, words: np.ndarray, turn_lanes: int) -> tuple[np.ndarray, ...]:
    """Of the threads of a warp that store to one place the one whose word stays on an H100: a warp stores in turns of `turn_lanes`
    lanes, a later turn over an earlier one, and in a turn the lowest lane's word stays."""
    order = np.lexsort((threads, -(threads // turn_lanes), offsets, threads // WARP))
    _, first = np.unique(np.stack([threads // WARP, offsets])[:, order], axis=1, return_index=True)
    kept = order[first]
    return offsets[kept], threads[kept], words[kept]


def _check_overwritten(
    machine: Threads, step: ThreadStep, name: str, threads: np.ndarray, offsets: np.ndarray, is_overwritten: np.ndarray
) -> None:
    """A race where another thread wrote other words to the place of a thread by the same instruction."""
    if is_overwritten.any():
        at = int(is_overwritten.argmax())
        other = int(threads[np.flatnonzero(offsets == offsets[at])[-1]])
        ends = [divmod(int(number) + machine.memory.first_thread, machine.shape.threads) for number in (threads[at], other)]
        (cta, thread), (other_cta, other_thread) = ends
        message = (
            f"thread {thread} of CTA {cta} and thread {other_thread} of CTA {other_cta} write other words to one place of {name}"
        )
        raise fault("race", message, step)


def check_flight(machine: Threads, step: ThreadStep, units: np.ndarray, verb: str) -> None:
    """A fault where an asynchronous operation that was not waited for writes `units` of shared memory, or reads what is written."""
    space = machine.shared
    if not space.steps:
        return
    for flying, does in ((space.in_flight, "writes"), *(((space.is_read, "reads"),) if verb == "write" else ())):
        if (numbers := flying[units]).any():
            other = space.steps[int(numbers[numbers != 0][0])]
            opcode = other.statement.opcode
            kind = next((name for name in ("wgmma", "tcgen05.mma", "tcgen05.cp") if opcode.startswith(name)), "asynchronous copy")
            article = "an" if kind.startswith("a") else "a"
            message = f"{verb} of shared memory that {article} {kind} in flight {does}: it was not waited for"
            raise fault("race", message, step, **other_end(other))


def other_end(step: ThreadStep) -> dict[str, object]:
    return {"other instruction": str(step.statement), "other PTX line": step.line, "other location": step.place}


def load_shared(
    machine: Threads, step: ThreadStep, threads: np.ndarray, addresses: np.ndarray, count: int, size: int, peer_access: int = OWN
) -> np.ndarray:
    """As `load_global`, of the shared memory of each thread's CTA, or of its cluster."""
    space, access_bytes = machine.shared, count * size
    offsets = space.flat_offsets(step, threads, addresses, access_bytes, "read", peer_access)
    if space.steps:
        check_flight(machine, step, space.units(offsets, access_bytes), "read")
    if conflict := space.judge.read(step, threads, offsets, access_bytes):
        raise_race(machine, step, conflict, "shared memory", "reads", space.judge)
    return space.words(size)[(offsets // size)[:, None] + np.arange(count)]


def store_shared(
    machine: Threads, step: ThreadStep, threads: np.ndarray, addresses: np.ndarray, words: np.ndarray, peer_access: int = OWN
) -> None:
    space, size = machine.shared, words.dtype.itemsize
    access_bytes = size * words.shape[1]
    offsets = space.flat_offsets(step, threads, addresses, access_bytes, "write", peer_access)
    if machine.shape.takes_other_words:
        offsets, threads, words = _kept_words(offsets, threads, words, 128 // access_bytes)
    if space.steps:
        check_flight(machine, step, space.units(offsets, access_bytes), "write")
    places = (offsets // size)[:, None] + np.arange(words.shape[1])
    target = space.words(size)
    changes = (target[places] != words).any(axis=1)
    machine.changes += bool(changes.any())
    if conflict := space.judge.write(step, threads, offsets, access_bytes, changes=changes):
        raise_race(machine, step, conflict, "shared memory", "writes", space.judge)
    target[places] = words
    _check_overwritten(machine, step, "shared memory", threads, offsets, (target[places] != words).any(axis=1))


def space_of(reader: StatementReader) -> str:
    names = [name for name in reader.modifiers if name in SPACES]
    return names[0].partition("::")[0] if names else "generic"


def peer_access_of(reader: StatementReader) -> int:
    """Whose shared memory the instruction may use: a generic address, and one of .shared::cluster, may be a peer's."""
    return PEERS if space_of(reader) == "generic" or "shared::cluster" in reader.modifiers else OWN


def addresses_of(active: Active, base: str | Words, offset: int) -> np.ndarray:
    words = active.read(base)
    return (words + words.dtype.type(offset % (1 << 8 * words.itemsize))).astype(np.int64)


def word_addresses(addresses: np.ndarray, space: str) -> np.ndarray:
    """Generic addresses: one for each word of a cluster."""
    return addresses + SHARED_WINDOW if space == "shared" else addresses


def vector_length(modifiers: list[str]) -> int:
    return next((int(name[1:]) for name in modifiers if name in ("v2", "v4", "v8")), 1)


@instruction("ld", "ldu")
def _load(reader: StatementReader) -> ThreadStep | None:
    space, kind = space_of(reader), reader.modifiers[-1]
    if space == "param" and "[%" not in reader.operands[1].replace(" ", ""):
        return _load_parameter(reader)
    reader.accept(*_CACHES, *SCOPES, *SPACES, "v2", "v4", "v8", "b128", kind)
    names = reader.names(reader.operands[0])
    base, offset = reader.address(reader.operands[1])
    size, count, peer_access = bits(kind) // 8, vector_length(reader.modifiers), peer_access_of(reader)
    converts = [conversion_of_load(kind, reader.function.registers[name]) if name != "_" else None for name in names]
    semantics = semantics_of(reader)

    def execute(active: Active, step: ThreadStep) -> None:
        addresses = addresses_of(active, base, offset)
        words = _read(active.machine, step, active.threads, addresses, space, count, size, peer_access)
        if semantics.is_strong and active.machine.released_words is not None:
            active.machine.released_words.note_read(active.threads, word_addresses(addresses, space), semantics)
        for number, (name, convert) in enumerate(zip(names, converts, strict=True)):
            if convert is not None:
                active.write(name, convert(words[:, number]))

    reads = (base,) if isinstance(base, str) else ()
    return ThreadStep(reader.statement, reads, names, lambda: None, execute=execute, size=8 * size, is_strong=semantics.is_strong)


def _read(
    machine: Threads,
    step: ThreadStep,
    threads: np.ndarray,
    addresses: np.ndarray,
    space: str,
    count: int,
    size: int,
    peer_access: int,
) -> np.ndarray:
    if space == "generic":
        in_shared = addresses >= SHARED_WINDOW
        if in_shared.all():
            return load_shared(machine, step, threads, addresses - SHARED_WINDOW, count, size, peer_access)
        if in_shared.any():
            raise fault("not modelled", "generic addresses of one instruction lead to shared and to global memory", step)
        in_parameters = (addresses >= PARAMETERS) & (addresses < DATA)
        if in_parameters.any() and not in_parameters.all():
            raise fault("not modelled", "generic addresses of one instruction lead to parameters and to other memory", step)
        if in_parameters.all():
            space = "param"
        elif (addresses < DATA).all() and machine.local.shape[1]:
            space = "local"
    if space == "param":
        return _parameter_bytes(machine, step, threads, addresses, count * size).view(DTYPES[8 * size])
    if space in ("global", "const") and (addresses >= DATA).all() and (addresses < DATA + len(machine.data)).all():
        data = machine.data
        places = (addresses - DATA)[:, None] + np.arange(count * size)
        return data[places].reshape(len(addresses), -1).view(DTYPES[8 * size])
    if space == "shared":
        return load_shared(machine, step, threads, addresses, count, size, peer_access)
    if space == "local":
        places = addresses[:, None] + np.arange(count * size)
        return machine.local[threads[:, None], places].view(DTYPES[8 * size])
    return load_global(machine, step, threads, addresses, count, size)


def _parameter_bytes(machine: Threads, step: ThreadStep, threads: np.ndarray, addresses: np.ndarray, size: int) -> np.ndarray:
    """[threads, size] of the kernel's parameters. A fault where they have none at an address."""
    places = (addresses - PARAMETERS).view(np.uint64)[:, None] + np.arange(size, dtype=np.uint64)
    values = machine.parameters[np.minimum(places, np.uint64(len(machine.parameters) - 1))]
    for outcome, is_wrong in (("illegal address", (values < 0).any(axis=1)), ("misaligned address", addresses % size != 0)):
        if is_wrong.any():
            first = int(is_wrong.argmax())
            message = f"read of {size} bytes at {int(addresses[first]):#x} of parameters"
            raise fault(outcome, message, step, thread=int(threads[first]))
    return values.astype(np.uint8)


def _load_parameter(reader: StatementReader) -> ThreadStep | None:
    """A vector: `_parameter_keys` of what lies behind one another. A single word is a register's move."""
    kind, names = reader.modifiers[-1], reader.names(reader.operands[0])
    if len(names) == 1:
        return None
    reader.accept("param", "v2", "v4", kind)
    keys = _parameter_keys(reader.operands[1], len(names), bits(kind) // 8)
    converts = [conversion_of_load(kind, reader.function.registers[name]) for name in names]

    def execute(active: Active, step: ThreadStep) -> None:
        for name, key, convert in zip(names, keys, converts, strict=True):
            active.write(name, convert(active.read(key)))

    return ThreadStep(reader.statement, keys, names, lambda: None, execute=execute)


def _parameter_keys(place: str, count: int, size: int) -> tuple[str, ...]:
    """The registers "[name+8]" of `count` words of a parameter."""
    name, _, offset = place.strip("[] ").partition("+")
    starts = [int(offset.strip() or "0", 0) + number * size for number in range(count)]
    return tuple(f"[{name.strip()}{f'+{start}' if start else ''}]" for start in starts)


def _store_parameter(reader: StatementReader) -> ThreadStep | None:
    kind, names = reader.modifiers[-1], reader.names(reader.operands[1])
    if len(names) == 1:
        return None
    reader.accept("param", "v2", "v4", kind)
    keys = _parameter_keys(reader.operands[0], len(names), bits(kind) // 8)
    sources = [reader.operand(name, kind) for name in names]

    def execute(active: Active, step: ThreadStep) -> None:
        for key, source in zip(keys, sources, strict=True):
            active.write(key, active.read(source).astype(DTYPES[bits(kind)], copy=False))

    reads = tuple(source for source in sources if isinstance(source, str))
    return ThreadStep(reader.statement, reads, keys, lambda: None, execute=execute)


@instruction("st")
def _store(reader: StatementReader) -> ThreadStep | None:
    space, kind = space_of(reader), reader.modifiers[-1]
    if space == "param":
        return _store_parameter(reader)
    reader.accept(*_CACHES, *SCOPES, *SPACES, "v2", "v4", "v8", kind)
    base, offset = reader.address(reader.operands[0])
    sources = [reader.operand(name, kind) for name in reader.names(reader.operands[1])]
    dtype, peer_access, semantics = DTYPES[bits(kind)], peer_access_of(reader), semantics_of(reader)

    def execute(active: Active, step: ThreadStep) -> None:
        addresses = addresses_of(active, base, offset)
        words = np.stack([active.read(source).astype(dtype, copy=False) for source in sources], axis=1)
        machine, threads = active.machine, active.threads
        generic = space == "generic" and (addresses >= SHARED_WINDOW).all()
        if space == "shared" or generic:
            store_shared(machine, step, threads, addresses - (SHARED_WINDOW if generic else 0), words, peer_access)
        elif space == "local" or (space == "generic" and machine.local.shape[1] and (addresses < DATA).all()):
            places = addresses[:, None] + np.arange(words.shape[1] * words.dtype.itemsize)
            stored = np.ascontiguousarray(words).view(np.uint8).reshape(len(threads), -1)
            machine.changes += not np.array_equal(machine.local[threads[:, None], places], stored)
            machine.local[threads[:, None], places] = stored
        else:
            store_global(machine, step, threads, addresses, words)
        if semantics.is_strong and machine.released_words is not None:
            machine.released_words.note_write(threads, word_addresses(addresses, space), semantics, adds=False)

    reads = tuple(size_in_bytes for size_in_bytes in (base, *sources) if isinstance(size_in_bytes, str))
    return ThreadStep(
        reader.statement, reads, (), lambda: None, execute=execute, size=8 * dtype.itemsize, is_strong=semantics.is_strong
    )


@instruction("cvta")
def _convert_address(reader: StatementReader) -> ThreadStep | None:
    """Generic addresses are global ones; those of shared memory lie in a window above."""
    target, source = reader.operands
    width = bits(reader.modifiers[-1])
    shared, is_to_space = "shared" in " ".join(reader.modifiers), "to" in reader.modifiers
    operand = reader.operand(source, f"u{width}")

    def compute(words: Words) -> Words:
        if not shared or width == 32:
            return words
        return words - np.uint64(SHARED_WINDOW) if is_to_space else words + np.uint64(SHARED_WINDOW)

    def execute(active: Active, step: ThreadStep) -> None:
        active.write(target, compute(active.read(operand)))

    return ThreadStep(reader.statement, (operand,) if isinstance(operand, str) else (), (target,), compute, execute=execute)


@instruction("min", "max")
def _extreme_of_three(reader: StatementReader) -> ThreadStep | None:
    """min and max of fp32 with three operands (sm_100): the extreme of two, and then of it and the third."""
    if len(reader.operands) != 4:
        return None
    of_two = meaning(reader.statement.opcode).compute
    target, *operands = reader.operands[0], *(reader.operand(text, "f32") for text in reader.operands[1:])

    def execute(active: Active, step: ThreadStep) -> None:
        a, b, c = (active.read(operand) for operand in operands)
        active.write(target, of_two(of_two(a, b), c))

    reads = tuple(size_in_bytes for size_in_bytes in operands if isinstance(size_in_bytes, str))
    return ThreadStep(reader.statement, reads, (target,), lambda: None, execute=execute)
