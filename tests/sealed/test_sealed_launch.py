"""Contract under test: a sealed case is launched by another process, and comes to the verdict that it has unsealed."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path

import pytest

from bitverdict.harness.contracts.torch_mathematics.kernelbench import contract_of
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.far_views import map_zeros
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.judge.remote_launcher import LaunchRequest
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.sealed.candidate import executor
from bitverdict.harness.sealed.candidate.judge_side import SealedCaseLauncher
from bitverdict.kernels.matmul import Problem
from tests.support import judged_launcher, squared_rows
from tests.support.sealed_here import sealed_here

TARGET = target("emulated:sm_90")


def case_of(text: str, directory: Path) -> Case:
    (file := directory / "candidate.py").write_text(text)
    return Case(contract="matmul", problem=Problem(m=33, n=17, k=19), data_seed=1, launcher=f"{file}:matmul")


def alike(one: Verdict, other: Verdict) -> bool:
    """But for the seconds, and what is said of sealed cases alone."""
    return bare(one) == bare(other)


def bare(verdict: Verdict) -> Verdict:
    more = {
        name: {key: told for key, told in getattr(verdict, name).items() if key != "provenance"} for name in ("details", "recorded")
    }
    return replace(verdict, seconds={}, **more)


def test_a_sealed_case_has_the_verdict_it_has_unsealed(tmp_path: Path) -> None:
    case = case_of(judged_launcher.TUTORIAL, tmp_path)
    each = (case, replace(case, calls=2))
    with sealed_here() as here:
        sealed = [judge(replace(one, sealed=True), TARGET) for one in each]
    assert len(here.started) == 1
    for one, verdict in zip(each, sealed, strict=True):
        unsealed = judge(one, TARGET)
        assert unsealed.decision is Decision.PASS and "real values" in unsealed.basis
        assert alike(Verdict.from_json(verdict.to_json()), Verdict.from_json(unsealed.to_json())), (verdict, unsealed)


def test_what_cannot_be_prepared_is_said_once_by_the_launch(tmp_path: Path) -> None:
    """The executor begins with a case before it has the operands. That has no answer, whatever it comes to."""
    case, contract = case_of(judged_launcher.TUTORIAL, tmp_path), resolve("matmul")
    nowhere = replace(case, contract=f"{tmp_path}/nowhere.py:CONTRACT")
    with sealed_here():
        launcher = SealedCaseLauncher()
        launcher.prepare(nowhere, contract)
        launcher.prepare(case, contract)
        said = launcher.begin(LaunchRequest(nowhere, TARGET, contract, {}, Clock())).launch_result()
        assert said.outcome is Outcome.ERROR and "no file" in said.message
        assert judge(replace(case, sealed=True), TARGET).decision is Decision.PASS


# ------------------------------------------------------------------------------------------- on a real GPU, by a stand-in for one

GPU = Target("cuda:0", "sm_90", 0)


def on_gpu(text: str, directory: Path) -> Verdict:
    case = replace(case_of(text, directory), sealed=True)
    with sealed_here():
        return judge(case, GPU)


def test_on_a_gpu_a_right_candidate_passes_and_its_words_are_compared(tmp_path: Path) -> None:
    verdict = on_gpu(judged_launcher.TUTORIAL, tmp_path)
    assert verdict.decision is Decision.PASS, verdict
    assert verdict.details["provenance"].startswith("provenance not observed; on emulated:sm_90: c: 561 of 561 words")
    assert verdict.basis.endswith("words compared with those of emulated:sm_90")
    assert verdict.details["kernels that its process says were launched"] == 1


def test_on_a_gpu_a_candidate_that_launches_otherwise_there_fails(tmp_path: Path) -> None:
    """It tells the two by the type of a tensor, and launches twice on the GPU."""
    again = "    if type(a) is torch.Tensor:\n        matmul_kernel[grid]"
    text = judged_launcher.TUTORIAL.replace("    matmul_kernel[grid]", f"{again}")
    first, last = text.split(again)
    call, end = last.split("    return c\n")
    verdict = on_gpu(f"{first}{again}{call}    matmul_kernel[grid]{call}    return c\n{end}", tmp_path)
    assert (verdict.decision, verdict.outcome) == (Decision.FAIL, Outcome.BEHAVES_DIFFERENTLY), verdict
    assert verdict.message == "2 kernels were launched on the GPU, 1 on the emulated one"


def test_on_a_gpu_a_candidate_without_a_result_here_is_inconclusive(tmp_path: Path) -> None:
    text = judged_launcher.launcher(before="if type(a) is not torch.Tensor:\n    raise RuntimeError('not on this machine')")
    verdict = on_gpu(text, tmp_path)
    assert verdict.decision is Decision.INCONCLUSIVE, verdict
    assert "not observed on the GPU, and on emulated:sm_90 there is no result" in verdict.message


def test_on_a_gpu_a_candidate_that_returns_one_buffer_again_fails(tmp_path: Path) -> None:
    """A GPU whose memory another process has does not show it: the emulated launch of the same calls does."""
    kept = "    return _kept.setdefault(tuple(c.shape), c).copy_(c)\n"
    text = "_kept = {}\n" + judged_launcher.TUTORIAL.replace("    return c\n", kept)
    case = replace(case_of(text, tmp_path), sealed=True, calls=2)
    with sealed_here():
        verdict = judge(case, GPU)
        assert (verdict.decision, verdict.outcome) == (Decision.FAIL, Outcome.MEMORY_RETURNED), verdict
        right = judge(replace(case_of(judged_launcher.TUTORIAL, tmp_path), sealed=True, calls=2), GPU)
    assert right.decision is Decision.PASS, right


PROBLEM = """
import torch

