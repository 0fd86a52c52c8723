"""The rows fed to an instruction: inner products chosen so that each open question about its arithmetic changes many words.

A row is `a[0..K-1]`, `b[0..K-1]` and one c for each accumulator format. Most rows are built from *terms*: the exponent q of each
product (a's and b's exponent drawn so that they add up to q), its sign, and whether its significand is 1 or drawn. The kinds of
rows, and what each is there to tell apart:

near       exponents close together: block length, rounding
wide       exponents anywhere: what the alignment drops
codes      every bit drawn (finite codes only): subnormal operands, the whole range
ladder     terms at chosen distances below the largest: fraction bits, and the bits that are kept of c
tie        a lead, half a unit of the result and something tiny: rounding, and whether it sees the tiny term
cancel     a pair that nearly cancels above small terms, also beyond the accumulator's range
floor      results near the smallest subnormal: a lower limit of the alignment exponent
overflow   results near the largest finite number
special    NaN, Inf, Inf * 0, Inf - Inf in operands and c
zero       every product is zero
vanish     exact cancellation, and results that round to zero, of either sign
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bitverdict.harness.lab.hardware_words.terms import ABSENT, Asked, accumulators, any_finite, scattered, terms
from bitverdict.reference.formats import FP16, FP32, Format, Specials

SHARES = {  # of a thousand rows
    "near": 80, "wide": 140, "codes": 110, "ladder": 210, "tie": 150, "cancel": 80, "floor": 80, "overflow": 50, "special": 60,
    "zero": 20, "vanish": 20,
}  # fmt: skip
KINDS = tuple(SHARES)


@dataclass(frozen=True)
class Rows:
    """Operand words of R products: a, b [R, K]; c32, c16 [R]; `kind` [R] indexes `KINDS`."""

    a: np.ndarray
    b: np.ndarray
    c32: np.ndarray
    c16: np.ndarray
    kind: np.ndarray


def _leads(asked: Asked) -> np.ndarray:
    """Exponent of each row's largest term: half of them where an fp16 result is finite and normal, the rest anywhere."""
    low, high = max(asked.lowest + 8, -150), min(asked.highest, 126)
    anywhere = asked.rng.integers(low, high + 1, asked.count)
    small = asked.rng.integers(max(low, -12), min(high, 14) + 1, asked.count)
    return np.where(asked.rng.random(asked.count) < 0.5, small, anywhere)


# ---------------------------------------------------------------------------------------------------------------- kinds
def near(asked: Asked) -> dict[str, np.ndarray]:
    middle = np.where(asked.rng.random(asked.count) < 0.7, 0, _leads(asked) - 4)
    exponents = middle[:, None] + asked.rng.integers(-4, 5, asked.shape)
    a, b = terms(asked, exponents, asked.signs(asked.shape), np.zeros(asked.shape, bool))
    return {"a": a, "b": b, **accumulators(asked, middle + asked.rng.integers(-4, 6, asked.count), plain=0.05)}


def wide(asked: Asked) -> dict[str, np.ndarray]:
    lead = _leads(asked)
    exponents = lead[:, None] - asked.rng.integers(0, 45, asked.shape)
    exponents = np.where(exponents < asked.lowest, ABSENT, exponents)
    a, b = terms(asked, exponents, asked.signs(asked.shape), np.zeros(asked.shape, bool))
    return {"a": a, "b": b, **accumulators(asked, lead - asked.rng.integers(-6, 40, asked.count), plain=0.05)}


def codes(asked: Asked) -> dict[str, np.ndarray]:
    a, b = (any_finite(asked.rng, format, asked.shape) for format in (asked.a, asked.b))
    if asked.a.exponent_bits == 8:  # nearly every sum of such products would be infinite: their exponents are drawn instead
        lead = asked.rng.integers(-120, 100, (asked.count, 1))
        a, b = terms(asked, lead - asked.rng.integers(0, 100, asked.shape), asked.signs(asked.shape), np.zeros(asked.shape, bool))
    small = asked.rng.random((asked.count, 1)) < 0.6  # the exponent's top bit cleared: below 2, so that fp16 can hold the sum
    a, b = (
        np.where(small, codes & ~np.array(format.sign_bit >> 1, codes.dtype), codes)
        for codes, format in ((a, asked.a), (b, asked.b))
    )
    c32 = np.where(
        asked.rng.random(asked.count) < 0.5,
        any_finite(asked.rng, FP32, (asked.count,)),
        accumulators(asked, asked.rng.integers(-20, 20, asked.count))["c32"],
    )
    return {"a": a, "b": b, "c32": c32.astype(np.uint32), "c16": any_finite(asked.rng, FP16, (asked.count,))}


