"""What a run of the tests judges of what takes long: all under the profile `exhaustive`, a share under `quick`.

`BITVERDICT_PROFILE=ci`, which `.ci/run` sets, judges a share too (`MUTANTS`, `in_ci`, `turn`), and the next commit the next one
(`BITVERDICT_SHARE`). The share follows from names and variables, so that workers agree on it. What a run leaves to others it names
below its results (`tests/test_shares.py`)."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from zlib import crc32

import pytest

from bitverdict.harness.model.case import Case
from bitverdict.harness.session.rotation import Rotation
from tests.faults.mutants import Mutant
from tests.support.gates import imports, is_fast

# Whatever takes its turn within a turn of something else needs numbers without a common factor, or parts of it are never judged.
MUTANTS = {"quick": 8, "ci": 11}  # one mutant of so many, by profile
LABORATORY = 5  # commits in a row that together run the tests of `lab` and of `benchmarks/` that are not of the fast gate
REQUIRED = 5  # commits in a row that together judge all required cases of the kernels' contracts
ENTRIES = {12: 6, 4: 3, 1: 2}  # commits in a row that together judge all entries of a slow test, by how many it has
left_out: set[str] = set()  # what this process was asked for, and leaves to other runs


def _profile() -> str:
    return os.environ.get("BITVERDICT_PROFILE", "quick")


of_a_campaign = pytest.mark.skipif(
    _profile() == "quick", reason="a command of benchmarks/, or a whole fit: judged under BITVERDICT_PROFILE=ci"
)


def in_this_run(name: str, of: int, *, in_ci: int = 1) -> bool:
    """Whether what is called `name` belongs to the share of this run: one of `of` names under the profile `quick`, one of `in_ci`
    under `ci`, and each name under any other."""
    return _told(name, {"quick": of, "ci": in_ci}.get(_profile(), 1))


def turn() -> Rotation | None:
    """Which required cases tests of contracts judge under the profile `ci` for the commit of `BITVERDICT_SHARE`; None, all of them,
    under any other profile, and where no share is asked for."""
    asked = os.environ.get("BITVERDICT_SHARE", "")
    return Rotation(int(asked), REQUIRED) if asked and _profile() == "ci" else None


def in_this_turn(name: str, case: Case) -> bool:
    """Whether what is called `name`, and compiles the kernel of the required `case`, belongs to the turn in which the case is
    judged."""
    now = turn()
    belongs = now is None or now.takes(case)
    if not belongs:
        left_out.add(name)
    return belongs


def entries_of_turn(ids: Sequence[str], of: int, *kinds: str) -> set[str]:
    """Of the entries `ids` of one test those that are judged for the commit of `BITVERDICT_SHARE`; all where no share is asked for.

    An entry is of the first of `kinds` that its id contains. One entry in `of` of each kind has its turn, of a kind with fewer
    entries one: each commit judges every kind, and `of` commits in a row judge all. A test without entries has its own turn, the
    same in each `of` commits."""
    now = turn()
    if now is not None and len(ids) == 1 and "[" not in ids[0]:
        return {name for name in ids if crc32(name.encode()) % of == now.turn % of}
    of_kind = defaultdict(list)
    for name in sorted(ids, key=lambda name: crc32(name.encode())):
        of_kind[next((kind for kind in kinds if kind in name), "")].append(name)
    return {
        name
        for names in of_kind.values()
        for place, name in enumerate(names)
        if now is None or (place - now.turn) % min(of, len(names)) == 0
    }


def leave_to_other_commits(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Of the entries of tests marked ``share(of, *kinds)``, or ``share(of, kind_of_item)``, those that this run does not judge; the
    tests of the laboratory in files that have no share of their own and another turn (`LABORATORY`); of any other test outside of
    the fast gate a part of its entries (`ENTRIES`): each turn has some of each test, and one called right."""
    if (now := turn()) is None:
        return []
    alike, unmarked, left = defaultdict(list), defaultdict(list), []
    for item in items:
        if mark := item.get_closest_marker("share"):
            of, *kinds = mark.args
            by_item = kinds.pop()(item) if kinds and callable(kinds[0]) else ""
            alike[item.nodeid.partition("[")[0], by_item, of, *kinds].append(item)
        elif is_fast(item.path) and not item.get_closest_marker("compiles"):
            continue
        elif item.path.parent.name == "lab":
            left += [item] * (crc32(item.path.name.encode()) % LABORATORY != now.turn % LABORATORY)
        elif not any(name.startswith("tests.support.shares.") for name in imports(item.path)):  # they take turns by themselves
            unmarked[item.nodeid.partition("[")[0]].append(item)
    for name, entries in unmarked.items():
        of = next(of for least, of in ENTRIES.items() if len(entries) >= least)
        alike[name, "", of, "right"] = entries
    for (_, _, *asked), entries in alike.items():
        own = entries_of_turn([item.name for item in entries], *asked)
        left += [item for item in entries if item.name not in own]
    left_out.update(item.name.removeprefix("test_") for item in left)
    return left


def left_out_names() -> str:
    """What this process leaves to other runs, the entries of a test or table counted behind its name."""
    counts = Counter(re.split(r"[\[:]", name)[0] for name in left_out)
    return ", ".join(name if count == 1 else f"{name} ({count})" for name, count in sorted(counts.items()))


def _told(name: str, of: int) -> bool:
    belongs = crc32(name.encode()) % of == int(os.environ.get("BITVERDICT_SHARE", "0")) % of
    if not belongs:
        left_out.add(name)
    return belongs


def judged_here(mutants: Iterable[Mutant]) -> list[Mutant]:
    """Of `mutants` those that this run judges, in their order."""
    return [mutant for mutant in mutants if _told(mutant.id, MUTANTS.get(_profile(), 1))]
