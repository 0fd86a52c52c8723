"""One bug of a run: the first case that showed it, what that was reduced to, where it is stored, and what a person reads of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.verdict import Verdict
from bitverdict.harness.session import reproducers
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.failure_report import failure_report


@dataclass
class Bug:
    """The first case of a signature on a case source; of an error too, which is stored but not reduced."""

    source: CaseSource
    case: Case
    verdict: Verdict
    seen: int = 1  # cases of the run that show it
    notes: list[str] = field(default_factory=list)
    first: Case | None = None  # before it was reduced
    path: Path | None = None  # of its reproducer
    not_stored: str = ""  # why there is none

    @property
    def key(self) -> tuple:
        return self.source.address, self.source.target.name, self.verdict.signature

    def replay_line(self, *, near: Path | None = None) -> str:
        """The line that judges it again, its path as it is typed in the directory `near`; why there is none where it could not be
        stored."""
        if self.path is None:
            return f"(not stored: {self.not_stored})"
        inside = near is not None and self.path.is_relative_to(near)
        return reproducers.replay_line(self.path.relative_to(near) if inside and near is not None else self.path)

    def report(self, *, near: Path | None = None) -> RenderableType:
        """Name, first words, picture, case, and the line that replays it."""
        notes = [f"{self.seen} cases show it", *self.notes] if self.seen > 1 else self.notes
        line = self.replay_line(near=near)
        return failure_report(self.source.name, self.source.target.name, self.case, self.verdict, notes, line)


def reports(bugs: Iterable[Bug], *, near: Path | None = None) -> Iterator[RenderableType]:
    """Each bug whole on the first target that has it, by one line on the others."""
    shown: set[tuple] = set()
    for bug in bugs:
        if (bug.source.name, bug.verdict.signature) in shown:
            yield Text(f"the same on {bug.source.target.name} ({bug.seen} cases): {bug.replay_line(near=near)}")
            continue
        shown.add((bug.source.name, bug.verdict.signature))
        yield Text()
        yield bug.report(near=near)
    if shown:
        yield Text()
