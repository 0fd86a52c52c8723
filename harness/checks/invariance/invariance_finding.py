"""What a check of invariance found: the same words, the first that differs with its cause, or why nothing could be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

REPEAT_CHECKS = ("repeat", "neighbours", "alignment", "schedules", "multiprocessors", "stream", "graph")
CHECKS = (*REPEAT_CHECKS, "batch", "position", "configurations", "scale", "zeros")
"""The checks by name, in the order in which they are made."""


class End(StrEnum):
    """How a check ended. The value is the word that reports use."""

    SAME_WORDS = "same words"
    DIFFERS = "other words"
    FAULT = "fault"
    NOT_APPLICABLE = "not applicable"
    NOT_DECIDED = "not decided"


@dataclass(frozen=True, kw_only=True)
class InvarianceFinding:
    """One check of one case.

    `changed` says what differs between the two calls ("m = 1 for 65, from 32"). `cause`: why words differ; `reason`: why nothing
    was compared, or what a fault said. `output`, `at`, `got` and `other` are the first element whose words differ: its place in the
    first call's output, the word of the other call there and that of the first. `compared` words were held against each other, of
    which `differing` differ. `promised`: other words are a failure; else they are information.
    """

    check: str
    end: End
    changed: str = ""
    cause: str = ""
    reason: str = ""
    output: str = ""
    at: tuple[int, ...] = ()
    got: str = ""
    other: str = ""
    compared: int = 0
    differing: int = 0
    promised: bool = False

    @property
    def fails(self) -> bool:
        """Whether the finding is a fault of the kernel."""
        return self.end is End.FAULT or (self.end is End.DIFFERS and self.promised)

    @property
    def sentence(self) -> str:
        """What was found, in a sentence."""
        if self.end is End.SAME_WORDS:
            return f"{self.compared:,} words"
        if self.end is not End.DIFFERS:
            return self.reason
        first = f"first at {list(self.at)} of {self.output}: {self.other}, and {self.got} with {self.changed}"
        return f"{self.differing:,} of {self.compared:,} words differ, {first}; {self.cause}"

    def to_json(self) -> dict:
        return asdict(self) | {"end": str(self.end), "at": list(self.at), "fails": self.fails}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> InvarianceFinding:
        fields = {name: value for name, value in record.items() if name != "fails"}
        return cls(**fields | {"end": End(record["end"]), "at": tuple(record["at"])})


REPEATED_TOO = "a second call of the same case differs too: "


def attribute_causes(findings: Sequence[InvarianceFinding]) -> list[InvarianceFinding]:
    """The findings on one case. Where a repeated call gives other words, nothing else is the cause of other words elsewhere."""
    repeated = next((each for each in findings if each.check == "repeat" and each.end is End.DIFFERS), None)
    if repeated is None:
        return list(findings)
    said = f"{REPEATED_TOO}{repeated.cause}"
    return [replace(each, cause=said) if each.end is End.DIFFERS and each.check not in REPEAT_CHECKS else each for each in findings]
