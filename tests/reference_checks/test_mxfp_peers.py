"""Contract under test: Triton's interpreter against the model of block-scaled products, format by format; where it differs is
pinned, with the reason. (`triton.tools.mxfp` against the same model: `test_block_scaling_against_triton`.)

The interpreter widens to fp32 and sums in whatever order NumPy does, so words are not compared where sums round: operands are
small integers under scales of a few powers of two, whose sums are exact. The table is printed, and held to
docs/block_scaled_peers.md."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import triton
from triton.runtime.interpreter import InterpreterBuilder

from bitverdict.harness.model.triton_release import has_exact_scales
from bitverdict.reference import packing
from bitverdict.reference.formats import FORMATS
from bitverdict.reference.tensor_core import instruction, scaled_product, upcast_product
from tests.reference_checks.dot_scaled_kernel import OPERANDS

CHECKOUT = Path(__file__).resolve().parents[2]
M, N, K = 32, 32, 128
KINDS = {"mxfp4": "mxf4", "nvfp4": "mxf4nvf4", "mxfp8": "mxf8f6f4", "mixed": "mxf8f6f4"}
ONE = {"e8m0": 127, "ue4m3": 0x38}
INTEGERS = {"e2m1": (0, 2, 4, 5, 6, 0xA, 0xC), "e4m3": (0, 0x38, 0x40, 0x44, 0x48, 0xB8, 0xC0)}  # 0, 1, 2, 3, 4, -1, -2
SPECIAL = ("plain", "smallest scale", "NaN scale", "NaN element", "negative scale")
"""What a case is apart from its format: one row of A has the special code, the others are plain."""


def scale_of(name: str) -> str:
    return "ue4m3" if name == "nvfp4" else "e8m0"


@cache
def sides(name: str, special: str) -> dict[str, np.ndarray]:
    """Element codes (M, K), (N, K), unpacked, and their scales."""
    rng = np.random.Generator(np.random.PCG64([7, len(name), SPECIAL.index(special)]))
    a_format, b_format, size = OPERANDS[name]
    scale = scale_of(name)
    step = 8 if scale == "ue4m3" else 1  # codes between neighbouring powers of two
    both = (("a", a_format, M), ("b", b_format, N))
    made = {side: rng.choice(INTEGERS[fmt], (rows, K)).astype(np.uint8) for side, fmt, rows in both}
    for side, rows in (("a", M), ("b", N)):
        made[f"{side}_scale"] = (ONE[scale] + step * rng.integers(-2, 3, (rows, K // size))).astype(np.uint8)
    struck = {"smallest scale": 0, "NaN scale": 0xFF if scale == "e8m0" else 0x7F, "negative scale": ONE[scale] | 0x80}
    if special in struck:
        made["a_scale"][3] = struck[special]
    if special == "smallest scale" and scale == "e8m0":
        made["b_scale"][:] = ONE[scale] + 100  # to bring 2^-127 back into range
    if special == "NaN element":
        made["a"][3, 5] = FORMATS[a_format].nan_code
    return made


def possible() -> list[str]:
    found = []
    for name, (a_format, _, _) in OPERANDS.items():
        for special in SPECIAL:
            if special == "NaN element" and FORMATS[a_format].nan_code is None:
                continue
            if special == "negative scale" and scale_of(name) != "ue4m3":
                continue
            found.append(f"{name} {special}")
    return found


def model(case: str) -> np.ndarray:
    """Words by the tcgen05 model."""
    name, _, special = case.partition(" ")
    a_format, b_format, size = OPERANDS[name]
    rule = instruction("sm_100", "tcgen05", a_format, b_format, "fp32", scale=scale_of(name), scale_block=size, kind=KINDS[name])
    s = sides(name, special)
    return scaled_product(rule, s["a"], s["a_scale"], np.ascontiguousarray(s["b"].T), s["b_scale"])


def widened(case: str) -> np.ndarray:
    """Words by the compiler's widening for sm_90."""
    name, _, special = case.partition(" ")
    a_format, b_format, size = OPERANDS[name]
    s = sides(name, special)
    scale = "e4m3" if scale_of(name) == "ue4m3" else "e8m0"
    b = np.ascontiguousarray(s["b"].T)
    return upcast_product(a_format, s["a"], s["a_scale"], b_format, b, s["b_scale"], scale=scale, scale_block=size)


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """What the interpreter makes of every case: words (M, N)."""
    if not hasattr(InterpreterBuilder, "create_dot_scaled"):
        pytest.skip(f"triton {triton.__version__} lacks InterpreterBuilder.create_dot_scaled: its interpreter is no peer")
    place = tmp_path_factory.mktemp("interpreted")
    given = {}
    for case in possible():
        name, _, special = case.partition(" ")
        for operand, codes in sides(name, special).items():
            packed = operand in ("a", "b") and OPERANDS[name]["ab".index(operand)] == "e2m1"
            given[f"{case}/{operand}"] = packing.pack(codes) if packed else codes
    np.savez(place / "in.npz", **given)
    command = [sys.executable, "-m", "tests.reference_checks.dot_scaled_kernel", str(place / "in.npz"), str(place / "out.npz")]
    subprocess.run(command, cwd=CHECKOUT, env=os.environ | {"TRITON_INTERPRET": "1"}, timeout=600, check=True)
    with np.load(place / "out.npz") as found:
        return {case: found[case] for case in found.files}


