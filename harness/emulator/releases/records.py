"""One record a release of Triton. A pass is written as the backends call it: its function in libtriton, and in brackets what it is
given. Source: `make_llir` of ``triton/backends/nvidia/compiler.py`` and ``amd/compiler.py`` of the release."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property


@dataclass(frozen=True)
class CompilerFault:
    """`form`, which TTIR has where it has `pattern`: the compiler fails at it for `architectures`, as `ending` says."""

    pattern: str
    architectures: tuple[str, ...]
    form: str
    ending: str


@dataclass(frozen=True)
class KnownHazard:
    """A hazard that the compiler makes (docs/emulator.md, "Found in the compiler"): the names of its two operations."""

    operation: str
    other_operation: str
    workaround: str


@dataclass(frozen=True, kw_only=True)
class Release:
    """What a release of Triton is like. `numbers`: of its version, as far as all releases with these are alike.

    `tile_program_passes`: by `Backend.name`, from TTGIR to where the compiler is stopped; AMD's without its conversion of indices,
    and before a wait counts instructions in place of groups. `conversion`: from there to LLVM's dialect, where accesses to global
    memory become instructions. `to_llvm`: until LLVM itself takes over.

    `llvm_flags`: what NVIDIA's backend gives LLVM; empty where it has a function for short pointers instead. `optimizer_keywords`:
    those of `optimize_module` besides. `scalar_capabilities`: LLVM does not vectorise there; in `scalar_reductions` not where
    bf16 is reduced.

    `inserting_passes`: by `Backend.name`, those that put barriers into the tile program on the way to LLVM; none where they stand
    there already. `keys_stages`: the key of a compilation has that of stages which a hook replaces. `proven`: the suite has passed.

    `negates_by_subtraction`: `-x` of a float is 0 - x, so -0 becomes +0, and a product that is negated is rounded first.
    `has_integer_abs`: `tl.abs` of an integer is one instruction. `doubles_columns`: the tile program has coordinates of fp4 beside
    fp8 in nibbles, as the tensor map counts; else in bytes, and what makes LLVM of it doubles them. `meets_at_atomics`: there is a
    barrier of all threads before an atomic that releases, and behind one that acquires. `wraps_histograms`: a histogram counts a
    value by its lower bits, so one beyond the bins too. `describes_shared_layouts`: the compiler tells the linear form of a layout
    of shared memory; else it aborts.

    `new_names`, `removed_names`: what kernels write, against the release before: names behind the last one of their owner's,
    arguments that a function takes, and those it does without. `compiler_faults`: what the compiler fails at. `hazards`: those that
    it makes.
    """

    numbers: tuple[int, ...]
    tile_program_passes: dict[str, tuple[str, ...]]
    conversion: tuple[str, ...]
    to_llvm: tuple[str, ...]
    llvm_flags: tuple[str, ...]
    optimizer_keywords: tuple[str, ...]
    scalar_capabilities: tuple[int, ...]
    scalar_reductions: tuple[int, ...]
    inserting_passes: dict[str, tuple[str, ...]]
    new_names: tuple[str, ...] = ()
    removed_names: tuple[str, ...] = ()
    compiler_faults: tuple[CompilerFault, ...] = ()
    hazards: tuple[KnownHazard, ...] = ()
    negates_by_subtraction: bool = False
    has_integer_abs: bool = False
    doubles_columns: bool = False
    meets_at_atomics: bool = True
    wraps_histograms: bool = False
    describes_shared_layouts: bool = True
    keys_stages: bool = True
    proven: bool = True

    @property
    def name(self) -> str:
        """ "3.9.x", "3.7.1"."""
        return ".".join(map(str, self.numbers)) + (".x" if len(self.numbers) == 2 else "")

    @cached_property
    def passes(self) -> tuple[str, ...]:
        """All passes of all lists."""
        return (*(each for listed in self.tile_program_passes.values() for each in listed), *self.conversion, *self.to_llvm)

    def vectorises(self, capability: int, program: str) -> bool:
        """Whether LLVM's SLP vectoriser runs over the tile program `program` on a GPU of `capability`."""
        is_reduced = capability in self.scalar_reductions and "bf16" in program and "tt.reduce" in program
        return capability not in self.scalar_capabilities and not is_reduced


