"""Which codes of their operands the required cases of kernels judge, and which pairs of codes of two factors.

`python -m bitverdict.harness.lab.pages.operand_space [STEM ...] [--target T]` counts over the required cases that give a
result. Exit status 0 where nothing required is missing, 1 where something is. Required are all codes of each 8-bit operand, and
all pairs of two 8-bit factors, each met alone in a sum (`bitverdict.harness.contracts.inputs.all_codes`). Of the kernels in
`CONVERTING_KERNELS` all codes of the 16-bit operands are. `bitverdict.harness.lab.pages.coverage` counts the block-scaled kernel's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.launcher_limits import is_far
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.supervision import leave
from bitverdict.harness.model.targets import Target, target
from bitverdict.reference.formats import FORMATS

BYTES = ("e4m3", "e5m2", "int8")
WORDS = ("fp16", "bf16")
CONVERTING_KERNELS = ("quantize_mxfp", "swiglu")
"""Kernels that convert each element of an operand by itself."""
OTHERWISE = ("block_scaled_matmul",)
"""Kernels whose codes have scales, which decide what is judged."""


def pairs_met_alone(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(256, 256) whether a product of each pair of 8-bit codes is the only one of a sum: a (M, K), b (N, K), zero is the code 0."""
    met_pairs = np.zeros((256, 256), bool)
    there = (a != 0).any(axis=0) & (b != 0).any(axis=0)  # (K,)
    if there.sum() == 1:
        k = int(np.argmax(there))
        left, right = (np.unique(side[:, k].view(np.uint8)) for side in (a, b))
        met_pairs[np.ix_(left, right)] = True
    return met_pairs


def codes_met(operands: Iterable[np.ndarray], width: int) -> np.ndarray:
    """(2^width,) whether each code is one of those of `operands`."""
    met = np.zeros(1 << width, bool)
    for codes in operands:
        met[np.unique(np.ascontiguousarray(codes).view(f"u{codes.dtype.itemsize}"))] = True
    return met


@dataclass
class CodeCoverage:
    """What the cases of one kernel met: the codes of each (operand, format), and the pairs of each format."""

    codes: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)
    pairs: dict[str, np.ndarray] = field(default_factory=dict)

    def add(self, contract: Contract, case: Case) -> None:
        operands = {operand.name: operand for operand in contract.operands(case)}
        for name, operand in operands.items():
            if operand.format in (*BYTES, *WORDS):
                width = 8 * operand.codes.dtype.itemsize
                met_codes = codes_met([operand.codes], width)
                self.codes[name, operand.format] = met_codes | self.codes.get((name, operand.format), np.zeros_like(met_codes))
        factors = contract.factors(case, operands)
        if factors is None or not all(operand.dtype.itemsize == 1 and operand.size for operand in factors):
            return
        kind = next(operand.format for operand in operands.values() if operand.format in BYTES)
        met_codes = pairs_met_alone(*factors)
        self.pairs[kind] = met_codes | self.pairs.get(kind, np.zeros_like(met_codes))


def measure_coverage(contract: Contract, cases: Iterable[Case], where: Target) -> CodeCoverage:
    """What `cases` meet, those that expect a result on `where`."""
    found = CodeCoverage()
    for case in cases:
        if contract.expected_outcome(case, where).result and not is_far(case.problem):
            found.add(contract, case)
    return found


def lines(stem: str, coverage: CodeCoverage) -> list[tuple[str, int, int, bool]]:
    """(what, how many are met, of how many, whether all are required) of a kernel."""
    line_list = []
    for (operand, kind), codes in sorted(coverage.codes.items()):
        required = kind in BYTES or stem in CONVERTING_KERNELS
        line_list.append((f"{stem}: codes of {operand} in {kind}", int(codes.sum()), codes.size, required))
    for kind, pairs in sorted(coverage.pairs.items()):
        line_list.append((f"{stem}: pairs of {kind}", int(pairs.sum()), pairs.size, True))
    return line_list


def unjudged_lines(coverage: CodeCoverage) -> list[str]:
    """The first codes and pairs of 8-bit formats that no case met, by name."""
    line_list = []
    for (operand, kind), codes in sorted(coverage.codes.items()):
        if kind in BYTES and not codes.all():
            line_list.append(f"{operand} in {kind}: {', '.join(describe_code(kind, code) for code in np.flatnonzero(~codes)[:8])}")
    for kind, pairs in sorted(coverage.pairs.items()):
        missing = np.argwhere(~pairs)[:4].tolist()
        if missing:
            line_list.append(
                f"pairs of {kind}: {', '.join(f'{describe_code(kind, a)} * {describe_code(kind, b)}' for a, b in missing)}"
            )
    return line_list


def describe_code(kind: str, code: int) -> str:
    """A code and its value: ``0x38 (1)``."""
    if kind == "int8":
        return f"{code:#04x} ({np.uint8(code).view(np.int8)})"
    from bitverdict.reference.formats import decode

    return f"{code:#04x} ({decode(FORMATS[kind], np.array([code], np.uint8))[0]:g})"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bitverdict.harness.lab.pages.operand_space", description=__doc__)
    parser.add_argument("stems", nargs="*", metavar="STEM", help="kernels (default: all)")
    parser.add_argument("--target", default="emulated:sm_100")
    given = parser.parse_args(arguments)
    where = target(given.target)
    missing_count = 0
    for stem in given.stems or [each for each in kernels_with_a_contract() if each not in OTHERWISE]:
        contract = resolve(stem)
        if contract.lacking(where):
            print(f"{stem}: not run, {where.name} lacks {', '.join(sorted(contract.lacking(where)))}")
            continue
        met = measure_coverage(contract, contract.required(where), where)
        for what, count, of, required in lines(stem, met):
            print(f"{what}: {count:,} of {of:,}" + ("" if required or count == of else " (not required)"))
            missing_count += required and count < of
        for said in unjudged_lines(met):
            print(f"{stem}: never judged: {said}")
    return 1 if missing_count else 0


if __name__ == "__main__":
    leave(main())
