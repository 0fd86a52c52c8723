"""``pytest --emulate``: each test runs on an emulated GPU, and fails where a launch of it does.

Loaded by that option alone. What was launched in a test travels with the report of its end, from a worker of xdist too; the process
that has the terminal adds it up.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from bitverdict.harness.emulator import EmulatedFault
from bitverdict.harness.frontends.emulated_session import (
    EmulatedSession,
    EmulationTally,
    at_the_kernel,
    details_of,
    spare_collections,
)
from bitverdict.harness.model.usage import UsageError

TARGET = "emulated_target"


class EmulatePlugin:
    """The hooks of one process. `session` is entered from before the first conftest.py is imported."""

    def __init__(self, targets: list[str], schedules: int, *, numerics: bool, limit: str) -> None:
        try:
            self.session = EmulatedSession(targets, schedules, numerics=numerics, limit=limit)
        except UsageError as error:
            raise pytest.UsageError(str(error)) from None
        self.session.enter()
        self.tally = EmulationTally()

    def pytest_report_header(self) -> str:
        return f"emulated GPU: {', '.join(self.session.targets)}; each launch under {self.session.schedules} schedules"

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Of several targets each test is several."""
        if len(self.session.targets) > 1:
            metafunc.fixturenames.append(TARGET)
            metafunc.parametrize(TARGET, self.session.targets)

    def pytest_collection_finish(self) -> None:
        spare_collections()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self.has_passed = False
        self.session.enter(item.callspec.params.get(TARGET, "") if hasattr(item, "callspec") else "")
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """A fault fails the test that caught it too."""
        __tracebackhide__ = True
        result = yield
        if (fault := self.session.swallowed_fault()) is not None:
            raise fault
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo) -> Generator[None, Any, Any]:
        """A fault is shown at the kernel's line. What the emulated GPU cannot answer skips the test, and says why."""
        fault = None
        if call.excinfo is not None and not isinstance(error := call.excinfo.value, pytest.skip.Exception):
            if reason := self.session.reason_not_judged(error):
                self.session.note_unanswered(error)
                skipped = pytest.skip.Exception(f"not judged: {reason}", _use_item_location=True)
                call.excinfo = pytest.ExceptionInfo.from_exception(skipped.with_traceback(error.__traceback__))
            elif isinstance(error, EmulatedFault):
                fault = error
                call.excinfo = pytest.ExceptionInfo.from_exception(at_the_kernel(error))
        report = yield
        if fault is not None and (details := details_of(fault)):
            report.sections.append((f"emulated {self.session.device.arch}", details))
        if report.when == "call":
            self.has_passed = report.passed
        if report.when == "teardown":
            report.emulation = tally = self.session.take(item.nodeid)
            tally["passed_without_launch"] = int(self.has_passed and not tally["launches"])
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if hasattr(report, "emulation"):
            self.tally.add(report.emulation)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        terminalreporter.section(f"emulated {', '.join(self.session.targets)}")
        for line in self.tally.lines(self.session.schedules, shows_advice=config.getoption("--emulate-advice")):
            terminalreporter.write_line(line)
        if path := config.getoption("--emulate-report"):
            self.tally.write(Path(path), self.session.targets, self.session.schedules)

    def pytest_unconfigure(self) -> None:
        self.session.close()
        gc.unfreeze()  # or Triton's bindings take what is left at the end of Python for a leak


def load(config: pytest.Config, targets: list[str], schedules: int, *, numerics: bool, limit: str) -> None:
    """Enter the emulated GPU, and have the hooks."""
    config.pluginmanager.register(EmulatePlugin(targets, schedules, numerics=numerics, limit=limit), "bitverdict.emulate")
