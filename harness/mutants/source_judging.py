"""A source mutant against cases, in this process.

Cases that do not reach the edited statement are left out: they cannot tell. A mutant of device code is not executed where all its
tile programs are the right kernel's. Cases are tried in the order of their kill rate per
second. What a mutant may take is held to what the right kernel took.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from tempfile import TemporaryDirectory
from typing import Any

from bitverdict.harness.emulator import disk_store
from bitverdict.harness.judge.devices import launched_with
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.launcher_limits import is_far
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Basis, Decision, Outcome, Verdict
from bitverdict.harness.mutants.clauses import LONGEST, add_kill
from bitverdict.harness.mutants.edited_modules import StaleMutant, contract_of, edited_module, judge_context, launch_context
from bitverdict.harness.mutants.equivalence import prove_all_equal
from bitverdict.harness.mutants.front_end import FrontEnd, without_places
from bitverdict.harness.mutants.kernels import Kernel
from bitverdict.harness.mutants.launched_contract import LaunchedContract, ResultCache
from bitverdict.harness.mutants.of_device import of_device_alone
from bitverdict.harness.mutants.program.right_launches import words_of
from bitverdict.harness.mutants.record import End, GeneratedMutant, MutantResult, digest_of
from bitverdict.harness.mutants.right_source import RightCase, RightCases
from bitverdict.harness.mutants.same_calls_of_source import same_calls

LONGER = 16  # times the operations of the right launches, or its seconds of a processor, after which a mutant does not end
LEAST_OPERATIONS, LEAST_SECONDS = 20_000, 5.0  # that it has in any case
CREDIT_KILLS = 0.1  # kills that each case is credited with: it decides an order alone, and no verdict
NOT_COMPILED = ("front end", "verifier", "ptxas")
"""Layers that refuse a mutant before anything of it runs."""
NO_INSTRUCTION = re.compile(r"\b(?:sm_\w+|cuda:\S+) \S+ has no .+ with scale .+; there are: ")
UNREACHED_TEXT = "no case reaches the edited statement"
SAME_PROGRAMS = "equal tile programs in all {} cases that reach it"


class _SamePrograms(BaseException):
    """Every tile program of the case is the right kernel's: the rest is as well."""


class _Overdue(BaseException):
    """The case took longer than a mutant may."""


@dataclass
class _ProgramChanges:
    """The tile programs that a mutant of device code was compiled to where they are not the right kernel's: (right, mutant)."""

    pairs: dict[tuple[str, str], None] = field(default_factory=dict)
    negative: set[str] = field(default_factory=set)
    same_launches: bool = True
    """Whether each launch is one of the right kernel's, with the same arguments."""
    words: bool = True
    """Whether each result had the right kernel's very words."""


