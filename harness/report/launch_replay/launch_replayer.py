"""Replaying: a process with the real GPU, which runs each launch that it is sent by Triton's own driver, and compares every byte.

    python -m bitverdict.harness.report.launch_replay.launch_replayer SOCKET MACHINE

MACHINE is cuda:N, or emulated:ARCH, a second emulated GPU as its stand-in. It imports nothing of the scripts: a launch comes with
the machine code that was made of its kernel, and with the bytes of its memory. Nothing outlasts a launch but loaded kernels. After
a fault of the GPU, which leaves its context useless, the process replaces itself.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from itertools import product
from multiprocessing.connection import Connection, Listener
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import torch

from bitverdict.harness.emulator.numerics.enclosures import keys
from bitverdict.harness.report.launch_replay.recorded_launch import (
    PLACE_MODULUS,
    Kernel,
    Pointer,
    RecordedLaunch,
    Storage,
    with_places,
)

SECONDS = 60.0  # a launch on the GPU may take: one that takes longer waits for something that never comes


class Machine(Protocol):
    """What launches run on again. `device` is where torch puts its tensors."""

    device: str
    name: str

    def launch(self, kernel: Kernel, grid: tuple[int, int, int], values: Sequence[object]) -> None:
        """The kernel has run, and what it wrote is in memory, when this returns. Raises whatever the driver does."""


class Gpu:
    """A real GPU: kernels are loaded and launched by Triton's driver for it."""

    def __init__(self, device: str) -> None:
        import triton
        from triton.runtime.driver import driver

        torch.cuda.set_device(device)
        self.device, self.name = device, torch.cuda.get_device_name(device)
        self.arch = driver.active.get_current_target().arch
        self._loaded: dict[tuple[str, ...], Any] = {}
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=device))

    def launch(self, kernel: Kernel, grid: tuple[int, int, int], values: Sequence[object]) -> None:
        self._kernel(kernel)[grid](*values)
        done = torch.cuda.Event()
        done.record()
        until = time.monotonic() + SECONDS
        while not done.query():
            if time.monotonic() > until:
                raise TimeoutError(f"the launch has not ended after {SECONDS:.0f} seconds")
        torch.cuda.synchronize()

    def _kernel(self, kernel: Kernel) -> Any:
        from triton.compiler.compiler import CompiledKernel

        kernel_key = tuple(sorted(kernel.files.values()))
        if kernel_key not in self._loaded:
            source = SimpleNamespace(signature=kernel.signature, constants={}, fn=None)
            loaded = CompiledKernel(source, kernel.files, "")
            if loaded.metadata.target.arch != self.arch:
                raise ValueError(f"compiled for {loaded.metadata.target.arch}, this GPU is {self.arch}")
            self._loaded[kernel_key] = loaded
        return self._loaded[kernel_key]


class StandIn:
    """An emulated GPU in the place of the real one: what differs from it is a fault of the record, or of the replay."""

    device = "cpu"

    def __init__(self, arch: str) -> None:
        self.arch, self.name = arch, f"emulated {arch}"

    def launch(self, kernel: Kernel, grid: tuple[int, int, int], values: Sequence[object]) -> None:
        from bitverdict.harness.emulator import LaunchOptions, emulated
        from bitverdict.harness.emulator.frontend.arguments import program_arguments
        from bitverdict.harness.ptx_machine.open_words import OpenWords

        metadata = SimpleNamespace(**kernel.metadata, _asdict=lambda: kernel.metadata)
        each = zip(kernel.signature.items(), values, strict=True)
        given = [part for (name, kind), value in each for part in program_arguments(kind, name, value)]
        with emulated(self.arch, options=LaunchOptions(whole_storages=True, probes=(OpenWords(),))) as device:
            device.run(kernel.program, metadata, grid, [name for name, _ in given], [value for _, value in given])


def machine_of(name: str) -> Machine:
    return StandIn(name.removeprefix("emulated:")) if name.startswith("emulated:") else Gpu(name)


def replay(launch_record: RecordedLaunch, before: Sequence[Any], after: Sequence[object], machine: Machine) -> dict[str, Any]:
    """Run it on `machine` from the bytes `before`, and hold its memory to the bytes `after` (an array of uint8 each, None where
    they are those before): what the results say of it."""
    memory = [place_storage(storage, data, machine.device) for storage, data in zip(launch_record.storages, before, strict=True)]

    def address(pointer: Pointer) -> Any:
        if pointer.storage < 0:
            return None
        dtype = getattr(torch, pointer.dtype)
        return memory[pointer.storage][pointer.offset :][: _whole_bytes(launch_record, pointer, dtype)].view(dtype)

    machine.launch(launch_record.kernel, launch_record.grid, [with_places(value, address) for value in launch_record.values])
    return compare(launch_record, memory, before, after)


