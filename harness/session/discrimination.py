"""Which wrong variants of a kernel the passing cases of a run would have exposed, by contract and target, and which none would."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rich.table import Table

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.certificate import Certificate, Kind
from bitverdict.harness.model.log_lines import case_count
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.session.case_line import describe
from bitverdict.harness.session.observer import Observer

Subjects = dict[tuple[Kind, str], list[int]]
"""(kind, subject) -> [cases that expose it, cases in which it could be]."""

OF_A_RUN = (Kind.CONSTANT, Kind.PRECISION)
"""Kinds whose subjects have one name in all contracts."""


@dataclass
class Discrimination:
    """How many cases expose each wrong variant, counted over the certificates of a run."""

    places: dict[tuple[str, str], Subjects] = field(default_factory=dict)  # (contract, target) ->
    cases: dict[tuple[str, str], int] = field(default_factory=dict)  # that have a certificate

    def count(self, contract: str, target: str, verdict: Verdict) -> None:
        if not verdict.certificate or verdict.decision is not Decision.PASS:
            return
        certificate, place = Certificate.from_json(verdict.certificate), (contract, target)
        self.cases[place] = self.cases.get(place, 0) + 1
        subjects = self.places.setdefault(place, {})
        for kind in Kind:
            for subject, rows in certificate.subjects(kind).items():
                counts = subjects.setdefault((kind, subject), [0, 0])
                counts[0] += all(each.is_detected for each in rows)
                counts[1] += 1

    def add(self, records: Iterable[Mapping]) -> None:
        """Count what `to_json` of another one says too."""
        for record in records:
            place = record["contract"], record["target"]
            self.cases[place] = self.cases.get(place, 0) + record["cases"]
            subjects = self.places.setdefault(place, {})
            for each in record["subjects"]:
                counts = subjects.setdefault((Kind(each["kind"]), each["subject"]), [0, 0])
                counts[0], counts[1] = counts[0] + each["told"], counts[1] + each["of"]

    def table(self) -> Table:
        """A line for each contract and target: of each subject the cases that expose it, of those in which it could be."""
        discrimination_table = Table(title="Exposed faults", title_justify="left", title_style="bold", pad_edge=False)
        for name in ("contract", "target"):
            discrimination_table.add_column(name, no_wrap=True)
        discrimination_table.add_column("cases", justify="right", no_wrap=True)
        for kind in Kind:
            discrimination_table.add_column(str(kind), min_width=12)
        for (contract, target), subjects in sorted(self.places.items()):
            cells = [
                ", ".join(f"{subject} {told}/{of}" for (of_kind, subject), (told, of) in subjects.items() if of_kind is kind)
                for kind in Kind
            ]
            discrimination_table.add_row(contract, target, str(self.cases[contract, target]), *cells)
        return discrimination_table

    def lines(self) -> list[str]:
        """Of each target which faults its cases exposed, and what none of them did."""
        return [line for target in dict.fromkeys(target for _, target in self.places) for line in self._lines_of_target(target)]

    def _lines_of_target(self, target: str) -> Iterator[str]:
        subjects_by_contract = {
            contract: subjects for (contract, place_target), subjects in self.places.items() if place_target == target
        }
        by_name: dict[tuple[Kind, str], list[int]] = {}
        for subjects in subjects_by_contract.values():
            for key, (detections, subject_count) in subjects.items():
                if key[0] in OF_A_RUN:
                    counts = by_name.setdefault(key, [0, 0])
                    counts[0], counts[1] = counts[0] + detections, counts[1] + subject_count
        dimensions = [
            counts for subjects in subjects_by_contract.values() for (kind, _), counts in subjects.items() if kind is Kind.MOVEMENT
        ]
        subject_lines = [
            f"{subject} {detections} of {subject_count} cases"
            for (kind, subject), (detections, subject_count) in by_name.items()
            if kind is Kind.CONSTANT
        ]
        subject_lines += (
            [f"movement in {sum(detections > 0 for detections, _ in dimensions)} of {len(dimensions)} dimensions"]
            if dimensions
            else []
        )
        count = sum(number for (_, place_target), number in self.cases.items() if place_target == target)
        yield f"exposed on {target} by {case_count(count)}: {', '.join(subject_lines) or 'nothing'}"
        missed_subjects = [f"{subject}" for (kind, subject), (detections, _) in by_name.items() if not detections]
        missed_subjects += [
            f"{contract}: {kind} of {subject}"
            for contract, subjects in subjects_by_contract.items()
            for (kind, subject), (detections, _) in subjects.items()
            if not detections and kind not in OF_A_RUN
        ]
        if missed_subjects:
            yield f"not exposed on {target}: {', '.join(missed_subjects)}"

    def to_json(self) -> list[dict]:
        return [
            {
                "contract": contract,
                "target": target,
                "cases": self.cases[contract, target],
                "subjects": [
                    {"kind": str(kind), "subject": subject, "told": told, "of": of}
                    for (kind, subject), (told, of) in subjects.items()
                ],
            }
            for (contract, target), subjects in self.places.items()
        ]


class CertificateLines(Observer):
    """Prints the certificate of each case below its line."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self.show = show

    def on_count(self, case: Case, name: str, target: str, classes: dict[str, str | int], verdict: Verdict) -> None:
        for line in lines_of(case, name, target, verdict):
            self.show(line)


def lines_of(case: Case, name: str, target: str, verdict: Verdict) -> list[str]:
    """The case, and its certificate; nothing where it has none."""
    if not verdict.certificate:
        return []
    return [f"{name} on {target}: {describe(case)}", f"    {Certificate.from_json(verdict.certificate).line()}"]
