"""Mutants of the modules of `reference/`: one text replaced, and the module executed anew.

Each tuple is a subject; the checks that must notice its mutants are in `tests/reference_checks/` and `tests/emulator/numerics/`.
"""

from __future__ import annotations

from tests.faults.mutants import Mutant, once


def _mutants(module: str, texts: dict[str, tuple[str, str]], kind: str = "") -> tuple[Mutant, ...]:
    """By name: the text and what it becomes. The check that owns a mutant must fail: no outcome is named."""
    return tuple(
        Mutant(kernel=f"reference/{module}", kind=kind, name=name, edits=once(replace, by), expected=())
        for name, (replace, by) in texts.items()
    )


ENCODE = _mutants(
    "formats/encode.py",
    {
        "ties away from zero": ("result: np.ndarray = rest + (kept & 1) > half", "result: np.ndarray = rest >= half"),
        "ties toward zero": ("result: np.ndarray = rest + (kept & 1) > half", "result: np.ndarray = rest > half"),
        "ties to odd": ("result: np.ndarray = rest + (kept & 1) > half", "result: np.ndarray = rest + (~kept & 1) > half"),
        "subnormals flushed": ("<< fmt.mantissa_bits) + kept", "<< fmt.mantissa_bits) + np.where(exponent < 0, 0, kept)"),
        "subnormals not shifted": ("- np.minimum(exponent, 0) * fmt.subnormals", ""),
        "the sticky bit forgotten": ("np.add(sticky, 0xFFFF, out=sticky)", "np.add(sticky, 0, out=sticky)"),
        "overflow one code late": ("np.where(code > largest,", "np.where(code > largest + 1,"),
        "the sign of zero lost": ("code |= np.where(negative,", "code |= np.where(negative & (code != 0),"),
        "far values shifted too little": (
            "np.minimum(dropped, source.mantissa_bits + 2)",
            "np.minimum(dropped, source.mantissa_bits)",
        ),
    },
)
MFMA_DEFINITION = _mutants(
    "tensor_core/mfma_definition.py",
    {
        "products cut down": ("cut(term, tops[-1] - bits)", "round_down(term, tops[-1] - bits)"),
        "c cut toward zero": ("round_down(start, top - bits)", "cut(start, top - bits)"),
        "the sum cut toward zero": ("round_down(sum(sums, Fraction(0)), top", "cut(sum(sums, Fraction(0)), top"),
        "the sum one bit shorter": ("top - sum_bits - 1)", "top - sum_bits)"),
        "rounded once": ("smallest_exponent) - sum_bits)", "smallest_exponent) - 99)"),
        "a small c kept": ("of_c < top - bits - 1", "of_c < top - 99"),
        "halves for even and odd": ("(slice(0, None, 2), slice(1, None, 2))", "(slice(0, 8), slice(8, None))"),
        "no cut where even meets odd": ("sums = [round_down(part, meets - bits) for part in sums]", "pass"),
        "products as large as they come": ("2.0**128)", "2.0**300)"),
        "subnormal operands kept": ("if abs(float(f.value)) < least", "if abs(float(f.value)) < 0"),
        "a subnormal c kept": ("if abs(float(c)) < FP32.smallest_normal", "if abs(float(c)) < 0"),
        "subnormal results kept": ("if abs(float(found)) < FP32.smallest_normal", "if abs(float(found)) < 0"),
        "neighbours crossed": (
            "zip(level[::2], level[1::2], strict=True)",
            "zip(level[: len(level) // 2], level[len(level) // 2 :], strict=True)",
        ),
    },
)
SCALAR = _mutants(
    "scalar_arithmetic/fp64.py",
    {
        "rounded twice": ("result: np.ndarray = high + low", "result: np.ndarray = two_product(a, b)[0] + c"),
        "no tie is broken": ("back = (2 * np.abs(rest) == quantum) & (low != 0)", "back = (low != low) & (low != 0)"),
        "never scaled": ("if near.all():", "if True:"),
    },
) + _mutants(
    "scalar_arithmetic/exact.py", {"not to odd": ("even = inexact & (words & 1 == 0)", "even = inexact & (words != words)")}
)
CONVERT = _mutants(
    "formats/convert.py",
    {
        "largest number not kept": ("_values(source, codes), overflow=Overflow.SATURATE)", "_values(source, codes))"),
        "e5m2 widened by half": ("* 2.0**112", "* 2.0**111"),
    },
)
PACKING = _mutants(
    "packing.py",
    {
        "nibbles packed in the other order": ("low, high = along[..., 0::2]", "high, low = along[..., 0::2]"),
        "nibbles unpacked in the other order": ("(along & LARGEST_NIBBLE, along >> 4)", "(along >> 4, along & LARGEST_NIBBLE)"),
    },
)
BLOCK_SCALING = _mutants(
    "block_scaling.py",
    {
        "floor of a rounded log2": (
            "np.frexp(np.asarray(largest, np.float64))[1] - 1",
            "np.floor(np.log2(np.maximum(np.asarray(largest, np.float32), np.float32(1e-45)))).astype(int)",
        )
    },
)
EXACT_GEMM = _mutants("exact_gemm.py", {"fast path taken without proof": ("2.0 ** min(low + SIGNIFICAND, 1023)", "np.inf")})
ACTIVATION = _mutants(
    "activation.py",
    {
        "applied on the other side": ("shifted >= 0, shifted, shifted * SLOPE", "shifted <= 0, shifted, shifted * SLOPE"),
        "not shifted": ("words.view(np.float32) + SHIFT", "words.view(np.float32)"),
        "slope one word less": ("SLOPE = np.float32(0.01)", "SLOPE = np.nextafter(np.float32(0.01), np.float32(0))"),
        "NaN kept as it came": ("found[np.isnan(result)] = NOT_A_NUMBER", "pass"),
    },
)
SPECIAL_CASES = _mutants(
    "special_functions/units.py",
    {
        "rsqrt_approx_ftz_f32": ("words & np.uint32(0x00FFFFFF) == SMALLEST_NORMAL", "words == FP32_ONE_WORD"),
        "lg2_approx_ftz_f32": ("result[words == FP32_ONE_WORD] = 0", "result[words == NAN] = 0"),
        "ex2_approx_ftz_f32": ("fixed -= (fixed < 0) & (fixed & 0x7FFFFF != 0)", "pass"),
        "rcp_approx_ftz_f32": ("(size > 0x7E800000)] = 0", "(size > 0x7E800001)] = 0"),
        "sqrt_approx_ftz_f32": ("result[tiny] = words[tiny] & SIGN\n", "result[tiny] = 0\n"),
        "sin_approx_ftz_f32": ("found[sums == 0] = 0", "pass"),
        "cos_approx_ftz_f32": ("(quadrant + 1) >> 1 & 1", "quadrant >> 1 & 1"),
        "tanh_approx_f32": ("size < _TANH_LINEAR", "size <= _TANH_LINEAR + 64"),
        "rcp_approx_ftz_f64": ("result[size > 0x7FD00000] = 0", "result[size >= 0x7FD00000] = 0"),
        "rsqrt_approx_ftz_f64": ("words & np.uint32(0x001FFFFF) == SMALLEST_NORMAL64", "words == FP64_ONE_WORD"),
    },
)
"""A mutant is named by its function: another special case of its unit."""
SEQUENCES = _mutants(
    "special_functions/instructions.py",
    {
        "ex2_approx_f32": ("values < -126", "values < -125"),
        "lg2_approx_f32": ("1.0, -24.0)", "1.0, -23.0)"),
        "rcp_approx_f32": (
            "low, high = size < SMALLEST, size > SCALE_DOWN_FROM",
            "low, high = size < SMALLEST, size > 2 * SCALE_DOWN_FROM",
        ),
        "rsqrt_approx_f32": ("_root(units.rsqrt, 12)", "_root(units.rsqrt, 11)"),
        "sqrt_approx_f32": ("_root(units.sqrt, -12)", "_root(units.sqrt, -11)"),
        "sin_approx_f32": ("nearest.view(np.uint32) - (np.abs(nearest) > np.abs(exact))", "nearest.view(np.uint32)"),
    },
)
"""A mutant is named by its function: another step of those that ptxas puts around the unit."""
DIVISIONS = _mutants(
    "special_functions/instructions.py",
    {
        "div_full_f32": ("(size > SCALE_DOWN_FROM) & full", "(size < 0) & full"),
        "div_approx_f32": ("np.where(size < SMALLEST, SCALE_UP, FP32_ONE)", "np.where(size < 0, SCALE_UP, FP32_ONE)"),
        "div_full_ftz_f32": ("large = np.abs(right) > SCALE_DOWN_FROM", "large = np.abs(right) < 0"),
        "rsqrt_approx_f64_high": ("found * 2.0**27", "found * 2.0**26"),
    },
)
"""A mutant is named by its function of a pair: another step. The words at the edges decide."""
MACHINE_CODE = _mutants(
    "special_functions/instructions.py",
    {
        "rcp.approx.f32": (
            "low, high = size < SMALLEST, size > SCALE_DOWN_FROM",
            "low, high = size < SMALLEST, size > 2 * SCALE_DOWN_FROM",
        ),
        "div.full.f32": ("(size > SCALE_DOWN_FROM) & full", "(size > 2 * SCALE_DOWN_FROM) & full"),
        "ex2.approx.f32": ("found = units.ex2(_product(values, np.where(low, HALF, FP32_ONE)))", "found = units.ex2(x)"),
        "rsqrt.approx.f64": ("np.full_like(values, 0.375)", "np.full_like(values, 0.5)"),
        "sin.approx.f32": ("- (np.abs(nearest) > np.abs(exact))", ""),
    },
    "machine code",
)
"""A mutant is named by its PTX instruction: another sequence than the one that ptxas emits."""
TRITON_FUNCTIONS = _mutants(
    "special_functions/sequences.py",
    {
        "exp scaled in float64": (
            "fp32.multiply(x.view(np.float32), LOG2_E)",
            "x.view(np.float32) * np.float64(1.4426950408889634)",
        ),
        "sigmoid of the other sign": ("fp32.multiply(x.view(np.float32), -LOG2_E)", "fp32.multiply(x.view(np.float32), LOG2_E)"),
        "division rounded once": ('INSTRUCTIONS["div.full.f32"](a, b)', "_words(a.view(np.float32) / b.view(np.float32))"),
        "softmax of what was not shifted": ("below = fp32.add(values, -np.max(values, axis=-1, keepdims=True))", "below = values"),
    },
)
LOGARITHM = _mutants(
    "special_functions/sequences.py",
    {
        "a subnormal not scaled": ("small = x.view(np.float32) < fp32.SMALLEST", "small = x.view(np.float32) < 0"),
        "a mantissa between 1 and 2": ("np.int32(0x3F2AAAAB)", "np.int32(0x3F800000)"),
        "the last coefficient of a series": ("0xBF000000], np", "0xBF000001], np"),
        "a logarithm of a negative number": ("scaled_values.view(np.uint32) >= np.uint32(0x7F800000)", "np.isinf(scaled_values)"),
    },
)
FOLDED = _mutants(
    "special_functions/constant_division.py",
    {
        "reciprocal not flushed": ("fp32.reciprocal(divisor, flush=True)", "fp32.reciprocal(divisor)"),
        "reciprocal one unit off": (
            "fp32.reciprocal(divisor, flush=True).view(np.uint32)",
            "np.nextafter(fp32.reciprocal(divisor, flush=True), divisor).view(np.uint32)",
        ),
        "divisor not scaled": ("b.view(np.float32) * factor", "b.view(np.float32)"),
    },
)
PHILOX = _mutants(
    "philox.py",
    {
        "seven rounds": ("ROUNDS = 10", "ROUNDS = 7"),
        "words of the other product": ("(third >> _HALF) ^ b", "(first >> _HALF) ^ b"),
        "halves of the key exchanged": ("key & 0xFFFFFFFF, key >> 32", "key >> 32, key & 0xFFFFFFFF"),
        "negated": ("~signed, signed", "-signed, signed"),
        "index of 32 bits": ("index & _LOW, index >> _HALF, zero", "index & _LOW, zero, zero"),
    },
)
QUANTIZED_ROWS = _mutants(
    "quantized_rows.py",
    {
        "divided by the reciprocal": (
            "quotient = fp32.divide(finite_blocks, divisor)",
            "quotient = fp32.multiply(finite_blocks, fp32.reciprocal(divisor))",
        ),
        "a scale of zero divides": (
            "divisor = np.where(divisor > 0, divisor, INFINITY)[..., None]",
            "divisor = divisor[..., None]",
        ),
        "the tensor's scale left out": (
            "reach = fp32.multiply(np.array(E2M1.largest, np.float32), tensor_scale)",
            "reach = np.float32(6)",
        ),
        "a NaN is no matter": ("scales[~finite] = NVFP4.scale.nan_code", "pass"),
        "packed from the end": ("(pack(elements) if", "(pack(elements[:, ::-1]) if"),
    },
)
ROW_FUNCTIONS = _mutants(
    "row_functions.py",
    {
        "softmax of base two": ("powers = sequences.exp(_words(below))", "powers = sequences.exp2(_words(below))"),
        "mean of the tile": ("fp32.multiply(squares, _share(x.shape[1]))", "fp32.multiply(squares, _share(order.block))"),
        "a gate of the other sign": ("sequences.exp(a ^ np.uint32(1 << 31))", "sequences.exp(a)"),
        "turned the other way": (
            "fp32.multiply(left, c), -fp32.multiply(right, s)",
            "fp32.multiply(left, c), fp32.multiply(right, s)",
        ),
        "the sum before not scaled": (
            "fp32.add(fp32.multiply(total, kept), order.total(powers))",
            "fp32.add(total, order.total(powers))",
        ),
        "smoothed by nothing": ("if label_smoothing:\n        mean", "if False:\n        mean"),
        "a gradient without its target": (
            "np.where(at, -np.array(1 - label_smoothing, np.float32), np.float32(-0.0))",
            "np.float32(0)",
        ),
        "ignored rows counted": ("np.where(target_counts, loss, np.float32(0))[:, 0]", "loss[:, 0]"),
        "scaled by what is dropped": ("np.array(1 / (1 - p), np.float32)", "np.array(1 / p, np.float32)"),
        "gradient without the mean": ("fp32.add(scaled, -fp32.multiply(values, along))", "scaled"),
    },
)
ATTENTION = _mutants(
    "attention.py",
    {
        "powers of e": ("* np.log2(np.e), np.float32)", ", np.float32)"),
        "row sums not faded": ("fp32.fma(total[rows], faded, ", "fp32.add(total[rows], "),
        "products not faded": ("fp32.multiply(sums[rows], faded[:, None])", "sums[rows]"),
        "causal from the first row": ("return np.arange(m) + n - m if causal", "return np.arange(m) if causal"),
        "columns behind the end count": ("np.full(m, n - 1)", "np.full(m, n + 1)"),
        "delta of the output alone": ("fp32.multiply(left, right), ((0, 0)", "fp32.multiply(left, left), ((0, 0)"),
        "gradient of Q without the scale": ("return _words(fp32.multiply(dq.view(np.float32), natural))", "return dq"),
        "gradient of K by powers": (
            "tiles.product(slopes, queries, dk[columns])",
            "tiles.product(tiles.narrow(_words(powers)), queries, dk[columns])",
        ),
        "gradient of V of the last head": (
            "tiles.product(tiles.narrow(_words(powers)), gradients, dv[columns])",
            "tiles.product(tiles.narrow(_words(powers)), gradients, None)",
        ),
        "logarithm of the share": (
            'INSTRUCTIONS["lg2.approx.ftz.f32"](_words(total))',
            'INSTRUCTIONS["lg2.approx.ftz.f32"](_words(share))',
        ),
    },
)
_ROUNDED = "(int(exact / unit) if rounding is Rounding.TOWARD_ZERO else round(exact / unit))"
_OF_C = "max(exponent_of(Fraction(c)), rule.output.smallest_exponent) if c"
DEFINITION = _mutants(
    "tensor_core/definition.py",
    {
        "cut toward minus infinity": ("return int(term / unit) * unit", "return (term // unit) * unit"),
        "cut to nearest": ("return int(term / unit) * unit", "return round(term / unit) * unit"),
        "truncated to nearest": (_ROUNDED, "round(exact / unit)"),
        "nearest truncated": (_ROUNDED, "int(exact / unit)"),
        "zeros raise E": ("ABSENT if left_out and not (x.value and y.value) else", ""),
        "c aligned as a subnormal": (_OF_C, "exponent_of(Fraction(c)) if c"),
        "subnormal operands aligned by their value": (
            "exponent_of(Fraction(value)), smallest) if",
            "exponent_of(Fraction(value)), -999) if",
        ),
        "overflow one exponent late": ("(output.bias + 1)", "(output.bias + 2)"),
        "c added to the first block": ("total = c if rule.accumulator is Accumulator.IN_SUM else Fraction(0)", "total = c"),
        "groups of 8": ("range(0, len(terms), 4)]", "range(0, len(terms), 8)]"),
        "no headroom": ("max(r - HEADROOM,", "max(r,"),
        "S left out of the window": ("c_exponent - HEADROOM, s))", "c_exponent - HEADROOM))"),
        "groups behind c cut like the others": ("if behind else place for", "if False else place for"),
        "subnormal results keep every group": ("if of >= s or", "if True or"),
        "c does not lead": ("c_leads = c_exponent >= r", "c_leads = False"),
    },
)

