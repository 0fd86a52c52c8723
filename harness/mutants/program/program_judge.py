"""A mutant of the tile program against cases, in this process: the compiled kernels stay, what they execute is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from bitverdict.harness.emulator.frontend.edited_programs import EditedProgram, EditedPrograms
from bitverdict.harness.judge.devices import launched_with
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.mutants.clauses import LONGEST, add_kill
from bitverdict.harness.mutants.equivalence import SMALL_NUMBERS, equal_edits
from bitverdict.harness.mutants.program.generate import apply_mutant, comes_to, of_programs
from bitverdict.harness.mutants.program.right_launches import RightLaunches, words_of
from bitverdict.harness.mutants.program.same_calls import SmallCalls
from bitverdict.harness.mutants.record import End, GeneratedMutant, MutantResult

LONGER = 16  # times the operations of the right launch, after which a mutant does not end
FEW_CASES = 4  # cases, after which a mutant that lives is held against the right programs
LEAST = 20_000  # operations that a program may execute in any case


class ProgramMutants:
    """The mutants of one kernel's tile programs on one emulated target. `contract` launches the right kernel, and may keep what is
    expected of a case."""

    def __init__(self, kernel: str, contract: Contract, target: Target) -> None:
        self.kernel, self.contract, self.target = kernel, contract, target
        self.right = RightLaunches(contract, target)

    def generate(self, cases: Sequence[Case]) -> Iterator[GeneratedMutant]:
        """The mutants of the programs that those of `cases` launch which the right kernel passes."""
        programs = (text for case in cases if self.right.launch_of(case).passes for text in self.right.launch_of(case).programs)
        return of_programs(self.kernel, self.target.arch, programs)

    def touched_cases(self, mutant: GeneratedMutant, cases: Sequence[Case]) -> Iterator[Case]:
        """Those of `cases` that the right kernel passes, and in which a launch comes to the place of `mutant`; each when it is
        asked for, so that a mutant that an early case fails costs no launch of the others."""
        comes = comes_to(mutant)
        found = ((case, self.right.launch_of(case)) for case in cases)
        return (case for case, right in found if right.passes and comes(right.programs))

    def judged(
        self, mutant: GeneratedMutant, cases: Sequence[Case], *, until_first: bool = True, proofs: bool = True
    ) -> MutantResult:
        """What came of `mutant`, judged by those of `cases` that it touches, in their order; by all where not `until_first`.
        `proofs`: what no case fails is held to the rules of equivalence."""
        launched_mutant = self.launch_mutant(mutant)
        tried_cases: list[Case] = []
        kill_result: MutantResult | None = None
        left_open: list[str] = []
        number, reason, has_same_words = 0, "", True
        for number, case in enumerate(self.touched_cases(mutant, cases), 1):
            tried_cases.append(case)
            if number == FEW_CASES + 1 and kill_result is None and proofs:
                reason = self.equivalent(mutant, cases)
                if reason not in ("", SMALL_NUMBERS):
                    return self._result(mutant, End.EQUIVALENT, FEW_CASES, why=reason)
            verdict = launched_mutant.judge(case)
            has_same_words = has_same_words and words_of(verdict) == self.right.launch_of(case).words
            if launched_mutant.refusal:
                return self._result(mutant, End.INVALID, number, why=launched_mutant.refusal[:LONGEST])
            if kills(verdict):
                kill_result = add_kill(kill_result, mutant, case, self.target, verdict)
                if until_first:
                    break
            elif verdict.decision is Decision.ERROR:
                return self._result(mutant, End.ERROR, number, why=verdict.message[:LONGEST])
            elif verdict.decision is not Decision.PASS:
                left_open.append(f"{verdict.decision}: {verdict.message}"[:LONGEST])
        if kill_result is not None:
            return replace(kill_result, cases_run=number)
        if tried_cases and proofs and reason in ("", SMALL_NUMBERS):
            reason = self.equivalent(mutant, cases, machine=True)
        if reason in ("", SMALL_NUMBERS) and tried_cases and proofs and has_same_words and not left_open:
            reason = self.small_calls.prove_same(mutant, launched_mutant, tried_cases, cases) or reason
        if reason:
            return self._result(mutant, End.DOUBTFUL if reason == SMALL_NUMBERS else End.EQUIVALENT, number, why=reason)
        if not tried_cases:
            return self._result(mutant, End.SURVIVAL, 0, why="no case that the kernel passes comes to this place")
        why = f"{len(left_open)} of {number} cases decide nothing: {left_open[0]}" if left_open else ""
        return self._result(mutant, End.SURVIVAL, number, why=why)

    @cached_property
    def small_calls(self) -> SmallCalls:
        """The calls beyond the required ones that a survivor is held to."""
        return SmallCalls(self.contract, self.right)

    def equivalent(self, mutant: GeneratedMutant, cases: Sequence[Case], *, machine: bool = False) -> str:
        """Why `mutant` computes what the kernel computes in each program of `cases` that has its place; empty where that is not
        shown. `machine`: their machine code is compared too."""
        negative: set[str] = set()
        edits_by_text: dict[str, EditedProgram] = {}
        for case in cases:
            for text in self.right.launch_of(case).programs:
                negative |= self.right.launch_of(case).negative.get(text, set())
                if text not in edits_by_text and (edit := apply_mutant(mutant, text)) is not None:
                    edits_by_text[text] = edit
        return equal_edits(edits_by_text.items(), self.target.arch, negative, machine=machine)

    def _result(self, mutant: GeneratedMutant, end: End, cases_run: int, why: str) -> MutantResult:
        return MutantResult(mutant=mutant.id, end=end, why=why, target=self.target.name, cases_run=cases_run)

    def launch_mutant(self, mutant: GeneratedMutant) -> LaunchedMutant:
        """`mutant`, ready to be launched in one case after the other."""
        return LaunchedMutant(self, mutant)


class LaunchedMutant:
    """One mutant; each program that it changes is translated once."""

    def __init__(self, of: ProgramMutants, mutant: GeneratedMutant) -> None:
        self.of = of
        change: Callable[[str], EditedProgram | None] = lambda text: apply_mutant(mutant, text)
        self.programs = EditedPrograms(change)

    @property
    def refusal(self) -> str:
        """Why the mutant is no program; empty where it is one."""
        return self.programs.refused

    def judge(self, case: Case) -> Verdict:
        """The verdict on the mutant in `case`."""
        limit = max(LONGER * self.of.right.launch_of(case).operations, LEAST)
        with launched_with(edited_programs=self.programs, step_limit=limit):
            return judge(case, self.of.target, self.of.contract, explained=False)


def kills(verdict: Verdict) -> bool:
    """Whether `verdict` tells a mutant of the tile program from the right one. A hazard that the kernel's author could not have
    written is named as the compiler's: of a mutant of what the compiler made, that is so."""
    return verdict.failed or verdict.outcome is Outcome.COMPILER_FAULT
