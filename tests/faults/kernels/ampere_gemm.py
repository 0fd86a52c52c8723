"""The mutants of `kernels/ampere_gemm.py`: what a person gets wrong in a ring of cp.async buffers, one text each.

Those of `_OF_LD_SHARED` leave the kernel right where fragments come by ldmatrix."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_TEXTS = (
    ("drain waits as in the steady state", "async_copy.wait_group(STAGES - 1 - consumed)",
     "async_copy.wait_group(STAGES - 1)", ("uninitialised read", "race", "wrong words")),
    ("drain ends with a negative count, which waits for none", "async_copy.wait_group(STAGES - 1 - consumed)",
     "async_copy.wait_group((STAGES - 2 if STAGES == 2 else STAGES - 1) - consumed)",
     ("uninitialised read", "race", "wrong words")),
    ("steady state waits for one group too few", "        async_copy.wait_group(STAGES - 1)\n",
     "        async_copy.wait_group(STAGES)\n", ("uninitialised read", "race", "wrong words")),
    ("drain starts at the first block", "left = blocks - STAGES + consumed",
     "left = blocks * 0 + consumed", ("wrong words", "uninitialised read", "race")),
    ("refill one block too early", "copy_block(a, a_chunks, row, m, (block + STAGES) * BLOCK_K,",
     "copy_block(a, a_chunks, row, m, (block + STAGES - 1) * BLOCK_K,", ("wrong words",)),
    ("one buffer only", "        stage = block % STAGES\n",
     "        stage = block * 0\n", ("wrong words", "race", "uninitialised read")),
    ("B left out of the refill", "        copy_block(bt, b_chunks, column, n, (block + STAGES) * BLOCK_K, b_ring.index(stage))\n",
     "", ("wrong words",)),
    ("rows outside are copied", ", mask=(row < rows)[:, None])\n\n", ")\n\n", ("stray read", "wrong words")),
    ("remainder of K one too long", "(column < columns)", "(column <= columns)", ("wrong words", "stray read")),
    ("remainder of K forgotten", "    if blocks * BLOCK_K < k:\n", "    if blocks * BLOCK_K < 0:\n", ("wrong words",)),
    ("columns outside are stored", "mask=(rows < m)[:, None] & (columns < n)[None, :]",
     "mask=(rows < m)[:, None]", ("stray write", "wrong words")),
    ("rows taken for columns", "row = gl.program_id(1) * BLOCK_M", "row = gl.program_id(0) * BLOCK_M", ("wrong words",)),
    ("BT strides are A's", "copy_block(bt, b_chunks, column, n, first",
     "copy_block(bt, a_chunks, column, n, first", ("wrong words", "stray read")),
    ("strides not checked", "    stride_clause(matrices),\n",
     "", ("not refused", "wrong words", "misaligned address", "stray read", "launcher error", "launch failure")),
    ("fragments not checked", '    Clause(\n        name="fragments",\n        holds=lambda p, c: c.fragments in VECTORS,',
     '    Clause(\n        name="fragments",\n        holds=lambda p, c: True,', ("launcher error",)),
)  # fmt: skip
_OF_LD_SHARED = (
    ("first wait for a group too few", "        async_copy.wait_group(STAGES - 1)\n",
     "        async_copy.wait_group(STAGES if VECTOR == 4 else STAGES - 1)\n", ("uninitialised read", "race", "wrong words")),
    ("drain for a group too few", "async_copy.wait_group(STAGES - 1 - consumed)",
     "async_copy.wait_group(STAGES - consumed if VECTOR == 4 else STAGES - 1 - consumed)",
     ("uninitialised read", "race", "wrong words")),
    ("rows outside are copied", "mask=(row < rows)[:, None])\n\n",
     "mask=(row < rows + buffer.layout.vec % 8)[:, None])\n\n", ("stray read", "wrong words")),
    ("remainder of K one too long", "(column < columns)",
     "(column < columns + buffer.layout.vec // 4 % 2)", ("wrong words", "stray read")),
    ("refilled with the block after", "copy_block(a, a_chunks, row, m, (block + STAGES) * BLOCK_K,",
     "copy_block(a, a_chunks, row, m, (block + STAGES + VECTOR // 4 % 2) * BLOCK_K,", ("wrong words", "stray read")),
    ("buffer of another block", "sums = multiply_buffers(a_ring.index(stage), b_ring.index(stage), sums)\n",
     "sums = multiply_buffers(a_ring.index((block + VECTOR // 4 % 2) % STAGES), b_ring.index(stage), sums)\n",
     ("wrong words", "race", "uninitialised read")),
)  # fmt: skip

_SHOWS_IN = {"one buffer only": (("regime", "tenth"),)}

MUTANTS = (
    *(
        Mutant(kernel="ampere_gemm", name=name, edits=once(replace, by), expected=named, shows_in=_SHOWS_IN.get(name, ()))
        for name, replace, by, named in _TEXTS
    ),
    *(
        Mutant(
            kernel="ampere_gemm",
            name=f"by ld.shared {name}",
            edits=once(replace, by),
            expected=named,
            shows_in=(("fragments", "ld.shared"),),
        )
        for name, replace, by, named in _OF_LD_SHARED
    ),
)
