"""Contract under test: a hazard between two operations that the compiler made is reported as the compiler's, with a workaround, and
is inconclusive about the kernel; the same hazard written in Gluon, and a race of global memory, are the kernel's. The faults of
Triton 3.9 that docs/emulator.md describes are pinned: the form that has it, the forms beside it, and what the compiler left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import triton

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.emulator.frontend.compiler_faults import UNKNOWN
from bitverdict.harness.emulator.releases import installed_release
from bitverdict.harness.judge.classify import outcome_of
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.judge.offline_driver import capture_compilations
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Basis, Decision, Outcome
from bitverdict.kernels.matmul import Problem
from tests.emulator.frontend.test_stop_compiler import FP32, multiply
from tests.support import tile_kernels
from tests.support.emulated_launches import KERNELS, SCHEDULES, load, source_of
from tests.support.scaled_copies import product

HAZARDS = {(each.operation, each.other_operation): each for each in reversed(installed_release().hazards)}
TURNED, UNFENCED = HAZARDS["ttg.local_alloc", "ttng.tc_gen5_mma"], HAZARDS.get(("ttng.tmem_copy", "ttg.async_copy_global_to_local"))
MADE_BY = f"the compiler of Triton {triton.__version__}"
WITHOUT_FENCES = ("ttng.tmem_copy", "ttg.local_alloc") in HAZARDS
"""The release puts no fence for scales in any form, but where each tile is copied by itself."""
FENCE = '    "ttng.fence_async_shared"() <{bCluster = false}> : () -> ()'
PRODUCT = re.compile(r"tcgen05\.mma|tcgen05\.cp|fence\.proxy\.async|cp\.async\.wait_group|cp\.async\.commit_group")


@pytest.mark.parametrize("stages", [3, 4, 5])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_there_is_at_most_one_fence_for_the_scales_of_two_steps(stages: int, schedule: str) -> None:
    if UNFENCED is None:  # a fence for each step
        with emulated("sm_100", schedule) as device:
            got, expected = product(2, stages)
        assert torch.equal(got, expected) and not device.findings
        return
    with emulated("sm_100", schedule), pytest.raises(EmulatedFault, match="no proxy fence") as caught:
        product(2, stages)
    fault = caught.value
    assert fault.outcome == "race" and "ttng.tmem_copy" in fault.details["operation"]
    assert "ttg.async_copy_global_to_local" in fault.details["other operation"]
    assert fault.location.rpartition(":")[0] == fault.details["other location"].rpartition(":")[0]
    assert fault.details["made by"].startswith(MADE_BY) and fault.details["workaround"] == UNFENCED.workaround


@pytest.mark.parametrize(
    ("steps", "stages", "form"),
    [
        (1, 4, {}),
        (3, 4, {}),  # a loop remains, with a fence in it
        (4, 4, {}),
        (2, 2, {}),
        (2, 1, {}),
        (2, 4, {"constant": False}),
        (2, 4, {"flat": False}),  # these scales take another way: each tile is copied behind its own fence
        (2, 4, {"described": False}),
    ],
)
def test_the_forms_beside_one_fence_for_two_steps_pass(steps: int, stages: int, form: dict) -> None:
    for schedule in SCHEDULES:
        if WITHOUT_FENCES and form.get("flat", True):
            with emulated("sm_100", schedule), pytest.raises(EmulatedFault, match="no proxy fence") as caught:
                product(steps, stages, **form)
            copy, other = (re.search(r"ttn?g\.\w+", caught.value.details[name]) for name in ("operation", "other operation"))
            assert copy and other and caught.value.details["workaround"] == HAZARDS[copy[0], other[0]].workaround
            continue
        with emulated("sm_100", schedule) as device:
            got, expected = product(steps, stages, **form)
        assert torch.equal(got, expected) and not device.findings
        assert '"ttng.tc_gen5_mma_scaled"' in device.launches[-1].program


def test_the_fence_that_the_compiler_left_out_would_make_it_pass() -> None:
    def fenced(text: str) -> str:
        lines = text.splitlines(keepends=True)
        copies = [i for i, line in enumerate(lines) if '"ttng.tmem_copy"' in line]
        fence = FENCE + lines[copies[0]].rpartition(" loc(")[1] + lines[copies[0]].rpartition(" loc(")[2]
        for step in reversed(copies[::2] if WITHOUT_FENCES else copies[2:3]):
            lines.insert(step, fence)
        return "".join(lines)

    with emulated("sm_100", "latest", options=LaunchOptions(rewrite=fenced)):
        got, expected = product(2, 4)
    assert torch.equal(got, expected)


def test_the_fence_is_missing_in_the_ptx_too() -> None:
    """Both steps' copies are issued before the one fence, where there is one; the second step's are waited for behind it. A release
    without the fault has a fence behind each wait."""
    with capture_compilations("sm_100") as kept:
        product(2, 4)
    said = [found[0] for line in kept[0].assembly.splitlines() if (found := PRODUCT.search(line)) and "ptr" not in line]
    copies = [i for i, each in enumerate(said) if each == "tcgen05.cp"]
    fences = [i for i, each in enumerate(said) if each == "fence.proxy.async"]
    waits = [i for i, each in enumerate(said) if each == "cp.async.wait_group"]
    assert len(copies) == 4 and len(fences) == (2 if UNFENCED is None else 0 if WITHOUT_FENCES else 1)
    if UNFENCED is None:
        assert waits[0] < fences[0] < copies[0] < copies[1] < waits[1] < fences[1] < copies[2] < copies[3]
    if UNFENCED is None or WITHOUT_FENCES:
        return
    assert waits[0] < fences[0] < copies[0] < copies[1] < waits[1] < copies[2] < copies[3]
    assert said[: fences[0]].count("cp.async.commit_group") >= 4  # two tiles of scales for each of two steps


def test_the_turned_tile_is_the_compilers_too() -> None:
    with emulated("sm_100"), pytest.raises(EmulatedFault) as caught:
        multiply(FP32, stages=3)
    assert caught.value.details["workaround"] == TURNED.workaround and caught.value.details["known"]
    seen = outcome_of(caught.value)
    assert seen.outcome is Outcome.COMPILER_FAULT and seen.details["hazard"] == "race" and TURNED.workaround in seen.message


def test_a_hazard_that_nobody_confirmed_is_the_compilers_all_the_same() -> None:
    """A fault of the compiler's that is made here: the wait for the product is gone."""
    with (
        emulated(
            "sm_100",
            "latest",
            options=LaunchOptions(
                rewrite=lambda text: "\n".join(line for line in text.splitlines() if '"ttng.wait_barrier"' not in line)
            ),
        ),
        pytest.raises(EmulatedFault) as caught,
    ):
        product(1, 1, flat=False)
    assert caught.value.details["made by"] and caught.value.details["workaround"] == UNKNOWN and "known" not in caught.value.details


