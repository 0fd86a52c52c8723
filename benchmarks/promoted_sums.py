"""Promoted fp32 sums in integer arithmetic on a GPU beside `reference.scalar_arithmetic.fp32`: words compared, and seconds.

    python -m benchmarks.promoted_sums --words 10000000                          # on this machine's GPU
    python -m benchmarks.promoted_sums --words 200000 --target emulated:sm_90    # without one

total = fma(inner * scale of the row, scale of the column, total), of every kind of operand below: NaN, infinities, subnormals,
signed zeros, ties, and sums that cancel among them. Exit status 1 where a word differs.
"""

from __future__ import annotations

import time
from contextlib import nullcontext

import numpy as np

from benchmarks.campaign import Option, parse, run_script
from bitverdict.harness.emulator import emulated
from bitverdict.harness.lab.gpu_oracle.products import to_device
from bitverdict.harness.lab.gpu_oracle.promoted_sums import add_promoted
from bitverdict.reference.scalar_arithmetic import fp32

DRAWS = ("any word", "special", "usual", "few bits", "subnormal", "overflow", "cancelling", "half an end")
SPECIAL = np.array(
    [0, 1, 2, 0x7FFFFF, 0x800000, 0x800001, 0x3F800000, 0x3F800001, 0x3F7FFFFF, 0x33800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001,
     0x7FC00000, 0x7FFFFFFF, 0x00400000, 0x1F800000, 0x20000000, 0x5F800000], np.uint32,
)  # fmt: skip
FIELDS = {"usual": (117, 138), "few bits": (115, 140), "subnormal": (60, 68), "overflow": (186, 194)}


def drawn(draw: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """fp32 codes of `shape`."""
    found = rng.integers(0, 1 << 32, shape, dtype=np.uint32)
    if draw == "special":
        return rng.choice(SPECIAL, shape) | (found & np.uint32(1 << 31))
    if draw in FIELDS:
        low, high = FIELDS[draw]
        found = (found & np.uint32(0x807FFFFF)) | (rng.integers(low, high, shape, dtype=np.uint32) << np.uint32(23))
    if draw == "few bits":
        found &= np.uint32(0xFFF00000)
    return found


def asked(draw: str, side: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """(inner (side, side), rows (side,), columns (side,), total (side, side)) fp32 codes."""
    if draw == "half an end":
        return half_an_end(side, rng)
    of = draw if draw in ("any word", "special", *FIELDS) else "usual"
    inner, rows, columns = drawn(of, (side, side), rng), drawn(of, (side,), rng), drawn(of, (side,), rng)
    total = drawn(of, (side, side), rng)
    if draw in ("any word", "special"):
        return inner, rows, columns, total
    if draw in ("subnormal", "overflow"):  # a product of three about an end of the range: one factor is near one
        columns = drawn("usual", (side,), rng)
        shift = np.int64(64 if draw == "subnormal" else -64)
        field = np.clip(((total >> 23) & 255).astype(np.int64) - shift + rng.integers(-2, 60, total.shape) * (shift > 0), 0, 254)
        return inner, rows, columns, (total & np.uint32(0x807FFFFF)) | (field.astype(np.uint32) << np.uint32(23))
    if draw == "cancelling":
        with np.errstate(all="ignore"):
            scaled = fp32.multiply(inner.view(np.float32), rows.view(np.float32)[:, None])  # (side, side)
            near = (-scaled * columns.view(np.float32)).view(np.uint32)  # (side, side)
        return inner, rows, columns, near + rng.integers(-1, 2, near.shape).astype(np.uint32)
    return inner, rows, columns, total


def half_an_end(side: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Products that are half of the total's last bit, or 2^-30 or 2^-46 of themselves more or less: what rounding to float64 first
    makes ties. And products that are ties beside a total of which no bit reaches them."""
    inner = rng.choice([1.0, 1 + 2.0**-15, 1 + 2.0**-23, 1 + 2.0**-11 + 2.0**-23], (side, side)) * rng.choice(
        [1.0, -1.0], (side, side)
    )
    rows = np.ldexp(1.0, rng.integers(-4, 5, side))
    columns = rng.choice([1.0, 1.5, 1 - 2.0**-15, 1 - 2.0**-11 + 2.0**-23], side)  # the last by the last: 1 + 2^-46
    distance = np.where(rng.random((side, side)) < 0.7, rng.integers(22, 27, (side, side)), rng.integers(-80, -36, (side, side)))
    away = np.frexp(rows)[1][:, None] - 1 + distance
    total = np.ldexp(rng.integers(1 << 23, 1 << 24, (side, side)) * rng.choice([1.0, -1.0], (side, side)), away - 23)
    found = (each.astype(np.float32).view(np.uint32) for each in (inner, rows, columns, total))
    return tuple(found)


def due(inner: np.ndarray, rows: np.ndarray, columns: np.ndarray, total: np.ndarray) -> np.ndarray:
    """fp32 codes (M, N) by the reference."""
    one, two, three, four = (each.view(np.float32) for each in (inner, rows[:, None], columns[None, :], total))
    return fp32.fma(fp32.multiply(one, two), three, four).view(np.uint32)


def computed(inner: np.ndarray, rows: np.ndarray, columns: np.ndarray, total: np.ndarray) -> np.ndarray:
    """The same, by the device."""
    found, *blocks = (to_device(each, "cuda") for each in (total, inner, rows, columns))
    found = found.clone()  # (M, N)
    add_promoted(found, *blocks)
    return found.cpu().numpy().view(np.uint32)


def main() -> int:
    given = parse(__doc__, words=10_000_000, side=Option(1024, "rows and columns at a time"), target="cuda:0")
    begun, words, wrong, turn = time.monotonic(), 0, 0, 0
    distinct = dict.fromkeys(DRAWS, 0)
    with emulated(given.target.removeprefix("emulated:")) if given.target.startswith("emulated") else nullcontext():
        while words < given.words:
            draw = DRAWS[turn % len(DRAWS)]
            operands = asked(draw, given.side, np.random.default_rng(turn))
            expected, got = due(*operands), computed(*operands)
            differ = got != expected
            if differ.any() and not wrong:
                i, j = (int(each) for each in np.argwhere(differ)[0])
                factors = ", ".join(hex(each) for each in (operands[0][i, j], operands[1][i], operands[2][j], operands[3][i, j]))
                print(f"{draw}: {factors} give {got[i, j]:#x}, not {expected[i, j]:#x}", flush=True)
            words, wrong, turn = words + got.size, wrong + int(differ.sum()), turn + 1
            distinct[draw] = max(distinct[draw], len(np.unique(expected)))
    print("distinct words at a time:", ", ".join(f"{draw} {count:,}" for draw, count in distinct.items()))
    print(f"{words:,} words, {wrong:,} differ, {time.monotonic() - begun:.0f} s")
    return int(wrong > 0)


if __name__ == "__main__":
    run_script(main)
