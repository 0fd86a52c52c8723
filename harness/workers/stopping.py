"""Failures that would come again for every case left: a run stops asking a contract on a target after two equal ones.

    hang                     each case would be waited for until its timeout
    refusal by the compiler  no case of the contract on the target has been compiled yet
    fault of the machine     says nothing about any kernel: the whole run stops

What is not judged for that is *cancelled*, with the reason, and counts as not judged.
"""

from __future__ import annotations

import threading
from collections import Counter

from bitverdict.harness.judge.machine_faults import MachineFault
from bitverdict.harness.model.verdict import Basis, Decision, Outcome, Verdict

EQUAL_FAILURES = 2
_COMPILERS = ("front end", "verifier", "ptxas")
_NOT_COMPILED = (Decision.NOT_RUN, Decision.CANCELLED, Decision.ERROR)


class Stopping:
    """What came so far, by (contract, target). Safe for several threads. `at_failure`: one case that fails stops the whole run."""

    def __init__(self, *, at_failure: bool = False) -> None:
        self.at_failure = at_failure
        self.over = ""  # why the whole run stops
        self.reasons: dict[tuple[str, str], str] = {}
        self.machine = ""  # the machine's fault that stops the run
        self._seen: Counter[tuple] = Counter()
        self._compiled: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def heard(self, contract: str, target: str, verdict: Verdict) -> None:
        """Take `verdict` into account."""
        place, kind = (contract, target), kind_of(verdict)
        with self._lock:
            if self.at_failure and verdict.failed:
                self.over = "after the first that fails"
            if kind != "compiler" and verdict.decision not in _NOT_COMPILED and verdict.basis != Basis.EXPECTED_REFUSAL:
                self._compiled.add(place)
            if not kind or (kind == "compiler" and place in self._compiled):
                return
            # of a hang not the line: a loop is at another one each time
            key = (kind, *(place if kind != "machine" else ()), *verdict.signature[: 2 if kind == "hang" else 3])
            self._seen[key] += 1
            if self._seen[key] < EQUAL_FAILURES:
                return
            location = f" at {verdict.location}" if verdict.location else ""
            if kind == "machine":
                self.machine = verdict.message
            elif kind == "hang":
                self.reasons[place] = f"after {EQUAL_FAILURES} that hang{location}: each of the others may take as long"
            else:
                self.reasons[place] = (
                    f"after {EQUAL_FAILURES} that the compiler refuses{location}, and none that it takes: {verdict.message}"
                )

    def reason(self, contract: str, target: str) -> str:
        """Why no further case of `contract` on `target` is judged; empty where it is. MachineFault where none is at all."""
        if self.machine:
            raise MachineFault(self.machine)
        return self.over or self.reasons.get((contract, target), "")


def kind_of(verdict: Verdict) -> str:
    """ "hang", "compiler" or "machine" where the verdict is of these, else ""."""
    if verdict.failed and verdict.outcome is Outcome.TIMEOUT:
        return "hang"
    if verdict.failed and verdict.outcome is Outcome.REFUSED and verdict.details.get("layer") in _COMPILERS:
        return "compiler"
    if verdict.decision is Decision.ERROR and verdict.details.get("layer") == "machine":
        return "machine"
    return ""


def cancelled_verdict(reason: str) -> Verdict:
    """The verdict of a case that was not judged for `reason`."""
    return Verdict(decision=Decision.CANCELLED, outcome=Outcome.CANCELLED, message=f"not judged {reason}")
