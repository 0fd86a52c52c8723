"""Operand-space coverage of the block-scaled kernel, counted and shown.

`python -m bitverdict.harness.lab.pages.coverage [--target T] [--drawn N]` counts over the required cases, which every profile
judges, and over N drawn cases of a run (300 in the `ci` profile). Exit status 0 where everything required is reached, 1 where it is
not."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from bitverdict.harness.contracts.block_scaled_matmul import CONTRACT, COVER, has_format
from bitverdict.harness.contracts.oracle.dot_scaled_lowering import element_words, result_words, scaled_plan
from bitverdict.harness.lab.pages.reached_codes import SPREADS, ReachedCodes, reached_codes, scale_classes
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target, target
from bitverdict.kernels.scaled_operands import FORMATS

POSITIONS = 512  # of a packed block of scales
SCALE_CODES = 256
RESIDUES = 16  # of m, n and k, which Triton specialises on
MOST_WORDS = 1 << 17  # of a case whose operands are looked into


@dataclass
class CoverageCounts:
    """What some cases reached: by (format, side) for all `formats` of the target, and the residues of their sizes."""

    formats: tuple[str, ...] = tuple(FORMATS)
    sides: dict[tuple[str, str], ReachedCodes] = field(default_factory=dict)
    residues: dict[str, set[int]] = field(default_factory=lambda: {"m": set(), "n": set(), "k": set()})
    cases: int = 0

    def rows(self) -> list[tuple[str, ...]]:
        """One line for each format and side, numbers with what there is to reach."""
        lines: list[tuple[str, ...]] = []
        for (name, side), reach in sorted(self.sides.items()):
            f = FORMATS[name]
            codes = 1 << (4 if getattr(f, side) == "e2m1" else 8)
            pairs = codes * len(scale_classes(f.scale))
            lines.append(
                (name, side, f"{len(reach.element_codes)} of {codes}", f"{len(reach.scale_codes)} of {SCALE_CODES}",
                 f"{len(reach.pairs)} of {pairs}", f"{len(reach.positions)} of {POSITIONS}",
                 f"{len(reach.spreads)} of {len(SPREADS)}")
            )  # fmt: skip
        return lines

    def missing_lines(self) -> list[str]:
        """What is required and not reached, in words."""
        lines = []
        for name, side in ((name, side) for name in self.formats for side in "ab"):
            seen = self.sides.get((name, side), ReachedCodes())
            codes = 1 << (4 if getattr(FORMATS[name], side) == "e2m1" else 8)
            for quantity, count, required_count in (
                ("element codes", len(seen.element_codes), codes),
                ("scale codes", len(seen.scale_codes), SCALE_CODES),
                ("positions", len(seen.positions), POSITIONS),
            ):
                if count < required_count:
                    lines.append(f"{name} {side}: {count} of {required_count} {quantity}")
        for size, met in self.residues.items():
            if len(met) < self.possible(size):
                lines.append(f"{size}: {len(met)} of {self.possible(size)} residues")
        return lines

    def possible(self, size: str) -> int:
        """Residues that the formats allow: K of packed e2m1 is even."""
        return RESIDUES // 2 if size == "k" and "mxfp8" not in self.formats else RESIDUES


def count_coverage(cases: Iterable[Case], where: Target, *, only_cover: bool = False) -> CoverageCounts:
    """What `cases` reach on `where`; those that expect no result reach nothing. `only_cover`: of the others count the sizes
    only."""
    total = CoverageCounts(tuple(name for name in FORMATS if has_format(name, "fp32", where)))
    for case in cases:
        p = case.problem
        if not CONTRACT.expected_outcome(case, where).result or p.m * p.n > MOST_WORDS:
            continue
        total.cases += 1
        for size in ("m", "n", "k"):
            total.residues[size].add(getattr(p, size) % RESIDUES)
        if only_cover and case.regime not in COVER:
            continue
        for side, seen in _reach_of(case, where).items():
            total.sides.setdefault((p.format, side), ReachedCodes()).add(seen)
    return total


def _reach_of(case: Case, where: Target) -> dict[str, ReachedCodes]:
    p, f = case.problem, FORMATS[case.problem.format]
    operands = {operand.name: operand for operand in CONTRACT.operands(case)}
    a, b = CONTRACT.sides(case, operands)
    plan = scaled_plan(where.arch, f.a, f.b, f.scale, f.block_size)
    base = result_words(plan, p.out, where.arch, a.codes, a.scales, b.codes, b.scales)  # (M, N)

    def words(*sides: Any) -> Any:
        return element_words(plan, p.out, where.arch, *sides)

    sides = "ab" if case.regime not in COVER else case.regime[-1]  # a probe reaches little of its own
    elements = f.a, f.b
    return {
        side: reached_codes(side, a, b, base, words, elements=elements, scale=f.scale, block_size=f.block_size) for side in sides
    }


def format_table(total: CoverageCounts, title: str) -> str:
    """The table, as text."""
    head = ("format", "side", "element codes", "scale codes", "code x scale class", "packed positions", "exponent spreads")
    lines = [head, *total.rows()]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    body = "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)
    residues = ", ".join(f"{size} {len(seen)} of {total.possible(size)}" for size, seen in total.residues.items())
    return f"{title}: {total.cases} cases\n{body}\nresidues mod {RESIDUES}: {residues}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bitverdict.harness.lab.pages.coverage", description=__doc__)
    parser.add_argument("--target", default="emulated:sm_100")
    parser.add_argument("--drawn", type=int, default=0, metavar="N", help="drawn cases to count besides the required cases")
    options = parser.parse_args(arguments)
    where = target(options.target)
    cases = CONTRACT.required(where)
    if options.drawn:
        from bitverdict.harness.session.case_source import CaseSource

        cases = cases + CaseSource("block_scaled_matmul", where).drawn(options.drawn)
    total = count_coverage(cases, where)
    print(format_table(total, f"block_scaled_matmul on {where.name}"))
    for line in total.missing_lines():
        print(f"missing: {line}")
    return 1 if total.missing_lines() else 0


if __name__ == "__main__":
    sys.exit(main())
