"""Contract under test: docs/targets.md is what its script prints of the kernels, targets and features that there are now.

Verdicts and counts of words are kept as they were printed: no case is judged here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from benchmarks import targets
from bitverdict.harness.model.architectures import EMULATED
from bitverdict.harness.model.paths import kernels_with_a_contract

PAGE = Path(__file__).parents[2] / "docs" / "targets.md"
REMEDY = "run `python benchmarks/targets.py --renew docs/targets.md`"


TRITON_TYPES = {
    "fp16": ("fp16", tl.float16),
    "bf16": ("bf16", tl.bfloat16),
    "fp32": ("fp32", tl.float32),
    "e5m2": ("fp8e5", tl.float8e5),
}


@triton.jit
def cast(source, destination, TYPE: tl.constexpr):
    offsets = tl.arange(0, 128)
    tl.store(destination + offsets, tl.load(source + offsets).to(TYPE))


@triton.jit
def dot(a, b, c):
    i = tl.arange(0, 16)
    tile = i[:, None] * 16 + i[None, :]
    tl.store(c + tile, tl.dot(tl.load(a + tile), tl.load(b + tile)))


def compiled_for_sm_75(program: ASTSource) -> str:
    return str(triton.compile(program, target=GPUTarget("cuda", 75, 32)).asm["ptx"])


@pytest.fixture(scope="module")
def text() -> str:
    return PAGE.read_text()


def test_each_cell_names_the_missing_features_or_passed(text: str) -> None:
    assert targets.out_of_date(text) == [], REMEDY


def test_the_page_is_what_the_script_prints_of_its_cells(text: str) -> None:
    stems = list(kernels_with_a_contract())
    assert targets.page(stems, 1, targets.cells_of(text), targets.lacking_of(stems)) + "\n" == text, REMEDY


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("needs TMA scatter4 |", "needs TMA gather4 |", ("tma_scatter", "sm_80")),
        ("| softmax | 1 pass; 1 words ", "| softmax | not judged ", ("softmax", EMULATED[0])),
        ("| softmax | 1 pass; 1 words ", "| softmax | 1 fail; 0 words ", ("softmax", EMULATED[0])),
        ("| softmax | ", "| hardmax | ", ("hardmax", EMULATED[0])),
        ("| kernel | sm_80 ", "| kernel | sm_81 ", ("softmax", "sm_81")),
    ],
    ids=["feature", "not judged", "failed", "kernel", "target"],
)
def test_an_edited_page_is_out_of_date(text: str, old: str, new: str, wrong: tuple[str, str]) -> None:
    assert old in text and wrong in targets.out_of_date(text.replace(old, new, 1))


def test_sm_75_multiplies_without_a_tensor_core() -> None:
    ptx = compiled_for_sm_75(ASTSource(dot, {"a": "*fp16", "b": "*fp16", "c": "*fp32"}, {}))
    assert "mma.sync" not in ptx and "fma.rn.f32" in ptx and ".target sm_75" in ptx


@pytest.mark.parametrize("pair", targets.REFUSED_FOR_SM_75, ids=" to ".join)
def test_ptxas_refuses_for_sm_75_what_the_page_says(pair: tuple[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    (source, _), (goal, kind) = (TRITON_TYPES[name] for name in pair)
    signature = {"source": f"*{source}", "destination": f"*{goal}", "TYPE": "constexpr"}
    with pytest.raises(triton.runtime.errors.PTXASError) as refused:
        compiled_for_sm_75(ASTSource(cast, signature, {(2,): kind}))
    capfd.readouterr()  # the compiler prints its refusals
    assert targets.REFUSED_FOR_SM_75[pair] in re.findall(r"Feature '.*", str(refused.value))
