"""Contract under test: an operation without an instruction on a target is refused there, as the whole compilation refuses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitverdict.harness.emulator.frontend.instruction_sets import NEEDS
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Outcome
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.task import Task, task_result_of
from tests.support.vector_add import HOST

REFUSED = {
    ("tma_gather", "sm_90"): "Feature '.tile::gather4 with destination state space as .shared::cta' requires .target sm_100",
    ("tma_scatter", "sm_90"): "Feature '.tile::scatter4' not supported on .target 'sm_90a'",
    ("hopper_matmul", "sm_100"): "Cannot select: intrinsic %llvm.nvvm.wgmma",
    ("hopper_matmul", "sm_80"): "Cannot select: intrinsic %llvm.nvvm.elect.sync",
}
"""What ptxas or LLVM says of a kernel whose operations the table names, compiled for an architecture that lacks them."""


def test_the_whole_compilation_refuses_what_the_table_says(tmp_path: Path) -> None:
    with WorkerPool(timeout=600, journal=Journal(tmp_path / "journal.jsonl")) as pool:
        for (stem, arch), says in REFUSED.items():
            given = {"stem": stem, "arch": arch}
            found = pool.judge(Task(function="tests.support.compile_elsewhere:compiled", contract="", given=given), HOST)
            told = task_result_of(found) or "\n".join(found.details["stderr"])  # LLVM's own abort ends the worker
            assert says in told, (stem, arch, told[-1000:])
    assert {having for _, having in NEEDS.values()} == {
        ("sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121"),
        ("sm_100", "sm_103", "sm_110", "sm_120", "sm_121"),  # gather4
        ("sm_100", "sm_103", "sm_110"),  # scatter4
        ("sm_90",),
    }


@pytest.mark.parametrize(("stem", "arch"), [("tma_gather", "sm_90"), ("tma_gather", "sm_80"), ("tma_scatter", "sm_90")])
def test_a_launcher_that_uses_a_feature_is_not_run_where_it_lacks(stem: str, arch: str) -> None:
    machine = target(f"emulated:{arch}")
    source = CaseSource(stem, machine, launcher=f"bitverdict.kernels.{stem}:{stem}")
    verdict = judge(source.required()[0], machine, source.contract)
    assert (verdict.decision, verdict.outcome) == (Decision.NOT_RUN, Outcome.NOT_RUN)
    assert verdict.message.startswith(f"{machine.name} lacks ") and f"which {arch} has not: it needs sm_100" in verdict.message
