"""Contract under test: on the emulated GPU a kernel that relies on an order which nothing guarantees is convicted under the right
name, whatever the schedule; a kernel that does not is acquitted under every schedule, and computes the same words. Each planted
fault is a kernel's source with one text replaced."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from harness.emulator import EmulatedFault, emulated

CHECKOUT = Path(__file__).resolve().parents[2]
SCHEDULES = ("eager", "latest", *(f"drawn:{seed}" for seed in range(2)))


def matrix(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).half()


def described(tensor: torch.Tensor, box: list[int]) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(tensor, box, gl.NVMMASharedLayout.get_default_for(box, gl.float16))


def blocked(module) -> tuple[torch.Tensor, torch.Tensor]:
    a, b, c = matrix(70, 200), matrix(200, 72, 1), torch.empty(70, 72, dtype=torch.float16)
    return module.blocked_matmul(a, b, c, 64, 64, 64), a.double() @ b.double()


def pipelined(module) -> tuple[torch.Tensor, torch.Tensor]:
    a, b, c = matrix(130, 328), matrix(328, 56, 1), torch.empty(130, 56, dtype=torch.float16)
    return module.blocked_matmul_pipelined(a, b, c, 64, 64, 64), a.double() @ b.double()


def hopper(module) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = matrix(70, 328), matrix(328, 56, 1)
    return module.hopper_matmul(a, b, block_m=64, block_n=64), a.double() @ b.double()


def ampere(module) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = matrix(70, 104), matrix(72, 104, 1)
    return module.ampere_gemm(a, b, stages=3), a.double() @ b.double().T


def small(module) -> tuple[torch.Tensor, torch.Tensor]:
    a, b, c = matrix(128, 64), matrix(64, 64, 1), matrix(128, 64, 2).float()
    return module.small_mma(a, b, c, torch.empty_like(c)), a.double() @ b.double() + c.double()


def gather(module) -> tuple[torch.Tensor, torch.Tensor]:
    table, rows = matrix(60, 128), torch.arange(40, dtype=torch.int32) * 7 % 60
    return module.tma_gather(table, rows, 0, 32, 64), table[rows.long(), :64].double()


def scatter(module) -> tuple[torch.Tensor, torch.Tensor]:
    table, rows, source = matrix(60, 128), torch.arange(40, dtype=torch.int32) * 7 % 60, matrix(40, 64, 3)
    expected = table.double()
    expected[rows.long(), :64] = source.double()
    return module.tma_scatter(table, rows, 0, source, 32, 64), expected


def fused(module) -> tuple[torch.Tensor, torch.Tensor]:
    x, w = matrix(150, 200), matrix(200, 136, 1)
    rows, targets = torch.arange(140, dtype=torch.int32) * 11 % 150, torch.arange(140, dtype=torch.int32).flip(0).contiguous()
    expected = torch.empty(140, 136, dtype=torch.float64)
    expected[targets.long()] = x[rows.long()].double() @ w.double()
    return module.fused_gather_scatter_matmul(
        x, rows, w, targets, out=torch.empty(140, 136, dtype=torch.float16), programs=1
    ), expected


def specialised(module) -> tuple[torch.Tensor, torch.Tensor]:
    a, b, c = matrix(128, 320), matrix(320, 64, 1), torch.empty(128, 64, dtype=torch.float16)
    module.specialised[(1,)](described(a, [128, 64]), described(b, [64, 64]), described(c, [128, 64]), 320, 2, num_warps=4)
    return c, a.double() @ b.double()


def idioms(module) -> tuple[torch.Tensor, torch.Tensor]:
    table, out = matrix(64, 64), torch.empty(64, 64, dtype=torch.float16)
    module.idioms[(1,)](described(table, [64, 64]), described(out, [64, 64]), num_warps=4)
    return out, table.double()


KERNELS = {
    "blocked_matmul": (blocked, "sm_100"),
    "blocked_matmul_pipelined": (pipelined, "sm_100"),
    "hopper_matmul": (hopper, "sm_90"),
    "ampere_gemm": (ampere, "sm_80"),
    "small_mma": (small, "sm_100"),
    "tma_gather": (gather, "sm_100"),
    "tma_scatter": (scatter, "sm_100"),
    "fused_gather_scatter_matmul": (fused, "sm_100"),
    "specialised": (specialised, "sm_100"),
    "idioms": (idioms, "sm_100"),
}


def source_of(kernel: str) -> Path:
    kept = CHECKOUT / "kernels" / f"{kernel}.py"
    return kept if kept.is_file() else CHECKOUT / "tests" / "harness_checks" / "gluon_kernels.py"


def load(path: Path):
    spec = importlib.util.spec_from_file_location(f"_emulator_time_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_right_kernel_is_acquitted_and_gives_one_result_under_every_schedule(kernel):
    run, arch = KERNELS[kernel]
    module = load(source_of(kernel))
    results = []
    for schedule in SCHEDULES:
        with emulated(arch, schedule) as device:
            got, expected = run(module)
        assert not device.findings and not device.advice
        results.append(got)
    assert all(torch.equal(got, results[0]) for got in results)
    assert ((results[0].double() - expected).abs() <= 2**-10 * expected.abs().max()).all()


class Planted:
    """`replace`, which occurs exactly once, becomes `by`; the emulator convicts it as one of `outcomes` under every schedule (a
    wait for the wrong phase returns at once or never, a partition that does not wait may come before or after)."""

    def __init__(self, kernel: str, replace: str, by: str, *outcomes: str) -> None:
        self.kernel, self.replace, self.by, self.outcomes = kernel, replace, by, outcomes


NOTHING = "pass"
PLANTED = [
    # waits that are missing
    Planted("blocked_matmul", "mbarrier.wait(loaded, phase)", NOTHING, "race"),
    Planted("blocked_matmul", "mbarrier.wait(multiplied, phase)", NOTHING, "race"),
    Planted("blocked_matmul", "tma.store_wait(pendings=0)", NOTHING, "race"),
    Planted("blocked_matmul_pipelined", "        mbarrier.wait(upper_done.index(block % 2), block // 2 & 1)\n", "", "race"),
    Planted("blocked_matmul_pipelined", "        mbarrier.wait(lower_done.index(block % 2), block // 2 & 1)\n", "", "race"),
    Planted("blocked_matmul_pipelined", "    mbarrier.wait(lower_done.index(last % 2), last // 2 & 1)\n", "", "race"),
    Planted("blocked_matmul_pipelined", "    tma.store_wait(pendings=0)\n    c_tile", "    c_tile", "race"),
    Planted("blocked_matmul_pipelined", "mbarrier.wait(loaded.index(stage), block // 2 & 1)", NOTHING, "race"),
    Planted("hopper_matmul", "mbarrier.wait(arrived.index(stage), block // STAGES & 1)", NOTHING, "race"),
    Planted("hopper_matmul", "warpgroup_mma_wait(UNDER_WAY, deps", "warpgroup_mma_wait(STAGES, deps", "race"),
    Planted("ampere_gemm", "async_copy.wait_group(STAGES - 1)\n", "pass\n", "race"),
    Planted("ampere_gemm", "async_copy.wait_group(STAGES - 1 - consumed)", NOTHING, "race"),
    Planted("small_mma", "    mbarrier.wait(arrived, phase=0)\n", "", "race"),
    Planted(
        "small_mma",
        "        tcgen05_commit(done.index(0))\n        mbarrier.wait(done.index(0), phase=0)\n",
        "        tcgen05_commit(done.index(0))\n",
        "race",
    ),
    Planted("tma_gather", "mbarrier.wait(arrived, phase=0)", NOTHING, "race"),
    Planted("tma_scatter", "tma.store_wait(pendings=0)", NOTHING, "race"),
    Planted("fused_gather_scatter_matmul", "            sums.settle()  # block step - 1 is over: its buffer is free\n", "", "race"),
    Planted("fused_gather_scatter_matmul", "        tma.store_wait(pendings=0)  #", "        #", "race"),
    Planted("specialised", "mbarrier.wait(full.index(stage), step // STAGES & 1)", NOTHING, "race", "uninitialised read"),
    Planted("specialised", "mbarrier.wait(empty.index(stage), step // STAGES & 1 ^ 1)", NOTHING, "race", "barrier misuse"),
    Planted("specialised", "mbarrier.wait(stored, 0)", NOTHING, "race", "uninitialised read"),
    Planted("specialised", "mbarrier.wait(done, 0)", NOTHING, "race", "uninitialised read"),
    # waits that wait for too little, or for another phase
    Planted("ampere_gemm", "async_copy.wait_group(STAGES - 1)\n", "async_copy.wait_group(STAGES)\n", "race"),
    Planted("hopper_matmul", "freed = block - UNDER_WAY", "freed = block", "race"),
    Planted("blocked_matmul", "mbarrier.wait(loaded, phase)", "mbarrier.wait(loaded, phase ^ 1)", "race", "deadlock"),
    Planted("blocked_matmul", "mbarrier.wait(multiplied, phase)", "mbarrier.wait(multiplied, phase ^ 1)", "race", "deadlock"),
    Planted(
        "blocked_matmul",
        "        tcgen05_mma(a_tile, b, accumulator, use_acc=accumulate)\n        tcgen05_commit(multiplied)\n",
        "        tcgen05_commit(multiplied)\n        tcgen05_mma(a_tile, b, accumulator, use_acc=accumulate)\n",
        "race",
    ),
    Planted(
        "ampere_gemm",
        "        copy_block(bt, b_chunks, column, n, (block + STAGES) * BLOCK_K, b_ring.index(stage))\n"
        "        async_copy.commit_group()\n",
        "        async_copy.commit_group()\n"
        "        copy_block(bt, b_chunks, column, n, (block + STAGES) * BLOCK_K, b_ring.index(stage))\n",
        "race",
    ),
    Planted("specialised", "    fence_async_shared()  # before the arrival\n", "", "race"),
    # barriers: counts, bytes, lives
    Planted("blocked_matmul", "mbarrier.init(loaded, count=1)", NOTHING, "barrier misuse"),
    Planted("blocked_matmul", "mbarrier.init(loaded, count=1)", "mbarrier.init(loaded, count=2)", "deadlock"),
    Planted("blocked_matmul", "mbarrier.init(multiplied, count=1)", "mbarrier.init(multiplied, count=2)", "deadlock"),
    Planted(
        "blocked_matmul",
        "mbarrier.expect(loaded, a_matrix.nbytes_per_cta + b_matrix.nbytes_per_cta)",
        "mbarrier.expect(loaded, a_matrix.nbytes_per_cta + b_matrix.nbytes_per_cta + 16)",
        "deadlock",
    ),
    Planted(
        "blocked_matmul",
        "mbarrier.expect(loaded, a_matrix.nbytes_per_cta + b_matrix.nbytes_per_cta)",
        "mbarrier.expect(loaded, a_matrix.nbytes_per_cta + b_matrix.nbytes_per_cta - 16)",
        "barrier misuse",
    ),
    Planted("blocked_matmul", "        tcgen05_commit(multiplied)\n", "", "deadlock"),
    Planted(
        "blocked_matmul",
        "        mbarrier.wait(multiplied, phase)\n",
        "        mbarrier.wait(multiplied, phase)\n        mbarrier.invalidate(multiplied)\n",
        "barrier misuse",
    ),
    Planted("small_mma", "    mbarrier.invalidate(arrived)\n", "", "barrier misuse"),
    Planted(
        "tma_gather",
        "mbarrier.expect(arrived, BLOCK_X * table.nbytes_per_cta)",
        "mbarrier.expect(arrived, table.nbytes_per_cta)",
        "barrier misuse",
    ),
    Planted(
        "specialised",
        "mbarrier.wait(empty.index(stage), step // STAGES & 1 ^ 1)",
        "mbarrier.wait(empty.index(stage), step // STAGES & 1)",
        "deadlock",
    ),
    Planted("specialised", "    tcgen05_commit(done)\n", "", "deadlock"),
    Planted("specialised", "    mbarrier.arrive(stored, count=1)\n", "", "deadlock"),
    Planted(
        "idioms",
        "    mbarrier.invalidate(arrived)\n    mbarrier.init(arrived, count=2)",
        "    mbarrier.init(arrived, count=2)",
        "barrier misuse",
    ),
    Planted("idioms", "    mbarrier.init(arrived, count=2)", "    mbarrier.init(arrived, count=3)", "deadlock"),
    Planted(
        "idioms",
        "    mbarrier.wait(arrived, phase=0)\n    mbarrier.invalidate(arrived)\n    mbarrier.init",
        "    mbarrier.wait(arrived, phase=1)\n    mbarrier.invalidate(arrived)\n    mbarrier.init",
        "race",
        "deadlock",
    ),
    # memory that nobody wrote
    Planted("blocked_matmul", "    accumulate = False  #", "    accumulate = True  #", "uninitialised read"),
    Planted("blocked_matmul_pipelined", "use_acc=block > 0", "use_acc=True", "uninitialised read"),
    Planted("blocked_matmul", "        tma.async_load(a_matrix, [row, k], loaded, a_tile)\n", "", "deadlock"),
    Planted("small_mma", "    accumulator.store(c_tile.load(accumulator.get_reg_layout()))\n", "", "uninitialised read"),
    Planted("tma_scatter", "    tile.store(values)\n", "", "uninitialised read"),
    # what traps
    Planted("blocked_matmul", "[row, k], loaded", "[row, k + 1], loaded", "illegal instruction"),
    Planted(
        "blocked_matmul",
        "tma.async_store(c_matrix, [row, column], c_tile)",
        "tma.async_store(c_matrix, [row - 8, column], c_tile)",
        "illegal instruction",
    ),
    Planted(
        "tma_gather",
        "tma.async_gather(table, wanted, column_offset,",
        "tma.async_gather(table, wanted, column_offset + 4,",
        "illegal instruction",
    ),
    Planted(
        "tma_scatter",
        "tma.async_scatter(table, targets, column_offset,",
        "tma.async_scatter(table, targets, column_offset - 8,",
        "illegal instruction",
    ),
]


def outcome_of(fault: Planted, directory: Path, schedule: str) -> str:
    """What the emulator says of the faulty kernel: an outcome's word, or "acquitted"."""
    source = source_of(fault.kernel).read_text()
    assert source.count(fault.replace) == 1
    path = directory / f"{fault.kernel}.py"
    path.write_text(source.replace(fault.replace, fault.by))
    run, arch = KERNELS[fault.kernel]
    try:
        with emulated(arch, schedule):
            run(load(path))
    except EmulatedFault as raised:
        assert raised.location.rpartition(":")[2].isdigit()
        return raised.outcome
    return "acquitted"


@pytest.mark.parametrize("fault", PLANTED, ids=lambda f: f"{f.kernel}-{PLANTED.index(f)}")
def test_a_planted_fault_is_convicted_by_name_under_every_schedule(fault, tmp_path):
    said = {schedule: outcome_of(fault, tmp_path, schedule) for schedule in SCHEDULES}
    assert set(said.values()) <= set(fault.outcomes), said


def test_a_simulator_in_which_everything_completes_at_issue_sees_far_fewer(tmp_path, capsys):
    """Why time is modelled: under "immediate" no race among operations exists, and about half of the faults pass."""
    said = [outcome_of(fault, tmp_path, "immediate") for fault in PLANTED]
    convicted = sum(outcome != "acquitted" for outcome in said)
    with capsys.disabled():
        print(f"\n{len(PLANTED)} planted: {len(PLANTED)} convicted with time, {convicted} where operations complete at issue")
    assert convicted < 0.6 * len(PLANTED)
    assert "race" not in said
