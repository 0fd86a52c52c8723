"""Contract under test: the required cases of block_scaled_matmul reaches every element code, every scale code, every position of a
packed block of scales and every residue, on each target it runs on; and a code that is inconclusive is not counted.

"Reaches" means: with its last bit flipped, an expected word of that case is another
(`bitverdict.harness.lab.pages.reached_codes`)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from triton.tools.mxfp import MXFP4Tensor, MXScaleTensor

from bitverdict.harness.contracts.block_scaled_matmul import CONTRACT, COVER, has_format
from bitverdict.harness.contracts.inputs.block_scaled_inputs import ONE_CODES, Side
from bitverdict.harness.contracts.inputs.operand_coverage import COVER_DENSE, cover, scale_class
from bitverdict.harness.contracts.oracle.dot_scaled_lowering import element_words, result_words, scaled_plan
from bitverdict.harness.lab.pages.coverage import SCALE_CODES, CoverageCounts, count_coverage, format_table, main
from bitverdict.harness.lab.pages.reached_codes import ReachedCodes, reached_codes, scale_classes
from bitverdict.harness.model.targets import target
from bitverdict.kernels.scaled_operands import FORMATS
from bitverdict.reference.formats import E4M3, decode, encode

ARCH = "sm_100"


def reached_by(name: str, side: str, a: Side, b: Side, arch: str = ARCH) -> ReachedCodes:
    f = FORMATS[name]
    plan = scaled_plan(arch, f.a, f.b, f.scale, f.block_size)
    base = result_words(plan, "fp32", arch, a.codes, a.scales, b.codes, b.scales)

    def words(*sides):
        return element_words(plan, "fp32", arch, *sides)

    return reached_codes(side, a, b, base, words, elements=(f.a, f.b), scale=f.scale, block_size=f.block_size)


@pytest.mark.parametrize("name", ["emulated:sm_80", "emulated:sm_90", "emulated:sm_100"])
def test_the_required_cases_reaches_all_codes_positions_and_residues(name: str, capsys: pytest.CaptureFixture) -> None:
    where = target(name)
    total = count_coverage(CONTRACT.required(where), where, only_cover=True)
    with capsys.disabled():
        print("\n" + format_table(total, f"required cases on {name}"))
    assert {key[0] for key in total.sides} == {each for each in FORMATS if has_format(each, "fp32", where)}
    assert total.missing_lines() == []


@pytest.mark.parametrize("name", FORMATS)
def test_the_cover_cases_come_first_in_the_required_cases(name: str) -> None:
    first = CONTRACT.required(target("emulated:sm_100"))[: 2 * len(FORMATS)]
    assert [case.regime for case in first if case.problem.format == name] == list(COVER)


def test_required_cases_without_one_of_its_cases_is_said_to_miss_something() -> None:
    where = target("emulated:sm_80")
    cases = [case for case in CONTRACT.required(where) if case.regime != "cover b"]
    assert count_coverage(cases, where, only_cover=True).missing_lines() == [
        "mxfp4 b: 0 of 16 element codes",
        "mxfp4 b: 0 of 256 scale codes",
        "mxfp4 b: 0 of 512 positions",
    ]


def test_zeros_on_the_other_side_let_nothing_count() -> None:
    a, b = cover("a", "e2m1", "e2m1", "e8m0", 32, 0)
    dark = reached_by("mxfp4", "a", a, Side(np.zeros_like(b.codes), b.scales))
    assert dark.element_codes == set()
    assert dark.scale_codes <= {254, 255}  # a NaN scale, and its neighbour, show through zeros


def test_a_block_far_below_another_is_cut_off_and_does_not_count() -> None:
    codes = np.full((4, 64), 2, np.uint8)
    scales = np.full((4, 2), ONE_CODES["e8m0"], np.uint8)
    low = scales.copy()
    low[:, 0] -= 60  # 2^-60 beside 1: below the 35 bits that are kept
    seen = reached_by("mxfp4", "a", Side(codes, low), Side(codes, scales))
    assert {column for _, column in seen.positions} == {1}
    assert seen.spreads == {"beyond 35"}


def test_a_row_under_a_nan_scale_counts_for_that_scale_only() -> None:
    codes, scales = np.full((1, 128), 2, np.uint8), np.full((1, 4), ONE_CODES["e8m0"], np.uint8)
    struck = scales.copy()
    struck[0, 3] = 0xFF
    seen = reached_by("mxfp4", "a", Side(codes, struck), Side(codes, scales))
    assert seen.scale_codes == {0xFF}
    assert seen.element_codes == set()


def test_bit_7_of_an_nvfp4_scale_is_no_code_of_its_own() -> None:
    """For the instruction it makes no other code; the compiler's widening reads it."""
    codes, scales = np.full((1, 64), 2, np.uint8), np.full((1, 4), 0x38, np.uint8)
    for arch, differs in (("sm_100", False), ("sm_90", True)):
        plan = scaled_plan(arch, "e2m1", "e2m1", "ue4m3", 16)
        plain = result_words(plan, "fp32", arch, codes, scales, codes, scales)
        signed = result_words(plan, "fp32", arch, codes, scales | 0x80, codes, scales)
        assert (plain != signed).any() == differs


