"""Why mutants of shipped kernels survive their required cases. The page tells it beside them.

A reason is one of two sorts. *Nothing to see*: what the mutant computes is what the kernel computes, and no general rule of
`bitverdict.harness.mutants` shows it. *Not judged*: a difference that no required case is made to show. Each holds for the mutants
that it names, by id, and for no class of them: one that is not named here was not examined. The reasons were first given to whole
classes; the ids are the survivors of commit 7881a87 that those held for, without the classes that a general rule asks about by now.
"""

from __future__ import annotations

from bitverdict.harness.mutants.record import GeneratedMutant

NOTHING, NOT_JUDGED = "nothing to see", "not judged"
ARGUMENTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        f"{NOTHING}: the compiler puts a barrier where shared memory is used again, and the atomic that follows is one",
        (
            "ampere_gemm/ampere_gemm_kernel/barrier dropped/4",
            "hopper_matmul/hopper_matmul_kernel/barrier dropped/0",
            "pointer_gather_scatter_matmul/pointer_gather_scatter_matmul_kernel/barrier dropped/5",
            "split_k_matmul/split_k_matmul_kernel/barrier dropped/0",
        ),
    ),
    (
        f"{NOT_JUDGED}: what a pipelined loop prepares for later turns, or waits for; in the cases that come here nothing uses it",
        (
            "attention/attention_dk_dv_kernel/sm_90 carried value not updated/2",
            "attention/attention_dk_dv_kernel/sm_90 carried value not updated/4",
            "attention/attention_dk_dv_kernel/sm_90 carried value not updated/5",
            "attention/attention_dk_dv_kernel/sm_90 commit dropped/1",
            "attention/attention_dq_kernel/sm_90 commit dropped/2",
            "attention/attention_kernel/sm_90 wait dropped/4",
            "block_scaled_matmul/block_scaled_matmul_device_kernel/sm_100 byte count changed/7",
            "block_scaled_matmul/block_scaled_matmul_device_kernel/sm_100 byte count dropped/3",
            "block_scaled_matmul/block_scaled_matmul_device_kernel/sm_100 carried value not updated/4",
            "block_scaled_matmul/block_scaled_matmul_device_kernel/sm_100 carried value off by one/3",
            "block_scaled_matmul/block_scaled_matmul_device_kernel/sm_100 predicate off by one/0",
            "block_scaled_matmul/block_scaled_matmul_kernel/sm_100 carried value not updated/9",
            "block_scaled_matmul/block_scaled_matmul_kernel/sm_100 commit dropped/0",
            "block_scaled_matmul/block_scaled_matmul_kernel/sm_100 predicate dropped/1",
            "block_scaled_matmul/block_scaled_matmul_kernel/sm_100 predicate dropped/11",
            "block_scaled_matmul/block_scaled_matmul_kernel/sm_100 wait count off by one/3",
            "fp8_blockwise_matmul/fp8_blockwise_matmul_kernel/sm_90 carried value not updated/4",
            "fp8_blockwise_matmul/fp8_blockwise_matmul_kernel/sm_90 carried value not updated/5",
            "fp8_blockwise_matmul/fp8_blockwise_matmul_kernel/sm_90 predicate off by one/0",
            "matmul/matmul_kernel/sm_90 predicate dropped/1",
            "matmul/matmul_kernel/sm_90 predicate dropped/7",
            "small_mma/small_mma_kernel/sm_100 predicate dropped/0",
            "small_mma/small_mma_kernel/sm_100 predicate dropped/1",
            "split_k_matmul/split_k_matmul_kernel/sm_90 predicate dropped/0",
        ),
    ),
    (
        f"{NOT_JUDGED}: no required case has gradients and heads of a size off a power of two",
        ("attention/attention_dq_kernel/mask off by one/3",),
    ),
    (
        f"{NOTHING}: the first block rescales it by the exponential of minus infinity, which is zero",
        ("attention/attention_kernel/accumulator starts elsewhere/0",),
    ),
    (
        f"{NOTHING}: where one of the two is NaN the result is NaN either way, or neither can be NaN",
        (
            "attention/attention_kernel/sm_90 comparison of NaN/0",
            "attention/attention_kernel/sm_90 comparison of NaN/1",
            "cross_entropy/cross_entropy_kernel/sm_100 comparison of NaN/0",
            "dropout/dropout_kernel/sm_80 comparison of NaN/0",
            "matmul/matmul_kernel/sm_90 comparison of NaN/0",
            "quantize_mxfp/quantize_mxfp_kernel/sm_90 comparison of NaN/2",
            "quantize_mxfp/quantize_mxfp_kernel/sm_90 comparison of NaN/3",
            "quantize_mxfp/quantize_mxfp_kernel/sm_90 comparison of NaN/4",
            "quantize_mxfp/quantize_mxfp_kernel/sm_90 comparison of NaN/5",
            "quantize_mxfp/quantize_mxfp_kernel/sm_90 comparison of NaN/6",
        ),
    ),
    (
        f"{NOTHING}: the accumulator holds zeros before; if it held none, the emulated GPU would name an uninitialised read",
        (
            "block_scaled_matmul/block_scaled_matmul_device_kernel/sm_100 accumulate flag dropped/0",
            "block_scaled_matmul/block_scaled_matmul_device_kernel/sm_100 accumulate flag dropped/1",
            "block_scaled_matmul/block_scaled_matmul_kernel/sm_100 accumulate flag dropped/1",
        ),
    ),
    (
        f"{NOT_JUDGED}: no row has logits that all lie far below zero",
        ("cross_entropy/cross_entropy_kernel/sm_100 constant changed/4",),
    ),
    (
        f"{NOTHING}: it shows for one random number of 2^32, or in a key of a round that is not made",
        (
            "dropout/dropout_kernel/sm_80 constant changed/25",
            "dropout/dropout_kernel/sm_80 constant changed/6",
            "dropout/dropout_kernel/sm_80 mask off by one/2",
            "dropout/dropout_kernel/sm_80 mask off by one/3",
            "dropout/dropout_kernel/sm_80 operation exchanged/69",
        ),
    ),
    (
        f"{NOT_JUDGED}: every case hands in the result, of which it keeps rows",
        (
            "fused_gather_scatter_matmul/problem_of/choice forced/1",
            "fused_gather_scatter_matmul/problem_of/output of another type/0",
            "pointer_gather_scatter_matmul/problem_of/output of another type/0",
        ),
    ),
    (
        f"{NOT_JUDGED}: no case has operands that begin off 16 elements",
        ("grouped_matmul/grouped_matmul/comparison inverted/0",),
    ),
    (
        f"{NOT_JUDGED}: the offset leaves 32 bits only beyond 2^31 elements of contiguous memory, 4 GiB and more",
        (
            "grouped_matmul/grouped_matmul_kernel/cast dropped/6",
            "matmul/matmul_kernel/cast dropped/0",
            "rope/rope_kernel/cast to another type/0",
            "split_k_matmul/split_k_matmul_kernel/cast dropped/1",
            "split_k_matmul/split_k_matmul_kernel/cast to another type/1",
            "tma_gather/tma_gather_kernel/cast dropped/0",
        ),
    ),
    (
        f"{NOTHING}: a part of the autotuner's key alone",
        ("matmul/_order/choice forced/0",),
    ),
    (
        f"{NOTHING}: offsets become 64-bit numbers a little earlier",
        ("matmul/_reach/constant changed/0",),
    ),
    (
        f"{NOTHING}: the boxes are set before each launch",
        ("matmul/descriptors_of/block of another size/0",),
    ),
    (
        f"{NOTHING}: of a zero both branches of the activation make a zero",
        ("matmul/matmul_kernel/sm_90 comparison off by one/0",),
    ),
    (
        f"{NOTHING}: another of the ways to wait that the launcher offers, each of which is right",
        (
            "small_mma/small_mma/choice forced/0",
            "small_mma/small_mma/choice forced/1",
            "small_mma/small_mma/comparison inverted/1",
            "small_mma/small_mma/heuristic forced/4",
            "small_mma/small_mma/heuristic forced/5",
        ),
    ),
    (
        f"{NOT_JUDGED}: no case has a table of another rank",
        ("tma_scatter/row_padding/choice forced/0",),
    ),
    (
        f"{NOT_JUDGED}: an emulated GPU has registers without end",
        ("warp_specialized_gather_scatter_matmul/load_registers/another operation/0",),
    ),
)
"""(why, the mutants, by id, that survive for it)."""


def reason_of(mutant: GeneratedMutant) -> str:
    """Why `mutant` survives; empty where nobody has said."""
    return next((why for why, mutants in ARGUMENTS if mutant.id in mutants), "")
