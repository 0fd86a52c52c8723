"""Contract under test: a sum of the emulated GPU is fused with a product where the compiled program fuses it, and nowhere else.

The words of drawn kernels are those of the PTX that Triton's own stages make, executed by its definition. Where ptxas fuses some
steps of a loop and others not, or a rule on the tile program would have to guess, the words are enclosed.
"""

# One file because drawn kernels, rules and packed sums are executed by their PTX in one way.
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.emulator import device as emulated_device
from bitverdict.harness.emulator.frontend.assembly import instructions
from bitverdict.harness.emulator.frontend.contraction import Contraction, Fate
from bitverdict.harness.emulator.frontend.float_instructions import by_halves
from bitverdict.harness.emulator.frontend.fold_sums import MarkedProgram
from bitverdict.harness.emulator.frontend.lowerings import sums
from bitverdict.harness.emulator.numerics import enclosure_ends
from bitverdict.harness.emulator.numerics.enclosures import keys
from bitverdict.harness.emulator.releases import RELEASES, installed_release
from tests.support import drawn_sums, moved_sums
from tests.support.drawn_sums import (
    ARCHITECTURES,
    LANES,
    LOOP,
    OUTPUTS,
    STEPS,
    WARPS,
    by_ptx,
    drawn,
    emulate,
    fma,
    load,
    operands,
    real_ptx,
)
from tests.support.ptx_threads import DeviceMemory, Threads

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples" / "your_kernels"
F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16


def enclosed(kernel, arch: str, seed: int, dtype: torch.dtype = F32, fused: bool = True) -> tuple[bool, bool, list[str]]:
    """Whether the words of the PTX lie in the enclosures of a launch, whether it has none and its own words, and its advice."""
    result = torch.zeros(OUTPUTS, LANES, dtype=dtype)
    with emulated(arch) as device:
        kernel[(1,)](*operands(seed, dtype), result, STEPS, BLOCK=LANES, num_warps=WARPS, enable_fp_fusion=fused)
    bits = torch.int16 if dtype.itemsize == 2 else torch.int32
    expected = by_ptx(real_ptx(kernel, arch, dtype, dtype, fused), operands(seed, dtype), dtype, STEPS)[0]
    got, expected = result.view(bits).numpy(), expected.astype(f"i{dtype.itemsize}")
    ends = device.enclosure(result)
    if ends is None:
        return np.array_equal(got, expected), True, device.advice
    low, high, words = (keys(end.view(f"u{dtype.itemsize}")) for end in (*ends, expected))
    return bool(((low <= words) & (words <= high)).all()), False, device.advice


def differing(folder: Path, flow: str, seeds: range, dtype: torch.dtype = F32, fused: bool = True) -> tuple[list[int], list[str]]:
    """Seeds of drawn kernels whose emulated words are not those of the PTX, or whose enclosures lack them, each on the architecture
    that its number picks; and what was refused or enclosed."""
    wrong, refused = [], []
    for seed in seeds:
        kernel, arch = load(drawn(seed, flow), folder, f"{flow}_{seed}"), ARCHITECTURES[seed % 3]
        try:
            inside, exact, advice = enclosed(kernel, arch, seed, dtype, fused)
        except EmulatedFault as fault:
            refused.append(fault.message)
            continue
        refused += [] if exact else advice
        if not inside:
            wrong.append(seed)
    return wrong, refused


@pytest.mark.parametrize("flow", ["line", "branch", "loop", "count"])
def test_drawn_kernels_have_the_words_of_their_ptx(flow, tmp_path):
    wrong, refused = differing(tmp_path, flow, range(9))
    assert wrong == []
    assert len(refused) <= (0 if flow == "line" else 3), refused


@pytest.mark.parametrize(("dtype", "fused"), [(F16, True), (BF16, True), (F32, False), (BF16, False)])
def test_narrow_floats_and_fusion_off_have_them_too(dtype, fused, tmp_path):
    wrong, refused = differing(tmp_path, "line", range(20, 26), dtype=dtype, fused=fused)
    assert wrong == [] and len(refused) <= 1, refused


@pytest.mark.parametrize("answer", [Fate(fused_sums=1, formats={"f32"}), Fate(plain_sums=1, formats={"f32"})])
def test_a_rule_that_always_fuses_or_never_would_be_seen(answer, tmp_path, monkeypatch):
    monkeypatch.setattr(Contraction, "fate", lambda self, line: answer)
    monkeypatch.setattr(emulated_device, "_translations", {})
    wrong, _ = differing(tmp_path, "count", range(9))
    assert wrong


