"""What the right kernel does in a case: the lines that are executed and compiled, the tile programs, and how long that takes.

Each case is launched once in a process, when it is first asked about. The kernel's modules are executed anew for that, as those of
a mutant are, so that Triton has compiled nothing of them before.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from bitverdict.harness.emulator.frontend.edited_programs import EditedPrograms
from bitverdict.harness.judge.devices import launched_with
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.paths import display_path
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Decision
from bitverdict.harness.mutants.edited_modules import contract_of, judge_context, launch_context, right_modules
from bitverdict.harness.mutants.front_end import FrontEnd, Lines, without_places
from bitverdict.harness.mutants.kernels import Kernel
from bitverdict.harness.mutants.launched_contract import LaunchedContract, ResultCache
from bitverdict.harness.mutants.program.right_launches import words_of
from bitverdict.harness.mutants.record import GeneratedMutant

COMPILED_AT = 100_000  # characters of a tile program a second: what a compilation of it is reckoned to take


@dataclass(frozen=True)
class RightCase:
    """Of one case: whether it passes, what its failure says, the tile program of each launch, without its locations and whole (as
    `texts`), integer arguments that were negative, operations of all launches, of each output a digest of its `words`, lines of
    the kernel's files as reports name them, and seconds of a processor: of all, and of the launch alone."""

    passes: bool
    failure: str
    programs: tuple[str, ...]
    texts: tuple[str, ...]
    negative: frozenset[str]
    operations: int
    words: Mapping[str, str]
    device: Lines
    host: Lines
    total_seconds: float
    launch: float

    @property
    def compilation(self) -> float:
        """Seconds that a mutant's compilation is reckoned to take."""
        return sum(map(len, set(self.programs))) / COMPILED_AT

    def reaches(self, mutant: GeneratedMutant, entered_lines: Lines) -> bool:
        """Whether the case compiles, or executes, the statement that `mutant` edits. What stands in a function that no case has
        entered (`entered_lines`) may have been executed by an import: it is reached."""
        statement, function = (
            {(mutant.file, line) for line in range(first, last + 1)}
            for first, last in (mutant.edit["statement"], mutant.edit["function"])
        )
        match mutant.edit["device"]:
            case "triton" | "gluon":
                return not statement.isdisjoint(self.device)
            case "":
                return not statement.isdisjoint(self.host) or function.isdisjoint(entered_lines)
        return True


class RightCases:
    """Of `kernel` on `target`, whose contract is `right`; `kept` holds what is expected, `front_end` what is compiled."""

    def __init__(self, kernel: Kernel, right: Contract, target: Target, kept: ResultCache, front_end: FrontEnd) -> None:
        self.kernel, self.right, self.target, self.kept, self.front_end = kernel, right, target, kept, front_end
        self.entered: Lines = frozenset()
        """Every line of the host that some case executed."""
        self._known: dict[str, RightCase] = {}
        self._traced: set[tuple[str, int]] = set()

    def __contains__(self, case: Case) -> bool:
        return case.key in self._known

    def right_case(self, case: Case) -> RightCase:
        if case.key not in self._known:
            self._known[case.key] = found = self._measure(case)
            self.entered |= found.host
        return self._known[case.key]

    def _measure(self, case: Case) -> RightCase:
        programs: list[str] = []

        def note(text: str) -> str:
            programs.append(text)
            return text

        counter, contract, start_time = EditedPrograms(lambda text: None), self.contract, time.process_time()
        self._traced.clear()
        with (
            self.front_end.record_compiles(),
            launched_with(rewrite=note, edited_programs=counter),
            judge_context(self.kernel, self.modules),
        ):
            verdict = judge(case, self.target, contract, explained=False)
        total_seconds = time.process_time() - start_time
        return RightCase(
            passes=verdict.decision is Decision.PASS,
            failure=f"{verdict.outcome}: {verdict.message}" if verdict.failed else "",
            programs=tuple(map(without_places, programs)),
            texts=tuple(programs),
            negative=frozenset(name for names in counter.negative.values() for name in names),
            operations=counter.operations,
            words=words_of(verdict),
            device=_shown_lines(self.front_end.lines[text] for text in programs if text in self.front_end.lines),
            host=_shown_lines([frozenset(self._traced)]),
            total_seconds=total_seconds,
            launch=sum(verdict.seconds.get(bucket, 0.0) for bucket in ("launch", "transfer")),
        )

    @cached_property
    def modules(self) -> dict[str, ModuleType]:
        """The kernel's, executed anew."""
        return right_modules(self.kernel)

    @cached_property
    def contract(self) -> Contract:
        """The right kernel's, of `modules`."""
        files = frozenset(str(module.__file__) for module in self.modules.values())

        @contextmanager
        def around() -> Iterator[None]:
            with launch_context(self.kernel, self.modules), self._tracing(files):
                yield

        return LaunchedContract(self.right, contract_of(self.kernel, self.modules), self.kept, around)

    @contextmanager
    def _tracing(self, files: frozenset[str]) -> Iterator[None]:
        """Note each line of `files` that Python executes."""
        traced = self._traced

        def line(frame: Any, event: str, argument: object) -> Any:
            traced.add((frame.f_code.co_filename, frame.f_lineno))
            return line

        def call(frame: Any, event: str, argument: object) -> Any:
            return line if frame.f_code.co_filename in files else None

        before = sys.gettrace()
        sys.settrace(call)
        try:
            yield
        finally:
            sys.settrace(before)


def _shown_lines(all_lines: Any) -> Lines:
    """The lines with their files as reports name them."""
    names: dict[str, str] = {}
    return frozenset(
        (names.get(file) or names.setdefault(file, display_path(Path(file).resolve())), line)
        for lines in all_lines
        for file, line in lines
    )
