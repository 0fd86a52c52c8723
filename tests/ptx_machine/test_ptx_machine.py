"""Contract under test: PTX written by hand runs thread by thread to the words of its definition; a twin of each kernel that lacks
a barrier, a wait or a predicate, or exchanges a fragment, ends by name at its line of the PTX."""

# One file because its kernels share the head that they are made of.
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

import bitverdict as bv
from bitverdict.harness.contracts.ampere_gemm import contract
from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.targets import target
from bitverdict.harness.ptx_machine.launch import ptx_kernel
from bitverdict.harness.ptx_machine.program import read_kernel
from bitverdict.kernels import ampere_gemm
from bitverdict.reference import tensor_core
from bitverdict.reference.special_functions.instructions import division_factors
from tests.faults import mutants

HEAD = """.version 8.5
.target sm_80
.address_size 64
{shared}
.visible .entry kernel({parameters})
{{
    .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<40>; .reg .f32 %f<40>; .reg .b64 %rd<24>;
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.s32 %r3, %r1, %r2, %r0;
{body}
    ret;
}}
"""


def kernel(body: str, *kinds: str, shared: str = "") -> str:
    """PTX with the number of the thread in %r0, of the CTA in %r1, of both in %r3, and parameters p0, p1, ... of `kinds`."""
    parameters = ", ".join(f".param .{kind} p{number}" for number, kind in enumerate(kinds))
    addresses = "\n".join(
        f"    ld.param.{kind} %{'rd' if kind == 'u64' else 'r'}{number + 10}, [p{number}];" for number, kind in enumerate(kinds)
    )
    return HEAD.format(shared=shared, parameters=parameters, body=f"{addresses}\n{body}")


def replaced_once(text: str, replace: str, by: str) -> str:
    return mutants.replaced_once(text, replace, by, "the PTX")


def launch(text: str, *values: object, grid: int = 1, block: int = 128, shared_bytes: int = 0) -> None:
    """On the chip that the text is for."""
    with emulated(text.partition(".target ")[2].split()[0]):
        ptx_kernel(text, "kernel", shared_bytes=shared_bytes)[grid, block](*values)


ADD_ONE = kernel(
    """
    setp.ge.u32 %p1, %r3, %r12;
    mul.wide.u32 %rd1, %r3, 4; add.s64 %rd2, %rd10, %rd1; add.s64 %rd3, %rd11, %rd1;
    @%p1 bra DONE;
    ld.global.f32 %f1, [%rd2]; add.rn.f32 %f2, %f1, 0f3F800000; st.global.f32 [%rd3], %f2;
DONE:""",
    "u64",
    "u64",
    "u32",
)


def test_threads_behind_the_last_element_end_at_a_branch() -> None:
    x, y = torch.randn(300), torch.zeros(300)
    launch(ADD_ONE, x, y, 300, grid=3)
    assert torch.equal(y, x + 1)


