"""Contract under test: an import that runs up the rooms of the design is counted, also inside a function, and so is each circle."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitverdict.harness.lab.import_graph import FLOORS, ROOMS, arrows_up, circles, emulator_circles, room_of
from bitverdict.harness.lab.source_figures import Sources
from bitverdict.harness.model.paths import ROOT

JUDGE, SUMS, SESSION = "harness/judge/judge.py", "harness/checks/sums/words.py", "harness/session/session.py"
MEMORY, EXECUTION = "harness/emulator/memory/views.py", "harness/emulator/execution/agents.py"


def sources(**texts: str) -> Sources:
    """A checkout of these files, by names with `__` for the slash."""
    made = Sources(Path("nowhere"))
    made.__dict__["texts"] = {name.replace("__", "/") + ".py": text for name, text in texts.items()}
    return made


def planted(**texts: str) -> Sources:
    modules = dict.fromkeys(("harness__judge__judge", "harness__checks__sums__words", "harness__session__session"), "")
    return sources(**{**modules, **texts})


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("from bitverdict.harness.session.session import Session", 1),
        ("def later():\n    from bitverdict.harness.checks.sums.words import words", 1),
        ("import bitverdict.harness.session.session\nfrom ..checks.sums.words import words", 2),
        ("from bitverdict.harness.checks.sums.words import (one,\n    two)", 1),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from bitverdict.harness.session.session import Session", 0),
        ("import json", 0),
    ],
)
def test_imports_of_a_higher_floor_are_arrows_up(text: str, count: int) -> None:
    arrows = arrows_up(planted(harness__judge__judge=text))
    assert len(arrows) == count and all(arrow.startswith(f"{JUDGE}:") for arrow in arrows)


def test_imports_of_a_lower_floor_are_none() -> None:
    assert arrows_up(planted(harness__session__session="from bitverdict.harness.judge.judge import judge")) == []


def test_the_package_itself_lies_below_every_room() -> None:
    text = "from bitverdict.harness.judge.judge import judge"
    assert arrows_up(planted(bitverdict___rooms=text)) == [f"bitverdict/_rooms.py:1: the package imports {JUDGE} of judge"]


def test_the_longest_path_names_the_room() -> None:
    assert room_of(JUDGE) == "judge" and room_of(SUMS) == "checks" and room_of("tests/x.py") == ""


def test_each_room_has_a_floor_and_each_path_is_there() -> None:
    """A path that moved would count no more."""
    rooms = [room for floor in FLOORS for room in floor]
    assert set(ROOMS.values()) <= set(rooms) and len(rooms) == len(set(rooms))
    assert [path for path in ROOMS if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("graph", "count"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"a"}, "c": {"a"}}, [2]),
        ({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}}, [3, 2]),
        ({"a": {"a"}}, []),
    ],
)
def test_circles_of_more_than_one_node_are_found(graph: dict, count: list[int]) -> None:
    assert [len(circle) for circle in circles(graph)] == count


def test_a_circle_of_the_emulator_by_a_late_import_is_counted() -> None:
    late = "def late():\n    from bitverdict.harness.emulator.execution.agents import Agent"
    back = "from bitverdict.harness.emulator.memory.views import View"
    one = sources(harness__emulator__memory__views=late, harness__emulator__execution__agents=back)
    assert emulator_circles(one) == [f"2 files: {EXECUTION}, {MEMORY}"]
    assert emulator_circles(sources(harness__emulator__memory__views="", harness__emulator__execution__agents=back)) == []
