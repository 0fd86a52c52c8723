"""Contract under test: options that choose instructions and no words are held to the tile programs of emulated launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bitverdict.harness.checks.promised_instructions import broken_promise, count_of
from bitverdict.harness.contracts import fused_gather_scatter_matmul, small_mma, tmem_copy, warp_specialized_matmul
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.judge.launch import launch
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import PromisedInstruction
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Outcome

SM_100 = target("emulated:sm_100")
CONTRACTS: dict[str, Any] = {
    "small_mma": small_mma.CONTRACT,
    "tmem_copy": tmem_copy.CONTRACT,
    "fused_gather_scatter_matmul": fused_gather_scatter_matmul.CONTRACT,
    "warp_specialized_matmul": warp_specialized_matmul.CONTRACT,
}


def first_case(stem: str, **options: Any) -> Case:
    """The first required case of `stem` with `options`."""
    having = (
        case
        for case in CONTRACTS[stem].required(SM_100)
        if all(getattr(case.config, name) == value for name, value in options.items())
    )
    return next(case for case in having if CONTRACTS[stem].expected_outcome(case, SM_100).result)


def launching_with(stem: str, **options: Any) -> Any:
    """The contract of `stem` with a launcher that takes `options` in place of the case's."""
    right = CONTRACTS[stem]

    class Deaf(type(right)):  # type: ignore[misc]
        def launch(self, case: Case, tensors: Mapping, launcher: Any) -> Mapping:
            return super().launch(replace(case, config=replace(case.config, **options)), tensors, launcher)

    return Deaf(right.module)


@pytest.mark.parametrize(
    ("stem", "asked", "taken", "said"),
    [
        ("small_mma", {"completion": "commit"}, {"completion": "barrier"}, "0 ttng.tc_gen5_commit; completion=commit promises 1"),
        ("small_mma", {"completion": "barrier"}, {"completion": "conditional"},
         "2 barriers of ttng.tc_gen5_mma; completion=barrier promises 1"),
        ("small_mma", {"left": "tensor memory"}, {"left": "shared"}, "1 ttng.tmem_alloc; left=tensor memory promises 2"),
        ("tmem_copy", {"filled_by": "tcgen05.cp"}, {"filled_by": "tcgen05.st"},
         "0 ttng.tmem_copy; filled_by=tcgen05.cp promises 1"),
        ("tmem_copy", {"parts": 2, "filled_by": "tcgen05.st"}, {"parts": 1},
         "1 ttng.tmem_store; filled_by=tcgen05.st, parts=2 promises 2"),
    ],
)  # fmt: skip
def test_right_words_by_other_instructions_than_asked_fail(stem: str, asked: dict, taken: dict, said: str) -> None:
    case = first_case(stem, **asked)
    assert judge(case, SM_100, CONTRACTS[stem]).decision is Decision.PASS
    verdict = judge(case, SM_100, launching_with(stem, **taken))
    assert (verdict.decision, verdict.outcome) == (Decision.FAIL, Outcome.OTHER_INSTRUCTIONS), verdict
    remedy = "let the launcher hand the option on to the kernel as it was given"
    assert verdict.message == f"{stem}_kernel: its tile program has {said}; {remedy}"


@pytest.mark.parametrize(
    ("stem", "asked", "taken", "said"),
    [
        ("warp_specialized_matmul", {"schedule": "grouped", "programs": 2}, {"schedule": "one tile"},
         "10 programs were launched; schedule=grouped, programs=2 promises 2; launch as many programs as have something to do"),
        ("warp_specialized_matmul", {"schedule": "grouped", "programs": 2}, {"schedule": "row-major"},
         "GROUP_M = 1; schedule=grouped, group_size_m=2 promises 2; let the launcher hand the option on to the kernel as it was "
         "given"),
        ("fused_gather_scatter_matmul", {"num_buffers": 3}, {"num_buffers": 4},
         "it executed 3 ttng.tc_gen5_mma; each tile once promises 2; take each tile once, and no block that adds nothing"),
    ],
)  # fmt: skip
def test_right_words_by_other_work_than_promised_fail(stem: str, asked: dict, taken: dict, said: str) -> None:
    verdict = judge(first_case(stem, **asked), SM_100, launching_with(stem, **taken))
    assert (verdict.decision, verdict.outcome) == (Decision.FAIL, Outcome.OTHER_INSTRUCTIONS), verdict
    assert verdict.message == f"{stem}_kernel: {said}"


def test_a_users_launcher_is_held_to_no_instruction() -> None:
    def mine(source: Any, num_warps: int, block_m: int, block_n: int) -> Any:
        return tmem_copy.CONTRACT.module.tmem_copy(source, num_warps=num_warps, block_m=block_m, block_n=block_n)

    case = replace(first_case("tmem_copy", filled_by="tcgen05.cp"), launcher="mine.py:mine")
    operands = {each.name: each for each in tmem_copy.CONTRACT.operands(case)}
    seen = launch(case, SM_100, tmem_copy.CONTRACT, mine, operands, Clock())
    assert (seen.outcome, seen.launches, seen.broken_promise) == (None, 1, "")


def test_operations_and_their_barriers_are_counted_by_name() -> None:
    program = """
    %5 = "ttng.tc_gen5_mma"(%a, %b, %d, %1, %1, %x, %1) <{is_async, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 1, 1>}>
    %6 = "ttng.tc_gen5_mma"(%a, %b, %d, %1, %1) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 0, 0>}>
    %7 = "ttng.tc_gen5_mma_scaled"(%a, %b, %d, %1, %1)
    """
    assert count_of("ttng.tc_gen5_mma", program) == 2
    assert count_of("barriers of ttng.tc_gen5_mma", program) == 1
    assert count_of("ttng.tc_gen5_commit", program) == 0


@pytest.mark.parametrize(
    ("chip", "executed", "kept"), [("hip:gfx950", 7, True), ("hip:gfx950", 4, False), ("cuda:100", 4, True), ("cuda:100", 7, False)]
)
def test_only_amds_compiler_peels_steps_that_it_drops(chip: str, executed: int, kept: bool) -> None:
    promised = PromisedInstruction("executed math.exp2", 4, "causal=True", "k", source_count=1, peeled_count=3)
    program = f'"math.exp2"(%a) "math.exp2"(%b) {{ttg.target = "{chip}"}}'
    launched = SimpleNamespace(name="k", program=program, operations=Counter({"math.exp2": executed}))
    assert (broken_promise([promised], [launched]) == "") is kept
