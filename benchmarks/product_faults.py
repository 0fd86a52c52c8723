"""Which faults of a product the derived bound sees: fault by K by element type, out of some cases each.

Run: `python -m benchmarks.product_faults [--cases 6] [--arch sm_90] [--types fp16,e4m3:fp32] [--markdown] [--jobs N]` (about two
minutes of a core). A type is that of the operands, and after a colon that of the result where it is another. A place of the table
counts cases that fail, in the regime `exact` and in `normal`; ~n says that n more are inconclusive, ~ that all are, and what is
left passes; - is no fault there, for the reason below the table. The first row is the kernel without a fault. Exit status 1 where
it fails in a case, or where a fault that `exact` must see does not fail in every case of it. What `exact` cannot see is listed
below."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace

from benchmarks.campaign import Option, parse, run_script
from bitverdict.harness.contracts.inputs import regimes
from bitverdict.harness.contracts.inputs.exact_inputs import exact_bits
from bitverdict.harness.contracts.oracle.gemm_bound import bounded_product
from bitverdict.harness.judge.compare import compare
from bitverdict.harness.model.verdict import Outcome
from bitverdict.harness.workers.one_thread import one_thread
from bitverdict.reference.formats import FORMATS
from tests.faults.mutants import FunctionEdit, Mutant, mutant_function
from tests.faults.product_faults import COARSE_BITS, MUTANTS, Kernel, faultless, no_fault_in

M, N = 17, 18
DEPTHS = (64, 640, 8192)
SHOWN = ("exact", "normal")
RIGHT = Mutant(kernel="product", name="faultless", edits=(FunctionEdit(faultless),), expected=("pass",))
ROWS = (RIGHT, *MUTANTS)
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
    due = bounded_product(problem, a, b, kernel.arch, launched_kinds=launched)
    return [None if no_fault_in(kernel, fault, k) else compare(due, mutant_function(fault)(kernel, a, b)).outcome for fault in ROWS]


def unseen(kernel: Kernel, fault: Mutant) -> str:
    """Why `exact` need not see `fault` of `kernel`; empty where it must."""
    if fault.name == "sums of 13 bits" and exact_bits(FORMATS[kernel.dtype]) == COARSE_BITS + 1:
        return "its sums suit the coarsest instruction for fp8, which keeps no more"
    return ""


def place(seen: Counter[Outcome]) -> str:
    if set(seen) == {Outcome.INCONCLUSIVE}:
        return "~"
    text = str(seen[Outcome.OUTSIDE_BOUND])
    return text + (f" ~{seen[Outcome.INCONCLUSIVE]}" if seen[Outcome.INCONCLUSIVE] else "")


def as_text(rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def as_markdown(kernels: list[Kernel], tables: list[list[list[str]]]) -> str:
    """One table: by fault, and by type and regime, what came at the depths `DEPTHS`."""
    types = [kernel.dtype + (f" to {kernel.out}" if kernel.out else "") for kernel in kernels]
    heads = ["fault", *(f"{name} `{regime}`" for name in types for regime in SHOWN)]
    lines = [heads, ["---"] * len(heads)]
    for number, fault in enumerate(ROWS, 1):
        line = [fault.name]
        for rows in tables:
            told = rows[number][1:]
            for start in range(0, len(told), len(DEPTHS)):
                here = told[start : start + len(DEPTHS)]
                line.append("-" if set(here) == {"-"} else " / ".join(here))
        lines.append(line)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> int:
    given = parse(
        __doc__, cases=6, arch=Option("sm_90", choices=[*TYPES]),
        types=Option(str, "by default all that the chip multiplies"), markdown=False, jobs=0,
    )  # fmt: skip
    jobs, bad = given.jobs, 0
    kernels = [Kernel(given.arch, *name.split(":")) for name in (given.types or TYPES[given.arch]).split(",")]
    columns = [(regime, k) for regime in SHOWN for k in DEPTHS]
    reasons: dict[str, None] = {}
    with one_thread(), ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("forkserver")) as pool:
        work = [
            Asked(kernel, regime, k, data_seed) for kernel in kernels for regime, k in columns for data_seed in range(given.cases)
        ]
        deepest_first = sorted(work, key=lambda asked: -asked.k)
        found = dict(zip(deepest_first, pool.map(outcomes, deepest_first), strict=True))
    tables = []
    for kernel in kernels:
        heads = [f"{kernel.rule.name}, {kernel.result.name} results", *(f"{regime}, K = {k}" for regime, k in columns)]
        rows = [heads]
        for number, fault in enumerate(ROWS):
            row = []
            for regime, k in columns:
                here = f"{fault.name}, {kernel.dtype} to {kernel.result.name}, K = {k}"
                if reason := no_fault_in(kernel, fault, k):
                    reasons[f"{here}: no fault: {reason}"] = None
                    row.append("-")
                    continue
                seen = Counter(found[Asked(kernel, regime, k, data_seed)][number] for data_seed in range(given.cases))
                failed = seen[Outcome.OUTSIDE_BOUND]
                if regime == "exact" and fault is not RIGHT and failed < given.cases and (reason := unseen(kernel, fault)):
                    reasons[f"{here}: not seen by `exact`: {reason}"] = None
                else:
                    bad += failed if fault is RIGHT else regime == "exact" and failed < given.cases
                row.append(place(seen))
            rows.append([fault.name, *row])
        tables.append(rows)
    print(as_markdown(kernels, tables) if given.markdown else "\n\n".join(as_text(rows) for rows in tables))
    print()
    print("\n".join(reasons))
    return int(bad > 0)


if __name__ == "__main__":
    run_script(main)
