"""Shipped kernels whose PTX is executed beside the tile program."""

from __future__ import annotations

import re
from collections.abc import Callable

from bitverdict.harness.judge.devices import launched_with
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.ptx_machine.below_the_tile_program import PtxResult, PtxTwin

SM_80, SM_90, SM_100 = (target(f"emulated:{chip}") for chip in ("sm_80", "sm_90", "sm_100"))


def results(case: Case, rewrite: Callable[[str], str] = str, chip: Target = SM_80) -> list[PtxResult]:
    twin = PtxTwin(rewrite=rewrite)
    with launched_with(probes=(twin,)):
        verdict = judge(case, chip, resolve(case.contract), explained=False)
    assert verdict.outcome not in ("not run", "compiler fault"), verdict.message
    return twin.results


def required_case(stem: str, chip: Target = SM_80, **fields: object) -> Case:
    """A required case with at least 16 of each size, these fields, and something to compute."""
    for case in resolve(stem).required(chip):
        sizes = [size for name, size in vars(case.problem).items() if name in ("m", "n", "k", "columns")]
        case_fields = vars(case.problem) | (vars(case.config) if case.config else {})
        if min(sizes, default=16) >= 16 and all(case_fields[name] == value for name, value in fields.items()):
            return case
    raise AssertionError(f"{stem} has no such case")


def rewritten(before: str, after: str, places: slice = slice(None)) -> Callable[[str], str]:
    """Replaces what matches `before` in a PTX: `places` of its matches. AssertionError where nothing does."""

    def rewrite(text: str) -> str:
        matches = list(re.finditer(before, text))
        assert matches
        for found in matches[places][::-1]:
            text = text[: found.start()] + found.expand(after) + text[found.end() :]
        return text

    return rewrite
