"""What any kernel of a block-scaled product must give: the exact value and a derived bound, whatever machine and order.

The steps are those of `bitverdict.reference.error_bound`, for operands that are elements times scales. A kernel may also widen:
element times scale in bf16 is exact in bf16's normal range, loses at most half a last place below it, and is left inconclusive
above it. So is what stands under a ue4m3 scale with bit 7 set, which machines ignore and compilers take for a sign. Where no
widening instruction was launched, all of it is decided."""

from __future__ import annotations

import numpy as np

from bitverdict.harness.contracts.inputs.block_scaled_inputs import Side
from bitverdict.harness.contracts.oracle.allowed_results import allowed_output
from bitverdict.harness.contracts.oracle.gemm_bound import (
    LaunchedInstructions,
    accumulations,
    bound_rests_on,
    choose_instructions,
    of_arch,
    second_opinion,
)
from bitverdict.harness.model.architectures import is_amd
from bitverdict.harness.model.contract import ExpectedOutput, SecondOpinion
from bitverdict.harness.model.triton_release import has_exact_scales
from bitverdict.kernels.scaled_operands import ScaledFormat
from bitverdict.reference.error_bound import accumulated_sums, field_powers, products_grid, raised_alignment
from bitverdict.reference.exact_gemm import exact_gemm, scale_values
from bitverdict.reference.formats import BF16, FORMATS, decode
from bitverdict.reference.tensor_core import Instruction


def bounded_scaled_product(
    f: ScaledFormat, out: str, a: Side, b: Side, arch: str, launched: LaunchedInstructions = frozenset()
) -> ExpectedOutput:
    """C (M, N) in `out` of sides a (M, K) and b (N, K): words from a lowest to a highest. `launched`: by which instructions."""
    left, left_powers = _scaled_values(f.a, f.scale, f.block_size, a)  # (M, K) each
    right, right_powers = (side.T for side in _scaled_values(f.b, f.scale, f.block_size, b))  # (K, N) each
    exact, rules = exact_gemm(left, right), instructions(f, arch, launched)
    losses, inconclusive = np.zeros(exact.value.shape), np.zeros(exact.value.shape, bool)  # (M, N) each
    if any(rule.scale is None for rule in rules):
        with np.errstate(invalid="ignore", over="ignore"):
            lost_left, lost_right = _lost_by_widening(left, a, f), _lost_by_widening(right.T, b, f).T  # (M, K), (K, N)
            losses = lost_left @ _magnitude(right) + _magnitude(left) @ lost_right  # (M, N)
        unsettled = [_unsettled_elements(values, side, f).any(axis=1) for values, side in ((left, a), (right.T, b))]  # (M,), (N,)
        inconclusive = np.logical_or.outer(*unsettled)  # (M, N)
    signed_rows = [(side.scales > 0x7F).any(axis=1) if f.scale == "ue4m3" else np.zeros(len(side.scales), bool) for side in (a, b)]
    sums = accumulated_sums(
        exact.value,
        exact.magnitude,
        left.shape[1],
        accumulations=accumulations(rules, left.shape[1]),
        alignment=raised_alignment(left, left_powers, right, right_powers),
        grid=products_grid(left, right),
        operand_loss=losses,
    )
    disputed = np.logical_or.outer(*signed_rows)  # (M, N)
    return allowed_output(
        "c", out, sums, left, right, inconclusive=inconclusive, disputed_mask=disputed, basis=bound_rests_on(rules, arch)
    )


def scaled_opinion(f: ScaledFormat, out: str, words: np.ndarray, a: Side, b: Side, arch: str, family: str) -> SecondOpinion | None:
    """What the bound says of `words` (M, N) in `out` of a product by instructions of `family`; sides as for
    `bounded_scaled_product`. None on AMD's chips, whose instructions are not among those that the bound is derived for."""
    if is_amd(arch):
        return None

    def bound(rows: np.ndarray, columns: np.ndarray) -> ExpectedOutput:
        left, right = (Side(side.codes[some], side.scales[some]) for side, some in ((a, rows), (b, columns)))
        return bounded_scaled_product(f, out, left, right, arch, frozenset({(family, "", "", "", "")}))

    return second_opinion(words, a.codes.shape[1], bound)


def instructions(f: ScaledFormat, arch: str, launched_kinds: LaunchedInstructions = frozenset()) -> list[Instruction]:
    """Those that may have multiplied these operands on `arch`: with their scales, or widened to a format that holds the products of
    element and scale. Of these the `launched` ones, where any of them was."""
    wide = ("bf16", "tf32", "fp16") if f.scale == "ue4m3" else ("bf16", "tf32")  # the scales of e8m0 leave fp16
    candidates = [
        rule
        for rule in of_arch(arch)
        if rule.d == "fp32"
        and ((rule.a, rule.b, rule.scale) == (f.a, f.b, f.scale) or (rule.scale is None and rule.a == rule.b and rule.a in wide))
    ]
    return choose_instructions(candidates, arch, launched_kinds)


def _scaled_values(element: str, scale: str, block_size: int, side: Side) -> tuple[np.ndarray, np.ndarray]:
    """(values, what their exponent fields mean) of an operand (rows, K)."""
    fmt, scale_fmt = FORMATS[element], FORMATS[scale]
    values, scales = decode(fmt, side.codes), decode(scale_fmt, side.scales)
    powers = scale_values(field_powers(values, fmt.smallest_normal), field_powers(scales, scale_fmt.smallest_normal), block_size)
    return scale_values(values, scales, block_size), powers


def _magnitude(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), np.abs(values), 0.0)


def _lost_by_widening(values: np.ndarray, side: Side, f: ScaledFormat) -> np.ndarray:
    """What widening may take from scaled `values` (rows, K): half a last place of bf16's subnormals, where it may round; and all of
    an element under a scale of code 0 where the compiler makes zero of that."""
    rounded = np.where((np.abs(values) < BF16.smallest_normal) & (values != 0), BF16.smallest / 2, 0.0)
    if f.scale != "e8m0" or has_exact_scales():
        return rounded
    lowest = np.repeat(side.scales == 0, f.block_size, axis=1)[:, : values.shape[1]]
    return np.where(lowest, _magnitude(values), rounded)


def _unsettled_elements(values: np.ndarray, side: Side, f: ScaledFormat) -> np.ndarray:
    """(rows, K): elements whose scaled value a machine and a compiler need not agree on."""
    beyond = np.abs(values) > BF16.largest
    if f.scale != "ue4m3":
        return beyond
    signs = np.repeat(side.scales > 0x7F, f.block_size, axis=1)[:, : values.shape[1]]
    return beyond | signs
