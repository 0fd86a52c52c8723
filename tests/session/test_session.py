"""Contract under test: one session chooses, counts, reduces and stores alike for command line and pytest, whatever the order in
which verdicts arrive. A run that dies at any record of its journal goes on to the results of an undisturbed one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bitverdict.harness.frontends.pytest_nodes import Node, NodeJudge
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.judge.machine_faults import MachineFault
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.session import tally
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.profiles import PROFILES, Profile
from bitverdict.harness.session.resume import Past, past
from bitverdict.harness.session.session import MOST_BUGS, Session
from bitverdict.harness.session.shrink import KernelFailed
from tests.support.fake_runs import (
    OUTCOMES,
    PLAIN,
    Died,
    FakeClock,
    FakeJournal,
    FakePool,
    Seen,
    by_size,
    came_to,
    sources,
    verdict,
    whole,
)
from tests.support.vector_add import ADDRESS, HOST


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


# --- choose and count


def test_required_cases_come_first_in_turns_then_generated_ones() -> None:
    asked = [(where.name[-1], case.problem.n) for case, where in Session(FakePool(), PLAIN, max_cases=4).choose(sources(2, 3))]
    assert asked == [("0", 0), ("1", 0), ("0", 1), ("1", 1), ("1", 2), ("0", 100), ("1", 100), ("0", 101)]


def test_cases_are_told_ahead_as_they_are_dealt_before_the_first_is_judged() -> None:
    told: list[list[int]] = []
    session = Session(FakePool(), PLAIN, max_cases=4, expect_cases=lambda dealt: told.append([case.problem.n for case, _ in dealt]))
    asked = [(case.problem.n, len(told)) for case, _ in session.choose(sources(2, 3))]
    assert told == [[0, 0, 1, 1, 2], [100, 100, 101]] and [count for _, count in asked] == [1] * 5 + [2] * 3


@pytest.mark.parametrize("front_end", ["run", "node"])
def test_the_profile_whole_judges_the_large_cases_first_and_draws_none(front_end: str) -> None:
    """The other profiles judge none of them."""
    source = CaseSource("fused_gather_scatter_matmul", target("emulated:sm_100"))
    large, required = (
        [case.key for case in cases] for cases in (source.contract.whole(source.target), source.contract.required(source.target))
    )
    asked = {}
    for name in ("whole", "quick"):
        pool = FakePool(judged=lambda case, where: verdict(Decision.PASS))
        session = Session(pool, replace(PROFILES[name], draws=0))
        if front_end == "run":
            session.run([source])
        else:
            assert session.first_failure(source) is None
        asked[name] = [case.key for case in pool.asked]
    assert asked == {"whole": large + required, "quick": required}
    assert PROFILES["whole"].draws == 0 and len(large) == 8


def test_cases_are_counted_in_the_order_dealt_whatever_arrives_first() -> None:
    first, _ = whole(PLAIN, 4, 3)
    assert len(first["bugs"]) > 2 and first["tally"]["status"] == 1
    for places, seed in itertools.product((2, 5), range(4)):
        assert whole(PLAIN, 4, 3, places=places, seed=seed)[0] == first


def test_the_first_case_dealt_stands_for_its_bug_and_counts_the_others() -> None:
    session = Session(FakePool(judged=by_size, places=3), PLAIN, max_cases=15)
    session.run(sources(14))
    bugs = [(bug.case.problem.n, bug.case_count) for bug in session.bugs.values() if bug.verdict.failed]
    assert bugs == [(3, 2), (8, 1)] and all(bug.report() for bug in session.bugs.values())


def test_observers_hear_how_many_are_expected_before_they_arrive() -> None:
    seen = Seen()
    Session(FakePool(judged=by_size), PLAIN, max_cases=6, observers=[seen]).run(sources(4, 4))
    assert seen.expected == seen.came == 12 and len(seen.paths) == len(set(seen.paths)) > 1


def test_a_target_without_the_feature_is_counted_as_not_run(tmp_path: Path) -> None:
    needy = tmp_path / "needy.py"
    imports = "from tests.support.vector_add import VectorAdd\nfrom bitverdict.kernels.features import Feature\n"
    needy.write_text(imports + "CONTRACT = VectorAdd(requires=frozenset({Feature.TCGEN05}))\n")
    for judged in (lambda session, source: session.run([source]), Session.first_failure):
        pool = FakePool()
        session = Session(pool, PLAIN)
        judged(session, CaseSource(f"{needy}:CONTRACT", target("emulated:sm_90")))
        assert session.tally.status() == tally.NOTHING_RAN and pool.asked == []
        (row,) = session.tally.rows.values()
        assert (row.contract, row.messages) == ("needy.py:CONTRACT", {"emulated:sm_90 lacks tcgen05.mma"})


# --- resume


def gone_on_with(told: list[dict], profile: Profile, *few: int, deaths: tuple[int, ...], places: int, seed: int) -> dict:
    """What a run comes to whose journal so far is `told`, and which dies again after each of `deaths` more records."""
    for more in (*deaths, None):
        clock, seen = FakeClock(), Seen()
        clock.now = told[-1]["time"] + 1000.0  # while nothing ran
        before = past(told)
        journal = FakeJournal(clock, told, dies_at=None if more is None else len(told) + 1 + more)
        journal.note("resumed")
        pool = FakePool(journal, by_size, clock=clock, places=places, seed=seed)
        session = Session(pool, profile, past=before, observers=[seen], clock=clock)
        try:
            session.run(sources(*few))
        except Died:
            continue
        assert len({case.key for case in pool.asked}) + len(before.verdicts) <= len(seen.counted_cases), "judged again"
        return came_to(session, seen)
    raise AssertionError("the last run does not die")


def at_every_cut(profile: Profile, places: int) -> Iterator[tuple[int, dict, dict]]:
    first, told = whole(profile, 4, 3, places=places)
    for cut in range(1, len(told) + 1):
        kept = [dict(record) for record in told[:cut]]
        yield cut, gone_on_with(kept, profile, 4, 3, deaths=(), places=places, seed=1), first


@pytest.mark.parametrize("seconds", [None, 0.0, 5.0, 11.0, 17.0])
@pytest.mark.parametrize("places", [1, 3])
def test_a_run_cut_at_any_record_comes_to_the_same(seconds: float | None, places: int) -> None:
    for cut, after, first in at_every_cut(replace(PLAIN, seconds=seconds), places):
        assert after == first, f"cut after {cut} records"


@pytest.mark.share(4)
@settings(deadline=None, database=None, max_examples=60, phases=(Phase.generate, Phase.shrink))
@given(
    seconds=st.sampled_from([None, 5.0, 11.5, 14.0]),
    cut=st.integers(1, 60),
    deaths=st.lists(st.integers(0, 12), max_size=4).map(tuple),
    places=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_a_run_that_dies_again_and_again_comes_to_the_same(
    seconds: float | None, cut: int, deaths: tuple[int, ...], places: int, seed: int
) -> None:
    profile = replace(PLAIN, seconds=seconds)
    first, told = whole(profile, 4, 3, places=places, seed=seed)
    kept = [dict(record) for record in told[:cut]]
    assert gone_on_with(kept, profile, 4, 3, deaths=deaths, places=places, seed=seed + 1) == first


def test_the_time_decides_how_many_are_generated_and_the_twin_has_more() -> None:
    short, long = (whole(replace(PLAIN, seconds=seconds), 4, 3)[0]["order"] for seconds in (11.0, None))
    assert len(short) == 12 and len(long) == 25 and short == long[:12]


# --- one policy


def session_says(judged: Callable[[Case, Target], Verdict], source: CaseSource) -> int:
    session = Session(FakePool(judged=judged), replace(PLAIN, draws=3))
    session.run([source])
    return session.tally.status()


def node_says(judged: Callable[[Case, Target], Verdict], node_judge: NodeJudge, patch: pytest.MonkeyPatch) -> int:
    patch.setattr(node_judge, "pool", FakePool(judged=judged))
    patch.setattr(node_judge, "profile", replace(PLAIN, draws=3))
    patch.setattr(node_judge, "database", None)
    try:
        node_judge.hold(Node(ADDRESS, "emulated:sm_90"), [])
    except KernelFailed:
        return tally.FAIL
    except pytest.fail.Exception:
        return tally.INCONCLUSIVE
    except pytest.skip.Exception:
        return tally.NOTHING_RAN
    return tally.PASS


@pytest.mark.parametrize("others", OUTCOMES)
@pytest.mark.parametrize("generated", OUTCOMES)
def test_the_same_verdicts_mean_the_same_to_both_front_ends(
    others: Decision, generated: Decision, node_judge: NodeJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the required cases, which are n = 0, 1, 63, 64 and 65, comes to each decision; the others, and what is generated,
    to one."""
    source = CaseSource(ADDRESS, target("emulated:sm_90"), node_judge.seed)
    required = {case.key for case in source.required()}
    for one in OUTCOMES:

        def judged(case: Case, where: Target, one: Decision = one) -> Verdict:
            return verdict(generated if case.key not in required else one if case.problem.n == 64 else others)

        assert session_says(judged, source) == node_says(judged, node_judge, monkeypatch), one


