"""What a run of the tests judges of what takes long: all under the profile `exhaustive`, a share under `quick`.

`HARNESS_PROFILE=ci`, which `.ci/run` sets, judges a share too (`MUTANTS`, `in_ci`, `turn`), and the next commit the next one
(`HARNESS_SHARE`). The share follows from names and variables, so that workers agree on it. What a run leaves to others it names
below its results (`tests/test_shares.py`)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from zlib import crc32

import pytest

from bitverdict.harness.model.case import Case
from bitverdict.harness.session.rotation import Rotation
from tests.faults.mutants import Mutant

MUTANTS = {"quick": 8, "ci": 8}  # one mutant of so many, by profile
REQUIRED = 3  # commits in a row that together judge all required cases of the kernels' contracts
left_out: set[str] = set()  # what this process was asked for, and leaves to other runs


def _profile() -> str:
    return os.environ.get("HARNESS_PROFILE", "quick")


of_a_campaign = pytest.mark.skipif(
    _profile() == "quick", reason="a command of benchmarks/, or a whole fit: judged under HARNESS_PROFILE=ci"
)


def in_this_run(name: str, of: int, *, in_ci: int = 1) -> bool:
    """Whether what is called `name` belongs to the share of this run: one of `of` names under the profile `quick`, one of `in_ci`
    under `ci`, and each name under any other."""
    return _told(name, {"quick": of, "ci": in_ci}.get(_profile(), 1))


def turn() -> Rotation | None:
    """Which required cases the tests of contracts judge under `HARNESS_PROFILE=ci` for the commit of `HARNESS_SHARE`; None, all of
    them, under any other profile, and where no share is asked for."""
    asked = os.environ.get("HARNESS_SHARE", "")
    return Rotation(int(asked), REQUIRED) if asked and _profile() == "ci" else None


def in_this_turn(name: str, case: Case) -> bool:
    """Whether what is called `name`, and compiles the kernel of the required `case`, belongs to the turn in which the case is
    judged."""
    now = turn()
    belongs = now is None or now.takes(case)
    if not belongs:
        left_out.add(name)
    return belongs


def _told(name: str, of: int) -> bool:
    belongs = crc32(name.encode()) % of == int(os.environ.get("HARNESS_SHARE", "0")) % of
    if not belongs:
        left_out.add(name)
    return belongs


def judged_here(mutants: Iterable[Mutant]) -> list[Mutant]:
    """Of `mutants` those that this run judges, in their order."""
    return [mutant for mutant in mutants if _told(mutant.id, MUTANTS.get(_profile(), 1))]
