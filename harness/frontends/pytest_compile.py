"""The kernels of the collected nodes, compiled side by side from the end of collection on, where a session judges on real GPUs.

A node judges its cases one after the other in one process, so alone it would compile one kernel at a time. Of the workers of
pytest-xdist, which all collect the same, the first starts the processes for all (`bitverdict.harness.workers.compile_ahead`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from bitverdict.harness.frontends.pytest_nodes import Node
from bitverdict.harness.frontends.pytest_targets import gpu_names
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.paths import state_directory
from bitverdict.harness.model.targets import Target, gpus_called
from bitverdict.harness.session.case_source import in_turns
from bitverdict.harness.workers.compile_ahead import CompileAhead

FIRST_WORKER = "gw0"  # pytest-xdist's name of its first worker


class CompileAheadPlugin:
    """The plugin of one pytest process: compiles for the session once it has collected, and ends with it."""

    def __init__(self, config: pytest.Config) -> None:
        given: dict[str, Any] = getattr(config, "workerinput", {})
        self.first = given.get("workerid", FIRST_WORKER) == FIRST_WORKER
        self.jobs = len(os.sched_getaffinity(0)) - int(given.get("workercount", 1))  # cores that no worker takes
        self.compiling: CompileAhead | None = None

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if not self.first or self.jobs < 1 or not gpu_names(session.config) or session.config.option.collectonly:
            return
        if session.config.getoption("numprocesses", None):  # pytest-xdist's controller judges nothing
            return
        work = list(cases(nodes(session.items)))
        if work:
            logs = state_directory() / "journal"
            logs.mkdir(parents=True, exist_ok=True)
            self.compiling = CompileAhead(self.jobs, logs)
            self.compiling.expect(work)

    def pytest_sessionfinish(self) -> None:
        if self.compiling is not None:
            self.compiling.end()


def nodes(items: Iterable[pytest.Item]) -> list[Node]:
    """The nodes of contracts among `items`, one for the shards of each, without those of emulated targets."""
    found = [item.callspec.params.get("node") for item in items if hasattr(item, "callspec")]
    first = {(node.stem, node.target): node for node in found if isinstance(node, Node) and node.target.startswith("cuda")}
    return list(first.values())


def cases(asked: Iterable[Node]) -> Iterator[tuple[Case, Target]]:
    """The required cases of `asked` in turns, each with a GPU that its target means."""
    lists = []
    for node in asked:
        where, contract = gpus_called(node.target)[0], resolve(node.stem)
        if not contract.lacking(where):
            lists.append([(case, where) for case in contract.required(where)])
    return in_turns(lists)