def test_each_status_is_among_those_that_are_compared(node_judge: NodeJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison of equal constants would say nothing."""
    found = {decision: node_says(lambda case, where: verdict(decision), node_judge, monkeypatch) for decision in OUTCOMES}
    assert list(found.values()) == [tally.PASS, tally.FAIL, tally.INCONCLUSIVE, tally.NOTHING_RAN, tally.INCONCLUSIVE]


def test_one_case_after_the_other_stops_at_the_first_that_fails() -> None:
    pool = FakePool(judged=by_size)
    session = Session(pool, PLAIN)
    bug = session.first_failure(sources(6)[0])
    assert bug is not None and [case.problem.n for case in pool.asked] == [0, 1, 2, 3]
    assert bug.case == pool.asked[-1] and list(session.bugs.values()) == [bug] and session.tally.status() == tally.FAIL


# --- reduce and store


def test_a_bug_is_reduced_with_its_signature_and_says_from_what() -> None:
    source = CaseSource("tests.support.vector_add:WRONG", HOST)
    profile = replace(PLAIN, shrink_seconds=20)
    cases = []
    for judged in (lambda session: session.run([source]), lambda session: session.first_failure(source)):
        session = Session(FakePool(judged=judge), profile)
        judged(session)
        if not any(bug.path for bug in session.bugs.values()):  # a node reduces and stores what it shows
            session.reduce()
            session.store()
        (bug,) = session.bugs.values()
        assert bug.verdict.failed and bug.path is not None and bug.first_case is not None and bug.first_case.key != bug.case.key
        assert any(note.startswith("shrunk in ") for note in bug.notes) and bug.replay_line().endswith(str(bug.path))
        assert bug.replay_line(directory=bug.path.parent).endswith(f" {bug.path.name}")
        cases.append(bug.case)
    assert cases[0] == cases[1] and cases[0].problem.n == 5


@pytest.mark.parametrize(
    ("came", "seconds", "looks"),
    [
        (verdict(Decision.FAIL), 20, True),
        (verdict(Decision.FAIL), 0, False),
        (verdict(Decision.ERROR), 20, False),
        (replace(verdict(Decision.FAIL), outcome=Outcome.TIMEOUT), 20, False),
    ],
)
def test_what_is_no_bug_or_costs_its_timeout_is_stored_as_it_came(came: Verdict, seconds: float, looks: bool) -> None:
    pool = FakePool(judged=lambda case, where: came)
    session = Session(pool, replace(PLAIN, shrink_seconds=seconds), max_cases=1)
    session.run(sources(1))
    assert (len(pool.asked) > 1) is looks and len(session.bugs) == 1
    assert all(bug.path is not None for bug in session.bugs.values())


def test_the_first_few_bugs_of_a_source_are_reduced_and_all_are_stored() -> None:
    pool = FakePool(judged=lambda case, where: verdict(Decision.FAIL, f"bug {chr(ord('a') + case.problem.n % 26)}"))
    session = Session(pool, replace(PLAIN, shrink_seconds=20), max_cases=7)
    session.run(sources(7, 7))
    reduced = [bug.first_case is not None for bug in session.bugs.values()]
    assert reduced == [*[True] * MOST_BUGS * 2, *[False] * (14 - 2 * MOST_BUGS)]  # in turns: the first few of both
    assert all(bug.path is not None for bug in session.bugs.values())


def test_a_bug_that_cannot_be_stored_says_why_and_stops_the_run(state: Path) -> None:
    state.mkdir()
    (state / "failures").write_text("no directory")
    session = Session(FakePool(judged=lambda case, where: verdict(Decision.FAIL)), PLAIN, max_cases=1)
    session.run(sources(1))
    (bug,) = session.bugs.values()
    assert bug.path is None and "(not stored: reproducer " in bug.replay_line() and bug.not_stored == session.tally.stop_reason


@pytest.mark.parametrize(("raised", "cancelled"), [(KeyboardInterrupt(), True), (MachineFault("the disk is full"), False)])
def test_what_ends_a_run_early_leaves_what_was_judged(raised: BaseException, cancelled: bool) -> None:
    def judged(case: Case, where: Target) -> Verdict:
        if case.problem.n == 5:
            raise raised
        return by_size(case, where)

    seen = Seen()
    session = Session(FakePool(judged=judged), PLAIN, observers=[seen])
    session.run(sources(9))
    assert (session.tally.is_cancelled, session.tally.stop_reason) == (cancelled, "" if cancelled else "the disk is full")
    assert len(seen.counted_cases) == session.tally.ran == 5 and len(seen.paths) == 1 and seen.inside == 0


def test_an_earlier_verdict_counts_and_is_not_judged_again() -> None:
    (source,) = sources(3)
    known = verdict(Decision.FAIL, "of before")
    before = Past(verdicts={(source.target.name, source.required()[1].key): known})
    pool = FakePool(judged=by_size)
    session = Session(pool, PLAIN, max_cases=3, past=before)
    session.run([source])
    assert [case.problem.n for case in pool.asked] == [0, 2] and [bug.verdict for bug in session.bugs.values()] == [known]
