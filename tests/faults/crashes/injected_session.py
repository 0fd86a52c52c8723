"""A pytest session in which every eleventh case has a fault mutated: what `benchmarks/injected_faults.py` starts and then checks.

    BITVERDICT_INJECTED=CASES/TARGET/SECONDS pytest -n 4 tests/faults/crashes/injected_session.py --junitxml=FILE

A case is a node, in an order drawn from a fixed seed. A failed one fails with its outcome first in its message, one that is
inconclusive is skipped with it; both leave a reproducer. Not collected by default: its name does not begin with ``test_``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from bitverdict.harness.frontends.pytest_nodes import NodeJudge
from bitverdict.harness.model.verdict import Decision
from bitverdict.harness.session import reproducers
from bitverdict.harness.session.shrink import failure_class
from tests.faults.crashes.injected import CONTRACT

CASES, TARGET, TIMEOUT = os.environ.get("BITVERDICT_INJECTED", "22/emulated:sm_90/3").split("/")
NUMBERS = random.Random(7).sample(range(int(CASES)), int(CASES))


@pytest.fixture(scope="session")
def short_share(pytestconfig: pytest.Config) -> Iterator[NodeJudge]:
    """A harness of its own for this worker, with a short watchdog."""
    node_judge = NodeJudge(pytestconfig)
    node_judge.pool.timeout = float(TIMEOUT)
    yield node_judge
    node_judge.pool.close()


@pytest.mark.parametrize("number", NUMBERS)
def test_case(number: int, short_share: NodeJudge) -> None:
    __tracebackhide__ = True
    machine = short_share.machine(TARGET)
    case = CONTRACT.case(number, gpu=not machine.emulated)
    verdict = short_share.pool.judge(case, machine)
    if verdict.decision is Decision.PASS:
        return
    reproducers.write(reproducers.reproducer_of(case, machine.name, verdict, model=machine.model))
    told = f"{verdict.outcome}: {verdict.message} at {verdict.location}"
    if verdict.failed:
        raise failure_class(verdict.signature)(told)
    pytest.skip(told)
