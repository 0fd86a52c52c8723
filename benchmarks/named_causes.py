"""Deliberate bugs with their true causes: how many the report names, how many it says nothing of, how many it names wrong.

python -m benchmarks.named_causes [--only TEXT] [--collection NAME]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Verdict
from bitverdict.harness.session.causes import Causes
from tests.faults.causes import matmul_launchers, shipped_kernels, your_kernels
from tests.faults.causes.record import Explained
from tests.faults.mutants import mutant_source, write_mutant
from tests.faults.your_kernels.collected import written

COLLECTIONS = {"launchers": matmul_launchers.BUGS, "kernels": shipped_kernels.BUGS, "described": your_kernels.BUGS}
MOST_CASES = 60  # of the required ones
MOST_FAILURES = 6  # of one bug: what a run sees of it


def verdicts_on(bug: Explained, directory: Path) -> list[tuple[Case, Verdict]]:
    """The first failing cases of the bug that one run shows, and their verdicts; those of the first one's outcome."""
    machine = target(bug.on)
    if bug.contract == "described":
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--collection", default="")
    asked = parser.parse_args()
    counts = {"right": 0, "nothing": 0, "wrong": 0, "not failed": 0}
    for collection, bugs in COLLECTIONS.items():
        if asked.collection not in ("", collection):
            continue
        for bug in bugs:
            if asked.only not in bug.mutant.name:
                continue
            with tempfile.TemporaryDirectory() as directory:
                begun = time.monotonic()
                found = verdicts_on(bug, Path(directory))
            causes = Causes()
            for _, each in found:
                causes.add(each)
            verdict, said = found[0][1] if found else None, causes.told.get("cause", "")
            came = "not failed" if not found else "nothing" if not said else "right" if bug.names_it(said) else "wrong"
            counts[came] += 1
            cost = verdict.seconds.get("explanation", 0.0) if verdict is not None else 0.0
            outcome = str(verdict.outcome) if verdict is not None else ""
            took = f"{cost:.2f} s of {time.monotonic() - begun:.1f} s"
            named = f"{bug.mutant.kernel.split('/')[-1]}: {bug.mutant.name}"
            print(" | ".join((f"{came:10}", named, outcome, said, took)), flush=True)
    print(counts)


if __name__ == "__main__":
    main()