Formula = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def steps(function: Callable[[np.ndarray], np.ndarray], start: np.ndarray, count: int = STEPS) -> np.ndarray:
    for _ in range(count):
        start = function(start)
    return start


def beside_one_made_before(x: np.ndarray, z: np.ndarray, *, fused_left: bool) -> np.ndarray:
    """z + sum over steps i of (i * x - at * x), one of the two products fused."""
    at = np.arange(LANES, dtype=np.float32)
    for i in map(np.float32, range(STEPS)):
        z = z + (fma(np.full_like(x, i), x, -(at * x)) if fused_left else fma(-at, x, i * x))
    return z


def by_negation(fused: Formula, apart: Formula) -> tuple[Formula, Formula]:
    """Where `-p` is 0 - p, that is fused with the product, and what it is added to is not."""
    return (apart, fused) if installed_release().negates_by_subtraction else (fused, apart)


RULES: dict[str, tuple[list[str], Formula, Formula]] = {
    # what is compiled, what a rule that is wrong here would compute
    "made before a loop": (
        ["p = x * y", LOOP, "    z += p"],
        lambda x, y, z, w: steps(lambda s: s + x * y, z),
        lambda x, y, z, w: steps(lambda s: fma(x, y, s), z),
    ),
    "in the loop of its factors": (
        [LOOP, "    z = z * x + y"],
        lambda x, y, z, w: steps(lambda s: fma(s, x, y), z),
        lambda x, y, z, w: steps(lambda s: s * x + y, z),
    ),
    "the same in each step, so moved out of the loop": (
        [LOOP, "    z += x * y"],
        lambda x, y, z, w: steps(lambda s: s + x * y, z),
        lambda x, y, z, w: steps(lambda s: fma(x, y, s), z),
    ),
    "before a branch, into which it is sunk": (
        ["p = x * y", "if n > 3:", "    z += p", "    tl.store(out + 3 * BLOCK + at, z)"],
        lambda x, y, z, w: fma(x, y, z),
        lambda x, y, z, w: x * y + z,
    ),
    "through a select": (
        ["z = tl.where(w > 0, x * y, 0.0) + z"],
        lambda x, y, z, w: np.where(w > 0, x * y, np.float32(0)) + z,
        lambda x, y, z, w: np.where(w > 0, fma(x, y, z), z),
    ),
    "the left of two products": (["z = x * y + z * w"], lambda x, y, z, w: fma(x, y, z * w), lambda x, y, z, w: fma(z, w, x * y)),
    "the left of two, and the right one taken away": (
        ["z = x * y - z * w"],
        lambda x, y, z, w: fma(x, y, -(z * w)),
        lambda x, y, z, w: fma(-z, w, x * y),
    ),
    "the one of two with fewer uses": (
        ["p = x * y", "q = z * w", "z = p + q", "tl.store(out + 3 * BLOCK + at, p)"],
        lambda x, y, z, w: fma(z, w, x * y),
        lambda x, y, z, w: fma(x, y, z * w),
    ),
    "stored too": (
        ["p = x * y", "tl.store(out + 3 * BLOCK + at, p)", "z = p + z"],
        lambda x, y, z, w: fma(x, y, z),
        lambda x, y, z, w: x * y + z,
    ),
    "taken by two sums": (
        ["p = x * y", "z = (p + z) * (p - w)"],
        lambda x, y, z, w: fma(x, y, z) * fma(x, y, -w),
        lambda x, y, z, w: (x * y + z) * fma(x, y, -w),
    ),
    "with its sign changed": (["z = -(x * y) + z"], *by_negation(lambda x, y, z, w: fma(-x, y, z), lambda x, y, z, w: z - x * y)),
    "with its sign changed, and the other taken away": (
        ["z = -(x * y) - z"],
        *by_negation(lambda x, y, z, w: fma(-x, y, -z), lambda x, y, z, w: -(x * y) - z),
    ),
    "a square that a zero is added to, which LLVM drops": (
        ["z = tl.zeros_like(x)", "z += x * x", "z = z + y"],
        lambda x, y, z, w: fma(x, x, y),
        lambda x, y, z, w: x * x + y,
    ),
    "beside one that is made before the loop, under no line": (
        ["g = at.to(tl.float32) * x", "for i in range(n):", "    z += i.to(tl.float32) * x - g"],
        lambda x, y, z, w: beside_one_made_before(x, z, fused_left=True),
        lambda x, y, z, w: beside_one_made_before(x, z, fused_left=False),
    ),
    "taken away": (["z = z - x * y"], lambda x, y, z, w: fma(-x, y, z), lambda x, y, z, w: z - x * y),
}


