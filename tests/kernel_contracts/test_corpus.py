"""Contract under test: each mutant of the corpus has edits that apply and a name of its own, and a test asks of it.

What a mutant must fail as is held by the test that asks of it."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import pytest

from bitverdict.harness.model.verdict import Outcome
from bitverdict.reference.tensor_core import INSTRUCTIONS
from tests.faults.corpus import COLLECTIONS
from tests.faults.mutants import (
    CHECKOUT,
    FunctionEdit,
    Mutant,
    ProgramEdit,
    SourceEdit,
    ValueEdit,
    mutant_record,
    mutant_source,
    once,
    replaced_once,
    source_of,
)

BY_HAND = {
    "products": ("test_gemm_bound.py", "for mutant in MUTANTS if not no_fault_in"),
    "causes": ("test_named_causes.py", "for bug in BUGS if bug.mutant.name in JUDGED"),
    "kernels of models": ("test_named_causes.py", "for bug in kernels_of_models.BUGS if bug.mutant.id in NAMED"),
    "your kernels": ("test_your_kernels.py", "for mutant in judged_here()"),
    "instruction constants": ("test_tensor_core_constants.py", "for mutant in mutants_of(held.rule)"),
}
"""Collections that one test goes through, by shares or because their mutants share an expensive case. Its file, and the line that
does."""
EVERY = [pytest.param(name, id=name.replace(" ", "-")) for name in COLLECTIONS]


@pytest.mark.parametrize("collection", EVERY)
def test_no_two_mutants_of_a_collection_have_one_name_or_one_edit(collection: str) -> None:
    mutants = COLLECTIONS[collection]
    assert len({mutant.id for mutant in mutants}) == len(mutants) > 0
    marks = [repr((m.kernel, m.kind, m.edits, dict(m.problem), dict(m.config), m.at)) for m in mutants]
    assert sorted(marks) == sorted(set(marks))


@pytest.mark.parametrize("collection", EVERY)
def test_each_edit_applies_and_changes_something(collection: str) -> None:
    rules = {rule.name: rule for rule in INSTRUCTIONS}
    for mutant in COLLECTIONS[collection]:
        for edit in mutant.edits:
            match edit:
                case SourceEdit():
                    compile(mutant_source(mutant), mutant.id, "exec")
                    assert edit.replace != edit.by, mutant.id
                case ProgramEdit():
                    assert re.compile(edit.pattern).pattern and source_of(mutant.kernel).is_file(), mutant.id
                case ValueEdit():
                    assert mutant_record(mutant, rules[mutant.kernel]) != rules[mutant.kernel], mutant.id
                case FunctionEdit():
                    assert callable(edit.function), mutant.id
        assert mutant.edits or mutant.expected == ("pass",), f"{mutant.id} edits nothing"


@pytest.mark.parametrize("collection", EVERY)
def test_each_expected_outcome_is_one_that_a_verdict_can_have(collection: str) -> None:
    known = {str(outcome) for outcome in Outcome}
    for mutant in COLLECTIONS[collection]:
        assert {*mutant.expected, *mutant.before} <= known, mutant.id
        without_verdict = collection in ("reference", "instruction constants") or mutant.kernel == "tile_scheduler"
        assert mutant.expected or without_verdict, mutant.id


def names_a_mutant(source: str) -> bool:
    """Whether a test module imports something of the corpus."""
    imports = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom))
    return any((node.module or "").startswith("tests.faults") for node in imports)


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_asks_of_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def parameters_of(module: ModuleType) -> set[tuple]:
    """`key` of each mutant that a test of the module has as a parameter."""
    tests = [test for name, test in vars(module).items() if name.startswith("test_")]
    marks = [mark for test in tests for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    sets = [values.values if hasattr(values, "marks") else values for mark in marks for values in mark.args[1]]  # pytest.param
    each = [value for values in sets for value in (values if isinstance(values, (tuple, list)) else [values])]
    return {key(value) for value in each if isinstance(value, Mutant)}


def key(mutant: Mutant) -> tuple:
    return mutant.id, mutant.edits, mutant.expected


@cache
def asked_of() -> set[tuple]:
    """`key` of each mutant that some test of the suite has as a parameter."""
    others = (path for path in (CHECKOUT / "tests").rglob("test_*.py") if path != Path(__file__))
    files = [path for path in others if names_a_mutant(path.read_text())]
    with patch.dict(os.environ, BITVERDICT_PROFILE="exhaustive"):  # others judge a share
        return set().union(*(parameters_of(loaded(path)) for path in files))


@pytest.mark.parametrize("collection", [name for name in COLLECTIONS if name not in BY_HAND])
def test_each_mutant_is_a_parameter_of_some_test(collection: str) -> None:
    assert [mutant.id for mutant in COLLECTIONS[collection] if key(mutant) not in asked_of()] == []


@pytest.mark.parametrize("collection", BY_HAND)
def test_a_collection_that_one_test_goes_through_is_gone_through(collection: str) -> None:
    file, line = BY_HAND[collection]
    (path,) = (CHECKOUT / "tests").rglob(file)
    assert line in path.read_text()


def test_a_mutant_that_no_test_asks_of_is_found() -> None:
    new = Mutant(kernel="matmul", name="new", edits=once("a", "b"), expected=("race",))
    assert key(new) not in asked_of() and key(COLLECTIONS["kernels"][0]) in asked_of()


@pytest.mark.parametrize(("text", "times"), [("b", 0), ("a", 2)])
def test_a_text_that_does_not_occur_once_is_refused(text: str, times: int) -> None:
    with pytest.raises(ValueError, match=f"'{text}' occurs {times} times in this"):
        replaced_once("a+a", text, "c", "this")
    assert replaced_once("a+b", "b", "c", "this") == "a+c"


def test_a_kernel_that_is_nowhere_is_refused() -> None:
    with pytest.raises(ValueError, match="'no_such_kernel' names no source"):
        source_of("no_such_kernel")
