"""Contract under test: what a bound lets pass is wrong mathematics, in one element, at any K; what is right passes beside it.

On a real GPU the emulated launch of the same case says so. No GPU was at hand: one is stood in for by a target whose launches run
on an emulated GPU, as they are or with a compiler that adds what a bound allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bitverdict.harness.checks.emulated_twin import TWIN_WORDS
from bitverdict.harness.checks.explain.unwritten_reads import KIND
from bitverdict.harness.emulator import LaunchOptions, emulated
from bitverdict.harness.frontends.main import main
from bitverdict.harness.judge.devices import device_of, multiprocessors_of, target_device
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import case_from_record
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.kernels.matmul import Problem
from tests.faults.mutants import replaced_once

LAUNCHERS = Path(__file__).resolve().parents[1] / "support" / "right_launchers.py"
HERE, MATMUL = target("emulated:sm_90"), resolve("matmul")
MASK = "mask=(rows[:, None] < M) & (depth[None, :] < K), other"
ONE_ELEMENT = (MASK, "mask=(rows[:, None] < M) & (depth[None, :] < K - (rows[:, None] == 3)), other")
ZEROED = "def split_with_atomics(a, b):\n    m, n, grid = _tiles(a, b)\n    sums = torch.zeros("
EVERY_TYPE = ('CLAIMS = ("strides", "bf16", "fp32")', 'CLAIMS = ("strides", "e4m3", "fp32")')
WIDE = ("BLOCK_M, BLOCK_N, BLOCK_K = 32, 32, 16", "BLOCK_M, BLOCK_N, BLOCK_K = 32, 32, 256")


def launcher(folder: Path, *edits: tuple[str, str], name: str = "restarted") -> str:
    text = LAUNCHERS.read_text()
    for old, new in edits:
        text = replaced_once(text, old, new, LAUNCHERS.name)
    (folder / "own.py").write_text(text)
    return f"{folder / 'own.py'}:{name}"


def judged(address: str, where: Target = HERE, *, real_values: bool = True, **fields: Any) -> Verdict:
    problem = Problem(**{"m": 5, "n": 1, "k": 75, "dtype": "fp16"} | fields)
    case = MATMUL.for_launcher(Case(contract="matmul", problem=problem, data_seed=6), address)
    assert case is not None
    return judge(replace(case, real_values=real_values), where, MATMUL)


@pytest.mark.parametrize("dtype", ["fp32", "e4m3"])
def test_the_last_k_of_one_element_is_missed_at_a_k_of_8192(dtype: str, tmp_path: Path) -> None:
    """Of fp32 (tf32) and e4m3 no bound sees that: the dropped product is smaller than what right kernels may lose."""
    right = judged(launcher(tmp_path, EVERY_TYPE, WIDE), dtype=dtype, k=8192)
    assert right.decision is Decision.PASS and right.basis.startswith("real values"), right
    (folder := tmp_path / "wrong").mkdir()
    wrong = launcher(folder, EVERY_TYPE, WIDE, ONE_ELEMENT)
    found = judged(wrong, dtype=dtype, k=8192)
    assert (found.outcome, found.details["wrong"], found.details["first"][0]["at"]) == (Outcome.WRONG_MATHEMATICS, 1, [3, 0])
    by_words = judged(wrong, dtype=dtype, k=8192, real_values=False)
    assert not by_words.failed and not by_words.basis.startswith("real values")


def test_the_command_switches_real_values_off(capsys: pytest.CaptureFixture) -> None:
    words = ["--launcher", f"{LAUNCHERS}:restarted", "--target", "emulated:sm_90", "--max-cases", "1", "--jobs", "1"]
    for more, basis in (([], "real values, bound 1"), (["--no-real-values"], "│ bound 1")):
        assert main(["run", "matmul", *words, *more, "-v"]) in (0, 3)  # 3: cases of the required ones were not judged
        assert basis in capsys.readouterr().out


def test_a_case_without_real_values_goes_through_json() -> None:
    case = Case(contract="matmul", problem=Problem(m=1, n=2, k=3), real_values=False)
    assert case_from_record(MATMUL, case.to_json()) == case and "real_values" not in replace(case, real_values=True).to_json()


# ------------------------------------------------------------------------------------------------------------ on a real GPU
@dataclass(frozen=True)
class Gpu(Target):
    """A GPU by its name and index alone; `rewrite` is what its compiler does otherwise than the emulated GPU's."""

    rewrite: Callable[[str], str] | None = None


