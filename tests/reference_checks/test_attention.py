"""Contract under test: the plan of attention lies as near to its contract's mathematics as its steps allow, and adds rows as
fragments hold them.

The bounds count roundings: u = 2^-24 for each operation that rounds once, 2^-11 for powers as fp16, and what the PTX ISA says of
the others (9.7.3): ex2.approx 2 ulp, lg2.approx 2^-22, div.full 2 ulp. A sum of n products by the tensor core is cut n times at
most, by 2^-23 of the largest partial sum."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from bitverdict.harness.contracts.oracle import row_mathematics
from bitverdict.reference import attention as plan
from bitverdict.reference.formats import FP16, convert, decode, encode
from bitverdict.reference.tensor_core import instruction, product
from tests.faults import reference_modules as corpus
from tests.faults.mutants import Mutant, mutant_module

U, CUT, OF_POWERS = 2.0**-24, 2.0**-23, 2.0**-11
M, N, D = 70, 101, 24
EXACT = SimpleNamespace(**vars(np), kept_in=lambda values, _: values, round_to=lambda values, _: values)  # nothing is narrowed


def tiles(module=plan, arch: str = "sm_90", family: str = "wgmma", rows: int = 64, columns: int = 32, warps: int = 4):
    rule = instruction(arch, family, "fp16", "fp16", "fp32")
    return module.Tiles(
        rows=rows, columns=columns, depth=32, warps=warps, family=family, sm=int(arch[3:]),
        product=lambda a, b, c: product(rule, np.ascontiguousarray(a), np.ascontiguousarray(b), c),
        narrow=partial(convert, "fp32", "fp16", arch=arch), widen=partial(convert, "fp16", "fp32", arch=arch),
    )  # fmt: skip


def drawn(rows: int, name: int) -> np.ndarray:
    return encode(FP16, np.random.default_rng(name).standard_normal((rows, D)))


OPERANDS, GIVEN = (drawn(M, 0), drawn(N, 1), drawn(N, 2)), drawn(M, 3)


def exceeded(module=plan) -> dict[str, float]:
    """By result: the largest error in units of its bound, of second order left out by 1 %."""
    q, k, v = (decode(FP16, codes) for codes in OPERANDS)
    found = {}
    for causal, scale in ((False, None), (True, 0.3)):
        o, lse = module.attention(*OPERANDS, scale, causal, tiles(module))
        factor = D**-0.5 if scale is None else scale
        given = decode(FP16, GIVEN)
        due, due_lse, *due_parts = (
            each[0, 0]
            for each in row_mathematics.attention_with_gradients(
                EXACT, *(each[None, None] for each in (q, k, v, given)), scale=factor, causal=causal, dtype="fp16"
            )
        )
        met = np.arange(N) <= (np.arange(M) + N - M if causal else np.full(M, N))[:, None]  # (M, N)
        scores = q @ k.T * factor  # (M, N)
        powers = np.where(met, np.exp(scores - due_lse[:, None] * np.log(2)), 0)  # (M, N)
        size = np.abs(q) @ np.abs(k).T * factor  # (M, N)
        exponent = (D * CUT + 2 * U) * size + 3 * U * np.abs(scores - scores.max(axis=1, keepdims=True)) + U * size.max()
        power = (2 * exponent * np.log(2)).max(axis=1) / np.log(2) + 8 * U  # (M,) relative, of a power and of the sum
        steps = -(-N // 32)
        row = power + (8 + 4 * steps) * U  # (M,)
        error = (2 * row + OF_POWERS + N * CUT)[:, None] * (powers @ np.abs(v)) + 2.0**-24 * np.abs(v).sum(axis=0)
        found[f"o {causal}"] = np.max(np.abs(o.view(np.float32) - due) / error)
        found[f"lse {causal}"] = np.max(
            np.abs(lse.view(np.float32) - due_lse) / (2 * row / np.log(2) + 2.0**-22 + 2 * U * np.abs(due_lse))
        )

        codes = convert("fp32", "fp16", o, "sm_90")[None]  # (1, M, D)
        q_codes, k_codes, v_codes = OPERANDS
        parts = module.attention_backward(
            q_codes[None], k_codes, v_codes, codes, lse[None], GIVEN[None], scale, causal, tiles(module)
        )
        spread = np.abs(given) @ np.abs(v).T  # (M, N)
        along = (np.abs(given) * np.abs(decode(FP16, codes[0]))).sum(axis=1)[:, None]  # (M, 1)
        slope = powers * (spread + along)  # (M, N) at most
        turn = (2 * row + 4 * OF_POWERS)[:, None] * slope + 2.0**-24 * (met > 0)  # (M, N) of a slope, narrowed
        sizes = (turn @ np.abs(k) * factor, turn.T @ np.abs(q) * factor,
                 ((2 * row + 2 * OF_POWERS)[:, None] * powers + 2.0**-24).T @ np.abs(given))  # fmt: skip
        cut = (slope @ np.abs(k) * factor, slope.T @ np.abs(q) * factor, powers.T @ np.abs(given))
        for name, part, one, bound, most in zip(("dq", "dk", "dv"), parts, due_parts, sizes, cut, strict=True):
            error = bound + (N + M) * CUT * most + 4 * U * np.abs(one)
            found[f"{name} {causal}"] = np.max(np.abs(part.view(np.float32).reshape(one.shape) - one) / error)
    return {name: float(error) for name, error in found.items() if not error <= 1.01}


def test_the_plan_lies_within_what_its_steps_round() -> None:
    assert exceeded() == {}


@pytest.mark.parametrize("mutant", corpus.ATTENTION, ids=lambda mutant: mutant.name)
def test_another_plan_is_refused(mutant: Mutant) -> None:
    with mutant_module(mutant) as changed:
        assert exceeded(changed)


def test_heads_of_a_group_are_added_in_their_order() -> None:
    """dk and dv of two heads are those of the first, gone on with by the second: nothing is added twice."""
    side, (q, k, v) = tiles(), OPERANDS
    o, lse = plan.attention(q, k, v, None, False, side)
    codes = convert("fp32", "fp16", o, "sm_90")
    one = [np.stack([each]) for each in (q, codes, lse, GIVEN)]
    two = [np.concatenate([each, np.zeros_like(each) if place == 3 else each]) for place, each in enumerate(one)]
    alone = plan.attention_backward(one[0], k, v, one[1], one[2], one[3], None, False, side)
    both = plan.attention_backward(two[0], k, v, two[1], two[2], two[3], None, False, side)
    assert (both[0][0] == alone[0][0]).all() and not both[0][1].any()
    assert all((a == b).all() for a, b in zip(alone[1:], both[1:], strict=True))


def test_each_fragment_adds_a_row_in_its_own_order() -> None:
    """As Triton 3.9 lays out scores of 64 columns: the position's bits that are added in a thread, in lanes and in warps."""
    row = np.random.default_rng(3).standard_normal((1, 64)).astype(np.float32)
    sides = [
        tiles(),
        tiles(arch="sm_80", family="mma.sync", rows=16, warps=4),  # fewer rows than the 32 columns of o: warps share a row
        tiles(arch="sm_100", family="tcgen05", rows=128),
        tiles(arch="sm_100", family="tcgen05", rows=64),
    ]
    wide = [side.__class__(**{**vars(side), "columns": 64}) for side in sides]
    bits = [(each.registers, each.lanes, each.warps) for each in (side.row_layout() for side in wide)]
    assert bits == [
        (((1,), (8,), (16,), (32,)), ((2,), (4,)), ()),
        (((1,), (32,)), ((2,), (4,)), ((8,), (16,))),
        (((1,), (2,), (4,), (8,), (16,), (32,)), (), ()),
        (((1,), (2,), (4,), (8,), (16,)), ((32,),), ()),
    ]
    assert len({float(side.row_sums(row)[0]) for side in wide}) > 1


def test_a_row_that_meets_none_gets_zeros() -> None:
    o, lse = plan.attention(OPERANDS[0], OPERANDS[1][:5], OPERANDS[2][:5], None, True, tiles())
    assert (
        not o[: M - 5].any()
        and np.isneginf(lse[: M - 5].view(np.float32)).all()
        and np.isfinite(lse[M - 5 :].view(np.float32)).all()
    )
