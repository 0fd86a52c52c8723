"""One launch of the emulated GPU as a file: its tile program, arguments, and the tensors as they lay before it, byte for byte.

A zip of JSON and bytes, which nothing unpickles. `bitverdict replay` launches it again, without the Python that launched it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
import torch
import triton
from triton.compiler import compiler
from triton.runtime import driver
from triton.runtime.jit import TensorWrapper

from bitverdict.harness.emulator import Device, EmulatedFault
from bitverdict.harness.emulator.compiled_kernel import KernelMetadata, hashable
from bitverdict.harness.emulator.cuda_tensors import inside
from bitverdict.harness.emulator.device_probe import DeviceProbe, LaunchRun
from bitverdict.harness.emulator.frontend.arguments import program_arguments
from bitverdict.harness.emulator.frontend.stop_compiler import LANGUAGE
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.report.launch_replay.launch_recorder import LaunchRecorder, Row
from bitverdict.harness.report.launch_replay.launch_replayer import compare
from bitverdict.harness.report.launch_replay.recorded_launch import PLACE_MODULUS, Descriptor, RecordedLaunch

SUFFIX = ".launch"
MOST_BYTES = 256 << 20  # of the tensors of a launch that is kept
VERSION = 1


class SkippedLaunch(Exception):
    """Why a launch is not kept."""


class LaunchImage:
    """What a launch is given: `record` as JSON has it, and a copy of each storage that arguments lead into, by `copy` of its bytes.

    SkippedLaunch where it is given addresses, or more than `MOST_BYTES`."""

    def __init__(self, signature: Mapping[str, object], metadata: KernelMetadata, grid: Sequence[object], values: Sequence[object],
                 copy: Callable[[torch.Tensor], object] = lambda each: each.numpy().copy()) -> None:  # fmt: skip
        self.sources: list[torch.UntypedStorage] = []
        self.storages: list[Any] = []
        self.after: list[np.ndarray] = []  # the same after the launch
        self._copy, kinds = copy, {name: json_value(kind) for name, kind in signature.items()}
        arguments = [self._encode(kind, value) for kind, value in zip(kinds.values(), values, strict=True)]
        fields, target = {name: json_value(value) for name, value in metadata._asdict().items()}, metadata.target
        arch = f"sm_{target.arch}" if target.backend == "cuda" else str(target.arch)
        self.record = {"version": VERSION, "triton": triton.__version__, "arch": arch, "name": metadata.name, "grid": grid,
                       "signature": kinds, "values": arguments, "metadata": fields, "fault": None,
                       "begins": [each.data_ptr() % PLACE_MODULUS for each in self.sources]}  # fmt: skip

    def write(self, path: Path | IO[bytes], program: bytes, ttgir: str = "") -> None:
        """`program`: the tile program; empty where `ttgir` is given, of which a replay makes it."""
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
            file.writestr("launch.json", json.dumps(self.record, indent=1))
            file.writestr("program.mlir", program)
            file.writestr("kernel.ttgir", ttgir)
            for name, arrays in (("storage", self.storages), ("after", self.after)):
                for number, data in enumerate(arrays):
                    if name == "storage" or not np.array_equal(data, self.storages[number]):
                        file.writestr(f"{name}{number}", data.tobytes())

    def _encode(self, kind: object, value: Any) -> Any:
        if kind == "constexpr" or value is None:
            return None
        if isinstance(kind, list):
            return [self._encode(part, item) for part, item in zip(kind, value, strict=True)]
        if hasattr(value, "block_shape") and hasattr(value, "base"):
            fields = {name: json_value(item) for name, item in vars(value).items() if name != "base"}
            return {"descriptor": fields, "base": self._encode("*", value.base)}
        while isinstance(value, TensorWrapper):
            value = value.base
        if isinstance(value, torch.Tensor):
            tensor: torch.Tensor = inside(value)
            storage = tensor.untyped_storage()
            if all(each.data_ptr() != storage.data_ptr() for each in self.sources):
                if storage.nbytes() + sum(each.nbytes for each in self.storages) > MOST_BYTES:
                    raise SkippedLaunch(f"more than {MOST_BYTES >> 20} MB")
                self.sources.append(storage)
                self.storages.append(self._copy(bytes_in(storage)))
            number = [each.data_ptr() for each in self.sources].index(storage.data_ptr())
            return {"storage": number, "dtype": str(tensor.dtype).removeprefix("torch."),
                    "view": [list(tensor.shape), list(tensor.stride()), tensor.storage_offset()]}  # fmt: skip
        if str(kind).startswith("*"):
            raise SkippedLaunch("addresses as numbers")
        return json_value(value)


def bytes_in(storage: torch.UntypedStorage) -> torch.Tensor:
    """(bytes,) uint8, the storage itself."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


