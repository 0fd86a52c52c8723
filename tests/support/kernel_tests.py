"""``python -m tests.support.kernel_tests STEM``: the tests that a new kernel can turn red.

They are those with the kernel's name in their id, and those that go through all kernels: the test, a function of its file that it
calls, or a fixture of its file names something that stands for all of them. docs/adding_a_kernel.md has this command, so that the
suite holds the guide to it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FunctionType

import pytest

from benchmarks import releases, targets
from bitverdict.harness.lab.offline_compile.expectations import rows
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.report import required_lists
from tests.support import shares

ALL_KERNELS = (kernels_with_a_contract, required_lists, required_lists.frozen_kernels, targets, targets.kernels_due, releases, rows)
PAGES = "pages"  # the command that prints docs/kernels.md


def code_of(function: FunctionType) -> Iterator[CodeType]:
    """The code of `function` and of the functions inside it."""
    inside = [function.__code__]
    while inside:
        yield (code := inside.pop())
        inside += [each for each in code.co_consts if isinstance(each, CodeType)]


def goes_through_all(function: FunctionType, passed: frozenset[FunctionType] = frozenset()) -> bool:
    """Whether `function`, or one of its file that it calls, names all kernels."""
    codes, passed = list(code_of(function)), passed | {function}
    named = [function.__globals__.get(name) for code in codes for name in code.co_names]
    if any(PAGES in code.co_consts and "main" in code.co_names for code in codes):
        return True
    if any(each is every for each in named for every in ALL_KERNELS):
        return True
    called = {each for each in named if isinstance(each, FunctionType) and each.__module__ == function.__module__}
    return any(goes_through_all(each, passed) for each in called - passed)


def can_turn_red(item: pytest.Item, stem: str) -> bool:
    """Whether a new kernel `stem` can turn `item` red."""
    if stem in item.nodeid or not isinstance(item, pytest.Function) or is_of_one_kernel(item):
        return stem in item.nodeid
    fixtures = [fixture.func for each in item._fixtureinfo.name2fixturedefs.values() for fixture in each]
    functions = [item.function, *(each for each in fixtures if getattr(each, "__module__", "") == item.function.__module__)]
    return any(goes_through_all(each) for each in functions if isinstance(each, FunctionType))


def is_of_one_kernel(item: pytest.Function) -> bool:
    """Whether a parameter of `item` names a kernel."""
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return any(isinstance(value, str) and value in kernels_with_a_contract() for value in values)


class Selection:
    """A plugin of pytest's that leaves out what the kernel `stem` cannot turn red."""

    def __init__(self, stem: str) -> None:
        self.stem = stem

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        chosen = {item: can_turn_red(item, self.stem) for item in items}
        config.hook.pytest_deselected(items=[item for item in items if not chosen[item]])
        items[:] = [item for item in items if chosen[item]]


if __name__ == "__main__":
    shares.MUTANTS.clear()  # each mutant of the kernel is judged, under any profile
    sys.exit(pytest.main(["-q", "-n", "0", "tests", *sys.argv[2:]], plugins=[Selection(sys.argv[1])]))
