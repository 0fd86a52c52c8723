"""Contract under test: what matrix instructions make of a traced product lies in its interval, in whatever order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bitverdict.reference.formats import FORMATS, FP32, decode, encode
from bitverdict.reference.scalar_arithmetic import fp32
from bitverdict.reference.tensor_core import INSTRUCTIONS, Instruction, product
from bitverdict.reference.tensor_core.block_scaled import scaled_product
from bitverdict.reference.tracing import TracedOutput, trace
from tests.reference_checks.test_tracing_bounds import keys

DENSE = [
    rule for rule in INSTRUCTIONS
    if rule.arch in ("sm_80", "sm_90", "sm_100") and rule.scale is None and rule.d == "fp32" and rule.a == rule.b
    and rule.a in ("fp16", "bf16", "tf32", "e4m3")
]  # fmt: skip
K = 70


def codes(format: str, shape: tuple[int, ...], rng: np.random.Generator, kind: str) -> np.ndarray:
    values = {
        "normal": lambda: rng.standard_normal(shape),
        "wide": lambda: rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 6, shape),
        "integers": lambda: rng.integers(-3, 4, shape).astype(float),
        "cancelling": lambda: np.where(np.arange(shape[-1]) % 2, 1, -1) * (1 + rng.standard_normal(shape) * 2.0**-8),
    }[kind]()
    return encode(FORMATS[format], values)


def operand_of(rule: Instruction) -> str:
    return "fp32" if rule.a == "tf32" else rule.a


def in_pieces(rule: Instruction, a: np.ndarray, b: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """fp32 (M, N): the k in a drawn order, in chains of drawn length that are added in fp32."""
    order = rng.permutation(a.shape[1])
    cuts = np.sort(rng.integers(0, a.shape[1], int(rng.integers(0, 4))))
    found = None
    for part in np.split(order, cuts):
        words = product(rule, np.ascontiguousarray(a[:, part]), np.ascontiguousarray(b[part])).view(np.float32)
        found = words if found is None else fp32.add(found, words)
    assert found is not None
    return found


def outside(output: TracedOutput, found: np.ndarray, format: str = "fp32") -> bool:
    low, high, _, open_ = output.interval(format)
    got = keys(encode(FORMATS[format], found))
    return bool((((got < keys(low)) | (got > keys(high))) & ~open_).any())


def multiplied(xp: Any, a: Any, b: Any) -> Any:
    return a @ b


@pytest.mark.parametrize("kind", ["normal", "wide", "integers", "cancelling"])
def test_each_instruction_in_any_order_lies_in_the_interval(kind: str) -> None:
    rng = np.random.default_rng(len(kind))
    for rule in DENSE:
        name = operand_of(rule)
        a, b = codes(name, (3, K), rng, kind), codes(name, (5, K), rng, kind).T.copy()
        (output,) = trace(multiplied, [(name, a), (name, b)], arch=rule.arch)
        left, right = decode(FORMATS[name], a), decode(FORMATS[name], b)
        np.testing.assert_allclose(output.value, left @ right, atol=1e-11)
        for _ in range(3):
            assert not outside(output, in_pieces(rule, a, b, rng)), rule.name
        if kind == "integers":  # nothing is rounded in any order
            low, high, _, open_ = output.interval("fp32")
            assert (low == high).all() and not open_.any() and not output.error.any()


def test_the_13_bits_of_fp8_on_hopper_are_in_the_interval() -> None:
    rng = np.random.default_rng(6)
    a, b = codes("e4m3", (6, 256), rng, "normal"), codes("e4m3", (7, 256), rng, "normal").T.copy()
    rule = next(rule for rule in DENSE if rule.arch == "sm_90" and rule.family == "wgmma" and rule.a == "e4m3")
    found = product(rule, a, b).view(np.float32)
    for arch, expected in (("sm_90", False), ("sm_100", True)):
        (output,) = trace(multiplied, [("e4m3", a), ("e4m3", b)], arch=arch)
        assert outside(output, found) is expected


def test_an_infinity_times_what_tf32_cuts_to_zero_is_not_decided() -> None:
    a, b = np.float32([[np.inf]]), np.float32([[1e-45]])
    operands = [("fp32", each.view(np.uint32)) for each in (a, b)]
    assert trace(multiplied, operands)[0].interval("fp32")[3].all()
    (whole,) = trace(lambda xp, a, b: xp.matmul(a, b, precision="ieee"), operands)
    assert not whole.interval("fp32")[3].any() and whole.interval("fp32")[0][0, 0] == 0x7F800000


def test_a_dropped_k_lies_outside() -> None:
    rng = np.random.default_rng(0)
    a, b = codes("fp16", (3, K), rng, "normal"), codes("fp16", (5, K), rng, "normal").T.copy()
    (output,) = trace(multiplied, [("fp16", a), ("fp16", b)])
    rule = next(rule for rule in DENSE if rule.arch == "sm_90" and rule.a == "fp16")
    assert outside(output, product(rule, a[:, :-1].copy(), b[:-1].copy()).view(np.float32), "fp16")


def test_fp32_operands_may_be_cut_to_tf32_unless_ieee_is_said() -> None:
    rng = np.random.default_rng(1)
    a, b = codes("fp32", (3, K), rng, "normal"), codes("fp32", (5, K), rng, "normal").T.copy()
    rule = next(rule for rule in DENSE if rule.arch == "sm_90" and rule.a == "tf32")
    found = product(rule, a & np.uint32(0xFFFFE000), b & np.uint32(0xFFFFE000)).view(np.float32)
    operands = [("fp32", a), ("fp32", b)]
    (plain,) = trace(multiplied, operands)
    (whole,) = trace(lambda xp, a, b: xp.matmul(a, b, precision="ieee"), operands)
    assert not outside(plain, found) and outside(whole, found)
    exact = (decode(FP32, a) @ decode(FP32, b)).astype(np.float32)
    assert not outside(whole, exact)


def test_an_operand_that_is_computed_may_be_kept_in_fp16() -> None:
    """P of attention: rounded to fp16 it lies in the interval that says so, and outside of the one that does not."""
    rng = np.random.default_rng(2)
    x, v = codes("fp16", (3, K), rng, "normal"), codes("fp16", (5, K), rng, "normal").T.copy()

    def kept(xp: Any, x: Any, v: Any) -> Any:
        return xp.kept_in(xp.exp(x), "fp16") @ v

    def whole(xp: Any, x: Any, v: Any) -> Any:
        return xp.matmul(xp.exp(x), v, precision="ieee")

    powers = np.exp(decode(FORMATS["fp16"], x)).astype(np.float16).view(np.uint16)
    rule = next(rule for rule in DENSE if rule.arch == "sm_90" and rule.a == "fp16")
    found = product(rule, powers, v).view(np.float32)
    for function, expected in ((kept, False), (whole, True)):
        (output,) = trace(function, [("fp16", x), ("fp16", v)])
        assert outside(output, found) is expected


def test_scales_may_be_put_on_the_sums_of_blocks() -> None:
    """fp8 blocks of 32, as a kernel has them that scales each partial sum by both scales."""
    rng = np.random.default_rng(3)
    a, b = codes("e4m3", (3, 96), rng, "normal"), codes("e4m3", (5, 96), rng, "normal").T.copy()
    sa, sb = (rng.uniform(0.5, 2, shape).astype(np.float32) for shape in ((3, 3), (3, 5)))

    def scaled(xp: Any, a: Any, b: Any, sa: Any, sb: Any) -> Any:
        return (a * xp.repeat(sa, 32, axis=1)) @ (b * xp.repeat(sb, 32, axis=0))

    operands = [("e4m3", a), ("e4m3", b), ("fp32", sa.view(np.uint32)), ("fp32", sb.view(np.uint32))]
    (output,) = trace(scaled, operands)
    rule = next(rule for rule in DENSE if rule.arch == "sm_90" and rule.a == "e4m3")
    found = np.zeros((3, 5), np.float32)
    for block in range(3):
        part = slice(32 * block, 32 * block + 32)
        sums = product(rule, a[:, part].copy(), b[part].copy()).view(np.float32)
        found = fp32.add(found, fp32.multiply(sums, fp32.multiply(sa[:, block, None], sb[None, block])))
    assert not outside(output, found)
    swapped = found * np.float32(1.25)
    assert outside(output, swapped)


def test_each_block_scaled_instruction_lies_in_the_interval() -> None:
    """Scales of e8m0 and ue4m3, written as a product of the operand and its repeated scales."""
    rng = np.random.default_rng(7)
    rules = [rule for rule in INSTRUCTIONS if rule.scale is not None and rule.arch == "sm_100" and rule.d == "fp32"]
    assert len(rules) > 20
    for rule in rules:
        n = rule.scale_block or 1
        a, b = codes(rule.a, (3, 4 * n), rng, "wide"), codes(rule.b, (5, 4 * n), rng, "normal")
        if rule.scale == "e8m0":
            scales = [rng.integers(120, 134, (rows, 4)).astype(np.uint8) for rows in (3, 5)]
        else:
            scales = [encode(FORMATS[str(rule.scale)], rng.uniform(0.5, 8, (rows, 4))) for rows in (3, 5)]

        def scaled(xp: Any, a: Any, b: Any, sa: Any, sb: Any, n: int = n) -> Any:
            return (a * xp.repeat(sa, n, axis=1)) @ (b * xp.repeat(sb, n, axis=1)).T

        pairs = [(rule.a, a), (rule.b, b), *((str(rule.scale), each) for each in scales)]
        (output,) = trace(scaled, pairs, arch="sm_100")
        found = scaled_product(rule, a, scales[0], np.ascontiguousarray(b.T), scales[1]).view(np.float32)
        assert not outside(output, found) and not output.interval("fp32")[3].any(), rule.name
        assert outside(output, found * np.float32(1.01)), rule.name


def test_batches_vectors_and_empty_sums() -> None:
    rng = np.random.default_rng(4)
    a, b = codes("fp16", (2, 3, 4, K), rng, "normal"), codes("fp16", (2, 1, K, 5), rng, "normal")
    (output,) = trace(multiplied, [("fp16", a), ("fp16", b)])
    np.testing.assert_allclose(output.value, decode(FORMATS["fp16"], a) @ decode(FORMATS["fp16"], b), atol=1e-12)
    for i in range(2):
        (one,) = trace(multiplied, [("fp16", a[i, 0].copy()), ("fp16", b[i, 0].copy())])
        for part, whole in zip(one.interval("fp32"), output.interval("fp32"), strict=True):
            np.testing.assert_array_equal(part, whole[i, 0])
    (empty,) = trace(multiplied, [("fp16", a[0, 0][:, :0].copy()), ("fp16", b[0, 0][:0].copy())])
    assert not empty.value.any() and not empty.interval("fp32")[1].any() and not empty.error.any()


def test_integers_are_summed_in_int32_and_wrap_around() -> None:
    a = np.full((1, 4), 2**15, np.int32)
    outputs = trace(
        lambda xp, a, b: (a @ xp.matrix_transpose(a), b @ b.T), [("int32", a), ("int8", np.full((1, 9), -128, np.int8))]
    )
    assert outputs[0].value.tolist() == [[0]] and outputs[1].value.tolist() == [[9 * 2**14]]
    assert [each.value.dtype.name for each in outputs] == ["int32", "int32"]


@pytest.mark.parametrize("regime", [np.inf, np.nan, 3e38])
def test_special_operands_are_never_decided_wrongly(regime: float) -> None:
    """An infinity, a NaN, or sums that may overflow: what an instruction leaves lies in the interval, or nothing is said."""
    rng = np.random.default_rng(5)
    function: Callable[..., Any] = multiplied
    for rule in (rule for rule in DENSE if rule.a in ("bf16", "tf32")):
        name = operand_of(rule)
        a, b = (
            decode(FORMATS[name], codes(name, (4, 16), rng, "integers")),
            decode(FORMATS[name], codes(name, (16, 6), rng, "integers")),
        )
        a[1, 3], a[2, 5], a[2, 6] = regime, regime, -regime
        left, right = encode(FORMATS[name], a), encode(FORMATS[name], b)
        (output,) = trace(function, [(name, left), (name, right)], arch=rule.arch)
        low, high, _, open_ = output.interval("fp32")
        found = product(rule, left, right)
        nan = (found & 0x7FFFFFFF) > 0x7F800000
        wrong = np.where(nan, low != FP32.nan_code, (keys(found) < keys(low)) | (keys(found) > keys(high)))
        assert not (wrong & ~open_).any(), rule.name
        assert not open_[0].any() and not open_[3].any()