def differ(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Words that differ, NaN equal to NaN."""
    both_nan = np.isnan(one.view(np.float32)) & np.isnan(other.view(np.float32))
    return (one != other) & ~both_nan


@pytest.mark.parametrize("name", ["mxfp4", "mxfp8", "mixed"])
@pytest.mark.parametrize("special", ["plain", "NaN scale"])
def test_the_interpreter_agrees_with_the_model_on_e8m0_scales(name: str, special: str, interpreted: dict) -> None:
    case = f"{name} {special}"
    assert not differ(interpreted[case], model(case)).any()


@pytest.mark.parametrize("name", ["mxfp8", "mixed"])
def test_the_interpreter_agrees_on_nan_elements(name: str, interpreted: dict) -> None:
    assert not differ(interpreted[f"{name} NaN element"], model(f"{name} NaN element")).any()


@pytest.mark.parametrize("name", ["mxfp4", "mxfp8", "mixed"])
def test_the_interpreter_agrees_on_the_smallest_e8m0_scale(name: str, interpreted: dict) -> None:
    """Triton 3.8 and earlier shift the code into an exponent, and 2^-127 becomes zero there."""
    case = f"{name} smallest scale"
    rows = differ(interpreted[case], model(case)).any(axis=1)
    assert np.flatnonzero(rows).tolist() == ([] if has_exact_scales() else [3])
    assert has_exact_scales() or not interpreted[case][3].any()
    assert np.isfinite(model(case).view(np.float32)[3]).all()
    assert model(case)[3].any()


def test_the_interpreter_reads_nvfp4_scales_as_powers_of_two(interpreted: dict) -> None:
    """e4m3 1.0 is the byte 0x38, which shifted into an fp32 exponent is 2^-71: every product is below what a sum shows."""
    case = "nvfp4 plain"
    found, expected_outcome = interpreted[case].view(np.float32), model(case).view(np.float32)
    assert differ(interpreted[case], model(case)).sum() > 0.9 * M * N, "Triton reads e4m3 scales rightly now: change the page"
    assert np.abs(found).max() < 2.0**-100 < np.abs(expected_outcome).max()


def test_the_interpreter_has_no_nan_among_nvfp4_scales(interpreted: dict) -> None:
    case = "nvfp4 NaN scale"
    assert np.isnan(model(case).view(np.float32)[3]).all()
    assert not np.isnan(interpreted[case].view(np.float32)).any()


@pytest.mark.parametrize("case", possible())
def test_the_compilers_widening_is_the_models_but_for_a_scales_sign(case: str) -> None:
    rows = differ(widened(case), model(case)).any(axis=1)
    assert np.flatnonzero(rows).tolist() == ([3] if case == "nvfp4 negative scale" else [])


def test_the_table_of_differences(interpreted: dict, capsys: pytest.CaptureFixture) -> None:
    lines = [("case", "interpreter", "widening (sm_90)", f"of {M * N} words differ from the tcgen05 model")]
    for case in possible():
        expected_outcome = model(case)
        lines.append(
            (case, str(differ(interpreted[case], expected_outcome).sum()), str(differ(widened(case), expected_outcome).sum()), "")
        )
    with capsys.disabled():
        print("\n" + "\n".join("  ".join(cell.ljust(22) for cell in line).rstrip() for line in lines))
    page = (CHECKOUT / "docs" / "block_scaled_peers.md").read_text()
    for case, peer, wide, _ in lines[1:]:
        if case.endswith("smallest scale") and scale_of(case.partition(" ")[0]) == "e8m0" and not has_exact_scales():
            continue  # the page is of a release that has it
        assert f"| {case} | {peer} | {wide} |" in page
