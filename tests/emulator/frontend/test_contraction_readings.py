"""Contract under test: what became of a sum is read off the assembly and the machine code that Triton makes, by the marks of its
lines; where a line is lost, by what else tells it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bitverdict.harness.contracts.described.decisions import Simplest
from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.emulator.frontend.assembly import FIRST_PLACE, instructions, machine_code, number_floats, ptx
from bitverdict.harness.emulator.frontend.contraction import Contraction, Fate, fates
from bitverdict.harness.emulator.mlir_reader import parse_program
from bitverdict.harness.model.addresses import add_search_path, resolve
from bitverdict.harness.model.addresses import load as load_address
from tests.support import drawn_sums
from tests.support.drawn_sums import (
    ARCHITECTURES,
    LANES,
    LOOP,
    OUTPUTS,
    STEPS,
    WARPS,
    drawn,
    emulate,
    fma,
    load,
    operands,
    real_ptx,
)

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples" / "your_kernels"
F32 = torch.float32


def tile_program(kernel, arch: str, *arguments, **options) -> str:
    """The text of the tile program of a launch that does not run."""
    with emulated(arch, options=LaunchOptions(dry=True)) as device:
        kernel[(1,)](*arguments, **options)
    return device.launches[-1].program


@pytest.mark.share(3)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_what_ptxas_leaves_apart_is_read_off_its_machine_code(arch, tmp_path):
    """ptxas unrolls both loops; it fuses across the steps of the second alone."""
    seen = []
    for name, lines in {"before": ["p = x * y", LOOP, "    z += p"], "carried": [LOOP, "    z += x", "    z *= y"]}.items():
        kernel = load(drawn_sums.text(lines, ["z"]), tmp_path, name)
        result = torch.zeros(OUTPUTS, LANES)
        text = tile_program(kernel, arch, *operands(0, F32), result, STEPS, BLOCK=LANES, num_warps=WARPS, enable_fp_fusion=True)
        code = machine_code(ptx(text, int(arch.removeprefix("sm_")), fuses_sums=True), int(arch.removeprefix("sm_")))
        seen.append({word.partition(" ")[0] for words in code.values() for word in words} & {"FADD", "FMUL", "FFMA", "FFMA2"})
    assert seen == [{"FADD", "FMUL"}, {"FADD", "FMUL", "FFMA"}] or seen == [{"FADD", "FMUL"}, {"FADD", "FMUL", "FFMA", "FFMA2"}]


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("flow", ["line", "loop"])
def test_the_assembly_that_is_read_is_the_one_triton_makes(flow, arch, tmp_path):
    for seed in range(3):
        kernel = load(drawn(seed, flow), tmp_path, f"{flow}_{seed}")
        result = torch.zeros(OUTPUTS, LANES)
        text = tile_program(kernel, arch, *operands(0, F32), result, STEPS, BLOCK=LANES, num_warps=WARPS, enable_fp_fusion=True)
        ours = [i.opcode for i in instructions(ptx(text, int(arch.removeprefix("sm_")), fuses_sums=True))]
        assert ours == [i.opcode for i in instructions(real_ptx(kernel, arch, F32, F32, True))]


def test_a_program_that_the_compiler_no_longer_takes_is_refused(tmp_path):
    kernel = load(drawn_sums.text(["z = x * y + z"], ["z"]), tmp_path, "edited")
    with (
        emulated(
            "sm_90",
            options=LaunchOptions(
                rewrite=lambda text: text.replace('"arith.addf"', '"unheard.of"', 0).replace("tt.func", "tt.func", 1) + "\nnothing"
            ),
        ),
        pytest.raises(EmulatedFault, match=r"not modelled: .*compiler does not take"),
    ):
        kernel[(1,)](*operands(0, F32), torch.zeros(OUTPUTS, LANES), STEPS, BLOCK=LANES, num_warps=WARPS, enable_fp_fusion=True)


def test_a_sum_whose_line_the_compiler_drops_is_read_with_others_of_none(tmp_path):
    """LLVM computes it before the branch, and forgets where it came from."""
    lines = ["p = x * y", "if n > 3:", "    z += p", "    tl.store(out + 3 * BLOCK + at, z)"]
    kernel = load(drawn_sums.text(lines, ["p"]), tmp_path, "moved")
    for arch in ARCHITECTURES:
        x, y, z, _ = (t.numpy() for t in operands(7, F32))
        np.testing.assert_array_equal(emulate(kernel, arch, F32, F32, True, seed=7)[3], fma(x, y, z).view(np.int32))


def test_a_division_whose_line_the_compiler_drops_is_found_in_machine_code(tmp_path):
    """An H100 showed it: ptxas takes the division into the sum, and its line table calls that a part of the line before."""
    text = """
    .loc 1 7 1
    cvt.rn.f32.s32 %r2, %r1;
    .loc 1 0 0
    div.full.f32 %r4, %r3, %r2;
    add.f32 %r6, %r4, %r5;
    .loc 1 9 1
    add.f32 %r7, %r6, %r5;
    """
    numbered = number_floats(text)
    lines = {each.opcode: (each.line, each.place) for each in instructions(numbered)}
    assert lines == {"cvt.rn.f32.s32": (6, -1), "div.full.f32": (FIRST_PLACE, 0), "add.f32": (FIRST_PLACE + 2, 2)}
    program = parse_program('"builtin.module"() ({\n}) : () -> () loc(#loc)')
    fate = fates(text, program)[-1]
    assert (fate.sum_places, fate.product_places) == ({1}, {0})
    for joined, added, found in (
        ({0}, set(), (True, False)), ({1}, {1}, (True, True)), ({3}, {1}, (False, True)), ({-1}, {3}, (True, False)),
    ):  # fmt: skip
        contraction = Contraction(program, 90)
        contraction.__dict__ |= {"machine_places": (joined, added)}
        assert (contraction.joined_by_ptxas(fate), contraction.left_by_ptxas(fate)) == found


def test_a_quotient_of_a_forgotten_line_has_the_words_of_an_h100():
    """docs/examples/your_kernels/rms_norm.py: the sum of squares, divided by n, plus eps. The words are an H100's (2026-11-22)."""
    add_search_path([str(EXAMPLES)])
    contract = resolve(f"{EXAMPLES / 'test_rms_norm.py'}:test_rms_norm")
    case = contract.case(contract.drawn(Simplest([2, 3, "fp32"])), regime="normal", data_seed=0)
    x, w = (torch.from_numpy(each.codes.view(np.int32).copy()).view(torch.float32) for each in contract.operands(case))
    with emulated("sm_90"):
        words = load_address(f"{EXAMPLES / 'rms_norm.py'}:rms_norm")(x, w).view(torch.int32).numpy().view(np.uint32)
    assert [hex(word) for word in words[0, :2]] == ["0xbd589eb2", "0xbf9e9c40"]


