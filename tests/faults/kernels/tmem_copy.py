"""The mutants of `kernels/tmem_copy.py`: what a person gets wrong on the way through tensor memory, one text each."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_PLACES = "rows[:, None] * N + columns[None, :]"
_STORE = "gl.store(destination + places_of(PARTS - 1 - step, M, N, PARTS, coalesced_layout), stored)"
_HELD = "            held.store(gl.convert_layout(loaded, held.get_reg_layout(instr_variant=ATOM)))\n"
_TEXTS = (
    ("never stored", _HELD, "", ("uninitialised read", "wrong words")),
    ("rows counted in rows", _PLACES, "rows[:, None] * M + columns[None, :]", ("wrong words", "stray read", "stray write")),
    ("stored to the source", _STORE, _STORE.replace("destination", "source"), ("wrong words", "input changed")),
    ("half the rows", _STORE,
     _STORE[:-1] + ", mask=(gl.arange(0, M, gl.SliceLayout(1, coalesced_layout)) < M // 2)[:, None])", ("wrong words",)),
    ("a copy that computes", "gl.convert_layout(loaded, held", "gl.convert_layout(loaded + loaded * 0, held", ("wrong words",)),
    ("rows of the result as wide as high", _STORE, _STORE.replace("step, M, N,", "step, M, M,"),
     ("wrong words", "stray write", "refused", "launcher error", "compiler abort", "race")),
    ("stored one place on", _STORE, _STORE.replace("destination +", "destination + 1 +"), ("stray write", "wrong words")),
    ("last column twice", "gl.arange(0, N // PARTS, gl.SliceLayout(0, layout))",
     "gl.minimum(gl.arange(0, N // PARTS, gl.SliceLayout(0, layout)), N // PARTS - 2)", ("wrong words", "race")),
    ("rules of tensor memory not checked", "    *tensor_memory.clauses(allocations),\n",
     "", ("not refused", "refused", "out of resources", "compiler abort", "launcher error", "wrong words")),
    ("slice of the first columns", "tile.slice((PARTS - 1 - step) * PART_COLUMNS, PART_COLUMNS)",
     "tile.slice(0, PART_COLUMNS)", ("wrong words",)),
    ("slices in the other order", "tile.slice((PARTS - 1 - step) * PART_COLUMNS, PART_COLUMNS)",
     "tile.slice(step * PART_COLUMNS, PART_COLUMNS)", ("wrong words",)),
    ("all slices stored to the last", "held = tile.slice(part * PART_COLUMNS, PART_COLUMNS)",
     "held = tile.slice((PARTS - 1) * PART_COLUMNS, PART_COLUMNS)", ("uninitialised read", "wrong words")),
)  # fmt: skip
_OF_TCGEN05_CP = (
    ("nobody waits", "    mbarrier.wait(copy_barrier, phase=0)\n", "", ("race", "uninitialised read", "wrong words")),
    ("the phase before is waited for", "mbarrier.wait(copy_barrier, phase=0)",
     "mbarrier.wait(copy_barrier, phase=1)", ("race", "uninitialised read", "deadlock")),
    ("never committed", "    tcgen05_commit(copy_barrier)\n", "", ("deadlock",)),
    ("committed before it is issued", "    tcgen05_copy(staging_tile, tile)\n    tcgen05_commit(copy_barrier)\n",
     "    tcgen05_commit(copy_barrier)\n    tcgen05_copy(staging_tile, tile)\n", ("race", "uninitialised read")),
    ("two arrivals expected", "mbarrier.init(copy_barrier, count=1)", "mbarrier.init(copy_barrier, count=2)", ("deadlock",)),
    ("shared memory never written", "    staging_tile.store(loaded)\n", "", ("uninitialised read", "wrong words")),
    ("overwritten while it is read", "    tcgen05_commit(copy_barrier)\n",
     "    tcgen05_commit(copy_barrier)\n    staging_tile.store(loaded)\n", ("race",)),
)  # fmt: skip

_SHOWS_IN = {
    "a copy that computes": (("dtype", "fp32"), ("schedule", "eager on 2")),
    "slice of the first columns": (("atom", "16x64b"),),
}

MUTANTS = (
    *(
        Mutant(kernel="tmem_copy", name=name, edits=once(replace, by), expected=named, shows_in=_SHOWS_IN.get(name, ()))
        for name, replace, by, named in _TEXTS
    ),
    *(
        Mutant(
            kernel="tmem_copy",
            name=f"by tcgen05.cp {name}",
            edits=once(replace, by),
            expected=named,
            shows_in=(("filled by", "tcgen05.cp"),),
        )
        for name, replace, by, named in _OF_TCGEN05_CP
    ),
)
