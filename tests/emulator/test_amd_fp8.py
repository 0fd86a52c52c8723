"""Contract under test: conversions to OCP's fp8 on gfx90a and gfx942 give the words of the integer operations that Triton compiles.

Their LLVM IR is executed here by NumPy: it has no instruction whose words only the chip knows."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from bitverdict.harness.emulator import LaunchOptions, emulated
from bitverdict.harness.emulator.faults import NotModelled
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.targets import target
from bitverdict.reference.formats import FORMATS, convert
from bitverdict.reference.formats.convert import round_infinite
from bitverdict.reference.tensor_core.upcast import cut_product
from tests.faults.kernels.quantize_mxfp import MUTANTS
from tests.faults.mutants import Mutant, write_mutant
from tests.support import amd_kernels

FORMATS_OF_FP8 = ("mxfp8_e4m3", "mxfp8_e5m2", "nvfp4")
TYPES = {"fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "e4m3": "fp8e4nv", "e5m2": "fp8e5"}
WORDS = {"i1": np.bool_, "i8": np.uint8, "i16": np.uint16, "i32": np.uint32}
INFINITIES = {"half": np.uint16(0x7C00), "bfloat": np.uint16(0x7F80), "float": np.uint32(0x7F800000)}
COMPARED = {"ult": np.less, "ugt": np.greater, "eq": np.equal, "ne": np.not_equal}
BINARY = {"and": np.bitwise_and, "or": np.bitwise_or, "add": np.add, "shl": np.left_shift, "lshr": np.right_shift}
CALLED = {"umax": np.maximum, "umin": np.minimum, "usub.sat": lambda a, b: np.where(a > b, a - b, 0).astype(a.dtype)}
_LOAD = re.compile(r"call (\w+) @llvm\.amdgcn\.raw\.ptr\.buffer\.load")
_STORE = re.compile(r"buffer\.store\.\w+\((?:i8|i16|half|bfloat|float) (%[\w.]+),")


@cache
def compiled(arch: str, source: str, destination: str) -> str:
    types = {"x": f"*{TYPES[source]}", "out": f"*{TYPES[destination]}", "BLOCK": "constexpr"}
    asked = ASTSource(amd_kernels.converted, types, {(2,): 64})
    return triton.compile(asked, target=GPUTarget("hip", arch, 64), options={"num_warps": 1}).asm["llir"]


def executed(text: str, words: np.ndarray) -> np.ndarray:
    """What the conversion in `text` (LLVM IR) stores for `words`. KeyError at an operation that is no integer's."""
    held: dict[str, np.ndarray] = {}

    def value(name: str, kind: str) -> np.ndarray:
        if name in held:
            return held[name]
        if kind == "i1":
            return np.asarray(name == "true")
        return np.asarray(int(name) % (int(np.iinfo(WORDS[kind]).max) + 1), WORDS[kind])

    for line in text.splitlines():
        line = line.split(", !dbg")[0].strip()
        if stored := _STORE.search(line):
            return held[stored[1]]
        name, _, told = line.partition(" = ")
        if _LOAD.search(told):
            held[name] = words
        elif held.keys().isdisjoint(re.findall(r"%[\w.]+", told)):
            continue  # an address
        elif found := re.fullmatch(r"(and|or|add|shl|lshr) (?:\w+ )*?(i\d+) ([\w%.-]+), ([\w%.-]+)", told):
            held[name] = BINARY[found[1]](value(found[3], found[2]), value(found[4], found[2]))
        elif found := re.fullmatch(r"icmp (?:samesign )?(\w+) (i\d+) ([\w%.]+), ([\w%.-]+)", told):
            held[name] = COMPARED[found[1]](value(found[3], found[2]), value(found[4], found[2]))
        elif found := re.fullmatch(r"select i1 ([\w%.]+), (i\d+) ([\w%.-]+), i\d+ ([\w%.-]+)", told):
            held[name] = np.where(held[found[1]], value(found[3], found[2]), value(found[4], found[2]))
        elif found := re.fullmatch(r"tail call i\d+ @llvm\.([a-z.]+)\.i\d+\((i\d+) ([\w%.]+), i\d+ ([\w%.-]+)\)", told):
            held[name] = CALLED[found[1]](value(found[3], found[2]), value(found[4], found[2]))
        elif found := re.fullmatch(r"tail call (half|bfloat|float) @llvm\.fabs\.b?f\d+\(\w+ ([\w%.]+)\)", told):
            held[name] = held[found[2]] & held[found[2]].dtype.type(np.iinfo(held[found[2]].dtype).max >> 1)
        elif found := re.fullmatch(r"fcmp uno (half|bfloat|float) ([\w%.]+), 0(?:\.0+e\+00|x[HR]0+)", told):
            infinity = INFINITIES[found[1]]
            held[name] = (held[found[2]] & infinity.dtype.type(np.iinfo(infinity.dtype).max >> 1)) > infinity
        elif found := re.fullmatch(r"(trunc|zext) (?:\w+ )*?(i\d+) ([\w%.]+) to (i\d+)", told):
            held[name] = held[found[3]].astype(WORDS[found[4]])
        elif found := re.fullmatch(r"(?:bitcast|extractelement) [^%]*(%[\w.]+)(?: to .*|, i64 0)", told):
            held[name] = held.get(found[1], words)
        elif found := re.fullmatch(r"insertelement <2 x i8> <i8 0, i8 poison>, i8 ([\w%.]+), i64 1", told):
            held[name] = held[found[1]].astype(np.uint16) << np.uint16(8)  # the upper byte of a word
        elif found := re.fullmatch(r"insertelement <4 x i8> <i8 0, i8 poison, [^>]*>, i8 ([\w%.]+), i64 1", told):
            held[name] = held[found[1]].astype(np.uint32) << np.uint32(8)
        elif found := re.fullmatch(r"fmul (?:nnan )?float ([\w%.]+), (f?)0x(\w+)", told):  # older LLVM writes a float's double
            factor = np.frombuffer(bytes.fromhex(found[3]), ">f4" if found[2] else ">f8").astype(np.float32)
            held[name] = (held[found[1]].view(np.float32) * factor).view(np.uint32)
        elif found := re.fullmatch(r"fpext half ([\w%.]+) to float", told):
            held[name] = held[found[1]].view(np.float16).astype(np.float32).view(np.uint32)
        else:
            raise KeyError(line)
    raise KeyError("nothing is stored")


