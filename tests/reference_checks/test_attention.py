"""Contract under test: the plan of attention lies as near to its value as its steps allow, and adds rows as fragments hold them.

The bounds count roundings: u = 2^-24 for each operation that rounds once, 2^-11 for powers as fp16, and what the PTX ISA says of
the others (9.7.3): ex2.approx 2 ulp, lg2.approx 2^-22, div.full 2 ulp. A sum of n products by the tensor core is cut n times at
most, by 2^-23 of the largest partial sum."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from bitverdict.reference import attention as plan
from bitverdict.reference.formats import FP16, convert, decode, encode
from bitverdict.reference.tensor_core import instruction, product
from tests.faults import reference_modules as corpus
from tests.faults.mutants import Mutant, mutant_module

U, CUT, OF_POWERS = 2.0**-24, 2.0**-23, 2.0**-11
M, N, D = 70, 101, 24


def tiles(module=plan, arch: str = "sm_90", family: str = "wgmma", rows: int = 64, columns: int = 32, warps: int = 4):
    rule = instruction(arch, family, "fp16", "fp16", "fp32")
    return module.Tiles(
        rows=rows, columns=columns, depth=32, warps=warps, family=family, sm=int(arch[3:]),
        product=lambda a, b, c: product(rule, np.ascontiguousarray(a), np.ascontiguousarray(b), c),
        narrow=partial(convert, "fp32", "fp16", arch=arch),
    )  # fmt: skip


def drawn(rows: int, name: int) -> np.ndarray:
    return encode(FP16, np.random.default_rng(name).standard_normal((rows, D)))


OPERANDS = drawn(M, 0), drawn(N, 1), drawn(N, 2)


def exceeded(module=plan) -> dict[str, float]:
    """By result: the largest error in units of its bound, of second order left out by 1 %."""
    q, k, v = (decode(FP16, codes) for codes in OPERANDS)
    found = {}
    for causal, scale in ((False, None), (True, 0.3)):
        o, lse = module.attention(*OPERANDS, scale, causal, tiles(module))
        factor = D**-0.5 if scale is None else scale
        due, due_lse = plan.attention_value(q, k, v, factor, causal)
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
    return {name: float(error) for name, error in found.items() if not error <= 1.01}


def test_the_plan_lies_within_what_its_steps_round() -> None:
    assert exceeded() == {}


@pytest.mark.parametrize("mutant", corpus.ATTENTION, ids=lambda mutant: mutant.name)
def test_another_plan_is_refused(mutant: Mutant) -> None:
    with mutant_module(mutant) as changed:
        assert exceeded(changed)


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
