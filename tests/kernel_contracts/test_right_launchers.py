"""Contract under test: launchers that are right in ways no plan of ours has pass, and the same launchers with one fault fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.contract import Case, resolve
from harness.judge import judge
from harness.targets import target
from harness.verdict import Outcome, Verdict
from kernels.block_scaled_matmul import Problem as ScaledProblem
from kernels.scaled_operands import FORMATS
from reference.scale_layout import padding_mask

RIGHT = Path(__file__).resolve().parents[1] / "harness_checks" / "right_launchers.py"
EMULATED = {arch: target(f"emulated:{arch}") for arch in ("sm_80", "sm_90", "sm_100")}
SCALED = resolve("block_scaled_matmul")


def launcher(name: str, tmp_path: Path, *edits: tuple[str, str]) -> str:
    """Address of a right launcher, or of a copy of it with each of `edits` made once."""
    if not edits:
        return f"{RIGHT}:{name}"
    text = RIGHT.read_text()
    for old, new in edits:
        assert text.count(old) == 1, (text.count(old), old)
        text = text.replace(old, new)
    copy = tmp_path / f"{name}.py"
    copy.write_text(text)
    return f"{copy}:{name}"


def judged(case: Case, arch: str, address: str) -> Verdict:
    contract = resolve(case.contract)
    asked = contract.for_launcher(case, address)
    assert asked is not None
    return judge(asked, EMULATED[arch], contract)


# ------------------------------------------------------------------------------------------- the padding of packed scales
def scaled(name: str, regime: str, **sizes: int) -> Case:
    problem = SCALED.sized(name, sizes["m"], sizes["n"], sizes["k"]) | {"format": name, "out": "fp32"}
    return Case(contract="block_scaled_matmul", problem=ScaledProblem(**problem), regime=regime, data_seed=5)


@pytest.mark.parametrize(("arch", "name"), [("sm_80", "mxfp4"), ("sm_90", "nvfp4"), ("sm_100", "mxfp8")])
def test_a_launcher_may_rely_on_zeros_in_the_padding_of_scales(arch: str, name: str, tmp_path: Path) -> None:
    case = scaled(name, "normal", m=40, n=33, k=80)
    assert judged(case, arch, launcher("zero_padding", tmp_path)).outcome is Outcome.RIGHT
    wrong = ("row % 32 * 16 + row // 32 * 4", "row % 32 * 16")  # rows 32 and on take the scales of the first 32
    assert judged(case, arch, launcher("zero_padding", tmp_path, wrong)).outcome is Outcome.OUTSIDE_BOUND


def test_only_the_kernels_own_cases_have_nan_codes_in_the_padding(tmp_path: Path) -> None:
    for name, f in FORMATS.items():
        own = scaled(name, "normal", m=40, n=33, k=80)
        for case, zero in ((own, False), (replace(own, launcher=launcher("zero_padding", tmp_path)), True)):
            codes = next(operand.codes for operand in SCALED.operands(case) if operand.name == "a_scale")
            padded = codes[padding_mask(40, -(-case.problem.k // f.block_size))]
            nan = 0xFF if f.scale == "e8m0" else 0x7F
            assert padded.size and bool((padded == 0).all()) is zero and bool((padded == nan).any()) is not zero