def words_of(name: str) -> np.ndarray:
    """Every word of at most 16 bits; of fp32 those that end in a few patterns, and their neighbours."""
    if name != "fp32":
        return np.arange(1 << FORMATS[name].width).astype(FORMATS[name].storage)
    high = np.arange(1 << 16, dtype=np.uint32)[:, None] << 16
    return (high | np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)).reshape(-1)


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
@pytest.mark.parametrize(
    ("wide", "narrow"), [("fp32", "e4m3"), ("bf16", "e4m3"), ("fp32", "e5m2"), ("fp16", "e5m2"), ("bf16", "e5m2")]
)
def test_a_conversion_to_fp8_is_the_compiled_program_s(arch: str, wide: str, narrow: str) -> None:
    words = words_of(wide)
    found, due = executed(compiled(arch, wide, narrow), words), convert(wide, narrow, words, arch)
    assert (found == due).all(), (words[found != due][:5], found[found != due][:5], due[found != due][:5])
    assert (found != round_infinite(wide, narrow, words)).any()  # which does not saturate


@pytest.mark.parametrize("wide", ["fp32", "fp16"])
def test_e4m3_is_widened_exactly(wide: str) -> None:
    codes = words_of("e4m3")
    found, due = executed(compiled("gfx942", "e4m3", wide), codes), convert("e4m3", wide, codes, "gfx942")
    assert codes[found != due].tolist() == [0x7F, 0xFF]  # which NaN comes out is open


def test_a_nan_of_e4m3_becomes_480_in_bf16() -> None:
    codes = words_of("e4m3")
    for arch in ("gfx90a", "gfx942"):
        found = executed(compiled(arch, "e4m3", "bf16"), codes)
        assert (found == convert("e4m3", "bf16", codes, arch)).all()
        assert found[[0x7F, 0xFF]].tolist() == [0x43F0, 0xC3F0]


