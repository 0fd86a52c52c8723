"""A mutant of the tile program against cases, in this process: the compiled kernels stay, what they execute is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from bitverdict.harness.emulator.frontend.edited_programs import Edited, EditedPrograms
from bitverdict.harness.judge.devices import launched_with
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.mutants.clauses import clause_of
from bitverdict.harness.mutants.equivalence import SMALL, equal_edits
from bitverdict.harness.mutants.program.generate import comes_to, edited, of_programs
from bitverdict.harness.mutants.program.right_launches import RightLaunches, words_of
from bitverdict.harness.mutants.program.same_calls import SmallCalls
from bitverdict.harness.mutants.record import End, GeneratedMutant, MutantResult, digest_of

LONGER = 16  # times the operations of the right launch, after which a mutant does not end
LONGEST = 300  # characters of a text of a result
FEW = 4  # cases, after which a mutant that lives is held against the right programs
LEAST = 20_000  # operations that a program may execute in any case


class ProgramMutants:
    """The mutants of one kernel's tile programs on one emulated target. `contract` launches the right kernel, and may keep what is
    expected of a case."""

    def __init__(self, kernel: str, contract: Contract, target: Target) -> None:
        self.kernel, self.contract, self.target = kernel, contract, target
        self.right = RightLaunches(contract, target)

    def generate(self, cases: Sequence[Case]) -> Iterator[GeneratedMutant]:
        """The mutants of the programs that those of `cases` launch which the right kernel passes."""
        programs = (text for case in cases if self.right.of(case).passes for text in self.right.of(case).programs)
        return of_programs(self.kernel, self.target.arch, programs)

    def touched(self, mutant: GeneratedMutant, cases: Sequence[Case]) -> Iterator[Case]:
        """Those of `cases` that the right kernel passes, and in which a launch comes to the place of `mutant`; each when it is
        asked for, so that a mutant that an early case fails costs no launch of the others."""
        comes = comes_to(mutant)
        found = ((case, self.right.of(case)) for case in cases)
        return (case for case, right in found if right.passes and comes(right.programs))

    def judged(
        self, mutant: GeneratedMutant, cases: Sequence[Case], *, until_first: bool = True, proofs: bool = True
    ) -> MutantResult:
        """What came of `mutant`, judged by those of `cases` that it touches, in their order; by all where not `until_first`.
        `proofs`: what no case fails is held to the rules of equivalence."""
        launched = self.launched(mutant)
        touched: list[Case] = []
        killed: MutantResult | None = None
        left_open: list[str] = []
        number, reason, same = 0, "", True
        for number, case in enumerate(self.touched(mutant, cases), 1):
            touched.append(case)
            if number == FEW + 1 and killed is None and proofs:
                reason = self.equivalent(mutant, cases)
                if reason not in ("", SMALL):
                    return self._result(mutant, End.EQUIVALENT, FEW, why=reason)
            verdict = launched.judge(case)
            same = same and words_of(verdict) == self.right.of(case).words
            if launched.refused:
                return self._result(mutant, End.INVALID, number, why=launched.refused[:LONGEST])
            if kills(verdict):
                if killed is None:
                    killed = self._killed(mutant, case, verdict)
                else:
                    killed = killed.and_by(case)
                if until_first:
                    break
            elif verdict.decision is Decision.ERROR:
                return self._result(mutant, End.ERROR, number, why=verdict.message[:LONGEST])
            elif verdict.decision is not Decision.PASS:
                left_open.append(f"{verdict.decision}: {verdict.message}"[:LONGEST])
        if killed is not None:
            return replace(killed, cases_run=number)
        if touched and proofs and reason in ("", SMALL):
            reason = self.equivalent(mutant, cases, machine=True)
        if reason in ("", SMALL) and touched and proofs and same and not left_open:
            reason = self.small_calls.same(mutant, launched, touched, cases) or reason
        if reason:
            return self._result(mutant, End.DOUBTFUL if reason == SMALL else End.EQUIVALENT, number, why=reason)
        if not touched:
            return self._result(mutant, End.SURVIVED, 0, why="no case that the kernel passes comes to this place")
        why = f"{len(left_open)} of {number} cases decide nothing: {left_open[0]}" if left_open else ""
        return self._result(mutant, End.SURVIVED, number, why=why)

    @cached_property
    def small_calls(self) -> SmallCalls:
        """The calls beyond the required ones that a survivor is held to."""
        return SmallCalls(self.contract, self.right)

    def equivalent(self, mutant: GeneratedMutant, cases: Sequence[Case], *, machine: bool = False) -> str:
        """Why `mutant` computes what the kernel computes in each program of `cases` that has its place; empty where that is not
        shown. `machine`: their machine code is compared too."""
        negative: set[str] = set()
        changed: dict[str, Edited] = {}
        for case in cases:
            for text in self.right.of(case).programs:
                negative |= self.right.of(case).negative.get(text, set())
                if text not in changed and (edit := edited(mutant, text)) is not None:
                    changed[text] = edit
        return equal_edits(changed.items(), self.target.arch, negative, machine=machine)

    def _result(self, mutant: GeneratedMutant, end: End, cases_run: int, why: str) -> MutantResult:
        return MutantResult(mutant=mutant.id, end=end, why=why, target=self.target.name, cases_run=cases_run)

    def _killed(self, mutant: GeneratedMutant, case: Case, verdict: Verdict) -> MutantResult:
        return MutantResult(
            mutant=mutant.id,
            end=End.KILLED,
            killed_by=digest_of(case),
            target=self.target.name,
            clause=clause_of(verdict),
            regime=case.regime,
            outcome=str(verdict.outcome),
            message=verdict.message[:LONGEST],
        )

    def launched(self, mutant: GeneratedMutant) -> Launched:
        """`mutant`, ready to be launched in one case after the other."""
        return Launched(self, mutant)


class Launched:
    """One mutant; each program that it changes is translated once."""

    def __init__(self, of: ProgramMutants, mutant: GeneratedMutant) -> None:
        self.of = of
        change: Callable[[str], Edited | None] = lambda text: edited(mutant, text)
        self.programs = EditedPrograms(change)

    @property
    def refused(self) -> str:
        """Why the mutant is no program; empty where it is one."""
        return self.programs.refused

    def judge(self, case: Case) -> Verdict:
        """The verdict on the mutant in `case`."""
        limit = max(LONGER * self.of.right.of(case).operations, LEAST)
        with launched_with(edited=self.programs, step_limit=limit):
            return judge(case, self.of.target, self.of.contract, explained=False)


def kills(verdict: Verdict) -> bool:
    """Whether `verdict` tells a mutant of the tile program from the right one. A hazard that the kernel's author could not have
    written is named as the compiler's: of a mutant of what the compiler made, that is so."""
    return verdict.failed or verdict.outcome is Outcome.COMPILER_FAULT


__all__ = ["Launched", "ProgramMutants", "kills"]
