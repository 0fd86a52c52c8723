"""Whether a mutant of the tile program gives the words of the right kernel in a small domain of calls (`small_calls`).

It is asked of edits of sizes alone (`of_sizes`). The mutant must pass each call, with the right kernel's very words, wherever a
launch of that call comes to its place. One other word, or one hazard, and nothing is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.verdict import Decision
from bitverdict.harness.mutants.program.generate import comes_to, site_of
from bitverdict.harness.mutants.program.of_sizes import of_sizes
from bitverdict.harness.mutants.program.right_launches import RightLaunches, words_of
from bitverdict.harness.mutants.record import GeneratedMutant
from bitverdict.harness.mutants.small_calls import NO_CASE, InTime, TooLong, bases, domain, proof_text

if TYPE_CHECKING:
    from bitverdict.harness.mutants.program.program_judge import LaunchedMutant


class SmallCalls:
    """The small domains of one kernel, each call launched once without a mutant."""

    def __init__(self, contract: Contract, right: RightLaunches) -> None:
        self.contract, self.right = contract, right
        self._calls: dict[str, list[Case] | None] = {}

    def prove_same(self, mutant: GeneratedMutant, launched: LaunchedMutant, touched: Sequence[Case], cases: Sequence[Case]) -> str:
        """Why `mutant`, which passed those of `cases` that it `touched` with the right words, computes what the kernel computes;
        empty where that is not shown."""
        try:
            return self._prove_same(mutant, launched, touched, cases) if self._of_sizes(mutant, touched) else ""
        except TooLong:
            return ""

    def _prove_same(
        self, mutant: GeneratedMutant, launched_mutant: LaunchedMutant, touched_cases: Sequence[Case], cases: Sequence[Case]
    ) -> str:
        comes, calls, in_time = comes_to(mutant), 0, InTime()
        for case in in_time(self._domain(touched_cases, list(dict.fromkeys(case.regime for case in cases)), in_time)):
            if not comes(self.right.launch_of(case).programs):
                continue
            verdict = launched_mutant.judge(case)
            if verdict.decision is not Decision.PASS or words_of(verdict) != self.right.launch_of(case).words:
                return ""
            calls += 1
        return proof_text(calls, len(touched_cases))

    def _of_sizes(self, mutant: GeneratedMutant, touched: Sequence[Case]) -> bool:
        texts = {text for case in touched for text in self.right.launch_of(case).programs}
        sites = [site for text in texts if (site := site_of(mutant, text)) is not None]
        return bool(sites) and all(of_sizes(site, mutant.operator) for site in sites)

    def _domain(self, touched: Sequence[Case], regimes: Sequence[str], in_time: InTime) -> list[Case]:
        """The calls about the cheapest of the cases `touched` that the right kernel passes. TooLong for a case about which
        they once took too long: no later mutant waits for them again."""
        calls_by_key: dict[str, Case] = {}
        for base in bases(touched, lambda case: self.right.launch_of(case).operations):
            if base.key not in self._calls:
                self._calls[base.key] = None
                self._calls[base.key] = [case for case in in_time(domain(self.contract, base, regimes)) if self._passes(case)]
            if (calls := self._calls[base.key]) is None:
                raise TooLong
            calls_by_key |= {case.key: case for case in calls}
        return list(calls_by_key.values())

    def _passes(self, case: Case) -> bool:
        try:
            return self.right.launch_of(case).passes
        except NO_CASE:
            return False