def add_one(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    ptx_kernel(ADD_ONE)[-(-x.numel() // 128), 128](x, y, x.numel())
    return y


def add_a_little_more(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    ptx_kernel(ADD_ONE.replace("0f3F800000", "0f3F800001"))[-(-x.numel() // 128), 128](x, y, x.numel())
    return y


def test_registers_of_one_block_are_dropped_behind_their_last_use() -> None:
    """A loop that is unrolled over K has thousands; those that another block reads, or a branch, stay."""
    program = read_kernel(ADD_ONE)
    assert {"%f1", "%f2", "%rd1"} <= program.short_lived and not program.short_lived & {"%rd2", "%rd3", "%p1"}
    uses = [pair for block in program.blocks for pair in zip(block.steps, block.last_uses, strict=True)]
    last = {name: step.statement.opcode for step, names in uses for name in names}
    assert (last["%f1"], last["%f2"], last["%rd1"]) == ("add.rn.f32", "st.global.f32", "add.s64")


def test_a_launcher_of_ptx_is_judged_by_a_reference() -> None:
    """No real values come of PTX: rounded words are no mathematics of their own, and a bound decides."""
    bv.assert_right(add_one, (torch.randn(300),), reference=lambda xp, x: x + 1.0, target="emulated:sm_90")
    with pytest.raises(AssertionError, match="outside"):
        bv.assert_right(add_a_little_more, (torch.randn(300),), reference=lambda xp, x: x + 1.0, target="emulated:sm_90")


def test_a_lost_predicate_reads_outside_of_its_tensor() -> None:
    with pytest.raises(EmulatedFault, match=r"illegal address|stray read") as seen:
        launch(replaced_once(ADD_ONE, "@%p1 bra DONE;", ""), torch.randn(300), torch.zeros(300), 300, grid=3)
    assert "ld.global.f32" in seen.value.details["instruction"] and seen.value.details["PTX line"] == 16


QUOTIENT_SUM = kernel(
    """
    mul.wide.u32 %rd1, %r0, 4; add.s64 %rd2, %rd10, %rd1; add.s64 %rd3, %rd11, %rd1; add.s64 %rd4, %rd12, %rd1;
    add.s64 %rd5, %rd13, %rd1; ld.global.f32 %f1, [%rd2]; ld.global.f32 %f2, [%rd3]; ld.global.f32 %f3, [%rd4];
    div.full.f32 %f4, %f1, %f2;
    sub.f32 %f5, %f4, %f3;
    st.global.f32 [%rd5], %f5;""",
    *["u64"] * 4,
)


@pytest.mark.parametrize(
    ("before", "after", "is_fused", "sign"),
    [
        ("", "", True, 1),
        ("sub.f32 %f5, %f4, %f3", "sub.f32 %f5, %f3, %f4", True, -1),
        ("sub.f32", "sub.rn.f32", False, 1),
        ("st.global", "max.f32 %f6, %f4, %f5; st.global", False, 1),  # which takes the quotient too
        ("st.global", "add.f32 %f6, %f4, %f1; st.global", True, 1),
        ("st.global", "add.rn.f32 %f6, %f4, %f1; st.global", False, 1),
        ("st.global", "add.f32 %f6, %f4, %f4; st.global", False, 1),
        ("st.global", "div.full.f32 %f7, %f1, %f1; add.f32 %f6, %f4, %f7; st.global", False, 1),
        ("st.global", "div.full.f32 %f7, %f1, %f1; add.f32 %f6, %f4, %f7; add.f32 %f7, %f7, %f1; st.global", True, 1),
        ("sub.f32", "mov.f32 %f2, %f1; sub.f32", True, 1),
        ("sub.f32", "mov.f32 %f4, %f3; sub.f32", False, 1),  # the quotient itself is gone: nothing less nothing
        ("sub.f32", "bar.sync 0; sub.f32", True, 1),
        ("sub.f32", "setp.lt.u32 %p1, %r0, 99; @%p1 ld.global.f32 %f6, [%rd4]; sub.f32", False, 1),
        ("sub.f32", "setp.lt.u32 %p1, %r0, 99; @%p1 mov.f32 %f6, %f1; sub.f32", True, 1),
        ("sub.f32", "setp.lt.u32 %p1, %r0, 999; @%p1 sub.f32", True, 1),
        ("sub.f32", "setp.lt.u32 %p1, %r0, 999; @!%p1 bra OVER; st.global.f32 [%rd5], %f1; OVER: sub.f32", False, 1),
    ],
    ids=[
        "one fma", "one fma, of the other sign", "of a named rounding", "of a quotient with two uses",
        "two sums", "two sums, one of a named rounding", "twice in one sum", "beside one that only their sum reads",
        "beside one that two sums read", "of a replaced divisor",
        "of a replaced quotient",
        "over a barrier", "over a guarded load", "over a guarded move", "under a guard", "over a branch",
    ],
)  # fmt: skip
def test_a_sum_takes_a_quotient_in_where_ptxas_does(before: str, after: str, is_fused: bool, sign: int) -> None:
    """Less the rounded quotient it is zero, and as one fma what the last product of `div.full` was rounded by. Each row is what
    `ptxas-blackwell` of Triton 3.9.0 made of these lines for sm_90a."""
    x, y, out = torch.randn(128), torch.randn(128), torch.zeros(128)
    left, right = division_factors(x.numpy().view(np.uint32), y.numpy().view(np.uint32))
    products = left.view(np.float32).astype(np.float64) * right.view(np.float32)  # exact
    launch(QUOTIENT_SUM.replace(before, after), x, y, torch.from_numpy(products.astype(np.float32)), out)
    residue = sign * (products - products.astype(np.float32))
    assert np.array_equal(out.numpy(), residue if is_fused else np.zeros(128)) and residue.any()


REVERSE = kernel(
    """
    mul.wide.u32 %rd1, %r0, 4; add.s64 %rd2, %rd10, %rd1; add.s64 %rd3, %rd11, %rd1;
    ld.global.b32 %r4, [%rd2];
    mov.u32 %r5, tile; shl.b32 %r6, %r0, 2; add.u32 %r7, %r5, %r6; sub.u32 %r8, %r5, %r6;
    st.shared.b32 [%r7], %r4;
    bar.sync 0;
    ld.shared.b32 %r9, [%r8+508];
    st.global.b32 [%rd3], %r9;""",
    "u64",
    "u64",
    shared=".shared .align 4 .b8 tile[512];",
)


def test_a_barrier_orders_the_threads_of_a_cta() -> None:
    x, y = torch.arange(128, dtype=torch.int32), torch.zeros(128, dtype=torch.int32)
    launch(REVERSE, x, y)
    assert torch.equal(y, x.flip(0))


def test_a_dropped_barrier_is_a_race() -> None:
    x = torch.arange(128, dtype=torch.int32)
    with pytest.raises(EmulatedFault, match=r"race: thread .* reads byte .* of shared memory, which thread .* wrote") as seen:
        launch(replaced_once(REVERSE, "bar.sync 0;", ""), x, torch.zeros_like(x))
    assert "st.shared.b32" in seen.value.details["other instruction"]


def test_threads_of_one_warp_need_no_more_than_its_barrier() -> None:
    x, y = torch.arange(32, dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
    text = REVERSE.replace("bar.sync 0;", "bar.warp.sync 0xffffffff;").replace("%r8+508", "%r8+124")
    launch(text, x, y, block=32)
    assert torch.equal(y, x.flip(0))
    with pytest.raises(EmulatedFault, match="race"):
        launch(text.replace("bar.warp.sync 0xffffffff;", ""), x, y, block=32)


def test_a_warp_s_barrier_orders_no_other_warp() -> None:
    x = torch.arange(128, dtype=torch.int32)
    with pytest.raises(EmulatedFault, match="race"):
        launch(replaced_once(REVERSE, "bar.sync 0;", "bar.warp.sync 0xffffffff;"), x, torch.zeros_like(x))


def test_a_barrier_that_some_threads_never_reach_is_a_deadlock() -> None:
    text = kernel("    setp.eq.u32 %p1, %r0, 0;\n    @%p1 bra LOOP;\n    bar.sync 1, 128;\nLOOP:\n    bar.sync 2, 128;", "u64")
    with pytest.raises(EmulatedFault, match="deadlock"):
        launch(text, torch.zeros(1))
    launch(text.replace("@%p1 bra LOOP;", ""), torch.zeros(1))


COPY = kernel(
    """
    mul.wide.u32 %rd1, %r0, 16; add.s64 %rd2, %rd10, %rd1; add.s64 %rd3, %rd11, %rd1;
    shl.b32 %r6, %r0, 4; mov.u32 %r5, tile; add.u32 %r7, %r5, %r6; sub.u32 %r8, %r5, %r6;
    cp.async.cg.shared.global [%r7], [%rd2], 16;
    cp.async.commit_group;
    cp.async.cg.shared.global [%r7+2048], [%rd2+2048], 16;
    cp.async.commit_group;
    cp.async.wait_group 1;
    bar.sync 0;
    ld.shared.v4.b32 {%r20, %r21, %r22, %r23}, [%r8+2032];
    st.global.v4.b32 [%rd3], {%r20, %r21, %r22, %r23};
    cp.async.wait_group 0;
    bar.sync 0;
    ld.shared.v4.b32 {%r20, %r21, %r22, %r23}, [%r8+4080];
    st.global.v4.b32 [%rd3+2048], {%r20, %r21, %r22, %r23};""",
    "u64",
    "u64",
    shared=".extern .shared .align 16 .b8 tile[];",
)


def test_asynchronous_copies_land_where_they_are_waited_for() -> None:
    x, y = torch.arange(1024, dtype=torch.int32), torch.zeros(1024, dtype=torch.int32)
    launch(COPY, x, y, shared_bytes=4096)
    assert torch.equal(y.view(2, 128, 4), x.view(2, 128, 4).flip(1))


@pytest.mark.parametrize("wrong", ["cp.async.wait_group 2;", ""], ids=["of the group before", "dropped"])
def test_a_wrong_wait_reads_what_is_in_flight(wrong: str) -> None:
    x = torch.arange(1024, dtype=torch.int32)
    with pytest.raises(EmulatedFault, match="asynchronous copy in flight") as seen:
        launch(replaced_once(COPY, "cp.async.wait_group 1;", wrong), x, torch.zeros_like(x), shared_bytes=4096)
    assert "cp.async.cg" in seen.value.details["other instruction"]


TILES = kernel(
    """
    cvta.param.u64 %rd5, p0;
    mov.u32 %r5, tile; add.u32 %r6, %r5, 4096; setp.eq.u32 %p1, %r0, 0; mov.u32 %r7, 0; mov.u32 %r8, 16;
    @%p1 mbarrier.init.shared.b64 [%r6], 1;
    bar.sync 0;
    @!%p1 bra WAIT;
    mbarrier.arrive.expect_tx.shared.b64 %rd6, [%r6], 4096;
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%rd5, {%r8, %r7}], [%r6];
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r5+2048], [%rd11, {%r7, %r8}], [%r6];
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p2, [%r6], 0;
    shl.b32 %r9, %r0, 4; add.u32 %r20, %r5, %r9; ld.shared.v4.b32 {%r21, %r22, %r23, %r24}, [%r20];
    ld.shared.v4.b32 {%r25, %r26, %r27, %r28}, [%r20+2048]; cvt.u64.u32 %rd1, %r9; add.s64 %rd2, %rd12, %rd1;
    st.global.v4.b32 [%rd2], {%r21, %r22, %r23, %r24}; st.global.v4.b32 [%rd2+2048], {%r25, %r26, %r27, %r28};""",
    "u64",
    "u64",
    "u64",
    shared=".shared .align 128 .b8 tile[4104];",
)
TILES = TILES.replace("sm_80", "sm_90").replace(".param .u64 p0", ".param .align 64 .b8 p0[128]")
TILES = replaced_once(TILES, "    ld.param.u64 %rd10, [p0];\n", "")


def test_descriptors_of_gluon_are_tensor_maps_and_pointers_to_them() -> None:
    """Boxes of 16 rows and 32 columns: from column 16 on, and from row 16 on, where the tensor ends."""
    x, out = torch.arange(24 * 64, dtype=torch.float32).view(24, 64), torch.zeros(2, 16, 32)
    layout = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=2)
    boxes = [TensorDescriptor.from_tensor(tensor, [16, 32], layout) for tensor in (x, x[:, :32].contiguous())]
    with emulated("sm_90"):
        ptx_kernel(TILES, "kernel")[1, 128](*boxes, out)
        with pytest.raises(ValueError, match=r"parameter p2 is \.u32, and no tensor map"):
            ptx_kernel(TILES.replace(".param .u64 p2", ".param .u32 p2"), "kernel")[1, 128](*boxes, boxes[0])
    assert torch.equal(out[0], x[:16, 16:48])
    assert torch.equal(out[1][:8], x[16:, :32]) and not out[1][8:].any()


BEHIND_COPIES = kernel(
    """
    mul.wide.u32 %rd1, %r0, 4; add.s64 %rd2, %rd10, %rd1; add.s64 %rd3, %rd11, %rd1;
    mov.u32 %r5, tile; mov.u32 %r6, come; shl.b32 %r7, %r0, 2; add.u32 %r8, %r5, %r7; sub.u32 %r9, %r5, %r7;
    setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [%r6], 128;
    bar.sync 0;
    cp.async.ca.shared.global [%r8], [%rd2], 4;
    cp.async.mbarrier.arrive.shared.b64 [%r6];
    mbarrier.arrive.shared.b64 %rd4, [%r6];
LOOP:
    mbarrier.try_wait.shared.b64 %p2, [%r6], %rd4;
    @!%p2 bra LOOP;
    ld.shared.b32 %r20, [%r9+508];
    st.global.b32 [%rd3], %r20;""",
    "u64",
    "u64",
    shared=".shared .align 16 .b8 tile[512];\n.shared .align 8 .b64 come;",
).replace("sm_80", "sm_90")  # try_wait is of sm_90


def test_an_arrival_behind_copies_is_one_beyond_the_count_or_one_of_it() -> None:
    x, y = torch.arange(128, dtype=torch.int32), torch.zeros(128, dtype=torch.int32)
    arrive, own = "cp.async.mbarrier.arrive.shared.b64 [%r6];", "mbarrier.arrive.shared.b64 %rd4, [%r6];"
    of_its_count = replaced_once(BEHIND_COPIES, arrive, arrive.replace("arrive.", "arrive.noinc."))
    of_its_count = replaced_once(of_its_count, "[%r6], 128;", "[%r6], 256;")
    for text in (BEHIND_COPIES, of_its_count):
        launch(text, x, y)
        assert torch.equal(y, x.flip(0))
    for before, after, said in (
        ("[%r6], 128;", "[%r6], 256;", "deadlock: .* 128 of 256 arrivals"),
        (f"{arrive}\n    {own}", f"{own}\n    {arrive}", "race: "),
        (f"{arrive}\n", "\n", "race: read of shared memory that an asynchronous copy in flight"),
    ):
        with pytest.raises(EmulatedFault, match=said):
            launch(replaced_once(BEHIND_COPIES, before, after), x, y)


def test_a_wait_without_a_barrier_tells_no_other_thread() -> None:
    x = torch.arange(1024, dtype=torch.int32)
    text = COPY.replace("cp.async.wait_group 1;\n    bar.sync 0;", "cp.async.wait_group 1;", 1)
    with pytest.raises(EmulatedFault, match="race"):
        launch(text, x, torch.zeros_like(x), shared_bytes=4096)


PRODUCT = kernel(
    """
    shr.u32 %r4, %r0, 2; and.b32 %r5, %r0, 3;
    shl.b32 %r6, %r4, 5; shl.b32 %r7, %r5, 2; add.u32 %r8, %r6, %r7; cvt.u64.u32 %rd1, %r8;
    add.s64 %rd2, %rd10, %rd1; add.s64 %rd3, %rd11, %rd1;
    ld.global.b32 %r20, [%rd2]; ld.global.b32 %r21, [%rd2+256]; ld.global.b32 %r22, [%rd2+16]; ld.global.b32 %r23, [%rd2+272];
    ld.global.b32 %r24, [%rd3]; ld.global.b32 %r25, [%rd3+16];
    mov.f32 %f1, 0f00000000;
    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
        {%f2, %f3, %f4, %f5}, {%r20, %r21, %r22, %r23}, {%r24, %r25}, {%f1, %f1, %f1, %f1};
    shl.b32 %r9, %r4, 5; shl.b32 %r26, %r5, 3; add.u32 %r27, %r9, %r26; cvt.u64.u32 %rd4, %r27; add.s64 %rd5, %rd12, %rd4;
    st.global.v2.f32 [%rd5], {%f2, %f3}; st.global.v2.f32 [%rd5+256], {%f4, %f5};""",
    "u64",
    "u64",
    "u64",
)


def _product(text: str) -> tuple[np.ndarray, np.ndarray]:
    torch.manual_seed(3)
    a, b, d = torch.randn(16, 16).bfloat16(), torch.randn(8, 16).bfloat16(), torch.zeros(16, 8)
    launch(text, a, b, d, block=32)
    codes = [each.view(torch.int16).numpy().view(np.uint16) for each in (a, b)]
    rule = tensor_core.instruction("sm_80", "mma.sync", "bf16", "bf16", "fp32")
    return d.numpy().view(np.uint32), tensor_core.product(rule, codes[0], codes[1].T)


def test_a_matrix_product_has_the_words_of_its_chip() -> None:
    words, expected = _product(PRODUCT)
    assert np.array_equal(words, expected)


def test_exchanged_fragments_give_other_words() -> None:
    words, expected = _product(replaced_once(PRODUCT, "{%r20, %r21, %r22, %r23}, {%r24", "{%r20, %r22, %r21, %r23}, {%r24"))
    assert not np.array_equal(words, expected)


@pytest.mark.parametrize(
    ("a_fragments", "outcome"), [("%r20, %r21, %r22, %r23", "pass"), ("%r20, %r22, %r21, %r23", "wrong words")]
)
def test_a_kernel_of_ptx_is_judged_by_the_contract_of_a_shipped_one(a_fragments: str, outcome: str) -> None:
    """As `benchmarks.pyptx_kernels` judges document 001: in place of the shipped launcher, by the words of its plan."""

    def of_one_instruction(a: torch.Tensor, bt: torch.Tensor) -> torch.Tensor:
        d = torch.empty((16, 8), device=a.device)
        ptx_kernel(PRODUCT.replace("%r20, %r21, %r22, %r23}, {%r24", f"{a_fragments}}}, {{%r24"))[1, 32](a, bt, d)
        return d

    plan = contract(SimpleNamespace(**vars(ampere_gemm) | {"ampere_gemm": of_one_instruction}))  # type: ignore[arg-type]
    case = plan.case({"m": 16, "n": 8, "k": 16}, {"fragments": "ld.shared"}, regime=plan.tutorial_regime)
    verdict = judge(case, target("emulated:sm_80"), plan, explained=False)
    assert verdict.outcome == outcome and verdict.basis.startswith("words by")


def test_lanes_shuffle_vote_and_reduce() -> None:
    text = kernel(
        """
    shfl.sync.bfly.b32 %r4|%p1, %r0, 5, 31, 0xffffffff;
    shfl.sync.up.b32 %r5, %r0, 3, 0, 0xffffffff;
    and.b32 %r6, %r0, 1; setp.eq.u32 %p2, %r6, 1;
    vote.sync.ballot.b32 %r7, %p2, 0xffffffff;
    redux.sync.add.u32 %r8, %r0, 0xffffffff;
    mul.wide.u32 %rd1, %r0, 16; add.s64 %rd2, %rd10, %rd1;
    st.global.v4.b32 [%rd2], {%r4, %r5, %r7, %r8};""",
        "u64",
    )
    out = torch.zeros(64, 4, dtype=torch.int32)
    launch(text, out, block=64)
    thread = torch.arange(64)
    lane = thread % 32
    assert torch.equal(out[:, 0], (thread ^ 5).int()) and torch.equal(out[:, 1], torch.where(lane < 3, thread, thread - 3).int())
    assert set(out[:, 2].tolist()) == {0xAAAAAAAA - (1 << 32)} and out[0, 3] == 496 and out[32, 3] == 496 + 32 * 32


def test_lanes_find_those_with_their_word() -> None:
    text = kernel(
        """
    and.b32 %r4, %r0, 3;
    match.any.sync.b32 %r5, %r4, 0xffffffff;
    match.all.sync.b32 %r6|%p1, %r4, 0xffffffff;
    match.all.sync.b32 %r7|%p2, %r2, 0xffffffff;
    selp.u32 %r8, 1, 0, %p1; selp.u32 %r9, 2, 0, %p2; add.u32 %r8, %r8, %r9;
    mul.wide.u32 %rd1, %r0, 16; add.s64 %rd2, %rd10, %rd1;
    st.global.v4.b32 [%rd2], {%r5, %r6, %r7, %r8};""",
        "u64",
    )
    out = torch.zeros(32, 4, dtype=torch.int32)
    launch(text, out, block=32)
    expected = [0x11111111 << lane % 4 for lane in range(32)]
    assert [word % (1 << 32) for word in out[:, 0].tolist()] == expected
    assert set(out[:, 1].tolist()) == {0} and set(out[:, 2].tolist()) == {-1} and set(out[:, 3].tolist()) == {2}


NAMED = kernel(
    """
    mov.u32 %r5, tile; shl.b32 %r6, %r0, 2; add.u32 %r7, %r5, %r6;
    setp.lt.u32 %p1, %r0, 64;
    @%p1 bra PRODUCE;
    bar.sync 1, 128;
    ld.shared.b32 %r9, [%r7+-256];
    mul.wide.u32 %rd1, %r0, 4; add.s64 %rd2, %rd10, %rd1;
    st.global.b32 [%rd2+-256], %r9;
    bra DONE;
PRODUCE:
    st.shared.b32 [%r7], %r0;
    bar.arrive 1, 128;
DONE:""",
    "u64",
    shared=".shared .align 4 .b8 tile[256];",
)


def test_threads_that_arrive_at_a_named_barrier_go_on_and_are_known() -> None:
    out = torch.zeros(64, dtype=torch.int32)
    launch(NAMED, out)
    assert torch.equal(out, torch.arange(64, dtype=torch.int32))
    with pytest.raises(EmulatedFault, match="deadlock"):
        launch(replaced_once(NAMED, "bar.arrive 1, 128;", "bar.arrive 2, 128;"), out)
    with pytest.raises(EmulatedFault, match="race"):
        store, arrival = "st.shared.b32 [%r7], %r0;", "bar.arrive 1, 128;"
        launch(replaced_once(NAMED, f"{store}\n    {arrival}", f"{arrival}\n    {store}"), out)


def test_a_barrier_reduces_over_the_threads_that_meet() -> None:
    text = kernel(
        """
    setp.lt.u32 %p1, %r0, 40;
    bar.red.popc.u32 %r4, 0, %p1;
    bar.red.or.pred %p2, 0, %p1; bar.red.and.pred %p3, 0, !%p1;
    selp.u32 %r5, 1, 0, %p2; selp.u32 %r6, 2, 0, %p3; add.u32 %r5, %r5, %r6;
    mul.wide.u32 %rd1, %r3, 8; add.s64 %rd2, %rd10, %rd1;
    st.global.v2.b32 [%rd2], {%r4, %r5};""",
        "u64",
    )
    out = torch.zeros(256, 2, dtype=torch.int32)
    launch(text, out, grid=2)
    assert set(out[:, 0].tolist()) == {40} and set(out[:, 1].tolist()) == {1}


def test_what_ptxas_does_not_take_is_refused_with_its_sentence() -> None:
    """The machine would run both. A version of PTX that no ptxas reads yet has no verdict."""
    text = kernel("    mov.b32 %r4, 7; st.global.b32 [%rd10], %r4;", "u64")
    wide = replaced_once(text, "st.global.b32 [%rd10], %r4", "st.global.b64 [%rd10], %r4")
    large = replaced_once(text, ".address_size 64", ".address_size 64\n.shared .align 4 .b8 tile[65536];").replace(
        "%r4, 7", "%r4, tile"
    )
    for broken, said in (
        (wide, r"line \d+; error   : Arguments mismatch for instruction 'st'"),
        (large, "uses too much shared data"),
    ):
        with pytest.raises(ValueError, match=f"ptxas does not take the PTX of kernel: .*{said}"):
            launch(broken, torch.zeros(2, dtype=torch.int32), block=1)
    y = torch.zeros(1, dtype=torch.int32)
    launch(replaced_once(text, ".version 8.5", ".version 99.0"), y, block=1)
    assert y.item() == 7


def test_a_struct_of_a_pointer_takes_its_tensor() -> None:
    """As CuTe DSL makes it; and a pointer as NVVM 20 declares it, a modifier apart from its instruction as TileLang writes it."""
    text = kernel("    mov.b32 %r4, 7; st.global .b32 [%rd10], %r4; st.global.b32 [%rd11], %r4;", "u64", "u64")
    text = replaced_once(text, ".param .u64 p0", ".param .align 8 .b8 p0[8]")
    x, y = torch.zeros(2, 1, dtype=torch.int32)
    launch(replaced_once(text, ".param .u64 p1", ".param .u64 .ptr .align 1 p1"), x, y, block=1)
    assert (x.item(), y.item()) == (7, 7)


def test_a_vector_of_atomics_is_one_for_each_element() -> None:
    text = kernel("    mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f40000000;\n    red.global.add.v2.f32 [%rd10], {%f1, %f2};", "u64")
    out = torch.zeros(2)
    launch(text.replace("sm_80", "sm_90"), out, grid=3)
    assert out.tolist() == [384.0, 768.0]


def test_atomics_of_many_threads_are_one_after_another() -> None:
    text = kernel("    atom.global.add.u32 %r4, [%rd10], 2;\n    mul.wide.u32 %rd1, %r3, 4; add.s64 %rd2, %rd11, %rd1;\n"
                  "    st.global.b32 [%rd2], %r4;", "u64", "u64")  # fmt: skip
    count, seen = torch.zeros(1, dtype=torch.int32), torch.zeros(512, dtype=torch.int32)
    launch(text, count, seen, grid=4)
    assert count.item() == 1024 and sorted(seen.tolist()) == list(range(0, 1024, 2))


def add_to_zeros(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    text = replaced_once(ADD_ONE, "st.global.f32 [%rd3], %f2;", "red.global.add.f32 [%rd3], %f2;")
    ptx_kernel(text)[-(-x.numel() // 128), 128](x, y, x.numel())
    return y


def test_words_that_atomics_leave_are_judged_by_a_bound() -> None:
    bv.assert_right(add_to_zeros, (torch.randn(96),), reference=lambda xp, x: x + 1.0, target="emulated:sm_90")


def test_a_register_that_the_machine_does_not_fill_is_refused() -> None:
    with pytest.raises(EmulatedFault, match=r"not modelled: line .*%smid"):
        launch(kernel("    mov.u32 %r4, %smid; st.global.b32 [%rd10], %r4;", "u64"), torch.zeros(1, dtype=torch.int32))


@pytest.mark.parametrize("clock", ["%clock64", "%globaltimer"])
def test_a_kernel_may_wait_by_a_clock_but_not_store_it(clock: str) -> None:
    text = kernel(
        f"""
    mov.u64 %rd1, {clock};
LOOP:
    mov.u64 %rd2, {clock}; sub.s64 %rd3, %rd2, %rd1; setp.lt.u64 %p1, %rd3, 2000;
    @%p1 bra LOOP;
    mul.wide.u32 %rd4, %r3, 4; add.s64 %rd5, %rd10, %rd4;
    st.global.b32 [%rd5], %r3;""",
        "u64",
    )
    out = torch.zeros(128, dtype=torch.int32)
    launch(text, out)
    assert torch.equal(out, torch.arange(128, dtype=torch.int32))
    stored = replaced_once(text, "st.global.b32 [%rd5], %r3;", "cvt.u32.u64 %r4, %rd3; st.global.b32 [%rd5], %r4;")
    with pytest.raises(EmulatedFault, match="not modelled: words of p0 depend on how fast a clock goes"):
        launch(stored, out)


COMPARED = """
    createpolicy.fractional.L2::evict_last.b64 %rd1, 1.0;
    ld.global.L1::evict_last.L2::cache_hint.b32 %r4, [%rd10], %rd1;
    mov.b32 %r6, 0x3C003C00; setp.lt.f16x2 %p1|%p2, %r4, %r6; setp.lt.u32 %p3|%p4, %r4, 7;
    setp.lt.xor.f16x2 %p5|%p6, %r4, %r6, %p3; selp.b32 %r9, 16, 0, %p5; selp.b32 %r10, 32, 0, %p6; or.b32 %r9, %r9, %r10;
    selp.b32 %r5, 1, 0, %p1; selp.b32 %r6, 2, 0, %p2; selp.b32 %r7, 4, 0, %p3; selp.b32 %r8, 8, 0, %p4;
    or.b32 %r5, %r5, %r6; or.b32 %r7, %r7, %r8; or.b32 %r5, %r5, %r7; or.b32 %r5, %r5, %r9; st.global.b32 [%rd10], %r5;"""


@pytest.mark.parametrize(
    ("halves", "found"),
    [((0.5, 2), 1 + 8 + 16), ((2, 0.5), 2 + 8 + 32), ((0, 0), 1 + 2 + 4), ((float("nan"), 1), 8), ((1, -1), 2 + 8 + 32)],
)
def test_a_comparison_may_set_two_predicates(halves: tuple[float, float], found: int) -> None:
    """Of both halves of f16x2, or one and its negation; the policy of a cache changes no word."""
    words = torch.tensor(halves, dtype=torch.float16).view(torch.int32)
    launch(kernel(COMPARED, "u64"), words, block=1)
    assert words.item() == found


JOINED = """
    and.b32 %r4, %r0, 1; setp.eq.u32 %p1, %r4, 1; setp.lt.u32 %p4, %r0, 20; setp.lt.u32 %p2, %r0, 0; setp.lt.u32 %p3, %r0, 0;
    @%p4 setp.lt.JOIN.u32 PLACES, %r0, 9, WITH;
    selp.b32 %r5, 1, 0, %p2; selp.b32 %r6, 2, 0, %p3; or.b32 %r5, %r5, %r6;
    mul.wide.u32 %rd1, %r0, 4; add.s64 %rd2, %rd10, %rd1; st.global.b32 [%rd2], %r5;"""


@pytest.mark.parametrize("places", ["%p2|%p3", "%p2|_", "_|%p3", "%p2"])
@pytest.mark.parametrize("join", ["and", "or", "xor"])
def test_a_comparison_joins_a_predicate_or_drops_a_result(join: str, places: str) -> None:
    """Of the comparison t with c: p joins t, q joins its negation (PTX ISA 9.7.6.2). Threads from 20 on are guarded away."""
    for negated in (False, True):
        text = JOINED.replace("JOIN", join).replace("PLACES", places).replace("WITH", "!%p1" if negated else "%p1")
        words = torch.full((32,), 9, dtype=torch.int32)
        launch(kernel(text, "u64"), words, block=32)
        thread = np.arange(32)
        joined = [getattr(np, f"logical_{join}")(t, (thread % 2 == 1) != negated) for t in (thread < 9, thread >= 9)]
        expected = (joined[0] * ("%p2" in places) + 2 * joined[1] * ("%p3" in places)) * (thread < 20)
        assert words.tolist() == expected.tolist()


def test_programs_that_write_one_word_race() -> None:
    text = kernel("    st.global.b32 [%rd10], %r1;", "u64")
    launch(text, torch.zeros(1, dtype=torch.int32), block=1)
    with pytest.raises(EmulatedFault, match="race: thread 0 of CTA 0 and thread 0 of CTA 1 write other words to one place of p0"):
        launch(text, torch.zeros(1, dtype=torch.int32), grid=2, block=1)


def test_an_unknown_instruction_is_refused_with_its_line_before_any_runs() -> None:
    out = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(EmulatedFault, match=r"not modelled: line 11 of the PTX: istypep\.texref"):
        launch(kernel("    st.global.b32 [%rd10], %r2;\n    istypep.texref %p1, %rd10;", "u64"), out)
    assert out.item() == 0


@pytest.mark.parametrize(("size", "said"), [((0,), "a grid or a block is one to three positive integers"), (4097, "at most")])
def test_a_shape_that_no_gpu_takes_is_refused(size: object, said: str) -> None:
    with emulated("sm_80"), pytest.raises(ValueError, match=said):
        ptx_kernel(ADD_ONE)[1, size](torch.zeros(1), torch.zeros(1), 1)  # type: ignore[index]


@pytest.mark.share(4)
@pytest.mark.compiles
def test_tests_under_emulate_launch_ptx(tmp_path: Path) -> None:
    """A test of the user's own: a right kernel passes, and one whose predicate is lost fails by name at its line of the PTX."""
    (tmp_path / "add_one.ptx").write_text(ADD_ONE)
    (tmp_path / "lost.ptx").write_text(replaced_once(ADD_ONE, "@%p1 bra DONE;", ""))
    (tmp_path / "test_ptx.py").write_text(
        """
import pytest, torch
import bitverdict as bv

@pytest.mark.parametrize("name", ["add_one", "lost"])
def test_adds_one(name):
    x, y = torch.randn(300, device="cuda"), torch.zeros(300, device="cuda")
    bv.ptx_kernel(f"{name}.ptx")[3, 128](x, y, 300)
    torch.testing.assert_close(y, x + 1)
"""
    )
    plugins = ["-p", "no:cacheprovider", "-p", "bitverdict.harness.frontends.pytest_options"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "--emulate", "sm_90", "test_ptx.py"]
    checkout = Path(bv.__file__).resolve().parents[1]
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, timeout=300)
    assert "1 failed, 1 passed" in ended.stdout, ended.stdout + ended.stderr
    assert "read of 4 bytes at" in ended.stdout and "FAILED test_ptx.py::test_adds_one[lost]" in ended.stdout