@pytest.mark.share(3, *sorted(RULES, key=len, reverse=True))  # each rule, on one architecture
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("rule", RULES)
def test_a_product_is_fused_as_it_is_compiled(rule, arch, tmp_path):
    lines, right, wrong = RULES[rule]
    kernel = load(drawn_sums.text(lines, ["z"]), tmp_path, "rule")
    inputs = [t.numpy() for t in operands(7, F32)]
    expected = right(*inputs).view(np.int32)
    assert (expected != wrong(*inputs).view(np.int32)).sum() >= 3  # the operands tell the two apart
    made = by_ptx(real_ptx(kernel, arch, F32, F32, True), operands(7, F32), F32, STEPS)[0][0]
    np.testing.assert_array_equal(emulate(kernel, arch, F32, F32, True, seed=7)[0], made)
    if installed_release().numbers == RELEASES[-1].numbers:  # an older LLVM takes the other of two products
        np.testing.assert_array_equal(made, expected)


PACKED = """
mov.b64 %rd12, {%r1, %r5};
mov.b64 %rd13, {%r3, %r7};
mul.f32x2 %rd14, %rd12, %rd13;
mov.b64 {_, %r14}, %rd14;
mov.b64 %rd18, {%r14, %r15};
fma.rn.f32x2 %rd19, %rd12, %rd13, %rd18;
mov.b64 {%r9, _}, %rd19;
st.global.b32 [ %rd5 ], { %r9 };
"""


def test_a_packed_instruction_is_read_by_the_halves_that_are_used():
    """Of x * y + z * w LLVM for sm_100 packs both products and leaves half of the sum undefined (Triton 3.7.1)."""

    def left(text: str) -> list[tuple[str, tuple[str, ...]]]:
        return [(each.opcode[:3], each.reads) for each in by_halves(list(instructions(text))) if "f32x2" in each.opcode]

    product, low = ("mul", ("%rd12.1", "%rd13.1")), ("fma", ("%rd12.0", "%rd13.0", "%rd18.0"))
    assert left(PACKED) == [product, low]
    both = PACKED.replace("{ %r9 }", "%rd19").replace("st.global.b32", "st.global.b64")
    assert left(both) == [product, low, ("fma", ("%rd12.1", "%rd13.1", "%rd18.1"))]


def test_a_loop_that_is_unrolled_fuses_where_its_product_stays_a_product(tmp_path):
    """On sm_100 a newer LLVM packs the product with another multiplication (`mul.f32x2`), which no sum takes apart."""
    kernel = load(drawn_sums.text(["p = x * y", "for _ in range(3):", "    z += p"], ["z"]), tmp_path, "unrolled")
    x, y, z, _ = (t.numpy() for t in operands(7, F32))
    fused, apart = steps(lambda s: fma(x, y, s), z, 3).view(np.int32), steps(lambda s: s + x * y, z, 3).view(np.int32)
    assert (fused != apart).sum() >= 3
    for arch in ARCHITECTURES:
        ptx = real_ptx(kernel, arch, F32, F32, True)
        expected = apart if "mul.f32x2" in ptx else fused
        np.testing.assert_array_equal(emulate(kernel, arch, F32, F32, True, seed=7)[0], expected)
        assert np.array_equal(by_ptx(ptx, operands(7, F32), F32, STEPS)[0][0], expected)


ACCUMULATORS = ["s = x * 0.0", "t = s", "u = s", LOOP, "    s += x * y", "    t += z * w", "    u += y * w"]


@pytest.mark.share(4)
def test_sums_that_llvm_packs_are_read(tmp_path, monkeypatch):
    """The vectoriser leaves two of three sums under one line. On sm_100 it packs instructions too."""
    kernel = load(drawn_sums.text(ACCUMULATORS, ["s", "t", "u"]), tmp_path, "packed")
    assert enclosed(kernel, "sm_90", 7)[:2] == enclosed(kernel, "sm_100", 7)[:2] == (True, True)
    monkeypatch.setattr(MarkedProgram, "outcomes_by_value", lambda *_: [])
    monkeypatch.setattr(Contraction, "_compute_once", lambda self, name, compute: compute())
    monkeypatch.setattr(emulated_device, "_translations", {})
    monkeypatch.setenv("BITVERDICT_TRANSLATIONS", "off")
    inside, exact, advice = enclosed(kernel, "sm_90", 7)
    assert inside and not exact and "packed.py:17: the compiled program leaves open" in " ".join(advice)


