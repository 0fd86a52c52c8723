"""What came held against what is owed: the ruling on a fault or a refusal, and on the words of a result. It launches nothing."""

from __future__ import annotations

from typing import Any

from bitverdict.harness.judge.classify import Seen
from bitverdict.harness.judge.compare import Comparison
from bitverdict.harness.model.contract import Expected, Owed
from bitverdict.harness.model.verdict import Outcome, RestsOn, Ruling, Verdict

UNABLE = {  # says something about us or the machine, nothing about the kernel
    Outcome.NOT_MODELLED: Ruling.UNDECIDED,
    Outcome.OUT_OF_MEMORY: Ruling.UNDECIDED,
    Outcome.COMPILER_FAULT: Ruling.UNDECIDED,
    Outcome.ERROR: Ruling.ERROR,
    Outcome.NOT_RUN: Ruling.NOT_RUN,
}
REFUSALS = {Outcome.REFUSED, Outcome.OUT_OF_RESOURCES}


def against_fault(owed: Owed, seen: Seen) -> Verdict:
    """A fault, a refusal, or a result where none is owed, held against what is owed."""
    if seen.outcome is None:
        return Verdict(
            ruling=Ruling.CONVICTED,
            outcome=Outcome.NOT_REFUSED,
            rests_on=RestsOn.OBSERVED_FAULT,
            message=f"ran, but owes: {owed.outcome}" + (f" by the {owed.layer}" if owed.layer else ""),
            details={"owed": owed.reason},
        )
    details = dict(seen.details, layer=seen.layer)
    if owed.any_refusal and seen.layer in ("launcher", "driver") and seen.outcome in (Outcome.REFUSED, Outcome.LAUNCHER_ERROR):
        return Verdict(
            ruling=Ruling.RIGHT,
            outcome=seen.outcome,
            message=seen.message,
            location=seen.location,
            rests_on=RestsOn.OWED_REFUSAL,
            details=details,
        )
    if not owed.result and str(seen.outcome) == owed.outcome:
        same_layer = not owed.layer or not seen.layer or owed.layer == seen.layer or seen.layer == "emulator"
        said = not owed.message or owed.message in seen.message or owed.message in str(seen.details.get("text", ""))
        if same_layer and said:
            rests_on = RestsOn.OWED_REFUSAL if seen.outcome in REFUSALS else RestsOn.OWED_FAULT
            return Verdict(
                ruling=Ruling.RIGHT,
                outcome=seen.outcome,
                message=seen.message,
                location=seen.location,
                rests_on=rests_on,
                details=details,
            )
        details["owed"] = f"{owed.outcome} by the {owed.layer or 'one or another layer'}, saying {owed.message!r}"
    elif not owed.result:
        details["owed"] = f"{owed.outcome}: {owed.reason}"
    ruling = UNABLE.get(seen.outcome, Ruling.CONVICTED)
    unable = RestsOn.COMPILER_FAULT if seen.outcome is Outcome.COMPILER_FAULT else RestsOn.NOTHING
    return Verdict(
        ruling=ruling,
        outcome=seen.outcome,
        message=seen.message,
        location=seen.location,
        details=details,
        rests_on=unable if seen.outcome in UNABLE else RestsOn.OBSERVED_FAULT,
    )


def against_words(expected: list[Expected], found: list[Comparison]) -> Verdict:
    """The worst of the outputs; what it rests on is the weakest of what the expected outputs rest on."""
    wrong = next((c for c in found if c.outcome not in (Outcome.RIGHT, Outcome.UNDECIDED)), None)
    shares = [c.bound_used for c in found if c.bound_used is not None]
    counted = sum(c.words for c in found)
    told: dict[str, Any] = {
        "words": counted,
        "bound_used": max(shares) if shares else None,
        "rests_on": str(next((e.rests_on for e in expected if e.rests_on), RestsOn.NOTHING)),
    }
    left_out = sum(c.undecided for c in found)
    details = {"undecided_words": left_out} if left_out else {}
    if wrong is not None:
        return Verdict(
            ruling=Ruling.CONVICTED, outcome=wrong.outcome, message=wrong.message, details=details | wrong.details, **told
        )
    if all(c.outcome is Outcome.UNDECIDED for c in found):
        return Verdict(
            ruling=Ruling.UNDECIDED,
            outcome=Outcome.UNDECIDED,
            message="no word of this case can be decided",
            details=details,
            **told,
        )
    return Verdict(ruling=Ruling.RIGHT, outcome=Outcome.RIGHT, details=details, **told)
