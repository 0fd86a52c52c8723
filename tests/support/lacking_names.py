"""Tests of what the installed release of Triton lacks: skipped with the record's sentence (`releases.lacking_name`), on a release
that has a newer record alone. A name that no newer release brought stays a failure.

A test may fail at what it makes of a verdict, of its own process or of a worker. So one that fails is skipped too where the
statement that failed is about a case that was not run for what the release lacks, or met a hazard that its compiler is known for,
and about no other that failed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from traceback import walk_tb

import pytest
import triton

from bitverdict.harness.emulator.releases import RELEASES, installed_release, lacking_name
from bitverdict.harness.model.verdict import Decision, Verdict

_SENTENCE = re.compile(r"triton \S+ lacks [^,\n]+, which \S+ brought|triton \S+ lacks [^\n]*?: [^\n'\"]+")
"""What a verdict says where a case was not run for a name, or for a fault of the compiler, of the release."""
OURS = ("bitverdict", "tests")


def errors_of(error: BaseException) -> Iterator[BaseException]:
    """`error`, and those that it was raised from or while."""
    link: BaseException | None = error
    seen: set[int] = set()  # an error may be a part of its own context
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def sentence_of(text: str) -> str:
    """Why a test that ended in `text` cannot pass here: what the release lacks that a newer one brought. Empty otherwise."""
    if installed_release().name == RELEASES[-1].name:
        return ""
    sentence = lacking_name(text)
    if sentence.endswith("brought"):
        return sentence
    found = _SENTENCE.search(text)
    return found[0] if found else ""


def sentence_of_error(error: BaseException) -> str:
    """`sentence_of` the first of its errors that has one."""
    said = (sentence_of(str(link)) or _hazard_of(link) for link in errors_of(error))
    return next(filter(None, said), "")


def _hazard_of(error: object) -> str:
    """What the compiler of the installed release is known to make, and that of the newest is not. A text tells the workaround."""
    workaround = getattr(error, "details", {}).get("workaround")
    here = set(installed_release().hazards) - set(RELEASES[-1].hazards)
    told = {each for each in here if isinstance(error, str) and f"; workaround: {each.workaround}; " in error}
    known = next((each for each in here if each.workaround == workaround or each in told), None)
    return f"triton {triton.__version__} makes a hazard of {known.operation} and {known.other_operation}" if known else ""


def sentence_of_failure(error: BaseException) -> str:
    """Why the test that ended in `error` cannot pass here: `sentence_of_error`, or that of a result which the failed statement
    names, unless it names another that failed. Empty otherwise."""
    if installed_release().name == RELEASES[-1].name:
        return ""
    results = [result for value in _named_values(error) for result in _results_in(value)]
    sentences = [_sentence_of_result(result) for result in results]
    if any(not said and _failed(result) for said, result in zip(sentences, results, strict=True)):
        sentences = []
    return next(filter(None, sentences), "") or sentence_of_error(error)  # whose text may be shortened by pytest


def _named_values(error: BaseException) -> Iterator[object]:
    """Values of the local variables that are named by statements of tests on the way to `error`."""
    for frame, line in walk_tb(error.__traceback__):
        path = Path(frame.f_code.co_filename)
        if "tests" in path.parts:
            tree = ast.walk(ast.parse(path.read_text()))
            around = [each for each in tree if isinstance(each, ast.stmt) and each.lineno <= line <= (each.end_lineno or 0)]
            names = {each.id for each in ast.walk(around[-1]) if isinstance(each, ast.Name)}
            yield from (value for name, value in frame.f_locals.items() if name in names)


def _results_in(value: object, depth: int = 4) -> Iterator[object]:
    """Verdicts, errors and texts in `value`."""
    if isinstance(value, pytest.ExceptionInfo):
        value = getattr(value, "_excinfo", None) and value.value  # `value` itself raises where nothing was raised
    if isinstance(value, Verdict | BaseException | str):
        yield value
    elif depth:
        inner = value if isinstance(value, list | tuple | Set) else value.values() if isinstance(value, Mapping) else ()
        for each in (*inner, *(getattr(value, "__dict__", {}).values() if type(value).__module__.startswith(OURS) else ())):
            yield from _results_in(each, depth - 1)


def _sentence_of_result(result: object) -> str:
    if isinstance(result, BaseException):
        return sentence_of_error(result)
    return sentence_of(result.message if isinstance(result, Verdict) else str(result)) or _hazard_of(result)


def _failed(result: object) -> bool:
    return isinstance(result, Verdict) and result.decision in (Decision.FAIL, Decision.ERROR)
