"""A mutant: what is edited, the edits, the outcome that is expected, where it is reported, and what it shows in.

Every deliberate fault of the tests and benchmarks is a `Mutant`; `corpus.py` lists them. This file alone applies their edits.
A mutant is not a copy of a kernel: where an edited text no longer occurs exactly once, applying it says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

from bitverdict.harness.model.addresses import load
from bitverdict.harness.model.contract import Contract

CHECKOUT = Path(__file__).resolve().parents[2]
OF_GLUON_KERNELS = ("specialised", "idioms")  # kernels that one file of tests/support holds
_TRAILER = """

import sys as _sys

import bitverdict.harness.contracts.{stem} as _contracts

CONTRACT = _contracts.contract(_sys.modules[__name__])
"""
_EDITED = """
from tests.faults.compiler.program_edits import edited as _edited

CONTRACT = _edited(CONTRACT, {pattern!r}, {by!r})
"""
_numbers = count()


@dataclass(frozen=True)
class SourceEdit:
    """`replace`, which occurs exactly once in the source, becomes `by`."""

    replace: str
    by: str


@dataclass(frozen=True)
class ProgramEdit:
    """The regular expression `pattern`, wherever it occurs in the program that the compiler made (TTGIR), becomes `by`."""

    pattern: str
    by: str


@dataclass(frozen=True)
class ValueEdit:
    """The field `name` of a frozen record becomes `value`: one constant of a model."""

    name: str
    value: Any


@dataclass(frozen=True)
class FunctionEdit:
    """A Python function that computes what the wrong kernel gives, in the place of the right one."""

    function: Callable


Edit = SourceEdit | ProgramEdit | ValueEdit | FunctionEdit


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One deliberate fault. No two of a collection share `id`."""

    kernel: str
    """What is edited: a stem of ``kernels/`` or ``tests/support/``, a path from the checkout, or a name of its collection."""
    name: str
    """What is wrong, in words."""
    edits: tuple[Edit, ...]
    expected: tuple[str, ...]
    """`bitverdict.harness.model.verdict.Outcome` values, any of which it may be given. Empty: the check that owns it fails."""
    kind: str = ""
    """The class of hazard, where a collection has classes."""
    on: tuple[str, ...] = ()
    """Targets that it shows on; empty where it shows on all that its test looks at."""
    shows_in: tuple[tuple[str, str], ...] = ()
    """Classes of the contract's coverage that it shows in, where few cases fall in them. It saves time, not a failure."""
    problem: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """With `config`, the launch that it shows in, where one is given."""
    config: Mapping[str, Any] = field(default_factory=dict, hash=False)
    when: str = ""
    """The part of the case space that it shows in, in words."""
    at: str = ""
    """Text on the line that the failure reports: of the operation that finds out."""
    other: str = ""
    """Text on the other line that it reports: of the operation that the first collides with. Empty where there is one."""
    before: tuple[str, ...] = ()
    """Outcomes that another schedule may find first: a partition that does not wait may come before the other or after it."""
    hangs: bool = False
    """Whether a GPU may not return."""

    @property
    def id(self) -> str:
        return ": ".join(part for part in (self.kernel, self.problem.get("form", ""), self.kind, self.name) if part)

    @property
    def stem(self) -> str:
        """The name of the edited copy's file: of kernel, launch and name, the same on every machine."""
        form = "_partitions" if self.problem.get("form") == "partitions" else ""
        return f"{Path(self.kernel).stem}{form}_{self.name}".replace(" ", "_").replace("'", "")

    @property
    def in_program(self) -> bool:
        """Whether the compiler's program is edited, and not the source."""
        return any(isinstance(edit, ProgramEdit) for edit in self.edits)


def once(replace: str, by: str) -> tuple[SourceEdit]:
    return (SourceEdit(replace, by),)


def replaced_once(text: str, replace: str, by: str, of: str) -> str:
    """`text`, named `of`, with `replace` changed to `by`. ValueError where it does not occur exactly once."""
    if (found := text.count(replace)) != 1:
        raise ValueError(f"{replace!r} occurs {found} times in {of}: an edited text must occur once; make it longer")
    return text.replace(replace, by)


def source_of(kernel: str) -> Path:
    """The file that a mutant of `kernel` edits. ValueError where there is none."""
    name = "gluon_kernels" if kernel in OF_GLUON_KERNELS else kernel
    for path in (CHECKOUT / name, CHECKOUT / "kernels" / f"{name}.py", CHECKOUT / "tests" / "support" / f"{name}.py"):
        if path.is_file():
            return path
    raise ValueError(f"{kernel!r} names no source: a stem of kernels/ or of tests/support/, or a path from the checkout")


def mutant_source(mutant: Mutant) -> str:
    """The source with the mutant's source edits made, one after another."""
    path = source_of(mutant.kernel)
    source = path.read_text()
    for edit in mutant.edits:
        if isinstance(edit, SourceEdit):
            source = replaced_once(source, edit.replace, edit.by, f"{path.relative_to(CHECKOUT)} (mutant {mutant.name!r})")
    return source


def write_mutant(mutant: Mutant, directory: Path) -> str:
    """Write the edited kernel into `directory` with its contract; returns the contract's address."""
    source = mutant_source(mutant)
    if "\nCONTRACT = " not in source:
        source += _TRAILER.format(stem=mutant.kernel)
    for edit in mutant.edits:
        if isinstance(edit, ProgramEdit):
            source += _EDITED.format(pattern=edit.pattern, by=edit.by)
    path = directory / f"{mutant.stem}.py"
    path.write_text(source)
    return f"{path}:CONTRACT"


def mutant_contract(mutant: Mutant, directory: Path) -> Contract:
    """The contract of the edited kernel, loaded in this process."""
    found = load(write_mutant(mutant, directory))
    assert isinstance(found, Contract)
    return found


@contextmanager
def mutant_module(mutant: Mutant) -> Iterator[ModuleType]:
    """The edited module, executed anew; the one that is imported stays as it is."""
    changed = ModuleType(f"{Path(mutant.kernel).stem}_mutant{next(_numbers)}")
    changed.__file__ = str(source_of(mutant.kernel))
    sys.modules[changed.__name__] = changed  # dataclasses look their module up
    try:
        exec(compile(mutant_source(mutant), changed.__file__, "exec"), changed.__dict__)
        yield changed
    finally:
        del sys.modules[changed.__name__]


def mutant_record(mutant: Mutant, record: Any) -> Any:
    """`record` with the mutant's value edits made."""
    return replace(record, **{edit.name: edit.value for edit in mutant.edits if isinstance(edit, ValueEdit)})


def mutant_function(mutant: Mutant) -> Callable:
    """The function of a mutant that is one."""
    (edit,) = mutant.edits
    assert isinstance(edit, FunctionEdit), mutant.id
    return edit.function
