"""Contract under test: users' launchers of kernels on rows, of attention and of scaled blocks are held to traced mathematics: right
ones pass by formulas and orders of their own, and the same with one fault fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from tests.faults.mutants import replaced_once

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
HERE = target("emulated:sm_90")
SOFTMAX = """import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, stride, N, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + columns, mask=columns < N, other=-float("inf")).to(tl.float32)
    powers = tl.exp2((x - tl.max(x, 0)) * 1.4426950408889634)
    tl.store(y_ptr + row * N + columns, (powers * (1 / tl.sum(powers, 0))).to(y_ptr.dtype.element_ty), mask=columns < N)


def softmax(x):
    y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    kernel[(x.shape[0],)](x, y, x.stride(0), x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
"""


def judged(stem: str, text: str, folder: Path, problem: dict, config: dict | None = None) -> Verdict:
    (folder / f"{stem}.py").write_text(text)
    contract = resolve(stem)
    case = contract.for_launcher(contract.case(problem, config or {}, data_seed=3), f"{folder / f'{stem}.py'}:{stem}")
    assert case is not None
    return judge(case, HERE, contract)


ATTENTION = {"batch": 1, "heads": 2, "kv_heads": 1, "m": 18, "n": 20, "d": 16, "dtype": "fp16", "causal": True}
SMALL = {"block_m": 32, "block_n": 16, "num_warps": 2, "stages": 1}
BLOCKS, TILE = (
    {"m": 17, "n": 20, "k": 140, "out": "fp32"},
    {"block_m": 32, "block_n": 32, "block_k": 64, "num_warps": 2, "stages": 2},
)
KINDS = {
    "softmax": ({"rows": 3, "columns": 33, "dtype": "fp16", "x_pad": 5}, {}, ('other=-float("inf")', "other=0.0")),
    "attention": (ATTENTION, SMALL, ("columns[None, :] <= rows[:, None] + (n - m)", "columns[None, :] < rows[:, None] + (n - m)")),
    "fp8_blockwise_matmul": (BLOCKS, TILE, ("scale = block * BLOCK_K // SCALE_BLOCK", "scale = block * 0")),
}


@pytest.mark.share(3)
@pytest.mark.parametrize("stem", KINDS)
def test_a_right_launcher_passes_and_fails_with_one_fault(stem: str, tmp_path: Path) -> None:
    problem, config, fault = KINDS[stem]
    text = SOFTMAX if stem == "softmax" else (KERNELS / f"{stem}.py").read_text()
    right = judged(stem, text, tmp_path, problem, config)
    assert right.decision is Decision.PASS and right.basis.startswith("real values, bound"), right
    (folder := tmp_path / "wrong").mkdir()
    wrong = judged(stem, replaced_once(text, *fault, stem), folder, problem, config)
    assert wrong.outcome is Outcome.WRONG_MATHEMATICS, wrong