EDGES = ([0, 1, 2, 22, 23, 24, 25, 26, 27], [0, 1, 10, 11, 12, 13, 14, 15], [0, 9, 10, 11, 12, 23, 24, 25, 26, 27], list(range(45)))


def ladder(asked: Asked) -> dict[str, np.ndarray]:
    lead = _leads(asked)
    which = asked.rng.integers(0, len(EDGES), asked.count)
    drawn = np.stack([asked.choose(menu, asked.shape) for menu in EDGES])[which, np.arange(asked.count)]  # [R, K]
    drawn[:, 0] = 0
    exponents = lead[:, None] - asked.rng.permuted(drawn, axis=1)
    exponents = np.where(asked.rng.random(asked.shape) < 0.35, ABSENT, exponents)
    plain = np.broadcast_to(asked.rng.random((asked.count, 1)) < 0.5, asked.shape)
    a, b = terms(asked, exponents, asked.signs(asked.shape), plain)
    below = np.stack([asked.choose(menu, (asked.count,)) for menu in EDGES])[which, np.arange(asked.count)]
    c_exponent = np.where(asked.rng.random(asked.count) < 0.15, lead + asked.rng.integers(1, 26, asked.count), lead - below)
    c_exponent = np.where(asked.rng.random(asked.count) < 0.2, ABSENT, c_exponent)
    return {"a": a, "b": b, **accumulators(asked, c_exponent)}


def tie(asked: Asked) -> dict[str, np.ndarray]:
    lead = _leads(asked)
    bits = asked.choose([10, 10, 13, 23], (asked.count,))  # of the result, below its leading one
    unit = np.maximum(lead - bits, np.where(bits == 10, -24, -149))
    odd = np.where(asked.signs((asked.count,)) == 1, unit, ABSENT)
    tiny = unit - 1 - asked.rng.integers(1, 24, asked.count)
    second = np.where(asked.signs((asked.count,)) == 1, tiny - asked.rng.integers(0, 3, asked.count), ABSENT)
    in_c = asked.rng.random(asked.count) < 0.3  # the lead is c
    columns = [np.where(in_c, ABSENT, lead), odd, unit - 1, tiny, second]
    order = asked.rng.permuted(np.tile(np.arange(asked.k), (asked.count, 1)), axis=1)
    table, signs = np.full(asked.shape, ABSENT), np.zeros(asked.shape, np.int64)
    sign = asked.signs((asked.count,))
    for column, exponent in enumerate(columns[: asked.k]):
        table[:, column] = exponent
        signs[:, column] = sign if column < 3 else asked.signs((asked.count,))
    table, signs = np.take_along_axis(table, order, 1), np.take_along_axis(signs, order, 1)
    a, b = terms(asked, table, signs, np.ones(asked.shape, bool))
    return {"a": a, "b": b, **accumulators(asked, np.where(in_c, lead, ABSENT), sign, plain=1.0)}


def cancel(asked: Asked) -> dict[str, np.ndarray]:
    top = asked.rng.integers(min(asked.highest - 12, 12), min(asked.highest, 160) + 1, asked.count)
    gap = asked.choose([14, 20, 23, 24, 25, 26, 27, 30, 34], (asked.count,))
    rest = top[:, None] - gap[:, None] - asked.rng.integers(0, 4, asked.shape)
    rest = np.where(asked.rng.random(asked.shape) < 0.4, ABSENT, rest)
    a, b = terms(asked, rest, asked.signs(asked.shape), asked.rng.random(asked.shape) < 0.5)
    pair_sign = asked.signs((asked.count,))
    positions = asked.rng.permuted(np.tile(np.arange(asked.k), (asked.count, 1)), axis=1)[:, :2]  # [R, 2]
    pair = np.stack([top, top], axis=1)
    pair_a, pair_b = terms(asked, pair, np.stack([pair_sign, 1 - pair_sign], axis=1), np.ones(pair.shape, bool))
    step = np.array(1 << asked.a.low_padding, asked.a.storage)  # some pairs differ by one unit of a
    differs = (asked.rng.random(asked.count) < 0.4) & (pair_a[:, 0] & (asked.a.sign_bit - 1) != asked.a.largest_code)
    pair_a[:, 0] = np.where(differs, pair_a[:, 0] + step, pair_a[:, 0])
    np.put_along_axis(a, positions, pair_a, 1)
    np.put_along_axis(b, positions, pair_b, 1)
    return {"a": a, "b": b, **accumulators(asked, top - gap - asked.rng.integers(-2, 30, asked.count))}


