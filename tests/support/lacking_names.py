"""Tests of what the installed release of Triton lacks: skipped with the record's sentence (`releases.lacking_name`), on a release
that has a newer record alone. A name that no newer release brought stays a failure.

A test may fail at what it makes of a verdict, of its own process or of a worker. So one that fails is skipped too where a case
of it was not run for what the release lacks, or met a hazard that its compiler is known for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import triton

from bitverdict.harness.emulator import releases
from bitverdict.harness.emulator.releases import RELEASES, installed_release, lacking_name
from bitverdict.harness.model.verdict import Verdict

_SENTENCE = re.compile(r"triton \S+ lacks [^,\n]+, which \S+ brought|triton \S+ lacks [^\n]*?: [^\n'\"]+")
"""What a verdict says where a case was not run for a name, or for a fault of the compiler, of the release."""


@contextmanager
def told_sentences() -> Iterator[list[str]]:
    """While entered, what cases are not run for, and hazards of the compiler's, are kept in the order in which they are told."""
    told: list[str] = []
    initialise = Verdict.__init__

    def lacking(message: str) -> str:
        sentence = lacking_name(message)
        told.extend([sentence] if sentence.endswith("brought") else [])
        return sentence

    def initialised(verdict: Verdict, *values: Any, **fields: Any) -> None:
        initialise(verdict, *values, **fields)
        told.extend(filter(None, [sentence_of(verdict.message) or _hazard_of(verdict)]))

    with patch.object(releases, "lacking_name", lacking), patch.object(Verdict, "__init__", initialised):
        yield told


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
    """What the compiler of the installed release is known to make, and that of the newest is not."""
    workaround = getattr(error, "details", {}).get("workaround")
    here = set(installed_release().hazards) - set(RELEASES[-1].hazards)
    known = next((each for each in here if each.workaround == workaround), None)
    return f"triton {triton.__version__} makes a hazard of {known.operation} and {known.other_operation}" if known else ""
