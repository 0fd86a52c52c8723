"""The tensor-core model on a GPU beside the reference, the definition and the tensor core: words compared, and seconds.

    python -m benchmarks.gpu_oracle hold --words 110000000 --jobs 14     # every instruction against reference.tensor_core
    python -m benchmarks.gpu_oracle time --size 8192                      # all words of a cube, each format
    python -m benchmarks.gpu_oracle hardware --words 2000000000           # wgmma's own words, K = 8192, on an sm_90

Exit status 1 where a word differs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from fractions import Fraction
from math import isnan
from multiprocessing import get_context

import numpy as np
import torch

from benchmarks.campaign import Option, parse, run_script
from bitverdict.harness.emulator import emulated
from bitverdict.harness.lab.gpu_oracle import products
from bitverdict.reference.formats import FORMATS, decode
from bitverdict.reference.tensor_core import INSTRUCTIONS, Instruction, definition, instruction, product, scaled_product

DRAWS = ("any code", "usual", "cancelling", "tiny")
DEPTHS = (32, 96, 64, 192)  # K of each draw


def codes(rule: Instruction, name: str, shape: tuple[int, int], draw: str, rng: np.random.Generator) -> np.ndarray:
    """Codes of one operand, `shape`, in the storage of format `name`."""
    if name == "int8":
        return rng.integers(-128, 128, shape).astype(np.int8)
    fmt = FORMATS[name]
    found = rng.integers(0, 1 << (fmt.width + fmt.ignored_high_bits), shape, dtype=np.int64)
    if draw == "any code":
        found[::2] &= ~np.int64(1 << (fmt.mantissa_bits + fmt.low_padding + fmt.exponent_bits - 1)) if fmt.exponent_bits > 2 else -1
        return found.astype(fmt.storage)
    low = fmt.mantissa_bits + fmt.low_padding
    if fmt.exponent_bits > 2:
        top = (1 << fmt.exponent_bits) - 2
        middle = {"usual": fmt.bias, "cancelling": fmt.bias, "tiny": 1}[draw]
        reach = 1 if draw == "cancelling" else 6
        field = np.clip(rng.integers(middle - reach, middle + reach + 1, shape), 0, top)
        found = (found & ~(((1 << fmt.exponent_bits) - 1) << low)) | (field << low)
    found[rng.random(shape) < 0.05] = 0
    return found.astype(fmt.storage)


def scales(name: str, shape: tuple[int, int], draw: str, rng: np.random.Generator) -> np.ndarray:
    """Scale codes: any, near one, or low."""
    middle = {"any code": (0, 256), "usual": (120, 134), "cancelling": (126, 129), "tiny": (0, 60)}
    of_e4m3 = {"any code": (0, 256), "usual": (40, 72), "cancelling": (54, 58), "tiny": (0, 16)}
    return rng.integers(*(middle if name == "e8m0" else of_e4m3)[draw], shape).astype(np.uint8)


def held(asked: tuple[int, int, str, int]) -> tuple[str, int, int, int, int, str]:
    """(name, words compared, words that differ, distinct words, words asked of the definition too, the first that differs) of one
    instruction."""
    place, count, target, defined = asked
    rule = INSTRUCTIONS[place]
    rng = np.random.default_rng(place)
    side = max(24, int((count / len(DRAWS) / 2) ** 0.5))
    compared = different = distinct = by_definition = 0
    first = ""
    with emulated(target.removeprefix("emulated:")) if target.startswith("emulated") else nullcontext():
        for draw, depth in zip(DRAWS, DEPTHS, strict=True):
            a, b = codes(rule, rule.a, (side, depth), draw, rng), codes(rule, rule.b, (depth, side), draw, rng)
            start = accumulator(rule, (side, side), draw, rng)
            for c in (None, start):
                sides: tuple[np.ndarray, np.ndarray] | None = None
                if rule.scale:
                    blocks = -(-depth // (rule.scale_block or 1))
                    sides = scales(rule.scale, (side, blocks), draw, rng), scales(rule.scale, (side, blocks), draw, rng)
                    due = scaled_product(rule, a, sides[0], b, sides[1], c)
                    got = products.scaled_on_gpu("cuda")(rule, a, sides[0], b, sides[1], c)
                else:
                    due, got = product(rule, a, b, c), products.on_gpu("cuda")(rule, a, b, c)
                wrong = due != got
                compared, different, distinct = compared + due.size, different + int(wrong.sum()), distinct + len(np.unique(due))
                if wrong.any() and not first:
                    at = tuple(int(each) for each in np.argwhere(wrong)[0])
                    first = f"{draw}, c {'given' if c is not None else 'zero'}, at {at}: {int(got[at]):#x}, not {int(due[at]):#x}"
                for _ in range(-(-defined // (2 * len(DRAWS)))):
                    i, j = (int(number) for number in rng.integers(0, side, 2))
                    value = element(rule, a[i], b[:, j], None if c is None else c[i, j], sides and (sides[0][i], sides[1][j]))
                    by_definition += 1
                    if not same(rule, got[i, j], value):
                        different += 1
                        first = first or f"{draw}, at {(i, j)}: {int(got[i, j]):#x}, by the definition {value}"
    return rule.name, compared, different, distinct, by_definition, first


def element(
    rule: Instruction, a: np.ndarray, b: np.ndarray, c: np.generic | None, scales: tuple[np.ndarray, np.ndarray] | None
) -> definition.Number:
    """One element by `reference.tensor_core.definition`: codes `a`, `b` (K,), the word `c`, scale codes of each side (blocks,)."""
    if rule.d == "int32":
        return Fraction(definition.integer_element(rule, a.tolist(), b.tolist(), 0 if c is None else int(c)))
    sides = [
        definition.factors(rule, name, codes, of)
        for name, codes, of in zip((rule.a, rule.b), (a, b), scales or (None, None), strict=True)
    ]
    start = 0.0 if c is None else float(decode(rule.output, np.array([c]))[0])
    return definition.element(rule, *sides, definition.exact_value(start))


def same(rule: Instruction, word: np.generic, value: definition.Number) -> bool:
    """Whether `word` is `value`: any NaN is NaN, and the sign of zero is not told."""
    got = float(word) if rule.d == "int32" else float(decode(rule.output, np.array([word]))[0])
    return bool((isnan(got) and value != value) or got == value)


def accumulator(rule: Instruction, shape: tuple[int, int], draw: str, rng: np.random.Generator) -> np.ndarray:
    if rule.d == "int32":
        return rng.integers(-(1 << 31), 1 << 31, shape).astype(np.int32)
    fmt = rule.output
    found = rng.integers(0, 1 << fmt.width, shape, dtype=np.int64)
    if draw != "any code":
        mask = ((1 << fmt.exponent_bits) - 1) << fmt.mantissa_bits
        middle = {"usual": fmt.bias, "cancelling": fmt.bias + 1, "tiny": 3}[draw]
        found = (found & ~mask) | (np.clip(rng.integers(middle - 4, middle + 8, shape), 0, 2 * fmt.bias) << fmt.mantissa_bits)
    return found.astype(fmt.storage)


def hold(arguments: argparse.Namespace) -> int:
    """Every instruction against the reference."""
    rules = [place for place, rule in enumerate(INSTRUCTIONS) if not rule.saturates and arguments.only in rule.name]
    asked = [(place, arguments.words // len(rules) + 1, arguments.target, -(-arguments.defined // len(rules))) for place in rules]
    begun, words, wrong, defined = time.monotonic(), 0, 0, 0
    with ProcessPoolExecutor(arguments.jobs, get_context("spawn")) as pool:
        for name, compared, different, distinct, by_definition, first in pool.map(held, asked):
            words, wrong, defined = words + compared, wrong + different, defined + by_definition
            if different or arguments.verbose:
                print(f"{name:70} {compared:>10,} words, {distinct:>9,} distinct, {different:,} differ {first}", flush=True)
    also = f"{defined:,} of them held to the definition too"
    print(f"{len(rules)} instructions, {words:,} words, {also}, {wrong:,} differ, {time.monotonic() - begun:.0f} s")
    return int(wrong > 0)


FORMATS_TIMED = (
    ("wgmma", "fp16", "fp16", "fp32"), ("wgmma", "bf16", "bf16", "fp32"), ("wgmma", "fp16", "fp16", "fp16"),
    ("wgmma", "e4m3", "e4m3", "fp32"), ("wgmma", "e5m2", "e5m2", "fp32"), ("wgmma", "tf32", "tf32", "fp32"),
    ("mma.sync", "e4m3", "e4m3", "fp32"), ("wgmma", "int8", "int8", "int32"),
)  # fmt: skip


def timed(arguments: argparse.Namespace) -> int:
    """Seconds of all words of a cube, operands on the device and words left there; one launch before it, for the compiler."""
    size = arguments.size
    rules = [instruction("sm_90", *each) for each in FORMATS_TIMED]
    rules += [rule for rule in INSTRUCTIONS if rule.scale and rule.a == rule.b and rule.a in ("e2m1", "e4m3")]
    for rule in rules:
        words_of(rule, 128, size)
        torch.cuda.synchronize()
        begun = time.monotonic()
        found = words_of(rule, size, size)
        torch.cuda.synchronize()
        print(f"{rule.name:60} {found.numel():,} words, K {size}: {time.monotonic() - begun:.2f} s", flush=True)
        del found
    return 0


def words_of(rule: Instruction, depth: int, size: int) -> torch.Tensor:
    """Words (size, size) of usual operands, K `depth`, which are drawn first."""
    a, b = (drawn(rule, name, depth, size) for name in (rule.a, rule.b))  # (depth, size) each
    if not rule.scale:
        return products.words(rule, a, b)
    shape = (depth // (rule.scale_block or 1), size)
    low, high = (120, 134) if rule.scale == "e8m0" else (40, 72)
    one, other = (torch.randint(low, high, shape, device="cuda").to(torch.uint8).view(torch.int8) for _ in range(2))
    return products.scaled_words(rule, (a, one), (b, other))


def drawn(rule: Instruction, name: str, depth: int, size: int) -> torch.Tensor:
    """Usual values (K, L) on the GPU, as codes."""
    values = torch.randn(depth, size, device="cuda")
    if name == "tf32":
        return values.view(torch.int32)
    if name in ("e2m1", "int8"):
        return torch.randint(0, 16, (depth, size), dtype=torch.int8, device="cuda") - (8 if name == "int8" else 0)
    kind = {"fp16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[name]
    return values.to(kind).view({2: torch.int16, 1: torch.int8}[kind.itemsize])


def hardware(arguments: argparse.Namespace) -> int:
    """Words of `kernels.hopper_matmul` on this GPU, all of them, against this implementation."""
    from bitverdict.kernels import hopper_matmul

    size, k, wrong, words, begun = 16384, 8192, 0, 0, time.monotonic()
    kinds = {"fp16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
    for turn, dtype in enumerate(_round(kinds)):
        if words >= arguments.words:
            break
        torch.manual_seed(turn)
        rule = instruction("sm_90", "wgmma", dtype, dtype, "fp32")
        eight = dtype.startswith("e")
        a, b = (torch.randn(size, k, device="cuda").mul_(10.0 ** (turn % 3)).to(kinds[dtype]) for _ in range(2))  # (size, k)
        tile = {"block_m": 128, "block_n": 256, "block_k": 128 if eight else 64, "stages": 3 if eight else 4, "num_warps": 8}
        c = torch.empty(size, size, device="cuda")  # (size, size)
        got = hopper_matmul.hopper_matmul(a, b, c, transpose_b=True, **tile).view(torch.int32)  # (size, size)
        of = torch.int8 if eight else torch.int16
        due = products.words(rule, a.view(of).t(), b.view(of).t())  # (size, size)
        differ = int((got != due).sum())
        words, wrong = words + got.numel(), wrong + differ
        spent = f"{words:,} in all, {time.monotonic() - begun:.0f} s"
        print(f"{rule.name}: {got.numel():,} words, {differ:,} differ; {spent}", flush=True)
        del got, due, a, b, c
    print(f"{words:,} words of the tensor core, {wrong:,} differ, {time.monotonic() - begun:.0f} s")
    return int(wrong > 0)


def _round(kinds: dict[str, torch.dtype]) -> Iterator[str]:
    while True:
        yield from kinds


def main() -> int:
    arguments = parse(
        __doc__, "do=hold|time|hardware", words=110_000_000,
        defined=Option(10_000, "words of `hold` that are asked of the definition too"), size=8192, only="", jobs=2,
        target="cuda:0", verbose=False,
    )  # fmt: skip
    return {"hold": hold, "time": timed, "hardware": hardware}[arguments.do](arguments)


if __name__ == "__main__":
    run_script(main)
