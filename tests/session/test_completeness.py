"""Contract under test: what a launcher is not asked is told, and one that is sealed and takes next to nothing does not pass."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from bitverdict.harness.frontends.public import test as bv_test
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import REFUSED_BY, Decision, Outcome, Verdict
from bitverdict.harness.session import tally
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.tables import show

HOPPER = target("emulated:sm_90")
TUTORIAL = f"{Path(__file__).parents[2] / 'docs' / 'examples' / 'tutorial_matmul.py'}:matmul"
MODULE_TEST = bv_test(TUTORIAL, like="matmul", requires=lambda m: m == 64)
OTHER_TEST = bv_test(TUTORIAL, like="matmul")
RIGHT = Verdict(decision=Decision.PASS, outcome=Outcome.PASS, words=1)
REFUSED = Verdict(decision=Decision.PASS, outcome=Outcome.REFUSED)
LACKS = Verdict(decision=Decision.NOT_RUN, outcome=Outcome.NOT_RUN, message="emulated:sm_90 lacks TMA")


@pytest.fixture
def come_to(tmp_path: Path) -> Callable[..., tally.Tally]:
    """What the required cases of a launcher with these attributes come to, where `judged` says what each comes to."""

    def run(attributes: str, stem: str = "matmul", judged: Callable[[Case], Verdict] = lambda case: RIGHT, **asked) -> tally.Tally:
        file = tmp_path / "candidate.py"
        file.write_text(f"def f(*operands, **keywords): ...\n{attributes}\n")
        source = CaseSource(stem, HOPPER, launcher=f"{file}:f", **{"is_sealed": True} | asked)
        return counted(source, source.required(), judged)

    return run


def counted(source: CaseSource, cases: list[Case], judged: Callable[[Case], Verdict] = lambda case: RIGHT) -> tally.Tally:
    found, strict = tally.Tally(), source.is_sealed and not source.claims_accepted
    found.completeness.take(source.name, HOPPER, source.contract, source.plain_cases(), source.required(), strict=strict)
    found.require(source.name, HOPPER.name, source.required())
    for case in cases:
        found.count(case, source.name, HOPPER.name, {}, judged(case))
    return found


LITTLE = {
    "one size": ("f.requires = lambda n: n == 33", "ampere_gemm", "judged at "),
    "one shape": (
        "f.requires = lambda rows, columns: rows == columns == 1",
        "rms_norm",
        "judged at rows = 1 and columns = 1 alone",
    ),
    "one row": ("f.requires = lambda rows: rows == 1", "softmax", "judged at rows = 1 "),
    "a list of sizes": (
        "f.requires = lambda sizes: sizes == ((3, 5, 7),)",
        "grouped_matmul",
        "judged at sizes = ((3, 5, 7),) alone",
    ),
}


@pytest.mark.parametrize("kind", LITTLE)
def test_a_sealed_launcher_that_takes_one_size_does_not_pass(kind: str, come_to: Callable[..., tally.Tally]) -> None:
    attributes, stem, said = LITTLE[kind]
    found = come_to(attributes, stem)
    assert found.status() == tally.INCONCLUSIVE and f"candidate.py:f on emulated:sm_90: {said}" in found.sentence()
    assert come_to(attributes, stem, claims_accepted=True).status() == tally.PASS


def test_what_a_trusted_launcher_says_of_itself_is_told_and_holds(come_to: Callable[..., tally.Tally]) -> None:
    found = come_to("f.requires = lambda columns: columns == 1", "softmax", is_sealed=False)
    assert found.status() == tally.PASS and "not judged" not in found.sentence()
    assert "columns of multiples of 16" in "".join(found.completeness.lines())


PART = {
    "all": ("", "matmul", ""),
    "more": ("f.claims = ('bf16', 'strides')", "matmul", ""),
    "aligned sizes": ("f.requires = lambda k: k % 32 == 0", "matmul", "not judged: candidate.py:f: k of no multiple of 16"),
    "one type": ("f.requires = lambda dtype: dtype == 'fp32'", "softmax", "16 of 24 required cases, dtype fp16, bf16"),
    "no padding": ("f.requires = lambda x_pad: x_pad == 0", "softmax", ", x_pad other than 0"),
}


@pytest.mark.parametrize("kind", PART)
def test_what_else_it_does_not_take_is_named_in_the_last_line(kind: str, come_to: Callable[..., tally.Tally]) -> None:
    attributes, stem, said = PART[kind]
    found = come_to(attributes, stem)
    assert found.status() == tally.PASS and (said in found.sentence() if said else "not judged" not in found.sentence())


@pytest.mark.parametrize("answer", [REFUSED, LACKS])
def test_cases_that_it_refuses_count_as_not_asked(answer: Verdict, come_to: Callable[..., tally.Tally]) -> None:
    """As a candidate that may refuse sizes of 0, and one whose target has no room for a case."""
    found = come_to("", "softmax", lambda case: RIGHT if case.problem.rows == 1 else answer)
    assert found.status() == tally.INCONCLUSIVE and "judged at rows = 1 alone" in found.sentence()
    assert " of 24 required cases in which no word was compared" in found.sentence()
    some = come_to("", "softmax", lambda case: RIGHT if case.problem.dtype == "fp32" else answer)
    assert some.status() == tally.PASS


def test_a_launcher_that_refuses_all_is_open_or_did_not_run(come_to: Callable[..., tally.Tally]) -> None:
    refused = come_to("", "softmax", lambda case: REFUSED)
    assert refused.status() == tally.INCONCLUSIVE and "judged at nothing alone" in refused.sentence()
    assert come_to("", "softmax", lambda case: LACKS).status() == tally.NOTHING_RAN


def test_a_feature_that_a_candidate_says_to_need_now_and_then_is_open(come_to: Callable[..., tally.Tally]) -> None:
    """Its compiler is its own: the wrong cases are those that it does not let run."""
    says = replace(LACKS, details={REFUSED_BY: "front end"})

    def answer(case: Case) -> Verdict:
        return says if case.problem.dtype == "fp32" else RIGHT

    found = come_to("", "softmax", answer)
    assert found.status() == tally.INCONCLUSIVE
    assert "8 cases did not run, since it says that the target lacks a feature; accept it by" in found.sentence()
    for taken in ({"is_sealed": False}, {"claims_accepted": True}):
        assert come_to("", "softmax", answer, **taken).status() == 0
    assert come_to("", "softmax", lambda case: says).status() == tally.NOTHING_RAN


def test_a_launcher_that_takes_nothing_does_not_pass(come_to: Callable[..., tally.Tally]) -> None:
    found = come_to("f.requires = lambda rows: False", "softmax")
    assert found.status() == tally.INCONCLUSIVE and "judged at nothing alone" in found.sentence()


def test_generated_cases_count_too(tmp_path: Path) -> None:
    """Few of its required cases meet both, and the sizes vary in those that are drawn."""
    (tmp_path / "candidate.py").write_text("def f(x): ...\nf.requires = lambda x_pad, columns: x_pad == 0 and columns % 16 == 0")
    source = CaseSource("softmax", HOPPER, launcher=f"{tmp_path / 'candidate.py'}:f", is_sealed=True)
    required = source.required()
    assert "judged at rows = 2 and columns = 16 alone" in counted(source, required).sentence()
    more = [replace(case, problem=replace(case.problem, rows=3, columns=32)) for case in required]
    assert counted(source, [*required, *more]).status() == tally.PASS


def test_what_the_user_asks_for_is_no_claim_of_the_launchers(come_to: Callable[..., tally.Tally]) -> None:
    assert come_to("", "softmax", keeps=lambda case: case.problem.rows == 1).status() == tally.PASS
    named = MODULE_TEST.__bitverdict__(HOPPER)  # type: ignore[attr-defined]
    assert named.claims_accepted and not OTHER_TEST.__bitverdict__(HOPPER).claims_accepted  # type: ignore[attr-defined]


def test_the_report_and_its_json_have_what_was_left_out(come_to: Callable[..., tally.Tally]) -> None:
    found = come_to("f.requires = lambda dtype: dtype == 'fp32'", "softmax", is_sealed=False)
    page = Console(width=140, record=True, file=io.StringIO())
    show(page, found, 1.0)
    assert "candidate.py:f: not judged: 16 of 24 required cases, dtype fp16, bf16" in page.export_text()
    (told,) = found.to_json()["completeness"]
    assert told["not_judged"] == ["16 of 24 required cases", "dtype fp16, bf16"] and (told["required"], told["plain"]) == (8, 24)
