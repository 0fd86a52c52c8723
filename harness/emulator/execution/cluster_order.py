"""Order between the CTAs of a cluster (PTX ISA: barrier.cluster; mbarrier; tcgen05.commit .multicast::cluster).

A cluster runs as one program, in which every CTA does the same. What one CTA knows of its own accesses it does not know of its
neighbours': they may be slower. That matters where an operation reaches into another CTA's memory: a TMA load that is multicast
writes the copies of all, a product of two CTAs reads the operands of both. Each use of memory that has been waited for is kept here
until the CTAs have met since: by a barrier of the cluster, by an mbarrier that they share, or by a commit that all of them signal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bitverdict.harness.emulator.advice import Advice, Note
from bitverdict.harness.emulator.async_rules import rule_of
from bitverdict.harness.emulator.faults import OnChipFault

if TYPE_CHECKING:
    from bitverdict.harness.emulator.execution.cta_state import CtaState
    from bitverdict.harness.emulator.memory.onchip import View
    from bitverdict.harness.emulator.mlir_reader import Operation

OWN, PAIR, CLUSTER = range(3)
"""Of which CTAs something is known to be over: of its own, of two that make products together, of all."""


def reach(ctas: int, copies: int) -> int:
    """Of which of `ctas` CTAs one knows that waits for what `copies` of them share."""
    return OWN if copies == 1 else CLUSTER if copies == ctas else PAIR


@dataclass(eq=False)
class Use:
    """`op` read or wrote `view`, and partition `agent` knows that it is over in its own CTA. `known_agents`: by partition, of
    which others. `is_met`: it wrote, and the CTAs have met since at a relaxed barrier that the compiler inserts for an mbarrier."""

    op: Operation
    view: View
    writes: bool
    agent: int
    known_agents: dict[int, int] = field(default_factory=dict)
    is_met: bool = False


class ClusterOrder:
    """The uses of on-chip memory of one cluster since its CTAs last met."""

    def __init__(self, cta: CtaState) -> None:
        self.cta, self.ctas = cta, cta.launch.ctas
        self.uses: list[Use] = []

    def reset(self) -> None:
        """The CTAs have met."""
        self.uses = []

    def meet_relaxed(self) -> None:
        """The CTAs have met, which orders no memory. Upstream's own kernels rely on it for what each CTA has stored and fenced."""
        for use in self.uses:
            use.is_met = use.is_met or use.writes

    def use(self, op: Operation, view: View, *, writes: bool, agent: int, known_ctas: int = OWN) -> None:
        """`agent` knows that `op` no longer uses `view`, in as many CTAs as `known` says."""
        if self.ctas == 1 or known_ctas == CLUSTER:
            return
        last = next((u for u in reversed(self.uses) if u.op is op and u.agent == agent and u.view.identity == view.identity), None)
        if last is not None and last.writes == writes and not last.known_agents:
            return
        self.uses.append(Use(op, view, writes, agent, {agent: known_ctas} if known_ctas else {}))

    def uses_so_far(self, agent: int) -> list[Use]:
        """What `agent` has behind it now: whoever learns that it is here in all CTAs knows of these."""
        return [use for use in self.uses if use.agent == agent or agent in use.known_agents] if self.ctas > 1 else []

    def learn(self, agent: int, uses: Iterable[Use], known: int) -> None:
        """`agent` has learnt that `uses` are over in as many CTAs."""
        if known:
            for use in uses:
                use.known_agents[agent] = max(use.known_agents.get(agent, OWN), known)

    def hold(self, op: Operation, view: View, *, writes: bool, needs: int) -> None:
        """The running agent lets `op` reach `view` in other CTAs. A race with a use that may not be over there."""
        agent = self.cta.agent.number
        for use in reversed(self.uses):
            if use.known_agents.get(agent, OWN) < needs and (writes or use.writes) and use.view.overlaps(view):
                if use.is_met:
                    self.cta.notes.add(Note(Advice.CLUSTER_BARRIER, use.op.location))
                    continue
                did = "write" if use.writes else "read"
                raise OnChipFault(
                    "race",
                    f"{op.name} {'overwrites' if writes else 'reads'} {view} in other CTAs of the cluster, which {use.op.name} at "
                    f"{use.op.location} may still {did} there: nothing orders the CTAs",
                    op.location,
                    {
                        "rule": rule_of("another CTA"),
                        "operation": op.brief,
                        "other operation": use.op.brief,
                        "other location": use.op.location,
                    },
                )


__all__ = ["CLUSTER", "OWN", "PAIR", "ClusterOrder", "Use", "reach"]
