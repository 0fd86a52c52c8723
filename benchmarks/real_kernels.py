"""Real values of every kernel here: what share of the outputs' elements is known, and whether they are the contracts' mathematics.

Run: `python benchmarks/real_kernels.py [cases] [STEM ...]` (2 required cases of each kernel on each emulated target that has what
it needs; with real values and no judge). "agree" counts the known elements that are no further from the contract's float64 value
than both errors together; "-" where the contract gives none. Exit status 1 where one disagrees, or is unknown in a kernel that
chooses by no bits of a rounded float."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy loads its BLAS
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np  # noqa: E402

from benchmarks.small_cases import small_cases  # noqa: E402
from bitverdict.harness.emulator import LaunchOptions, emulated  # noqa: E402
from bitverdict.harness.judge.devices import device_of  # noqa: E402
from bitverdict.harness.judge.guarded_buffers import Guard, Poison, guarded_allocations  # noqa: E402
from bitverdict.harness.judge.real_values import mathematics  # noqa: E402
from bitverdict.harness.model.case import Case  # noqa: E402
from bitverdict.harness.model.contract import Contract  # noqa: E402
from bitverdict.harness.model.paths import kernels_with_a_contract  # noqa: E402
from bitverdict.harness.model.targets import Target, targets  # noqa: E402
from bitverdict.harness.session.case_source import CaseSource  # noqa: E402

CASES = 2  # of a kernel on a target
CHOOSES_BY_BITS = {"quantize_mxfp"}  # its elements hang on roundings that no contract declares yet


def launched(contract: Contract, case: Case, target: Target) -> Iterator[tuple[str, Any, Any]]:
    """(output, its real values, what the contract expects) of one launch; (reason, None, None) of what is unknown."""
    operands = {each.name: each for each in contract.operands(case)}
    guard = Guard(Poison.of(case.data_seed))
    uploaded = guard.upload_all(operands.values(), device_of(target))
    options = LaunchOptions(
        allow_duplicate_rows=contract.either_row,
        takes_cpu_tensors=False,
        follows_pointers=False,
        real_values=contract.declared(case) or frozenset(),
    )
    with guarded_allocations(guard), emulated(target.arch, case.schedule, case.tuning, options) as device:
        tensors = {name: device.place(uploaded[each.name]) for name, each in operands.items()}
        if contract.pointers_in_memory:
            device.reach(lambda: {buffer.name: buffer.view for buffer in guard.buffers})
        outputs = dict(contract.launch(case, tensors, None))
        found = {name: device.real_values(tensor) for name, tensor in outputs.items()}
        recorded = {**contract.recorded(case)}
    for reason, _ in device.hangs:
        yield reason, None, None
    as_launcher = replace(case, launcher=f"kernels/{contract.stem}.py:{contract.stem}")  # held to the mathematics, not to a plan
    expected = {each.name: each for each in contract.expected(as_launcher, target, operands, recorded)}
    for name, real in found.items():
        yield name, real, expected.get(name)


def main() -> int:
    arguments = sys.argv[1:]
    most = int(arguments.pop(0)) if arguments and arguments[0].isdigit() else CASES
    wrong = 0
    print(f"{'kernel':40s} {'cases':>5s} {'elements':>10s} {'known':>8s} {'agree':>10s} {'disagree':>8s} {'s':>6s}  unknown by")
    for stem in arguments or kernels_with_a_contract():
        begun, counts, reasons = time.monotonic(), Counter[str](), Counter[str]()
        for target in targets():
            source = CaseSource(stem, target)
            if not target.emulated or source.lacking:
                continue
            for case in small_cases(source, most):
                counts["cases"] += 1
                for name, real, expected in launched(source.contract, case, target):
                    if real is None:
                        reasons[name] += 1
                        continue
                    counts["elements"] += real.error.size
                    counts["known"] += int(np.isfinite(real.error).sum())
                    held = None if expected is None else mathematics(expected, real)
                    if held is not None:
                        counts["compared"] += 1
                        counts["agree"] += int((held.known & ~held.wrong).sum())
                        counts["disagree"] += int(held.wrong.sum())
                        if held.wrong.any():
                            print(f"  {target.name} {name}: {held.wrong.sum()} of {held.wrong.size}\n  {case.to_json()}")
        share = counts["known"] / max(counts["elements"], 1)
        agree = f"{counts['agree']:,d}" if counts["compared"] else "-"
        print(
            f"{stem:40s} {counts['cases']:5d} {counts['elements']:10,d} {share:8.2%} {agree:>10s} {counts['disagree']:8d} "
            f"{time.monotonic() - begun:6.1f}  {', '.join(reasons)}",
            flush=True,
        )
        wrong += counts["disagree"] + (share < 1 and stem not in CHOOSES_BY_BITS)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
