"""What each emulated GPU is: one record an architecture, from which the driver and `torch.cuda` answer."""

from __future__ import annotations

from dataclasses import dataclass

KIB, GIB = 1 << 10, 1 << 30


@dataclass(frozen=True)
class Architecture:
    """The chip that an emulated architecture answers for.

    `shared_memory`: bytes one program may use (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
    `model`: the name that the chip's driver reports. `memory` and `l2` in bytes, clocks in kHz, `bus` in bits (the chip's data
    sheet). Its multiprocessors stand in `residency`.
    """

    capability: int
    shared_memory: int
    model: str
    memory: int
    l2: int
    clock: int
    memory_clock: int
    bus: int


ARCHITECTURES: dict[str, Architecture] = {
    "sm_80": Architecture(
        capability=80,
        shared_memory=163 * KIB,
        model="NVIDIA A100-SXM4-80GB",
        memory=80 * GIB,
        l2=40 * KIB * KIB,
        clock=1_410_000,
        memory_clock=1_593_000,
        bus=5120,
    ),
    "sm_90": Architecture(
        capability=90,
        shared_memory=227 * KIB,
        model="NVIDIA H100 80GB HBM3",
        memory=80 * GIB,
        l2=50 * KIB * KIB,
        clock=1_980_000,
        memory_clock=2_619_000,
        bus=5120,
    ),
    "sm_100": Architecture(
        capability=100,
        shared_memory=227 * KIB,
        model="NVIDIA B200",
        memory=180 * GIB,
        l2=126 * KIB * KIB,
        clock=1_965_000,
        memory_clock=3_996_000,
        bus=8192,
    ),
}
