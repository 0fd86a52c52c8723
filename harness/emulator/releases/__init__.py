"""What each release of Triton is like: one record a release (`records`), and the one that serves the Triton that is installed.

A release without a record is tried with the newest record that is not newer: of each pass that it lacks the name is said once, and
every verdict says that the compiler is unproven.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from operator import attrgetter

import triton
from triton._C import libtriton

from bitverdict.harness.emulator.releases.records import RELEASES, Release
from bitverdict.harness.model.triton_release import InstalledTriton, installed_triton, numbers_of

UNPROVEN = "judged on an unproven compiler"


def record_of(build: InstalledTriton) -> Release:
    """That of `build`, or the one it is tried with, which is not `proven`. RuntimeError, in a sentence, where it is not taken."""
    if build.problem:
        raise RuntimeError(build.problem)
    nearest = [each for each in RELEASES if each.numbers <= numbers_of(build.version)][-1]
    return replace(nearest, proven=build.is_proven)


def parts_of(name: str) -> tuple[str, tuple[str, ...]]:
    """A pass of a record as the name of its function in libtriton, and the names of its arguments."""
    function, _, arguments = name.partition("(")
    return function, tuple(filter(None, arguments.rstrip(")").split(", ")))


def is_there(name: str) -> bool:
    """Whether the Triton that is installed has the function `name`."""
    try:
        attrgetter(name)(libtriton)
    except AttributeError:
        return False
    return True


def missing_from(release: Release) -> tuple[str, ...]:
    """Names of the functions that `release` has and the Triton that is installed has not."""
    return tuple(dict.fromkeys(function for function, _ in map(parts_of, release.passes) if not is_there(function)))


@cache
def installed_release() -> Release:
    """The record of the Triton that is installed; of one that is tried, without the passes that it lacks."""
    return record_of(installed_triton())


_LACKING_NAMES = (
    (r"module 'triton\.(?:\w+\.)*(\w+)' has no attribute '(\w+)'", "{}.{}"),
    (r"'(\w+)' object has no attribute '(\w+)'", "{}.{}"),
    (r"cannot import name '(\w+)' from 'triton\.(?:\w+\.)*(\w+)'", "{1}.{0}"),
    (r"([\w.]+)\(\) got an unexpected keyword argument '(\w+)'", "{}({}=)"),
    (r"([\w.]+)\(\) missing 1 required positional argument: '(\w+)'", "{}() without {}"),
    (r"implementation of `(cat)` always may reorder elements", "{}(dim=)"),
    (r"Block pointers have been (remove)d", "language.advance"),
)
"""What Python and Triton say of a name that is missing, and how a record has it."""


def lacking_name(message: str) -> str:
    """One sentence where by `message` the language lacks what another release has. Empty otherwise."""
    said = ((re.search(pattern, message), form) for pattern, form in _LACKING_NAMES)
    name = next((form.format(*found.groups()) for found, form in said if found), "")
    here = installed_release().numbers
    for release in RELEASES:
        is_newer = release.numbers > here
        if name in (release.new_names if is_newer else release.removed_names):
            return f"triton {triton.__version__} lacks {name}, which {release.name} {'brought' if is_newer else 'removed'}"
    return ""


def compiler_fault_in(program: str, arch: str) -> str:
    """One sentence where the compiler that is installed fails at `program` (TTIR) for `arch`. Empty otherwise."""
    faults = (
        each for each in installed_release().compiler_faults if arch in each.architectures and re.search(each.pattern, program)
    )
    return next((f"triton {triton.__version__} lacks {each.form} for {arch}: {each.ending}" for each in faults), "")


def add_passes(manager: object, listed: Sequence[str], **values: int | str) -> None:
    """Give `manager` the passes `listed`, with `values` by the names of their arguments. Those that an unproven release lacks are
    left out."""
    for name in listed:
        function, arguments = parts_of(name)
        if installed_release().proven or is_there(function):
            attrgetter(function)(libtriton)(manager, *(values[argument] for argument in arguments))


def notice() -> str:
    """One sentence where the Triton that is installed has no record: what it is tried with, and what it lacks. Empty otherwise."""
    release = installed_release()
    if release.proven:
        return ""
    missing = missing_from(release)
    lacks = f"; it lacks {', '.join(missing)}" if missing else ""
    return f"{installed_triton().name} is no release with a record and is tried as {release.name}: each case is {UNPROVEN}{lacks}"


__all__ = [
    "RELEASES",
    "UNPROVEN",
    "Release",
    "add_passes",
    "compiler_fault_in",
    "installed_release",
    "lacking_name",
    "missing_from",
    "notice",
    "record_of",
]
