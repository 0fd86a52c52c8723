"""cp.async: copies from global to shared memory that land until their group is waited for (PTX ISA 9.7.9.25.3)."""

from __future__ import annotations

from harness.emulator.program import Operation
from harness.emulator.translate import Translator, lowers


@lowers("ttg.async_copy_global_to_local")
def copy(t: Translator, op: Operation) -> None:
    """Elements whose mask is False become zero: the instruction is issued with a source size of 0, whatever `other` says."""
    pointer, view, mask, _other = op.segments()[:4]
    masked = t.value(mask[0]) if mask else "None"
    t.emit(f"m.copy({t.constant(op)}, {t.value(pointer[0])}, {t.value(view[0])}, {masked})")
    t.emit(f"{t.value(op.results[0])} = None")


@lowers("ttg.async_commit_group")
def commit(t: Translator, op: Operation) -> None:
    t.emit("m.flights.commit_copies()")
    t.emit(f"{t.value(op.results[0])} = None")


@lowers("ttg.async_wait")
def wait(t: Translator, op: Operation) -> None:
    t.emit(f"m.flights.wait_copies({op.integer('num')})")
    if op.results:
        t.emit(f"{t.value(op.results[0])} = None")
