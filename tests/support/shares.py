"""What a run of the tests judges of what takes long: all where time is no matter, a share under the profile `quick`.

`HARNESS_PROFILE=ci`, which `.ci/run` sets, judges all. The share is the same in each run, so that workers agree on it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from zlib import crc32

import pytest

from tests.faults.mutants import Mutant

MUTANTS = 8  # one mutant of so many


def _quick() -> bool:
    return os.environ.get("HARNESS_PROFILE", "quick") == "quick"


of_a_campaign = pytest.mark.skipif(_quick(), reason="a command of benchmarks/, or a whole fit: judged under HARNESS_PROFILE=ci")


def in_this_run(name: str, of: int) -> bool:
    """Whether what is called `name` belongs to the share of this run: one of `of` names."""
    return not _quick() or crc32(name.encode()) % of == 0


def judged_here(mutants: Iterable[Mutant]) -> list[Mutant]:
    """Of `mutants` those that this run judges, in their order."""
    return [mutant for mutant in mutants if in_this_run(mutant.id, MUTANTS)]
