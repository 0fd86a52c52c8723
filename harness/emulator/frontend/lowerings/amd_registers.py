"""What only AMD's programs have between loads and products: transposes inside threads, and hints and barriers of its scheduler."""

from __future__ import annotations

import numpy as np

from bitverdict.harness.emulator.execution.threads import slots
from bitverdict.harness.emulator.frontend.translator import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation


@lowers("amdg.in_thread_transpose")
def transpose_in_threads(t: Translator, op: Operation) -> None:
    """A conversion between two layouts in which each thread holds the same elements: only their registers change."""
    held, wanted = (
        np.sort(slots(kind.shape, t.program.expand(kind.layout), copies=False)) for kind in (t.operand(op, 0), t.result(op))
    )
    if held.shape != wanted.shape or not (held == wanted).all():
        raise NotModelled(op, "that moves elements from thread to thread")
    t.alias(op, op.operands[0])


@lowers("rocdl.sched.barrier", "rocdl.sched.group.barrier", "rocdl.s.setprio", "rocdl.iglp.opt")
def schedule_hint(t: Translator, op: Operation) -> None:
    """Hints for the order of instructions: they change no value."""


@lowers("rocdl.s.barrier", "rocdl.barrier")
def machine_barrier(t: Translator, op: Operation) -> None:
    """s_barrier of all warps of the program."""
    t.meet()


@lowers("rocdl.workitem.id.x")
def thread_number(t: Translator, op: Operation) -> None:
    """Thread 0's, where nothing but the barriers of half of the warps hangs on it."""
    worklist = list(op.results)
    while worklist:
        for user in t.users.get(worklist.pop(), ()):
            if user.name != "amdg.cond_barrier":
                if not user.name.startswith("arith."):
                    raise NotModelled(op, f"that reaches {user.name}")
                worklist += user.results
    t.assign(op, 0)


@lowers("amdg.cond_barrier")
def half_barrier(t: Translator, op: Operation) -> None:
    """A barrier that half of the warps pass one time more (block ping-pong): it moves no data, and orders nothing by itself."""
