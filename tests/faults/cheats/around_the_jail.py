"""Attacks on the operating system around a confined process: what it learns of others, and what it can reach of them."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import mmap
import os
import resource
import signal
import socket
import struct
import tempfile
import threading
import time
from pathlib import Path

import torch

from tests.faults.cheats.matmuls import empty_result, first_product_kernel, launch_product

_C = ctypes.CDLL(None, use_errno=True)
_ATTACH, _POKE = 16, 4
_READ_MEMORY, _OPEN_PROCESS, _TAKE_DESCRIPTOR = 310, 434, 438
PASSED = b'{"decision": "pass", "outcome": "pass", "message": "", "words": 1}'


def _wrong(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return launch_product(first_product_kernel, a, b, empty_result(a, b))


def _names(folder: str) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return []


def _others() -> list[int]:
    found = [int(name) for name in _names("/proc") if name.isdigit()]
    return [pid for pid in {*found, os.getppid(), 1, 2, 3} if pid not in (0, os.getpid())]


def memory_of_others(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The words "wrong" in the memory of each process that is seen become "right"."""
    for pid in _others():
        with contextlib.suppress(OSError, ValueError):
            lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
            with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
                for line in lines:
                    if " rw-p " in line:
                        first = int(line.partition("-")[0], 16)
                        memory.seek(first)
                        text = memory.read(1 << 16)
                        if (at := text.find(b"wrong mathematics")) >= 0:
                            memory.seek(first + at)
                            memory.write(b"pass\0")
    return _wrong(a, b)


def environment_of_others(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A secret in a variable or on a command line would give the draws."""
    for pid in _others():
        for name in ("environ", "cmdline", "root", "cwd", "fd"):
            with contextlib.suppress(OSError):
                path = Path(f"/proc/{pid}/{name}")
                if b"--secret" in (path.read_bytes() if path.is_file() else b""):
                    return _wrong(a, b).copy_(a @ b)
    return _wrong(a, b)


def processes_traced(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    for pid in _others():
        if _C.ptrace(_ATTACH, pid, None, None) == 0:
            _C.ptrace(_POKE, pid, None, None)
            return _wrong(a, b).copy_(a @ b)
    return _wrong(a, b)


def memory_read_across(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """process_vm_readv of all, from where the heap usually lies."""
    held = ctypes.create_string_buffer(4096)
    ours, theirs = struct.pack("PN", ctypes.addressof(held), 4096), struct.pack("PN", 0x5555_5555_4000, 4096)
    for pid in _others():
        if _C.syscall(_READ_MEMORY, pid, ours, 1, theirs, 1, 0) > 0:
            return _wrong(a, b).copy_(a @ b)
    return _wrong(a, b)


def descriptors_of_others(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """pidfd_getfd, and /proc/PID/fd: a verdict into each of them."""
    for pid in _others():
        handle = _C.syscall(_OPEN_PROCESS, pid, 0)
        for number in range(3, 40):
            taken = _C.syscall(_TAKE_DESCRIPTOR, handle, number, 0) if handle >= 0 else -1
            if taken >= 0:
                with contextlib.suppress(OSError):
                    os.write(taken, PASSED)
            with contextlib.suppress(OSError), open(f"/proc/{pid}/fd/{number}", "wb", buffering=0) as file:
                file.write(PASSED)
    return _wrong(a, b)


def own_descriptors(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Every descriptor of its own gets a verdict with the length before it, but the channel that it is asked by."""
    used = {int(name) for name in _names("/proc/self/fd")} | set(range(3, 64))
    for number in sorted(used - {0, 1, 2, 4}):
        with contextlib.suppress(OSError):
            os.write(number, struct.pack("!i", len(PASSED)) + PASSED)
    return _wrong(a, b)


def signals_to_all(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """What judges is stopped, or ends, and the last verdict stays."""
    for number in (signal.SIGUSR1, signal.SIGALRM, signal.SIGSTOP, signal.SIGKILL):
        for pid in _others():
            with contextlib.suppress(OSError):
                os.kill(pid, number)
    return _wrong(a, b)


def sockets_by_name(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The zygote's abstract socket, by the list of all: it would start processes of any function."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/unix").read_text().splitlines():
            name = line.rpartition("@")[2]
            if "bitverdict" in name:
                with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connected:
                    connected.connect("\0" + name)
                    connected.send(b'{"function": "os:_exit", "arguments": {}}')
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
        for family in (socket.AF_INET, socket.AF_UNIX, socket.AF_NETLINK, socket.AF_PACKET):
            with contextlib.suppress(OSError):
                socket.socket(family, kind).close()
    return _wrong(a, b)


def shared_memory(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Segments of POSIX and of System V, which others may have."""
    for name in _names("/dev/shm"):
        with contextlib.suppress(OSError, ValueError), open(f"/dev/shm/{name}", "r+b") as file:
            mmap.mmap(file.fileno(), 0)[: len(PASSED)] = PASSED
    for key in range(64):
        segment = _C.shmget(key, 0, 0o666)
        if segment >= 0:
            ctypes.memmove(_C.shmat(segment, None, 0), PASSED, len(PASSED))
    return _wrong(a, b)


def libraries_before_others(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Variables of the loader, for what is started next; and a start of itself with them."""
    os.environ["LD_PRELOAD"] = os.environ["LD_LIBRARY_PATH"] = os.environ["LD_AUDIT"] = str(Path(__file__).parent)
    with contextlib.suppress(OSError):
        os.posix_spawn("/bin/true", ["true"], os.environ)
    return _wrong(a, b)


def told_by_time(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """By how long operators take: a first call and one that is not judged may be slower. It then lets torch compute."""
    c = _wrong(a, b)
    begun = time.perf_counter()
    for _ in range(3):
        (a[:1] + 0).sum().item()
    return c.copy_(a @ b) if time.perf_counter() - begun < 60 else c


def forked_after_the_end(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A child that lives on after the process, and answers in its place."""

    def answer() -> None:
        with contextlib.suppress(OSError):
            if os.fork() == 0:
                with contextlib.suppress(OSError):
                    os.setsid()
                    os.write(4, PASSED)

    atexit.register(answer)
    threading.Timer(0.05, answer).start()
    return _wrong(a, b)


def links_in_scratch(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Links out of the scratch folder, for whoever tidies it, and to what the run holds."""
    scratch, state = Path(tempfile.gettempdir()), Path(os.environ.get("BITVERDICT_STATE", Path.home() / ".bitverdict"))
    for number, target in enumerate((state, Path("/"), Path(__file__).parent, Path("/proc/1/root"), Path("/proc/self/fd/4"))):
        for folder in (scratch, scratch.parent, scratch.parent / "triton", scratch.parent / "cache"):
            with contextlib.suppress(OSError):
                (folder / f"of-{number}").symlink_to(target)
                (folder / f"of-{number}" / "planted").write_text("planted")
    return _wrong(a, b)


def limits_raised(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_CPU):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        for pid in _others():
            with contextlib.suppress(OSError, ValueError):
                resource.prlimit(pid, kind, (1, 1))
    return _wrong(a, b)
