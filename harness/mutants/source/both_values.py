"""A mutant of a launcher's expression, made to compute both values: the right one is used, and it is noted whether they differ.

A mutant whose expression has the right value in every call was not put to the test: that its words are equal says nothing. Nor was
one of a condition that always holds, or never does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bitverdict.harness.mutants.record import GeneratedMutant

OF_TYPES = ("cast", "output of another type", "precision")
"""How operators begin whose difference is one of contents, which sizes do not decide."""
_PLAIN_TYPES = (bool, int, float, str, tuple, list, type(None))


class ValueNotes:
    """What an expression with both values had since `begin`."""

    def __init__(self) -> None:
        self.differed = False
        self.truths: set[bool] = set()
        """What the right value was, where it is a condition."""

    def begin(self) -> None:
        self.differed, self.truths = False, set()

    @property
    def is_tested(self) -> bool:
        """Whether the mutant's value was another one; a condition must have held, and must not have held, besides."""
        return self.differed and len(self.truths) != 1


VALUE_NOTES = ValueNotes()


def evaluate_both(right: Callable[[], object], mutant: Callable[[], object], truth: bool) -> Any:
    """What `right` gives. Noted is whether `mutant` gives another value, or raises; of `truth`, whether it is as true."""
    value = right()
    if truth or isinstance(value, bool):
        VALUE_NOTES.truths.add(bool(value))
    try:
        mutant_value = mutant()
    except Exception:  # of the mutant's expression: it differs
        VALUE_NOTES.differed = True
        return value
    if truth:
        VALUE_NOTES.differed |= bool(value) != bool(mutant_value)
    else:
        plain = isinstance(value, _PLAIN_TYPES) and isinstance(mutant_value, _PLAIN_TYPES)
        VALUE_NOTES.differed |= value != mutant_value if plain else repr(value) != repr(mutant_value)
    return value


def with_both_values(mutant: GeneratedMutant) -> GeneratedMutant | None:
    """`mutant` with an edit that computes both values; None where it edits no expression of a launcher."""
    edit = mutant.edit
    if edit["device"] or mutant.operator.startswith(OF_TYPES):
        return None
    for text in (edit["of"], edit["by"]):
        try:
            compile(f"({text}\n)", "<edit>", "eval")
        except SyntaxError:
            return None
    truth = mutant.before.lstrip().startswith(("if ", "elif ", "while "))
    by = (
        f"__import__({__name__!r}, fromlist=['evaluate_both']).evaluate_both(lambda: "
        f"({edit['of']}\n), lambda: ({edit['by']}\n), {truth})"
    )
    return replace(mutant, edit={**edit, "by": by})
