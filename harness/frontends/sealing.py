"""What the front ends have in common of sealed runs: whose launcher is sealed, and what is said of the jail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError

if TYPE_CHECKING:
    from bitverdict.harness.session.case_source import CaseSource


def source_of(test: Callable[..., CaseSource], machine: Target, *, sealed: bool) -> CaseSource:
    """The case source of a test on `machine`, sealed where the test says so or `sealed` asks for it."""
    return test(machine, sealed=True) if sealed else test(machine)


def protection(sources: Iterable[CaseSource], *, required: bool) -> str:
    """What a run says of its protections; empty where nothing is sealed. UsageError where one that is `required` lacks."""
    machines = [source.target for source in sources if source.is_sealed]
    if not machines:
        if required:
            raise UsageError("--require-jail: is for sealed runs; give --sealed too, or leave it out")
        return ""
    from bitverdict.harness.sealed.jail.protections import protections, require

    protections_by_kind = {"sealed": protections()}
    if not all(machine.emulated for machine in machines):
        from bitverdict.harness.sealed.processes.gpu_protections import gpu_protections

        protections_by_kind["sealed on a GPU"] = gpu_protections()
    if required:
        for found in protections_by_kind.values():
            require(found)
    return "\n".join(found.sentence(of) for of, found in protections_by_kind.items())
