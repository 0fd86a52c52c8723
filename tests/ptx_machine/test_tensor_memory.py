"""Contract under test: tcgen05 in PTX. Shipped kernels for sm_100 leave the words of their tile programs, PTX written by hand those
of the tensor-core models; what lacks a wait, a fence or a predicate, or has a wrong descriptor, column or scale, ends by name."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.ptx_machine.below_the_tile_program import PtxTwin
from bitverdict.harness.ptx_machine.launch import ptx_kernel
from bitverdict.reference import tensor_core
from tests.emulator import test_clusters
from tests.support import cluster_kernels
from tests.support.ptx_results import SM_100, required_case, results, rewritten

SHIPPED = {
    "A in tensor memory": ("small_mma", {"left": "tensor memory", "dtype": "fp16"}),
    "tf32": ("matmul", {"dtype": "fp32", "precision": "tf32"}),
    "int8": ("matmul", {"dtype": "int8"}),
    "a ring": ("blocked_matmul_pipelined", {"k": 195}),
    "partitions": ("warp_specialized_matmul", {}),
    "two products": ("attention", {}),
    "packed halves": ("tmem_copy", {"packed": False, "dtype": "int16"}),
    "16x256b": ("tmem_copy", {"atom": "16x256b", "filled_by": "tcgen05.cp"}),
    "16x128b": ("tmem_copy", {"atom": "16x128b"}),
    "16x64b": ("tmem_copy", {"atom": "16x64b", "filled_by": "tcgen05.cp"}),
    "mxfp8": ("block_scaled_matmul", {"format": "mxfp8"}),
    "mxfp4": ("block_scaled_matmul", {"format": "mxfp4"}),
    "nvfp4": ("block_scaled_matmul", {"format": "nvfp4"}),
    "fp4 beside fp8": ("block_scaled_matmul", {"format": "mixed", "descriptors": "host"}),
}


FORMS = {
    "A in tensor memory": ("ld.sync.aligned.16x32bx2", "st.sync.aligned.16x32bx2"),
    "two products": ("ld.sync.aligned.32x32b", "st.sync.aligned.32x32b"),
    "16x128b": ("ld.sync.aligned.16x128b", "st.sync.aligned.16x128b"),
    "16x256b": ("ld.sync.aligned.16x256b", "cp.cta_group::1.128x256b"),
    "16x64b": ("ld.sync.aligned.16x64b",),
    "mxfp8": ("cp.cta_group::1.warpx4.32x128b",),
}
"""Instructions that the PTX of a kernel must have: the tile program's machine, written apart, is the second model of each."""


@pytest.mark.parametrize("name", SHIPPED)
def test_ptx_of_sm_100_leaves_the_same_words(name: str) -> None:
    stem, fields = SHIPPED[name]
    texts: list[str] = []
    seen = results(required_case(stem, SM_100, **fields), lambda text: texts.append(text) or text, SM_100)  # type: ignore[func-returns-value]
    assert seen and all(result.words and not result.difference and not result.not_run for result in seen)
    assert all(f"tcgen05.{form}" in "".join(texts) for form in FORMS.get(name, ()))


SMALL = required_case("small_mma", SM_100, left="shared", dtype="fp16", k=32, completion="commit")
ACROSS = required_case("small_mma", SM_100, left="tensor memory", dtype="fp16", k=32, completion="commit")
RING = required_case("blocked_matmul_pipelined", SM_100, k=195)
SCALED = required_case("block_scaled_matmul", SM_100, format="mxfp4")
WAIT = r"mbarrier\.try_wait\.parity\.shared::cta\.b64 complete, \[%r\d+\], %r\d+;"
PASSED = "setp.eq.u32 complete, 0, 0;"


