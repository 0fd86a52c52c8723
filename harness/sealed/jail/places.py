"""What a confined process finds: files that it may read, and those that it must not see.

/usr, Python, site-packages, the rooms that the candidate's side needs, its folders     read only, at their own paths
what a run leaves, kept reproducers, contracts, front ends                              not there
what begins with a dot in the home directory, where the folders lie in it               not there
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import shutil
import site
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path

from bitverdict.harness.model.paths import (
    HARNESS,
    IMPORTED_FROM,
    IS_CHECKOUT,
    KERNELS,
    REFERENCE,
    REPRODUCERS,
    ROOT,
    state_directory,
)

ROOMS = ("emulator", "model", "judge", "checks", "workers", "sealed")
"""Rooms of harness/ that a confined process may import: no contract, no session, no front end."""

SYSTEM = ("/usr", "/nix/store", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SETTINGS = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", "/sys/devices/system/cpu", "/sys/devices/system/node")


@dataclass(frozen=True)
class Places:
    """Absolute paths. `hidden` lie below `readable`; `writable` is the scratch directory, or nothing."""

    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()

    @functools.cache  # noqa: B019  # a process has one or two of them
    def split(self) -> tuple[list[str], list[str]]:
        """(paths that may be read, folders that may be listed only), for Landlock: it grants folders and takes nothing back.

        A folder with something hidden below it is granted by what else it holds now. The names in it can be listed.
        """
        read, list_only, hidden = [], [], [Path(path) for path in self.hidden]
        queue = [Path(path) for path in self.readable]
        while queue:
            path = queue.pop()
            real = Path(os.path.realpath(path))
            if any(real.is_relative_to(each) for each in hidden):
                continue
            if any(each.is_relative_to(real) for each in hidden):
                list_only.append(str(path))
                with contextlib.suppress(OSError):
                    queue += path.iterdir()
            else:
                read.append(str(path))
        return read, list_only


def places(folders: Iterable[str] = (), scratch: str = "") -> Places:
    """The system's programs and libraries, Python, packages, our rooms, and `folders`, without what is hidden below them."""
    packages = [*site.getsitepackages(), site.getusersitepackages() if site.ENABLE_USER_SITE else ""]
    python = [sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable)), *packages, *_installed_elsewhere()]
    python += [
        *python_path_folders(),
        *_host_compiler(),
        *map(os.path.realpath, tools().values()),
        *tools().values(),
        *os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep),
    ]
    ours = [ROOT / "pyproject.toml", IMPORTED_FROM / "bitverdict", KERNELS, REFERENCE, HARNESS / "__init__.py"]
    ours += [HARNESS / room for room in ROOMS]
    found = [path for path in [*SYSTEM, *_SETTINGS, *python, *map(str, ours), *folders] if path and os.path.exists(path)]
    readable = tuple(dict.fromkeys(map(os.path.abspath, found)))
    return Places(readable, tuple(_hidden(readable)), (scratch,) if scratch else ())


def _host_compiler() -> list[str]:
    """The folder of a host compiler outside the system's: ``/opt/gcc`` for ``/opt/gcc/bin/gcc``. Triton builds its launcher with it
    on a real GPU. One that lies otherwise, or in the home directory itself, is its file alone."""
    named = (os.environ.get("CC", ""), "gcc", "clang", "cc")
    found = [Path(os.path.realpath(path)) for name in named if name and (path := shutil.which(name))]
    away = [path for path in found if not any(path.is_relative_to(each) for each in SYSTEM)]
    home = Path.home().resolve()
    return [str(path if path.parent.name != "bin" or home.is_relative_to(path.parents[1]) else path.parents[1]) for path in away]


def _installed_elsewhere() -> list[str]:
    """Folders of the packages that a confined process imports, where an editable installation has them outside site-packages."""
    return [folder for spec in _import_specs() for folder in spec.submodule_search_locations or ()]


def python_path_folders() -> list[str]:
    """Folders of `PYTHONPATH` that hold a package which a confined process imports: it imports the same one, and may read them."""
    folders = {
        os.path.dirname(place) for spec in _import_specs() for place in spec.submodule_search_locations or (spec.origin or "",)
    }
    asked = [os.path.abspath(each) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    return [each for each in dict.fromkeys(asked) if each in folders and each != str(IMPORTED_FROM)]


def tools() -> dict[str, str]:
    """Triton's variables that name a program or a library of the machine, such as ``TRITON_PTXAS_PATH``."""
    named = {name: each for name, each in os.environ.items() if name.startswith("TRITON_") and name.endswith("_PATH")}
    return {name: each for name, each in named.items() if os.path.isabs(each) and os.path.exists(each)}


def _import_specs() -> list[ModuleSpec]:
    found = map(importlib.util.find_spec, ("torch", "triton", "numpy", "landlockpy", "pyseccomp"))
    return [spec for spec in found if spec is not None]


def _hidden(readable: Iterable[str]) -> list[str]:
    """The state of runs, which is made where it is not there yet: what is not there cannot be covered; and other rooms."""
    above = [Path(os.path.realpath(path)) for path in readable]
    secret = [state_directory().resolve(), REPRODUCERS.resolve()]
    if not IS_CHECKOUT:
        secret += [path for path in HARNESS.iterdir() if path.is_dir() and path.name not in (*ROOMS, "__pycache__")]
    below = [path for path in secret if any(path.is_relative_to(each) for each in above)]
    if secret[0] in below:
        secret[0].mkdir(parents=True, exist_ok=True)
    return [str(path) for path in below if path.is_dir()] + _of_the_user(above)


def _of_the_user(above: list[Path]) -> list[str]:
    """Where the candidate's file lies in its user's home directory: what begins with a dot there, as keys do, but not Python."""
    home = Path.home().resolve()
    if not any(home.is_relative_to(each) for each in above):
        return []
    dotted = [path for path in home.glob(".*") if not path.is_symlink()]
    return [str(path) for path in dotted if not any(each.is_relative_to(path) for each in above)]
