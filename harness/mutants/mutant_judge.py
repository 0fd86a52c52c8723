"""One mutant against cases, in this process: until the first that fails."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Decision
from bitverdict.harness.mutants.clauses import LONGEST, add_kill
from bitverdict.harness.mutants.edited_modules import StaleMutant, contract_of, edited_module, launch_context
from bitverdict.harness.mutants.kernels import Kernel
from bitverdict.harness.mutants.launched_contract import LaunchedContract, ResultCache
from bitverdict.harness.mutants.program.program_judge import ProgramMutants
from bitverdict.harness.mutants.record import End, GeneratedMutant, Kind, MutantResult
from bitverdict.harness.mutants.source_judging import NOT_COMPILED, SourceMutants


@dataclass
class KernelUnderMutation:
    """A kernel, its contract, and what its mutants share in one process."""

    kernel: Kernel
    target: Target
    cache: ResultCache = field(default_factory=ResultCache)
    kills: Counter[str] = field(default_factory=Counter)
    """Case, by its digest -> source mutants that it failed, as far as this process knows: they decide which case comes first."""

    def __post_init__(self) -> None:
        self.right = self.kernel.contract()

    def judge(
        self, mutant: GeneratedMutant, cases: Sequence[Case], *, until_first: bool = True, proofs: bool = True
    ) -> MutantResult:
        """What came of `mutant`, judged by `cases` in their order; by all of them where not `until_first`. Without `proofs`
        one that they let live is a survivor, whether it is equivalent or not: to show that may take minutes."""
        start = time.perf_counter()
        if mutant.kind is Kind.PROGRAM:
            result = self.programs.judged(mutant, cases, until_first=until_first, proofs=proofs)
            return replace(result, seconds=round(time.perf_counter() - start, 4))
        if self.target.emulated:
            result = self.source.judged(mutant, cases, until_first=until_first, proofs=proofs)
            return replace(result, seconds=round(time.perf_counter() - start, 4))
        try:
            contract = self.contract(mutant)
        except StaleMutant as error:
            return MutantResult(mutant=mutant.id, end=End.ERROR, why=str(error))
        except Exception as error:  # of the edited file, where it is imported
            return MutantResult(mutant=mutant.id, end=End.INVALID, why=f"{type(error).__name__}: {error}"[:300])
        result = judged(mutant, contract, self.target, cases, until_first=until_first)
        return replace(result, seconds=round(time.perf_counter() - start, 4))

    @cached_property
    def programs(self) -> ProgramMutants:
        """The mutants of the tile programs that the kernel is compiled to."""
        return ProgramMutants(self.kernel.address, LaunchedContract(self.right, self.right, self.cache), self.target)

    @cached_property
    def source(self) -> SourceMutants:
        """The mutants of the kernel's source, on an emulated target."""
        return SourceMutants(self.kernel, self.right, self.target, self.cache, self.kills)

    def contract(self, mutant: GeneratedMutant) -> Contract:
        """The contract that launches the source `mutant`. Raises what the edited file raises where it is imported."""
        modules = edited_module(self.kernel, mutant)
        other = contract_of(self.kernel, modules)
        return LaunchedContract(self.right, other, self.cache, lambda: launch_context(self.kernel, modules))


def judged(
    mutant: GeneratedMutant, contract: Contract, target: Target, cases: Sequence[Case], *, until_first: bool = True
) -> MutantResult:
    """What came of `mutant`, which `contract` launches: killed by the first case that fails.

    It is invalid where the compiler refuses it before any case has passed; a refusal after that is a failure like any other.
    """
    left_open: list[str] = []
    kill_result: MutantResult | None = None
    pass_count = number = 0
    for number, case in enumerate(cases, 1):
        verdict = judge(case, target, contract, explained=False)
        if verdict.failed:
            layer = verdict.details.get("layer", "")
            if layer in NOT_COMPILED and not pass_count and contract.expected_outcome(case, target).result:
                why = f"refused by the {layer}: {verdict.message}"[:LONGEST]
                return MutantResult(mutant=mutant.id, end=End.INVALID, why=why, target=target.name, cases_run=number)
            kill_result = add_kill(kill_result, mutant, case, target, verdict, contract.expected_outcome(case, target))
            if until_first:
                break
        elif verdict.decision is Decision.ERROR:
            return MutantResult(
                mutant=mutant.id, end=End.ERROR, why=verdict.message[:LONGEST], target=target.name, cases_run=number
            )
        elif verdict.decision is Decision.PASS:
            pass_count += 1
        else:
            left_open.append(f"{verdict.decision}: {verdict.message}"[:LONGEST])
    if kill_result is not None:
        return replace(kill_result, cases_run=number)
    why = f"{len(left_open)} of {number} cases decide nothing: {left_open[0]}" if left_open else ""
    return MutantResult(mutant=mutant.id, end=End.SURVIVAL, why=why, target=target.name, cases_run=number)