FORGOTTEN_LINES = ["q = x", "if n > 2:", "    q = x / y", "w = q - tl.log(-tl.log(w))"]
"""A quotient and fused multiply-adds of which LLVM forgets the lines, as in vLLM's gumbel_sample."""


@pytest.mark.share(4)
def test_sums_are_told_from_fused_ones_whose_line_is_forgotten_too(tmp_path, monkeypatch):
    """Beside packed sums. What ptxas made of each is read at its place; of places that others share nothing would be read."""
    kernel = load(drawn_sums.text([*ACCUMULATORS, *FORGOTTEN_LINES], ["s", "t", "u", "w"]), tmp_path, "forgotten")

    def launch() -> tuple[np.ndarray, bool]:
        result = torch.zeros(OUTPUTS, LANES)
        with emulated("sm_90") as device:
            kernel[(1,)](*operands(7, F32), result, STEPS, BLOCK=LANES, num_warps=WARPS, enable_fp_fusion=True)
        return result.view(torch.int32).numpy(), device.enclosure(result) is not None

    x, y, z, w = (t.numpy() for t in operands(7, F32))
    words, is_enclosed = launch()
    assert not is_enclosed
    for got, (a, b) in zip(words, ((x, y), (z, w), (y, w)), strict=False):
        np.testing.assert_array_equal(got, steps(lambda s, p=a * b: s + p, x * np.float32(0), STEPS).view(np.int32))
    shared = set(range(-1, 1000))
    monkeypatch.setattr("bitverdict.harness.emulator.frontend.contraction.machine_places", lambda *_: (shared, shared))
    monkeypatch.setattr(Contraction, "_compute_once", lambda self, name, compute: compute())
    monkeypatch.setattr(emulated_device, "_translations", {})
    monkeypatch.setenv("BITVERDICT_TRANSLATIONS", "off")
    assert launch()[1]


PARTLY_MOVED = [
    "s = tl.zeros_like(x)", "t = s", "u = s", "for i in range(n):", "    g = tl.load(a + (at + i) % BLOCK)", "    p = g * y",
    "    s = tl.maximum(s, p)", "    r = p + w", "    v = tl.reshape(r, [BLOCK // 2, 2])", "    v, o = tl.split(v)",
    "    t = tl.maximum(t, tl.join(v, v).reshape([BLOCK]))", "    u = tl.join(o, o).reshape([BLOCK])",
]  # fmt: skip


def test_a_sum_that_is_moved_out_of_its_loop_in_part_is_no_sum_of_one_fate(tmp_path, monkeypatch):
    """What is used behind the loop alone is summed there, without a line and without the product, which stays in the loop."""
    kernel = load(drawn_sums.text(PARTLY_MOVED, ["s", "t", "u"]), tmp_path, "partly_moved")
    assert enclosed(kernel, "sm_90", 7)[:2] == (True, True)  # by what each register of it is
    monkeypatch.setattr(Contraction, "registers", {})
    monkeypatch.setattr(emulated_device, "_translations", {})
    monkeypatch.setenv("BITVERDICT_TRANSLATIONS", "off")
    assert enclosed(kernel, "sm_90", 7)[:2] == (True, False)
    monkeypatch.setattr(sums, "_whole_fate", lambda t, op, fate: fate)
    monkeypatch.setattr(emulated_device, "_translations", {})
    assert enclosed(kernel, "sm_90", 7)[:2] == (False, True)


BESIDE_ADDRESSES = [
    "m = at < n * 11", "s = tl.zeros_like(x)", "t = s", "u = s", "for i in range(n):",
    "    g = tl.load(a + (at + i) // n, mask=m, other=0.0)",
    "    h = tl.load(b + (at + i) // n, mask=m, other=0.0)", "    s += g * h", "    t += z * g", "    u += w * h",
]  # fmt: skip