def floor(asked: Asked) -> dict[str, np.ndarray]:
    """A few units of the smallest subnormal, and something tiny against them: whether it is seen shows how far down E goes.

    fp32 truncates, so the tiny term has the other sign; fp16 rounds to nearest, so it stands beside half a unit.
    """
    of_fp32 = (asked.rng.random(asked.count) < 0.7) if asked.lowest < -149 else np.zeros(asked.count, bool)
    smallest = np.where(of_fp32, -149, -24)
    some = asked.signs((asked.count,)) == 1
    base = smallest + asked.choose([0, 0, 1, 1, 2, 5, 9, 14], (asked.count,))
    unit = np.where(some, smallest, ABSENT)
    half = np.where(of_fp32 & (asked.rng.random(asked.count) < 0.8), ABSENT, smallest - 1)
    tiny = np.where(of_fp32, asked.rng.integers(-178, -149, asked.count), asked.rng.integers(-48, -34, asked.count))
    tiny = np.where(~of_fp32 & some, np.maximum(asked.lowest, -48), tiny)
    columns = [np.where(of_fp32 | some, base, ABSENT), unit, half, tiny]
    table, signs = np.full(asked.shape, ABSENT), np.zeros(asked.shape, np.int64)
    sign = asked.signs((asked.count,))
    against = np.where(of_fp32, 1 - sign, asked.signs((asked.count,)))
    for column, exponent in enumerate(columns[: asked.k]):
        table[:, column] = exponent
        signs[:, column] = against if column == 3 else sign
    order = asked.rng.permuted(np.tile(np.arange(asked.k), (asked.count, 1)), axis=1)
    table, signs = np.take_along_axis(table, order, 1), np.take_along_axis(signs, order, 1)
    a, b = terms(asked, table, signs, np.ones(asked.shape, bool), normal=True)
    c_exponent = np.where(asked.rng.random(asked.count) < 0.85, ABSENT, smallest + asked.rng.integers(0, 4, asked.count))
    return {"a": a, "b": b, **accumulators(asked, c_exponent)}


def overflow(asked: Asked) -> dict[str, np.ndarray]:
    of_fp32 = (asked.rng.random(asked.count) < 0.6) if asked.highest > 127 else np.zeros(asked.count, bool)
    top = np.where(of_fp32, 127, 15)
    at_edge = asked.rng.random(asked.count) < 0.5  # c is the largest finite number, the products about half a unit of it
    half = np.where(of_fp32, 103, 4)
    shift = asked.rng.integers(-2, 2, asked.count)
    lead = np.where(at_edge, half + np.minimum(shift, 0), top + shift)
    tiny = np.where(at_edge, half - asked.rng.integers(1, 20, asked.count), top - asked.rng.integers(1, 12, asked.count))
    more = np.where(asked.signs((asked.count,)) == 1, tiny, ABSENT)
    exponents = scattered(asked, [lead, tiny, more])
    sign = asked.signs((asked.count,))
    signs = np.where(asked.rng.random(asked.shape) < 0.8, sign[:, None], 1 - sign[:, None])
    a, b = terms(asked, exponents, signs, np.broadcast_to(at_edge[:, None], asked.shape))
    c = accumulators(asked, top - asked.rng.integers(0, 6, asked.count), sign)
    for name, format in (("c32", FP32), ("c16", FP16)):
        c[name] = np.where(at_edge, format.largest_code | sign * format.sign_bit, c[name]).astype(format.storage)
    return {"a": a, "b": b, **c}


def special_codes(format: Format) -> np.ndarray:
    """Infinities, NaNs of several payloads and both signs, zeros, the largest and the smallest number."""
    low = format.low_padding
    chosen = [0, 1 << low, format.largest_code]
    if format.specials is Specials.IEEE:
        infinity = ((1 << format.exponent_bits) - 1) << format.mantissa_bits
        quiet = 1 << (format.mantissa_bits - 1)
        chosen += [infinity << low] * 3 + [(infinity | quiet) << low, (infinity | 1) << low, (infinity | quiet | 1) << low]
        if low:  # a payload only in the bits that are ignored
            chosen += [(infinity << low) | 1, (infinity << low) | ((1 << low) - 1)]
    if format.specials is not Specials.NONE:
        chosen.append(((1 << (format.exponent_bits + format.mantissa_bits)) - 1) << low)
    codes = np.array(chosen, np.int64)
    return np.concatenate([codes, codes | format.sign_bit]).astype(format.storage)


