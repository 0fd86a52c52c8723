"""Contract under test: a user's kernel is *not run* where the compiler refuses it for what the target lacks, and fails where it is
refused for a fault of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from bitverdict.harness.judge.missing_features import held_to_features
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import NAMELESS, REFUSED_BY, Decision, Outcome, Verdict
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.pool import WorkerPool
from tests.support import featured_kernels
from tests.support.vector_add import ADDRESS, Problem

SM_80, SM_90, SM_100 = map(target, ("emulated:sm_80", "emulated:sm_90", "emulated:sm_100"))
OWN_FAULT = "Result has an invalid layout"


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    with WorkerPool(journal=Journal(tmp_path_factory.mktemp("journal") / "j.jsonl")) as pool:
        yield pool


@pytest.mark.parametrize("machine", [SM_80, SM_90], ids=lambda machine: machine.arch)
@pytest.mark.parametrize(
    ("kernel", "lacks"),
    [
        ("described", "tcgen05.mma: 'ttng.tmem_alloc' op requires tcgen05 support"),
        ("add_by_tcgen05", "tcgen05.mma: 'ttng.tmem_alloc' op requires tcgen05 support"),
        ("add_by_tma", "tensor memory accelerator: ttng.async_tma_copy_global_to_local becomes cp.async.bulk.tensor"),
        ("add_by_cluster", "thread block clusters: num_ctas > 1 requires NVIDIA SM90+"),
    ],
)
def test_a_feature_that_a_target_lacks_is_named_and_no_failure(kernel: str, lacks: str, machine, pool: WorkerPool) -> None:
    """The verifier's sentence is printed: only the worker's log has it. On sm_90, which has TMA and clusters, these do run, and the
    kernel of the cluster fails for its own fault."""
    verdict = pool.judge(_case_of(kernel, machine), machine)
    if machine is SM_90 and kernel in ("add_by_tma", "add_by_cluster"):
        assert verdict.decision is (Decision.PASS if kernel == "add_by_tma" else Decision.FAIL), verdict
        return
    assert (verdict.decision, verdict.outcome) == (Decision.NOT_RUN, Outcome.NOT_RUN), verdict
    assert verdict.message.startswith(f"{machine.name} lacks {lacks}") and verdict.details[REFUSED_BY]


@pytest.mark.parametrize("kernel", ["described", "add_by_tcgen05", "add_by_tma"])
def test_the_same_kernel_is_judged_where_the_target_has_the_feature(kernel: str, pool: WorkerPool) -> None:
    verdict = pool.judge(_case_of(kernel, SM_100), SM_100)
    assert verdict.decision is Decision.PASS and verdict.words, verdict


@pytest.mark.parametrize("machine", [SM_80, SM_90, SM_100], ids=lambda machine: machine.arch)
@pytest.mark.parametrize("kernel", ["described by_eight_warps", "add_by_eight_warps"])
def test_a_kernel_refused_for_its_own_fault_fails(kernel: str, machine, pool: WorkerPool) -> None:
    verdict = pool.judge(_case_of(kernel, machine), machine)
    assert (verdict.decision, verdict.outcome) == (Decision.FAIL, Outcome.REFUSED) and verdict.message.startswith(OWN_FAULT)
    assert NAMELESS not in verdict.details


def test_a_refusal_by_the_launcher_stays_its_own() -> None:
    """What it says is not the compiler's: a launcher may refuse anything, and name what it likes."""
    said = "ValueError: tcgen05 takes rows of 16 bytes"
    refused = Verdict(decision=Decision.FAIL, outcome=Outcome.REFUSED, message=said, details={"layer": "launcher"})
    assert held_to_features(refused, SM_80) == refused
    by_compiler = replace(refused, details={"layer": "verifier"})
    assert held_to_features(by_compiler, SM_80).decision is Decision.NOT_RUN and held_to_features(by_compiler, SM_100).failed


def _case_of(kernel: str, machine) -> Case:
    """Of a launcher a case of the sum of vectors; of what is described its first required case."""
    if kernel.startswith("described"):
        described = featured_kernels.test_copy_by_eight_warps if "eight" in kernel else featured_kernels.test_copy
        return described.__contract__.required(machine)[0]
    return Case(contract=ADDRESS, problem=Problem(n=64), launcher=f"{featured_kernels.__name__}:{kernel}")
