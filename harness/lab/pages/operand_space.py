"""Which codes of their operands the required cases of kernels judge, and which pairs of codes of two factors.

`python -m bitverdict.harness.lab.pages.operand_space [STEM ...] [--target T]` counts over the required cases that give a
result. Exit status 0 where nothing required is missing, 1 where something is. Required are all codes of each 8-bit operand, and
all pairs of two 8-bit factors, each met alone in a sum (`bitverdict.harness.contracts.inputs.all_codes`). Of the kernels in
`CONVERTING` all codes of the 16-bit operands are. `bitverdict.harness.lab.pages.coverage` counts the block-scaled kernel's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from bitverdict.harness.contracts.inputs.all_codes import codes_met, met_alone
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
CONVERTING = ("quantize_mxfp", "swiglu")
"""Kernels that convert each element of an operand by itself."""
OTHERWISE = ("block_scaled_matmul",)
"""Kernels whose codes have scales, which decide what is judged."""


@dataclass
class Met:
    """What the cases of one kernel met: the codes of each (operand, format), and the pairs of each format."""

    codes: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)
    pairs: dict[str, np.ndarray] = field(default_factory=dict)

    def add(self, contract: Contract, case: Case) -> None:
        operands = {each.name: each for each in contract.operands(case)}
        for name, each in operands.items():
            if each.format in (*BYTES, *WORDS):
                width = 8 * each.codes.dtype.itemsize
                met = codes_met([each.codes], width)
                self.codes[name, each.format] = met | self.codes.get((name, each.format), np.zeros_like(met))
        factors = contract.factors(case, operands)
        if factors is None or not all(each.dtype.itemsize == 1 and each.size for each in factors):
            return
        kind = next(each.format for each in operands.values() if each.format in BYTES)
        met = met_alone(*factors)
        self.pairs[kind] = met | self.pairs.get(kind, np.zeros_like(met))


def met_by(contract: Contract, cases: Iterable[Case], where: Target) -> Met:
    """What `cases` meet, those that expect a result on `where`."""
    found = Met()
    for case in cases:
        if contract.expected_outcome(case, where).result and not is_far(case.problem):
            found.add(contract, case)
    return found


def lines(stem: str, met: Met) -> list[tuple[str, int, int, bool]]:
    """(what, how many are met, of how many, whether all are required) of a kernel."""
    found = []
    for (operand, kind), codes in sorted(met.codes.items()):
        required = kind in BYTES or stem in CONVERTING
        found.append((f"{stem}: codes of {operand} in {kind}", int(codes.sum()), codes.size, required))
    for kind, pairs in sorted(met.pairs.items()):
        found.append((f"{stem}: pairs of {kind}", int(pairs.sum()), pairs.size, True))
    return found


def never_judged(met: Met) -> list[str]:
    """The first codes and pairs of 8-bit formats that no case met, by name."""
    found = []
    for (operand, kind), codes in sorted(met.codes.items()):
        if kind in BYTES and not codes.all():
            found.append(f"{operand} in {kind}: {', '.join(told(kind, code) for code in np.flatnonzero(~codes)[:8])}")
    for kind, pairs in sorted(met.pairs.items()):
        missing = np.argwhere(~pairs)[:4].tolist()
        if missing:
            found.append(f"pairs of {kind}: {', '.join(f'{told(kind, a)} * {told(kind, b)}' for a, b in missing)}")
    return found


def told(kind: str, code: int) -> str:
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
    missing = 0
    for stem in given.stems or [each for each in kernels_with_a_contract() if each not in OTHERWISE]:
        contract = resolve(stem)
        if contract.lacking(where):
            print(f"{stem}: not run, {where.name} lacks {', '.join(sorted(contract.lacking(where)))}")
            continue
        met = met_by(contract, contract.required(where), where)
        for what, count, of, required in lines(stem, met):
            print(f"{what}: {count:,} of {of:,}" + ("" if required or count == of else " (not required)"))
            missing += required and count < of
        for said in never_judged(met):
            print(f"{stem}: never judged: {said}")
    return 1 if missing else 0


if __name__ == "__main__":
    leave(main())
