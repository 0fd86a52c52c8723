"""Mutants of a chain of programs that share the tensor memory of their multiprocessor: who holds it waits for who waits for it."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_TICKET = 'me = gl.atomic_add(flags + gl.num_programs(0), 1, sem="relaxed")'


def _chain(name: str, replace: str, by: str) -> Mutant:
    return Mutant(
        kernel="waiting_in_tensor_memory",
        name=name,
        edits=once(replace, by),
        expected=("deadlock",),
        on=("emulated:sm_100",),
        when="more programs than have their tensor memory at once",
        at="while gl.atomic_add(flags + ",
        hangs=True,
    )


BY_NUMBER = _chain("programs go by their numbers, not by tickets", _TICKET, "me = gl.program_id(0)")
"""Right where each program begins with its tensor memory, or is the only one that waits for it. PTX orders no others."""
MUTANTS = (
    BY_NUMBER,
    _chain("the last ticket goes first", _TICKET, f"me = gl.num_programs(0) - 1 - {_TICKET.removeprefix('me = ')}"),
    _chain("a program holds its tensor memory until all have begun", "if me > 0:\n        while gl.atomic_add(flags + me - 1, 0, "
           'sem="acquire") == 0:', 'if me >= 0:\n        while gl.atomic_add(flags + gl.num_programs(0), 0, sem="acquire") < '
           "gl.num_programs(0):"),
    _chain("nobody is told that a program has ended", '    gl.atomic_add(flags + me, 1, sem="release")\n', ""),
)  # fmt: skip
