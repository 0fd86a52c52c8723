"""What a kernel is fed: a regime and a data seed make the codes of an operand, the same on every machine.

Codes, not values, are drawn, so that every element is what its format can hold and nothing is rounded on the way in. The
generator is NumPy's PCG64 under the pinned NumPy; a test pins the stream, because a reproducer holds a seed and not data.
"""

from __future__ import annotations

import numpy as np

from bitverdict.harness.contracts.inputs.all_codes import ALL_CODES, PAIRS, every_code, one_code_a_line
from bitverdict.harness.contracts.inputs.exact_inputs import factor as exact_factor
from bitverdict.harness.contracts.inputs.exact_inputs import generator
from bitverdict.harness.model.usage import UsageError
from bitverdict.reference.formats import FORMATS, Format, Overflow, encode

REGIMES = ("normal", "integers", "wide", "planted", "subnormals", "largest")
"""normal: deviates of unit variance. integers: -2..2, of which no sum of up to 2^8 products is ever rounded in fp16. wide: any
mantissa, exponents over the middle half of the format. planted: normal, with NaN, Inf, both zeros, the subnormals' ends, the
smallest normal and the largest number at drawn positions. subnormals: half of them, next to wide ones. largest: magnitudes in
the top binade, so that sums overflow."""

EXACT = "exact"
"""A regime of its own, for launchers that are held to a bound: sums that no instruction rounds and that the store must
(`bitverdict.harness.contracts.inputs.exact_inputs`). Factors of a product are drawn in it by `factor`; what else a case has are
small whole numbers."""

TENTH = "tenth"
"""A regime of its own: deviates of standard deviation 0.1, what the tutorial of the Ampere product feeds it."""

MODERATE = "moderate"
"""A regime of its own, of described kernels: any mantissa, exponents from -4 to 3."""

HUNDREDS = "hundreds"
"""A regime of its own: deviates of standard deviation 100, whose exponentials overflow, and of whose differences a bound decides
them."""

TENS = "tens"
"""A regime of its own, of described kernels: deviates of standard deviation 10, of whose products exponentials overflow."""

EIGHTHS = "eighths"
"""A regime of its own, of described kernels: multiples of 2^-3 from 0 to 15/8, of whose products fp32 holds the sums and fp16 does
not."""

UNREAD = "unread"
"""A regime of its own, of described kernels: normal, with NaN in what the reference does not read."""

KNOWN_REGIMES = (*REGIMES, EXACT, TENTH, MODERATE, HUNDREDS, TENS, EIGHTHS, UNREAD, PAIRS, ALL_CODES)

INTEGERS: dict[str, type[np.signedinteger]] = {"int8": np.int8, "int32": np.int32}
MAX_WHOLE_NUMBER = 1023  # the largest of the whole numbers that go beside an exact product, times 2^-6
_SPECIAL_SHARE = 64  # one element in so many, and at least one of each finite special where there is room
_DECISIVE = 2  # at most so many NaN or Inf in one operand: each takes a whole row or column of the product


def draw(format_name: str, shape: tuple[int, ...], regime: str, rng: np.random.Generator) -> np.ndarray:
    """Codes of `shape` in the storage type of `format_name` (a name of `bitverdict.reference.formats`, "int8" or "int32").

    ValueError (value, rule, remedy) for an unknown regime or format.
    """
    if regime not in KNOWN_REGIMES:
        raise UsageError(f"regime {regime!r}: unknown; use one of {', '.join(KNOWN_REGIMES)}")
    if format_name in INTEGERS:
        return _integers(INTEGERS[format_name], shape, regime, rng)
    if format_name not in FORMATS:
        raise ValueError(f"format {format_name!r}: unknown; use one of {', '.join([*FORMATS, *INTEGERS])}")
    fmt = FORMATS[format_name]
    match regime:
        case "pairs":
            return np.zeros(shape, fmt.storage)
        case "all codes":
            return every_code(fmt.storage, fmt.width, shape, rng)
        case "integers":
            return encode(fmt, rng.integers(-2, 3, shape).astype(np.float64))
        case "exact":
            return encode(fmt, rng.integers(-MAX_WHOLE_NUMBER, MAX_WHOLE_NUMBER + 1, shape) * 2.0**-6, overflow=Overflow.SATURATE)
        case "eighths":
            return encode(fmt, rng.integers(0, 16, shape) * 2.0**-3)
        case "wide":
            return _wide_codes(fmt, shape, rng)
        case "moderate":
            exponent = rng.integers(max(fmt.bias - 4, 1), fmt.bias + 4, shape)
            return _assemble(fmt, exponent, rng.integers(0, 1 << fmt.mantissa_bits, shape), rng)
        case "subnormals":
            return np.where(rng.random(shape) < 0.5, _subnormals(fmt, shape, rng), _wide_codes(fmt, shape, rng))
        case "largest":
            return _largest(fmt, shape, rng)
        case "planted":
            return _with_specials(fmt, _normal(fmt, shape, rng), rng)
    return _normal(fmt, shape, rng, {TENTH: 0.1, HUNDREDS: 100.0, TENS: 10.0}.get(regime, 1.0))


def factor(
    format_name: str, shape: tuple[int, ...], regime: str, data_seed: int, name: str, *, side: str, k_axis: int
) -> np.ndarray:
    """Codes of one factor of a product, whose axis `k_axis` is K: as `draw`, but in the regimes `EXACT` and `PAIRS` the two belong
    together.

    `side`: "a" for the one whose lines are rows of the result, "b" for the other."""
    if regime == PAIRS:
        storage, width = _storage(format_name)
        codes = one_code_a_line(
            storage, width, shape[1 - k_axis], shape[k_axis], data_seed, generator(data_seed, name)
        )  # (lines, K)
        return codes if k_axis == 1 else np.ascontiguousarray(codes.T)
    if regime != EXACT or format_name in INTEGERS:
        return draw(format_name, shape, regime, generator(data_seed, name))
    codes = exact_factor(format_name, side, shape[1 - k_axis], shape[k_axis], data_seed)  # (lines, K)
    return codes if k_axis == 1 else np.ascontiguousarray(codes.T)


