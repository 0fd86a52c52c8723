"""Our tensor-core models against MMA-Sim (PyPI `mmasim`, [MS] of reference/SOURCES.md), on words of random elements.

    pip install mmasim ninja
    python -m benchmarks.mma_sim                              # 2^20 words of every instruction that both claim; a table
    python -m benchmarks.mma_sim --words 4096 --only gfx942   # some
    python -m benchmarks.mma_sim --jobs 32 --seconds 130      # at once; what the time does not reach says how far it came
    python -m benchmarks.mma_sim --words 65536 --deep         # around the smallest results
    python -m benchmarks.mma_sim --snapshot tests/model_words/mma_sim.npz   # 256 words of each, for the test

Both are models: agreement says that our formula is MMA-Sim's, not that a chip computes it. Operands go round eight menus: any
codes, near 1, far apart, tiny, huge, cancelling, specials among ordinary ones, and powers of two. A word is compared bit for
bit; on gfx90a any NaN equals any, since MMA-Sim takes the host's there. `intended` counts what `Counterpart.intended` explains.
`by choice`: our rule under MMA-Sim's side of each of `Choices` has MMA-Sim's word, the side taken has another.
Exit status 1 where another word differs. 2^20 words of one instruction take 10 to 30 seconds of one core.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.campaign import Option, parse, run_script
from benchmarks.mma_sim_names import Counterpart, counterparts
from bitverdict.reference.formats import FORMATS, Format, Overflow, decode, encode
from bitverdict.reference.tensor_core import Instruction, elements, scaled_elements

AT_ONCE = 1 << 13
SNAPSHOT = 256
MENUS = ("any codes", "near 1", "far apart", "tiny", "huge", "cancelling", "specials", "powers of two")


def operands(rule: Instruction, k: int, rows: int, draw: np.random.Generator) -> tuple[np.ndarray, ...]:
    """a, b (rows, k) and c (rows,) codes; with a scale, also its codes for a and b (rows, blocks). Row r takes menu r mod 8."""
    menu = np.arange(rows) % len(MENUS)
    a_format, b_format = FORMATS[rule.a], FORMATS[rule.b]
    low = {"tiny": (-1.0, -0.4), "huge": (0.4, 1.0)}
    sides = []
    for fmt in (a_format, b_format):
        values = draw.normal(size=(rows, k))
        exponent = np.zeros((rows, k))
        for name, span in {"far apart": (-0.5, 0.5), "powers of two": (-0.3, 0.3), **low}.items():
            chosen = menu == MENUS.index(name)
            most = fmt.bias - 1 if fmt.exponent_bits < 8 else 75
            exponent[chosen] = np.rint(draw.uniform(*span, (int(chosen.sum()), k)) * most)
        powers = menu == MENUS.index("powers of two")
        values[powers] = draw.choice([1.0, -1.0, 1.5, -0.75], (int(powers.sum()), k))
        codes = encode(fmt, np.ldexp(values, exponent.astype(int)), overflow=Overflow.SATURATE)
        anything = draw.integers(0, 1 << fmt.width, (rows, k)).astype(fmt.storage)
        codes = np.where((menu == 0)[:, None], anything, codes)
        struck = (menu == MENUS.index("specials"))[:, None] & (draw.random((rows, k)) < 0.5 / k)
        codes = np.where(struck, draw.choice(_specials(fmt), (rows, k)), codes)
        zeros = draw.random((rows, k)) < draw.choice([0.0, 0.0, 0.3], (rows, 1))
        sides.append(np.where(zeros, 0, codes).astype(fmt.storage))
    a, b = sides
    cancelling = menu == MENUS.index("cancelling")
    half = k // 2
    a[cancelling, half : 2 * half] = a[cancelling, :half] ^ a_format.storage(a_format.sign_bit)
    b[cancelling, half : 2 * half] = b[cancelling, :half]
    a = _without_negative_zero(a_format, a, draw)
    return (a, b, _accumulator(rule, a, b, menu, draw), *_scales(rule, k, rows, menu, draw))


def deep_operands(rule: Instruction, k: int, rows: int, draw: np.random.Generator) -> tuple[np.ndarray, ...]:
    """As `operands`, around the smallest results: products near where E is held up, c zero in half the rows, else tiny. Of mxf4 and
    mxf4nvf4: a large scale over products that cancel or are zero beside small scales, c between."""
    if rule.sums_groups_exactly:
        return _unlike_scales(rule, k, rows, draw)
    lowest, highest = (-48, -12) if rule.d == "fp16" else (-164, -118)
    base = draw.integers(lowest, highest, (rows, 1))
    halves = base // 2, base - base // 2
    sides = []
    for name, half in zip((rule.a, rule.b), halves, strict=True):
        values = np.ldexp(draw.normal(size=(rows, k)), half + draw.integers(-3, 4, (rows, k)))
        codes = encode(FORMATS[name], np.where(draw.random((rows, k)) < draw.choice([0.0, 0.5], (rows, 1)), 0.0, values))
        sides.append(codes.astype(FORMATS[name].storage))
    tiny = draw.integers(0, 1 << (rule.output.mantissa_bits + 2), rows) | draw.choice([0, rule.output.sign_bit], rows)
    c = np.where(draw.random(rows) < 0.5, 0, tiny).astype(rule.output.storage)  # (rows,)
    ones = [np.full((rows, k // (rule.scale_block or k)), 127, np.uint8)] * (2 if rule.scale == "e8m0" else 0)
    return (*sides, c, *ones)


def _unlike_scales(rule: Instruction, k: int, rows: int, draw: np.random.Generator) -> tuple[np.ndarray, ...]:
    per = rule.scale_block or k
    a, b = draw.integers(0, 16, (2, rows, k)).astype(np.uint8)
    half, cancels = per // 2, draw.random(rows) < 0.7
    b[cancels, half:per] = b[cancels, :half]
    a[cancels, half:per] = a[cancels, :half] ^ 8
    a[~cancels, :per] = 0
    largest, least, spread = (0x7E, 1, 12) if rule.scale == "ue4m3" else (160, 110, 40)
    scales = least + draw.integers(0, spread, (2, rows, k // per))
    scales[:, :, 0] = largest - draw.integers(0, 8, (2, rows))
    exponent = draw.integers(-24, 24, rows) if rule.scale == "ue4m3" else draw.integers(-40, 70, rows)
    c = encode(rule.output, np.ldexp(draw.normal(size=rows), exponent) * (draw.random(rows) < 0.8))
    return a, b, c.astype(rule.output.storage), *(each.astype(np.uint8) for each in scales)


def _without_negative_zero(fmt: Format, codes: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """A sign that was turned makes NaN of zero in the formats without a negative zero: keep few of those."""
    if fmt.nan_code != fmt.sign_bit:
        return codes
    return np.where((codes == fmt.nan_code) & (draw.random(codes.shape) < 0.98), 0, codes).astype(fmt.storage)


def _accumulator(rule: Instruction, a: np.ndarray, b: np.ndarray, menu: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """c (rows,): around the products' sum, against it, of any code, or zero."""
    rows, output = len(menu), rule.output
    with np.errstate(all="ignore"):
        products = decode(FORMATS[rule.a], a) * decode(FORMATS[rule.b], b)  # (rows, k)
        near = np.where(np.isfinite(products), products, 0.0).sum(axis=1)  # (rows,)
        values = near * -draw.choice([1.0, 1.0, 0.5, 3.0], rows) * 2.0 ** draw.choice([0, 0, -30, -20, 20, 30, -25, 8], rows)
        codes = encode(output, np.where(np.isfinite(values), values, 1.0))
    anything = draw.integers(0, 1 << output.width, rows, dtype=np.uint64).astype(output.storage)
    codes = np.where(draw.random(rows) < np.where(menu == 0, 0.5, 0.1), anything, codes)
    tiny = draw.integers(0, 1 << (output.mantissa_bits + 1), rows).astype(output.storage)
    codes = np.where(draw.random(rows) < 0.05, tiny, codes)
    return np.where(draw.random(rows) < 0.15, draw.choice([0, output.sign_bit], rows), codes).astype(output.storage)