def special(asked: Asked) -> dict[str, np.ndarray]:
    rows = near(asked)
    rng, every = asked.rng, np.arange(asked.count)
    for _ in range(2):
        for name, other, format in (("a", "b", asked.a), ("b", "a", asked.b)):
            where = rng.integers(0, asked.k, asked.count)
            mutated = rng.choice(special_codes(format), asked.count)
            here = rng.random(asked.count) < 0.35
            rows[name][every, where] = np.where(here, mutated, rows[name][every, where])
            zero = here & (rng.random(asked.count) < 0.2)
            rows[other][every, where] = np.where(zero, 0, rows[other][every, where])
    for name, format in (("c32", FP32), ("c16", FP16)):
        mutated = rng.choice(special_codes(format), asked.count)
        rows[name] = np.where(rng.random(asked.count) < 0.35, mutated, rows[name])
    return rows


def zero(asked: Asked) -> dict[str, np.ndarray]:
    a, b = terms(asked, np.full(asked.shape, ABSENT), asked.signs(asked.shape), np.zeros(asked.shape, bool))
    signed = asked.rng.random((asked.count, 1)) < 0.3  # every product the same zero
    a = np.where(signed, 0, a).astype(asked.a.storage)
    b = np.where(signed, asked.b.sign_bit * asked.signs((asked.count, 1)), b).astype(asked.b.storage)
    exponent = asked.choose([ABSENT, ABSENT, ABSENT, -149, -140, -126, -24, -20, -14, 0, 3, 15, 100, 127], (asked.count,))
    return {"a": a, "b": b, **accumulators(asked, exponent, plain=0.1)}


def vanish(asked: Asked) -> dict[str, np.ndarray]:
    half = asked.k // 2
    exponents = _leads(asked)[:, None] - asked.rng.integers(0, 6, (asked.count, half))
    exponents = np.where(asked.rng.random(exponents.shape) < 0.5, ABSENT, exponents)
    a, b = terms(asked, exponents, asked.signs(exponents.shape), np.zeros(exponents.shape, bool))
    a, b = np.concatenate([a, a], axis=1), np.concatenate([b, b ^ np.array(asked.b.sign_bit, b.dtype)], axis=1)  # [R, K]
    smallest = -149 if asked.lowest < -149 else -24
    tiny = scattered(asked, [smallest - asked.rng.integers(1, 24, asked.count)])
    tiny_a, tiny_b = terms(asked, tiny, asked.signs(asked.shape), np.ones(asked.shape, bool))
    rounds = (asked.rng.random(asked.count) < 0.5)[:, None]  # to zero, instead of cancelling
    a, b = np.where(rounds, tiny_a, a), np.where(rounds, tiny_b, b)
    return {"a": a, "b": b, **accumulators(asked, np.full(asked.count, ABSENT))}


BUILDERS: dict[str, Callable[[Asked], dict[str, np.ndarray]]] = {
    "near": near, "wide": wide, "codes": codes, "ladder": ladder, "tie": tie, "cancel": cancel, "floor": floor,
    "overflow": overflow, "special": special, "zero": zero, "vanish": vanish,
}  # fmt: skip


def rows(a: Format, b: Format, k: int, count: int, *, data_seed: int) -> Rows:
    """About `count` rows of K products, every kind in its share (at least eight rows), the same for the same arguments.

    Operands whose container has bits that the format ignores (tf32) have them drawn in half of the rows.
    """
    parts: list[dict[str, np.ndarray]] = []
    for index, (kind, share) in enumerate(SHARES.items()):
        asked = Asked(np.random.default_rng([data_seed, index]), a, b, k, max(8, count * share // 1000))
        part = BUILDERS[kind](asked)
        for name, format in (("a", a), ("b", b)):
            if format.low_padding:
                noise = asked.rng.integers(0, 1 << format.low_padding, asked.shape)
                noise = np.where(asked.rng.random(asked.count)[:, None] < 0.5, noise, 0)
                part[name] = (part[name] | noise.astype(np.uint32)).astype(np.uint32)
        parts.append(part | {"kind": np.full(asked.count, index, np.uint8)})
    joined = {name: np.concatenate([part[name] for part in parts]) for name in ("a", "b", "c32", "c16", "kind")}
    return Rows(
        a=joined["a"].astype(a.storage),
        b=joined["b"].astype(b.storage),
        c32=joined["c32"].astype(np.uint32),
        c16=joined["c16"].astype(np.uint16),
        kind=joined["kind"],
    )
