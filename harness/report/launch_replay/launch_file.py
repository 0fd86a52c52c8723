"""One launch of the emulated GPU as a file: its tile program, arguments, and the tensors as they lay before it, byte for byte.

A zip of JSON and bytes, which nothing unpickles. `bitverdict replay` launches it again, without the Python that launched it.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton

from bitverdict.harness.emulator import Device, EmulatedFault
from bitverdict.harness.emulator.device_probe import DeviceProbe, LaunchRun
from bitverdict.harness.emulator.frontend.arguments import bytes_of, program_arguments
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.report.launch_replay.recorded_launch import PLACE_MODULUS, Descriptor

SUFFIX = ".launch"
MOST_BYTES = 256 << 20  # of the tensors of a launch that is kept
VERSION = 1


class LaunchFiles(DeviceProbe):
    """Rides on launches and keeps in `folder` those that a fault ends; where `chooses` is given, also the first of each kernel and
    specialisation whose name it takes. Not kept: what is given addresses as numbers, or more than `MOST_BYTES`."""

    def __init__(self, arch: str, folder: Path, chooses: Callable[[str], bool] | None = None) -> None:
        self.arch, self.folder, self.chooses = arch, folder, chooses
        self.written: list[Path] = []
        self._record: dict[str, Any] = {}
        self._storages: dict[int, np.ndarray] = {}  # by where they begin
        self._program = b""
        self._known_programs: set[bytes] = set()

    def on_request(self, source: Any, metadata: Any, grid: tuple[int, int, int], values: Sequence[object]) -> None:
        self._storages, self._record, self._program = {}, {}, b""
        signature = {name: json_value(kind) for name, kind in dict(source.signature).items()}
        try:
            arguments = [self._encode(kind, value) for kind, value in zip(signature.values(), values, strict=True)]
        except _AddressError:
            return
        fields = {name: json_value(value) for name, value in metadata._asdict().items()}
        self._record = {"version": VERSION, "triton": triton.__version__, "arch": self.arch, "name": metadata.name, "grid": grid,
                        "signature": signature, "values": arguments, "metadata": fields, "fault": None,
                        "begins": [place % PLACE_MODULUS for place in self._storages]}  # fmt: skip

    def begin(self, run: LaunchRun) -> None:
        self._program = run.program
        if self._record and self.chooses and run.program not in self._known_programs and self.chooses(self._record["name"]):
            self._known_programs.add(run.program)
            self._write(run.program)

    def on_failure(self, error: BaseException) -> None:
        if self._program and self._record and isinstance(error, EmulatedFault):
            self._record["fault"] = [error.outcome, error.message, error.location]
            path = self._write(f"{error.outcome} {error.location}".encode())
            error.details["replay"] = f"bitverdict replay {path}"

    def _write(self, named_by: bytes) -> Path:
        path = self.folder / f"{self._record['name']}-{self.arch}-{hashlib.sha256(named_by).hexdigest()[:12]}{SUFFIX}"
        self.folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
            file.writestr("launch.json", json.dumps(self._record, indent=1))
            file.writestr("program.mlir", self._program)
            for number, data in enumerate(self._storages.values()):
                file.writestr(f"storage{number}", data.tobytes())
        self.written.append(path)
        return path

    def _encode(self, kind: object, value: Any) -> Any:
        if kind == "constexpr" or value is None:
            return None
        if isinstance(kind, list):
            return [self._encode(part, item) for part, item in zip(kind, value, strict=True)]
        if hasattr(value, "block_shape") and hasattr(value, "base"):
            fields = {name: json_value(item) for name, item in vars(value).items() if name != "base"}
            return {"descriptor": fields, "base": self._encode("*", value.base)}
        if isinstance(getattr(value, "base", value), torch.Tensor):
            tensor = bytes_of("tensor", value)
            storage = tensor.untyped_storage()
            begin = storage.data_ptr()
            if begin not in self._storages:
                if storage.nbytes() + sum(each.size for each in self._storages.values()) > MOST_BYTES:
                    raise _AddressError
                self._storages[begin] = torch.empty(0, dtype=torch.uint8).set_(storage).numpy().copy()
            return {"storage": list(self._storages).index(begin), "dtype": str(tensor.dtype).removeprefix("torch."),
                    "view": [list(tensor.shape), list(tensor.stride()), tensor.storage_offset()]}  # fmt: skip
        if str(kind).startswith("*"):
            raise _AddressError
        return json_value(value)


class _AddressError(Exception):
    """An argument is an address in memory, or a tensor too large to be kept."""


def json_value(value: Any) -> Any:
    """A parameter's kind, a number, or a field of a descriptor or of Triton's metadata, as JSON has it."""
    if isinstance(value, list | tuple):
        return list(map(json_value, value))
    return value if isinstance(value, bool | int | float | str | None) else value.item() if hasattr(value, "item") else str(value)


class StoredLaunch:
    """A launch out of a file. UsageError (value, rule, remedy) for a file that is none."""

    def __init__(self, path: Path) -> None:
        try:
            with zipfile.ZipFile(path) as file:
                self.record: dict[str, Any] = json.loads(file.read("launch.json"))
                names = [f"storage{number}" for number in range(len(self.record["begins"]))]
                self.program = file.read("program.mlir")
                self.storages = [np.frombuffer(bytearray(file.read(name)), np.uint8) for name in names]
        except (OSError, zipfile.BadZipFile, ValueError, KeyError) as error:
            sources = f"a {SUFFIX} file of pytest --emulate or exec --record"
            raise UsageError(f"launch {path}: cannot be read ({error}); give {sources}") from None
        if self.record.get("version") != VERSION:
            raise UsageError(f"launch {path}: version {self.record.get('version')}, this checkout reads {VERSION}; record it again")

    def run(self, device: Device) -> None:
        """Launch it on `device`. Raises what the launch raises."""
        memory = [_placed_bytes(data, begin) for data, begin in zip(self.storages, self.record["begins"], strict=True)]
        signature, grid = {name: _tuples(kind) for name, kind in self.record["signature"].items()}, tuple(self.record["grid"])
        values = [_decode(value, memory) for value in self.record["values"]]
        metadata = SimpleNamespace(**self.record["metadata"], _asdict=lambda: self.record["metadata"])
        for probe in device.options.probes:
            probe.on_request(SimpleNamespace(signature=signature), metadata, grid, values)
        each = zip(signature.items(), values, strict=True)
        arguments = [part for (name, kind), value in each for part in program_arguments(kind, name, value)]
        device.run(self.program, metadata, grid, [name for name, _ in arguments], [value for _, value in arguments])


def _placed_bytes(data: np.ndarray, begin: int) -> torch.Tensor:
    """A storage that holds `data` and nothing else, at an address that is `begin` modulo `PLACE_MODULUS`."""
    room = np.empty(data.size + 2 * PLACE_MODULUS, np.uint8)
    place = (begin - room.ctypes.data) % PLACE_MODULUS
    room[place : place + data.size] = data
    return torch.from_numpy(room[place : place + data.size])


def _tuples(kind: object) -> object:
    return tuple(map(_tuples, kind)) if isinstance(kind, list) else kind


def _decode(value: Any, memory: list[torch.Tensor]) -> Any:
    if isinstance(value, list):
        return tuple(_decode(each, memory) for each in value)
    if not isinstance(value, dict):
        return value
    if "descriptor" in value:
        return Descriptor(_decode(value["base"], memory), value["descriptor"])
    shape, strides, offset = value["view"]
    storage, dtype = memory[value["storage"]], getattr(torch, value["dtype"])
    elements = storage[: storage.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
    return elements.as_strided(shape, strides, offset)


__all__ = ["SUFFIX", "LaunchFiles", "StoredLaunch"]
