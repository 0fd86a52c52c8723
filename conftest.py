"""The harness's options and fixtures for every test; a GPU, where one is asked for, is leased before anything imports CUDA."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers share the cores already: a second thread for filling 100 kB of guard bands waits for its turn (0.9 ms against 3 us).
    # Before anything imports NumPy or torch, which read this once.
    for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(_name, "1")
    gc.disable()  # a third of the time of importing the tests; `pytest_collection_finish` turns it on

pytest_plugins = ["bitverdict.harness.frontends.pytest_options", "bitverdict.harness.frontends.pytest_plugin"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gate", choices=("fast", "rest"), help="tests that compile nothing, or all others (tests/support/gates.py)")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What a gate leaves alone is not imported for it: of the fast gate's files the rest has those that name a mark alone."""
    from tests.support.gates import is_fast

    if not (gate := config.getoption("--gate")) or not collection_path.match("test_*.py"):
        return None
    if gate == "rest" and re.search("compiles|every_gate", collection_path.read_text()):
        return None
    return True if is_fast(collection_path) is not (gate == "fast") else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    from tests.support.shares import leave_to_other_commits

    gate = config.getoption("--gate")
    of_both = {item for item in items if item.get_closest_marker("every_gate")}
    left = {item for item in items if gate and item not in of_both and _is_fast(item) is not (gate == "fast")}
    left.update(leave_to_other_commits(item for item in items if item not in left))
    if left:
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module that imports what a newer release of Triton brought is skipped by the name."""
    report = yield
    if report.outcome == "failed" and isinstance(collector, pytest.Module):
        from tests.support.lacking_names import sentence_of

        if sentence := sentence_of(str(report.longrepr)):
            report.outcome, report.longrepr = "skipped", (str(collector.path), 0, f"Skipped: {sentence}")
            for name in [name for name, module in sys.modules.items() if getattr(module, "__file__", "") == str(collector.path)]:
                del sys.modules[name]  # half of it is there: who imports it later would meet another error
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """A test of what a newer release of Triton brought is skipped by the name."""
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        from tests.support.lacking_names import sentence_of_failure

        if sentence := sentence_of_failure(error):
            pytest.skip(sentence)
        raise


def _is_fast(item: pytest.Item) -> bool:
    from tests.support.gates import is_fast

    return is_fast(item.path) and item.get_closest_marker("compiles") is None


def pytest_collection_finish(session: pytest.Session) -> None:
    """In a worker, what was imported and collected stays to the end: collections of garbage pass over it, and come less often."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 10, 10)  # objects that were made and not freed
        gc.enable()


@pytest.fixture(autouse=True)
def fast_gate(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test of the fast gate that compiles fails, in every run."""
    if not _is_fast(request.node):
        yield
        return
    from tests.support.gates import compiles_nothing

    with compiles_nothing():
        yield


@pytest.fixture(autouse=True)
def kept_translations(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that may change the emulator under way (`monkeypatch`) leaves no translation on disk and reads none. All that others
    translate in their own process can be kept."""
    name = "BITVERDICT_TRANSLATIONS"
    before = os.environ.get(name)
    if "monkeypatch" in request.fixturenames:
        os.environ[name] = "off"
    yield
    os.environ.pop(name, None) if before is None else os.environ.__setitem__(name, before)
    module = sys.modules.get("bitverdict.harness.emulator.frontend.kept_translations")
    skip_reasons = dict(module.skip_reasons) if module is not None else {}
    if module is not None:
        module.skip_reasons.clear()
    assert not skip_reasons, f"translations that cannot be kept on disk: {skip_reasons}"
