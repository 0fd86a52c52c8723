"""One operation between two stores, for each operation that may have a barrier of all threads in its lowering."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import mbarrier


@triton.jit
def between(rows, word, KIND: tl.constexpr, SEM: tl.constexpr, USED: tl.constexpr, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    many = word + places
    tl.store(rows + places, places)
    found = 0
    if KIND == "add":
        found = tl.atomic_add(word, 1, sem=SEM)
    elif KIND == "add of a tensor":
        found = tl.atomic_add(many, 1, sem=SEM)
    elif KIND == "exchange":
        found = tl.atomic_xchg(word, 1, sem=SEM)
    elif KIND == "swap":
        found = tl.atomic_cas(word, 0, 1, sem=SEM)
    elif KIND == "swap of a tensor":
        found = tl.atomic_cas(many, places, places, sem=SEM)
    elif KIND == "load":
        found = tl.atomic_load(word, sem=SEM)
    elif KIND == "load of a tensor":
        found = tl.atomic_load(many, sem=SEM)
    elif KIND == "store":
        tl.atomic_store(word, 1, sem=SEM)
    elif KIND == "store of a tensor":
        tl.atomic_store(many, 1, sem=SEM)
    elif KIND == "poll":
        tl.atomic_poll(word, 0, sem=SEM)
    elif KIND == "volatile":
        found = tl.load(word, volatile=True)
    elif KIND == "ordinary":
        found = tl.load(word)
    elif KIND == "barrier":
        tl.debug_barrier()
    elif KIND == "sum":
        found = tl.sum(tl.load(many), 0)
    elif KIND == "scan":
        found = tl.cumsum(tl.load(many), 0)
    elif KIND == "turn":
        found = tl.reshape(tl.trans(tl.reshape(tl.load(many), [2, BLOCK // 2])), [BLOCK])
    if USED:
        tl.store(rows + BLOCK - 1 - places, places + found)
    else:
        tl.store(rows + BLOCK - 1 - places, places)


@gluon.jit
def arrival(rows, word, KIND: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    places = gl.arange(0, 128, layout)
    barrier = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(barrier, count=1)
    gl.store(rows + places, places)
    if KIND == "arrive":
        mbarrier.arrive(barrier, count=1)
    elif KIND == "wait":
        mbarrier.wait(barrier, 1)
    elif KIND == "init":
        mbarrier.invalidate(barrier)
        mbarrier.init(gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout()), count=1)
    elif KIND == "copies":
        async_copy.wait_group(0)
    elif KIND == "barrier":
        gl.barrier()
    gl.store(rows + 127 - places, places)


@gluon.jit
def conversion(rows, word, KIND: gl.constexpr):
    """Through shared memory across warps, through shared memory or shuffles inside each, or inside each thread."""
    before: gl.constexpr = gl.DistributedLinearLayout([[1], [2]], [[4], [8], [16], [32], [64]], [[128], [256]], [], [512])
    if KIND == "across warps":
        after: gl.constexpr = gl.DistributedLinearLayout([[128], [256]], [[1], [2], [4], [8], [16]], [[32], [64]], [], [512])
    elif KIND == "inside warps":
        after: gl.constexpr = gl.DistributedLinearLayout([[4], [8]], [[1], [2], [16], [32], [64]], [[128], [256]], [], [512])
    else:
        after: gl.constexpr = gl.DistributedLinearLayout([[2], [1]], [[4], [8], [16], [32], [64]], [[128], [256]], [], [512])
    first, second = gl.arange(0, 512, before), gl.arange(0, 512, after)
    gl.store(rows + first, first)
    moved = gl.convert_layout(gl.load(rows + first), after)
    gl.store(rows + second, moved + 1)
