"""An advice that explains a failure: what the emulated GPU noted beside a fault, where it concerns the same access."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bitverdict.harness.emulator.advice import Advice
from bitverdict.harness.model.verdict import Outcome

MOVEMENT_OUTCOMES = {
    Outcome.RACE, Outcome.STRAY_READ, Outcome.STRAY_WRITE, Outcome.WRONG_WORDS, Outcome.OUTSIDE_BOUND, Outcome.WRONG_MATHEMATICS,
    Outcome.INPUT_CHANGED,
}  # fmt: skip
"""What comes of an operand that lies elsewhere than its descriptor says."""
ANYWHERE = {Advice.STRIDE_CUT: MOVEMENT_OUTCOMES}
"""Advice that concerns a whole operand, and the outcomes that it explains wherever they show."""
AT_ONE_LINE = {
    Advice.EQUAL_WORDS: {Outcome.RACE},
    Advice.DUPLICATE_ROWS: {Outcome.RACE, Outcome.WRONG_WORDS},
    Advice.LANES_DIFFER: {Outcome.RACE, Outcome.WRONG_WORDS, Outcome.OUTSIDE_BOUND, Outcome.WRONG_MATHEMATICS},
    Advice.PARITY: {Outcome.RACE, Outcome.DEADLOCK, Outcome.BARRIER_MISUSE, Outcome.UNINITIALISED_READ},
}
"""Advice that explains an outcome where both are of one line."""


def probable_cause(outcome: Outcome, location: str, details: Mapping, advice: Iterable[str]) -> str:
    """The advice, as its sentence stands, that explains `outcome`; empty where none does."""
    lines = {line for line in (location, details.get("other location", "")) if line}
    for sentence in advice:
        for kind, outcomes in ANYWHERE.items():
            if outcome in outcomes and sentence.endswith(kind.value):
                return sentence
        for kind, outcomes in AT_ONE_LINE.items():
            if outcome in outcomes and sentence.endswith(kind.value) and any(sentence.startswith(f"{line}:") for line in lines):
                return sentence
    return ""
