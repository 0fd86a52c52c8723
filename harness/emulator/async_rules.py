"""What orders what: for each kind of asynchronous operation, the one thing after which a program may rely on it.

The emulator goes by the records: who may touch what an operation in flight touches, by which pipe and proxy it goes, what
completes it, and whether a program may end before it has. A finding quotes the sentence of the record that was broken, and
`docs/emulator.md` shows them all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bitverdict.harness.emulator.memory.onchip import View

SHARED, TENSOR, REGISTERS = "shared memory", "tensor memory", "registers"


class Proxy(Enum):
    """The way by which an operation reaches memory (PTX ISA 8.6, proxies)."""

    GENERIC = "generic"
    ASYNC = "async"


class Completion(Enum):
    """What an agent must have passed before it may rely on an operation."""

    WAIT_GROUP = "its issuer's wait_group"
    MBARRIER_BYTES = "a wait on the mbarrier that counts its bytes"
    COMMIT = "a wait on the mbarrier of a commit"


@dataclass(frozen=True)
class Rule:
    """`until`: what an agent must have passed before it touches what `operation` touches. `source`: where PTX says so."""

    operation: str
    touches: str
    until: str
    source: str
    words: str = ""  # the whole rule in words, where "until" makes no sentence of it

    @property
    def sentence(self) -> str:
        """The rule in one line, as a finding quotes it."""
        return f"{self.words or f'{self.operation} {self.touches} until {self.until}'} ({self.source})"


@dataclass(frozen=True, kw_only=True)
class AsyncKind:
    """One kind of asynchronous operation.

    `reads` and `writes` are the on-chip memories that it uses from its issue until its completion. `group` names the groups that a
    wait_group counts, for one that completes by that. Operations of one `pipe` take effect in the order of their issue ("" for
    none); `pipe_per_agent` says that each partition has a pipe of its own. A kind that `must_finish_before_exit` uses memory that
    the program gives back when it ends.
    """

    name: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    proxy: Proxy
    completes_by: Completion
    group: str = ""
    pipe: str = ""
    pipe_per_agent: bool = False
    must_finish_before_exit: bool
    until: str
    ptx_section: str

    @property
    def rule(self) -> Rule:
        """Its row of the table."""
        touches = [f"{verb} {_join_places(places)}" for verb, places in (("reads", self.reads), ("writes", self.writes)) if places]
        return Rule(self.name, ", ".join(touches) or "signals an mbarrier", self.until, self.ptx_section)

    def pipe_of(self, agent: int) -> str:
        """The pipe that it goes through when partition `agent` issues it."""
        return f"{self.pipe} {agent}" if self.pipe_per_agent else self.pipe

    def check(self, reads: Iterable[View], writes: Iterable[View]) -> None:
        """An operation of this kind uses these views. ValueError where the record does not say so: its rule would be untrue."""
        for verb, views, places in (("reads", reads, self.reads), ("writes", writes, self.writes)):
            for view in views:
                if view.space.name not in places:
                    raise ValueError(
                        f"{self.name} {verb} {view.space.name}: its record says {self.rule.touches}; name the memory in `{verb}`"
                    )


def _join_places(places: tuple[str, ...]) -> str:
    """ "shared and tensor memory" of ("shared memory", "tensor memory")."""
    return " and ".join(places).replace(" memory and", " and")


TMA_REDUCE = AsyncKind(
    name="TMA reduce",
    reads=(SHARED,),
    proxy=Proxy.ASYNC,
    completes_by=Completion.WAIT_GROUP,
    group="cp.async.bulk",
    must_finish_before_exit=True,
    until="as a TMA store",
    ptx_section="PTX ISA, cp.reduce.async.bulk.tensor",
)


CP_ASYNC = AsyncKind(
    name="cp.async",
    writes=(SHARED,),
    proxy=Proxy.GENERIC,
    completes_by=Completion.WAIT_GROUP,
    group="cp.async",
    must_finish_before_exit=False,
    until="cp.async.wait_group by which its committed group, and all older ones, are complete",
    ptx_section="PTX ISA, cp.async.wait_group",
)
LOAD_TO_LDS = replace(
    CP_ASYNC,
    name="load to LDS",
    until="an async_wait by which its committed group, and all older ones, are complete",
    ptx_section="CDNA3 ISA, MUBUF: LDS; s_waitcnt: vm_cnt",
)
"""The same on AMD's targets (tests/emulator/test_amd.py)."""
WGMMA = AsyncKind(
    name="wgmma",
    reads=(SHARED,),
    writes=(REGISTERS,),
    proxy=Proxy.ASYNC,
    completes_by=Completion.WAIT_GROUP,
    group="wgmma",
    pipe="wgmma",
    pipe_per_agent=True,
    must_finish_before_exit=False,
    until="wgmma.wait_group by which its group is complete; a wgmma behind it may take its accumulator",
    ptx_section="PTX ISA, wgmma.wait_group and wgmma.mma_async",
)
TMA_LOAD = AsyncKind(
    name="TMA load",
    writes=(SHARED,),
    proxy=Proxy.ASYNC,
    completes_by=Completion.MBARRIER_BYTES,
    must_finish_before_exit=True,
    until="a wait on the mbarrier that counts its bytes, for the phase they complete; no proxy fence is needed then",
    ptx_section="PTX ISA, cp.async.bulk.tensor; mbarrier.try_wait",
)
TMA_GATHER = AsyncKind(
    name="TMA gather",
    writes=(SHARED,),
    proxy=Proxy.ASYNC,
    completes_by=Completion.MBARRIER_BYTES,
    must_finish_before_exit=True,
    until="as a TMA load: its bytes count like a tile's",
    ptx_section="PTX ISA, cp.async.bulk.tensor .tile::gather4",
)
TMA_STORE = AsyncKind(
    name="TMA store",
    reads=(SHARED,),
    proxy=Proxy.ASYNC,
    completes_by=Completion.WAIT_GROUP,
    group="cp.async.bulk",
    must_finish_before_exit=True,
    until="cp.async.bulk.wait_group (.read) by which its group is complete, before the source is reused and before the program "
    "ends",
    ptx_section="PTX ISA, cp.async.bulk.wait_group",
)
TMA_SCATTER = AsyncKind(
    name="TMA scatter",
    reads=(SHARED,),
    proxy=Proxy.ASYNC,
    completes_by=Completion.WAIT_GROUP,
    group="cp.async.bulk",
    must_finish_before_exit=True,
    until="as a TMA store",
    ptx_section="PTX ISA, cp.async.bulk.tensor .tile::scatter4",
)
TCGEN05_MMA = AsyncKind(
    name="tcgen05.mma",
    reads=(SHARED, TENSOR),
    writes=(TENSOR,),
    proxy=Proxy.ASYNC,
    completes_by=Completion.COMMIT,
    pipe="tcgen05",
    must_finish_before_exit=True,
    until="a wait on an mbarrier signalled by a commit behind it; tcgen05.mma, cp and commit follow one another in order",
    ptx_section="PTX ISA, tcgen05.commit; tcgen05 memory consistency model, pipelined instructions",
)
TCGEN05_CP = AsyncKind(
    name="tcgen05.cp",
    reads=(SHARED,),
    writes=(TENSOR,),
    proxy=Proxy.ASYNC,
    completes_by=Completion.COMMIT,
    pipe="tcgen05",
    must_finish_before_exit=True,
    until="as tcgen05.mma, which may follow it directly",
    ptx_section="PTX ISA, tcgen05.cp",
)
TCGEN05_COMMIT = AsyncKind(
    name="tcgen05.commit",
    proxy=Proxy.ASYNC,
    completes_by=Completion.COMMIT,
    pipe="tcgen05",
    must_finish_before_exit=False,
    until="it arrives once everything before it in the pipe is complete",
    ptx_section="PTX ISA, tcgen05.commit",
)
TRY_CANCEL = AsyncKind(
    name="try_cancel",
    writes=(SHARED,),
    proxy=Proxy.ASYNC,
    completes_by=Completion.MBARRIER_BYTES,
    must_finish_before_exit=True,
    until="a wait on the mbarrier that counts the 16 bytes of its answer",
    ptx_section="PTX ISA, clusterlaunchcontrol.try_cancel",
)
KINDS: tuple[AsyncKind, ...] = (
    CP_ASYNC,
    WGMMA,
    TMA_LOAD,
    TMA_GATHER,
    TMA_STORE,
    TMA_SCATTER,
    TMA_REDUCE,
    TCGEN05_MMA,
    TCGEN05_CP,
    TCGEN05_COMMIT,
    TRY_CANCEL,
)

