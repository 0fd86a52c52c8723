"""Contract under test: a sealed launcher is held to what it promises besides right words; a wrong one fails by its cause."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Outcome, Verdict
from bitverdict.kernels.matmul import Problem
from tests.support import invariant_rows, judged_launcher
from tests.support.sealed_here import sealed_here

EMULATED, GPU = target("emulated:sm_90"), Target("cuda:0", "sm_90", 0)
TEST = """
import bitverdict as bv


@bv.judged(reference=lambda xp, x: xp.sum(x * x, axis=1), launcher="rows.py:rows", sealed=True, strides="contiguous")
def test_rows(draw):
    return (draw.tensor("fp32", (draw.size(1, 40, name="rows"), draw.size(1, 64, name="columns"))),)
"""
SMALL = "MANY if x.shape[0] < 8 else FEW"
FULL = "MANY if bool((torch.empty(1, device=x.device) > 0).item()) else FEW"


def judged(returned: str, promises: str, directory: Path, where: Target = EMULATED) -> Verdict:
    """The verdict on a sum of squares of 21 rows whose launcher returns `returned`."""
    functions = (
        Path(invariant_rows.__file__).read_text().partition("def sum_of_squares")[0].replace("import bitverdict as bv\n", "")
    )
    (file := directory / "rows.py").write_text(f"{functions}def rows(x):\n    return {returned}\n")
    (test := directory / "test_rows.py").write_text(TEST)
    contract = resolve(f"{test}:test_rows")
    case = replace(contract.required(where)[0], regime="normal", calls=1)
    for name, size in (("rows", 21), ("columns", 36)):
        case = contract.resized(case, name, size)
    with sealed_here():
        return judge(replace(case, launcher=f"{file}:rows", sealed=True, promises=promises), where, contract)


@pytest.mark.parametrize(
    ("returned", "promises", "outcome", "said"),
    [
        ("in_parts(x, FEW)", "rows,deterministic", Outcome.PASS, ""),
        (f"in_parts(x, {SMALL})", "rows", Outcome.NOT_INVARIANT, "out: batch rows: 1 of 1 words differ"),
        (f"in_parts(x, {FULL})", "deterministic", Outcome.NOT_INVARIANT, "out: neighbours: "),
        ("in_parts(x, FEW) if x.shape[0] > 8 else (x * x).sum(1)", "rows", Outcome.COMPUTED_ON_HOST, "batch rows: "),
    ],
)
def test_a_sealed_launcher_is_held_to_its_promise(
    returned: str, promises: str, outcome: Outcome, said: str, tmp_path: Path
) -> None:
    verdict = judged(returned, promises, tmp_path)
    assert verdict.outcome is outcome and verdict.message.startswith(said), verdict


def test_on_a_gpu_a_sealed_launcher_is_held_to_its_promise(tmp_path: Path) -> None:
    for parts, promises, check in ((SMALL, "rows", "batch rows"), (FULL, "deterministic", "neighbours")):
        verdict = judged(f"in_parts(x, {parts})", promises, tmp_path, GPU)
        assert verdict.outcome is Outcome.NOT_INVARIANT and verdict.message.startswith(f"out: {check}: "), verdict


TAKEN = """

class Least:
    def __call__(self, m):
        return m >= 64

    def ask(self, listed):  # as of a candidate's process
        return [self(**fields) for fields in listed]

matmul.requires, matmul.claims, matmul.kind, matmul.callable = Least(), None, "function", True
"""


@pytest.mark.parametrize("sealed", [False, True])
def test_smaller_batches_that_a_launcher_does_not_take_are_not_asked(sealed: bool, tmp_path: Path) -> None:
    text = judged_launcher.launcher(before="if a.shape[0] < 64: raise TypeError('small')")
    found = []
    with sealed_here():
        for said in (TAKEN, TAKEN.replace(">= 64", ">= 1")):
            (file := tmp_path / f"candidate{len(found)}.py").write_text(text + said)
            case = Case(contract="matmul", problem=Problem(m=66, n=17, k=19), data_seed=1, launcher=f"{file}:matmul")
            found.append(judge(replace(case, sealed=sealed, promises="m", tuning="first"), EMULATED))
    assert [each.outcome for each in found] == [Outcome.PASS, Outcome.NOT_INVARIANT], found
    assert "small" in found[1].message
