"""Contract under test: the counts, the score and the matrix of a campaign of mutants, and the page that tells them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from bitverdict.harness.lab.pages.mutation_score import (
    Campaign,
    cases_worth,
    counted_by,
    goal,
    kills,
    kills_per_second,
    page,
    share,
)
from bitverdict.harness.model.contract import ExpectedOutcome
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.mutants.clauses import CLAUSES, OTHER_OUTCOME, REFUSAL, clause_of
from bitverdict.harness.mutants.counts import count_ends
from bitverdict.harness.mutants.record import End, GeneratedMutant, JudgedMutant, Kind, MutantResult, drawn

NEVER_FAIL = {"pass", "compiler fault", "out of memory", "not modelled", "inconclusive", "not run", "cancelled", "error"}


def judged(number: int, end: End, *, kernel: str = "softmax", clause: str = "the words", regime: str = "normal") -> JudgedMutant:
    killed = end is End.KILL
    mutant = GeneratedMutant(
        id=f"{kernel}/{number}", kernel=kernel, kind=Kind.SOURCE, operator="mask dropped", family="mask",
        file=f"kernels/{kernel}.py", line=number, before="mask=a | b", after="mask=a",
    )  # fmt: skip
    result = MutantResult(
        mutant=mutant.id, end=end, target="emulated:sm_90", killed_by="case" * killed, clause=clause * killed,
        regime=regime * killed,
    )  # fmt: skip
    return JudgedMutant(mutant, result)


SOME = [
    *(judged(number, End.KILL) for number in range(6)),
    judged(6, End.KILL, kernel="rope", clause="accesses lie inside", regime="wide/edges"),
    judged(7, End.SURVIVAL),
    judged(8, End.DOUBTFUL, kernel="rope"),
    judged(9, End.EQUIVALENT),
    judged(10, End.INVALID),
    judged(11, End.ERROR),
]


def test_the_score_counts_doubtful_ones_as_live_and_equivalent_ones_not() -> None:
    whole = count_ends(SOME)
    assert (whole.generated_count, whole.live, whole.killed_count, whole.score) == (12, 9, 7, 7 / 9)
    assert {name: (each.killed_count, each.live) for name, each in counted_by(SOME, lambda each: each.mutant.kernel).items()} == {
        "rope": (1, 2),
        "softmax": (6, 7),
    }
    assert count_ends([judged(0, End.EQUIVALENT)]).score is None


def test_a_share_is_rounded_down_so_that_all_means_all() -> None:
    assert share(count_ends([judged(number, End.KILL) for number in range(9999)] + [judged(0, End.SURVIVAL)])) == "99.9 %"
    assert share(count_ends([judged(0, End.KILL)])) == "100.0 %" and share(count_ends([])) == "-"


def test_kills_per_second_are_of_two_workers_once_they_are_warm() -> None:
    def lasted(number: int, seconds: float, end: End = End.KILL) -> JudgedMutant:
        found = judged(number, end)
        return JudgedMutant(found.mutant, replace(found.result, seconds=seconds))

    ends = [lasted(0, 100.0), lasted(1, 0.5), lasted(2, 250.0, End.SURVIVAL), lasted(3, 0.25), lasted(4, 0.25)]
    assert kills_per_second(ends) == 2 * 2 / 0.5
    assert kills_per_second(ends[2:3]) is None
    told = page(Campaign([*SOME, *ends], []))
    assert re.search(r"\| `softmax` \| - \| \d+\.\d \|", told)
    assert "| `rope` | - | - |" in told and re.search(r"\| median \| - \| \d+\.\d \|", told)


def test_kills_are_counted_by_clause_and_by_the_regime_of_values() -> None:
    assert kills(SOME) == {("the words", "normal"): 6, ("accesses lie inside", "wide"): 1}


def test_each_outcome_that_fails_breaks_one_clause() -> None:
    broken = [outcome for outcomes in CLAUSES.values() for outcome in outcomes]
    assert len(broken) == len(set(broken)) and set(Outcome) - set(broken) == NEVER_FAIL
    for outcome in broken:
        assert clause_of(Verdict(decision=Decision.FAIL, outcome=outcome)) not in (OTHER_OUTCOME, "")
    wrong = Verdict(decision=Decision.FAIL, outcome=Outcome.LAUNCHER_ERROR)
    assert clause_of(wrong) == "what is legal is launched"
    assert clause_of(wrong, ExpectedOutcome(result=False, outcome="refused")) == REFUSAL


def all_judged(mutant: str, *failed: str) -> MutantResult:
    """Of a mutant that every case judged."""
    end = End.KILL if failed else End.SURVIVAL
    return MutantResult(mutant=mutant, end=end, killed_by="".join(failed[:1]), also_killed_by=failed[1:])


def test_a_case_is_worth_what_it_fails_and_what_it_fails_alone() -> None:
    judged = {"m1": "ab", "m2": "ab", "m3": "b", "m4": "c", "m5": ""}
    found = cases_worth("abcd", [all_judged(mutant, *cases) for mutant, cases in judged.items()])
    assert found.kills == {"a": 2, "b": 3, "c": 1} and found.sole_kills == {"b": ("m3",), "c": ("m4",)}
    assert (found.enough, found.idle, found.mutants) == (("b", "c"), ("d",), 5)


def test_kinds_and_operators_take_turns_in_a_draw_that_stays_the_same() -> None:
    mutants = [
        replace(judged(number, End.KILL).mutant, kind=kind, operator=operator, id=f"{kind} {operator} {number}")
        for kind, operators in ((Kind.SOURCE, "ab"), (Kind.PROGRAM, "cd"))
        for operator in operators
        for number in range(3 if operator != "d" else 1)
    ]
    first = list(drawn(mutants))
    assert [each.operator for each in first] == list("cadbcacbab") and set(first) == set(mutants)
    assert first == list(drawn(reversed(mutants))) != list(drawn(mutants, seed=1))


def test_a_draw_of_a_users_kernel_is_the_same_wherever_its_file_lies() -> None:
    def numbers(folder: str) -> list[str]:
        mutants = [judged(number, End.KILL, kernel=f"{folder}/test_mine.py:test_mine").mutant for number in range(9)]
        return [each.id.rpartition("/")[2] for each in drawn(mutants)]

    assert numbers("/here") == numbers("/there/below")


@pytest.fixture(scope="module")
def printed() -> str:
    run = {"date": "2026-11-22", "commit": "abc", "machine": "two cores", "triton": "3.9.0", "mutants": "12"}
    worth = {"rope": cases_worth(("first", "second"), [all_judged("rope/m3", "second")])}
    lines = {"second": "rows=3 columns=40"}
    return page(Campaign(SOME, [run], {"rope": 22}, worth, lines, {"rope/8": "the sum is the same"}))


def test_the_page_tells_counts_by_kernel_and_over_all(printed: str) -> None:
    assert "| 2026-11-22 | abc | two cores | 3.9.0 | 12 |" in printed
    assert "| all | 12 | 1 | 1 | 1 | 9 | 7 | 1 | 1 | 77.7 % |" in printed
    assert "| `rope`, sm_90, 22 | 2 | 0 | 0 | 0 | 2 | 1 | 0 | 1 | 50.0 % |" in printed
    assert "| clause | normal | wide | all |" in printed and "| the words | 6 |  | 6 |" in printed


def test_the_page_says_whether_the_goal_was_met(printed: str) -> None:
    assert "Goal: 3,000 live mutants and 99 % of them killed: missed (9, 77.7 %)." in printed
    assert goal(count_ends([judged(number, End.KILL) for number in range(3000)])).endswith("met (3,000, 100.0 %).")
    assert "| the sum is the same | 1 |" in printed and "| not examined | 1 |" in printed


def test_the_page_names_each_survivor_with_its_line_and_reason(printed: str) -> None:
    assert r"| softmax/7 | `kernels/softmax.py:7` | `mask=a \| b` | `mask=a` | 0 | not examined |" in printed
    assert "| rope/8 | `kernels/rope.py:8` |" in printed and "| the sum is the same |" in printed


def test_the_page_tells_which_cases_alone_fail_a_mutant(printed: str) -> None:
    assert "| `rope` | 1 | 2 | 1 | 1 | 1 | 1 |" in printed and "| `rope` | rows=3 columns=40 | 1 | m3 |" in printed