def _storage(format_name: str) -> tuple[type[np.generic], int]:
    """What codes of a format are kept in, and how many bits of it they have."""
    if format_name in INTEGERS:
        return INTEGERS[format_name], np.iinfo(INTEGERS[format_name]).bits
    return FORMATS[format_name].storage, FORMATS[format_name].width


def of_amd(regime: str, dtype: str) -> str:
    """The regime that a product in `dtype` is asked instead of `regime` on AMD's chips: each product of two largest bf16 is
    infinite by itself there, and so nearly every sum is a NaN."""
    return of_a_launcher(regime) if dtype == "bf16" else regime


def of_a_launcher(regime: str) -> str:
    """The regime that a launcher is asked instead of `regime`, a row kind behind it kept: where sums overflow a bound decides
    little, where they are exact it decides everything."""
    values, slash, kind = regime.partition("/")
    return (EXACT if values == "largest" else values) + slash + kind


def special_codes(fmt: Format) -> dict[str, int]:
    """The codes worth making a mutant, by name; both signs where a sign means something."""
    top = fmt.mantissa_bits + fmt.low_padding
    finite = {
        "zero": 0,
        "smallest subnormal": 1 << fmt.low_padding,
        "largest subnormal": (1 << top) - (1 << fmt.low_padding),
        "smallest normal": 1 << top,
        "largest": fmt.largest_code,
    }
    codes = {name: code for name, code in finite.items() if fmt.subnormals or "subnormal" not in name}
    if fmt.has_sign:
        codes |= {f"-{name}": code | fmt.sign_bit for name, code in codes.items()}
    return codes


def decisive_codes(fmt: Format) -> dict[str, int]:
    """The codes that take over every sum they enter: NaN and the infinities, where the format has them."""
    codes = {}
    if fmt.nan_code is not None:
        codes["nan"] = fmt.nan_code
    if fmt.infinity_code is not None:
        codes |= {"inf": fmt.infinity_code, "-inf": fmt.infinity_code | fmt.sign_bit}
    return codes


def _normal(fmt: Format, shape: tuple[int, ...], rng: np.random.Generator, deviation: float = 1.0) -> np.ndarray:
    radius = deviation * np.sqrt(-2.0 * np.log1p(-rng.random(shape)))  # Box and Muller, one of the two
    return encode(fmt, radius * np.cos(2.0 * np.pi * rng.random(shape)), overflow=Overflow.SATURATE)


def _wide_codes(fmt: Format, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    fields = 1 << fmt.exponent_bits
    exponent = rng.integers(fields // 4, max(fields - fields // 4, fields // 4 + 1), shape)
    return _assemble(fmt, exponent, rng.integers(0, 1 << fmt.mantissa_bits, shape), rng)


def _subnormals(fmt: Format, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    return _assemble(fmt, np.zeros(shape, np.int64), rng.integers(0, 1 << fmt.mantissa_bits, shape), rng)


def _largest(fmt: Format, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    largest = fmt.largest_code >> fmt.low_padding
    exponent = np.full(shape, largest >> fmt.mantissa_bits)
    mantissa = rng.integers(0, (largest & ((1 << fmt.mantissa_bits) - 1)) + 1, shape)
    return _assemble(fmt, exponent, mantissa, rng)


def _assemble(fmt: Format, exponent: np.ndarray, mantissa: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    codes = ((exponent << fmt.mantissa_bits) + mantissa) << fmt.low_padding
    if fmt.low_padding:  # what the instruction ignores is filled, so that reading it would show
        codes |= rng.integers(0, 1 << fmt.low_padding, codes.shape)
    if fmt.has_sign:
        codes |= np.where(rng.integers(0, 2, codes.shape) == 1, fmt.sign_bit, 0)
    return codes.astype(fmt.storage)


def _with_specials(fmt: Format, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if codes.size == 0:
        return codes
    flat = codes.reshape(-1).copy()
    finite, decisive = list(special_codes(fmt).values()), list(decisive_codes(fmt).values())
    count = min(flat.size, max(len(finite), flat.size // _SPECIAL_SHARE))
    places = rng.integers(0, flat.size, count)
    flat[places] = np.array(finite, fmt.storage)[(np.arange(count) + rng.integers(0, len(finite))) % len(finite)]
    if decisive:
        count = int(rng.integers(0, _DECISIVE + 1))
        flat[rng.integers(0, flat.size, count)] = np.array(decisive, fmt.storage)[rng.integers(0, len(decisive), count)]
    return flat.reshape(codes.shape)


def _integers(kind: type[np.signedinteger], shape: tuple[int, ...], regime: str, rng: np.random.Generator) -> np.ndarray:
    ends = np.iinfo(kind)
    if regime == PAIRS:
        return np.zeros(shape, kind)
    if regime == ALL_CODES:
        return every_code(kind, ends.bits, shape, rng)
    if regime == "integers":
        return rng.integers(-2, 3, shape).astype(kind)
    if regime == "largest":
        return np.array([ends.min, ends.min + 1, ends.max - 1, ends.max], kind)[rng.integers(0, 4, shape)]
    return rng.integers(ends.min, ends.max, shape, endpoint=True).astype(kind)
