"""Contract under test: no line of a log that others have a say in is a command of GitHub's runner."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import NoReturn

import pytest

from bitverdict.harness.frontends import pytest_nodes
from bitverdict.harness.frontends.main import main
from bitverdict.harness.frontends.pytest_nodes import Node, NodeJudge
from bitverdict.harness.judge.machine_faults import MachineFault
from bitverdict.harness.model.log_lines import Log, no_commands
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.session import tally
from bitverdict.harness.session.shrink import KernelFailed
from bitverdict.harness.session.tables import console


@pytest.mark.parametrize(
    "text",
    [
        "::error::x",
        "  \t::stop-commands::x",
        "said\n::add-mask::x",
        "said\x85::error::x",
        "said\u2028 ::error::x",
        "a ##[error]x",
        "a\r::x::",
    ],
)
def test_no_line_is_a_command(text: str) -> None:
    file = io.StringIO()
    Log(file).write(text)  # type: ignore[arg-type]
    for line in file.getvalue().splitlines():
        assert not line.strip().startswith("::") and "##[" not in line


def test_other_lines_are_as_they_were() -> None:
    text = "FAIL a.py:f on emulated:sm_90\n  c::d, at [0, 0]\n"
    assert no_commands(text) == text


def commands_in(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip().startswith("::") or "##[" in line]


def test_what_a_run_prints_into_a_log_has_no_command(capsys: pytest.CaptureFixture) -> None:
    """By the tables, and by the last line of a run that ends with an error."""
    console().print("  ::stop-commands::x")
    assert main(["run", "nothere.py:f\n::error::x"]) == 2
    said = capsys.readouterr()
    assert "| ::stop-commands::x" in said.out and "::error::x" in said.err
    assert commands_in(said.out + said.err) == []


@pytest.mark.parametrize("raised", [KernelFailed("a\n::error::x"), MachineFault("a\n::error::x"), UsageError("a\n::error::x")])
def test_what_pytest_prints_of_a_failure_has_no_command(raised: Exception) -> None:
    class Raises(NodeJudge):
        sealed = False

        def __init__(self) -> None: ...

        def machine(self, name: str) -> NoReturn:
            raise raised

    with pytest.raises(pytest.fail.Exception) as failed:
        Raises().hold_test(lambda machine: None, "emulated:sm_90", None)  # type: ignore[arg-type, return-value]
    assert commands_in(str(failed.value)) == [] and "::error::x" in str(failed.value)


class SessionOfOneBug:
    """What a session tells of a node whose one bug is reported in the words of a kernel."""

    def __init__(self, bug: SimpleNamespace | None) -> None:
        self.first_failure = lambda *asked, **named: bug
        self.bugs = {} if bug is None else {"": bug}
        self.tally = tally.Tally()
        self.tally.status = lambda *asked: tally.FAIL  # type: ignore[method-assign]
        self.tally.inconclusive["no verdict: a\n::error::x"] = 1
        self.reduce = self.store = lambda: None


@pytest.mark.parametrize("fails", [True, False])
def test_what_pytest_prints_of_a_node_has_no_command(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node of a shipped contract raises its report itself: of a failure, and of cases that nothing decided."""
    verdict, said = SimpleNamespace(signature=("test", "", "")), "FAIL: a\n::error::x"
    report = SimpleNamespace(verdict=verdict, report=lambda: said, headline=lambda: said)
    monkeypatch.setattr(pytest_nodes, "Session", lambda *asked, **named: SessionOfOneBug(report if fails else None))

    class OfASession(NodeJudge):
        expression, certificate, html, pool, profile, database = None, "", False, None, None, None  # type: ignore[assignment]

        def __init__(self) -> None:
            self._waited, self.seed, self.accepts_known_faults = 0.0, 0, False

    with pytest.raises((KernelFailed, pytest.fail.Exception)) as failed:
        OfASession().hold(Node("softmax", "emulated:sm_90"), [])
    assert isinstance(failed.value, KernelFailed) is fails
    assert commands_in(str(failed.value)) == [] and "::error::x" in str(failed.value)