@pytest.mark.parametrize(
    ("case", "before", "after", "said"),
    [
        (SMALL, WAIT, PASSED, r"race: tcgen05\.ld.* of tensor memory that a tcgen05\.mma in flight writes"),
        (SMALL, r"@%p\d+ tcgen05\.commit[^;]*;", "", "deadlock: .* waits at an mbarrier"),
        (SMALL, r"tcgen05\.wait::st\.sync\.aligned;", "", r"race: tcgen05\.mma.* that a tcgen05\.st in flight writes"),
        (SMALL, r"tcgen05\.wait::ld\.sync\.aligned;", "", r"race: tcgen05\.dealloc.* that a tcgen05\.ld in flight reads"),
        (SMALL, r"@%p\d+ tcgen05\.dealloc[^;]*;", "", "deadlock: a CTA ends with 32 columns of tensor memory"),
        (SMALL, r"tcgen05\.dealloc(\S+) (%r\d+), 32;", r"tcgen05.dealloc\1 \2, 64;", "illegal address: .* no tcgen05.alloc"),
        (SMALL, r"(tcgen05\.alloc\S+ \[%r\d+\]), 32;", r"\1, 48;", "illegal instruction: .* of 48 columns"),
        (SMALL, r"(tcgen05\.mma.*\], )%rd10,", r"\1%rd8,", "differ"),
        (SMALL, r"\[ (%r\d+) \+ 0 \], %rd", r"[ \1 + 8 ], %rd", "illegal address: .* column 32, lane 0"),
        (SMALL, r"kind::f16 (.*), %p\d+;", r"kind::f16 \1, 0;", "differ"),
        (SMALL, r"@%p\d+ (tcgen05\.mma)", r"\1", r"race: tcgen05\.ld.* that a tcgen05\.mma in flight writes"),
        (SMALL, r"(x16\.b32 .*\[%r\d+) \+ 0\]", r"\1 + 2097152]", "illegal instruction: .* in its own quarter"),
        (ACROSS, r"@%p\d+ tcgen05\.st[^;]*;", "", "uninitialised read"),
        (RING, WAIT, PASSED, r"race: .* shared memory that a tcgen05\.mma in flight reads"),
        (SCALED, r"@%p\d+ tcgen05\.cp[^;]*;", "", "uninitialised read: .* never written"),
        (SCALED, r"tcgen05\.cp(\S+) \[ (%r\d+) \+ 0 \]", r"tcgen05.cp\1 [ \2 + 4 ]", "uninitialised read|differ|illegal"),
        (SCALED, r"kind::mxf4(\S*) (.*?\[.*?), \[ (%r\d+) \+ 0 \], \[ (%r\d+) ", r"kind::mxf4\1 \2, [ \4 + 0 ], [ \3 ", "differ"),
    ],
    ids=["no wait", "no commit", "no wait::st", "no wait::ld", "no dealloc", "wrong dealloc", "wrong columns", "descriptor",
         "column", "accumulator", "predicate", "quarter", "A never stored", "operand overwritten", "no scales",
         "scales elsewhere", "scales exchanged"],
)  # fmt: skip
def test_a_fault_of_tcgen05_is_seen(case: object, before: str, after: str, said: str) -> None:
    """Waits for a product: the last one, but in the ring, whose first one is for buffers that are loaded again."""
    places = slice(None) if before != WAIT else slice(0, 1) if case is RING else slice(-1, None)
    difference = results(case, rewritten(before, after, places), SM_100)[0].difference  # type: ignore[arg-type]
    assert re.search(said, difference), difference


