"""Triton's two compilers, and the machines behind them, as the emulator asks: one object a vendor, one question a field.

What only an architecture decides stands in `harness.model.architectures`. Nothing else in the emulator asks for the vendor.
"""

from __future__ import annotations

from dataclasses import dataclass

from bitverdict.harness.model.architectures import architecture
from bitverdict.reference.reduction_order import AMD as REDUCES_LIKE_AMD


@dataclass(frozen=True, kw_only=True)
class Backend:
    """One vendor's compiler. `stages`: what `make_llir` and its followers make of TTGIR, the last is what a launch gets.

    `unverified_attribute`: one that no module may have (`stop_compiler.generic_text`). `target_prefix`: of an architecture's
    name in ``ttg.target``, in place of `name_prefix`. `flushes_subnormals`: in functions, where the options do not say.

    `assembles_ptx`: its code passes PTX and ptxas, which contracts sums and quotients after LLVM and tells registers and widths of
    accesses. `has_function_words`: the words of its functions and quotients are known; else they are held to a bound.
    `multiplies_in_order`: a product without matrix instructions is one chain of fp32. `narrows_through_fp16`: a conversion to fp8
    makes fp16 first. `refuses_missing_conversions`: of formats, after the verifier. `has_buffer_operations`: accesses by a base and
    offsets. `copies_to_lds`: an asynchronous copy is a load to LDS, which stores what masked lanes are to have.
    """

    name: str
    stages: tuple[str, ...]
    unverified_attribute: str
    target_prefix: str
    name_prefix: str
    flushes_subnormals: bool
    assembles_ptx: bool
    has_function_words: bool
    multiplies_in_order: bool
    narrows_through_fp16: bool
    refuses_missing_conversions: bool
    has_buffer_operations: bool
    copies_to_lds: bool

    def target(self, arch: str) -> int | str:
        """`arch` as the compiler calls it: 90, "gfx942"."""
        return int(arch.removeprefix("sm_")) if self.assembles_ptx else arch

    def target_attribute(self, arch: str) -> str:
        """`arch` as ``ttg.target`` of a tile program names it."""
        return f'"{self.target_prefix}{arch.removeprefix(self.name_prefix)}"'

    def capability(self, arch: str) -> int:
        """90 for "sm_90"; 0 where no PTX is read."""
        return int(arch.removeprefix("sm_")) if self.assembles_ptx else 0

    def reduction_number(self, arch: str) -> int:
        """The number that `uses_register_pairs` of `reference.reduction_order` takes."""
        return self.capability(arch) or REDUCES_LIKE_AMD


NVIDIA = Backend(
    name="cuda",
    stages=("llir", "ptx", "cubin"),
    unverified_attribute="nvvm.kernel",
    target_prefix="cuda:",
    name_prefix="sm_",
    flushes_subnormals=True,
    assembles_ptx=True,
    has_function_words=True,
    multiplies_in_order=True,
    narrows_through_fp16=False,
    refuses_missing_conversions=True,
    has_buffer_operations=False,
    copies_to_lds=False,
)
AMD = Backend(
    name="hip",
    stages=("llir", "amdgcn", "hsaco"),
    unverified_attribute="rocdl.kernel",
    target_prefix="hip:",
    name_prefix="",
    flushes_subnormals=False,
    assembles_ptx=False,
    has_function_words=False,
    multiplies_in_order=False,
    narrows_through_fp16=True,
    refuses_missing_conversions=False,
    has_buffer_operations=True,
    copies_to_lds=True,
)
BACKENDS = {backend.name: backend for backend in (NVIDIA, AMD)}


def backend_of(arch: str) -> Backend:
    """The compiler that serves `arch`."""
    return BACKENDS[architecture(arch).backend]


__all__ = ["AMD", "BACKENDS", "NVIDIA", "Backend", "backend_of"]
