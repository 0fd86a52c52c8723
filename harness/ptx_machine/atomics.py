"""Atomics of threads: one thread after another, of scalars and of vectors (PTX ISA 9.7.13.6 and 9.7.13.7, atom and red)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.ptx.meanings import meaning
from bitverdict.harness.emulator.ptx.opcodes import DTYPES, Words, bits
from bitverdict.harness.ptx_machine.access import (
    SCOPES,
    SHARED_WINDOW,
    SPACES,
    addresses_of,
    peer_access_of,
    space_of,
    vector_length,
    word_addresses,
)
from bitverdict.harness.ptx_machine.program import StatementReader, ThreadStep, instruction
from bitverdict.harness.ptx_machine.strong_accesses import semantics_of

if TYPE_CHECKING:
    from bitverdict.harness.ptx_machine.threads import Active, Threads


def _exchange(old_words: Words, new: Words) -> Words:
    return new


def operation_of(name: str, kind: str) -> Callable[..., Words]:
    """From the old word and the operands to the new word."""
    if name == "exch":
        return _exchange
    if name == "cas":
        return lambda old_words, compared, new: np.where(old_words == compared, new, old_words)
    if name == "inc":
        return lambda old_words, limit: np.where(old_words >= limit, old_words.dtype.type(0), old_words + old_words.dtype.type(1))
    if name == "dec":
        return lambda old_words, limit: np.where((old_words == 0) | (old_words > limit), limit, old_words - old_words.dtype.type(1))
    if name == "add" and kind in ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2"):
        return meaning(f"add.rn.{kind}").compute
    if name in ("and", "or", "xor"):
        return meaning(f"{name}.b{bits(kind)}").compute
    return meaning(f"{name}.{kind}").compute


@instruction("atom", "red")
def _atomic(reader: StatementReader) -> ThreadStep | None:
    modifiers = reader.modifiers
    name = next(
        (
            size_in_bytes
            for size_in_bytes in modifiers
            if size_in_bytes in ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
        ),
        "",
    )
    kind = modifiers[-1] if modifiers[-1] != "noftz" else modifiers[-2]
    if not name or modifiers[0] == "async":
        return None
    reader.accept(name, kind, "noftz", *SCOPES, *SPACES, "v2", "v4", "v8")
    if vector_length(modifiers) > 1:
        return _vector_of_atomics(reader, name, kind)
    returns = reader.statement.opcode.startswith("atom")
    place, *rest = reader.operands[returns:]
    base, offset = reader.address(place)
    sources = [reader.operand(text, kind) for text in rest[: 2 if name == "cas" else 1]]
    target, dtype, space = reader.operands[0] if returns else "_", DTYPES[bits(kind)], space_of(reader)
    operation, peer_access, semantics = operation_of(name, kind), peer_access_of(reader), semantics_of(reader)

    def execute(active: Active, step: ThreadStep) -> None:
        machine, threads = active.machine, active.threads
        addresses = addresses_of(active, base, offset)
        keys = word_addresses(addresses, space)

        def order(numbers: np.ndarray, turn: np.ndarray, is_written: np.ndarray) -> None:
            assert machine.released_words is not None
            readers, writers = numbers[turn], numbers[turn[is_written]]
            machine.released_words.note_read(threads[readers], keys[readers], semantics)
            machine.released_words.note_write(threads[writers], keys[writers], semantics, adds=True)

        operands = [active.read(source).astype(dtype, copy=False) for source in sources]
        old_words = np.empty(len(threads), dtype)
        if space == "shared" or (space == "generic" and (addresses >= SHARED_WINDOW).all()):
            offsets = machine.shared.flat_offsets(step, threads, addresses % SHARED_WINDOW, dtype.itemsize, "write", peer_access)
            parts: Any = [(machine.shared.words(dtype.itemsize), offsets, slice(None))]
        else:
            located = list(machine.memory.locate(step, threads, addresses, dtype.itemsize, "write"))
            machine.memory.updated_storages.update(region.base for region, _, _ in located)
            parts = [
                (region.raw[: region.raw.size // dtype.itemsize * dtype.itemsize].view(dtype), at, positions)
                for region, at, positions in located
            ]
        for words, offsets, positions in parts:
            places = offsets // dtype.itemsize
            chosen = [operand[positions] for operand in operands]
            on_turn = partial(order, np.arange(len(threads))[positions]) if machine.released_words is not None else None
            old_words[positions] = _in_turn(machine, words, places, chosen, operation, on_turn, is_cas=name == "cas")
        active.write(target, old_words)

    reads = tuple(size_in_bytes for size_in_bytes in (base, *sources) if isinstance(size_in_bytes, str))
    return ThreadStep(
        reader.statement,
        reads,
        (target,) if returns and target != "_" else (),
        lambda: None,
        execute=execute,
        size=8 * dtype.itemsize,
    )


def _vector_of_atomics(reader: StatementReader, name: str, kind: str) -> ThreadStep:
    """Each element of the vector is an atomic operation of its own (PTX ISA, atom and red: vectors)."""
    returns = reader.statement.opcode.startswith("atom")
    targets = reader.names(reader.operands[0]) if returns else ()
    base, offset = reader.address(reader.operands[returns])
    sources = [reader.operand(text, kind) for text in reader.names(reader.operands[returns + 1])]
    dtype, operation = DTYPES[bits(kind)], operation_of(name, kind)

    def execute(active: Active, step: ThreadStep) -> None:
        memory, addresses = active.machine.memory, addresses_of(active, base, offset)
        whole = dtype.itemsize * len(sources)
        earlier_words = np.empty((len(addresses), len(sources)), dtype)
        words_of = [active.read(source).astype(dtype, copy=False) for source in sources]
        for region, offsets, positions in memory.locate(step, active.threads, addresses, whole, "write"):
            memory.updated_storages.add(region.base)
            held = region.raw[: region.raw.size // dtype.itemsize * dtype.itemsize].view(dtype)
            for number, words in enumerate(words_of):
                earlier_words[positions, number] = _in_turn(
                    active.machine, held, offsets // dtype.itemsize + number, [words[positions]], operation
                )
        for target, column in zip(targets, earlier_words.T, strict=False):
            active.write(target, np.ascontiguousarray(column))

    reads = tuple(each for each in (base, *sources) if isinstance(each, str))
    return ThreadStep(reader.statement, reads, targets, lambda: None, execute=execute, size=8 * dtype.itemsize)


def _in_turn(
    machine: Threads,
    words: Words,
    places: np.ndarray,
    operands: list[Words],
    operation: Callable[..., Words],
    on_turn: Callable[[np.ndarray, np.ndarray], None] | None = None,
    *,
    is_cas: bool = False,
) -> Words:
    """Update `words` at `places` one thread after another; what each found there. Threads of different places go together, and
    `on_turn` is told which have gone, and which of them have written."""
    old_words = np.empty(len(places), words.dtype)
    rest = np.arange(len(places))
    while len(rest):
        _, first = np.unique(places[rest], return_index=True)
        turn = rest[np.sort(first)]
        old_words[turn] = words[places[turn]]
        words[places[turn]] = new_words = operation(old_words[turn], *(operand[turn] for operand in operands))
        machine.changes += not np.array_equal(old_words[turn], new_words)
        if on_turn is not None:
            on_turn(turn, old_words[turn] == operands[0][turn] if is_cas else np.ones(len(turn), bool))
        rest = np.setdiff1d(rest, turn, assume_unique=True)
    return old_words
