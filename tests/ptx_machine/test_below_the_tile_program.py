"""Contract under test: the PTX of shipped kernels leaves the words of their tile programs, and a fault put into the PTX is seen."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
import triton
import triton.language as tl

from bitverdict.harness.emulator import LaunchOptions, emulated
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.triton_release import sums_by_tree
from bitverdict.harness.model.verdict import PTX_LAUNCHES, Outcome
from bitverdict.harness.ptx_machine import below_the_tile_program
from bitverdict.harness.ptx_machine.below_the_tile_program import PtxTwin
from bitverdict.harness.session.tally import Tally
from tests.support.fusion_kernels import probe
from tests.support.ptx_results import SM_80, SM_90, required_case, results, rewritten
from tests.support.tile_kernels import widened_product

WAIT = "mbarrier.try_wait.parity.shared::cta.b64"


FAR_ROWS = required_case("softmax", x_pad=(1 << 30) + 24)  # beyond 4 GiB


@pytest.mark.parametrize(("after", "is_alike"), [("ex2.approx", True), ("lg2.approx", False)])
def test_ptx_reaches_rows_beyond_four_gigabytes(after: str, is_alike: bool) -> None:
    seen = results(FAR_ROWS, rewritten(r"ex2\.approx", after))
    assert [bool(result.words) and not result.not_run for result in seen] == [True]
    assert [not result.difference for result in seen] == [is_alike]


@pytest.mark.parametrize("stem", ["softmax", "matmul", "ampere_gemm", "quantize_mxfp"])
def test_ptx_of_a_shipped_kernel_leaves_the_same_words(stem: str) -> None:
    seen = results(required_case(stem))
    assert seen and all(result.words and not result.difference and not result.not_run for result in seen)


@pytest.mark.parametrize(
    "stem", ["matmul", "attention", "fp8_blockwise_matmul", "hopper_matmul", "split_k_matmul", "block_scaled_matmul"]
)
def test_ptx_of_sm_90_leaves_the_same_words(stem: str) -> None:
    """wgmma with both operands in shared memory and A in registers, in bf16, fp16 and fp8; TMA through tensor maps of the host and
    of the device."""
    seen = results(required_case(stem, SM_90), chip=SM_90)
    assert seen and all(result.words and not result.difference and not result.not_run for result in seen)


HOPPER_RING = required_case("hopper_matmul", SM_90, k=224, stages=3, dtype="fp16")  # seven blocks of K


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("fence.proxy.async.shared::cta;", "", r"race: cp\.async\.bulk.* no fence\.proxy\.async between them"),
        ("wgmma.wait_group.sync.aligned 0;", "", "race: cvt.* reads a register that a wgmma in flight uses"),
        ("wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group.sync.aligned 2;", "race: write of .* a wgmma in flight reads"),
        (r"complete, (\[%r\d+\]), %r\d+;", r"complete, \1, 1;", "deadlock: .* waits at an mbarrier"),
        (WAIT + r" complete, \[%r\d+\], %r\d+;", "setp.eq.u32 complete, 0, 0;", "race: read of .* an asynchronous copy in flight"),
        (r"_, (\[%r\d+\]), 8192;", r"_, \1, 4096;", "barrier misuse: 4096 bytes more arrived"),
        ("bar.sync \t0;", "", "race: .* uses the barrier at byte"),
        ("cp.async.bulk.wait_group.read \t0;", "", "race: the CTA ends while .* is in flight"),
        (r"\{(%r\d+), (%r\d+)\}\], (\[%r\d+\]);", r"{\2, \1}], \3;", "differ"),
        (r"mbarrier\.init\.shared::cta\.b64 (\[%r\d+\]), 1;", r"mbarrier.init.shared::cta.b64 \1, 2;", "deadlock"),
    ],
    ids=["proxy fence", "wgmma wait", "late wgmma wait", "parity", "no wait", "bytes", "barriers", "bulk wait",
         "coordinates", "arrivals"],
)  # fmt: skip
def test_a_fault_of_asynchronous_ptx_is_seen(before: str, after: str, said: str) -> None:
    assert re.search(said, results(HOPPER_RING, rewritten(before, after), SM_90)[0].difference)


def test_registers_that_a_wgmma_takes_are_fenced_after_they_were_computed() -> None:
    """Attention scales its accumulator between two products. Zeros that LLVM moves behind the fence need none."""
    case = required_case("attention", SM_90)
    found = results(case, lambda text: text.replace("wgmma.fence.sync.aligned;", ""), SM_90)[0].difference
    assert re.search(r"race: wgmma.* register that was written since the last wgmma\.fence", found)
    zeros = required_case("hopper_matmul", SM_90, dtype="e4m3", m=63)
    assert not results(zeros, chip=SM_90)[0].difference


RING = required_case("ampere_gemm", k=137, stages=4, fragments="ldmatrix")  # of which three blocks are in flight


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("bar.sync \t0;", "", "race"),
        ("cp.async.wait_group \t2;", "cp.async.wait_group 3;", "race"),
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
            "@%p0 mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
            "differ",
        ),
    ],
    ids=["a dropped barrier", "a wrong wait", "a product under a wrong predicate"],
)
def test_a_fault_below_the_tile_program_is_seen(before: str, after: str, said: str) -> None:
    assert said in results(RING, rewritten(re.escape(before), after))[0].difference


@pytest.mark.parametrize(("is_told", "said"), [(True, ""), (False, "write other words to one place of shared memory")])
def test_lanes_that_store_other_words_leave_an_h100s(is_told: bool, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the tile program has the advice; the words that an H200 left too: `benchmarks.corpus_replay --ptx`. A release that sums
    registers one after another stores by the first lane alone."""
    if not is_told:
        told = below_the_tile_program.LaunchShape
        monkeypatch.setattr(below_the_tile_program, "LaunchShape", lambda *fields, takes_other_words, **more: told(*fields, **more))
    twin = PtxTwin()
    with emulated("sm_90", options=LaunchOptions(takes_cpu_tensors=True, probes=(twin,))) as device:
        torch.manual_seed(3)
        x, y, out = torch.randn(1, 128), torch.randn(1, 128), torch.zeros(1)
        probe[(1,)](x, y, out, 1, 1, 128, "sum of columns", num_warps=4)
    assert any("lanes of a warp store different words" in each for each in device.advice) == sums_by_tree()
    said = said if sums_by_tree() else ""
    assert [said in each.difference and bool(said) == bool(each.difference) for each in twin.results] == [True]