def _scales(rule: Instruction, k: int, rows: int, menu: np.ndarray, draw: np.random.Generator) -> tuple[np.ndarray, ...]:
    if rule.scale is None or rule.scale_block is None:
        return ()
    fmt = FORMATS[rule.scale]
    count = 1 << (fmt.width + fmt.ignored_high_bits)
    one = int(encode(fmt, np.ones(1))[0])
    found = []
    for _ in range(2):
        near = np.clip(one + draw.integers(-12, 12, (rows, k // rule.scale_block)), 0, fmt.largest_code)
        anything = draw.integers(0, count, near.shape)
        found.append(np.where((menu == 0)[:, None], anything, near).astype(fmt.storage))
    return tuple(found)


def _specials(fmt: Format) -> np.ndarray:
    codes = [0, 1, fmt.largest_code, fmt.largest_code | fmt.sign_bit, (1 << fmt.mantissa_bits << fmt.low_padding)]
    if fmt.nan_code is not None:
        codes.append(fmt.nan_code)
    if fmt.infinity_code is not None:
        codes += [fmt.infinity_code, fmt.infinity_code | fmt.sign_bit]
    return np.array(codes, fmt.storage)


def their_words(other: Counterpart, given: tuple[np.ndarray, ...]) -> np.ndarray:
    """MMA-Sim's words (rows,) for what `operands` gave."""
    import torch

    torch.set_num_threads(1)  # its tensors are small
    operation = other.operation()
    a, b, c = (tensor(torch, *each) for each in zip(given[:3], (other.rule.a, other.rule.b, other.rule.d), strict=True))
    if other.rule.scale is None:
        found = operation.dpa(a, b, c)
    else:
        if other.packed:
            a, b = (packed(torch, each) for each in given[:2])
        found = operation.dpa(a, b, c, *(tensor(torch, each, other.rule.scale or "") for each in given[3:]))
    return found.contiguous().view(torch.int16 if other.rule.d == "fp16" else torch.int32).numpy().view(other.rule.output.storage)


def tensor(torch: Any, codes: np.ndarray, name: str) -> Any:
    """`codes` as MMA-Sim takes the format `name`: a byte for fp6 (bits 0 to 5) and fp4 (bits 2 to 5)."""
    if name in ("e2m3", "e3m2", "e2m1"):
        return torch.from_numpy((codes << 2 if name == "e2m1" else codes).astype(np.uint8))
    kinds = {
        "fp16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "fp32": torch.float32, "e4m3": torch.float8_e4m3fn,
        "e5m2": torch.float8_e5m2, "e4m3fnuz": torch.float8_e4m3fnuz, "e5m2fnuz": torch.float8_e5m2fnuz,
        "e8m0": torch.float8_e8m0fnu, "ue4m3": torch.float8_e4m3fn,
    }  # fmt: skip
    signed = {1: np.int8, 2: np.int16, 4: np.int32}[codes.dtype.itemsize]
    plain = torch.from_numpy(np.ascontiguousarray(codes).view(np.uint8 if codes.dtype.itemsize == 1 else signed))
    return plain.view(kinds[name])


def packed(torch: Any, codes: np.ndarray) -> Any:
    """Pairs of e2m1 in a byte, the first in the high half, as MMA-Sim unpacks them."""
    return torch.from_numpy((codes[:, ::2] << 4 | codes[:, 1::2]).astype(np.uint8))


def our_words(rule: Instruction, given: tuple[np.ndarray, ...]) -> np.ndarray:
    if rule.scale is None:
        return elements(rule, given[0], given[1], given[2])
    a, b, c, a_scales, b_scales = given
    return scaled_elements(rule, a, a_scales, b, b_scales, c)


Made = Callable[[Instruction, int, int, np.random.Generator], tuple[np.ndarray, ...]]


def compared(
    other: Counterpart, words: int, data_seed: int, make: Made = operands
) -> Iterator[tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]]:
    """What was given, MMA-Sim's words and ours under its side of each choice, some rows at a time."""
    draw = np.random.default_rng([data_seed, *other.name.encode()])
    for start in range(0, words, AT_ONCE):
        given = make(other.rule, other.k, min(AT_ONCE, words - start), draw)
        yield given, their_words(other, given), our_words(other.their_rule, given)


@dataclass
class Row:
    """What came of one instruction. `examples`: operands (a, b, c, scales), MMA-Sim's word, ours."""

    name: str
    words: int = 0
    differ: int = 0
    intended: int = 0
    by_choice: int = 0
    examples: list[tuple[Any, ...]] = field(default_factory=list)

    def __str__(self) -> str:
        return f"| {self.name} | {self.words:,} | {self.differ:,} | {self.intended:,} | {self.by_choice:,} |"


def row_of(name: str, *, words: int, data_seed: int, deep: bool, until: float) -> Row:
    """Compare one instruction, by its name, until the time `until`."""
    other = next(each for each in counterparts() if each.name == name)
    row = Row(name)
    if time.time() >= until:
        return row
    for given, theirs, ours in compared(other, words, data_seed, deep_operands if deep else operands):
        differ = other.differing(theirs, ours)
        explained = differ & other.intended(theirs, ours)
        wrong = np.nonzero(differ & ~explained)[0]
        row.words += len(theirs)
        row.differ += len(wrong)
        row.intended += int(explained.sum())
        if other.takes_another_side:
            row.by_choice += int((our_words(other.rule, given) != ours).sum())
        if len(wrong) and not row.examples:
            at = int(wrong[0])
            row.examples.append((*(each[at].tolist() for each in given), hex(theirs[at]), hex(ours[at])))
        if time.time() >= until:
            break
    return row


def digest(given: tuple[np.ndarray, ...]) -> np.ndarray:
    """SHA-256 of the operands, (32,) bytes: a snapshot holds it in their place."""
    return np.frombuffer(sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in given)).digest(), np.uint8)