SCALED_FP8 = (
    r"and <2 x i8> %\w+, splat \(i8 127\)", r"shl nuw nsw <2 x i32> %\w+, splat \(i32 20\)",
    r"fmul nnan <2 x float> %\w+, splat \(float f0x7B800000\)", r"and <2 x i8> %\w+, splat \(i8 -128\)",
    r"shl nuw <2 x i32> %\w+, splat \(i32 24\)", "or disjoint <2 x i32>", "fmul <2 x float>",
    r"lshr <2 x i32> %\w+, splat \(i32 16\)",
)  # fmt: skip


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_e4m3_times_its_scale_is_the_compiled_program_s(arch: str) -> None:
    """LLVM IR of `amdg.scaled_upcast_fp8`, carried out on every element with every scale."""
    types = dict.fromkeys(("a", "b"), "*fp8e4nv") | dict.fromkeys(("a_scale", "b_scale"), "*u8") | {"c": "*fp32", "K": "constexpr"}
    with emulated(arch, options=LaunchOptions(dry=True)):  # says where the release's compiler takes no such product
        fp8, codes = torch.zeros(2, 32 * 64, dtype=torch.float8_e4m3fn), torch.zeros(64, dtype=torch.uint8)
        amd_kernels.scaled_product[(1,)](fp8[0], codes, fp8[1], codes, torch.zeros(32 * 32), 64, num_warps=1)
    asked = ASTSource(amd_kernels.scaled_product, types, {(5,): 64})
    text = triton.compile(asked, target=GPUTarget("hip", arch, 64), options={"num_warps": 1}).asm["llir"]
    assert re.search("[^\n]*\n(?:.*(?:bitcast|zext|insertelement|shufflevector).*\n)*.*".join(SCALED_FP8), text)
    codes, scales = np.arange(256, dtype=np.uint8)[:, None], np.arange(1 << 16, dtype=np.uint16)[None, ::64]
    magnitude = ((codes & 127).astype(np.uint32) << 20).view(np.float32) * np.float32(2.0**120)
    signed = (magnitude.view(np.uint32) | (codes & np.uint8(128)).astype(np.uint32) << 24).view(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        product = signed * (scales.astype(np.uint32) << 16).view(np.float32)
    due, found = (product.view(np.uint32) >> 16).astype(np.uint16), cut_product("e4m3", *np.broadcast_arrays(codes, scales))
    assert (found == due)[~np.isnan(product)].all() and (found[np.isnan(product)] == 0x7FC0).all()


def test_triton_makes_nan_of_fp16_that_e4m3_would_saturate() -> None:
    """Between 464 and 480, on AMD. So the conversion is refused."""
    words = words_of("fp16")
    found, due = executed(compiled("gfx942", "fp16", "e4m3"), words), convert("fp16", "e4m3", words, "sm_90")
    values = np.abs(words.view(np.float16))
    wrong = (found != due) & ~np.isnan(values)
    assert values[wrong].min() == 464.25 and values[wrong].max() == 479.75 and set(found[wrong]) == {0x7F, 0xFF}
    with pytest.raises(ValueError, match=r"gfx942: what Triton 3\.9 makes of a conversion from fp16 to e4m3 is not known"):
        convert("fp16", "e4m3", words, "gfx942")


def test_fp16_beside_a_conversion_to_fp8_is_refused() -> None:
    x, out = torch.ones(64), torch.zeros(64, dtype=torch.float8_e4m3fn)
    with emulated("gfx942"):
        amd_kernels.converted[(1,)](x, out, 64)
        assert (out.float() == 1).all()
        with pytest.raises(NotModelled, match=r"a program that has arith\.addf of f16: the mode for fp8 changes its overflow"):
            amd_kernels.doubled[(1,)](x.half(), out, 64)


FAULTS = [each for each in MUTANTS if each.name in ("an fp8 scale without the tensor's", "largest exponent of e5m2 one less")]


@pytest.mark.parametrize("fault", [None, *FAULTS], ids=lambda each: each.name if each else "right")
def test_quantisation_to_fp8_is_judged_on_gfx942(fault: Mutant | None, tmp_path: Path) -> None:
    contract, where = resolve(write_mutant(fault, tmp_path) if fault else "quantize_mxfp"), target("emulated:gfx942")
    asked = {case.problem.format: case for case in contract.required(where) if case.regime == "ties"}
    shown = dict(fault.shows_in).get("format") if fault else None
    found = [judge(case, where, contract) for name, case in asked.items() if name in FORMATS_OF_FP8 and shown in (None, name)]
    assert len(found) == (1 if fault else 3) and all(each.words for each in found if not fault)
    assert {each.outcome.value for each in found} == {"wrong words" if fault else "pass"}, found
