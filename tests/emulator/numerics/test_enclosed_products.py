"""Contract under test: of a matrix product whose operands are enclosed, every word that the tensor core's model gives for words
inside of the operands' enclosures lies inside of the result's; and what no bound is derived for is refused by name."""

from __future__ import annotations

from itertools import product as combinations
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import TensorMemoryLayout, allocate_tensor_memory, tcgen05_mma
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, warpgroup_mma, warpgroup_mma_wait

from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.emulator import device as emulated_device
from bitverdict.harness.emulator.faults import NotModelled
from bitverdict.harness.emulator.frontend.contraction import AmdContraction, Contraction, Fate
from bitverdict.harness.emulator.numerics.enclosed_products import dot_words
from bitverdict.harness.emulator.numerics.enclosures import Enclosure, Enclosures, keys, words_of
from bitverdict.harness.emulator.numerics.matrix_products import fma_product, instruction, product
from bitverdict.reference.error_bound import of_instruction, plain_fp32
from bitverdict.reference.formats import FORMATS, encode

RULES = [
    ("sm_80", "mma.sync", "fp16", "fp32"), ("sm_80", "mma.sync", "tf32", "fp32"), ("sm_90", "wgmma", "fp16", "fp32"),
    ("sm_90", "wgmma", "bf16", "fp32"), ("sm_90", "wgmma", "e4m3", "fp32"), ("sm_90", "wgmma", "fp16", "fp16"),
    ("sm_90", "mma.sync", "bf16", "fp32"), ("sm_100", "mma.sync", "fp16", "fp32"), ("sm_100", "tcgen05", "bf16", "fp32"),
    ("sm_100", "tcgen05", "e4m3", "fp32"), ("", "fma", "fp32", "fp32"),
]  # fmt: skip
OP: Any = SimpleNamespace(name="tt.dot", location="here", brief="", text="")


def words(generator: np.random.Generator, fmt: str, *shape: int) -> np.ndarray:
    """Numbers of many magnitudes, some of them subnormal or zero."""
    values = generator.standard_normal(shape) * 2.0 ** generator.integers(-6, 4, shape)
    values = np.where(generator.random(shape) < 0.1, FORMATS[fmt].smallest_normal / 4, values)
    values = np.where(generator.random(shape) < 0.1, 0.0, values)
    found = encode(FORMATS["fp32" if fmt == "tf32" else fmt], values)
    return found.view(np.float32) if found.dtype == np.uint32 else found


def multiply(rule: tuple[str, str, str, str], a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    if rule[1] == "fma":
        return fma_product(a, b, c, fuses_sums=True)
    return product(rule[0], rule[1], (rule[2], rule[2], rule[3]), a, b, c)


def enclosed(
    rule: tuple[str, str, str, str], operands: list[np.ndarray], ends: list[Any], found: np.ndarray | None = None
) -> Enclosure | None:
    """The enclosure of the product of `operands`, whose keys lie between `ends`, and of `found` with it."""
    held = Enclosures()
    for operand, (low, high) in zip(operands, ends, strict=True):
        if (low != high).any():
            held.hold(operand, Enclosure(low, high))
    k = operands[0].shape[1]
    of_rule = lambda: of_instruction(instruction(rule[0], rule[1], rule[2], rule[2], rule[3]), k, accumulator=True)
    found = multiply(rule, *operands) if found is None else found
    machine = cast(Any, SimpleNamespace(launch=SimpleNamespace(enclosures=held)))
    dot_words(machine, OP, plain_fp32(fused_product=True) if rule[1] == "fma" else of_rule(), (rule[2], rule[2]), found, *operands)
    return held.enclosure_of(found)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: "-".join(rule))
