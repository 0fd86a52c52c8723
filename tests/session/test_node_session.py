"""Contract under test: the session of one node draws for the node's time, deals its least, and saves what failed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis.database import InMemoryExampleDatabase

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.session import session as session_module
from bitverdict.harness.session import tally
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.session import Session
from tests.support.fake_runs import PLAIN, FakeClock, FakePool, sources, verdict
from tests.support.vector_add import ADDRESS, HOST


def test_a_node_generates_for_its_time_once_its_required_cases_are_judged() -> None:
    source = CaseSource(ADDRESS, HOST)
    for seconds, generated in ((0.5, 1), (2.5, 3), (None, 20)):
        clock = FakeClock()
        pool = FakePool(judged=lambda case, where: verdict(Decision.PASS), clock=clock)
        session = Session(pool, replace(PLAIN, draws=40, node_seconds=seconds), clock=clock)
        assert session.first_failure(source) is None
        new = len(pool.asked) - len(source.required())
        assert new == generated if seconds is not None else new > generated


def test_the_time_of_a_node_begins_at_its_first_drawn_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """Setting Hypothesis up takes longer than a node has, on a loaded machine."""
    clock = FakeClock()
    plain = session_module.walk

    def slow(*arguments: object, **named: object) -> None:
        clock.now += 60.0
        plain(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(session_module, "walk", slow)
    source = CaseSource(ADDRESS, HOST)
    pool = FakePool(judged=lambda case, where: verdict(Decision.PASS), clock=clock)
    assert Session(pool, replace(PLAIN, draws=40, node_seconds=2.5), clock=clock).first_failure(source) is None
    assert len(pool.asked) - len(source.required()) == 3


def test_a_node_deals_its_least_however_slow_the_machine_is() -> None:
    """A second a case, and a quarter of a second for the node: other work on the machine makes no case fewer."""
    source, clock = CaseSource(ADDRESS, HOST), FakeClock()
    passed = replace(verdict(Decision.PASS), seconds={"processor": 0.01})
    pool = FakePool(judged=lambda case, where: passed, clock=clock)
    profile = replace(PLAIN, draws=40, node_seconds=0.25, node_least=10, node_processor_seconds=10.0)
    session = Session(pool, profile, clock=clock)
    assert session.first_failure(source) is None
    assert session.tally.drawn == len(pool.asked) - len(source.required()) == 10 and not session.tally.draw_shortfall


def test_a_node_deals_fewer_where_its_cases_are_long_and_says_so() -> None:
    source, clock = CaseSource(ADDRESS, HOST), FakeClock()
    pool = FakePool(judged=lambda case, where: replace(verdict(Decision.PASS), seconds={"processor": 4.0}), clock=clock)
    profile = replace(PLAIN, draws=40, node_seconds=0.25, node_least=10, node_processor_seconds=10.0)
    session = Session(pool, profile, clock=clock)
    assert session.first_failure(source) is None
    assert session.tally.drawn == 3
    assert session.tally.draw_shortfall == "3 of 10 cases drawn: they took 12.0 s of the processor, and 10 s are enough"


@pytest.mark.parametrize(("processor", "least", "drawn"), [(0.01, 10, 10), (0.01, 0, 0), (4.0, 10, 3)])
def test_a_run_draws_its_least_however_slow_the_machine_is(processor: float, least: int, drawn: int) -> None:
    """Its time is over before the first drawn case; fewer are drawn only where cases are long for the processor."""
    source, clock = sources(6)[0], FakeClock()
    passed = replace(verdict(Decision.PASS), seconds={"processor": processor})
    pool = FakePool(judged=lambda case, where: passed, clock=clock)
    profile = replace(PLAIN, draws=40, seconds=0.25, node_least=least, node_processor_seconds=10.0)
    session = Session(pool, profile, clock=clock)
    session.run([source])
    assert session.tally.drawn == len(pool.asked) - len(source.required()) == drawn
    assert bool(session.tally.draw_shortfall) == (0 < drawn < least)


@pytest.mark.parametrize("fails", [False, True])
def test_a_node_saves_in_hypothesis_database_what_failed_alone(fails: bool) -> None:
    """Its time ends the walk by an exception, and Hypothesis saves the choices of whatever raises."""
    source, clock, database = CaseSource(ADDRESS, HOST), FakeClock(), InMemoryExampleDatabase()
    required = {case.key for case in source.required()}
    pool = FakePool(
        judged=lambda case, where: verdict(Decision.FAIL if fails and case.key not in required else Decision.PASS), clock=clock
    )
    bug = Session(pool, replace(PLAIN, draws=40, node_seconds=2.5), clock=clock).first_failure(source, database=database)
    assert (bug is not None) == fails
    assert bool(any(database.data.values())) == fails


def test_nothing_is_drawn_once_the_time_of_a_node_is_over() -> None:
    drawn: list[str] = []
    source, clock = CaseSource(ADDRESS, HOST, keeps=lambda case: drawn.append(case.key) is None), FakeClock()
    pool = FakePool(judged=lambda case, where: verdict(Decision.PASS), clock=clock)
    assert Session(pool, replace(PLAIN, draws=40, node_seconds=2.5), clock=clock).first_failure(source) is None
    assert set(drawn) - {case.key for case in pool.asked} == {drawn[-1]}


def test_a_generated_case_that_fails_after_the_time_of_its_node_is_its_bug() -> None:
    """Hypothesis runs what failed once more; a hang takes longer than a node has."""
    source, clock = CaseSource(ADDRESS, HOST), FakeClock()
    required = {case.key for case in source.required()}
    hung = replace(verdict(Decision.FAIL, "no verdict within 120 s"), outcome=Outcome.TIMEOUT)

    def judged(case: Case, where: Target) -> Verdict:
        clock.now += 0.0 if case.key in required else 120.0
        return verdict(Decision.PASS) if case.key in required else hung

    pool = FakePool(judged=judged, clock=clock)
    bug = Session(pool, replace(PLAIN, node_seconds=2.5), clock=clock).first_failure(source)
    assert bug is not None and bug.verdict is hung and pool.asked[-1] == bug.case and len(pool.asked) == len(required) + 1


def test_the_shares_of_a_node_have_each_required_case_once() -> None:
    asked: list[int] = []
    for share in range(3):
        pool = FakePool(judged=lambda case, where: verdict(Decision.PASS))
        session = Session(pool, replace(PLAIN, draws=1))
        session.first_failure(sources(7)[0], share=share, shares=3)
        assert share == 0 or len(pool.asked) == 2, "the draws are shared out too"
        asked += [case.problem.n for case in pool.asked if case.schedule == "eager" and case.data_seed == 0][
            : 3 if not share else 2
        ]
        assert session.tally.status() == tally.PASS, "it is held to its share alone"
    assert sorted(asked) == list(range(7))
