"""One launch of the emulated GPU as a file: its tile program, arguments, and the tensors as they lay before it, byte for byte.

A zip of JSON and arrays, which nothing unpickles. `bitverdict replay` launches it again; the Python that launched it is not needed.
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

from bitverdict.harness.emulator import EmulatedFault
from bitverdict.harness.emulator.device_probe import DeviceProbe, LaunchRun
from bitverdict.harness.emulator.frontend.arguments import bytes_of
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
        self._asked: dict[str, Any] | None = None
        self._storages: list[np.ndarray] = []
        self._program = b""
        self._known_programs: set[str] = set()

    def on_request(self, source: Any, metadata: Any, grid: tuple[int, int, int], values: Sequence[object]) -> None:
        places: dict[int, int] = {}
        self._storages, self._asked, self._program = [], None, b""
        signature = {name: _plain(kind) for name, kind in dict(source.signature).items()}
        try:
            given = [self._encode(kind, value, places) for kind, value in zip(signature.values(), values, strict=True)]
        except _NotKept:
            return
        plain = {name: value for name, value in metadata._asdict().items() if _is_plain(value)}
        self._asked = {"version": VERSION, "arch": self.arch, "grid": grid, "signature": signature, "values": given,
                       "metadata": plain, "begins": [place % PLACE_MODULUS for place in places]}  # fmt: skip

    def begin(self, run: LaunchRun) -> None:
        self._program = run.program
        digest = hashlib.sha256(run.program).hexdigest()
        name = str((self._asked or {}).get("metadata", {}).get("name", ""))
        if self.chooses is not None and digest not in self._known_programs and self.chooses(name):
            self._known_programs.add(digest)
            self._write(f"{name}-{self.arch}-{digest[:12]}", None)

    def on_failure(self, error: BaseException) -> None:
        if self._program and isinstance(error, EmulatedFault) and (asked := self._asked):
            text = json.dumps([asked["metadata"].get("name"), self.arch, error.outcome, error.location])
            digest = hashlib.sha256(text.encode()).hexdigest()[:12]
            path = self._write(f"{asked['metadata'].get('name')}-{self.arch}-{digest}", error)
            error.details["replay"] = f"bitverdict replay {path}"

    def _write(self, stem: str, fault: EmulatedFault | None) -> Path:
        record = dict(self._asked or {}) | {"fault": fault and [fault.outcome, fault.message, fault.location, dict(_texts(fault))]}
        path = self.folder / f"{stem}{SUFFIX}"
        self.folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
            file.writestr("launch.json", json.dumps(record, indent=1))
            file.writestr("program.mlir", self._program)
            for number, data in enumerate(self._storages):
                file.writestr(f"storage{number}", data.tobytes())
        self.written.append(path)
        return path

    def _encode(self, kind: Any, value: Any, places: dict[int, int]) -> Any:
        if kind == "constexpr" or value is None:
            return None
        if isinstance(kind, list):
            return [self._encode(part, item, places) for part, item in zip(kind, value, strict=True)]
        if hasattr(value, "block_shape") and hasattr(value, "base"):
            fields = {name: _plain(item) for name, item in vars(value).items() if name != "base"}
            return {"descriptor": fields, "base": self._encode("*", value.base, places)}
        if hasattr(value, "data_ptr"):
            if not isinstance(getattr(value, "base", value), torch.Tensor):
                raise _NotKept
            tensor = bytes_of("tensor", value)
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in places:
                places[storage.data_ptr()] = len(places)
                if storage.nbytes() + sum(each.size for each in self._storages) > MOST_BYTES:
                    raise _NotKept
                self._storages.append(torch.empty(0, dtype=torch.uint8).set_(storage).numpy().copy())
            return {
                "storage": places[storage.data_ptr()],
                "offset": tensor.storage_offset(),
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "shape": list(tensor.shape),
                "strides": list(tensor.stride()),
            }
        if str(kind).startswith("*"):
            raise _NotKept  # an address
        return value if isinstance(value, bool | int | float) else value.item()


class _NotKept(Exception):
    """The launch is not kept in a file."""


def _texts(fault: EmulatedFault) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in fault.details.items()]


def _plain(value: Any) -> Any:
    """A parameter's kind, or a descriptor's field, as JSON has it."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, bool | int | float | str | None) else int(value) if hasattr(value, "item") else str(value)


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool | int | float | str | None) or (isinstance(value, list | tuple) and all(map(_is_plain, value)))


class StoredLaunch:
    """A launch out of a file. UsageError (value, rule, remedy) for a file that is none."""

    def __init__(self, path: Path) -> None:
        try:
            with zipfile.ZipFile(path) as file:
                self.record: dict[str, Any] = json.loads(file.read("launch.json"))
                self.program = file.read("program.mlir")
                self.storages = [
                    np.frombuffer(bytearray(file.read(f"storage{number}")), np.uint8)
                    for number in range(len(self.record["begins"]))
                ]
        except (OSError, zipfile.BadZipFile, ValueError, KeyError) as error:
            raise UsageError(
                f"launch {path}: cannot be read ({error}); give a {SUFFIX} file of pytest --emulate or exec --record"
            ) from None
        if self.record.get("version") != VERSION:
            raise UsageError(f"launch {path}: version {self.record.get('version')}, this checkout reads {VERSION}; record it again")

    @property
    def arch(self) -> str:
        return str(self.record["arch"])

    def run(self, device: Any) -> None:
        """Launch it on `device`, from the bytes that it found. Raises what the launch raises."""
        from bitverdict.harness.emulator.frontend.arguments import program_arguments

        placed = [_placed(data, begin) for data, begin in zip(self.storages, self.record["begins"], strict=True)]
        signature = {name: _kind(kind) for name, kind in self.record["signature"].items()}
        values = [_decode(value, placed) for value in self.record["values"]]
        fields = dict(self.record["metadata"])
        metadata = SimpleNamespace(**fields, _asdict=lambda: fields)
        grid = tuple(self.record["grid"])
        for probe in device.options.probes:
            probe.on_request(SimpleNamespace(signature=signature), metadata, grid, values)
        given = [part for (name, kind), value in zip(signature.items(), values, strict=True)
                 for part in program_arguments(kind, name, value)]  # fmt: skip
        device.run(self.program, metadata, grid, [name for name, _ in given], [value for _, value in given])


def _placed(data: np.ndarray, begin: int) -> tuple[torch.Tensor, int]:
    """Room whose bytes from the returned place on are `data`, at an address that is `begin` modulo `PLACE_MODULUS`."""
    room = torch.empty(data.size + 2 * PLACE_MODULUS, dtype=torch.uint8)
    place = (begin - room.data_ptr()) % PLACE_MODULUS
    room[place : place + data.size] = torch.from_numpy(data)
    return room, place


def _kind(kind: Any) -> Any:
    return tuple(map(_kind, kind)) if isinstance(kind, list) else kind


def _decode(value: Any, placed: list[tuple[torch.Tensor, int]]) -> Any:
    if isinstance(value, list):
        return tuple(_decode(each, placed) for each in value)
    if not isinstance(value, dict):
        return value
    if "descriptor" in value:
        return Descriptor(_decode(value["base"], placed), value["descriptor"])
    room, place = placed[value["storage"]]
    dtype = getattr(torch, value["dtype"])
    offset = place // dtype.itemsize + value["offset"]
    whole = room[: room.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
    return torch.as_strided(whole, value["shape"], value["strides"], offset)


__all__ = ["SUFFIX", "LaunchFiles", "StoredLaunch"]
