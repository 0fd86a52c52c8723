"""Contract under test: each mutant of a fixed list fails. `python -m benchmarks.mutation_fixed_list --out DIR` draws another list.

The list is renewed on purpose alone: where a kernel or the compiler changed so that edits no longer apply, or operators are new.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bitverdict.harness.emulator.releases import RELEASES, installed_release
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.contract import case_from_record
from bitverdict.harness.model.paths import ROOT, kernels_with_a_contract
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision
from bitverdict.harness.mutants.kernels import Kernel
from bitverdict.harness.mutants.mutant_judge import KernelUnderMutation
from bitverdict.harness.mutants.record import End, GeneratedMutant, Kind
from bitverdict.harness.report.required_lists import frozen_kernels

LISTED = json.loads((Path(__file__).parent / "fixed_list.json").read_text())
RENEW = "renew the list, if the change is meant: python -m benchmarks.mutation_fixed_list --out DIR"


def as_it_stands(mutant: dict) -> dict:
    """The record of a source mutant with its edit where the text stands today: what stands above it may have grown or shrunk."""
    edit = mutant["edit"]
    if "of" not in edit:
        return mutant
    places = [each.start() for each in re.finditer(re.escape(edit["of"]), (ROOT / mutant["file"]).read_text())]
    start = min(places, key=lambda place: abs(place - edit["start"]), default=edit["start"])
    return mutant | {"edit": edit | {"start": start, "end": start + len(edit["of"])}}


@pytest.mark.share(4)
@pytest.mark.parametrize("listed", LISTED, ids=lambda listed: listed["kernel"])
def test_each_mutant_of_the_fixed_list_fails(listed: dict) -> None:
    kernel = KernelUnderMutation(Kernel(listed["kernel"]), target(listed["target"]))
    case = case_from_record(kernel.right, dict(listed["case"]))
    verdict = judge(case, kernel.target, kernel.right)
    assert verdict.decision is Decision.PASS, verdict.message
    survived = []
    for each in listed["mutants"]:
        mutant = GeneratedMutant.from_json(as_it_stands(each["mutant"]))
        if installed_release().name != RELEASES[-1].name and mutant.kind is Kind.PROGRAM:
            if not any(kernel.programs.touched_cases(mutant, [case])):
                continue  # the list was drawn from what the newest release compiles: another's program lacks the place
        result = kernel.judge(mutant, [case], proofs=False)
        if result.end is not End.KILL:
            survived.append(f"{each['mutant']['id']} was killed by {each['outcome']!r}: {result.end} {result.why}")
    assert not survived, "\n".join([*survived, RENEW])


def test_the_fixed_list_has_two_hundred_mutants_of_every_kernel() -> None:
    mutants = [each["mutant"] for listed in LISTED for each in listed["mutants"]]
    assert len(mutants) == len({each["id"] for each in mutants}) == 200
    assert set(frozen_kernels()) <= {each["kernel"] for each in mutants} <= set(kernels_with_a_contract()), RENEW
    assert len({each["operator"] for each in mutants}) >= 20 and {each["kind"] for each in mutants} == {"source", "program"}
