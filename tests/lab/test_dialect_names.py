"""Contract under test: a pronoun, a participle or a bare adjective is refused as a name, and a name of the field is not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from bitverdict.harness.lab.dialect_names import EXCEPTIONS, PUBLIC, dialect_names, is_dialect, is_refused, named_things
from bitverdict.harness.lab.source_figures import Sources

WORST = """found told _told Asked kept Seen Again beside Beside Kept AS_EVER of each said given left made told_apart left_out what
whole plain _held as_told Together Elsewhere recorded lacking""".split()
RIGHT = """LaunchResult emulated_twin MemoryReservation choose_discriminating_seed string padding seed timing judge words out speed
left_operand encode_launch_result first_failure judged_unit BLOCK_M m n_k a row_of emulated is_far __init__ _ Mapping""".split()


@pytest.mark.parametrize("name", WORST)
def test_a_name_that_says_no_thing_is_refused(name: str) -> None:
    assert is_dialect(name)


@pytest.mark.parametrize("name", RIGHT)
def test_a_name_of_the_field_is_not(name: str) -> None:
    assert not is_dialect(name)


def entries(text: str) -> list[str]:
    return [f"{kind} {name}" for _, kind, name in named_things(ast.parse(text)) if is_dialect(name)]


def test_functions_classes_fields_and_constants_count() -> None:
    text = "KEPT = 2\n\n\nclass Seen:\n    told: str = ''\n    words: int\n\n    def asked(self): ...\n"
    assert sorted(entries(text)) == ["class Seen", "constant KEPT", "field told", "function asked"]


def test_members_of_an_enumeration_are_values() -> None:
    assert entries("class Order(Enum):\n    ASCENDING = 1\n") == []
    assert entries("class Order:\n    ASCENDING = 1\n") == ["field ASCENDING"]


def test_a_public_name_is_kept_for_its_kind_alone() -> None:
    assert not is_refused("function", "whole") and is_refused("variable", "whole")
    assert all(is_dialect(name) for names in PUBLIC.values() for name in names.split()), (
        "no name stands here that the lint does not refuse"
    )


@pytest.mark.parametrize(("lines", "count"), [(3, 0), (4, 0), (5, 1), (9, 1)])
def test_a_variable_counts_where_it_lives_longer_than_five_lines(lines: int, count: int) -> None:
    body = "    step()\n" * lines
    assert len(entries(f"def f():\n    found = 1\n{body}    return found\n")) == count
    assert len(entries(f"def f(found):\n{body}    return found\n")) == count
    assert entries(f"def f():\n    found = 1\n{body}") == [], "nobody uses it"


def test_the_sides_of_an_operation_are_names() -> None:
    body = "    step()\n" * 9
    assert entries(f"def f(left, right):\n{body}    return left + right\n") == []
    assert entries(f"def f(left):\n{body}    return left\n") == ["argument left"]


def test_what_a_function_inside_binds_is_its_own() -> None:
    body = "        step()\n" * 6
    text = f"def f():\n    def g():\n        found = 1\n{body}        return found\n    return g\n"
    assert entries(text) == ["variable found"], "counted once, of g"


def test_modules_count_and_tests_do_not() -> None:
    made = Sources(Path("nowhere"))
    made.__dict__["texts"] = {"harness/judge/asked.py": "", "tests/judge/asked.py": "found = 1\n", "harness/judge/__init__.py": ""}
    assert dialect_names(made) == ["harness/judge/asked.py:1: module asked"]


def test_each_exception_would_be_refused_otherwise() -> None:
    assert [name for name in EXCEPTIONS if not is_dialect(f"{name}_")] == []