def test_what_stands_before_the_first_line_has_no_line():
    text = "ld.param.b64 %rd1, [x];\n.loc 1 1 0\nmov.b32 %r1, 0;\n.loc 1 3 1\nadd.f32 %r3, %r1, %r2;"
    assert [(each.opcode, each.line) for each in instructions(text)] == [("ld.param.b64", -1), ("mov.b32", 0), ("add.f32", 2)]


@pytest.mark.parametrize(("code", "joined"), [
    ("FFMA R5, R0, R5, R7", True), ("FFMA2 R4, R14.F32x2.HI_LO, R16.F32x2.HI_LO, R4.F32x2.HI_LO", True),
    ("HFMA2 R5, R2, R5, R6", True), ("UFFMA UR5, UR0, UR5, UR7", True),
    ("HFMA2.MMA R3, -RZ, RZ, 0, 3.8e-06", False), ("HFMA2 R9, R2, 1, 1, R5", False), ("HFMA2.BF16_V2 R9, R5, -1, -1, R2", False),
    ("HFMA2 R9, R2, R5, -RZ", False), ("FADD R5, R0, R7", False), ("FMUL R5, R0, R7", False),
])  # fmt: skip
def test_machine_code_that_fuses_is_told_from_moves_sums_and_products(code, joined, monkeypatch):
    """At the place of the sum, at that of a product which is open, or under no line."""
    program = parse_program('"builtin.module"() ({\n}) : () -> () loc(#loc)')
    for line in (FIRST_PLACE + 4, FIRST_PLACE + 9, -1):
        monkeypatch.setattr(Contraction, "_compute_once", lambda self, name, compute: compute())
        monkeypatch.setattr(
            "bitverdict.harness.emulator.frontend.float_instructions.machine_code",
            lambda text, capability, line=line: {line: [code]},
        )
        monkeypatch.setattr(Contraction, "_packed_text", ("", False))
        contraction = Contraction(program, 90)
        assert contraction.joined_by_ptxas(Fate(plain_sums=1, sum_places={4}, product_places={9})) == joined
        assert not contraction.joined_by_ptxas(Fate(plain_sums=1, sum_places={4}))
        other_sum = Fate(plain_sums=1, sum_places={5}, product_places={8})
        assert contraction.joined_by_ptxas(other_sum) == (joined and line == -1)


def test_a_product_or_a_sum_with_a_rounding_modifier_is_not_open():
    program = parse_program('"builtin.module"() ({\n}) : () -> () loc(#loc)')
    for product, total, is_open in (("mul.f32", "add.f32", 1), ("mul.rn.f32", "add.f32", 0), ("mul.f32", "add.rn.f32", 0)):
        text = f".loc 1 3 1\n{product} %r3, %r1, %r2;\nneg.f32 %r4, %r3;\n{total} %r5, %r4, %r1;"
        lines, *places = ({each} if is_open else set() for each in (2, 1, 0))
        expected = Fate(1, formats={"f32"}, open=lines, added_products={2}, sum_places=places[0], product_places=places[1])
        assert fates(text, program)[-1] == expected


def test_below_sm_90_sums_and_products_of_bf16_are_not_taken_for_fused():
    """There a sum is a fused multiply-add with one, and a product one with -0."""
    program = parse_program('"builtin.module"() ({\n}) : () -> () loc(#loc)')
    text = """
    mov.b16 %rs3, 0xBF80;
    mov.b32 %r9, -2147450880;
    fma.rn.bf16 %rs4, %rs1, %rs3, %rs2;
    fma.rn.bf16x2 %r1, %r2, %r3, %r9;
    fma.rn.bf16 %rs5, %rs1, %rs2, %rs4;
    """
    assert fates(text, program)[-1] == Fate(
        plain_sums=1, fused_sums=1, formats={"bf16"}, addends={frozenset()}, factor_lines={(-1, -1)}, squares={0}
    )
