"""What a launch returns: Triton's compiled kernel, whose machine code is made when somebody asks for it.

The emulated GPU stops the compiler at the tile program. `kernel.asm["llir"]`, `["ptx"]`, `["cubin"]`, `["sass"]`, `n_regs` and
`n_spills` come from the whole compilation of the same TTGIR. It is made once, on first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from triton import knobs
from triton.compiler import ASTSource, compiler
from triton.compiler.compiler import AsmDict, CompiledKernel

from bitverdict.harness.emulator.backends import BACKENDS
from bitverdict.harness.emulator.machine_code import amd_resources, cubin_resources


class KernelMetadata(Protocol):
    """The named tuple in which Triton hands on what its compiler and the kernel's options say."""

    name: str
    enable_fp_fusion: bool

    def _asdict(self) -> dict[str, Any]: ...
    def __getattr__(self, name: str, /) -> Any: ...


class EmulatedKernel(CompiledKernel):
    """A kernel compiled for an emulated GPU. PTXASError, as on a real one, where its machine code is asked for and refused."""

    def __init__(self, src: ASTSource, metadata_group: dict, hash: str) -> None:
        super().__init__(src, metadata_group, hash)
        self.asm = _Stages(self)

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of the later stages."""
        return BACKENDS[self.metadata.target.backend].stages

    @cached_property
    def machine_stages(self) -> dict[str, Any]:
        """The stages after the tile program, of the same TTGIR compiled to machine code."""
        before = knobs.runtime.add_stages_inspection_hook
        knobs.runtime.add_stages_inspection_hook = None
        compiler.CompiledKernel = CompiledKernel
        ttgir = next(path for name, path in self.metadata_group.items() if name.endswith(".ttgir"))
        options = {name: hashable(value) for name, value in self.metadata._asdict().items()}
        # a cache may hold what an environment compiled that is gone by now; the backend names its own libraries
        options["extern_libs"] = tuple(each for each in options["extern_libs"] if Path(each[1]).exists())
        try:
            whole = compiler.compile(str(ttgir), target=self.metadata.target, options=options)
            return {name: whole.asm[name] for name in self.stages}
        finally:
            knobs.runtime.add_stages_inspection_hook = before
            compiler.CompiledKernel = EmulatedKernel

    @cached_property
    def _resources(self) -> tuple[int, int]:
        code, read = ("cubin", cubin_resources) if "cubin" in self.stages else ("amdgcn", amd_resources)
        return read(self.machine_stages[code])

    @property
    def n_regs(self) -> int:
        """Registers of a thread, by the machine code."""
        return self._resources[0]

    @n_regs.setter
    def n_regs(self, loaded: int) -> None:
        """What loading told is not kept: there is no module to load."""

    @property
    def n_spills(self) -> int:
        """Words of 4 bytes that a thread keeps in local memory, by the machine code."""
        return self._resources[1] // 4

    @n_spills.setter
    def n_spills(self, loaded: int) -> None:
        """As `n_regs`."""


def hashable(value: object) -> Any:
    """An option as it was before it went through JSON: its lists were tuples."""
    return tuple(map(hashable, value)) if isinstance(value, list) else value


class _Stages(AsmDict):
    """A kernel's stages by name; those after the tile program are compiled on first use."""

    def __init__(self, kernel: EmulatedKernel) -> None:
        super().__init__({name: text for name, text in kernel.asm.items() if name not in kernel.stages})
        self.kernel = kernel

    def __missing__(self, name: str) -> Any:
        if name not in self.kernel.stages:
            return super().__missing__(name)
        self.update(self.kernel.machine_stages)
        return self[name]

    def __contains__(self, name: object) -> bool:
        return name in self.kernel.stages or super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default


@contextmanager
def return_emulated_kernels() -> Iterator[None]:
    """While entered, what is compiled is an `EmulatedKernel`."""
    before, compiler.CompiledKernel = compiler.CompiledKernel, EmulatedKernel
    try:
        yield
    finally:
        compiler.CompiledKernel = before


__all__ = ["CompiledKernel", "EmulatedKernel", "hashable", "return_emulated_kernels"]
