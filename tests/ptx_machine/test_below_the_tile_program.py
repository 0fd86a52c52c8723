"""Contract under test: the PTX of shipped kernels leaves the words of their tile programs, and a fault put into the PTX is seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bitverdict.harness.judge.devices import launched_with
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Outcome
from bitverdict.harness.ptx_machine import below_the_tile_program
from bitverdict.harness.ptx_machine.below_the_tile_program import PtxResult, PtxTwin

SM_80 = target("emulated:sm_80")


def results(case: Case, rewrite: Callable[[str], str] = str) -> list[PtxResult]:
    twin = PtxTwin(rewrite=rewrite)
    with launched_with(probes=(twin,)):
        judge(case, SM_80, resolve(case.contract), explained=False)
    return twin.results


def required_case(stem: str, **fields: object) -> Case:
    """A required case with at least 16 of each size, these fields, and something to compute."""
    for case in resolve(stem).required(SM_80):
        sizes = [size for name, size in vars(case.problem).items() if name in ("m", "n", "k", "columns")]
        case_fields = vars(case.problem) | vars(case.config)
        if min(sizes) >= 16 and all(case_fields[name] == value for name, value in fields.items()):
            return case
    raise AssertionError(f"{stem} has no such case")


@pytest.mark.parametrize("stem", ["softmax", "matmul", "ampere_gemm", "quantize_mxfp"])
def test_ptx_of_a_shipped_kernel_leaves_the_same_words(stem: str) -> None:
    seen = results(required_case(stem))
    assert seen and all(result.words and not result.difference and not result.not_run for result in seen)


RING = required_case("ampere_gemm", k=137, stages=4, fragments="ldmatrix")  # of which three blocks are in flight


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("bar.sync \t0;", "", "race"),
        ("cp.async.wait_group \t2;", "cp.async.wait_group 3;", "race"),
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
            "@%p0 mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
            "differ",
        ),
    ],
    ids=["a dropped barrier", "a wrong wait", "a product under a wrong predicate"],
)
def test_a_fault_below_the_tile_program_is_seen(before: str, after: str, said: str) -> None:
    def rewrite(text: str) -> str:
        assert before in text
        return text.replace(before, after)

    assert said in results(RING, rewrite)[0].difference


def test_a_case_says_that_its_ptx_ran_and_fails_where_it_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    case = replace(required_case("softmax"), ptx=True)
    verdict = judge(case, SM_80, explained=False)
    assert verdict.outcome is Outcome.PASS and verdict.details["words of PTX"] > 0
    real = below_the_tile_program.kernel_program
    monkeypatch.setattr(below_the_tile_program, "kernel_program", lambda text: real(text.replace("ex2.approx", "lg2.approx")))
    verdict = judge(case, SM_80, explained=False)
    assert verdict.outcome is Outcome.COMPILER_FAULT and "by its PTX" in verdict.message


def test_a_case_whose_ptx_is_not_executed_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    real = below_the_tile_program.kernel_program
    monkeypatch.setattr(
        below_the_tile_program,
        "kernel_program",
        lambda text: real(text.replace("\tret;", "\tistypep.texref %p1, %rd1;\n\tret;")),
    )
    verdict = judge(replace(required_case("softmax"), ptx=True), SM_80, explained=False)
    assert verdict.outcome is Outcome.PASS and any("its PTX was not executed" in line for line in verdict.advice)
