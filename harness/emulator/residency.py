"""How many programs of a launch a GPU holds at once: its multiprocessors, and what one program takes of each.

Programs that are resident together run at the same time, so one may wait for another. Programs beyond that begin when one ends.
Tensor memory does not count: a program that is resident waits for its columns. What each multiprocessor has stands in the record
of its architecture (`bitverdict.harness.model.architectures`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from bitverdict.harness.model.architectures import ARCHITECTURES, CHIPS

if TYPE_CHECKING:
    from bitverdict.harness.emulator.compiled_kernel import KernelMetadata

KIB = 1024
WARP = 32
MOST_REGISTERS = 255  # of one thread
RESERVED_BYTES = KIB  # bytes of shared memory that the system keeps for each program (CUDA programming guide, from 8.0 on)
LARGEST_GRID = (2**31 - 1, 65535, 65535)  # programs along x, y, z (CUDA programming guide, the same table)


MULTIPROCESSORS = {name: chip.multiprocessors for name, chip in CHIPS.items()}


@dataclass(frozen=True)
class Residency:
    """`programs` can be resident together; `reason` says how that was counted, for a person to read.

    Of each of the `multiprocessors`, `holders` programs have their `columns` of tensor memory at once. Those that are resident
    beside them wait. Without tensor memory `columns` is 0, and nobody waits.
    """

    programs: int
    reason: str
    multiprocessors: int
    holders: int
    columns: int

    @property
    def concurrent_programs(self) -> int:
        """Programs that run at the same time: they are resident and wait for no tensor memory."""
        return self.multiprocessors * self.holders


@dataclass(frozen=True)
class Registers:
    """Registers of one thread, and how they are known."""

    count: int
    source: str


def most_registers(warps: int, limit: int | None) -> Registers:
    """What a thread takes at most: `limit` where the author gave one (maxnreg), else what the compiler may take."""
    if limit:
        return Registers(limit, "maxnreg")
    return Registers(min(MOST_REGISTERS, MULTIPROCESSORS["sm_80"].registers // (WARP * warps)), "the most there can be")


def residency(arch: str, count: int, *, shared: int, warps: int, columns: int, registers: Registers) -> Residency:
    """Programs that `count` multiprocessors of `arch` hold: each of `warps` warps takes `shared` bytes of shared memory and
    `registers` a thread, and waits for `columns` of tensor memory."""
    have, warp = MULTIPROCESSORS[arch], ARCHITECTURES[arch].threads_per_warp
    limits = {
        "programs": have.programs,
        "threads": have.threads // (warp * warps),
        "shared memory": have.shared // (shared + RESERVED_BYTES),
        f"registers ({registers.count} a thread, {registers.source})": have.registers
        // (warp * warps * (-(-registers.count // 8) * 8)),
    }
    scarce = min(limits, key=lambda name: limits[name])
    each = max(limits[scarce], 1)
    holders = min(each, have.columns // columns) if columns else each
    return Residency(count * each, f"{count} multiprocessors of {arch} hold {each} each by their {scarce}", count, holders, columns)


def check_grid(grid: tuple[int, int, int]) -> None:
    """RuntimeError, in the driver's own words, for a `grid` that no launch may have; one without programs launches nothing."""
    if prod(grid) > 0 and any(not 0 < n <= most for n, most in zip(grid, LARGEST_GRID, strict=True)):
        raise RuntimeError(
            f"Triton Error [CUDA]: invalid argument: grid {grid}: must be at most {LARGEST_GRID} programs along x, y and z; "
            "fold what is over into another axis"
        )


def limit_of(metadata: KernelMetadata, text: str | None) -> int | None:
    """The most registers of a thread, as the launch's options or the tile program's ``ttg.maxnreg`` say; None: nobody said."""
    given = getattr(metadata, "maxnreg", None)
    return int(given) if given else int(text.split(" ")[0]) if text else None
