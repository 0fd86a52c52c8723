"""Stopping the real compiler at the tile program: after memory allocation, fences, barriers and waits, before LLVM.

The passes are those with which `make_llir` of Triton's own NVIDIA or AMD backend begins. Their names are private, so each is looked
for before anything is compiled, and a Triton that has others is refused.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import triton
from triton._C.libtriton import amd, ir, nvidia, passes

from bitverdict.harness.emulator.mlir_reader import places, unescape
from bitverdict.harness.model.triton_release import REMEDY, SUPPORTED_RELEASES

if TYPE_CHECKING:
    from triton.backends.amd.compiler import HIPOptions
    from triton.backends.nvidia.compiler import CUDAOptions

FENCE = "ttng.fence_async_shared"
FENCES_HEADER = "// fences before lowering: "  # first line of a tile program's text
LANGUAGE = "// written in: "  # second line
_SEMICOLON = "\\3B"  # as MLIR would write it between quotes
_UNVERIFIED_ATTRIBUTES = {"cuda": "nvvm.kernel", "hip": "rocdl.kernel"}  # an attribute that no module may have
_PASSES: tuple[tuple[str, Any, str, str], ...] = (
    ("passes.ttgpuir", passes.ttgpuir, "add_combine_tensor_select_and_if", ""),
    ("passes.ttgpuir", passes.ttgpuir, "add_allocate_warp_groups", "consan"),
    ("passes.convert", passes.convert, "add_scf_to_cf", ""),
    ("passes.gluon", passes.gluon, "add_inliner", ""),
    ("nvidia.passes.ttgpuir", nvidia.passes.ttgpuir, "add_allocate_shared_memory_nv", "capability, ptx"),
    ("nvidia.passes.ttnvgpuir", nvidia.passes.ttnvgpuir, "add_allocate_tensor_memory", ""),
    ("nvidia.passes.ttnvgpuir", nvidia.passes.ttnvgpuir, "add_proxy_fence_insertion", "capability"),
    ("nvidia.passes.ttnvgpuir", nvidia.passes.ttnvgpuir, "add_tmem_barrier_insertion", ""),
    ("nvidia.passes.ttgpuir", nvidia.passes.ttgpuir, "add_membar", "capability, ptx"),
    ("nvidia.passes.ttnvgpuir", nvidia.passes.ttnvgpuir, "add_tmem_wait_insertion", ""),
)
_AMD_PASSES: tuple[tuple[str, Any, str, str], ...] = (
    ("amd.passes.ttgpuir", amd.passes.ttgpuir, "add_warp_pipeline_conversion", "arch"),
    ("passes.convert", passes.convert, "add_scf_to_cf", ""),
    ("passes.gluon", passes.gluon, "add_inliner", ""),
    ("amd.passes.ttgpuir", amd.passes.ttgpuir, "add_allocate_shared_memory", "arch"),
    ("amd.passes.ttgpuir", amd.passes.ttgpuir, "add_membar", "arch"),
)
"""Of AMD's backend, without its conversion of indices to LLVM, and before a wait counts instructions in place of groups."""
CONVERSION: tuple[tuple[str, Any, str, str], ...] = (
    ("nvidia.passes.ttnvgpuir", nvidia.passes.ttnvgpuir, "add_cluster_barrier_mbar_allocator", ""),
    ("passes.ttgpuir", passes.ttgpuir, "add_allocate_global_scratch_memory", ""),
    ("nvidia.passes.ttgpuir", nvidia.passes.ttgpuir, "add_to_llvmir", "capability, ptx"),
)
"""What `make_llir` does next, up to LLVM's dialect, where accesses to global memory become instructions."""
TO_LLVM: tuple[tuple[str, Any, str, str], ...] = (
    ("nvidia.passes.ttnvgpuir", nvidia.passes.ttnvgpuir, "add_initialize_ws_cluster_barriers", "capability, ptx"),
    ("passes.ttgpuir", passes.ttgpuir, "add_canonicalize_llvm_ir", ""),
    ("passes.common", passes.common, "add_cse", ""),
    ("nvidia.passes.ttnvgpuir", nvidia.passes.ttnvgpuir, "add_warp_specialize_to_llvm", ""),
    ("nvidia.passes.ttnvgpuir", nvidia.passes.ttnvgpuir, "add_nvgpu_to_llvm", ""),
    ("passes.common", passes.common, "add_canonicalizer", ""),
    ("passes.common", passes.common, "add_cse", ""),
    ("passes.common", passes.common, "add_symbol_dce", ""),
    ("passes.convert", passes.convert, "add_nvvm_to_llvm", ""),
    ("passes.llvmir", passes.llvmir, "add_di_scope", ""),
)
"""What it does after that, until LLVM itself takes over."""


def check_release() -> None:
    """RuntimeError, with what is missing, for a Triton release whose compiler this module does not know."""
    missing_passes = [
        f"{room}.{name}" for room, place, name, _ in (*_PASSES, *_AMD_PASSES, *CONVERSION, *TO_LLVM) if not hasattr(place, name)
    ]
    if missing_passes or not triton.__version__.startswith(SUPPORTED_RELEASES):
        raise RuntimeError(
            f"triton {triton.__version__}: the emulated GPU knows the compiler of {', '.join(v + 'x' for v in SUPPORTED_RELEASES)}"
            + (f"; this one lacks {', '.join(missing_passes)}" if missing_passes else "")
            + f"; {REMEDY}"
        )


def _key() -> str:
    """What a compilation depends on besides the kernel: this file, and the one that reads where the compiler wrote fences."""
    sources = (Path(__file__), Path(places.__code__.co_filename))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


