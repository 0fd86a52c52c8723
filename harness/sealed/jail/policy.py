"""What a confined process may do, as data: two kinds of process, and the candidate on a real GPU."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

COMPILERS = 16  # processes that the executor's compiler may start
MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Policy:
    """The limits of one process. `name` is what a sentence about its end calls it.

    `memory` bounds what it adds to its address space, bytes; where `reserves` is set (a CUDA driver reserves hundreds of GiB) it
    bounds private writable memory instead. A process that `may_lift_bounds` may lift that bound to reserve what it does not touch;
    the memory that it holds is bounded by as much all the same. `file` and `scratch` bound one file and all files of the scratch
    directory, bytes. `processes` is how many it may start: 0 refuses to start any. `cpu` is a last resort behind the time limit of
    a case, seconds of the processor over the life of the process. `log` is how many bytes of what it prints are kept; the rest is
    counted. `devices` are files below ``/dev`` that it may use, by their beginnings, and `files` what their driver reads of the
    system. `earlier_processes` is how many processes it has before it confines itself: they are confined otherwise.
    """

    name: str
    memory: int
    file: int = 64 * MIB
    scratch: int = 256 * MIB
    open_files: int = 256
    processes: int = 0
    cpu: int = 3600
    log: int = MIB
    writes: bool = True
    reserves: bool = False
    devices: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    earlier_processes: int = 0
    may_lift_bounds: bool = False


def _of_the_machine() -> int:
    """Bytes of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


CANDIDATE = Policy(name="the candidate's process", memory=4 * GIB)
"""On an emulated target it holds handles of device memory and no bytes: what it needs is the compiler's."""

CANDIDATE_ON_A_GPU = replace(
    CANDIDATE,
    memory=32 * GIB,
    reserves=True,
    processes=64,
    open_files=4096,
    devices=("nvidia", "dri", "kfd", "dxg"),
    files=("/proc/sys/vm/mmap_min_addr",),
)
"""Triton builds its launcher with the host's compiler there, and the driver opens its devices."""

EXECUTOR = Policy(
    name="the executor", memory=max(4 * GIB, _of_the_machine() // 2 // len(os.sched_getaffinity(0))), writes=False,
    earlier_processes=1 + COMPILERS, may_lift_bounds=True,
)  # fmt: skip
"""It holds the device memory of a case, which a candidate fills: those of all workers together have half of the machine's."""

EXECUTOR_OF_A_GPU = replace(EXECUTOR, memory=max(4 * GIB, _of_the_machine() // 2))
"""Of a case on a real GPU, which may be large. One worker at a time has the GPU."""

COMPILER = replace(
    EXECUTOR, name="the executor's compiler", memory=_of_the_machine(), writes=True, processes=COMPILERS, scratch=GIB, file=GIB
)
"""What the executor forks before it confines itself: the native code that untrusted text runs through, and the host's assembler."""
