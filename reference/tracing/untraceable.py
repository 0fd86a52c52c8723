"""What cannot be traced: named, so that the report can say which operator stood in the way."""

from __future__ import annotations


class Untraceable(Exception):
    """An operator, or a use of one, that has no rule here. `operator` is its name as the standard writes it."""

    def __init__(self, operator: str, why: str = "") -> None:
        super().__init__(f"{operator}: {why}" if why else operator)
        self.operator = operator