def test_packed_sums_are_read_by_what_they_compute(tmp_path, monkeypatch):
    """Who reads nothing of them encloses; who reads the product of another sum has other words than the PTX."""
    kernel = load(drawn_sums.text(BESIDE_ADDRESSES, ["s", "t", "u"]), tmp_path, "beside_addresses")
    assert enclosed(kernel, "sm_90", 3)[:2] == (True, True)
    right = MarkedProgram.outcomes_by_value
    monkeypatch.setattr(Contraction, "_compute_once", lambda self, name, compute: compute())
    monkeypatch.setenv("BITVERDICT_TRANSLATIONS", "off")
    monkeypatch.setattr(emulated_device, "_translations", {})
    monkeypatch.setattr(MarkedProgram, "outcomes_by_value", lambda *_: [])
    assert enclosed(kernel, "sm_90", 3)[:2] == (True, False)
    monkeypatch.setattr(emulated_device, "_translations", {})
    monkeypatch.setattr(MarkedProgram, "outcomes_by_value", lambda *given: [replace(each, side=None) for each in right(*given)])
    assert not enclosed(kernel, "sm_90", 3)[0]


@pytest.mark.parametrize("name", [
    "by_rows", "by_columns", "scalar", "rows_and_columns", "affine", "through_shared_memory", "beside_one_through_shared_memory",
])  # fmt: skip
def test_a_product_is_followed_through_shapes_and_layouts(name):
    rows, columns, kernel = 16, 16, getattr(moved_sums, name)
    generator = torch.Generator().manual_seed(3)
    inputs = [torch.randn(rows * columns, generator=generator) for _ in range(3)]
    names = dict.fromkeys(("a", "b", "c", "out"), "*fp32") | {"ROWS": "constexpr", "COLUMNS": "constexpr"}
    program = ASTSource(kernel, names, {(4,): rows, (5,): columns}, {(place,): [["tt.divisibility", 16]] for place in range(4)})
    for arch in ARCHITECTURES:
        got, expected = torch.zeros(rows * columns), torch.zeros(rows * columns)
        with emulated(arch) as device:
            kernel[(1,)](*inputs, got, ROWS=rows, COLUMNS=columns, num_warps=2, enable_fp_fusion=True)
        target = GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)
        text = triton.compile(program, target=target, options={"num_warps": 2, "enable_fp_fusion": True}).asm["ptx"]
        arrays = [each.numpy() for each in (*inputs, expected)]
        threads = Threads(text, [a.__array_interface__["data"][0] for a in arrays], DeviceMemory(*arrays), 64)
        threads.run()
        ends = device.enclosure(got)
        assert ends is None or "mul.f32x2" in threads.seen  # some of the products are packed by older releases
        low, high, words = (keys(np.asarray(each).view(np.uint32)) for each in (*(ends or (got, got)), expected))
        assert ((low <= words) & (words <= high)).all()
        assert any(opcode.startswith("fma") for opcode in threads.seen) == (name != "through_shared_memory")


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_a_sum_that_is_narrowed_again_is_fused_in_the_narrow_format(dtype, tmp_path):
    kernel = load(drawn_sums.text(["z = ((x * y).to(tl.float32) + z.to(tl.float32)).to(x.dtype)"], ["z"]), tmp_path, "narrowed")
    x, y, z, _ = operands(7, dtype)
    apart = ((x * y).float() + z.float()).to(dtype).view(torch.int16).numpy()
    for arch in ("sm_90", "sm_100"):
        words = by_ptx(real_ptx(kernel, arch, dtype, dtype, True), operands(7, dtype), dtype, STEPS)[0][0]
        np.testing.assert_array_equal(emulate(kernel, arch, dtype, dtype, True, seed=7)[0], words)
        assert (words != apart).sum() >= 3


@pytest.mark.parametrize("lines", [
    ["z = (x.to(tl.float32) - z.to(tl.float32)).to(x.dtype) + y * w"],
    ["s = x.to(tl.float32)", "for _ in range(n):", "    z = s.to(x.dtype) + z * y", "    s = s + tl.abs(z).to(tl.float32)"],
], ids=["a difference", "what a loop carries"])  # fmt: skip
def test_what_is_narrowed_and_no_product_is_added_not_multiplied(lines, tmp_path):
    kernel = load(drawn_sums.text(lines, ["z"]), tmp_path, "no_product")
    words = by_ptx(real_ptx(kernel, "sm_90", F16, F16, True), operands(7, F16), F16, STEPS)[0][0]
    np.testing.assert_array_equal(emulate(kernel, "sm_90", F16, F16, True, seed=7)[0], words)


@pytest.mark.share(4)
def test_drawn_kernels_that_widen_and_narrow_have_the_words_of_their_ptx(tmp_path):
    wrong, refused = differing(tmp_path, "narrow", range(1, 15), dtype=F16)
    assert wrong == [] and len(refused) <= 4, refused


