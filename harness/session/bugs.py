"""One bug of a run: the first case that showed it, what that was reduced to, where it is stored, and what a person reads of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.log_lines import case_count
from bitverdict.harness.model.verdict import Verdict
from bitverdict.harness.session import reproducers
from bitverdict.harness.session.case_line import describe
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.causes import Causes, elements
from bitverdict.harness.session.failure_report import failure_report, headline, place_of
from bitverdict.harness.workers.journal import verdict_record

SHRUNK = "shrunk in"  # begins the note that says what the case was reduced from


@dataclass
class Bug:
    """The first case of a signature on a case source; of an error too, which is stored but not reduced."""

    source: CaseSource
    case: Case
    verdict: Verdict
    case_count: int = 1  # cases of the run that show it
    notes: list[str] = field(default_factory=list)
    first_case: Case | None = None  # before it was reduced
    path: Path | None = None  # of its reproducer
    not_stored: str = ""  # why there is none
    causes: Causes = field(default_factory=Causes)  # what its cases say of it
    widest: Verdict | None = None  # of its cases the one with the most elements
    widest_case: Case | None = None
    witness_elements: int = 0  # of the case that the cause speaks of, where that is not the reduced one

    @property
    def key(self) -> tuple:
        return self.source.address, self.source.target.name, self.verdict.signature

    def to_json(self) -> dict:
        """What a journal keeps of it, for a run that is merged of several."""
        record = {"target": self.source.target.name, "case": self.case.to_json(), "verdict": verdict_record(self.verdict)}
        return record | {"first": self.first_case.to_json() if self.first_case is not None else None, "notes": self.notes}

    def add_verdict(self, verdict: Verdict, case: Case | None = None) -> None:
        """One more case of the bug: what it says of the cause, and its picture, may be more than what is known."""
        self.causes.add(verdict, case)
        if self.widest is None or elements(verdict) > elements(self.widest):
            self.widest, self.widest_case = verdict, case

    def explain(self) -> None:
        """Tell the reduced case's verdict the cause that the cases agree on."""
        replaced = ("cause", "cause_kind", "cause_kinds")
        details = {name: value for name, value in self.verdict.details.items() if name not in replaced}
        witness = self.causes.witness
        if witness is not None and witness.details.get("cause") != self.verdict.details.get("cause"):
            self.witness_elements = elements(witness)
        self.verdict = replace(self.verdict, details=details | self.causes.details)

    def replay_line(self, *, directory: Path | None = None) -> str:
        """The line that judges it again, its path as it is typed in `directory`; why there is none where it could not be
        stored."""
        if self.path is None:
            return f"(not stored: {self.not_stored})"
        inside = directory is not None and self.path.is_relative_to(directory)
        return reproducers.replay_line(self.path.relative_to(directory) if inside and directory is not None else self.path)

    def headline(self) -> str:
        """One line: the outcome, where, and the cause or else the first sentence. pytest's short summary shows its beginning."""
        outcome, _, observed = headline(self.verdict).partition(": ")
        place = place_of(self.verdict)
        return f"{outcome} at {place}: {observed}" if place else f"{outcome}: {observed}"

    def report(self, *, directory: Path | None = None, is_full: bool = False) -> RenderableType:
        """Headline, lines of source, help, the smallest case, the line that replays it; `is_full`: and words, pictures, details."""
        shown_notes = [note for note in self.notes if is_full or not note.startswith(SHRUNK)]
        wider = f"; the cause speaks of one with {self.witness_elements:,} elements" if self.witness_elements else ""
        if wider and (witness := self.causes.case_of.get(id(self.causes.witness))) is not None:
            wider += f": {describe(witness).partition(' regime=')[0]}"
        counted = f"{self.case_count} cases show it" if self.case_count > 1 else ""
        notes = [text for text in (f"{counted}{wider}".removeprefix("; "), *shown_notes) if text]
        line = self.replay_line(directory=directory)
        call = self.source.contract.call_text(self.case)
        emulated = f'with bv.emulated("{self.source.target.arch}"): {call}' if self.source.target.emulated and call else call
        return failure_report(
            self.source.name, self.source.target.name, self.case, self.verdict, notes, line, call=emulated, is_full=is_full
        )


def reports(bugs: Iterable[Bug], *, directory: Path | None = None, is_full: bool = False) -> Iterator[RenderableType]:
    """Each bug whole on the first target that has it, by one line on the others."""
    reported_keys: set[tuple] = set()
    for bug in bugs:
        if (bug.source.name, bug.verdict.signature) in reported_keys:
            yield Text(
                f"the same on {bug.source.target.name} ({case_count(bug.case_count)}): {bug.replay_line(directory=directory)}"
            )
            continue
        reported_keys.add((bug.source.name, bug.verdict.signature))
        yield Text()
        yield bug.report(directory=directory, is_full=is_full)
    if reported_keys:
        yield Text()