class SourceMutants:
    """The source mutants of one kernel on one target; what they share in a process."""

    def __init__(
        self, kernel: Kernel, right_contract: Contract, target: Target, cache: ResultCache, kills: Counter[str] | None = None
    ) -> None:
        self.kernel, self.right, self.target, self.kept = kernel, right_contract, target, cache
        self.kills: Counter[str] = Counter() if kills is None else kills
        """Case, by its digest -> mutants that it failed, here or in another process."""
        self.let_live: Counter[str] = Counter()
        """The same -> mutants that it did not fail, here."""
        self.front_end = FrontEnd()
        self.cases = RightCases(kernel, right_contract, target, cache, self.front_end)

    def judged(
        self, mutant: GeneratedMutant, cases: Sequence[Case], *, until_first: bool = True, proofs: bool = True
    ) -> MutantResult:
        """What came of `mutant`, judged by those of `cases` that reach its edit: those that come first are the likeliest to fail.
        By all of them where not `until_first`. `proofs`: what no case fails is held to the rules of equivalence.

        It is invalid where the compiler refuses it before any case has passed; a refusal after that is a failure like any other.
        """
        try:
            modules = edited_module(self.kernel, mutant)
            other = contract_of(self.kernel, modules)
        except StaleMutant as error:
            return self._result(mutant, End.ERROR, 0, str(error))
        except Exception as error:  # of the edited file, where it is imported
            return self._result(mutant, End.INVALID, 0, f"{type(error).__name__}: {error}")
        contract = LaunchedContract(self.right, other, self.kept, lambda: launch_context(self.kernel, modules))
        changes = _ProgramChanges(same_launches=of_device_alone(self.kernel, mutant))
        with TemporaryDirectory(prefix="bitverdict-mutant-") as directory:

            def verdict_on(case: Case, right: RightCase) -> Verdict | None:
                with judge_context(self.kernel, modules):
                    verdict = self._verdict(contract, case, right, directory, changes)
                changes.words = changes.words and (verdict is None or words_of(verdict) == right.words)
                return verdict

            result = self._by_cases(mutant, cases, verdict_on, until_first)
            if proofs and result.end is End.SURVIVAL and changes.same_launches and changes.pairs:
                if why := prove_all_equal(changes.pairs, self.target.arch, changes.negative):
                    return replace(result, end=End.EQUIVALENT, why=why)
            if proofs and result.end is End.SURVIVAL and not result.why and changes.words:
                if why := same_calls(self, mutant, cases, verdict_on):
                    return replace(result, end=End.EQUIVALENT, why=why)
        return result

    def _by_cases(
        self,
        mutant: GeneratedMutant,
        cases: Sequence[Case],
        verdict_on: Callable[[Case, RightCase], Verdict | None],
        until_first: bool,
    ) -> MutantResult:
        kill_result: MutantResult | None = None
        left_open: list[str] = []
        number = same_count = pass_count = 0
        for case, right in self.choose_cases(mutant, cases):
            number += 1
            verdict = verdict_on(case, right)
            (self.kills if verdict is not None and verdict.failed else self.let_live)[digest_of(case)] += 1
            if verdict is None:
                same_count, pass_count = same_count + 1, pass_count + 1
            elif verdict.failed:
                layer = verdict.details.get("layer", "")
                if layer in NOT_COMPILED and not pass_count and self.right.expected_outcome(case, self.target).result:
                    return self._result(mutant, End.INVALID, number, f"refused by the {layer}: {verdict.message}")
                expected = self.right.expected_outcome(case, self.target)
                kill_result = add_kill(kill_result, mutant, case, self.target, verdict, expected)
                if until_first:
                    break
            elif verdict.decision is Decision.ERROR:
                end = End.INVALID if no_instruction(verdict.message) else End.ERROR
                return self._result(mutant, end, number, verdict.message)
            elif verdict.decision is Decision.PASS:
                pass_count += 1
            else:
                left_open.append(f"{verdict.decision}: {verdict.message}")
        if kill_result is not None:
            return replace(kill_result, cases_run=number)
        if number and same_count == number:  # another configuration may have another layout: of that nothing is proved
            end = End.SURVIVAL if mutant.edit["device"] == "constexpr" else End.EQUIVALENT
            return self._result(mutant, end, number, SAME_PROGRAMS.format(number))
        why = (
            f"{len(left_open)} of {number} cases decide nothing: {left_open[0]}" if left_open else "" if number else UNREACHED_TEXT
        )
        return self._result(mutant, End.SURVIVAL, number, why)

    def choose_cases(self, mutant: GeneratedMutant, cases: Sequence[Case]) -> Iterator[tuple[Case, RightCase]]:
        """Those of `cases` that the right kernel passes and that reach the edit, each when it is to be judged."""
        worth = {case.key: self._share_killed(mutant, case) for case in cases}
        compiled_programs: set[tuple[str, ...]] = set()
        known_cases = [case for case in cases if case in self.cases]
        new_cases = [case for case in cases if case not in self.cases]

        def cost(right: RightCase) -> float:
            return right.launch + (0.0 if right.programs in compiled_programs else right.compilation) + 1e-3

        while known_cases or new_cases:
            if known_cases:
                case = max(known_cases, key=lambda each: worth[each.key] / cost(self.cases.right_case(each)))
                known_cases.remove(case)
            else:
                case = new_cases.pop(0)
            right = self.cases.right_case(case)
            if right.passes and right.reaches(mutant, self.cases.entered):
                compiled_programs.add(right.programs)
                yield case, right

    def _share_killed(self, mutant: GeneratedMutant, case: Case) -> float:
        """The share of its mutants that `case` killed. A case that has judged none is credited with a part of a kill. A far one is
        credited with a whole where `mutant` changes a cast: many are there for offsets past 2^31 alone."""
        name = digest_of(case)
        credit = 1.0 if mutant.family == "cast" and is_far(case.problem) else CREDIT_KILLS
        return (self.kills[name] + credit) / (self.kills[name] + self.let_live[name] + 1)

    def _verdict(
        self, contract: Contract, case: Case, right_case: RightCase, directory: str, changes: _ProgramChanges
    ) -> Verdict | None:
        """The verdict on `case`; None where all its tile programs are the right kernel's."""
        matches: list[bool] = []
        changes.negative |= right_case.negative

        def watch(text: str) -> str:
            place = len(matches)
            matches.append(place < len(right_case.programs) and without_places(text) == right_case.programs[place])
            if changes.same_launches and len(matches) == len(right_case.programs) and all(matches):
                raise _SamePrograms
            if place >= len(right_case.programs):
                changes.same_launches = False
            elif not matches[-1]:
                changes.pairs[right_case.texts[place], text] = None
            return text

        steps = max(LONGER * right_case.operations, LEAST_OPERATIONS)
        seconds = max(LONGER * right_case.total_seconds, LEAST_SECONDS)
        try:
            with (
                self.front_end.reuse_compiles(),
                _compiled_in(directory),
                launched_with(rewrite=watch, step_limit=steps),
                _time_limit(seconds),
            ):
                return judge(case, self.target, contract, explained=False)
        except _SamePrograms:
            return None
        except _Overdue:
            message = f"the case took more than {seconds:.3g} s of a processor, {LONGER} times as long as the right kernel"
            return Verdict(decision=Decision.FAIL, outcome=Outcome.TIMEOUT, message=message, basis=Basis.OBSERVED_FAULT)

    def verdict(self, contract: Contract, case: Case, right: RightCase) -> Verdict:
        """The verdict on `case`, launched by `contract` whatever its tile programs are."""
        with self.front_end.reuse_compiles(), launched_with(step_limit=max(LONGER * right.operations, LEAST_OPERATIONS)):
            return judge(case, self.target, contract, explained=False)

    def _result(self, mutant: GeneratedMutant, end: End, cases_run: int, why: str) -> MutantResult:
        return MutantResult(mutant=mutant.id, end=end, why=why[:LONGEST], target=self.target.name, cases_run=cases_run)


def no_instruction(said: str) -> bool:
    """Whether an error tells of a product that the target has no instruction for: a compiler refuses it before anything runs."""
    return NO_INSTRUCTION.search(said) is not None


@contextmanager
def _compiled_in(directory: str) -> Iterator[None]:
    """What is compiled inside is kept in `directory` alone, and what is translated nowhere: nobody else asks for it."""
    own = {"TRITON_CACHE_DIR": directory, disk_store.VARIABLE: disk_store.OFF_VALUE}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise `_Overdue` inside after so many seconds of the processor; outside a process's main thread nothing is raised."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def overdue(number: int, frame: object) -> None:
        raise _Overdue

    before: Any = signal.signal(signal.SIGPROF, overdue)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
