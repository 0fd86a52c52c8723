"""Contract under test: exponentials, roots and quotients of the emulated GPU have the words of the machine code, ptxas's own doing
included: it computes a reciprocal of a constant itself, and takes the last product of a division into a sum."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.emulator import device as emulated_device
from bitverdict.harness.emulator.frontend.contraction import Contraction
from bitverdict.harness.emulator.frontend.lowerings import functions, sums
from bitverdict.harness.emulator.numerics.enclosures import keys
from bitverdict.harness.lab.hardware_words.function_words import edges
from bitverdict.reference.special_functions import sequences
from tests.support.function_kernels import LANES, by_emulator, by_machine_code, compiled, kernel

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
EXPRESSIONS = {  # what it is, and the floating-point instructions that PTX has for it, or | had; no two share a division
    "tl.exp(x)": "mul.f32 ex2.approx.f32",
    "tl.exp2(x)": "ex2.approx.ftz.f32",
    "tl.sqrt(x)": "sqrt.approx.ftz.f32",
    "tl.rsqrt(x)": "rsqrt.approx.ftz.f32",
    "x / y": "div.full.f32",
    "tl.fdiv(y, x)": "div.full.f32",
    "x / 10.9": "div.approx.f32 mul.f32 | div.full.f32",
    "x / tl.load(given)": "div.full.f32",
    "tl.load(given) / 10.9": "",
    "tl.sigmoid(x)": "",
    "tl.exp(x * y + z)": "fma.rn.f32 mul.f32 ex2.approx.f32",
    "y * tl.rsqrt(z) + x": "rsqrt.approx.ftz.f32 fma.rn.f32",
    "y / 12.9 - z": "div.approx.f32 neg.f32 fma.rn.f32 | div.full.f32 sub.f32",
    "x / z + y": "div.full.f32 add.f32",
    "z - y / z": "div.full.f32 sub.f32",
    "-(z / y) + x": "div.full.f32 sub.f32 | div.full.f32 sub.f32 add.f32",
    "(x + 1) / y - (z + 1) / x": "add.f32 div.full.f32 add.f32 div.full.f32 sub.f32",
    "x * y + z / (x + 1)": "div.full.f32 fma.rn.f32",
    "0.5 * x * (1 + (1 - 2 / (tl.exp(2 * (0.7978845608 * (x + 0.044715 * x * x * x))) + 1)))": "",
}
OF_SCALARS = ("x / tl.load(given)", "tl.load(given) / 10.9")
OTHER_LIBDEVICE = {
    "tl.exp2(x)": "ex2.approx.f32", "tl.sqrt(x)": "sqrt.approx.f32", "tl.rsqrt(x)": "rsqrt.approx.f32",
    "tl.floor(x)": "cvt.rmi.f32.f32", "tl.ceil(x)": "cvt.rpi.f32.f32", "tl.exp(x)": "mul.f32 ex2.approx.f32",
}  # fmt: skip


@cache
def words() -> np.ndarray:
    """x, y and z: every kind of number, and numbers of ordinary size; [3, 1024] uint32."""
    generator = np.random.default_rng(15)
    ordinary = generator.standard_normal((3, 512)) * 2.0 ** generator.integers(-4, 5, (3, 512))
    kinds = np.stack([generator.permutation(np.resize(edges(), 512)) for _ in range(3)])
    found = np.concatenate([ordinary.astype(np.float32).view(np.uint32), kinds], axis=1)
    found[:, 512:518] = np.array([-126.5, -130.25, -140, -148.5, 1e-40, -1e-42], np.float32).view(np.uint32)
    return found


def alike(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Where words are equal; NaN counts as NaN, because an instruction with a sign changes the sign of a NaN that it hands on."""
    return (got == expected) | (np.isnan(got.view(np.float32)) & np.isnan(expected.view(np.float32)))


def opcodes(ptx: str) -> str:
    return " ".join(re.findall(r"^\s*(?!ld|st|mov)([a-z][\w.]*\.f32)\s", ptx, re.MULTILINE))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("functions")


