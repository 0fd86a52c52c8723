"""The deliberate faults of tests/faults as units of frozen verdicts: messages say what fails, and required cases pass."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from bitverdict.harness.lab.frozen_verdicts import TARGETS, Unit
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.kernels.matmul import Problem
from tests.faults.causes import kernels_of_models
from tests.faults.causes.matmul_launchers import BUGS as LAUNCHER_BUGS
from tests.faults.causes.record import Explained
from tests.faults.corpus import COLLECTIONS
from tests.faults.mutants import CHECKOUT, Mutant, mutant_source, write_mutant
from tests.faults.your_kernels.collected import written

CASES_OF_A_FAULT = 12  # on each target, those first that the fault is said to show in


def fault_units(folder: Path, stems: Sequence[str]) -> Iterator[Unit]:
    """Faults of the kernels `stems`, and, with `matmul`, of users' launchers and kernels. Their files are written into `folder`."""
    for mutant in COLLECTIONS["kernels"]:
        if mutant.kernel in stems:
            yield _unit("mutant", mutant, partial(_cases_of_a_kernel, mutant, folder))
    if "matmul" in stems:
        sys.path.insert(0, str(folder))  # as pytest does with the folder of a test
        for mutant in COLLECTIONS["your kernels"]:
            yield _unit("your kernel", mutant, partial(_cases_of_a_users_kernel, mutant, folder))
        for bug in LAUNCHER_BUGS:
            yield _unit("launcher", bug.mutant, partial(_cases_of_a_launcher, bug, folder))
        for bug in kernels_of_models.BUGS:
            yield _unit("model kernel", bug.mutant, partial(_cases_of_a_models_kernel, bug, folder))


def _unit(group: str, mutant: Mutant, cases: Callable[[], Iterator[tuple[Case, Target]]]) -> Unit:
    name = f"{group}: {mutant.id}"
    return Unit(name, name, cases)


def _cases_of_a_kernel(mutant: Mutant, folder: Path) -> Iterator[tuple[Case, Target]]:
    address = write_mutant(mutant, folder)
    contract, shown_classes = resolve(address), set(mutant.shows_in)
    for where in map(target, mutant.on or TARGETS):
        if not contract.lacking(where):
            required = contract.required(where)
            refused_first = mutant.name.endswith("not checked") or mutant.expected == ("not refused",)
            if refused_first:  # it shows where the right kernel refuses
                required.sort(key=lambda case: resolve(mutant.kernel).expected_outcome(case, where).result)
            required.sort(
                key=lambda case: not shown_classes <= {(name, str(value)) for name, value in contract.coverage(case, where).items()}
            )
            yield from ((case, where) for case in required[:CASES_OF_A_FAULT])


def _cases_of_a_users_kernel(mutant: Mutant, folder: Path) -> Iterator[tuple[Case, Target]]:
    return _cases_at(written(mutant, folder), target("emulated:sm_90"), folder)


def _cases_of_a_models_kernel(bug: Explained, folder: Path) -> Iterator[tuple[Case, Target]]:
    """Its file holds its own test."""
    path = _write_fault(bug, folder)
    return _cases_at(f"{path}:test_{(CHECKOUT / bug.mutant.kernel).stem}", target(bug.on), folder)


def _cases_at(address: str, where: Target, folder: Path) -> Iterator[tuple[Case, Target]]:
    """The first required cases of the described kernel at `address`."""
    for case in CaseSource(address, where).required()[:CASES_OF_A_FAULT]:
        yield replace(case, search_path=(str(folder),)), where


def _write_fault(bug: Explained, folder: Path) -> Path:
    path = folder / f"{bug.mutant.stem}.py"
    path.write_text(mutant_source(bug.mutant))
    return path


def _cases_of_a_launcher(bug: Explained, folder: Path) -> Iterator[tuple[Case, Target]]:
    launcher = f"{_write_fault(bug, folder)}:{bug.launcher}"
    for fields in bug.cases:
        yield Case(contract="matmul", problem=Problem(**fields), data_seed=1, launcher=launcher), target(bug.on)
