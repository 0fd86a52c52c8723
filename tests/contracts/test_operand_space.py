"""Contract under test: the required cases judge every code of each 8-bit operand and every pair of codes of two 8-bit factors, so
that a kernel that is wrong for one code or one pair alone fails in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from bitverdict.harness.contracts.inputs import regimes
from bitverdict.harness.contracts.inputs.all_codes import ALL_CODES, PAIRS
from bitverdict.harness.contracts.quantize_mxfp import BY_SIZE, by_size
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.lab.pages.operand_space import (
    BYTES,
    CONVERTING_KERNELS,
    CodeCoverage,
    lines,
    main,
    measure_coverage,
    pairs_met_alone,
    unjudged_lines,
)
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Outcome

COVERING = (PAIRS, ALL_CODES, BY_SIZE)
PRODUCTS = {
    "emulated:sm_80": ("matmul",),
    "emulated:sm_90": ("matmul", "fp8_blockwise_matmul", "hopper_matmul"),
    "emulated:sm_100": ("matmul", "fp8_blockwise_matmul", "blocked_matmul", "blocked_matmul_pipelined", "small_mma",
                        "fused_gather_scatter_matmul", "warp_specialized_gather_scatter_matmul"),
}  # fmt: skip
COPIES = ("tma_gather", "tma_scatter", "tmem_copy")


@cache
def covering(stem: str, name: str) -> list[Case]:
    return [case for case in resolve(stem).required(target(name)) if case.regime.partition("/")[0] in COVERING]


@pytest.mark.parametrize("name", PRODUCTS)
def test_required_cases_meet_every_pair_of_8_bit_codes_alone(name: str) -> None:
    for stem in PRODUCTS[name]:
        met = measure_coverage(resolve(stem), covering(stem, name), target(name))
        assert met.pairs, stem
        assert all(pairs.all() for pairs in met.pairs.values()), lines(stem, met)
        assert set(met.pairs) == {kind for _, kind in met.codes if kind in BYTES}
        assert unjudged_lines(met) == []


def test_required_cases_meet_every_code_of_copies_and_conversions() -> None:
    for stem in (*COPIES, *CONVERTING_KERNELS):
        met = measure_coverage(resolve(stem), covering(stem, "emulated:sm_100"), target("emulated:sm_100"))
        kinds = {kind for _, kind in met.codes}
        assert kinds == (set(BYTES) if stem in COPIES else {"fp16", "bf16"})
        assert all(count == of for _, count, of, _ in lines(stem, met)), lines(stem, met)


def test_without_their_case_pairs_and_codes_are_named(capsys: pytest.CaptureFixture) -> None:
    contract, where = resolve("matmul"), target("emulated:sm_80")
    case = covering("matmul", "emulated:sm_80")[0]
    fewer = replace(case, problem=replace(case.problem, n=255), data_seed=1)
    met = measure_coverage(contract, [fewer], where)
    with_it = ", ".join(f"{code:#04x} ({code}) * 0xfe (-2)" for code in range(4))
    assert unjudged_lines(met) == ["b in int8: 0xfe (-2)", f"pairs of int8: {with_it}"]
    assert unjudged_lines(measure_coverage(contract, [replace(case, regime="normal")], where))[-1].startswith(
        "pairs of int8: 0x00 (0)"
    )
    assert unjudged_lines(CodeCoverage()) == []
    assert main(["swiglu", "--target", "emulated:sm_80"]) == 0
    assert "swiglu: codes of a in fp16: 65,536 of 65,536" in capsys.readouterr().out


def test_a_pair_beside_another_product_is_not_met_alone() -> None:
    a, b = np.zeros((1, 3), np.uint8), np.zeros((2, 3), np.uint8)
    a[0, 1], b[:, 1] = 7, (9, 11)
    assert sorted(map(tuple, np.argwhere(pairs_met_alone(a, b)).tolist())) == [(7, 9), (7, 11)]
    a[0, 2] = b[1, 2] = 1
    assert not pairs_met_alone(a, b).any()


def test_codes_by_size_are_all_codes_each_beside_its_negative() -> None:
    codes = by_size((64, 1024)).reshape(-1)
    assert len(np.unique(codes)) == 1 << 16
    assert codes[:6].tolist() == [0, 0x8000, 1, 0x8001, 2, 0x8002]
    with pytest.raises(ValueError, match="unknown"):
        regimes.draw("fp16", (2,), "any codes", np.random.default_rng(0))


@pytest.mark.parametrize(
    ("stem", "name", "kind", "pair"),
    [
        ("matmul", "emulated:sm_90", "e4m3", (0x2F, 0xD1)),
        ("matmul", "emulated:sm_90", "int8", (0xB3, 0x5D)),
        ("hopper_matmul", "emulated:sm_90", "e5m2", (0x33, 0xB5)),
        ("tma_gather", "emulated:sm_100", "int8", (0x80,)),
        ("tmem_copy", "emulated:sm_100", "e5m2", (0x7D,)),
        ("quantize_mxfp", "emulated:sm_90", "fp16", (0x3C01,)),
        ("swiglu", "emulated:sm_90", "bf16", (0x3FC3,)),
    ],
)
def test_a_kernel_that_is_wrong_for_one_code_or_pair_fails(
    stem: str, name: str, kind: str, pair: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    contract, where = resolve(stem), target(name)
    case = next(case for case in reversed(covering(stem, name)) if case.problem.dtype == kind)
    launched = contract.launch

    def wrong(case: Case, tensors: Mapping, launcher: Any) -> Mapping:
        """What the kernel gives, with a bit changed where it met the pair, or the code."""
        outputs = dict(launched(case, tensors, launcher))
        operands = {each.name: each for each in contract.operands(case)}
        factors = contract.factors(case, operands)
        sides = factors or (next(iter(operands.values())).codes.reshape(-1, 1),)
        bits = [side.view(f"u{side.dtype.itemsize}") == code for side, code in zip(sides, pair, strict=True)]
        at = [int(np.flatnonzero(side.any(axis=1))[0]) for side in bits]
        name, out = next(iter(outputs.items()))
        words = out.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[out.dtype.itemsize]).clone()
        place = (at[0], at[1]) if factors else tuple(int(each) for each in np.unravel_index(at[0], words.shape))
        words[place] ^= 1
        return outputs | {name: words.view(out.dtype)}

    monkeypatch.setattr(contract, "launch", wrong)
    verdict = judge(case, where, contract)
    assert verdict.outcome is Outcome.WRONG_WORDS, verdict.message
    assert verdict.details["wrong"] == 1
