"""Deliberate bugs with their true causes: how many the report names, how many it says nothing of, how many it names wrong.

python -m benchmarks.named_causes [--only TEXT] [--collection NAME]

Prints each fault with what its report says, and of each collection: faults, right cause, wrong cause, none, seconds a case.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.campaign import Option, parse, run_script
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Verdict
from bitverdict.harness.session.causes import Causes
from tests.faults.causes import kernels_of_models, matmul_launchers, shipped_kernels, your_kernels
from tests.faults.causes.record import Explained
from tests.faults.mutants import mutant_source, write_mutant
from tests.faults.your_kernels.collected import written

COLLECTIONS = {
    "launchers": matmul_launchers.BUGS,
    "kernels": shipped_kernels.BUGS,
    "described": your_kernels.BUGS,
    "models, seen half": kernels_of_models.SEEN_HALF,
    "models, unseen half": kernels_of_models.UNSEEN_HALF,
}
MOST_CASES = 60  # of the required ones
MOST_FAILURES = 6  # of one bug: what a run sees of it


def verdicts_on(bug: Explained, directory: Path) -> list[tuple[Case, Verdict]]:
    """The first failing cases of the bug that one run shows, and their verdicts; those of the first one's outcome."""
    machine = target(bug.on)
    if bug.contract == "alone":
        file = directory / f"{bug.mutant.stem}.py"
        file.write_text(mutant_source(bug.mutant))
        contract, launcher = resolve(f"{file}:test_{Path(bug.mutant.kernel).stem}"), ""
    elif bug.contract == "described":
        sys.path.insert(0, str(directory))  # as pytest does with the folder of a test
        contract, launcher = resolve(written(bug.mutant, directory)), ""
    elif bug.launcher:
        file = directory / f"{bug.mutant.stem}.py"
        file.write_text(mutant_source(bug.mutant))
        contract, launcher = resolve(bug.contract), f"{file}:{bug.launcher}"
    else:
        contract, launcher = resolve(write_mutant(bug.mutant, directory)), ""
    if bug.cases:
        problem = contract.module.Problem  # type: ignore[attr-defined]
        cases = [Case(contract=contract.address, problem=problem(**fields), regime=bug.regime, data_seed=1) for fields in bug.cases]
    else:
        cases = contract.required(machine)
    found: list[tuple[Case, Verdict]] = []
    for case in cases[:MOST_CASES]:
        asked = replace(case, launcher=launcher) if launcher else case
        verdict = judge(asked, machine, contract)
        if verdict.failed and (not found or verdict.signature == found[0][1].signature):
            found.append((asked, verdict))
        if len(found) == MOST_FAILURES:
            break
    return found


@dataclass(frozen=True)
class Explanation:
    """What came of one bug: `name` of its class, what the report says, and what it took to find out."""

    came: str  # right, wrong, none, not failed
    outcome: str
    sentence: str
    seconds: float  # the longest explanation of one case


def explained(bug: Explained) -> Explanation:
    """The cause that a run tells of the bug, held to the true ones."""
    with tempfile.TemporaryDirectory() as directory:
        failures = verdicts_on(bug, Path(directory))
    causes = Causes()
    for _, verdict in failures:
        causes.add(verdict)
    sentence = causes.details.get("cause", "")
    came = "not failed" if not failures else "none" if not sentence else "right" if bug.names_it(sentence) else "wrong"
    seconds = max((verdict.seconds.get("explanation", 0.0) for _, verdict in failures), default=0.0)
    return Explanation(came, str(failures[0][1].outcome) if failures else "", sentence, seconds)


def main() -> None:
    asked = parse(__doc__, only="", collection=Option("", "the beginning of its name"))
    for collection, bugs in COLLECTIONS.items():
        chosen = [bug for bug in bugs if asked.only in bug.mutant.id] if collection.startswith(asked.collection) else []
        explanations = []
        for bug in chosen:
            one = explained(bug)
            explanations.append(one)
            named = f"{bug.mutant.kernel.split('/')[-1]}: {bug.mutant.name}"
            print(" | ".join((f"{one.came:10}", named, one.outcome, one.sentence, f"{one.seconds:.2f} s")), flush=True)
        if explanations:
            print(_summary(collection, explanations), flush=True)


def _summary(collection: str, explanations: list[Explanation]) -> str:
    counts = Counter(one.came for one in explanations)
    seconds = [one.seconds for one in explanations]
    failed = len(explanations) - counts["not failed"]
    return (
        f"{collection}: {failed} faults, {counts['right']} right cause, {counts['wrong']} wrong cause, {counts['none']} none, "
        f"{statistics.median(seconds):.2f} s a case (longest {max(seconds):.2f} s), {counts['not failed']} not failed"
    )


if __name__ == "__main__":
    run_script(main)
