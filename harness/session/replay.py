"""Judge a stored failing case again and say whether it is the same bug, another one, or gone."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.supervision import end_forks
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict, normalise_message
from bitverdict.harness.session import reproducers
from bitverdict.harness.workers.journal import Journal

FLAKY_RUNS = 5


class Judges(Protocol):
    """What judges one case: a worker pool, or `InThisProcess`."""

    def judge(self, case: Case, target: Target, /) -> Verdict: ...


@dataclass(frozen=True)
class ReplayResult:
    """What a replay showed. `same` is whether the signature is the stored one."""

    case: Case
    verdict: Verdict
    stored_signature: tuple[str, str, str]
    notes: list[str]

    @property
    def is_same_bug(self) -> bool:
        return _anywhere(self.verdict.signature) == _anywhere(self.stored_signature)

    @property
    def _stored_failure(self) -> str:
        return "was an error" if self.stored_signature[0] == Outcome.ERROR else f"failed with {self.stored_signature[0]!r}"

    @property
    def sentence(self) -> str:
        if self.verdict.decision is Decision.FAIL:
            return f"failed again: {'the same bug' if self.is_same_bug else 'another bug'} ({self.verdict.outcome})"
        if self.verdict.decision is Decision.PASS:
            return f"passes now: it {self._stored_failure} when it was stored"
        if self.verdict.decision is Decision.ERROR and self.is_same_bug:
            return f"error again: {self.verdict.message}"
        return f"{self.verdict.decision}: {self.verdict.message}"


def _anywhere(signature: tuple[str, str, str]) -> tuple[str, str, str]:
    """A signature without the directory of its line: a stored source is judged elsewhere than it lay. The message of a stray access
    as it is, and as it was until November 2026."""
    message = re.sub(r" such elements, first at (\[[^]]*\]) of the tile", r" of the tile's elements, first at \1", signature[1])
    return signature[0], normalise_message(message), signature[2].rpartition("/")[2]


class InThisProcess:
    """Judges where it is called, without a worker: for a debugger. What kills the process leaves its case in the journal.

    `say` is told, before the launch, how to come to this process with a debugger.
    """

    def __init__(self, command: str, say: Callable[[str], None] = print, journal: Journal | None = None) -> None:
        self.command, self.say = command, say
        self.journal = journal if journal is not None else Journal()

    def judge(self, case: Case, where: Target) -> Verdict:
        number = self.journal.begin(case, where.name)
        self.say(f"judged in this process, {os.getpid()}; journal: {self.journal.path}")
        for line in debugger_lines(os.getpid(), self.command, emulated=where.emulated):
            self.say(f"  {line}")
        from bitverdict.harness.judge.judge import judge

        me = os.getpid()
        verdict = judge(case, where)
        end_forks(me)
        self.journal.end(number, verdict)
        self.journal.close()
        return verdict


def debugger_lines(process: int, command: str, *, emulated: bool) -> list[str]:
    """How to come to `process` with a debugger, and how to start `command` under one."""
    if emulated:
        return [f"attach: gdb -p {process}", f"start: python -m pdb -m {command.removeprefix('python -m ')}"]
    return [
        f"attach: cuda-gdb -p {process}",
        f"start: cuda-gdb --args {command}",
        f"start: compute-sanitizer --tool memcheck {command}",
    ]


def replay(path: Path, pool: Judges, *, embedded: bool = False) -> ReplayResult:
    """Judge the case of the reproducer at `path` on its target; where it passes, the verdict says which faults it exposes.
    UsageError for a file or a target that does not serve."""
    seed = reproducers.read(path)
    where = target(seed.target)
    case, notes = reproducers.restore_case(seed, use_embedded=embedded)
    verdict = pool.judge(dataclasses.replace(case, certificate=True), where)
    if verdict.decision is Decision.ERROR and verdict.details.get("raised") == UsageError.__name__:
        raise UsageError(f"reproducer {path}: {verdict.message}")
    return ReplayResult(case, verdict, seed.signature, notes)


def with_error_budget(case: Case, where: Target, verdict: Verdict, pool: Judges) -> Verdict:
    """`verdict`; of lost precision with what each line adds to the error, by one more launch and one for each line."""
    if verdict.outcome is not Outcome.LOST_PRECISION:
        return verdict
    again = pool.judge(dataclasses.replace(case, certificate=True), where)
    return again if again.signature == verdict.signature else verdict


def rerun(case: Case, where: Target, verdict: Verdict, pool: Judges) -> str:
    """'' when the verdict comes again each time, else "nondeterministic: k of r runs show it"."""
    again = [pool.judge(case, where).signature == verdict.signature for _ in range(FLAKY_RUNS - 1)]
    return "" if all(again) else f"nondeterministic: {1 + sum(again)} of {FLAKY_RUNS} runs show it"