_COPY = "ttg.async_copy_global_to_local"
_REUSED_BARRIER = KnownHazard("ttng.init_barrier", "ttng.init_barrier", "tl.range without warp_specialize")

_SHORT_RINGS = tuple(
    KnownHazard(
        copy, "ttng.warp_group_dot", "num_stages=1, or a second load of the tile, with another eviction_policy, for its other use"
    )
    for copy in (_COPY, "ttng.async_tma_copy_global_to_local")
)
"""A tile that a wgmma and registers read has no buffer more than the loop has stages in flight (triton 6691)."""
_SHARED_TILE = KnownHazard(
    "ttg.local_store", "ttng.tc_gen5_mma", "num_stages=1, or one product of both, their other operands in one tile"
)
"""A tile of registers that two products take is stored behind a wait for the first of them alone."""
_CHAINED_PRODUCTS = KnownHazard("ttng.tmem_load", "ttng.tc_gen5_mma", "num_stages=1, or an accumulator for each product")
"""Two products of a step with one accumulator stand in two stages of the loop (triton 10821)."""
_UNFENCED_STORE = KnownHazard("ttng.tc_gen5_mma", "ttg.local_store", "num_stages=1")
"""A tile of registers is stored for a product without a proxy fence (triton 9871 and 10590, fla 945)."""


def _unfenced_copy(product: str) -> KnownHazard:
    """The proxy fence is missing, or stands before the wait: the compiler counts `cp.async` as done where it is issued."""
    return KnownHazard(product, _COPY, "num_stages=1, or operands that tensor descriptors load")


