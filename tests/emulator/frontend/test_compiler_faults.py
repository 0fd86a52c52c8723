"""Contract under test: a hazard between two operations that the compiler made is reported as the compiler's, with a workaround, and
is inconclusive about the kernel; the same hazard written in Gluon, and a race of global memory, are the kernel's. The faults of
Triton 3.9 that docs/emulator.md describes are pinned: the form that has it, the forms beside it, and what the compiler left out."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import bitverdict as bv
from benchmarks.short_rings import sum_and_multiply
from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.emulator.frontend import stop_compiler
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
COPY, WGMMA = "ttg.async_copy_global_to_local", "ttng.warp_group_dot"
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


def summed_product(form: str, arch: str, stages: int, schedule: str = "eager", *, described: bool = False, **options: Any) -> bool:
    """Whether it is right."""
    with emulated(arch, schedule, options=LaunchOptions(**options)):
        a, b = (torch.randint(-3, 4, size).half().cuda() for size in ((64, 256), (256, 64)))
        out, sums = torch.empty(1, 64, 64, device="cuda"), torch.zeros(64, device="cuda")
        tiles = TensorDescriptor.from_tensor(a, [64, 64]) if described else a
        sum_and_multiply[(1,)](tiles, b, out, sums, 4, M=64, N=64, BLOCK_K=64, FORM=form, DESCRIBED=described, num_stages=stages)
    expected = a.cpu().float().sum(1) if form != "alone" else torch.zeros(64)
    return torch.equal(out[0].cpu(), a.cpu().float() @ b.cpu().float()) and torch.equal(sums.cpu(), expected)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("form", "stages", "described"), [("before", 2, False), ("behind", 3, False), ("before", 4, True)])
def test_a_tile_that_registers_read_too_lacks_a_buffer(form: str, stages: int, described: bool, schedule: str) -> None:
    """triton 6691. What it is loaded into next is what the wgmma still reads; with that wgmma waited for it passes."""
    copy = "ttng.async_tma_copy_global_to_local" if described else COPY
    short, fenced = HAZARDS[copy, WGMMA], HAZARDS.get((WGMMA, COPY))
    with pytest.raises(EmulatedFault) as caught:
        summed_product(form, "sm_90", stages, schedule, described=described)
    assert caught.value.details["known"] and caught.value.details["made by"].startswith(MADE_BY)
    assert caught.value.details["workaround"] in {short.workaround, (fenced or short).workaround}
    if fenced is None:
        waits = re.compile(r"(warp_group_dot_wait.*pendings = )1")
        rewrite = partial(waits.sub, r"\g<1>0")
        assert summed_product(form, "sm_90", stages, schedule, described=described, rewrite=rewrite)


@pytest.mark.parametrize(
    ("form", "arch", "stages"),
    [("before", "sm_90", 1), ("before", "sm_100", 3), ("behind", "sm_80", 3), ("alone", "sm_90", 3), ("again", "sm_90", 3)],
)
def test_the_forms_beside_a_short_ring_pass(form: str, arch: str, stages: int) -> None:
    product = {"sm_90": WGMMA, "sm_100": "ttng.tc_gen5_mma"}.get(arch, "")
    if stages > 1 and (product, COPY) in HAZARDS:
        pytest.skip(f"Triton {triton.__version__} puts no fence between {COPY} and {product}")
    assert all(summed_product(form, arch, stages, schedule) for schedule in SCHEDULES)


@triton.jit
def step_by_step(k, w, u, out, steps, V: tl.constexpr, FORM: tl.constexpr):
    """`out`, (128, V): what is summed over steps of 64 rows of `k` and `w`, (n, 128), and `u`, (n, V), as `by_hand` says."""
    rows, columns, half = tl.arange(0, 64), tl.arange(0, V), tl.arange(0, 64)
    first, second = tl.zeros((64, V), tl.float32), tl.zeros((64, V), tl.float32)
    both = tl.zeros((128, V), tl.float32)
    for step in range(steps):
        at = (step * 64 + rows)[:, None] * 128
        if FORM == "recurrence":  # ahead of the load
            known = tl.dot(tl.load(w + at + half[None, :]), first.to(tl.float16))
        tile = tl.load(u + (step * 64 + rows)[:, None] * V + columns[None, :])
        if FORM == "recurrence":
            tile = (tile - known).to(tl.float16)
            first += tl.dot(tl.trans(tl.load(k + at + half[None, :])), tile)
        elif FORM == "one accumulator":
            first = tl.dot(tl.trans(tl.load(k + at + half[None, :])), tile, first)
            first = tl.dot(tl.trans(tl.load(k + at + 64 + half[None, :])), tile, first)
        elif FORM == "one tile":
            first += tl.dot(tl.trans(tl.load(k + at + half[None, :])), tile * 2)
            second += tl.dot(tl.trans(tl.load(k + at + 64 + half[None, :])), tile * 2)
        elif FORM == "two accumulators":
            first += tl.dot(tl.trans(tl.load(k + at + half[None, :])), tile)
            second += tl.dot(tl.trans(tl.load(k + at + 64 + half[None, :])), tile)
        else:
            both += tl.dot(tl.trans(tl.load(k + at + tl.arange(0, 128)[None, :])), tile * 2)
    if FORM == "one product":
        tl.store(out + tl.arange(0, 128)[:, None] * V + columns[None, :], both)
    else:
        tl.store(out + half[:, None] * V + columns[None, :], first)
        tl.store(out + (64 + half)[:, None] * V + columns[None, :], second)


def by_hand(k: torch.Tensor, w: torch.Tensor, u: torch.Tensor, form: str) -> torch.Tensor:
    halves = k[:, :64].T @ u, k[:, 64:].T @ u
    if form == "recurrence":
        state = torch.zeros_like(halves[0])
        for rows in torch.arange(len(k)).view(-1, 64):
            state += k[rows, :64].T @ (u[rows] - w[rows, :64] @ state)
        return torch.cat([state, torch.zeros_like(state)])
    if form == "one accumulator":
        return torch.cat([halves[0] + halves[1], torch.zeros_like(halves[0])])
    return (1 if form == "two accumulators" else 2) * torch.cat(halves)


STEPPED = {  # form: hazard of a loop with stages, the architectures that have it
    "recurrence": ("ttng.tc_gen5_mma", "ttg.local_store"),
    "one accumulator": ("ttng.tmem_load", "ttng.tc_gen5_mma"),
    "one tile": ("ttg.local_store", "ttng.tc_gen5_mma"),
    "two accumulators": None,
    "one product": None,
}


@pytest.mark.parametrize("arch", ["sm_100", "sm_103", "sm_90"])
@pytest.mark.parametrize("form", STEPPED)
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_products_of_a_step_are_ordered_or_the_release_has_the_hazard(form: str, stages: int, arch: str) -> None:
    """triton 10821 is "one accumulator"; triton 9871 and 10590 and fla 945 are "recurrence"; no report of "one tile" was found. A
    release whose loads lack a fence may end in that hazard before."""
    hazard = HAZARDS.get(STEPPED[form] or ("", "")) if arch != "sm_90" and stages > 1 else None
    product = {"sm_90": WGMMA}.get(arch, "ttng.tc_gen5_mma")
    unfenced = HAZARDS.get((product, COPY)) if stages > 1 else None
    for schedule in SCHEDULES:
        with emulated(arch, schedule):
            draw = torch.Generator().manual_seed(0)
            k, w, u = (torch.randint(-1, 2, size, generator=draw).half().cuda() for size in ((256, 128), (256, 128), (256, 64)))
            w *= w.abs().cumsum(1).le(1)  # one element of a row: no state grows beyond what fp16 holds
            out = torch.empty(128, 64, device="cuda")
            try:
                step_by_step[(1,)](k, w, u, out, 4, V=64, FORM=form, num_stages=stages)
            except EmulatedFault as fault:
                assert fault.details["known"] and fault.details["workaround"] in {
                    each.workaround for each in (hazard, unfenced) if each
                }
                continue
            assert hazard is None and torch.equal(out.cpu(), by_hand(*(each.cpu().float() for each in (k, w, u)), form))


def test_the_tile_of_two_products_is_overwritten_in_the_ptx_too() -> None:
    """Executed PTX names the store, and the second product of the step before."""
    k, u, out = torch.zeros(256, 128).half(), torch.zeros(256, 64).half(), torch.zeros(128, 64)
    with capture_compilations("sm_100") as kept:
        step_by_step[(1,)](k, k, u, out, 4, V=64, FORM="one tile", num_stages=2)
    kernel = bv.ptx_kernel(kept[0].assembly, "step_by_step", shared_bytes=kept[0].metadata["shared"])
    with emulated("sm_100"), pytest.raises(EmulatedFault, match="that a tcgen05.mma in flight reads".replace(".", r"\.")) as caught:
        kernel[(1,), 128](k.cuda(), k.cuda(), u.cuda(), out.cuda(), 4, *[0] * 2)
    details = caught.value.details
    assert details["instruction"].startswith("st.shared") and "tcgen05.mma" in details["other instruction"]
    assert int(caught.value.location.rpartition(":")[2]) < int(details["other location"].rpartition(":")[2])


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


@triton.jit
def fp4_beside_fp8(fp4, fp8, scales, c, STEPS: tl.constexpr, GATHERS: tl.constexpr, IS_LEFT: tl.constexpr, SHARES: tl.constexpr):
    """c (128, 128) of fp4 (128, STEPS * 64) packed and fp8 (128, STEPS * 128), one of them transposed."""
    row, block = tl.arange(0, 128), tl.arange(0, 4)[None, :]
    first = tl.load(scales + row[:, None] * 4 + block)
    second = first if SHARES else tl.load(scales + 512 + row[:, None] * 4 + block)
    total = tl.zeros((128, 128), tl.float32)
    for step in tl.range(STEPS, num_stages=1):
        packed = fp4.gather(row, step * 64) if GATHERS else fp4.load([0, step * 64])
        wide = fp8.load([0, step * 128])
        if IS_LEFT:
            total = tl.dot_scaled(packed, first, "e2m1", wide.T, second, "e4m3", total)
        else:
            total = tl.dot_scaled(wide, first, "e4m3", packed.T, second, "e2m1", total)
    tl.store(c + row[:, None] * 128 + row[None, :], total)


def ones_by_ones_and_twos(gathers: bool, is_left: bool, shares: bool = False) -> torch.Tensor:
    """384 everywhere: K of 128 ones, and as many twos."""
    packed, c = torch.tensor([[0x22] * 64 + [0x44] * 64] * 128, dtype=torch.uint8), torch.empty(128, 128)
    fp4 = TensorDescriptor.from_tensor(packed, [1 if gathers else 128, 64])
    fp8 = TensorDescriptor.from_tensor(torch.ones(128, 256).to(torch.float8_e4m3fn), [128, 128])
    scales = torch.full((1024,), 127, dtype=torch.uint8)
    fp4_beside_fp8[(1,)](fp4, fp8, scales, c, STEPS=2, GATHERS=gathers, IS_LEFT=is_left, SHARES=shares)
    return c


FAULTS = {each.form: each for each in installed_release().compiler_faults}
GATHERED, SHARED = "tl.dot_scaled with gathered fp4 beside fp8", "tl.dot_scaled with one tile of scales for both operands"


@pytest.mark.parametrize("is_left", [False, True])
def test_fp4_beside_fp8_is_loaded_and_its_gather_is_refused(is_left: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the compiler itself, or by the record of one that reads other words: a gather's column is not doubled."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))  # what is compiled below without the record, no other test finds
    with emulated("sm_100"):
        assert (ones_by_ones_and_twos(False, is_left) == 384).all()
        with pytest.raises(Exception, match=GATHERED if GATHERED in FAULTS else "PassManager::run failed"):
            ones_by_ones_and_twos(True, is_left)
    if GATHERED not in FAULTS:
        return
    with capture_compilations("sm_100") as kept:
        ones_by_ones_and_twos(True, is_left)
    columns = re.findall(r"\[%rd\d+, \{(%r\d+),", kept[0].assembly)
    shifts = {re.search(rf"shl\.b32 \t{each}, %r\d+, (\d);", kept[0].assembly)[1] for each in columns}  # type: ignore[index]
    assert shifts == {"6", "7"}  # 64 bytes a step, where the map of nibbles counts 128; and 128 bytes of fp8
    monkeypatch.setattr(stop_compiler, "compiler_fault_in", lambda program, arch: "")
    with emulated("sm_100"):
        assert (ones_by_ones_and_twos(True, is_left) == 128 + 64 + 128).all()  # the second half begins within the first


def test_one_tile_of_scales_serves_both_operands_or_is_refused() -> None:
    with emulated("sm_100"):
        if SHARED not in FAULTS:
            assert (ones_by_ones_and_twos(False, False, shares=True) == 384).all()
            return
        with pytest.raises(EmulatedFault, match=f"{SHARED} for sm_100: NVWSInsertTmemAref ends by an assertion"):
            ones_by_ones_and_twos(False, False, shares=True)
    with capture_compilations("sm_100"), pytest.raises(RuntimeError, match="PassManager::run failed"):
        ones_by_ones_and_twos(False, False, shares=True)


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
