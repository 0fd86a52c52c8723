"""Why mutants of shipped kernels survive their required cases. The page tells it beside them.

A reason is one of two sorts. *Nothing to see*: what the mutant computes is what the kernel computes, and no general rule of
`bitverdict.harness.mutants` shows it. *Not judged*: a difference that no required case is made to show. Each holds for the mutants
that it names, by id: one that is not named here was not examined. Most were given to a class of survivors of commit ed05606, by the
operator and the line, and written out by id. Ten mutants (barriers dropped, comparisons of NaN) were checked one by one in the tile
program, and those of the last eight reasons were read in the source. None is a proof: what a rule shows is equivalent, and stands
here no longer.
"""

from __future__ import annotations

from bitverdict.harness.mutants.record import GeneratedMutant

NOTHING, NOT_JUDGED = "nothing to see", "not judged"
ARGUMENTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        f"{NOTHING}: the next commit takes the copies along, and every wait is for none in flight",
        (
            "attention/attention_dk_dv_kernel/sm_90 commit dropped/1",
            "attention/attention_dq_kernel/sm_90 commit dropped/2",
        ),
    ),
    (
        f"{NOTHING}: no generic write of shared memory since the fence of the same turn",
        ("attention/attention_dk_dv_kernel/sm_90 fence dropped/3",),
    ),
    (
        f"{NOTHING}: the drain behind the loop; nothing of shared memory is used behind it",
        ("attention/attention_kernel/sm_90 wait dropped/4",),
    ),
    (
        f"{NOTHING}: the first block rescales it by the exponential of minus infinity, which is zero",
        (
            "attention/attention_kernel/accumulator starts elsewhere/0",
            "attention/attention_kernel/accumulator starts elsewhere/1",
        ),
    ),
    (
        f"{NOTHING}: the product of a 32-bit constant by 1 has no upper half, as by 0",
        ("dropout/dropout_kernel/sm_80 constant changed/27",),
    ),
    (
        f"{NOTHING}: the word is not negative behind the choice that inverts negative ones",
        ("dropout/dropout_kernel/sm_80 cast exchanged/0",),
    ),
    (
        f"{NOTHING}: it waits for parity 1 of a fresh barrier, which returns at once",
        ("fused_gather_scatter_matmul/Accumulator.settle/predicate dropped/0",),
    ),
    (
        f"{NOTHING}: blocks of K past the last, which are masked or outside of the descriptor, and add zeros",
        (
            "blocked_matmul_pipelined/blocked_matmul_pipelined_kernel/sm_100 constant changed here/3",
            "blocked_matmul_pipelined/blocked_matmul_pipelined_kernel/sm_100 division dropped/0",
            "fused_gather_scatter_matmul/fused_gather_scatter_matmul_kernel/sm_100 constant changed here/6",
        ),
    ),
    (
        f"{NOTHING}: both ways of loading put the same words into the buffer",
        ("pointer_gather_scatter_matmul/pointer_gather_scatter_matmul/comparison inverted/1",),
    ),
    (
        f"{NOTHING}: the kernel never calls that function",
        ("warp_specialized_gather_scatter_matmul/problem_of/choice forced/0",),
    ),
    (
        f"{NOTHING}: ALIGNED tells of sizes and offsets, which hold wherever an operand begins",
        ("grouped_matmul/grouped_matmul/comparison inverted/0",),
    ),
    (
        f"{NOTHING}: they change the edge that is taken for K = 0 alone, which the launcher refuses",
        ("hopper_matmul/hopper_matmul_kernel/sm_90 accumulator begins with one/0",),
    ),
    (
        f"{NOTHING}: a column is below 2^31, and the row beside it has 64 bits, so their sum has",
        ("split_k_matmul/split_k_matmul_kernel/cast dropped/1",),
    ),
    (
        f"{NOTHING}: the clause asks for a multiple of 16 bytes, which remainders by 16 and by 32 answer alike",
        ("block_scaled_matmul/problem_of/and for or/0",),
    ),
    (
        f"{NOTHING}: a workspace four times as large",
        ("block_scaled_matmul/_launch/output of another type/1",),
    ),
    (
        f"{NOTHING}: the scales are uint8 already, or lie past K, where elements are zeros",
        ("block_scaled_matmul/load_scales/cast dropped/2",),
    ),
    (
        f"{NOTHING}: the sum is compared with 512 alone",
        ("tmem_copy/Allocation.cells/minimum for maximum/1",),
    ),
    (
        f"{NOTHING}: how shared memory is swizzled decides bank conflicts, no word",
        (
            "ampere_gemm/swizzled/another axis/0",
            "pointer_gather_scatter_matmul/swizzled/another axis/0",
        ),
    ),
    (
        f"{NOTHING}: which thread holds an element decides time; no sum of this kernel changes its order by it",
        ("hopper_matmul/accumulated/layout turned/1",),
    ),
    (
        f"{NOTHING}: rows and columns of size 0 make a launch of no programs, or one whose lanes are all masked",
        (
            "dropout/_dropped/and for or/0",
            "quantize_mxfp/quantize_mxfp/and for or/0",
            "swiglu/swiglu/and for or/0",
        ),
    ),
    (
        f"{NOTHING}: the order of tiles decides what lies in the cache; each tile is computed alike",
        (
            "warp_specialized_gather_scatter_matmul/group_of/comparison inverted/0",
            "warp_specialized_matmul/group_of/comparison inverted/0",
        ),
    ),
    (
        f"{NOTHING}: which launches the autotuner times through a graph decides no word",
        (
            "matmul/_launch/heuristic forced/0",
            "matmul/_launch/mask off by one/0",
            "matmul/_tuner/comparison inverted/0",
        ),
    ),
    (
        f"{NOT_JUDGED}: the offset leaves 32 bits only beyond 2^31 elements of contiguous memory, 4 GiB and more",
        (
            "attention/attention_dq_kernel/cast dropped/2",
            "attention/attention_dq_kernel/cast to another type/0",
            "grouped_matmul/grouped_matmul_kernel/cast dropped/0",
            "grouped_matmul/grouped_matmul_kernel/cast dropped/6",
            "grouped_matmul/grouped_matmul_kernel/cast to another type/8",
            "matmul/matmul_kernel/cast dropped/0",
            "rope/rope_kernel/cast dropped/0",
            "rope/rope_kernel/cast to another type/0",
            "split_k_matmul/add_parts_kernel/cast dropped/0",
            "split_k_matmul/split_k_matmul_kernel/cast to another type/1",
            "tma_gather/tma_gather_kernel/cast dropped/0",
            "tma_gather/tma_gather_kernel/cast to another type/1",
        ),
    ),
    (
        f"{NOTHING}: a larger block than the row, whose other lanes are masked",
        ("softmax/block_of/another operation/1",),
    ),
    (
        f"{NOTHING}: one tile more, which stores nothing",
        ("warp_specialized_gather_scatter_matmul/warp_specialized_gather_scatter_matmul_kernel/sm_100 constant changed here/1",),
    ),
    (
        f"{NOTHING}: a grid of programs past the last tile, of which each finds every lane masked",
        ("tma_scatter/tma_scatter/grid too large/0",),
    ),
    (
        f"{NOTHING}: descriptors made on the device or by the host, the same product",
        ("block_scaled_matmul/_launch/comparison inverted/4",),
    ),
    (
        f"{NOTHING}: what a masked lane holds meets a zero of another operand, or is not stored",
        (
            "fp8_blockwise_matmul/fp8_blockwise_matmul_kernel/constant changed/1",
            "fp8_blockwise_matmul/fp8_blockwise_matmul_kernel/constant changed/4",
            "matmul/matmul_kernel/sm_90 constant changed/11",
            "rms_norm/rms_norm_kernel/constant changed/1",
        ),
    ),
    (
        f"{NOT_JUDGED}: what a pipelined loop prepares for later turns, or waits for; in the cases that come here nothing uses it",
        (
            "block_scaled_matmul/block_scaled_matmul_device_kernel/sm_100 carried value not updated/4",
            "block_scaled_matmul/block_scaled_matmul_device_kernel/sm_100 carried value off by one/3",
            "block_scaled_matmul/block_scaled_matmul_kernel/sm_100 commit dropped/0",
            "block_scaled_matmul/block_scaled_matmul_kernel/sm_100 wait count off by one/3",
            "matmul/matmul_kernel/sm_90 predicate dropped/7",
        ),
    ),
    (
        f"{NOTHING}: it shows for one random number of 2^32, or in a key of a round that is not made",
        (
            "dropout/dropout_kernel/sm_80 constant changed/25",
            "dropout/dropout_kernel/sm_80 constant changed/6",
            "dropout/dropout_kernel/sm_80 operation exchanged/69",
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
    (
        f"{NOTHING}: in the tile program another barrier stands before the TMA copy, behind barrier_expect",
        ("hopper_matmul/hopper_matmul_kernel/barrier dropped/0",),
    ),
    (
        f"{NOT_JUDGED}: it orders what other threads stored before the atomic; an emulated program runs its threads in step",
        ("split_k_matmul/split_k_matmul_kernel/barrier dropped/0",),
    ),
    (
        f"{NOTHING}: `higher` is never NaN: the maxima are maxnumf and begin with minus infinity",
        ("attention/attention_kernel/sm_90 comparison of NaN/0",),
    ),
    (
        f"{NOTHING}: where the sum is NaN a power is, so each product of the row is NaN, by either share",
        ("attention/attention_kernel/sm_90 comparison of NaN/1",),
    ),
    (
        f"{NOTHING}: `size` is never NaN: a block with a NaN or an infinity was set to zeros, and its scale is finite",
        (
            "quantize_mxfp/quantize_mxfp_kernel/sm_90 comparison of NaN/0",
            "quantize_mxfp/quantize_mxfp_kernel/sm_90 comparison of NaN/2",
            "quantize_mxfp/quantize_mxfp_kernel/sm_90 comparison of NaN/3",
            "quantize_mxfp/quantize_mxfp_kernel/sm_90 comparison of NaN/4",
            "quantize_mxfp/quantize_mxfp_kernel/sm_90 comparison of NaN/5",
            "quantize_mxfp/quantize_mxfp_kernel/sm_90 comparison of NaN/6",
        ),
    ),
    (
        f"{NOTHING}: the loop only ends early by it: keys behind the diagonal and past the end are masked",
        (
            "attention/_end/choice forced/1",
            "attention/attention_dq_kernel/sm_90 limit dropped/0",
            "attention/attention_dq_kernel/sm_90 limit dropped/1",
            "attention/attention_kernel/sm_90 trip count off by one/0",
        ),
    ),
    (
        f"{NOTHING}: where the target is C itself, C is copied onto itself",
        ("blocked_matmul/blocked_matmul/choice forced/3",),
    ),
    (
        f"{NOTHING}: each tile is computed alike, whichever program takes it, in whatever order and however often",
        (
            "fused_gather_scatter_matmul/grid_of/choice forced/0",
            "grouped_matmul/grouped_matmul_kernel/program axis changed/1",
            "grouped_matmul/grouped_matmul_kernel/term dropped/7",
            "pointer_gather_scatter_matmul/GroupedTiles.of_program/program axis changed/1",
            "warp_specialized_gather_scatter_matmul/grid_of/comparison inverted/0",
            "warp_specialized_gather_scatter_matmul/group_of/choice forced/1",
            "warp_specialized_matmul/GroupedTiles.of_program/program axis changed/1",
        ),
    ),
    (
        f"{NOTHING}: of a whole block every column lies below the number of columns",
        ("pointer_gather_scatter_matmul/load_x/choice forced/1",),
    ),
    (
        f"{NOTHING}: the launcher never passes transpose_b",
        ("blocked_matmul_pipelined/problem_of/choice forced/1",),
    ),
    (
        f"{NOTHING}: one tile more, whose rows and columns are past the end",
        ("fused_gather_scatter_matmul/fused_gather_scatter_matmul_kernel/sm_100 constant changed/6",),
    ),
    (
        f"{NOT_JUDGED}: no case has one row whose stride is below its columns",
        ("block_scaled_matmul/_row_pad/minimum for maximum/1",),
    ),
    (
        f"{NOT_JUDGED}: no case has one position whose stride is another",
        ("rope/rope/choice forced/0", "rope/rope/mask off by one/0"),
    ),
)
"""(why, the mutants, by id, that survive for it)."""


def reason_of(mutant: GeneratedMutant) -> str:
    """Why `mutant` survives; empty where nobody has said."""
    return next((why for why, mutants in ARGUMENTS if mutant.id in mutants), "")
