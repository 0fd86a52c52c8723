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

from bitverdict.harness.lab.hardware_words.terms import ABSENT, ProbeRequest, accumulators, any_finite, scatter_columns, terms
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


def _leads(asked: ProbeRequest) -> np.ndarray:
    """Exponent of each row's largest term: half of them where an fp16 result is finite and normal, the rest anywhere."""
    low, high = max(asked.lowest + 8, -150), min(asked.highest, 126)
    anywhere = asked.rng.integers(low, high + 1, asked.count)
    small = asked.rng.integers(max(low, -12), min(high, 14) + 1, asked.count)
    return np.where(asked.rng.random(asked.count) < 0.5, small, anywhere)


# ---------------------------------------------------------------------------------------------------------------- kinds
def near_exponents(asked: ProbeRequest) -> dict[str, np.ndarray]:
    middle = np.where(asked.rng.random(asked.count) < 0.7, 0, _leads(asked) - 4)
    exponents = middle[:, None] + asked.rng.integers(-4, 5, asked.shape)
    a, b = terms(asked, exponents, asked.signs(asked.shape), np.zeros(asked.shape, bool))
    return {"a": a, "b": b, **accumulators(asked, middle + asked.rng.integers(-4, 6, asked.count), plain=0.05)}


def wide_exponents(asked: ProbeRequest) -> dict[str, np.ndarray]:
    lead = _leads(asked)
    exponents = lead[:, None] - asked.rng.integers(0, 45, asked.shape)
    exponents = np.where(exponents < asked.lowest, ABSENT, exponents)
    a, b = terms(asked, exponents, asked.signs(asked.shape), np.zeros(asked.shape, bool))
    return {"a": a, "b": b, **accumulators(asked, lead - asked.rng.integers(-6, 40, asked.count), plain=0.05)}


def codes(request: ProbeRequest) -> dict[str, np.ndarray]:
    a, b = (any_finite(request.rng, format, request.shape) for format in (request.a, request.b))
    if request.a.exponent_bits == 8:  # nearly every sum of such products would be infinite: their exponents are drawn instead
        lead = request.rng.integers(-120, 100, (request.count, 1))
        a, b = terms(
            request, lead - request.rng.integers(0, 100, request.shape), request.signs(request.shape), np.zeros(request.shape, bool)
        )
    small = request.rng.random((request.count, 1)) < 0.6  # the exponent's top bit cleared: below 2, so that fp16 can hold the sum
    a, b = (
        np.where(small, codes & ~np.array(format.sign_bit >> 1, codes.dtype), codes)
        for codes, format in ((a, request.a), (b, request.b))
    )
    c32 = np.where(
        request.rng.random(request.count) < 0.5,
        any_finite(request.rng, FP32, (request.count,)),
        accumulators(request, request.rng.integers(-20, 20, request.count))["c32"],
    )
    return {"a": a, "b": b, "c32": c32.astype(np.uint32), "c16": any_finite(request.rng, FP16, (request.count,))}


EDGES = ([0, 1, 2, 22, 23, 24, 25, 26, 27], [0, 1, 10, 11, 12, 13, 14, 15], [0, 9, 10, 11, 12, 23, 24, 25, 26, 27], list(range(45)))


def ladder(request: ProbeRequest) -> dict[str, np.ndarray]:
    lead = _leads(request)
    edge_index = request.rng.integers(0, len(EDGES), request.count)
    drawn = np.stack([request.choose(menu, request.shape) for menu in EDGES])[edge_index, np.arange(request.count)]  # [R, K]
    drawn[:, 0] = 0
    exponents = lead[:, None] - request.rng.permuted(drawn, axis=1)
    exponents = np.where(request.rng.random(request.shape) < 0.35, ABSENT, exponents)
    plain = np.broadcast_to(request.rng.random((request.count, 1)) < 0.5, request.shape)
    a, b = terms(request, exponents, request.signs(request.shape), plain)
    below = np.stack([request.choose(menu, (request.count,)) for menu in EDGES])[edge_index, np.arange(request.count)]
    c_exponent = np.where(request.rng.random(request.count) < 0.15, lead + request.rng.integers(1, 26, request.count), lead - below)
    c_exponent = np.where(request.rng.random(request.count) < 0.2, ABSENT, c_exponent)
    return {"a": a, "b": b, **accumulators(request, c_exponent)}