ACCESSES: tuple[Rule, ...] = (
    Rule(
        "ordinary store",
        "writes shared memory through the generic proxy",
        "fence.proxy.async, before TMA, wgmma or tcgen05 reads it or TMA writes over it",
        "PTX ISA, membar/fence: proxy fences; async proxy",
    ),
    Rule(
        "ordinary load",
        "reads shared memory through the generic proxy",
        "fence.proxy.async, before TMA writes there: an arrival alone orders no two proxies. Across partitions by the reader "
        "before it arrives, or by the one that waits for the arrival; within one the compiler puts it",
        "PTX ISA, 9.7.13.4 membar/fence: fence.proxy.async; async proxy; memory consistency model, proxies",
        words="between an ordinary load of shared memory and TMA that writes there stands fence.proxy.async, of the reader before "
        "it arrives or of the one that waited for the arrival, which alone orders no two proxies",
    ),
    Rule(
        "another partition",
        "reads and writes shared and tensor memory",
        "an arrival of that partition on an mbarrier, and a wait of this one for the phase it completes",
        "PTX ISA, mbarrier.arrive (release) and mbarrier.try_wait (acquire)",
    ),
    Rule(
        "another CTA",
        "reads and writes the memory of its cluster's other CTAs: a multicast load writes all copies, a product of two reads both",
        "a barrier of the cluster, or a wait for an mbarrier that the CTAs share, or for a commit that is multicast to all of them",
        "PTX ISA, barrier.cluster; mbarrier; tcgen05.commit .multicast::cluster",
        words="between a use of memory in one CTA and an operation of another CTA that reaches there stands a barrier of the "
        "cluster, an mbarrier that they share, or a commit that is multicast to all of them",
    ),
    Rule(
        "another thread",
        "reads and writes global memory",
        "a barrier of all threads of the partition between the two: tl.debug_barrier, gl.barrier, or one inside an operation (a "
        "sum or a conversion across warps, an atomic that releases or acquires, an arrival at an mbarrier)",
        "PTX ISA 9.7.13.1, bar.sync; 8.9.5 causality order",
        words="between a write of global memory by one thread of a program and another's access to it stands a barrier of all "
        "threads",
    ),
    Rule(
        "another program",
        "reads and writes global memory",
        "an acquire of this one that reads what a release of that one wrote, or what atomic updates made of that, both of scope "
        "gpu or sys (the default of Triton's atomics)",
        "PTX ISA 8.8, release and acquire patterns; 8.9.2 observation order; 8.9.5 causality order",
        words="the programs of a launch run in any order, and at once: only an atomic of the one that reads what an atomic of the "
        "other wrote orders what they do before and after it (a release, then an acquire)",
    ),
    Rule(
        "volatile load",
        "reads global memory",
        "a fence, or an acquire of the same word, behind it: by itself it orders nothing (ld.relaxed.sys)",
        "PTX ISA 9.7.9.8, ld.volatile; 8.8",
    ),
    Rule(
        "TMA store's writes",
        "writes global memory",
        "cp.async.bulk.wait_group without .read (tma.store_wait(pendings, read_only=False)) by which its group is complete, before "
        "an access, another bulk store to the same place or a release; the launch's end does too",
        "PTX ISA, cp.async.bulk.wait_group; cp.async.bulk.tensor",
        words="what a bulk store writes may be touched after a cp.async.bulk.wait_group without .read by which its group is "
        "complete",
    ),
    Rule(
        "store to global memory",
        "writes global memory through the generic proxy",
        "fence.proxy.async, before TMA reads it or writes over it. Triton's own fences are of shared memory only: an author writes "
        "this one as inline assembly",
        "PTX ISA 8.6, proxies; 9.7.13.4 membar/fence: fence.proxy.async",
        words="between an ordinary store or an atomic on global memory and TMA that reads it or writes over it stands "
        "fence.proxy.async, which no operation of Triton's is for global memory",
    ),
)
RULES: tuple[Rule, ...] = (*(kind.rule for kind in KINDS), *ACCESSES)
_BY_OPERATION = {rule.operation: rule for rule in RULES}


def rule_of(operation: str) -> str:
    """The rule for `operation` in one line. ValueError for one that has none: a finding always says what was broken."""
    if operation not in _BY_OPERATION:
        raise ValueError(f"{operation!r}: no rule of that name; there are {', '.join(_BY_OPERATION)}")
    return _BY_OPERATION[operation].sentence