@cache
def judged(arch: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Words [expressions, n] of the emulated GPU and of the machine code."""
    made = kernel(list(EXPRESSIONS), folder, "each")
    binary = compiled(made, arch).asm["cubin"]
    return by_emulator(made, arch, words(), len(EXPRESSIONS)), by_machine_code(binary, words(), len(EXPRESSIONS))


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.share(4)
def test_functions_have_the_words_of_their_machine_code(arch: str, folder: Path) -> None:
    got, expected = judged(arch, folder)
    wrong = {}
    for each, same in zip(EXPRESSIONS, alike(got, expected), strict=True):
        judged_lanes = same[::LANES] if each in OF_SCALARS else same  # the machine code's lanes load a scalar each
        if not judged_lanes.all():
            wrong[each] = int((~judged_lanes).sum())
    assert wrong == {}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_functions_are_the_instructions_of_the_table(arch: str, folder: Path) -> None:
    text = compiled(kernel(list(EXPRESSIONS), folder, "each"), arch).asm["ptx"]
    lines: dict[int, list[str]] = {}
    number = 0
    for line in text.splitlines():
        if place := re.match(r"\s*\.loc\s+\d+ (\d+) \d+(.*)", line):
            number = int(re.search(r"inlined_at \d+ (\d+)", place[2])[1]) if "inlined_at" in place[2] else int(place[1])  # type: ignore[index]
        lines.setdefault(number, []).append(line)
    source = Path(kernel(list(EXPRESSIONS), folder, "each").fn.__code__.co_filename).read_text().splitlines()
    for each, due in EXPRESSIONS.items():
        line = next(i for i, found in enumerate(source, 1) if found.endswith(f"+ at, {each})"))
        found = opcodes("\n".join(lines[line]))
        assert not due or sorted(found.split()) in [sorted(form.split()) for form in due.split("|")], f"{arch}: {each}: {found}"


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_libdevice_keeps_subnormals_where_the_launch_asks_for_it(arch: str, folder: Path) -> None:
    made = kernel(list(OTHER_LIBDEVICE), folder, "kept")
    text = compiled(made, arch, enable_reflect_ftz=False).asm["ptx"]
    assert opcodes(text).split() == " ".join(OTHER_LIBDEVICE.values()).split()
    got = by_emulator(made, arch, words(), len(OTHER_LIBDEVICE), enable_reflect_ftz=False)
    flushed = by_emulator(made, arch, words(), len(OTHER_LIBDEVICE))
    assert [bool(differs.any()) for differs in got != flushed] == [True] * 5 + [False]
    x = words()[0].view(np.float32)
    assert (got == flushed)[:, (np.abs(x) >= 2.0**-126) & (x > -126)].all()
    assert alike(got[:3], by_machine_code(compiled(kernel(list(OTHER_LIBDEVICE)[:3], folder, "three"), arch,
                                                   enable_reflect_ftz=False).asm["cubin"], words(), 3)).all()  # fmt: skip


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.share(4)
def test_without_fusion_a_division_is_rounded_before_it_is_added(arch: str, folder: Path) -> None:
    made = kernel(["x / y + z", "x / 3.0 - z"], folder, "apart")
    got = by_emulator(made, arch, words(), 2, enable_fp_fusion=False)
    assert alike(got, by_machine_code(compiled(made, arch, enable_fp_fusion=False).asm["cubin"], words(), 2)).all()
    fused = by_emulator(made, arch, words(), 2)
    assert ((got != fused).sum(axis=1) > 50).all()


def test_fp64_divides_and_takes_roots_as_its_instructions_do(folder: Path) -> None:
    made = kernel(["x / y", "tl.sqrt(x)", "tl.rsqrt(x)", "tl.exp(x)", "tl.exp2(x)"], folder, "double")
    instructions = re.findall(r"(div\.\S+f64|r?sqrt\.\S+f64)", compiled(made, "sm_90", "fp64").asm["ptx"])
    assert instructions == ["div.rn.f64", "sqrt.rn.f64", "rsqrt.approx.f64"]
    values = np.abs(np.random.default_rng(5).standard_normal((3, 64)))
    got = by_emulator(made, "sm_90", values.view(np.uint64), 5).view(np.float64)
    assert (got[0] == values[0] / values[1]).all() and (got[1] == np.sqrt(values[0])).all()
    for found, exact in zip(got[2:], (values[0] ** -0.5, np.exp(values[0]), np.exp2(values[0])), strict=True):
        assert (np.abs(found / exact - 1) < 2.0**-50).all()


def test_the_remainder_is_that_of_its_instructions(folder: Path) -> None:
    made = kernel(["x % y"], folder, "remainder")
    text = compiled(made, "sm_90").asm["ptx"]
    assert opcodes(text) == "div.rn.f32 cvt.rzi.f32.f32 neg.f32 fma.rn.f32 testp.infinite.f32 selp.f32"
    given = words()
    got = by_emulator(made, "sm_90", given, 1)[0]
    x, y = (each.astype(np.float64) for each in given.view(np.float32)[:2, :512])
    exact = x - np.trunc((x / y).astype(np.float32)) * y  # float64 holds it here
    assert (got[:512].view(np.float32) == exact.astype(np.float32)).mean() > 0.95
    assert (got == sequences.remainder(given[0], given[1])).all()


MUTANTS = {
    "a constant divided by as by any number": (functions, "folds", lambda t, op, name: False, "x / 10.9"),
    "a division that no sum takes in": (Contraction, "joined_by_ptxas", lambda self, fate: False, "x / z + y"),
    "a division that every sum takes in": (sums, "_divided_operand", lambda t, op, products, fate: 1, "(x + 1) / y - (z + 1) / x"),
    "a quotient rounded once": (functions, "_divide", lambda a, b: a / b, "x / y"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_another_rule_would_be_seen(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, other, expression = MUTANTS[name]
    expected = judged("sm_90", folder)[1][list(EXPRESSIONS).index(expression)]  # by the right rule, whichever test comes first
    monkeypatch.setattr(place, attribute, other)
    monkeypatch.setattr(emulated_device, "_translations", {})
    made = kernel([expression], folder, "mutant_" + attribute)
    assert not alike(by_emulator(made, "sm_90", words(), 1)[0], expected).all()


REFUSED = {
    "a number that a loop may know": ("tl.exp2(x)", "for i in range(0, 4): x = x / (i + 1.5)", "once it has unrolled the loop")
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_compiler_decides_out_of_sight_is_refused(name: str, folder: Path) -> None:
    expression, before, said = REFUSED[name]
    with pytest.raises(EmulatedFault, match=f"not modelled: .*{said}"):
        by_emulator(kernel([expression] * 3, folder, "refused", before), "sm_90", words()[:, :64], 3)


def test_a_quotient_by_what_a_loop_counts_is_that_of_any_number(folder: Path) -> None:
    """The compiler cannot know how often the loop runs, so ptxas computes no quotient itself."""
    steps = "(tl.load(given) != tl.load(given)).to(tl.int32) + 9"
    before = f"count = tl.full([], 0.0, tl.float32)\n    for i in range({steps}): count += 1.7"
    given = words()[:, :LANES]
    made = kernel(["x / count"], folder, "counted", before)
    times = np.float32(0)
    for _ in range(9):
        times += np.float32(1.7)
    got = by_emulator(made, "sm_90", given, 1)[0]
    assert (got == sequences.divide(given[0], np.full(LANES, times).view(np.uint32))).all()


def test_a_quotient_by_what_a_loop_of_known_length_counts_is_refused(folder: Path) -> None:
    before = "count = tl.full([], 0.0, tl.float32)\n    for i in range(0, 9): count += 1.7"
    with pytest.raises(EmulatedFault, match="once it has unrolled the loop"):
        by_emulator(kernel(["x / count"], folder, "known", before), "sm_90", words()[:, :LANES], 1)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.share(4)
def test_of_two_divisions_stored_too_the_sum_is_enclosed(arch: str, folder: Path) -> None:
    """ptxas takes the last product of one of them into the sum."""
    made, given = kernel(["u - v", "u"], folder, "enclosed", "u, v = x / y, z / x"), words()[:, :512]
    count = given.shape[1] // LANES
    out = torch.zeros(count, 2, LANES)
    operands = given.reshape(3, count, LANES).transpose(1, 0, 2).copy().view(np.float32)
    with emulated(arch) as device:
        made[(count,)](torch.from_numpy(operands.reshape(-1)), out, num_warps=1)
    ends = device.enclosure(out)
    assert ends is not None
    low, high, got = (keys(each)[:, 0].reshape(-1) for each in (*ends, out.numpy()))
    expected = keys(by_machine_code(compiled(made, arch).asm["cubin"], given, 2)[0].view(np.float32))
    assert ((low <= expected) & (expected <= high)).all() and (got != expected).any()