def tie(request: ProbeRequest) -> dict[str, np.ndarray]:
    lead = _leads(request)
    bits = request.choose([10, 10, 13, 23], (request.count,))  # of the result, below its leading one
    unit = np.maximum(lead - bits, np.where(bits == 10, -24, -149))
    odd = np.where(request.signs((request.count,)) == 1, unit, ABSENT)
    tiny = unit - 1 - request.rng.integers(1, 24, request.count)
    second = np.where(request.signs((request.count,)) == 1, tiny - request.rng.integers(0, 3, request.count), ABSENT)
    in_c = request.rng.random(request.count) < 0.3  # the lead is c
    columns = [np.where(in_c, ABSENT, lead), odd, unit - 1, tiny, second]
    order = request.rng.permuted(np.tile(np.arange(request.k), (request.count, 1)), axis=1)
    table, signs = np.full(request.shape, ABSENT), np.zeros(request.shape, np.int64)
    sign = request.signs((request.count,))
    for column, exponent in enumerate(columns[: request.k]):
        table[:, column] = exponent
        signs[:, column] = sign if column < 3 else request.signs((request.count,))
    table, signs = np.take_along_axis(table, order, 1), np.take_along_axis(signs, order, 1)
    a, b = terms(request, table, signs, np.ones(request.shape, bool))
    return {"a": a, "b": b, **accumulators(request, np.where(in_c, lead, ABSENT), sign, plain=1.0)}


def cancel(request: ProbeRequest) -> dict[str, np.ndarray]:
    top = request.rng.integers(min(request.highest - 12, 12), min(request.highest, 160) + 1, request.count)
    gap = request.choose([14, 20, 23, 24, 25, 26, 27, 30, 34], (request.count,))
    rest = top[:, None] - gap[:, None] - request.rng.integers(0, 4, request.shape)
    rest = np.where(request.rng.random(request.shape) < 0.4, ABSENT, rest)
    a, b = terms(request, rest, request.signs(request.shape), request.rng.random(request.shape) < 0.5)
    pair_sign = request.signs((request.count,))
    positions = request.rng.permuted(np.tile(np.arange(request.k), (request.count, 1)), axis=1)[:, :2]  # [R, 2]
    pair = np.stack([top, top], axis=1)
    pair_a, pair_b = terms(request, pair, np.stack([pair_sign, 1 - pair_sign], axis=1), np.ones(pair.shape, bool))
    step = np.array(1 << request.a.low_padding, request.a.storage)  # some pairs differ by one unit of a
    differs = (request.rng.random(request.count) < 0.4) & (pair_a[:, 0] & (request.a.sign_bit - 1) != request.a.largest_code)
    pair_a[:, 0] = np.where(differs, pair_a[:, 0] + step, pair_a[:, 0])
    np.put_along_axis(a, positions, pair_a, 1)
    np.put_along_axis(b, positions, pair_b, 1)
    return {"a": a, "b": b, **accumulators(request, top - gap - request.rng.integers(-2, 30, request.count))}


