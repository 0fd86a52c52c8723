"""Contract under test: gather, scatter and the fused kernel pass their required cases under Triton's iisan, by knob and variable.

Triton's tutorial runs all its tests so (``triton.knobs.compilation.instrumentation_mode = "iisan"``). The assertions are part of
the tile program, so the emulated GPU executes them. What faults without iisan is an assertion with it; what has a result keeps its
words.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import triton
from triton import knobs
from triton.backends.nvidia.compiler import CUDAOptions

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.lab.sanitizers.runs import start_of
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.pool import WorkerPool
from tests.faults.corpus import COLLECTIONS
from tests.faults.mutants import Mutant, mutant_contract
from tests.support.shares import in_this_run
from tests.support.tutorial_facts import holds

pytestmark = pytest.mark.skipif(not hasattr(CUDAOptions, "enable_iisan"), reason=f"triton {triton.__version__} lacks iisan")
BLACKWELL = target("emulated:sm_100")
FAULTS = {"tma_gather": 3, "tma_scatter": 6, "fused_gather_scatter_matmul": 1}
NAMED = ("must be 16-byte aligned", "cannot be negative", "cannot have any negative elements")
MISSED = (
    ("tma_gather", "column rounded down to what is legal"),
    ("tma_scatter", "negative rows put into the first"),
    ("fused_gather_scatter_matmul", "negative rows put into the first"),
)


@pytest.fixture
def iisan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knobs.compilation, "instrumentation_mode", "iisan")


def faulting(kernel: str) -> Case:
    """A case of the required cases that expects a fault of the hardware: a negative row where the kernel has one."""
    contract = resolve(kernel)
    cases = [case for case in contract.required(BLACKWELL) if contract.expected_outcome(case, BLACKWELL).layer == "hardware"]
    return next((case for case in cases if case.regime.endswith("/negative")), cases[0])


@holds("iisan")
@pytest.mark.parametrize("kernel", [kernel for kernel in FAULTS if in_this_run(f"iisan {kernel}", 4, in_ci=3)])
def test_the_whole_required_list_passes_under_iisan(kernel: str, iisan: None) -> None:
    contract = resolve(kernel)
    seen: Counter[str] = Counter()
    for case in contract.required(BLACKWELL):
        verdict = judge(case, BLACKWELL, contract)
        assert verdict.decision is Decision.PASS, (case, verdict.message)
        assert verdict.outcome != "device assert" or any(told in verdict.message for told in NAMED)
        seen[verdict.outcome] += 1
    assert seen["device assert"] == FAULTS[kernel] and seen["illegal instruction"] == 0 and seen["pass"] > 35


@pytest.mark.parametrize(("kernel", "name"), MISSED)
def test_a_kernel_that_does_not_reach_the_assertion_fails_under_iisan(kernel: str, name: str, iisan: None, tmp_path: Path) -> None:
    mutant: Mutant = next(each for each in COLLECTIONS["kernels"] if (each.kernel, each.name) == (kernel, name))
    contract = mutant_contract(mutant, tmp_path)
    verdict = judge(faulting(kernel), BLACKWELL, contract)
    assert (verdict.decision, verdict.outcome) == (Decision.FAIL, "not refused")
    assert "expects: device assert" in verdict.message


@pytest.mark.parametrize("kernel", FAULTS)
def test_an_assertion_without_iisan_would_be_the_wrong_fault(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The expectation goes by the mode of the launch: where the two differ the case fails."""
    contract, case = resolve(kernel), faulting(kernel)
    plain = contract.expected_outcome(case, BLACKWELL)
    monkeypatch.setattr(contract, "expected_outcome", lambda *_: plain)
    verdict = judge(case, BLACKWELL, contract)
    assert verdict.decision is Decision.PASS
    monkeypatch.setattr(knobs.compilation, "instrumentation_mode", "iisan")
    assert judge(case, BLACKWELL, contract).outcome == "device assert"
    assert judge(case, BLACKWELL, contract).decision is Decision.FAIL


def test_the_variable_instruments_a_worker_as_the_knob_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A worker is a fork of a process that has Triton imported already: it must read the variable again."""
    case = faulting("tma_gather")
    with WorkerPool(journal=Journal(tmp_path / "journal.jsonl")) as pool:
        plain = pool.judge(case, BLACKWELL)
        by_mode = pool.judge(case, BLACKWELL, start=start_of(BLACKWELL, "iisan", "", 1))
    monkeypatch.setenv("TRITON_INSTRUMENTATION_MODE", "iisan")
    with WorkerPool(journal=Journal(tmp_path / "again.jsonl")) as pool:
        by_variable = pool.judge(case, BLACKWELL)
        bare = pool.judge(case, BLACKWELL, start=start_of(BLACKWELL, "bare", "", 1))
    assert plain.outcome == bare.outcome == "illegal instruction"
    assert by_mode.outcome == by_variable.outcome == "device assert"
    assert {each.decision for each in (plain, bare, by_mode, by_variable)} == {Decision.PASS}


LAUNCHER = """from triton import knobs

import bitverdict.kernels.tma_gather as kernel
from tests.support.tutorial_facts import holds

AT_IMPORT


def gather(table, row_offsets, column_offset, block_x, block_y, *, num_warps=4):
    kernel.require = lambda *_: None
    IN_THE_CALL
    return kernel.tma_gather(table, row_offsets, column_offset, block_x, block_y, num_warps=num_warps)
"""
SET = 'knobs.compilation.instrumentation_mode = "MODE"'


@pytest.mark.parametrize(
    ("at_import", "in_the_call", "process", "outcome"),
    [
        ("", "", "", "illegal instruction"),
        ("", "", "iisan", "device assert"),
        (SET.replace("MODE", "iisan"), "", "", "device assert"),
        ("", SET.replace("MODE", "iisan"), "", "device assert"),
        (SET.replace("MODE", ""), "", "iisan", "illegal instruction"),
    ],
)
def test_what_a_launcher_sets_holds_for_its_own_launches_alone(
    at_import: str, in_the_call: str, process: str, outcome: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import bitverdict.kernels.tma_gather as kernel

    monkeypatch.setattr(kernel, "require", kernel.require)
    monkeypatch.setattr(knobs.compilation, "instrumentation_mode", process)
    file = tmp_path / "mine.py"
    file.write_text(LAUNCHER.replace("AT_IMPORT", at_import).replace("IN_THE_CALL", in_the_call or "pass"))
    other = tmp_path / "other.py"
    other.write_text(LAUNCHER.replace("AT_IMPORT", "").replace("IN_THE_CALL", "pass"))
    case = faulting("tma_gather")
    for _ in range(2):  # the second time its file is not imported any more
        verdict = judge(replace(case, launcher=f"{file}:gather"), BLACKWELL)
        assert verdict.outcome == outcome
        assert knobs.compilation.instrumentation_mode == process
        beside = judge(replace(case, launcher=f"{other}:gather"), BLACKWELL)
        assert beside.outcome == ("device assert" if process else "illegal instruction")
