"""Provenance of every kernel here and of `docs/examples/your_kernels/`: who wrote the output words, and what following them costs.

Run: `python benchmarks/provenance.py [cases] [NAME ...]` (4 required cases of each on each emulated target that has what it needs).
Each case is judged twice in this process, in turns: with provenance and without. "kernel" is the share of output words that a
kernel stored; then come those filled with a constant, those of an operand at their places, and all others. "inputs" counts inputs
of kernels that torch or the host computed. "ratio" is the processor's time of the cases with provenance to that without. Exit
status 1 where a case that passes does not with provenance."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy loads its BLAS
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.small_cases import small_cases  # noqa: E402
from bitverdict.harness.judge import judge as judging  # noqa: E402
from bitverdict.harness.judge.devices import entered  # noqa: E402
from bitverdict.harness.judge.launch import launch  # noqa: E402
from bitverdict.harness.judge.provenance import RECORDED  # noqa: E402
from bitverdict.harness.model.case import Case  # noqa: E402
from bitverdict.harness.model.paths import kernels_with_a_contract  # noqa: E402
from bitverdict.harness.model.targets import Target, targets  # noqa: E402
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict  # noqa: E402
from bitverdict.harness.session.case_source import CaseSource  # noqa: E402

CASES = 4  # of a kernel on a target
EXAMPLES = Path(__file__).resolve().parent.parent / "docs" / "examples" / "your_kernels"
WHO = ("kernel", "filled", "operand", "computed", "copied")


def addresses() -> dict[str, str]:
    """By name the address of each contract."""
    found = {stem: stem for stem in kernels_with_a_contract()}
    for file in sorted(EXAMPLES.glob("test_*.py")):
        found[f"examples/{file.stem.removeprefix('test_')}"] = f"{file}:{file.stem}"
    return found


def followed(*given: Any, **options: Any) -> AbstractContextManager[Any]:
    return entered(*given, **options | {"provenance": True})


def judged(case: Case, target: Target, *, follow: bool) -> tuple[Verdict, float]:
    """The verdict, and the processor's seconds that it took."""
    begun = time.process_time()
    with mock.patch.object(judging, "launch", partial(launch, entering=followed if follow else entered)):
        found = judging.judge(case, target)
    return found, time.process_time() - begun


def main() -> int:
    arguments = sys.argv[1:]
    most = int(arguments.pop(0)) if arguments and arguments[0].isdigit() else CASES
    sys.path.insert(0, str(EXAMPLES))
    wrong, spent = 0, {True: 0.0, False: 0.0}
    print(f"{'kernel':36s} {'cases':>5s} {'pass':>5s} {'words':>9s} {'kernel':>8s}" + "".join(f" {who:>8s}" for who in WHO[1:])
          + f" {'inputs':>6s} {'ratio':>6s}")  # fmt: skip
    for name, address in addresses().items():
        if arguments and name not in arguments:
            continue
        counts, seconds, inputs = Counter[str](), {True: 0.0, False: 0.0}, dict[str, None]()
        for target in targets():
            source = CaseSource(address, target)
            if not target.emulated or source.lacking:
                continue
            for number, case in enumerate(small_cases(source, most)):
                judged(case, target, follow=False)  # compiles
                told = {}
                for follow in (True, False) if number % 2 else (False, True):
                    told[follow], took = judged(case, target, follow=follow)
                    seconds[follow] += took
                counts["cases"] += 1
                counts["pass"] += told[True].decision is Decision.PASS
                if told[True].outcome is not told[False].outcome:
                    wrong += told[True].outcome is Outcome.COMPUTED_ON_HOST
                    print(f"  {target.name}: {told[False].outcome}, then {told[True].outcome}: {told[True].message}\n  {case.key}")
                seen = told[True].recorded.get(RECORDED, {"outputs": {}, "inputs": []})
                for output in seen["outputs"].values():
                    for who in ("words", *WHO):
                        counts[who] += output[who]
                inputs |= dict.fromkeys(f"{kernel} {argument}: {origin}" for kernel, argument, origin, _ in seen["inputs"])
        share = counts["kernel"] / max(counts["words"], 1)
        print(f"{name:36s} {counts['cases']:5d} {counts['pass']:5d} {counts['words']:9,d} {share:8.2%}"
              + "".join(f" {counts[who]:8,d}" for who in WHO[1:])
              + f" {len(inputs):6d} {seconds[True] / max(seconds[False], 1e-9):6.2f}", flush=True)  # fmt: skip
        for said in inputs:
            print(f"  {said}")
        spent = {follow: spent[follow] + seconds[follow] for follow in spent}
    print(f"all: {spent[True]:.1f} s with provenance, {spent[False]:.1f} s without: {spent[True] / max(spent[False], 1e-9):.2f}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
