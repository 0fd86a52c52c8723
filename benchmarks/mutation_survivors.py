"""Why mutants of shipped kernels survive their required cases. The page tells it beside them.

A reason is one of two sorts. *Nothing to see*: what the mutant computes is what the kernel computes, and no general rule of
`bitverdict.harness.mutants` shows it. *Not judged*: a difference that no required case is made to show. Each holds for the mutants
that it names, by id: one that is not named here was not examined. Each was read in the source or in the tile program, but
those of `block_scaled_matmul`'s tile programs, which were given to a class. None is a proof: what a rule shows is equivalent, and
stands here no longer.
"""

from __future__ import annotations

from bitverdict.harness.mutants.record import GeneratedMutant

NOTHING, NOT_JUDGED = "nothing to see", "not judged"
ARGUMENTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        f"{NOT_JUDGED}: it tells of rows of more than 32 chunks, which no required case has",
        ("pointer_gather_scatter_matmul/copied/constant changed/0",),
    ),
    (
        f"{NOT_JUDGED}: a fence behind the initialisation of a barrier in a loop; the emulator asks for none there",
        ("block_scaled_matmul/block_scaled_matmul_device_kernel/sm_100 fence dropped/7",),
    ),
    (
        f"{NOT_JUDGED}: both conditions hold on sm_100, where the mutants of this kernel are judged",
        ("block_scaled_matmul/_config/and for or/0",),
    ),
    (
        f"{NOTHING}: bytes are expected of loads that are not begun, behind the last tile; nobody waits for them",
        ("fused_gather_scatter_matmul/load_block/predicate dropped/0",),
    ),
    (
        f"{NOT_JUDGED}: m n leaves 32 bits in a workspace of 2^31 elements, which the launcher allocates whole",
        ("split_k_matmul/split_k_matmul_kernel/cast dropped/1",),
    ),
    (
        f"{NOTHING}: a masked element of B meets a masked one of A, which is zero, or is of a column that is not stored",
        ("fp8_blockwise_matmul/fp8_blockwise_matmul_kernel/constant changed/2",),
    ),
    (
        f"{NOTHING}: C is copied onto itself",
        ("blocked_matmul_pipelined/blocked_matmul_pipelined/choice forced/1",),
    ),
    (
        f"{NOTHING}: blocks of the accumulator as wide as BLOCK_K: every element is the same chain over K",
        ("small_mma/small_mma_kernel/tile index swapped/1",),
    ),
    (
        f"{NOTHING}: what C held is carried over, and each word of it is stored anew",
        ("blocked_matmul/store_target/branch forced/2",),
    ),
    (
        f"{NOTHING}: a masked key's scores are minus infinity, and past D it meets zeros of the query",
        ("attention/attention_kernel/sm_90 other value changed/1",),
    ),
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
        f"{NOTHING}: the first block fades it by the exponential of minus infinity, which is zero",
        (
            "attention/attention_kernel/accumulator starts elsewhere/0",
            "attention/attention_kernel/accumulator starts elsewhere/1",
            "attention/attention_kernel/sm_90 accumulator begins with one/5",
        ),
    ),
    (
        f"{NOTHING}: the last turn brings a block of K and V to a stage that nobody reads",
        ("attention/attention_kernel/sm_90 term dropped/36",),
    ),
    (
        f"{NOTHING}: rows of K past N are not stored, and past D it meets zeros of the query",
        ("attention/attention_dk_dv_kernel/sm_90 other value changed/0",),
    ),
    (
        f"{NOTHING}: of a partition of two warps one thread is elected for each instruction, as of one",
        ("warp_specialized_matmul/warp_specialized_matmul_kernel/constant changed/9",),
    ),
    (
        f"{NOTHING}: where the sum is NaN a power is, so each product of the row is NaN, by either share",
        ("attention/attention_kernel/sm_90 comparison of NaN/1",),
    ),
    (
        f"{NOT_JUDGED}: a row's number leaves 32 bits in 2^31 rows; delta and lse are contiguous",
        ("attention/attention_dq_kernel/cast dropped/2",),
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
        f"{NOT_JUDGED}: what the loop prepares for later turns; in the cases that come here no later turn uses it",
        (
            "block_scaled_matmul/block_scaled_matmul_device_kernel/sm_100 carried value not updated/4",
            "block_scaled_matmul/block_scaled_matmul_device_kernel/sm_100 carried value off by one/3",
        ),
    ),
    (
        f"{NOT_JUDGED}: a wait behind it covers the copy in each case that comes here",
        (
            "block_scaled_matmul/block_scaled_matmul_kernel/sm_100 commit dropped/0",
            "block_scaled_matmul/block_scaled_matmul_kernel/sm_100 wait count off by one/3",
        ),
    ),
    (
        f"{NOTHING}: where the target is C itself, C is copied onto itself",
        ("blocked_matmul/blocked_matmul/choice forced/3",),
    ),
    (
        f"{NOTHING}: the one call of the launcher leaves `keep` out, so it is False",
        (
            "blocked_matmul/store_target/branch forced/3",
            "blocked_matmul_pipelined/store_target/branch forced/3",
        ),
    ),
    (
        f"{NOTHING}: the one call of the launcher gives keep=True",
        ("fused_gather_scatter_matmul/store_target/branch forced/2",),
    ),
    (
        f"{NOTHING}: the launcher never passes transpose_b",
        ("blocked_matmul_pipelined/problem_of/choice forced/1",),
    ),
    (
        f"{NOT_JUDGED}: the upper word of an element's number tells in 2^32 elements; elsewhere a product has no upper half",
        ("dropout/dropout_kernel/sm_80 constant changed/27",),
    ),
    (
        f"{NOTHING}: a masked element of A meets a zero of B in the product over K, or is of a row that is not stored",
        ("fp8_blockwise_matmul/fp8_blockwise_matmul_kernel/constant changed/1",),
    ),
    (
        f"{NOTHING}: it waits for parity 1 of a fresh barrier, which returns at once",
        ("fused_gather_scatter_matmul/Accumulator.settle/predicate dropped/0",),
    ),
    (
        f"{NOTHING}: the number of a tile that is not there: its loads have no predicate, and nobody computes it",
        ("fused_gather_scatter_matmul/GroupedTiles.tile/another operation/1",),
    ),
    (
        f"{NOT_JUDGED}: a tile's first row times k leaves 32 bits in an A of 2^31 elements: each tile of it is computed",
        ("grouped_matmul/grouped_matmul_kernel/cast dropped/0",),
    ),
    (
        f"{NOT_JUDGED}: m n leaves 32 bits in a C of 2^31 elements: each of its tiles is computed",
        ("grouped_matmul/grouped_matmul_kernel/cast dropped/6",),
    ),
    (
        f"{NOT_JUDGED}: k n leaves 32 bits in a B of 2^31 elements, which lies flat: no stride makes it sparse",
        ("grouped_matmul/grouped_matmul_kernel/cast to another type/8",),
    ),
    (
        f"{NOTHING}: which thread holds an element decides time; no sum of this kernel changes its order by it",
        ("hopper_matmul/accumulated/layout turned/1",),
    ),
    (
        f"{NOTHING}: in the tile program another barrier stands before the TMA copy, behind barrier_expect",
        ("hopper_matmul/hopper_matmul_kernel/barrier dropped/0",),
    ),
    (
        f"{NOTHING}: it changes the edge that is taken for K = 0 alone, which the launcher refuses",
        ("hopper_matmul/hopper_matmul_kernel/sm_90 accumulator begins with one/0",),
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
        f"{NOT_JUDGED}: a row of C times its stride leaves 32 bits in a C of 2^31 elements, which the launcher allocates whole",
        ("matmul/matmul_kernel/cast dropped/0",),
    ),
    (
        f"{NOTHING}: a masked element of A meets a masked one of B, which is zero, or is of a row that is not stored",
        ("matmul/matmul_kernel/sm_90 constant changed/11",),
    ),
    (
        f"{NOT_JUDGED}: the instruction is chosen already; what the compiler makes of it with another precision is unknown",
        (
            "matmul/matmul_kernel/sm_90 precision of a product/0",
            "matmul/matmul_kernel/sm_90 precision of a product/1",
        ),
    ),
    (
        f"{NOT_JUDGED}: a block past K is copied to where nobody reads; no launch is held to copies in flight at its end",
        ("matmul/matmul_kernel/sm_90 predicate dropped/7",),
    ),
    (
        f"{NOTHING}: of a whole block every column lies below the number of columns",
        ("pointer_gather_scatter_matmul/load_x/choice forced/1",),
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
        f"{NOTHING}: the conversion to e4m3 saturates: what lies above 448 becomes 448",
        ("quantize_mxfp/quantize_mxfp_kernel/sm_90 constant changed/28",),
    ),
    (
        f"{NOT_JUDGED}: m n leaves 32 bits in a workspace of 2^31 elements, which the launcher allocates whole",
        ("split_k_matmul/add_parts_kernel/cast dropped/0",),
    ),
    (
        f"{NOT_JUDGED}: it orders what other threads stored before the atomic; an emulated program runs its threads in step",
        ("split_k_matmul/split_k_matmul_kernel/barrier dropped/0",),
    ),
    (
        f"{NOTHING}: the kernel passes TRANSPOSE_B = False, so the statement is not compiled",
        ("warp_specialized_gather_scatter_matmul/multiply_partition/transpose dropped/0",),
    ),
)
"""(why, the mutants, by id, that survive for it)."""


def reason_of(mutant: GeneratedMutant) -> str:
    """Why `mutant` survives; empty where nobody has said."""
    return next((why for why, mutants in ARGUMENTS if mutant.id in mutants), "")