class LaunchFiles(DeviceProbe):
    """Rides on launches and keeps in `folder` those that a fault ends; where `chooses` is given, also the first of each kernel and
    specialisation whose name it takes. Not kept: what is given addresses as numbers, or more than `MOST_BYTES`."""

    def __init__(self, arch: str, folder: Path, chooses: Callable[[str], bool] | None = None) -> None:
        self.arch, self.folder, self.chooses = arch, folder, chooses
        self.written: list[Path] = []
        self._image: LaunchImage | None = None
        self._program = b""
        self._known_programs: set[bytes] = set()

    def on_request(self, source: Any, metadata: Any, grid: tuple[int, int, int], values: Sequence[object]) -> None:
        self._image, self._program = None, b""
        with contextlib.suppress(SkippedLaunch):
            self._image = LaunchImage(dict(source.signature), metadata, grid, values)

    def begin(self, run: LaunchRun) -> None:
        self._program = run.program
        if self._image and self.chooses and run.program not in self._known_programs and self.chooses(self._image.record["name"]):
            self._known_programs.add(run.program)
            self._write(self._image, run.program)

    def on_failure(self, error: BaseException) -> None:
        if self._program and self._image and isinstance(error, EmulatedFault):
            self._image.record["fault"] = [error.outcome, error.message, error.location]
            path = self._write(self._image, f"{error.outcome} {error.location}".encode())
            error.details["replay"] = f"bitverdict replay {path}"

    def _write(self, image: LaunchImage, named_by: bytes) -> Path:
        path = self.folder / f"{image.record['name']}-{self.arch}-{hashlib.sha256(named_by).hexdigest()[:12]}{SUFFIX}"
        self.folder.mkdir(parents=True, exist_ok=True)
        image.write(path, self._program)
        self.written.append(path)
        return path


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
                parts = {name: file.read(name) for name in file.namelist()}
            arrays = {name: np.frombuffer(bytearray(data), np.uint8) for name, data in parts.items()}
            self.storages = [arrays[f"storage{number}"] for number in range(len(self.record["begins"]))]
            self.after = [arrays.get(f"after{number}", data) for number, data in enumerate(self.storages)]
            self.program, self.ttgir = parts["program.mlir"], parts.get("kernel.ttgir", b"").decode()
        except (OSError, zipfile.BadZipFile, ValueError, KeyError) as error:
            sources = f"a {SUFFIX} file of pytest --emulate, exec --record or bv.sample"
            raise UsageError(f"launch {path}: cannot be read ({error}); give {sources}") from None
        if self.record.get("version") != VERSION:
            raise UsageError(f"launch {path}: version {self.record.get('version')}, this checkout reads {VERSION}; record it again")

    def run(self, device: Device) -> None:
        """Launch it on `device`, which is entered. Raises what the launch raises."""
        self.memory = memory = [_placed_bytes(*each) for each in zip(self.storages, self.record["begins"], strict=True)]
        signature, grid = {name: hashable(kind) for name, kind in self.record["signature"].items()}, tuple(self.record["grid"])
        values = [decode(value, memory) for value in self.record["values"]]
        program, fields = self._tile_program() if self.ttgir else (self.program, self.record["metadata"])
        metadata = SimpleNamespace(**fields, _asdict=lambda: fields)
        for probe in device.options.probes:
            probe.on_request(SimpleNamespace(signature=signature), metadata, grid, values)
        parameters = zip(signature.items(), values, strict=True)
        arguments = [part for (name, kind), value in parameters for part in program_arguments(kind, name, value)]
        device.run(program, metadata, grid, [name for name, _ in arguments], [value for _, value in arguments])

    def _tile_program(self) -> tuple[bytes, dict[str, Any]]:
        """The tile program, and its metadata, of a kernel that was compiled to machine code."""
        options = {name: hashable(value) for name, value in self.record["metadata"].items()}
        options["extern_libs"] = tuple(each for each in options.get("extern_libs") or () if Path(each[1]).exists())
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernel.ttgir"
            path.write_text(self.ttgir)
            kernel = compiler.compile(str(path), target=driver.active.get_current_target(), options=options)
        language = f"{LANGUAGE}{self.record['language']}\n".encode()
        return kernel.kernel.replace(f"{LANGUAGE}triton\n".encode(), language, 1), kernel.metadata._asdict()


