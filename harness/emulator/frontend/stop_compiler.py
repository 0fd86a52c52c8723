"""Stopping the real compiler at the tile program: after memory allocation, fences, barriers and waits, before LLVM.

The passes are those with which `make_llir` of Triton's own NVIDIA or AMD backend begins, by the record of the release
(`bitverdict.harness.emulator.releases`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triton._C.libtriton import ir

from bitverdict.harness.emulator.backends import AMD, NVIDIA, Backend
from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.frontend.inserted_barriers import complete
from bitverdict.harness.emulator.frontend.module_text import generic_text, read_back
from bitverdict.harness.emulator.mlir_reader import places, unescape
from bitverdict.harness.emulator.releases import add_passes, compiler_fault_in, installed_release, records

if TYPE_CHECKING:
    from triton.backends.amd.compiler import HIPOptions
    from triton.backends.nvidia.compiler import CUDAOptions

FENCE = "ttng.fence_async_shared"
FENCES_HEADER = "// fences before lowering: "  # first line of a tile program's text
LANGUAGE = "// written in: "  # second line
_SEMICOLON = "\\3B"  # as MLIR would write it between quotes


def _key() -> str:
    """What a compilation depends on besides the kernel: this file and those that it prints a tile program by."""
    files = (__file__, records.__file__, *(each.__code__.co_filename for each in (places, complete, generic_text)))
    sources = map(Path, files)
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
            stages["ttgir"] = refuse_faulty_forms(stages["ttgir"], options.arch)
            stages.pop("llir"), stages.pop("amdgcn")
            stages["hsaco"] = amd_tile_program(options, language_name)
            return None
        stages["ttgir"] = refuse_faulty_forms(stages["ttgir"], f"sm_{capability}")
        stages.pop("llir"), stages.pop("ptx")
        stages["cubin"] = tile_program(options, capability, language_name)
        return None


def refuse_faulty_forms(stage: Callable[[Any, dict], Any], arch: str) -> Callable[[Any, dict], Any]:
    """`stage`, from TTIR to TTGIR for `arch`, where the compiler does not fail at the program. EmulatedFault where it does."""

    def held_stage(module: ir.module, metadata: dict) -> Any:
        if installed_release().compiler_faults and (fault := compiler_fault_in(str(module), arch)):
            raise EmulatedFault("not run", fault)
        return stage(module, metadata)

    return held_stage


def tile_program(options: CUDAOptions | HIPOptions, capability: int, language: str) -> Callable[[Any, dict], bytes]:
    """The stage that ends the compilation: TTGIR module and metadata in, the text of the tile program out. `language`: "triton" or
    "gluon", the kernel's. RuntimeError, as the whole compilation would, where it is a cluster's and does not convert to LLVM."""

    def stage(module: ir.module, metadata: dict) -> bytes:
        from triton.backends.nvidia.compiler import get_ptx_version_from_options

        ptx = get_ptx_version_from_options(options, capability)
        written = ";".join(each.replace(";", _SEMICOLON) for each in places(module.str(), FENCE))
        text = _run(module, metadata, NVIDIA, capability=capability, ptx=ptx)
        metadata["tmem_size"] = module.get_int_attr("ttg.tensor_memory_size")
        program = f"{FENCES_HEADER}{written}\n{LANGUAGE}{language}\n{text}"
        if options.num_ctas > 1:  # of these the compiler fails to convert many: a GPU would see none of them
            convert_to_llvm(program, capability, ptx)
        return program.encode()

    return stage


def amd_tile_program(options: CUDAOptions | HIPOptions, language: str) -> Callable[[Any, dict], bytes]:
    """As `tile_program`, of a kernel for one of AMD's architectures."""

    def stage(module: ir.module, metadata: dict) -> bytes:
        return f"{FENCES_HEADER}\n{LANGUAGE}{language}\n{_run(module, metadata, AMD, arch=options.arch)}".encode()

    return stage


def _run(module: ir.module, metadata: dict, backend: Backend, **values: int | str) -> str:
    """The text of the tile program that `module` becomes; what Triton asks of a compiled kernel goes to `metadata`."""
    manager = ir.pass_manager(module.context)
    add_passes(manager, installed_release().tile_program_passes[backend.name], consan=False, **values)
    manager.run(module, "tile_program")
    _tell(module, metadata)
    return complete(generic_text(module, backend), backend, **values)


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


def convert_to_llvm(program: str, capability: int, ptx: int, before: Callable[[object], None] = lambda module: None) -> str:
    """The tile program `program` (text, as `tile_program` leaves it) in LLVM's dialect. `before` is shown the module first.
    RuntimeError where the compiler does not take it."""
    module = read_back(program)
    before(module)
    manager = ir.pass_manager(module.context)
    add_passes(manager, installed_release().conversion, capability=capability, ptx=ptx, consan=False)
    manager.run(module, "converted")
    return module.str()
