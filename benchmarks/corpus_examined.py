"""Failures of the corpus and of upstream's tests that were read to their cause, and whose fault each is."""

from __future__ import annotations

from dataclasses import dataclass

OURS, THEIRS, OF_THE_TEST = "ours", "theirs", "the test's"
ENCLOSED = "right, enclosed"  # docs/emulator.md: the word that is compared is one of those that the compiler's choice can give


@dataclass(frozen=True)
class Examined:
    """Of the entry of a package, or of a test function of a file: whose fault, or what is behind it, and the evidence."""

    package: str
    entry: str
    whose: str
    why: str

    def holds(self, package: str, entry: str) -> bool:
        return self.package == package and entry in (self.entry, f"{self.entry}, backward")


EXAMINED = (
    Examined("flag_gems", "argmin", THEIRS,
             "`argmin_kernel_opt_k1` loads its tiles with `mask=True`, whatever M and N are. 29 x 65 in tiles of 4 rows reads "
             "3 rows beyond the tensor. The `argmax` of the package masks them, and is right."),
    Examined("flag_gems", "bitwise_left_shift", THEIRS,
             "hands `out=None` on to `pointwise_dynamic`, which wraps each keyword in a `StridedBuffer`: AttributeError, before "
             "any launch, in each call without `out`. So does `bitwise_right_shift`."),
    Examined("flag_gems", "bitwise_right_shift", THEIRS, "as `bitwise_left_shift`."),
    Examined("flag_gems", "nll_loss_forward", THEIRS,
             "one thread counts programs by `tl.atomic_add`, then all threads read the counter by an ordinary `tl.load`. No "
             "barrier orders the other warps behind the atomic, and no acquire orders the sums that are read next."),
    Examined("fla-core", "parallel_simple_gla", OF_THE_TEST,
             "this entry runs the default, tf32, and takes 0.005. The package's own `test_parallel` sets `TRITON_F32_DEFAULT=ieee` "
             "and takes 0.015 for `dg`. With `ieee` all four gradients are right here. `dg` is the difference of two sums, of "
             "q dq and k dk, that are far larger (15 to 1, root mean square): the 4e-4 of tf32 becomes 0.006."),
    Examined("vllm", "top_k_top_p", THEIRS,
             "outliers are stored to a buffer in global memory, by their rank in the row, and the search loads them by place: "
             "other threads do, and no barrier stands between (topk_topp_triton.py, lines 197 and 241). Not tried on a GPU."),
    Examined("vllm", "fused_recurrent_gated_delta_rule", THEIRS,
             "without `ssm_state_indices` the state of sequence n is read at its first token, not at n; states are stored at "
             "`bos + t` of a tensor of T. vLLM itself hands indices on."),
    Examined("flag_gems", "addr", ENCLOSED,
             "of the eight elements of a thread the compiler fuses the left product for one, the right one for seven."),
    Examined("fla-core", "chunk_hgrn, backward", ENCLOSED,
             "ptxas fuses the sum in some steps of the loop that it unrolls, and not in the first."),
    Examined("fla-core", "chunk_retention, backward", ENCLOSED,
             "a select takes a product that ptxas fuses in some places. `tl.dot` of it was refused at 8f4a495c; since its "
             "operands' enclosures have a bound it runs, and is right."),
    Examined("fla-core", "sqrelu", OF_THE_TEST,
             "version 0.6.0 computes it by `torch.compile`, and has no Triton kernel of its own for it."),
    Examined("xformers", "tiled_matmul", OF_THE_TEST,
             "asks NVML for the largest clock, to rank its configurations. A module that answered would be ours, not the "
             "package's; so it is not run."),
)  # fmt: skip
CORE = "unit/language/test_core.py"
TESTS = (
    Examined(CORE, "test_atomic_rmw", OF_THE_TEST,
             "looks for `atom.global.gpu.relaxed` in the PTX. Where the old value is not used, Triton 3.9 writes "
             "`red.global.gpu.relaxed`."),
    Examined(CORE, "test_atomic_cas", OF_THE_TEST,
             "with sem=release the lock is taken without acquire: by the PTX model nothing keeps the load of the data behind it."),
    Examined(CORE, "test_load_scope_sem_coop_grid_cta_one", OF_THE_TEST,
             "two programs load one word and store back what they loaded, unordered: a race by the PTX model, though each writes "
             "the word that is there."),
    Examined(CORE, "test_load_store_same_ptr", OF_THE_TEST,
             "launches 65,536 programs a thousand times: 65 million programs, beyond the time limit on one core."),
    Examined("unit/language/test_annotations.py", "test_int_annotation", OF_THE_TEST,
             "stores to the fourth element (or the second) of a tensor of one."),
    Examined("gluon/test_core.py", "test_descriptor_shape", OURS,
             "makes a descriptor of a tensor of the CPU and loads nothing from it. Triton holds pointers alone to the GPU."),
    Examined(CORE, "test_trans_reshape and test_constexpr_assignment", OF_THE_TEST,
             "block pointers and other forms of April 2026 that Triton 3.9 does not take any more."),
    Examined("gluon/test_core.py", "test_tcgen05_mma_* with `tcgen05_mma_barrier_count`, and test_float2", OF_THE_TEST,
             "the function has one parameter more in Triton 3.9, and `float2` is gone."),
)  # fmt: skip
