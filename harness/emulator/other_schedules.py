"""Each launch once more, from the same bytes, under other schedules: what it leaves may not depend on them.

Programs that order nothing among one another, and that wait for nothing on the chip, run several at once, or one by one for a
reason that has to do with neither (`Launch.serial_reason`): no schedule is asked there, and such a launch is not repeated.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.device_probe import DeviceProbe, LaunchRun, WordAccess
from bitverdict.harness.emulator.execution.program_batches import DIFFERING_LANES, FEW_PROGRAMS
from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.frontend.arguments import program_arguments
from bitverdict.harness.emulator.frontend.lowerings.program_batches import HELD_ACCESSES, ONE_PROGRAM
from bitverdict.harness.emulator.memory.atomic_sums import AtomicSums, note_sum
from bitverdict.harness.emulator.numerics.enclosed_memory import EnclosedMemory
from bitverdict.harness.emulator.numerics.matrix_products import product_cache

if TYPE_CHECKING:
    from bitverdict.harness.emulator.device import Device, Launch
    from bitverdict.harness.emulator.memory.global_memory import Region

NO_ORDER_REASONS = ("", FEW_PROGRAMS, DIFFERING_LANES, HELD_ACCESSES, ONE_PROGRAM)
_ORDERED_BY_ATOMICS = re.compile(
    rb"tt\.atomic_|async_tma_reduce|tt\.descriptor_reduce|local_atomic|buffer_atomic|inline_asm|isVolatile"
)


def other_schedules(count: int) -> list[str]:
    """The schedules beside "eager" of `count` in all: "latest", then drawn ones."""
    return ["latest", *(f"drawn:{seed}" for seed in range(1, count - 1))][: max(count - 1, 0)]


class OtherSchedules(DeviceProbe):
    """Rides on the launches of `device`, and repeats each under `schedules`. `tell` is given a sentence
    on words that depend on the schedule where atomics may choose among orders; without atomics they are a race."""

    def __init__(self, schedules: Sequence[str], tell: Callable[[str], None]) -> None:
        self.schedules, self.tell = schedules, tell
        self.device: Device
        self.repeated_launches = 0
        self._request: tuple[Any, Any, tuple[int, int, int], Sequence[Any]] | None = None
        self._program, self._before = b"", dict[int, np.ndarray]()
        self._sums: dict[int, AtomicSums] = {}

    def on_request(self, source: object, metadata: object, grid: tuple[int, int, int], values: Sequence[object]) -> None:
        self._request = source, metadata, grid, values

    def begin(self, run: LaunchRun) -> None:
        self._program = run.program
        self._before = {region.base: region.raw.copy() for region in run.regions if region.changes}
        self._sums = {base: AtomicSums(raw.size) for base, raw in self._before.items()}
        if self.schedules:
            product_cache.begin()

    def on_combination(self, access: WordAccess, old_words: np.ndarray, values: np.ndarray) -> None:
        note_sum(self._sums, access, old_words, values)

    def on_failure(self, error: BaseException) -> None:
        self._request, self._before = None, {}

    def end(self, run: LaunchRun) -> None:
        product_cache.end()

    def settle(self, run: LaunchRun) -> None:
        launch, regions = run.launch, run.regions
        request, before, self._request, self._before = self._request, self._before, None, {}
        changing_regions = [region for region in regions if region.base in before]
        if request is None or launch.serial_reason in NO_ORDER_REASONS or not self.schedules:
            return
        after = {region.base: region.raw.copy() for region in changing_regions}
        self.repeated_launches += 1
        try:
            for schedule in self.schedules:
                for region in changing_regions:
                    region.raw[:] = before[region.base]
                self._repeat(request, schedule, run.enclosed)
                for region in changing_regions:
                    self._compare(launch, region, after[region.base], schedule)
        finally:
            for region in changing_regions:
                region.raw[:] = after[region.base]

    def _repeat(self, request: tuple, schedule: str, enclosed: EnclosedMemory) -> None:
        source, metadata, grid, values = request
        device = self.device
        twin = type(device)(device.arch, f"{schedule} on {device.multiprocessors}", replace(device.options, probes=()))
        twin.reachable, twin.enclosed = device.reachable, enclosed.copy()
        arguments = [
            part
            for (name, kind), value in zip(dict(source.signature).items(), values, strict=True)
            for part in program_arguments(kind, name, value)
        ]
        with redirect_stdout(io.StringIO()):  # what the kernel prints was printed
            try:
                twin.run(self._program, metadata, grid, [name for name, _ in arguments], [value for _, value in arguments])
            except EmulatedFault as fault:
                fault.details.setdefault("schedule", schedule)
                raise

    def _compare(self, launch: Launch, region: Region, first_run: np.ndarray, schedule: str) -> None:
        """Words of `region` that the two runs left differently, those aside that are float sums of atomics, within their bound."""
        differing_bytes = region.raw != first_run
        if not differing_bytes.any():
            return
        if _ORDERED_BY_ATOMICS.search(self._program):
            sums = list(self._sums[region.base].bounds(first_run))
            for places, _, _, size in sums:
                words = differing_bytes[: differing_bytes.size // size * size].reshape(-1, size)
                words[places] = False
            if differing_bytes.any():
                self.tell(
                    f"{launch.name}: {int(differing_bytes.sum())} bytes of {region.name} depend on the order of programs "
                    f"({schedule})"
                )
            return
        place = int(differing_bytes.argmax()) - region.low
        raise EmulatedFault(
            "race",
            f"{region.name} holds other bytes under the schedule {schedule} than under eager, the first at byte {place}, and the "
            "kernel has no atomic that could choose an order",
            _first_line(launch),
            {"schedule": schedule},
        )


def _first_line(launch: Launch) -> str:
    found = re.search(r'loc\("([^"]+)":(\d+):', launch.program)
    return f"{found[1]}:{found[2]}" if found else ""


__all__ = ["OtherSchedules", "other_schedules"]
