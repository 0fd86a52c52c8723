"""What a candidate's process may say of its end: that the launcher refused, or raised, or that a limit was met. Nothing else.

Its text is shown and decides nothing. A fault of the emulated GPU is found by the executor alone. A claim that no launcher may make
is a *launcher error* that quotes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.model.verdict import DEVICE_FAULTS, Outcome
from bitverdict.harness.sealed.remote.errors import CandidateRaised

MAY_CLAIM = {
    Outcome.REFUSED: ("launcher", "front end", "verifier", "ptxas", "driver"),
    Outcome.LAUNCHER_ERROR: ("launcher",),
    Outcome.OUT_OF_RESOURCES: ("capacity", "emulator"),
    Outcome.OUT_OF_MEMORY: ("hardware",),
    Outcome.LAUNCH_FAILURE: ("hardware",),  # of a grid that no launch may have
    Outcome.FALSE_HINT: ("emulator",),
    Outcome.NOT_MODELLED: ("emulator",),
    Outcome.ERROR: ("emulator", "reference", "harness"),
}
"""Outcome -> the layers that it may be of. None of them can be a pass, but a refusal where the case expects one."""
ON_A_GPU = dict.fromkeys(sorted(DEVICE_FAULTS), ("hardware",))
"""What is believed beside where that process has the GPU: nobody else knows of a fault there, and no contract expects one."""
LONGEST = 4000  # characters of one text
MOST_LINES = 64  # texts of one list
DETAILS = ("raised", "text", "traceback", "called at", "remedy", "if this is meant", "operation")


def outcome_of_candidate(error: CandidateRaised) -> LaunchResult:
    """What came of a launch whose launcher raised in the candidate's process."""
    return read_claim(error.fields, on_a_gpu=any(kind.__name__ == "RaisedOnAGpu" for kind in type(error).__mro__))


def read_claim(fields: Mapping[str, object], *, on_a_gpu: bool = False) -> LaunchResult:
    """What came of a launch whose launcher raised, by what its process says of it."""
    may_claim = MAY_CLAIM | ON_A_GPU if on_a_gpu else MAY_CLAIM
    texts = {name: _text(fields.get(name)) for name in ("outcome", "layer", "message", "location")}
    details = {name: _detail(value) for name, value in _mapping(fields.get("details")).items() if name in DETAILS}
    if texts["outcome"] == Outcome.ERROR and texts["layer"] == "machine":  # a limit of its jail: no disk but its own is full
        return LaunchResult(
            Outcome.LAUNCHER_ERROR, "launcher", f"in its jail {texts['message']}"[:400], texts["location"][:200], details
        )
    outcome = next((each for each in may_claim if str(each) == texts["outcome"]), None)
    if outcome is None or texts["layer"] not in may_claim[outcome]:
        said = f"the candidate's process claims {texts['outcome']!r:.60} of the {texts['layer']!r:.60}: {texts['message']}"
        return LaunchResult(Outcome.LAUNCHER_ERROR, "launcher", said[:400], texts["location"][:200], details)
    return LaunchResult(outcome, texts["layer"], texts["message"][:400], texts["location"][:200], details)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value[:LONGEST] if isinstance(value, str) else ""


def _detail(value: object) -> str | list[str]:
    return [_text(each) for each in value[:MOST_LINES]] if isinstance(value, list) else _text(value)
