"""How a mutant of `docs/examples/your_kernels/` is written down: its name, its family, and the texts that are replaced.

The family says what must notice it: *mathematics* (the real values disagree with the reference), *precision* (they agree, the words
are outside their bound), *integers* (results that are judged exactly), *fault* (the launch ends in one, or leaves its tensors).
A mutant that shows as one family in some cases and as another in others names both."""

from __future__ import annotations

from tests.faults.mutants import Mutant, SourceEdit

FOLDER = "docs/examples/your_kernels"
FAMILIES: dict[str, tuple[str, ...]] = {
    "mathematics": ("wrong mathematics",),
    "precision": ("lost precision",),
    "integers": ("wrong words",),
    "fault": ("stray read", "stray write", "race", "illegal address", "uninitialised read"),
}
Text = tuple[str, str, *tuple[tuple[str, str], ...]]


def mutants_of(kernel: str, texts: tuple[Text, ...]) -> tuple[Mutant, ...]:
    """Records of the mutants of one kernel: (name, family or families, (was, by), ...) each."""
    return tuple(
        Mutant(
            kernel=f"{FOLDER}/{kernel}.py",
            name=name,
            kind=family,
            edits=tuple(SourceEdit(was, by) for was, by in edits),
            expected=tuple(outcome for each in family.split(" or ") for outcome in FAMILIES[each]),
        )
        for name, family, *edits in texts
    )
