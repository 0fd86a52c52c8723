"""A pytest plugin for `benchmarks.mutation`: which tests run, in which order, and what became of each, as it happens.

Environment: ``MUTATION_TESTS``, a file with a JSON list of the node ids to run, in their order (without it, all run);
``MUTATION_LOG``, a file that gets one JSON line when a test begins and one for each report; ``MUTATION_MEASURE``, as in
`benchmarks.mutation_measure`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import mutation_measure

WORKER = "PYTEST_XDIST_WORKER" in os.environ


def log(line: dict[str, Any]) -> None:
    place = os.environ.get("MUTATION_LOG")
    if place and not WORKER:
        with open(place, "a") as file:
            file.write(json.dumps(line) + "\n")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    place = os.environ.get("MUTATION_TESTS")
    if place:
        order = {test: number for number, test in enumerate(json.loads(Path(place).read_text()))}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in order])
        items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])
    log({"collected": len(items)})


def pytest_runtest_logstart(nodeid: str) -> None:
    log({"begins": nodeid})


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    log({"test": report.nodeid, "when": report.when, "outcome": report.outcome, "seconds": round(report.duration, 4)})


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        log({"test": report.nodeid, "when": "collect", "outcome": "failed", "said": str(report.longrepr)[-300:]})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    if "MUTATION_MEASURE" not in os.environ:
        return (yield)
    mutation_measure.begins(item.nodeid)
    try:
        return (yield)
    finally:
        mutation_measure.begins("")
