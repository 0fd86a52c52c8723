"""Contract under test: two PTX programs are taken for the same only where each of their sums takes in the same product.

The order of instructions, their registers and lines, addresses, masks and branches may differ. What a loop carries is distinguished
by where it is made.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bitverdict.harness.emulator.frontend.same_programs import same_lines

PROGRAM = (Path(__file__).parent / "test_same_programs.ptx").read_text()


def changed(*changes: tuple[str, str]) -> str:
    text = PROGRAM
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return text


SWAPPED = (
    "	.loc	1 11 1\n	mul.f32 	%r3, %r1, %r2;\n	.loc	1 21 1\n	fma.rn.f32 	%r4, %r1, %r1, %r2;\n",
    "	.loc	1 51 1\n	fma.rn.f32 	%r9, %r1, %r1, %r2;\n	mul.f32 	%r3, %r2, %r1;\n",
)


@pytest.mark.parametrize("other", [
    changed(),
    changed(SWAPPED, ("mov.b32 	%r6, %r4", "mov.b32 	%r6, %r9")),
    changed(("mov.b32 	%r5, %r3;\n	mov.b32 	%r6, %r4;", "mov.b32 	%r6, %r4;\n	mov.b32 	%r5, %r3;")),
    changed(("%r5", "%r7")),
    changed((" p;", " q;"), ("p, %r6", "q, %r6"), ("@p ", "@q ")),
    changed(("@!%p1 st", "@%p1 st"), ("	@p add", "	@!p add"), ("[%rd1+4], %r6", "[%rd1+8], %r6")),
    changed(("	setp.lt.f32 	%p1, %r5, %r6;", "	setp.gt.f32 	%p1, %r6, %r5;")),
], ids=["itself", "another order, other registers, factors exchanged", "copies exchanged", "a name", "an inner name",
        "masks and an address", "a condition written the other way"])  # fmt: skip
def test_order_registers_and_names_make_no_other_program(other):
    assert same_lines(PROGRAM, other) is not None and same_lines(other, PROGRAM) is not None


@pytest.mark.parametrize("other", [
    changed(("fma.rn.f32 	%r4, %r1, %r1, %r2", "fma.rn.f32 	%r4, %r1, %r2, %r2")),
    changed(("add.f32 	%r5, %r5, %r6", "sub.f32 	%r5, %r5, %r6")),
    changed(("mov.b32 	%r5, %r3;\n	mov.b32 	%r6, %r4;", "mov.b32 	%r5, %r4;\n	mov.b32 	%r6, %r3;")),
    changed(("fma.rn.f32 	%r6, %r5, %r1, %r6;", "fma.rn.f32 	%r6, %r6, %r1, %r6;")),
    changed(("[%rd1], %r5", "[%rd1], %r6"), ("[%rd1+4], %r6", "[%rd1+4], %r5")),
    changed(("@!%p1 st", "st")),
    changed(("bra 	$L__BB0_1;", "bra 	$L__BB0_1;\n	bar.sync 	0;")),
    changed(("	setp.lt.f32 	%p1, %r5, %r6;", "	setp.lt.f32 	%p1, %r4, %r5;")),
    changed(("	mov.b32 	%r6, %r4;\n", "")),
], ids=["factor", "sign", "what a loop begins with", "what it goes on with", "stores", "no guard", "barrier", "condition",
        "undefined"])  # fmt: skip
def test_any_other_float_or_effect_makes_another_program(other):
    assert same_lines(PROGRAM, other) is None and same_lines(other, PROGRAM) is None


def test_lines_are_found_by_what_is_computed():
    other = changed(SWAPPED, ("mov.b32 	%r6, %r4", "mov.b32 	%r6, %r9"))
    found = same_lines(PROGRAM, other)
    assert found is not None
    assert found["%r9", 50] == {20} and found["%r3", 50] == {10} and found["%r5", 30] == {30}
    assert found["%r6", 40] == {40}  # inside inline assembly all is of the operation's line


BEGIN = """
.visible .entry kernel(
)
{
	ld.param.b64 	%rd1, [kernel_param_0];
	ld.param.b32 	%r9, [kernel_param_1];
	ld.global.v4.b32 	{%r1, %r2, %r3, %r4}, [%rd1];
	setp.eq.b32 	%p1, %r9, 1;
"""
END = "	st.global.b32 	[%rd2], %r5;\n	st.global.b32 	[%rd2+4], %r6;\n	ret;\n}\n"
FUSED, APART = "	fma.rn.f32 	{}, {}, {}, {};\n", "	mul.f32 	%r8, {1}, {2};\n	add.f32 	{0}, %r8, {3};\n"
SELECT = "	selp.f32 	%r5, %r6, %r3, %p1;\n"
BRANCH = "	mov.b32 	%r5, %r6;\n	@%p1 bra 	$L__BB0_1;\n	mov.b32 	%r5, %r3;\n$L__BB0_1:\n"
BY_WIDE_PRODUCT = "	mul.wide.s32 	%rd2, %r9, 4;\n	add.s64 	%rd2, %rd1, %rd2;\n"
BY_SHIFT = "	cvt.s64.s32 	%rd3, %r9;\n	shl.b64 	%rd4, %rd3, 2;\n	add.s64 	%rd2, %rd4, %rd1;\n"
HALVES = "	mov.b32 	%r7, {%rs1, %rs2};\n	mov.b32 	{%rs3, %rs4}, %r7;\n	mov.b32 	%r3, {%rs3, %rs3};\n"
HALF = "	mov.b32 	%r3, {%rs1, %rs1};\n"
LOADED_HALVES = "	ld.global.b16 	%rs1, [%rd1];\n	ld.global.b16 	%rs2, [%rd1+2];\n"
SUM = "%r6", "%r1", "%r2", "%r3"
AGAIN = "%r5", "%r2", "%r1", "%r3"


def written(*parts: str) -> str:
    return BEGIN + "".join(parts) + END


@pytest.mark.parametrize("form", [FUSED, APART])
@pytest.mark.parametrize(("before", "after"), [
    ((BY_WIDE_PRODUCT, SELECT), (BY_SHIFT, SELECT)), ((BY_WIDE_PRODUCT, SELECT), (BY_WIDE_PRODUCT, BRANCH)),
    ((LOADED_HALVES + HALVES, SELECT), (LOADED_HALVES + HALF, BRANCH)),
], ids=["addresses", "a select and a branch", "halves that are packed"])  # fmt: skip
def test_what_is_written_another_way_around_the_same_sums_is_the_same(before, after, form):
    one, other = (written(first, form.format(*SUM), last) for first, last in (before, after))
    assert same_lines(one, other) is not None and same_lines(other, one) is not None
    for text, (first, last) in ((one, after), (other, before)):  # the same beside a sum that is fused, or is not
        faulty = written(first, (APART if form is FUSED else FUSED).format(*SUM), last)
        assert same_lines(text, faulty) is None and same_lines(faulty, text) is None


def test_equal_values_that_take_in_products_otherwise_could_be_exchanged():
    """Of two equal sums one is fused: which, no value shows where a select brings one of them."""
    parts = [FUSED.format(*SUM), APART.format(*AGAIN), "	selp.f32 	%r6, %r6, %r5, %p1;\n"]
    assert same_lines(written(*parts), written(*parts)) is None
    parts[1] = FUSED.format(*AGAIN)
    assert same_lines(written(*parts), written(*parts)) is not None


def test_a_sum_that_nothing_but_a_branch_takes_is_not_known():
    compared = "	setp.lt.f32 	%p2, %r10, %r4;\n"
    parts = [FUSED.format("%r10", "%r1", "%r2", "%r4"), compared, FUSED.format(*SUM), "	@%p2 bra 	$L__BB0_1;\n$L__BB0_1:\n"]
    assert same_lines(written(*parts, SELECT), written(*parts, SELECT)) is None
    parts[3] = "	selp.f32 	%r4, %r3, %r1, %p2;\n	mul.f32 	%r6, %r6, %r4;\n"  # by a select it is
    assert same_lines(written(*parts, SELECT), written(*parts, SELECT)) is not None
    faulty = [APART.format("%r10", "%r1", "%r2", "%r4"), *parts[1:]]
    assert same_lines(written(*parts, SELECT), written(*faulty, SELECT)) is None


@pytest.mark.parametrize(("sign", "by"), [
    ("	neg.f32 	%r11, %r1;\n", "%r2"), ("	xor.b32 	%r11, %r1, -2147483648;\n", "%r2"),
    ("	mov.b32 	%r11, %r1;\n", "0f40400000"),
])  # fmt: skip
def test_signs_make_no_other_value_of_equal_sums(sign, by):
    """c - a*b with the product fused, and beside it apart: equal but for the product."""
    first = sign + FUSED.format("%r6", "%r11", by.replace("0f4", "0fC"), "%r3")
    parts = [first, f"	mul.f32 	%r8, %r1, {by};\n	sub.f32 	%r5, %r3, %r8;\n"]
    assert same_lines(written(*parts), written(*parts)) is None