def test_the_same_hazard_written_in_gluon_is_the_kernels(tmp_path: Path) -> None:
    """A product that is read without a wait, which the kernel writes itself."""
    run, arch = KERNELS["blocked_matmul"]
    path = tmp_path / "blocked_matmul_unwaited.py"
    text = source_of("blocked_matmul").read_text()
    assert "mbarrier.wait(multiply_barrier, phase)" in text
    path.write_text(text.replace("mbarrier.wait(multiply_barrier, phase)", "pass"))
    with emulated(arch, "latest"), pytest.raises(EmulatedFault) as caught:
        run(load(path))
    assert "made by" not in caught.value.details and outcome_of(caught.value).outcome is Outcome.RACE


def test_a_race_of_global_memory_is_the_kernels_in_triton_too() -> None:
    with emulated("sm_80"), pytest.raises(EmulatedFault) as caught:
        tile_kernels.neighbour[(3,)](torch.zeros(96), BLOCK=32)
    assert "made by" not in caught.value.details and outcome_of(caught.value).outcome is Outcome.RACE


LAUNCHER = """
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def kernel(a_tiles, b_tiles, c, m, n, k, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr):
    i, j = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for block in tl.range(tl.cdiv(k, BLOCK_K), num_stages=STAGES):
        total = tl.dot(a_tiles.load([i, block * BLOCK_K]), b_tiles.load([block * BLOCK_K, j]), total)
    row, column = i + tl.arange(0, BLOCK)[:, None], j + tl.arange(0, BLOCK)[None, :]
    tl.store(c + row * n + column, total, mask=(row < m) & (column < n))


def matmul(a, b):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), device=a.device, dtype=torch.float32)
    tiles = TensorDescriptor.from_tensor(a, [64, 32]), TensorDescriptor.from_tensor(b, [32, 64])
    kernel[(triton.cdiv(m, 64), triton.cdiv(n, 64))](*tiles, c, m, n, k, BLOCK=64, BLOCK_K=32, STAGES={stages})
    return c
"""


def test_a_compiler_fault_is_inconclusive_and_its_workaround_passes(tmp_path: Path) -> None:
    problem = Problem(m=40, n=40, k=128, dtype="fp32", out="fp32")
    verdicts = {}
    for stages in (3, 1):
        path = tmp_path / f"stages_{stages}.py"
        path.write_text(LAUNCHER.replace("{stages}", str(stages)))
        case = Case(contract="matmul", problem=problem, regime="integers", launcher=f"{path}:matmul")
        verdicts[stages] = judge(case, target("emulated:sm_100"))
    found = verdicts[3]
    assert (found.decision, found.outcome, found.basis) == (Decision.INCONCLUSIVE, Outcome.COMPILER_FAULT, Basis.COMPILER_FAULT)
    assert f"race made by {MADE_BY}" in found.message and f"workaround: {TURNED.workaround}" in found.message
    assert found.details["hazard"] == "race" and "stages_3.py" in found.location
    assert verdicts[1].decision is Decision.PASS