def floor(request: ProbeRequest) -> dict[str, np.ndarray]:
    """A few units of the smallest subnormal, and something tiny against them: whether it is seen shows how far down E goes.

    fp32 truncates, so the tiny term has the other sign; fp16 rounds to nearest, so it stands beside half a unit.
    """
    of_fp32 = (request.rng.random(request.count) < 0.7) if request.lowest < -149 else np.zeros(request.count, bool)
    smallest = np.where(of_fp32, -149, -24)
    has_unit = request.signs((request.count,)) == 1
    base = smallest + request.choose([0, 0, 1, 1, 2, 5, 9, 14], (request.count,))
    unit = np.where(has_unit, smallest, ABSENT)
    half = np.where(of_fp32 & (request.rng.random(request.count) < 0.8), ABSENT, smallest - 1)
    tiny = np.where(of_fp32, request.rng.integers(-178, -149, request.count), request.rng.integers(-48, -34, request.count))
    tiny = np.where(~of_fp32 & has_unit, np.maximum(request.lowest, -48), tiny)
    columns = [np.where(of_fp32 | has_unit, base, ABSENT), unit, half, tiny]
    table, signs = np.full(request.shape, ABSENT), np.zeros(request.shape, np.int64)
    sign = request.signs((request.count,))
    against = np.where(of_fp32, 1 - sign, request.signs((request.count,)))
    for column, exponent in enumerate(columns[: request.k]):
        table[:, column] = exponent
        signs[:, column] = against if column == 3 else sign
    order = request.rng.permuted(np.tile(np.arange(request.k), (request.count, 1)), axis=1)
    table, signs = np.take_along_axis(table, order, 1), np.take_along_axis(signs, order, 1)
    a, b = terms(request, table, signs, np.ones(request.shape, bool), normal=True)
    c_exponent = np.where(request.rng.random(request.count) < 0.85, ABSENT, smallest + request.rng.integers(0, 4, request.count))
    return {"a": a, "b": b, **accumulators(request, c_exponent)}


def overflow(request: ProbeRequest) -> dict[str, np.ndarray]:
    of_fp32 = (request.rng.random(request.count) < 0.6) if request.highest > 127 else np.zeros(request.count, bool)
    top = np.where(of_fp32, 127, 15)
    at_edge = request.rng.random(request.count) < 0.5  # c is the largest finite number, the products about half a unit of it
    half = np.where(of_fp32, 103, 4)
    shift = request.rng.integers(-2, 2, request.count)
    lead = np.where(at_edge, half + np.minimum(shift, 0), top + shift)
    tiny = np.where(at_edge, half - request.rng.integers(1, 20, request.count), top - request.rng.integers(1, 12, request.count))
    more = np.where(request.signs((request.count,)) == 1, tiny, ABSENT)
    exponents = scatter_columns(request, [lead, tiny, more])
    sign = request.signs((request.count,))
    signs = np.where(request.rng.random(request.shape) < 0.8, sign[:, None], 1 - sign[:, None])
    a, b = terms(request, exponents, signs, np.broadcast_to(at_edge[:, None], request.shape))
    c = accumulators(request, top - request.rng.integers(0, 6, request.count), sign)
    for name, format in (("c32", FP32), ("c16", FP16)):
        c[name] = np.where(at_edge, format.largest_code | sign * format.sign_bit, c[name]).astype(format.storage)
    return {"a": a, "b": b, **c}


def special_codes(format: Format) -> np.ndarray:
    """Infinities, NaNs of several payloads and both signs, zeros, the largest and the smallest number."""
    low = format.low_padding
    code_list = [0, 1 << low, format.largest_code]
    if format.specials is Specials.IEEE:
        infinity = ((1 << format.exponent_bits) - 1) << format.mantissa_bits
        quiet = 1 << (format.mantissa_bits - 1)
        code_list += [infinity << low] * 3 + [(infinity | quiet) << low, (infinity | 1) << low, (infinity | quiet | 1) << low]
        if low:  # a payload only in the bits that are ignored
            code_list += [(infinity << low) | 1, (infinity << low) | ((1 << low) - 1)]
    if format.specials is not Specials.FINITE_ONLY:
        code_list.append(((1 << (format.exponent_bits + format.mantissa_bits)) - 1) << low)
    codes = np.array(code_list, np.int64)
    return np.concatenate([codes, codes | format.sign_bit]).astype(format.storage)