def test_a_product_is_not_fused_through_a_wider_format(tmp_path):
    kernel = load(drawn_sums.text(["z = (x * y).to(tl.float32) + z.to(tl.float32)"], ["z"]), tmp_path, "wider")
    x, y, z, _ = operands(7, BF16)
    expected = (x * y).float() + z.float()
    assert not torch.equal(expected, (x.float() * y.float() + z.float()))
    for arch in ARCHITECTURES:
        words = by_ptx(real_ptx(kernel, arch, BF16, F32, True), operands(7, BF16), F32, STEPS)[0][0]
        np.testing.assert_array_equal(words, expected.view(torch.int32).numpy())
        np.testing.assert_array_equal(emulate(kernel, arch, BF16, F32, True, seed=7)[0], words)


OPEN: dict[str, list[str]] = {
    "some steps of a loop that ptxas unrolls": [LOOP, "    z += x", "    z *= y"],
    "the first step of an unrolled loop, and then another product": ["p = x * y", "for _ in range(4):", "    z += p", "    z *= w"],
    "a factor taken out of a select": ["z = tl.where(w > 0, x * y, x * z) + z"],
}


@pytest.mark.parametrize("form", OPEN)
@pytest.mark.share(4)
def test_what_is_fused_here_and_not_there_is_enclosed(form, tmp_path):
    kernel = load(drawn_sums.text(OPEN[form], ["z"]), tmp_path, "enclosed")
    for arch in ARCHITECTURES:
        inside, exact, advice = enclosed(kernel, arch, 0)
        assert inside and not exact and any("leaves open whether this sum takes a product" in said for said in advice)
    got = emulate(kernel, "sm_90", F32, F32, False)
    np.testing.assert_array_equal(got, by_ptx(real_ptx(kernel, "sm_90", F32, F32, False), operands(0, F32), F32, STEPS)[0])


@pytest.mark.parametrize(("flow", "dtype"), [("line", F32), ("branch", F32), ("loop", F32), ("narrow", F16)])
def test_enclosures_have_the_words_of_the_ptx_where_nothing_is_read(flow, dtype, tmp_path, monkeypatch):
    monkeypatch.setattr(Contraction, "fate", lambda self, line: Fate())
    monkeypatch.setattr(Contraction, "registers", {})
    monkeypatch.setattr(emulated_device, "_translations", {})
    monkeypatch.setenv("BITVERDICT_TRANSLATIONS", str(tmp_path))
    held = []
    for seed in (2, 4, 5):
        held.append(enclosed(load(drawn(seed, flow), tmp_path, f"{flow}_{seed}"), ARCHITECTURES[seed % 3], seed, dtype))
    assert all(inside for inside, _, _ in held) and not all(exact for _, exact, _ in held)


def test_an_enclosure_without_the_words_next_to_a_product_misses_the_ptx(tmp_path, monkeypatch):
    monkeypatch.setattr(enclosure_ends, "_below", lambda low, dtype: low)
    monkeypatch.setattr(enclosure_ends, "_above", lambda high, dtype: high)
    kernel = load(drawn_sums.text(OPEN["a factor taken out of a select"], ["z"]), tmp_path, "narrow")
    assert not enclosed(kernel, "sm_90", 0)[0]


READINGS = {
    "fuses it in one place and not in another": Fate(plain_sums=1, fused_sums=1, formats={"f32"}, addends={frozenset()}),
    "computes it in f16": Fate(fused_sums=1, formats={"f16"}, addends={frozenset()}),
    "keeps nothing that could be read": Fate(),
    "fuses a product into it that reaches it through": Fate(fused_sums=1, formats={"f32"}, addends={frozenset({-1})}),
}


@pytest.mark.parametrize("said", READINGS)
def test_a_reading_that_is_inconclusive_is_no_exact_word(said, tmp_path, monkeypatch):
    kernel = load(drawn_sums.text(["p = z * z", "z = x * y + tl.where(n > 1, p, y)"], ["z"]), tmp_path, "unread")
    monkeypatch.setattr(Contraction, "fate", lambda self, line: READINGS[said])
    monkeypatch.setattr(emulated_device, "_translations", {})
    monkeypatch.setenv("BITVERDICT_TRANSLATIONS", str(tmp_path))
    if said.startswith("computes"):  # of another format the two words are no neighbours
        with pytest.raises(EmulatedFault, match=f"not modelled: .*{said}"):
            emulate(kernel, "sm_90", F32, F32, True)
        return
    inside, exact, _ = enclosed(kernel, "sm_90", 0)
    assert inside and not exact