class Model(torch.nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(rows, 1))

    def forward(self, x):
        return x * self.scale

rows = 16

def get_inputs():
    return [torch.randn(rows, 40)]

def get_init_inputs():
    return [rows]
"""
MODEL_NEW = """
import torch, triton
import triton.language as tl

@triton.jit
def scaled_kernel(x_ptr, scale_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n)
    tl.store(y_ptr + row * n + cols, x * tl.load(scale_ptr + row), mask=cols < n)

class ModelNew(torch.nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(rows, 1))

    def forward(self, x):
        y = torch.empty_like(x)
        scaled_kernel[(x.shape[0],)](x, self.scale, y, x.shape[1], BLOCK=64)
        return y
"""


def model_on_gpu(text: str, directory: Path, problem_text: str = PROBLEM) -> Verdict:
    (problem := directory / "problem.py").write_text(problem_text)
    (file := directory / "candidate.py").write_text(text)
    contract = contract_of(str(problem))
    case = replace(contract.required(GPU)[0], launcher=f"{file}:ModelNew", sealed=True, calls=3)
    with sealed_here():
        return judge(case, GPU)


def test_on_a_gpu_a_model_stays_there_and_its_weights_go_over(tmp_path: Path) -> None:
    verdict = model_on_gpu(MODEL_NEW, tmp_path)
    assert (verdict.decision, verdict.words) == (Decision.PASS, 3 * 640), verdict
    wrong = model_on_gpu(MODEL_NEW.replace("self.scale, y", "torch.ones_like(self.scale), y"), tmp_path)
    assert (wrong.decision, wrong.outcome) == (Decision.FAIL, Outcome.WRONG_MATHEMATICS), wrong


def test_on_a_gpu_weights_of_ones_are_drawn_unless_the_model_has_others(tmp_path: Path) -> None:
    ones = PROBLEM.replace("torch.randn(rows, 1)", "torch.ones(rows, 1)")
    left_out = MODEL_NEW.replace("self.scale, y", "torch.ones_like(self.scale), y")
    own = left_out.replace("super().__init__()", "super().__init__(); self.folded = [torch.ones(rows)]")
    for name, text, decision in (
        ("right", MODEL_NEW, Decision.PASS), ("left_out", left_out, Decision.FAIL), ("own", own, Decision.PASS)
    ):  # fmt: skip
        (directory := tmp_path / name).mkdir()
        assert model_on_gpu(text, directory, ones).decision is decision


def test_on_a_gpu_gradients_are_asked_of_the_candidates_process(tmp_path: Path) -> None:
    function, described = Path(squared_rows.__file__).read_text().split("@bv.judged")
    (file := tmp_path / "rows.py").write_text(f"{function}\n\ndef rows(x, w):\n    return SquaredRows.apply(x, w)\n")
    head = "gradient=True, launcher='rows.py:rows', sealed=True, strides='contiguous')\n"
    body = described.partition('strides="contiguous")\n')[2].replace("SquaredRows.apply(", "(")
    (test := tmp_path / "test_rows.py").write_text(
        f"import bitverdict as bv\n\n\n@bv.judged(reference=lambda xp, x, w: x * x * w, {head}{body}"
    )
    contract = resolve(f"{test}:test_squared_rows")
    case = replace(contract.required(GPU)[0], launcher=f"{file}:rows", sealed=True, calls=2)
    with sealed_here():
        verdict = judge(case, GPU)
        file.write_text(file.read_text().replace("2.0 * x", "3.0 * x"))
        wrong = judge(case, GPU)
    assert verdict.decision is Decision.PASS and verdict.details["kernels that its process says were launched"] == 4, verdict
    assert wrong.failed and wrong.message.startswith("gradient of x"), wrong


def test_on_a_gpu_a_fault_there_is_told_by_name_and_ends_that_process(tmp_path: Path) -> None:
    text = judged_launcher.launcher(before="if type(a) is torch.Tensor:\n    raise RuntimeError('CUDA error: misaligned address')")
    case = replace(case_of(text, tmp_path), sealed=True)
    with sealed_here() as here:
        verdict = judge(case, GPU)
        assert here.over == [0]
    assert (verdict.decision, verdict.outcome) == (Decision.FAIL, Outcome.MISALIGNED_ADDRESS), verdict


def test_far_operands_may_reserve_what_no_other_case_may() -> None:
    bound, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 30), hard))
    try:
        with executor._unbounded_address_space():
            assert map_zeros(8 << 30).numel() == 8 << 30
        with pytest.raises(OSError, match="Cannot allocate memory"):
            map_zeros(8 << 30)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
