"""Which mutants of kernels a run judges: all where time is no matter, every third one under the profile `quick`.

`HARNESS_PROFILE=ci`, which `.ci/run` sets, judges all. The third is the same in each run, so that workers agree on it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from zlib import crc32

from tests.faults.mutants import Mutant


def judged_here(mutants: Iterable[Mutant]) -> list[Mutant]:
    """Of `mutants` those that this run judges, in their order."""
    quick = os.environ.get("HARNESS_PROFILE", "quick") == "quick"
    return [mutant for mutant in mutants if not quick or crc32(mutant.id.encode()) % 3 == 0]