# -- written by hand --------------------------------------------------------------------------------------------------------------
KERNEL = """.version 8.7
.target sm_100a
.address_size 64
.shared .align 1024 .b8 left[8192];
.shared .align 1024 .b8 right[8192];
.shared .align 8 .b8 barrier[16];
.shared .align 8 .b8 columns[8];
.visible .entry kernel(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u32 p3, .param .u64 p4, .param .u64 p5)
{
    .reg .pred %p<8>; .reg .b32 %r<80>; .reg .b64 %rd<24>;
    mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 32; setp.eq.u32 %p1, %r0, 0; setp.gt.u32 %p4, %r0, 999;
    ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; ld.param.u64 %rd2, [p2]; ld.param.u32 %r1, [p3];
    ld.param.u64 %rd6, [p4]; ld.param.u64 %rd7, [p5];
    mov.u32 %r10, left; mov.u32 %r11, right; mov.u32 %r12, barrier; mov.u32 %r13, columns;
    @%p0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r13], 64;
    @%p1 mbarrier.init.shared::cta.b64 [%r12], 1;
    @%p1 mbarrier.init.shared::cta.b64 [%r12+8], 128;
    shl.b32 %r3, %r0, 2; cvt.u64.u32 %rd3, %r3; mov.u32 %r4, 0;
COPY:
    add.u32 %r5, %r10, %r3; add.u32 %r6, %r11, %r3; add.u64 %rd4, %rd0, %rd3; add.u64 %rd5, %rd1, %rd3;
    ld.global.b32 %r7, [%rd4]; ld.global.b32 %r8, [%rd5]; st.shared.b32 [%r5], %r7; st.shared.b32 [%r6], %r8;
    add.u32 %r3, %r3, 512; add.u64 %rd3, %rd3, 512; add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 16;
    @%p2 bra COPY;
    fence.proxy.async.shared::cta;
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;
    ld.shared.b32 %r14, [columns];
    and.b32 %r15, %r0, 96; shl.b32 %r15, %r15, 16; add.u32 %r15, %r15, %r14;
    shr.u32 %r16, %r10, 4; cvt.u64.u32 %rd9, %r16; or.b64 %rd6, %rd6, %rd9;
    shr.u32 %r17, %r11, 4; cvt.u64.u32 %rd9, %r17; or.b64 %rd7, %rd7, %rd9;
    mov.u32 %r18, 0;
BODY
    @%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r12];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r12], %r18;
    @!%p3 bra WAIT;
    shl.b32 %r3, %r0, 6; cvt.u64.u32 %rd3, %r3; add.u64 %rd8, %rd2, %rd3;
LOAD
    st.global.v4.b32 [%rd8], {%r20, %r21, %r22, %r23}; st.global.v4.b32 [%rd8+16], {%r24, %r25, %r26, %r27};
    st.global.v4.b32 [%rd8+32], {%r28, %r29, %r30, %r31}; st.global.v4.b32 [%rd8+48], {%r32, %r33, %r34, %r35};
    tcgen05.wait::ld.sync.aligned;
    bar.sync 0;
    @%p0 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
    @%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r14, 64;
    ret;
}
"""
REGISTERS = ", ".join(f"%r{number}" for number in range(20, 36))
LOADED = f"    tcgen05.ld.sync.aligned.32x32b.x16.b32 {{{REGISTERS}}}, [%r15];"
STORED = (
    "\n".join(
        f"    mad.lo.u32 %r{number}, %r0, 64, {number - 20}; add.u32 %r{number}, %r{number}, FIRST;" for number in range(20, 36)
    )
    + f"\n    tcgen05.st.sync.aligned.32x32b.x16.b32 [%r15 + FIRST], {{{REGISTERS}}};\n    tcgen05.wait::st.sync.aligned;\n"
)
M, N = 128, 16


def layout_word(rows: int) -> int:
    """A descriptor of K-major rows of 32 bytes without a swizzle: groups of eight rows follow one another, first the first 16 bytes
    of all of them."""
    return 8 << 32 | 1 << 46 | rows << 16


def image(rows: np.ndarray) -> torch.Tensor:
    """The 8 KiB of shared memory of rows [n, 32] bytes, as `layout_word` says."""
    halves = rows.reshape(len(rows), 2, 16).transpose(1, 0, 2).reshape(-1)
    return torch.from_numpy(np.concatenate([halves, np.zeros(8192 - halves.size, np.uint8)]))


def launch(body: str, left: np.ndarray, right: np.ndarray, descriptor: int = 0, load: str = LOADED) -> np.ndarray:
    """The words that each of 128 threads has loaded, (128, 16)."""
    found = torch.zeros(128, 16, dtype=torch.int32)
    with emulated("sm_100"):
        kernel = ptx_kernel(KERNEL.replace("BODY", body).replace("LOAD", load), "kernel")
        kernel[1, 128](image(left), image(right), found, descriptor, layout_word(len(left)), layout_word(len(right)))
    return found.numpy().view(np.uint32)


FORMATS = {"f16": (16, 0, "fp16"), "bf16": (16, 1, "bf16"), "tf32": (32, 2, "tf32"), "e4m3": (8, 0, "e4m3"), "e5m2": (8, 1, "e5m2"),
           "e2m3": (6, 3, "e2m3"), "e3m2": (6, 4, "e3m2"), "e2m1": (4, 5, "e2m1"), "u8": (8, 0, ""), "s8": (8, 1, "")}  # fmt: skip


def rows_of(codes: np.ndarray, width: int) -> np.ndarray:
    """[rows, 32] bytes of codes [rows, k]: those of 4 and 6 bits 16 in the lower bits of 16 bytes."""
    bits = (codes[:, :, None] >> np.arange(width, dtype=codes.dtype) & 1).astype(np.uint8)  # (rows, k, width)
    if width < 8:
        bits = np.pad(bits.reshape(len(codes), -1, 16 * width), ((0, 0), (0, 0), (0, 128 - 16 * width)))
    return np.packbits(bits.reshape(len(codes), -1), axis=1, bitorder="little")


