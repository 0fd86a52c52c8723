"""Contract under test: each mutant of block_scaled_matmul fails as what it is, and most of them pass the tutorial's
own check.

That check is run here: its data (random e2m1 elements, scales uniform in (0, 1)), its tiles, its fp16 output, its reference in fp32
and its tolerance of 1e-3, on the emulated sm_100, at the smallest sizes of whole tiles that it could ask for; its own 8192 differ
from them in nothing a fault here could see. nvfp4 is what it runs by default; BITVERDICT_PROFILE=exhaustive runs the other three
formats too, with the same outcome for every fault."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from triton.tools.mxfp import MXFP4Tensor, MXScaleTensor
from triton.tools.tensor_descriptor import TensorDescriptor

import bitverdict.kernels.block_scaled_matmul
from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.kernels.scaled_operands import FORMATS, packing, scale_shape
from bitverdict.reference import packing as nibbles
from bitverdict.reference import scale_layout
from tests.faults.kernels.block_scaled_matmul import MUTANTS, UNSEEN_BY_ITS_OWN_TEST
from tests.faults.mutants import Mutant, mutant_contract, once
from tests.support.shares import judged_here

OWN_FORMATS = tuple(FORMATS) if os.environ.get("BITVERDICT_PROFILE") == "exhaustive" else ("nvfp4",)
OWN_SIZES = 256, 256, 512  # (m, n, k): whole tiles of 128 x 256 x 256
ASKED, UNSEEN = 12, 8
MOST_CASES = 24  # of the required cases, those the fault names first


def cases(contract: Contract, where: Target, mutant: Mutant) -> Iterator[Case]:
    required = contract.required(where)
    wanted = set(mutant.shows_in)

    def missing(case: Case) -> int:
        return len(wanted - {(name, str(member)) for name, member in contract.coverage(case, where).items()})

    if "not refused" in mutant.expected:
        required = [case for case in required if not contract.expected_outcome(case, where).result]
    return iter(sorted(required, key=missing)[:MOST_CASES])


def first_failure(mutant: Mutant, contract: Contract) -> Verdict | None:
    """The first verdict that fails, else one of a case that was not run."""
    not_run = None
    for name in mutant.on:
        where = target(name)
        for case in cases(contract, where, mutant):
            verdict = judge(case, where, contract)
            if verdict.failed:
                return verdict
            not_run = verdict if verdict.decision is Decision.NOT_RUN else not_run
    return not_run


@pytest.mark.parametrize("mutant", judged_here(MUTANTS), ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_each_mutant_fails_as_its_kind(mutant: Mutant, tmp_path: Path) -> None:
    verdict = first_failure(mutant, mutant_contract(mutant, tmp_path))
    assert verdict is not None, "passed by the whole required cases"
    assert verdict.outcome in mutant.expected, verdict.message


def own_operands(name: str, generator: torch.Generator) -> tuple[list, dict, torch.Tensor]:
    """What the tutorial makes of a format: (descriptors and scales, its dictionary of sizes, its reference)."""
    m, n, k = OWN_SIZES
    f = FORMATS[name]
    tiles = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 256 if "fp4" in name else 128, "num_stages": 4}
    made, values = [], []
    for rows, element, block in ((m, f.a, tiles["BLOCK_SIZE_M"]), (n, f.b, tiles["BLOCK_SIZE_N"])):
        codes = torch.randint(0, 16, (rows, k), generator=generator, dtype=torch.uint8)
        number = MXFP4Tensor(size=(rows, k))
        number.data = codes
        number = number.to(torch.float32)
        given = torch.from_numpy(nibbles.pack(codes.numpy())).clone() if element == "e2m1" else number.to(torch.float8_e4m3fn)
        drawn = torch.rand(scale_shape(rows, k, f.block_size), generator=generator) + 1e-8
        scale = drawn.to(torch.float8_e4m3fn) if f.scale == "ue4m3" else MXScaleTensor(drawn)
        factor = scale.to(torch.float32)
        scale = scale if f.scale == "ue4m3" else scale.data
        spread = scale_layout.unpack(factor.numpy(), rows, k // f.block_size).repeat(f.block_size, axis=1)
        values.append(number * torch.from_numpy(np.ascontiguousarray(spread)))
        made += [TensorDescriptor.from_tensor(given, [block, tiles["BLOCK_SIZE_K"] // packing(element)]), scale]
    return made, tiles, values[0] @ values[1].T


def own_test_failure(module: ModuleType) -> EmulatedFault | str:
    """What fails the tutorial's check of the kernel in `module`; empty where it passes."""
    generator = torch.Generator().manual_seed(42)
    for name in OWN_FORMATS:
        operands, tiles, reference = own_operands(name, generator)
        try:
            with emulated("sm_100"):
                output = module.block_scaled_matmul(*operands, torch.float16, *OWN_SIZES, tiles)
        except EmulatedFault as fault:
            return fault
        if not torch.allclose(reference, output.to(torch.float32), atol=1e-3, rtol=1e-3):
            return f"{name} is not close"
    return ""


@pytest.mark.share(4)
def test_most_faults_pass_the_tutorials_own_check(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    untouched = own_test_failure(bitverdict.kernels.block_scaled_matmul)
    assert not untouched
    judged = judged_here(MUTANTS)
    passing = [mutant.name for mutant in judged if not own_test_failure(mutant_contract(mutant, tmp_path).module)]
    with capsys.disabled():
        print(f"\n{len(judged)} mutants, {len(passing)} of them pass the tutorial's own check in {', '.join(OWN_FORMATS)}")
    assert len(MUTANTS) >= ASKED
    assert len(UNSEEN_BY_ITS_OWN_TEST) >= UNSEEN
    assert passing == [mutant.name for mutant in UNSEEN_BY_ITS_OWN_TEST if mutant in judged]


def test_the_untouched_kernel_passes_through_the_same_door(tmp_path: Path) -> None:
    same = Mutant(kernel="block_scaled_matmul", name="none", edits=once("a_desc.load(", "a_desc.load("), expected=())
    contract = mutant_contract(same, tmp_path)
    where = target("emulated:sm_90")
    verdicts = [judge(case, where, contract) for case in contract.required(where)[:2]]
    assert {verdict.decision for verdict in verdicts} == {Decision.PASS}
