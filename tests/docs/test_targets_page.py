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
from bitverdict.harness.emulator.releases import RELEASES, installed_release
from bitverdict.harness.report.required_lists import frozen_architectures, frozen_kernels

PAGE = Path(__file__).parents[2] / "docs" / "targets.md"
FIRST = frozen_architectures()[0]
REMEDY = "run `python -m benchmarks.targets --renew docs/targets.md`"


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


def missing_cells(text: str) -> list[targets.Cell]:
    """The cells that the page must have and that are wrong."""
    return targets.out_of_date(text, targets.kernels_due(targets.cells_of(text)), targets.targets_due(text))


def test_each_cell_names_the_missing_features_or_passed(text: str) -> None:
    assert missing_cells(text) == [], REMEDY


def test_the_page_is_what_the_script_prints_of_its_cells(text: str) -> None:
    stems = targets.kernels_due(targets.cells_of(text))
    archs = targets.targets_due(text)
    assert targets.page(stems, 1, targets.cells_of(text), targets.lacking_of(stems, archs), archs) + "\n" == text, REMEDY


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("needs TMA scatter4 |", "needs TMA gather4 |", ("tma_scatter", "sm_80")),
        ("| softmax | 1 pass; 1 words ", "| softmax | not judged ", ("softmax", FIRST)),
        ("| softmax | 1 pass; 1 words ", "| softmax | 1 fail; 0 words ", ("softmax", FIRST)),
        ("| softmax | ", "| hardmax | ", ("hardmax", FIRST)),
        ("| kernel | sm_80 ", "| kernel | sm_81 ", ("softmax", "sm_81")),
    ],
    ids=["feature", "not judged", "failed", "kernel", "target"],
)
def test_an_edited_page_is_out_of_date(text: str, old: str, new: str, wrong: tuple[str, str]) -> None:
    edited = text.replace(old, new, 1)
    assert old in text and wrong in missing_cells(edited)


def test_a_new_kernel_may_lack_its_row_and_a_frozen_one_may_not(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without = re.sub(r"^\| softmax .*\n", "", text, flags=re.MULTILINE)
    assert "softmax" in targets.kernels_due(targets.cells_of(without)) and missing_cells(without)
    monkeypatch.setattr(targets, "frozen_kernels", lambda: [stem for stem in frozen_kernels() if stem != "softmax"])
    assert missing_cells(without) == [] and "softmax" in targets.kernels_due(targets.cells_of(text))


def test_a_new_target_may_lack_its_column_and_a_frozen_one_may_not(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {cell: what for cell, what in targets.cells_of(text).items() if cell[1] != "sm_121"}
    stems, others = targets.kernels_due(targets.cells_of(text)), [arch for arch in frozen_architectures() if arch != "sm_121"]
    without = targets.page(stems, 1, kept, targets.lacking_of(stems, others), others)
    assert missing_cells(without)
    monkeypatch.setattr(targets, "frozen_architectures", lambda: others)
    assert missing_cells(without) == [] and "sm_121" in targets.targets_due(text)


def test_sm_75_multiplies_without_a_tensor_core() -> None:
    ptx = compiled_for_sm_75(ASTSource(dot, {"a": "*fp16", "b": "*fp16", "c": "*fp32"}, {}))
    assert "mma.sync" not in ptx and "fma.rn.f32" in ptx and ".target sm_75" in ptx


@pytest.mark.parametrize("pair", targets.REFUSED_FOR_SM_75, ids=" to ".join)
def test_ptxas_refuses_for_sm_75_what_the_page_says(pair: tuple[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    (source, _), (goal, kind) = (TRITON_TYPES[name] for name in pair)
    signature = {"source": f"*{source}", "destination": f"*{goal}", "TYPE": "constexpr"}
    try:
        compiled_for_sm_75(ASTSource(cast, signature, {(2,): kind}))
    except triton.runtime.errors.PTXASError as refused:
        assert targets.REFUSED_FOR_SM_75[pair] in re.findall(r"Feature '.*", str(refused))
    else:  # other instructions than the page's, which is of the newest release
        assert installed_release().name != RELEASES[-1].name
    capfd.readouterr()  # the compiler prints its refusals
