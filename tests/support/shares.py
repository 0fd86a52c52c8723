"""What a run of the tests judges of what takes long: all under the profile `exhaustive`, a share under `quick`.

`HARNESS_PROFILE=ci`, which `.ci/run` sets, judges all but of the mutants of kernels and of the cheats a fourth each, and the
next commit the next ones (`HARNESS_SHARE`). The share follows from names and variables, so that workers agree on it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from zlib import crc32

import pytest

from tests.faults.mutants import Mutant

MUTANTS = {"quick": 8, "ci": 4}  # one mutant of so many, by profile


def _profile() -> str:
    return os.environ.get("HARNESS_PROFILE", "quick")


of_a_campaign = pytest.mark.skipif(
    _profile() == "quick", reason="a command of benchmarks/, or a whole fit: judged under HARNESS_PROFILE=ci"
)


def in_this_run(name: str, of: int, *, in_ci: int = 1) -> bool:
    """Whether what is called `name` belongs to the share of this run: one of `of` names under the profile `quick`, one of `in_ci`
    under `ci`, and each name under any other."""
    return _belongs(name, {"quick": of, "ci": in_ci}.get(_profile(), 1))


def _belongs(name: str, of: int) -> bool:
    return crc32(name.encode()) % of == int(os.environ.get("HARNESS_SHARE", "0")) % of


def judged_here(mutants: Iterable[Mutant]) -> list[Mutant]:
    """Of `mutants` those that this run judges, in their order."""
    return [mutant for mutant in mutants if _belongs(mutant.id, MUTANTS.get(_profile(), 1))]
