"""Contract under test: mutants are drawn from every file, at places that count, the same for the same seed; each is held to the
tests that execute its line, quickest first, before any others; a kill is a test that fails twice, or hangs.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks import mutation_draw, mutation_map, mutation_run
from benchmarks.mutation_map import Map

SOURCE = """import triton
from functools import cache

def sum_of(a: int | None, b: "str" = "ä", c: int = 3) -> int | None:
    left: int | None = b or 4
    raise ValueError(f"{a + 1}")

@triton.jit
def kernel(a, N: tl.constexpr):
    return a + N

@cache
def kept(a):
    return a + 5
"""


@dataclass(frozen=True)
class Mutant:
    operator_name: str
    start_pos: tuple[int, int]
    end_pos: tuple[int, int]


def at(text: str, nth: int = 0) -> Mutant:
    """A mutant at the `nth` place of SOURCE that reads `text`."""
    offset = -1
    for _ in range(nth + 1):
        offset = SOURCE.index(text, offset + 1)
    line = SOURCE.count("\n", 0, offset) + 1
    column = offset - (SOURCE.rfind("\n", 0, offset) + 1)
    return Mutant("core/NumberReplacer", (line, column), (line, column + 1))


@pytest.mark.parametrize(
    ("place", "out"),
    [
        (at("|", 0), True),
        (at("|", 1), True),
        (at("|", 2), True),
        (at("+", 0), True),
        (at("@triton"), True),
        (at("+", 1), True),
        (at("@cache"), True),
        (at("3"), False),
        (at("4"), False),
        (at("+", 2), False),
    ],
)
def test_annotations_device_code_caches_and_prose_are_left_out(place: Mutant, out: bool) -> None:
    """What stands behind a character of two bytes is found where it is."""
    assert mutation_draw.inside(place, mutation_draw.left_out(SOURCE)) is out


def test_every_file_gets_a_mutant_and_long_ones_more() -> None:
    assert mutation_draw.shares({"a": 1, "b": 600, "c": 399}, 10) == {"a": 1, "b": 6, "c": 4}


def test_a_draw_takes_each_place_once_families_in_turn_by_its_seed() -> None:
    numbers = [Mutant("core/NumberReplacer", (line, 0), (line, 1)) for line in range(1, 90) for _ in range(2)]
    rest = [Mutant(name, (line, 0), (line, 2)) for line in (90, 91)
            for name in ("core/ReplaceBinaryOperator_Add_Sub", "core/ReplaceBinaryOperator_Add_Mul")]  # fmt: skip
    found = mutation_draw.drawn(numbers + rest, 4, "s")
    assert Counter(mutation_draw.family(mutant.operator_name) for mutant in found) == {"number": 2, "operator": 2}
    assert len({mutant.start_pos for mutant in found}) == 4
    assert found == mutation_draw.drawn(numbers + rest, 4, "s") != mutation_draw.drawn(numbers + rest, 4, "t")
    assert len(mutation_draw.drawn(rest, 9, "s")) == 2
    assert mutation_draw.family("core/RemoveDecorator") == "flow" and mutation_draw.family("core/AddNot") == "condition"


def known() -> Map:
    tests = ["tests/a.py::quick", "tests/b.py::b", "tests/a.py::slow", "tests/c.py::c", "tests/d.py::d"]
    return Map(tests, dict(zip(tests, (0.1, 1.0, 2.0, 3.0, 50.0), strict=True)), [[0, 2], [1], [4]],
               {"h/x.py": {"3": 0, "4": 1}, "h/user.py": {"1": 2}}, {"h/x.py": ["h/user.py", "tests/c.py"]})  # fmt: skip


def test_tests_of_the_line_come_first_then_of_the_file_then_importers() -> None:
    assert known().tests_for("h/x.py", 3, 300.0) == ["tests/a.py::quick", "tests/a.py::slow", "tests/b.py::b", "tests/c.py::c"]
    assert known().tests_for("h/x.py", 3, 1.0) == ["tests/a.py::quick", "tests/b.py::b"]  # no others for longer than that


def test_a_line_that_only_an_import_executes_is_held_to_users_of_its_file() -> None:
    assert known().all_at_import("h/x.py", 1) and not known().all_at_import("h/x.py", 3)
    assert known().tests_for("h/x.py", 1, 300.0) == ["tests/a.py::quick", "tests/b.py::b", "tests/a.py::slow", "tests/c.py::c",
                                                     "tests/d.py::d"]  # fmt: skip


def test_a_map_comes_back_from_its_file(tmp_path: Path) -> None:
    known().write(tmp_path / "map.json.xz")
    assert Map.read(tmp_path / "map.json.xz") == known()


def test_importers_are_files_of_the_rooms_and_tests(tmp_path: Path) -> None:
    for name, text in (("harness/emulator/__init__.py", ""), ("harness/a.py", "from bitverdict.harness import emulator"),
                       ("tests/test_a.py", "import bitverdict.harness.a"), ("reference/b.py", "import numpy")):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert mutation_map.users(tmp_path) == {"harness/emulator/__init__.py": ["harness/a.py"], "harness/a.py": ["tests/test_a.py"]}


def test_the_worst_report_of_a_test_is_its_outcome(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    reports = [("a", "setup", "passed"), ("a", "call", "failed"), ("a", "teardown", "passed"), ("b", "setup", "skipped")]
    log.write_text("".join(json.dumps({"test": test, "when": when, "outcome": outcome, "seconds": 0.5}) + "\n"
                           for test, when, outcome in reports) + json.dumps({"begins": "c"}) + "\n")  # fmt: skip
    assert mutation_run.outcomes(log) == {"a": ("failed", 1.5), "b": ("skipped", 0.5)}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkout of one module, which its test holds to 4."""
    tree = tmp_path / "t"
    for name in ("benchmarks", "bitverdict", "harness/frontends", "tests"):
        (tree / name).mkdir(parents=True)
    (tree / "harness/frontends/pytest_options.py").touch()  # pytest's plugin, where bitverdict is installed
    (tree / "bitverdict" / "__init__.py").touch()
    (tree / "bitverdict" / "harness").symlink_to("../harness")
    for path in Path(mutation_run.__file__).parent.glob("mutation_*.py"):
        (tree / "benchmarks" / path.name).write_text(path.read_text())
    (tree / "harness" / "two.py").write_text("TWO = 2\n")
    (tree / "tests" / "test_two.py").write_text(
        "import pathlib, time\nfrom bitverdict.harness.two import TWO\n"
        "def test_right(): assert TWO > 0\ndef test_four(): assert TWO + TWO == 4\n"
        "def test_once():\n    at = pathlib.Path(__file__).with_name('once')\n    there = at.exists()\n    at.touch()\n"
        "    assert TWO == 2 or there\n"
    )
    return tree


@pytest.mark.parametrize(
    ("text", "tests", "end", "by"),
    [
        ("TWO = 2", ["right", "four", "once"], "survived", ""),
        ("TWO = 3", ["right", "four"], "killed", "four"),
        ("TWO = 3", ["right", "once"], "survived", ""),  # it failed, and passed when it was run again
        ("TWO = ", ["right"], "killed", ""),
        ("while 1: pass", ["right"], "timeout", ""),
    ],
)
def test_a_mutant_ends_by_a_test_that_fails_twice_or_hangs(
    text: str, tests: list[str], end: str, by: str, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (copy / "harness" / "two.py").write_text(text + "\n")
    monkeypatch.chdir(copy)
    monkeypatch.setenv("PYTHONPATH", str(copy))
    if end == "timeout":
        monkeypatch.setattr(mutation_run, "COLLECTED_WITHIN", 1.0)
    names = [f"tests/test_two.py::test_{name}" for name in tests]
    plan = {"tests": names, "seconds": [0.1] * len(names), "passed": 0, "until": float("inf")}
    told = mutation_run.Tested(plan, copy.parent).run()
    assert told["end"] == end and told["by"].endswith(by)
    assert told["flaky"] == ([names[1]] if text == "TWO = 3" and end == "survived" else [])
