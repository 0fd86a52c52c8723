"""Contract under test: what each kernel is asked in every run reaches the turns of its ring, its element types and its refusals."""

from __future__ import annotations

from collections import defaultdict
from types import ModuleType

import pytest

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.lab.pages.mutation_score import newest_emulated
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Decision

OLDER = {"ampere_gemm": "sm_80", "matmul": "sm_90"}  # where they are judged; others on the newest target that has their features


def machine(stem: str) -> Target:
    return target(f"emulated:{OLDER[stem]}") if stem in OLDER else newest_emulated(resolve(stem))


@pytest.mark.parametrize(("stem", "slots"), [("ampere_gemm", 4), ("hopper_matmul", 3), ("hopper_matmul", 1),
                                             ("blocked_matmul_pipelined", 2)])  # fmt: skip
def test_a_ring_is_asked_fewer_blocks_than_slots_as_many_and_more(stem: str, slots: int) -> None:
    """In one configuration: nothing else of the launch differs."""
    contract, asked = resolve(stem), defaultdict(set)
    for case in contract.required(machine(stem)):
        if contract.expected_outcome(case, machine(stem)).result and getattr(case.config, "stages", slots) == slots:
            asked[case.config].add(case.problem.k / case.config.block_k)
    many = 2 * slots if stem == "hopper_matmul" else slots  # the phase of each of its barriers turns twice
    assert any(set(range(1, slots + 1)) <= blocks and max(blocks) > many for blocks in asked.values()), asked


@pytest.mark.parametrize(
    "stem", [stem for stem in kernels_with_a_contract() if isinstance(getattr(resolve(stem), "module", None), ModuleType)]
)
def test_each_refusal_of_the_required_cases_are_the_launchers_own(stem: str) -> None:
    contract, where = resolve(stem), machine(stem)
    refused = [case for case in contract.required(where) if contract.expected_outcome(case, where).layer == "launcher"]
    assert refused
    for case in refused:
        verdict = judge(case, where, contract)
        assert verdict.decision is Decision.PASS, (case, verdict.message)


@pytest.mark.parametrize(
    "stem", [stem for stem in kernels_with_a_contract() if hasattr(resolve(stem).module, "DTYPES") and stem != "matmul"]
)
def test_every_element_type_that_a_kernel_takes_is_drawn(stem: str) -> None:
    contract = resolve(stem)
    assert {problem["dtype"] for problem, _ in contract.pool(machine(stem))} == set(contract.module.DTYPES)


def test_narrow_elements_are_copied_packed_and_not_and_wide_ones_never() -> None:
    contract, where = resolve("tmem_copy"), machine("tmem_copy")
    kinds = {(dtype, packed) for dtype in contract.module.DTYPES for packed in (False, True)} - {("fp32", True), ("int32", True)}
    assert {(problem["dtype"], config["packed"]) for problem, config in contract.pool(where)} == kinds
    asked = [case for case in contract.required(where) if contract.expected_outcome(case, where).result]
    assert {(case.problem.dtype, case.config.packed) for case in asked} == kinds
