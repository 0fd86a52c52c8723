"""Recording: what the emulated GPU launches goes, launch by launch, to the process that runs it again (`replaying`).

Not compared, and named in the results: a launch that a fault ended, since the emulator left it half way; one that is given, or may
load, addresses which lie in memory, since a real GPU's are others; one whose target is not the real GPU's.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Client
from typing import Any

import numpy as np
import torch
from triton import knobs
from triton.compiler import compiler
from triton.compiler.compiler import CompiledKernel

from bitverdict.harness.emulator import EmulatedFault
from bitverdict.harness.emulator.compiled_kernel import hashable
from bitverdict.harness.emulator.device_probe import DeviceProbe, LaunchRun, WordAccess
from bitverdict.harness.emulator.memory.atomic_sums import AtomicSums, note_sum
from bitverdict.harness.emulator.memory.byte_arrays import words_in
from bitverdict.harness.emulator.memory.global_memory import Region
from bitverdict.harness.emulator.numerics.enclosed_memory import EnclosedMemory
from bitverdict.harness.report.launch_replay.recorded_launch import (
    PLACE_MODULUS,
    EnclosedWords,
    Kernel,
    Pointer,
    RecordedLaunch,
    Storage,
    TensorMap,
    pointers,
)

ATOMICS = re.compile(rb"tt\.atomic_(rmw|cas)|async_tma_reduce|tt\.descriptor_reduce|local_atomic|buffer_atomic")
WITHOUT_A_MACHINE = 120.0  # seconds in which a replaying process that ended has started anew
ELEMENTS = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e5": "float8_e5m2",
    "i1": "bool",
    **{f"{kind}{bits}": f"{name}{bits}" for kind, name in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)},
}
"""A pointer's kind in a signature -> torch's name of the element type."""
Row = dict[str, Any]


class LaunchRecorder(DeviceProbe):
    """Follows each launch of an emulated GPU whole, with its memory before and after it. `address`: the socket of the process that
    replays; `compiles`: whether it needs machine code. `tell` is given a row for each launch."""

    def __init__(self, task: str, configuration: str, address: str, tell: Callable[[Row], None], *, compiles: bool) -> None:
        self.task, self.configuration, self.address, self.tell, self.compiles = task, configuration, address, tell, compiles
        self.launches = 0  # that were asked and have programs to run
        self._asked: tuple[Any, Any, tuple[int, int, int], Sequence[Any]] | None = None
        self._before: dict[int, np.ndarray] | None = None  # by where a region begins
        self._written: dict[int, np.ndarray] = {}  # the same: (bytes,) uint8, 0 for those that the launch has not stored
        self._sums: dict[int, AtomicSums] = {}
        self._program = b""
        self._kernels: dict[int, tuple[Any, Kernel]] = {}  # by the identity of Triton's record, which is kept

    def on_request(self, source: object, metadata: object, grid: tuple[int, int, int], values: Sequence[object]) -> None:
        self._asked, self._before = (source, metadata, grid, values), None

    def begin(self, run: LaunchRun) -> None:
        if self._asked is None:  # not a launch of Triton's
            return
        self._program = run.program
        self._before = {region.base: region.raw.copy() for region in run.regions}
        self._written = {region.base: np.zeros(region.raw.size, np.uint8) for region in run.regions}
        self._sums = {region.base: AtomicSums(region.raw.size) for region in run.regions}

    def on_store(self, access: WordAccess) -> None:
        if self._before is not None:
            words = words_in(self._written[access.region.base], access.size)
            words[access.written_places] = np.iinfo(words.dtype).max

    def on_combination(self, access: WordAccess, old_words: np.ndarray, values: np.ndarray) -> None:
        if self._before is not None:
            note_sum(self._sums, access, old_words, values)

    def on_failure(self, error: BaseException) -> None:
        if self._asked is None:
            return
        _, metadata, grid, _ = self._asked
        kind = error.outcome if isinstance(error, EmulatedFault) else type(error).__name__
        row = RecordedLaunch(self.task, self.configuration, self.launches, Kernel(metadata.name, {}), grid, (), ()).row_start
        self.launches += 1
        self._asked = self._before = None
        self.tell(row | {"not_compared": f"{kind}: {' '.join(str(error).split())[:300]}"})

    def end(self, run: LaunchRun) -> None:
        launch, regions = run.launch, run.regions
        if self._asked is None or self._before is None or not run.is_complete:
            return
        (source, metadata, grid, values), before = self._asked, self._before
        self._asked = self._before = None
        number, self.launches = self.launches, self.launches + 1
        blank = RecordedLaunch(self.task, self.configuration, number, Kernel(launch.name, {}), grid, (), ())
        if any(region.is_followed and (region.is_loaded or self._written[region.base].any()) for region in regions):
            self.tell(blank.row_start | {"not_compared": "addresses that lie in memory: those of a real GPU are others"})
            return
        try:
            kernel = self._kernel(source, metadata)
        except Exception as error:
            said = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            self.tell(blank.row_start | {"not_compared": f"does not compile to machine code: {said}"})
            return
        reached_regions = [region for region in regions if not region.is_followed]
        launch_record = RecordedLaunch(
            self.task,
            self.configuration,
            number,
            kernel,
            grid,
            passed := arguments(dict(source.signature), values, reached_regions),
            storages(reached_regions, before, self._written, passed),
            enclosed_in(reached_regions, run.enclosed, self._written, self._sums),
            bool(ATOMICS.search(self._program)),
        )
        self.tell(
            self._replay_launch(
                launch_record, [before[region.base] for region in reached_regions], [region.raw for region in reached_regions]
            )
        )
        self._written, self._sums = {}, {}

    def _kernel(self, source: Any, metadata: Any) -> Kernel:
        entry = self._kernels.get(id(source))
        if entry is None:
            signature = {name: _plain_kind(kind) for name, kind in dict(source.signature).items()}
            if self.compiles:
                whole = compile_source(source, metadata, self._program)
                files = {name: str(path) for name, path in whole.metadata_group.items()}
                made = Kernel(whole.name, signature, files)
            else:
                made = Kernel(metadata.name, signature, program=self._program, metadata=metadata._asdict())
            entry = self._kernels[id(source)] = source, made
        return entry[1]

    def _replay_launch(self, launch_record: RecordedLaunch, before: list[np.ndarray], after: list[np.ndarray]) -> Row:
        """What the replaying process says of it. That process starts anew after a fault of its GPU; it is asked again then."""
        until = time.monotonic() + WITHOUT_A_MACHINE
        while True:
            try:
                with Client(self.address) as connection:
                    connection.send(launch_record)
                    for storage, old, new in zip(launch_record.storages, before, after, strict=True):
                        connection.send_bytes(old.data)
                        if storage.is_changed:
                            connection.send_bytes(np.ascontiguousarray(new).data)
                    return launch_record.row_start | connection.recv()
            except (OSError, EOFError) as error:
                if time.monotonic() > until:
                    return launch_record.row_start | {"not_compared": f"the replaying process does not answer: {error}"}
                time.sleep(0.2)


def _plain_kind(kind: object) -> Any:
    """A parameter's kind in the signature, as plain text and tuples."""
    return tuple(map(_plain_kind, kind)) if isinstance(kind, tuple) else str(kind)