def codes_of(kind: str, rows: int, seed: int) -> np.ndarray:
    width = FORMATS[kind][0]
    draw = np.random.default_rng(seed)
    k = 256 // max(width, 8)
    if width >= 16:
        values = draw.standard_normal((rows, k)).astype(np.float16 if kind == "f16" else np.float32)
        return values.view(np.uint16) if kind == "f16" else values.view(np.uint32) >> (16 if kind == "bf16" else 0)
    top = {8: 0x70, 6: 64, 4: 16}[width]  # no NaN among them
    return draw.integers(0, top, (rows, k)).astype(np.uint8)


@pytest.mark.parametrize(
    ("kind", "left", "right", "result", "is_negated"),
    [
        ("f16", "f16", "f16", "f32", False), ("f16", "bf16", "bf16", "f32", True), ("f16", "f16", "f16", "f16", False),
        ("tf32", "tf32", "tf32", "f32", True), ("f8f6f4", "e4m3", "e5m2", "f32", True), ("f8f6f4", "e2m3", "e4m3", "f32", True),
        ("f8f6f4", "e3m2", "e2m3", "f32", False), ("f8f6f4", "e2m1", "e3m2", "f16", True), ("i8", "u8", "s8", "s32", False),
    ],
)  # fmt: skip
def test_a_product_has_the_words_of_its_kind(kind: str, left: str, right: str, result: str, is_negated: bool) -> None:
    a, b = codes_of(left, M, 1), codes_of(right, N, 2)
    descriptor = N >> 3 << 17 | M >> 4 << 24 | {"f16": 0, "f32": 1, "s32": 2}[result] << 4 | is_negated << 13
    descriptor |= FORMATS[left][1] << 7 | FORMATS[right][1] << 10
    body = f"    @%p1 tcgen05.mma.cta_group::1.kind::{kind} [%r14], %rd6, %rd7, %r1, %p4;"
    words = launch(body, rows_of(a, FORMATS[left][0]), rows_of(b, FORMATS[right][0]), descriptor)
    if kind == "i8":
        expected = (a.astype(np.int32) @ b.view(np.int8).astype(np.int32).T).view(np.uint32)
    else:
        names = FORMATS[left][2], FORMATS[right][2], {"f16": "fp16", "f32": "fp32"}[result]
        signed = a ^ a.dtype.type(1 << FORMATS[left][0] - 1) if is_negated else a
        if kind == "tf32":
            signed, b = (codes & np.uint32(0xFFFFE000) for codes in (signed, b))
        expected = tensor_core.product(tensor_core.instruction("sm_100", "tcgen05", *names), signed, b.T).astype(np.uint32)
    assert np.array_equal(words, expected) and words.any()


NOTHING = np.zeros((8, 32), np.uint8)


@pytest.mark.parametrize(
    ("shape", "places"),
    [
        ("16x64b.x16", {(1, 0): (8, 0), (2, 0): (0, 1), (4, 0): (1, 0), (31, 3): (15, 7)}),
        ("16x128b.x8", {(1, 0): (0, 1), (4, 0): (1, 0), (0, 1): (8, 0), (31, 3): (15, 7)}),
        ("16x256b.x4", {(0, 1): (0, 1), (1, 0): (0, 2), (4, 2): (9, 0), (3, 4): (0, 14)}),
        ("16x32bx2.x16", {(5, 3): (5, 3), (16, 2): (0, 4), (31, 11): (15, 13)}),
    ],
)
def test_registers_of_a_shape_come_from_their_lane_and_column(shape: str, places: dict) -> None:
    """(lane, register): (row, column), read off figures 183 to 187 of the PTX ISA."""
    split = ", 2" if "x2." in shape else ""
    load = f"    tcgen05.ld.sync.aligned.{shape}.b32 {{{REGISTERS}}}, [%r15]{split};"
    words = launch("".join(STORED.replace("FIRST", first) for first in ("0", "16")), NOTHING, NOTHING, load=load)
    for (lane, register), (row, column) in places.items():
        assert words[lane, register] == 64 * row + column and words[96 + lane, register] == 64 * (96 + row) + column


