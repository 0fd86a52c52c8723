"""Who may use which GPU: a lock on (device, slot), freed by the kernel when its holder dies.

It serves the workers of one pytest run, and two runs on one machine, alike. A worker's number would not do: a killed worker is
replaced under a new one, and `number % GPUs` drifts. A device is locked by its UUID, which does not depend on what a run may see or
in what order. A device has as many slots as its memory has room for workers; `BITVERDICT_GPU_SLOTS` makes that fewer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bitverdict.harness.judge.machine_lock import POLL, WORKER_MEMORY, Place, _acquire_lock, _directory
from bitverdict.harness.model.targets import Target, visible_device
from bitverdict.harness.model.usage import UsageError

NEED = WORKER_MEMORY
PREFERRED_PLACES = "BITVERDICT_GPU_PLACES"


@dataclass(frozen=True)
class Lease:
    """A place, and the descriptor that holds its lock."""

    place: Place
    descriptor: int

    @property
    def index(self) -> int:
        return self.place.index

    def release(self) -> None:
        os.close(self.descriptor)


def slots() -> int | None:
    """The most processes that may share one GPU; None without BITVERDICT_GPU_SLOTS, ValueError unless it is a positive integer."""
    text = os.environ.get("BITVERDICT_GPU_SLOTS")
    if text is None:
        return None
    if not text.isdigit() or int(text) < 1:
        raise UsageError(f"BITVERDICT_GPU_SLOTS={text!r}: must be a positive integer; unset it to go by the GPU's memory")
    return int(text)


def places(gpus: Iterable[Target]) -> list[Place]:
    """Every place there is on `gpus`, whoever holds it: the first slot of each, then the second of each, and so on."""
    found = [
        Place(gpu.index, gpu.uuid or visible_device(gpu.index), slot)
        for gpu in gpus
        for slot in range(_max_slots(max(1, gpu.total // NEED)))
    ]
    return sorted(found, key=lambda place: (place.slot, place.index))


def free_places(gpus: Sequence[Target], *, directory: Path | None = None) -> list[Place]:
    """Of those places, what nobody holds and the memory that is free now has room for."""
    room = {gpu.index: _max_slots(gpu.free // NEED) for gpu in gpus}
    available_places = []
    for place in places(gpus):
        if room[place.index] > 0 and (descriptor := _acquire_lock(place, _directory(directory))) is not None:
            os.close(descriptor)
            room[place.index] -= 1
            available_places.append(place)
    return available_places


def lease(gpus: Sequence[Target], *, wait: float = 600.0, directory: Path | None = None) -> Lease:
    """A lease on one of `gpus`, on a place that this run was counted for if one is left, on the emptiest GPU first; TimeoutError
    after `wait` seconds."""
    preferred = os.environ.get(PREFERRED_PLACES, "").split(",")
    sorted_places = sorted(places(gpus), key=lambda place: str(place) not in preferred)
    end = time.monotonic() + wait
    while True:
        for place in sorted_places:
            descriptor = _acquire_lock(place, _directory(directory))
            if descriptor is not None:
                return Lease(place, descriptor)
        if time.monotonic() > end:
            named = ", ".join(dict.fromkeys(place.device for place in sorted_places))
            fewer = "" if slots() is None else f", or raise BITVERDICT_GPU_SLOTS={slots()}"
            raise TimeoutError(f"no slot free on {named} within {wait:g} s; end other runs, start fewer workers (-n){fewer}")
        time.sleep(POLL)


def _max_slots(by_memory: int) -> int:
    given = slots()
    return by_memory if given is None else min(by_memory, given)
