"""What a GPU's driver asks of the system that the jail refuses to a candidate's process on a GPU: files, and system calls.

    python -m benchmarks.driver_calls [--device cuda] [--write FILE]

A process confined as the candidate's adds two vectors with torch and with a Triton kernel. Where it fails, it is run again under
ptrace(2), which tells what was refused to it: that is allowed, until it works. Then each is left out alone. The last lines name
what it needs: `files` of `CANDIDATE_ON_A_GPU` (`harness/sealed/jail/policy.py`), and `WHERE_IT_HAS_DEVICES` of `syscalls.py`.
`--write` has them as JSON. Status 1 where the jail refuses something that is needed. On x86-64 alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import torch

from benchmarks.campaign import parse, run_script
from bitverdict.harness.sealed.candidate.gpu_trial_kernel import add_kernel
from bitverdict.harness.sealed.jail import confine
from bitverdict.harness.sealed.jail.places import places
from bitverdict.harness.sealed.jail.policy import CANDIDATE_ON_A_GPU
from bitverdict.harness.sealed.jail.protections import LANDLOCK, SECCOMP, protections

SECONDS, TOGETHER, ROUNDS = 60.0, 8, 6
REFUSED = {errno.EACCES, errno.EPERM, errno.ENOSYS, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.EFBIG}
PATHS = {
    "open": 0,
    "stat": 0,
    "lstat": 0,
    "access": 0,
    "readlink": 0,
    "openat": 1,
    "newfstatat": 1,
    "faccessat": 1,
    "faccessat2": 1,
}
"""Call -> which argument is a path."""
_TRACEME, _PEEK, _SYSCALL, _GETREGS, _SETOPTIONS, _SYSGOOD, _EXITKILL, _NEW = 0, 3, 24, 12, 0x4200, 1, 0x100000, 0xE
_WALL = 0x40000000  # threads too


@dataclass(frozen=True)
class Way:
    """How a process is confined, and what it is allowed beside."""

    limits: bool = False
    files: bool = False
    calls: bool = False
    more_files: tuple[str, ...] = ()
    more_calls: tuple[str, ...] = ()

    def __str__(self) -> str:
        held = [name for name, has in (("limits", self.limits), ("landlock", self.files), ("seccomp", self.calls)) if has]
        return " and ".join(held) or "not confined"


def added(device: str) -> None:
    """What the process is asked for."""
    x, y, z = (torch.full((100,), value, device=device) for value in (1.0, 2.0, 0.0))  # (100,) each
    if device == "cpu":
        z = x + y
    else:
        add_kernel[(1,)](x, y, z, 100, BLOCK=128)
        torch.cuda.synchronize()
    assert bool((z == x + y).all())


def tried(device: str, way: Way) -> str:
    """Why `added` fails in a process confined in that `way`; empty where it does not."""
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        _be(device, way, writing)
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
    return said.decode(errors="replace").strip()[-300:] or f"status {os.waitstatus_to_exitcode(status)}"


def _be(device: str, way: Way, writing: int, *, traced: bool = False) -> NoReturn:
    os.dup2(writing, 1), os.dup2(writing, 2)
    try:
        home = tempfile.mkdtemp()
        os.environ.update(TRITON_CACHE_DIR=home, HOME=home, TMPDIR=home)
        tempfile.tempdir = None
        if traced:
            _ptrace(_TRACEME, 0, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
        if way.limits:
            calls = confine.SystemCalls(CANDIDATE_ON_A_GPU) if way.calls else None
            for name in way.more_calls if calls else ():
                calls._allow(name)  # type: ignore[union-attr]
            seen = places([home, os.getcwd(), *CANDIDATE_ON_A_GPU.files, *way.more_files], home)
            confine.confine(CANDIDATE_ON_A_GPU, seen, calls, landlock=way.files)
        added(device)
    except BaseException:
        traceback.print_exc()
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(1)
    os._exit(0)


_NAMES = "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base ds es fs gs"


class _Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in _NAMES.split()]


_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request: int, pid: int, data: object) -> None:
    if _libc.ptrace(request, pid, None, data) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request}")


def refused(device: str, way: Way) -> list[tuple[str, str, str]]:
    """(call, path or argument, error) of each call that fails with one of `REFUSED` in a process confined in that `way`."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if not (pid := os.fork()):
        _be(device, way, nowhere, traced=True)
    os.close(nowhere)
    os.waitpid(pid, 0)
    _ptrace(_SETOPTIONS, pid, _SYSGOOD | _EXITKILL | _NEW)
    _ptrace(_SYSCALL, pid, 0)
    found: dict[tuple[str, str, str], None] = {}
    registers, inside, until = _Registers(), {pid: False}, time.monotonic() + SECONDS
    while time.monotonic() < until:
        one, status = os.waitpid(-1, _WALL)
        if not os.WIFSTOPPED(status):
            if one == pid:
                return list(found)
            continue
        number, passed = os.WSTOPSIG(status), 0
        if number == signal.SIGTRAP | 0x80:
            inside[one] = not inside.get(one, False)
            if not inside[one]:
                _ptrace(_GETREGS, one, ctypes.byref(registers))
                error = -ctypes.c_longlong(registers.rax).value
                if error in REFUSED:
                    found[_told(one, registers, error)] = None
        elif one in inside and not status >> 16:
            passed = number
        inside.setdefault(one, False)
        with contextlib.suppress(ProcessLookupError):
            _ptrace(_SYSCALL, one, passed)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return [*found, ("", "", f"it did not end within {SECONDS:g} s")]


