"""A pytest session in which every eleventh case has a fault planted: what `benchmarks/injected_faults.py` starts and then checks.

    HARNESS_INJECTED=CASES/TARGET/SECONDS pytest -n 4 tests/faults/crashes/injected_session.py --junitxml=FILE

A case is a node, in an order drawn from a fixed seed. A convicted one fails with its outcome first in its message, one that decides
nothing is skipped with it; both leave a seed file. Not collected by default: its name does not begin with ``test_``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from bitverdict.harness.frontends.pytest_plugin import Court
from bitverdict.harness.model.verdict import Ruling
from bitverdict.harness.session import reproducers
from bitverdict.harness.session.shrink import conviction_class
from tests.faults.crashes.injected import CONTRACT

CASES, TARGET, TIMEOUT = os.environ.get("HARNESS_INJECTED", "22/emulated:sm_90/3").split("/")
NUMBERS = random.Random(7).sample(range(int(CASES)), int(CASES))


@pytest.fixture(scope="session")
def short_court(pytestconfig: pytest.Config) -> Iterator[Court]:
    """A court of its own for this worker, with a short watchdog."""
    court = Court(pytestconfig)
    court.bench.timeout = float(TIMEOUT)
    yield court
    court.bench.close()


@pytest.mark.parametrize("number", NUMBERS)
def test_case(number: int, short_court: Court) -> None:
    __tracebackhide__ = True
    machine = short_court.machine(TARGET)
    case = CONTRACT.case(number, gpu=not machine.emulated)
    verdict = short_court.bench.judge(case, machine)
    if verdict.ruling is Ruling.RIGHT:
        return
    reproducers.write(reproducers.seed_of(case, machine.name, verdict, model=machine.model))
    told = f"{verdict.outcome}: {verdict.message} at {verdict.location}"
    if verdict.convicted:
        raise conviction_class(verdict.signature)(told)
    pytest.skip(told)
