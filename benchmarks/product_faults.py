"""Which faults of a product the derived bound sees: fault by K by element type, out of some cases each.

Run: `python benchmarks/product_faults.py [--cases 6] [--arch sm_90] [--types fp16,e4m3:fp32] [--markdown] [--jobs N]` (about two
minutes of a core). A type is that of the operands, and after a colon that of the result where it is another. A place of the table
counts cases that fail, in the regime `exact` and in `normal`; ~n says that n more are undecided, and what is left passes; - is no
fault there, for the reason below the table. The first row is the kernel without a fault. Exit status 1 where it fails in a case, or
where a fault does not fail in every case of `exact`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness import operands as regimes
from harness.child import ONE_THREAD
from harness.comparison import compare
from harness.product_bound import bounded_product
from harness.verdict import Outcome
from tests.harness_checks.product_faults import FAULTS, Kernel, faultless, no_fault_in

M, N = 17, 18
DEPTHS = (64, 640, 8192)
SHOWN = ("exact", "normal")
ROWS = (faultless, *FAULTS)
TYPES = {
    "sm_80": "fp16,bf16,fp32,fp16:fp32",
    "sm_90": "fp16,bf16,fp32,e4m3,e5m2,fp16:fp32,e4m3:fp16,e4m3:fp32",
    "sm_100": "fp16,bf16,fp32,e4m3,e5m2,fp16:fp32,e4m3:fp16,e4m3:fp32",
}


@dataclass(frozen=True)
class Asked:
    """One case: operands that every row of the table is judged on."""

    kernel: Kernel
    regime: str
    k: int
    data_seed: int


def outcomes(asked: Asked) -> list[Outcome | None]:
    """What comes of each of `ROWS`; None where it is no fault."""
    kernel, k = asked.kernel, asked.k
    a = regimes.factor(kernel.dtype, (M, k), asked.regime, asked.data_seed, "a", side="a", k_axis=1)  # (M, K)
    b = regimes.factor(kernel.dtype, (k, N), asked.regime, asked.data_seed, "b", side="b", k_axis=0)  # (K, N)
    problem = SimpleNamespace(m=M, n=N, k=k, dtype=kernel.dtype, out=kernel.result.name, activation="")
    launched = frozenset({(kernel.rule.family, "", kernel.rule.a, kernel.rule.b, kernel.rule.d)})
    due = bounded_product(problem, a, b, kernel.arch, launched=launched)
    return [None if no_fault_in(kernel, fault, k) else compare(due, fault(kernel, a, b)).outcome for fault in ROWS]


def place(seen: Counter[Outcome]) -> str:
    text = str(seen[Outcome.OUTSIDE_BOUND])
    return text + (f" ~{seen[Outcome.UNDECIDED]}" if seen[Outcome.UNDECIDED] else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=6)
    parser.add_argument("--arch", default="sm_90", choices=[*TYPES])
    parser.add_argument("--types", help="by default all that the chip multiplies")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="processes (default: one a core)")
    given = parser.parse_args()
    jobs, bad = given.jobs or len(os.sched_getaffinity(0)), 0
    kernels = [Kernel(given.arch, *name.split(":")) for name in (given.types or TYPES[given.arch]).split(",")]
    columns = [(regime, k) for regime in SHOWN for k in DEPTHS]
    reasons: dict[str, None] = {}
    os.environ.update(ONE_THREAD)  # of the processes, which are started from here
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("forkserver")) as pool:
        work = [
            Asked(kernel, regime, k, data_seed) for kernel in kernels for regime, k in columns for data_seed in range(given.cases)
        ]
        deepest_first = sorted(work, key=lambda asked: -asked.k)
        found = dict(zip(deepest_first, pool.map(outcomes, deepest_first), strict=True))
    for kernel in kernels:
        heads = [f"{kernel.rule.name}, {kernel.result.name} results", *(f"{regime}, K = {k}" for regime, k in columns)]
        rows = [heads, ["---"] * len(heads)] if given.markdown else [heads]
        for number, fault in enumerate(ROWS):
            name, row, seen_at = fault.__name__.replace("_", " "), [], set()
            for regime, k in columns:
                if reason := no_fault_in(kernel, fault, k):
                    reasons[f"{name}, {kernel.dtype} to {kernel.result.name}: no fault at K = {k}: {reason}"] = None
                    row.append("-")
                    continue
                seen = Counter(found[Asked(kernel, regime, k, data_seed)][number] for data_seed in range(given.cases))
                failed = seen[Outcome.OUTSIDE_BOUND]
                bad += failed if fault is faultless else regime == "exact" and failed < given.cases
                if failed == given.cases:
                    seen_at.add(k)
                elif failed and k not in seen_at:
                    reasons[f"{name}, {kernel.dtype} to {kernel.result.name}: not in every case at K = {k}, {regime}"] = None
                row.append(place(seen))
            rows.append([name, *row])
        widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
        for row in rows:
            text = " | ".join(row) if given.markdown else "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
            print(f"| {text} |" if given.markdown else text)
        print(flush=True)
    print("\n".join(reasons))
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
