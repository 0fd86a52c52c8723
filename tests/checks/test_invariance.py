"""Contract under test: equal calls give equal words and a row the same bits in any batch; what breaks that is named with its
cause, each by a kernel that does, beside one that does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bitverdict.harness.checks.invariance.batch import BY_PLACE
from bitverdict.harness.checks.invariance.calls import Promises
from bitverdict.harness.checks.invariance.examine import examine_case
from bitverdict.harness.checks.invariance.invariance_finding import CHECKS, End, InvarianceFinding
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Outcome
from bitverdict.harness.report.invariance.cases import choose_cases, plain_case
from bitverdict.harness.report.invariance.tasks import findings_of, verdict_on

KERNELS = Path(__file__).resolve().parents[1] / "support" / "invariant_rows.py"
OF_ROWS = Promises(batch_invariant=("rows",))
SM_90 = target("emulated:sm_90")
OF_PARTS = "squares is compiled with PARTS 2 -> 4"
OF_PARTS_EITHER = (OF_PARTS, "squares is compiled with PARTS 4 -> 2")  # a kernel that keeps state was called by other tests before


def case_of(name: str, rows: int = 21, columns: int = 36) -> tuple[Contract, Case]:
    contract = resolve(f"{KERNELS}:{name}")
    case = plain_case(contract.required(SM_90)[0])
    for size, value in (("rows", rows), ("columns", columns)):
        resized = contract.resized(case, size, value)
        assert resized is not None
        case = resized
    return contract, case


def found(name: str, *checks: str, promises: Promises = OF_ROWS) -> list[InvarianceFinding]:
    contract, case = case_of(name)
    return examine_case(case, SM_90, contract, None, frozenset(checks or CHECKS), 2, promises)


def differing(findings: list[InvarianceFinding]) -> Iterator[InvarianceFinding]:
    return (each for each in findings if each.end is not End.SAME_WORDS)


def test_a_kernel_whose_words_depend_on_the_row_alone_passes_each_check() -> None:
    findings = found("right")
    assert [each.sentence for each in differing(findings)] == []
    assert {each.check for each in findings} == {"repeat", "neighbours", "alignment", "schedules", "multiprocessors", "batch rows",
                                                 "position rows", "scale", "zeros columns"}  # fmt: skip
    assert all(each.compared for each in findings)


@pytest.mark.parametrize(
    ("kernel", "check", "changed", "cause"),
    [
        ("kept_state", "repeat", "a second call", OF_PARTS_EITHER),
        ("unwritten_memory", "neighbours", "other bytes beside the operands (1)", OF_PARTS),
        ("neighbour_row", "neighbours", "other bytes beside the operands (1)", OF_PARTS),
        ("alignment", "alignment", "each operand 32 bytes further", OF_PARTS),
        ("split_by_batch", "batch", "rows = 1 for 21, from 10", OF_PARTS),
        ("row_position", "batch", "rows = 1 for 21, from 10", "it launches squares instead of squares, squares"),
        ("row_position", "position", "the rows along rows in another order", BY_PLACE),
        ("small_constant", "scale", "x times 4: out times 2^4", "2^4 times as much is expected; the kernel adds or compares with"),
    ],
)
def test_each_dependence_fails_with_its_first_word_and_cause(
    kernel: str, check: str, changed: str, cause: str | tuple[str, ...]
) -> None:
    first = next(differing(found(kernel, check)))
    assert first.end is End.DIFFERS and first.fails, first.sentence
    assert (first.changed, first.output) == (changed, "out")
    assert first.cause.startswith(cause)  # one, or one of several
    assert first.got != first.other and 0 < first.differing <= first.compared


@pytest.mark.parametrize(
    ("kernel", "check", "promises", "cause"),
    [
        ("atomics", "schedules", Promises(), "a kernel updates memory by atomics"),
        ("atomics", "schedules", Promises(deterministic=True), "a kernel updates memory by atomics"),
        ("multiprocessors", "multiprocessors", Promises(), OF_PARTS),
        ("split_by_batch", "batch", Promises(batch_invariant=("columns",)), OF_PARTS),
    ],
)
def test_what_is_not_promised_is_information(kernel: str, check: str, promises: Promises, cause: str) -> None:
    first = next(differing(found(kernel, check, promises=promises)))
    assert (first.end, first.fails) == (End.DIFFERS, promises.deterministic)
    assert first.cause.startswith(cause)  # one, or one of several


def test_what_the_mathematics_does_not_imply_is_not_asked() -> None:
    reasons = {each.check: each.reason for each in found("mean_of_squares", "zeros", "batch")}
    assert reasons == {"batch rows": "", "zeros columns": "not implied: the mathematics of out at [0] is another"}
    not_scaled = next(differing(found("shifted", "scale")))
    assert (not_scaled.end, not_scaled.fails) == (End.NOT_APPLICABLE, False)
    assert not_scaled.reason.startswith("out is not homogeneous")


def test_zeros_that_change_the_order_of_a_sum_are_told_so() -> None:
    first = next(differing(found("split_by_columns", "zeros")))
    assert (first.end, first.fails) == (End.DIFFERS, False)
    assert first.cause == f"the sums are made in another order: {OF_PARTS}"


def test_no_zeros_are_put_behind_an_operand_that_repeats_one_row() -> None:
    """Its rows are one in memory: the zeros of one would be those of all, and the product zero."""
    contract = resolve("matmul")
    case = next(each for each in contract.required(SM_90) if each.problem.b.broadcast == "rows" and each.problem.k > 1)
    (zeros,) = (each for each in examine_case(case, SM_90, contract, None, frozenset({"zeros"})) if each.check == "zeros k")
    assert (zeros.end, zeros.reason) == (End.NOT_APPLICABLE, "b has stride 0 along k: zeros behind it would be all of it")


def test_a_promise_is_judged_in_each_case_of_a_run() -> None:
    contract, case = case_of("promised")
    assert judge(case, SM_90, contract).outcome is Outcome.PASS
    contract, case = case_of("broken_promise")
    verdict = judge(case, SM_90, contract)
    assert (verdict.failed, verdict.outcome) == (True, Outcome.NOT_INVARIANT)
    assert verdict.message.startswith("out: batch rows: 1 of 1 words differ, first at [10] of out:")
    contract, case = case_of("promised_order")
    assert judge(case, SM_90, contract).message.startswith("out: schedules: ")


def test_what_a_repeated_call_changes_is_the_cause_of_all_else() -> None:
    findings = found("kept_state", "repeat", "batch")
    batch = [each for each in findings if each.check == "batch rows" and each.end is End.DIFFERS]
    assert batch and {each.cause for each in batch} <= {
        f"a second call of the same case differs too: {of}" for of in OF_PARTS_EITHER
    }


def test_findings_go_through_json_and_decide_a_verdict() -> None:
    findings = found("split_by_batch", "batch")
    verdict = verdict_on(findings)
    assert verdict.failed and verdict.message.startswith("batch rows: 1 of 1 words differ")
    assert findings_of(verdict) == findings
    assert not verdict_on([replace(each, promised=False) for each in findings]).failed


def test_of_each_kind_of_case_the_largest_is_chosen() -> None:
    contract = resolve("softmax")
    cases = choose_cases(contract, contract.required(SM_90), SM_90)
    assert len({(case.config, case.problem.dtype) for case in cases}) == len(cases) > 4
    assert all(case.regime == "normal" and case.calls == 1 for case in cases)
    assert len(choose_cases(contract, contract.required(SM_90), SM_90, 3)) == 3


def test_configurations_with_other_words_are_told_by_their_fields() -> None:
    contract = resolve("softmax")
    case = plain_case(
        next(case for case in contract.required(SM_90) if case.problem.columns == 257 and case.problem.dtype == "fp32")
    )
    promises = Promises(batch_invariant=("configurations",))
    findings = examine_case(case, SM_90, contract, None, frozenset(["configurations", "position"]), 1, promises)
    other = next(each for each in differing(findings) if each.check == "configurations")
    assert (other.end, other.fails) == (End.DIFFERS, True)
    assert other.changed == "per_thread = 8 for 2, num_warps = 2 for 8"
    assert other.cause == "softmax_kernel is compiled with PER_THREAD 2 -> 8"
    assert next(each for each in findings if each.check == "position columns").cause == BY_PLACE


def test_a_size_that_breaks_a_clause_keeps_the_distance_of_rows() -> None:
    contract = resolve("hopper_matmul")
    case = next(case for case in contract.required(SM_90) if case.problem.n == 72)
    resized = contract.resized(case, "n", 64 - 1)
    assert resized is not None and contract.expected_outcome(resized, SM_90).result
    assert resized.problem.n + resized.problem.b_pad == case.problem.n + case.problem.b_pad
