"""How far a right kernel may be from the exact result, element by element: derived, for any order of the K blocks.

Write s for the exact sum of the products (and of c, if it enters), G for sum |a||b| + |c|, and [x] for the exponent of the largest
power of two not above x. The kernel may visit K in any order, in one chain or in several that are added in fp32.

1. What a partial result can be. Without rounding it is a sum over a subset of the terms. The positive terms sum to P, the negative
   to -N, with P + N = G and P - N = s, so every subset lies within X = max(P, N) = (G + |s|) / 2.
2. Alignment. In a block, E is the largest exponent of its terms, products and c: 2^E <= X, since one term is a subset too. (A
   product with a subnormal operand is aligned by the exponent of the smallest normal number: then 2^E may be larger, up to
   `alignment`; and a subnormal c by that of the output.) A term is cut toward zero at 2^(E - F), so it loses less than that. The
   term whose exponent is E has at most F fraction bits and loses nothing: fp8 products have 6 or less against F = 13 or more,
   fp16, bf16 and tf32 products 20 or less against 24 or 25. (A c from outside has 23, and may lose against 13: one more.) So n
   products and c lose less than n 2^(E - F), and K of them less than K 2^([X] - F).
3. The grid. If all products and c are multiples of 2^g, so is everything that is cut off: a term loses at most 2^(E - F) - 2^g, and
   nothing when E - F <= g. Likewise nothing is rounded while a sum stays below 2^(g + p + 1), p the output's fraction bits.
4. Rounding of a block's result: toward zero at most 2^([X] - p) - 2^g, to nearest even at most 2^([X] - p - 1). There are at most
   ceil(K / n) + chains - 1 blocks, because cutting K into chains breaks at most one block at each cut.
5. Additions of chains (split K, `acc += dot`, the late c of emulated fp8) are to nearest even: at most half a place of X each.
   Where blocks need not be full (masked tails, a tile deeper than its K), there may be K of them, one product each. Then 2 and 4
   are K (2^([X] - F) + 2^([X] - p)), and truncation pays for the additions: a chain's first block starts from zero, so it either
   holds one product, which it keeps whole, or there is a block less. That saves a place, twice what the addition of the chain, or
   of c, can lose; where F is less than the 23 bits of a sum, it also saves the bits that the next block drops of such a sum.
6. Errors widen X. Let T(X) be the total of 2 to 5. If T(X + e) <= e, then by induction over the steps no partial result leaves
   X + e, and e holds. Such an e is found by e <- T(X + e) from 0; it settles in a step or two, for [.] moves in powers of two. If
   it does not, partial results are bounded by G alone: truncation never leaves it, rounding to nearest by 1 + 2^-p a step at most.
7. Plain fp32 (no tensor core): K additions, in any order or tree, each to nearest even; each product, when it is not fused into the
   addition, at most 2^-24 of itself, or 2^-150 below the normal numbers.
8. Conversion to the output format, to nearest even, adds half a place of it at |s| + e. An activation of slope at most one passes
   e on, and adds half a place of fp32 for each of its operations.
9. Partial results lie within -N - e and P + e. Where that leaves the finite numbers above, a result may be +infinity; below,
   -infinity; on both sides, NaN, and nothing is decided. A bound alone cannot say so: it is infinite. An interval can.
10. The store rounds once, to nearest even, and rounding is monotone: of what lies in [s - e, s + e] it makes the words between
   those of the two ends. That decides ties, stores that cut, and a finite number stored for an infinity, where half a place added
   to e (8) does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bitverdict.reference.activation import SLOPE, leaky_relu_value
from bitverdict.reference.formats import FP32, Format, Overflow, Rounding, encode
from bitverdict.reference.tensor_core import Accumulator, Instruction

NO_GRID = -4096
GRIDS_OF_FLOAT64 = (-1000, 1023)  # a finer grid is none; a coarser one has zero alone on it, which is a multiple of 2^1023 too
SETTLING_ROUNDS = 6


@dataclass(frozen=True, kw_only=True)
class Accumulation:
    """How a kernel sums over K, as far as its error goes."""

    block: int  # products that are cut and added together
    fraction_bits: int | None  # F; None: nothing is cut (plain fp32)
    rounding: Rounding  # of a block's result
    output: Format  # of the running sum
    output_fraction_bits: int
    chains: int  # K is divided into so many chains, whose results are added to nearest even
    late_accumulators: int = 0  # additions besides: one a span where c is added after the products
    fused_product: bool = True  # plain fp32: multiply and add in one rounding
    exact_accumulator: bool = True  # c fits the fraction bits, or is zero


def of_instruction(rule: Instruction, k: int, *, chains: int = 1, accumulator: bool = False, full: bool = True) -> Accumulation:
    """The accumulation of a kernel that runs `rule` over K = `k`, in `chains` chains; `accumulator`: c comes from outside.

    `full`: whether each instruction but a chain's last has all its products. A kernel that nobody knows may leave each with one,
    and cut K into chains anywhere (step 5). ValueError for an instruction that rounds to nearest, which pays for no addition."""
    late_additions = -(-k // rule.span) if rule.accumulator is Accumulator.ADDED_AFTER else 0
    if not full:
        if rule.rounding is not Rounding.TOWARD_ZERO:
            raise ValueError(f"{rule.name} rounds to {rule.rounding.value}: no bound is known for blocks that are not full")
        chains, late_additions = 1, 0
    return Accumulation(
        block=rule.block if full else 1,
        fraction_bits=rule.fraction_bits,
        rounding=rule.rounding,
        output=rule.output,
        output_fraction_bits=rule.output_fraction_bits,
        chains=chains,
        late_accumulators=late_additions,
        exact_accumulator=not accumulator or rule.fraction_bits >= rule.output.mantissa_bits,
    )


def plain_fp32(*, fused_product: bool = False, chains: int = 1) -> Accumulation:
    """fp32 multiply and add (`ieee`, the interpreter's dot): one rounding a step when `fused_product`."""
    return Accumulation(
        block=1,
        fraction_bits=None,
        rounding=Rounding.NEAREST_EVEN,
        output=FP32,
        output_fraction_bits=23,
        chains=chains,
        fused_product=fused_product,
    )


def accumulation_bound(
    exact: np.ndarray,
    magnitude: np.ndarray,
    k: int,
    *,
    accumulation: Accumulation,
    alignment: np.ndarray | float = 0.0,
    grid: np.ndarray | int = NO_GRID,
) -> np.ndarray:
    """|accumulated - exact| at most, before any conversion: float64 of the shape of `exact`.

    `exact`, `magnitude`: s and G (`bitverdict.reference.exact_gemm`). `alignment`: the largest 2^E that a subnormal operand can
    bring (`subnormal_alignment`). `grid`: all products and c are multiples of 2^grid (`products_grid`). Infinite where
    inconclusive, NaN where `exact` is not finite."""
    total, farthest = _accumulation_error(exact, magnitude, k, accumulation, alignment, grid)  # (...) each
    total = np.where(farthest >= _overflows_at(accumulation.output), np.inf, total)  # (...)
    return np.where(np.isfinite(exact), total, np.nan)  # (...)


@dataclass(frozen=True)
class Sums:
    """Where the accumulated sums of right kernels lie: element by element, arrays of one shape (...)."""

    value: np.ndarray  # the exact sum, float64
    error: np.ndarray  # a sum that did not overflow is at most so far from it; finite where `value` is
    rises: np.ndarray  # whether a partial sum may have overflowed to +infinity
    falls: np.ndarray  # the same to -infinity

    @property
    def inconclusive(self) -> np.ndarray:
        """Where both infinities may meet."""
        result: np.ndarray = self.rises & self.falls  # (...)
        return result

    def activate(self) -> Sums:
        """After leaky_relu, which is monotone and keeps infinities."""
        with np.errstate(invalid="ignore"):
            return Sums(*activated_bound(self.value, self.error), self.rises, self.falls)

    def words(self, output_format: Format) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(lowest code, highest code, whether NaN too) of what a kernel may store, rounding once to nearest even; by value, not
        by code. Nothing is said of where `inconclusive`.

        What overflows becomes the infinity, the NaN of a format without one, or the largest finite value: a conversion may saturate
        (PTX ISA, `cvt.satfinite`) where the format is one of 8 bits. fp32 sums are not rounded again: the codes are of what lies
        inside."""
        return words_between(output_format, *self._ends())

    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        """The interval, widened by what its own float64 operations may have lost."""
        margin = self.error * (1 + 2.0**-40) + np.where(self.error > 0, np.abs(self.value) * 2.0**-52, 0.0)  # (...)
        margin = np.where(np.isfinite(self.value), margin, 0.0)  # (...)
        return np.where(self.falls, -np.inf, self.value - margin), np.where(self.rises, np.inf, self.value + margin)


def words_between(output_format: Format, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(lowest code, highest code, whether NaN too) of what lies in [low, high] (...) and is rounded once, as `Sums.words` says."""
    if _holds(output_format, FP32):
        inward = Rounding.TOWARD_POSITIVE, Rounding.TOWARD_NEGATIVE
        codes = [encode(output_format, end, rounding=way) for end, way in zip((low, high), inward, strict=True)]
        return codes[0], codes[1], np.zeros(low.shape, bool)
    nearest_codes = [encode(output_format, end) for end in (low, high)]  # (...) each
    if output_format.width > 8:
        return nearest_codes[0], nearest_codes[1], np.zeros(low.shape, bool)
    held = [encode(output_format, end, overflow=Overflow.SATURATE) for end in (low, high)]  # (...) each
    if output_format.infinity_code is None:
        beyond = [(code == output_format.nan_code) & ~np.isnan(end) for code, end in zip(nearest_codes, (low, high), strict=True)]
        return held[0], held[1], beyond[0] | beyond[1]
    outward = np.where(low > 0, held[0], nearest_codes[0]), np.where(high < 0, held[1], nearest_codes[1])  # (...) each
    return *outward, np.zeros(low.shape, bool)


def accumulated_sums(
    exact: np.ndarray,
    magnitude: np.ndarray,
    k: int,
    *,
    accumulations: Iterable[Accumulation],
    alignment: np.ndarray | float = 0.0,
    grid: np.ndarray | int = NO_GRID,
    operand_loss: np.ndarray | float = 0.0,
) -> Sums:
    """What kernels that accumulate in any of `accumulations` may arrive at; parameters as for `accumulation_bound`.

    `operand_loss`: how far the sum may move before it is accumulated, because operands are narrowed."""
    finite = np.isfinite(exact)  # (...)
    s, g = np.where(finite, exact, 0.0), np.where(finite, magnitude, 0.0) + 2.0 * np.asarray(operand_loss)  # (...) each
    error = np.zeros(s.shape)  # (...)
    rises, falls = np.zeros(s.shape, bool), np.zeros(s.shape, bool)  # (...) each
    for how in accumulations:
        total, farthest = _accumulation_error(s, g, k, how, alignment, grid)  # (...) each
        error = np.maximum(error, total)  # (...)
        past = np.maximum(farthest - np.maximum(g + np.abs(s), 0.0) / 2, 0.0)  # (...) beyond P or N, whichever is larger
        ends_at = _overflows_at(how.output)
        rises |= (g + s) / 2 * (1 + 2.0**-50) + past >= ends_at
        falls |= (g - s) / 2 * (1 + 2.0**-50) + past >= ends_at
    return Sums(exact, np.where(finite, error + operand_loss, np.nan), rises & finite, falls & finite)


def _accumulation_error(
    exact: np.ndarray,
    magnitude: np.ndarray,
    k: int,
    accumulation: Accumulation,
    alignment: np.ndarray | float,
    grid: np.ndarray | int,
) -> tuple[np.ndarray, np.ndarray]:
    """(error, how far from zero a partial result may lie), where nothing overflows; of an element that is not finite, of zero."""
    finite = np.isfinite(exact)  # (...)
    s = np.where(finite, np.abs(exact), 0.0)  # (...)
    g = np.where(finite, magnitude, 0.0)  # (...)
    unit = np.ldexp(1.0, np.clip(grid, *GRIDS_OF_FLOAT64))  # (...) or a scalar
    steps = -(-k // accumulation.block) + accumulation.chains - 1
    additions = accumulation.chains - 1 + accumulation.late_accumulators
    reach = np.minimum((g + s) / 2 * (1 + 2.0**-50), g)  # (...) X
    growth = (1 + 2.0**-accumulation.output_fraction_bits) ** (k if accumulation.fraction_bits is None else steps + additions)
    worst_reach = g * growth  # (...)
    total = _total(worst_reach, k, steps, additions, accumulation, alignment, unit, g)  # (...)
    convergence_mask = np.zeros(s.shape, bool)  # (...)
    extra_reach = np.zeros(s.shape)  # (...)
    for _ in range(SETTLING_ROUNDS):
        now = _total(reach + extra_reach, k, steps, additions, accumulation, alignment, unit, g)  # (...)
        holds = ~convergence_mask & (now <= extra_reach) & (extra_reach < total)  # (...)
        total = np.where(holds, extra_reach, total)  # (...)
        convergence_mask |= now <= extra_reach
        extra_reach = now  # (...)
    return total, np.where(convergence_mask, reach + total, worst_reach)  # (...) each


def gemm_bound(
    exact: np.ndarray,
    magnitude: np.ndarray,
    k: int,
    *,
    accumulation: Accumulation,
    output_format: Format,
    alignment: np.ndarray | float = 0.0,
    grid: np.ndarray | int = NO_GRID,
) -> np.ndarray:
    """|result - exact| at most, conversion to `output_format` (nearest even) included. Parameters as for `accumulation_bound`."""
    error = accumulation_bound(exact, magnitude, k, accumulation=accumulation, alignment=alignment, grid=grid)  # (...)
    return converted_bound(exact, error, output_format, source=accumulation.output)


def converted_bound(exact: np.ndarray, error: np.ndarray, output_format: Format, *, source: Format = FP32) -> np.ndarray:
    """`error`, and the rounding from `source` to `output_format` of what lies within it: step 8."""
    reach = np.abs(exact) + error  # (...)
    half_unit = np.maximum(_power_below(reach), output_format.smallest_normal) * 2.0 ** (-output_format.mantissa_bits - 1)  # (...)
    total = error if _holds(output_format, source) else error + half_unit  # (...)
    return np.where(reach + total >= _overflows_at(output_format), np.inf, total)  # (...)


def activated_bound(exact: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """leaky_relu (`bitverdict.reference.activation`) of an fp32 sum within `error` of `exact`: its value, and the bound after
    it."""
    value = leaky_relu_value(exact)  # (...)
    shifted = error + _half_unit_fp32(np.abs(exact + 1.0) + error)  # (...) the add
    surely_negative = exact + 1.0 + shifted < 0  # (...)
    sloped = shifted * float(SLOPE) + _half_unit_fp32(np.abs(value) + shifted)  # (...) the multiply
    crossing = shifted + _half_unit_fp32(np.abs(value) + shifted)  # (...) either branch: slope one, and the multiply
    surely_positive = exact + 1.0 - shifted >= 0  # (...)
    return value, np.where(surely_negative, sloped, np.where(surely_positive, shifted, crossing))


def used_share(actual: np.ndarray, exact: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """|got - exact| / bound, values: 0 where they agree, infinite where the bound is 0 and they do not, NaN where inconclusive."""
    with np.errstate(invalid="ignore", divide="ignore"):
        off = np.abs(actual - exact)  # (...)
        share = np.where(off == 0, 0.0, off / bound)  # (...)
    same_special = (actual == exact) | (np.isnan(actual) & np.isnan(exact))  # (...)
    wrong_special = np.isfinite(bound) & ~np.isfinite(actual)  # (...)
    inconclusive = np.isinf(bound)  # (...)
    return np.where(same_special, 0.0, np.where(inconclusive, np.nan, np.where(wrong_special | np.isnan(bound), np.inf, share)))


def subnormal_alignment(a: np.ndarray, b: np.ndarray, a_format: Format, b_format: Format) -> np.ndarray:
    """Largest 2^E that a product with a subnormal operand can have: values (M, K) and (K, N) to (M, N), 0 where there is none."""
    return raised_alignment(a, field_powers(a, a_format.smallest_normal), b, field_powers(b, b_format.smallest_normal))


def raised_alignment(a: np.ndarray, a_powers: np.ndarray, b: np.ndarray, b_powers: np.ndarray) -> np.ndarray:
    """The same, for operands whose exponent fields mean `a_powers` (..., M, K) and `b_powers` (..., K, N): scaled ones."""
    raised_a = np.where(a_powers > np.abs(a), a_powers, 0.0).max(axis=-1, initial=0.0)  # (..., M)
    raised_b = np.where(b_powers > np.abs(b), b_powers, 0.0).max(axis=-2, initial=0.0)  # (..., N)
    over_a = raised_a[..., :, None] * b_powers.max(axis=-2, initial=0.0)[..., None, :]  # (..., M, N)
    over_b = a_powers.max(axis=-1, initial=0.0)[..., :, None] * raised_b[..., None, :]  # (..., M, N)
    result: np.ndarray = np.maximum(over_a, over_b)  # (..., M, N)
    return result


def field_powers(values: np.ndarray, smallest_normal: float) -> np.ndarray:
    """2^e, e what the exponent field of each value means: that of `smallest_normal` for a subnormal; 0 for zero.

    For a scaled operand multiply the powers of the element by those of its scale.
    """
    magnitude = np.where(np.isfinite(values), np.abs(values), 0.0)  # (...)
    return np.where(magnitude == 0, 0.0, np.maximum(_power_below(magnitude), smallest_normal))  # (...)


def products_grid(a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
    """Exponent of a power of two that divides every product of row m and column n, and c: values (..., M, K) to (..., M, N) int."""
    rows, columns = _lowest_bits(a).min(axis=-1, initial=4096), _lowest_bits(b).min(axis=-2, initial=4096)  # (..., M), (..., N)
    grid = rows[..., :, None] + columns[..., None, :]  # (..., M, N)
    result: np.ndarray = grid if c is None else np.minimum(grid, _lowest_bits(c))  # (M, N)
    return result


def _total(
    reach: np.ndarray,
    k: int,
    steps: int,
    additions: int,
    accumulation: Accumulation,
    alignment: np.ndarray | float,
    unit: np.ndarray | float,
    magnitude: np.ndarray,
) -> np.ndarray:
    """Steps 2 to 5 and 7, partial results within `reach`."""
    last_place = np.maximum(_power_below(reach), accumulation.output.smallest_normal)  # (...)
    last_place = last_place * 2.0**-accumulation.output_fraction_bits  # (...)
    half_place = np.where(last_place / 2 >= unit, last_place / 2, 0.0)  # (...) a tie is half a place away, a multiple of the unit
    if accumulation.fraction_bits is None:
        product_rounding = 0.0 if accumulation.fused_product else magnitude * 2.0**-24 + k * 2.0**-150
        return (k + additions) * half_place + np.where(half_place > 0, product_rounding, 0.0)
    aligned = np.maximum(last_place * 2.0**accumulation.output_fraction_bits, alignment)  # (...) 2^E
    cut = aligned * 2.0**-accumulation.fraction_bits  # (...)
    lost_terms = k + (not accumulation.exact_accumulator)
    alignment_loss = lost_terms * np.maximum(cut - unit, 0.0)  # (...)
    if accumulation.rounding is Rounding.TOWARD_ZERO:
        rounding_loss = steps * np.maximum(last_place - unit, 0.0)  # (...)
    else:
        rounding_loss = steps * half_place  # (...)
    half_ieee = last_place * 2.0 ** (accumulation.output_fraction_bits - accumulation.output.mantissa_bits - 1)  # (...)
    added = additions * np.where(half_ieee >= unit, half_ieee, 0.0)  # (...)
    result: np.ndarray = alignment_loss + rounding_loss + added
    return result


def _power_below(values: np.ndarray) -> np.ndarray:
    """Largest power of two not above each value; 0 for 0."""
    mantissa, exponent = np.frexp(values)
    return np.where(mantissa == 0, 0.0, np.ldexp(0.5, exponent))


def _half_unit_fp32(values: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.maximum(_power_below(values), FP32.smallest_normal) * 2.0**-24
    return result


def _holds(output_format: Format, source: Format) -> bool:
    """Whether every number of `source` is one of `output_format`."""
    return output_format.mantissa_bits >= source.mantissa_bits and output_format.exponent_bits >= source.exponent_bits


def _overflows_at(fmt: Format) -> float:
    """From here on rounding to nearest may leave the finite numbers."""
    return fmt.largest + fmt.largest * 2.0 ** (-fmt.mantissa_bits - 2)


def _lowest_bits(values: np.ndarray) -> np.ndarray:
    mantissa, exponent = np.frexp(np.where(np.isfinite(values), values, 0.0))  # (...)
    whole = np.ldexp(mantissa, 53).astype(np.int64)  # (...)
    trailing = np.frexp((whole & -whole).astype(np.float64))[1] - 1  # (...)
    return np.where(whole == 0, 4096, exponent - 53 + trailing)  # (...)
