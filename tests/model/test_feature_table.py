"""Contract under test: optional features stand in one table, each can be left out, and a package that lacks is one sentence."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from bitverdict.harness.frontends.main import LABORATORY, main
from bitverdict.harness.model import feature_table
from bitverdict.harness.model.extras import EXTRA_OF, require_extra
from bitverdict.harness.model.protocols import Check, LaunchObserver
from bitverdict.harness.model.usage import UsageError

FIND_SPEC = importlib.util.find_spec


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    """Each test asks the table anew, and leaves it as it was."""
    for asked in (feature_table.checks, feature_table.observers, feature_table.isolation):
        asked.cache_clear()
    yield
    for asked in (feature_table.checks, feature_table.observers, feature_table.isolation):
        asked.cache_clear()


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """As in an installation that lacks these modules."""

    def find_spec(name: str, package: str | None = None) -> object:
        if any(name == each or name.startswith(f"{each}.") for each in names):
            if name in names:
                return None
            raise ModuleNotFoundError(name)
        return FIND_SPEC(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


def test_each_line_names_a_check_or_an_observer() -> None:
    checks, observers = feature_table.checks(), feature_table.observers()
    assert len(checks) == len(feature_table.CHECKS) and all(Check in type(check).__mro__ for check in checks)
    assert len(observers) == len(feature_table.OBSERVERS) and all(
        LaunchObserver in type(observer).__mro__ for observer in observers
    )
    for address in (*feature_table.REMOTE_LAUNCHERS.values(), *feature_table.OUTCOMES.values(), feature_table.ISOLATION):
        assert callable(feature_table.resolve_feature(address))


def test_a_feature_that_is_not_here_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "bitverdict.harness.sealed")
    names = {type(check).__name__ for check in feature_table.checks()}
    assert "SealedTwin" not in names and len(names) == len(feature_table.CHECKS) - 1
    assert feature_table.isolation() is None


def test_a_check_that_fails_to_import_is_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its module is here: that it is broken must be seen."""
    monkeypatch.setattr(feature_table, "CHECKS", ("bitverdict.harness.model.usage:NoSuchCheck",))
    with pytest.raises(AttributeError, match="NoSuchCheck"):
        feature_table.checks()


@pytest.mark.parametrize("package", EXTRA_OF)
def test_a_package_that_lacks_is_one_sentence_with_the_pip_line(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, package)
    with pytest.raises(UsageError) as raised:
        require_extra(package, "--it")
    line = f"pip install '.[{EXTRA_OF[package]}]' in a checkout of bitverdict"
    assert str(raised.value) == f"--it: needs the package {package}, which is not installed; {line}"


def test_a_package_that_is_here_is_asked_for_nothing() -> None:
    for package in ("libcst", "jinja2"):
        require_extra(package, "--it")


def test_commands_say_it_before_they_begin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    without(monkeypatch, "libcst", "jinja2")
    assert main(["mutate", "softmax"]) == 2
    assert "pip install '.[mutate]'" in capsys.readouterr().err
    assert main(["run", "softmax", "--html", "page.html"]) == 2
    assert "pip install '.[report]'" in capsys.readouterr().err


@pytest.mark.parametrize("command", sorted(LABORATORY))
def test_a_wheel_says_of_a_laboratory_command_that_it_needs_a_checkout(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    without(monkeypatch, "bitverdict.harness.lab")
    with pytest.raises(SystemExit) as ended:
        main([command])
    assert ended.value.code == 2
    assert (
        f"{command} is of the laboratory: it needs a checkout of the repository, and this is a wheel; run it in a clone"
        in capsys.readouterr().err
    )


def test_a_wheel_lists_the_other_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    without(monkeypatch, "bitverdict.harness.lab")
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0 and "replay" in shown and "tma-limits" not in shown