def special(request: ProbeRequest) -> dict[str, np.ndarray]:
    rows = near_exponents(request)
    rng, row_index = request.rng, np.arange(request.count)
    for _ in range(2):
        for name, opposite, format in (("a", "b", request.a), ("b", "a", request.b)):
            where = rng.integers(0, request.k, request.count)
            special_values = rng.choice(special_codes(format), request.count)
            here = rng.random(request.count) < 0.35
            rows[name][row_index, where] = np.where(here, special_values, rows[name][row_index, where])
            zero = here & (rng.random(request.count) < 0.2)
            rows[opposite][row_index, where] = np.where(zero, 0, rows[opposite][row_index, where])
    for name, format in (("c32", FP32), ("c16", FP16)):
        special_values = rng.choice(special_codes(format), request.count)
        rows[name] = np.where(rng.random(request.count) < 0.35, special_values, rows[name])
    return rows


def zero(request: ProbeRequest) -> dict[str, np.ndarray]:
    a, b = terms(request, np.full(request.shape, ABSENT), request.signs(request.shape), np.zeros(request.shape, bool))
    signed = request.rng.random((request.count, 1)) < 0.3  # every product the same zero
    a = np.where(signed, 0, a).astype(request.a.storage)
    b = np.where(signed, request.b.sign_bit * request.signs((request.count, 1)), b).astype(request.b.storage)
    exponent = request.choose([ABSENT, ABSENT, ABSENT, -149, -140, -126, -24, -20, -14, 0, 3, 15, 100, 127], (request.count,))
    return {"a": a, "b": b, **accumulators(request, exponent, plain=0.1)}


def vanish(request: ProbeRequest) -> dict[str, np.ndarray]:
    half = request.k // 2
    exponents = _leads(request)[:, None] - request.rng.integers(0, 6, (request.count, half))
    exponents = np.where(request.rng.random(exponents.shape) < 0.5, ABSENT, exponents)
    a, b = terms(request, exponents, request.signs(exponents.shape), np.zeros(exponents.shape, bool))
    a, b = np.concatenate([a, a], axis=1), np.concatenate([b, b ^ np.array(request.b.sign_bit, b.dtype)], axis=1)  # [R, K]
    smallest = -149 if request.lowest < -149 else -24
    tiny = scatter_columns(request, [smallest - request.rng.integers(1, 24, request.count)])
    tiny_a, tiny_b = terms(request, tiny, request.signs(request.shape), np.ones(request.shape, bool))
    rounds = (request.rng.random(request.count) < 0.5)[:, None]  # to zero, instead of cancelling
    a, b = np.where(rounds, tiny_a, a), np.where(rounds, tiny_b, b)
    return {"a": a, "b": b, **accumulators(request, np.full(request.count, ABSENT))}


BUILDERS: dict[str, Callable[[ProbeRequest], dict[str, np.ndarray]]] = {
    "near": near_exponents, "wide": wide_exponents, "codes": codes, "ladder": ladder, "tie": tie, "cancel": cancel, "floor": floor,
    "overflow": overflow, "special": special, "zero": zero, "vanish": vanish,
}  # fmt: skip


def rows(a: Format, b: Format, k: int, count: int, *, data_seed: int) -> Rows:
    """About `count` rows of K products, every kind in its share (at least eight rows), the same for the same arguments.

    Operands whose container has bits that the format ignores (tf32) have them drawn in half of the rows.
    """
    parts: list[dict[str, np.ndarray]] = []
    for index, (kind, share) in enumerate(SHARES.items()):
        request = ProbeRequest(np.random.default_rng([data_seed, index]), a, b, k, max(8, count * share // 1000))
        part = BUILDERS[kind](request)
        for name, format in (("a", a), ("b", b)):
            if format.low_padding:
                noise = request.rng.integers(0, 1 << format.low_padding, request.shape)
                noise = np.where(request.rng.random(request.count)[:, None] < 0.5, noise, 0)
                part[name] = (part[name] | noise.astype(np.uint32)).astype(np.uint32)
        parts.append(part | {"kind": np.full(request.count, index, np.uint8)})
    columns = {name: np.concatenate([part[name] for part in parts]) for name in ("a", "b", "c32", "c16", "kind")}
    return Rows(
        a=columns["a"].astype(a.storage),
        b=columns["b"].astype(b.storage),
        c32=columns["c32"].astype(np.uint32),
        c16=columns["c16"].astype(np.uint16),
        kind=columns["kind"],
    )