def test_each_word_of_open_elements_gives_a_word_inside(rule: tuple[str, str, str, str]) -> None:
    """Two elements of a row, and one of the accumulator, at each of their words."""
    generator = np.random.default_rng(3)
    operands = [words(generator, rule[2], 2, 16), words(generator, rule[2], 16, 8), words(generator, rule[3], 2, 8)]
    ends = [(keys(each), keys(each)) for each in operands]
    step = 8192 if rule[2] == "tf32" else 1  # tf32 takes the upper bits
    for which, at, wide in ((0, (0, 3), 6), (0, (0, 9), 5), (2, (0, 2), 4)):
        ends[which][1].flags.writeable = True
        ends[which] = ends[which][0], ends[which][1].copy()
        ends[which][1][at] += (wide - 1) * (step if which == 0 else 1)
    found = enclosed(rule, operands, ends)
    assert found is not None
    for first, second, third in combinations(range(6), range(5), range(4)):
        chosen = [each.copy() for each in operands]
        for which, at, number in ((0, (0, 3), first * step), (0, (0, 9), second * step), (2, (0, 2), third)):
            chosen[which][at] = words_of(keys(operands[which])[at] + number, operands[which].dtype)
        word = keys(multiply(rule, *chosen))
        assert ((found.low <= word) & (word <= found.high)).all()
    assert (found.low[1] == found.high[1]).all() and (found.low[0] < found.high[0]).any()  # the other row is what it was


@pytest.mark.share(2)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: "-".join(rule))
@pytest.mark.parametrize("open_operands", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_drawn_words_of_open_operands_give_words_inside(rule: tuple[str, str, str, str], open_operands: tuple[int, ...]) -> None:
    generator = np.random.default_rng(7)
    largest = 0.0
    for _ in range(6):
        operands = [words(generator, rule[2], 16, 64), words(generator, rule[2], 64, 8), words(generator, rule[3], 16, 8)]
        wide = [1 << int(generator.integers(0, 5 if each.itemsize < 4 else 20)) for each in operands]
        ends = [(keys(each) - (w if i in open_operands else 0), keys(each) + (w if i in open_operands else 0))
                for i, (each, w) in enumerate(zip(operands, wide, strict=True))]  # fmt: skip
        found = enclosed(rule, operands, ends)
        assert found is not None
        for number in range(24):
            at = [low + np.where(generator.random(low.shape) < (number % 5) / 4, high - low, 0) if number < 12
                  else generator.integers(low, high + 1) for low, high in ends]  # fmt: skip
            word = keys(multiply(rule, *(words_of(each, operand.dtype) for each, operand in zip(at, operands, strict=True))))
            assert ((found.low <= word) & (word <= found.high)).all()
            middle, reach = (found.low + found.high) / 2, np.maximum((found.high - found.low) / 2, 1)
            largest = max(largest, float((np.abs(word - middle) / reach).max()))
    assert largest > 0.2  # the bound is of use


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule[2:] == ("fp16", "fp32")], ids=lambda rule: "-".join(rule))
def test_a_subnormal_operand_aligns_all_products_as_a_normal_one(rule: tuple[str, str, str, str]) -> None:
    """2^-24 times 2^15 is aligned by 2^1: products of 2^-27 are cut off, in sums of 2^-9."""
    left = encode(FORMATS["fp16"], np.where(np.arange(64) == 0, 2.0**-24, 2.0**-14)[None].repeat(16, 0))
    right = encode(FORMATS["fp16"], np.where(np.arange(64) == 0, 2.0**15, 1.5 * 2.0**-13)[:, None].repeat(8, 1))
    operands = [left, right, np.zeros((16, 8), np.float32)]
    at = np.arange(64)[None] == 1
    exact = np.full((16, 8), 2.0**-9 + 63 * 1.5 * 2.0**-27, np.float32)
    ends = [(keys(left), keys(left) + at), *((keys(each), keys(each)) for each in operands[1:])]
    found, word = enclosed(rule, operands, ends, exact), multiply(rule, *operands)
    assert found is not None and (np.abs(word - exact) > 2.0**-26).all()  # what was cut off
    assert ((found.low <= keys(word)) & (keys(word) <= found.high)).all()


def test_a_product_that_may_leave_the_finite_numbers_is_refused() -> None:
    rule = ("sm_90", "wgmma", "bf16", "fp32")
    large = encode(FORMATS["bf16"], np.full((16, 16), 2.0**60))
    operands = [large, large[:, :8], np.full((16, 8), 2.0**127, np.float32)]
    ends = [(keys(each), keys(each) + (i == 0)) for i, each in enumerate(operands)]
    assert enclosed(rule, operands, ends) is not None
    operands[1] = encode(FORMATS["bf16"], np.full((16, 8), 2.0**61))
    operands[0] = encode(FORMATS["bf16"], np.full((16, 16), 2.0**63))
    ends = [(keys(each), keys(each) + (i == 0)) for i, each in enumerate(operands)]
    with pytest.raises(NotModelled, match="of values that are enclosed, whose product may leave the finite numbers"):
        enclosed(rule, operands, ends)


