"""The GPU that writes the words: the CUDA sources beside this file, compiled by nvcc to a shared library, called through ctypes.

Neither torch nor Triton is needed, so a word is that of the instruction and of nothing else.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bitverdict.harness.model.gpu_probe import COMPUTE_CAPABILITY

SOURCES = tuple(Path(__file__).with_name(name) for name in ("instructions.cu", "conversions.cu"))
INCLUDED_HEADER = Path(__file__).with_name("from_chip.h")


class CannotRecord(RuntimeError):
    """No words can be had here, or those that came cannot be trusted; the message says why and what to do."""


def nvcc() -> str:
    """Path of nvcc: ``CUDACXX``, the search path, then ``CUDA_HOME``. Raises CannotRecord where there is none."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    for candidate in (os.environ.get("CUDACXX", ""), shutil.which("nvcc") or "", str(Path(home) / "bin" / "nvcc")):
        if candidate and Path(candidate).exists():
            return candidate
    raise CannotRecord(
        "nvcc not found: set CUDA_HOME to a CUDA toolkit 12.0 or later, or pass a library built elsewhere (--library)"
    )


def compiler_version() -> str:
    """Release of nvcc (and so of its ptxas, which expands the fp8 forms of mma.sync on sm_90), or "unknown"."""
    try:
        text = subprocess.run([nvcc(), "--version"], capture_output=True, text=True, check=True).stdout
    except (CannotRecord, OSError, subprocess.CalledProcessError):
        return "unknown"
    found = re.search(r"V(\d+\.\d+\.\d+)", text)
    return found.group(1) if found else "unknown"


def present_arch() -> str:
    """The first GPU's architecture, such as "sm_90", by the driver alone. CannotRecord where there is no driver or no GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as reason:
        raise CannotRecord(f"no CUDA driver ({reason}): record runs on the GPU whose words are wanted") from None
    capability = [ctypes.c_int(), ctypes.c_int()]
    status = driver.cuInit(0)
    for attribute, value in zip(COMPUTE_CAPABILITY, capability, strict=True):
        status = status or driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, 0)
    if status:
        raise CannotRecord(f"no CUDA device answers (CUresult {status}): record runs on the GPU whose words are wanted")
    return f"sm_{capability[0].value}{capability[1].value}"


def build(into: Path, arch: str = "sm_90") -> Path:
    """Compile the sources for `arch` into the folder `into` and return the library. Raises CannotRecord with nvcc's message."""
    number = int(arch.removeprefix("sm_"))
    if number < 75:
        raise CannotRecord(f"{arch}: nvcc 13 compiles for sm_75 and later; record there")
    into.mkdir(parents=True, exist_ok=True)
    library = into / f"instructions-{arch}-{source_digest()}.so"
    if not library.exists():
        code = "90a" if number == 90 else str(number)
        options = ["-std=c++17", "-O2", "-shared", "-Xcompiler", "-fPIC", f"-gencode=arch=compute_{code},code=sm_{code}"]
        command = [nvcc(), *options, "-o", str(library), *map(str, SOURCES)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotRecord(f"nvcc could not compile {SOURCES[0].parent}:\n{done.stderr[-2000:]}")
    return library


def source_digest() -> str:
    """First 16 hexadecimal digits of the SHA-256 of the sources and of what they include, one after the other."""
    return hashlib.sha256(b"".join(source.read_bytes() for source in (*SOURCES, INCLUDED_HEADER))).hexdigest()[:16]


def driver_version() -> str:
    """The kernel driver's release by nvidia-smi, or "unknown"."""
    try:
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"]
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0].strip()
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def slug(name: str) -> str:
    """Short name of a GPU for files: "NVIDIA H200" is "h200"."""
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word not in ("nvidia", "tesla", "")]
    return words[0] if words else "gpu"


@dataclass(frozen=True)
class Device:
    """What `describe` found: GPU name, architecture such as "sm_90", and the CUDA versions of driver and runtime."""

    name: str
    arch: str
    cuda_driver: str
    cuda_runtime: str

    @property
    def slug(self) -> str:
        """Short name for files."""
        return slug(self.name)


class Machine:
    """The compiled instructions on device 0."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.record_words.argtypes = [ctypes.c_char_p] + [ctypes.c_void_p] * 4 + [ctypes.c_int] * 3
        self._library.record_conversion.argtypes = [ctypes.c_char_p] + [ctypes.c_void_p] * 2 + [ctypes.c_int]
        self._library.error_name.restype = ctypes.c_char_p

    def describe(self) -> Device:
        """The device, or CannotRecord where none answers."""
        text = ctypes.create_string_buffer(512)
        status = self._library.describe_device(text, len(text))
        if status:
            raise CannotRecord(f"no CUDA device answers ({self._name(status)}): record runs on the GPU whose words are wanted")
        name, capability, driver, runtime = text.value.decode().split(";")
        major, minor = capability.split(".")
        return Device(name, f"sm_{major}{minor}", driver, runtime)

    def words(self, ptx: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, *, steps: int, turn: int = 0) -> np.ndarray:
        """d [R] of the dtype of c, for operand words a, b [R, steps * K]. Raises CannotRecord on any CUDA error."""
        a, b, c = (np.ascontiguousarray(array) for array in (a, b, c))
        d = np.empty_like(c)
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (a, b, c, d)]
        status = self._library.record_words(ptx.encode(), *pointers, len(c), steps, turn)
        if status:
            raise CannotRecord(f"{ptx}: {'not in the library' if status < 0 else self._name(status)}")
        return d

    def convert(self, name: str, source: np.ndarray) -> np.ndarray:
        """Results [n] uint32 of one conversion of source words [n] uint32. Raises CannotRecord on any CUDA error."""
        source = np.ascontiguousarray(source, np.uint32)
        result = np.empty_like(source)
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (source, result)]
        status = self._library.record_conversion(name.encode(), *pointers, len(source))
        if status:
            raise CannotRecord(f"{name}: {'not in the library' if status < 0 else self._name(status)}")
        return result

    def _name(self, status: int) -> str:
        return self._library.error_name(status).decode()