def snapshot(path: Path, chosen: list[Counterpart], words: int, data_seed: int) -> None:
    """MMA-Sim's words of `words` rows of each instruction, and the digest of the operands, in one file."""
    stored: dict[str, np.ndarray] = {"data_seed": np.array(data_seed), "words": np.array(words)}
    for other in chosen:
        for given, theirs, _ in compared(other, words, data_seed):
            stored[f"{other.name}/operands"], stored[f"{other.name}/d"] = digest(given), theirs
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, allow_pickle=False, **stored)


def main(arguments: list[str] | None = None) -> int:
    given = parse(
        __doc__, argv=arguments, words=1 << 20, data_seed=1, only="", jobs=1,
        seconds=Option(float("inf"), "compare no longer than that"),
        deep=Option(False, "operands around the smallest results alone"),
        snapshot=Option(Path, "write operands and MMA-Sim's words there, and compare nothing"),
    )  # fmt: skip
    chosen = [other for other in counterparts() if given.only in other.name]
    if given.snapshot:
        snapshot(given.snapshot, [other for other in chosen if other.in_snapshot], min(given.words, SNAPSHOT), given.data_seed)
        return 0
    print("| instruction | words | differ | intended | by choice |\n| --- | --- | --- | --- | --- |")
    worst = 0
    until = time.time() + given.seconds
    judge = partial(row_of, words=given.words, data_seed=given.data_seed, deep=given.deep, until=until)
    for row in _in_order(judge, [other.name for other in chosen], given.jobs):
        print(row, flush=True)
        for example in row.examples:
            print("   a, b, c, (scales,) theirs, ours:", *example, file=sys.stderr)
        worst = max(worst, row.differ)
    return int(worst > 0)


def _in_order(judge: Callable[[str], Row], names: list[str], jobs: int) -> Iterator[Row]:
    """The rows in the order of `names`; with several processes those of long K are computed first, and all come at the end."""
    if jobs == 1:
        yield from map(judge, names)
        return
    length = {other.name: other.k for other in counterparts()}
    first = sorted(names, key=lambda name: -length[name])
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        rows = dict(zip(first, pool.map(judge, first, chunksize=1), strict=True))
    yield from (rows[name] for name in names)


if __name__ == "__main__":
    run_script(main)