def test_every_scale_code_has_a_class_and_the_ends_have_their_own() -> None:
    assert {scale_class("e8m0", code) for code in (0, 127, 254, 255)} == {"smallest", "one", "largest", "NaN"}
    assert scale_class("ue4m3", 0x7F) == "NaN"
    assert scale_class("ue4m3", 0xFF) == "NaN with bit 7"
    assert len(scale_classes("ue4m3")) == 2 * 7


def test_the_tutorials_inputs_reach_few_of_the_codes(capsys: pytest.CaptureFixture) -> None:
    """Its e4m3 operands are e2m1 numbers, its scales floor(log2) of uniform numbers: as many rows as a cover case has."""
    generator = torch.Generator().manual_seed(42)
    elements = MXFP4Tensor(size=(COVER_DENSE, 256)).random().to(torch.float32)
    codes = encode(E4M3, elements.numpy())
    scales = MXScaleTensor(torch.rand(COVER_DENSE * 64, 8, generator=generator) + 1e-8).data.numpy()
    with capsys.disabled():
        reach = f"{len(np.unique(codes))} of 256 element codes, {len(np.unique(scales))} of {SCALE_CODES} scale codes"
        print(f"\nthe tutorial's inputs: {reach}")
    assert set(decode(E4M3, np.unique(codes))) == set(decode(E4M3, encode(E4M3, elements.unique().numpy())))
    assert len(np.unique(codes)) <= 16
    assert len(np.unique(scales)) < 32


def test_the_report_says_what_is_missing_by_its_status(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(CONTRACT), "required", lambda self, where: [])
    assert main(["--target", "emulated:sm_80"]) == 1
    assert "missing: m: 0 of 16 residues" in capsys.readouterr().out


def test_the_table_has_a_line_for_each_format_and_side_that_was_reached() -> None:
    seen = ReachedCodes(element_codes={0, 1, 2}, scale_codes={7}, pairs={(0, "one")}, positions={(0, 0), (0, 1)}, spreads=set())
    total = CoverageCounts(
        ("mxfp4", "mxfp8"), {("mxfp8", "a"): seen, ("mxfp4", "b"): seen, ("mxfp4", "a"): ReachedCodes()}, cases=3
    )
    title, head, *lines, residues = format_table(total, "reached").splitlines()
    assert title == "reached: 3 cases" and head.split()[:2] == ["format", "side"] and residues.startswith("residues mod 16: m 0")
    told = [line.split()[:8] for line in lines]
    assert told == [
        ["mxfp4", "a", "0", "of", "16", "0", "of", "256"],
        ["mxfp4", "b", "3", "of", "16", "1", "of", "256"],
        ["mxfp8", "a", "3", "of", "256", "1", "of", "256"],
    ]
    assert f"1 of {16 * len(scale_classes('e8m0'))}" in lines[1] and "2 of 512" in lines[1]
