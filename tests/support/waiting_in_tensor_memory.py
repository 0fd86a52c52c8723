"""A chain of programs, each with tensor memory of its own: a program adds its number + 1 to what the one before it left.

Programs number themselves by a ticket, which they draw when they have begun. So each waits only for programs that have their tensor
memory. `tests/faults/timing/tensor_memory.py` changes one text at a time."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import TensorMemoryLayout, allocate_tensor_memory


@gluon.jit
def chain(sums, flags, COLUMNS: gl.constexpr):
    """`sums`: one int32 a program. `flags`: one int32 a program, then the next ticket. Each program takes `COLUMNS` columns."""
    me = gl.atomic_add(flags + gl.num_programs(0), 1, sem="relaxed")
    total = me + 1
    if me > 0:
        while gl.atomic_add(flags + me - 1, 0, sem="acquire") == 0:
            pass
        total += gl.load(sums + me - 1)
    tile = allocate_tensor_memory(gl.int32, [128, COLUMNS], TensorMemoryLayout([128, 32], col_stride=1))
    registers: gl.constexpr = tile.get_reg_layout()
    tile.store(gl.full([128, COLUMNS], 0, gl.int32, registers) + total)
    gl.store(sums + me, gl.max(gl.max(tile.load(registers), 1), 0))
    gl.barrier()
    gl.atomic_add(flags + me, 1, sem="release")
