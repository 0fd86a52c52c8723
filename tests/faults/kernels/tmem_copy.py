"""The mutants of `kernels/tmem_copy.py`: what a person gets wrong on the way through tensor memory, one text each."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_TEXTS = (
    ("never stored", "    tile.store(gl.convert_layout(loaded, reachable))\n", "", ("uninitialised read", "wrong words")),
    (
        "rows counted in rows",
        "rows[:, None] * N + columns[None, :]",
        "rows[:, None] * M + columns[None, :]",
        ("wrong words", "stray read", "stray write"),
    ),
    (
        "stored to the source",
        "gl.store(destination + places, stored)",
        "gl.store(source + places, stored)",
        ("wrong words", "input changed"),
    ),
    (
        "half the rows",
        "gl.store(destination + places, stored)",
        "gl.store(destination + places, stored, mask=(rows < M // 2)[:, None])",
        ("wrong words",),
    ),
    (
        "a copy that computes",
        "gl.convert_layout(loaded, reachable)",
        "gl.convert_layout(loaded + loaded * 0, reachable)",
        ("wrong words",),
    ),
    (
        "stored transposed",
        "gl.store(destination + places, stored)",
        "gl.store(destination + rows[:, None] + columns[None, :] * M, stored)",
        ("wrong words",),
    ),
    (
        "stored one place on",
        "gl.store(destination + places, stored)",
        "gl.store(destination + places + 1, stored)",
        ("stray write", "wrong words"),
    ),
    (
        "last column twice",
        "columns = gl.arange(0, N, gl.SliceLayout(0, coalesced))",
        "columns = gl.minimum(gl.arange(0, N, gl.SliceLayout(0, coalesced)), N - 2)",
        ("wrong words", "race"),
    ),
    (
        "rules of tensor memory not checked",
        "    *tensor_memory.clauses(allocations),\n",
        "",
        ("not refused", "refused", "out of resources", "compiler abort", "launcher error", "wrong words"),
    ),
)

MUTANTS = tuple(
    Mutant(kernel="tmem_copy", name=name, edits=once(replace, by), expected=named) for name, replace, by, named in _TEXTS
)