def compare(
    launch_record: RecordedLaunch, memory: Sequence[torch.Tensor], before: Sequence[Any], after: Sequence[object]
) -> dict[str, Any]:
    """Hold `memory`, what a machine left in each storage, to the bytes `after`: what the results say of it."""
    row: dict[str, Any] = {
        "words": sum(storage.words for storage in launch_record.storages),
        "written": sum(storage.written_words for storage in launch_record.storages),
        "bytes": sum(storage.size for storage in launch_record.storages),
        "differing": 0,
        "enclosed": 0,
        "enclosed_differing": 0,
        "outside": 0,
    }
    for number, storage in enumerate(launch_record.storages):
        expected = torch.from_numpy(before[number] if after[number] is None else after[number]).to(memory[number].device)
        differs = _differing_words(memory[number], expected, storage.word)
        open_ = [enclosure for enclosure in launch_record.enclosed_words if enclosure.storage == number]
        for enclosure in open_:
            word_keys = _words(memory[number], enclosure.offset, enclosure.size, enclosure.is_integer)
            out = (word_keys < enclosure.low) | (word_keys > enclosure.high)
            row["enclosed"] += enclosure.offset.size
            row["outside"] += int(out.sum())
            row["enclosed_differing"] += int(np.isin(enclosure.offset // storage.word, differs).sum())
            if out.any() and "first_outside" not in row:
                index = int(np.flatnonzero(out)[0])
                bounds = [int(word_keys[index]), int(enclosure.low[index]), int(enclosure.high[index])]
                row["first_outside"] = {"storage": storage.name, "offset": int(enclosure.offset[index]), "keys": bounds}
            differs = np.setdiff1d(differs, enclosure.offset // storage.word)
        row["differing"] += int(differs.size)
        if differs.size and "first" not in row:
            index = int(differs[0])
            there = slice(index * storage.word, (index + 1) * storage.word)
            words = [bytes(enclosure[there].cpu().numpy()[::-1]).hex() for enclosure in (memory[number], expected)]
            row["first"] = {"storage": storage.name, "index": index, "got": words[0], "expected": words[1]}
    return row


def _whole_bytes(recorded: RecordedLaunch, pointer: Pointer, dtype: torch.dtype) -> int:
    """How many bytes behind `pointer` are whole elements."""
    left = recorded.storages[pointer.storage].size - pointer.offset
    return left // dtype.itemsize * dtype.itemsize


def place_storage(storage: Storage, data: np.ndarray, device: str) -> torch.Tensor:
    """(size,) uint8: `data` on `device`, at an address that is the recorded one modulo `PLACE_MODULUS`."""
    room = torch.empty(storage.size + 2 * PLACE_MODULUS, dtype=torch.uint8, device=device)
    begin = (storage.begins - room.data_ptr()) % PLACE_MODULUS
    made = room[begin : begin + storage.size]
    made.copy_(torch.from_numpy(data))
    return made


def _differing_words(got: torch.Tensor, expected: torch.Tensor, word: int) -> np.ndarray:
    """The numbers of the words of `word` bytes that differ, in order."""
    places = torch.nonzero(got != expected).flatten().cpu().numpy()
    return np.unique(places // word)


def _words(memory: torch.Tensor, offsets: np.ndarray, sizes: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """(n,) the keys of the words of `sizes` bytes at `offsets`, of integers where `whole`."""
    word_keys = np.zeros(offsets.shape, np.int64)
    for size, kind in product(np.unique(sizes), "iu"):
        chosen = (sizes == size) & (whole == (kind == "i"))
        places = torch.from_numpy(offsets[chosen][:, None] + np.arange(size)).to(memory.device)  # (n, size)
        raw = np.ascontiguousarray(memory[places].cpu().numpy())
        word_keys[chosen] = keys(raw.view(f"{kind}{size}").reshape(-1))
    return word_keys


def serve(address: str, machine: Machine) -> None:
    """Answer launch after launch, one at a time, until this process is ended."""
    if os.path.exists(address):
        os.unlink(address)
    with Listener(address, "AF_UNIX", backlog=128) as listener:
        while True:
            try:
                with listener.accept() as connection:
                    _answer(connection, machine)
            except (OSError, EOFError) as error:  # of a recording process that was ended
                print(f"a launch was not received whole: {error}", file=sys.stderr, flush=True)


def _answer(connection: Connection, machine: Machine) -> None:
    launch_record = connection.recv()
    before, after = [], []
    for storage in launch_record.storages:
        before.append(_receive_bytes(connection))
        after.append(_receive_bytes(connection) if storage.is_changed else None)
    try:
        row = replay(launch_record, before, after, machine)
    except Exception as error:
        row = {"raised": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    connection.send(row)
    if "raised" in row and isinstance(machine, Gpu):
        connection.close()
        print(f"starts anew after {launch_record.kernel.name}: {row['raised']}", file=sys.stderr, flush=True)
        os.execv(sys.executable, [sys.executable, "-m", __spec__.name, *sys.argv[1:]])


def _receive_bytes(connection: Connection) -> np.ndarray:
    return np.frombuffer(bytearray(connection.recv_bytes()), np.uint8)


if __name__ == "__main__":
    serve(sys.argv[1], machine_of(sys.argv[2]))