def _placed_bytes(data: np.ndarray, begin: int) -> torch.Tensor:
    """A storage that holds `data` and nothing else, at an address that is `begin` modulo `PLACE_MODULUS`."""
    room = np.empty(data.size + 2 * PLACE_MODULUS, np.uint8)
    place = (begin - room.ctypes.data) % PLACE_MODULUS
    room[place : place + data.size] = data
    return torch.from_numpy(room[place : place + data.size])


def decode(value: Any, memory: list[torch.Tensor]) -> Any:
    """What `value` of a record stands for; tensors lie in `memory`, the bytes of each storage."""
    if isinstance(value, list):
        return tuple(decode(each, memory) for each in value)
    if not isinstance(value, dict):
        return value
    if "descriptor" in value:
        return Descriptor(decode(value["base"], memory), value["descriptor"])
    shape, strides, offset = value["view"]
    storage, dtype = memory[value["storage"]], getattr(torch, value["dtype"])
    elements = storage[: storage.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
    return elements.as_strided(shape, strides, offset)


class SampledWords(LaunchRecorder):
    """Rides on the launch of `stored`, and holds each region of memory to the bytes that it had after the sampled launch. `verdict`
    is the exit status, and a sentence: 0 where all words are equal or within their bounds, 3 where they are not compared."""

    def __init__(self, stored: StoredLaunch) -> None:
        self.stored, self.verdict = stored, (0, "")
        super().__init__("", "", "", self._tell, compiles=False)

    def end(self, run: LaunchRun) -> None:
        self._bases = [region.base for region in run.regions if not region.is_followed]
        super().end(run)

    def _replay_launch(self, launch_record: RecordedLaunch, before: list[np.ndarray], after: list[np.ndarray]) -> Row:
        sampled = {data.data_ptr(): torch.from_numpy(new) for data, new in zip(self.stored.memory, self.stored.after)}
        return compare(launch_record, [sampled[base] for base in self._bases], before, after)

    def _tell(self, row: Row) -> None:
        if "not_compared" in row:
            self.verdict = 3, f"its words are not compared: {row['not_compared']}"
            return
        text = f"{row['words']:,} words, {row['enclosed']:,} of them known by bounds: {row['differing']:,} differ from those of "
        text += f"{self.stored.record['sampled_on']}, {row['outside']:,} lie outside of their bounds"
        if first := row.get("first"):
            text += f"; {first['storage']}[{first['index']}] is 0x{first['got']} there, 0x{first['expected']} here"
        self.verdict = int(row["differing"] + row["outside"] > 0), text


__all__ = ["SUFFIX", "LaunchFiles", "LaunchImage", "SampledWords", "SkippedLaunch", "StoredLaunch"]
