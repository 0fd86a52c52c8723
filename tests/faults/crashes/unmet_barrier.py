"""A Gluon kernel that waits for an arrival nobody expects: on the emulated GPU a deadlock, on a GPU a hang."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier


@gluon.jit
def waits_for_nobody(y):
    barrier = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(barrier, count=1)
    mbarrier.wait(barrier, 0)
    mbarrier.invalidate(barrier)
    gl.store(y, 1)