@device_of.register(Gpu)
def _device_of(target: Gpu) -> Any:
    return device_of(HERE)


@multiprocessors_of.register(Gpu)
def _multiprocessors_of(target: Gpu) -> int:
    return 0


@target_device.register(Gpu)
@contextmanager
def _entered(target: Gpu, schedule: str = "eager", tuning: str = "", **options: Any) -> Iterator[object]:
    given = LaunchOptions(rewrite=target.rewrite, follows_pointers=False, takes_cpu_tensors=options.get("takes_cpu_tensors", True))
    with emulated(target.arch, "eager", tuning, given) as device:
        yield device


def nudged(program: str) -> str:
    """Sums that begin with 1e-5 in the place of 0: inside the bound, and not in the words."""
    assert "dense<0.000000e+00> : tensor<32x32xf32" in program
    return program.replace("dense<0.000000e+00> : tensor<32x32xf32", "dense<1.000000e-05> : tensor<32x32xf32")


GPU, OTHER = Gpu("cuda:0", "sm_90", 0), Gpu("cuda:0", "sm_90", 0, rewrite=nudged)


def test_a_gpu_is_held_to_the_emulated_words_and_real_values(tmp_path: Path) -> None:
    right = judged(launcher(tmp_path), GPU, m=17, n=18)
    assert right.decision is Decision.PASS and right.basis.startswith("real values, bound")
    assert right.basis.endswith("words compared with those of emulated:sm_90") and TWIN_WORDS not in right.details
    (folder := tmp_path / "wrong").mkdir()
    assert judged(launcher(folder, ONE_ELEMENT), GPU, m=17, n=18).outcome is Outcome.WRONG_MATHEMATICS
    plain = judged(launcher(tmp_path), GPU, m=17, n=18, real_values=False)
    assert plain.decision is Decision.PASS and plain.basis.startswith("bound")


def test_words_inside_the_bound_that_are_not_the_emulated_ones_fail(tmp_path: Path) -> None:
    found = judged(launcher(tmp_path), OTHER, m=17, n=18)
    assert (found.decision, found.outcome) == (Decision.FAIL, Outcome.WRONG_WORDS), found
    assert "are not those of emulated:sm_90" in found.message and "they lie inside the bound" in found.message
    assert judged(launcher(tmp_path), OTHER, m=17, n=18, real_values=False).decision is Decision.PASS


def test_words_of_atomics_are_held_to_the_bound_alone(tmp_path: Path) -> None:
    found = judged(launcher(tmp_path, name="split_with_atomics"), GPU, m=17, n=18)
    assert found.decision is Decision.PASS and found.basis.startswith("real values, bound")
    assert found.details[TWIN_WORDS] == "not compared: a kernel updates memory by atomics: no order is the GPU's"


def test_on_a_gpu_the_emulated_launch_names_words_that_nobody_wrote(tmp_path: Path) -> None:
    forgotten = launcher(tmp_path, (ZEROED, ZEROED.replace("zeros", "empty")), name="split_with_atomics")
    found = judged(forgotten, GPU, m=17, n=18)
    assert (found.outcome, found.details["cause_kind"]) == (Outcome.WRONG_MATHEMATICS, KIND)
    assert "tensor 2 (empty), sums_ptr of the kernel" in found.details["cause"]
    assert found.details["cause"].endswith("the first at [0, 0]; with zeros there c is right")
