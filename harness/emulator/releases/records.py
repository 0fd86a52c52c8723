"""One record a release of Triton. A pass is written as the backends call it: its function in libtriton, and in brackets what it is
given. Source: `make_llir` of ``triton/backends/nvidia/compiler.py`` and ``amd/compiler.py`` of the release."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property


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


V3_9 = Release(
    numbers=(3, 9),
    tile_program_passes={
        "cuda": (
            "passes.ttgpuir.add_combine_tensor_select_and_if",
            "passes.ttgpuir.add_allocate_warp_groups(consan)",
            "passes.convert.add_scf_to_cf",
            "passes.gluon.add_inliner",
            "nvidia.passes.ttgpuir.add_allocate_shared_memory_nv(capability, ptx)",
            "nvidia.passes.ttnvgpuir.add_allocate_tensor_memory",
            "nvidia.passes.ttnvgpuir.add_proxy_fence_insertion(capability)",
            "nvidia.passes.ttnvgpuir.add_tmem_barrier_insertion",
            "nvidia.passes.ttgpuir.add_membar(capability, ptx)",
            "nvidia.passes.ttnvgpuir.add_tmem_wait_insertion",
        ),
        "hip": (
            "amd.passes.ttgpuir.add_warp_pipeline_conversion(arch)",
            "passes.convert.add_scf_to_cf",
            "passes.gluon.add_inliner",
            "amd.passes.ttgpuir.add_allocate_shared_memory(arch)",
            "amd.passes.ttgpuir.add_membar(arch)",
        ),
    },
    conversion=(
        "nvidia.passes.ttnvgpuir.add_cluster_barrier_mbar_allocator",
        "passes.ttgpuir.add_allocate_global_scratch_memory",
        "nvidia.passes.ttgpuir.add_to_llvmir(capability, ptx)",
    ),
    to_llvm=(
        "nvidia.passes.ttnvgpuir.add_initialize_ws_cluster_barriers(capability, ptx)",
        "passes.ttgpuir.add_canonicalize_llvm_ir",
        "passes.common.add_cse",
        "nvidia.passes.ttnvgpuir.add_warp_specialize_to_llvm",
        "nvidia.passes.ttnvgpuir.add_nvgpu_to_llvm",
        "passes.common.add_canonicalizer",
        "passes.common.add_cse",
        "passes.common.add_symbol_dce",
        "passes.convert.add_nvvm_to_llvm",
        "passes.llvmir.add_di_scope",
    ),
    llvm_flags=("nvptx-mad-wide-opt", "nvptx-short-ptr"),
    optimizer_keywords=("flags", "disable_slp_vectorizer", "expand_masked_div_rem"),
    scalar_capabilities=(80,),
    scalar_reductions=(),
    inserting_passes={},
)
V3_8 = replace(
    V3_9,
    numbers=(3, 8),
    tile_program_passes={
        "cuda": (
            *V3_9.tile_program_passes["cuda"][:6],
            "nvidia.passes.ttnvgpuir.add_check_matmul_two_cta",
            "nvidia.passes.ttnvgpuir.add_proxy_fence_insertion(capability)",
            "nvidia.passes.ttnvgpuir.add_tmem_barrier_insertion",
        ),
        "hip": V3_9.tile_program_passes["hip"][:-1],
    },
    conversion=("nvidia.passes.ttgpuir.add_to_llvmir(capability, ptx, consan)",),
    llvm_flags=(),
    optimizer_keywords=("disable_slp_vectorizer",),
    scalar_reductions=(90,),
    inserting_passes={
        "cuda": ("nvidia.passes.ttgpuir.add_to_llvmir(capability, ptx, consan)",),
        "hip": ("amd.passes.ttgpuir.add_to_llvmir(arch, flushes)",),
    },
)
V3_7_1 = replace(
    V3_8,
    numbers=(3, 7, 1),
    tile_program_passes={
        "cuda": (
            "passes.ttgpuir.add_combine_tensor_select_and_if",
            "passes.ttgpuir.add_allocate_warp_groups",
            *V3_9.tile_program_passes["cuda"][2:6],
            "nvidia.passes.ttnvgpuir.add_check_matmul_two_cta",
            "nvidia.passes.ttnvgpuir.add_proxy_fence_insertion(capability)",
        ),
        "hip": (*V3_9.tile_program_passes["hip"][:3], "amd.passes.ttgpuir.add_allocate_shared_memory"),
    },
    conversion=("passes.ttgpuir.add_allocate_global_scratch_memory", "nvidia.passes.ttgpuir.add_to_llvmir(capability, ptx)"),
    inserting_passes=V3_8.inserting_passes | {"cuda": ("nvidia.passes.ttgpuir.add_to_llvmir(capability, ptx)",)},
    to_llvm=(
        "passes.common.add_canonicalizer",
        "passes.common.add_cse",
        "nvidia.passes.ttnvgpuir.add_nvgpu_to_llvm",
        "nvidia.passes.ttnvgpuir.add_warp_specialize_to_llvm",
        "passes.common.add_canonicalizer",
        "passes.common.add_cse",
        "passes.common.add_symbol_dce",
        "passes.convert.add_nvvm_to_llvm",
        "passes.llvmir.add_di_scope",
    ),
    optimizer_keywords=(),
    scalar_capabilities=(),
    scalar_reductions=(),
)
V3_7_0 = replace(V3_7_1, numbers=(3, 7, 0))
V3_6_0 = replace(
    V3_7_1,
    numbers=(3, 6, 0),
    keys_stages=False,
    tile_program_passes=V3_7_1.tile_program_passes | {"hip": V3_7_1.tile_program_passes["hip"][1:]},
)
RELEASES = (V3_6_0, V3_7_0, V3_7_1, V3_8, V3_9)
"""From the oldest."""

__all__ = ["RELEASES", "Release"]