@pytest.mark.parametrize(
    ("form", "rows_of_lanes"),
    [
        ("128x128b", range(128)),
        ("64x128b.warpx2::02_13", [lane % 64 for lane in range(128)]),
        ("64x128b.warpx2::01_23", [lane // 64 * 32 + lane % 32 for lane in range(128)]),
        ("32x128b.warpx4", [lane % 32 for lane in range(128)]),
    ],
)
def test_rows_are_copied_to_their_lanes(form: str, rows_of_lanes: object) -> None:
    rows = np.random.default_rng(3).integers(0, 256, (128, 32)).astype(np.uint8)
    body = f"{STORED.replace('FIRST', '0')}    bar.sync 0;\n    @%p1 tcgen05.cp.cta_group::1.{form} [%r14], %rd6;"
    words = launch(body, rows, NOTHING)
    assert np.array_equal(words[:, :4], rows.view(np.uint32)[list(rows_of_lanes), :4])  # type: ignore[call-overload]
    assert words[5, 4] == 64 * 5 + 4


LOOP = "WAIT:\n    mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r12], %r18;\n    @!%p3 bra WAIT;"
WITHOUT_LAST_WARP = (
    f"setp.gt.u32 %p5, %r0, 95; @%p5 bra OVER;\n{LOOP}\nOVER: setp.eq.u32 %p6, %r0, 96; @%p6 st.shared.b32 [%r10], %r18;"
)
PRODUCT = "    @%p1 tcgen05.mma.cta_group::1.kind::f16 [%r14], %rd6, %rd7, %r1, %p4;"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("", "", ""),
        ("fence.proxy.async.shared::cta;", "", r"race: tcgen05\.mma.* no fence\.proxy\.async between them"),
        ("@%p1 tcgen05.commit", "setp.eq.u32 %p5, %r0, 32; @%p5 tcgen05.commit", r"race: tcgen05\.ld.* a tcgen05\.mma in flight"),
        ("bar.sync 0;\n    tcgen05.fence::after", "tcgen05.fence::after", "race"),
        ("%rd7, %r1, %p4", "%rd7, %r1, {%r18, %r18, %r18, %r18}, %p4", ""),
        ("%rd7, %r1, %p4", "%rd7, %r1, {%r18, %r18, %r1, %r18}, %p4", r"not modelled: tcgen05\.mma\S+ with disabled lanes"),
        ("%rd7, %r1, %p4", "%rd7, %r1, %p4, 1", r"not modelled: line \d+ of the PTX: tcgen05\.mma"),
        ("cta_group::1", "cta_group::2", r"illegal instruction: tcgen05\.mma\S+ in a cluster of 1 CTAs"),
        ("relinquish_alloc_permit.cta_group::1.sync.aligned;", "alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r13], 512;",
         "deadlock: .* waits for 64 columns that its own CTA has"),
        ("shl.b32 %r3, %r0, 6;", "shl.b32 %r3, %r0, 6; st.shared.b32 [%r10], %r0;", "race"),
        ("WAIT:", "    st.shared.b32 [%r10], %r18;\nWAIT:", r"race: write of shared memory that a tcgen05\.mma in flight reads"),
        (LOOP, WITHOUT_LAST_WARP, "race: thread 96 .* shared memory, which an asynchronous operation read: nothing orders"),
    ],
    ids=["right", "no proxy fence", "commit of another thread", "no barrier", "no lanes disabled", "lanes disabled",
         "scaled accumulator", "two CTAs", "too many columns", "threads overwrite an operand", "operand overwritten in flight",
         "operand overwritten unasked"],
)  # fmt: skip
def test_a_fault_of_handwritten_tcgen05_is_seen(before: str, after: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = KERNEL.replace("BODY", PRODUCT)
    assert before in text
    monkeypatch.setattr("tests.ptx_machine.test_tensor_memory.KERNEL", text.replace(before, after))
    descriptor = N >> 3 << 17 | M >> 4 << 24 | 1 << 4
    if not said:
        launch("", np.ones((M, 32), np.uint8), np.ones((N, 32), np.uint8), descriptor)
        return
    with pytest.raises(EmulatedFault, match=said):
        launch("", np.ones((M, 32), np.uint8), np.ones((N, 32), np.uint8), descriptor)


@pytest.mark.parametrize(
    ("ctas", "rows", "is_pair", "before", "after", "said"),
    [
        ((2, 1), 128, True, "", "", ""),
        ((2, 2), 128, True, "", "", ""),
        ((1, 2), 128, False, "", "", ""),
        ((2, 1), 64, True, "", "", ""),
        ((2, 1), 128, True, r"mov\.b16 \t(%rs\d+), 3;", r"mov.b16 \1, 1;", "deadlock: .* waits at an mbarrier"),
        ((2, 1), 128, True, r"mov\.b16 \t(%rs\d+), 3;", r"mov.b16 \1, 7;", "illegal instruction: .* 0b111 of a cluster of 2"),
        ((2, 1), 128, True, WAIT, PASSED, r"race: tcgen05\.ld.* a tcgen05\.mma in flight writes"),
        ((2, 1), 128, True, r"kind::f16 (.*), %rd\d+, (%r\d+), ", r"kind::f16 \1, %rd8, \2, ", "differ"),
    ],
    ids=["a pair", "two pairs", "multicast commits", "a pair of 64 rows", "commit to one CTA", "commit to no CTA", "no wait",
         "descriptor"],
)  # fmt: skip
def test_a_product_of_two_ctas_in_ptx(ctas: tuple[int, int], rows: int, is_pair: bool, before: str, after: str, said: str) -> None:
    places = slice(None) if before != WAIT else slice(-1, None)
    twin = PtxTwin(rewrite=rewritten(before, after, places) if before else str)
    with emulated("sm_100", "eager", options=LaunchOptions(takes_cpu_tensors=True, probes=(twin,))):
        test_clusters.product(cluster_kernels, ctas, two=is_pair, rows=rows)
    (result,) = twin.results
    assert re.search(said, result.difference) if said else result.words and not result.difference


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("", "", ""),
        (r"(mxf8f6f4.*), \[ (%r\d+) \+ 0 \], \[ (%r\d+) \+ 0 \]", r"\1, [ \3 + 0 ], [ \2 + 0 ]", "differ"),
        (r"tcgen05\.wait::st\.sync\.aligned;", "", r"race: tcgen05\.mma.* a tcgen05\.st in flight writes"),
    ],
    ids=["right", "scales exchanged", "no wait::st"],
)
def test_a_product_of_two_ctas_has_block_scales_in_ptx(before: str, after: str, said: str) -> None:
    twin = PtxTwin(rewrite=rewritten(before, after) if before else str)
    with emulated("sm_100", "eager", options=LaunchOptions(takes_cpu_tensors=True, probes=(twin,))):
        test_clusters.scaled_product(cluster_kernels)
    (result,) = twin.results
    assert re.search(said, result.difference) if said else result.words and not result.difference


