"""What orders what: for each kind of asynchronous operation, the one thing after which a program may rely on it.

`docs/emulator.md` shows this table, and a finding quotes from it the rule that was broken. The checks themselves stand in the
lowerings: an edit here changes what is said, not what is found.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """`until`: what an agent must have passed before it touches what `operation` touches. `source`: where PTX says so."""

    operation: str
    touches: str
    until: str
    source: str
    said: str = ""  # the whole rule in words, where "until" makes no sentence of it


RULES: tuple[Rule, ...] = (
    Rule(
        "cp.async",
        "writes shared memory",
        "cp.async.wait_group by which its committed group, and all older ones, are complete",
        "PTX ISA, cp.async.wait_group",
    ),
    Rule(
        "wgmma",
        "reads shared memory, writes registers",
        "wgmma.wait_group by which its group is complete; a wgmma behind it may take its accumulator",
        "PTX ISA, wgmma.wait_group and wgmma.mma_async",
    ),
    Rule(
        "TMA load",
        "writes shared memory",
        "a wait on the mbarrier that counts its bytes, for the phase they complete; no proxy fence is needed then",
        "PTX ISA, cp.async.bulk.tensor; mbarrier.try_wait",
    ),
    Rule(
        "TMA gather",
        "writes shared memory",
        "as a TMA load: its bytes count like a tile's",
        "PTX ISA, cp.async.bulk.tensor .tile::gather4",
    ),
    Rule(
        "TMA store",
        "reads shared memory",
        "cp.async.bulk.wait_group (.read) by which its group is complete, before the source is reused and before the program ends",
        "PTX ISA, cp.async.bulk.wait_group",
    ),
    Rule("TMA scatter", "reads shared memory", "as a TMA store", "PTX ISA, cp.async.bulk.tensor .tile::scatter4"),
    Rule(
        "tcgen05.mma",
        "reads shared and tensor memory, writes tensor memory",
        "a wait on an mbarrier signalled by a commit behind it; tcgen05.mma, cp and commit follow one another in order",
        "PTX ISA, tcgen05.commit; tcgen05 memory consistency model, pipelined instructions",
    ),
    Rule(
        "tcgen05.cp",
        "reads shared memory, writes tensor memory",
        "as tcgen05.mma, which may follow it directly",
        "PTX ISA, tcgen05.cp",
    ),
    Rule(
        "tcgen05.commit",
        "signals an mbarrier",
        "it arrives once everything before it in the pipe is complete",
        "PTX ISA, tcgen05.commit",
    ),
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
        said="between an ordinary load of shared memory and TMA that writes there stands fence.proxy.async, of the reader before "
        "it arrives or of the one that waited for the arrival, which alone orders no two proxies",
    ),
    Rule(
        "another partition",
        "reads and writes shared and tensor memory",
        "an arrival of that partition on an mbarrier, and a wait of this one for the phase it completes",
        "PTX ISA, mbarrier.arrive (release) and mbarrier.try_wait (acquire)",
    ),
    Rule(
        "another thread",
        "reads and writes global memory",
        "a barrier of all threads of the partition between the two: tl.debug_barrier, gl.barrier, or one inside an operation (a "
        "sum or a conversion across warps, an atomic that releases or acquires, an arrival at an mbarrier)",
        "PTX ISA 9.7.13.1, bar.sync; 8.9.5 causality order",
        said="between a write of global memory by one thread of a program and another's access to it stands a barrier of all "
        "threads",
    ),
    Rule(
        "another program",
        "reads and writes global memory",
        "an acquire of this one that reads what a release of that one wrote, or what atomic updates made of that, both of scope "
        "gpu or sys (what Triton's atomics are unless told otherwise)",
        "PTX ISA 8.8, release and acquire patterns; 8.9.2 observation order; 8.9.5 causality order",
        said="nothing orders two programs of one launch but a release of the first and an acquire of the second that reads what it "
        "wrote, or what atomic updates made of that",
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
        said="what a bulk store writes may be touched after a cp.async.bulk.wait_group without .read by which its group is "
        "complete",
    ),
    Rule(
        "store to global memory",
        "writes global memory through the generic proxy",
        "fence.proxy.async, before TMA reads it or writes over it. Triton's own fences are of shared memory only: an author writes "
        "this one as inline assembly",
        "PTX ISA 8.6, proxies; 9.7.13.4 membar/fence: fence.proxy.async",
        said="between an ordinary store or an atomic on global memory and TMA that reads it or writes over it stands "
        "fence.proxy.async, which no operation of Triton's is for global memory",
    ),
)
_BY_OPERATION = {rule.operation: rule for rule in RULES}


def rule_of(operation: str) -> str:
    """The rule for `operation` in one line, empty for one that has none."""
    rule = _BY_OPERATION.get(operation)
    if rule is None:
        return ""
    return f"{rule.said or f'{rule.operation} {rule.touches} until {rule.until}'} ({rule.source})"