class Stages:
    """The hook that Triton calls with the stages of a compilation: it replaces all after TTGIR by `tile_program`."""

    key = _key()

    def __call__(
        self,
        backend: object = None,
        stages: dict | None = None,
        options: Any = None,
        language: object = None,
        capability: int | None = None,
    ) -> tuple[str, str] | None:
        if backend is None:  # the compile cache asks for its key
            return self.key, self.key
        assert stages is not None
        language_name = getattr(language, "name", "").lower()
        if capability is None:  # AMD's backend has none
            stages.pop("llir"), stages.pop("amdgcn")
            stages["hsaco"] = amd_tile_program(options, language_name)
            return None
        stages.pop("llir"), stages.pop("ptx")
        stages["cubin"] = tile_program(options, capability, language_name)
        return None


def tile_program(options: CUDAOptions | HIPOptions, capability: int, language: str) -> Callable[[Any, dict], bytes]:
    """The stage that ends the compilation: TTGIR module and metadata in, the text of the tile program out. `language`: "triton" or
    "gluon", the kernel's. RuntimeError, as the whole compilation would, where it is a cluster's and does not convert to LLVM."""

    def stage(module: ir.module, metadata: dict) -> bytes:
        from triton.backends.nvidia.compiler import get_ptx_version_from_options

        pass_arguments = {
            "": (),
            "consan": (False,),
            "capability": (capability,),
            "capability, ptx": (capability, get_ptx_version_from_options(options, capability)),
        }
        written = ";".join(each.replace(";", _SEMICOLON) for each in places(module.str(), FENCE))
        _run(module, _PASSES, pass_arguments)
        _tell(module, metadata)
        metadata["tmem_size"] = module.get_int_attr("ttg.tensor_memory_size")
        program = f"{FENCES_HEADER}{written}\n{LANGUAGE}{language}\n{generic_text(module)}"
        if options.num_ctas > 1:  # of these the compiler fails to convert many: a GPU would see none of them
            convert_to_llvm(program, capability, get_ptx_version_from_options(options, capability))
        return program.encode()

    return stage


def amd_tile_program(options: CUDAOptions | HIPOptions, language: str) -> Callable[[Any, dict], bytes]:
    """As `tile_program`, of a kernel for one of AMD's architectures."""

    def stage(module: ir.module, metadata: dict) -> bytes:
        _run(module, _AMD_PASSES, {"": (), "arch": (options.arch,)})
        _tell(module, metadata)
        return f"{FENCES_HEADER}\n{LANGUAGE}{language}\n{generic_text(module, 'hip')}".encode()

    return stage


def _run(module: ir.module, listed: tuple[tuple[str, object, str, str], ...], given: dict[str, tuple]) -> None:
    manager = ir.pass_manager(module.context)
    for _, place, name, arguments in listed:
        getattr(place, name)(manager, *given[arguments])
    manager.run(module, "tile_program")


def _tell(module: ir.module, metadata: dict) -> None:
    """What Triton asks of the metadata of a compiled kernel."""
    total = module.get_int_attr("ttg.total-num-warps")
    if total is not None:
        metadata["num_warps"] = total
    metadata.update(
        name=module.get_entry_func_name(),
        shared=module.get_int_attr("ttg.shared"),
        global_scratch_size=0,
        global_scratch_align=1,
        profile_scratch_size=0,
        profile_scratch_align=1,
    )


def fences_of(program: bytes) -> frozenset[str]:
    """``file:line`` of each proxy fence that stood in a tile program before the compiler added its own."""
    return frozenset(map(unescape, program.split(b"\n", 1)[0].decode().removeprefix(FENCES_HEADER).split(";")))


def language_of(program: bytes) -> str:
    """What the kernel of a tile program is written in: "triton" or "gluon"; empty where the text does not say."""
    line = program.split(b"\n", 2)[1:2]
    return line[0].decode().removeprefix(LANGUAGE) if line and line[0].startswith(LANGUAGE.encode()) else ""


def read_back(program: str) -> Any:
    """The module whose text, as `tile_program` leaves it, is `program`. RuntimeError where the compiler does not take it."""
    context = ir.context()
    ir.load_dialects(context)
    nvidia.load_dialects(context)
    amd.load_dialects(context)
    for mark in _UNVERIFIED_ATTRIBUTES.values():
        program = program.replace(f'{mark} = "tile program", ', "")
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
        file.write(program)
        file.flush()
        module = ir.parse_mlir_module(file.name, context)
    module.context = context  # or it is gone before the module is
    return module


def convert_to_llvm(program: str, capability: int, ptx: int, before: Callable[[object], None] = lambda module: None) -> str:
    """The tile program `program` (text, as `tile_program` leaves it) in LLVM's dialect. `before` is shown the module first.
    RuntimeError where the compiler does not take it."""
    module = read_back(program)
    before(module)
    manager = ir.pass_manager(module.context)
    for _, place, name, given in CONVERSION:
        getattr(place, name)(manager, *((capability, ptx) if given else ()))
    manager.run(module, "converted")
    return module.str()


def generic_text(module: ir.module, backend: str = "cuda") -> str:
    """The module in MLIR's generic assembly, locations included. The bindings print the short forms, except of a module that does
    not verify: so it is made not to, by an attribute that belongs on functions only, at the end, when nothing else will look at
    it."""
    module.set_attr(_UNVERIFIED_ATTRIBUTES[backend], ir.builder(module.context).get_string_attr("tile program"))
    text = module.str()
    if '"builtin.module"(' not in text:
        raise RuntimeError(f"triton {triton.__version__} does not print the generic form of a module any more")
    return text
