"""Contract under test: two PTX programs are taken for the same only where each store, branch and barrier takes the same values.

The order of pure instructions, their registers and their lines may differ. What a loop carries is told apart by where it is made.
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
], ids=["itself", "another order, other registers, factors exchanged", "copies exchanged", "a name", "an inner name"])  # fmt: skip
def test_order_registers_and_names_make_no_other_program(other):
    assert same_lines(PROGRAM, other) is not None and same_lines(other, PROGRAM) is not None


@pytest.mark.parametrize("other", [
    changed(("fma.rn.f32 	%r4, %r1, %r1, %r2", "fma.rn.f32 	%r4, %r1, %r2, %r2")),
    changed(("add.f32 	%r5, %r5, %r6", "sub.f32 	%r5, %r5, %r6")),
    changed(("mov.b32 	%r5, %r3;\n	mov.b32 	%r6, %r4;", "mov.b32 	%r5, %r4;\n	mov.b32 	%r6, %r3;")),
    changed(("fma.rn.f32 	%r6, %r5, %r1, %r6;", "fma.rn.f32 	%r6, %r6, %r1, %r6;")),
    changed(("[%rd1], %r5", "[%rd1], %r6"), ("[%rd1+4], %r6", "[%rd1+4], %r5")),
    changed(("@!%p1 st", "@%p1 st")),
    changed(("@!%p1 st", "st")),
    changed(("	@p add", "	@!p add")),
    changed(("[%rd1+4], %r6", "[%rd1+8], %r6")),
    changed(("bra 	$L__BB0_1;", "bra 	$L__BB0_1;\n	bar.sync 	0;")),
    changed(("	setp.lt.f32 	%p1, %r5, %r6;", "	setp.lt.f32 	%p1, %r6, %r5;")),
    changed(("	mov.b32 	%r6, %r4;\n", "")),
], ids=["factor", "sign", "what a loop begins with", "what it goes on with", "stores", "guard", "no guard", "inner guard",
        "address", "barrier", "condition", "undefined"])  # fmt: skip
def test_any_other_value_or_effect_makes_another_program(other):
    assert same_lines(PROGRAM, other) is None and same_lines(other, PROGRAM) is None


def test_lines_are_found_by_what_is_computed():
    other = changed(SWAPPED, ("mov.b32 	%r6, %r4", "mov.b32 	%r6, %r9"))
    found = same_lines(PROGRAM, other)
    assert found is not None
    assert found["%r9", 50] == {20} and found["%r3", 50] == {10} and found["%r5", 30] == {30}
    assert found["%r6", 40] == {40}  # inside inline assembly all is of the operation's line
