"""Which faults of a product the derived bound sees: fault by K by element type, out of some cases each.

Run: `python benchmarks/product_faults.py [--cases 6] [--arch sm_90] [--dtypes fp16,bf16,fp32,e4m3] [--markdown]` (two minutes). A
cell counts cases that fail, in the regime `exact` and in `normal`; ~n says that n more are undecided, and what is left passes; - is
no fault there, for the reason below the table. The first row is the kernel without a fault. Exit status 1 where it fails in a case,
or where a fault does not fail in every case of `exact`, unless it is in `NOT_ALWAYS`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness import operands as regimes
from harness.comparison import compare
from harness.product_bound import bounded_product
from harness.verdict import Outcome
from tests.harness_checks.product_faults import FAULTS, Fault, Kernel, faultless, no_fault_in

M, N = 17, 18
DEPTHS = (64, 640, 8192)
SHOWN = ("exact", "normal")
NOT_ALWAYS = {
    "sums in fp16": "e4m3: their 14 bits are few more than fp16 has, and the result keeps 4",
    "sum through bf16": "e4m3: rounds twice, which shows only where the first rounding ends on a tie",
    "last k dropped in one element": "e4m3: one product may be less than a place of the result",
}
"""Faults of which `exact` cannot be sure for results in fp8, and why."""


def outcomes(kernel: Kernel, fault: Fault, k: int, regime: str, cases: int) -> Counter[Outcome]:
    """What came of `cases` cases, with data seeds from 0."""
    seen: Counter[Outcome] = Counter()
    for data_seed in range(cases):
        a = regimes.factor(kernel.dtype, (M, k), regime, data_seed, "a", side="a", k_axis=1)  # (M, K)
        b = regimes.factor(kernel.dtype, (k, N), regime, data_seed, "b", side="b", k_axis=0)  # (K, N)
        asked = SimpleNamespace(m=M, n=N, k=k, dtype=kernel.dtype, out=kernel.dtype, activation="")
        launched = {(kernel.rule.family, "", kernel.rule.a, kernel.rule.b, kernel.rule.d)}
        due = bounded_product(asked, a, b, kernel.arch, launched=launched)
        seen[compare(due, fault(kernel, a, b)).outcome] += 1
    return seen


def cell(seen: Counter[Outcome]) -> str:
    text = str(seen[Outcome.OUTSIDE_BOUND])
    return text + (f" ~{seen[Outcome.UNDECIDED]}" if seen[Outcome.UNDECIDED] else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=6)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--dtypes", default="fp16,bf16,fp32,e4m3")
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    bad, reasons = 0, dict.fromkeys(f"{name}, {why}" for name, why in NOT_ALWAYS.items())
    for dtype in given.dtypes.split(","):
        kernel = Kernel(given.arch, dtype)
        heads = [kernel.rule.name, *(f"{regime}, K = {k}" for regime in SHOWN for k in DEPTHS)]
        rows = [heads, ["---"] * len(heads)] if given.markdown else [heads]
        for fault in (faultless, *FAULTS):
            cells, name = [], fault.__name__.replace("_", " ")
            for regime in SHOWN:
                for k in DEPTHS:
                    if reason := no_fault_in(kernel, fault, k):
                        reasons[f"{name}, {dtype}: {reason}"] = None
                        cells.append("-")
                        continue
                    seen = outcomes(kernel, fault, k, regime, given.cases)
                    failed = seen[Outcome.OUTSIDE_BOUND]
                    sure = regime == "exact" and not (dtype == "e4m3" and name in NOT_ALWAYS)
                    bad += failed if fault is faultless else sure and failed < given.cases
                    cells.append(cell(seen))
            rows.append([name, *cells])
        widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
        for row in rows:
            text = " | ".join(row) if given.markdown else "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
            print(f"| {text} |" if given.markdown else text, flush=True)
        print()
    print("\n".join(reasons))
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