@gluon.jit
def multiplied_by_gluon(x, y, z, right, out, N: gl.constexpr, KIND: gl.constexpr):
    """An open sum as the accumulator of a product in flight, or of one of tcgen05; and as an operand of products of two kinds."""
    wide: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16])
    flies: gl.constexpr = KIND == "flight" or KIND == "shared"
    layout: gl.constexpr = wide if flies else gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    shared: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    at = gl.arange(0, N, gl.SliceLayout(1, layout))[:, None] * N + gl.arange(0, N, gl.SliceLayout(0, layout))[None, :]
    s = gl.load(x + at) * gl.load(y + at) + gl.load(z + at)
    other = gl.allocate_shared_memory(gl.float16, [N, N], shared, gl.load(right + at))
    if KIND == "flight":
        fence_async_shared()
        first = warpgroup_mma(other, other, s, is_async=True)
        s = warpgroup_mma_wait(0, [warpgroup_mma(other, other, first, is_async=True)])
    elif KIND == "shared":
        left = gl.allocate_shared_memory(gl.float16, [N, N], shared, s.to(gl.float16))
        fence_async_shared()
        s = warpgroup_mma_wait(0, [warpgroup_mma(left, other, gl.zeros_like(s), is_async=True)])
    else:
        tensor: gl.constexpr = TensorMemoryLayout([N, N], col_stride=1)
        room = allocate_tensor_memory(gl.float32, [N, N], tensor)
        room.store(gl.convert_layout(s, room.get_reg_layout()))
        left = other
        if KIND == "operand":
            left = gl.allocate_shared_memory(gl.float16, [N, N], shared, s.to(gl.float16))
        bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
        mbarrier.init(bar, count=1)
        fence_async_shared()
        tcgen05_mma(left, other, room, use_acc=KIND != "operand", mbarriers=[bar])
        mbarrier.wait(bar, 0)
        s = gl.convert_layout(room.load(room.get_reg_layout()), layout)
    gl.store(out + at, s)


@triton.jit
def multiplied(x, y, z, other, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, KIND: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    at = rows[:, None] * K + inner[None, :]
    s = (tl.load(x + at) * tl.load(y + at) + tl.load(z + at)).to(other.dtype.element_ty)
    right = tl.load(other + inner[:, None] * N + columns[None, :])
    if KIND == "right":
        made = tl.dot(tl.trans(right), tl.trans(s), input_precision="tf32")  # (N, M)
        tl.store(out + columns[:, None] * M + rows[None, :], made)
    elif KIND == "partial":
        tl.store(out + rows[:, None] * N + columns[None, :], tl.dot(s, right, max_num_imprecise_acc=32))
    elif KIND == "ieee":
        tl.store(out + rows[:, None] * N + columns[None, :], tl.dot(s, right, input_precision="ieee"))
    else:
        tl.store(out + rows[:, None] * N + columns[None, :], tl.dot(s, right, input_precision="tf32"))


@pytest.fixture
def open_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Contraction, AmdContraction):
        monkeypatch.setattr(kind, "fate", lambda self, line: Fate())
    monkeypatch.setattr(Contraction, "registers", {})
    monkeypatch.setattr(emulated_device, "_translations", {})
    monkeypatch.setenv("BITVERDICT_TRANSLATIONS", "off")


def made_of(dtype: torch.dtype, kind: str, warps: int) -> tuple[torch.Tensor, Any, tuple[torch.Tensor, ...]]:
    """The product of an open sum, its ends, and the operands. One element of the sum may lie on either side of the middle between
    two words of e4m3."""
    generator = torch.Generator().manual_seed(1)
    m, n, k = 64, 64, 64
    x, y, z = (torch.randn(m, k, generator=generator) for _ in range(3))
    right = torch.randn(k, n, generator=generator)
    x[0, 0], y[0, 0], z[0, 0] = 1 + 2**-12, 1 + 2**-12, 0.0625 - 2**-11
    out = torch.zeros(m, n)
    with emulated("sm_90") as device:
        given = (x, y, z, right.to(dtype), out)
        multiplied[(1,)](*given, M=m, N=n, K=k, KIND=kind, num_warps=warps)
        return out, device.enclosure(out), given