ARRIVAL = """
    tcgen05.fence::before_thread_sync;
    mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%r12+8];
STORED:
    mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 %p5, [%r12+8], %r18;
    @!%p5 bra STORED;
    tcgen05.fence::after_thread_sync;
    setp.eq.u32 %p4, %r18, 0;
"""


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("", "", ""),
        ("tcgen05.fence::before_thread_sync;", "", r"race: thread 0 .* writes column 0, lane 32 .*thread 32 of CTA 0 wrote"),
        (".arrive.relaxed.cta", ".arrive", ""),
        ("tcgen05.wait::st.sync.aligned;", "", r"race: tcgen05\.mma.* a tcgen05\.st in flight writes"),
    ],
    ids=["right", "no fence", "an arrival that releases", "no wait::st"],
)
def test_a_fence_orders_before_a_relaxed_arrival(before: str, after: str, said: str) -> None:
    """All threads store the accumulator on which one issues a product (PTX ISA 9.7.16.6.4.4)."""
    body = (STORED.replace("FIRST", "0") + ARRIVAL + PRODUCT).replace(before, after)
    arguments = np.zeros((M, 32), np.uint8), np.zeros((N, 32), np.uint8), N >> 3 << 17 | M >> 4 << 24 | 1 << 4
    if said:
        with pytest.raises(EmulatedFault, match=said):
            launch(body, *arguments)
    else:
        assert launch(body, *arguments).view(np.float32)[3, 2] == np.array(3 * 64 + 2, np.uint32).view(np.float32)


APART = f"""
    @!%p1 bra OTHERS;
READY:
    mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r12+8], %r18;
    @!%p5 bra READY;
{PRODUCT}
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r12];
    bra WAIT;
OTHERS:
    setp.eq.u32 %p6, %r0, 64;
    @%p6 mbarrier.arrive.shared::cta.b64 _, [%r12+8], 128;
"""


def test_threads_of_a_warp_that_waited_apart_load_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that issues finds the phase complete that the others wait for already."""
    text = KERNEL.replace("BODY\n    @%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r12];", APART)
    monkeypatch.setattr("tests.ptx_machine.test_tensor_memory.KERNEL", text)
    ones = np.full((M, 16), 1, np.float16).view(np.uint8)
    words = launch("", ones, ones[:N], N >> 3 << 17 | M >> 4 << 24 | 1 << 4)
    assert (words.view(np.float32) == 16).all()
