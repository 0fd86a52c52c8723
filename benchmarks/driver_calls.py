"""Which system calls a GPU's driver makes that the filter of a candidate's process on a GPU refuses.

    python -m benchmarks.driver_calls [--device cuda] [--write FILE]

A process confined as the candidate's adds two vectors with torch and with a Triton kernel. Where it fails under the filter, it is
tried with more calls, then with each group of them left out. The last line names the groups that it needs: they belong into
`WHERE_IT_HAS_DEVICES` of `harness/workers/jail/syscalls.py`. `--write` has their names, one a line. Status 1 where some are needed.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import torch
import triton
import triton.language as tl

from bitverdict.harness.workers.jail import confine
from bitverdict.harness.workers.jail.places import places
from bitverdict.harness.workers.jail.policy import CANDIDATE_ON_A_GPU
from bitverdict.harness.workers.jail.protections import LANDLOCK, SECCOMP, protections

SECONDS, TOGETHER = 90.0, 8
GROUPS = (
    ("socket", "bind", "connect", "listen", "accept4", "socketpair"), ("prctl",), ("fcntl",), ("open", "openat", "openat2"),
    ("chmod", "fchmod", "fchmodat", "chown", "fchown", "lchown", "utimensat"), ("process_vm_readv", "process_vm_writev"),
    ("sched_setscheduler", "sched_setaffinity", "sched_setattr", "setpriority"), ("mlockall", "munlockall", "mlock2"),
    ("clone", "clone3", "setsid", "setpgid", "set_mempolicy_home_node"), ("kill", "tgkill", "tkill"), ("ptrace", "kcmp"),
    ("shmget", "shmat", "shmctl", "shmdt", "memfd_create"), ("prlimit64", "setrlimit"), ("umask", "mknod", "mknodat", "truncate"),
    ("perf_event_open", "userfaultfd", "io_uring_setup", "bpf"), ("move_pages", "migrate_pages", "remap_file_pages"),
    ("inotify_init1", "inotify_add_watch", "fanotify_init"), ("getgroups", "setgroups", "setuid", "setgid", "personality"),
    ("pidfd_open", "pidfd_send_signal", "pidfd_getfd", "waitid"), ("syslog", "modify_ldt", "iopl", "ioperm", "sync", "syncfs"),
)  # fmt: skip
"""Calls that the filter refuses or holds to arguments, by what they are about: all of a group with any arguments."""


@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    tl.store(z_ptr + at, tl.load(x_ptr + at, mask=at < n) + tl.load(y_ptr + at, mask=at < n), mask=at < n)


def added(device: str) -> None:
    """What the process is asked for."""
    x, y, z = (torch.full((100,), value, device=device) for value in (1.0, 2.0, 0.0))  # (100,) each
    if device == "cpu":
        z = x + y
    else:
        add_kernel[(1,)](x, y, z, 100, BLOCK=128)
        torch.cuda.synchronize()
    assert bool((z == x + y).all())


def tried(device: str, confined: str, more: Sequence[tuple[str, ...]] = ()) -> str:
    """Why `added` fails in a process that is `confined`: "not", by "limits", by the "filter" and `more` calls; empty where it does
    not."""
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        _be(device, confined, more, writing)
    os.close(writing)
    said, until = b"", time.monotonic() + SECONDS
    while select.select([reading], [], [], max(0.0, until - time.monotonic()))[0]:
        if not (part := os.read(reading, 1 << 16)):
            break
        said += part
    else:
        os.kill(pid, signal.SIGKILL)
        said += b"it did not end"
    os.close(reading)
    _, status = os.waitpid(pid, 0)
    if status == 0:
        return ""
    return said.decode(errors="replace").strip()[-600:] or f"status {os.waitstatus_to_exitcode(status)}"


def _be(device: str, confined: str, more: Sequence[tuple[str, ...]], writing: int) -> NoReturn:
    os.dup2(writing, 1), os.dup2(writing, 2)
    try:
        home = tempfile.mkdtemp()
        os.environ.update(TRITON_CACHE_DIR=home, HOME=home, TMPDIR=home)
        tempfile.tempdir = None
        found = protections()
        if confined != "not":
            calls = None
            if confined == "filter":
                calls = confine.SystemCalls(CANDIDATE_ON_A_GPU)
                for name in (each for group in more for each in group):
                    calls._allow(name)
            confine.confine(CANDIDATE_ON_A_GPU, places([home, os.getcwd()], home), calls, landlock=found.has(LANDLOCK))
        added(device)
    except BaseException:
        traceback.print_exc()
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--write", type=Path, default=None)
    arguments = parser.parse_args()
    print(protections().sentence())
    begun = time.monotonic()

    def tell(what: str, why: str) -> bool:
        print(f"{time.monotonic() - begun:6.1f} s  {what}: {'works' if not why else 'FAILS: ' + why}", flush=True)
        return not why

    ways = ["not", "limits", *(["filter"] if protections().has(SECCOMP) else [])]
    works = {way: tell(f"confined: {way}", tried(arguments.device, way)) for way in ways}
    if works.get("filter", True):
        return int(not works["limits"])
    if not tell("the filter and all groups", tried(arguments.device, "filter", GROUPS)):
        print("needs calls outside the groups")
        return 1
    with ThreadPoolExecutor(TOGETHER) as pool:
        without = pool.map(lambda left: tried(arguments.device, "filter", [each for each in GROUPS if each is not left]), GROUPS)
        needed = [group for group, why in zip(GROUPS, without, strict=True) if not tell(f"without {' '.join(group)}", why)]
    tell("the filter and those needed", tried(arguments.device, "filter", needed))
    print(f"needed: {'; '.join(' '.join(group) for group in needed) or 'any of several'}")
    if arguments.write:
        arguments.write.write_text("".join(f"{name}\n" for group in needed or GROUPS for name in group))
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
