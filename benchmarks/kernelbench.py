"""Problems in KernelBench's form: right candidates pass, and constant outputs (zero, the mean of the right output) fail on each.

    python -m benchmarks.kernelbench [--target emulated:sm_90] [--cases 8] [PROBLEM ...]

Judges required cases in this process: of a right candidate all of them, of a constant one until it fails. Beside each verdict
stands what `torch.allclose` with KernelBench's tolerance (1e-2) says of the same constant, on the problem's own sizes.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.campaign import parse, run_script
from bitverdict.harness.contracts.torch_mathematics.kernelbench import address_of, contract_of
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Verdict
from tests.support.kernelbench.constant import NUMBERS, text

CHECKOUT = Path(__file__).resolve().parents[1]

HERE = CHECKOUT / "tests" / "support" / "kernelbench"
KERNELBENCH_TOLERANCE = 1e-2  # what KernelBench itself compares with: the peer


def verdicts(problem: Path, candidate: Path, where: Target, most: int) -> list[Verdict]:
    """Of the required cases of `problem`, up to the first that fails."""
    contract, found = contract_of(str(problem)), []
    for case in contract.required(where)[:most]:
        asked = replace(case, contract=address_of(str(problem)), launcher=f"{candidate}:ModelNew")
        found.append(judge(asked, where, contract))
        if found[-1].failed:
            break
    return found


def told(found: list[Verdict]) -> str:
    last = found[-1]
    if last.failed:
        return f"fails: {last.outcome} in case {len(found)}"
    return f"{sum(each.outcome == 'pass' for each in found)} of {len(found)} pass"


def tolerated(problem: Path, number: str) -> bool:
    """Whether `torch.allclose` with KernelBench's tolerance takes the constant for right."""
    asked = contract_of(str(problem)).file.with_numbers({})
    with torch.no_grad():
        right, other = (asked.model(0)(*asked.inputs(seed)) for seed in (0, 1))
    constant = torch.zeros_like(right) if number == "zero" else other.double().mean().to(right.dtype).expand(right.shape)
    return torch.allclose(right, constant, rtol=KERNELBENCH_TOLERANCE, atol=KERNELBENCH_TOLERANCE)


def main() -> int:
    arguments = parse(__doc__, "problems*", target="emulated:sm_90", cases=8)
    where, began, wrong, tricked = target(arguments.target), time.perf_counter(), 0, 0
    problems = sorted((HERE / "problems").glob("*.py"))
    problems = [problem for problem in problems if not arguments.problems or problem.stem in arguments.problems]
    print(f"{'problem':<26} {'candidate':<24} " + " ".join(f"{number:<42}" for number in NUMBERS))
    with tempfile.TemporaryDirectory() as folder:
        for problem in problems:
            candidate, row = HERE / "candidates" / problem.name, ["none"]
            if candidate.exists():
                found = verdicts(problem, candidate, where, arguments.cases)
                row, wrong = [told(found)], wrong + any(each.outcome != "pass" for each in found)
            for number in NUMBERS:
                file = Path(folder) / f"{problem.stem}_{number}.py"
                file.write_text(text(problem.read_text(), number))
                found, tolerance = verdicts(problem, file, where, arguments.cases), tolerated(problem, number)
                wrong, tricked = wrong + (not found[-1].failed), tricked + tolerance
                row.append(told(found) + (", allclose passes" if tolerance else ""))
            print(f"{problem.stem:<26} {row[0]:<24} " + " ".join(f"{said:<42}" for said in row[1:]), flush=True)
    print(f"{len(problems)} problems on {where.name}, {time.perf_counter() - began:.0f} s; {wrong} not as they must be;")
    print(f"allclose with {KERNELBENCH_TOLERANCE:g} takes {tricked} of {len(problems) * len(NUMBERS)} constants for right")
    return 1 if wrong else 0


if __name__ == "__main__":
    run_script(main)
