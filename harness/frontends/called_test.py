"""A test of the public functions that is called: from a script, or as a method of a `unittest.TestCase`."""

from __future__ import annotations

import os
import unittest
from collections.abc import Callable
from dataclasses import replace

from bitverdict.harness.judge.machine_faults import MachineFault, check_compiler_cache
from bitverdict.harness.model.addresses import is_importing
from bitverdict.harness.model.targets import Target, targets
from bitverdict.harness.sealed import secret_draws
from bitverdict.harness.sealed.secret_draws import Secret
from bitverdict.harness.session import tables, tally
from bitverdict.harness.session.bugs import reports
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.profiles import PROFILES, Profile
from bitverdict.harness.session.session import Session
from bitverdict.harness.workers.pool import WorkerPool


def hold(source: Callable[[Target], CaseSource], test_case: object = None) -> None:
    """Judge on every target that is here; AssertionError with the report where a case fails, `unittest.SkipTest` where nothing ran.

    Where the file is imported to be judged nothing happens: a script may call its tests without a guard. `test_case`: the
    `unittest.TestCase` whose method is called; each target is a subtest of it."""
    if is_importing():
        return
    if isinstance(test_case, unittest.TestCase):
        for machine in targets():
            with test_case.subTest(target=machine.name):
                judge_on(source, [machine])
        return
    judge_on(source, targets())


def judge_on(source: Callable[[Target], CaseSource], machines: list[Target]) -> None:
    """One session over `machines`."""
    from bitverdict.harness.judge import devices  # noqa: F401  (what torch.cuda says to a user's file)

    check_compiler_cache()
    profile = profile_of(len(machines))
    with WorkerPool(jobs=len(os.sched_getaffinity(0)), timeout=profile.case_seconds) as pool:
        session, sources = Session(pool, profile), [source(machine) for machine in machines]
        secret = Secret.begin() if any(each.is_sealed for each in sources) else None
        if secret is not None:
            secret_draws.commit(secret, pool.journal)
            print(secret_draws.commitment_line(secret))
            sources = [replace(each, secret=secret if each.is_sealed else None) for each in sources]
        session.run(sources)
        if secret is not None:
            secret_draws.reveal(secret, pool.journal)
            print(secret_draws.revelation_lines(secret))
    raise_outcome(session)


def profile_of(machines: int) -> Profile:
    """`BITVERDICT_PROFILE`, "quick" without it: the time of a test on so many machines."""
    profile = PROFILES[os.environ.get("BITVERDICT_PROFILE", "quick")]
    return replace(profile, seconds=None if profile.node_seconds is None else profile.node_seconds * machines)


def raise_outcome(session: Session) -> None:
    """Raise what the session came to."""
    session_tally, status = session.tally, session.tally.status()
    if session_tally.is_cancelled:
        raise KeyboardInterrupt
    if session_tally.stop_reason:
        raise MachineFault(session_tally.stop_reason)
    if status == tally.PASS:
        return
    if status == tally.NOTHING_RAN:
        raise unittest.SkipTest("; ".join(tables.not_run_lines(session_tally)) or "nothing ran")
    said = ["; ".join(session_tally.open()), *session_tally.inconclusive] if status != tally.FAIL else []
    raise AssertionError("\n" + "\n".join([*said, tables.text_of(*reports(session.bugs.values()))]))
