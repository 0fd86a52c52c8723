"""Contract under test: an autograd function is judged forward and backward, by the gradient of its reference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Verdict
from tests.faults.mutants import replaced_once

FILE = Path(__file__).resolve().parents[1] / "support" / "squared_rows.py"
HOPPER = target("emulated:sm_90")


@pytest.fixture
def judged(tmp_path: Path) -> Callable[..., Verdict]:
    def of(*edits: tuple[str, str], place: int = 3) -> Verdict:
        text = FILE.read_text()
        for before, after in edits:
            text = replaced_once(text, before, after, "squared_rows")
        file = tmp_path / "squared_rows.py"
        file.write_text(text)
        contract = resolve(f"{file}:test_squared_rows")
        return judge(contract.required(HOPPER)[place], HOPPER, contract)

    return of


@pytest.mark.parametrize("place", [0, 3, 5])
def test_a_right_backward_pass_passes(judged: Callable[..., Verdict], place: int) -> None:
    found = judged(place=place)
    assert found.decision is Decision.PASS, found.message
    assert found.words > 0


@pytest.mark.parametrize(
    ("before", "after", "output"),
    [
        ("2.0 * x * w * dy", "x * w * dy", "gradient of x"),
        ("x * x * dy, mask=mask", "x * x * dy, mask=cols < n - 1", "gradient of w"),
        ("return dx, dw.to(w.dtype)", "return dx, None", "gradient of w"),
        ("x * x * w, mask=mask", "x * w, mask=mask", "out"),
    ],
)
def test_a_wrong_pass_fails_in_its_own_output(judged: Callable[..., Verdict], before: str, after: str, output: str) -> None:
    found = judged((before, after))
    assert found.failed and output in found.message, found.message


def test_a_result_without_a_gradient_is_told(judged: Callable[..., Verdict]) -> None:
    found = judged(
        ("SquaredRows.apply(draw", "SquaredRows.forward(Kept(), draw"),
        ("import torch\n", "import torch\nfrom unittest.mock import Mock as Kept\n"),
    )
    assert "no output of the body has a gradient" in found.message


def test_a_reference_without_a_derivative_is_inconclusive_by_name(judged: Callable[..., Verdict]) -> None:
    found = judged(("x * x * w, gradient", 'xp.round_to(x * x * w, "fp16"), gradient'))
    assert found.decision is Decision.INCONCLUSIVE and "xp.round_to has no derivative" in found.message
