"""Contract under test: on a Ray cluster a killed Ray worker and a killed driver lose no verdict and count none twice.

`python -m benchmarks.fleet_kills` kills nodes and stops raylets too. Ray is an extra: where it is missing the test says so."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks import fleet_kills
from benchmarks.injected_faults import books


def test_kills_of_a_ray_worker_and_of_the_driver_lose_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="the package ray is not installed (pip install '.[ray]')")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setattr(fleet_kills, "BETWEEN", 5)
    monkeypatch.setattr(fleet_kills, "HEALTH", {})  # nothing is stopped, and a busy machine is no dead one
    with fleet_kills.cluster(nodes=1) as made:
        monkeypatch.setenv("RAY_ADDRESS", made.address)
        one = fleet_kills.Killed(made, 45, random.Random(1), tmp_path)
        one.kill("worker")
        one.kill("driver")
        status = one.process.wait(fleet_kills.WITHIN)
    assert status == 1 and [line.split()[0] for line in one.done] == ["worker", "driver"], (
        "the cases have faults, and both were killed"
    )
    assert books(tmp_path) == []