def compile_source(source: Any, metadata: Any, program: bytes) -> CompiledKernel:
    """`source`, Triton's record of a kernel with its signature and constants, compiled to machine code from its Python source, as
    Triton would have without an emulated GPU. `metadata` and tile `program` are those of the emulated launch: its options."""
    hook, saved_class = knobs.runtime.add_stages_inspection_hook, compiler.CompiledKernel
    options = {name: hashable(value) for name, value in metadata._asdict().items()}
    if warps := re.search(rb'"ttg\.num-warps" = (\d+)', program):  # the metadata's are those of all partitions together
        options["num_warps"] = int(warps[1])
    knobs.runtime.add_stages_inspection_hook, compiler.CompiledKernel = None, CompiledKernel
    try:
        return compiler.compile(source, target=metadata.target, options=options)
    finally:
        knobs.runtime.add_stages_inspection_hook, compiler.CompiledKernel = hook, saved_class


def arguments(signature: Mapping[str, object], values: Sequence[object], regions: Sequence[Region]) -> tuple[Any, ...]:
    """`values` of the parameters with a Pointer for each that leads into memory, and None for each constant."""
    return tuple(_argument(kind, value, regions) for kind, value in zip(signature.values(), values, strict=True))


def _argument(kind: Any, value: Any, regions: Sequence[Region]) -> Any:
    if isinstance(kind, tuple):
        return tuple(_argument(part, item, regions) for part, item in zip(kind, value, strict=True))
    if kind == "constexpr":
        return None
    if hasattr(value, "block_shape") and hasattr(value, "base"):
        fields = {name: _plain_field(item) for name, item in vars(value).items() if name != "base"}
        fields |= {"mode": value.mode} if hasattr(value, "mode") else {}  # "im2col", which is no field of the object
        return TensorMap(_pointer(value.base, regions, str(value.base.dtype).removeprefix("torch.")), fields)
    if hasattr(value, "data_ptr") or str(kind).startswith("*"):
        return _pointer(value, regions, ELEMENTS.get(str(kind).lstrip("*k"), "uint8"))
    return value if isinstance(value, bool | int | float | None) else value.item()


