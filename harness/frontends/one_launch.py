"""One launch on given operands: the reference is evaluated here, the function is launched in a worker, and the report is raised."""

from __future__ import annotations

import atexit
import hashlib
import inspect
import os
import sys
import unittest
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.contracts.described.dtypes import format_of, storage_of
from bitverdict.harness.contracts.described.given_launch import ADDRESS, WITHIN, GivenLaunch, GivenOperand, trace_problem, with_data
from bitverdict.harness.emulator.kernel_traceback import frame_at
from bitverdict.harness.judge import devices  # noqa: F401  (what torch.cuda says to a user's file)
from bitverdict.harness.judge.guarded_buffers import words
from bitverdict.harness.judge.machine_faults import check_compiler_cache, writing
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.decorated_object import search_path
from bitverdict.harness.model.paths import state_directory
from bitverdict.harness.model.targets import Target, targets
from bitverdict.harness.model.targets import target as target_called
from bitverdict.harness.model.usage import BodyError, UsageError
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.sealed.processes import candidate_descriptions
from bitverdict.harness.session import reproducers, tables
from bitverdict.harness.session.bugs import Bug
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.failure_report import describe
from bitverdict.harness.session.replay import with_error_budget
from bitverdict.harness.workers.pool import WorkerPool

if TYPE_CHECKING:
    import torch

SCHEDULES = ("eager", "latest", "drawn:1")


def judge_launch(
    address: str,
    operands: Sequence[object],
    reference: Callable[..., object],
    *,
    target: str | None,
    exact: bool,
    returns: tuple[str, ...],
    accumulation: str,
    real_values: bool,
    is_sealed: bool,
) -> None:
    """Judge the launch of what lies at `address`; see `bitverdict.assert_right`."""
    check_compiler_cache()
    __tracebackhide__ = True
    machines = targets() if target is None else [target_called(target)]
    given_operands, codes = _take_operands(operands, reference)
    place = address.rpartition(":")[0]
    if is_sealed:
        candidate_descriptions.begin(address, search_path(Path(place).resolve()))
    lacking_messages = []
    for arch in dict.fromkeys(machine.arch for machine in machines):
        problem = _store_data(*trace_problem(given_operands, codes, reference, arch, accumulation, exact=exact, returns=returns))
        for machine in (each for each in machines if each.arch == arch):
            for schedule in SCHEDULES if machine.emulated else SCHEDULES[:1]:
                case = Case(
                    contract=ADDRESS,
                    problem=problem,
                    schedule=schedule,
                    launcher=address,
                    search_path=search_path(Path(place).resolve()),
                    real_values=real_values,
                    sealed=is_sealed,
                )
                verdict = _pool().judge(case, machine)
                if verdict.decision is Decision.NOT_RUN:
                    lacking_messages.append(verdict.message)
                    break
                _raise(case, machine, with_error_budget(case, machine, verdict, _pool()))
    if len(lacking_messages) == len(machines):
        raise unittest.SkipTest("; ".join(lacking_messages))


def _raise(case: Case, machine: Target, verdict: Verdict) -> None:
    """AssertionError unless the verdict is a pass, UsageError for what cannot be asked."""
    __tracebackhide__ = True
    if verdict.decision is Decision.PASS:
        return
    if verdict.decision is Decision.ERROR and verdict.details.get("raised") in (BodyError.__name__, UsageError.__name__):
        raise UsageError(verdict.message)
    if verdict.decision is Decision.INCONCLUSIVE:
        raise AssertionError(f"inconclusive on {machine.name}: {verdict.message}\n  case: {describe(case)}")
    bug = Bug(CaseSource(ADDRESS, machine, launcher=case.launcher), case, verdict)
    bug.path = reproducers.write(reproducers.reproducer_of(case, machine.name, verdict, model=machine.model))
    error = AssertionError(tables.text_of(bug.report()))
    file, _, line = verdict.location.rpartition(":")
    under_test = [case.launcher.rpartition(":")[0], file]  # a report may name the file alone
    place = next((each for each in under_test if Path(each).name == Path(file).name and Path(each).is_file()), "")
    raise error.with_traceback(frame_at(error, place, int(line), {}) if place and line.isdigit() else None)


def _take_operands(
    operands: Sequence[object], reference: Callable[..., object]
) -> tuple[list[GivenOperand], dict[str, np.ndarray]]:
    """Each operand by the name of the reference's parameter, and the words of those that are tensors."""
    given_to = list(inspect.signature(reference).parameters)[1:]
    given_operands, codes = [], {}
    for place, each in enumerate(operands):
        name = given_to[place] if place < len(given_to) else f"operand_{place}"
        if isinstance(each, bool | int | float | None):
            given_operands.append(GivenOperand(name, value=each))
            continue
        tensor = _tensor(each)
        format_name, unsigned = format_of(tensor.dtype), words(tensor)
        codes[name] = unsigned.view(storage_of(format_name))
        strides = None if tensor.is_contiguous() else tuple(tensor.stride())
        given_operands.append(
            GivenOperand(name, format_name, tuple(tensor.shape), strides, tensor.storage_offset() if strides else 0)
        )
    return given_operands, codes


def _tensor(operand: torch.Tensor) -> Any:
    import torch

    if isinstance(operand, np.ndarray):
        operand = torch.from_numpy(np.ascontiguousarray(operand))
    if not isinstance(operand, torch.Tensor):
        raise UsageError(f"operand {operand!r:.100}: must be a tensor, an array of NumPy or a number")
    return operand


def _store_data(problem: GivenLaunch, data: bytes) -> GivenLaunch:
    """`problem` with its bytes in it, or in a file where they are many."""
    if len(data) <= WITHIN:
        return with_data(problem, data)
    path = state_directory() / "given" / f"{hashlib.sha256(data).hexdigest()[:16]}.npz"
    with writing("operands", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return GivenLaunch(**vars(problem) | {"file": str(path.resolve())})


@cache
def _pool() -> WorkerPool:
    """One worker a target, kept for the next launch."""
    made = WorkerPool()
    me = os.getpid()
    atexit.register(lambda: made.close() if os.getpid() == me and not sys.is_finalizing() else None)
    return made
