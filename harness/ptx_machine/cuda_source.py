"""CUDA C++ on the emulated GPU: `bv.cuda_kernel("FILE.cu", "name")[grid, block](tensor, 5)`, or the text itself.

nvcc compiles the file to PTX for the chip that is emulated, without a GPU; `bitverdict.harness.ptx_machine` executes that. nvcc is
the one on the path, of ``CUDA_HOME``, or of NVIDIA's Python packages (``pip install bitverdict[cuda]``).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from bitverdict.harness.emulator.faults import BadArgument, EmulatedFault
from bitverdict.harness.ptx_machine.launch import PtxKernel, active_device

_ENTRY = re.compile(r"\.entry\s+([\w$]+)")


@dataclass(frozen=True)
class CudaKernel:
    """A kernel of CUDA C++, a file or a text, launched as `PtxKernel` is. `name`: a function, or an instance of a template as in
    C++ ("sgemm<64, 8>"). `options`: further ones of nvcc. BadArgument for what nvcc does not compile, with what it says, and for a
    name that the source lacks or has several times."""

    source: Path | str
    name: str
    shared_bytes: int = 0
    options: tuple[str, ...] = ()
    constants: tuple[tuple[str, object], ...] = ()  # `__constant__` variables that the host fills, by name

    def __getitem__(self, shape: tuple[Sequence[int] | int, Sequence[int] | int]) -> Callable[..., None]:
        def launch(*values: object) -> None:
            self.ptx_kernel(active_device().architecture.name)[shape](*values)

        return launch

    def ptx_kernel(self, arch: str) -> PtxKernel:
        """The kernel as PTX for `arch` ("sm_90")."""
        changed = self.source.stat().st_mtime_ns if isinstance(self.source, Path) else 0
        text, name = compile_kernel(self.source, changed, self.name, arch, self.options)
        return PtxKernel(text, name, self.shared_bytes, self.constants)


def cuda_kernel(
    source: str | Path,
    name: str,
    *,
    shared_bytes: int = 0,
    options: Sequence[str] = (),
    constants: Mapping[str, object] | None = None,
) -> CudaKernel:
    """The kernel `name` of CUDA C++: a file, or the text itself, which has a ``__global__``."""
    if not isinstance(source, str) or "__global__" not in source:
        source = Path(source).resolve()
        if not source.is_file():
            raise BadArgument(f"{source}: no such file; cuda_kernel takes a file of CUDA C++, or a text with a __global__ function")
    return CudaKernel(source, name, shared_bytes, tuple(options), tuple((constants or {}).items()))


def find_nvcc() -> str:
    """The path of nvcc. EmulatedFault where there is none."""
    folders = [Path(root) / "bin" for root in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")) if root]
    if spec := importlib.util.find_spec("nvidia"):
        folders += [
            bin_folder for root in spec.submodule_search_locations or () for bin_folder in sorted(Path(root).glob("cu*/bin"))
        ]
    path = shutil.which("nvcc") or shutil.which("nvcc", path=os.pathsep.join(map(str, folders)))
    if path is None:
        raise EmulatedFault(
            "not modelled", "CUDA C++ needs nvcc, which is not here: install the CUDA toolkit or `pip install bitverdict[cuda]`"
        )
    return path


@lru_cache(maxsize=64)
def compile_kernel(source: Path | str, changed: int, name: str, arch: str, options: tuple[str, ...]) -> tuple[str, str]:
    """The PTX of a file as it was `changed` (ns), or of a text, and the mangled name of its kernel."""
    target = arch + ("a" if int(arch[3:]) >= 90 else "")
    with tempfile.TemporaryDirectory() as folder:
        path = source if isinstance(source, Path) else Path(folder) / "kernel.cu"
        if isinstance(source, str):
            path.write_text(source)
        source, out = path, Path(folder) / "kernel.ptx"
        if "<" in name:  # a template has code where an instance is used
            source = Path(folder) / "instance.cu"
            use = f"[[gnu::used]] static const void *const bitverdict_instance = reinterpret_cast<const void *>(&{name});"
            source.write_text(f'#include "{path}"\n{use}\n')
        command = [find_nvcc(), "--ptx", "-lineinfo", "-std=c++17", f"-arch={target}", f"-I{path.parent}", *options]
        done = subprocess.run([*command, "-o", str(out), str(source)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise BadArgument(f"nvcc does not compile {path.name} for {target}:\n{(done.stderr or done.stdout).strip()}")
        text = out.read_text().replace(f"{folder}/", "")
    return text, _mangled_name(path, text, name)


def _mangled_name(path: Path, text: str, name: str) -> str:
    """The entry of `text` that C++ calls `name`."""
    entries = _ENTRY.findall(text)
    if name in entries:
        return name
    demangled = dict(zip(entries, _demangle(entries), strict=True))
    wanted = _plain_name(name)
    matches = [entry for entry, written in demangled.items() if wanted in _spellings(written)]
    if len(matches) != 1:
        there = ", ".join(sorted(set(demangled.values()))) or "none"
        raise BadArgument(f"{path.name} has {len(matches) or 'no'} kernels called {name!r}: it has {there}; a mangled one is taken")
    return matches[0]


def _plain_name(name: str) -> str:
    """Without spaces, casts and suffixes of numbers: "f<(int)4>" and "f<4u>" are "f<4>". Of "true" cu++filt makes "(bool)1",
    which is "1" here, as "true" is."""
    name = re.sub(r"\((?:unsigned )?(?:int|long|bool|char|short)\)(?=-?\w)", "", name).replace(" ", "")
    name = re.sub(r"(?<=[<,])(true|false)(?=[,>])", lambda found: str(int(found[1] == "true")), name)
    return re.sub(r"(?<=[<,])(-?\d+)[uUlL]+\b", r"\1", name)


def _spellings(demangled: str) -> set[str]:
    """What "void space::f<(int)4, float>(int)" may be called: with and without namespaces, template arguments and parameters."""
    text = _plain_name(demangled.removeprefix("void "))
    head = re.match(r"((?:\w+::)*)(\w+)(<.*>)?\(", text)
    if head is None:
        return {text}
    return {text, *(f"{space}{head[2]}{arguments}" for space in ("", head[1]) for arguments in ("", head[3] or ""))}


def _demangle(names: Sequence[str]) -> list[str]:
    tool = shutil.which("cu++filt") or shutil.which("c++filt")
    if tool is None or not names:
        return [re.sub(r"^_Z(\d+)(\w+)", lambda found: found[2][: int(found[1])] + "()", name) for name in names]
    return subprocess.run([tool, *names], capture_output=True, text=True, check=True).stdout.splitlines()


__all__ = ["CudaKernel", "compile_kernel", "cuda_kernel", "find_nvcc"]
