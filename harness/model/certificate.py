"""Which faults a passing case would have exposed, and how many of its compared words each would have changed.

A *subject* is what a fault is about: a constant of the instruction ("F"), a dimension of an operand ("a axis 1"), a precision. A
case tells a subject apart where each of its faults would change a word. Counts are of a sample of the words where a case is large.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from bitverdict.harness.model.log_lines import count_text

TELLS_NOTHING = "exposes no fault"  # in the details of a case that is inconclusive for it


class Kind(StrEnum):
    """What a fault would be wrong in. Words of masks count how many elements there are, and not which."""

    CONSTANT = "constant"  # of the instruction
    MOVEMENT = "movement"  # another element of an operand, or another place of the output
    MASK = "mask"  # the last elements of a dimension are lost
    PRECISION = "precision"  # a narrower type, another rounding
    SPECIAL = "special values"  # NaN, infinities or subnormals taken for zero


@dataclass(frozen=True)
class CertificateFinding:
    """One fault: it would change `changed_words` of the `sampled_words` that were looked at."""

    kind: Kind
    subject: str
    fault: str
    changed_words: int
    sampled_words: int

    @property
    def is_detected(self) -> bool:
        return self.changed_words > 0


@dataclass(frozen=True)
class Certificate:
    """All findings of one case. `words` that it compares, in `formats`; `left_out`: what was not computed, and why.

    `constant`: operands of other values leave every word as it is, so that at these sizes no case could tell more.
    """

    findings: tuple[CertificateFinding, ...] = ()
    words: int = 0
    formats: str = ""
    omissions: tuple[str, ...] = ()
    constant: bool = False

    def to_json(self) -> dict[str, Any]:
        """As JSON; a finding is a row."""
        rows = [[*asdict(each).values()] for each in self.findings]
        told = {"words": self.words, "formats": self.formats, "findings": rows, "left_out": list(self.omissions)}
        return told | {"constant": self.constant}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Certificate:
        rows = tuple(CertificateFinding(Kind(kind), *rest) for kind, *rest in record["findings"])
        return cls(rows, record["words"], record["formats"], tuple(record["left_out"]), record["constant"])

    def subjects(self, kind: Kind) -> dict[str, list[CertificateFinding]]:
        """The findings of `kind` by subject."""
        found: dict[str, list[CertificateFinding]] = {}
        for each in self.findings:
            if each.kind is kind:
                found.setdefault(each.subject, []).append(each)
        return found

    @property
    def inconclusive_reason(self) -> str:
        """Why the case exposes no fault; empty where it does, and where no other values would.

        A mask alone does not count where a case of several words can be moved: sums of ones tell how many there were, not which.
        """
        moved = self.words > 1 and any(each.kind is Kind.MOVEMENT for each in self.findings)
        judged = [each for each in self.findings if not moved or each.kind is not Kind.MASK]
        if not judged or self.constant or any(each.is_detected for each in judged):
            return ""
        changes = count_text(len(judged), "wrong kernel")
        return f"exposes no fault: on these values none of {changes} (elements moved, operations or precision changed) differs"

    def line(self) -> str:
        """All in one line, as a person reads it."""
        if not self.findings:
            return "; ".join(self.omissions)
        phrases = [said for kind in Kind if (said := self._subjects_of(kind))]
        missed_subjects = [
            subject
            + (f" ({', '.join(each.fault for each in silent)})" if len(silent) < len(rows) else "")
            + self._sample_phrase(silent)
            for kind in Kind
            for subject, rows in self.subjects(kind).items()
            if (silent := [each for each in rows if not each.is_detected])
        ]
        phrases += [f"not exposed: {', '.join(missed_subjects)}"] if missed_subjects else []
        phrases += ["no operand of these sizes would change a word"] if self.constant else []
        return f"{self.formats} out, {self.words:,} words: " + "; ".join([*phrases, *self.omissions])

    def _sample_phrase(self, silent: list[CertificateFinding]) -> str:
        """Of how many words a sample was that shows none of `silent`; empty where it was all."""
        least = min(each.sampled_words for each in silent)
        return f" in {least:,} words" if least < self.words else ""

    def _subjects_of(self, kind: Kind) -> str:
        """The subjects of `kind` that are exposed; of constants and precision the least share of words of their faults."""
        subjects = []
        for subject, rows in self.subjects(kind).items():
            if not all(each.is_detected for each in rows):
                continue
            least = min(rows, key=lambda each: each.changed_words / each.sampled_words)
            expected = round(least.changed_words / least.sampled_words * self.words)
            many = f" {share_text(least.changed_words / least.sampled_words)} ({expected:,})"
            subjects.append(subject + (many if kind in (Kind.CONSTANT, Kind.PRECISION) else ""))
        return f"{kind}: {', '.join(subjects)}" if subjects else ""


def share_text(share: float) -> str:
    """A share as a percentage of two digits."""
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %"
