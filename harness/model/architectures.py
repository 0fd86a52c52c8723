"""One record an architecture. Every number and every choice that depends on the architecture is read from it.

What a kernel may ask of an architecture (features, bytes of shared memory) stands in `bitverdict.kernels.features`, which kernels
import too. Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; PTX ISA 9.0, "Target ISA notes";
Triton 3.9, AccelerateMatmul; the data sheets of the chips; AMD's ISA documents of CDNA 2, 3 and 4 for ``gfxNNN``.
"""

from __future__ import annotations

from dataclasses import dataclass

from bitverdict.kernels.features import Feature, architectures, features_of, shared_memory_of

KIB, GIB = 1 << 10, 1 << 30


@dataclass(frozen=True)
class Multiprocessors:
    """`count` of one GPU, and what each has: bytes of shared memory, threads, programs, registers, columns of tensor memory."""

    count: int
    shared: int
    threads: int = 2048
    programs: int = 32
    registers: int = 65536
    columns: int = 0


@dataclass(frozen=True, kw_only=True)
class Chip:
    """The chip that an emulated architecture answers for.

    `model`: the name that its driver reports. `memory` and `l2` in bytes, clocks in kHz, `bus` in bits. `by_default`: it is judged
    where no target is named.
    """

    model: str
    multiprocessors: Multiprocessors
    memory: int
    l2: int
    clock: int
    memory_clock: int
    bus: int
    by_default: bool = False


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What an architecture has. An architecture with a `chip` is emulated.

    `family` is the name that its maker gives its generation, in lower case. `families`: its matrix instructions for `tl.dot`, in
    the order in which Triton tries them. `mma_sync_fp8`: mma.sync takes e4m3 as it is; elsewhere the compiler widens e4m3 to fp16.
    `tcgen05_int8`: Triton uses tcgen05 for int8. `threads_per_warp`: 64 on AMD's CDNA, whose warps are called wavefronts.
    """

    name: str
    family: str
    families: tuple[str, ...]
    mma_sync_fp8: bool = False
    tcgen05_int8: bool = False
    threads_per_warp: int = 32
    chip: Chip | None = None

    @property
    def backend(self) -> str:
        """Triton's name of the compiler that serves it: "cuda" or "hip"."""
        return "hip" if is_amd(self.name) else "cuda"

    @property
    def capability(self) -> int:
        """90 for "sm_90"; of AMD's what torch tells as (major, minor): 94 for "gfx942"."""
        if is_amd(self.name):
            return int(self.name.removeprefix("gfx")[:-1])
        return int(self.name.removeprefix("sm_"))

    @property
    def features(self) -> frozenset[Feature]:
        return features_of(self.name)

    @property
    def shared_memory(self) -> int:
        """Bytes of shared memory that one program may use."""
        return shared_memory_of(self.name)

    @property
    def converts_integers_to_bf16(self) -> bool:
        """Whether one instruction rounds an integer to bf16 (PTX ISA, cvt: from sm_90 on); elsewhere it goes through fp32."""
        return self.capability >= 90


def is_amd(name: str) -> bool:
    """Whether `name` is one of AMD's architectures ("gfx942")."""
    return name.startswith("gfx")


