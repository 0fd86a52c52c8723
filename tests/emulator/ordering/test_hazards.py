"""Contract under test: on the emulated GPU a kernel that relies on an order which nothing guarantees fails under its right
name, with both lines that collide, within 50 drawn schedules; a kernel that does not passes under every schedule, and
computes the same words."""

from __future__ import annotations

import ast
import re
from functools import cache, reduce
from pathlib import Path

import pytest
import torch

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.emulator.releases import RELEASES, installed_release
from bitverdict.harness.judge.guarded_buffers import Guard, Poison, guarded_allocations
from tests.faults.corpus import COLLECTIONS
from tests.faults.mutants import Mutant, ProgramEdit, mutant_source
from tests.support.emulated_launches import KERNELS, SCHEDULES, load, source_of
from tests.support.shares import in_this_run

EVERY = COLLECTIONS["timing"]
HAZARDS = [hazard for hazard in EVERY if in_this_run(hazard.id, 2, in_ci=3)]
DRAWN = 50
FENCED_BY_THE_COMPILER = "block_scaled_matmul"  # a Triton kernel has no fence of its own: an advice says so


@pytest.mark.share(3)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_right_kernel_passes_and_gives_one_result_under_every_schedule(kernel: str) -> None:
    run, arch = KERNELS[kernel]
    module = load(source_of(kernel))
    results = []
    for schedule in SCHEDULES:
        with emulated(arch, schedule) as device:
            got, expected = run(module)
        assert not device.findings and (not device.advice or kernel == FENCED_BY_THE_COMPILER)
        results.append(got)
    assert all(torch.equal(got, results[0]) for got in results)
    assert ((results[0].double() - expected).abs() <= 2**-10 * expected.abs().max()).all()


def fault_of(hazard: Mutant, directory: Path, schedule: str) -> EmulatedFault | None:
    """What the emulator raises on the faulty kernel; None where it passes."""
    path = directory / f"{hazard.kernel}_{EVERY.index(hazard)}.py"
    path.write_text(mutant_source(hazard))
    run, arch = KERNELS[hazard.kernel]
    edits = [edit for edit in hazard.edits if isinstance(edit, ProgramEdit)]

    def rewritten(program: str) -> str:
        return reduce(lambda text, edit: re.sub(edit.pattern, edit.by, text), edits, program)

    try:
        with (
            emulated(arch, schedule, options=LaunchOptions(rewrite=rewritten if edits else None)),
            guarded_allocations(Guard(Poison.of_seed(0))),
        ):
            run(load(path))
    except EmulatedFault as raised:
        return raised
    return None


@pytest.fixture(scope="module")
def aside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutants")


@cache
def failure_report(hazard: Mutant, directory: Path) -> tuple[EmulatedFault, int]:
    """The first failure under the hazard's name, and how many drawn schedules it took."""
    for seed in range(DRAWN):
        fault = fault_of(hazard, directory, f"drawn:{seed}")
        if fault is not None and fault.outcome in hazard.expected:
            return fault, seed + 1
        assert fault is None or fault.outcome in hazard.before, fault
    pytest.fail(f"not failed as {hazard.expected} within {DRAWN} drawn schedules")


@cache
def where_all_completes_at_issue(hazard: Mutant, directory: Path) -> str:
    fault = fault_of(hazard, directory, "immediate")
    return "passed" if fault is None else fault.outcome


def text_at(location: str) -> str:
    """The line of source at ``file:line``."""
    file, _, line = location.rpartition(":")
    return Path(file).read_text().splitlines()[int(line) - 1] if file else ""


def is_older_end(location: str) -> bool:
    """Whether a program of an older Triton ends there: at the last statement of its kernel, not at the kernel's own line."""
    file, _, line = location.rpartition(":")
    functions = [each for each in ast.walk(ast.parse(Path(file).read_text())) if isinstance(each, ast.FunctionDef)]
    return installed_release().name != RELEASES[-1].name and int(line) in [each.body[-1].lineno for each in functions]


@pytest.mark.parametrize("hazard", HAZARDS, ids=lambda hazard: hazard.id.replace(" ", "-"))
def test_a_hazard_fails_by_name_with_both_its_lines(hazard: Mutant, aside: Path) -> None:
    fault, _ = failure_report(hazard, aside)
    assert hazard.at in text_at(fault.location)
    other = fault.details.get("other location", "")
    assert hazard.other in text_at(other) or (fault.details.get("other operation") == "the program's end" and is_older_end(other))
    assert hazard.other or hazard.expected != ("race",)
    assert (fault.details["timeline"] or hazard.expected[0].startswith("stray")) and fault.details["schedule"].startswith("drawn:")


def test_what_collides_is_marked_in_the_timeline(aside: Path) -> None:
    hazard = next(h for h in EVERY if h.kernel == "blocked_matmul_pipelined" and h.expected == ("race",))
    fault, _ = failure_report(hazard, aside)
    marked = [line for line in fault.details["timeline"] if line.startswith("->")]
    line = fault.details["other location"].rpartition("/")[2]
    assert marked and all(line in each and "tcgen05.mma" in each for each in marked)


@pytest.mark.share(4)
def test_a_simulator_in_which_everything_completes_at_issue_sees_far_fewer(aside: Path, capsys: pytest.CaptureFixture) -> None:
    """Why time is modelled: under "immediate" no race among operations exists."""
    rows = []
    for hazard in HAZARDS:
        fault, needed = failure_report(hazard, aside)
        said = where_all_completes_at_issue(hazard, aside)
        lines = ", ".join(place.rpartition(":")[2] for place in (fault.location, fault.details.get("other location", "")) if place)
        rows.append((hazard.kind, hazard.kernel, hazard.expected[0], lines, str(needed), said))
    heads = ("hazard", "kernel", "failed as", "lines", "schedules", "completing at issue")
    wide = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    by_name = sum(row[2] == row[5] for row in rows)
    failed = sum(row[5] != "passed" for row in rows)
    with capsys.disabled():
        print()
        for row in (heads, *rows):
            print("  ".join(cell.ljust(width) for cell, width in zip(row, wide, strict=True)).rstrip())
        print(
            f"{len(rows)} mutated, all failed by name within {DRAWN} drawn schedules; where operations complete at issue "
            f"{failed} fail, {by_name} of them by name"
        )
    assert len(EVERY) >= 60 and by_name < 0.6 * len(rows)
