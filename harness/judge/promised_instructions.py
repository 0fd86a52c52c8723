"""Whether emulated launches hold the instructions that the options of a case promise (`Contract.promised_instructions`).

An option that chooses how a kernel waits, or what fills its memory, changes no word. It is read in the tile program instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from bitverdict.harness.model.contract import PromisedInstruction

BARRIERS = "barriers of "
_SEGMENTS = r'"{}"\([^)]*\) <\{{[^}}]*operandSegmentSizes = array<i32: ([^>]*)>'
_BARRIER_SEGMENT = 6  # of ttng.tc_gen5_mma: a, b, d, token, accumulate, predicate, barriers, their predicates


def broken_promise(promised: Iterable[PromisedInstruction], launches: Iterable[Any]) -> str:
    """The first of `promised` that a tile program of emulated `launches` breaks: its value, the rule, a remedy. Empty: none."""
    launched = list(launches)
    for each in promised:
        for launch in launched:
            if (found := count_of(each.operation, launch.program)) != each.count:
                return (
                    f"{launch.name}: its tile program has {found} {each.operation}; {each.option} promises {each.count}; "
                    "let the launcher hand the option on to the kernel as it was given"
                )
    return ""


def count_of(operation: str, program: str) -> int:
    """How many of `operation` the text of a tile program has, in MLIR's generic form."""
    name = operation.removeprefix(BARRIERS)
    if name == operation:
        return program.count(f'"{name}"(')
    return sum(int(sizes.split(",")[_BARRIER_SEGMENT]) for sizes in re.findall(_SEGMENTS.format(re.escape(name)), program))