def _told(pid: int, registers: _Registers, number: int) -> tuple[str, str, str]:
    name = confine.pyseccomp.resolve_syscall(confine.pyseccomp.Arch.NATIVE, registers.orig_rax)
    name = name.decode() if isinstance(name, bytes) else str(name)
    arguments = (registers.rdi, registers.rsi, registers.rdx)
    if name in PATHS:
        said = _text(pid, arguments[PATHS[name]])
    elif name in ("ioctl", "fcntl"):
        try:
            said = f"{os.readlink(f'/proc/{pid}/fd/{arguments[0]}')} {arguments[1]:#x}"
        except OSError:
            said = f"{arguments[0]} {arguments[1]:#x}"
    else:
        said = " ".join(f"{each:#x}" for each in arguments)
    return name, said, errno.errorcode.get(number, str(number))


def _text(pid: int, address: int) -> str:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(min(512, 4096 - address % 4096)).split(b"\0")[0].decode(errors="replace")


def main() -> int:
    arguments = parse(__doc__, device="cuda", write=Path)
    print(protections().sentence())
    begun, has = time.monotonic(), protections().has

    def works(what: str, way: Way) -> bool:
        why = tried(arguments.device, way)
        print(f"{time.monotonic() - begun:6.1f} s  {what}: {'works' if not why else 'FAILS: ' + why}", flush=True)
        return not why

    ways = [
        Way(),
        Way(limits=True),
        Way(limits=True, files=has(LANDLOCK)),
        Way(limits=True, files=has(LANDLOCK), calls=has(SECCOMP)),
    ]
    held = {str(way): works(str(way), way) for way in dict.fromkeys(ways)}
    way, known = ways[-1], dict[tuple[str, str, str], None]()
    if held[str(way)]:
        return 0
    for _ in range(ROUNDS):
        for each in refused(arguments.device, way):
            if each not in known:
                print(f"    refused: {' '.join(each)}", flush=True)
            known[each] = None
        files = tuple(
            dict.fromkeys(path for name, path, _ in known if name in PATHS and path.startswith("/") and os.path.exists(path))
        )
        calls = tuple(dict.fromkeys(name for name, _, said in known if said in ("ENOSYS", "EPERM") and name))
        if (more := replace(way, more_files=files, more_calls=calls)) == way:
            print("nothing more is refused that can be allowed")
            return 1
        way = more
        if works(f"with {len(files)} files and {len(calls)} calls more", way):
            break
    else:
        return 1
    wholes: list[Way] = [replace(way, more_files=tuple(each for each in way.more_files if each != one)) for one in way.more_files]
    wholes += [replace(way, more_calls=tuple(each for each in way.more_calls if each != one)) for one in way.more_calls]
    with ThreadPoolExecutor(TOGETHER) as pool:
        names = [*way.more_files, *way.more_calls]
        needed = [
            name
            for name, fails in zip(names, pool.map(lambda each: bool(tried(arguments.device, each)), wholes), strict=True)
            if fails
        ]
    least = replace(
        way,
        more_files=tuple(each for each in way.more_files if each in needed),
        more_calls=tuple(each for each in way.more_calls if each in needed),
    )
    way = least if works("with what is needed alone", least) else way
    print(f"files: {' '.join(way.more_files)}\ncalls: {' '.join(way.more_calls)}")
    if arguments.write:
        arguments.write.write_text(json.dumps({"files": way.more_files, "calls": way.more_calls}))
    return 1


if __name__ == "__main__":
    run_script(main)
