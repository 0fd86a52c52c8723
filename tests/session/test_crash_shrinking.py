"""Contract under test: crash mutants shrink to one reduced case whatever the seed, hold their name, and replay from their files.

Two crashes: one that kills its process, one that does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.session import reproducers
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.replay import replay
from bitverdict.harness.session.shrink import VerdictCache, shrink
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.pool import WorkerPool
from tests.faults.crashes.kernels import CRASHES
from tests.faults.mutants import Mutant, SourceEdit, mutant_source, write_mutant
from tests.support.shares import in_this_run

LEAST = {
    "gather drifts": {"table_rows": 1, "table_columns": 1, "offsets": 9, "block_x": 8, "block_y": 16},
    "memory runs out": {"m": 64, "n": 16, "k": 16, "d_pad": 4, "left": "tensor memory"},
}


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    with WorkerPool(timeout=600, journal=Journal(tmp_path_factory.mktemp("journal") / "run.jsonl")) as pool:
        yield pool


@pytest.mark.parametrize("crash", CRASHES, ids=lambda crash: crash.name)
def test_a_crash_mutant_is_one_replaced_text(crash: Mutant) -> None:
    (edit,) = crash.edits
    assert isinstance(edit, SourceEdit) and mutant_source(crash).count(edit.by) >= 1


@pytest.mark.share(3)
@pytest.mark.parametrize("name", [name for name in LEAST if in_this_run(name, 2, in_ci=2)])
def test_two_seeds_end_at_one_reduced_case_that_replays(
    name: str, pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (crash,) = (crash for crash in CRASHES if crash.name == name)
    address, where = write_mutant(crash, tmp_path), target(crash.on[0])
    ends: list[Case] = []
    for seed in (0, 1):
        monkeypatch.setenv("BITVERDICT_POOL_SEED", str(seed))
        source = CaseSource(address, where, seed)
        memory = VerdictCache(lambda case: pool.judge(case, where))
        found = next(case for case in source.drawn(100) if memory(case).failed)
        least, verdict = shrink(source, found, memory(found), memory, draws=100, seconds=60)
        assert verdict.signature == memory(found).signature and verdict.outcome in crash.expected
        ends.append(least)
    assert ends[0] == ends[1]
    seen = vars(ends[0].problem) | vars(ends[0].config)
    assert {field: seen[field] for field in LEAST[name]} == LEAST[name]

    path = reproducers.write(reproducers.reproducer_of(least, crash.on[0], verdict, first_case=found), tmp_path / "failures")
    stored = reproducers.read(path).hypothesis
    assert stored["draws"] == "the case this one was shrunk from" and stored["case"] == found.to_json() and stored["blob"]
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / "state"))
    Path(address.rpartition(":")[0]).unlink()
    assert replay(path, pool).is_same_bug
