"""The command line of bubblewrap: a world with what a zygote needs and nothing else.

/usr, Python, site-packages, the rooms that the candidate's side needs, its folders     read only, at their own paths
/scratch                                                                              writable, of bounded size, in memory
what a run leaves, reproducers, contracts                                             not there
"""

from __future__ import annotations

import os
from pathlib import Path

from bitverdict.harness.sealed.jail.places import SYSTEM, Places
from bitverdict.harness.sealed.jail.policy import Policy

SCRATCH = "/scratch"


def command(bwrap: str, policy: Policy, places: Places, environment: dict[str, str]) -> list[str]:
    """Bubblewrap's command line, to which the program's is appended."""
    line = [bwrap, "--unshare-all", "--unshare-user", "--hostname", "sealed", "--new-session", "--cap-drop", "ALL", "--clearenv"]
    for name, value in environment.items():
        line += ["--setenv", name, value]
    line += ["--proc", "/proc", "--dev", "/dev", "--size", str(policy.scratch), "--tmpfs", SCRATCH]
    bound_paths: list[Path] = []
    for path in sorted(places.readable, key=lambda path: len(Path(path).parts)):
        if not any(
            Path(path).is_relative_to(above) for above in bound_paths
        ):  # it may be reached by a link, through which nothing is bound
            line += _bound(path)
            bound_paths.append(Path(path))
    for path in places.hidden:
        line += ["--tmpfs", path, "--remount-ro", path] if os.path.isdir(path) else ["--ro-bind", "/dev/null", path]
    for name in sorted(os.listdir("/dev")) if policy.devices else ():
        if name.startswith(policy.devices):
            line += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    return [*line, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", SCRATCH, "--"]


def _bound(path: str) -> list[str]:
    """A link of the system's root stays one: ``/lib`` is ``usr/lib`` on most."""
    if os.path.islink(path) and path in SYSTEM:
        return ["--symlink", os.readlink(path), path]
    return ["--ro-bind", path, path]