_TCGEN05 = ("tcgen05", "mma.sync")
_RECORDS = (
    Architecture(
        name="sm_80",
        family="ampere",
        families=("mma.sync",),
        chip=Chip(
            model="NVIDIA A100-SXM4-80GB",
            multiprocessors=Multiprocessors(108, 164 * KIB),
            memory=80 * GIB,
            l2=40 * KIB * KIB,
            clock=1_410_000,
            memory_clock=1_593_000,
            bus=5120,
            by_default=True,
        ),
    ),
    Architecture(
        name="sm_86",
        family="ampere",
        families=("mma.sync",),
        chip=Chip(
            model="NVIDIA A10G",
            multiprocessors=Multiprocessors(80, 100 * KIB, threads=1536, programs=16),
            memory=24 * GIB,
            l2=6 * KIB * KIB,
            clock=1_710_000,
            memory_clock=6_251_000,
            bus=384,
        ),
    ),
    Architecture(
        name="sm_87",
        family="ampere",
        families=("mma.sync",),
        chip=Chip(
            model="NVIDIA Jetson AGX Orin",
            multiprocessors=Multiprocessors(16, 164 * KIB, threads=1536, programs=16),
            memory=64 * GIB,
            l2=4 * KIB * KIB,
            clock=1_300_000,
            memory_clock=3_200_000,
            bus=256,
        ),
    ),
    Architecture(
        name="sm_89",
        family="ada",
        families=("mma.sync",),
        mma_sync_fp8=True,
        chip=Chip(
            model="NVIDIA L4",
            multiprocessors=Multiprocessors(58, 100 * KIB, threads=1536, programs=24),
            memory=24 * GIB,
            l2=48 * KIB * KIB,
            clock=2_040_000,
            memory_clock=6_251_000,
            bus=192,
        ),
    ),
    Architecture(
        name="sm_90",
        family="hopper",
        families=("wgmma", "mma.sync"),
        chip=Chip(
            model="NVIDIA H100 80GB HBM3",
            multiprocessors=Multiprocessors(132, 228 * KIB),
            memory=80 * GIB,
            l2=50 * KIB * KIB,
            clock=1_980_000,
            memory_clock=2_619_000,
            bus=5120,
            by_default=True,
        ),
    ),
    Architecture(
        name="sm_100",
        family="blackwell",
        families=_TCGEN05,
        tcgen05_int8=True,
        chip=Chip(
            model="NVIDIA B200",
            multiprocessors=Multiprocessors(148, 228 * KIB, columns=512),
            memory=180 * GIB,
            l2=126 * KIB * KIB,
            clock=1_965_000,
            memory_clock=3_996_000,
            bus=8192,
            by_default=True,
        ),
    ),
    Architecture(
        name="sm_103",
        family="blackwell",
        families=_TCGEN05,
        chip=Chip(
            model="NVIDIA B300",
            multiprocessors=Multiprocessors(148, 228 * KIB, columns=512),
            memory=288 * GIB,
            l2=126 * KIB * KIB,
            clock=1_965_000,
            memory_clock=3_996_000,
            bus=8192,
        ),
    ),
    Architecture(
        name="sm_110",
        family="blackwell",
        families=_TCGEN05,
        chip=Chip(
            model="NVIDIA Thor",
            multiprocessors=Multiprocessors(20, 228 * KIB, threads=1536, programs=24, columns=512),
            memory=128 * GIB,
            l2=32 * KIB * KIB,
            clock=1_575_000,
            memory_clock=4_266_000,
            bus=256,
        ),
    ),
    Architecture(
        name="sm_120",
        family="blackwell",
        families=("mma.sync",),
        mma_sync_fp8=True,
        chip=Chip(
            model="NVIDIA GeForce RTX 5090",
            multiprocessors=Multiprocessors(170, 100 * KIB, threads=1536, programs=24),
            memory=32 * GIB,
            l2=96 * KIB * KIB,
            clock=2_407_000,
            memory_clock=14_001_000,
            bus=512,
        ),
    ),
    Architecture(
        name="sm_121",
        family="blackwell",
        families=("mma.sync",),
        mma_sync_fp8=True,
        chip=Chip(
            model="NVIDIA GB10",
            multiprocessors=Multiprocessors(48, 100 * KIB, threads=1536, programs=24),
            memory=128 * GIB,
            l2=24 * KIB * KIB,
            clock=2_418_000,
            memory_clock=4_266_000,
            bus=256,
        ),
    ),
    Architecture(
        name="gfx90a",
        family="cdna",
        families=("mfma",),
        threads_per_warp=64,
        chip=Chip(
            model="AMD Instinct MI210",
            multiprocessors=Multiprocessors(104, 64 * KIB, registers=131072),
            memory=64 * GIB,
            l2=8 * KIB * KIB,
            clock=1_700_000,
            memory_clock=1_600_000,
            bus=4096,
        ),
    ),
    Architecture(
        name="gfx942",
        family="cdna",
        families=("mfma",),
        threads_per_warp=64,
        chip=Chip(
            model="AMD Instinct MI300X",
            multiprocessors=Multiprocessors(304, 64 * KIB, registers=131072),
            memory=192 * GIB,
            l2=4 * KIB * KIB,
            clock=2_100_000,
            memory_clock=2_600_000,
            bus=8192,
        ),
    ),
    Architecture(
        name="gfx950",
        family="cdna",
        families=("mfma",),
        threads_per_warp=64,
        chip=Chip(
            model="AMD Instinct MI355X",
            multiprocessors=Multiprocessors(256, 160 * KIB, registers=131072),
            memory=288 * GIB,
            l2=4 * KIB * KIB,
            clock=2_400_000,
            memory_clock=2_000_000,
            bus=8192,
        ),
    ),
)
ARCHITECTURES: dict[str, Architecture] = {each.name: each for each in _RECORDS}
CHIPS: dict[str, Chip] = {each.name: each.chip for each in _RECORDS if each.chip}
"""Of the emulated architectures."""
EMULATED_ARCHITECTURES: tuple[str, ...] = tuple(CHIPS)
BY_DEFAULT: tuple[str, ...] = tuple(name for name, chip in CHIPS.items() if chip.by_default)
"""The emulated architectures that are judged where no target is named."""
FAMILIES: tuple[str, ...] = tuple(dict.fromkeys(each.family for each in _RECORDS))


def emulated_with(feature: Feature) -> tuple[str, ...]:
    """The emulated architectures that have the feature."""
    return tuple(name for name in EMULATED_ARCHITECTURES if feature in features_of(name))


def architecture(name: str) -> Architecture:
    """The record of ``sm_NN`` or ``gfxNNN``. ValueError (value, rule, remedy) where there is none."""
    if name not in ARCHITECTURES:
        raise ValueError(f"architecture {name!r}: has no record; use one of {', '.join(ARCHITECTURES)}, or add its record")
    return ARCHITECTURES[name]


__all__ = [
    "ARCHITECTURES", "BY_DEFAULT", "CHIPS", "EMULATED_ARCHITECTURES", "FAMILIES", "Architecture", "Chip", "Feature",
    "Multiprocessors", "architecture", "architectures", "emulated_with", "is_amd",
]  # fmt: skip
