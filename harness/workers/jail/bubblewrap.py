"""The command line of bubblewrap: a world with what a zygote needs and nothing else.

/usr, Python, site-packages, the rooms that the candidate's side needs, its folders     read only, at their own paths
/scratch                                                                              writable, of bounded size, in memory
what a run leaves, reproducers, contracts                                             not there
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterable
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
from bitverdict.harness.workers.jail.policy import Policy

SCRATCH = "/scratch"
ROOMS = ("emulator", "model", "judge", "workers")
"""Rooms of harness/ that a confined process may import: no contract, no session, no front end."""

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SETTINGS = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", "/sys/devices/system/cpu", "/sys/devices/system/node")


def readable(folders: Iterable[str] = ()) -> tuple[str, ...]:
    """What a confined process may read: the system's programs and libraries, Python, packages, our rooms, and `folders`."""
    packages = [*site.getsitepackages(), site.getusersitepackages() if site.ENABLE_USER_SITE else ""]
    python = [sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable)), *packages]
    ours = [ROOT / "pyproject.toml", IMPORTED_FROM / "bitverdict", KERNELS, REFERENCE, HARNESS / "__init__.py"]
    ours += [HARNESS / room for room in ROOMS]
    found = [path for path in [*_SYSTEM, *_SETTINGS, *python, *map(str, ours), *folders] if path and os.path.exists(path)]
    return tuple(dict.fromkeys(map(os.path.abspath, found)))


def hidden(paths: Iterable[str]) -> list[str]:
    """What lies below `paths` and is not to be seen: the state of runs, kept reproducers, the other rooms of an installation."""
    secret = [state_directory().resolve(), REPRODUCERS]
    if not IS_CHECKOUT:
        secret += [path for path in HARNESS.iterdir() if path.is_dir() and path.name not in (*ROOMS, "__pycache__")]
    return [str(path) for path in secret if path.is_dir() and any(path.is_relative_to(os.path.realpath(above)) for above in paths)]


def command(bwrap: str, policy: Policy, paths: Iterable[str], environment: dict[str, str]) -> list[str]:
    """Bubblewrap's command line, to which the program's is appended."""
    paths = sorted(paths, key=lambda path: len(Path(path).parts))  # a folder before what lies in it
    line = [bwrap, "--unshare-all", "--unshare-user", "--hostname", "sealed", "--new-session", "--cap-drop", "ALL", "--clearenv"]
    for name, value in environment.items():
        line += ["--setenv", name, value]
    line += ["--proc", "/proc", "--dev", "/dev", "--size", str(policy.scratch), "--tmpfs", SCRATCH]
    for path in paths:
        line += _bound(path)
    for path in hidden(paths):
        line += ["--tmpfs", path, "--remount-ro", path]
    for name in sorted(os.listdir("/dev")) if policy.devices else ():
        if name.startswith(policy.devices):
            line += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    return [*line, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", SCRATCH, "--"]


def _bound(path: str) -> list[str]:
    """A link of the system's root stays one: ``/lib`` is ``usr/lib`` on most."""
    if os.path.islink(path) and path in _SYSTEM:
        return ["--symlink", os.readlink(path), path]
    return ["--ro-bind", path, path]