def _plain_field(value: Any) -> Any:
    """A field of a descriptor; sizes as Python's integers."""
    return (
        type(value)(map(_plain_field, value))
        if isinstance(value, list | tuple)
        else int(value)
        if hasattr(value, "item")
        else value
    )


def _pointer(value: Any, regions: Sequence[Region], dtype: str) -> Pointer:
    """Where `value` leads, a tensor or anything with an address, or an address."""
    if value is None:
        return Pointer(-1)
    address = int(value.data_ptr()) if hasattr(value, "data_ptr") else int(value)
    for number, region in enumerate(regions):
        if region.base <= address < region.end:
            return Pointer(number, address - region.base, dtype)
    return Pointer(-1)


def storages(
    regions: Sequence[Region], before: dict[int, np.ndarray], write_marks: dict[int, np.ndarray], passed: tuple[object, ...]
) -> tuple[Storage, ...]:
    """Each region as it is told: its words are elements of the first argument that leads into it."""
    sizes: dict[int, int] = {}
    for pointer in pointers(passed):
        size = getattr(torch, pointer.dtype).itemsize
        sizes.setdefault(pointer.storage, min(size, 8))
    return tuple(
        Storage(
            region.name,
            region.raw.size,
            region.base % PLACE_MODULUS,
            size := sizes.get(number, 1),
            not np.array_equal(before[region.base], region.raw),
            int(np.count_nonzero(write_marks[region.base][::size])),
        )
        for number, region in enumerate(regions)
    )


def enclosed_in(
    regions: Sequence[Region], enclosed_memory: EnclosedMemory, write_marks: dict[int, np.ndarray], sums: dict[int, AtomicSums]
) -> tuple[EnclosedWords, ...]:
    """The enclosed words of each region that this launch has stored, and those that another order of its float atomics may make."""
    enclosed_words, words = [], enclosed_memory.words()
    for number, region in enumerate(regions):
        offsets = words["address"] - region.base
        in_any_order = list(sums[region.base].bounds(region.raw, enclosed_memory, region.base))
        is_stored = (offsets >= 0) & (offsets < region.end - region.base)
        is_stored[is_stored] = write_marks[region.base][offsets[is_stored]] != 0
        for places, _, _, size in in_any_order:
            is_stored &= ~np.isin(offsets, places * size)
        if is_stored.any():
            columns = (words[name][is_stored] for name in ("low", "high", "size", "is_integer"))
            enclosed_words.append(EnclosedWords(number, offsets[is_stored], *columns))
        for places, low, high, size in in_any_order:
            enclosed_words.append(
                EnclosedWords(number, places * size, low, high, np.full(places.size, size), np.zeros(places.size, np.bool_))
            )
    return tuple(enclosed_words)


__all__ = ["LaunchRecorder", "Row", "arguments", "compile_source"]