KINDS = [("left", torch.float16, 4), ("right", torch.bfloat16, 4), ("ieee", torch.float32, 4), ("left", torch.float32, 1)]


@pytest.mark.parametrize(("kind", "dtype", "warps"), KINDS)
def test_a_kernel_multiplies_an_open_sum(kind: str, dtype: torch.dtype, warps: int, open_sums: None) -> None:
    out, ends, (x, y, z, right, _) = made_of(dtype, kind, warps)
    assert ends is not None
    low, high = map(keys, ends)
    sums = (x * y + z, (x.double() * y.double() + z.double()).float())
    cut = dtype == torch.float32 and kind != "ieee"  # tf32 takes the upper bits
    taken = [[(each.view(torch.int32) & -8192).view(torch.float32) if cut else each.to(dtype) for each in (s, right)] for s in sums]
    exact = [(left.double() @ other.double()).numpy() for left, other in taken]
    assert (exact[0] != exact[1]).any()
    least, most = (words_of(each, np.dtype(np.float32)) for each in (low, high))
    for each in exact:
        lies = each.T if kind == "right" else each
        assert ((least <= lies + 1e-3) & (lies - 1e-3 <= most)).all()
    assert ((low <= keys(out.numpy())) & (keys(out.numpy()) <= high)).all() and (low < high).any()


@pytest.mark.parametrize(
    ("kind", "arch"), [("flight", "sm_90"), ("shared", "sm_90"), ("accumulator", "sm_100"), ("operand", "sm_100")]
)
def test_a_product_in_flight_or_in_tensor_memory_holds_both_sums(kind: str, arch: str, open_sums: None) -> None:
    """Of the open sum as an accumulator, and as an operand in shared memory."""
    generator = torch.Generator().manual_seed(1)
    x, y, z = (torch.randn(128, 128, generator=generator) for _ in range(3))
    right, out = torch.randn(128, 128, generator=generator).half(), torch.zeros(128, 128)
    with emulated(arch) as device:
        multiplied_by_gluon[(1,)](x, y, z, right, out, N=128, KIND=kind, num_warps=4)
        ends = device.enclosure(out)
    assert ends is not None and (keys(ends[0]) < keys(ends[1])).mean() > 0.05
    low, high = (each.view(np.float32) for each in ends)
    for s in (x * y + z, (x.double() * y.double() + z.double()).float()):
        product_of_right = right.double() @ right.double() * (2 if kind == "flight" else 1)
        exact = s.half().double() @ right.double() if kind in ("shared", "operand") else product_of_right + s
        assert ((low <= exact.numpy() + 1e-3) & (exact.numpy() - 1e-3 <= high)).all()
    assert (high - low).max() < 0.1 and ((low <= out.numpy()) & (out.numpy() <= high)).all()


@pytest.mark.parametrize(
    ("dtype", "arch", "said"), [(torch.int8, "sm_90", "tt.dot|ttng.warp_group_dot"), (torch.float16, "gfx942", "tt.dot")]
)
def test_a_product_of_integers_or_on_amd_is_refused(dtype: torch.dtype, arch: str, said: str, open_sums: None) -> None:
    x, y, z = (torch.zeros(64, 64) for _ in range(3))
    x[0, :2], y[0, :2] = 1 + 2**-12, 1 + 2**-12  # the product is 1 + 2**-11 + 2**-24, a tie of fp32
    z[0, 0], z[0, 1] = 1 - 2**-11 - 2**-23, 2**-24  # the integer of the first sum is 1 or 2, the fp16 of the second 1 or 1 + 2**-10
    given = (x, y, z, torch.ones(64, 64, dtype=dtype), torch.zeros(64, 64))
    with pytest.raises(EmulatedFault, match=rf"not modelled: ({said}): of a value that is enclosed \(element"), emulated(arch):
        multiplied[(1,)](*given, M=64, N=64, K=64, KIND="left", num_warps=4)


@pytest.mark.parametrize(("dtype", "what"), [(torch.float8_e4m3fn, "ttng.warp_group_dot"), (torch.float64, "tt.dot")])
def test_a_product_without_a_bound_is_refused_by_name(dtype: torch.dtype, what: str, open_sums: None) -> None:
    with pytest.raises(EmulatedFault, match=rf"not modelled: {what}: of a value that is enclosed \(element"):
        made_of(dtype, "partial" if what.startswith("ttng") else "ieee", 4)