TRACED_ARITHMETIC = _mutants(
    "tracing/real_arithmetic.py",
    {
        "a long sum rounds once": ("(count - 2) * unit * (1 + MARGIN) * reach", "0 * reach"),
        "partial sums never overflow": ("if rises.any() or falls.any():", "if False:"),
        "a long product rounds once": ("lost: np.ndarray | float = (count - 2)", "lost: np.ndarray | float = 0"),
        "parts of a product never overflow": ("if over.any():", "if False:"),
        "reciprocals are never flushed": ("if reciprocal_flushes.any():", "if False:"),
        "a quotient is rounded correctly": (
            "*rule.apply(trace, *widen_ends(low, high, MARGIN))",
            "*trace.accumulation.outward(low, high)",
        ),
        "a quotient of an interval takes its lower end": (
            "np.minimum.reduce(quotients), np.maximum.reduce(quotients)",
            "quotients[0], quotients[0]",
        ),
        "a product of intervals takes two corners": (
            "np.minimum(one, other), np.maximum(one, other)\n    four",
            "one, other\n    four",
        ),
        "float64 adds without an error": ("error: np.ndarray | None = residual\n", "error: np.ndarray | None = None\n"),
        "the error of a left factor is forgotten": ("error = error + left.error * np.abs(right.value)", "pass"),
        "the error of a divisor is forgotten": ("(ea + size * eb) / np.where", "ea / np.where"),
    },
)
TRACED_SUMS = _mutants(
    "tracing/reductions.py",
    {
        "a sum rounds once": ("(n - 2) * unit * np.minimum(reach * growth, how.largest)", "0 * reach"),
        "a sum never overflows": ("if overflows.any():", "if False:"),
        "float64 sums without an error": (
            "error: np.ndarray | None = max(n - 1, 0) * V * magnitude",
            "error: np.ndarray | None = 0 * magnitude",
        ),
        "the errors of terms are forgotten": ("error = error + x.error.sum(**count) * (1 + n * V)", "pass"),
        "the ends of terms are forgotten": ("low, high = a.sum(**count), b.sum(**count)", "low = high = value"),
        "all sums are exact": ("exact = magnitude * how.unit < unit", "exact = magnitude >= 0"),
    },
)
TRACED_FUNCTIONS = _mutants(
    "tracing/functions.py",
    {
        "no function has an error": ("ends = rule.apply(trace, *ends, extra=_of_argument(name, rule.argument, x))", "pass"),
        "the argument's rounding is forgotten": ("folded + (RESCALING_UNITS if _is_difference(x) else 0.0)", "0.0"),
        "the error of an argument is forgotten": ("error = error + np.maximum(high - value, value - low)", "pass"),
        "float64 functions have no error": (
            "error = ACCURACY * np.abs(value) if exact is None",
            "error = 0 * np.abs(value) if exact is None",
        ),
        "waves take no interval": (
            "reach = np.maximum(high - x.value, x.value - low) + ACCURACY if x.low is not None else",
            "reach =",
        ),
    },
)
TRACED_PRODUCTS = _mutants(
    "tracing/products.py",
    {
        "operands are taken as exact": (
            "radius = _radius_of_operands(left, right, sizes)\n    if not clean",
            "radius = np.zeros(value.shape)\n    if not clean",
        ),
        "tf32 loses nothing": ("radius = radius + (sizes[0] + cut[0]) @ cut[1] + cut[0] @ sizes[1]", "pass"),
        "no instruction is weaker than fp32": (
            "return Ways((*accumulations, plain_fp32()), cuts_to_tf32)",
            "return Ways((plain_fp32(),), cuts_to_tf32)",
        ),
        "infinities of operands are settled": (
            "_masks(left, right, value),), meets=sums.inconclusive | over | open_)",
            "_masks(left, right, value),))",
        ),
    },
)
TRACED_CHOICES = (
    _mutants(
        "tracing/comparisons.py",
        {
            "comparisons never hang": ("hangs = nonempty_mask(hangs |", "hangs = nonempty_mask(False & hangs |"),
            "words never differ": (
                "words_differ = overlaps(left.ends, right.ends) |",
                "words_differ = False & overlaps(left.ends, right.ends) |",
            ),
        },
    )
    + _mutants(
        "tracing/choices.py",
        {
            "an undecided condition takes its value": (
                "if condition.words_differ is not None:\n            (al, ah)",
                "if False:\n            (al, ah)",
            ),
            "an unknown condition takes its value": (
                "if condition.hangs is not None:\n            difference = np.abs",
                "if False:\n            difference = np.abs",
            ),
        },
    )
    + _mutants(
        "tracing/sort_operations.py",
        {
            "places never hang": ("result.hangs = rivals(*around(x.value, x.error))", "pass"),
            "orders never hang": ("result.hangs = _meets_neighbour(*around(value, off), axis, descending)", "pass"),
        },
    )
    + _mutants(
        "tracing/conversions.py",
        {
            "a declared conversion never hangs": ("hanging = ~((low == high)", "hanging = False & ~((low == high)"),
            "a kept format rounds nothing": (
                'result.low, result.high = low, high\n    return result\n\n\n@operation("bits")',
                'pass\n    return result\n\n\n@operation("bits")',
            ),
            "a conversion to integers never hangs": (
                "beyond = ~((truncated_array.value",
                "beyond = False & ~((truncated_array.value",
            ),
        },
    )
)
TRACING = TRACED_ARITHMETIC + TRACED_SUMS + TRACED_FUNCTIONS + TRACED_PRODUCTS + TRACED_CHOICES
MUTANTS = (
    *DEFINITION,
    *ENCODE,
    *SCALAR,
    *CONVERT,
    *PACKING,
    *BLOCK_SCALING,
    *EXACT_GEMM,
    *ACTIVATION,
    *SPECIAL_CASES,
    *SEQUENCES,
    *DIVISIONS,
    *MACHINE_CODE,
    *TRITON_FUNCTIONS,
    *LOGARITHM,
    *FOLDED,
    *PHILOX,
    *QUANTIZED_ROWS,
    *ROW_FUNCTIONS,
    *ATTENTION,
    *TRACING,
)
# One file because it is one table of mutants, a row an edit.