# fmt: off
V3_9 = Release(
    numbers=(3, 9),
    tile_program_passes={
        "cuda": (
            "passes.ttgpuir.add_combine_tensor_select_and_if", "passes.ttgpuir.add_allocate_warp_groups(consan)",
            "passes.convert.add_scf_to_cf", "passes.gluon.add_inliner",
            "nvidia.passes.ttgpuir.add_allocate_shared_memory_nv(capability, ptx)",
            "nvidia.passes.ttnvgpuir.add_allocate_tensor_memory", "nvidia.passes.ttnvgpuir.add_proxy_fence_insertion(capability)",
            "nvidia.passes.ttnvgpuir.add_tmem_barrier_insertion", "nvidia.passes.ttgpuir.add_membar(capability, ptx)",
            "nvidia.passes.ttnvgpuir.add_tmem_wait_insertion",
        ),
        "hip": (
            "amd.passes.ttgpuir.add_warp_pipeline_conversion(arch)", "passes.convert.add_scf_to_cf", "passes.gluon.add_inliner",
            "amd.passes.ttgpuir.add_allocate_shared_memory(arch)", "amd.passes.ttgpuir.add_membar(arch)",
        ),
    },
    conversion=(
        "nvidia.passes.ttnvgpuir.add_cluster_barrier_mbar_allocator", "passes.ttgpuir.add_allocate_global_scratch_memory",
        "nvidia.passes.ttgpuir.add_to_llvmir(capability, ptx)",
    ),
    to_llvm=(
        "nvidia.passes.ttnvgpuir.add_initialize_ws_cluster_barriers(capability, ptx)", "passes.ttgpuir.add_canonicalize_llvm_ir",
        "passes.common.add_cse", "nvidia.passes.ttnvgpuir.add_warp_specialize_to_llvm",
        "nvidia.passes.ttnvgpuir.add_nvgpu_to_llvm", "passes.common.add_canonicalizer", "passes.common.add_cse",
        "passes.common.add_symbol_dce", "passes.convert.add_nvvm_to_llvm", "passes.llvmir.add_di_scope",
    ),
    llvm_flags=("nvptx-mad-wide-opt", "nvptx-short-ptr"),
    optimizer_keywords=("flags", "disable_slp_vectorizer", "expand_masked_div_rem"),
    scalar_capabilities=(80,), scalar_reductions=(), inserting_passes={},
    new_names=tuple("""arrive(from_cta=) async_gather(cache_policy=) async_load(cache_policy=) async_scatter(cache_policy=)
        async_store(cache_policy=) cumprod(dtype=) expect(from_cta=) fdiv(approx=) load(cache_policy=) store(cache_policy=)
        ampere.CachePolicy ampere.FractionalEvictionPolicy blackwell.CachePolicy blackwell.FractionalEvictionPolicy
        blackwell.cluster async_load_im2col(cache_policy=) tensor_memory_descriptor.slice(dim=)
        cdna3.get_scaled_upcast_fp4_scale_layout cdna4.get_scaled_upcast_fp4_scale_layout cdna4.load_shared_fp4_repacked
        cdna4.scaled_downcast fpsan.embed fpsan.unembed hint.sched_barrier hopper.CachePolicy hopper.FractionalEvictionPolicy
        language.CachePolicy language.atomic_load language.atomic_poll language.atomic_store language.inline_asm
        shared_memory_descriptor.reinterpret tensor.atomic_load tensor.atomic_poll tensor.atomic_store
        language.fpsan tensor_memory_descriptor.reinterpret tma.CachePolicy""".split()),
    removed_names=tuple("""arrive(relaxed=) cluster.arrive cluster.wait language.advance load(boundary_check=) load(padding_option=)
        mbarrier.fence_init_release_cluster store(boundary_check=)""".split()),
    hazards=(
        KnownHazard("ttg.local_alloc", "ttng.tc_gen5_mma", "num_stages=1, columns of B contiguous in memory, or loads by pointers"),
        KnownHazard("ttng.tmem_copy", _COPY, "num_stages of at most 2, or K as an argument that is no constexpr"),
        *_SHORT_RINGS, _SHARED_TILE,
    ),
)
V3_8 = replace(
    V3_9, numbers=(3, 8), meets_at_atomics=False,
    tile_program_passes={
        "cuda": (
            *V3_9.tile_program_passes["cuda"][:6], "nvidia.passes.ttnvgpuir.add_check_matmul_two_cta",
            "nvidia.passes.ttnvgpuir.add_proxy_fence_insertion(capability)", "nvidia.passes.ttnvgpuir.add_tmem_barrier_insertion",
        ),
        "hip": V3_9.tile_program_passes["hip"][:-1],
    },
    conversion=("nvidia.passes.ttgpuir.add_to_llvmir(capability, ptx, consan)",),
    llvm_flags=(), optimizer_keywords=("disable_slp_vectorizer",), scalar_reductions=(90,),
    inserting_passes={
        "cuda": ("nvidia.passes.ttgpuir.add_to_llvmir(capability, ptx, consan)",),
        "hip": ("amd.passes.ttgpuir.add_to_llvmir(arch, flushes)",),
    },
    new_names=(
        *"""TensorMemoryLayout.__init__(fp4_padded=) TensorMemoryLayout.__init__(cga_layout=) barrier(relaxed=)
        TensorMemoryScalesLayout.__init__(cga_layout=) get_mfma_scale_layout(scale_factor=) tcgen05_mma_barrier_count(two_ctas=)
        async_gather(multicast=) store_wait(read_only=) tcgen05_mma_scaled(multicast=) blackwell.clc
        topk(descending=) TensorDescriptorIm2Col.from_tensor TensorMemoryLayout.fp4_padded async_copy.async_load blackwell.add2
        blackwell.async_store blackwell.fma2 blackwell.max2 blackwell.min2 blackwell.mul2 blackwell.sub2 cdna3.scaled_upcast
        cdna4.scaled_upcast cdna4.compute_efficient_padded_shared_layout clc.load_result clc.try_cancel clc_result.is_canceled
        clc_result.program_id cluster.barrier gluon.aggregate hopper.TensorDescriptorIm2Col hopper.async_store
        language.aggregate_replace language.expect_zero shared_memory_descriptor.atomic_scatter_add
        shared_memory_descriptor.atomic_scatter_and shared_memory_descriptor.atomic_scatter_max
        shared_memory_descriptor.atomic_scatter_min shared_memory_descriptor.atomic_scatter_or
        shared_memory_descriptor.atomic_scatter_xchg shared_memory_descriptor.atomic_scatter_xor
        shared_memory_descriptor.nbytes_per_cta tensor_descriptor_im2col.nbytes_per_cta tensor_memory_descriptor.get_reg_layout
        tma.async_atomic_add tma.async_atomic_and tma.async_atomic_max tma.async_atomic_min tma.async_atomic_or
        tma.async_atomic_xor tma.async_copy_global_to_shared_im2col tma.async_load tma.async_load_im2col tma.async_store
        tma.tensor_descriptor_im2col""".split(),
        *(f"tensor_memory_descriptor.{name}() without layout" for name in ("load", "load_max", "load_min")),
    ),
    removed_names=tuple("""TensorMemoryLayout.__init__(cta_split_num=) TensorMemoryScalesLayout.__init__(cta_split_num=)
        TensorMemoryLayout.cta_split_num TensorMemoryScalesLayout.cta_split_num blackwell.get_tmem_reg_layout
        float2.Float2Tensor float2.fma float2.full_like float2.pack float2.pack2 float2.unpack float2.unpack2
        mbarrier.sync_cluster_init""".split()),
    hazards=(
        V3_9.hazards[0], _unfenced_copy("ttng.tc_gen5_mma"), _unfenced_copy("ttng.tc_gen5_mma_scaled"), *_SHORT_RINGS, _SHARED_TILE,
        _CHAINED_PRODUCTS,
    ),
)
V3_7_1 = replace(
    V3_8, numbers=(3, 7, 1),
    tile_program_passes={
        "cuda": (
            "passes.ttgpuir.add_combine_tensor_select_and_if", "passes.ttgpuir.add_allocate_warp_groups",
            *V3_9.tile_program_passes["cuda"][2:6], *V3_8.tile_program_passes["cuda"][6:8],
        ),
        "hip": (*V3_9.tile_program_passes["hip"][:3], "amd.passes.ttgpuir.add_allocate_shared_memory"),
    },
    conversion=("passes.ttgpuir.add_allocate_global_scratch_memory", "nvidia.passes.ttgpuir.add_to_llvmir(capability, ptx)"),
    inserting_passes=V3_8.inserting_passes | {"cuda": ("nvidia.passes.ttgpuir.add_to_llvmir(capability, ptx)",)},
    to_llvm=(
        "passes.common.add_canonicalizer", "passes.common.add_cse", "nvidia.passes.ttnvgpuir.add_nvgpu_to_llvm",
        "nvidia.passes.ttnvgpuir.add_warp_specialize_to_llvm", "passes.common.add_canonicalizer", "passes.common.add_cse",
        "passes.common.add_symbol_dce", "passes.convert.add_nvvm_to_llvm", "passes.llvmir.add_di_scope",
    ),
    optimizer_keywords=(), scalar_capabilities=(), scalar_reductions=(), negates_by_subtraction=True, has_integer_abs=True,
    wraps_histograms=True,
    new_names=(), removed_names=(),
    hazards=(*V3_8.hazards, _REUSED_BARRIER),
    compiler_faults=(
        CompilerFault(
            r"tt\.dot_scaled .*, tensor<[\dx]+xf8E4M3FN> (?:\*|->)", ("sm_89", "sm_90"),
            "tl.dot_scaled with scales in e4m3 (nvfp4)", "TritonGPUAccelerateMatmul ends by an assertion",
        ),
        CompilerFault(
            r"tt\.dot_scaled \S+ scale .*, \S+ scale ", ("gfx90a", "gfx942"),
            "tl.dot_scaled with two scales", "ConvertTritonAMDGPUToLLVM takes no such operation",
        ),
    ),
)
V3_7_0 = replace(
    V3_7_1, numbers=(3, 7, 0),
    new_names=(*"""arrive(relaxed=) AMDWMMALayout.__init__(rank=) AMDWMMALayout.__init__(reg_bases=)
        AMDWMMALayout.__init__(warp_bases=) PaddedSharedLayout.__init__(cga_layout=)
        PaddedSharedLayout.with_identity_for(cga_layout=) TensorDescriptor.__init__(round_f32_to_tf32=)
        TensorDescriptor.from_tensor(round_f32_to_tf32=) cat(dim=) expect(bytes_per_cta=) tcgen05_commit(descs=)
        tcgen05_commit(pred=) tcgen05_mma(multicast=) TensorDescriptor.round_f32_to_tf32 amd.warp_pipeline_stage
        blackwell.tcgen05_mma_barrier_count cluster.arrive cluster.wait hopper.cluster language.barrier language.squeeze
        language.unsqueeze mbarrier.allocate_mbarrier mbarrier.fence_init_release_cluster mbarrier.sync_cluster_init
        shared_memory_descriptor.gather shared_memory_descriptor.scatter tensor_descriptor.nbytes_per_cta
        tensor_memory_descriptor.load_max tensor_memory_descriptor.load_min""".split(),
        "warp_specialize() without worker_num_regs"),
    removed_names=tuple("""AMDWMMALayout.__init__(tiles_per_warp=) AMDWMMALayout.__init__(warps_per_cta=)
        PaddedSharedLayout.__init__(block_bases=) blackwell.SharedLinearLayout expect(bytes=) language.thread_barrier""".split()),
    hazards=(
        *V3_7_1.hazards, _UNFENCED_STORE, _unfenced_copy("ttng.warp_group_dot"),
        *(KnownHazard("ttng.tmem_copy", copy, "scales loaded as 5-dimensional tiles") for copy in (_COPY, "ttg.local_alloc")),
    ),
)
V3_6_0 = replace(
    V3_7_1, numbers=(3, 6, 0), keys_stages=False, doubles_columns=True,
    describes_shared_layouts=False, new_names=(), removed_names=(),
    tile_program_passes=V3_7_1.tile_program_passes | {"hip": V3_7_1.tile_program_passes["hip"][1:]},
    compiler_faults=(
        *V3_7_1.compiler_faults,
        CompilerFault(
            r"tt\.dot_scaled \S+ scale (%\w+), \S+ scale \1,", ("sm_100", "sm_103"),
            "tl.dot_scaled with one tile of scales for both operands", "NVWSInsertTmemAref ends by an assertion",
        ),
        CompilerFault(
            r"(%\w+) = tt\.descriptor_gather (?s:.)*?(?:tt\.dot_scaled \1 .*lhs = e2m1 rhs = e[45]"
            r"|(%\w+) = tt\.trans \1 (?s:.)*?tt\.dot_scaled .*, \2 .*lhs = e[45]m\d rhs = e2m1)", ("sm_100", "sm_103"),
            "tl.dot_scaled with gathered fp4 beside fp8", "the column is in bytes where the tensor map counts nibbles",
        ),
    ),
    hazards=V3_7_0.hazards,
)
# fmt: on
RELEASES = (V3_6_0, V3_7_0, V3_7_1, V3_8, V3_9)
"""From the oldest."""

__all__ = ["RELEASES", "V3_7_0", "Release"]