OPERANDS = r"\{ (%r\d+), (%r\d+), (%r\d+), (%r\d+) \}, \{ (%r\d+), (%r\d+) \}, \{"  # of mma.sync, in front of its accumulator


@pytest.mark.parametrize("k", [16, 32])
@pytest.mark.parametrize("wide", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    ("arch", "narrow"),
    [("sm_80", torch.float8_e5m2), ("sm_80", torch.int8), ("sm_90", torch.float8_e4m3fn), ("sm_100", torch.float8_e4m3fn)],
)
def test_a_widened_product_takes_k_as_its_ptx_does(arch: str, narrow: torch.dtype, wide: torch.dtype, k: int) -> None:
    """Of 16 elements a quad of threads holds each once, of 32 twice as many. Where an instruction sums its halves one after
    another, as on sm_80, a PTX with the halves exchanged leaves other words; where it sums them at once, the same."""
    generator = torch.Generator().manual_seed(k)
    a, b = (
        torch.randn(shape, generator=generator) * 2.0 ** torch.randint(-4, 5, shape, generator=generator)
        for shape in ((16, k), (k, 16))
    )
    exchanged = rewritten(OPERANDS, r"{ \3, \4, \1, \2 }, { \6, \5 }, {")
    for rewrite, is_alike in ((str, True), (exchanged, arch != "sm_80")):
        twin, out = PtxTwin(rewrite=rewrite), torch.zeros(16, 16)
        with emulated(arch, options=LaunchOptions(probes=(twin,))) as device:
            widened_product[(1,)](a.to(wide), b.to(narrow), out, SIZE=16, K=k, num_warps=1)
        assert device.launches[-1].instructions == {"mma.sync"}
        assert [(each.words, each.not_run, not each.difference) for each in twin.results] == [(256, "", is_alike)]


@triton.jit
def reloaded(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    values = tl.load(x + at)
    tl.store(x + at, values * 2)
    total = tl.sum(values, 0)
    tl.store(out + at, tl.load(x + N - 1 - at) - total)


def test_a_reduction_orders_the_lanes_of_a_warp(monkeypatch: pytest.MonkeyPatch) -> None:
    """xformers' rms_norm_add loads back what other lanes of its one warp stored before a sum. The PTX ISA promises no more of
    shfl.sync than that the lanes have come; the tile program takes a reduction for a barrier, and so does its PTX."""
    twin, launch = PtxTwin(), below_the_tile_program.LaunchShape
    with emulated("sm_90", options=LaunchOptions(takes_cpu_tensors=True, probes=(twin,))):
        x, out = torch.arange(64).float(), torch.zeros(64)
        reloaded[(1,)](x, out, 64, num_warps=1)
        assert torch.equal(out, x.flip(0) - 2016.0) and [each.difference for each in twin.results] == [""]
        monkeypatch.setattr(below_the_tile_program, "LaunchShape", lambda *fields, shuffles_order, **more: launch(*fields, **more))
        reloaded[(1,)](x, out, 64, num_warps=1)
        assert "race: thread" in twin.results[1].difference


def test_a_case_says_that_its_ptx_ran_and_fails_where_it_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    case = replace(required_case("softmax"), ptx=True)
    verdict = judge(case, SM_80, explained=False)
    assert verdict.outcome is Outcome.PASS and verdict.details["words of PTX"] > 0
    assert verdict.details[PTX_LAUNCHES] == [1, 0, verdict.details["words of PTX"]]
    real = below_the_tile_program.kernel_program
    monkeypatch.setattr(below_the_tile_program, "kernel_program", lambda text: real(text.replace("ex2.approx", "lg2.approx")))
    verdict = judge(case, SM_80, explained=False)
    assert verdict.outcome is Outcome.COMPILER_FAULT and "by its PTX" in verdict.message


def test_a_case_whose_ptx_is_not_executed_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    real = below_the_tile_program.kernel_program
    monkeypatch.setattr(
        below_the_tile_program, "kernel_program", lambda text: real(text.replace("\tret;", "\tistypep.texref %p1, %rd1;\n\tret;"))
    )
    case = replace(required_case("softmax"), ptx=True)
    verdict = judge(case, SM_80, explained=False)
    assert verdict.outcome is Outcome.PASS and any("its PTX was not executed" in line for line in verdict.advice)
    tally = Tally()
    tally.count(case, "softmax", SM_80.name, {}, verdict)
    assert "0 launches executed as PTX too, 0 words stored; 1 not executed so" in tally.sentence()
